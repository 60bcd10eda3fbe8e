"""The rows of a sequence diagram, made from what is stored: attempts, answers, waits, deliveries, marks and probes."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from messaging import causes, profile
from messaging.choices import DeliveryState, Direction, Outcome, SignalKind, SignalState
from messaging.journal.wording import span
from messaging.keyset import floor_id
from messaging.messages.selectors import messages as stored
from messaging.models import AuditEntry, Delivery, Event, Message, Pair, ProbeReport, Signal, Transmission
from partners import registry
from rmhub.ids import public_id

MOST = 400  # rows of each kind that are read
_SHORTEST_WAIT = 1.0  # seconds between two attempts that are worth a bracket

_MARKS: dict[str, tuple[str, str]] = {
    "pair.suspended": ("Suspended", "bad"),
    "pair.resumed": ("Resumed", "good"),
    "pair.paused": ("Paused", "watch"),
    "pair.released": ("Released", "good"),
    "pair.silent": ("Silent", "watch"),
    "pair.heard": ("Heard again", "good"),
    "pair.needs_resync": ("Memory was lost", "bad"),
    "pair.resynced": ("In sync again", "good"),
    "message.skipped": ("Skipped", "watch"),
    "message.cancelled": ("Cancelled", "watch"),
    "message.in_doubt": ("In doubt", "bad"),
    "message.settled": ("Settled", "good"),
    "message.bounced": ("Came back: a mail server could not deliver it", "bad"),
}
# What people did that no event tells of.
_VERBS: dict[str, tuple[str, str]] = {
    "pair.retry_now": ("Retry now", "plain"),
    "pair.restart_sequence": ("Sequence restarted", "watch"),
    "pair.expect_sequence": ("Expected number set", "watch"),
    "message.redeliver": ("Handed to its triggers again", "plain"),
}
_DELIVERIES: dict[str, tuple[str, str]] = {
    DeliveryState.COMPLETED: ("arrived", "good"),
    DeliveryState.RUNNING: ("open", "plain"),
    DeliveryState.FAILED: ("refused", "bad"),
    DeliveryState.IN_DOUBT: ("unknown", "watch"),
    DeliveryState.DUPLICATE: ("refused", "plain"),
}


@dataclass(frozen=True, slots=True)
class Step:
    """One row.

    `kind`: message, answer (acknowledgement or error message), probe: arrows from `source` to `target` (app, hub,
    partner); wait: a bracket of `seconds` at the hub; mark: a line across. `outcome` of arrows: arrived, lost (no
    answer at all), refused (the other side said no), open (on its way), unknown. `by`: who did what a mark says.
    `number` of `most`: the attempt. `transmission`, `signal`, `message`: public ids or "". `repeated`: how many arrows
    this one stands for, up to `until`. `tone`: good, watch, bad, plain.
    """

    at: datetime
    kind: str
    source: str = "hub"
    target: str = "hub"
    outcome: str = ""
    label: str = ""
    result: str = ""
    by: str = ""
    tone: str = "plain"
    number: int = 0
    most: int = 0
    http_status: int | None = None
    seconds: float | None = None
    size: int | None = None
    transmission: str = ""
    signal: str = ""
    message: str = ""
    delivery: str = ""
    probe: str = ""
    repeated: int = 1
    until: datetime | None = None
    rank: int = 1

    @property
    def is_arrow(self) -> bool:
        return self.kind in ("message", "answer", "probe")

    @property
    def failed(self) -> bool:
        """Whether `failed only` keeps it."""
        return self.outcome in ("lost", "refused", "unknown") or self.tone == "bad"


def steps_of(
    messages: Sequence[Message], pair: Pair, between: tuple[datetime, datetime | None], *, alone: bool
) -> tuple[list[Step], bool]:
    """All rows of these messages, and what happened to the pair meanwhile. Whether there was more."""
    since, ended = between
    by_id = {message.pk: message for message in messages}
    found = stored.transmissions(*by_id)
    attempts = stored.newest(found if alone else found.filter(id__gte=floor_id(since)), MOST)
    signals = stored.newest(stored.signals(*by_id), MOST)
    ours = [signal for signal in signals if signal.direction == Direction.OUT]
    asked = bool(ours) and pair.direction == Direction.IN
    answers = stored.newest(stored.attempts_of_signals(ours), MOST) if asked else []
    steps = [_submitted(message) for message in messages if message.created_at >= since]
    for attempt in attempts:
        assert attempt.message_id is not None
        steps += _of_attempt(attempt, by_id[attempt.message_id])
    steps += [_of_signal(one, by_id[one.about_id]) for one in signals if one.direction == Direction.IN and one.about_id]
    for attempt in answers:
        assert attempt.signal is not None and attempt.signal.about_id is not None
        steps.append(_of_answer(attempt, attempt.signal, by_id[attempt.signal.about_id]))
    steps += _waits(attempts)
    if pair.direction == Direction.IN:
        steps += _deliveries(by_id)
    until = ended + timedelta(minutes=1) if ended is not None else None
    steps += _marks(by_id, pair, since, until)
    cut = MOST in (len(attempts), len(signals))
    return [step for step in steps if step.at >= since or alone], cut


def _name(message: Message) -> str:
    return f"#{message.sequence_number} {message.action}" if message.sequence_number else message.action


def _submitted(message: Message) -> Step:
    ours = message.direction == Direction.OUT
    passed_on = ours and message.forwarded_from_id is not None
    label = "passed on" if passed_on else ("submit" if ours else _name(message))
    return Step(
        message.created_at,
        "message",
        "partner" if not ours else "hub" if passed_on else "app",
        "hub",
        "arrived",
        f"{label} {message.action}" if ours else label,
        "accepted" if ours else "stored",
        tone="good",
        size=message.size,
        message=message.public_id,
        rank=0,
    )


def _sent(attempt: Transmission, message: Message, kind: str, label: str) -> Step:
    """What went from us to the partner: the message, or our answer to it."""
    outcome = _outcome(attempt)
    cause = causes.lookup(attempt.cause).label if attempt.cause else ""
    status = f"HTTP {attempt.http_status}" if attempt.http_status else ""
    return Step(
        attempt.started_at,
        kind,
        "hub",
        "partner",
        outcome,
        f"{_name(message)} {label}",
        " · ".join(part for part in (status, cause) if part),
        tone={"arrived": "good", "open": "plain", "unknown": "watch"}.get(outcome, "bad"),
        number=attempt.number,
        http_status=attempt.http_status,
        seconds=_seconds(attempt.started_at, attempt.finished_at),
        transmission=public_id("att", attempt.pk),
        message=message.public_id,
    )


def _of_attempt(attempt: Transmission, message: Message) -> list[Step]:
    terms = registry.current().version(message.agreement_version_id)
    most = terms.retries + 1 if not profile.of(terms).answered_at_once else 0
    sent = _sent(attempt, message, "message", f"try {attempt.number}" + (f"/{most}" if most >= attempt.number else ""))
    unsaid = {"open": "on the wire", "arrived": "handed over", "unknown": "outcome not known"}
    sent = replace(sent, result=sent.result or unsaid.get(sent.outcome, ""), most=most, size=message.size)
    if not (profile.of(terms).answered_at_once and sent.outcome == "arrived" and attempt.finished_at):
        return [sent]
    # The HTTP answer is the acknowledgement (spec 2).
    answer = replace(
        sent, at=attempt.finished_at, kind="answer", source="partner", target="hub", label="answer", size=None, rank=2
    )
    return [sent, answer]


def _of_answer(attempt: Transmission, signal: Signal, message: Message) -> Step:
    """Our acknowledgement or error message to the partner."""
    return replace(_sent(attempt, message, "answer", _word(signal)), signal=public_id("sig", signal.pk))


def _word(signal: Signal) -> str:
    return signal.error_code if signal.kind == SignalKind.ERROR else SignalKind(signal.kind).label.lower()


def _outcome(attempt: Transmission) -> str:
    if attempt.outcome == Outcome.SENT:
        return "arrived"
    if attempt.outcome == Outcome.FAILED:
        return "refused" if attempt.http_status else "lost"
    return "open" if attempt.outcome == Outcome.ON_THE_WIRE else "unknown"


def _of_signal(signal: Signal, message: Message) -> Step:
    """The partner's acknowledgement or error message."""
    error = signal.kind == SignalKind.ERROR
    ignored = signal.state == SignalState.IGNORED
    return Step(
        signal.created_at,
        "answer",
        "partner",
        "hub",
        "refused" if error else "arrived",
        f"{_name(message)} {_word(signal)}",
        "ignored" if ignored else signal.error_description[:80] if error else "taken",
        tone="plain" if ignored else "bad" if error else "good",
        seconds=_seconds(message.first_sent_at, signal.created_at) if not error else None,
        signal=public_id("sig", signal.pk),
        message=message.public_id,
        rank=2,
    )


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
            of = public_id("msg", attempt.message_id) if attempt.message_id else ""
            found.append(
                Step(
                    before.finished_at,
                    "wait",
                    label=span(seconds),
                    seconds=seconds,
                    message=of,
                    rank=3,
                    until=attempt.started_at,
                )
            )
    return found


def _deliveries(by_id: dict[uuid.UUID, Message]) -> list[Step]:
    rows = Delivery.objects.filter(message__in=by_id, started_at__isnull=False).select_related("trigger")
    found = []
    for row in rows.defer("answer", "trigger__secret_encrypted").order_by("-id")[:MOST]:
        outcome, tone = _DELIVERIES.get(row.state, ("arrived", "plain"))
        cause = causes.lookup(row.cause).label if row.cause else ""
        assert row.started_at is not None
        found.append(
            Step(
                row.started_at,
                "message",
                "hub",
                "app",
                outcome,
                row.trigger.name,
                cause or DeliveryState(row.state).label.lower(),
                tone=tone,
                http_status=row.http_status,
                seconds=_seconds(row.started_at, row.completed_at),
                message=by_id[row.message_id].public_id,
                delivery=row.public_id,
            )
        )
    return found


def _marks(by_id: dict[uuid.UUID, Message], pair: Pair, since: datetime, until: datetime | None) -> list[Step]:
    """What happened to the pair, what people did, and probes."""
    of_pair = Event.objects.filter(pair=pair, message__isnull=True, type__startswith="pair.").order_by("-id")[:MOST]
    of_messages = Event.objects.filter(message__in=by_id, type__in=[kind for kind in _MARKS if kind[:5] != "pair."])
    events = [*of_pair, *of_messages.order_by("-id")[:MOST]]
    found = [_of_event(event) for event in events if event.type in _MARKS and _within(event.at, since, until)]
    entries = AuditEntry.objects.filter(object_type="pair", object_id=pair.public_id, verb__in=_VERBS, result="done")
    for entry in entries.order_by("-id")[:50]:
        if _within(entry.at, since, until):
            label, tone = _VERBS[entry.verb]
            found.append(
                Step(entry.at, "mark", label=label, result=entry.reason[:120], by=entry.actor, tone=tone, rank=3)
            )
    for report in ProbeReport.objects.filter(pair=pair).order_by("-id")[:50]:
        if _within(report.at, since, until):
            found.append(_of_probe(report))
    return found


def _within(at: datetime, since: datetime, until: datetime | None) -> bool:
    return at >= since and (until is None or at <= until)


def _of_event(event: Event) -> Step:
    label, tone = _MARKS[event.type]
    data = event.data
    said = str(data.get("reason") or "")
    if data.get("cause"):
        said = causes.lookup(str(data["cause"])).label
    by = str(data.get("actor") or ("the hub" if event.type == "pair.suspended" else ""))
    of = public_id("msg", event.message_id) if event.message_id else ""
    return Step(event.at, "mark", label=label, result=said[:120], by=by, tone=tone, message=of, rank=3)


def _of_probe(report: ProbeReport) -> Step:
    failed = next((step for step in report.steps if step.get("verdict") == "failed"), None)
    result = causes.lookup(report.cause).label if report.cause else "answered"
    outcome = "arrived" if report.ok else ("refused" if failed and failed.get("name") in ("http", "echo") else "lost")
    seconds = sum(float(step.get("seconds") or 0) for step in report.steps)
    return Step(
        report.at,
        "probe",
        "hub",
        "partner",
        outcome,
        "ping",
        result,
        by=report.actor,
        tone="good" if report.ok else "bad",
        seconds=seconds,
        probe=report.public_id,
    )


def _seconds(begin: datetime | None, end: datetime | None) -> float | None:
    return (end - begin).total_seconds() if begin is not None and end is not None else None
