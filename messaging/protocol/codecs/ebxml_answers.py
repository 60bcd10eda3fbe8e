"""Messages that follow from a received one: its Acknowledgement, an Error about it, the message one hop further."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from messaging.protocol.envelope import (
    Envelope,
    ErrorInfo,
    MessageType,
    PartyId,
    RoutingHeader,
    Semantics,
)
from messaging.protocol.errors import Defect, EncodeError, ErrorCode, Severity
from messaging.protocol.limits import DEFAULT_LIMITS

_URI_CONTEXT = "URI"


def acknowledgement(envelope: Envelope, *, message_id: str, timestamp: datetime, error_uri: str) -> Envelope:
    """The Acknowledgement of a reliable message (spec 1, 2.1.3 and 2.2.2; wire-ebxml 1.5).

    It answers the current hop: From is its ReceiverURI, To its SenderURI. `message_id`, `timestamp` (aware)
    and `error_uri` are the Acknowledgement's own. Build it once and send the same octets again for a
    duplicate. Raises EncodeError for anything but a Normal OnceAndOnlyOnce message (C8).
    """
    if envelope.message_type is not MessageType.NORMAL or envelope.semantics is not Semantics.ONCE_AND_ONLY_ONCE:
        raise EncodeError(f"a {envelope.semantics} {envelope.message_type} message is never acknowledged")
    return _answer(
        envelope, MessageType.ACKNOWLEDGEMENT, message_id, timestamp, error_uri, envelope.hop.sender_uri, None
    )


def error_message(
    envelope: Envelope,
    error: Defect | ErrorInfo,
    *,
    message_id: str,
    timestamp: datetime,
    error_uri: str,
    target_uri: str = "",
) -> Envelope:
    """The Error message about a received message (wire-ebxml 1.9).

    `error_uri` is our own; `target_uri` is where the Error goes, and its RoutingHeader says so. Empty means the
    message's ErrorURI, else its SenderURI: both are the partner's words, so whoever sends must hold them
    against the partner's registered endpoints. Raises EncodeError when `may_answer_with_error` is false.
    """
    if not may_answer_with_error(envelope):
        raise EncodeError(f"an {envelope.message_type} message is never answered with an Error")
    if isinstance(error, Defect):
        severity = Severity.TRANSIENT if error.code is ErrorCode.TRANSIENT_ERROR else error.severity
        error = ErrorInfo(error.code, severity, error.description, error.location)
    target = target_uri or envelope.hop.error_uri or envelope.hop.sender_uri
    return _answer(envelope, MessageType.ERROR, message_id, timestamp, error_uri, target, error)


def may_answer_with_error(envelope: Envelope) -> bool:
    """Whether an Error may be sent about this message: never about an Error or an Acknowledgement."""
    return envelope.message_type is MessageType.NORMAL


def append_hop(envelope: Envelope, hop: RoutingHeader) -> Envelope:
    """The message as a router sends it on: everything as it came, and one RoutingHeader more (spec 1, 4.1.2).

    Raises EncodeError for a message that a router must not pass on: an Acknowledgement or Error (both belong to
    one hop), one with defects, or one that has had as many hops as are allowed. Whether the route is a loop
    is for acceptance to say.
    """
    if envelope.message_type is not MessageType.NORMAL:
        raise EncodeError(f"an {envelope.message_type} message belongs to one hop and is not routed")
    if envelope.defects:
        raise EncodeError(f"a message with defects is not routed: {envelope.defects[0].description}")
    if len(envelope.routing) >= DEFAULT_LIMITS.routing_headers:
        raise EncodeError(f"the message has had {len(envelope.routing)} hops already")
    return replace(envelope, routing=(*envelope.routing, hop))


def _answer(
    envelope: Envelope,
    message_type: MessageType,
    message_id: str,
    timestamp: datetime,
    error_uri: str,
    target_uri: str,
    error: ErrorInfo | None,
) -> Envelope:
    received = envelope.hop
    return Envelope(
        message_type=message_type,
        message_id=message_id,
        timestamp=timestamp,
        from_parties=(PartyId(received.receiver_uri, _URI_CONTEXT),),
        to_parties=(PartyId(received.sender_uri, _URI_CONTEXT),),
        agreement_id=envelope.agreement_id,
        conversation_id=envelope.conversation_id,
        service="",
        action="",
        semantics=Semantics.BEST_EFFORT,
        routing=(RoutingHeader(received.receiver_uri, target_uri, error_uri, timestamp),),
        ref_to_message_id=envelope.message_id,
        error=error,
    )
