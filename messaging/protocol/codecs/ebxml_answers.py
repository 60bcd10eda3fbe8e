"""Messages that follow from a received one: its Acknowledgement, an Error about it, the message one hop further.

A message one hop further: its header document as it came, and one RoutingHeader more (spec 1, 4.1.2).

The new element is put into the received octets, so that a router changes no character of `Header` nor of anything else
that it does not know. Where that cannot be done (another encoding than UTF-8), the document is written anew from what
was read of it.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from xml.parsers import expat

from messaging.protocol.codecs.ebxml_parts import PACKAGING
from messaging.protocol.codecs.ebxml_reader import decode_containers
from messaging.protocol.codecs.ebxml_writer import enclose, header_document, hop_element
from messaging.protocol.codecs.related import Containers, containers
from messaging.protocol.codecs.xml import XML_SPACE, parse_document
from messaging.protocol.envelope import (
    DEFAULT_LIMITS,
    Envelope,
    ErrorInfo,
    Limits,
    MessageType,
    PartyId,
    RoutingHeader,
    Semantics,
    Sought,
    Wire,
    WriterOptions,
)
from messaging.protocol.errors import Defect, EncodeError, ErrorCode, NotAMessage, Severity

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


_SPACE = XML_SPACE.encode()
_UTF_8 = (None, "UTF-8", "US-ASCII", "ASCII")


def forwarded(
    content_type: str, body: bytes | Sought, hop: RoutingHeader, *, padded: bool = True, limits: Limits = DEFAULT_LIMITS
) -> Wire:
    """The octets that go to the next hop, for the stored octets of a received Normal message.

    `Wire.join` takes the contents of its payloads, which stay as they are. Raises NotAMessage when the octets cannot be
    read, and EncodeError as `append_hop` and `encode` do.
    """
    found = containers(content_type, body, PACKAGING, limits)
    onward = append_hop(decode_containers(found, limits), hop)
    spliced = _spliced(found.document, hop, padded)
    if spliced is None or not _says(found._replace(document=spliced), onward, limits):
        spliced = header_document(onward, WriterOptions(padded_sequence_number=padded))
    return enclose(onward, spliced)


def _spliced(document: bytes, hop: RoutingHeader, padded: bool) -> bytes | None:
    """The document with the hop behind its last RoutingHeader; None where octets and characters are not the same."""
    document = document.lstrip(_SPACE)
    if parse_document(document, DEFAULT_LIMITS).getroottree().docinfo.encoding not in _UTF_8:
        return None
    begin, end, name = _last_routing_header(document)
    prefix = name.removesuffix("RoutingHeader")
    written = hop_element(hop, padded, prefix).strip().encode("ascii", "xmlcharrefreplace")
    gap = document[len(document[:begin].rstrip(_SPACE)) : begin]
    return document[:end] + gap + written + document[end:]


def _last_routing_header(document: bytes) -> tuple[int, int, str]:
    """Where its octets begin and end, and its name as it is written."""
    found: tuple[int, int, str] = (0, 0, "")
    open_elements: list[tuple[int, str]] = []
    parser = expat.ParserCreate()

    def opened(name: str, _attributes: dict[str, str]) -> None:
        open_elements.append((parser.CurrentByteIndex, name))

    def closed(name: str) -> None:
        nonlocal found
        begin, _ = open_elements.pop()
        if len(open_elements) == 1 and name.rpartition(":")[2] == "RoutingHeader":
            found = (begin, document.index(b">", parser.CurrentByteIndex) + 1, name)

    parser.StartElementHandler = opened
    parser.EndElementHandler = closed
    parser.Parse(document, True)
    return found


def _says(spliced: Containers, onward: Envelope, limits: Limits) -> bool:
    """Whether the next hop will read what it shall."""
    try:
        read = decode_containers(spliced, limits)
    except NotAMessage:
        return False
    hop, wanted = replace(read.hop, timestamp=onward.hop.timestamp), onward.hop
    earlier = read.routing[:-1] == onward.routing[:-1]
    return hop == wanted and earlier and replace(read, routing=()) == replace(onward, routing=())
