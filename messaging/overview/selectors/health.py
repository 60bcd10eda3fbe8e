"""How the hub does: whether this web server can take and answer requests, and how each part of the hub is, since when.

The two are apart because they are for different readers. A balancer takes a server out that is not ready; taking out
all of them because the broker is away, or because workers are late, would refuse submissions that are safe.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TypeVar

import redis
from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection
from django.db.models import F, Min
from django.db.models.functions import Greatest
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from messaging import dispatch, storage
from messaging.choices import DeliveryState, Direction, TriggerState
from messaging.engine.leases import Presence, presences
from messaging.journal.wording import span
from messaging.models import BulkJob, Circuit, Coordination, Delivery, Message, Pair, Signal, Trigger, WebhookDelivery
from messaging.pairs.selectors import circuits
from messaging.protocol.pair_state import Gate
from messaging.servers import pairs_at
from messaging.storage import Room
from rmhub import clock
from rmhub.language import gettext_lazy, number
from rmhub.postgresql.base import patience, trouble, what_is_wrong

# Due work is found by the sweep within seconds; what is older than this waits for workers that are not there.
OVERDUE_SECONDS = 60
# Anybody may ask for the hub's health, so that not every question costs a synced write.
ROOM_SECONDS = 5.0
# Whoever asks does not wait longer for a connection.
CONNECTION_SECONDS = 2.0
# With less room than so many of the largest messages, somebody has to look after the disk.
_LITTLE = 10


class PartState(StrEnum):
    """How one part is."""

    OK = "ok"
    DEGRADED = "degraded"  # it does its work, and not as it should
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the hub. `since`: when this was first seen to be so; None while it is well."""

    name: str
    state: PartState
    detail: str = ""
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Health:
    """`oldest_due_at`: the oldest work whose time has come (None = none, or the database does not answer).

    `circuits_open`: partners' servers that are left alone because they cannot be reached. That is their trouble: the
    hub is well all the same. `store_free`: octets, None when it is not known. `workers`: with names of machines, which
    are not for strangers.
    """

    database: bool
    broker: bool
    oldest_due_at: datetime | None
    overdue_seconds: int
    circuits_open: int = 0
    store: bool = True
    store_free: int | None = None
    parts: tuple[Part, ...] = field(default=(), compare=False)
    workers: tuple[Presence, ...] = field(default=(), compare=False)

    @property
    def ready(self) -> bool:
        """Whether this web server can take documents and answer: what it is given is stored or refused, never lost."""
        return self.database and self.store

    @property
    def ok(self) -> bool:
        """Whether every part does its work."""
        return self.ready and self.broker and self.overdue_seconds <= OVERDUE_SECONDS and not self.troubled

    @property
    def lost_workers(self) -> tuple[Presence, ...]:
        """The workers that are not heard of any more, and whose end is not known."""
        return tuple(one for one in self.workers if one.lost_since is not None)

    @property
    def nobody_works(self) -> bool:
        """Whether there is no worker that is heard of."""
        return self.database and len(self.lost_workers) == len(self.workers)

    @property
    def troubled(self) -> tuple[Part, ...]:
        """The parts that are not as they should be."""
        return tuple(part for part in self.parts if part.state is not PartState.OK)


def readiness() -> tuple[Part, ...]:
    """Looks now at what this web server cannot do without: it is ready unless one of them is down. Never raises.

    Asks nobody else, so that a broker that is silent delays no answer to a balancer.
    """
    now = clock.now()
    answered, wrong = _asked(bool)
    return _database_part(answered is not None, wrong, now), store_part()


def store_part() -> Part:
    """Whether the payload store takes a document now. Never raises."""
    room = _room()
    return _store_part(room, _takes_a_message(room), clock.now())


def health() -> Health:
    """Looks now. Never raises."""
    now = clock.now()
    broker = _broker_answers()
    room = _room()
    store = _takes_a_message(room)
    found, wrong = _asked(lambda: (_oldest_due(now), circuits.open_count(), presences()))
    database = found is not None
    oldest, unreachable, known = found or (None, 0, [])
    overdue = int((now - oldest).total_seconds()) if oldest else 0
    parts = (
        _database_part(database, wrong, now),
        _store_part(room, store, now),
        _part("broker", PartState.OK if broker else PartState.DOWN, _WITHOUT_BROKER, now),
        _workers_part(oldest, overdue, known, now) if database else _part("workers", PartState.DEGRADED, _UNKNOWN, now),
    )
    return Health(database, broker, oldest, overdue, unreachable, store, room.free, parts, tuple(known))


_Answer = TypeVar("_Answer")


def _asked(look: Callable[[], _Answer]) -> tuple[_Answer | None, str]:
    """What the database says, None when it gives no answer or takes no writes; and what is wrong with it, "" = nothing.

    One that takes no writes is a standby, or was closed for them by its operators: nothing can be stored in it.
    """
    try:
        with patience(CONNECTION_SECONDS):
            with connection.cursor() as cursor:
                cursor.execute("SELECT current_setting('transaction_read_only')")
                if cursor.fetchone() != ("off",):
                    return None, _("It takes no writes: it is a standby, or was made read-only.")
            return look(), trouble()
    except (DatabaseError, InterfaceError) as error:
        return None, what_is_wrong(error)


def _takes_a_message(room: Room) -> bool:
    return not room.error and (room.free is None or room.free >= settings.RMHUB_MAX_MESSAGE_BYTES)


_WITHOUT_BROKER = gettext_lazy(
    "It does not answer. Documents are accepted; they go out when workers find them by themselves."
)
_UNKNOWN = gettext_lazy("Not known while the database does not answer.")
_since: dict[str, datetime] = {}  # of this process: part -> when it was first seen to be in trouble
_room_lock = threading.Lock()
_room_seen: tuple[float, Room] | None = None  # monotonic seconds


def forget() -> None:
    """Forgets what was seen before (tests)."""
    global _room_seen
    _since.clear()
    _room_seen = None


def _part(name: str, state: PartState, detail: str, now: datetime, since: datetime | None = None) -> Part:
    """With since when; what no row says since when is known from the first look that found it so."""
    if state is PartState.OK:
        _since.pop(name, None)
        return Part(name, state)
    return Part(name, state, detail, since or _since.setdefault(name, now))


def _database_part(database: bool, wrong: str, now: datetime) -> Part:
    if not database:
        return _part("database", PartState.DOWN, wrong, now)
    return _part("database", PartState.DEGRADED if wrong else PartState.OK, wrong, now)


def _store_part(room: Room, store: bool, now: datetime) -> Part:
    if room.error and not room.full:
        said = _("The payload store cannot be written: {error}.").format(error=room.error)
        return _part("store", PartState.DOWN, said, now)
    if room.free is None:  # nobody knows how much room a bucket has, until it has none
        said = _("The payload store is full. Documents are refused.")
        return _part("store", PartState.OK if store else PartState.DOWN, "" if store else said, now)
    free = number(room.free // 1_000_000)
    if not store:
        said = _(
            "The payload store is full: {free} MB are free, less than one message may take. Documents are refused."
        )
        return _part("store", PartState.DOWN, said.format(free=free), now)
    if room.free < _LITTLE * settings.RMHUB_MAX_MESSAGE_BYTES:
        said = _("The payload store is nearly full: {free} MB are free.").format(free=free)
        return _part("store", PartState.DEGRADED, said, now)
    return _part("store", PartState.OK, "", now)


def _workers_part(oldest: datetime | None, overdue: int, known: list[Presence], now: datetime) -> Part:
    """What is late, is late because nobody is there: that is said first."""
    lost = [one.lost_since for one in known if one.lost_since is not None]
    if not known:
        said = _("No worker runs: nothing is sent or delivered until one is started (manage.py up).")
        return _part("workers", PartState.DOWN, said, now)
    if len(lost) == len(known):
        return _part("workers", PartState.DOWN, _lost(lost, known, max(lost), now), now, max(lost))
    if overdue > OVERDUE_SECONDS:
        said = _("Something was due {time} ago: check that workers and beat run.").format(time=span(overdue))
        return _part("workers", PartState.DOWN, said, now, oldest)
    if lost:
        said = f"{_lost(lost, known, min(lost), now)} {_('The others work.')}"
        return _part("workers", PartState.DEGRADED, said, now, min(lost))
    return _part("workers", PartState.OK, "", now)


def _lost(lost: list[datetime], known: list[Presence], at: datetime, now: datetime) -> str:
    ago = span(max(0.0, (now - at).total_seconds()))
    if len(known) == 1:
        return _("The only worker last reported {time} ago: it is stopped, or cut off from the database.").format(
            time=ago
        )
    return ngettext(
        "{count} of {all} workers was last heard of {time} ago: stopped, or cut off from the database.",
        "{count} of {all} workers were last heard of {time} ago: stopped, or cut off from the database.",
        len(lost),
    ).format(count=number(len(lost)), all=number(len(known)), time=ago)


def _room() -> Room:
    """Whether the store takes bytes, by a write that is at most `ROOM_SECONDS` old."""
    global _room_seen
    with _room_lock:
        seen = _room_seen
        if seen is None or time.monotonic() - seen[0] > ROOM_SECONDS:
            seen = _room_seen = (time.monotonic(), storage.room())
        return seen[1]


def _oldest_due(now: datetime) -> datetime | None:
    """Looks at the ends of partial indexes.

    Documents that wait for a trigger may do so for long and rightly; a lease that ended is taken up by the next sweep.
    What is due for a server that does not answer waits for that server's one thread, and not for workers. Behind a shut
    gate nothing is late, so that it counts from the opening.
    """
    known = dict(Circuit.objects.values_list("address", "pair_id"))
    slow = {*pairs_at(frozenset(known)), *(key for key in known.values() if key)}
    looks = (
        Pair.objects.filter(due_at__lte=now, gate=Gate.OPEN, direction=Direction.OUT).exclude(pk__in=slow),
        Message.objects.filter(due_at__lte=now).exclude(pair_id__in=slow),
        Signal.objects.filter(due_at__lte=now).exclude(pair_id__in=slow),
        WebhookDelivery.objects.filter(due_at__lte=now, endpoint__enabled=True),
        Delivery.objects.filter(due_at__lte=now, state=DeliveryState.RUNNING, trigger__state=TriggerState.ACTIVE),
        BulkJob.objects.filter(due_at__lte=now),
        Coordination.objects.filter(due_at__lte=now),
    )
    opened = {Pair: Greatest("due_at", "changed_at"), Delivery: Greatest("due_at", "trigger__changed_at")}
    found = [look.aggregate(oldest=Min(opened.get(look.model, F("due_at"))))["oldest"] for look in looks]
    asked = Trigger.objects.filter(monitor_due_at__lte=now, state=TriggerState.SUSPENDED)
    found.append(asked.aggregate(oldest=Min("monitor_due_at"))["oldest"])
    return min((at for at in found if at is not None), default=None)


def _broker_answers() -> bool:
    try:
        return bool(dispatch.valkey().ping())
    except (redis.RedisError, OSError):
        return False
