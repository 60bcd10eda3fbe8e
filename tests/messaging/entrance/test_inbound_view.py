"""The partners' HTTP entrance: what it reads, what it does not, and an answer without a body whatever happens.

A payload store that takes nothing: the partner is told to come later, and what it repeats is taken once.
"""

from __future__ import annotations

import errno
import io
import os
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from django.db import OperationalError
from django.test import Client

from messaging.entrance import reading
from messaging.entrance.refusals import Arrival
from messaging.models import Message, Payload, Rejection, RememberedRequest, Signal
from partners.choices import ExchangeMode
from partners.models import Party
from partners.terms import Presented
from rmhub import clock
from tests.messaging.entrance.mail.conftest import one_connection
from tests.messaging.entrance.mail.partners import client, mail_of, mail_partner, options
from tests.messaging.entrance.mail.servers import entrance_running
from tests.messaging.factories import PartnerSide, partner_side
from tests.messaging.profiles.repeatable.callers import T, application, caller, remembering_since, result
from tests.messaging.profiles.stream.partner import post as post_stream
from tests.messaging.profiles.stream.partner import stream_side
from tests.messaging.wire import ERRORS, MSH, edited, post, stored
from tests.partners.factories import make_credential

pytestmark = pytest.mark.django_db


@pytest.fixture
def partner() -> PartnerSide:
    return partner_side()


def stream(arrival: Arrival, body: Any, **environ: Any) -> Any:
    """POSTs it with a body that is read from `body`."""
    return post(replace(arrival, body=b""), **{"wsgi.input": body, **environ})


def chunked(arrival: Arrival, body: Any) -> Any:
    return stream(arrival, body, **{"HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input_terminated": True})


class Untouchable(io.RawIOBase):
    """A request body that must not be read."""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        raise AssertionError("the body was read")


class Endless:
    """A request body without end, as a chunked one may be."""

    def __init__(self) -> None:
        self.given = 0

    def read(self, size: int = -1) -> bytes:
        assert size > 0, "read whole"
        self.given += size
        return b"x" * size

    readline = read


@pytest.mark.parametrize("length", ["1000001", str(10**15), "9" * 5000])
def test_a_body_that_is_declared_too_large_is_refused_unread(partner: PartnerSide, settings, length: str) -> None:
    settings.RMHUB_MAX_MESSAGE_BYTES = 1_000_000
    assert post(partner.message(1)).status_code == 204
    answer = stream(partner.message(2), Untouchable(), CONTENT_LENGTH=length)
    assert (answer.status_code, answer.content) == (413, b"")
    assert Rejection.objects.get().reason == "body_too_large"
    assert post(partner.message(2)).status_code == 204


def test_an_endless_chunked_body_is_refused_at_the_limit(partner: PartnerSide, settings) -> None:
    settings.RMHUB_MAX_MESSAGE_BYTES = 1_000_000
    body = Endless()
    answer = chunked(partner.message(2), body)
    assert (answer.status_code, answer.content) == (413, b"")
    assert Rejection.objects.get().reason == "body_too_large"
    assert body.given < 1_500_000


def test_a_chunked_message_is_taken(partner: PartnerSide) -> None:
    arrival = partner.message(1, content=b"x" * 700_000)
    answer = chunked(arrival, io.BytesIO(arrival.body))
    assert answer.status_code == 204
    assert Payload.objects.get().size == 700_000


def test_a_body_that_ends_before_its_declared_length(partner: PartnerSide) -> None:
    arrival = partner.message(1)
    answer = stream(arrival, io.BytesIO(arrival.body[:-40]), CONTENT_LENGTH=str(len(arrival.body)))
    assert (answer.status_code, Rejection.objects.get().reason) == (400, "truncated")


@pytest.mark.parametrize("path", [MSH, ERRORS, f"{MSH}/second"])
def test_only_post_is_allowed(client: Client, path: str) -> None:
    for method in ("GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS"):
        answer = client.generic(method, path, b"x", "text/plain")
        assert (answer.status_code, answer.content, answer["Allow"]) == (405, b"", "POST"), method


def test_an_old_client_gets_200_and_no_body(partner: PartnerSide) -> None:
    answer = post(partner.message(1), SERVER_PROTOCOL="HTTP/1.0")
    assert (answer.status_code, answer.content, answer["Content-Length"]) == (200, b"", "0")


@pytest.mark.parametrize("where", ["authenticate", "begin", "store"])
def test_without_its_database_the_hub_says_later(partner: PartnerSide, where: str) -> None:
    assert post(partner.message(1)).status_code == 204
    before = stored()
    gone = OperationalError("server closed the connection unexpectedly")
    target = {
        "authenticate": "partners.registry.current",
        "store": "messaging.profiles.ebxml.accepting._write",
        "begin": "messaging.profiles.ebxml.accepting.Batch.begin",
    }[where]
    with mock.patch(target, side_effect=gone):
        answer = post(partner.message(2))
    assert (answer.status_code, answer.content, answer["Retry-After"]) == (503, b"", str(reading.SOON))
    assert stored() == before
    assert not Rejection.objects.exists()
    assert post(partner.message(2)).status_code == 204, "and when it is back, the same message is taken"


def test_when_even_the_refusal_cannot_be_written_the_hub_says_later(partner: PartnerSide) -> None:
    with mock.patch.object(Rejection, "save", side_effect=OperationalError("no space left on device")):
        answer = post(edited(partner.message(1), ("</ebXMLHeader>", "")))
    assert (answer.status_code, answer["Retry-After"]) == (503, str(reading.SOON))


def test_a_full_disk_is_no_acceptance(partner: PartnerSide, settings) -> None:
    settings.RMHUB_INLINE_PAYLOAD_BYTES = 0
    with mock.patch("os.fsync", side_effect=OSError(28, "No space left on device")):
        answer = post(partner.message(1))
    assert (answer.status_code, Message.objects.count()) == (503, 0)
    assert post(partner.message(1)).status_code == 204


@pytest.mark.parametrize("length", ["-1", "1e3", "\u0662", "12abc", ""])
def test_a_length_that_is_none_reads_nothing_where_the_server_does_not_end_the_input(
    partner: PartnerSide, length: str
) -> None:
    """Reading on would wait for the next request on that connection."""
    arrival = partner.message(1)
    answer = stream(arrival, io.BytesIO(arrival.body), CONTENT_LENGTH=length)
    assert (answer.status_code, Rejection.objects.get().reason) == (400, "not_mime")


def test_an_upload_that_breaks_off_is_no_message(partner: PartnerSide) -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise OSError("connection reset by peer")

    answer = stream(partner.message(1), Broken(), CONTENT_LENGTH="1000")
    assert answer.status_code == 503
    assert not Message.objects.exists()


def test_a_certificate_is_believed_only_from_a_trusted_proxy(partner: PartnerSide, settings) -> None:
    """Anybody else could send the header, too."""
    fingerprint = "ab" * 32
    make_credential(Party.objects.get(pk=partner.terms.partner_id), kind="certificate", fingerprint=fingerprint)
    arrival = replace(partner.message(1), presented=Presented())
    shown = {"HTTP_X_CLIENT_FINGERPRINT": fingerprint}
    assert post(arrival, **shown).status_code == 401
    settings.RMHUB_FINGERPRINT_HEADER = "X-Client-Fingerprint"
    assert post(arrival, **shown).status_code == 401
    assert post(arrival, **shown, **{"rmhub.trusted_peer": True}).status_code == 204


def test_no_cookie_and_no_csrf_token_are_asked_for(partner: PartnerSide) -> None:
    arrival = partner.message(1)
    answer = Client(enforce_csrf_checks=True).post(
        MSH,
        data=arrival.body,
        content_type=arrival.content_type,
        HTTP_AUTHORIZATION=arrival.presented.authorization,
    )
    assert (answer.status_code, answer.cookies) == (204, {})


def test_whoever_guesses_is_slowed_down_and_a_partner_behind_the_same_address_is_not(partner: PartnerSide) -> None:
    assert post(partner.message(1)).status_code == 204
    guess = replace(partner.message(2), presented=Presented(authorization="Basic bm86bm8="))
    statuses = [post(guess).status_code for _ in range(15)]
    assert statuses == [401] * 10 + [429] * 5
    answer = post(guess)
    assert (answer.content, answer["Retry-After"]) == (b"", "60")
    assert Rejection.objects.get(reason="unauthenticated").times == 10, "who guesses does not fill the disk"
    assert post(partner.message(2)).status_code == 204


__all__ = ["one_connection"]


class Disk:
    """The disk of the payload store; while it is full, nothing is written to it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._monkeypatch = monkeypatch
        self._written = os.fsync

    def fill(self) -> None:
        def refuses(handle: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        self._monkeypatch.setattr(os, "fsync", refuses)

    def empty(self) -> None:
        self._monkeypatch.setattr(os, "fsync", self._written)

    def nothing_is_left(self) -> bool:
        rows = (Message, Signal, Rejection, RememberedRequest)
        return not any(row.objects.exists() for row in rows) and not list(self.folder.rglob(".incoming-*"))


@pytest.fixture
def disk(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    settings.RMHUB_STORE_DIR = tmp_path
    settings.RMHUB_INLINE_PAYLOAD_BYTES = 1
    return Disk(tmp_path, monkeypatch)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
def test_a_partner_is_told_to_come_later_and_nothing_is_lost(
    settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    settings.RMHUB_STORE_DIR = tmp_path
    settings.RMHUB_INLINE_PAYLOAD_BYTES = 1
    partner = partner_side()
    message = partner.message(1)
    written = os.fsync

    def refuses(handle: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuses)
    answer = post(message)
    assert (answer.status_code, answer["Retry-After"], answer.content) == (503, str(reading.SOON), b"")
    assert not Message.objects.exists() and not Signal.objects.exists() and not Rejection.objects.exists()
    assert partner.inbound.last_sequence == 0
    assert not list(tmp_path.rglob(".incoming-*"))
    monkeypatch.setattr(os, "fsync", written)
    assert [post(message).status_code, post(message).status_code] == [204, 204]
    assert Message.objects.count() == 1 and partner.inbound.last_sequence == 1


@pytest.mark.usefixtures("one_connection")
def test_a_mail_server_is_told_to_try_again_and_the_mail_is_taken_then(disk: Disk) -> None:
    partner = mail_partner()
    octets = mail_of(partner.message(1))
    disk.fill()
    with entrance_running(options()) as running, client(running) as other:
        assert other.transaction(octets) == (451, "4.3.0 Cannot store it now, try again later")
        assert disk.nothing_is_left() and partner.inbound.last_sequence == 0
        disk.empty()
        assert [other.transaction(octets)[0] for _ in range(2)] == [250, 250]
    assert Message.objects.count() == 1 and partner.inbound.last_sequence == 1


def test_the_sender_of_a_stream_is_told_to_come_later_and_its_place_is_kept(disk: Disk) -> None:
    side = stream_side()
    arrivals = [side.message(number) for number in (1, 2)]
    disk.fill()
    answer = post_stream(arrivals[0])
    assert (answer.status_code, answer["Retry-After"], answer.content) == (503, str(reading.SOON), b"")
    assert disk.nothing_is_left()
    disk.empty()
    assert [post_stream(arrival).status_code for arrival in (*arrivals, arrivals[0])] == [202, 202, 202]
    assert Message.objects.filter(direction="in").count() == 2


@pytest.mark.parametrize("mode", ExchangeMode)
def test_a_repeatable_request_is_not_begun_and_its_repeat_is_the_first(disk: Disk, mode: str) -> None:
    with clock.frozen(T):
        remembering_since(T.replace(month=1))
        partner = caller(exchange_mode=mode)
        with application() as app:
            disk.fill()
            answer = partner.post("order-1")
            assert answer.status_code == 503 and answer["Retry-After"]
            assert disk.nothing_is_left() and app.documents == []
            disk.empty()
            answers = [partner.post("order-1") for _ in range(2)]
    assert [answer.status_code // 100 for answer in answers] == [2, 2] and result(answers[0]) == "accepted"
    assert Message.objects.count() == 1
    assert len(app.documents) == (mode == ExchangeMode.SYNCHRONOUS)
