"""Who is at the other end: what proxies may say, and what nobody else may (log-in by certificate, addresses)."""

from __future__ import annotations

import ipaddress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from messaging.models import Rejection
from partners.models import Party
from rmhub.front.application import FileWrapper
from rmhub.front.environ import FORWARDED, X_FORWARDED_FOR, Peers, bucket, environ_of
from tests.messaging.factories import partner_side
from tests.messaging.profiles.repeatable.hubs import hubs
from tests.partners.factories import make_credential
from tests.security.raw import Caller

PROXIES = (ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("2001:db8:1::/48"))
FINGERPRINT = "ab" * 32


@pytest.mark.parametrize(
    ("said", "client"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("6.6.6.6, 192.0.2.1", "192.0.2.1"),  # what stands left of it, the client has written
        ("6.6.6.6, 192.0.2.1, 10.1.1.1", "192.0.2.1"),
        ("192.0.2.1:4711, 10.1.1.1", "192.0.2.1"),
        ("[2001:db8::7]:4711", "2001:db8::7"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("192.0.2.1, 2001:db8:1::5", "192.0.2.1"),
        ("10.2.2.2, 10.1.1.1", "10.2.2.2"),
        ("192.0.2.1, unknown", "10.0.0.1"),  # the proxy cannot say: it is the proxy then
        ("192.0.2.1, unknown, 10.1.1.1", "10.1.1.1"),
        ("", "10.0.0.1"),
        (",", "10.0.0.1"),
    ],
)
def test_the_address_is_read_from_the_right(said: str, client: str) -> None:
    assert Peers(PROXIES, chain=X_FORWARDED_FOR).client("10.0.0.1", said) == client


@pytest.mark.parametrize(
    ("said", "client"),
    [
        ("for=192.0.2.1", "192.0.2.1"),
        ('For="[2001:db8::7]:4711";proto=https, for=10.1.1.1', "2001:db8::7"),
        ("for=6.6.6.6, proto=http; for=192.0.2.1; by=10.0.0.1", "192.0.2.1"),
        ('for="6.6.6.6, for=7.7.7.7", for=192.0.2.1', "192.0.2.1"),
        ("for=192.0.2.1, for=_hidden", "10.0.0.1"),
        ("by=10.0.0.1", "10.0.0.1"),
    ],
)
def test_forwarded_is_read_as_rfc_7239_has_it(said: str, client: str) -> None:
    assert Peers(PROXIES, chain=FORWARDED).client("10.0.0.1", said) == client


def environ(peer: str, *headers: tuple[str, str], peers: Peers) -> dict[str, Any]:
    scope = {
        "method": "GET",
        "path": "/",
        "raw_path": b"/a%20b",
        "query_string": b"",
        "http_version": "1.1",
        "scheme": "http",
        "client": (peer, 1),
        "server": ("hub", 80),
        "headers": [(name.encode(), value.encode()) for name, value in headers],
    }
    return environ_of(scope, peers, FileWrapper)


def test_strangers_may_not_speak_as_proxies_do() -> None:
    peers = Peers(PROXIES, fingerprint_header="X-Client-Fp")
    said = (("x-forwarded-for", "192.0.2.1"), ("x-forwarded-proto", "https"), ("x-client-fp", FINGERPRINT))
    stranger = environ("192.0.2.66", *said, ("forwarded", "for=192.0.2.1"), ("x-other", "1"), peers=peers)
    assert stranger["REMOTE_ADDR"] == "192.0.2.66"
    assert sorted(key for key in stranger if key.startswith("HTTP_")) == ["HTTP_X_OTHER"]
    proxied = environ("10.0.0.1", *said, peers=peers)
    assert (proxied["REMOTE_ADDR"], proxied["HTTP_X_CLIENT_FP"]) == ("192.0.2.1", FINGERPRINT)
    assert proxied["HTTP_X_FORWARDED_PROTO"] == "https"


def test_headers_with_an_underscore_are_nobodys() -> None:
    peers = Peers(PROXIES, fingerprint_header="X-Client-Fp")
    found = environ("10.0.0.1", ("x-client-fp", "the proxy's"), ("x_client_fp", FINGERPRINT), peers=peers)
    assert found["HTTP_X_CLIENT_FP"] == "the proxy's"
    assert "HTTP_X_CLIENT_FP" not in environ("10.0.0.1", ("x_client-fp", FINGERPRINT), peers=peers)


def test_a_header_that_comes_twice_is_no_fingerprint() -> None:
    """A proxy that adds its own instead of overwriting the client's proves nothing."""
    peers = Peers(PROXIES, fingerprint_header="X-Client-Fp")
    twice = environ("10.0.0.1", ("x-client-fp", FINGERPRINT), ("x-client-fp", FINGERPRINT), peers=peers)
    assert twice["HTTP_X_CLIENT_FP"] == f"{FINGERPRINT},{FINGERPRINT}"


def test_paths_and_cookies_are_as_wsgi_has_them() -> None:
    found = environ("192.0.2.1", ("cookie", "a=1"), ("cookie", "b=2"), ("content-length", "3"), peers=Peers())
    assert (found["PATH_INFO"], found["HTTP_COOKIE"], found["CONTENT_LENGTH"]) == ("/a b", "a=1; b=2", "3")


def test_guessers_are_counted_by_what_one_customer_has() -> None:
    assert bucket("2001:db8:0:7:1::1") == bucket("2001:db8:0:7:ffff::2") == "2001:db8:0:7::/64"
    assert bucket("::ffff:192.0.2.1") == bucket("192.0.2.1") == "192.0.2.1"
    assert bucket("mail") == "mail"


@pytest.mark.django_db(transaction=True)
def test_a_certificate_cannot_be_claimed_by_whoever_reaches_the_port(tmp_path: Path) -> None:
    """Neither with the proxy's header, nor with one that becomes the same in WSGI."""
    partner = partner_side()
    make_credential(Party.objects.get(pk=partner.terms.partner_id), kind="certificate", fingerprint=FINGERPRINT)
    arrival = replace(partner.message(1))
    about = (f"Content-Type: {arrival.content_type}", f"Content-Length: {len(arrival.body)}")
    headers = {"RMHUB_FINGERPRINT_HEADER": "X-Client-Fp"}
    with hubs(tmp_path, more={**headers, "RMHUB_TRUSTED_PROXIES": "192.0.2.0/24"}) as (hub,):
        for name in ("X-Client-Fp", "X_Client_Fp", "X-Client_Fp"):
            caller = Caller(hub.port).head("POST", "/ebxml/msh", f"{name}: {FINGERPRINT}", *about)
            assert caller.send(arrival.body).answer().status == 401
    assert Rejection.objects.get().times == 3
    with hubs(tmp_path, more={**headers, "RMHUB_TRUSTED_PROXIES": "127.0.0.1"}) as (hub,):
        shown = ("X-Forwarded-For: 192.0.2.9", "X-Client-Fp: none", f"X_Client_Fp: {FINGERPRINT}")
        assert Caller(hub.port).head("POST", "/ebxml/msh", *shown, *about).send(arrival.body).answer().status == 401
        assert Rejection.objects.filter(remote_address="192.0.2.9").exists()
        caller = Caller(hub.port).head("POST", "/ebxml/msh", f"X-Client-Fp: {FINGERPRINT}", *about)
        assert caller.send(arrival.body).answer().status == 204


@pytest.mark.django_db(transaction=True)
def test_pages_are_served_to_whom_a_trusted_proxy_speaks_tls(tmp_path: Path) -> None:
    """Everybody else is sent there, whatever they say of themselves."""
    asked = {"through TLS": ("X-Forwarded-Proto: https",), "without": ("X-Forwarded-Proto: http",), "directly": ()}
    found = {}
    for proxies in ("127.0.0.1", "192.0.2.0/24"):
        with hubs(tmp_path, more={"RMHUB_HTTPS": "1", "RMHUB_TRUSTED_PROXIES": proxies}) as (hub,):
            for name, said in asked.items():
                found[proxies, name] = Caller(hub.port).head("GET", "/login/", *said).answer()
    (served,) = [key for key, answer in found.items() if answer.status == 200]
    assert served == ("127.0.0.1", "through TLS")
    assert "Secure" in found[served].headers["set-cookie"]
    moved = [answer for key, answer in found.items() if key != served]
    assert {(answer.status, answer.headers["location"]) for answer in moved} == {(301, "https://127.0.0.1/login/")}
