"""Payloads in a bucket, on a real server of S3: the promises of a folder, without its locks."""

from __future__ import annotations

import errno
import hashlib
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from django.core.management import call_command

from messaging import storage
from messaging.archive.services import purging
from messaging.engine import memory as hub_memory
from messaging.models import Payload
from messaging.overview.doctor import machine
from messaging.overview.doctor.check import State
from messaging.overview.selectors import health
from messaging.storage import PayloadMissing, StoreUnavailable, base
from messaging.storage.objects import Objects
from rmhub import clock
from rmhub.env import Bucket
from tests import buckets
from tests.messaging.factories import partner_side, submit
from tests.messaging.http_server import serving

SMALL, LARGE = b"x" * 100, b"y" * 101
DIGEST = hashlib.sha256(LARGE).hexdigest()


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with buckets.server() as found:
        yield found


@pytest.fixture
def s3(endpoint: str) -> Any:
    return buckets.client(endpoint)


@pytest.fixture(autouse=True)
def bucket(endpoint: str, settings: Any) -> Bucket:
    found = buckets.new_bucket(endpoint)
    settings.RMHUB_STORE_URL = found
    settings.RMHUB_STORE_ACCESS_KEY, settings.RMHUB_STORE_SECRET_KEY = buckets.KEY, buckets.SECRET
    settings.RMHUB_INLINE_PAYLOAD_BYTES = 100
    return found


def keys(s3: Any, bucket: Bucket) -> list[str]:
    return [one["Key"] for one in s3.list_objects_v2(Bucket=bucket.name).get("Contents", ())]


@contextmanager
def grown_old(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Everything is as old as can be: nobody can set the age of an object, so what is called old is moved."""
    with monkeypatch.context() as patched:
        patched.setattr(base, "YOUNG_SECONDS", -2.0)
        yield


def test_small_payloads_are_no_objects(s3: Any, bucket: Bucket) -> None:
    assert storage.keep(SMALL).content == SMALL
    assert keys(s3, bucket) == []


def test_large_payloads_are_objects_below_the_prefix_that_are_named_by_their_digest(s3: Any, bucket: Bucket) -> None:
    kept = storage.keep(LARGE)
    assert (kept.size, kept.sha256, kept.content) == (101, DIGEST, None)
    assert kept.stored_as.startswith(f"{DIGEST[:2]}/{DIGEST}.")
    assert len(kept.stored_as) <= Payload._meta.get_field("stored_as").max_length
    assert keys(s3, bucket) == [f"payloads/{kept.stored_as}"]
    assert storage.load(None, kept.stored_as) == LARGE


def test_the_same_bytes_are_put_once_while_they_are_young(
    s3: Any, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = storage.keep(LARGE)
    assert storage.keep(LARGE) == first
    with grown_old(monkeypatch):
        second = storage.keep(LARGE)
    assert second.stored_as != first.stored_as and len(keys(s3, bucket)) == 2
    assert storage.load(None, second.stored_as) == LARGE


def test_files_that_were_copied_from_a_folder_are_found(s3: Any, bucket: Bucket) -> None:
    name = f"{DIGEST[:2]}/{DIGEST}"
    s3.put_object(Bucket=bucket.name, Key=f"payloads/{name}", Body=LARGE)
    assert storage.load(None, name) == LARGE
    assert storage.keep(LARGE).stored_as == name


@pytest.mark.parametrize("damage", [b"", LARGE[:-1], b"z" * 101])
def test_other_bytes_under_its_name_are_never_taken_for_the_payload(s3: Any, bucket: Bucket, damage: bytes) -> None:
    kept = storage.keep(LARGE)
    s3.put_object(Bucket=bucket.name, Key=f"payloads/{kept.stored_as}", Body=damage)
    with pytest.raises(PayloadMissing, match="damaged"):
        storage.load(None, kept.stored_as)


def test_a_missing_object_says_which(s3: Any, bucket: Bucket) -> None:
    kept = storage.keep(LARGE)
    s3.delete_object(Bucket=bucket.name, Key=f"payloads/{kept.stored_as}")
    with pytest.raises(PayloadMissing, match=kept.stored_as):
        storage.load(None, kept.stored_as)


def test_a_bucket_that_is_not_there_is_no_missing_object(settings: Any, bucket: Bucket) -> None:
    kept = storage.keep(LARGE)
    settings.RMHUB_STORE_URL = replace(bucket, name="another-one")
    for ask in (lambda: storage.load(None, kept.stored_as), lambda: storage.keep(LARGE)):
        with pytest.raises(StoreUnavailable) as raised:
            ask()
        assert raised.value.errno == errno.ENOENT and not raised.value.full
    with pytest.raises(StoreUnavailable):
        storage.missing([kept.stored_as])
    assert "NoSuchBucket" in storage.room().error


def test_a_server_that_is_away_is_no_missing_object(settings: Any, bucket: Bucket) -> None:
    kept = storage.keep(LARGE)
    with socket.socket() as taken:  # nobody listens on it
        taken.bind(("127.0.0.1", 0))
        settings.RMHUB_STORE_URL = replace(bucket, endpoint=f"http://127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(StoreUnavailable):
            storage.load(None, kept.stored_as)
        with pytest.raises(StoreUnavailable):
            storage.keep(LARGE)
        room = storage.room()
        assert room.error and not room.full


@pytest.mark.parametrize(
    ("status", "code", "full"),
    [(403, "AccessDenied", False), (403, "QuotaExceeded", True), (507, "XMinioStorageFull", True)],
)
def test_what_the_server_refuses(settings: Any, bucket: Bucket, status: int, code: str, full: bool) -> None:
    body = f"<Error><Code>{code}</Code><Message>Not now</Message></Error>".encode()
    with answering(status, body) as endpoint:
        settings.RMHUB_STORE_URL = replace(bucket, endpoint=endpoint)
        with pytest.raises(StoreUnavailable) as raised:
            storage.keep(LARGE)
        assert raised.value.full is full and "Not now" in str(raised.value)
        assert storage.room().full is full
        health.forget()
        part = health.store_part()
        assert part.state is health.PartState.DOWN
        assert ("is full" if full else "cannot be written") in part.detail
    health.forget()


def test_an_answer_that_breaks_off_is_no_damage(settings: Any, bucket: Bucket) -> None:
    with answering(200, LARGE, declared=200) as endpoint:
        settings.RMHUB_STORE_URL = replace(bucket, endpoint=endpoint)
        with pytest.raises(StoreUnavailable):
            storage.load(None, f"{DIGEST[:2]}/{DIGEST}")


@contextmanager
def answering(status: int, body: bytes, *, declared: int | None = None) -> Iterator[str]:
    """A server that has one answer for everything."""
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {declared or len(body)}\r\nConnection: close\r\n\r\n".encode()

    def answer(connection: socket.socket) -> None:
        with connection.makefile("rb") as read:
            length = 0
            while (line := read.readline()) not in (b"\r\n", b""):
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
                if line.lower().startswith(b"expect:"):
                    connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            read.read(length)
            connection.sendall(head + body)

    with serving(answer) as server:
        yield f"http://127.0.0.1:{server.port}"


def test_room_is_seen_by_a_write_that_leaves_nothing(s3: Any, bucket: Bucket) -> None:
    assert storage.room() == storage.Room("", False, None)
    assert keys(s3, bucket) == []
    health.forget()
    assert health.store_part().state is health.PartState.OK, "how much is free is not known"


def test_young_and_named_objects_stay(s3: Any, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    name = storage.keep(LARGE).stored_as
    assert not storage.remove(name, lambda: False), "too young"
    with grown_old(monkeypatch):
        assert not storage.remove(name, lambda: True), "named"
        assert storage.remove(name, lambda: False)
        assert storage.remove(name, lambda: False), "gone already"
    assert keys(s3, bucket) == []


def test_of_keeping_and_removing_at_once_the_bytes_survive(
    s3: Any, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever keeps while somebody removes gets an object of its own, and nobody waits."""
    old = storage.keep(LARGE).stored_as
    kept: list[str] = []

    def is_named() -> bool:
        kept.append(storage.keep(LARGE).stored_as)
        return False

    with grown_old(monkeypatch):
        assert storage.remove(old, is_named)
    assert kept != [old]
    assert storage.load(None, kept[0]) == LARGE


@pytest.mark.django_db
def test_objects_that_no_row_names_are_swept(s3: Any, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    storage.keep(LARGE)
    s3.put_object(Bucket=bucket.name, Key="payloads/.probe-0123", Body=b"")
    hub_memory.check(clock.now())
    s3.put_object(Bucket=bucket.name, Key="of-somebody-else/ab/cd", Body=b"")
    assert sum(purging.sweep_files()) == 0, "too young"
    with grown_old(monkeypatch):
        assert sum(purging.sweep_files()) == 2
    assert keys(s3, bucket) == ["of-somebody-else/ab/cd", f"payloads/{hub_memory.FILE}"]


def test_what_is_missing_is_found(s3: Any, bucket: Bucket) -> None:
    names = [storage.keep(bytes([number]) * 200).stored_as for number in range(5)]
    s3.delete_object(Bucket=bucket.name, Key=f"payloads/{names[3]}")
    assert storage.missing(names) == [names[3]]


@pytest.mark.django_db
def test_the_memory_is_noted_in_the_bucket_and_another_bucket_is_noticed(
    settings: Any, bucket: Bucket, endpoint: str
) -> None:
    first = hub_memory.check(clock.now())
    assert hub_memory.check(clock.now()).epoch == first.epoch
    settings.RMHUB_STORE_URL = buckets.new_bucket(endpoint)
    again = hub_memory.check(clock.now())
    assert again.epoch != first.epoch and "are not those that belong together" in again.reason


@pytest.mark.django_db
def test_after_a_restore_the_objects_that_are_missing_are_counted(
    s3: Any, bucket: Bucket, capsys: pytest.CaptureFixture[str]
) -> None:
    partner = partner_side()
    submit(partner, LARGE)
    submit(partner, b"z" * 500)
    call_command("after_restore")
    assert "the store has the file of every large payload" in capsys.readouterr().out
    name = Payload.objects.get(size=101).stored_as
    s3.delete_object(Bucket=bucket.name, Key=f"payloads/{name}")
    call_command("after_restore")
    assert f"1 payload files are missing from the store, such as {name}" in capsys.readouterr().out


def test_the_doctor_looks_at_the_bucket(s3: Any, bucket: Bucket, settings: Any) -> None:
    health.forget()
    assert [(one.state, one.text) for one in machine.store()] == [(State.OK, f"{bucket.shown} takes and lists objects")]
    rule = {"ID": "tidy", "Status": "Enabled", "Filter": {"Prefix": "payloads/"}, "Expiration": {"Days": 30}}
    s3.put_bucket_lifecycle_configuration(Bucket=bucket.name, LifecycleConfiguration={"Rules": [rule]})
    [found] = machine.store()
    assert found.state is State.FAILED and "the rule tidy removes objects" in found.text
    settings.RMHUB_STORE_URL = replace(bucket, name="another-one")
    health.forget()
    [found] = machine.store()
    assert found.state is State.FAILED and "NoSuchBucket" in found.text
    health.forget()


def test_keys_are_not_shown() -> None:
    shown = repr(Objects(Bucket("a-bucket", "", "", ""), "key", "the-secret"))
    assert "the-secret" not in shown
