"""What happened, as rows in the order of time: what stored events, attempts, answers and probes mean in words.

Timelines of messages and incidents, sequence diagrams of messages, pairs and transactions, and the API show these rows.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from messaging import causes, profile
from messaging.choices import DeliveryState, Direction, Outcome, SignalKind, SignalState
from messaging.deliveries.selectors import in_doubt
from messaging.messages.selectors import messages
from messaging.models import Delivery, Event, Message, ProbeReport, Signal, Transmission
from partners import registry
from rmhub.ids import public_id

AT_THE_HUB = "hub"


@dataclass(frozen=True, slots=True)
class Step:
    """One row.

    `kind`: message, answer (acknowledgement or error message), probe: arrows from `source` to `target` (app, hub,
    partner, or a lane of a transaction); wait: a bracket of `seconds` at the hub; mark: a line across a diagram; others
    stand in timelines alone. `label` and `result` are a diagram's words, `title` and `detail` a timeline's ("" = not in
    it). `outcome` of arrows: arrived, lost (no answer at all), refused (the other side said no), open (on its way),
    unknown, unsent (not needed any more before it went out). `by`: who did it. `number` of `most`: the attempt.
    `transmission`, `signal`, `message`, `delivery`, `probe`: public ids or "". `repeated`: how many arrows this one
    stands for, up to `until`. `tone`: good, watch, bad, plain. `rank`: order within one instant: how it begins, what
    crosses the wire, what answers it, what follows from that.
    """

    at: datetime
    kind: str
    source: str = AT_THE_HUB
    target: str = AT_THE_HUB
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
    title: str = ""
    detail: str = ""

    @property
    def is_arrow(self) -> bool:
        return self.kind in ("message", "answer", "probe")

    @property
    def failed(self) -> bool:
        """Whether `failed only` keeps it."""
        return self.outcome in ("lost", "refused", "unknown") or self.tone == "bad"


class Said(NamedTuple):
    """What an event is called in a timeline ("{name}": of its trigger), and across a diagram ("" = not in it)."""

    title: str
    tone: str
    mark: str = ""


_BOUNCED = "Came back: a mail server could not deliver it"
EVENTS: dict[str, Said] = {
    "message.accepted": Said("Accepted from the application", "good"),
    "message.retrying": Said("Sent again", "watch"),
    "message.sent": Said("Handed over", "good"),
    "message.delayed": Said("On its way: a mail server could not pass it on yet", "watch"),
    "message.bounced": Said(_BOUNCED, "bad", _BOUNCED),
    "message.delivered": Said("Delivered: acknowledged by the partner", "good"),
    "message.failed": Said("Given up", "bad"),
    "message.skipped": Said("Skipped by a person", "watch", "Skipped"),
    "message.cancelled": Said("Cancelled by a person", "watch", "Cancelled"),
    "message.received": Said("Received and stored", "good"),
    "message.forwarded": Said("Passed on to the next hop", "good"),
    "message.duplicate": Said("Came again, and was discarded", "watch"),
    "message.in_doubt": Said("In doubt: nobody knows whether the partner has it", "bad", "In doubt"),
    "message.settled": Said("Settled by a person", "good", "Settled"),
    "delivery.completed": Said("Processed by {name}", "good"),
    "delivery.failed": Said("{name} failed on it", "bad"),
    "delivery.duplicate": Said("Duplicate for {name}: discarded", "watch"),
    "delivery.in_doubt": Said("In doubt whether {name} has processed it", "bad"),
    "delivery.settled": Said("Settled by a person for {name}", "good"),
    "incident.opened": Said("Opened", "bad"),
    "incident.resolved": Said("Resolved", "good"),
    "pair.suspended": Said("Pair suspended", "bad", "Suspended"),
    "pair.resumed": Said("Pair resumed", "good", "Resumed"),
    "pair.paused": Said("Pair paused", "watch", "Paused"),
    "pair.released": Said("Pair released", "good", "Released"),
    "pair.silent": Said("Pair silent", "watch", "Silent"),
    "pair.heard": Said("Pair heard again", "good", "Heard again"),
    "pair.retry_budget": Said("Retries being used up", "watch"),
    "pair.needs_resync": Said("Memory was lost", "bad", "Memory was lost"),
    "pair.resynced": Said("In sync again", "good", "In sync again"),
    "circuit.opened": Said("Sending to the partner's server stopped", "bad"),
    "circuit.closed": Said("Partner's server answers again", "good"),
}
_DELIVERIES: dict[str, tuple[str, str]] = {
    DeliveryState.COMPLETED: ("arrived", "good"),
    DeliveryState.RUNNING: ("open", "plain"),
    DeliveryState.FAILED: ("refused", "bad"),
    DeliveryState.IN_DOUBT: ("unknown", "watch"),
    DeliveryState.DUPLICATE: ("refused", "plain"),
}
# Outcome -> that of the arrow, its tone, and what is said of a message and of an answer.
_FATES: dict[str, tuple[str, str, str, str]] = {
    Outcome.ON_THE_WIRE: ("open", "plain", "is on the wire", "is on the wire"),
    Outcome.SENT: ("arrived", "good", "handed over", "sent to the partner"),
    Outcome.FAILED: ("lost", "bad", "failed", "could not be sent"),
    Outcome.LOST: ("unknown", "watch", "has no known outcome", "has no known outcome"),
}
_UNSAID = {"open": "on the wire", "arrived": "handed over", "unknown": "outcome not known"}
_ANSWERS: dict[str, str] = {SignalKind.ACKNOWLEDGEMENT: "Acknowledgement", SignalKind.FINAL: "Final receipt"}


def over_the_wire(
    by_id: Mapping[uuid.UUID, Message], attempts: Iterable[Transmission], signals: Sequence[Signal], most: int
) -> list[Step]:
    """What went between hub and partner about these messages: attempts, our answers (read here), the partner's."""
    steps = []
    for attempt in attempts:
        assert attempt.message_id is not None
        steps += of_attempt(attempt, by_id[attempt.message_id])
    ours = [signal for signal in signals if signal.direction == Direction.OUT]
    for attempt in messages.newest(messages.attempts_of_signals(ours), most) if ours else []:
        assert attempt.signal is not None and attempt.signal.about_id is not None
        steps.append(of_answer(attempt, attempt.signal, by_id[attempt.signal.about_id]))
    theirs = (signal for signal in signals if signal.direction == Direction.IN)
    return steps + [of_signal(one, by_id[one.about_id]) for one in theirs if one.about_id]


def of_event(event: Event) -> Step:
    """What an event of a message, its deliveries, a pair or an incident tells."""
    unnamed = Said(event.type.replace(".", " ").replace("_", " ").capitalize(), "plain")
    said = EVENTS.get(event.type, unnamed)
    data = event.data
    cause = causes.lookup(str(data["cause"])).label if data.get("cause") else ""
    reason = str(data.get("reason") or "")
    detail = reason or str(data.get("detail") or data.get("warning") or "")
    if event.type.startswith("delivery."):
        detail = in_doubt.reason(str(data["doubt"])).label if data.get("doubt") else cause or reason
    elif cause and event.type in ("message.failed", "pair.suspended"):
        detail = f"{cause}. {detail}".strip()
    elif event.type == "pair.retry_budget":
        detail = f"{data.get('percent')} % of them"
    return Step(
        event.at,
        "mark" if said.mark else "event",
        label=said.mark,
        result=(cause or reason)[:120],
        by=str(data.get("by") or data.get("actor") or ""),
        tone=said.tone,
        message=public_id("msg", event.message_id) if event.message_id else "",
        delivery=str(data.get("delivery") or "") if event.type.startswith("delivery.") else "",
        title=said.title.format(name=data.get("name") or "a trigger"),
        detail=detail,
        rank=0 if event.type in ("message.accepted", "message.received") else 3,
    )


def submitted(message: Message) -> Step:
    """How it came to the hub; timelines have an event for that."""
    ours = message.direction == Direction.OUT
    passed_on = ours and message.forwarded_from_id is not None
    label = "passed on" if passed_on else ("submit" if ours else _name(message))
    return Step(
        message.created_at,
        "message",
        "partner" if not ours else "hub" if passed_on else "app",
        outcome="arrived",
        label=f"{label} {message.action}" if ours else label,
        result="accepted" if ours else "stored",
        tone="good",
        size=message.size,
        message=message.public_id,
        rank=0,
    )


def of_attempt(attempt: Transmission, message: Message) -> list[Step]:
    """An attempt to send a message, and the answer to it where that is the acknowledgement (spec 2)."""
    terms = registry.current().version(message.agreement_version_id)
    at_once = profile.of(terms).answered_at_once
    most = terms.retries + 1 if not at_once else 0
    sent = _sent(attempt, message, f"try {attempt.number}" + (f"/{most}" if most >= attempt.number else ""))
    sent = replace(sent, result=sent.result or _UNSAID.get(sent.outcome, ""), most=most, size=message.size)
    if not (at_once and sent.outcome == "arrived" and attempt.finished_at):
        return [sent]
    answer = replace(sent, at=attempt.finished_at, kind="answer", source="partner", target="hub", label="answer",
                     size=None, rank=2, title="")  # fmt: skip
    return [sent, answer]


def of_answer(attempt: Transmission, signal: Signal, message: Message) -> Step:
    """Our acknowledgement or error message to the partner."""
    error = signal.kind == SignalKind.ERROR
    return _sent(attempt, message, signal.error_code if error else SignalKind(signal.kind).label.lower(), signal)


def _sent(attempt: Transmission, message: Message, label: str, signal: Signal | None = None) -> Step:
    """What went from us to the partner: the message, or our answer to it."""
    outcome, tone, fate, fate_of_answer = _FATES[attempt.outcome]
    if attempt.outcome == Outcome.FAILED and attempt.http_status:
        outcome = "refused"
    cause = causes.lookup(attempt.cause).label if attempt.cause else ""
    status = f"HTTP {attempt.http_status}" if attempt.http_status else ""
    if signal is None:
        title = f"Attempt {attempt.number} {fate}"
    else:
        title = f"{_ANSWERS.get(signal.kind) or f'Error message {signal.error_code}'} {fate_of_answer}"
    return Step(
        attempt.started_at,
        "message" if signal is None else "answer",
        target="partner",
        outcome=outcome,
        label=f"{_name(message)} {label}",
        result=" · ".join(part for part in (status, cause) if part),
        tone=tone,
        number=attempt.number,
        http_status=attempt.http_status,
        seconds=_seconds(attempt.started_at, attempt.finished_at),
        transmission=public_id("att", attempt.pk),
        signal=public_id("sig", signal.pk) if signal is not None else "",
        message=message.public_id,
        title=title,
        detail=" · ".join(part for part in (status, "" if signal else cause, attempt.detail) if part),
    )


def of_signal(signal: Signal, message: Message) -> Step:
    """The partner's acknowledgement or error message."""
    error = signal.kind == SignalKind.ERROR
    title = f"{_ANSWERS.get(signal.kind, 'Error message')} from the partner{f': {signal.error_code}' if error else ''}"
    detail, tone, result = signal.error_description, "good", "taken"
    word = SignalKind(signal.kind).label.lower()
    if error:
        tone, result, word = "bad", detail[:80], signal.error_code
    if signal.state == SignalState.IGNORED:
        title, detail = f"{title}, ignored", f"{detail} ({signal.note})".strip()
        tone, result = "plain", "ignored"
    return Step(
        signal.created_at,
        "answer",
        "partner",
        outcome="refused" if error else "arrived",
        label=f"{_name(message)} {word}",
        result=result,
        tone=tone,
        seconds=_seconds(message.first_sent_at, signal.created_at) if not error else None,
        signal=public_id("sig", signal.pk),
        message=message.public_id,
        title=title,
        detail=detail,
        rank=2,
    )


def of_delivery(row: Delivery) -> Step:
    """What became of a document at an application that has begun with it; timelines have events for that."""
    assert row.started_at is not None
    outcome, tone = _DELIVERIES.get(row.state, ("arrived", "plain"))
    return Step(
        row.started_at,
        "message",
        target="app",
        outcome=outcome,
        label=row.trigger.name,
        result=causes.lookup(row.cause).label if row.cause else DeliveryState(row.state).label.lower(),
        tone=tone,
        http_status=row.http_status,
        seconds=_seconds(row.started_at, row.completed_at),
        message=public_id("msg", row.message_id),
        delivery=row.public_id,
    )


def of_probe(report: ProbeReport) -> Step:
    """A look at the partner's endpoint."""
    failed = next((step for step in report.steps if step.get("verdict") == "failed"), None)
    refused = failed is not None and failed.get("name") in ("http", "echo")
    return Step(
        report.at,
        "probe",
        target="partner",
        outcome="arrived" if report.ok else "refused" if refused else "lost",
        label="ping",
        result=causes.lookup(report.cause).label if report.cause else "answered",
        by=report.actor,
        tone="good" if report.ok else "bad",
        seconds=sum(float(step.get("seconds") or 0) for step in report.steps),
        probe=report.public_id,
    )


def _name(message: Message) -> str:
    return f"#{message.sequence_number} {message.action}" if message.sequence_number else message.action


def _seconds(begin: datetime | None, end: datetime | None) -> float | None:
    return (end - begin).total_seconds() if begin is not None and end is not None else None
