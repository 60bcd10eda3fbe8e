"""A payload store that takes nothing: the partner is told to come later, and what it repeats is taken once."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from messaging import storage
from messaging.entrance import reading
from messaging.models import Message, Rejection, RememberedRequest, Signal
from partners.choices import ExchangeMode
from rmhub import clock
from tests.messaging.entrance.mail.conftest import one_connection
from tests.messaging.entrance.mail.partners import client, mail_of, mail_partner, options
from tests.messaging.entrance.mail.servers import entrance_running
from tests.messaging.factories import partner_side
from tests.messaging.profiles.repeatable.callers import T, application, caller, remembering_since, result
from tests.messaging.profiles.stream.partner import stream_side
from tests.messaging.profiles.stream.received import post as post_stream
from tests.messaging.wire import post

__all__ = ["one_connection"]
pytestmark = pytest.mark.django_db


class Disk:
    """The disk of the payload store; while it is full, nothing is written to it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._monkeypatch = monkeypatch
        self._written = os.fsync

    def fill(self) -> None:
        def refuses(handle: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        self._monkeypatch.setattr(storage.os, "fsync", refuses)

    def empty(self) -> None:
        self._monkeypatch.setattr(storage.os, "fsync", self._written)

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

    monkeypatch.setattr(storage.os, "fsync", refuses)
    answer = post(message)
    assert (answer.status_code, answer["Retry-After"], answer.content) == (503, str(reading.SOON), b"")
    assert not Message.objects.exists() and not Signal.objects.exists() and not Rejection.objects.exists()
    assert partner.inbound.last_sequence == 0
    assert not list(tmp_path.rglob(".incoming-*"))
    monkeypatch.setattr(storage.os, "fsync", written)
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
