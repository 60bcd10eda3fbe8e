"""What a stream message or a receipt says, without its wire form ([MC-MQSRM] 2.2; see `codecs.stream`).

TxSequenceID and TxSequenceNumber: how streams and their messages are numbered ([MS-MQMQ] 2.2.18.1.2, 2.2.20.5).

A stream's id is one unsigned 64-bit number: a time stamp (seconds since 1970) in its high half, an ordinal in its low
half. Compared as one number, a later time stamp always wins. Every new stream of a sender has a higher id than all
before it, or its messages would be taken for old ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from messaging.protocol.envelope import DocumentReference, PartyId, PayloadPart
from messaging.protocol.errors import Defect


class StreamKind(StrEnum):
    """Which of three a wire message is ([MC-MQSRM] 3.1.5.1.5)."""

    MESSAGE = "message"
    RECEIPT = "receipt"  # order acknowledgement
    FINAL = "final"  # final acknowledgement, positive or negative


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """The stream header of a message ([MC-MQSRM] 2.2.5.3). Numbers are as they came: acceptance judges them.

    `source`: the sender's GUID. `previous`: current - 1 when the wire has none. `start`: it begins the stream;
    `receipts_to`: where that sender wants receipts.
    """

    source: str
    tx_sequence_id: int
    current: int
    previous: int
    start: bool = False
    receipts_to: str = ""
    receipt_requested: bool = False
    end: bool = False


@dataclass(frozen=True, slots=True)
class StreamReceipt:
    """streamReceipt ([MC-MQSRM] 2.2.5.6). In an order acknowledgement everything up to `last_ordinal` is meant; in a
    final one that message alone.
    """

    source: str
    tx_sequence_id: int
    last_ordinal: int


@dataclass(frozen=True, slots=True)
class FinalReceipt:
    """commitmentReceipt ([MC-MQSRM] 2.2.5.5). `about`: the id of the message that was decided on."""

    about: str
    positive: bool
    decided_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ReceiptWish:
    """commitmentReceiptRequest ([MC-MQSRM] 2.2.5.2.3): which final receipts the sender wants, and where."""

    send_to: str
    positive: bool = True
    negative: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEnvelope:
    """One message or receipt, decoded or about to be encoded. Instants are in UTC, on the wire in whole seconds.

    `source`: GUID of the queue manager that wrote it. `position` None: a message outside of any stream. What no
    element of [MC-MQSRM] says (agreement, conversation, service, action, parties, documents) is in a header block of
    our own; `has_own_block` tells a reader whether it was there.
    """

    kind: StreamKind
    message_id: str
    to: str
    source: str
    sent_at: datetime | None = None
    expires_at: datetime | None = None
    message_class: int = 0
    label: str = ""
    vias: tuple[str, ...] = ()
    position: StreamPosition | None = None
    receipt: StreamReceipt | None = None
    final: FinalReceipt | None = None
    wish: ReceiptWish | None = None
    agreement_id: str = ""
    conversation_id: str = ""
    service: str = ""
    action: str = ""
    ref_to_message_id: str = ""
    document_id: str = ""
    from_parties: tuple[PartyId, ...] = ()
    to_parties: tuple[PartyId, ...] = ()
    manifest: tuple[DocumentReference, ...] = ()
    payloads: tuple[PayloadPart, ...] = ()
    has_own_block: bool = True
    defects: tuple[Defect, ...] = ()


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
        raise ValueError(f"{sid} is not an unsigned number of 64 bits")
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
