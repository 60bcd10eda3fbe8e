"""X12: the clock is set back by ten minutes. Whatever was due comes late, by the clock as it was, and never twice."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from messaging.choices import SignalKind
from messaging.deliveries.services import settling
from messaging.messages.services import resubmitting
from messaging.models import Delivery, Event, Message, Signal, WebhookDelivery
from messaging.notifications.services import webhooks
from messaging.overview.services import housekeeping
from messaging.profiles.repeatable import replies
from messaging.profiles.wsat import due
from messaging.protocol.atomic.words import Protocol
from rmhub import clock
from rmhub.clock import FrozenClock
from tests.messaging.conftest import NOON
from tests.messaging.deliveries.stage import PERSON, application, arrive, http, make_trigger, states
from tests.messaging.deliveries.stage import claim as claim_deliveries
from tests.messaging.deliveries.stage import work as deliver
from tests.messaging.factories import LOST, REFUSED, TAKEN, Link, answered, link, partner_side, submit, work
from tests.messaging.http_server import serving
from tests.messaging.notifications.test_webhooks import Taking, status
from tests.messaging.profiles.repeatable.callers import SKEW, WINDOW, brief, caller, remembering_since
from tests.messaging.profiles.stream.partner import stream_side
from tests.messaging.profiles.wsat.kit import peer
from tests.messaging.profiles.wsat.scenes import prepared

pytestmark = pytest.mark.django_db

BACK = 600


@pytest.fixture
def wire() -> Iterator[Link]:
    with link() as made:
        yield made


Worker = Callable[[], object]


def happens_at(
    time: FrozenClock, count: Callable[[], int], until: float, workers: tuple[Worker, ...] = (work, deliver)
) -> list[float]:
    """Sets the clock back, and tells at which seconds after that workers did something, looked at every half second."""
    time.move(-BACK)
    found: list[float] = []
    before = count()
    for tick in range(int(until * 2) + 1):
        while any(worker() for worker in workers):
            pass
        found += [tick / 2] * (count() - before)
        before = count()
        time.move(0.5)
    return found


def test_x12_an_unanswered_message_is_repeated_late_and_once(time: FrozenClock, wire: Link) -> None:
    submit(partner_side(timeout=30, retries=3, retry_interval=10))
    work()
    assert happens_at(time, lambda: len(wire.parcels), BACK + 35) == [BACK + 30]
    assert len({parcel.body for parcel in wire.parcels}) == 1


def test_x12_an_acknowledgement_that_could_not_be_sent_is_sent_late_and_once(time: FrozenClock) -> None:
    partner = partner_side(transport_retries=2, transport_retry_interval=20)
    with link(REFUSED):
        partner.send(partner.message(1))
        work()
    with link(TAKEN) as wire:
        assert happens_at(time, lambda: len(wire.parcels), BACK + 60) == [BACK + 20]
    assert Signal.objects.get(kind=SignalKind.ACKNOWLEDGEMENT).owed == 0


def test_x12_an_order_acknowledgement_goes_out_late_and_once(time: FrozenClock, wire: Link) -> None:
    partner = stream_side()
    partner.send(partner.message(1))
    assert happens_at(time, lambda: len(wire.parcels), BACK + 30) == [BACK + 0.5]


def test_x12_a_message_of_a_stream_is_sent_again_late_and_once(time: FrozenClock, wire: Link) -> None:
    wire.answer = TAKEN
    submit(stream_side())  # type: ignore[arg-type]
    work()
    assert happens_at(time, lambda: len(wire.parcels), BACK + 45) == [BACK + 30]


def test_x12_a_service_that_said_not_now_is_asked_again_late_and_once(time: FrozenClock) -> None:
    with application() as app:
        app.plan("/documents", http(503), http(200))
        make_trigger(app, max_retries=3, retry_interval=10)
        [document] = arrive(partner_side(), "order-1")
        deliver()
        assert happens_at(time, lambda: len(app.documents), BACK + 30) == [BACK + 10]
        assert states(document) == ["completed"]


def test_x12_a_document_is_redelivered_after_its_newest_resubmission(
    time: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids sort by the clocks of the processes that made them, and a server that starts anew may be behind."""
    with application() as app:
        app.plan("/documents", http(500))
        make_trigger(app)
        [first] = arrive(partner_side(), "order-1")
        deliver()
        with monkeypatch.context() as behind:
            earlier = uuid.UUID(int=first.pk.int - BACK * 1000 * 2**80)
            behind.setattr("messaging.deliveries.services.settling.uuid7", lambda: earlier)
            settling.delivery_settle(
                delivery_id=first.pk,
                decision=settling.Decision.RESUBMIT,
                actor=PERSON,
                reason="It was an error of the service",
            )
        second = Delivery.objects.get(resubmission_of=first)
        assert second.pk < first.pk
        deliver()
        again = resubmitting.message_redeliver(
            message_id=first.message_id, actor=PERSON, reason="The service is fixed now"
        )
        assert [made.resubmission_of for made in again.made] == [second]


def test_x12_what_somebody_has_in_work_stays_theirs_for_all_of_its_lease(time: FrozenClock) -> None:
    with application() as app:
        make_trigger(app)
        [document] = arrive(partner_side(), "order-1")
        [job] = claim_deliveries()
        lease = job.lease.total_seconds()
        time.move(-BACK)
        time.move(BACK + lease - 1)
        assert (deliver(), states(document)) == (0, ["running"])
        time.move(1)
        deliver()
        assert (states(document), app.documents) == (["in_doubt"], [])


def test_x12_a_repeatable_request_is_repeated_late_and_once(
    time: FrozenClock, wire: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replies, "jitter", lambda: 1.0)
    wire.answer = LOST
    message = submit(partner_side(profile="repeatable"))
    work()
    wire.answer = answered()
    assert happens_at(time, lambda: len(wire.parcels), BACK + 60, (work,)) == [BACK + 20]
    first, second = wire.parcels
    assert (first.headers, first.body) == (second.headers, second.body)
    message.refresh_from_db()
    assert message.state == "delivered"


def test_x12_what_a_transaction_asks_is_asked_again_late_and_once(time: FrozenClock, wire: Link) -> None:
    _, [shop] = prepared("shop")
    work()
    sent = len(wire.parcels)
    wait = shop.peer.terms.repeat_interval
    assert happens_at(time, lambda: len(wire.parcels), BACK + wait + 1, (work,)) == [BACK + wait]
    [asked] = {parcel.body for parcel in wire.parcels[sent:]}
    assert asked in {parcel.body for parcel in wire.parcels[:sent]}


def test_x12_a_transaction_expires_late_and_once(time: FrozenClock) -> None:
    begun = peer().create(expires_ms=30_000)
    member = peer().register(begun, Protocol.DURABLE)
    expired = Event.objects.filter(data__cause="transaction_expired")
    assert happens_at(time, expired.count, BACK + 60, (due.run_due,)) == [BACK + 30]
    assert member.heard() == ["Rollback"]


def test_x12_a_webhook_is_posted_again_late_and_once(time: FrozenClock) -> None:
    taking = Taking(status(500))
    with serving(taking) as server:
        webhooks.endpoint_create(url=server.url, types=("message.accepted",), name="ERP", actor=PERSON)
        submit(partner_side())
        webhooks.deliver_due()
        taking.answer = status(204)
        again = WebhookDelivery.objects.get()
        assert again.due_at is not None and len(taking.requests) == 1
        wait = math.ceil((again.due_at - NOON).total_seconds() * 2) / 2
        seen = happens_at(time, lambda: len(taking.requests), BACK + 30, (webhooks.deliver_due,))
    webhooks._any_pool.clear()
    assert seen == [BACK + wait]
    again.refresh_from_db()
    assert (again.state, again.attempts) == ("delivered", 2)


@pytest.mark.parametrize("after", [0, 45])
def test_x12_what_was_too_old_stays_too_old(time: FrozenClock, after: int) -> None:
    """Also between two heartbeats of the memory, which are what the window goes by while the clock is behind."""
    remembering_since(NOON - timedelta(days=30))
    partner = caller()
    housekeeping.remember_and_forget()
    time.move(after)
    first_sent = clock.now() - WINDOW - timedelta(seconds=1)
    outside = (412, "rejected", "outside-memory-window")
    assert brief(partner.post("order-1", first_sent)) == outside
    time.move(-BACK)
    assert brief(partner.post("order-1", first_sent)) == outside
    assert not Message.objects.exists()
    time.move(BACK)
    assert brief(partner.post("order-1", first_sent)) == outside


def test_x12_a_copy_is_known_and_a_new_request_is_taken(time: FrozenClock) -> None:
    """Times that are ahead of the clock by more than its partner may be are refused until the clock is there."""
    remembering_since(NOON - timedelta(days=30))
    partner = caller()
    taken, future = (202, "accepted", ""), (412, "rejected", "first-sent-in-future")
    assert brief(partner.post("order-1", NOON)) == taken
    time.move(-BACK)
    assert brief(partner.post("order-1", NOON)) == future
    assert brief(partner.post("order-2", NOON - timedelta(seconds=BACK) + SKEW)) == taken
    time.move(BACK)
    assert brief(partner.post("order-1", NOON)) == taken
    assert Message.objects.count() == 2
