"""A pair that is resumed with one message first: what its failure and its delivery lead to, in each profile."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from messaging.exceptions import InvalidSubmission
from messaging.journal.audit import Actor
from messaging.models import AuditEntry, Event, Incident, Message, OutgoingStream, Pair
from messaging.pairs.services import operating
from messaging.protocol.codecs import stream
from messaging.protocol.streams.final import OrderAck
from messaging.transports import Receipt
from rmhub import clock
from rmhub.clock import FrozenClock, frozen
from tests.messaging.factories import LOST, REFUSED, TAKEN, PartnerSide, answered, link, partner_side, submit, work
from tests.messaging.profiles.stream.partner import GUID, StreamSide, stream_side

pytestmark = pytest.mark.django_db

ANN = Actor("ann")
WHY = "Partner fixed their firewall."
_count = itertools.count(1)


@pytest.fixture
def time() -> Iterator[FrozenClock]:
    with frozen(datetime(2026, 5, 1, 12, tzinfo=UTC)) as clock:
        yield clock


def suspended(time: FrozenClock, waiting: int = 2, **terms: int) -> PartnerSide:
    """An ebXML pair that gave up on its first message, with others behind it."""
    partner = partner_side(**{"retries": 1, "timeout": 60, "retry_interval": 60, "transport_retries": 0, **terms})
    submit(partner)
    with link(REFUSED):
        while partner.outbound.flow != "suspended":
            work()
            time.move(61)
    for _ in range(waiting):
        submit(partner)
    return partner


def resume(pair: Pair, mode: str = "probe") -> None:
    operating.pair_resume(pair_id=pair.pk, actor=ANN, reason=WHY, mode=mode)


def test_the_first_failure_suspends_again_at_once(time: FrozenClock) -> None:
    partner = suspended(time, transport_retries=2, retries=5)
    first = Message.objects.get(pk=partner.outbound.in_flight_id)
    octets, attempts = bytes(first.wire_frame or b""), first.attempts
    resume(partner.outbound)
    assert partner.outbound.probing
    with link(REFUSED) as wire:
        work()
        time.move(600)
        work()
    assert len(wire.parcels) == 1  # neither transport recovery nor a retry
    pair = partner.outbound
    assert (pair.flow, pair.cause, pair.probing, pair.queued) == ("suspended", "connect_refused", False, 2)
    first.refresh_from_db()
    assert (first.state, first.attempts, bytes(first.wire_frame or b"")) == ("failed", attempts + 1, octets)
    assert Event.objects.filter(pair=pair, type="pair.suspended").count() == 2
    failed = Event.objects.filter(message=first, type="message.failed").latest("id")
    assert failed.data["message_id"] == first.message_id
    assert Incident.objects.exclude(state="resolved").get(pair=pair).cause == "connect_refused"


def test_silence_after_the_probe_suspends_without_a_retry(time: FrozenClock) -> None:
    partner = suspended(time, retries=5)
    resume(partner.outbound)
    with link(TAKEN) as wire:
        work()
        assert partner.outbound.flow == "awaiting_ack"
        time.move(61)
        work()
    assert len(wire.parcels) == 1
    assert (partner.outbound.flow, partner.outbound.cause) == ("suspended", "ack_timeout")


def test_a_delivery_lets_the_others_go_with_all_their_retries(time: FrozenClock) -> None:
    partner = suspended(time)
    resume(partner.outbound)
    with link(TAKEN) as wire:
        work()
        assert len(wire.parcels) == 1
        partner.send(partner.acknowledgement(wire.last))
        assert not partner.outbound.probing
        work()
        assert len(wire.parcels) == 2
        time.move(61)
        work()
    assert partner.outbound.flow in ("sending", "awaiting_ack")
    assert partner.outbound.retries == 1  # the second one is retried as the agreement says


def test_a_pause_that_the_partner_asks_for_is_no_failure(time: FrozenClock) -> None:
    partner = suspended(time)
    resume(partner.outbound)
    with link(TAKEN) as wire:
        work()
        partner.send(partner.error(wire.last, "TransientError", min_retry_secs=30))
        assert (partner.outbound.flow, partner.outbound.probing) == ("holding", True)
        time.move(31)
        work()
        partner.send(partner.acknowledgement(wire.last))
    assert (partner.outbound.flow, partner.outbound.probing) == ("idle", False)


def test_the_audit_log_and_the_event_say_the_mode(time: FrozenClock) -> None:
    partner = suspended(time)
    resume(partner.outbound)
    entry = AuditEntry.objects.get(verb="pair.resume")
    assert (entry.after["mode"], entry.reason) == ("probe", WHY)
    assert "mode" not in entry.before
    assert Event.objects.get(type="pair.resumed").data["mode"] == "probe"


def test_all_at_once_is_as_it_was(time: FrozenClock) -> None:
    partner = suspended(time)
    resume(partner.outbound, "all")
    assert not partner.outbound.probing
    with link(REFUSED):
        work()
    assert partner.outbound.flow == "awaiting_ack"  # its budget of retries is fresh
    assert "mode" not in Event.objects.get(type="pair.resumed").data


def test_there_is_no_other_mode(time: FrozenClock) -> None:
    partner = suspended(time)
    with pytest.raises(InvalidSubmission):
        resume(partner.outbound, "slowly")
    assert partner.outbound.flow == "suspended"


def test_it_costs_no_query(time: FrozenClock) -> None:
    counts = []
    for mode in ("all", "probe"):
        partner = suspended(time)
        resume(partner.outbound, mode)
        with link(TAKEN) as wire, CaptureQueriesContext(connection) as queries:
            work()
            partner.send(partner.acknowledgement(wire.last))
        counts.append(len(queries))
    assert counts[0] == counts[1]


def requests(time: FrozenClock) -> PartnerSide:
    """Three requests in flight and two that wait, on a pair that was suspended."""
    side = partner_side(profile="repeatable", max_in_flight=3, partner_window=3600)
    for _ in range(5):
        submit(side)
    with link(LOST):
        work()
    refused = Receipt(ok=False, status=401, cause="http_401_403", detail="Not you.")
    with link(refused):
        time.move(700)
        work()
    return side


def test_of_requests_one_goes_and_the_others_wait_for_it(time: FrozenClock) -> None:
    side = requests(time)
    assert (side.outbound.flow, side.outbound.out_now) == ("suspended", 3), side.outbound.cause
    resume(side.outbound)
    with link(LOST) as wire:
        work()
        time.move(700)
        work()
    assert len(wire.parcels) == 1
    assert (side.outbound.flow, side.outbound.cause, side.outbound.probing) == ("suspended", "read_timeout", False)
    resume(side.outbound)
    with link(answered()) as wire:
        work()
        assert len(wire.parcels) == 1
        assert not side.outbound.probing
        while work():
            pass
    assert side.outbound.out_now == 0
    assert side.outbound.queued == 0
    assert Message.objects.filter(pair=side.outbound, state="delivered").count() == 5


def test_a_probe_that_is_skipped_makes_room_for_the_next(time: FrozenClock) -> None:
    side = requests(time)
    resume(side.outbound)
    operating.pair_skip_head(pair_id=side.outbound.pk, actor=ANN, reason="It is the poison itself.")
    with link(answered()) as wire:
        work()
    assert len(wire.parcels) == 1
    assert Message.objects.filter(pair=side.outbound, state="skipped").count() == 1


def streams(time: FrozenClock) -> tuple[StreamSide, list[Message]]:
    """Three messages of a stream that nobody acknowledged, until the pair gave up; and two that wait."""
    side = stream_side(max_in_flight=3, stream_concurrency=3, retries=1, resend_schedule="30", transport_retries=0)
    messages = [submit(side, b"<Order>%d</Order>" % number) for number in range(5)]  # type: ignore[arg-type]
    with link(Receipt(ok=True, status=202)):
        while side.outbound.flow != "suspended":
            work()
            time.move(31)
    return side, messages


def test_of_a_stream_one_goes_at_a_time_and_none_of_those_that_wait(time: FrozenClock) -> None:
    side, messages = streams(time)
    resume(side.outbound)
    with link(REFUSED) as wire:
        work()
        work()
    assert len(wire.parcels) == 1
    assert (side.outbound.flow, side.outbound.cause, side.outbound.probing) == ("suspended", "connect_refused", False)
    resume(side.outbound)
    with link(Receipt(ok=True, status=202)) as wire:
        work()
        assert len(wire.parcels) == 1
        outgoing = OutgoingStream.objects.get(pair=side.outbound)
        envelope = stream.order_ack(
            outgoing.source,
            OrderAck(int(outgoing.tx_sequence_id), 1),
            message_id=f"ack{next(_count)}@partner.example",
            to=side.terms.own_error_uri,
            source=GUID,
            now=clock.now(),
        )
        side.send(side.arrival(envelope))
        assert not side.outbound.probing
        work()
    assert Message.objects.get(pk=messages[0].pk).state == "delivered"
    assert len(wire.parcels) >= 3  # the window is open again


def test_the_budget_of_retries_is_told_at_half_of_it_and_near_its_end(time: FrozenClock) -> None:
    partner = partner_side(retries=10, timeout=60, retry_interval=60, transport_retries=0)
    submit(partner)
    with link(TAKEN):
        for _ in range(12):
            work()
            time.move(61)
    told = [event.data for event in Event.objects.filter(type="pair.retry_budget").order_by("id")]
    assert [(data["percent"], data["used"], data["of"]) for data in told] == [(50, 5, 10), (70, 7, 10), (90, 9, 10)]
    assert partner.outbound.flow == "suspended"


def test_a_budget_of_one_is_told_once(time: FrozenClock) -> None:
    suspended(time, waiting=0)
    assert [event.data["percent"] for event in Event.objects.filter(type="pair.retry_budget")] == [90]
