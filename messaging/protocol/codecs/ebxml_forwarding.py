"""A message one hop further: its header document as it came, and one RoutingHeader more (spec 1, 4.1.2).

The new element is put into the received octets, so that a router changes no character of `Header` nor of anything else
that it does not know. Where that cannot be done (another encoding than UTF-8), the document is written anew from what
was read of it.
"""

from __future__ import annotations

from dataclasses import replace
from xml.parsers import expat

from messaging.protocol.codecs.ebxml_answers import append_hop
from messaging.protocol.codecs.ebxml_parts import Containers, containers
from messaging.protocol.codecs.ebxml_reader import decode_containers
from messaging.protocol.codecs.ebxml_writer import enclose, header_document, hop_element
from messaging.protocol.codecs.xml import XML_SPACE, parse_document
from messaging.protocol.envelope import Envelope, RoutingHeader, Wire, WriterOptions
from messaging.protocol.errors import NotAMessage
from messaging.protocol.limits import DEFAULT_LIMITS, Limits

_SPACE = XML_SPACE.encode()
_UTF_8 = (None, "UTF-8", "US-ASCII", "ASCII")


def forwarded(
    content_type: str, body: bytes, hop: RoutingHeader, *, padded: bool = True, limits: Limits = DEFAULT_LIMITS
) -> Wire:
    """The octets that go to the next hop, for the stored octets of a received Normal message.

    `Wire.join` takes the contents of its payloads, which stay as they are. Raises NotAMessage when the octets cannot be
    read, and EncodeError as `append_hop` and `encode` do.
    """
    found = containers(content_type, body, limits)
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
