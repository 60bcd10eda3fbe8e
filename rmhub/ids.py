"""Identifiers that sort by time (RFC 9562 UUIDv7), and the prefixed form in which people and scripts see them."""

from __future__ import annotations

import os
import re
import threading
import time
import uuid
from datetime import datetime

from django.utils.translation import gettext as _

_FORMS = re.compile(
    r"(?:([a-z]{2,5})_)?([0-9a-f]{32})|([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})", re.ASCII
)
_lock = threading.Lock()
_last = 0


def uuid7() -> uuid.UUID:
    """A UUIDv7 that is greater than every one this process made before (48-bit milliseconds, 74 bits of chance)."""
    global _last
    millis = time.time_ns() // 1_000_000
    chance = int.from_bytes(os.urandom(10), "big")
    value = (millis << 80) | (0x7 << 76) | ((chance >> 66) & 0xFFF) << 64 | (0b10 << 62) | (chance & ((1 << 62) - 1))
    with _lock:
        if value <= _last:
            value = _last + 1
        _last = value
    return uuid.UUID(int=value)


def floor_id(at: datetime) -> uuid.UUID:
    """The smallest UUIDv7 that is made at `at`: turns a time into a bound on ids, and thereby on their index."""
    millis = max(0, int(at.timestamp() * 1000))
    return uuid.UUID(int=min(millis, (1 << 48) - 1) << 80)


class BadPublicId(ValueError):
    """The text is not an id of the wished-for kind."""


def public_id(prefix: str, value: uuid.UUID) -> str:
    """`msg_0192...`: the prefix says what it names, so that a pasted id finds its object."""
    return f"{prefix}_{value.hex}"


def parse(text: str) -> tuple[str, uuid.UUID] | None:
    """(prefix, UUID) of a text in one of the forms that an id may have; None for every other text.

    These are `prefix_<32 hex digits>` and, with the prefix "", the UUID alone, with or without its hyphens. What an id
    is, is said here and nowhere else: whoever guards ids and whoever reads them must not differ.
    """
    form = _FORMS.fullmatch(text)
    return None if form is None else (form[1] or "", uuid.UUID(form[2] or form[3]))


def read_public_id(prefix: str, text: str) -> uuid.UUID:
    """The UUID in `prefix_<32 hex digits>`; a bare UUID is taken too. Raises BadPublicId."""
    found = parse(text)
    if found is None or found[0] not in ("", prefix):
        said = _("{text} is not an id of the form {prefix}_<32 hexadecimal digits>")
        raise BadPublicId(said.format(text=repr(text), prefix=prefix))
    return found[1]


_GIVEN = re.compile(r"[A-Za-z0-9._:-]{1,80}", re.ASCII)


def request_id(given: str) -> str:
    """The id of a request: the caller's own if it is sane, else a new one."""
    return given if _GIVEN.fullmatch(given) else public_id("req", uuid7())
