"""What the sequence drawing of a transaction shows: lifelines, and the messages and decisions as rows in order of time.

A row is `repeated` as often as it was put on the wire. The same rows are the table below the drawing; how they are
drawn is `messages.pages.diagram`'s.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime

from django.utils.translation import gettext as _

from messaging import causes
from messaging.choices import MESSAGE_LOOKS, Direction, MessageState
from messaging.messages.selectors.history import AT_THE_HUB, Step
from messaging.models import CoordinationMessage, Enlistment
from messaging.protocol.atomic.words import FAULT, Note, Phase, Protocol
from messaging.transactions.selectors.coordinations import CoordinationScreen, cause_of, name_of, settled_word
from rmhub.ids import public_id
from rmhub.language import inside, number

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
class Exchange:
    """The drawing's content. `lanes`, from left to right: key -> name, and what it is there for: the hub, participants,
    and partners without one. `cut`: there are more messages than are shown.
    """

    lanes: dict[str, tuple[str, str]]
    steps: list[Step]
    cut: bool = False


def sequence(screen: CoordinationScreen) -> Exchange:
    """Of what `coordinations.coordination_screen` read; no query."""
    role = _("participant") if screen.coordination.subordinate else _("coordinator")
    lanes = {AT_THE_HUB: (_("This hub"), role)}
    by_enlistment: dict[uuid.UUID, str] = {}
    by_party: dict[uuid.UUID, str] = {}
    for taker in screen.enlistments:
        if taker.local:  # what the hub does itself needs no lane
            continue
        key = by_enlistment[taker.pk] = f"enl:{taker.pk}"
        lanes[key] = (name_of(taker), _protocol(taker))
        if taker.party_id is not None:
            by_party.setdefault(taker.party_id, key)
    steps = []
    for row in screen.messages:
        partner = row.message.pair.partner
        lane = by_enlistment.get(row.enlistment_id) if row.enlistment_id else None
        if lane is None:
            lane = by_party.get(partner.pk)
        if lane is None:
            lane = by_party[partner.pk] = f"par:{partner.pk}"
            lanes[lane] = (partner.name, _("no participant"))
        steps.append(_of_message(row, lane))
    steps += _marks(screen)
    return Exchange(lanes, sorted(steps, key=lambda step: (step.at, step.rank)), screen.more)


def _protocol(taker: Enlistment) -> str:
    if taker.superior:
        return _("its coordinator")
    return _("initiator") if taker.protocol == Protocol.COMPLETION else taker.protocol


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
        AT_THE_HUB if ours else lane,
        lane if ours else AT_THE_HUB,
        outcome,
        f"{row.kind} {row.fault_code}".strip(),
        _result(row, ours),
        tone=tone,
        repeated=message.attempts if ours else 1 + message.copies,
        message=public_id("msg", row.message_id),
        rank=2 if ours else 0,
    )


def _result(row: CoordinationMessage, ours: bool) -> str:
    message = row.message
    parts = []
    if ours and message.attempts > 1:
        parts.append(_("sent {count} times").format(count=number(message.attempts)))
    if ours and message.state != MessageState.SENT:
        answers = {
            MessageState.DELIVERED.value: _("answered"),
            MessageState.AWAITING_ACK.value: _("awaits its answer"),
        }
        parts.append(answers.get(message.state) or inside(MESSAGE_LOOKS[message.state].label))
    if ours and message.cause and message.state in (MessageState.RETRYING, MessageState.FAILED):
        parts.append(str(causes.lookup(message.cause).label))
    parts += [text for text in (row.fault_reason, row.note) if text]
    return " · ".join(parts)


def _marks(screen: CoordinationScreen) -> list[Step]:
    """Decisions, which no message tells of."""
    one = screen.coordination
    found = []
    if one.decided_at is not None:
        found.append(Step(one.decided_at, "mark", label=_("Commit record written"), tone="good"))
    elif one.phase in (Phase.ABORTING, Phase.ABORTED):
        cause = cause_of(one)
        said = cause.label if cause else ""
        found.append(Step(_rolled_back_at(screen), "mark", label=_("Rolled back"), result=said, tone="watch"))
    for taker in screen.enlistments:
        if taker.settled_at is not None:
            label = _("{name} settled: {outcome}").format(name=name_of(taker), outcome=settled_word(taker.settled_as))
            said = taker.settled_reason[:120]
            settled = Step(taker.settled_at, "mark", label=label, result=said, by=taker.settled_by, tone="bad", rank=3)
            found.append(settled)
    if one.phase == Phase.COMMITTED and one.ended_at is not None:
        given_up = any(taker.settled_as == FORGET for taker in screen.enlistments)
        label = _("Everybody has committed")
        if given_up:
            label = _("Ended: the participants that were given up have not confirmed it")
        found.append(Step(one.ended_at, "mark", label=label, tone="plain" if given_up else "good", rank=3))
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
