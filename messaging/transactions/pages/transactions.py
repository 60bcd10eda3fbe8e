"""Atomic transactions: the list, the page of one, and what people can do: commit, roll back, settle a participant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib import messages as notices
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse

from messaging.console.access import Person, actor, person, requires
from messaging.console.rendering import page, problems, see_other
from messaging.exceptions import ApplicationError, InvalidSubmission
from messaging.models import Coordination, Enlistment
from messaging.profiles.wsat import asking, settling
from messaging.protocol.atomic.words import Phase, Seat
from messaging.transactions.pages import diagram as coordination_diagram
from messaging.transactions.selectors import coordinations
from messaging.transactions.selectors import sequence as coordination_sequence
from messaging.transactions.selectors.coordinations import CoordinationScreen
from messaging.transactions.selectors.diagnosis import diagnose
from rmhub import clock

OPERATE = "transactions:write"
SETTLE = "indoubt:resolve"


@dataclass(frozen=True, slots=True)
class Verb:
    """`commit` or `rollback`. `forever`: what cannot be undone."""

    slug: str
    label: str
    icon: str
    colour: str
    effects: tuple[str, ...]
    forever: str
    presets: tuple[str, ...]
    done: str


VERBS: Mapping[str, Verb] = {
    verb.slug: verb
    for verb in (
        Verb(
            "commit",
            "Commit",
            "check",
            "primary",
            (
                "All participants are asked for their votes, the volatile ones first.",
                "When all vote yes, the decision is written and everybody is told to commit.",
                "One no, or no answer before the time is over, and it is rolled back everywhere.",
            ),
            "Once the decision is written, nobody can take it back.",
            ("The application that began it is gone", "Asked for by the application's owner"),
            "asked to commit",
        ),
        Verb(
            "rollback",
            "Roll back",
            "arrow-back-up",
            "danger",
            (
                "Every participant is told to undo what it prepared. Nobody's data changes.",
                "A document that is handed over in it waits again, and is handed over anew.",
            ),
            "A transaction that is rolled back cannot be committed any more: it has to be begun again.",
            ("The application that began it is gone", "A participant hangs", "Begun by mistake"),
            "being rolled back",
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Settlement:
    """One heuristic decision about a participant; `profiles.wsat.settling.WARNINGS` says what it can break."""

    slug: str
    label: str
    icon: str
    effects: tuple[str, ...]
    presets: tuple[str, ...]


SETTLEMENTS: Mapping[str, Settlement] = {
    one.slug: one
    for one in (
        Settlement(
            "commit",
            "Commit here",
            "check",
            (
                "What this hub prepared is committed now, without the coordinator's word.",
                "When the coordinator says Rollback later, it is told that the outcomes contradict each other, and an "
                "incident opens.",
            ),
            ("Their operator says that it was committed",),
        ),
        Settlement(
            "rollback",
            "Roll back here",
            "arrow-back-up",
            (
                "What this hub prepared is undone now, without the coordinator's word.",
                "When the coordinator says Commit later, it is told that the outcomes contradict each other, and an "
                "incident opens.",
            ),
            ("Their operator says that it was rolled back",),
        ),
        Settlement(
            "forget",
            "Give up on it",
            "player-skip-forward",
            (
                "The participant is not told the outcome any more, and counts as done.",
                "The transaction ends when nobody else is left.",
            ),
            ("The system over there does not exist any more", "Their operator settled it by hand"),
        ),
    )
}


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


@dataclass(frozen=True, slots=True)
class Taker:
    """A row of the table of participants."""

    enlistment: Enlistment
    name: str
    role: str
    pending: coordinations.Pending | None
    heard_at: datetime | None
    doubt: Any
    buttons: list[Button]


@requires("messages:read")
def transaction_page(request: HttpRequest, reference: str) -> HttpResponse:
    """One transaction: what it waits for, who takes part, and every message about it."""
    one = coordinations.coordination(reference)
    if reference != one.public_id:
        return see_other("console:transaction", one.public_id)
    who, now = person(request), clock.now()
    screen = coordinations.coordination_screen(one)
    takers = screen.enlistments
    context = {
        "transaction": one,
        "screen": screen,
        "diagnosis": diagnose(one, takers, now, pending=screen.pending, hidden=screen.hidden),
        "beginner": coordinations.beginner(one),
        "delivery": coordinations.delivery_of(one),
        "cause": coordinations.cause_of(one),
        "takers": [_taker(screen, taker, who) for taker in takers],
        "buttons": _buttons(screen, who),
        "drawing": coordination_diagram.draw(coordination_sequence.sequence(screen)),
        "undecided": one.decided_at is None and one.ended_at is None and not coordinations.outcome(one),
    }
    fragments = {"live-transaction": "console/transactions/transaction_live.html"}
    return page(request, "console/transactions/transaction.html", context, fragments=fragments)


@requires(OPERATE, methods=("GET", "POST"))
def transaction_verb(request: HttpRequest, reference: str, verb: str) -> HttpResponse:
    """GET: the dialog, as a page or in a frame. POST: asks for the outcome, or says why not."""
    chosen = VERBS.get(verb)
    one = coordinations.coordination(reference)
    if chosen is None:
        raise Http404(f"There is no verb {verb} for transactions.")
    why_not = _why_not(one, verb)
    if request.method == "GET" or why_not:
        return _dialog(request, one, chosen, why_not, status=409 if request.method == "POST" else 200)
    version, reason = _version(request), _reason(request)
    if version is None:
        return _dialog(request, one, chosen, why_not, errors=[("", _INCOMPLETE)], status=422)
    try:
        asking.transaction_ask(
            coordination_id=one.pk, verb=verb, actor=actor(request), expected_version=version, reason=reason
        )
    except InvalidSubmission as error:
        return _dialog(request, one, chosen, why_not, errors=problems(error), status=422)
    except ApplicationError as error:
        one = coordinations.coordination(one.pk)
        return _dialog(request, one, chosen, _why_not(one, verb), errors=problems(error), status=409)
    notices.success(request, f"The transaction is {chosen.done}.")
    return see_other("console:transaction", one.public_id)


@requires(SETTLE, methods=("GET", "POST"))
def enlistment_settle(request: HttpRequest, reference: str, participant: str, outcome: str) -> HttpResponse:
    """GET: the dialog with its warning. POST: settles the participant, or says why not."""
    chosen = SETTLEMENTS.get(outcome)
    one, taker = _participant(reference, participant)
    if chosen is None:
        raise Http404(f"There is no settlement {outcome}.")
    limited = _limited(coordinations.hidden(one))
    if request.method == "GET" or limited:
        return _settle_dialog(
            request, one, taker, chosen, why_not=limited, status=409 if request.method == "POST" else 200
        )
    version = _version(request)
    if version is None:
        return _settle_dialog(request, one, taker, chosen, errors=[("", _INCOMPLETE)], status=422)
    try:
        settling.enlistment_settle(
            enlistment_id=taker.pk,
            outcome=outcome,
            actor=actor(request),
            reason=_reason(request),
            expected_version=version,
        )
    except InvalidSubmission as error:
        return _settle_dialog(request, one, taker, chosen, errors=problems(error), status=422)
    except ApplicationError as error:
        one, taker = _participant(reference, participant)
        return _settle_dialog(request, one, taker, chosen, errors=problems(error), status=409)
    notices.success(request, f"{coordinations.name_of(taker)} is settled.")
    return see_other("console:transaction", one.public_id)


_INCOMPLETE = "This form is not complete: open it again from the transaction's page."
_LIMITED = "Partners take part whom you may not see: ask somebody who may."


def settle_buttons(one: Coordination, taker: Enlistment, who: Person, *, hidden: int = 0) -> list[Button]:
    """What can be decided about a participant whose transaction is loaded. Without `hidden` the dialog itself says when
    somebody takes part whom they may not see.
    """
    missing, limited = who.lacks(SETTLE), _limited(hidden)
    buttons = []
    for slug in settling.settlements(taker):
        chosen = SETTLEMENTS[slug]
        href = reverse("console:enlistment-settle", args=[one.public_id, taker.public_id, chosen.slug])
        why_not = f"Needs the role {missing}." if missing else limited
        seen = slug == settling.FORGET and taker.seat not in (Seat.COMMITTING, Seat.ABORTING)
        label = "Mark as dealt with" if seen else chosen.label
        buttons.append(Button(f"{chosen.slug}-{taker.public_id}", label, chosen.icon, "", href, why_not))
    return buttons


def _taker(screen: CoordinationScreen, taker: Enlistment, who: Person) -> Taker:
    role = "this hub itself" if taker.local else "its coordinator" if taker.superior else taker.protocol
    return Taker(
        taker,
        coordinations.name_of(taker),
        role,
        screen.pending.get(taker.pk),
        screen.heard.get(taker.pk),
        coordinations.cause_named(taker.doubt),
        settle_buttons(screen.coordination, taker, who, hidden=screen.hidden),
    )


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
            f"Needs the role {missing}." if missing else _why_not(one, verb.slug),
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
        return "Another coordinator decides about it."
    if coordinations.outcome(one):
        return "It is decided already."
    if one.phase != Phase.ACTIVE:
        return "The outcome was asked for already."
    return asking.why_not_commit(one)


def _limited(hidden: int) -> str:
    """Whoever does not see all who take part must not decide anything about it. `hidden`: how many they do not see."""
    return _LIMITED if hidden else ""


def _participant(reference: str, participant: str) -> tuple[Coordination, Enlistment]:
    one, taker = coordinations.coordination(reference), coordinations.enlistment(participant)
    if taker.coordination_id != one.pk:
        raise Http404(f"{participant} does not take part in {reference}.")
    return one, taker


def _version(request: HttpRequest) -> int | None:
    text = request.POST.get("version", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def _reason(request: HttpRequest) -> str:
    return request.POST.get("reason", "").strip().replace("\x00", "")


def _dialog(
    request: HttpRequest,
    one: Coordination,
    verb: Verb,
    why_not: str,
    *,
    errors: list[tuple[str, str]] | None = None,
    status: int = 200,
) -> HttpResponse:
    takers = coordinations.taking_part(one)
    context = {
        "transaction": one,
        "verb": verb,
        "headline": diagnose(one, takers, clock.now(), hidden=coordinations.hidden(one)).headline,
        "possible": not why_not,
        "why_not": why_not,
        "errors": errors or [],
        "given": request.POST,
    }
    fragments = {"dialog": "console/transactions/transaction_verb_form.html"}
    return page(request, "console/transactions/transaction_verb.html", context, fragments=fragments, status=status)


def _settle_dialog(
    request: HttpRequest,
    one: Coordination,
    taker: Enlistment,
    chosen: Settlement,
    *,
    why_not: str = "",
    errors: list[tuple[str, str]] | None = None,
    status: int = 200,
) -> HttpResponse:
    possible = chosen.slug in settling.settlements(taker) and not why_not
    told = taker.seat in (Seat.COMMITTING, Seat.ABORTING)
    context = {
        "transaction": one,
        "taker": taker,
        "name": coordinations.name_of(taker),
        "choice": chosen,
        "warning": settling.warning(taker, chosen.slug),
        "only_seen": chosen.slug == settling.FORGET and not told,
        "possible": possible,
        "why_not": why_not,
        "errors": errors or [],
        "given": request.POST,
    }
    fragments = {"dialog": "console/transactions/transaction_settle_form.html"}
    return page(request, "console/transactions/transaction_settle.html", context, fragments=fragments, status=status)
