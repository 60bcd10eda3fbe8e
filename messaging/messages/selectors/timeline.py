"""The life of a message or a pair as rows in the order of time: the timeline of a message's page, and what a sequence
diagram shows between App, Hub and Partner.

A diagram's rows are the table below it, too, and the API's timeline. How they are drawn is `pages.diagram`'s.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import groupby

from django.utils.translation import gettext as _

from messaging.choices import Direction, SignalKind
from messaging.deliveries.selectors import deliveries
from messaging.journal.wording import span
from messaging.keyset import floor_id
from messaging.messages.selectors import history, relatives
from messaging.messages.selectors import messages as stored
from messaging.messages.selectors.history import EVENTS, Step, over_the_wire
from messaging.messages.selectors.relatives import Journey
from messaging.models import (
    AuditEntry,
    Delivery,
    Event,
    Message,
    Pair,
    Payload,
    ProbeReport,
    Signal,
    Transmission,
)
from messaging.models.message import IN_FLIGHT
from messaging.notifications import selectors as events
from messaging.pairs.selectors import pairs, screens
from rmhub.ids import public_id
from rmhub.language import gettext_lazy

# Each kind of row of one message has its own bound: one that was retried for a year must not make its page slow.
_MOST_OF_ONE = 200
MOST = 400  # rows of each kind that are read for a diagram
_SHORTEST_WAIT = 1.0  # seconds between two attempts that are worth a bracket
# Told by the transmission itself, which knows more.
_TOLD_ELSEWHERE = frozenset({"message.retrying"})
_OF_PAIRS = tuple(kind for kind, said in EVENTS.items() if said.mark and kind.startswith("pair."))
_OF_MESSAGES = tuple(kind for kind, said in EVENTS.items() if said.mark and kind.startswith("message."))
# What people did that no event tells of.
_VERBS: dict[str, tuple[str, str]] = {
    "pair.retry_now": (gettext_lazy("Retry now"), "plain"),
    "pair.restart_sequence": (gettext_lazy("Sequence restarted"), "watch"),
    "pair.expect_sequence": (gettext_lazy("Expected number set"), "watch"),
    "message.redeliver": (gettext_lazy("Handed to its triggers again"), "plain"),
}
SCOPES: dict[str, timedelta | None] = {"document": None, "hour": timedelta(hours=1), "day": timedelta(days=1)}
FOLD_ABOVE = 100  # arrows; more than that are folded where they say the same


@dataclass(frozen=True, slots=True)
class MessageScreen:
    """All of a message's page."""

    message: Message
    blocks: int
    moments: list[Step]
    cut: bool
    payloads: list[Payload]
    transmissions: list[Transmission]
    signals: list[Signal]
    deliveries: list[Delivery] = field(default_factory=list)
    audit: list[AuditEntry] = field(default_factory=list)
    journey: Journey = field(default_factory=Journey)
    repeat_at: datetime | None = None


def message_screen(message: Message) -> MessageScreen:
    """Everything about one message that `messages.message` read. A fixed number of queries."""
    attempts = stored.newest(stored.transmissions(message.pk), _MOST_OF_ONE)
    signals = stored.newest(stored.signals(message.pk), _MOST_OF_ONE)
    happened = stored.newest(events.of_message(message.pk), _MOST_OF_ONE)
    told = [history.of_event(event) for event in happened if event.type not in _TOLD_ELSEWHERE]
    # It was delivered before: what a final receipt adds has no colour here.
    receipts = {one.public_id for one in signals if (one.kind, one.direction) == (SignalKind.FINAL, Direction.IN)}
    crossed = [
        replace(step, tone="plain") if step.signal in receipts else step
        for step in over_the_wire({message.pk: message}, attempts, signals, _MOST_OF_ONE)
        if step.title
    ]
    return MessageScreen(
        message=message,
        blocks=message.pair.queued if message.pair.in_flight_id == message.pk else 0,
        moments=sorted([*told, *crossed], key=lambda step: (step.at, step.rank)),
        cut=any(len(rows) == _MOST_OF_ONE for rows in (attempts, signals, happened)),
        payloads=list(stored.payloads(message.pk)),
        transmissions=attempts,
        signals=signals,
        deliveries=deliveries.of_message(message.pk) if message.direction == Direction.IN else [],
        audit=screens.audit_of(message),
        journey=relatives.journey(message),
        repeat_at=pairs.repeat_at(message),
    )


@dataclass(frozen=True, slots=True)
class Diagram:
    """`cut`: there was more than is shown; `folded`: arrows that say the same stand together. `about`: one message."""

    steps: list[Step]
    scope: str
    failed_only: bool = False
    cut: bool = False
    folded: bool = False
    about: Message | None = None
    lanes: tuple[str, str, str] = ("App", "Hub", "Partner")
    scopes: tuple[str, ...] = field(default=())


def diagram_of_message(message: Message, *, failed_only: bool = False) -> Diagram:
    """The life of one message that `messages` read. At most seven queries."""
    ended = message.completed_at
    span_of_it = (message.created_at, ended)
    steps, cut = steps_of([message], message.pair, span_of_it, alone=True)
    return _finished(steps, "document", failed_only=failed_only, cut=cut, about=message, pair=message.pair)


def diagram_of_pair(pair: Pair, *, now: datetime, scope: str = "document", failed_only: bool = False) -> Diagram:
    """A pair's last hour or day, or (`document`) the message that is first in line, else its newest one.

    A fixed number of queries. Raises KeyError for another scope.
    """
    length = SCOPES[scope]
    scopes = tuple(SCOPES)
    if length is None:
        message = _first_in_line(pair)
        if message is None:
            return replace(_finished([], scope, failed_only=failed_only, pair=pair), scopes=scopes)
        return replace(diagram_of_message(message, failed_only=failed_only), scopes=scopes)
    since = now - length
    newest = Transmission.objects.filter(pair=pair, message__isnull=False, id__gte=floor_id(since))
    attempted = list(newest.order_by("-id").values_list("message_id", flat=True)[:MOST])
    submitted = Message.objects.filter(pair=pair, id__gte=floor_id(since)).order_by("-id")
    keys = set(attempted) | set(submitted.values_list("id", flat=True)[:MOST])
    messages = list(Message.objects.filter(pk__in=keys).defer("wire_frame").order_by("id"))
    steps, cut = steps_of(messages, pair, (since, None), alone=False)
    cut = cut or len(attempted) == MOST
    return replace(_finished(steps, scope, failed_only=failed_only, cut=cut, pair=pair), scopes=scopes)


def steps_of(
    messages: Sequence[Message], pair: Pair, between: tuple[datetime, datetime | None], *, alone: bool
) -> tuple[list[Step], bool]:
    """All rows of these messages, and what happened to the pair meanwhile. Whether there was more."""
    since, ended = between
    by_id = {message.pk: message for message in messages}
    found = stored.transmissions(*by_id)
    attempts = stored.newest(found if alone else found.filter(id__gte=floor_id(since)), MOST)
    signals = stored.newest(stored.signals(*by_id), MOST)
    told = [signal for signal in signals if pair.direction == Direction.IN or signal.direction == Direction.IN]
    steps = [history.submitted(message) for message in messages if message.created_at >= since]
    steps += over_the_wire(by_id, attempts, told, MOST)
    steps += _waits(attempts)
    if pair.direction == Direction.IN:
        begun = Delivery.objects.filter(message__in=by_id, started_at__isnull=False).select_related("trigger")
        begun = begun.defer("answer", "trigger__secret_encrypted").order_by("-id")[:MOST]
        steps += [history.of_delivery(row) for row in begun]
    until = ended + timedelta(minutes=1) if ended is not None else None
    steps += _marks(by_id, pair, since, until)
    cut = MOST in (len(attempts), len(signals))
    return [step for step in steps if step.at >= since or alone], cut


def _waits(attempts: Sequence[Transmission]) -> list[Step]:
    """Brackets between the end of an attempt and the beginning of the next of the same message."""
    found = []
    last: dict[uuid.UUID, Transmission] = {}
    for attempt in attempts:
        before = last.get(attempt.message_id) if attempt.message_id else None
        last[attempt.message_id] = attempt  # type: ignore[index]
        if before is None or before.finished_at is None:
            continue
        seconds = (attempt.started_at - before.finished_at).total_seconds()
        if seconds >= _SHORTEST_WAIT:
            of = attempt.message_id
            bracket = Step(before.finished_at, "wait", label=span(seconds), seconds=seconds, until=attempt.started_at)
            found.append(replace(bracket, message=public_id("msg", of) if of else "", rank=3))
    return found


def _marks(by_id: Mapping[uuid.UUID, Message], pair: Pair, since: datetime, until: datetime | None) -> list[Step]:
    """What happened to the pair, what people did, and probes."""
    of_pair = Event.objects.filter(pair=pair, message__isnull=True, type__startswith="pair.").order_by("-id")[:MOST]
    of_messages = Event.objects.filter(message__in=by_id, type__in=_OF_MESSAGES).order_by("-id")[:MOST]
    events_of_it = [event for event in [*of_pair, *of_messages] if event.type in _OF_PAIRS + _OF_MESSAGES]
    found = [_mark(event) for event in events_of_it]
    entries = AuditEntry.objects.filter(object_type="pair", object_id=pair.public_id, verb__in=_VERBS, result="done")
    for entry in entries.order_by("-id")[:50]:
        label, tone = _VERBS[entry.verb]
        found.append(
            Step(entry.at, "mark", label=str(label), result=entry.reason[:120], by=entry.actor, tone=tone, rank=3)
        )
    found += [history.of_probe(report) for report in ProbeReport.objects.filter(pair=pair).order_by("-id")[:50]]
    return [step for step in found if step.at >= since and (until is None or step.at <= until)]


def _mark(event: Event) -> Step:
    step = history.of_event(event)
    return replace(step, by=step.by or _("the hub")) if event.type == "pair.suspended" else step


def _first_in_line(pair: Pair) -> Message | None:
    found = Message.objects.select_related("pair", "pair__partner").defer("wire_frame")
    if pair.in_flight_id is not None:
        return found.filter(pk=pair.in_flight_id).first()
    if pair.out_now:
        # Repeatable requests, or a stream: many are on their way, and the first of them holds up the others.
        return found.filter(pair=pair, state__in=IN_FLIGHT).order_by("position").first()
    return found.filter(pair=pair).order_by("-id").first()


def _finished(
    steps: Iterable[Step],
    scope: str,
    *,
    failed_only: bool,
    pair: Pair,
    cut: bool = False,
    about: Message | None = None,
) -> Diagram:
    ordered = sorted(steps, key=lambda step: (step.at, step.rank))
    if failed_only:
        ordered = [step for step in ordered if step.failed or (step.kind == "mark")]
    folded = sum(step.is_arrow for step in ordered) > FOLD_ABOVE
    if folded:
        ordered = fold(ordered)
    most = FOLD_ABOVE * 2
    if len(ordered) > most:
        ordered, cut = ordered[-most:], True
    lanes = (_("App"), _("Hub"), pair.partner.name)
    return Diagram(ordered, scope, failed_only, cut, folded, about, lanes)


def fold(steps: Sequence[Step]) -> list[Step]:
    """The same rows with repeats together: failures of one message that are alike, and exchanges that went alike.

    A message whose attempts fail alike one after the other becomes one arrow for all of them, and what went through
    without trouble becomes one exchange for all that went so in a row.
    """
    shaped: list[tuple[object, list[Step]]] = []
    at: dict[str, int] = {}
    for step in steps:
        if step.kind == "wait" or not step.message or step.kind == "mark":
            if step.kind == "mark":
                shaped.append((("mark", len(shaped)), [step]))
                at.clear()  # nothing is folded across a line
            continue
        if step.message not in at:
            at[step.message] = len(shaped)
            shaped.append((None, []))
        shaped[at[step.message]][1].append(step)
    exchanges = [(key or _shape(rows), _alike(rows)) for key, rows in shaped]
    found: list[Step] = []
    for __, run in groupby(exchanges, key=lambda one: one[0]):
        alike = [rows for __, rows in run]
        found += alike[0] if len(alike) == 1 else _together(alike)
    return sorted(found, key=lambda step: (step.at, step.rank))


def _shape(rows: Sequence[Step]) -> object:
    return tuple((step.kind, step.source, step.target, step.outcome, step.result) for step in _alike(rows))


def _alike(rows: Sequence[Step]) -> list[Step]:
    """Attempts of one message that failed alike, as one."""
    found: list[Step] = []
    for step in rows:
        before = found[-1] if found else None
        same = before is not None and (before.kind, before.outcome, before.result, before.target) == (
            step.kind,
            step.outcome,
            step.result,
            step.target,
        )
        if before is None or not same or not step.failed:
            found.append(step)
            continue
        found[-1] = replace(
            before,
            repeated=before.repeated + 1,
            until=step.at,
            label=_("{message} try {numbers}").format(
                message=before.what or before.label, numbers=f"{before.number}–{step.number}"
            ),
            what=before.what or before.label,
        )
    return found


def _together(alike: Sequence[list[Step]]) -> list[Step]:
    found = []
    for place, step in enumerate(alike[0]):
        last = alike[-1][place]
        count = sum(rows[place].repeated for rows in alike)
        seconds = [rows[place].seconds for rows in alike]
        known = [value for value in seconds if value is not None]
        found.append(
            replace(
                step,
                repeated=count,
                until=last.until or last.at,
                seconds=sum(known) / len(known) if known else None,
                size=None,
            )
        )
    return found
