"""Bodies that come slowly, or not at all, at a real web server: nobody waits for them, and they are cut off (X27)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import urllib3

from messaging.models import Message
from rmhub.roles import Role
from tests.messaging.api.client import make_token, make_user
from tests.messaging.factories import PartnerSide, partner_side
from tests.messaging.profiles.repeatable.hubs import ROOT, Hub, hubs
from tests.security.raw import Caller, callers

pytestmark = [pytest.mark.acceptance, pytest.mark.django_db(transaction=True)]

ROADS = (
    *("/ebxml/msh", "/ebxml/errors/x", "/exchange/tpa:nobody/", "/stream/orders", "/ws-tx/registration"),
    *("/partner/echo", "/api/v1/messages", "/login/", "/partners/new/"),
)
# As few as can be: what holds with four threads for ninety slow senders holds with 32 for a thousand.
THREADS = {"RMHUB_WEB_THREADS": "4"}
FEW = 10


def slow(caller: Caller, path: str, number: int) -> None:
    """Begins a small body and goes no further: of a known length, or in chunks that never end."""
    if number % 2:
        caller.head("POST", path, "Content-Type: text/xml", "Content-Length: 1000").send(b"<slow")
    else:
        caller.head("POST", path, "Content-Type: text/xml", "Transfer-Encoding: chunked").send(b"5\r\n<slow\r\n")


def test_x27_slow_bodies_and_slow_headers_hold_nobody_up(tmp_path: Path) -> None:
    partner = partner_side()
    token = make_token(make_user(Role.VIEWER))
    patient = {**THREADS, "RMHUB_BODY_GRACE_SECONDS": "600"}
    with hubs(tmp_path, more=patient) as (hub,), callers(hub.port, 2 * FEW * len(ROADS)) as both:
        open_, heads = both[: len(both) // 2], both[len(both) // 2 :]
        for number, (caller, head) in enumerate(zip(open_, heads, strict=True)):
            slow(caller, ROADS[number % len(ROADS)], number)
            head.send(f"POST {ROADS[number % len(ROADS)]} HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: x")
        for number in range(1, 6):
            assert everybody_is_served(hub, partner, token, number) == [204, 200, 200]
        # Those whose headers suffice for a refusal have it; all others wait, and nobody waits for them.
        assert sum(not caller.was_answered for caller in open_) >= len(open_) // 2
    assert Message.objects.count() == 5


def everybody_is_served(hub: Hub, partner: PartnerSide, token: str, number: int) -> list[int]:
    """A partner, a program and a person."""
    arrival = partner.message(number)
    shown = {"Authorization": partner.presented.authorization, "Content-Type": arrival.content_type}
    asked = (
        ("POST", "/ebxml/msh", arrival.body, shown),
        ("GET", "/api/v1/pairs", None, {"Authorization": f"Bearer {token}"}),
        ("GET", "/login/", None, {}),
    )
    return [
        urllib3.request(method, hub.url + path, body=body, headers=headers, timeout=120, retries=False).status
        for method, path, body, headers in asked
    ]


def test_who_is_too_slow_is_told_so_in_the_form_of_the_road(tmp_path: Path) -> None:
    partner = partner_side()
    shown = f"Authorization: {partner.presented.authorization}"
    token = f"Authorization: Bearer {make_token(make_user(Role.OPERATOR))}"
    paths = ("/ebxml/msh", "/stream/orders", "/exchange/tpa:x/", "/partner/echo", "/api/v1/messages")
    lengths = ("Content-Length: 1000", "Content-Length: 1000000", "Transfer-Encoding: chunked")
    slow = [(path, length) for length in lengths for path in paths]
    more = {**THREADS, "RMHUB_BODY_GRACE_SECONDS": "1"}
    with hubs(tmp_path, more=more) as (hub,), callers(hub.port, len(slow)) as open_:
        for caller, (path, length) in zip(open_, slow, strict=True):
            about = (
                (token, "Content-Type: application/json", "Idempotency-Key: a") if path.startswith("/api") else (shown,)
            )
            caller.head("POST", path, *about, length)
            caller.send(b"1\r\n<\r\n" if "chunked" in length else b"<")
        answers = [caller.answer() for caller in open_]
    for number, length in enumerate(lengths):
        said = answers[number * len(paths) : (number + 1) * len(paths)]
        # The API takes no body without a length.
        last = 411 if "chunked" in length else 408
        assert [answer.status for answer in said] == [408, 408, 408, 408, last], length
        assert [answer.body for answer in said[:2]] == [b"", b""]
        assert said[2].headers["content-type"] == "application/problem+json"
        assert said[2].headers["repeatability-result"] == "rejected"
        problem = json.loads(said[4].body)
        assert problem["code"] == ("length_required" if last == 411 else "body_too_slow") and problem["request_id"]
        assert all(answer.headers.get("connection") == "close" for answer in said if answer.status == 408)
    assert not Message.objects.exists()


def test_a_body_that_keeps_its_pace_may_come_in_pieces(tmp_path: Path) -> None:
    partner = partner_side()
    with hubs(tmp_path, more={**THREADS, "RMHUB_BODY_RATE": "1"}) as (hub,):
        for number, size in enumerate((10, 70_000, 700_000), 1):
            arrival = partner.message(number, content=b"x" * size)
            shown = [f"Authorization: {partner.presented.authorization}", f"Content-Type: {arrival.content_type}"]
            caller = Caller(hub.port).head("POST", "/ebxml/msh", *shown, f"Content-Length: {len(arrival.body)}")
            for begin in range(0, len(arrival.body), 50_001):
                caller.send(arrival.body[begin : begin + 50_001])
            assert caller.answer().status == 204
            again = Caller(hub.port).head("POST", "/ebxml/msh", *shown, "Transfer-Encoding: chunked")
            for begin in range(0, len(arrival.body), 50_001):
                piece = arrival.body[begin : begin + 50_001]
                again.send(f"{len(piece):x}\r\n").send(piece).send(b"\r\n")
            assert again.send(b"0\r\n\r\n").answer().status == 204, "the same, in chunks: a repeat"
    assert list(Message.objects.order_by("sequence_number").values_list("copies", flat=True)) == [1, 1, 1]


def test_who_is_refused_for_the_headers_need_not_send_the_body(tmp_path: Path) -> None:
    """With the body read first, nothing could come back; who is not refused and asks is asked for it."""
    partner = partner_side()
    arrival = partner.message(1)
    expect = ("Expect: 100-continue", f"Content-Length: {len(arrival.body)}", f"Content-Type: {arrival.content_type}")
    with hubs(tmp_path, more={**THREADS, "RMHUB_BODY_GRACE_SECONDS": "600"}) as (hub,):
        for path in ("/ebxml/msh", "/exchange/tpa:x/", "/stream/x", "/ws-tx/registration", "/api/v1/messages"):
            assert Caller(hub.port).head("POST", path, "Content-Length: 40000000").answer().status == 401
            unknown = Caller(hub.port).head("POST", path, "Transfer-Encoding: chunked").answer().status
            assert unknown == (411 if path.startswith("/api") else 401)
        assert Caller(hub.port).head("POST", "/ebxml/msh", *expect).answer().status == 401
        caller = Caller(hub.port)
        caller.head("POST", "/ebxml/msh", *expect, f"Authorization: {partner.presented.authorization}")
        assert caller.socket.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert caller.send(arrival.body).answer().status == 204


def test_the_web_server_takes_as_many_open_files_as_it_may(tmp_path: Path) -> None:
    """Else a shell's limit of 1,024 would let a thousand slow senders keep all others out."""
    script = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 2048))
import rmhub.asgi
print(resource.getrlimit(resource.RLIMIT_NOFILE))
"""
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "rmhub.settings", "RMHUB_VAR": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.stdout.strip() == "(2048, 2048)", ended.stderr
