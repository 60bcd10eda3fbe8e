"""One hop further (spec 1, 4.1.2): the received octets, and one RoutingHeader more."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from messaging.protocol.codecs import ebxml
from messaging.protocol.envelope import Envelope, RoutingHeader, WriterOptions
from messaging.protocol.errors import EncodeError
from tests.protocol.codecs.samples import fixture

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOP = RoutingHeader("https://b.example/é", "https://c.example/msh", "https://b.example/err", NOON, 7)


def two_hops() -> tuple[str, bytes, Envelope]:
    content_type, body = fixture("05-routed-two-hops.http")
    return content_type, body, ebxml.decode(content_type, body)


def one_hop(options: WriterOptions = WriterOptions()) -> tuple[str, bytes]:  # noqa: B008  (frozen)
    _, _, envelope = two_hops()
    wire = ebxml.encode(replace(envelope, routing=envelope.routing[:1]), options)
    return wire.content_type, wire.join([payload.content for payload in envelope.payloads])


def passed_on(content_type: str, body: bytes, hop: RoutingHeader = HOP, **more: bool) -> tuple[str, bytes]:
    wire = ebxml.forwarded(content_type, body, hop, **more)
    payloads = ebxml.decode(content_type, body).payloads
    return wire.content_type, wire.join([payload.content for payload in payloads])


def element(body: bytes, name: str) -> bytes:
    found = re.search(rf"<(\w+:)?{name}[ >].*</(\w+:)?{name}>".encode(), body, re.DOTALL)
    assert found is not None
    return found[0]


def test_the_published_second_hop_is_written_octet_for_octet() -> None:
    content_type, body, envelope = two_hops()
    assert passed_on(*one_hop(), envelope.routing[1]) == (content_type, body)


@pytest.mark.parametrize("options", [WriterOptions(), WriterOptions(namespace=False, padded_sequence_number=False)])
def test_what_is_read_of_it_is_what_came_and_the_hop(options: WriterOptions) -> None:
    before = one_hop(options)
    after = passed_on(*before, padded=options.padded_sequence_number)
    read, came = ebxml.decode(*after), ebxml.decode(*before)
    assert read.routing == (*came.routing, HOP)
    assert replace(read, routing=(), payloads=()) == replace(came, routing=(), payloads=())
    assert [payload.content for payload in read.payloads] == [payload.content for payload in came.payloads]
    assert element(after[1], "Header") == element(before[1], "Header")
    assert (b">7<" in after[1]) == (not options.padded_sequence_number)


def test_what_this_hub_does_not_know_stays_where_it_is() -> None:
    content_type, body = one_hop()
    strange = body.replace(
        b"  </Header>", b'    <x:Priority xmlns:x="urn:x">high</x:Priority><!-- ours -->\n  </Header>'
    )
    strange = strange.replace(b"</ebXMLHeader>", b"<Signature>MIIB</Signature></ebXMLHeader>")
    _, after = passed_on(content_type, re.sub(rb"Content-Length: \d+\r\n", b"", strange))
    assert element(after, "Header") == element(strange, "Header")
    assert b"</RoutingHeader><Signature>" in re.sub(rb"\s+", b"", after)


def test_the_element_has_the_prefix_of_those_before_it() -> None:
    content_type, body = one_hop()
    document, end, parts = body.partition(b"</ebXMLHeader>")
    named = re.sub(rb"<(/?)([A-Z][A-Za-z]+|ebXMLHeader)(?=[ >])", rb"<\1eb:\2", document + end)
    named = named.replace(b" xmlns=", b" xmlns:eb=") + parts
    named = re.sub(rb"Content-Length: \d+\r\n", b"", named)
    came = ebxml.decode(content_type, named)
    assert came.defects == ()
    _, after = passed_on(content_type, named)
    assert after.count(b"<eb:RoutingHeader>") == 2 and b"<eb:SenderURI>https://b.example/&#233;<" in after
    assert ebxml.decode(content_type, after).routing == (*came.routing, HOP)


def test_another_encoding_is_written_anew() -> None:
    content_type, body = one_hop()
    head, _, rest = body.partition(b"<?xml")
    document, end, tail = (b"<?xml" + rest).partition(b"</ebXMLHeader>")
    latin = (document + end).decode().replace('encoding="UTF-8"', 'encoding="ISO-8859-1"').replace("4711<", "47é11<")
    head = re.sub(rb"Content-Length: \d+\r\n", b"", head).replace(b'; charset="UTF-8"', b"")
    before = head + latin.encode("iso-8859-1") + tail
    came = ebxml.decode(content_type, before)
    assert "é" in came.manifest[0].description
    read = ebxml.decode(*passed_on(content_type, before))
    assert (read.routing, read.manifest) == ((*came.routing, HOP), came.manifest)


def test_what_a_router_must_not_pass_on() -> None:
    content_type, body = fixture("02-acknowledgement.http")
    with pytest.raises(EncodeError, match="belongs to one hop"):
        ebxml.forwarded(content_type, body, HOP)
    content_type, body = one_hop()
    for _ in range(9):
        content_type, body = passed_on(content_type, body)
    with pytest.raises(EncodeError, match="10 hops already"):
        ebxml.forwarded(content_type, body, HOP)
