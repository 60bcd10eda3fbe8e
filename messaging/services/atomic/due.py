"""Transactions that a worker has something to do with: to decide them, or to end those whose time is over."""

from __future__ import annotations

import logging
import uuid

from django.db import transaction

from messaging.models import Coordination, Event
from messaging.protocol.atomic import coordinator
from messaging.protocol.atomic.coordinator import Kind
from messaging.protocol.atomic.words import Phase
from messaging.services import events
from messaging.services.atomic import changes
from rmhub import clock

log = logging.getLogger(__name__)

EXPIRED = "transaction_expired"


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
            written: list[Event] = []
            if coordination.phase == Phase.DECIDING:
                changes.decide(coordination, now, written)
            else:
                happened = coordinator.Event(Kind.EXPIRED)
                detail = f"It was not decided until {coordination.expires_at:%Y-%m-%d %H:%M:%S} UTC."
                changes.advance(coordination, happened, now, written, cause=EXPIRED, detail=detail)
            events.write(written)
    except Exception:
        # One that cannot be moved now must not keep the others from it; it stays due.
        log.exception("transaction not moved", extra={"action": "due_failed", "coordination": str(coordination_id)})
        return False
    return True
