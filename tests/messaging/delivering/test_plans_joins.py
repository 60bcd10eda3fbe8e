"""Joins and pull queues cost the same however much is stored: index scans only, on tables with 20,000 rows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from messaging.deliveries.services import handing_over, pulling
from messaging.models import Delivery, Join
from rmhub import clock
from rmhub.clock import FrozenClock
from tests.messaging.delivering import test_plans
from tests.messaging.delivering.documents import SERVICE, documents_from, make_queue
from tests.messaging.delivering.test_plans import full_store, scans  # noqa: F401  (a fixture)
from tests.messaging.factories import PartnerSide
from tests.messaging.test_plans import multiply

pytestmark = pytest.mark.django_db


def test_joins_and_pull_queues_scan_no_table(
    full_store: None,  # noqa: F811
    partner: PartnerSide,
    time: FrozenClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(test_plans, "BIG", [*test_plans.BIG, Join._meta.db_table])
    a_and_b = [{"service": SERVICE, "action": action} for action in ("A", "B")]
    trigger = make_queue(join_type="all", documents=a_and_b, concurrency=10)
    documents_from(partner, "A", conversation="c1")
    assert pulling.lease(trigger.pk, limit=1, consumer="erp") == []
    Join.objects.update(expires_at=clock.now() + timedelta(days=1))
    multiply(Join, activation="'many ' || n", state="CASE WHEN n % 2 = 0 THEN 'fired' ELSE 'open' END")
    documents_from(partner, "B", conversation="c1")
    documents_from(partner, "A", conversation="c2")

    leased: list[pulling.Leased] = []
    paths: dict[str, Callable[[], object]] = {
        "a join fires and is leased": lambda: leased.extend(pulling.lease(trigger.pk, limit=1, consumer="erp")),
        "its documents": lambda: handing_over.parts(leased[0].delivery.join_id),
        "extended": lambda: pulling.extend(leased[0].delivery.pk, leased[0].claim, 60),
        "completed": lambda: pulling.complete(leased[0].delivery.pk, leased[0].claim),
        "the next is absorbed": lambda: pulling.lease(trigger.pk, limit=1, consumer="erp"),
        "no join is out of time": lambda: handing_over.expire_due(),
        "one is": lambda: (
            Join.objects.filter(activation="c2").update(expires_at=clock.now() - timedelta(seconds=1)),
            handing_over.expire_due(),
        ),
    }
    found = {name: scanned for name, run in paths.items() if (scanned := scans(run))}
    assert not found, "\n\n".join(f"{name}:\n" + "\n".join(scanned) for name, scanned in found.items())
    assert Delivery.objects.filter(cause="join_expired").count() == 1
