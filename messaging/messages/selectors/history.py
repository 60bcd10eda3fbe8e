"""What happened, as rows in the order of time: what stored events, attempts, answers and probes mean in words.

Timelines of messages and incidents, sequence diagrams of messages, pairs and transactions, and the API show these rows.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from django.utils.translation import gettext as _

from messaging import causes, profile
from messaging.choices import DeliveryState, Direction, Outcome, SignalKind, SignalState
from messaging.deliveries.selectors import in_doubt
from messaging.messages.selectors import messages
from messaging.models import Delivery, Event, Message, ProbeReport, Signal, Transmission
from partners import registry
from rmhub.ids import public_id
from rmhub.language import gettext_lazy, inside

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
    crosses the wire, what answers it, what follows from that. `what`: the label without the attempt, "" = the label.
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
    what: str = ""

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


_BOUNCED = gettext_lazy("Came back: a mail server could not deliver it")
EVENTS: dict[str, Said] = {
    "message.accepted": Said(gettext_lazy("Accepted from the application"), "good"),
    "message.retrying": Said(gettext_lazy("Sent again"), "watch"),
    "message.sent": Said(gettext_lazy("Handed over"), "good"),
    "message.delayed": Said(gettext_lazy("On its way: a mail server could not pass it on yet"), "watch"),
    "message.bounced": Said(_BOUNCED, "bad", _BOUNCED),
    "message.delivered": Said(gettext_lazy("Delivered: acknowledged by the partner"), "good"),
    "message.failed": Said(gettext_lazy("Given up"), "bad"),
    "message.skipped": Said(gettext_lazy("Skipped by a person"), "watch", gettext_lazy("Skipped")),
    "message.cancelled": Said(gettext_lazy("Cancelled by a person"), "watch", gettext_lazy("Cancelled")),
    "message.held": Said(gettext_lazy("Received; waits for what comes before it"), "watch"),
    "message.received": Said(gettext_lazy("Received and stored"), "good"),
    "message.forwarded": Said(gettext_lazy("Passed on to the next hop"), "good"),
    "message.duplicate": Said(gettext_lazy("Came again, and was discarded"), "watch"),
    "message.in_doubt": Said(
        gettext_lazy("In doubt: nobody knows whether the partner has it"), "bad", gettext_lazy("In doubt")
    ),
    "message.settled": Said(gettext_lazy("Settled by a person"), "good", gettext_lazy("Settled")),
    "delivery.completed": Said(gettext_lazy("Processed by {name}"), "good"),
    "delivery.failed": Said(gettext_lazy("{name} failed on it"), "bad"),
    "delivery.duplicate": Said(gettext_lazy("Duplicate for {name}: discarded"), "watch"),
    "delivery.in_doubt": Said(gettext_lazy("In doubt whether {name} has processed it"), "bad"),
    "delivery.settled": Said(gettext_lazy("Settled by a person for {name}"), "good"),
    "incident.opened": Said(gettext_lazy("Opened"), "bad"),
    "incident.resolved": Said(gettext_lazy("Resolved"), "good"),
    "pair.suspended": Said(gettext_lazy("Pair suspended"), "bad", gettext_lazy("Suspended")),
    "pair.resumed": Said(gettext_lazy("Pair resumed"), "good", gettext_lazy("Resumed")),
    "pair.paused": Said(gettext_lazy("Pair paused"), "watch", gettext_lazy("Paused")),
    "pair.released": Said(gettext_lazy("Pair released"), "good", gettext_lazy("Released")),
    "pair.silent": Said(gettext_lazy("Pair silent"), "watch", gettext_lazy("Silent")),
    "pair.heard": Said(gettext_lazy("Pair receives again"), "good", gettext_lazy("Receives again")),
    "pair.retry_budget": Said(gettext_lazy("Retries being used up"), "watch"),
    "pair.needs_resync": Said(gettext_lazy("Memory was lost"), "bad", gettext_lazy("Memory was lost")),
    "pair.resynced": Said(gettext_lazy("In sync again"), "good", gettext_lazy("In sync again")),
    "circuit.opened": Said(gettext_lazy("Sending to the partner's server stopped"), "bad"),
    "circuit.closed": Said(gettext_lazy("Partner's server answers again"), "good"),
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
    Outcome.ON_THE_WIRE: (
        "open",
        "plain",
        gettext_lazy("Attempt {number} is on the wire"),
        gettext_lazy("{answer} is on the wire"),
    ),
    Outcome.SENT: (
        "arrived",
        "good",
        gettext_lazy("Attempt {number} handed over"),
        gettext_lazy("{answer} sent to the partner"),
    ),
    Outcome.FAILED: (
        "lost",
        "bad",
        gettext_lazy("Attempt {number} failed"),
        gettext_lazy("{answer} could not be sent"),
    ),
    Outcome.LOST: (
        "unknown",
        "watch",
        gettext_lazy("Attempt {number} has no known outcome"),
        gettext_lazy("{answer} has no known outcome"),
    ),
}
_UNSAID = {
    "open": gettext_lazy("on the wire"),
    "arrived": gettext_lazy("handed over"),
    "unknown": gettext_lazy("outcome not known"),
}


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
        detail = _("{percent} of them").format(percent=f"{data.get('percent')} %")
    return Step(
        event.at,
        "mark" if said.mark else "event",
        label=str(said.mark),
        result=(cause or reason)[:120],
        by=str(data.get("by") or data.get("actor") or ""),
        tone=said.tone,
        message=public_id("msg", event.message_id) if event.message_id else "",
        delivery=str(data.get("delivery") or "") if event.type.startswith("delivery.") else "",
        title=said.title.format(name=data.get("name") or _("a trigger")),
        detail=detail,
        rank=0 if event.type in ("message.accepted", "message.received") else 3,
    )


def submitted(message: Message) -> Step:
    """How it came to the hub; timelines have an event for that."""
    ours = message.direction == Direction.OUT
    passed_on = ours and message.forwarded_from_id is not None
    label = _name(message)
    if ours:
        label = (_("passed on {action}") if passed_on else _("submit {action}")).format(action=message.action)
    return Step(
        message.created_at,
        "message",
        "partner" if not ours else "hub" if passed_on else "app",
        outcome="arrived",
        label=label,
        result=_("accepted") if ours else _("stored"),
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
    numbers = f"{attempt.number}/{most}" if most >= attempt.number else str(attempt.number)
    what = _name(message)
    sent = _sent(attempt, message, _("{message} try {numbers}").format(message=what, numbers=numbers))
    result = sent.result or str(_UNSAID.get(sent.outcome, ""))
    sent = replace(sent, result=result, most=most, size=message.size, what=what)
    if not (at_once and sent.outcome == "arrived" and attempt.finished_at):
        return [sent]
    answer = replace(sent, at=attempt.finished_at, kind="answer", source="partner", target="hub", label=_("answer"),
                     size=None, rank=2, title="", what="")  # fmt: skip
    return [sent, answer]


def of_answer(attempt: Transmission, signal: Signal, message: Message) -> Step:
    """Our acknowledgement or error message to the partner."""
    error = signal.kind == SignalKind.ERROR
    word = signal.error_code if error else inside(SignalKind(signal.kind).label)
    return _sent(attempt, message, f"{_name(message)} {word}", signal)


def _sent(attempt: Transmission, message: Message, label: str, signal: Signal | None = None) -> Step:
    """What went from us to the partner: the message, or our answer to it."""
    outcome, tone, fate, fate_of_answer = _FATES[attempt.outcome]
    if attempt.outcome == Outcome.FAILED and attempt.http_status:
        outcome = "refused"
    cause = causes.lookup(attempt.cause).label if attempt.cause else ""
    status = f"HTTP {attempt.http_status}" if attempt.http_status else ""
    if signal is None:
        title = fate.format(number=attempt.number)
    else:
        answer = SignalKind(signal.kind).label
        if signal.kind == SignalKind.ERROR:
            answer = _("Error message {code}").format(code=signal.error_code)
        title = fate_of_answer.format(answer=answer)
    return Step(
        attempt.started_at,
        "message" if signal is None else "answer",
        target="partner",
        outcome=outcome,
        label=label,
        result=" · ".join(str(part) for part in (status, cause) if part),
        tone=tone,
        number=attempt.number,
        http_status=attempt.http_status,
        seconds=_seconds(attempt.started_at, attempt.finished_at),
        transmission=public_id("att", attempt.pk),
        signal=public_id("sig", signal.pk) if signal is not None else "",
        message=message.public_id,
        title=title,
        detail=" · ".join(str(part) for part in (status, "" if signal else cause, attempt.detail) if part),
    )


def of_signal(signal: Signal, message: Message) -> Step:
    """The partner's acknowledgement or error message."""
    error = signal.kind == SignalKind.ERROR
    title = (_("{answer} from the partner: {code}") if error else _("{answer} from the partner")).format(
        answer=SignalKind(signal.kind).label, code=signal.error_code
    )
    detail, tone, result = signal.error_description, "good", _("taken")
    word = inside(SignalKind(signal.kind).label)
    if error:
        tone, result, word = "bad", detail[:80], signal.error_code
    if signal.state == SignalState.IGNORED:
        title, detail = _("{title}, ignored").format(title=title), f"{detail} ({signal.note})".strip()
        tone, result = "plain", _("ignored")
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
        result=causes.lookup(row.cause).label if row.cause else inside(DeliveryState(row.state).label),
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
        label=_("ping"),
        result=causes.lookup(report.cause).label if report.cause else _("answered"),
        by=report.actor,
        tone="good" if report.ok else "bad",
        seconds=sum(float(step.get("seconds") or 0) for step in report.steps),
        probe=report.public_id,
    )


def _name(message: Message) -> str:
    return f"#{message.sequence_number} {message.action}" if message.sequence_number else message.action


def _seconds(begin: datetime | None, end: datetime | None) -> float | None:
    return (end - begin).total_seconds() if begin is not None and end is not None else None
