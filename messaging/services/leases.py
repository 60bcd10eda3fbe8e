"""Notices at once when a worker has died, so that what it had claimed does not wait for the end of its lease.

Each worker process holds a session advisory lock under its number. A killed process loses its connection and with it
the lock; transmissions on the wire whose worker holds none are released. The lease stays as the last resort (a machine
that vanished without closing its connection).
"""

from __future__ import annotations

import logging
import secrets
from datetime import datetime

from django.db import DatabaseError, connection, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from messaging.choices import MessageState, Outcome, SignalState
from messaging.models import Message, Pair, Signal, Transmission
from messaging.protocol.pair_state import Flow

log = logging.getLogger(__name__)

_CLASS = 0x524D5755  # first key of the advisory locks: "a worker of this hub"


class WorkerLock:
    """The presence of one worker process in the database."""

    def __init__(self) -> None:
        self.number = secrets.randbelow(2**31 - 1) + 1
        self._connection: BaseDatabaseWrapper | None = None

    def hold(self) -> None:
        """Takes the lock, again after the database was restarted. Raises DatabaseError when it cannot."""
        if self._connection is not None:
            try:
                with self._connection.cursor() as cursor:
                    cursor.execute("SELECT 1")
                return
            except DatabaseError:
                self.release()
        self._connection = connections.create_connection("default")
        self._connection.inc_thread_sharing()  # used by whichever task thread runs the engine, one at a time
        with self._connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_lock(%s, %s)", [_CLASS, self.number])

    def release(self) -> None:
        """Gives the lock back with its connection."""
        if self._connection is not None:
            try:
                self._connection.close()
            except DatabaseError:
                log.debug("lock connection was gone already")
            self._connection = None


def living() -> set[int]:
    """Numbers of the worker processes that hold their lock right now."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT l.objid::bigint FROM pg_locks l JOIN pg_database d ON d.oid = l.database"
            " WHERE l.locktype = 'advisory' AND l.classid = %s AND l.granted AND d.datname = current_database()",
            [_CLASS],
        )
        return {int(row[0]) for row in cursor.fetchall()}


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
        # The claim that follows takes their lock; only the timer moves here, and only to an earlier time.
        pairs.filter(pk__in=list(pairs.order_by("pk").select_for_update().values_list("pk", flat=True))).update(
            due_at=now
        )
        signals = [orphan.signal_id for orphan in orphans if orphan.signal_id]
        Signal.objects.filter(pk__in=signals, state=SignalState.SENDING).update(due_at=now)
        messages = [orphan.message_id for orphan in orphans if orphan.message_id]
        Message.objects.filter(pk__in=messages, state=MessageState.SENDING, due_at__isnull=False).update(due_at=now)
        Transmission.objects.filter(pk__in=keys, outcome=Outcome.ON_THE_WIRE).update(
            outcome=Outcome.LOST,
            cause="worker_lost",
            detail="The worker died before it recorded an outcome.",
            finished_at=now,
        )
    log.warning("released work of dead workers", extra={"action": "released", "transmissions": len(orphans)})
    return len(orphans)
