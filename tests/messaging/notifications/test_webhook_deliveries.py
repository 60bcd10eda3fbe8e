"""What people do with webhook endpoints: a test, a new secret, one more try, a replay; and what the hub gives up."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from messaging.exceptions import InvalidSubmission, NotFound, Stale, WrongState
from messaging.journal.audit import Actor
from messaging.models import AuditEntry, Event, Incident, WebhookDelivery, WebhookEndpoint
from messaging.notifications.services import webhook_deliveries, webhooks
from rmhub.clock import FrozenClock, frozen
from rmhub.ids import uuid7
from tests.messaging.factories import PartnerSide, partner_side, submit
from tests.messaging.http_server import serving
from tests.messaging.notifications.test_webhooks import Taking, status

pytestmark = pytest.mark.django_db

AT = datetime(2026, 5, 1, 12, tzinfo=UTC)
ANN = Actor("ann")


@pytest.fixture(autouse=True)
def time() -> Iterator[FrozenClock]:
    with frozen(AT) as clock:
        yield clock
    webhooks._any_pool.clear()


def endpoint(url: str = "http://127.0.0.1:1/hook", types: tuple[str, ...] = ("message.accepted",), name: str = "ERP"):
    made, secret = webhooks.endpoint_create(url=url, types=types, name=name, actor=ANN)
    return made, secret


def verifies(secret: str, headers: dict[str, str], body: bytes) -> bool:
    """What a receiver does that follows Standard Webhooks 1.0: one fitting signature of several is enough."""
    signed = b".".join([headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), body])
    digest = hmac.new(base64.b64decode(secret.removeprefix("whsec_")), signed, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}" in headers["webhook-signature"].split(" ")


# ---- a test ----


def test_a_test_event_is_posted_at_once_signed_and_only_to_this_endpoint() -> None:
    taking = Taking()
    with serving(taking) as server:
        made, secret = endpoint(server.url)
        endpoint("http://127.0.0.1:1/other", types=())
        done = webhook_deliveries.endpoint_test(endpoint_id=made.pk, actor=ANN)
    [(headers, body)] = taking.requests
    assert verifies(secret, headers, body)
    assert json.loads(body)["type"] == "webhook_endpoint.test"
    assert json.loads(body)["data"] == {"endpoint": made.public_id, "by": "ann"}
    done.refresh_from_db()
    assert (done.state, done.last_status, done.due_at, done.delivered_at) == ("delivered", 204, None, AT)
    assert WebhookDelivery.objects.count() == 1
    assert AuditEntry.objects.latest("id").verb == "webhook.test"


def test_a_test_that_fails_says_so_and_is_not_tried_again(time: FrozenClock) -> None:
    taking = Taking(status(500))
    with serving(taking) as server:
        made, _ = endpoint(server.url)
        done = webhook_deliveries.endpoint_test(endpoint_id=made.pk, actor=ANN)
        time.move(7200)
        assert webhooks.deliver_due() == 0
    assert (done.state, done.last_status) == ("failed", 500)
    made.refresh_from_db()
    assert made.failing_since is None, "a test is no failure of the endpoint's work"


def test_an_endpoint_that_is_off_can_be_tested() -> None:
    with serving(Taking()) as server:
        made, _ = endpoint(server.url)
        webhooks.endpoint_update(endpoint_id=made.pk, enabled=False, actor=ANN, reason="not yet")
        assert webhook_deliveries.endpoint_test(endpoint_id=made.pk, actor=ANN).state == "delivered"


# ---- a new secret ----


def test_with_a_new_secret_both_sign_until_the_old_one_ends(time: FrozenClock) -> None:
    taking = Taking()
    with serving(taking) as server:
        made, old = endpoint(server.url)
        _, new = webhooks.endpoint_rotate_secret(endpoint_id=made.pk, actor=ANN, reason="yearly", overlap_hours=2)
        assert new != old and new.startswith("whsec_")
        webhook_deliveries.endpoint_test(endpoint_id=made.pk, actor=ANN)
        time.move(2 * 3600 + 1)
        webhook_deliveries.endpoint_test(endpoint_id=made.pk, actor=ANN)
    (first, body), (later, later_body) = taking.requests
    assert verifies(old, first, body) and verifies(new, first, body)
    assert verifies(new, later, later_body) and not verifies(old, later, later_body)
    entry = AuditEntry.objects.get(verb="webhook.rotate_secret")
    assert new not in json.dumps([entry.before, entry.after]) and entry.reason == "yearly"
    stored = WebhookEndpoint.objects.get()
    assert new.encode() not in bytes(stored.secret_encrypted)


def test_without_an_overlap_the_old_secret_ends_now() -> None:
    taking = Taking()
    with serving(taking) as server:
        made, old = endpoint(server.url)
        webhooks.endpoint_rotate_secret(endpoint_id=made.pk, actor=ANN, overlap_hours=0)
        webhook_deliveries.endpoint_test(endpoint_id=made.pk, actor=ANN)
    [(headers, body)] = taking.requests
    assert not verifies(old, headers, body)
    assert bytes(WebhookEndpoint.objects.get().previous_secret_encrypted) == b""


def test_a_secret_is_not_rotated_by_whoever_looked_at_something_else() -> None:
    made, _ = endpoint()
    seen = webhooks.revision(made)
    webhooks.endpoint_update(endpoint_id=made.pk, name="new", actor=ANN)
    for call in (webhooks.endpoint_rotate_secret, webhooks.endpoint_delete):
        with pytest.raises(Stale):
            call(endpoint_id=made.pk, actor=ANN, expected=seen)
    for hours in (-1, 169):
        with pytest.raises(InvalidSubmission):
            webhooks.endpoint_rotate_secret(endpoint_id=made.pk, actor=ANN, overlap_hours=hours)


# ---- given up ----


def test_an_endpoint_that_fails_for_five_days_is_switched_off_and_everybody_is_told(time: FrozenClock) -> None:
    with serving(Taking(status(500))) as server:
        made, _ = endpoint(server.url)
        other, _ = endpoint("http://127.0.0.1:1/other", types=("webhook_endpoint.disabled",))
        partner = partner_side()
        submit(partner)
        webhooks.deliver_due()
        time.move(5 * 86_400 - 60)
        submit(partner)
        webhooks.deliver_due()
        made.refresh_from_db()
        assert made.enabled, "not before five days have passed"
        time.move(120)
        submit(partner)
        webhooks.deliver_due()
    made.refresh_from_db()
    assert not made.enabled
    assert made.disabled_reason == "Every attempt since 2026-05-01 12:00Z failed."
    incident = Incident.objects.get(cause="webhook_disabled")
    assert made.public_id in incident.detail
    assert WebhookDelivery.objects.get(endpoint=other).body["data"]["endpoint"] == made.public_id
    entry = AuditEntry.objects.get(verb="webhook.disable")
    assert (entry.actor, entry.reason) == ("system", made.disabled_reason)
    # A person looks after it: the incident is over.
    webhooks.endpoint_update(endpoint_id=made.pk, enabled=True, actor=ANN, reason="It is back")
    incident.refresh_from_db()
    assert (incident.state, incident.resolved_by, incident.resolution) == ("resolved", "ann", "It is back")


def test_the_incident_stays_while_another_endpoint_is_off() -> None:
    with serving(Taking(status(410))) as server:
        first, _ = endpoint(server.url)
        second, _ = endpoint(server.url, name="CRM")
        submit(partner_side())
        webhooks.deliver_due()
    incident = Incident.objects.get(cause="webhook_disabled")
    assert incident.occurrences == 2
    webhooks.endpoint_update(endpoint_id=first.pk, enabled=True, actor=ANN, reason="back")
    incident.refresh_from_db()
    assert incident.state == "open"
    webhooks.endpoint_delete(endpoint_id=second.pk, actor=ANN, reason="not used")
    incident.refresh_from_db()
    assert incident.state == "resolved"


# ---- once more ----


def given_up(partner: PartnerSide, count: int = 1) -> list[WebhookDelivery]:
    for _ in range(count):
        submit(partner)
    WebhookDelivery.objects.update(state="failed", due_at=None, attempts=10, last_status=500)
    return list(WebhookDelivery.objects.order_by("id"))


def test_a_delivery_goes_out_once_more_under_its_id() -> None:
    taking = Taking()
    with serving(taking) as server:
        endpoint(server.url)
        [failed] = given_up(partner_side())
        webhook_deliveries.redeliver(delivery_id=failed.pk, actor=ANN, reason="fixed")
        assert webhooks.deliver_due() == 1
    [(headers, _)] = taking.requests
    assert headers["webhook-id"] == failed.public_id
    failed.refresh_from_db()
    assert (failed.state, failed.attempts) == ("delivered", 1), "with all its retries again"
    assert AuditEntry.objects.get(verb="webhook.redeliver").reason == "fixed"


def test_nothing_is_delivered_again_to_an_endpoint_that_is_off() -> None:
    made, _ = endpoint()
    [failed] = given_up(partner_side())
    webhooks.endpoint_update(endpoint_id=made.pk, enabled=False, actor=ANN, reason="maintenance")
    with pytest.raises(WrongState):
        webhook_deliveries.redeliver(delivery_id=failed.pk, actor=ANN)
    with pytest.raises(WrongState):
        webhook_deliveries.replay(endpoint_id=made.pk, actor=ANN, since=AT - timedelta(hours=1))
    with pytest.raises(NotFound):
        webhook_deliveries.redeliver(delivery_id=uuid7(), actor=ANN)
    with pytest.raises(NotFound):
        webhook_deliveries.endpoint_test(endpoint_id=uuid7(), actor=ANN)


# ---- replay ----


def test_a_replay_delivers_what_was_given_up_since_then(time: FrozenClock) -> None:
    made, _ = endpoint()
    partner = partner_side()
    [old] = given_up(partner)
    time.move(3600)
    since = AT + timedelta(minutes=30)
    given_up(partner)
    submit(partner)  # on its way: left alone
    delivered = WebhookDelivery.objects.order_by("-id")[0]
    WebhookDelivery.objects.filter(pk=delivered.pk).update(state="delivered", due_at=None)
    done = webhook_deliveries.replay(endpoint_id=made.pk, actor=ANN, since=since, reason="outage")
    assert (done.queued, done.until) == (1, None)
    old.refresh_from_db()
    assert old.state == "failed", "before that time"
    assert AuditEntry.objects.get(verb="webhook.replay").after["queued"] == 1


def test_a_replay_of_everything_brings_what_the_endpoint_was_not_owed(time: FrozenClock) -> None:
    made, _ = endpoint(types=("message.accepted", "pair.paused"))
    partner = partner_side()
    submit(partner)
    WebhookDelivery.objects.update(state="delivered", due_at=None)
    webhooks.endpoint_update(endpoint_id=made.pk, enabled=False, actor=ANN, reason="maintenance")
    time.move(60)
    submit(partner)
    assert WebhookDelivery.objects.count() == 1
    webhooks.endpoint_update(endpoint_id=made.pk, enabled=True, actor=ANN)
    done = webhook_deliveries.replay(endpoint_id=made.pk, actor=ANN, since=AT - timedelta(seconds=1), everything=True)
    assert done.queued == 2
    bodies = [d.body["data"]["message_id"] for d in WebhookDelivery.objects.filter(state="pending")]
    accepted = Event.objects.filter(type="message.accepted").values_list("data__message_id", flat=True)
    assert sorted(bodies) == sorted(accepted)
    again = webhook_deliveries.replay(endpoint_id=made.pk, actor=ANN, since=AT - timedelta(seconds=1), everything=True)
    assert again.queued == 0, "it is on its way already"


def test_a_large_replay_goes_on_where_it_ended(time: FrozenClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_deliveries, "REPLAY_AT_MOST", 2)
    made, _ = endpoint()
    partner = partner_side()
    for _ in range(5):
        time.move(10)
        submit(partner)
    given = WebhookDelivery.objects.update(state="failed", due_at=None)
    assert given == 5
    since: datetime | None = AT
    rounds = []
    while since is not None:
        done = webhook_deliveries.replay(endpoint_id=made.pk, actor=ANN, since=since)
        rounds.append(done.queued)
        since = done.until
    assert rounds == [2, 2, 1]
    assert set(WebhookDelivery.objects.values_list("state", flat=True)) == {"pending"}


@pytest.mark.parametrize("ago", [timedelta(days=31), timedelta(seconds=-1)])
def test_a_replay_from_a_time_that_cannot_be(ago: timedelta) -> None:
    made, _ = endpoint()
    with pytest.raises(InvalidSubmission):
        webhook_deliveries.replay(endpoint_id=made.pk, actor=ANN, since=AT - ago)


def test_old_deliveries_are_forgotten() -> None:
    """By the times in their ids, which are those of the real clock."""
    endpoint()
    partner = partner_side()
    given_up(partner)
    submit(partner)
    made = datetime.now(UTC)
    assert webhook_deliveries.drop_old(made + timedelta(days=29)) == 0
    assert webhook_deliveries.drop_old(made + timedelta(days=31)) == 1
    assert [delivery.state for delivery in WebhookDelivery.objects.all()] == ["pending"]
