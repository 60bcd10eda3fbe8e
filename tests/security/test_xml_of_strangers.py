"""XML with a document type at the entrances, in seven encodings: refused, nothing is read, nothing is stored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from messaging.models import Message, Rejection
from tests.messaging.factories import PartnerSide, partner_side
from tests.messaging.profiles.stream.partner import post as post_stream
from tests.messaging.profiles.stream.partner import stream_side
from tests.messaging.profiles.wsat.kit import peer
from tests.messaging.wire import post

pytestmark = pytest.mark.django_db
ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "iso-8859-1", "utf-7")
REASONS = ("dtd_forbidden", "xml_not_well_formed", "wrong_charset", "bad_charset", "not_an_envelope")
SECRET = "what-stands-in-the-file"
LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
TYPES = {
    "external entity": '<!DOCTYPE a [<!ENTITY x SYSTEM "{file}">]><a>&x;</a>',
    "external subset": '<!DOCTYPE a SYSTEM "{file}"><a/>',
    "parameter entity": '<!DOCTYPE a [<!ENTITY % x SYSTEM "{file}">%x;]><a/>',
    "bomb": f'<!DOCTYPE a [<!ENTITY l0 "lol">{LAUGHS}]><a>&l9;</a>',
}


@pytest.fixture
def partner() -> PartnerSide:
    return partner_side()


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A file that no stranger may have read."""
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    return secret.as_uri()


def document(kind: str, encoding: str, file: str) -> bytes:
    name = {"utf-8-sig": "utf-8", "utf-16-le": "utf-16", "utf-16-be": "utf-16"}.get(encoding, encoding)
    return f'<?xml version="1.0" encoding="{name}"?>{TYPES[kind].replace("{file}", file)}'.encode(encoding)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("kind", TYPES)
def test_in_a_message(partner: PartnerSide, file: str, kind: str, encoding: str) -> None:
    head = b"--b\r\nContent-Type: application/vnd.eb+xml\r\n\r\n"
    body = head + document(kind, encoding, file) + b"\r\n--b--\r\n"
    arrival = replace(partner.message(1), content_type='multipart/related; boundary="b"', body=body)
    answer = post(arrival)
    assert answer.status_code == 400 and answer.content == b""
    assert_refused()


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("kind", TYPES)
def test_in_a_stream(file: str, kind: str, encoding: str) -> None:
    body = document(kind, encoding, file)
    answer = post_stream(replace(stream_side().message(1), content_type="text/xml", body=body))
    assert answer.status_code == 400 and SECRET.encode() not in answer.content
    assert_refused()


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("kind", TYPES)
def test_in_a_message_of_a_transaction(file: str, kind: str, encoding: str) -> None:
    one = peer()
    body = document(kind, encoding, file)
    answer = one.client.post("/ws-tx/registration", data=body, content_type="text/xml", headers=one.headers)
    assert 400 <= answer.status_code < 500 and SECRET.encode() not in answer.content
    assert_refused()


def assert_refused() -> None:
    """Refused for what it is, and nothing of a file is in what we keep."""
    rejection = Rejection.objects.get()
    assert rejection.reason in REASONS and SECRET not in rejection.detail
    assert not Message.objects.exists()
