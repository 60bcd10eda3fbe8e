"""The life of one message as rows in the order of time: what happened, what went over the wire, who did what."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from messaging import causes
from messaging.choices import Direction, Outcome, SignalKind, SignalState
from messaging.deliveries.selectors import deliveries, doubts
from messaging.messages.selectors import messages, relatives
from messaging.messages.selectors.relatives import Journey
from messaging.models import AuditEntry, Delivery, Event, Message, Payload, Signal, Transmission
from messaging.notifications import selectors as events
from messaging.pairs.selectors import screens

# Each message has its own bound, so that one that was retried for a year does not make its page slow.
_MOST = 200

_EVENTS: dict[str, tuple[str, str]] = {
    "message.accepted": ("Accepted from the application", "good"),
    "message.retrying": ("Sent again", "watch"),
    "message.sent": ("Handed over", "good"),
    "message.delayed": ("On its way: a mail server could not pass it on yet", "watch"),
    "message.bounced": ("Came back: a mail server could not deliver it", "bad"),
    "message.delivered": ("Delivered: acknowledged by the partner", "good"),
    "message.failed": ("Given up", "bad"),
    "message.skipped": ("Skipped by a person", "watch"),
    "message.cancelled": ("Cancelled by a person", "watch"),
    "message.received": ("Received and stored", "good"),
    "message.forwarded": ("Passed on to the next hop", "good"),
    "message.duplicate": ("Came again, and was discarded", "watch"),
    "message.in_doubt": ("In doubt: nobody knows whether the partner has it", "bad"),
    "message.settled": ("Settled by a person", "good"),
}
# What became of it at a trigger, whose name follows.
_DELIVERIES: dict[str, tuple[str, str]] = {
    "delivery.completed": ("Processed by {name}", "good"),
    "delivery.failed": ("{name} failed on it", "bad"),
    "delivery.duplicate": ("Duplicate for {name}: discarded", "watch"),
    "delivery.in_doubt": ("In doubt whether {name} has processed it", "bad"),
    "delivery.settled": ("Settled by a person for {name}", "good"),
}
_FINAL = "Final receipt"
_ANSWERS: dict[str, str] = {SignalKind.ACKNOWLEDGEMENT: "Acknowledgement", SignalKind.FINAL: _FINAL}
# Told by the transmission itself, which knows more.
_TOLD_ELSEWHERE = frozenset({"message.retrying"})


@dataclass(frozen=True, slots=True)
class Moment:
    """One row. `tone`: good, watch, bad or plain. `arrow`: "out" and "in" cross the wire, "" happens here."""

    at: datetime
    title: str
    detail: str = ""
    tone: str = "plain"
    arrow: str = ""
    seconds: float | None = None
    transmission: Transmission | None = None
    signal: Signal | None = None
    delivery: str = ""
    rank: int = 1  # order within one instant: how it begins, what crosses the wire, what follows from that


@dataclass(frozen=True, slots=True)
class MessageScreen:
    """All of a message's page."""

    message: Message
    blocks: int
    moments: list[Moment]
    cut: bool
    payloads: list[Payload]
    transmissions: list[Transmission]
    signals: list[Signal]
    deliveries: list[Delivery] = field(default_factory=list)
    audit: list[AuditEntry] = field(default_factory=list)
    journey: Journey = field(default_factory=Journey)


def message_screen(message: Message) -> MessageScreen:
    """Everything about one message that `messages.message` read. A fixed number of queries."""
    attempts = messages.newest(messages.transmissions(message.pk), _MOST)
    signals = list(messages.signals(message.pk)[:_MOST])
    answers = messages.newest(messages.attempts_of_signals(signals), _MOST) if signals else []
    history = messages.newest(events.of_message(message.pk), _MOST)
    found = [
        *(_of_event(event) for event in history if event.type not in _TOLD_ELSEWHERE),
        *(_of_attempt(attempt) for attempt in [*attempts, *answers]),
        *(_of_signal(signal) for signal in signals if signal.direction == Direction.IN),
    ]
    return MessageScreen(
        message=message,
        blocks=message.pair.queued if message.pair.in_flight_id == message.pk else 0,
        moments=sorted(found, key=lambda moment: (moment.at, moment.rank)),
        cut=len(attempts) == _MOST or len(history) == _MOST,
        payloads=list(messages.payloads(message.pk)),
        transmissions=attempts,
        signals=signals,
        deliveries=deliveries.of_message(message.pk) if message.direction == Direction.IN else [],
        audit=screens.audit_of(message),
        journey=relatives.journey(message),
    )


def _of_event(event: Event) -> Moment:
    if event.type in _DELIVERIES:
        return _of_delivery(event)
    title, tone = _EVENTS.get(event.type, (event.type.replace(".", " ").replace("_", " ").capitalize(), "plain"))
    data = event.data
    detail = str(data.get("reason") or data.get("detail") or data.get("warning") or "")
    if event.type == "message.failed" and data.get("cause"):
        detail = f"{causes.lookup(str(data['cause'])).label}. {detail}".strip()
    begins = event.type in ("message.accepted", "message.received")
    return Moment(event.at, title, detail, tone, rank=0 if begins else 2)


def _of_delivery(event: Event) -> Moment:
    title, tone = _DELIVERIES[event.type]
    data = event.data
    detail = str(data.get("reason") or "")
    if data.get("doubt"):
        detail = doubts.reason(str(data["doubt"])).label
    elif data.get("cause"):
        detail = causes.lookup(str(data["cause"])).label
    name = str(data.get("name") or "a trigger")
    return Moment(event.at, title.format(name=name), detail, tone, delivery=str(data.get("delivery") or ""), rank=2)


def _of_attempt(attempt: Transmission) -> Moment:
    """An attempt to send the message, or our answer to it."""
    signal = attempt.signal
    cause = causes.lookup(attempt.cause).label if attempt.cause and signal is None else ""
    status = f"HTTP {attempt.http_status}" if attempt.http_status else ""
    if signal is None:
        what = f"Attempt {attempt.number}"
    else:
        what = _ANSWERS.get(signal.kind) or f"Error message {signal.error_code}"
    fate, tone = {
        Outcome.ON_THE_WIRE: ("is on the wire", "plain"),
        Outcome.SENT: ("handed over" if signal is None else "sent to the partner", "good"),
        Outcome.FAILED: ("failed" if signal is None else "could not be sent", "bad"),
        Outcome.LOST: ("has no known outcome", "watch"),
    }[Outcome(attempt.outcome)]
    return Moment(
        attempt.started_at,
        f"{what} {fate}",
        " · ".join(part for part in (status, cause, attempt.detail) if part),
        tone,
        "out",
        (attempt.finished_at - attempt.started_at).total_seconds() if attempt.finished_at is not None else None,
        transmission=attempt,
        signal=signal,
    )


def _of_signal(signal: Signal) -> Moment:
    if signal.kind == SignalKind.ACKNOWLEDGEMENT:
        title, tone = "Acknowledgement from the partner", "good"
    elif signal.kind == SignalKind.FINAL:
        title, tone = _FINAL + " from the partner", "plain"
    else:
        title, tone = f"Error message from the partner: {signal.error_code}", "bad"
    detail = signal.error_description
    if signal.state == SignalState.IGNORED:
        title, tone = f"{title}, ignored", "plain"
        detail = f"{detail} ({signal.note})".strip()
    return Moment(signal.created_at, title, detail, tone, "in", signal=signal)
