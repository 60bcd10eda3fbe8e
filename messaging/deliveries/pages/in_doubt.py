"""What is in doubt: inbound by trigger and reason, outbound by the partners' answers and by pair and cause,
transactions by partner and reason and one by one.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages as notices
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext as _

from messaging.access.selectors.reach import read_id
from messaging.bulk import selectors as jobs_of
from messaging.causes import lookup
from messaging.choices import Direction, MessageState, PartnerAnswer
from messaging.console import cells
from messaging.console.access import Person, actor, person, requires
from messaging.console.rendering import keyset_page, page, see_other
from messaging.console.resource import table
from messaging.deliveries.pages import tables
from messaging.deliveries.pages.decisions import MESSAGE, SCOPE, Choice, ChoiceButton, Many, button, settle
from messaging.deliveries.pages.in_doubt_groups import (
    Group,
    code_of,
    of_answer,
    of_failures,
    of_pair,
    of_trigger,
    settle_group,
)
from messaging.deliveries.selectors import in_doubt, triggers
from messaging.deliveries.services import settling
from messaging.messages.pages import tables as message_tables
from messaging.messages.selectors import evidence, messages
from messaging.messages.services import inquiries
from messaging.models import Message, Pair
from messaging.pairs.selectors import pairs
from messaging.protocol.processing import Doubt
from messaging.templatetags.hub import middle, state
from messaging.transactions.pages import settle_buttons
from messaging.transactions.selectors import coordinations
from messaging.transactions.selectors.diagnosis import diagnose
from rmhub import clock
from rmhub.language import inside, number

_OF_PAIR = "console/deliveries/doubt_messages.html"
_OF_DOCUMENTS = "console/deliveries/doubt_documents.html"
_TABS = ("inbound", "outbound", "transactions")
# What a resolver may well know by now.
_ASK_FIRST = (Doubt.RESOLVER_FAILED, Doubt.RESOLVER_NONSENSE, Doubt.HISTORY_UNREACHABLE)


@requires("deliveries:read")
def doubt_list(request: HttpRequest) -> HttpResponse:
    """Three tabs: did our application process it; did the partner get it; did all who took part do the same."""
    tab = request.GET.get("tab", "")
    now = clock.now()
    inbound, outbound = in_doubt.groups(now), in_doubt.outbound_groups(now)
    about = coordinations.doubtful_count()
    if tab not in _TABS:
        tab = "outbound" if outbound and not inbound else "inbound"
        tab = "transactions" if about and not inbound and not outbound else tab
    context: dict[str, Any] = {
        "tab": tab,
        "groups": [(group, in_doubt.age(group.oldest_at, now)) for group in inbound],
        "outbound": [(group, in_doubt.age(group.oldest_at, now)) for group in outbound],
        "answers": [_answer_row(request, group, now) for group in in_doubt.by_answer(outbound)],
        "asking": jobs_of.asking(now) if tab == "outbound" else None,
        "may_ask": _may_ask(request),
        "askable": sum(group.count for group in inbound if group.can_ask and group.trigger.state != "disabled"),
        "inbound_count": sum(group.count for group in inbound),
        "outbound_count": sum(group.count for group in outbound),
        "transaction_count": about,
        "transactions": _doubtful_rows(request, now) if tab == "transactions" else [],
        "transaction_groups": _transaction_groups(now) if tab == "transactions" else [],
    }
    of_documents = _("Documents in doubt by trigger and reason, the oldest group first")
    of_messages = _("Messages in doubt by pair and cause, the oldest group first")
    of_transactions = _("Transactions in doubt by partner and reason, the oldest group first")
    context |= {
        "by_trigger": tables.groups(of_documents, tables.BY_TRIGGER, context["groups"]),
        "by_pair": table(of_messages, tables.BY_PAIR, context["outbound"], about=_of_pair_and_cause),
        "by_partner": tables.groups(of_transactions, tables.BY_PARTNER, context["transaction_groups"]),
        "one_by_one": table(
            _("Transactions in doubt, the oldest doubt first"),
            tables.TRANSACTIONS,
            context["transactions"],
            about=lambda row: {**cells.row_id(row["transaction"]), "data-testid": "doubtful-transaction"},
        ),
    }
    return page(request, "console/deliveries/in_doubt.html", context, live="live-in-doubt")


def _of_pair_and_cause(row: Any) -> dict[str, str]:
    return {"data-testid": "doubt-group", "id": f"row-{row[0].pair.public_id}-{row[0].cause}"}


def _doubtful_rows(request: HttpRequest, now: datetime) -> list[dict[str, Any]]:
    """Transactions in doubt, the oldest doubt first, each with what is the matter and how to settle it."""
    who = person(request)
    return [
        {
            "transaction": one,
            "diagnosis": diagnose(one, coordinations.taking_part(one), now),
            "names": [coordinations.name_of(taker) for taker in coordinations.doubts_of(one)],
            "settle": [
                (coordinations.name_of(taker), button)
                for taker in coordinations.doubts_of(one)
                for button in settle_buttons(one, taker, who)
            ],
            "level": in_doubt.age(one.doubtful_since or now, now),
        }
        for one in coordinations.doubtful()
    ]


def _transaction_groups(now: datetime) -> list[dict[str, Any]]:
    """Groups of transactions with the list of each."""
    rows = []
    for group in in_doubt.transaction_groups():
        query = {"doubtful": "yes", "doubt": group.doubt, "party": group.partner.public_id if group.partner else ""}
        asked = urlencode({name: value for name, value in query.items() if value})
        href = f"{reverse('console:transactions')}?{asked}"
        rows.append({"group": group, "href": href, "level": in_doubt.age(group.oldest_at, now)})
    return rows


@requires("deliveries:read")
def doubt_group(request: HttpRequest, reference: str, doubt: str) -> HttpResponse:
    """One group: why they are in doubt, what can be decided, and the documents, the oldest first."""
    trigger = triggers.trigger(reference)
    code = code_of(doubt)
    found = in_doubt.group(trigger, code, clock.now())
    reason = in_doubt.reason(code)
    context = {
        "template": _OF_DOCUMENTS,
        "title": _("{what}: {which}").format(what=trigger.name, which=reason.label),
        "crumbs": (
            (reverse("console:in-doubt"), _("In doubt")),
            (reverse("console:trigger", args=[trigger.public_id]), trigger.name),
        ),
        "heading": reason.label,
        "about": trigger.name,
        "group": found,
        "reason": reason,
        "buttons": _buttons(request, of_trigger(trigger, code, found.count if found else 0)),
    }
    return _group_page(request, f"{trigger.pk}.{code}", in_doubt.documents(trigger.pk, code), context)


@requires("messages:read")
def outbound_group(request: HttpRequest, code: str, cause: str) -> HttpResponse:
    """The messages of one pair whose outcome is unknown for one cause."""
    pair = pairs.pair(code)
    cause = code_of(cause)
    found = in_doubt.outbound_group(pair, cause, clock.now())
    label = lookup(cause).label if cause else _("In doubt")
    context = {
        "template": _OF_PAIR,
        "title": _("{what}: {which}").format(what=pair.code, which=label),
        "crumbs": (
            (f"{reverse('console:in-doubt')}?tab=outbound", _("In doubt")),
            (reverse("console:pair", args=[pair.code]), pair.code),
        ),
        "heading": label,
        "about": pair.code,
        "pair": pair,
        "group": found,
        "cause": cause,
        "buttons": _buttons(request, _of_pair(pair, cause, found)),
        "may_ask": _may_ask(request),
    }
    return _group_page(request, f"{pair.pk}.{cause}", in_doubt.outbound_messages(pair.pk, cause), context)


@requires("messages:read")
def answer_group(request: HttpRequest, answer: str) -> HttpResponse:
    """The messages of all pairs about which their partners say the same."""
    found = _answer(answer)
    now = clock.now()
    group = next((one for one in in_doubt.by_answer(in_doubt.outbound_groups(now)) if one.answer == found), None)
    label = PartnerAnswer(found).label if found else _("Not asked yet")
    context = {
        "template": "console/deliveries/doubt_answer.html",
        "title": _("In doubt: {reason}").format(reason=label),
        "crumbs": ((f"{reverse('console:in-doubt')}?tab=outbound", _("In doubt")),),
        "heading": _("The partners’ answer: {answer}").format(answer=inside(label)),
        "answer": found,
        "group": group,
        "row": _answer_row(request, group, now) if group else None,
        "may_ask": _may_ask(request),
    }
    return _group_page(request, f"answer.{found}", in_doubt.answered(found), context)


def _group_page(request: HttpRequest, mark: str, rows: QuerySet[Any], context: dict[str, Any]) -> HttpResponse:
    group = context["group"]
    context |= keyset_page(request, f"console.in_doubt.{mark}", rows, order=("id",), filters={})
    context["level"] = in_doubt.age(group.oldest_at, clock.now()) if group else "good"
    if context["template"] == _OF_DOCUMENTS:
        said = _("Documents of this group, the oldest first")
        context["table"] = tables.deliveries(said, context["rows"], tables.OF_DOUBT)
    else:
        said = _("Messages of this group, the oldest first")
        context["table"] = message_tables.messages(said, context["rows"], pair=context["template"] != _OF_PAIR)
    return page(request, context["template"], context, live="live-doubt")


@requires(SCOPE, methods=("GET", "POST"))
def answer_settle(request: HttpRequest, answer: str, decision: str) -> HttpResponse:
    """The plan of a job over all messages with one answer, and its beginning. Comes back to what is in doubt."""
    found = _answer(answer)
    groups = in_doubt.by_answer(in_doubt.outbound_groups(clock.now()))
    group = next((one for one in groups if one.answer == found), None)
    return settle_group(request, of_answer(found, group.count if group else 0), decision)


@requires(SCOPE, methods=("GET", "POST"))
def doubt_settle(request: HttpRequest, reference: str, doubt: str, decision: str) -> HttpResponse:
    """The plan of a job over one inbound group, and its beginning."""
    trigger = triggers.trigger(reference)
    code = code_of(doubt)
    found = in_doubt.group(trigger, code, clock.now())
    return settle_group(request, of_trigger(trigger, code, *_size(found)), decision)


@requires(SCOPE, methods=("GET", "POST"))
def outbound_settle(request: HttpRequest, code: str, cause: str, decision: str) -> HttpResponse:
    """The plan of a job over one outbound group, and its beginning."""
    pair = pairs.pair(code)
    cause = code_of(cause)
    found = in_doubt.outbound_group(pair, cause, clock.now())
    return settle_group(request, _of_pair(pair, cause, found), decision)


@requires(SCOPE, methods=("GET", "POST"))
def trigger_failed(request: HttpRequest, reference: str) -> HttpResponse:
    """The plan of a job that resubmits what a trigger's service failed on, and its beginning."""
    trigger = triggers.trigger(reference)
    count = triggers.backlogs([trigger.pk])[trigger.pk].failed
    return settle_group(request, of_failures(trigger, count), "resubmit")


@requires(SCOPE, methods=("GET", "POST"))
def message_settle(request: HttpRequest, reference: str, decision: str) -> HttpResponse:
    """One outbound message in doubt: the dialog, and the decision."""
    choice = MESSAGE.get(decision)
    message = messages.message(read_id("msg", reference))
    if choice is None:
        raise Http404(_("There is no decision {name}.").format(name=decision))

    def do(reason: str, remind_in: int | None) -> HttpResponse:
        settled = settling.message_settle(
            message_id=message.pk, decision=choice.slug, actor=actor(request), reason=reason, remind_in=remind_in
        )
        notices.success(request, str(choice.done))
        return see_other("console:message", settled.public_id)

    def shown(refused: bool) -> dict[str, Any]:
        row = messages.message(message.pk) if refused else message
        back = reverse("console:message", args=[row.public_id])
        possible = choice.slug in settling.message_decisions(row)
        effects = choice.effects(Many(1, row.pair.code))
        if row.pair.flow == "suspended":
            effects.append(
                _("{pair} is suspended: nothing goes on there until it is resumed.").format(pair=row.pair.code)
            )
        return {
            "question": _("{what}: {which}").format(what=choice.label, which=row.action),
            "crumbs": ((reverse("console:messages"), _("Messages")), (back, middle(row.message_id, 40))),
            "testid": "settle",
            "now": format_html(
                '{} <span class="mono">{}</span>', state("message", row.state), middle(row.message_id, 44)
            ),
            "why_not": "" if possible else _("It is {state} now.").format(state=inside(row.get_state_display())),
            "effects": effects,
            "back": back,
            "leave": _("Cancel"),
            "back_to": _("Back to the message"),
            "button": choice.label,
        }

    return settle(request, choice, shown, do)


def message_buttons(message: Message, who: Person) -> list[ChoiceButton]:
    """What can be decided about an outbound message that is in doubt; none for any other."""
    return [
        button(who, MESSAGE[slug], reverse("console:message-settle", args=[message.public_id, slug]))
        for slug in settling.message_decisions(message)
    ]


def evidence_of(message: Message, who: Person, tab: str = "timeline") -> dict[str, Any]:
    """Context of a message's page: what is known about an outbound message that is not known to be delivered.

    What the evidence speaks for is offered first; nothing is chosen for the person. Empty for all other messages.
    """
    open_question = message.direction == Direction.OUT and message.attempts and message.state != MessageState.DELIVERED
    if tab != "timeline" or not open_question:
        return {}
    found = evidence.of_message(message, clock.now())
    missing = who.lacks(SCOPE)
    buttons = message_buttons(message, who)
    buttons.sort(key=lambda button: button.choice.slug != found.suggestion)
    return {
        "evidence": found,
        "evidence_why_not": _("Needs the role {role}.").format(role=missing) if missing else inquiries.can_ask(message),
        "buttons": buttons,
    }


def _buttons(request: HttpRequest, group: Group) -> list[ChoiceButton]:
    who = person(request)
    found = []
    for choice in _suggested(group) if group.count else ():
        label = f"{choice.label} ({number(group.count)})" if group.count > 1 else choice.label
        found.append(button(who, choice, group.href(choice.slug), group.possible(choice.slug), label))
    return found


def _answer(segment: str) -> str:
    answer = "" if segment == "none" else segment
    if answer and answer not in PartnerAnswer.values:
        raise Http404(_("No partner answers {name}.").format(name=segment))
    return answer


def _answer_row(request: HttpRequest, group: in_doubt.AnswerGroup, now: datetime) -> dict[str, Any]:
    """A group of one answer, with the decision that it is evidence for."""
    offered = None
    if group.suggestion:
        choice = MESSAGE[group.suggestion]
        href = reverse("console:doubt-answer-settle", args=[group.answer, choice.slug])
        offered = button(person(request), choice, href, label=f"{choice.label} ({number(group.count)})")
    return {"group": group, "level": in_doubt.age(group.oldest_at, now), "button": offered}


def _may_ask(request: HttpRequest) -> str:
    """The role that is missing for asking partners, "" when none is."""
    return person(request).lacks(SCOPE)


def _of_pair(pair: Pair, cause: str, found: in_doubt.OutboundGroup | None) -> Group:
    return of_pair(pair, cause, *_size(found), mixed=found is not None and found.mixed)


def _size(group: in_doubt.DoubtGroup | in_doubt.OutboundGroup | None) -> tuple[int, int]:
    """How many there are, and how many of them were put off."""
    return (group.count, group.later) if group is not None else (0, 0)


def _suggested(group: Group) -> list[Choice]:
    """The choices, the one that is likely to help first."""
    choices = list(group.choices.values())
    if group.doubt in _ASK_FIRST and not group.possible("ask"):
        choices.sort(key=lambda choice: choice.slug != "ask")
    return choices
