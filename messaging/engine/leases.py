"""Notices when a worker has died, so that what it had claimed does not wait for the end of its lease.

Each worker process has a row that it renews once a second, by whatever connection it has: this holds behind a pooler
that shares sessions, where a lock of a session would belong to nobody. A worker counts as dead when its process is gone
(seen by a worker of the same machine, at once), or when it has not renewed its row for `LEASE` seconds while whoever
judges it could renew its own all the time. So nobody is taken for dead because the database was away for all of them.
One that is seen to run has more time: it may be the only one that gets no connection, and then it alone knows what came
of what it has in hand. Until a silent worker counts as dead, the others keep up the leases of what it has claimed.

Which worker processes are there, by the database's clock (`leases`).
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache

from django.db import Error, connection, transaction

from messaging.choices import MessageState, Outcome, SignalState
from messaging.models import Message, Pair, Signal, Transmission, Worker
from messaging.models.bulk import update_in_order
from messaging.models.job import GAP
from messaging.protocol.pair_state import Flow
from rmhub import clock
from rmhub.embedded.processes import Mark

log = logging.getLogger(__name__)

RENEW_SECONDS = 1.0
# So long a worker may be silent before others take it for dead: longer than a busy machine or a failover stalls one.
LEASE = 20.0
# The same for one whose process is seen to run: that it is silent is the database's fault, or it hangs.
LEASE_OF_RUNNING = 300.0


class WorkerLock:
    """The presence of one worker process in the database. Any thread may hold it up; one at a time does."""

    def __init__(self) -> None:
        self.number = secrets.randbelow(2**31 - 1) + 1
        self._lock = threading.Lock()
        self._renewed = float("-inf")  # monotonic

    def hold(self) -> None:
        """Renews the presence, at most once in `RENEW_SECONDS`, and strikes off workers that are dead.

        Raises django.db.Error when the database does not let it: then this worker is not certain of its presence.
        """
        with self._lock:
            begun = time.monotonic()
            if begun - self._renewed < RENEW_SECONDS * 0.9:
                return
            try:
                with connection.cursor() as cursor:
                    cursor.execute(_RENEW, [self.number, GAP, LEASE, self.number, RENEW_SECONDS])
                    may_judge, others = cursor.fetchone()
                if may_judge is None:
                    self._enter()
                if others or may_judge is None:
                    _strike_off(self.number, may_judge=bool(may_judge))
            except Error:
                connection.close()  # a new one may do better
                raise
            self._renewed = begun

    def is_held(self) -> bool:
        """Whether others know that this worker is there, for some time yet."""
        return time.monotonic() - self._renewed < LEASE / 4

    def release(self) -> None:
        """Ends the presence: nothing is claimed any more."""
        with self._lock:
            if self._renewed == float("-inf"):
                return
            self._renewed = float("-inf")
            try:
                Worker.objects.filter(pk=self.number).delete()
            except Error:
                log.warning("presence not ended", extra={"action": "presence_left"}, exc_info=True)
            connection.close()  # this thread has nothing more to do with the database

    def _enter(self) -> None:
        """Enters this worker, or again after a gap. Nobody could renew leases meanwhile, so all get new ones."""
        mark = Mark.own()
        with transaction.atomic():
            _strike_off(self.number, may_judge=False)
            with connection.cursor() as cursor:
                name = f"{socket.gethostname()}:{mark.pid}"[:200]
                cursor.execute(_ENTER, [self.number, name, _node(), mark.pid, mark.started])
            _extend(list(living()))


# Whether it may judge others goes with the renewal: it may, when its presence is unbroken for as long as a lease; NULL
# when it is broken. And whether there are others to judge, which have not renewed theirs lately.
_RENEW = """
WITH own AS (
    UPDATE messaging_worker SET renewed_at = clock_timestamp()
    WHERE number = %s AND renewed_at > clock_timestamp() - make_interval(secs => %s)
    RETURNING held_since < clock_timestamp() - make_interval(secs => %s) AS may_judge
)
SELECT (SELECT may_judge FROM own), EXISTS (
    SELECT FROM messaging_worker
    WHERE number <> %s AND renewed_at < clock_timestamp() - make_interval(secs => %s)
)
"""
_ENTER = """
INSERT INTO messaging_worker (number, name, node, pid, started, held_since, renewed_at)
VALUES (%s, %s, %s, %s, %s, clock_timestamp(), clock_timestamp())
ON CONFLICT (number) DO UPDATE SET held_since = clock_timestamp(), renewed_at = clock_timestamp()
"""
_OTHERS = """
SELECT number, pid, started, node = %s, extract(epoch FROM clock_timestamp() - renewed_at)
FROM messaging_worker WHERE number <> %s AND renewed_at < clock_timestamp() - make_interval(secs => %s)
"""
_STRIKE_OFF = """
DELETE FROM messaging_worker WHERE number = ANY(%s)
OR number = ANY(%s) AND renewed_at < clock_timestamp() - make_interval(secs => %s)
"""


@cache
def _node() -> str:
    """Names what sees the same processes under the same numbers: this boot of the machine, and the container."""
    return f"{Mark.own().boot} {os.readlink('/proc/self/ns/pid')}"


def _strike_off(own: int, *, may_judge: bool) -> None:
    """Removes workers whose process is gone, and with `may_judge` those that have been silent for too long.

    What the other silent ones have claimed stays theirs.
    """
    boot = Mark.own().boot
    gone, silent, awaited = [], [], []
    with connection.cursor() as cursor:
        cursor.execute(_OTHERS, [_node(), own, RENEW_SECONDS])
        for number, pid, started, seen, seconds in cursor.fetchall():
            mark = Mark(pid, started, boot)
            if seen and not mark.is_alive():
                gone.append(number)
            elif may_judge and seconds > (LEASE_OF_RUNNING if seen and mark.is_running() else LEASE):
                silent.append(number)
            elif seconds > GAP:
                awaited.append(number)
        if gone or silent:
            cursor.execute(_STRIKE_OFF, [gone, silent, LEASE])
            log.warning("workers are dead", extra={"action": "workers_dead", "gone": len(gone), "silent": len(silent)})
    if awaited:
        _extend(awaited, least=LEASE / 2)


def _extend(workers: list[int], *, least: float = LEASE) -> None:
    """Gives new leases to what these workers have in hand, where less than `least` seconds are left; passes over what
    is being written to.
    """
    now = clock.now()
    with connection.cursor() as cursor:
        for sql in _EXTEND:
            cursor.execute(sql, [workers, now + timedelta(seconds=least), now + timedelta(seconds=LEASE)])


# Pairs, messages and signals in the order in which everybody locks them, then deliveries.
_CLAIMED = "SELECT t.{} FROM messaging_transmission t WHERE t.outcome = 'on_the_wire' AND t.worker = ANY(%s)"
_MORE = (
    "WITH held AS (SELECT id FROM {table} WHERE {which} AND due_at < %s ORDER BY id FOR UPDATE SKIP LOCKED)"
    " UPDATE {table} SET due_at = %s WHERE id IN (SELECT id FROM held)"
)
_EXTEND = tuple(
    _MORE.format(table=table, which=which)
    for table, which in (
        ("messaging_pair", f"flow = 'sending' AND transmission_id IN ({_CLAIMED.format('id')})"),
        ("messaging_message", f"state = 'sending' AND id IN ({_CLAIMED.format('message_id')})"),
        ("messaging_signal", f"state = 'sending' AND id IN ({_CLAIMED.format('signal_id')})"),
        ("messaging_delivery", "state = 'running' AND worker = ANY(%s)"),
    )
)


def living() -> set[int]:
    """Numbers of the worker processes that are there."""
    return set(Worker.objects.values_list("number", flat=True))


def release_dead(now: datetime) -> int:
    """Makes due at once what dead workers had claimed; returns how many transmissions that were.

    Their outcome is unknown, so the machines decide like at the end of a lease: same octets again, or failed.
    """
    claimed = Transmission.objects.filter(outcome=Outcome.ON_THE_WIRE)
    workers = set(claimed.values_list("worker", flat=True).distinct())
    dead = workers - living() if workers else set()
    if not dead:
        return 0
    orphans = list(claimed.filter(worker__in=dead).only("pk", "pair_id", "message_id", "signal_id"))
    with transaction.atomic():
        keys = [orphan.pk for orphan in orphans]
        pairs = Pair.objects.filter(
            pk__in=[orphan.pair_id for orphan in orphans], transmission_id__in=keys, flow=Flow.SENDING
        )
        signals = Signal.objects.filter(
            pk__in=[orphan.signal_id for orphan in orphans if orphan.signal_id], state=SignalState.SENDING
        )
        messages = Message.objects.filter(
            pk__in=[orphan.message_id for orphan in orphans if orphan.message_id],
            state=MessageState.SENDING,
            due_at__isnull=False,
        )
        # The claim that follows takes their lock; only the timer moves here, and only to an earlier time.
        for rows in (pairs, signals, messages):
            update_in_order(rows, due_at=now)
        # One that somebody holds has its outcome recorded in this very moment.
        released = update_in_order(
            claimed.filter(pk__in=keys),
            skip_locked=True,
            outcome=Outcome.LOST,
            cause="worker_lost",
            detail="The worker died before it recorded an outcome.",
            finished_at=now,
        )
    log.warning("released work of dead workers", extra={"action": "released", "transmissions": released})
    return released


@dataclass(frozen=True, slots=True)
class Presence:
    """One worker. `held_since`: since when its presence is unbroken. `lost_since`: when it was last heard of, if that
    is too long ago: it could not reach the database since, or does not run; None = it is there. `here`: it is a process
    of this machine, or of this container.
    """

    name: str
    held_since: datetime
    lost_since: datetime | None
    here: bool = False


def presences() -> list[Presence]:
    """All workers that have not ended, those that are not heard of first. One whose death is known is not among them.

    Raises django.db.Error when the database does not answer.
    """
    with connection.cursor() as cursor:
        cursor.execute(_PRESENCES, [_node(), GAP])
        return [Presence(*row) for row in cursor.fetchall()]


_PRESENCES = """
SELECT name, held_since, lost, node = %s FROM (
    SELECT *, CASE WHEN renewed_at < clock_timestamp() - make_interval(secs => %s) THEN renewed_at END AS lost
    FROM messaging_worker
) w ORDER BY lost NULLS LAST, held_since, number
"""
