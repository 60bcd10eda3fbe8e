"""Transactions that a worker has something to do with: to decide them, or to end those whose time is over."""

from __future__ import annotations

import logging
import uuid
from datetime import datetime, timedelta

from django.db import transaction

from messaging.journal import events
from messaging.models import Coordination, Event
from messaging.profiles.wsat import changes
from messaging.protocol.atomic import coordinator
from messaging.protocol.atomic.coordinator import Kind
from messaging.protocol.atomic.words import Phase
from rmhub import clock

log = logging.getLogger(__name__)

EXPIRED = "transaction_expired"
SUPERIOR_SILENT = "transaction_superior_silent"
# When the decision of a worker that was killed is taken up again. One that lives holds the row's lock, however long it
# needs; an application's code that kills its worker must not kill the next one at once, and the next.
LEASE = timedelta(seconds=30)


def run_due(limit: int = 100) -> int:
    """Does what is due, one transaction after the other, each in a database transaction of its own. Returns how many.

    Workers do not wait for each other: what one has locked, another passes over.
    """
    found = Coordination.objects.filter(due_at__lte=clock.now()).order_by("due_at").values_list("pk", flat=True)
    return sum(_run(coordination_id) for coordination_id in list(found[:limit]))


def _run(coordination_id: uuid.UUID) -> bool:
    now = clock.now()
    try:
        with transaction.atomic():
            free = Coordination.objects.select_for_update(no_key=True, skip_locked=True)
            coordination = free.filter(pk=coordination_id, due_at__lte=now).first()
            if coordination is None:
                return False
            expired = coordination.expires_at is not None and coordination.expires_at <= now
            if decides := coordination.phase == Phase.DECIDING and not expired:
                coordination.due_at = now + LEASE
                coordination.save(update_fields=["due_at"])
            else:
                _expire(coordination, now)
        return _decide(coordination_id, now + LEASE, now) if decides else True
    except Exception:
        # One that cannot be moved now must not keep the others from it; it stays due.
        log.exception("transaction not moved", extra={"action": "due_failed", "coordination": str(coordination_id)})
        return False


def _decide(coordination_id: uuid.UUID, lease: datetime, now: datetime) -> bool:
    """Runs what the hub does itself, and writes the commit record, under a lease that is committed before."""
    with transaction.atomic():
        mine = Coordination.objects.select_for_update(no_key=True)
        coordination = mine.filter(pk=coordination_id, phase=Phase.DECIDING, due_at=lease).first()
        if coordination is None:
            return False  # rolled back meanwhile
        written: list[Event] = []
        changes.decide(coordination, now, written)
        events.write(written)
    return True


def _expire(coordination: Coordination, now: datetime) -> None:
    """All votes may be in by then, and no worker lived to decide: without a commit record it is rolled back, too."""
    written: list[Event] = []
    happened = coordinator.Event(Kind.EXPIRED)
    until = f"{coordination.expires_at:%Y-%m-%d %H:%M:%S} UTC"
    cause, detail = EXPIRED, f"It was not decided until {until}."
    if coordination.subordinate and coordination.phase == Phase.ACTIVE:
        cause, detail = SUPERIOR_SILENT, f"Its coordinator had asked for no vote until {until}."
    changes.advance(coordination, happened, now, written, cause=cause, detail=detail)
    events.write(written)
