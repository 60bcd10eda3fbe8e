"""The codec of the stream profile: bytes to StreamEnvelope and back ([MC-MQSRM], SOAP 1.1 over HTTP).

    decode   tolerant reader    encode   strict writer
    order_ack, final_receipt    what a receiver answers
    rebridged                   the same message after a message that has gone
    as_envelope                 the shape in which all profiles meet

It is the only place that knows how a message of this profile looks on the wire.
"""

from __future__ import annotations

from datetime import datetime

from messaging.protocol.codecs.stream_lexical import (
    NAMESPACE,
    SOAP_ACTION,
    parse_stream_id,
    stream_id,
)
from messaging.protocol.codecs.stream_reader import decode
from messaging.protocol.codecs.stream_writer import encode, final_receipt, order_ack, rebridged
from messaging.protocol.envelope import Envelope, MessageType, RoutingHeader, Semantics
from messaging.protocol.streams.envelope import (
    FinalReceipt,
    ReceiptWish,
    StreamEnvelope,
    StreamKind,
    StreamPosition,
    StreamReceipt,
)

__all__ = [
    "NAMESPACE",
    "SOAP_ACTION",
    "FinalReceipt",
    "ReceiptWish",
    "StreamEnvelope",
    "StreamKind",
    "StreamPosition",
    "StreamReceipt",
    "as_envelope",
    "decode",
    "encode",
    "final_receipt",
    "order_ack",
    "parse_stream_id",
    "rebridged",
    "stream_id",
]


def as_envelope(
    message: StreamEnvelope, *, sender_uri: str, receiver_uri: str, error_uri: str, now: datetime
) -> Envelope:
    """A message in the shape in which all profiles meet, as one hop between these URIs.

    `now` stands for a missing sentAt. The number is not in it: it means something else than ebXML's. Facts that only
    our own header block could have said are empty when it was not there.
    """
    moment = message.sent_at or now
    return Envelope(
        message_type=MessageType.NORMAL,
        message_id=message.message_id,
        timestamp=moment,
        from_parties=message.from_parties,
        to_parties=message.to_parties,
        agreement_id=message.agreement_id,
        conversation_id=message.conversation_id,
        service=message.service,
        action=message.action,
        semantics=Semantics.ONCE_AND_ONLY_ONCE if message.position is not None else Semantics.BEST_EFFORT,
        routing=(RoutingHeader(sender_uri, receiver_uri, error_uri, moment),),
        ref_to_message_id=message.ref_to_message_id,
        manifest=message.manifest,
        payloads=message.payloads,
        defects=message.defects,
    )
