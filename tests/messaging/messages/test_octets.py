"""Bytes on screen and as files: exact, escaped, and written to the audit log when they hold a payload."""

from __future__ import annotations

import hashlib

import pytest
from django.http import HttpResponse
from django.test import Client
from lxml import html

from messaging.messages.services.submitting import NewPayload, message_submit
from messaging.models import AuditEntry, Message, Payload, PayloadMask, Signal, Transmission
from messaging.transports import Receipt
from rmhub.clock import FrozenClock
from rmhub.roles import Role
from tests.messaging.console.scenes import World, browser
from tests.messaging.factories import ACTION, SERVICE, PartnerSide, link, partner_side, submit, work

pytestmark = pytest.mark.django_db
EVIL = b"<a onclick='x'><script>alert(1)</script></a>"


def _hand_in(partner: PartnerSide, content: bytes, content_type: str, filename: str = "") -> Message:
    payloads = [NewPayload(content, content_type, filename)]
    return message_submit(agreement=partner.terms.tpa_id, service=SERVICE, action=ACTION, payloads=payloads).message


def _shown(answer: HttpResponse) -> str:
    return str(html.fromstring(answer.content).xpath("//div[@class='code']/pre")[0].text_content())


def _open(client: Client, message: Message, mode: str = "") -> HttpResponse:
    return client.get(f"/messages/{message.public_id}/payloads/1/", {"mode": mode} if mode else {})


@pytest.mark.parametrize("content_type", ["application/xml", "text/html", "text/plain", "image/svg+xml"])
@pytest.mark.parametrize("mode", ["", "pretty", "raw", "hex", "nonsense"])
def test_nothing_of_a_payload_becomes_markup(time: FrozenClock, content_type: str, mode: str) -> None:
    message = _hand_in(partner_side(), EVIL, content_type)
    answer = _open(browser(Role.OPERATOR), message, mode)
    assert b"<script>alert" not in answer.content
    page = html.fromstring(answer.content)
    assert not page.xpath("//*[@onclick]")


def test_opening_a_payload_is_in_the_audit_log(scene: World) -> None:
    _open(browser(Role.OPERATOR, "olga"), scene.outbound)
    entry = AuditEntry.objects.get(verb="payload.read")
    assert (entry.actor, entry.object_id) == ("olga", scene.outbound.public_id)


def test_a_download_is_exact_and_no_browser_runs_it(time: FrozenClock) -> None:
    content = EVIL + bytes(range(256))
    message = _hand_in(partner_side(), content, "text/html", 'evil".html\r\nX: y'.replace("\r\n", " "))
    answer = browser(Role.OPERATOR).get(f"/messages/{message.public_id}/payloads/1/download/")
    assert answer.content == content
    assert answer["Content-Type"] == "application/octet-stream"
    assert answer["Content-Disposition"] == 'attachment; filename="evil_.html_X__y"'
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["Content-Security-Policy"] == "sandbox; default-src 'none'"
    assert answer["X-Content-SHA256"] == hashlib.sha256(content).hexdigest()
    assert AuditEntry.objects.filter(verb="payload.read").count() == 1


def test_the_wire_bytes_are_those_that_went_out(time: FrozenClock) -> None:
    partner = partner_side()
    message = submit(partner)
    with link() as wire:
        work()
    client = browser(Role.OPERATOR)
    assert client.get(f"/messages/{message.public_id}/wire/download/").content == wire.last.body
    shown = _shown(client.get(f"/messages/{message.public_id}/wire/"))
    assert f"<MessageId>{message.message_id}</MessageId>‹CR›" in shown
    assert AuditEntry.objects.filter(verb="message.read_wire").count() == 2


def test_a_message_that_was_never_sent_has_no_wire_bytes_and_the_page_says_so(scene: World) -> None:
    for path in ("wire/", "wire/download/"):
        answer = browser().get(f"/messages/{scene.queued.public_id}/{path}")
        assert answer.status_code == 404
        assert b"was not sent yet" in answer.content


def test_a_payload_whose_file_is_gone_is_told_and_not_a_crash(scene: World) -> None:
    Payload.objects.filter(message=scene.outbound).update(content=None, stored_as="00/gone")
    for path in ("payloads/1/", "payloads/1/download/", "wire/", "wire/download/"):
        answer = browser().get(f"/messages/{scene.outbound.public_id}/{path}")
        assert answer.status_code == 404
        assert b"missing" in answer.content


@pytest.mark.parametrize("path", ["payloads/2/", "payloads/0/", "payloads/99999999/", "payloads/2/download/"])
def test_a_payload_that_is_not_there_is_not_found(scene: World, path: str) -> None:
    assert browser().get(f"/messages/{scene.outbound.public_id}/{path}").status_code == 404


def test_an_attempt_shows_address_outcome_and_the_exact_answer(time: FrozenClock) -> None:
    partner = partner_side()
    submit(partner)
    answer = b"HTTP 503 Busy\r\nServer: <x>\r\n\r\nback \x00 at ten"
    with link(Receipt(ok=False, status=503, cause="http_5xx", detail="HTTP 503", response=answer)):
        work()
    attempt = Transmission.objects.get()
    page = browser(Role.VIEWER).get(f"/transmissions/{attempt.public_id}/")
    assert _shown(page).split("\n")[:-1] == ["HTTP 503 Busy‹CR›", "Server: <x>‹CR›", "‹CR›", "back ‹00› at ten"]
    words = " ".join(html.fromstring(page.content).text_content().split())
    assert partner.terms.partner_address in words
    assert "The partner's server has an error of its own (HTTP 5xx)." in words
    assert "Looking at them needs the role operator." in words


def test_an_attempt_of_an_acknowledgement_leads_to_its_bytes(time: FrozenClock) -> None:
    partner = partner_side()
    partner.send(partner.message(1))
    with link() as wire:
        work()
    attempt = Transmission.objects.get()
    signal = Signal.objects.get()
    page = browser(Role.VIEWER).get(f"/transmissions/{attempt.public_id}/")
    assert f"/signals/{signal.public_id}/".encode() in page.content
    assert browser(Role.VIEWER).get(f"/signals/{signal.public_id}/download/").content == wire.last.body
    assert "Acknowledgement" in _shown(browser(Role.VIEWER).get(f"/signals/{signal.public_id}/"))


def test_what_was_refused_is_shown_as_text_to_operators_only(scene: World) -> None:
    url = f"/rejections/{scene.rejection.public_id}/sample/"
    assert browser(Role.OPERATOR).get(url).status_code == 403  # a mask may concern it
    PayloadMask.objects.all().delete()
    assert _shown(browser(Role.OPERATOR).get(url)).strip() == "<script>alert(1)</script>"
    assert b"<script>alert" not in browser(Role.OPERATOR).get(url).content
    assert b"First bytes" in browser(Role.VIEWER).get(f"/rejections/{scene.rejection.public_id}/").content


@pytest.mark.parametrize("path", ["transmissions/att_00/", "signals/sig_zz/", "rejections/rej_%00/", "webhooks/whe_1/"])
def test_ids_that_are_none_are_not_found(scene: World, path: str) -> None:
    assert browser().get(f"/{path}").status_code == 404
