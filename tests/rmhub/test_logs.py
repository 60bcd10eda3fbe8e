"""What the hub's log says, in which form, and how often."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
import redis
from django.db import OperationalError

from rmhub import logs
from rmhub.hubs import BASE


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, in its only element."""
    at = [1000.0]
    monkeypatch.setattr(logs.time, "monotonic", lambda: at[0])
    return at


def record(error: Exception | None = None, text: str = "sweep failed", **extra: str) -> logging.LogRecord:
    made = logging.LogRecord(
        "hub", logging.ERROR, __file__, 1, text, None, (type(error), error, error.__traceback__) if error else None
    )
    vars(made).update(extra)
    return made


def lines(said: logs.OnceAMinute, *records: logging.LogRecord) -> list[str]:
    return [logs.LineFormatter().format(one) for one in records if said.filter(one)]


def test_an_outage_is_one_line_a_minute_with_a_count(now: list[float]) -> None:
    said = logs.OnceAMinute()
    away = OperationalError("connection refused")
    first = lines(said, *(record(away) for _ in range(50)))
    assert len(first) == 1 and "OperationalError" in first[0]
    now[0] += 61
    [later] = lines(said, record(away), record(away))
    assert later.endswith("repeated=49 error=connection refused")


def test_each_kind_of_trouble_is_said(now: list[float]) -> None:
    said = logs.OnceAMinute()
    away = OperationalError("connection refused")
    assert len(lines(said, record(away), record(away, "claim failed"), record(redis.ConnectionError()))) == 3


def test_what_others_make_of_it_is_the_same_trouble(now: list[float]) -> None:
    """Beat wraps the broker's error in one of its own, five times a second."""
    said = logs.OnceAMinute()

    def wrapped() -> RuntimeError:
        try:
            try:
                raise redis.ConnectionError("refused")
            except redis.ConnectionError:
                raise RuntimeError("Couldn't apply scheduled task")  # noqa: B904
        except RuntimeError as error:
            return error

    assert len(lines(said, *(record(wrapped()) for _ in range(5)))) == 1


def raised(text: str, deeper: bool = False) -> ValueError:
    def fail() -> None:
        raise ValueError(text)

    try:
        if deeper:
            fail()
        raise ValueError(text)
    except ValueError as error:
        return error


def test_of_mistakes_of_ours_each_line_is_said_and_each_traceback_once_a_minute(now: list[float]) -> None:
    said = logs.OnceAMinute()
    found = [line for number in range(5) for line in lines(said, record(raised(f"no {number}"), "failed", job="j1"))]
    assert ["Traceback" in line for line in found] == [True, False, False, False, False]
    assert found[4].endswith("failed job=j1 error=ValueError: no 4")
    [elsewhere] = lines(said, record(raised("no", deeper=True), "failed"))
    assert "Traceback" in elsewhere, "another place is another mistake"
    now[0] += 61
    [later] = lines(said, record(raised("no"), "failed"))
    assert "repeated=4" in later and "Traceback" in later
    assert len(lines(said, *(record(None, "refused") for _ in range(5)))) == 5, "what is no traceback is no repeat"


def test_tracebacks_without_end_are_not_remembered_without_end(
    now: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_KNOWN", 10)
    said = logs.OnceAMinute()
    lines(said, *(record(raised("no"), f"failed {number}") for number in range(50)))
    assert len(said._said) == 10
    now[0] += 61
    lines(said, *(record(raised("no"), "failed") for _ in range(2)))
    assert len(said._said) == 1


def test_a_broker_that_is_away_is_one_line_too(now: list[float]) -> None:
    said = logs.OnceAMinute()
    assert len(lines(said, *(record(None, "wake-up not sent", action="wake_failed") for _ in range(5)))) == 1


# ---- forms


def test_json_is_one_object_a_line_with_all_that_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    made = record(raised("no\nmore"), "not %s", action="x", count=3, level="mine", key=uuid.UUID(int=7))
    made.args, made.created = ("done",), 1_772_366_400.25
    with logs.about(request_id="req_1", message_id="msg_1"), logs.about(message_id="msg_2"):
        line = logs.JsonFormatter().format(made)
    assert "\n" not in line
    found = json.loads(line)
    assert found.pop("exception").endswith("ValueError: no\nmore")
    assert found == {
        "time": "2026-03-01T12:00:00.250Z",
        "level": "ERROR",
        "logger": "hub",
        "message": "not done",
        "request_id": "req_1",
        "message_id": "msg_2",
        "action": "x",
        "count": 3,
        "level_": "mine",
        "key": "00000000-0000-0000-0000-000000000007",
    }
    assert "request_id" not in json.loads(logs.JsonFormatter().format(record()))
    assert "exception" not in json.loads(logs.BriefJsonFormatter().format(made))


def test_no_value_of_a_stranger_begins_a_line_of_its_own() -> None:
    line = logs.LineFormatter().format(record(None, "refused", path="/x\n2026-01-01T00:00:00.000Z INFO hub: well"))
    assert "\n" not in line and "path=/x\\x0a2026" in line


def test_the_processes_of_a_hub_log_in_json(tmp_path: Path) -> None:
    """Beat, without a broker: the lines of its libraries too."""
    environment = {
        **os.environ,
        **{"DJANGO_SETTINGS_MODULE": "rmhub.settings", "RMHUB_LOG_FORMAT": "json", "RMHUB_VAR": str(tmp_path)},
        **{"REDIS_URL": "redis://127.0.0.1:1/0", "DATABASE_URL": "postgresql://rmhub@127.0.0.1:1/rmhub"},
        "RMHUB_LOG_LEVEL": "INFO",
    }
    (tmp_path / "run").mkdir()
    command = [sys.executable, "-m", "celery", "-q", "-A", "rmhub", "beat", "-l", "warning"]
    with subprocess.Popen(command, cwd=BASE, env=environment, stderr=subprocess.PIPE, text=True) as beat:
        assert beat.stderr is not None
        said = json.loads(beat.stderr.readline())
        beat.kill()
    assert said["logger"].startswith(("celery", "kombu")) and said.keys() >= {"time", "level", "message"}
