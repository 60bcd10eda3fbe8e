"""Signals of the ebms2 profile: what answers a message, and what asks about one or about a partner's service.

An answer goes from the message's To to its From, roles too, and copies what binds it to the message. What a message
lacks and its answer cannot do without is "unknown": the agreement knows better, and the caller may replace it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

from messaging.protocol.codecs.ebms2_lexical import SERVICE, VERSION, escaped_reference
from messaging.protocol.envelope import (
    DEFAULT_LIMITS,
    Acknowledgment,
    Digest,
    Ebms2,
    Ebms2Kind,
    Envelope,
    ErrorInfo,
    MessageStatus,
    MessageType,
    PartyId,
    StatusReport,
)
from messaging.protocol.errors import Defect, EncodeError, ErrorCode, Severity

UNKNOWN = "unknown"

# ErrorCode is shared with profiles that have more codes than ebMS 2.0.
_NO_CODES = (ErrorCode.INVALID_SEQUENCE_NUMBER, ErrorCode.TRANSIENT_ERROR, ErrorCode.NOT_WELL_FORMED)


def acknowledgement(
    envelope: Envelope, *, message_id: str, timestamp: datetime, received: datetime, digests: Sequence[Digest] = ()
) -> Envelope:
    """The acknowledgment that a message asks for: one Acknowledgment for each actor that it names.

    `message_id` and `timestamp` (aware) are its own, `received` is when the message came; `digests`: those of the
    message's signature, for one that has to be signed. It asks for nothing itself. Build it once and send the same
    octets again for a duplicate. Raises EncodeError for a message that asks for none, and for one that has to be
    signed without digests.
    """
    requests = () if envelope.ebms is None else envelope.ebms.ack_requests
    if not may_answer_with_error(envelope) or not requests:
        raise EncodeError("a message that does not ask for an acknowledgment gets none")
    if any(request.signed for request in requests) and not digests:
        raise EncodeError("an acknowledgment that has to be signed repeats the digests of the message's signature")
    found = tuple(
        Acknowledgment(envelope.message_id, received, request.actor, digests=tuple(digests)) for request in requests
    )
    return _answer(envelope, Ebms2Kind.ACKNOWLEDGMENT, message_id, timestamp, acknowledgments=found)


def error_message(
    envelope: Envelope, errors: Sequence[Defect | ErrorInfo], *, message_id: str, timestamp: datetime
) -> Envelope:
    """The error message about a received message, with all its errors.

    Raises EncodeError when `may_answer_with_error` is false, and for what ebMS 2.0 has no words for: a transient error,
    or a code of another profile.
    """
    if not may_answer_with_error(envelope):
        raise EncodeError("an error or acknowledgment is never answered with an error")
    return _answer(envelope, Ebms2Kind.ERROR, message_id, timestamp, errors=tuple(_listed(error) for error in errors))


def may_answer_with_error(envelope: Envelope) -> bool:
    """Whether an error may be sent about this message: not about an error, nor about what answers anyway."""
    answers = (Ebms2Kind.STATUS_RESPONSE, Ebms2Kind.PONG)
    return (
        envelope.message_type is MessageType.NORMAL and envelope.ebms is not None and envelope.ebms.kind not in answers
    )


def status_request(about: Envelope, *, message_id: str, timestamp: datetime) -> Envelope:
    """Asks the receiver of `about`, a message that we sent, what has become of it."""
    report = StatusReport(about.message_id)
    return _signal(about, Ebms2Kind.STATUS_REQUEST, message_id, timestamp, status=report)


def status_response(
    request: Envelope,
    status: MessageStatus,
    *,
    message_id: str,
    timestamp: datetime,
    received: datetime | None = None,
) -> Envelope:
    """Answers a status request. `received`: when the message came; left out for one of which nothing may be said.

    Raises EncodeError for what is no status request that names a message.
    """
    asked = None if request.ebms is None else request.ebms.status
    if asked is None or asked.status is not None:
        raise EncodeError("a status response answers a status request")
    if status in (MessageStatus.UNAUTHORIZED, MessageStatus.NOT_RECOGNIZED):
        received = None
    report = StatusReport(asked.ref_to_message_id, status, received)
    return _answer(request, Ebms2Kind.STATUS_RESPONSE, message_id, timestamp, status=report)


def ping(like: Envelope, *, message_id: str, timestamp: datetime) -> Envelope:
    """Asks whether the partner's messaging service is there, between the parties and in the conversation of `like`."""
    return _signal(like, Ebms2Kind.PING, message_id, timestamp)


def pong(request: Envelope, *, message_id: str, timestamp: datetime) -> Envelope:
    """Answers a ping. Raises EncodeError for anything else."""
    if request.ebms is None or request.ebms.kind is not Ebms2Kind.PING:
        raise EncodeError("a pong answers a ping")
    return _answer(request, Ebms2Kind.PONG, message_id, timestamp)


def _listed(error: Defect | ErrorInfo) -> ErrorInfo:
    if error.code in _NO_CODES or error.severity is Severity.TRANSIENT:
        raise EncodeError(f"ebMS 2.0 has no error {error.code} of severity {error.severity}")
    return ErrorInfo(error.code, error.severity, error.description, _location(error.location))


def _location(place: str) -> str:
    """Within the envelope an XPointer, else the part of the message with this Content-ID.

    A router speaks of the header document of the profile in between, which is no part of this message.
    """
    if place.startswith("/ebXMLHeader"):
        return ""
    said = f"xpointer({place})" if _WITHIN.fullmatch(place) else f"cid:{escaped_reference(place)}"
    return said[: DEFAULT_LIMITS.identifier] if place else ""


_WITHIN = re.compile(r"/Envelope(/[\w:@()\[\].-]+)*")


def _answer(
    envelope: Envelope,
    kind: Ebms2Kind,
    message_id: str,
    timestamp: datetime,
    *,
    acknowledgments: tuple[Acknowledgment, ...] = (),
    errors: tuple[ErrorInfo, ...] = (),
    status: StatusReport | None = None,
) -> Envelope:
    ebms = envelope.ebms or Ebms2()
    ebms = Ebms2(kind, ebms.to_role, ebms.from_role, acknowledgments=acknowledgments, errors=errors, status=status)
    sender, receiver = envelope.to_parties, envelope.from_parties
    return _envelope(envelope, ebms, sender, receiver, message_id, timestamp, envelope.message_id)


def _signal(
    like: Envelope, kind: Ebms2Kind, message_id: str, timestamp: datetime, status: StatusReport | None = None
) -> Envelope:
    ebms = like.ebms or Ebms2()
    ebms = Ebms2(kind, ebms.from_role, ebms.to_role, status=status)
    return _envelope(like, ebms, like.from_parties, like.to_parties, message_id, timestamp, "")


def _envelope(
    like: Envelope,
    ebms: Ebms2,
    sender: tuple[PartyId, ...],
    receiver: tuple[PartyId, ...],
    message_id: str,
    timestamp: datetime,
    reference: str,
) -> Envelope:
    nobody = (PartyId(UNKNOWN, UNKNOWN),)
    return Envelope(
        message_type=ebms.kind.message_type,
        message_id=message_id,
        timestamp=timestamp,
        from_parties=sender or nobody,
        to_parties=receiver or nobody,
        agreement_id=like.agreement_id or UNKNOWN,
        conversation_id=like.conversation_id or UNKNOWN,
        service=SERVICE,
        action=str(ebms.kind),
        semantics=ebms.semantics,
        routing=(),
        ref_to_message_id=reference,
        error=ebms.gravest if ebms.kind is Ebms2Kind.ERROR else None,
        version=VERSION,
        ebms=ebms,
    )
