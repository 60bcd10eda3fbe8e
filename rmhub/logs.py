"""Log lines that a person reads and a machine splits: time, level, logger, text, key=value; or as JSON."""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import psycopg
import redis
from django.db import InterfaceError, OperationalError

_STANDARD = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "request", "status_code", "data"}
# What an outage of the database or the broker makes everybody say again and again.
_AWAY = (
    *(OperationalError, InterfaceError, psycopg.OperationalError, psycopg.InterfaceError),
    *(redis.ConnectionError, redis.TimeoutError),
)
_ACTIONS = frozenset({"wake_failed", "record_waits", "spans_not_taken"})
_MINUTE = 60.0
_KNOWN = 1000  # tracebacks that are remembered
_CONTROLS = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")
_about: ContextVar[Mapping[str, str]] = ContextVar("about", default=MappingProxyType({}))


@contextmanager
def about(**named: str) -> Iterator[None]:
    """Say in each line that is logged inside the block what it is about, such as `request_id`."""
    token = _about.set({**_about.get(), **named})
    try:
        yield
    finally:
        _about.reset(token)


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    """What the caller has added to the text, and what the line is about; never payloads, never secrets (callers see to
    that).
    """
    own = {k: v for k, v in vars(record).items() if k not in _STANDARD and not k.startswith("_")}
    if not own.get("repeated", True):
        del own["repeated"]
    return {**_about.get(), **own}


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


class LineFormatter(logging.Formatter):
    """Appends the record's `extra` as key=value. A value has no line break: strangers give some of them."""

    def format(self, record: logging.LogRecord) -> str:
        extra = "".join(f" {k}={_CONTROLS.sub(_escaped, str(v))}" for k, v in _extra(record).items())
        line = f"{_time(record)} {record.levelname} {record.name}: {record.getMessage()}{extra}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def _escaped(found: re.Match[str]) -> str:
    return f"\\x{ord(found[0]):02x}"


class OneLineFormatter(LineFormatter):
    """The same without a traceback: for what strangers cause at will, such as a Host header that is not ours."""

    def format(self, record: logging.LogRecord) -> str:
        return super().format(_brief(record)).replace("\n", " ")


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, the record's `extra`, and an exception as one text."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        for key, value in _extra(record).items():
            line[f"{key}_" if key in line else key] = value
        return json.dumps(line, default=str)


class BriefJsonFormatter(JsonFormatter):
    """The same without a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        return super().format(_brief(record))


def _brief(record: logging.LogRecord) -> logging.LogRecord:
    return logging.makeLogRecord({**vars(record), "exc_info": None, "exc_text": None})


class OnceAMinute(logging.Filter):
    """Lets one line a minute through of what is said because database, broker or collector are away, and one traceback
    a minute of what is raised at one place for any other reason: of that each line is said, for each is about something
    else.

    The next one carries `repeated=n`: so many more were left out since the last. Of an outage only the first has its
    traceback.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._said: dict[tuple[object, ...], tuple[float, int]] = {}  # when, and how many were left out since

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if _is_away(error) or getattr(record, "action", "") in _ACTIONS:
            left_out = self._left_out((record.name, record.msg, type(error)))
            if left_out is None:
                return False
            record.repeated = left_out
            if left_out and error is not None:
                _without_traceback(record, str(error).strip())
        elif error is not None:
            left_out = self._left_out((record.name, record.msg, *_places(error)))
            if left_out is None:
                _without_traceback(record, f"{type(error).__name__}: {error}")
            record.repeated = left_out
        return True

    def _left_out(self, key: tuple[object, ...]) -> int | None:
        """How many of these were left out before this one; None when this one is to be left out too."""
        now = time.monotonic()
        with self._lock:
            at, left_out = self._said.get(key, (None, 0))
            if at is not None and now - at < _MINUTE:
                self._said[key] = (at, left_out + 1)
                return None
            if len(self._said) >= _KNOWN:
                self._said = {one: seen for one, seen in self._said.items() if now - seen[0] < _MINUTE}
            if len(self._said) < _KNOWN:
                self._said[key] = (now, 0)
        return left_out


def _places(error: BaseException) -> Iterator[object]:
    """What the same traceback has in common: the kinds of the errors, and the lines that raised them."""
    found: BaseException | None = error
    while found is not None:
        yield type(found)
        step = found.__traceback__
        while step is not None:
            yield step.tb_frame.f_code
            yield step.tb_lineno
            step = step.tb_next
        found = found.__cause__ or found.__context__


def _without_traceback(record: logging.LogRecord, said: str) -> None:
    record.error, record.exc_info, record.exc_text = said[:200], None, None


def _is_away(error: BaseException | None) -> bool:
    """Whether this, or what led to it, is that database or broker could not be reached."""
    while error is not None:
        if isinstance(error, _AWAY):
            return True
        error = error.__cause__ or error.__context__
    return False
