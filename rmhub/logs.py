"""Log lines that a person reads and a machine splits: time, level, logger, text, key=value."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

_STANDARD = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "request", "status_code", "data"}


class LineFormatter(logging.Formatter):
    """Appends the record's `extra` as key=value; never payloads, never secrets (callers see to that)."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
        extra = "".join(f" {k}={v}" for k, v in vars(record).items() if k not in _STANDARD and not k.startswith("_"))
        line = f"{at} {record.levelname} {record.name}: {record.getMessage()}{extra}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line
