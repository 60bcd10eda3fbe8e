"""Slows down whoever guesses passwords: after five misses, a wait that doubles, for that name from that address.

Kept in Django's cache, so it is forgotten when the process ends and holds for each web process by itself: it makes
guessing slow, and it locks nobody out for long.
"""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta

from django.core.cache import cache

from rmhub import clock

FREE = 5
FIRST_WAIT = 5  # seconds
LONGEST_WAIT = 300
_KEPT = 3600


def wait_for(name: str, address: str) -> int:
    """Seconds until this name may be tried again from this address; 0 = now."""
    known = cache.get(_key(name, address))
    if known is None:
        return 0
    until: datetime = known[1]
    return max(0, round((until - clock.now()).total_seconds()))


def missed(name: str, address: str) -> None:
    """Counts a wrong password."""
    key = _key(name, address)
    count = (cache.get(key) or (0, None))[0] + 1
    wait = min(LONGEST_WAIT, FIRST_WAIT * 2 ** (count - FREE)) if count >= FREE else 0
    until: datetime = clock.now() + timedelta(seconds=wait)
    cache.set(key, (count, until), _KEPT)


def succeeded(name: str, address: str) -> None:
    """Forgets the misses."""
    cache.delete(_key(name, address))


def _key(name: str, address: str) -> str:
    return "login:" + hashlib.sha256(f"{name.casefold()}\0{address}".encode()).hexdigest()
