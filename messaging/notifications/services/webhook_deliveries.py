"""Single webhook deliveries, as people ask for them: a test, one more try, and all that an endpoint has missed."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from messaging import dispatch
from messaging.choices import WebhookState
from messaging.exceptions import InvalidSubmission, WrongState
from messaging.journal import audit, events
from messaging.journal.audit import Actor
from messaging.models import Event, WebhookDelivery, WebhookEndpoint
from messaging.models.base import existing
from messaging.models.bulk import bulk_insert, bulk_set
from messaging.notifications.services import webhooks
from rmhub import clock
from rmhub.ids import floor_id

TEST = "webhook_endpoint.test"
REPLAY_AT_MOST = 10_000
REPLAY_DAYS = 30
KEPT = timedelta(days=30)
_DROP_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class Replay:
    """What a replay queued. `until`: where to go on when there was more than one replay takes, else None."""

    queued: int
    until: datetime | None


def endpoint_test(*, endpoint_id: uuid.UUID, actor: Actor) -> WebhookDelivery:
    """Posts one event of the type `webhook_endpoint.test` now, and returns what came of it. It is not tried again.

    Works for an endpoint that is switched off too: one looks before one switches it on. Raises NotFound.
    """
    now = clock.now()
    with transaction.atomic():
        endpoint = _endpoint(endpoint_id)
        told = events.event(TEST, now, data={"endpoint": endpoint.public_id, "by": actor.name})
        bulk_insert([told], returning_key=True)
        delivery = WebhookDelivery.objects.create(
            endpoint=endpoint,
            event=told,
            body=events.body(told),
            state=WebhookState.FAILED,  # until the answer says otherwise: nobody else takes it
            attempts=1,
            last_error="The hub stopped before an answer came.",
            created_at=now,
        )
        audit.record(actor, "webhook.test", endpoint, after={"delivery": delivery.public_id})
    outcome = webhooks.post(delivery)
    if outcome.status is not None and 200 <= outcome.status < 300:
        delivery.state, delivery.delivered_at = WebhookState.DELIVERED, clock.now()
    delivery.last_status, delivery.last_error = outcome.status, outcome.error
    delivery.save(update_fields=["state", "delivered_at", "last_status", "last_error"])
    return delivery


def redeliver(*, delivery_id: uuid.UUID, actor: Actor, reason: str = "") -> WebhookDelivery:
    """Posts it once more, under the same `webhook-id` and with all its retries. Raises NotFound, WrongState."""
    with transaction.atomic():
        found = existing(WebhookDelivery.objects.select_related("endpoint"), delivery_id)
        endpoint = _endpoint(found.endpoint_id)
        delivery = WebhookDelivery.objects.select_for_update(of=("self",)).get(pk=found.pk)
        delivery.endpoint = endpoint
        if not endpoint.enabled:
            raise WrongState(
                _("{endpoint} is switched off: switch it on, then deliver again.").format(endpoint=endpoint),
                state="disabled",
                allowed=("enable",),
            )
        before = {"state": delivery.state, "attempts": delivery.attempts}
        _queue([delivery], clock.now())
        audit.record(actor, "webhook.redeliver", delivery, reason=reason, before=before)
    return delivery


def replay(
    *, endpoint_id: uuid.UUID, actor: Actor, since: datetime, everything: bool = False, reason: str = ""
) -> Replay:
    """Delivers again what failed since a time; `everything`: all events since then, also what it was never owed.

    What is on its way already is left alone. At most 10,000 at once, oldest first. Raises NotFound, WrongState,
    InvalidSubmission.
    """
    now = clock.now()
    if not now - timedelta(days=REPLAY_DAYS) <= since <= now:
        raise InvalidSubmission({"since": [_("A time in the past, at most {days} days ago.").format(days=REPLAY_DAYS)]})
    with transaction.atomic():
        endpoint = _endpoint(endpoint_id)
        if not endpoint.enabled:
            raise WrongState(
                _("{endpoint} is switched off: switch it on, then replay.").format(endpoint=endpoint),
                state="disabled",
                allowed=("enable",),
            )
        owed = WebhookDelivery.objects.filter(endpoint=endpoint, id__gte=floor_id(since), created_at__gte=since)
        states = [WebhookState.FAILED, *([WebhookState.DELIVERED] if everything else [])]
        again = list(
            owed.filter(state__in=states)
            .exclude(body__type=TEST)
            .order_by("id")
            .select_for_update(of=("self",), no_key=True)[: REPLAY_AT_MOST + 1]
        )
        missed = _missed(endpoint, since, REPLAY_AT_MOST + 1) if everything else []
        until = _cut(again, missed)
        if until is not None:
            again = [delivery for delivery in again if delivery.created_at < until]
            missed = [event for event in missed if event.at < until]
        _queue(again, now)
        bulk_insert(
            [
                WebhookDelivery(endpoint=endpoint, event=e, body=events.body(e), due_at=now, created_at=now)
                for e in missed
            ]
        )
        queued = len(again) + len(missed)
        after = {"since": since.isoformat(), "everything": everything, "queued": queued}
        audit.record(actor, "webhook.replay", endpoint, reason=reason, after=after)
        dispatch.wake_on_commit(dispatch.WEBHOOKS)
    return Replay(queued, until)


def drop_old(now: datetime) -> int:
    """Forgets deliveries that ended more than 30 days ago, a bounded number at once. Returns how many."""
    edge = floor_id(now - KEPT)
    old = WebhookDelivery.objects.filter(id__lt=edge, due_at__isnull=True).order_by("id").values("id")[:_DROP_AT_ONCE]
    dropped, _ = WebhookDelivery.objects.filter(id__in=old).delete()
    return dropped


def _endpoint(endpoint_id: uuid.UUID) -> WebhookEndpoint:
    """Held until the commit: neither deleted nor switched off meanwhile. Raises NotFound."""
    return existing(WebhookEndpoint.objects.select_for_update(no_key=True), endpoint_id)


def _queue(deliveries: Sequence[WebhookDelivery], now: datetime) -> None:
    for delivery in deliveries:
        delivery.state, delivery.due_at, delivery.attempts = WebhookState.PENDING, now, 0
    bulk_set(list(deliveries), ("state", "due_at", "attempts"))
    dispatch.wake_on_commit(dispatch.WEBHOOKS)


def _missed(endpoint: WebhookEndpoint, since: datetime, limit: int) -> list[Event]:
    """Events since then that this endpoint was never owed: it was off, was told of other types, or did not exist."""
    found: QuerySet[Event] = Event.objects.filter(pk__gte=_first_event(since), at__gte=since).exclude(type=TEST)
    if endpoint.types:
        found = found.filter(type__in=endpoint.types)
    # Deliveries of this endpoint since then, by event: read once, so that no event is compared with all of them.
    owed = set(
        WebhookDelivery.objects.filter(endpoint=endpoint, id__gte=floor_id(since - timedelta(hours=1))).values_list(
            "event_id", flat=True
        )
    )
    missed: list[Event] = []
    for event in found.order_by("pk").iterator(chunk_size=2000):
        if event.pk not in owed:
            missed.append(event)
            if len(missed) >= limit:
                break
    return missed


def _first_event(since: datetime) -> int:
    """The number of about the first event since a time. Events are numbered in about the order of their times: halved
    by the primary key, for there is no index on the time.
    """
    edges = Event.objects.order_by("pk").values_list("pk", flat=True)
    low, high = edges.first(), edges.last()
    if low is None or high is None:
        return 0
    slack = since - timedelta(minutes=5)  # transactions that were open for long
    while low < high:
        middle = (low + high) // 2
        at = Event.objects.filter(pk__gte=middle).order_by("pk").values_list("at", flat=True).first()
        if at is None or at >= slack:
            high = middle
        else:
            low = middle + 1
    return low


def _cut(again: Sequence[WebhookDelivery], missed: Sequence[Event]) -> datetime | None:
    """The time before which there are no more than one replay takes; None when that is all there is."""
    times = sorted([*(delivery.created_at for delivery in again), *(event.at for event in missed)])
    return times[REPLAY_AT_MOST] if len(times) > REPLAY_AT_MOST else None
