"""The partners' HTTP entrance: what it reads, what it does not, and an answer without a body whatever happens."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
from django.db import OperationalError
from django.test import Client

from messaging.entrance import reading
from messaging.entrance.refusals import Arrival
from messaging.models import Message, Payload, Rejection
from partners.models import Party
from partners.terms import Presented
from tests.messaging.factories import PartnerSide, partner_side
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
