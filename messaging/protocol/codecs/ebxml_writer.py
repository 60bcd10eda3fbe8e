"""Strict writer of the ebXML profile (wire-ebxml 1.1 to 1.9; the form of section 2, byte for byte).

Nothing here depends on the clock or on chance: equal envelopes give equal
octets, which are stored once and sent on every retry (spec 1, 2.1.4.2: "exactly
the same as the original message").
"""

from __future__ import annotations

from datetime import datetime

from messaging.protocol import document_ids
from messaging.protocol.codecs import related
from messaging.protocol.codecs.ebxml_lexical import (
    NAMESPACE,
    VERSION,
    format_sequence_number,
    format_timestamp,
)
from messaging.protocol.codecs.ebxml_parts import PACKAGING
from messaging.protocol.codecs.xml import free_text, identifier, required
from messaging.protocol.envelope import (
    DEFAULT_LIMITS,
    DocumentReference,
    Envelope,
    ErrorInfo,
    MessageType,
    PartyId,
    RoutingHeader,
    Semantics,
    Wire,
    WriterOptions,
)
from messaging.protocol.errors import EncodeError, ErrorCode, Severity

DEFAULT_OPTIONS = WriterOptions()


def encode(envelope: Envelope, options: WriterOptions = DEFAULT_OPTIONS) -> Wire:
    """The octets of `envelope`, ready to be frozen; `Wire.join` takes the payloads' contents in their order.

    AtMostOnce is written as BestEffort (spec 1 has no such wire value). A message
    that already came over another hop may lack what only its first sender could
    have given: a Content-ID of a payload, the ErrorURI of an earlier hop.

    Raises EncodeError for an envelope that breaks a rule of its message type, or
    has a value that a header cannot carry.
    """
    _check(envelope)
    return _enclosed(envelope, header_document(envelope, options))


def enclose(envelope: Envelope, document: bytes) -> Wire:
    """The octets of a message whose header document (UTF-8) is there already. Raises EncodeError as `encode` does."""
    _check(envelope)
    return _enclosed(envelope, document)


def _enclosed(envelope: Envelope, document: bytes) -> Wire:
    return related.enclose(
        PACKAGING, document, envelope.payloads, envelope.message_id, document_id=envelope.document_id
    )


def _check(envelope: Envelope) -> None:
    """Rules that concern more than one value; single values are checked where they are written."""
    kind = envelope.message_type
    if envelope.version != VERSION:
        raise EncodeError(f"version {envelope.version!r} cannot be written, only {VERSION}")
    if not envelope.routing:
        raise EncodeError("a RoutingHeader is required in all ebXMLHeader documents (spec 1, 2.2.2)")
    if len(envelope.routing) > DEFAULT_LIMITS.routing_headers:
        raise EncodeError(f"{len(envelope.routing)} RoutingHeaders; {DEFAULT_LIMITS.routing_headers} allowed")
    if (envelope.error is not None) != (kind is MessageType.ERROR):
        raise EncodeError("an Error message, and no other, says what the error is")
    if kind is MessageType.NORMAL:
        if not (envelope.agreement_id and envelope.conversation_id and envelope.service and envelope.action):
            raise EncodeError("a Normal message needs TPAId, ConversationId, ServiceInterface and Action")
    else:
        # Spec 1, 2.1.3 and 2.2.2; wire-ebxml 1.5 and 1.9.
        if envelope.payloads or envelope.manifest or envelope.document_id:
            raise EncodeError(f"an {kind} message has no payload")
        if envelope.semantics is not Semantics.BEST_EFFORT or envelope.service or envelope.action:
            raise EncodeError(f"an {kind} message is BestEffort, with empty ServiceInterface and Action")
        if not envelope.ref_to_message_id:
            raise EncodeError(f"an {kind} message names the message that it answers")
    related.check_parts(envelope.payloads, envelope.manifest, relayed=len(envelope.routing) > 1)
    if envelope.document_id and (sentence := document_ids.fault(envelope.document_id, document_ids.MAX_WIRE)):
        raise EncodeError(f"the document id has to be {sentence}")
    reliable = envelope.semantics is Semantics.ONCE_AND_ONLY_ONCE
    if reliable and envelope.hop.sequence_number is None:
        raise EncodeError("OnceAndOnlyOnce needs a SequenceNumber (spec 1, 2.2.2)")
    if not reliable and any(hop.sequence_number is not None for hop in envelope.routing):
        raise EncodeError(f"{envelope.semantics} has no SequenceNumber (spec 1, 2.2.2; C4)")
    if not (envelope.hop.sender_uri and envelope.hop.receiver_uri and envelope.hop.error_uri):
        raise EncodeError("the current RoutingHeader needs SenderURI, ReceiverURI and ErrorURI (spec 1, 2.2.2)")


def header_document(envelope: Envelope, options: WriterOptions = DEFAULT_OPTIONS) -> bytes:
    """The ebXMLHeader document in UTF-8, CRLF at each line end. Raises EncodeError for a value that it cannot hold."""
    return _document(envelope, options).encode()


def _document(envelope: Envelope, options: WriterOptions) -> str:
    semantics = Semantics.ONCE_AND_ONLY_ONCE
    if envelope.semantics is not semantics:
        semantics = Semantics.BEST_EFFORT
    reference = ""
    if envelope.ref_to_message_id:
        reference = f"      <RefToMessageId>{identifier(envelope.ref_to_message_id)}</RefToMessageId>\r\n"
    namespace = f' xmlns="{NAMESPACE}"' if options.namespace else ""
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\r\n'
        f'<ebXMLHeader{namespace} Version="{VERSION}" MessageType="{envelope.message_type}">\r\n'
        f"{_manifest(envelope.manifest)}"
        "  <Header>\r\n"
        f"    <From>{_parties(envelope.from_parties)}</From>\r\n"
        f"    <To>{_parties(envelope.to_parties)}</To>\r\n"
        "    <TPAInfo>\r\n"
        f"      <TPAId>{identifier(envelope.agreement_id)}</TPAId>\r\n"
        f"      <ConversationId>{identifier(envelope.conversation_id)}</ConversationId>\r\n"
        f"      <ServiceInterface>{identifier(envelope.service)}</ServiceInterface>\r\n"
        f"      <Action>{identifier(envelope.action)}</Action>\r\n"
        "    </TPAInfo>\r\n"
        "    <MessageData>\r\n"
        f"      <MessageId>{required(envelope.message_id, 'MessageId')}</MessageId>\r\n"
        f"      <TimeStamp>{_timestamp(envelope.timestamp)}</TimeStamp>\r\n"
        f"{reference}"
        "    </MessageData>\r\n"
        "    <ReliableMessagingInfo>\r\n"
        f"      <DeliverySemantics>{semantics}</DeliverySemantics>\r\n"
        "    </ReliableMessagingInfo>\r\n"
        "  </Header>\r\n"
        f"{''.join([hop_element(hop, options.padded_sequence_number) for hop in envelope.routing])}"
        f"{'' if envelope.error is None else _error(envelope.error)}"
        "</ebXMLHeader>\r\n"
    )


def _manifest(references: tuple[DocumentReference, ...]) -> str:
    if not references:
        return ""
    lines = ["  <Manifest>\r\n"]
    for reference in references:
        lines.append(
            "    <DocumentReference>\r\n"
            f"      <DocumentLabel>{identifier(reference.label)}</DocumentLabel>\r\n"
            f"      <DocumentId>{required(reference.document_id, 'DocumentId')}</DocumentId>\r\n"
        )
        if reference.description:
            language = f' xml:lang="{identifier(reference.language)}"' if reference.language else ""
            lines.append(
                f"      <DocumentDescription{language}>{free_text(reference.description)}</DocumentDescription>\r\n"
            )
        lines.append("    </DocumentReference>\r\n")
    lines.append("  </Manifest>\r\n")
    return "".join(lines)


def _parties(parties: tuple[PartyId, ...]) -> str:
    if not parties:
        raise EncodeError("From and To need a PartyId each")
    pieces = []
    for party in parties:
        context = f' context="{identifier(party.context)}"' if party.context else ""
        pieces.append(f"<PartyId{context}>{required(party.value, 'PartyId')}</PartyId>")
    return "".join(pieces)


def hop_element(hop: RoutingHeader, padded: bool = True, prefix: str = "") -> str:
    """One RoutingHeader with its line ends; `prefix` is of all its names (`eb:`). Raises EncodeError."""
    number = ""
    if hop.sequence_number is not None:
        try:
            digits = format_sequence_number(hop.sequence_number, padded)
        except ValueError as error:
            raise EncodeError(str(error)) from None
        number = f"    <{prefix}SequenceNumber>{digits}</{prefix}SequenceNumber>\r\n"
    return (
        f"  <{prefix}RoutingHeader>\r\n"
        f"    <{prefix}SenderURI>{identifier(hop.sender_uri)}</{prefix}SenderURI>\r\n"
        f"    <{prefix}ReceiverURI>{identifier(hop.receiver_uri)}</{prefix}ReceiverURI>\r\n"
        f"    <{prefix}ErrorURI>{identifier(hop.error_uri)}</{prefix}ErrorURI>\r\n"
        f"    <{prefix}Timestamp>{_timestamp(hop.timestamp)}</{prefix}Timestamp>\r\n"
        f"{number}"
        f"  </{prefix}RoutingHeader>\r\n"
    )


def _error(error: ErrorInfo) -> str:
    """The ErrorHeader of wire-ebxml 1.9; spec 1, 4.2 names MinRetrySecs."""
    if (error.code == ErrorCode.TRANSIENT_ERROR) and error.severity is not Severity.TRANSIENT:
        raise EncodeError("the code TransientError goes with the severity TransientError")
    location = seconds = ""
    if error.location:
        location = f"    <ErrorLocation>{identifier(error.location)}</ErrorLocation>\r\n"
    if error.min_retry_secs is not None:
        if not 0 <= error.min_retry_secs <= 999_999_999:
            raise EncodeError(f"MinRetrySecs {error.min_retry_secs} is not in 0..999999999")
        seconds = f"    <MinRetrySecs>{error.min_retry_secs:d}</MinRetrySecs>\r\n"
    return (
        "  <ErrorHeader>\r\n"
        f"    <ErrorCode>{required(error.code, 'ErrorCode')}</ErrorCode>\r\n"
        f"    <Severity>{error.severity}</Severity>\r\n"
        f'    <Description xml:lang="en">{free_text(error.description)}</Description>\r\n'
        f"{location}{seconds}"
        "  </ErrorHeader>\r\n"
    )


def _timestamp(value: datetime) -> str:
    try:
        return format_timestamp(value)
    except ValueError as error:
        raise EncodeError(str(error)) from None
