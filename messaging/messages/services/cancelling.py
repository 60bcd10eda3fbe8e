"""What people do to a message: cancel it, and how one leaves its pair, or goes back into the queue."""

from __future__ import annotations

import uuid
from datetime import datetime

from django.db import transaction
from django.db.models import F

from messaging import dispatch
from messaging.choices import Direction, MessageState
from messaging.engine.snapshots import REPEATABLE_FIELDS
from messaging.exceptions import NotFound, Stale, UnderWay, WrongState
from messaging.journal import audit, events
from messaging.journal.audit import Actor
from messaging.models import Event, Message, Pair
from messaging.pairs.services.changing import described, released, save, take_step
from messaging.profile import in_stream, is_atomic, is_repeatable, is_stream
from messaging.profiles.repeatable import repeating
from messaging.profiles.stream import moving as stream_verbs
from messaging.profiles.wsat import outgoing
from messaging.protocol.envelope import Semantics
from messaging.protocol.errors import IllegalTransition
from messaging.protocol.messages import (
    RELIABLE,
    REPEATABLE,
    STREAM,
    UNRELIABLE,
    Happened,
    State,
    move,
    move_repeatable,
)
from messaging.protocol.pair_state import Flow, Kind
from messaging.routing.services import upstream
from partners import registry
from partners.choices import Profile
from rmhub import clock
from rmhub.ids import public_id

_NOT_NOW = {
    MessageState.IN_DOUBT: "It is in doubt: find out whether the partner has it, then settle it.",
    MessageState.CONFIRMING: "The partner's queue has it; its application is to say whether it took it.",
    MessageState.SENDING: "It is on the wire; wait for its outcome.",
}


def waits(message: Message) -> bool:
    """Whether cancelling it takes it out of its queue, and that is all. Reads the message's pair."""
    return message.state == MessageState.QUEUED and message.pair.in_flight_id != message.pk


def message_cancel(
    *,
    message_id: uuid.UUID,
    actor: Actor,
    reason: str,
    only_waiting: bool = False,
    expected_version: int | None = None,
) -> Message:
    """Takes back an outbound message: one that waits simply leaves the queue, one in flight is skipped.

    `only_waiting`: nobody has agreed to give up one that the partner may have. `expected_version`: that of the pair
    which the caller saw. Raises WrongState when it is on the wire or done, UnderWay when only one that waits was meant,
    Stale for another version, InvalidSubmission for a reason that says nothing.
    """
    audit.require_reason(reason, at_least=audit.HEAVY_REASON)
    with transaction.atomic():
        known = Message.objects.filter(pk=message_id, direction=Direction.OUT).defer("wire_frame").first()
        if known is None:
            raise NotFound(f"There is no outbound message {public_id('msg', message_id)}.")
        atomic = is_atomic(registry.current().version(known.agreement_version_id))
        # Of a transaction, the message's lock alone: those who answer it hold it before they look at its pair.
        pair = known.pair if atomic else Pair.objects.select_for_update().get(pk=known.pair_id)
        message = Message.objects.select_for_update().filter(pk=message_id).first()
        if message is None:  # finished long ago, and purged in this very moment
            raise NotFound(f"There is no outbound message {public_id('msg', message_id)}.")
        message.pair = pair
        if expected_version is not None and pair.version != expected_version:
            raise Stale(f"{pair.code} changed since you looked at it. Look again before you act.", version=pair.version)
        waited, state = waits(message), message.state
        if not atomic and pair.in_flight_id == message.pk:
            skip_in_flight(pair, message, Happened.CANCELLED, "message.cancel", actor, reason)
        else:
            try:
                written = _taken_back(pair, message, atomic, reason, clock.now())
            except IllegalTransition as error:
                raise WrongState(str(error), state=state) from error
            before, after = {"state": state}, {"state": message.state}
            audit.record(actor, "message.cancel", message, reason=reason, before=before, after=after)
            events.write(written)
        if only_waiting and not waited:
            # Asked last: what is on the wire, or done, is told first. Nothing of the above is kept.
            said = f"It does not wait in the queue any more (its state is {state}): the partner may have it."
            raise UnderWay(said, state=state, allowed=("cancel",))
    return message


def why_not_cancel(message: Message) -> str:
    """Why a message's state does not take a cancel; "" when it does. Its pair may still refuse it."""
    if message.direction != Direction.OUT:
        return "It came from the partner."
    if message.agreement_version.profile == Profile.WSAT:
        # Nobody takes back what is on the wire, although an answer may end it there.
        possible = message.state in outgoing.CANCELLABLE
    else:
        if message.agreement_version.profile == Profile.REPEATABLE:
            table = REPEATABLE
        elif in_stream(message):
            table = STREAM
        else:
            table = RELIABLE if message.semantics == Semantics.ONCE_AND_ONLY_ONCE else UNRELIABLE
        possible = Happened.CANCELLED in table.get(State(message.state), {})
    return "" if possible else _NOT_NOW.get(MessageState(message.state), "It is done.")


def _taken_back(pair: Pair, message: Message, atomic: bool, reason: str, now: datetime) -> list[Event]:
    """Take one out that is not in flight; return the events. Call with pair and message locked.

    Raises IllegalTransition, WrongState.
    """
    data = {"reason": reason}
    if atomic:
        written = outgoing.cancel(message, now)
        return [events.event("message.cancelled", now, pair=pair, message=message, data=data), *written]
    terms = registry.current().version(message.agreement_version_id)
    if is_repeatable(terms):
        cancelled = drop_request(pair, message, Happened.CANCELLED, reason, now)
        if pair.probing:
            repeating.let_go(pair, now)
        repeating.set_timer(pair, terms, now)
        pair.save(update_fields=list(REPEATABLE_FIELDS))
        dispatch.wake_on_commit(dispatch.SEND)
        return [cancelled]
    if is_stream(terms):
        written = stream_verbs.cancel(pair, message, terms, reason, now)
        dispatch.wake_on_commit(dispatch.SEND)
        return written
    reliable = message.semantics == Semantics.ONCE_AND_ONLY_ONCE
    message.state = move(message.state, Happened.CANCELLED, reliable=reliable)
    message.due_at, message.completed_at = None, now
    message.save(update_fields=["state", "due_at", "completed_at"])
    upstream.onward_ended([(message.forwarded_from_id, message.state)], now)
    if reliable:
        Pair.objects.filter(pk=pair.pk).update(queued=F("queued") - 1)
    return [events.event("message.cancelled", now, pair=pair, message=message, data=data)]


def drop_request(pair: Pair, message: Message, happened: Happened, reason: str, now: datetime) -> Event:
    """Ends a request that waits or is between two repeats. Call with both locked; the caller saves the pair."""
    waits = message.state == MessageState.QUEUED
    try:
        message.state = move_repeatable(message.state, happened)
    except IllegalTransition as error:
        raise WrongState(str(error), state=message.state) from error
    message.due_at, message.completed_at = None, now
    message.save(update_fields=["state", "due_at", "completed_at"])
    upstream.onward_ended([(message.forwarded_from_id, message.state)], now)
    if waits:
        pair.queued -= 1
    else:
        pair.out_now -= 1
    kind = "message.skipped" if happened is Happened.SKIPPED else "message.cancelled"
    return events.event(kind, now, pair=pair, message=message, data={"reason": reason})


def skip_in_flight(pair: Pair, message: Message, happened: Happened, verb: str, actor: Actor, reason: str) -> None:
    """Call with pair and message locked. The sequence restarts at 1, for nobody knows whether the number was taken."""
    now = clock.now()
    before = described(pair)
    was_suspended = pair.flow == Flow.SUSPENDED
    take_step(pair, Kind.SKIP, message, now)
    message.state = move(message.state, happened, reliable=True)
    message.completed_at = now
    message.save(update_fields=["state", "completed_at"])
    upstream.onward_ended([(message.forwarded_from_id, message.state)], now)
    kind = "message.skipped" if happened is Happened.SKIPPED else "message.cancelled"
    written = [events.event(kind, now, pair=pair, message=message, data={"reason": reason})]
    if was_suspended:
        written += released(pair, now, actor, reason)
    save(pair, verb, actor, reason, {**before, "message": message.public_id}, written)


def requeue(message: Message) -> None:
    """Back to the head of the queue without number and octets: the partner refused the number that it had."""
    message.state = move(message.state, Happened.REQUEUED, reliable=True)
    message.sequence_number = None
    message.wire_frame = None
    message.content_type = message.digest = ""
    message.attempts = 0
    message.save(update_fields=["state", "sequence_number", "wire_frame", "content_type", "digest", "attempts"])
