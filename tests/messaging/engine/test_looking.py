"""One look says which tasks have something to do; what it does not say costs nothing, and nothing due is passed over.

What it says of jobs, monitors, notifications and seals is tested where these are.
"""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.conf import settings

from messaging import dispatch, tasks
from messaging.engine import looking
from messaging.engine.claiming import claim_due
from messaging.engine.missing import MISSING_AFTER
from messaging.journal.audit import SYSTEM
from messaging.models import NotificationCursor, Pair, Signal, Transmission, Worker
from messaging.notifications.services import notifying, webhooks
from messaging.overview.services import traffic_hours
from rmhub import clock
from rmhub.clock import frozen
from tests.messaging.deliveries.documents import make_queue
from tests.messaging.deliveries.stage import arrive, claim, make_trigger
from tests.messaging.factories import partner_side, submit

pytestmark = pytest.mark.django_db(transaction=True)
W = 4711


def worker(number: int = W) -> None:
    now = clock.now()
    Worker.objects.create(number=number, name="w", node="n", pid=1, started=1, held_since=now, renewed_at=now)


def sends() -> bool:
    return dispatch.SEND in looking.look(W)


def test_every_task_is_looked_for_or_a_matter_of_its_interval() -> None:
    assert set(tasks._WORK) - set(looking.CONDITIONS) == {"messaging.housekeeping", "messaging.pipeline_due"}
    assert set(looking.CONDITIONS) <= set(tasks._WORK)
    assert {entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()} == set(tasks._WORK)


def test_an_idle_hub_has_nothing_to_do() -> None:
    for _ in range(3):
        traffic_hours.count_due()
        notifying.notify_due()
    tasks.audit_seal()
    assert looking.look(W, ahead=60) == {}


def test_what_waits_to_be_sent_is_found_while_it_may_go() -> None:
    assert not sends()
    partner = partner_side()
    submit(partner)
    assert sends()
    Pair.objects.filter(pk=partner.outbound.pk).update(gate="paused")
    assert not sends()
    once = submit(partner, semantics="BestEffort")
    assert sends()
    once.delete()
    partner.send(partner.message(1))
    assert sends()


def test_a_timer_that_runs_out_before_the_next_look_is_seen_ahead() -> None:
    with frozen(clock.now()) as time:
        partner = partner_side()
        partner.send(partner.message(1))
        Signal.objects.update(due_at=clock.now() + timedelta(seconds=0.9))
        assert looking.look(W, ahead=1)[dispatch.SEND] == 0.9
        Pair.objects.filter(pk=partner.outbound.pk).update(due_at=clock.now() + timedelta(seconds=0.5))
        assert looking.look(W, ahead=1)[dispatch.SEND] == 0.5
        assert not sends()
        time.move(0.5)
        assert looking.look(W, ahead=1)[dispatch.SEND] == 0
        Signal.objects.all().delete()
        Pair.objects.filter(pk=partner.outbound.pk).update(gate="paused", due_at=clock.now() + timedelta(seconds=0.5))
        assert dispatch.SEND not in looking.look(W, ahead=1), "it does not go then"
        Pair.objects.filter(pk=partner.outbound.pk).update(gate="open", due_at=clock.now() + timedelta(seconds=1.5))
        assert dispatch.SEND not in looking.look(W, ahead=1), "there is another look before"


def test_what_is_claimed_is_found_when_its_worker_is_dead_or_misses_it() -> None:
    submit(partner_side())
    claim_due(limit=10, worker=W)
    assert sends(), "nobody of that number is there"
    worker()
    assert not sends()
    Transmission.objects.update(started_at=clock.now() - 2 * MISSING_AFTER)
    assert sends()
    assert dispatch.SEND not in looking.look(W + 1), "it is another worker's to look for"


def test_documents_for_applications_are_found_as_a_claim_finds_them() -> None:
    make_queue()
    arrive(partner_side(), "doc-1@example.com")
    assert dispatch.DELIVER not in looking.look(W), "it is fetched"
    make_trigger(kind="http", url="https://app.example/")
    arrive(partner_side(), "doc-2@example.com")
    assert dispatch.DELIVER in looking.look(W)
    worker()
    assert len(claim(worker=W)) == 1
    assert dispatch.DELIVER not in looking.look(W)
    Worker.objects.all().delete()
    assert dispatch.DELIVER in looking.look(W)


def test_webhooks_are_found_while_their_endpoint_is_on() -> None:
    made = webhooks.endpoint_create(url="https://hooks.example", types=("message.accepted",), name="", actor=SYSTEM)
    endpoint = made[0] if isinstance(made, tuple) else made
    submit(partner_side())
    assert dispatch.WEBHOOKS in looking.look(W)
    type(endpoint).objects.update(enabled=False)
    assert dispatch.WEBHOOKS not in looking.look(W)


def test_the_feed_is_read_when_it_has_gone_on() -> None:
    assert {dispatch.TRAFFIC, dispatch.NOTIFICATIONS} <= set(looking.look(W)), "nobody has read it so far"
    for _ in range(3):
        traffic_hours.count_due()
        notifying.notify_due()
    assert NotificationCursor.objects.exists()
    assert not {dispatch.TRAFFIC, dispatch.NOTIFICATIONS} & set(looking.look(W))
    submit(partner_side())
    assert {dispatch.TRAFFIC, dispatch.NOTIFICATIONS} <= set(looking.look(W))
