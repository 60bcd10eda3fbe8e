"""Wakes workers, after the commit and by task name. Losing a wake-up loses nothing: the sweep finds what is due."""

from __future__ import annotations

import logging
from functools import cache

import redis
from django.conf import settings
from django.db import transaction

from rmhub.celery import app

log = logging.getLogger(__name__)

SEND = "messaging.send_due"
WEBHOOKS = "messaging.webhooks_due"

# While this key stands, a wake-up of that task is on its way and another would find nothing more to do.
_FLAG_MILLISECONDS = 1000


@cache
def _redis() -> redis.Redis:
    return redis.Redis.from_url(settings.REDIS_URL, socket_timeout=2, socket_connect_timeout=2)


def wake(task: str) -> None:
    """Publishes one wake-up, unless one is pending. Never raises: without a broker the sweep does the work."""
    try:
        if _redis().set(f"rmhub:wake:{task}", 1, nx=True, px=_FLAG_MILLISECONDS):
            app.send_task(task)
    except Exception as error:
        # Whatever the broker's trouble is, the work is committed and stays due.
        log.warning("wake-up not sent", extra={"action": "wake_failed", "task": task, "error": str(error)[:200]})


def wake_on_commit(task: str) -> None:
    """`wake`, once the present transaction is committed (at once outside of one)."""
    transaction.on_commit(lambda: wake(task))


def busy(task: str) -> None:
    """A worker is at it and finds what becomes due by itself: keeps wake-ups away for a moment. Never raises."""
    try:
        _redis().set(f"rmhub:wake:{task}", 1, px=_FLAG_MILLISECONDS)
    except redis.RedisError as error:
        log.warning("wake flag not set", extra={"action": "wake_failed", "task": task, "error": str(error)[:200]})


def taken(task: str) -> None:
    """A worker has begun: what becomes due from now on needs a new wake-up. Never raises."""
    try:
        _redis().delete(f"rmhub:wake:{task}")
    except redis.RedisError as error:
        log.warning("wake flag not cleared", extra={"action": "wake_failed", "task": task, "error": str(error)[:200]})
