"""Slows down whoever guesses passwords or codes: kept in the database, so it holds for all web processes together.

Two rows count the misses of a name: one from the address that tries, one from anywhere. After `FREE` misses from one
address it waits, and each further miss doubles the wait; after `FREE_ANYWHERE` from anywhere all addresses wait, but
for those that the person has logged in from before: strangers cannot lock anybody out for long.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import IntegrityError, transaction

from messaging.models import AuditEntry, LoginThrottle
from rmhub import clock

FREE = 5
FREE_ANYWHERE = 30
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
    untils = dict(
        LoginThrottle.objects.filter(name=key.name, address__in={key.address, ""}, until__gt=now).values_list(
            "address", "until"
        )
    )
    anywhere = untils.pop("", None)
    waits = [until for until in untils.values() if until is not None]
    if anywhere is not None and not _known(name, key.address, now):
        waits.append(anywhere)
    return max((max(1, round((until - now).total_seconds())) for until in waits), default=0)


def missed(name: str, address: str) -> None:
    """Counts a wrong password or code."""
    now = clock.now()
    key = _key(name, address)
    with transaction.atomic():
        # The same order everywhere: two at the same moment wait for each other and not in a circle.
        for where, free in (("", FREE_ANYWHERE), (key.address or "-", FREE)):
            row = _locked(key.name, where, now)
            row.misses = row.misses + 1 if now - row.last_at < FORGOTTEN_AFTER else 1
            over = row.misses - free
            wait = min(LONGEST_WAIT, FIRST_WAIT * 2 ** min(over, 10)) if over >= 0 else 0
            row.last_at, row.until = now, now + timedelta(seconds=wait) if wait else None
            row.save(update_fields=["misses", "last_at", "until"])


def succeeded(name: str, address: str) -> None:
    """Forgets the misses from this address. Those from elsewhere go on counting: they may be somebody else's."""
    key = _key(name, address)
    LoginThrottle.objects.filter(name=key.name, address=key.address).delete()


def forget(now: datetime) -> int:
    """Drops what counts no more. Returns how many rows."""
    dropped, _ = LoginThrottle.objects.filter(last_at__lt=now - FORGOTTEN_AFTER).delete()
    return dropped


def _locked(name: str, address: str, now: datetime) -> LoginThrottle:
    """The row, made if it is not there."""
    try:
        with transaction.atomic():
            LoginThrottle.objects.get_or_create(name=name, address=address, defaults={"last_at": now})
    except IntegrityError:  # somebody made it in the same moment
        pass
    return LoginThrottle.objects.select_for_update().get(name=name, address=address)


def _known(name: str, address: str, now: datetime) -> bool:
    """Whether the person has logged in from there lately."""
    found = AuditEntry.objects.filter(actor=name[:150], verb=LOGIN, address=address, result="done")
    return found.filter(at__gt=now - _KNOWN_FOR).exists()


def _key(name: str, address: str) -> _Key:
    return _Key(name.replace("\x00", "").casefold()[:150], (address or "-")[:64])
