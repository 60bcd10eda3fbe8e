"""A line for each request at the door, whatever road it came by."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from django.urls import get_resolver

from rmhub.front import access_log
from tests.messaging.api.client import make_token, make_user
from tests.messaging.factories import partner_side
from tests.messaging.profiles.repeatable.hubs import hubs
from tests.rmhub.conditions import eventually
from tests.security.raw import Caller

pytestmark = pytest.mark.django_db(transaction=True)
JSON = {"RMHUB_LOG_FORMAT": "json", "RMHUB_LOG_LEVEL": "WARNING"}


def said(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]


def test_each_request_is_a_line_with_its_caller_and_the_id_of_what_else_is_said_of_it(tmp_path: Path) -> None:
    partner, token = partner_side(), make_token(make_user(name="nora"))
    arrival = partner.message(1)
    shown = (f"Authorization: {partner.presented.authorization}", f"Content-Type: {arrival.content_type}")
    with hubs(tmp_path, more={**JSON, "RMHUB_ACCESS_LOG": "1"}) as (hub,):
        Caller(hub.port).head("GET", "/livez").answer()
        sent = Caller(hub.port).head("POST", "/ebxml/msh", *shown, f"Content-Length: {len(arrival.body)}")
        assert sent.send(arrival.body).answer().status == 204
        mine = ("Authorization: Bearer " + token, "X-Request-Id: mine-1")
        asked = Caller(hub.port).head("GET", "/api/v1/pairs?limit=1", *mine).answer()
        assert (asked.status, asked.headers["x-request-id"]) == (200, "mine-1")
        Caller(hub.port).head("GET", "/invitation/abc/very-secret/").answer()
        cut = Caller(hub.port).head("POST", "/api/v1/messages", "Content-Length: 5").send(b"xx")
        cut.socket.shutdown(socket.SHUT_WR)
        assert cut.answer().status == 400
        log = tmp_path / "hub0.log"
        eventually(lambda: [line for line in said(log) if line.get("status") == 400])
        lines = {line["path"]: line for line in said(log) if line["logger"] == "rmhub.access"}
        refused = next(line for line in said(log) if line.get("action") == "refused")
    assert "/livez" not in lines
    entrance = lines["/ebxml/msh"]
    named = (entrance["method"], entrance["status"], entrance["bytes"], entrance["caller"], entrance["address"])
    assert named == ("POST", 204, 0, partner.outbound.partner.name, "127.0.0.1")
    assert entrance["milliseconds"] > 0 and entrance["request_id"].startswith("req_")
    api = lines["/api/v1/pairs"]
    assert (api["status"], api["bytes"], api["request_id"]) == (200, len(asked.body), "mine-1")
    assert api["caller"].startswith("nora (token ")
    assert lines["/invitation/abc/..."]["caller"] == ""
    assert refused["request_id"] == lines["/api/v1/messages"]["request_id"]
    assert "very-secret" not in log.read_text() and token not in log.read_text()


def test_it_is_off_unless_it_is_switched_on(tmp_path: Path) -> None:
    with hubs(tmp_path, more=JSON) as (hub,):
        Caller(hub.port).head("GET", "/api/v1/health").answer()
    assert [line for line in said(tmp_path / "hub0.log") if line["logger"] == "rmhub.access"] == []


def test_every_address_with_a_secret_in_it_is_shortened() -> None:
    found = []
    for pattern in get_resolver().url_patterns:
        for each in getattr(pattern, "url_patterns", [pattern]):
            route = str(each.pattern)
            if ":token>" in route:
                path = "/" + route.replace("<str:uid>", "abc").replace("<str:token>", "very-secret")
                found.append(access_log._SECRET.sub(r"\1...", path))
    assert found == ["/invitation/abc/..."]


def test_no_path_begins_a_line_or_leaves_ascii(caplog: pytest.LogCaptureFixture) -> None:
    environ = {
        **{"PATH_INFO": "/x\ny zü", "REQUEST_METHOD": "GET", "REMOTE_ADDR": "::1"},
        "rmhub.request_id": "req_1",
    }
    with caplog.at_level("INFO", "rmhub.access"):
        access_log.note(environ, access_log.Counted(None), 0.01)
    assert vars(caplog.records[0])["path"] == "/x%0Ay%20z%FC"
