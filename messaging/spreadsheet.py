"""Lines of CSV files (RFC 4180, UTF-8), such as spreadsheets open."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from datetime import UTC, date, datetime

FORMULA = ("=", "+", "-", "@", "\t", "\r")


def line(values: Iterable[object]) -> str:
    """One line. Times are in UTC, lists are JSON; a text that would count as a formula has an apostrophe in front."""
    return ",".join(_cell(value) for value in values) + "\r\n"


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}Z"
    if isinstance(value, date | uuid.UUID):
        return str(value)
    text = json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, list | tuple | dict) else str(value)
    if text.startswith(FORMULA):
        text = f"'{text}"
    return '"' + text.replace('"', '""') + '"' if any(character in text for character in ',"\r\n') else text
