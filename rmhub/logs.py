"""Log lines that a person reads and a machine splits: time, level, logger, text, key=value."""

from __future__ import annotations

import logging
import threading
import time
from datetime import UTC, datetime

import psycopg
import redis
from django.db import InterfaceError, OperationalError

_STANDARD = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "request", "status_code", "data"}
# What an outage of the database or the broker makes everybody say again and again.
_AWAY = (
    *(OperationalError, InterfaceError, psycopg.OperationalError, psycopg.InterfaceError),
    *(redis.ConnectionError, redis.TimeoutError),
)
_ACTIONS = frozenset({"wake_failed", "record_waits"})
_MINUTE = 60.0


class LineFormatter(logging.Formatter):
    """Appends the record's `extra` as key=value; never payloads, never secrets (callers see to that)."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
        extra = "".join(f" {k}={v}" for k, v in vars(record).items() if k not in _STANDARD and not k.startswith("_"))
        line = f"{at} {record.levelname} {record.name}: {record.getMessage()}{extra}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class OncePerOutage(logging.Filter):
    """Lets one line a minute through of what is said because database or broker are away, and counts the others.

    The next one carries `repeated=n`: so many more were left out since the last. Only the first has its traceback.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._said: dict[tuple[object, ...], tuple[float, int]] = {}  # when, and how many were left out since

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if not _is_away(error) and getattr(record, "action", "") not in _ACTIONS:
            return True
        key = (record.name, record.msg, type(error))
        now = time.monotonic()
        with self._lock:
            at, left_out = self._said.get(key, (None, 0))
            if at is not None and now - at < _MINUTE:
                self._said[key] = (at, left_out + 1)
                return False
            self._said[key] = (now, 0)
        if left_out:
            record.repeated = left_out
            if error is not None:
                record.error, record.exc_info, record.exc_text = str(error).strip()[:200], None, None
        return True


def _is_away(error: BaseException | None) -> bool:
    """Whether this, or what led to it, is that database or broker could not be reached."""
    while error is not None:
        if isinstance(error, _AWAY):
            return True
        error = error.__cause__ or error.__context__
    return False


class OneLineFormatter(LineFormatter):
    """The same without a traceback: for what strangers cause at will, such as a Host header that is not ours."""

    def format(self, record: logging.LogRecord) -> str:
        brief = logging.makeLogRecord({**vars(record), "exc_info": None, "exc_text": None})
        return super().format(brief).replace("\n", " ")
