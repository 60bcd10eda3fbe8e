"""How many requests a caller may make in a minute: counted in Valkey, for all web processes together.

Callers are API tokens, people with a console session, and partners; copies of one repeatable request count apart.
Without Valkey nothing is counted and everybody passes: a limit protects the hub from a caller that has gone wild, and
is not worth an outage.
"""

from __future__ import annotations

import math
import uuid
from dataclasses import dataclass
from enum import StrEnum

from django.conf import settings

from messaging import dispatch
from rmhub import clock

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
