"""What an outage makes the hub's log say."""

from __future__ import annotations

import logging

import pytest
import redis
from django.db import OperationalError

from rmhub import logs


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, in its only element."""
    at = [1000.0]
    monkeypatch.setattr(logs.time, "monotonic", lambda: at[0])
    return at


def record(error: Exception | None = None, text: str = "sweep failed", **extra: str) -> logging.LogRecord:
    made = logging.LogRecord(
        "hub", logging.ERROR, __file__, 1, text, None, (type(error), error, None) if error else None
    )
    vars(made).update(extra)
    return made


def lines(said: logs.OncePerOutage, *records: logging.LogRecord) -> list[str]:
    return [logs.LineFormatter().format(one) for one in records if said.filter(one)]


def test_an_outage_is_one_line_a_minute_with_a_count(now: list[float]) -> None:
    said = logs.OncePerOutage()
    away = OperationalError("connection refused")
    first = lines(said, *(record(away) for _ in range(50)))
    assert len(first) == 1 and "OperationalError" in first[0]
    now[0] += 61
    [later] = lines(said, record(away), record(away))
    assert later.endswith("repeated=49 error=connection refused")


def test_each_kind_of_trouble_is_said(now: list[float]) -> None:
    said = logs.OncePerOutage()
    away = OperationalError("connection refused")
    assert len(lines(said, record(away), record(away, "claim failed"), record(redis.ConnectionError()))) == 3


def test_what_others_make_of_it_is_the_same_trouble(now: list[float]) -> None:
    """Beat wraps the broker's error in one of its own, five times a second."""
    said = logs.OncePerOutage()

    def wrapped() -> RuntimeError:
        try:
            try:
                raise redis.ConnectionError("refused")
            except redis.ConnectionError:
                raise RuntimeError("Couldn't apply scheduled task")  # noqa: B904
        except RuntimeError as error:
            return error

    assert len(lines(said, *(record(wrapped()) for _ in range(5)))) == 1


def test_mistakes_of_ours_are_said_each_time(now: list[float]) -> None:
    said = logs.OncePerOutage()
    assert len(lines(said, *(record(ValueError("no")) for _ in range(5)), *(record() for _ in range(5)))) == 10


def test_a_broker_that_is_away_is_one_line_too(now: list[float]) -> None:
    said = logs.OncePerOutage()
    assert len(lines(said, *(record(None, "wake-up not sent", action="wake_failed") for _ in range(5)))) == 1
