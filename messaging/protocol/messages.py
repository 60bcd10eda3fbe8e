"""Life of one message in the store, as an explicit table (docs/state-machines.md is drawn from it).

Reliable messages follow their pair's sender machine; unreliable ones (spec 1, 3.1.2 and 3.1.3)
go out once, and the outcome of that one transmission is all that is known. Repeatable requests (spec 2)
follow a machine of their own each (`protocol.repeating`): their answer is their acknowledgement. Messages of a
transactional stream (spec 3) follow that of their stream (`protocol.streams.outgoing`), those of ebXML Messaging 2.0
one of their own each (`protocol.ebms.sending`). Messages of atomic transactions (spec 5) go out again until they are
answered, or, where no answer is awaited, until the other side takes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from messaging.protocol.errors import IllegalTransition


class State(StrEnum):
    QUEUED = "queued"
    SENDING = "sending"
    AWAITING_ACK = "awaiting_ack"
    RETRYING = "retrying"
    FAILED = "failed"
    SENT = "sent"
    DELIVERED = "delivered"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"
    IN_DOUBT = "in_doubt"
    CONFIRMING = "confirming"


class Happened(StrEnum):
    TRANSMITTED = "transmitted"
    HANDED_OVER = "handed_over"
    WILL_RETRY = "will_retry"
    GAVE_UP = "gave_up"
    ACKNOWLEDGED = "acknowledged"
    RESUMED = "resumed"
    REQUEUED = "requeued"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"
    DOUBTED = "doubted"
    STORED = "stored"


_S, _H = State, Happened

RELIABLE: Mapping[State, Mapping[Happened, State]] = {
    _S.QUEUED: {_H.TRANSMITTED: _S.SENDING, _H.CANCELLED: _S.CANCELLED},
    _S.SENDING: {
        _H.HANDED_OVER: _S.AWAITING_ACK,
        _H.WILL_RETRY: _S.RETRYING,
        _H.ACKNOWLEDGED: _S.DELIVERED,
        _H.GAVE_UP: _S.FAILED,
    },
    _S.AWAITING_ACK: {
        _H.TRANSMITTED: _S.SENDING,
        _H.WILL_RETRY: _S.RETRYING,
        _H.ACKNOWLEDGED: _S.DELIVERED,
        _H.GAVE_UP: _S.FAILED,
        _H.SKIPPED: _S.SKIPPED,
        _H.CANCELLED: _S.CANCELLED,
    },
    _S.RETRYING: {
        _H.TRANSMITTED: _S.SENDING,
        _H.WILL_RETRY: _S.RETRYING,
        _H.ACKNOWLEDGED: _S.DELIVERED,
        _H.GAVE_UP: _S.FAILED,
        _H.SKIPPED: _S.SKIPPED,
        _H.CANCELLED: _S.CANCELLED,
    },
    # Not the end: the pair is suspended and a person decides; a late acknowledgement counts too.
    _S.FAILED: {
        _H.RESUMED: _S.RETRYING,
        _H.REQUEUED: _S.QUEUED,
        _H.ACKNOWLEDGED: _S.DELIVERED,
        _H.SKIPPED: _S.SKIPPED,
        _H.CANCELLED: _S.CANCELLED,
    },
    _S.DELIVERED: {},
    _S.SKIPPED: {},
    _S.CANCELLED: {},
}
RELIABLE_FINAL = frozenset({_S.DELIVERED, _S.SKIPPED, _S.CANCELLED})

UNRELIABLE: Mapping[State, Mapping[Happened, State]] = {
    _S.QUEUED: {_H.TRANSMITTED: _S.SENDING, _H.CANCELLED: _S.CANCELLED},
    _S.SENDING: {_H.HANDED_OVER: _S.SENT, _H.GAVE_UP: _S.FAILED},
    _S.SENT: {},
    _S.FAILED: {},
    _S.CANCELLED: {},
}
UNRELIABLE_FINAL = frozenset({_S.SENT, _S.FAILED, _S.CANCELLED})


REPEATABLE: Mapping[State, Mapping[Happened, State]] = {
    _S.QUEUED: {_H.TRANSMITTED: _S.SENDING, _H.CANCELLED: _S.CANCELLED},
    _S.SENDING: {
        _H.TRANSMITTED: _S.SENDING,
        _H.WILL_RETRY: _S.RETRYING,
        _H.ACKNOWLEDGED: _S.DELIVERED,
        _H.DOUBTED: _S.IN_DOUBT,
        _H.GAVE_UP: _S.FAILED,
    },
    _S.RETRYING: {
        _H.TRANSMITTED: _S.SENDING,
        _H.ACKNOWLEDGED: _S.DELIVERED,
        _H.DOUBTED: _S.IN_DOUBT,
        _H.GAVE_UP: _S.FAILED,
        _H.SKIPPED: _S.SKIPPED,
        _H.CANCELLED: _S.CANCELLED,
    },
    # The end for the machine: it may have been executed and must not be sent again. A person finds out and says so.
    _S.IN_DOUBT: {_H.ACKNOWLEDGED: _S.DELIVERED, _H.SKIPPED: _S.SKIPPED},
    _S.FAILED: {},
    _S.DELIVERED: {},
    _S.SKIPPED: {},
    _S.CANCELLED: {},
}
REPEATABLE_FINAL = frozenset({_S.FAILED, _S.DELIVERED, _S.SKIPPED, _S.CANCELLED})

# ebXML Messaging 2.0: several in flight, each with retries and an acknowledgement of its own. What nobody acknowledges
# stays in flight, held, while its pair is suspended; its end is that of a repeatable request.
_ANSWERED: Mapping[Happened, State] = {
    _H.ACKNOWLEDGED: _S.DELIVERED,
    _H.DOUBTED: _S.IN_DOUBT,
    _H.GAVE_UP: _S.FAILED,
}
_RESENT: Mapping[Happened, State] = {
    **_ANSWERED,
    _H.TRANSMITTED: _S.SENDING,
    _H.WILL_RETRY: _S.RETRYING,
    _H.SKIPPED: _S.SKIPPED,
    _H.CANCELLED: _S.CANCELLED,
}
EBMS2: Mapping[State, Mapping[Happened, State]] = {
    # What expires before its first send never goes out.
    _S.QUEUED: {_H.TRANSMITTED: _S.SENDING, _H.CANCELLED: _S.CANCELLED, _H.GAVE_UP: _S.FAILED},
    _S.SENDING: {
        **_ANSWERED,
        _H.TRANSMITTED: _S.SENDING,
        _H.HANDED_OVER: _S.AWAITING_ACK,
        _H.WILL_RETRY: _S.RETRYING,
    },
    _S.AWAITING_ACK: _RESENT,
    _S.RETRYING: _RESENT,
    _S.IN_DOUBT: {_H.ACKNOWLEDGED: _S.DELIVERED, _H.SKIPPED: _S.SKIPPED},
    _S.FAILED: {},
    _S.DELIVERED: {},
    _S.SKIPPED: {},
    _S.CANCELLED: {},
}
EBMS2_FINAL = frozenset({_S.FAILED, _S.DELIVERED, _S.SKIPPED, _S.CANCELLED})

_UNACKNOWLEDGED: Mapping[Happened, State] = {
    _H.WILL_RETRY: _S.RETRYING,
    _H.ACKNOWLEDGED: _S.DELIVERED,
    _H.STORED: _S.CONFIRMING,
    _H.GAVE_UP: _S.FAILED,
}
_BETWEEN_SENDS: Mapping[Happened, State] = {
    **_UNACKNOWLEDGED,
    _H.TRANSMITTED: _S.SENDING,
    _H.DOUBTED: _S.IN_DOUBT,
    _H.REQUEUED: _S.QUEUED,
    _H.SKIPPED: _S.SKIPPED,
    _H.CANCELLED: _S.CANCELLED,
}
STREAM: Mapping[State, Mapping[Happened, State]] = {
    # What expires before its first send never gets a number: a dead letter. In doubt only what a restart of the stream
    # put back, for it was sent before.
    _S.QUEUED: {
        _H.TRANSMITTED: _S.SENDING,
        _H.GAVE_UP: _S.FAILED,
        _H.DOUBTED: _S.IN_DOUBT,
        _H.CANCELLED: _S.CANCELLED,
    },
    _S.SENDING: {**_UNACKNOWLEDGED, _H.HANDED_OVER: _S.AWAITING_ACK},
    _S.AWAITING_ACK: _BETWEEN_SENDS,
    _S.RETRYING: _BETWEEN_SENDS,
    # The partner's queue has it; whether its application takes it, the final receipt says.
    _S.CONFIRMING: {_H.ACKNOWLEDGED: _S.DELIVERED, _H.GAVE_UP: _S.FAILED, _H.DOUBTED: _S.IN_DOUBT},
    # Expired after a send, or never confirmed: it may have been received. A person settles it, or a late receipt does.
    _S.IN_DOUBT: {_H.ACKNOWLEDGED: _S.DELIVERED, _H.GAVE_UP: _S.FAILED, _H.SKIPPED: _S.SKIPPED},
    # A refusal may come after the order acknowledgement, also where no final receipt is agreed.
    _S.DELIVERED: {_H.GAVE_UP: _S.FAILED},
    _S.FAILED: {},
    _S.SKIPPED: {},
    _S.CANCELLED: {},
}
STREAM_FINAL = frozenset({_S.FAILED, _S.SKIPPED, _S.CANCELLED})

# An answer, or that none is needed any more, may come at any moment: also while a copy is on the wire.
_ASKED: Mapping[Happened, State] = {_H.ACKNOWLEDGED: _S.DELIVERED, _H.CANCELLED: _S.CANCELLED}
ASKING: Mapping[State, Mapping[Happened, State]] = {
    _S.QUEUED: {_H.TRANSMITTED: _S.SENDING, _H.WILL_RETRY: _S.RETRYING, _H.CANCELLED: _S.CANCELLED},
    _S.SENDING: {
        **_ASKED,
        _H.TRANSMITTED: _S.SENDING,
        _H.HANDED_OVER: _S.AWAITING_ACK,
        _H.WILL_RETRY: _S.RETRYING,
    },
    _S.AWAITING_ACK: {**_ASKED, _H.TRANSMITTED: _S.SENDING, _H.WILL_RETRY: _S.RETRYING},
    _S.RETRYING: {**_ASKED, _H.TRANSMITTED: _S.SENDING},
    _S.DELIVERED: {},
    _S.CANCELLED: {},
}
ASKING_FINAL = frozenset({_S.DELIVERED, _S.CANCELLED})

# What nobody answers. It is cancelled by itself only a day after its transaction has ended.
TELLING: Mapping[State, Mapping[Happened, State]] = {
    _S.QUEUED: {_H.TRANSMITTED: _S.SENDING, _H.WILL_RETRY: _S.RETRYING, _H.CANCELLED: _S.CANCELLED},
    _S.SENDING: {
        _H.TRANSMITTED: _S.SENDING,
        _H.HANDED_OVER: _S.SENT,
        _H.WILL_RETRY: _S.RETRYING,
    },
    _S.RETRYING: {_H.TRANSMITTED: _S.SENDING, _H.CANCELLED: _S.CANCELLED},
    _S.SENT: {},
    _S.CANCELLED: {},
}
TELLING_FINAL = frozenset({_S.SENT, _S.CANCELLED})


def cancellable(table: Mapping[State, Mapping[Happened, State]]) -> frozenset[str]:
    """Return the states in which a person may take a message back."""
    return frozenset(state for state, row in table.items() if Happened.CANCELLED in row)


def move(state: str, happened: Happened, *, reliable: bool) -> State:
    """The state after `happened`. Raises IllegalTransition for a move that is in neither table."""
    return _moved(RELIABLE if reliable else UNRELIABLE, state, happened)


def move_repeatable(state: str, happened: Happened) -> State:
    """The state of a repeatable request after `happened`. Raises IllegalTransition for a move not in its table."""
    return _moved(REPEATABLE, state, happened)


def move_ebms2(state: str, happened: Happened) -> State:
    """The state of an ebXML 2.0 message after `happened`. Raises IllegalTransition for a move not in its table."""
    return _moved(EBMS2, state, happened)


def move_stream(state: str, happened: Happened) -> State:
    """The state of a stream's message after `happened`. Raises IllegalTransition for a move not in its table."""
    return _moved(STREAM, state, happened)


def move_atomic(state: str, happened: Happened, *, awaits: bool) -> State:
    """The state of a message of an atomic transaction after `happened`; `awaits`: it is answered by another message.

    Raises IllegalTransition for a move not in its table.
    """
    return _moved(ASKING if awaits else TELLING, state, happened)


def _moved(table: Mapping[State, Mapping[Happened, State]], state: str, happened: Happened) -> State:
    target = table.get(State(state), {}).get(happened)
    if target is None:
        raise IllegalTransition(state, happened, f"A message that is {state} cannot be {happened}.")
    return target
