"""What the sequence drawing of a transaction shows: lifelines, and the messages and decisions as rows in order of time.

The same rows are the table below the drawing, and `GET /transactions/{id}/messages`. How they are drawn is
`pages.diagram`'s.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime

from messaging import causes
from messaging.choices import MESSAGE_LOOKS, Direction, MessageState
from messaging.models import CoordinationMessage, Enlistment
from messaging.protocol.atomic.words import FAULT, Note, Phase, Protocol
from messaging.transactions.selectors.coordinations import CoordinationScreen, cause_of, name_of
from rmhub.ids import public_id

HUB = "hub"
FORGET = "forget"  # `Enlistment.settled_as` of a participant that was given up
# What a message of ours has come to: outcome of its arrow, and tone.
_FATES: dict[str, tuple[str, str]] = {
    MessageState.QUEUED: ("open", "plain"),
    MessageState.SENDING: ("open", "plain"),
    MessageState.AWAITING_ACK: ("arrived", "plain"),
    MessageState.RETRYING: ("lost", "watch"),
    MessageState.SENT: ("arrived", "good"),
    MessageState.DELIVERED: ("arrived", "good"),
    MessageState.FAILED: ("lost", "bad"),
    MessageState.CANCELLED: ("arrived", "plain"),
}
_NO = ("Aborted", "Rollback")


@dataclass(frozen=True, slots=True)
class Lane:
    """A lifeline: the hub, a participant, or a partner without one. `detail`: what it is there for."""

    key: str
    name: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """One row. `kind`: `message` (an arrow from lane to lane) or `mark` (a line across).

    `outcome` of arrows: arrived, lost (nobody took it yet), open (on its way), unsent (not needed any more before it
    went out). `attempts`: how often it was put on the wire. `tone`: good, watch, bad, plain. `message`: its public id.
    """

    at: datetime
    kind: str
    label: str
    source: str = HUB
    target: str = HUB
    outcome: str = ""
    tone: str = "plain"
    result: str = ""
    note: str = ""
    attempts: int = 0
    state: str = ""
    message: str = ""
    by: str = ""
    rank: int = 0  # among those of the same instant: what came in, what was decided by it, what went out


@dataclass(frozen=True, slots=True)
class Exchange:
    """The drawing's content. `cut`: there are more messages than are shown."""

    lanes: list[Lane]
    steps: list[Step]
    cut: bool = False


def sequence(screen: CoordinationScreen) -> Exchange:
    """Of what `coordinations.coordination_screen` read; no query."""
    lanes = _lanes(screen)
    by_enlistment = {uuid.UUID(lane.key[4:]): lane.key for lane in lanes if lane.key.startswith("enl:")}
    by_party: dict[uuid.UUID, str] = {}
    for taker in screen.enlistments:
        if taker.party_id is not None and taker.pk in by_enlistment:
            by_party.setdefault(taker.party_id, by_enlistment[taker.pk])
    steps = []
    for row in screen.messages:
        partner = row.message.pair.partner
        lane = by_enlistment.get(row.enlistment_id) if row.enlistment_id else None
        if lane is None:
            lane = by_party.get(partner.pk)
        if lane is None:
            lane = by_party[partner.pk] = f"par:{partner.pk}"
            lanes.append(Lane(lane, partner.name, "no participant"))
        steps.append(_of_message(row, lane))
    steps += _marks(screen)
    return Exchange(lanes, sorted(steps, key=lambda step: (step.at, step.rank)), screen.more)


def _lanes(screen: CoordinationScreen) -> list[Lane]:
    """The hub, and one for everybody who was sent something; what the hub does itself needs none."""
    takers = [taker for taker in screen.enlistments if not taker.local]
    return [
        Lane(HUB, "This hub", "participant" if screen.coordination.subordinate else "coordinator"),
        *(Lane(f"enl:{taker.pk}", name_of(taker), _protocol(taker)) for taker in takers),
    ]


def _protocol(taker: Enlistment) -> str:
    if taker.superior:
        return "its coordinator"
    return "initiator" if taker.protocol == Protocol.COMPLETION else taker.protocol


def _of_message(row: CoordinationMessage, lane: str) -> Step:
    message = row.message
    ours = message.direction == Direction.OUT
    fault = row.kind == FAULT
    outcome, tone = _FATES.get(message.state, ("arrived", "good")) if ours else ("arrived", "good")
    if ours and message.state == MessageState.AWAITING_ACK and message.attempts > 1:
        tone = "watch"
    if ours and message.state == MessageState.CANCELLED and not message.attempts:
        outcome = "unsent"
    if fault:
        tone = "bad"
    elif row.kind in _NO and tone == "good":
        tone = "watch"
    if row.note and not ours and tone == "good" and "ignored" in row.note:
        tone = "plain"
    return Step(
        row.at,
        "message",
        f"{row.kind} {row.fault_code}".strip(),
        HUB if ours else lane,
        lane if ours else HUB,
        outcome,
        tone,
        _result(row, ours),
        row.note,
        message.attempts if ours else 1 + message.copies,
        message.state,
        public_id("msg", row.message_id),
        rank=2 if ours else 0,
    )


def _result(row: CoordinationMessage, ours: bool) -> str:
    message = row.message
    parts = []
    if ours and message.attempts > 1:
        parts.append(f"sent {message.attempts} times")
    if ours and message.state != MessageState.SENT:
        word = "answered" if message.state == MessageState.DELIVERED else MESSAGE_LOOKS[message.state].label.lower()
        parts.append("awaits its answer" if message.state == MessageState.AWAITING_ACK else word)
    if ours and message.cause and message.state in (MessageState.RETRYING, MessageState.FAILED):
        parts.append(causes.lookup(message.cause).label)
    parts += [text for text in (row.fault_reason, row.note) if text]
    return " · ".join(parts)


def _marks(screen: CoordinationScreen) -> list[Step]:
    """Decisions, which no message tells of."""
    one = screen.coordination
    found = []
    if one.decided_at is not None:
        found.append(Step(one.decided_at, "mark", "Commit record written", tone="good", by="the hub", rank=1))
    elif one.phase in (Phase.ABORTING, Phase.ABORTED):
        cause = cause_of(one)
        found.append(
            Step(
                _rolled_back_at(screen),
                "mark",
                "Rolled back",
                result=cause.label if cause else "",
                tone="watch",
                by="the hub",
                rank=1,
            )
        )
    for taker in screen.enlistments:
        if taker.settled_at is not None:
            label = f"{name_of(taker)} settled: {taker.settled_as}"
            said = taker.settled_reason[:120]
            found.append(Step(taker.settled_at, "mark", label, result=said, tone="bad", by=taker.settled_by, rank=3))
    if one.phase == Phase.COMMITTED and one.ended_at is not None:
        given_up = any(taker.settled_as == FORGET for taker in screen.enlistments)
        label = "The end: who was given up has not confirmed it" if given_up else "Everybody has committed"
        found.append(Step(one.ended_at, "mark", label, tone="plain" if given_up else "good", rank=3))
    return found


def _rolled_back_at(screen: CoordinationScreen) -> datetime:
    """When the first one was told so, or voted no; without such a message, when it ended or changed."""
    one = screen.coordination
    last = one.ended_at if one.phase == Phase.ABORTED and one.ended_at is not None else one.changed_at
    said = (
        row.at
        for row in screen.messages
        if row.kind == (Note.ROLLBACK if row.message.direction == Direction.OUT else Note.ABORTED)
    )
    return min(next(said, last), last)
