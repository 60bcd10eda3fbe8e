"""Wake-ups: few, after the commit, and never a reason for anything to fail."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
import redis
from django.db import transaction

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
    client = redis.Redis.from_url(settings.REDIS_URL.rpartition("/")[0] + "/13", socket_timeout=2)
    client.delete(*KEYS)
    monkeypatch.setattr(dispatch, "_redis", lambda: client)
    yield client
    client.delete(*KEYS)
    client.close()


@pytest.fixture
def no_broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    client = redis.Redis(port=port, socket_timeout=1, socket_connect_timeout=1)
    monkeypatch.setattr(dispatch, "_redis", lambda: client)
    yield
    client.close()


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


def test_without_a_broker_nothing_is_raised(no_broker: None, sent: list[str]) -> None:
    wake(SEND)
    busy(SEND)
    taken(SEND)
    assert sent == []


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
