"""What people's pages and decisions ask costs the same however much is stored: index scans only."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import transaction

from messaging.bulk.services import jobs as bulk
from messaging.deliveries.selectors import deliveries, in_doubt, triggers
from messaging.deliveries.services import settling
from messaging.journal.audit import Actor
from messaging.models import BulkJob, BulkJobItem, Delivery, Trigger
from rmhub import clock
from tests.messaging.delivering.test_plans import full_store, scans

__all__ = ["full_store"]
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("full_store")]
ANN = Actor("ann")


def _lost() -> Delivery:
    return Delivery.objects.get(state="in_doubt")


def _page() -> object:
    """The way of a page of one trigger's deliveries, and of what failed anywhere."""
    newest = deliveries.deliveries(trigger_id=_lost().trigger_id)
    failed = deliveries.deliveries(states=("failed", "in_doubt"))
    return [deliveries.delivery_page(found, limit=50).rows for found in (newest, failed)]


READS: dict[str, Callable[[], object]] = {
    "counters": lambda: in_doubt.counts(clock.now()),
    "groups": lambda: in_doubt.groups(clock.now()),
    "outbound groups": lambda: in_doubt.outbound_groups(clock.now()),
    "documents of a group": lambda: list(in_doubt.documents(_lost().trigger_id, "started_not_completed")[:50]),
    "backlogs": lambda: triggers.trigger_rows(triggers.triggers(), clock.now()),
    "pages": _page,
    "of a message": lambda: deliveries.of_message(_lost().message_id),
    "a delivery": lambda: deliveries.delivery_screen(deliveries.delivery(_lost().pk)),
    "by id": lambda: list(deliveries.deliveries(q=_lost().public_id)),
    "by MessageId": lambda: list(deliveries.deliveries(q="m77")),
}


def test_no_look_scans_a_big_table() -> None:
    assert {name: scanned for name, read in READS.items() if (scanned := scans(read))} == {}


def test_a_backlog_is_counted_up_to_a_bound() -> None:
    suspended = Trigger.objects.get(state="suspended")
    backlog = triggers.backlogs([suspended.pk])[suspended.pk]
    assert backlog.waiting == triggers.MOST
    assert f"{triggers.MOST:,} or more documents wait" in triggers.diagnose(suspended, backlog, clock.now()).outlook


def test_no_decision_scans_a_big_table() -> None:
    lost = _lost()
    for decision in ("duplicate", "resubmit"):
        with transaction.atomic():
            found = scans(
                lambda decision=decision: settling.delivery_settle(  # type: ignore[misc]
                    delivery_id=lost.pk, decision=decision, actor=ANN, reason="looked it up"
                )
            )
            transaction.set_rollback(True)
        assert found == [], decision


def test_a_job_over_what_is_in_doubt_scans_no_big_table() -> None:
    lost = _lost()
    Delivery.objects.filter(pk=lost.pk).update(doubt="started_not_completed")
    chosen = {"trigger": lost.trigger.public_id, "doubt": "started_not_completed"}

    def run() -> None:
        bulk.job_create(
            action="settle_deliveries",
            parameters={"decision": "duplicate"},
            filter=chosen,
            actor=ANN,
            reason="looked it up",
        )
        bulk.run_due()

    assert scans(run) == []
    assert BulkJob.objects.get().done == BulkJobItem.objects.filter(state="done").count() == 1
