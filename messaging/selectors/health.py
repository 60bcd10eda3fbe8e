"""Whether the hub does its work: the database answers, the broker answers, and nothing lies about that is long due."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cache

import redis
from django.conf import settings
from django.db import DatabaseError, InterfaceError
from django.db.models import Min

from messaging.choices import DeliveryState, Direction, TriggerState
from messaging.models import BulkJob, Circuit, Coordination, Delivery, Message, Pair, Signal, Trigger, WebhookDelivery
from messaging.protocol.pair_state import Gate
from messaging.selectors import circuits
from messaging.servers import pairs_at
from rmhub import clock

# Due work is found by the sweep within seconds; what is older than this waits for workers that are not there.
OVERDUE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Health:
    """`oldest_due_at`: the oldest work whose time has come (None = none, or the database does not answer).

    `circuits_open`: partners' servers that are left alone because they cannot be reached. That is their trouble: the
    hub is well all the same.
    """

    database: bool
    broker: bool
    oldest_due_at: datetime | None
    overdue_seconds: int
    circuits_open: int = 0

    @property
    def ok(self) -> bool:
        return self.database and self.broker and self.overdue_seconds <= OVERDUE_SECONDS


def health() -> Health:
    """Looks now. Never raises."""
    now = clock.now()
    broker = _broker_answers()
    try:
        oldest = _oldest_due(now)
        unreachable = circuits.open_count()
    except (DatabaseError, InterfaceError):
        return Health(False, broker, None, 0)
    overdue = int((now - oldest).total_seconds()) if oldest else 0
    return Health(True, broker, oldest, overdue, unreachable)


def _oldest_due(now: datetime) -> datetime | None:
    """Looks at the ends of partial indexes.

    Documents that wait for a trigger may do so for long and rightly; a lease that ended is taken up by the next sweep.
    What is due for a server that does not answer waits for that server's one thread, and not for workers.
    """
    slow = pairs_at(frozenset(Circuit.objects.values_list("address", flat=True)))
    looks = (
        Pair.objects.filter(due_at__lte=now, gate=Gate.OPEN, direction=Direction.OUT).exclude(pk__in=slow),
        Message.objects.filter(due_at__lte=now).exclude(pair_id__in=slow),
        Signal.objects.filter(due_at__lte=now).exclude(pair_id__in=slow),
        WebhookDelivery.objects.filter(due_at__lte=now, endpoint__enabled=True),
        Delivery.objects.filter(due_at__lte=now, state=DeliveryState.RUNNING, trigger__state=TriggerState.ACTIVE),
        BulkJob.objects.filter(due_at__lte=now),
        Coordination.objects.filter(due_at__lte=now),
    )
    found = [look.aggregate(oldest=Min("due_at"))["oldest"] for look in looks]
    asked = Trigger.objects.filter(monitor_due_at__lte=now, state=TriggerState.SUSPENDED)
    found.append(asked.aggregate(oldest=Min("monitor_due_at"))["oldest"])
    return min((at for at in found if at is not None), default=None)


@cache
def _broker() -> redis.Redis:
    return redis.Redis.from_url(settings.REDIS_URL, socket_timeout=1, socket_connect_timeout=1)


def _broker_answers() -> bool:
    try:
        return bool(_broker().ping())
    except (redis.RedisError, OSError):
        return False
