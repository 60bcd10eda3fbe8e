"""Wake-ups: few, after the commit, and never a reason for anything to fail."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis
from django.db import transaction
from redis.backoff import NoBackoff
from redis.retry import Retry

from messaging import dispatch
from messaging.dispatch import SEND, WEBHOOKS, busy, taken, wake, wake_on_commit
from rmhub.celery import app

KEYS = [f"rmhub:wake:{task}" for task in (SEND, WEBHOOKS)]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Tasks that were published."""
    names: list[str] = []
    monkeypatch.setattr(app, "send_task", names.append)
    return names


@pytest.fixture
def broker(settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[redis.Redis]:
    """A database of the real broker that no worker listens to."""
    client = redis.Redis.from_url(settings.REDIS_URL.rpartition("/")[0] + "/13", socket_timeout=60)
    client.delete(*KEYS)
    monkeypatch.setattr(dispatch, "valkey", lambda: client)
    yield client
    client.delete(*KEYS)
    client.close()


@pytest.fixture(autouse=True)
def broker_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "_down_until", 0.0)


@pytest.fixture
def no_broker(settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    settings.REDIS_URL = f"redis://127.0.0.1:{port}/0"
    monkeypatch.setattr(dispatch, "_client", None)
    yield
    dispatch.valkey().close()


def test_threads_that_come_at_once_have_one_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is made and dropped closes, when it is collected, the connection that its thread still uses."""
    made: list[redis.Redis] = []
    make = redis.Redis.from_url
    late = threading.Barrier(8)

    def counted(url: str, **options) -> redis.Redis:
        made.append(make(url, **options))
        return made[-1]

    def first_use() -> redis.Redis:
        late.wait()
        return dispatch.valkey()

    monkeypatch.setattr(dispatch, "_client", None)
    monkeypatch.setattr(redis.Redis, "from_url", counted)
    with ThreadPoolExecutor(8) as pool:
        found = [one.result() for one in [pool.submit(first_use) for _ in range(8)]]
    assert len(made) == 1
    assert all(one is made[0] for one in found)
    made[0].close()


def test_many_wake_ups_are_one_until_a_worker_has_begun(broker: redis.Redis, sent: list[str]) -> None:
    for _ in range(100):
        wake(SEND)
    assert sent == [SEND]
    taken(SEND)
    wake(SEND)
    wake(SEND)
    assert sent == [SEND, SEND]


def test_each_task_is_woken_for_itself(broker: redis.Redis, sent: list[str]) -> None:
    wake(SEND)
    wake(WEBHOOKS)
    taken(WEBHOOKS)
    wake(SEND)
    wake(WEBHOOKS)
    assert sent == [SEND, WEBHOOKS, WEBHOOKS]


def test_a_worker_that_is_at_it_need_not_be_woken(broker: redis.Redis, sent: list[str]) -> None:
    busy(SEND)
    wake(SEND)
    assert sent == []
    taken(SEND)
    wake(SEND)
    assert sent == [SEND]


def test_a_flag_that_a_dead_worker_left_behind_goes_by_itself(broker: redis.Redis, sent: list[str]) -> None:
    wake(SEND)
    assert 0 < broker.pttl(KEYS[0]) <= 1000
    busy(SEND)
    assert 0 < broker.pttl(KEYS[0]) <= 1000


def test_a_broker_that_was_emptied_is_woken_again(broker: redis.Redis, sent: list[str]) -> None:
    wake(SEND)
    broker.delete(*KEYS)
    wake(SEND)
    assert sent == [SEND, SEND]


@pytest.mark.parametrize("call", [wake, busy, taken])
def test_without_a_broker_nothing_is_raised_and_it_is_tried_once(
    no_broker: None, sent: list[str], call, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []
    connect = dispatch.valkey
    monkeypatch.setattr(dispatch, "_PAUSE_SECONDS", 600)
    monkeypatch.setattr(dispatch, "valkey", lambda: tried.append(1) or connect())
    for _ in range(100):
        call(SEND)
    monkeypatch.undo()
    assert (sent, len(tried)) == ([], 1)


def test_a_broker_that_answers_nothing_is_waited_for_once(
    settings, sent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = redis.Redis(port=silent.getsockname()[1], socket_timeout=0.1, retry=Retry(NoBackoff(), 1))
        monkeypatch.setattr(dispatch, "valkey", lambda: client)
        monkeypatch.setattr(dispatch, "_PAUSE_SECONDS", 600)
        for _ in range(100):
            wake(SEND)
        client.close()
        silent.setblocking(False)
        for _ in range(2):  # a try, and one more at once
            silent.accept()[0].close()
        with pytest.raises(BlockingIOError):
            silent.accept()


def test_a_broker_that_comes_back_is_used_again(
    broker: redis.Redis, sent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "_down_until", time.monotonic() + 60)
    wake(SEND)
    assert sent == []
    monkeypatch.setattr(dispatch, "_down_until", time.monotonic())
    wake(SEND)
    assert sent == [SEND]


def test_a_broker_that_takes_no_task_is_no_reason_to_fail(broker: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(name: str) -> None:
        raise OSError("broken pipe")

    monkeypatch.setattr(app, "send_task", refused)
    wake(SEND)


@pytest.mark.django_db
def test_what_is_rolled_back_wakes_nobody(woken: list[str], django_capture_on_commit_callbacks) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        with pytest.raises(RuntimeError), transaction.atomic():
            wake_on_commit(SEND)
            raise RuntimeError
        with transaction.atomic():
            wake_on_commit(WEBHOOKS)
            assert woken == []
    assert woken == [WEBHOOKS]
