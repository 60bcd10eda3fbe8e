"""TxSequenceID and TxSequenceNumber: how streams and their messages are numbered ([MS-MQMQ] 2.2.18.1.2, 2.2.20.5).

A stream's id is one unsigned 64-bit number: a time stamp (seconds since 1970) in its high half, an ordinal in its low
half. Compared as one number, a later time stamp always wins. Every new stream of a sender has a higher id than all
before it, or its messages would be taken for old ones.
"""

from __future__ import annotations

from datetime import datetime

FIRST_NUMBER = 1
LAST_NUMBER = 0xFFFF_FFFF
NO_PREVIOUS = 0
LAST_ID = 2**64 - 1

_HALF = 32
_LOW = 0xFFFF_FFFF


def tx_sequence_id(timestamp: int, ordinal: int) -> int:
    """The id with these halves. Raises ValueError for one that does not fit its 32 bits."""
    if not (0 <= timestamp <= _LOW and 0 <= ordinal <= _LOW):
        raise ValueError(f"time stamp {timestamp} and ordinal {ordinal} have to be numbers of 32 bits")
    return timestamp << _HALF | ordinal


def split_id(sid: int) -> tuple[int, int]:
    """(time stamp, ordinal) of an id. Raises ValueError for what is no unsigned 64-bit number."""
    if not 0 <= sid <= LAST_ID:
        raise ValueError(f"{sid} is no unsigned number of 64 bits")
    return sid >> _HALF, sid & _LOW


def next_id(last: int) -> int:
    """The stream after `last` (M27): its ordinal plus one; after the last ordinal, the next time stamp.

    Raises ValueError at the end of all ids.
    """
    if not 0 <= last < LAST_ID:
        raise ValueError(f"no stream id follows {last}")
    return last + 1


def first_id(now: datetime, last: int = 0) -> int:
    """The id to begin with, and to begin again with when ids may have been forgotten (a restart, a restored database).

    `last`: the highest id that is known to have been used, 0 for none. The result is above it even when the clock was
    set back (M39). Raises ValueError for a naive `now` and at the end of all ids.
    """
    if now.utcoffset() is None:
        raise ValueError("a time without a zone does not say when it is")
    timestamp = min(max(int(now.timestamp()), 0), _LOW)
    return max(tx_sequence_id(timestamp, 1), next_id(last))
