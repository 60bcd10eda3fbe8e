"""A web server that is told to end says so first, serves what comes meanwhile, and finishes what it has begun."""

from __future__ import annotations

import http.client
import socket
from pathlib import Path

import pytest
import urllib3

from tests.messaging.profiles.repeatable.hubs import Hub, hubs
from tests.rmhub.conditions import eventually

pytestmark = pytest.mark.django_db(transaction=True)


def _get(hub: Hub, path: str) -> urllib3.BaseHTTPResponse:
    return urllib3.request("GET", f"{hub.url}{path}", retries=False, timeout=120)


def _listens(hub: Hub) -> bool:
    try:
        socket.create_connection(("127.0.0.1", hub.port), timeout=120).close()
    except ConnectionRefusedError:
        return False
    return True


def test_it_says_so_and_serves_until_the_balancer_has_noticed(tmp_path: Path) -> None:
    # As from a balancer: by its address, in plain http, although the site itself wants its name and https.
    strict = {"RMHUB_HTTPS": "1", "RMHUB_TRUSTED_PROXIES": "192.0.2.1", "RMHUB_ALLOWED_HOSTS": "hub.example.org"}
    with hubs(tmp_path, more={"RMHUB_DRAIN_SECONDS": "300", **strict}) as [hub]:
        assert _get(hub, "/readyz").status == 200 and _get(hub, "/livez").status == 200
        kept = urllib3.HTTPConnectionPool("127.0.0.1", hub.port, retries=False, timeout=120)
        before = kept.request("GET", "/problems/")
        hub.end()
        eventually(lambda: _get(hub, "/readyz").status == 503)
        assert _get(hub, "/livez").status == 200  # nobody has to kill it
        # On a connection from before and on a new one; neither is kept.
        for answer in (kept.request("GET", "/problems/"), _get(hub, "/problems/")):
            assert answer.status == before.status and answer.headers["Connection"] == "close"
        hub.end()  # a second time changes nothing: systemd tells each process of a unit
        assert _get(hub, "/problems/").status == before.status


def test_what_has_begun_is_finished_and_nothing_more_is_taken(tmp_path: Path) -> None:
    with hubs(tmp_path, more={"RMHUB_FINISH_SECONDS": "1500"}) as [hub]:
        slow = http.client.HTTPConnection("127.0.0.1", hub.port, timeout=120)
        slow.putrequest("POST", "/ebxml/msh")
        slow.putheader("Content-Length", "20")
        slow.endheaders(b"0123456789")
        # It has the request when it answers others that came later.
        assert _get(hub, "/livez").status == 200
        hub.end()
        eventually(lambda: not _listens(hub))
        slow.send(b"0123456789")
        assert slow.getresponse().status < 500
        slow.close()
        assert hub.ended() == 0


def test_whoever_takes_for_ever_is_broken_off(tmp_path: Path) -> None:
    with hubs(tmp_path, more={"RMHUB_FINISH_SECONDS": "1"}) as [hub]:
        slow = http.client.HTTPConnection("127.0.0.1", hub.port, timeout=120)
        slow.putrequest("POST", "/ebxml/msh")
        slow.putheader("Content-Length", "20")
        slow.endheaders(b"0123456789")
        assert _get(hub, "/livez").status == 200
        hub.end()
        assert hub.ended() == 0
        slow.close()
