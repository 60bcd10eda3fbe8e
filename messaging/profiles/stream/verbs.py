"""What people do to a stream and its messages. `operating` has the records of it: audit entry, events, incidents."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from messaging.choices import MessageState
from messaging.models import Event, Message, Pair
from messaging.profiles.stream import flights, landing
from messaging.profiles.stream.flights import Ending
from messaging.protocol.messages import Happened, move_stream
from messaging.protocol.pair_state import Kind as Verb
from messaging.protocol.streams.outgoing import Event as StreamEvent
from messaging.protocol.streams.outgoing import Kind
from partners.terms import Terms

_KINDS: Mapping[Verb, Kind] = {
    Verb.RESUME: Kind.RESUME,
    Verb.RETRY_NOW: Kind.RETRY_NOW,
    Verb.SKIP: Kind.SKIP,
    Verb.RESTART: Kind.RESTART,
}


def act(pair: Pair, verb: Verb, terms: Terms, reason: str, now: datetime) -> tuple[list[Event], str]:
    """One verb on a locked pair; returns the events, and the MessageId of what was skipped.

    resume, retry now: everything that is not on the wire goes out again, in order. skip: the first message in flight is
    given up and bridged; the pair goes on. restart: a new stream id, and what is not acknowledged gets new numbers
    under it, with its old MessageIds. Raises IllegalTransition.
    """
    flight = flights.load([pair], now, {pair.pk: terms})[pair.pk]
    skipped = ""
    if verb is Verb.SKIP and flight.state.flight:
        number = flight.state.flight[0].number
        flight.endings[number] = Ending(Happened.SKIPPED, "message.skipped", data={"reason": reason})
        skipped = flight.rows[number].message_id
    flight.advance(StreamEvent(kind=_KINDS[verb]), now)
    return landing.finish([flight], now), skipped


def cancel(pair: Pair, message: Message, terms: Terms, reason: str, now: datetime) -> list[Event]:
    """Takes back a message that waits, or one in flight that is not on the wire, which what follows it bridges.

    Call with both locked; saves both. Raises IllegalTransition.
    """
    flight = flights.load([pair], now, {pair.pk: terms})[pair.pk]
    ending = Ending(Happened.CANCELLED, "message.cancelled", data={"reason": reason})
    move_stream(message.state, Happened.CANCELLED)  # refused before anything is changed
    if message.state == MessageState.QUEUED:
        flight.bury(ending, message, now)
    else:
        assert message.sequence_number is not None
        flight.end(ending, now, message.sequence_number, bridge=True)
    written = landing.finish([flight], now)
    message.refresh_from_db(fields=["state", "due_at", "completed_at", "cause", "cause_detail"])
    return written
