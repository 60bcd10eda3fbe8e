"""How many requests a caller may make in a minute: counted in Valkey, for all web processes together.

Callers are API tokens, people with a console session, and partners; copies of one repeatable request count apart.
Without Valkey nothing is counted and everybody passes: a limit protects the hub from a caller that has gone wild, and
is not worth an outage.

How often somebody may be wrong in a while: counted by address and name, and more generously by address alone.

By both, so that one caller's mistake behind a common proxy costs no other; by address, so that nobody tries name after
name. Counted in this process.
"""

from __future__ import annotations

import math
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from django.conf import settings

from messaging import dispatch
from rmhub import clock
from rmhub.front.environ import bucket

WINDOW = 60  # seconds


class Bucket(StrEnum):
    """What is counted apart, so that a caller who reads too much can still repair."""

    READ = "read"
    SUBMIT = "submit"  # what applications do all day: documents in, documents out
    OPERATE = "operate"  # every other change
    PARTNER = "partner"
    REPEATS = "repeats"  # copies of one repeatable request


@dataclass(frozen=True, slots=True)
class Count:
    """Where a caller stands in the present minute. `reset`: seconds until the next begins."""

    bucket: Bucket
    limit: int
    used: int
    reset: int

    @property
    def exceeded(self) -> bool:
        return self.used > self.limit

    @property
    def remaining(self) -> int:
        return max(0, self.limit - self.used)


def limit_of(bucket: Bucket) -> int:
    """Requests a minute; 0 = no limit."""
    limits: dict[Bucket, int] = {
        Bucket.READ: settings.RMHUB_RATE_READ,
        Bucket.SUBMIT: settings.RMHUB_RATE_SUBMIT,
        Bucket.OPERATE: settings.RMHUB_RATE_OPERATE,
        Bucket.PARTNER: settings.RMHUB_RATE_PARTNER,
        Bucket.REPEATS: settings.RMHUB_RATE_REPEATS,
    }
    return limits[bucket]


def take(bucket: Bucket, caller: str) -> Count | None:
    """Counts one request of a caller; None when there is no limit, or nobody who counts."""
    limit = limit_of(bucket)
    if not limit:
        return None
    window, passed = divmod(clock.now().timestamp(), WINDOW)
    used = dispatch.count(f"rmhub:rate:{bucket}:{caller}:{int(window)}", 2 * WINDOW)
    return None if used is None else Count(bucket, limit, used, math.ceil(WINDOW - passed))


def partner_wait(party_id: uuid.UUID) -> int:
    """Seconds that a partner has to wait before the next request is taken; 0 = none."""
    return _wait(take(Bucket.PARTNER, party_id.hex))


def repeat_wait(party_id: uuid.UUID, request_id: str) -> int:
    """Seconds that a partner has to wait before the next copy of this request is looked at; 0 = none (spec 2)."""
    return _wait(take(Bucket.REPEATS, f"{party_id.hex}:{request_id}"))


def _wait(count: Count | None) -> int:
    return count.reset if count is not None and count.exceeded else 0


_MAX_KEYS = 20_000

Key = tuple[str, str]


class Patience:
    """`of_name` misses of a name from an address within `seconds`, and `of_address` of all names together.

    `told` is called with the address, the name ("" where it is all of them) and the count, once for each time that
    there is no patience left.
    """

    def __init__(self, *, of_name: int, of_address: int, seconds: float, told: Callable[[str, str, int], None]) -> None:
        self._limits = (of_name, of_address)
        self._seconds = seconds
        self._told = told
        self._misses: OrderedDict[Key, tuple[float, int]] = OrderedDict()
        self._lock = threading.Lock()
        self._turns = [threading.Lock() for _ in range(256)]

    def turn(self, address: str, name: str) -> threading.Lock:
        """Hold this while a try is looked at: those of one name from one address go one after the other."""
        return self._turns[hash((bucket(address), name)) % len(self._turns)]

    def may_try(self, address: str, name: str) -> bool:
        """Counts one more try, unless there were too many: before it is looked at, so that no guess overtakes it."""
        now = time.monotonic()
        keys = _keys(address, name)
        with self._lock:
            counts = [self._count(key, now) for key in keys]
            if any(count >= limit for (_, count), limit in zip(counts, self._limits, strict=True)):
                return False
            for key, (since, count) in zip(keys, counts, strict=True):
                self._misses.pop(key, None)
                self._misses[key] = (since, count + 1)
            while len(self._misses) > _MAX_KEYS:
                self._misses.popitem(last=False)
        for key, (_, count), limit in zip(keys, counts, self._limits, strict=True):
            if count + 1 >= limit:
                self._told(*key, limit)
                break
        return True

    def right(self, address: str, name: str) -> None:
        """Takes back what a try has counted that was right."""
        with self._lock:
            for key in _keys(address, name):
                since, count = self._misses.get(key, (0.0, 0))
                if count:
                    self._misses[key] = (since, count - 1)

    def reset(self) -> None:
        """Forgets all (tests)."""
        with self._lock:
            self._misses.clear()

    def _count(self, key: Key, now: float) -> tuple[float, int]:
        """Since when, and how many; the count ends `seconds` after its first."""
        since, count = self._misses.get(key, (now, 0))
        return (since, count) if now - since <= self._seconds else (now, 0)


def _keys(address: str, name: str) -> tuple[Key, Key]:
    counted = bucket(address)
    return (counted, name), (counted, "")
