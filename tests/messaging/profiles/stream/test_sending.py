"""Our side as the sender of a transactional stream (spec 3): window, acknowledgements, resends, expiry, new ids."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db.models import Min

from messaging import causes
from messaging.claim import JobKind
from messaging.deliveries.services import settling
from messaging.engine import leases, preparing
from messaging.engine.claiming import claim_due
from messaging.engine.recording import record
from messaging.exceptions import InvalidSubmission, WrongState
from messaging.journal.audit import Actor
from messaging.models import (
    AuditEntry,
    Event,
    Incident,
    Message,
    OutgoingStream,
    Pair,
    Payload,
    Signal,
    Transmission,
    WebhookDelivery,
)
from messaging.notifications.services.webhooks import endpoint_create
from messaging.onboarding.services.changing import agreement_disable
from messaging.pairs.services import operating
from messaging.profiles.stream import moving
from messaging.protocol.codecs import stream
from messaging.protocol.codecs.stream import StreamEnvelope
from messaging.protocol.streams import final
from messaging.protocol.streams.envelope import split_id
from messaging.protocol.streams.final import OrderAck
from messaging.transports import Parcel, Receipt
from partners.models import AgreementVersion
from rmhub import clock
from rmhub.clock import FrozenClock
from tests.messaging.factories import LOST, REFUSED, Link, link, work
from tests.messaging.factories import submit as hand_in
from tests.messaging.profiles.stream.partner import GUID, StreamSide, decoded, stream_side

pytestmark = pytest.mark.django_db

ANN = Actor("ann")
TAKEN = Receipt(ok=True, status=202)
NOT_YET = Receipt(ok=False, status=503, cause="http_5xx", detail="The partner answered HTTP 503.", retry_after=1)
LEASE = 10 + 30 + 15  # connect and read timeout of an endpoint, and what is allowed beside them
ACK_RECEIVE, BAD_DST_Q, Q_EXCEED_QUOTA, RECEIVE_REJECTED = 0x4000, 0x8000, 0x8003, 0xC004

_count = itertools.count(1)


@pytest.fixture
def wire(time: FrozenClock) -> Iterator[Link]:
    with link(TAKEN) as found:
        yield found


def submit(side: StreamSide, count: int = 1, **fields: Any) -> list[Message]:
    return [hand_in(side, b"<Order>%d</Order>" % number, **fields) for number in range(1, count + 1)]  # type: ignore[arg-type]


def fresh(message: Message) -> Message:
    return Message.objects.get(pk=message.pk)


def states(messages: list[Message]) -> list[str]:
    return [fresh(message).state for message in messages]


def places(link: Link, start: int = 0) -> list[tuple[int, int]]:
    """(current, previous) of what went over the wire, in its order."""
    found = []
    for parcel in link.parcels[start:]:
        position = decoded(parcel).position
        if position is not None:
            found.append((position.current, position.previous))
    return found


def row(side: StreamSide) -> OutgoingStream:
    return OutgoingStream.objects.get(pair=side.outbound)


def acknowledge(side: StreamSide, number: int, sid: int = 0, source: str = "") -> int:
    """The partner's order acknowledgement, brought to our entrance. Returns the HTTP status."""
    envelope = stream.order_ack(
        source or row(side).source,
        OrderAck(sid or int(row(side).tx_sequence_id), number),
        message_id=f"ack{next(_count)}@partner.example",
        to=side.terms.own_error_uri,
        source=GUID,
        now=clock.now(),
    )
    return side.send(side.arrival(envelope)).status


def finalise(side: StreamSide, message: Message, code: int) -> int:
    envelope = stream.final_receipt(
        message.message_id,
        code,
        message_id=f"final{next(_count)}@partner.example",
        to=side.terms.own_error_uri,
        source=GUID,
        now=clock.now(),
    )
    return side.send(side.arrival(envelope)).status


def signals() -> list[tuple[str, str]]:
    return list(Signal.objects.filter(direction="in").order_by("id").values_list("state", "note"))


def incidents() -> list[tuple[str, str]]:
    return list(Incident.objects.order_by("number").values_list("cause", "state"))


def types_of(message: Message) -> list[str]:
    return list(Event.objects.filter(message=message).order_by("id").values_list("type", flat=True))


def drain() -> None:
    while work():
        pass


def run_until(time: FrozenClock, end: datetime) -> None:
    """A worker that looks whenever something is due."""
    while True:
        looks = (Message.objects.exclude(state="retrying"), Pair.objects.filter(gate="open"))
        due = [at for look in looks if (at := look.aggregate(at=Min("due_at"))["at"]) is not None]
        upcoming = max(clock.now(), min(due, default=end))
        if upcoming >= end:
            break
        time.move((upcoming - clock.now()).total_seconds())
        work()
    time.move((end - clock.now()).total_seconds())


# --- what goes over the wire


def test_a_message_goes_out_as_the_first_of_a_new_stream(wire: Link) -> None:
    side = stream_side()
    [message] = submit(side, conversation_id="c-1", ref_to_message_id="m-0")
    [job] = work()
    assert job.kind is JobKind.OWN
    assert wire.last.address == side.terms.partner_address
    assert dict(wire.last.headers) == {"SOAPAction": '"MSMQMessage"'}
    envelope = decoded(wire.last)
    assert envelope.position is not None
    assert envelope.position.source == row(side).source == str(side.outbound.pk)
    assert (envelope.position.tx_sequence_id, envelope.position.current, envelope.position.previous) == (
        int(row(side).tx_sequence_id),
        1,
        0,
    )
    assert envelope.position.start
    assert envelope.position.receipt_requested
    assert envelope.position.receipts_to == side.terms.own_error_uri
    assert (envelope.message_id, envelope.to) == (message.message_id, side.terms.partner_uri)
    assert (envelope.agreement_id, envelope.service, envelope.action) == (
        side.terms.tpa_id,
        message.service,
        message.action,
    )
    assert (envelope.conversation_id, envelope.ref_to_message_id) == ("c-1", "m-0")
    assert [payload.content for payload in envelope.payloads] == [b"<Order>1</Order>"]
    message = fresh(message)
    assert (message.state, message.attempts, message.sequence_number, message.previous_number) == (
        "awaiting_ack",
        1,
        1,
        0,
    )
    assert message.tx_sequence_id == row(side).tx_sequence_id
    assert message.expires_at == message.created_at + timedelta(days=4)
    assert preparing.stored_body(message, list(message.payloads.all())) == wire.last.body
    pair = side.outbound
    assert (pair.queued, pair.out_now, pair.due_at) == (0, 1, clock.now() + timedelta(seconds=30))


def test_m25_an_order_acknowledgement_removes_all_up_to_its_number(wire: Link) -> None:
    side = stream_side()
    messages = submit(side, 5)
    work()
    assert places(wire) == [(1, 0), (2, 1), (3, 2), (4, 3), (5, 4)]
    assert acknowledge(side, 3) == 202
    assert states(messages) == ["delivered"] * 3 + ["awaiting_ack"] * 2
    assert row(side).acked_number == 3
    assert (side.outbound.out_now, side.outbound.done) == (2, 3)
    assert types_of(messages[0]) == ["message.accepted", "message.delivered"]
    assert fresh(messages[2]).completed_at == clock.now()
    assert signals() == [("matched", "")]
    # The same once more, and one that says less: kept, and nothing moves.
    assert [acknowledge(side, 3), acknowledge(side, 1)] == [202, 202]
    assert [state for state, _ in signals()] == ["matched", "ignored", "ignored"]
    assert states(messages) == ["delivered"] * 3 + ["awaiting_ack"] * 2


def test_m26_a_stale_acknowledgement_of_the_stream_before_removes_nothing(wire: Link) -> None:
    side = stream_side()
    submit(side, 8)
    work()
    before = int(row(side).tx_sequence_id)
    acknowledge(side, 8)
    messages = submit(side, 2)
    work()
    assert places(wire)[-2:] == [(1, 0), (2, 1)]
    for number in (2, 1, 8):  # 1 and 2 are numbers of this stream too: only the streams tell them apart
        assert acknowledge(side, number, sid=before) == 202
        assert states(messages) == ["awaiting_ack", "awaiting_ack"]
        assert signals()[-1] == ("ignored", "is about another stream of the pair")
    assert (row(side).acked_number, side.outbound.done) == (0, 8)
    assert acknowledge(side, 2) == 202
    assert states(messages) == ["delivered", "delivered"]


def test_m27_when_all_is_acknowledged_a_new_stream_begins_with_number_one(wire: Link) -> None:
    side = stream_side()
    submit(side, 2)
    work()
    first = int(row(side).tx_sequence_id)
    acknowledge(side, 2)
    submit(side)
    work()
    assert places(wire)[-1] == (1, 0)
    assert int(row(side).tx_sequence_id) == first + 1
    assert split_id(first + 1)[0] == split_id(first)[0]
    position = decoded(wire.last).position
    assert position is not None
    assert (position.tx_sequence_id, position.start) == (first + 1, True)


# --- expiry


def test_m28_what_expired_after_a_send_is_in_doubt_and_the_resend_bridges_it(wire: Link, time: FrozenClock) -> None:
    side = stream_side(transport_retries=0)
    submit(side)
    work()
    moving = submit(side, time_to_live=20)
    follower = submit(side)
    acknowledge(side, 1)
    wire.answer = lambda parcel: LOST if b"Order>1</Order" in parcel.body and len(wire.parcels) == 2 else NOT_YET
    work()
    assert places(wire) == [(1, 0), (2, 1), (3, 2)]
    wire.answer = TAKEN
    run_until(time, clock.now() + timedelta(seconds=31))
    assert places(wire)[-1] == (3, 0)
    assert [number for number, _ in places(wire)].count(2) == 1
    assert (states(moving), states(follower)) == (["in_doubt"], ["awaiting_ack"])
    assert fresh(moving[0]).cause == "expired_unconfirmed"
    assert incidents()[0] == ("expired_unconfirmed", "open")
    assert types_of(moving[0])[-1] == "message.in_doubt"
    acknowledge(side, 3)
    assert (states(moving), states(follower)) == (["in_doubt"], ["delivered"])


def test_m29_what_expires_before_its_first_send_uses_no_number(wire: Link, time: FrozenClock) -> None:
    side = stream_side()
    submit(side)
    work()
    operating.pair_pause(pair_id=side.outbound.pk, actor=ANN, reason="Maintenance.")
    dead, alive = submit(side, 2, time_to_live=60)
    Message.objects.filter(pk=alive.pk).update(expires_at=clock.now() + timedelta(days=1))
    time.move(60)
    operating.pair_release(pair_id=side.outbound.pk, actor=ANN, reason="Done.")
    drain()
    assert states([dead, alive]) == ["failed", "awaiting_ack"]
    assert (fresh(dead).sequence_number, fresh(dead).cause) == (None, "expired")
    assert (2, 1) in places(wire)
    assert fresh(alive).sequence_number == 2
    assert side.outbound.queued == 0


def test_m30_the_application_is_told_that_its_message_expired(wire: Link, time: FrozenClock) -> None:
    """Our dead letter is the message itself, failed, with an incident; the negative acknowledgement is the event."""
    side = stream_side()
    operating.pair_pause(pair_id=side.outbound.pk, actor=ANN, reason="Maintenance.")
    [message] = submit(side, time_to_live=60)
    time.move(61)
    operating.pair_release(pair_id=side.outbound.pk, actor=ANN, reason="Done.")
    drain()
    assert not wire.parcels
    assert (fresh(message).state, fresh(message).cause, fresh(message).completed_at) == (
        "failed",
        "expired",
        clock.now(),
    )
    event = Event.objects.get(message=message, type="message.failed")
    assert (event.data["cause"], event.data["class"]) == ("expired", "reach_queue_timeout")
    assert incidents() == [("expired", "open")]
    assert (side.outbound.queued, side.outbound.due_at) == (0, None)


def test_m30_a_dead_letter_is_kept_with_its_documents_and_its_application_is_called(
    wire: Link, time: FrozenClock
) -> None:
    """Of every message, whatever flags MSMQ has for it: the journal is the store, 0x8002 the event's class."""
    assert final.CLASSES[0x8002].name == "reach_queue_timeout"
    endpoint_create(name="our application", url="http://127.0.0.1:9/hook", types=["message.failed"], actor=ANN)
    side = stream_side()
    operating.pair_pause(pair_id=side.outbound.pk, actor=ANN, reason="Maintenance.")
    dead, alive = submit(side, 1, time_to_live=60) + submit(side, 1)
    time.move(60)
    assert moving.expire_waiting() == 1
    assert states([dead, alive]) == ["failed", "queued"]
    assert bytes(Payload.objects.get(message=dead).content) == b"<Order>1</Order>"
    [called] = WebhookDelivery.objects.all()
    assert called.body["type"] == "message.failed"
    assert (called.body["data"]["message_id"], called.body["data"]["class"]) == (dead.message_id, "reach_queue_timeout")
    operating.pair_release(pair_id=side.outbound.pk, actor=ANN, reason="Done.")
    drain()
    assert places(wire) == [(1, 0)], "it is never sent, and has used no number"


def test_an_expired_message_is_in_doubt_at_once_also_on_a_pair_that_is_shut(wire: Link, time: FrozenClock) -> None:
    side = stream_side()
    [message] = submit(side, time_to_live=10)
    work()
    operating.pair_pause(pair_id=side.outbound.pk, actor=ANN, reason="Maintenance.")
    time.move(9)
    work()
    assert states([message]) == ["awaiting_ack"]
    time.move(1)
    work()
    assert states([message]) == ["in_doubt"]
    assert side.outbound.out_now == 0
    # It came, late: the number is the last that the partner has accepted.
    acknowledge(side, 1, sid=int(fresh(message).tx_sequence_id or 0))
    assert states([message]) == ["delivered"]
    assert incidents() == [("expired_unconfirmed", "resolved")]


def test_what_expires_behind_a_closed_gate_is_a_dead_letter_at_once(wire: Link, time: FrozenClock) -> None:
    side = stream_side()
    operating.pair_pause(pair_id=side.outbound.pk, actor=ANN, reason="Maintenance.")
    short, other = submit(side, 1, time_to_live=60) + submit(side)
    assert moving.expire_waiting() == 0
    time.move(61)
    assert moving.expire_waiting() == 1
    assert states([short, other]) == ["failed", "queued"]
    assert (side.outbound.queued, incidents()) == (1, [("expired", "open")])
    assert moving.expire_waiting() == 0
    operating.pair_release(pair_id=side.outbound.pk, actor=ANN, reason="Done.")
    work()
    assert places(wire) == [(1, 0)]


# --- resends


def test_m31_without_an_acknowledgement_all_goes_out_again_on_the_documented_waits(
    wire: Link, time: FrozenClock
) -> None:
    side = stream_side(retries=11, time_to_live=0)
    submit(side, 2)
    work()
    at = clock.now()
    for wait in (30, 30, 30, 300, 300, 300, 1800, 1800, 1800, 21_600, 21_600):
        seen = len(wire.parcels)
        run_until(time, at + timedelta(seconds=wait - 1))
        assert len(wire.parcels) == seen
        at += timedelta(seconds=wait)
        run_until(time, at + timedelta(milliseconds=1))
        assert places(wire, seen) == [(1, 0), (2, 1)]
    assert side.outbound.flow == "idle"
    run_until(time, at + timedelta(seconds=21_601))
    assert (side.outbound.flow, side.outbound.cause) == ("suspended", "stream_unacknowledged")
    assert incidents() == [("stream_unacknowledged", "open")]
    assert [fresh(message).state for message in Message.objects.all()] == ["awaiting_ack", "awaiting_ack"]


def test_m32_progress_brings_the_first_wait_back(wire: Link, time: FrozenClock) -> None:
    side = stream_side(retries=11)
    submit(side, 2)
    work()
    run_until(time, clock.now() + timedelta(seconds=30 * 3 + 300 * 2 + 1))
    assert row(side).resend_index == 5
    acknowledge(side, 1)
    assert row(side).resend_index == 0
    assert side.outbound.due_at == clock.now() + timedelta(seconds=30)
    seen = len(wire.parcels)
    run_until(time, clock.now() + timedelta(seconds=31))
    assert places(wire, seen) == [(2, 0)]


def test_x17_a_resend_has_the_same_octets_but_for_previous_and_the_wish_for_an_acknowledgement(
    wire: Link, time: FrozenClock
) -> None:
    side = stream_side()
    submit(side, 3)
    work()
    first = list(wire.parcels)
    run_until(time, clock.now() + timedelta(seconds=31))
    again = wire.parcels[3:]
    # Nothing left the flight, so every `previous` is what it was; each now asks for an acknowledgement.
    assert differences(first, again) == {"receipt_requested"}
    acknowledge(side, 1)
    run_until(time, clock.now() + timedelta(seconds=31))
    bridged = wire.parcels[6:]
    assert differences(again[1:], bridged) == {"previous"}
    assert places(wire, 6) == [(2, 0), (3, 2)]
    for parcel, message in zip(bridged, Message.objects.exclude(state="delivered").order_by("position"), strict=True):
        assert preparing.stored_body(message, list(message.payloads.all())) == parcel.body
    # And a third time nothing changes at all.
    run_until(time, clock.now() + timedelta(seconds=31))
    assert [parcel.body for parcel in wire.parcels[8:]] == [parcel.body for parcel in bridged]


def differences(before: list[Parcel], after: list[Parcel]) -> set[str]:
    """The fields in which copies of the same messages differ."""
    found: set[str] = set()
    for one, other in zip(before, after, strict=True):
        assert one.content_type == other.content_type
        left, right = (
            replace(read, payloads=tuple(replace(payload, offset=None) for payload in read.payloads))
            for read in (decoded(one), decoded(other))
        )
        for name in StreamEnvelope.__slots__:
            if name == "position":
                assert left.position is not None
                assert right.position is not None
                names = type(left.position).__slots__
                found |= {n for n in names if getattr(left.position, n) != getattr(right.position, n)}
            elif getattr(left, name) != getattr(right, name):
                found.add(name)
    return found


# --- window, concurrency, transport


def test_m37_the_window_is_full_until_an_acknowledgement_comes(wire: Link) -> None:
    side = stream_side(max_in_flight=64, stream_concurrency=64)
    submit(side, 66)
    work(limit=100)
    assert len(wire.parcels) == 64
    assert (side.outbound.out_now, side.outbound.queued) == (64, 2)
    assert work() == []
    # Asked for: with the first, and each time half a window is out.
    assert [decoded(p).position.current for p in wire.parcels if decoded(p).position.receipt_requested] == [1, 32, 64]  # type: ignore[union-attr]
    acknowledge(side, 1)
    work()
    assert [number for number, _ in places(wire, 64)] == [65]
    acknowledge(side, 65)
    work()
    assert [number for number, _ in places(wire, 65)] == [66]


def test_no_more_than_the_slots_are_on_the_wire_at_once(wire: Link) -> None:
    side = stream_side(max_in_flight=64, stream_concurrency=4)
    submit(side, 10)
    jobs = claim_due(limit=64)
    assert len(jobs) == 4
    assert claim_due(limit=64) == []
    record([(jobs[2], TAKEN), (jobs[0], TAKEN)])
    more = claim_due(limit=64)
    assert [Message.objects.get(pk=job.message_id).sequence_number for job in more] == [5, 6]


def test_a_few_free_slots_are_filled_together_with_those_that_come_free_next(wire: Link, time: FrozenClock) -> None:
    """A claim for one costs nearly as much as a claim for many."""
    side = stream_side(stream_concurrency=16, max_in_flight=64)
    submit(side, 40)
    jobs = claim_due(limit=64)
    record([(job, TAKEN) for job in jobs[:3]])
    assert claim_due(limit=64) == []
    record([(jobs[3], TAKEN)])
    assert len(claim_due(limit=64)) == 4
    # Those that take long are not waited for.
    record([(jobs[4], TAKEN)])
    time.move(0.02)
    assert len(claim_due(limit=64)) == 1


def test_an_outcome_makes_the_next_due_at_once(
    wire: Link, woken: list[str], django_capture_on_commit_callbacks
) -> None:
    side = stream_side(stream_concurrency=1)
    submit(side, 2)
    [job] = claim_due(limit=64)
    woken.clear()
    with django_capture_on_commit_callbacks(execute=True):
        record([(job, TAKEN)])
    assert woken == ["messaging.send_due"]
    assert side.outbound.due_at == clock.now()


def test_a_transport_failure_is_recovered_in_order_and_nothing_new_overtakes_it(wire: Link, time: FrozenClock) -> None:
    side = stream_side(stream_concurrency=2, transport_retries=2, transport_retry_interval=10)
    messages = submit(side, 4)
    wire.answer = REFUSED
    work()
    assert states(messages) == ["retrying", "retrying", "queued", "queued"]
    assert side.outbound.cause == "connect_refused"
    assert work() == []
    wire.answer = TAKEN
    run_until(time, clock.now() + timedelta(seconds=11))
    assert [number for number, _ in places(wire)] == [1, 2, 1, 2, 3, 4]
    assert states(messages) == ["awaiting_ack"] * 4
    acknowledge(side, 4)
    assert (side.outbound.cause, states(messages)) == ("", ["delivered"] * 4)


def test_recovery_over_it_waits_for_the_resend_timer_and_gives_up_with_the_networks_cause(
    wire: Link, time: FrozenClock
) -> None:
    side = stream_side(transport_retries=1, transport_retry_interval=5, retries=2)
    [message] = submit(side)
    wire.answer = REFUSED
    start = clock.now()
    run_until(time, start + timedelta(seconds=29))
    assert len(wire.parcels) == 2
    run_until(time, start + timedelta(seconds=36))
    assert len(wire.parcels) == 4
    run_until(time, start + timedelta(seconds=91))
    assert side.outbound.flow == "suspended"
    assert incidents() == [("connect_refused", "open")]
    assert states([message]) == ["retrying"]
    assert "pair.suspended" in Event.objects.values_list("type", flat=True)


def test_what_is_not_taken_for_want_of_its_predecessor_comes_again_soon(wire: Link, time: FrozenClock) -> None:
    side = stream_side()
    messages = submit(side, 3)
    wire.answer = lambda parcel: (
        LOST
        if b"Order>1</Order" in parcel.body and len(wire.parcels) < 4
        else (NOT_YET if len(wire.parcels) < 4 else TAKEN)
    )
    work()
    assert states(messages) == ["retrying"] * 3
    run_until(time, clock.now() + timedelta(seconds=13))
    assert [number for number, _ in places(wire)] == [1, 2, 3, 1, 2, 3]
    assert states(messages) == ["awaiting_ack"] * 3


def test_a_lost_connection_after_the_bytes_is_no_double_for_the_application(wire: Link, time: FrozenClock) -> None:
    """The order acknowledgement counts, whatever became of the request."""
    side = stream_side()
    [message] = submit(side)
    wire.answer = LOST
    work()
    assert states([message]) == ["retrying"]
    acknowledge(side, 1)
    assert states([message]) == ["delivered"]
    assert work() == []


# --- crashes


def test_a_worker_that_dies_costs_a_resend_under_the_same_number(wire: Link, time: FrozenClock) -> None:
    side = stream_side()
    messages = submit(side, 2)
    claim_due(limit=64, worker=4711)  # and never heard of again: nobody holds that worker's lock
    assert leases.release_dead(clock.now()) == 2
    assert set(Transmission.objects.values_list("outcome", flat=True)) == {"lost"}
    drain()
    work()
    assert places(wire) == [(1, 0), (2, 1)]
    assert states(messages) == ["awaiting_ack"] * 2
    assert [fresh(message).attempts for message in messages] == [2, 2]


def test_a_lease_that_runs_out_is_taken_over(wire: Link, time: FrozenClock) -> None:
    side = stream_side(resend_schedule="300,300")
    [message] = submit(side)
    [job] = claim_due(limit=64)
    time.move(LEASE - 1)
    assert claim_due(limit=64) == []
    time.move(1)
    drain()
    work()
    assert states([message]) == ["awaiting_ack"]
    # The first worker was only slow: its outcome is noted and moves nothing.
    assert record([(job, REFUSED)]) == [False]
    assert states([message]) == ["awaiting_ack"]


def test_m39_a_stream_begun_after_the_clock_was_set_back_still_has_a_greater_id(wire: Link, time: FrozenClock) -> None:
    side = stream_side(retries=1)
    submit(side)
    work()
    before = int(row(side).tx_sequence_id)
    time.move(-3600)
    acknowledge(side, 1)
    submit(side)
    work()
    second = int(row(side).tx_sequence_id)
    assert second > before
    run_until(time, clock.now() + timedelta(seconds=91))
    operating.pair_restart_sequence(pair_id=side.outbound.pk, actor=ANN, reason="They lost theirs.")
    work()
    assert int(row(side).tx_sequence_id) > second
    position = decoded(wire.last).position
    assert position is not None
    assert position.tx_sequence_id == int(row(side).tx_sequence_id)


def test_a_stream_ends_when_its_numbers_are_used_up(wire: Link) -> None:
    side = stream_side()
    submit(side)
    work()
    acknowledge(side, 1)
    OutgoingStream.objects.update(next_number=0xFFFFFFFF, acked_number=0xFFFFFFFE)
    before = int(row(side).tx_sequence_id)
    submit(side, 3)
    work()
    assert places(wire)[1:] == [(0xFFFFFFFF, 0xFFFFFFFE)]
    assert work() == []  # the next stream begins when this one is settled
    acknowledge(side, 0xFFFFFFFF)
    work()
    assert places(wire)[2:] == [(1, 0), (2, 1)]
    assert int(row(side).tx_sequence_id) == before + 1


# --- final receipts


def test_m35_with_a_final_receipt_agreed_a_message_is_confirmed_by_it(wire: Link, time: FrozenClock) -> None:
    side = stream_side(final_receipt=True, final_receipt_within=3600)
    [message] = submit(side)
    work()
    wish = decoded(wire.last).wish
    assert wish is not None
    assert wish.send_to == side.terms.own_error_uri
    acknowledge(side, 1)
    assert (states([message]), side.outbound.out_now, side.outbound.done) == (["confirming"], 0, 0)
    assert finalise(side, message, ACK_RECEIVE) == 202
    assert (states([message]), side.outbound.done) == (["delivered"], 1)
    assert types_of(message)[-1] == "message.delivered"
    assert Signal.objects.get(kind="final").about_id == message.pk
    finalise(side, message, ACK_RECEIVE)
    assert signals()[-1] == ("ignored", "the message is delivered")
    # Nothing is moved to a journal, and nothing removed: the store is the journal, until its retention is over.
    assert bytes(Payload.objects.get(message=message).content) == b"<Order>1</Order>"
    time.move(60 * 86_400)
    drain()
    assert (len([parcel for parcel in wire.parcels if decoded(parcel).position]), fresh(message).state) == (
        1,
        "delivered",
    )


def test_a_final_receipt_that_comes_before_the_order_acknowledgement_counts_once(wire: Link) -> None:
    side = stream_side(final_receipt=True)
    first, second = submit(side, 2)
    work()
    assert finalise(side, first, ACK_RECEIVE) == 202
    assert (states([first, second]), side.outbound.done) == (["delivered", "awaiting_ack"], 1)
    assert types_of(first).count("message.delivered") == 1
    acknowledge(side, 2)
    finalise(side, second, ACK_RECEIVE)
    assert (states([first, second]), side.outbound.done) == (["delivered", "delivered"], 2)
    assert [types_of(one).count("message.delivered") for one in (first, second)] == [1, 1]


def test_m35_without_a_final_receipt_agreed_the_order_acknowledgement_is_the_end(wire: Link) -> None:
    side = stream_side()
    [message] = submit(side)
    work()
    assert decoded(wire.last).wish is None
    acknowledge(side, 1)
    assert states([message]) == ["delivered"]


def test_m36_without_a_final_receipt_in_time_a_message_is_in_doubt(wire: Link, time: FrozenClock) -> None:
    side = stream_side(final_receipt=True, final_receipt_within=3600)
    first, second = submit(side, 2)
    work()
    acknowledge(side, 2)
    finalise(side, second, ACK_RECEIVE)
    time.move(3599)
    work()
    assert states([first]) == ["confirming"]
    time.move(1)
    work()
    assert (states([first, second]), fresh(first).cause) == (["in_doubt", "delivered"], "unconfirmed")
    assert incidents() == [("unconfirmed", "open")]
    # A person settles it, or the receipt comes after all.
    finalise(side, first, ACK_RECEIVE)
    assert (states([first]), incidents()) == (["delivered"], [("unconfirmed", "resolved")])


def test_m33_a_refusal_before_the_sequence_is_a_dead_letter_and_what_follows_is_bridged_at_once(wire: Link) -> None:
    side = stream_side()
    messages = submit(side, 3)
    work()
    assert finalise(side, messages[0], BAD_DST_Q) == 202
    assert (states(messages), fresh(messages[0]).cause) == (["failed", "retrying", "retrying"], "final_bad_dst_q")
    assert ("final_bad_dst_q", "open") in incidents()
    assert types_of(messages[0])[-1] == "message.failed"
    work()
    assert places(wire, 3) == [(2, 0), (3, 2)]
    acknowledge(side, 3)
    assert states(messages) == ["failed", "delivered", "delivered"]


def test_m34_a_refusal_for_want_of_room_ends_the_message_and_nothing_else(wire: Link) -> None:
    side = stream_side()
    messages = submit(side, 2)
    work()
    acknowledge(side, 2)
    finalise(side, messages[0], Q_EXCEED_QUOTA)
    assert states(messages) == ["failed", "delivered"]
    assert fresh(messages[0]).cause == "final_q_exceed_quota"
    assert (side.outbound.done, work()) == (1, [])


def test_the_partners_application_refuses_a_message(wire: Link) -> None:
    side = stream_side(final_receipt=True)
    [message] = submit(side)
    work()
    acknowledge(side, 1)
    finalise(side, message, RECEIVE_REJECTED)
    assert (states([message]), fresh(message).cause) == (["failed"], "final_receive_rejected")
    assert "refused it" in fresh(message).cause_detail


# --- who may acknowledge


def test_another_partner_cannot_acknowledge_what_went_to_this_one(wire: Link) -> None:
    side, other = stream_side(), stream_side()
    [message] = submit(side)
    work()
    stream_of = row(side)
    envelope = stream.order_ack(
        stream_of.source,
        OrderAck(int(stream_of.tx_sequence_id), 1),
        message_id="x@y",
        to=other.terms.own_error_uri,
        source=GUID,
        now=clock.now(),
    )
    assert other.send(other.arrival(envelope)).status == 202
    final = stream.final_receipt(
        message.message_id,
        BAD_DST_Q,
        message_id="f@y",
        to=other.terms.own_error_uri,
        source=GUID,
        now=clock.now(),
    )
    assert other.send(other.arrival(final)).status == 202
    assert states([message]) == ["awaiting_ack"]
    assert [state for state, _ in signals()] == ["ignored", "ignored"]


def test_an_acknowledgement_of_a_stream_that_is_not_ours_is_kept_and_ignored(wire: Link) -> None:
    side = stream_side()
    submit(side)
    work()
    assert acknowledge(side, 1, source="00000000-0000-0000-0000-000000000001") == 202
    assert signals() == [("ignored", "names no stream of ours")]


def test_a_number_that_was_never_given_is_not_acknowledged(wire: Link) -> None:
    side = stream_side()
    messages = submit(side, 2)
    work()
    acknowledge(side, 3)
    assert states(messages) == ["awaiting_ack"] * 2
    assert signals() == [("ignored", "number 3 was never given")]


# --- submission


def test_a_message_may_live_shorter_than_its_agreement_says_and_not_longer(wire: Link) -> None:
    side = stream_side(time_to_live=3600, memory_window=86_400)
    [message] = submit(side, time_to_live=60)
    assert fresh(message).expires_at == clock.now() + timedelta(seconds=60)
    for wrong in (0, 3601):
        with pytest.raises(InvalidSubmission) as caught:
            submit(side, time_to_live=wrong)
        assert caught.value.errors == {"time_to_live": ["Seconds, from 1 to 3600."]}


def test_only_messages_of_streams_have_a_time_to_live(wire: Link) -> None:
    from tests.messaging.factories import partner_side

    with pytest.raises(InvalidSubmission) as caught:
        hand_in(partner_side(), time_to_live=60)
    assert list(caught.value.errors) == ["time_to_live"]


def test_a_repeat_of_a_submission_says_the_same_time_to_live(wire: Link) -> None:
    from messaging.exceptions import IdempotencyMismatch

    side = stream_side()
    [first] = submit(side, idempotency_key="k", time_to_live=60)
    [again] = submit(side, idempotency_key="k", time_to_live=60)
    assert again.pk == first.pk
    with pytest.raises(IdempotencyMismatch):
        submit(side, idempotency_key="k", time_to_live=61)


def test_a_stream_has_one_semantics(wire: Link) -> None:
    side = stream_side()
    with pytest.raises(InvalidSubmission) as caught:
        submit(side, semantics="BestEffort")
    assert list(caught.value.errors) == ["semantics"]


def test_several_payloads_go_in_one_message(wire: Link) -> None:
    from messaging.messages.services.submitting import NewPayload, message_submit

    side = stream_side()
    message_submit(
        agreement=side.terms.tpa_id,
        service="urn:orders",
        action="NewOrder",
        payloads=[NewPayload(b"<a/>", "application/xml", "a.xml"), NewPayload(bytes(range(256)), filename="b.bin")],
    )
    work()
    assert [payload.content for payload in decoded(wire.last).payloads] == [b"<a/>", bytes(range(256))]


# --- people


def test_a_pause_holds_what_is_due_and_acknowledgements_still_count(wire: Link, time: FrozenClock) -> None:
    side = stream_side()
    messages = submit(side, 2)
    work()
    operating.pair_pause(pair_id=side.outbound.pk, actor=ANN, reason="Maintenance.")
    acknowledge(side, 1)
    time.move(600)
    assert work() == []
    assert states(messages) == ["delivered", "awaiting_ack"]
    operating.pair_release(pair_id=side.outbound.pk, actor=ANN, reason="Done.")
    work()
    assert places(wire, 2) == [(2, 0)]


def suspended(wire: Link, time: FrozenClock, count: int = 3) -> tuple[StreamSide, list[Message]]:
    side = stream_side(retries=1)
    messages = submit(side, count)
    work()
    run_until(time, clock.now() + timedelta(seconds=61))
    assert side.outbound.flow == "suspended"
    return side, messages


def test_resume_sends_all_again_with_a_new_budget(wire: Link, time: FrozenClock) -> None:
    side, messages = suspended(wire, time)
    seen = len(wire.parcels)
    submit(side)
    assert work() == []
    operating.pair_resume(pair_id=side.outbound.pk, actor=ANN, reason="They are back.")
    drain()
    assert [number for number, _ in places(wire, seen)] == [1, 2, 3, 4]
    assert (side.outbound.flow, side.outbound.cause, side.outbound.retries) == ("idle", "", 0)
    assert incidents() == [("stream_unacknowledged", "resolved")]
    entry = AuditEntry.objects.get(verb="pair.resume")
    assert (entry.before["flow"], entry.after["flow"], entry.before["out_now"]) == ("suspended", "idle", 3)
    acknowledge(side, 4)
    assert states(messages) == ["delivered"] * 3


def test_a_late_acknowledgement_counts_while_the_pair_is_suspended(wire: Link, time: FrozenClock) -> None:
    side, messages = suspended(wire, time)
    acknowledge(side, 3)
    assert states(messages) == ["delivered"] * 3
    assert (side.outbound.flow, side.outbound.out_now) == ("suspended", 0)
    operating.pair_resume(pair_id=side.outbound.pk, actor=ANN, reason="They are back.")
    assert (side.outbound.flow, work()) == ("idle", [])


def test_skip_gives_up_the_head_and_bridges_it(wire: Link, time: FrozenClock) -> None:
    side, messages = suspended(wire, time)
    seen = len(wire.parcels)
    operating.pair_skip_head(pair_id=side.outbound.pk, actor=ANN, reason="They cannot read it.")
    work()
    assert states(messages) == ["skipped", "awaiting_ack", "awaiting_ack"]
    assert places(wire, seen) == [(2, 0), (3, 2)]
    event = Event.objects.get(message=messages[0], type="message.skipped")
    assert event.data["reason"] == "They cannot read it."
    assert incidents() == [("stream_unacknowledged", "resolved")]


def test_nothing_is_skipped_while_no_agreement_is_in_force(wire: Link, time: FrozenClock) -> None:
    side, messages = suspended(wire, time)
    agreement = AgreementVersion.objects.get(pk=side.terms.version_id).agreement
    agreement_disable(agreement_id=agreement.pk, actor=ANN, reason="They moved.")
    with pytest.raises(WrongState, match="No agreement in force"):
        operating.pair_skip_head(pair_id=side.outbound.pk, actor=ANN, reason="They cannot read it.")
    assert "skipped" not in states(messages)


def test_skip_waits_while_the_head_is_on_the_wire(wire: Link) -> None:
    side = stream_side()
    submit(side)
    claim_due(limit=64)
    with pytest.raises(WrongState, match="on the wire"):
        operating.pair_skip_head(pair_id=side.outbound.pk, actor=ANN, reason="They cannot read it.")


def test_restart_numbers_what_is_unacknowledged_anew_in_a_new_stream(wire: Link, time: FrozenClock) -> None:
    side, messages = suspended(wire, time)
    acknowledge(side, 1)
    before = int(row(side).tx_sequence_id)
    seen = len(wire.parcels)
    submit(side)
    operating.pair_restart_sequence(pair_id=side.outbound.pk, actor=ANN, reason="They lost their state.")
    drain()
    again = [decoded(parcel) for parcel in wire.parcels[seen:]]
    assert [
        (e.position.tx_sequence_id > before, e.position.current, e.position.previous) for e in again if e.position
    ] == [
        (True, 1, 0),
        (True, 2, 1),
        (True, 3, 2),
    ]
    assert [envelope.message_id for envelope in again][:2] == [message.message_id for message in messages[1:]]
    acknowledge(side, 3)
    assert states(messages) == ["delivered"] * 3


def test_restart_is_refused_while_the_stream_runs(wire: Link) -> None:
    side = stream_side()
    submit(side)
    work()
    with pytest.raises(WrongState, match="with the receiver"):
        operating.pair_restart_sequence(pair_id=side.outbound.pk, actor=ANN, reason="Because we agreed.")


def test_retry_now_sends_what_is_unacknowledged_at_once(wire: Link) -> None:
    side = stream_side()
    submit(side, 2)
    work()
    operating.pair_retry_now(pair_id=side.outbound.pk, actor=ANN, reason="They say they are back.")
    work()
    assert places(wire) == [(1, 0), (2, 1), (1, 0), (2, 1)]


def test_what_waits_can_be_cancelled_and_uses_no_number(wire: Link) -> None:
    side = stream_side()
    operating.pair_pause(pair_id=side.outbound.pk, actor=ANN, reason="Maintenance.")
    messages = submit(side, 3)
    operating.message_cancel(message_id=messages[1].pk, actor=ANN, reason="Not needed.")
    operating.pair_release(pair_id=side.outbound.pk, actor=ANN, reason="Done.")
    work()
    assert places(wire) == [(1, 0), (2, 1)]
    assert states(messages) == ["awaiting_ack", "cancelled", "awaiting_ack"]
    assert AuditEntry.objects.get(verb="message.cancel").after == {"state": "cancelled"}


def test_what_is_in_flight_can_be_cancelled_and_is_bridged(wire: Link) -> None:
    side = stream_side()
    messages = submit(side, 3)
    jobs = claim_due(limit=64)
    with pytest.raises(WrongState):
        operating.message_cancel(message_id=messages[1].pk, actor=ANN, reason="Not needed.")
    record([(job, TAKEN) for job in jobs])
    operating.message_cancel(message_id=messages[1].pk, actor=ANN, reason="Not needed.")
    work()
    assert states(messages) == ["awaiting_ack", "cancelled", "awaiting_ack"]
    assert places(wire) == [(3, 1)]


def test_a_message_in_doubt_is_settled_by_a_person(wire: Link, time: FrozenClock) -> None:
    side = stream_side()
    first, second = submit(side, 2, time_to_live=10)
    work()
    time.move(10)
    work()
    assert states([first, second]) == ["in_doubt"] * 2
    settling.message_settle(message_id=first.pk, decision="delivered", actor=ANN, reason="They have it.")
    settling.message_settle(message_id=second.pk, decision="resubmit", actor=ANN, reason="They do not have it.")
    assert states([first, second]) == ["delivered", "skipped"]
    assert incidents() == [("expired_unconfirmed", "resolved")]
    again = Message.objects.get(state="queued")
    assert again.message_id != second.message_id
    work()
    assert [payload.content for payload in decoded(wire.last).payloads] == [b"<Order>2</Order>"]


# --- one row for many statements


def test_a_claim_of_many_costs_no_more_statements_than_a_claim_of_few(
    wire: Link, django_assert_max_num_queries
) -> None:
    side = stream_side(stream_concurrency=64)
    submit(side, 2)
    with django_assert_max_num_queries(40) as few:
        claim_due(limit=64)
    submit(side, 40)
    with django_assert_max_num_queries(40) as many:
        claim_due(limit=64)
    assert Transmission.objects.count() == 42
    assert len(many) <= len(few)


# --- what keeps a message from being sent


def test_a_payload_that_is_gone_suspends_the_pair_and_uses_no_number(wire: Link) -> None:
    side = stream_side()
    messages = submit(side, 3)
    Payload.objects.filter(message=messages[1]).update(content=None, stored_as="aa/nowhere")
    work()
    assert places(wire) == [(1, 0)]
    assert (side.outbound.flow, side.outbound.cause) == ("suspended", "payload_missing")
    assert states(messages) == ["awaiting_ack", "queued", "queued"]
    incident = Incident.objects.get()
    assert (incident.cause, incident.message_id) == ("payload_missing", messages[1].pk)
    operating.message_cancel(message_id=messages[1].pk, actor=ANN, reason="The file is lost.")
    operating.pair_resume(pair_id=side.outbound.pk, actor=ANN, reason="Cancelled it.")
    drain()
    assert [number for number, _ in places(wire, 1)] == [1, 2]


def test_octets_that_changed_in_the_store_are_not_sent_again(wire: Link, time: FrozenClock) -> None:
    side = stream_side()
    first, second = submit(side, 2)
    work()
    Payload.objects.filter(message=first).update(content=b"<Other>1</Other>")
    time.move(31)
    work()
    assert [number for number, _ in places(wire, 2)] == [2]
    assert (side.outbound.flow, side.outbound.cause) == ("suspended", "payload_missing")
    assert states([first, second]) == ["retrying", "awaiting_ack"]


def test_every_negative_final_receipt_has_words() -> None:
    for known in final.CLASSES.values():
        if not known.positive:
            assert f"final_{known.name}" in causes.CAUSES
