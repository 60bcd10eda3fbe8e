"""What is due counts from when it could first be done: its time, or the opening of the gate where that was later."""

from __future__ import annotations

from datetime import timedelta

import pytest

from messaging.deliveries.services import triggering
from messaging.engine.pairs import close_unagreed
from messaging.models import Delivery, Pair, Signal, WebhookDelivery
from messaging.notifications.services import webhooks
from messaging.overview.selectors import health, overview
from messaging.pairs.selectors.diagnosis import diagnose
from messaging.pairs.services import operating
from rmhub import clock
from rmhub.clock import FrozenClock
from tests.messaging.conftest import time  # noqa: F401  (a fixture)
from tests.messaging.console.scenes import ANA, documents, stop, trigger_for
from tests.messaging.factories import PartnerSide, partner_side, submit

pytestmark = pytest.mark.django_db
HOURS = 2 * 3600


@pytest.fixture(autouse=True)
def broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_broker_answers", lambda: True)


def said(partner: PartnerSide) -> str:
    return diagnose(partner.outbound, None, partner.terms, clock.now()).sentence


def test_a_pair_that_was_just_released_is_not_late(time: FrozenClock) -> None:  # noqa: F811
    partner = partner_side()
    submit(partner)
    operating.pair_pause(pair_id=partner.outbound.pk, actor=ANA, reason="their move")
    time.move(HOURS)
    operating.pair_release(pair_id=partner.outbound.pk, actor=ANA, reason="moved")
    assert said(partner) == "1 document to send; the next goes out at once."
    assert health.health().overdue_seconds == 0
    assert "behind" not in overview.status(clock.now()).sentence
    time.move(health.OVERDUE_SECONDS + 30)  # and late it is from then on
    assert "This was due 1 m 30 s ago: the hub's workers" in said(partner)
    assert health.health().overdue_seconds == 90


def test_a_pair_whose_agreement_is_in_force_again_is_not_late(time: FrozenClock) -> None:  # noqa: F811
    partner = partner_side()
    submit(partner)
    Pair.objects.filter(pk=partner.outbound.pk).update(gate="disabled")
    time.move(HOURS)
    close_unagreed()
    assert partner.outbound.gate == "open"
    assert "workers" not in said(partner) and health.health().overdue_seconds == 0


def test_webhooks_that_are_switched_on_again_are_not_late(time: FrozenClock) -> None:  # noqa: F811
    endpoint, _ = webhooks.endpoint_create(name="A", url="https://hooks.example/", types=[], actor=ANA)
    partner = partner_side()
    submit(partner)
    assert WebhookDelivery.objects.exists()
    Pair.objects.update(due_at=None)
    webhooks.endpoint_update(endpoint_id=endpoint.pk, actor=ANA, reason="moving", enabled=False)
    time.move(HOURS)
    webhooks.endpoint_update(endpoint_id=endpoint.pk, actor=ANA, reason="moved", enabled=True)
    assert health.health().overdue_seconds == 0


def test_a_trigger_that_is_resumed_is_not_late_with_what_was_on_its_way(time: FrozenClock) -> None:  # noqa: F811
    partner = partner_side()
    trigger = trigger_for(partner, "orders")
    documents(partner, "one")
    Signal.objects.update(due_at=None)
    Delivery.objects.update(state="running", due_at=clock.now() + timedelta(seconds=30))
    Pair.objects.update(due_at=None)
    stop(trigger)
    time.move(HOURS)
    triggering.trigger_resume(trigger_id=trigger.pk, actor=ANA, reason="fixed")
    assert health.health().overdue_seconds == 0
