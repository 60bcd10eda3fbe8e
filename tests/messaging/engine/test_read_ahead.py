"""No claim waits for the store: what lies there is read between two claims, while the pair's row is free."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import IO, Any

import pytest
from django.db import connection, transaction

from messaging import read_ahead
from messaging.engine.claiming import claim_due
from messaging.engine.recording import record
from messaging.journal.audit import Actor
from messaging.models import Message, Pair, Payload
from messaging.pairs.services import operating
from messaging.read_ahead import Reader
from messaging.storage import StoreUnavailable
from messaging.storage.folder import Folder
from rmhub import clock
from tests.messaging.factories import LOST, decoded, partner_side, submit

WAIT = 60.0
LARGE = b"<Order>" + b"x" * 2000 + b"</Order>"

pytestmark = pytest.mark.django_db(transaction=True)


@dataclass
class Store:
    """A folder whose files cannot be opened yet."""

    asked: threading.Event = field(default_factory=threading.Event)
    opened: threading.Event = field(default_factory=threading.Event)


@pytest.fixture
def store(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    settings.RMHUB_INLINE_PAYLOAD_BYTES = 1000
    store, really = Store(), Folder.open

    def slowly(self: Folder, name: str) -> IO[bytes]:
        store.asked.set()
        assert store.opened.wait(WAIT)
        return really(self, name)

    monkeypatch.setattr(Folder, "open", slowly)
    yield store
    store.opened.set()


@pytest.fixture
def read() -> threading.Event:
    return threading.Event()


@pytest.fixture
def reader(read: threading.Event, store: Store) -> Iterator[Reader]:
    reader = Reader(done=read.set)
    yield reader
    store.opened.set()
    reader.close()


@contextmanager
def elsewhere(call: Callable[[], Any]) -> Iterator[Any]:
    """The result of something that runs in another thread, with a connection of its own."""

    def run() -> Any:
        try:
            return call()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as thread:
        yield thread.submit(run)


def is_free(message: Message) -> bool:
    """Whether the rows of a message and its pair can be locked; raises if not."""
    with transaction.atomic():
        Pair.objects.select_for_update(nowait=True).get(pk=message.pair_id)
        Message.objects.select_for_update(nowait=True).get(pk=message.pk)
    return True


def again_due(message: Message) -> None:
    """It is time for it to go out again."""
    past = clock.now() - timedelta(seconds=1)
    Pair.objects.filter(pk=message.pair_id).update(due_at=past)
    Message.objects.filter(pk=message.pk, due_at__isnull=False).update(due_at=past)


@pytest.mark.parametrize("profile", ["ebxml", "stream", "repeatable"])
def test_while_a_payload_is_read_its_pair_is_not_locked(store: Store, profile: str) -> None:
    message = submit(partner_side(profile=profile), LARGE)
    octets = []
    for _ in ("first", "again"):
        with elsewhere(lambda: claim_due(limit=10)) as claimed:
            assert store.asked.wait(WAIT)
            assert is_free(message)
            store.opened.set()
            [job] = claimed.result(WAIT)
        octets.append(job.parcel.octets)
        record([(job, LOST)])
        store.asked.clear()
        store.opened.clear()
        again_due(message)
    message.refresh_from_db()
    assert message.attempts == 2
    assert LARGE in octets[0] and octets[0] == octets[1], "the same octets each time (invariant 3)"


def test_what_is_sent_once_does_not_wait_for_the_store_under_a_lock_either(store: Store) -> None:
    message = submit(partner_side(), LARGE, semantics="BestEffort")
    with elsewhere(lambda: claim_due(limit=10)) as claimed:
        assert store.asked.wait(WAIT)
        assert is_free(message)
        store.opened.set()
        [job] = claimed.result(WAIT)
    assert LARGE in job.parcel.octets


def test_a_worker_goes_on_with_others_while_it_reads(store: Store, reader: Reader, read: threading.Event) -> None:
    large, small = submit(partner_side(), LARGE), submit(partner_side(), b"<small/>")
    assert [job.message_id for job in claim_due(limit=10, reader=reader)] == [small.pk]
    assert store.asked.wait(WAIT)
    assert claim_due(limit=10, reader=reader) == [] and is_free(large)
    large.refresh_from_db()
    assert (large.state, large.sequence_number, large.attempts) == ("queued", None, 0)
    store.opened.set()
    assert read.wait(WAIT)
    [job] = claim_due(limit=10, reader=reader)
    assert job.message_id == large.pk and LARGE in job.parcel.octets
    large.refresh_from_db()
    assert (large.state, large.sequence_number, large.digest != "") == ("sending", 1, True)


def test_a_store_that_is_away_keeps_nobody_else_waiting(
    store: Store, reader: Reader, read: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as away:

        def refuse(self: Folder, name: str) -> IO[bytes]:
            raise StoreUnavailable(5, "away")

        away.setattr(Folder, "open", refuse)
        message = submit(partner_side(), LARGE)
        assert claim_due(limit=10, reader=reader) == []
        assert read.wait(WAIT)
        other = submit(partner_side(), b"<small/>")
        assert [job.message_id for job in claim_due(limit=10, reader=reader)] == [other.pk]
    message.refresh_from_db()
    assert (message.state, message.pair.flow) == ("queued", "idle"), "nothing is known about its file"
    store.opened.set()
    read.clear()
    assert claim_due(limit=10, reader=reader) == [] and not store.asked.is_set(), "it is left alone for a while"
    monkeypatch.setattr(read_ahead, "AGAIN_SECONDS", 0.0)
    assert claim_due(limit=10, reader=reader) == []
    assert read.wait(WAIT)
    assert [job.message_id for job in claim_due(limit=10, reader=reader)] == [message.pk]


def test_a_number_that_was_taken_meanwhile_is_not_used_twice(
    store: Store, reader: Reader, read: threading.Event
) -> None:
    """The octets hold their number, so they are made again when the message has come to another place."""
    partner = partner_side()
    first = submit(partner, LARGE)
    assert claim_due(limit=10, reader=reader) == []
    store.opened.set()
    assert read.wait(WAIT)
    Pair.objects.filter(pk=first.pair_id).update(last_sequence=7)
    read.clear()
    assert claim_due(limit=10, reader=reader) == []
    assert read.wait(WAIT)
    [job] = claim_due(limit=10, reader=reader)
    assert decoded(job.parcel).hop.sequence_number == 8


def test_a_missing_file_is_known_from_the_reading_and_looked_for_again_once_it_is_back(
    store: Store, reader: Reader, read: threading.Event, settings: Any
) -> None:
    partner = partner_side()
    message = submit(partner, LARGE)
    path = settings.RMHUB_STORE_DIR / Payload.objects.get(message=message).stored_as
    path.rename(path.with_suffix(".away"))
    store.opened.set()
    assert claim_due(limit=10, reader=reader) == []
    assert read.wait(WAIT)
    assert claim_due(limit=10, reader=reader) == []
    assert (partner.outbound.flow, partner.outbound.cause) == ("suspended", "payload_missing")
    path.with_suffix(".away").rename(path)
    operating.pair_resume(pair_id=message.pair_id, actor=Actor("ann"), reason="It is back.")
    read.clear()
    assert claim_due(limit=10, reader=reader) == []
    assert read.wait(WAIT)
    assert [job.message_id for job in claim_due(limit=10, reader=reader)] == [message.pk]
