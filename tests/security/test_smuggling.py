"""Requests whose end two servers could see at different places, at the real web server: refused, and nothing within
one is ever taken for the next (RFC 9112)."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import pytest

from messaging.models import Message, Rejection
from tests.messaging.factories import PartnerSide, partner_side
from tests.messaging.profiles.repeatable.hubs import Hub, hubs

pytestmark = [pytest.mark.acceptance, pytest.mark.django_db(transaction=True)]

CHUNKED = "Transfer-Encoding: chunked\r\n"
# What a request must not be able to hide: another server would take it for a part of the body.
HIDDEN = "GET /problems/ HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"

# Headers that say in two ways how long the body is, or in a way that others read otherwise; what follows them.
HEADERS = {
    "two lengths": ("Content-Length: 5\r\nContent-Length: 6\r\n", "hello"),
    "list of lengths": ("Content-Length: 5, 6\r\n", "hello"),
    "length with a sign": ("Content-Length: +5\r\n", "hello"),
    "negative length": ("Content-Length: -5\r\n", "hello"),
    "hexadecimal length": ("Content-Length: 0x5\r\n", "hello"),
    "blank before the colon": ("Content-Length : 5\r\n", "hello"),
    "coding with a blank before the colon": ("Transfer-Encoding : chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n"),
    "unknown coding": ("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"),
    "chunked is not the last coding": ("Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\n"),
    "coding twice": (f"{CHUNKED}Transfer-Encoding: identity\r\n", "0\r\n\r\n"),
    "coding behind a vertical tab": ("Transfer-Encoding: \vchunked\r\nContent-Length: 5\r\n", "0\r\n\r\n"),
    "folded length": ("X-Note: a\r\n Content-Length: 50\r\nContent-Length: 5\r\n", "hello"),
    "folded coding": ("Transfer-Encoding:\r\n chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n"),
    "a return within a header": ("X-Note: a\rContent-Length: 50\r\nContent-Length: 5\r\n", "hello"),
    "a zero within a header": ("X-Note: a\0b\r\nContent-Length: 5\r\n", "hello"),
}
CHUNKS = {
    "no number": "zz\r\nhello\r\n0\r\n\r\n",
    "prefixed": "0x5\r\nhello\r\n0\r\n\r\n",
    "negative": "-5\r\nhello\r\n0\r\n\r\n",
    "larger than 64 bits": "10000000000000005\r\nhello\r\n0\r\n\r\n",
    "longer than it says": "3\r\nhello\r\n0\r\n\r\n",
    "lines that end with LF": "5\nhello\n0\n\n",
    "extension that ends with LF": "5;a\nhello\r\n0\r\n\r\n",
}


def statuses(hub: Hub, octets: str) -> list[int]:
    """Every answer on one connection to these octets, until the server closes it."""
    found = []
    with socket.create_connection(("127.0.0.1", hub.port), timeout=60) as connection:
        connection.sendall(octets.encode("latin-1"))
        with connection.makefile("rb") as file, contextlib.suppress(ConnectionResetError):
            while line := file.readline():
                found.append(int(line.split()[1]))
                length = 0
                while (said := file.readline()) not in (b"\r\n", b""):
                    name, _, value = said.partition(b":")
                    length = int(value) if name.lower() == b"content-length" else length
                file.read(length)
    return found


def request(path: str, about: str, body: str, *, version: str = "1.1") -> str:
    return f"POST {path} HTTP/{version}\r\nHost: 127.0.0.1\r\n{about}\r\n{body}"


def known(partner: PartnerSide) -> str:
    return f"Authorization: {partner.presented.authorization}\r\nContent-Type: text/xml\r\n"


def test_a_request_whose_length_or_chunks_are_doubtful_is_refused_with_all_that_follows(tmp_path: Path) -> None:
    partner = partner_side()
    with hubs(tmp_path) as (hub,):
        found = {
            name: statuses(hub, request("/ebxml/msh", known(partner) + about, body + HIDDEN))
            for name, (about, body) in HEADERS.items()
        }
        found["chunks in HTTP/1.0"] = statuses(
            hub, request("/ebxml/msh", f"{CHUNKED}Content-Length: 5\r\n", "0\r\n\r\n" + HIDDEN, version="1.0")
        )
        assert found == {name: [400] for name in found}
        assert not Rejection.objects.exists(), "no request has reached the hub"
        for path in ("/ebxml/msh", "/stream/orders", "/exchange/tpa:x/", "/partner/echo"):
            found = {
                name: statuses(hub, request(path, known(partner) + CHUNKED, body + HIDDEN))
                for name, body in CHUNKS.items()
            }
            assert found == {name: [400] for name in CHUNKS}, path
    assert not Message.objects.exists()


def test_a_body_ends_where_its_headers_say_and_nowhere_else(tmp_path: Path) -> None:
    partner = partner_side()
    with hubs(tmp_path) as (hub,):
        # Both: the chunks count, and the connection ends, so that nothing behind them is looked at.
        both = f"{CHUNKED}Content-Length: {5 + len(HIDDEN)}\r\n"
        assert statuses(hub, request("/ebxml/msh", known(partner) + both, "0\r\n\r\n" + HIDDEN)) == [400]
        # What looks like a request within a body is a body; what follows it is a request.
        inside = f"Content-Length: {len(HIDDEN)}\r\n"
        assert statuses(hub, request("/ebxml/msh", known(partner) + inside, HIDDEN)) == [400]
        assert statuses(hub, request("/ebxml/msh", known(partner) + inside, HIDDEN + HIDDEN)) == [400, 200]
        # One that is refused for its headers, and whose body is never looked at, is followed by nothing.
        assert statuses(hub, request("/ebxml/msh", "Content-Length: 10\r\n", "x" * 10 + HIDDEN)) == [401, 200]
        # Another spelling of the header is no header, and headers behind the chunks say nothing.
        spelled = "Content_Length: 500\r\nContent-Length: 5\r\n"
        assert statuses(hub, request("/ebxml/msh", known(partner) + spelled, "hello" + HIDDEN)) == [400, 200]
        late = "5\r\nhello\r\n0\r\nContent-Length: 500\r\nAuthorization: Basic eDp5\r\n\r\n"
        assert statuses(hub, request("/ebxml/msh", known(partner) + CHUNKED, late + HIDDEN)) == [400, 200]
        assert statuses(hub, request("/ebxml/msh", CHUNKED, late + HIDDEN))[0] == 401
        # RFC 9112 (2.2) lets a server take a single LF for the end of a line: it counts for all lines alike.
        lines = request("/ebxml/msh", known(partner) + "Content-Length: 5\r\n", "").replace("\r\n", "\n")
        assert statuses(hub, lines + "hello" + HIDDEN) == [400, 200]
    assert {row.detail for row in Rejection.objects.filter(reason="unauthenticated")} <= {
        "No credential of a partner was shown."
    }
