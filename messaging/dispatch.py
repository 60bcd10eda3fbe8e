"""Wakes workers, after the commit and by task name. Losing a wake-up loses nothing: the sweep finds what is due."""

from __future__ import annotations

import logging
import threading
import time

import redis
from django.conf import settings
from django.db import transaction
from redis.backoff import NoBackoff
from redis.retry import Retry

from rmhub import broker
from rmhub.celery import app

log = logging.getLogger(__name__)

SEND = "messaging.send_due"
DELIVER = "messaging.deliver_due"
WEBHOOKS = "messaging.webhooks_due"
JOBS = "messaging.jobs_due"
POLLERS = "messaging.pollers_due"
TRANSACTIONS = "messaging.transactions_due"
MONITORS = "messaging.monitors_due"
TRAFFIC = "messaging.traffic_due"
NOTIFICATIONS = "messaging.notifications_due"
SEAL = "messaging.audit_seal"

# While this key stands, a wake-up of that task is on its way and another would find nothing more to do.
_FLAG_MILLISECONDS = 1000
# A broker that fails is left alone for so long: whoever stores or accepts a message must not wait for it each time.
_PAUSE_SECONDS = 1.0
_down_until = 0.0  # monotonic


_client: redis.Redis | None = None
_making = threading.Lock()


def valkey() -> redis.Redis:
    """The client that all threads share. Of two, the one that is dropped would close connections that are in use."""
    global _client
    with _making:
        if _client is None:
            # One more try at once, for a connection that the broker closed meanwhile; the client's own default is
            # three with seconds in between.
            _client = broker.client(
                settings.REDIS_URL, socket_timeout=1, socket_connect_timeout=1, retry=Retry(NoBackoff(), 1)
            )
        return _client


def is_down() -> bool:
    """Whether the broker failed a moment ago and is left alone."""
    return time.monotonic() < _down_until


def failed(what: str, task: str, error: Exception) -> None:
    """Logs it, and leaves the broker alone for a moment."""
    global _down_until
    _down_until = time.monotonic() + _PAUSE_SECONDS
    log.warning(what, extra={"action": "wake_failed", "task": task, "error": broker.said(error)[:200]})


def wake(task: str) -> None:
    """Publishes one wake-up, unless one is pending. Never raises: without a broker the sweep does the work."""
    if is_down():
        return
    try:
        if valkey().set(f"rmhub:wake:{task}", 1, nx=True, px=_FLAG_MILLISECONDS):
            app.send_task(task)
    except Exception as error:
        # Whatever the broker's trouble is, the work is committed and stays due.
        failed("wake-up not sent", task, error)


def wake_on_commit(task: str) -> None:
    """`wake`, once the present transaction is committed (at once outside of one)."""
    transaction.on_commit(lambda: wake(task))


def count(key: str, seconds: int) -> int | None:
    """Adds one to a counter that lives for so many seconds, and says what it is now; None without Valkey."""
    if is_down():
        return None
    try:
        with valkey().pipeline(transaction=False) as together:
            together.incr(key)
            together.expire(key, seconds)
            found, _ = together.execute()
        return int(found)
    except redis.RedisError as error:
        failed("request not counted", key.rpartition(":")[0], error)
        return None


def busy(task: str) -> None:
    """A worker is at it and finds what becomes due by itself: keeps wake-ups away for a moment. Never raises."""
    if is_down():
        return
    try:
        valkey().set(f"rmhub:wake:{task}", 1, px=_FLAG_MILLISECONDS)
    except redis.RedisError as error:
        failed("wake flag not set", task, error)


def taken(task: str) -> None:
    """A worker has begun: what becomes due from now on needs a new wake-up. Never raises."""
    if is_down():
        return
    try:
        valkey().delete(f"rmhub:wake:{task}")
    except redis.RedisError as error:
        failed("wake flag not cleared", task, error)
