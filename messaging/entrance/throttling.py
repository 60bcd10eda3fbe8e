"""Slows down whoever guesses passwords or codes: kept in the database, so it holds for all web processes together.

Three rows count: a name's misses from the address that tries, those from anywhere, and the address's misses of all
names (IPv6: of its /64). After `FREE` misses from one address a name waits there, and each further miss doubles the
wait; after `FREE_ANYWHERE` it waits everywhere, after `FREE_NAMES` all names wait at that address; but for a person who
has logged in from there before: strangers cannot lock anybody out for long.

A try counts before it is looked at, and is taken back when it was right: of guesses at the same moment no more are
looked at than one after the other.

And only so many slow password checks run at once: strangers may ask for them, and each costs a tenth of a second or
more. Whoever waits for a check has a web thread in hand, so only so many may wait; the others come again without one
(`messaging.entrance.reading`), or are told to come again.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from messaging.models import AuditEntry, LoginThrottle
from rmhub import clock
from rmhub.front.environ import bucket

FREE = 5
FREE_ANYWHERE = 30
FREE_NAMES = 60  # misses of all names together from one address
FIRST_WAIT = 5  # seconds
LONGEST_WAIT = 300
FORGOTTEN_AFTER = timedelta(hours=1)
_KNOWN_FOR = timedelta(days=90)
LOGIN = "user.login"


@dataclass(frozen=True, slots=True)
class _Key:
    name: str
    address: str


def wait_for(name: str, address: str) -> int:
    """Seconds until this name may be tried again from this address; 0 = now."""
    now = clock.now()
    key = _key(name, address)
    rows = [LoginThrottle.objects.filter(name=one, address=where).first() for one, where, _ in _counted(key)]
    return _wait([row for row in rows if row is not None], name, address, now)


def attempt(name: str, address: str) -> int:
    """Counts a try, before it is looked at. Returns the seconds to wait when it must not be looked at; 0 = look."""
    now = clock.now()
    key = _key(name, address)
    with transaction.atomic():
        # The same order everywhere: two at the same moment wait for each other and not in a circle.
        rows = [(_locked(one, where, now), free) for one, where, free in _counted(key)]
        if wait := _wait([row for row, _ in rows], name, address, now):
            return wait
        for row, free in rows:
            _count(row, row.misses + 1 if now - row.last_at < FORGOTTEN_AFTER else 1, free, now)
    return 0


def taken_back(name: str, address: str, *, forgiven: bool = False) -> None:
    """Takes one try back, which was right. Those that were wrong go on counting, unless they are `forgiven`."""
    now = clock.now()
    with transaction.atomic():
        for one, where, free in _counted(_key(name, address)):
            row = _locked(one, where, now)
            _count(row, 0 if forgiven and one and where else max(0, row.misses - 1), free, now)


def succeeded(name: str, address: str) -> None:
    """Takes the try back that was right, and forgets this name's misses from this address. Those from elsewhere, and
    of other names, go on counting: they may be somebody else's.
    """
    taken_back(name, address, forgiven=True)


def forget(now: datetime) -> int:
    """Drops what counts no more. Returns how many rows."""
    dropped, _ = LoginThrottle.objects.filter(last_at__lt=now - FORGOTTEN_AFTER).delete()
    return dropped


def _counted(key: _Key) -> tuple[tuple[str, str, int], ...]:
    """Name, address and how many misses are free, of each row that counts a try. No name and no address is empty."""
    return (key.name, "", FREE_ANYWHERE), (key.name, key.address, FREE), ("", key.address, FREE_NAMES)


def _count(row: LoginThrottle, misses: int, free: int, now: datetime) -> None:
    over = misses - free
    wait = min(LONGEST_WAIT, FIRST_WAIT * 2 ** min(over, 10)) if over >= 0 else 0
    row.misses, row.last_at, row.until = misses, now, now + timedelta(seconds=wait) if wait else None
    row.save(update_fields=["misses", "last_at", "until"])


def _wait(rows: list[LoginThrottle], name: str, address: str, now: datetime) -> int:
    own: list[datetime] = []
    others: list[datetime] = []
    for row in rows:
        if row.until is not None and row.until > now:
            (own if row.name and row.address else others).append(row.until)
    if others and not _known(name, address, now):
        own += others
    return max((max(1, round((until - now).total_seconds())) for until in own), default=0)


def _locked(name: str, address: str, now: datetime) -> LoginThrottle:
    """The row, made if it is not there. One statement: nobody can take it away between a look and its lock."""
    LoginThrottle.objects.bulk_create(
        [LoginThrottle(name=name, address=address, last_at=now)],
        update_conflicts=True,
        update_fields=["name"],
        unique_fields=["name", "address"],
    )
    return LoginThrottle.objects.get(name=name, address=address)


def _known(name: str, address: str, now: datetime) -> bool:
    """Whether the person has logged in from there lately."""
    found = AuditEntry.objects.filter(actor=name.replace("\x00", "")[:150], verb=LOGIN, address=address, result="done")
    return found.filter(at__gt=now - _KNOWN_FOR).exists()


def _key(name: str, address: str) -> _Key:
    return _Key(name.replace("\x00", "").casefold()[:150] or "-", bucket(address or "-")[:64])


AT_ONCE = max(1, (os.cpu_count() or 2) // 2)

_slots = threading.BoundedSemaphore(AT_ONCE)
_lock = threading.Lock()
_inside = 0


class Busy(Exception):
    """As many checks wait as may."""


def most_checks() -> int:
    """How many may be inside, waiting or checking: most web threads serve others whatever is guessed."""
    return max(2, settings.RMHUB_WEB_THREADS // 4)


@contextmanager
def queueing() -> Iterator[None]:
    """Holds a place among those who wait for a check. Raises Busy at once when there is none."""
    global _inside
    with _lock:
        if _inside >= most_checks():
            raise Busy
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1


@contextmanager
def checking() -> Iterator[None]:
    """Waits for its turn to compute. Call within `queueing`."""
    with _slots:
        yield
