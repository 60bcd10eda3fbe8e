"""Atomic transactions: the list, the page of one, and what people can do: commit, roll back, settle a participant."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.contrib import messages as notices
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _

from messaging import keyset
from messaging.access.selectors.reach import read_id
from messaging.choices import PHASE_LOOKS
from messaging.console import cells, filters, lists
from messaging.console.access import Person, actor, person, requires
from messaging.console.filters import Filter
from messaging.console.lists import Column, ListPage
from messaging.console.rendering import PAGE, as_context, dialog, page, posted, read_place, see_other
from messaging.console.resource import table
from messaging.exceptions import InvalidSubmission
from messaging.keyset import Page, Place
from messaging.messages.pages import diagram
from messaging.messages.selectors.messages import TooBroad
from messaging.models import Coordination, Enlistment
from messaging.profiles.wsat import asking, settling
from messaging.protocol.atomic.words import Phase, Seat
from messaging.resource import number
from messaging.templatetags.hub import middle
from messaging.transactions import tables
from messaging.transactions.resource import SETTLEMENTS, VERBS
from messaging.transactions.selectors import coordinations
from messaging.transactions.selectors import sequence as coordination_sequence
from messaging.transactions.selectors.coordinations import CoordinationScreen
from messaging.transactions.selectors.diagnosis import diagnose
from rmhub import clock
from rmhub.ids import BadPublicId
from rmhub.language import gettext_lazy, pgettext_lazy

OPERATE = "transactions:write"
SETTLE = "indoubt:resolve"


_FILTERS = ("phase", "doubtful", "doubt", "party", "role", "q", "from", "to")
TRANSACTIONS = ListPage(
    name="transactions",
    view="console:transactions",
    columns=(
        Column("id", gettext_lazy("Id"), lambda row: row.public_id, only_csv=True),
        Column("begun", gettext_lazy("Begun"), lambda row: row.created_at, tables.BEGUN, sort="created_at"),
        Column("phase", gettext_lazy("State"), lambda row: row.phase, tables.PHASE, fixed=True),
        Column("identifier", gettext_lazy("Transaction"), lambda row: row.identifier, tables.IDENTIFIER, fixed=True),
        Column("beginner", gettext_lazy("Begun by"), coordinations.beginner, tables.BEGINNER),
        Column("participants", gettext_lazy("Participants"), lambda row: ", ".join(_names(row)), tables.PARTICIPANTS),
        Column(
            "role", gettext_lazy("Role"), lambda row: "participant" if row.subordinate else "coordinator", only_csv=True
        ),
        Column("cause", gettext_lazy("What is known"), lambda row: row.cause, tables.KNOWN),
        Column("doubtful_since", gettext_lazy("In doubt since"), lambda row: row.doubtful_since, only_csv=True),
        Column("expires", gettext_lazy("Time left"), lambda row: row.expires_at, tables.LEFT),
        Column("decided", gettext_lazy("Decided"), lambda row: row.decided_at, only_csv=True),
        Column("ended", gettext_lazy("Ended"), lambda row: row.ended_at, only_csv=True),
    ),
    api="/api/v1/transactions",
    api_query=lambda given: _api_query(given),
    orders=coordinations.ORDERS,
)
FILTERS = (
    Filter(
        "q",
        gettext_lazy("Exact id"),
        kind="search",
        hint=gettext_lazy("Identifier, txn_…, enl_… or MessageID"),
        most=512,
    ),
    Filter("party", gettext_lazy("Partner"), kind="partner"),
    Filter("phase", gettext_lazy("State"), choices=[(name, look.label) for name, look in PHASE_LOOKS.items()]),
    Filter(
        "doubtful",
        gettext_lazy("In doubt"),
        choices=(("yes", gettext_lazy("In doubt")), ("no", gettext_lazy("Not in doubt"))),
    ),
    Filter(
        "role",
        gettext_lazy("This hub is"),
        choices=list(zip(coordinations.ROLES, (gettext_lazy("Coordinator"), gettext_lazy("Participant")), strict=True)),
    ),
    Filter("from", gettext_lazy("Begun from"), kind="time"),
    Filter("to", pgettext_lazy("time", "Before"), kind="time"),
    Filter("doubt", gettext_lazy("In doubt because"), kind="link"),
)


@requires("messages:read")
def transaction_list(request: HttpRequest) -> HttpResponseBase:
    """Newest first, by state, doubt, partner, role, time and exact id. The first page is live; its rows do not move."""
    if (other := lists.opened(request, TRANSACTIONS)) is not None:
        return other
    given, notes, partner = _given(request), [], filters.partner_of(request, "party")
    given["party"] = partner.reference
    order = lists.order(request, TRANSACTIONS)[1]
    begin, end = _or_none(given["from"]), _or_none(given["to"])
    backwards = begin is not None and end is not None and end <= begin
    if backwards:
        notes.append(_("The time range runs backwards: “before” must be later than “begun from”."))
    try:
        found = coordinations.coordinations().none() if backwards or partner.missing else _found(given)
    except (BadPublicId, ValueError) as error:
        notes.append(str(error))
        found = coordinations.coordinations().none()

    def fetch(place: Place | None, limit: int) -> Page[Coordination]:
        return coordinations.coordination_page(found, order=order, limit=limit, place=place)

    if lists.csv_wanted(request):
        return lists.csv(request, TRANSACTIONS, fetch)
    mark = keyset.fingerprint("console.transactions", given, ",".join(order))
    context: dict[str, Any] = {"rows": [], "next_cursor": "", "previous_cursor": ""}
    try:
        context = as_context(fetch(read_place(request, mark), PAGE), mark)
    except TooBroad:
        notes.append(_("This search took too long and was stopped. Narrow it by time or state."))
    context["rows"] = [_row(one) for one in context["rows"]]
    context |= {
        "given": given,
        "notes": notes,
        "bar": filters.bar(
            request,
            "transactions",
            FILTERS,
            given,
            partner=partner,
            said={"doubt": why.label} if (why := coordinations.cause_named(given["doubt"])) is not None else {},
            wrong={"to": _("It must be later than “Begun from”.")} if backwards else {},
        ),
        "doubtful": coordinations.doubtful_count(),
        "open": sum(coordinations.counts_by_phase().values()),
        "filtered": any(given.values()),
        "first_page": not request.GET.get("cursor"),
        **lists.tools(request, TRANSACTIONS, given, partner.meant("party")),
    }
    context["table"] = table(
        _("Transactions, newest first"),
        TRANSACTIONS.shown(context["hide"], context["sorts"]),
        context["rows"],
        about=lambda row: {**cells.row_id(row["transaction"]), "data-state": row["transaction"].phase},
        keys=True,
    )
    return page(request, "console/transactions/transactions.html", context, live="live-transactions")


def _given(request: HttpRequest) -> dict[str, str]:
    given = {name: request.GET.get(name, "").strip()[:512].replace("\x00", "") for name in _FILTERS}
    known = {"phase": set(PHASE_LOOKS), "role": set(coordinations.ROLES), "doubtful": {"yes", "no"}}
    for name, values in known.items():
        if given[name] not in values:
            given[name] = ""
    return given


def _found(given: Mapping[str, str]) -> Any:
    """The transactions of the list's filters. Raises BadPublicId, ValueError."""
    return coordinations.coordinations(
        phases=(given["phase"],) if given["phase"] else (),
        doubtful={"yes": True, "no": False}.get(given["doubtful"]),
        doubt=given["doubt"],
        party_id=read_id("par", given["party"]) if given["party"] else None,
        role=given["role"],
        q=given["q"],
        begun_gte=_instant(given["from"]),
        begun_lt=_instant(given["to"]),
    )


def _instant(text: str) -> datetime | None:
    """A field of the form, in the zone of the page unless it says one."""
    if not text:
        return None
    try:
        at = parse_datetime(text)
    except ValueError:
        at = None
    if at is None:
        raise ValueError(_("{text} is not a time: write it as 2026-01-31 14:00.").format(text=text))
    return at if at.tzinfo is not None else timezone.make_aware(at)


def _api_query(given: Mapping[str, str]) -> dict[str, object]:
    doubtful = {"yes": "true", "no": "false"}.get(given["doubtful"], "")
    asked = {name: given[name] for name in ("phase", "doubt", "party", "role", "q")}
    return {**asked, "doubtful": doubtful, "begun_gte": _or_none(given["from"]), "begun_lt": _or_none(given["to"])}


def _or_none(text: str) -> datetime | None:
    try:
        return _instant(text)
    except ValueError:
        return None


def _names(one: Coordination) -> list[str]:
    """Who takes part, each once; those who only ask for the outcome are left out."""
    voting = [taker for taker in coordinations.taking_part(one) if taker.protocol != "Completion"]
    return list(dict.fromkeys(coordinations.name_of(taker) for taker in voting))


def _row(one: Coordination) -> dict[str, Any]:
    return {
        "transaction": one,
        "beginner": coordinations.beginner(one),
        "names": _names(one),
        "cause": coordinations.cause_of(one),
        "doubts": coordinations.doubts_of(one),
        "delivery": coordinations.delivery_of(one),
    }


# --- one of them ---


@dataclass(frozen=True, slots=True)
class Button:
    """Something that can be done. `why_not`: what is in the way, the state or the role."""

    slug: str
    label: str
    icon: str
    colour: str
    href: str
    why_not: str

    @property
    def enabled(self) -> bool:
        return not self.why_not


@requires("messages:read")
def transaction_page(request: HttpRequest, reference: str) -> HttpResponse:
    """One transaction: what it waits for, who takes part, and every message about it."""
    one = coordinations.coordination(reference)
    if reference != one.public_id:
        return see_other("console:transaction", one.public_id)
    who, now = person(request), clock.now()
    screen = coordinations.coordination_screen(one)
    takers = screen.enlistments
    exchange = coordination_sequence.sequence(screen)
    drawing = diagram.draw(diagram.OF_TRANSACTIONS, exchange.lanes, exchange.steps)
    context = {
        "transaction": one,
        "screen": screen,
        "diagnosis": diagnose(one, takers, now, pending=screen.pending, hidden=screen.hidden),
        "beginner": coordinations.beginner(one),
        "delivery": coordinations.delivery_of(one),
        "cause": coordinations.cause_of(one),
        "takers": [_taker(screen, taker, who) for taker in takers],
        "buttons": _buttons(screen, who),
        "drawing": drawing,
        "sequence": tables.sequence(drawing),
        "exchange": exchange,
        "undecided": one.decided_at is None and one.ended_at is None and not coordinations.outcome(one),
    }
    return page(request, "console/transactions/transaction.html", context, live="live-transaction")


@requires(OPERATE, methods=("GET", "POST"))
def transaction_verb(request: HttpRequest, reference: str, verb: str) -> HttpResponse:
    """GET: the dialog, as a page or in a frame. POST: asks for the outcome, or says why not."""
    if verb not in VERBS:
        raise Http404(_("There is no verb {verb} for transactions.").format(verb=verb))
    chosen = VERBS[verb]
    one = coordinations.coordination(reference)

    def shown(one: Coordination) -> dict[str, Any]:
        takers, hidden = coordinations.taking_part(one), coordinations.hidden(one)
        why_not = _why_not(one, verb)
        return {
            "title": str(_TITLES[verb]),
            "verb": chosen,
            "headline": diagnose(one, takers, clock.now(), hidden=hidden).headline,
            "possible": not why_not,
            "why_not": why_not,
        }

    def do(**why: Any) -> str:
        chosen.service(coordination_id=one.pk, **why)
        return _("The transaction {done}.").format(done=chosen.done)

    form = "console/transactions/transaction_verb_form.html"
    return _dialog(request, form, one, shown, do, lambda: _why_not(one, verb))


@requires(SETTLE, methods=("GET", "POST"))
def enlistment_settle(request: HttpRequest, reference: str, participant: str, outcome: str) -> HttpResponse:
    """GET: the dialog with its warning. POST: settles the participant, or says why not."""
    if outcome not in SETTLEMENTS:
        raise Http404(_("There is no settlement {outcome}.").format(outcome=outcome))
    chosen = SETTLEMENTS[outcome]
    one = coordinations.coordination(reference)

    def shown(one: Coordination) -> dict[str, Any]:
        taker = _participant(one, participant)
        limited, name = _limited(coordinations.hidden(one)), coordinations.name_of(taker)
        only_seen = outcome == settling.FORGET and taker.seat not in (Seat.COMMITTING, Seat.ABORTING)
        label = _("Mark as dealt with") if only_seen else str(chosen.label)
        return {
            "title": _("Settle {name}").format(name=name),
            "heading": label,
            "subtitle": name,
            "verb": replace(chosen, label=label),
            "taker": taker,
            "name": name,
            "warning": settling.warning(taker, outcome),
            "only_seen": only_seen,
            "possible": not limited and outcome in settling.settlements(taker),
            "why_not": limited
            or _("{verb} is not possible now: {name} is not in doubt in that way.").format(
                verb=chosen.label, name=name
            ),
        }

    def do(**why: Any) -> str:
        taker = _participant(one, participant)
        chosen.service(enlistment_id=taker.pk, **why)
        return _("{name} {done}.").format(name=coordinations.name_of(taker), done=chosen.done)

    form = "console/transactions/transaction_settle_form.html"
    return _dialog(request, form, one, shown, do, lambda: _limited(coordinations.hidden(one)))


def _dialog(
    request: HttpRequest,
    form: str,
    one: Coordination,
    say: Callable[[Coordination], dict[str, Any]],
    act: Callable[..., str],
    why_not: Callable[[], str],
) -> HttpResponse:
    """The dialog with what `say` says of the transaction; `act` does it, and says so, unless `why_not` says why not."""
    href = reverse("console:transaction", args=[one.public_id])

    def do() -> HttpResponse:
        version = number(request.POST.get("version", ""))
        if version < 0:
            raise InvalidSubmission({"": [str(_INCOMPLETE)]})
        notices.success(request, act(actor=actor(request), reason=posted(request, "reason"), expected_version=version))
        return see_other(href)

    def shown() -> dict[str, Any]:
        now = one if request.method == "GET" else coordinations.coordination(one.pk)
        said = say(now)
        crumbs = [(reverse("console:transactions"), _("Transactions")), (href, middle(now.identifier, 40))]
        return said | {
            "crumbs": crumbs,
            "transaction": now,
            "version": now.lock_version,
            "effects": said["verb"].effects,
            "href": href,
            "noun": "transaction",
        }

    if request.method == "POST" and why_not():  # which the dialog says by itself
        context = {"form": form, **shown()}
        return page(request, "console/parts/dialog.html", context, fragments={"dialog": form}, status=409)
    return dialog(request, form, shown, do)


_TITLES = {"commit": gettext_lazy("Commit the transaction"), "rollback": gettext_lazy("Roll back the transaction")}
_INCOMPLETE = gettext_lazy("This form is not complete: open it again from the transaction's page.")
_LIMITED = gettext_lazy("Partners take part whom you may not see: ask somebody who may.")


def settle_buttons(one: Coordination, taker: Enlistment, who: Person, *, hidden: int = 0) -> list[Button]:
    """What can be decided about a participant whose transaction is loaded. Without `hidden` the dialog itself says when
    somebody takes part whom they may not see.
    """
    missing, limited = who.lacks(SETTLE), _limited(hidden)
    buttons = []
    for slug in settling.settlements(taker):
        chosen = SETTLEMENTS[slug]
        href = reverse("console:enlistment-settle", args=[one.public_id, taker.public_id, chosen.slug])
        why_not = _("Needs the role {role}.").format(role=missing) if missing else limited
        seen = slug == settling.FORGET and taker.seat not in (Seat.COMMITTING, Seat.ABORTING)
        label = _("Mark as dealt with") if seen else chosen.label
        buttons.append(Button(f"{chosen.slug}-{taker.public_id}", label, chosen.icon, "", href, why_not))
    return buttons


def _taker(screen: CoordinationScreen, taker: Enlistment, who: Person) -> dict[str, Any]:
    """A row of the table of participants."""
    return {
        "enlistment": taker,
        "name": coordinations.name_of(taker),
        "role": _("this hub itself") if taker.local else _("its coordinator") if taker.superior else taker.protocol,
        "settled_as": coordinations.settled_word(taker.settled_as),
        "pending": screen.pending.get(taker.pk),
        "heard_at": screen.heard.get(taker.pk),
        "doubt": coordinations.cause_named(taker.doubt),
        "buttons": settle_buttons(screen.coordination, taker, who, hidden=screen.hidden),
    }


def _buttons(screen: CoordinationScreen, who: Person) -> list[Button]:
    """Commit and roll back, while nothing is decided."""
    one = screen.coordination
    if coordinations.outcome(one):
        return []
    missing = who.lacks(OPERATE)
    return [
        Button(
            verb.slug,
            verb.label,
            verb.icon,
            verb.colour,
            reverse("console:transaction-verb", args=[one.public_id, verb.slug]),
            _("Needs the role {role}.").format(role=missing) if missing else _why_not(one, verb.slug),
        )
        for verb in VERBS.values()
    ]


def _why_not(one: Coordination, verb: str) -> str:
    """Why this cannot be asked for at present; "" when it can."""
    if limited := _limited(coordinations.hidden(one)):
        return limited
    if verb in asking.allowed(one):
        return ""
    if one.subordinate:
        return _("Another coordinator decides about it.")
    if coordinations.outcome(one):
        return _("It is decided already.")
    if one.phase != Phase.ACTIVE:
        return _("The outcome was asked for already.")
    return asking.why_not_commit(one)


def _limited(hidden: int) -> str:
    """Whoever does not see all who take part must not decide anything about it. `hidden`: how many they do not see."""
    return str(_LIMITED) if hidden else ""


def _participant(one: Coordination, reference: str) -> Enlistment:
    taker = coordinations.enlistment(reference)
    if taker.coordination_id != one.pk:
        raise Http404(
            _("{participant} does not take part in {transaction}.").format(
                participant=reference, transaction=one.public_id
            )
        )
    return taker
