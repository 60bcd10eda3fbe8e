"""What a stream message or a receipt says, without its wire form ([MC-MQSRM] 2.2; see `codecs.stream`)."""

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
