"""Settling many at once: the groups that share their evidence, and the plan of a job over one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from django.conf import settings
from django.contrib import messages as notices
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import translation
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from messaging.bulk.services import jobs
from messaging.causes import lookup
from messaging.choices import DeliveryState, PartnerAnswer
from messaging.console.access import actor
from messaging.console.rendering import see_other
from messaging.deliveries.pages.decisions import DELIVERY, MESSAGE, Choice, Many, confirmed, many_of, settle
from messaging.deliveries.selectors import deliveries, in_doubt
from messaging.exceptions import InvalidSubmission, NotFound, Stale
from messaging.models import Delivery, Pair, Trigger
from rmhub.language import inside, number

_SAMPLE = 5


@dataclass(frozen=True, slots=True)
class Group:
    """Many that share their evidence, and the job that settles them. `later` of them were put off by somebody.

    `what()`: which they are, in the language that is active. `choices`: what can be decided; `many(count)` is what
    their dialogs are about. `possible(decision)`: why it cannot be decided now, "" when it can. `href(decision)`: the
    dialog; `back` the page behind it. `sample()`: the first of them, with their names and what they are. `doubt`: why
    documents are in doubt.
    """

    choices: Mapping[str, Choice]
    action: str
    count: int
    later: int
    what: Callable[[], str]
    filter: dict[str, Any]
    back: str
    href: Callable[[str], str]
    possible: Callable[[str], str]
    sample: Callable[[], list[tuple[str, str]]]
    many: Callable[[int], Many]
    doubt: str = ""


def of_trigger(trigger: Trigger, doubt: str, count: int, later: int = 0) -> Group:
    """Documents of one trigger that are in doubt for one reason."""
    reference = [trigger.public_id, segment(doubt)]

    def possible(decision: str) -> str:
        if trigger.state == "disabled" and decision in ("resubmit", "ask"):
            return _("The trigger is disabled.")
        return _("The trigger has no resolver.") if decision == "ask" and trigger.resolver == "none" else ""

    return Group(
        choices=DELIVERY,
        action="settle_deliveries",
        count=count,
        later=later,
        what=lambda: _("{what}: {which}").format(what=trigger.name, which=in_doubt.reason(doubt).label),
        filter={"trigger": trigger.public_id, "doubt": doubt},
        back=reverse("console:doubt", args=reference),
        href=lambda decision: reverse("console:doubt-settle", args=[*reference, decision]),
        possible=possible,
        sample=lambda: _named(in_doubt.documents(trigger.pk, doubt)),
        many=lambda count: many_of(trigger, count),
        doubt=doubt,
    )


def of_failures(trigger: Trigger, count: int) -> Group:
    """Documents that a trigger's service failed on."""
    found = deliveries.deliveries(states=(DeliveryState.FAILED,), trigger_id=trigger.pk)
    return Group(
        choices=DELIVERY,
        action="redeliver_failed",
        count=count,
        later=0,
        what=lambda: _("{trigger}: its service failed on them").format(trigger=trigger.name),
        filter={"trigger": trigger.public_id},
        back=reverse("console:trigger", args=[trigger.public_id]),
        href=lambda decision: reverse("console:trigger-failed", args=[trigger.public_id]),
        possible=lambda decision: _("The trigger is disabled.") if trigger.state == "disabled" else "",
        sample=lambda: _named(found),
        many=lambda count: many_of(trigger, count, failed=True),
    )


def of_pair(pair: Pair, cause: str, count: int, later: int = 0, *, mixed: bool = False) -> Group:
    """Messages of one pair that are in doubt for one cause. `mixed`: the partner has some, and does not know others."""
    reference = [pair.code, segment(cause)]
    unlike = _("The partner has some of these and does not know others: decide by its answer.")
    found = in_doubt.outbound_messages(pair.pk, cause).order_by("id")[:_SAMPLE]
    return Group(
        choices=MESSAGE,
        action="settle_messages",
        count=count,
        later=later,
        what=lambda: _("{what}: {which}").format(what=pair.code, which=lookup(cause).label),
        filter={"pair": pair.public_id, "cause": cause},
        back=reverse("console:doubt-outbound", args=reference),
        href=lambda decision: reverse("console:doubt-outbound-settle", args=[*reference, decision]),
        possible=lambda decision: unlike if mixed and decision != "later" else "",
        sample=lambda: [(one.message_id, one.action) for one in found],
        many=lambda count: Many(count, pair.code),
    )


def of_answer(answer: str, count: int) -> Group:
    """Messages of any pairs about which their partners say the same."""
    found = in_doubt.answered(answer).order_by("id")[:_SAMPLE]

    def possible(decision: str) -> str:
        suggested = in_doubt.suggested(answer)
        if not suggested:
            return _("No answer is no evidence: decide about one pair's messages, or about each alone.")
        if decision in ("later", suggested):
            return ""
        return _("The partner's answer speaks against it: decide about each alone.")

    return Group(
        choices=MESSAGE,
        action="settle_messages",
        count=count,
        later=0,
        what=lambda: (
            _("The partner's answer: {answer}").format(answer=inside(PartnerAnswer(answer).label))
            if answer
            else _("The partner's answer: not asked yet")
        ),
        filter={"answer": answer},
        back=f"{reverse('console:in-doubt')}?tab=outbound",
        href=lambda decision: reverse("console:doubt-answer-settle", args=[answer or "none", decision]),
        possible=possible,
        sample=lambda: [(one.message_id, one.pair.code) for one in found],
        many=lambda count: Many(count, ""),
    )


def settle_group(request: HttpRequest, group: Group, decision: str) -> HttpResponse:
    """The plan of a job that decides this about all of the group, and its beginning."""
    choice = group.choices.get(decision)
    if choice is None:
        raise Http404(_("There is no decision {name}.").format(name=decision))
    seen = request.POST.get("expected", "")
    wrong = [("", group.possible(choice.slug))] if group.possible(choice.slug) else []
    if not (seen.isascii() and seen.isdigit() and len(seen) < 9):
        wrong.append(("", _("This form is not complete: open it again.")))
    elif choice.heavy and not confirmed(request.POST.get("confirm", ""), seen):
        wrong.append(("confirm", _("Type {count} to show that you mean all of them.").format(count=seen)))

    def do(reason: str, remind_in: int | None) -> HttpResponse:
        nonlocal group
        parameters: dict[str, Any] = {} if group.action == "redeliver_failed" else {"decision": choice.slug}
        if remind_in is not None:
            parameters["remind_in"] = remind_in
        with translation.override(settings.LANGUAGE_CODE):  # as it is stored
            what = group.what()
        try:
            job = jobs.job_create(
                action=group.action,
                parameters=parameters,
                filter=group.filter,
                what=what,
                actor=actor(request),
                reason=reason,
                expected=int(seen),
            )
        except Stale as error:
            group = replace(group, count=error.version)
            raise
        except NotFound as error:
            raise InvalidSubmission({"": [error.detail]}) from error
        notices.success(request, _("The job has begun: {count} to do.").format(count=number(job.total)))
        # The other answers wait for their decisions on the page that this one came from.
        return see_other(group.back) if "answer" in group.filter else see_other("console:job", job.public_id)

    def shown(refused: bool) -> dict[str, Any]:
        effects = [
            _(
                "A job goes through them one by one. It can be cancelled; what is done by then stays done. Nothing is "
                "done twice."
            ),
            *choice.effects(group.many(group.count)),
        ]
        if group.later:
            put_off = ngettext(
                "{count} of them was put off by somebody; it is settled too.",
                "{count} of them were put off by somebody; they are settled too.",
                group.later,
            )
            effects.append(put_off.format(count=number(group.later)))
        above = "triggers" if group.action == "redeliver_failed" else "in-doubt"
        doing = _("{what}: {which}").format(what=choice.label, which=number(group.count))
        return {
            "group": group,
            "action": group.href(choice.slug),
            "title": choice.label,
            "question": doing,
            "crumbs": (
                (reverse(f"console:{above}"), _("Triggers") if above == "triggers" else _("In doubt")),
                (group.back, group.what()),
            ),
            "testid": "plan",
            "hidden": {"expected": group.count},
            "now": format_html(
                '<span class="strong" data-testid="plan-count">{}</span> · {}', number(group.count), group.what()
            ),
            "why_not": group.possible(choice.slug) or ("" if group.count else _("This group is empty now.")),
            "effects": effects,
            "back": group.back,
            "leave": _("Cancel"),
            "back_to": _("Back"),
            "button": doing,
        }

    return settle(request, choice, shown, do, wrong)


def _named(found: QuerySet[Delivery]) -> list[tuple[str, str]]:
    return [(one.message.message_id, one.message.action) for one in found.order_by("id")[:_SAMPLE]]


def segment(code: str) -> str:
    """A code as part of an address, which cannot be empty."""
    return code or "-"


def code_of(text: str) -> str:
    """The code of such a part."""
    return "" if text == "-" else text.replace("\x00", "")
