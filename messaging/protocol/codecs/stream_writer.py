"""Strict writer of the stream profile ([MC-MQSRM] 2.2; element names and their order as in its sections).

Nothing here depends on the clock or on chance: equal envelopes give equal octets. Between two copies of a message only
`previous` may differ, when what it followed has gone.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from messaging.protocol import document_ids
from messaging.protocol.codecs import related
from messaging.protocol.codecs.stream_lexical import (
    LABEL_PREFIX,
    MSMQ,
    NAMESPACE,
    NEVER,
    ORDER_ACK_LABEL,
    PACKAGING,
    ROUTING,
    SOAP,
    SRMP,
    format_time,
    guid,
    stream_id,
)
from messaging.protocol.codecs.xml import free_text, identifier, required
from messaging.protocol.envelope import PartyId, Wire
from messaging.protocol.errors import EncodeError
from messaging.protocol.streams.envelope import (
    FIRST_NUMBER,
    LAST_NUMBER,
    NO_PREVIOUS,
    FinalReceipt,
    StreamEnvelope,
    StreamKind,
    StreamPosition,
    StreamReceipt,
)
from messaging.protocol.streams.final import ACK_RECEIVE, NORMAL, ORDER_ACK, OrderAck

_END = "<end/>\r\n"
_REQUEST = "<streamReceiptRequest/>\r\n"


def encode(envelope: StreamEnvelope) -> Wire:
    """The octets of `envelope`; `Wire.join` takes the payloads' contents in their order.

    Without payloads the SOAP document is the whole body. Raises EncodeError for an envelope that breaks a rule of its
    kind, or has a value that the wire cannot carry.
    """
    _check(envelope)
    document = _document(envelope).encode()
    if not envelope.payloads:
        return related.alone(PACKAGING, document)
    first_copy = _without_previous(envelope, document)
    return related.enclose(PACKAGING, document, envelope.payloads, envelope.message_id, first_copy=first_copy)


def _without_previous(envelope: StreamEnvelope, document: bytes) -> bytes:
    """The document as its first copy had it, so that every copy gets the same boundary. A number holds no boundary."""
    position = envelope.position
    if position is None or position.previous == position.current - 1:
        return document
    return _document(rebridged(envelope, position.current - 1)).encode()


def order_ack(
    stream_source: str, ack: OrderAck, *, message_id: str, to: str, source: str, now: datetime
) -> StreamEnvelope:
    """The receipt for a stream of the queue manager `stream_source`; `source` is our own GUID (M24)."""
    return StreamEnvelope(
        kind=StreamKind.RECEIPT,
        message_id=message_id,
        to=to,
        source=source,
        sent_at=now,
        message_class=ORDER_ACK,
        label=ORDER_ACK_LABEL,
        receipt=StreamReceipt(stream_source, ack.tx_sequence_id, ack.number),
    )


def final_receipt(
    about: str,
    code: int,
    *,
    message_id: str,
    to: str,
    source: str,
    now: datetime,
    stream: StreamReceipt | None = None,
    label: str = "",
) -> StreamEnvelope:
    """What became of the message with id `about`; `code` is the class (`streams.final`).

    `stream`: the place of that message. `label`: its own, for one that was in no stream ([MC-MQSRM] 2.2.4.1).
    """
    return StreamEnvelope(
        kind=StreamKind.FINAL,
        message_id=message_id,
        to=to,
        source=source,
        sent_at=now,
        message_class=code,
        label=label if stream is None else ORDER_ACK_LABEL,
        receipt=stream,
        final=FinalReceipt(about, code == ACK_RECEIVE, now),
    )


def rebridged(envelope: StreamEnvelope, previous: int) -> StreamEnvelope:
    """The same message as the next copy has it, after `previous`."""
    if envelope.position is None:
        raise EncodeError("a message outside of a stream follows nothing")
    return replace(envelope, position=replace(envelope.position, previous=previous))


def _check(envelope: StreamEnvelope) -> None:
    """Rules that concern more than one value; single values are checked where they are written."""
    kind = envelope.kind
    if kind is StreamKind.MESSAGE:
        if envelope.receipt or envelope.final or envelope.message_class != NORMAL:
            raise EncodeError("a message is of class 0 and carries no receipt")
        if envelope.position is not None:
            _check_position(envelope.position)
        if envelope.document_id and (sentence := document_ids.fault(envelope.document_id, document_ids.MAX_WIRE)):
            raise EncodeError(f"the document id has to be {sentence}")
    elif envelope.payloads or envelope.position or envelope.wish:
        raise EncodeError("a receipt has no payload and no place in a stream ([MC-MQSRM] 2.2.2)")
    elif kind is StreamKind.RECEIPT and (envelope.receipt is None or envelope.final is not None):
        raise EncodeError("an order acknowledgement is a streamReceipt and nothing else")
    elif kind is StreamKind.FINAL:
        if envelope.final is None:
            raise EncodeError("a final acknowledgement says what was decided")
        if envelope.final.positive is not (envelope.message_class == ACK_RECEIVE):
            raise EncodeError(f"class 0x{envelope.message_class:04X} contradicts the decision")
    if envelope.receipt is not None and not FIRST_NUMBER <= envelope.receipt.last_ordinal <= LAST_NUMBER:
        raise EncodeError(f"lastOrdinal {envelope.receipt.last_ordinal} is not in 1..{LAST_NUMBER}")
    related.check_parts(envelope.payloads, envelope.manifest, relayed=True)


def _check_position(position: StreamPosition) -> None:
    if not FIRST_NUMBER <= position.current <= LAST_NUMBER:
        raise EncodeError(f"current {position.current} is not in 1..{LAST_NUMBER}")
    if not NO_PREVIOUS <= position.previous < position.current:
        raise EncodeError(f"previous {position.previous} is not in 0..{position.current - 1}")
    if position.start is not (position.current == FIRST_NUMBER):
        raise EncodeError("the first message of a stream has start, and no other ([MC-MQSRM] 2.2.5.3.4)")
    if position.start and not position.receipts_to:
        raise EncodeError("start says where receipts are wanted ([MC-MQSRM] 2.2.5.3.4)")
    if position.receipts_to and not position.start:
        raise EncodeError("only start says where receipts are wanted ([MC-MQSRM] 2.2.5.3.4)")


def _document(envelope: StreamEnvelope) -> str:
    """The SOAP document, CRLF at each line end."""
    expires = format_time(envelope.expires_at or NEVER)
    vias = "".join([f"<via>{required(via, 'via')}</via>" for via in envelope.vias])
    sent = "" if envelope.sent_at is None else f"<sentAt>{format_time(envelope.sent_at)}</sentAt>\r\n"
    return (
        f'<se:Envelope xmlns:se="{SOAP}" xmlns="{SRMP}">\r\n'
        "<se:Header>\r\n"
        f'<path xmlns="{ROUTING}" se:mustUnderstand="1">\r\n'
        f"<action>{LABEL_PREFIX}{identifier(envelope.label)}</action>\r\n"
        f"<to>{required(envelope.to, 'to')}</to>\r\n"
        f"{f'<rev>{vias}</rev>' if vias else ''}"
        f"<id>{required(envelope.message_id, 'id')}</id>\r\n"
        "</path>\r\n"
        '<properties se:mustUnderstand="1">\r\n'
        f"<expiresAt>{expires}</expiresAt>\r\n"
        f"{sent}"
        "</properties>\r\n"
        f"{_services(envelope)}"
        f"{'' if envelope.position is None else _stream(envelope.position)}"
        f"{_receipts(envelope)}"
        f'<Msmq xmlns="{MSMQ}">\r\n'
        f"<Class>{envelope.message_class:d}</Class>\r\n"
        "<Priority>0</Priority>\r\n"
        "<BodyType>0</BodyType>\r\n"
        f"<SourceQmGuid>{guid(envelope.source)}</SourceQmGuid>\r\n"
        f"<TTrq>{expires}</TTrq>\r\n"
        "</Msmq>\r\n"
        f"{_own_block(envelope) if envelope.kind is StreamKind.MESSAGE and envelope.has_own_block else ''}"
        "</se:Header>\r\n"
        "<se:Body></se:Body>\r\n"
        "</se:Envelope>\r\n"
    )


def _services(envelope: StreamEnvelope) -> str:
    """A message of a stream is durable ([MC-MQSRM] 2.2.5.2.1)."""
    wish = envelope.wish
    if envelope.position is None and wish is None:
        return ""
    asked = ""
    if wish is not None:
        kinds = "<positiveOnly/>" * wish.positive + "<negativeOnly/>" * wish.negative
        send_to = f"<sendTo>{required(wish.send_to, 'sendTo')}</sendTo>"
        asked = f"<commitmentReceiptRequest>{send_to}{kinds}</commitmentReceiptRequest>\r\n"
    return f'<services se:mustUnderstand="1">\r\n<durable/>\r\n{asked}</services>\r\n'


def _stream(position: StreamPosition) -> str:
    previous = start = ""
    if position.previous != position.current - 1:
        previous = f"<previous>{position.previous:d}</previous>\r\n"
    if position.start:
        start = f"<start><sendReceiptsTo>{required(position.receipts_to, 'receipts_to')}</sendReceiptsTo></start>\r\n"
    return (
        '<stream se:mustUnderstand="1">\r\n'
        f"<streamId>{stream_id(position.source, position.tx_sequence_id)}</streamId>\r\n"
        f"<current>{position.current:d}</current>\r\n"
        f"{previous}{start}"
        f"{_END * position.end}{_REQUEST * position.receipt_requested}"
        "</stream>\r\n"
    )


def _receipts(envelope: StreamEnvelope) -> str:
    pieces = []
    if envelope.receipt is not None:
        receipt = envelope.receipt
        pieces.append(
            "<streamReceipt>\r\n"
            f"<streamId>{stream_id(receipt.source, receipt.tx_sequence_id)}</streamId>\r\n"
            f"<lastOrdinal>{receipt.last_ordinal:d}</lastOrdinal>\r\n"
            "</streamReceipt>\r\n"
        )
    if envelope.final is not None:
        if envelope.final.decided_at is None:
            raise EncodeError("a final acknowledgement says when it was decided")
        pieces.append(
            "<commitmentReceipt>\r\n"
            f"<decidedAt>{format_time(envelope.final.decided_at)}</decidedAt>\r\n"
            f"<decision>{'positive' if envelope.final.positive else 'negative'}</decision>\r\n"
            f"<id>{required(envelope.final.about, 'id')}</id>\r\n"
            "</commitmentReceipt>\r\n"
        )
    return "".join(pieces)


def _own_block(envelope: StreamEnvelope) -> str:
    facts = (
        ("TPAId", envelope.agreement_id),
        ("ConversationId", envelope.conversation_id),
        ("Service", envelope.service),
        ("Action", envelope.action),
        ("RefToMessageId", envelope.ref_to_message_id),
        ("DocumentId", envelope.document_id),
    )
    said = [f"<{name}>{identifier(value)}</{name}>\r\n" for name, value in facts if value]
    documents = []
    for reference in envelope.manifest:
        language = f' xml:lang="{identifier(reference.language)}"' if reference.description else ""
        documents.append(
            f'<Document id="{required(reference.document_id, "document_id")}" label="{identifier(reference.label)}"'
            f"{language}>{free_text(reference.description)}</Document>\r\n"
        )
    return (
        f'<message xmlns="{NAMESPACE}">\r\n'
        f"{''.join(said)}"
        f"<From>{_parties(envelope.from_parties)}</From>\r\n"
        f"<To>{_parties(envelope.to_parties)}</To>\r\n"
        f"{''.join(documents)}"
        "</message>\r\n"
    )


def _parties(parties: tuple[PartyId, ...]) -> str:
    pieces = []
    for party in parties:
        context = f' context="{identifier(party.context)}"' if party.context else ""
        pieces.append(f"<PartyId{context}>{required(party.value, 'PartyId')}</PartyId>")
    return "".join(pieces)
