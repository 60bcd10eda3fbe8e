"""Order acknowledgements: delayed, coalesced, cumulative; conformance M19 to M24 and M26, through claim and link.

Final receipts that we owe: what became of a document after the order acknowledgement (M35), and of one passed on.
"""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from typing import Any

import pytest

from messaging.archive.services import purging
from messaging.choices import Direction, SignalKind
from messaging.deliveries.services import pulling
from messaging.engine import pairs
from messaging.entrance.refusals import Arrival
from messaging.journal.audit import Actor
from messaging.models import (
    Delivery,
    IncomingStream,
    Message,
    Pair,
    Signal,
    Transmission,
)
from messaging.profiles.stream import accepting
from messaging.protocol.codecs.stream import StreamEnvelope, StreamKind
from messaging.protocol.envelope import PartyId
from messaging.routing.services import routes, upstream
from partners import registry, services
from partners.models import Agreement
from rmhub.clock import FrozenClock
from tests.messaging.conftest import NOON
from tests.messaging.deliveries.stage import Application, application, http, make_trigger
from tests.messaging.deliveries.stage import work as deliver
from tests.messaging.factories import Link, link, work
from tests.messaging.profiles.stream.partner import GUID, TAKEN, A, B, StreamSide, decoded, finals, ids, stream_side

pytestmark = pytest.mark.django_db

MS = timedelta(milliseconds=1)


def sent() -> list[StreamEnvelope]:
    """What a worker sends that finds everything that is due now."""
    with link() as wire:
        while work():
            pass
    return receipts(wire)


def receipts(wire: Link) -> list[StreamEnvelope]:
    return [decoded(parcel) for parcel in wire.parcels]


def numbers() -> list[int]:
    return [one.receipt.last_ordinal for one in sent() if one.receipt is not None]


def test_m19_an_order_ack_goes_out_half_a_second_after_the_first_message(time: FrozenClock) -> None:
    partner = stream_side()
    partner.send(partner.message(1))
    time.move(499 / 1000)
    assert sent() == []
    time.move(1 / 1000)
    assert numbers() == [1]
    assert (partner.row.order_ack_due_at, partner.row.last_order_ack_at) == (None, NOON + 500 * MS)
    time.move(60)
    assert sent() == [], "and then there is silence"


def test_m20_a_steady_stream_is_acknowledged_together_and_never_for_longer_than_it_may_wait(time: FrozenClock) -> None:
    partner = stream_side()
    times: list[datetime] = []
    last = 0
    for tick in range(300):  # every 100 ms: a worker looks; every 200 ms: a message comes
        if tick % 2 == 0:
            partner.send(partner.message(tick // 2 + 1))
        now = time.move(100 / 1000)
        if not IncomingStream.objects.filter(order_ack_due_at__lte=now).exists() and not Signal.objects.filter(
            state="pending"
        ):
            continue  # a worker that looks finds nothing
        for number in numbers():
            times.append(now)
            assert number > last
            last = number
    assert 2 <= len(times) <= 30, "150 messages are not acknowledged one by one, nor not at all"
    gaps = [later - earlier for earlier, later in zip([NOON, *times], times, strict=False)]
    assert max(gaps) <= timedelta(seconds=10.6)


@pytest.mark.parametrize(
    ("last_sent", "due_after"),
    [pytest.param(3, 500, id="M21-restarted"), pytest.param(11, 200, id="M22-left-alone")],
)
def test_a_message_restarts_the_timer_unless_the_last_order_ack_is_long_ago(
    time: FrozenClock, last_sent: int, due_after: int
) -> None:
    partner = stream_side()
    partner.send(partner.message(1))
    now = time.move(60)
    IncomingStream.objects.update(order_ack_due_at=now + 200 * MS, last_order_ack_at=now - timedelta(seconds=last_sent))
    partner.send(partner.message(2))
    assert partner.row.order_ack_due_at == now + due_after * MS


def test_the_agreement_says_how_long_it_waits(time: FrozenClock) -> None:
    partner = stream_side(order_ack_timeout=2000)
    partner.send(partner.message(1))
    assert partner.row.order_ack_due_at == NOON + 2000 * MS


@pytest.mark.parametrize(
    ("agreed", "elapsed", "restarted"),
    [
        pytest.param({}, 9_999, True, id="M43-1-ms-below-the-maximum-delay"),
        pytest.param({}, 10_000, False, id="M43-at-the-maximum-delay"),
        pytest.param({}, 10_001, False, id="M43-1-ms-above-the-maximum-delay"),
        pytest.param({"max_order_ack_delay": 3_000}, 2_999, True, id="M43-below-the-agreements-own"),
        pytest.param({"max_order_ack_delay": 3_000}, 3_000, False, id="M43-at-the-agreements-own"),
        pytest.param({"max_order_ack_delay": 20_000}, 10_001, True, id="M43-a-longer-one-of-the-agreement"),
    ],
)
def test_the_timer_is_restarted_while_less_than_the_maximum_delay_has_passed(
    time: FrozenClock, agreed: dict[str, int], elapsed: int, restarted: bool
) -> None:
    """3.1.5.8.6: "less than" MaximumOrderAckDelay since the last order acknowledgement, of the agreement's own."""
    partner = stream_side(**agreed)
    partner.send(partner.message(1))
    now = time.move(60)
    due_at = now + 1 * MS
    IncomingStream.objects.update(order_ack_due_at=due_at, last_order_ack_at=now - elapsed * MS)
    partner.send(partner.message(2))
    assert partner.row.order_ack_due_at == (now + 500 * MS if restarted else due_at)


@pytest.mark.parametrize(
    ("passed", "sent_now", "due_after"),
    [
        pytest.param(499, [], 999, id="M43-1-ms-before-the-timer-ends"),
        pytest.param(500, [2], None, id="M43-when-the-timer-ends"),
        pytest.param(501, [2], None, id="M43-1-ms-after-it-ended"),
    ],
)
def test_a_message_at_the_end_of_the_timer(
    time: FrozenClock, passed: int, sent_now: list[int], due_after: int | None
) -> None:
    """A timer that has ended is not restarted, though the last acknowledgement is young: its own goes out now."""
    partner = stream_side()
    partner.send(partner.message(1))
    IncomingStream.objects.update(last_order_ack_at=NOON - 1 * MS)
    time.move(passed / 1000)
    partner.send(partner.message(2))
    assert partner.row.order_ack_due_at == (None if due_after is None else NOON + due_after * MS)
    assert numbers() == sent_now


@pytest.mark.parametrize(
    ("passed", "sent_now"), [pytest.param(499, [], id="M43-before"), pytest.param(500, [1], id="M43-at")]
)
def test_a_worker_at_the_end_of_the_timer(time: FrozenClock, passed: int, sent_now: list[int]) -> None:
    partner = stream_side()
    partner.send(partner.message(1))
    time.move(passed / 1000)
    assert numbers() == sent_now


def test_m23_without_an_agreement_in_force_nothing_is_sent_and_the_next_message_triggers_one(time: FrozenClock) -> None:
    partner = stream_side()
    agreement = Agreement.objects.get(tpa_id=partner.terms.tpa_id)
    partner.send(partner.message(1))
    services.agreement_disable(agreement=agreement)
    registry.reset()
    time.move(1)
    assert sent() == []
    assert (partner.row.order_ack_due_at, partner.row.last_order_ack_at) == (None, None)
    services.agreement_enable(agreement=agreement)
    registry.reset()
    time.move(60)
    assert sent() == []
    partner.send(partner.message(2))
    time.move(500 / 1000)
    assert numbers() == [2]


def test_m23_a_session_that_is_open_again_before_the_timer_ends_is_acknowledged(time: FrozenClock) -> None:
    """Only at its end does the timer ask whether there is a way: neither closing nor opening moves it."""
    partner = stream_side()
    agreement = Agreement.objects.get(tpa_id=partner.terms.tpa_id)
    partner.send(partner.message(1))
    services.agreement_disable(agreement=agreement)
    registry.reset()
    time.move(400 / 1000)
    assert sent() == []
    services.agreement_enable(agreement=agreement)
    registry.reset()
    assert partner.row.order_ack_due_at == NOON + 500 * MS
    time.move(100 / 1000)
    assert numbers() == [1]


def test_m23_a_message_that_is_refused_at_the_closed_door_triggers_nothing(time: FrozenClock) -> None:
    partner = stream_side()
    agreement = Agreement.objects.get(tpa_id=partner.terms.tpa_id)
    partner.send(partner.message(1))
    services.agreement_disable(agreement=agreement)
    registry.reset()
    time.move(1)
    assert sent() == []
    assert partner.send(partner.message(2)).status >= 400
    time.move(60)
    assert (sent(), partner.row.order_ack_due_at) == ([], None)
    services.agreement_enable(agreement=agreement)
    registry.reset()
    partner.send(partner.message(1))  # the old one again: it is rejected, and earns the receipt that was missing
    time.move(500 / 1000)
    assert numbers() == [1]


def test_m24_what_an_order_ack_says_and_where_it_goes(time: FrozenClock) -> None:
    """Never where a message says that receipts should go: that is its sender's word."""
    partner = stream_side()
    partner.send(partner.message(1, receipts_to="https://evil.example/receipts"))
    partner.send(partner.message(8, previous=1))
    time.move(1)
    with link() as wire:
        while work():
            pass
    [receipt] = receipts(wire)
    assert receipt.kind is StreamKind.RECEIPT
    assert receipt.receipt is not None
    assert (receipt.receipt.source, receipt.receipt.tx_sequence_id, receipt.receipt.last_ordinal) == (GUID, A, 8)
    assert (receipt.message_class, receipt.to) == (0x00FF, partner.terms.partner_error_uri)
    assert receipt.source == str(partner.terms.own_party_id)
    assert wire.last.address == partner.terms.partner_error_address
    assert partner.row.receipts_to == "https://evil.example/receipts"
    [signal] = Signal.objects.filter(direction=Direction.OUT)
    assert (signal.kind, signal.state, signal.about_id, signal.pair_id) == (
        SignalKind.ACKNOWLEDGEMENT, "sent", None, partner.inbound.pk,
    )  # fmt: skip


def test_a_receipt_that_is_asked_for_goes_out_at_once(time: FrozenClock, woken: list[str]) -> None:
    partner = stream_side()
    partner.send(partner.message(1))
    assert woken == []
    partner.send(partner.message(2, requested=True))
    assert woken == ["messaging.send_due"]
    assert numbers() == [2]


def test_nothing_accepted_is_not_acknowledged(time: FrozenClock) -> None:
    """Numbers begin with 1: an order acknowledgement of 0 would say nothing."""
    partner = stream_side()
    partner.send(partner.message(2, requested=True))
    time.move(1)
    assert sent() == []
    assert partner.row.order_ack_due_at is None


def test_it_says_what_the_new_stream_has_come_to(time: FrozenClock) -> None:
    partner = stream_side()
    partner.send(partner.message(7, previous=0))
    partner.send(partner.message(1, sid=B))
    time.move(1)
    [receipt] = sent()
    assert receipt.receipt is not None
    assert (receipt.receipt.tx_sequence_id, receipt.receipt.last_ordinal) == (B, 1)


def test_one_that_is_due_while_messages_come_is_made_by_their_transaction(time: FrozenClock) -> None:
    """A claim would find the row locked each time, as long as the stream is busy."""
    partner = stream_side()
    partner.send(partner.message(1))
    time.move(600 / 1000)
    partner.send(partner.message(2))
    assert Signal.objects.get().ref_to_message_id.endswith(f"\\{A}")
    assert partner.row.order_ack_due_at is None
    assert numbers() == [2]


def test_a_lost_one_is_tried_again_like_any_signal(time: FrozenClock) -> None:
    from tests.messaging.factories import REFUSED

    partner = stream_side()
    partner.send(partner.message(1, requested=True))
    with link(REFUSED):
        work()
    assert Signal.objects.get().state == "pending"
    time.move(60)
    assert numbers() == [1]


def test_streams_of_many_pairs_are_claimed_in_groups(time: FrozenClock) -> None:
    sides = [stream_side() for _ in range(3)]
    for side in sides:
        side.send(side.message(1))
    time.move(1)
    with link() as wire:
        work(limit=2)
        assert len(wire.parcels) == 2
        work(limit=2)
    assert {parcel.address for parcel in wire.parcels} == {side.terms.partner_error_address for side in sides}


def test_the_timer_starts_again_for_what_was_rejected(time: FrozenClock) -> None:
    """A sender that repeats has missed an order acknowledgement: it gets another (M03)."""
    partner = stream_side()
    partner.send(partner.message(1))
    time.move(1)
    assert numbers() == [1]
    partner.send(partner.message(1))
    time.move(500 / 1000)
    assert numbers() == [1]
    assert accepting.position_of((partner.inbound.pk, GUID)) == (A, 1)


def test_old_order_acks_leave_the_store(time: FrozenClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are about no message, so they do not leave with one; a busy stream makes many."""
    monkeypatch.setattr(purging, "extracted_through", lambda: 2**62)
    partner = stream_side()
    partner.send(partner.message(1, requested=True))
    assert numbers() == [1]
    assert purging.purge_signals(after=uuid.UUID(int=0), limit=100) == (0, None)
    time.move(4000 * 86_400)
    gone, _ = purging.purge_signals(after=uuid.UUID(int=0), limit=100)
    assert (gone, Signal.objects.count(), Transmission.objects.count()) == (1, 0, 0)


@pytest.fixture
def app() -> Any:
    with application() as made:
        yield made


def test_m35_a_final_receipt_tells_that_the_last_trigger_has_processed_it(app: Application, time: FrozenClock) -> None:
    partner = stream_side(final_receipt=True)
    make_trigger(app)
    pulled = make_trigger(kind="pull")
    partner.send(partner.message(1, "m1@p"))
    assert deliver() == 1
    assert finals() == [], "one has it, the other has not"
    [leased] = pulling.lease(pulled.pk, limit=1, consumer="erp")
    assert finals() == [], "the other has it in progress"
    for _ in range(2):  # its consumer says so twice
        pulling.complete(leased.delivery.pk, leased.claim)
        assert finals() == [("m1@p", "")], "once"
    signal = Signal.objects.get(kind=SignalKind.FINAL)
    assert signal.about_id == Message.objects.get().pk


def test_m35_a_document_that_the_application_refuses_is_told(app: Application, time: FrozenClock) -> None:
    partner = stream_side(final_receipt=True)
    make_trigger(app)
    app.plan("/documents", http(422, "no"))
    partner.send(partner.message(1, "m1@p"))
    deliver()
    assert finals() == [("m1@p", "receive_rejected")]


def test_m35_without_a_trigger_the_store_is_where_it_was_to_go() -> None:
    partner = stream_side(final_receipt=True)
    partner.send(partner.message(1, "m1@p"))
    assert finals() == [("m1@p", "")]


def test_no_final_receipt_is_sent_where_none_is_agreed(app: Application, time: FrozenClock) -> None:
    partner = stream_side()
    make_trigger(app)
    partner.send(partner.message(1, "m1@p"))
    deliver()
    assert finals() == []


def routed(**onward: Any) -> tuple[StreamSide, StreamSide, Arrival]:
    """The hub as a router: who brings a message for Delta, whom it goes to, and the message."""
    before, after = stream_side(final_receipt=True), stream_side(**onward)
    make_route(onward=Agreement.objects.get(tpa_id=after.terms.tpa_id).pk)
    return before, after, before.message(1, "m1@p", to_parties=(PartyId("444", "DUNS"),))


def make_route(**values: Any) -> None:
    fields: dict[str, Any] = {"name": "to Delta", "party_context": "DUNS", "party_value": "444"}
    routes.route_create(**{**fields, **values}, actor=Actor("ann"), reason="test")
    registry.reset()


def test_what_is_passed_on_is_confirmed_when_the_next_hop_has_it() -> None:
    before, _, arrival = routed()
    assert before.send(arrival) == TAKEN
    onward = Message.objects.get(direction=Direction.OUT)
    held = Signal.objects.get(kind=SignalKind.FINAL)
    assert (held.state, held.due_at, onward.forwarded_from_id) == ("held", None, Message.objects.get(direction="in").pk)
    assert not Delivery.objects.exists()
    upstream.onward_ended([(onward.forwarded_from_id, "delivered")], NOON)
    assert Signal.objects.get(kind=SignalKind.FINAL).state == "pending"
    assert finals() == [("m1@p", "")]


def test_what_a_person_gives_up_on_the_way_is_told() -> None:
    before, _, arrival = routed()
    before.send(arrival)
    upstream.onward_ended([(Message.objects.get(direction="in").pk, "cancelled")], NOON)
    assert finals() == [("m1@p", "deleted")]
    assert Signal.objects.get(kind=SignalKind.FINAL).state == "pending"


def test_while_the_way_onward_is_shut_nothing_is_stored_and_nothing_moves() -> None:
    before, after, arrival = routed()
    Pair.objects.filter(pk=pairs.outbound_pair_id(after.terms)).update(gate="paused")
    answer = before.send(arrival)
    assert (answer.status, answer.retry_after) == (503, 60), "MinRetrySecs of the route"
    assert (before.state, ids()) == ((0, 0, 0), [])
    Pair.objects.update(gate="open")
    assert before.send(arrival) == TAKEN
    assert before.state == (A, 1, 0)
    Pair.objects.filter(direction="out").update(gate="paused")
    assert before.send(arrival) == TAKEN, "a copy of what is stored is acknowledged, whatever became of the way"
    assert before.state == (A, 1, 1)


def test_nobody_knows_the_way() -> None:
    partner = stream_side()
    assert partner.send(partner.message(1, "m1@p", to_parties=(PartyId("444", "DUNS"),))) == TAKEN
    assert (finals(), ids()) == ([("m1@p", "bad_dst_q")], [])
