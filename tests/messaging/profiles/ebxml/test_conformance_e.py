"""The cases of spec 1 that need a store, on the real services and PostgreSQL: E04, E13, E17 to E27, E29 and E30."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from messaging.choices import Direction, IncidentState, MessageState, SignalKind, SignalState
from messaging.engine import pairs
from messaging.engine.claiming import claim_due
from messaging.engine.group import GroupCommit
from messaging.journal.audit import Actor
from messaging.models import Event, Incident, Message, MessageIdentity, Pair, Payload, Signal, WebhookDelivery
from messaging.notifications.services.webhooks import endpoint_create
from messaging.pairs.services import operating
from messaging.profiles.acknowledging import Item
from messaging.profiles.ebxml import accepting, receiving
from messaging.protocol.codecs import ebxml
from messaging.protocol.envelope import MessageType, PartyId, Semantics
from messaging.protocol.errors import ErrorCode
from messaging.protocol.pair_state import Flow
from messaging.transports import Receipt
from partners import registry
from rmhub.clock import FrozenClock
from tests.messaging.factories import REFUSED, Link, PartnerSide, decoded, link, partner_side, submit, work
from tests.messaging.wire import post
from tests.rmhub.conditions import eventually

pytestmark = pytest.mark.django_db

OPERATOR = Actor("olivia", "console")


@pytest.fixture
def wire() -> Iterator[Link]:
    """Where everything that the hub transmits ends."""
    with link() as made:
        yield made


@pytest.fixture
def partner() -> PartnerSide:
    return partner_side(timeout=30, retries=3, retry_interval=10)


def acknowledgements() -> list[Signal]:
    """Ours, in the store."""
    return list(Signal.objects.filter(direction=Direction.OUT, kind=SignalKind.ACKNOWLEDGEMENT))


def received() -> list[str]:
    """MessageIds of what was accepted, in that order: what applications get to see."""
    return list(
        Message.objects.filter(direction=Direction.IN).order_by("position").values_list("message_id", flat=True)
    )


def last_accepted(partner: PartnerSide) -> tuple[int, str]:
    return partner.inbound.last_sequence, partner.inbound.last_message_id


# --- receiving ---


def test_e04_three_copies_earn_three_acknowledgements_with_the_same_octets(partner: PartnerSide, wire: Link) -> None:
    arrival = partner.message(1, "a@partner.example")
    assert [partner.send(arrival) for _ in range(3)] == [204] * 3
    while work():
        pass
    assert received() == ["a@partner.example"]
    assert len(wire.parcels) == 3
    assert len({parcel.body for parcel in wire.parcels}) == 1
    assert Message.objects.get().copies == 2


def test_e04_copies_in_one_transaction_are_acknowledged_like_any(
    partner: PartnerSide, wire: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Web threads that come at the same moment are one group: it may hold a new message and its copies."""
    first, second = partner.message(1, "a@partner.example"), partner.message(2, "b@partner.example")
    accepting.accept(_items(monkeypatch, partner, [first, first, second, first]))
    assert received() == ["a@partner.example", "b@partner.example"]
    assert [ack.owed for ack in acknowledgements()] == [3, 1]
    while work():
        pass
    assert [decoded(parcel).ref_to_message_id for parcel in wire.parcels].count("a@partner.example") == 3
    assert len(wire.parcels) == 4


def _items(monkeypatch: pytest.MonkeyPatch, partner: PartnerSide, arrivals: Sequence[receiving.Arrival]) -> list[Item]:
    """What `receive` hands to its group of transactions."""
    caught: list[Item] = []

    def catch(items: list[Item]) -> list[int]:
        caught.extend(items)
        return [204] * len(items)

    with monkeypatch.context() as patch:
        patch.setattr(receiving, "_group", GroupCommit(catch))
        assert {partner.send(arrival) for arrival in arrivals} == {204}
    return caught


def test_e13_another_message_with_the_last_number_is_refused_and_reported(partner: PartnerSide, wire: Link) -> None:
    partner.send(partner.message(1, "a@partner.example"))
    partner.send(partner.message(2, "y@partner.example"))
    work()
    wire.parcels.clear()
    assert partner.send(partner.message(2, "z@partner.example")) == 204
    work()
    assert received() == ["a@partner.example", "y@partner.example"]
    assert last_accepted(partner) == (2, "y@partner.example")
    answer = decoded(wire.last)
    assert (answer.message_type, answer.ref_to_message_id) == (MessageType.ERROR, "z@partner.example")
    assert answer.error is not None and answer.error.code == ErrorCode.INCONSISTENT
    assert wire.of(MessageType.ACKNOWLEDGEMENT) == []
    assert Incident.objects.get().cause == "sequence_taken_by_other_message"


def test_e17_an_acknowledgement_as_it_is_stored(partner: PartnerSide) -> None:
    arrival = partner.message(1, "a@partner.example")
    asked = decoded(arrival)
    partner.send(arrival)
    [signal] = acknowledgements()
    ack = ebxml.decode(signal.content_type, bytes(signal.body))
    assert ack.message_type is MessageType.ACKNOWLEDGEMENT
    assert ack.semantics is Semantics.BEST_EFFORT
    assert ack.from_parties == (PartyId(asked.hop.receiver_uri, "URI"),)
    assert ack.to_parties == (PartyId(asked.hop.sender_uri, "URI"),)
    assert (ack.agreement_id, ack.conversation_id) == (asked.agreement_id, asked.conversation_id)
    assert (ack.service, ack.action, ack.payloads, ack.manifest) == ("", "", (), ())
    assert ack.ref_to_message_id == "a@partner.example"
    assert (ack.hop.sender_uri, ack.hop.receiver_uri) == (partner.terms.own_uri, partner.terms.partner_uri)
    assert ack.hop.sequence_number is None
    assert ack.defects == ()


def test_e18_every_answer_has_a_body_of_no_length(partner: PartnerSide, wire: Link) -> None:
    submit(partner)
    work()
    arrivals = [
        partner.message(1),  # new
        partner.message(9),  # out of sequence: an Error message follows, on its own
        partner.acknowledgement(wire.last),
        partner.error(wire.last),
    ]
    for arrival in [*arrivals, arrivals[0]]:
        answer = post(arrival)
        assert 200 <= answer.status_code < 300
        assert answer.content == b""


def test_e19_killed_after_the_commit_and_before_the_acknowledgement(
    partner: PartnerSide, wire: Link, time: FrozenClock
) -> None:
    arrival = partner.message(1, "a@partner.example")
    partner.send(arrival)
    assert len(claim_due(limit=10)) == 1  # a worker takes the acknowledgement, and dies with it
    _starts_again()
    assert partner.send(arrival) == 204
    assert work() == [], "the acknowledgement is leased to a worker of which nobody knows that it died"
    time.move(120)
    while work():
        pass
    assert received() == ["a@partner.example"]
    assert [decoded(parcel).ref_to_message_id for parcel in wire.parcels] == ["a@partner.example"] * 2
    assert [(ack.owed, ack.state) for ack in acknowledgements()] == [(0, SignalState.SENT)]


@pytest.mark.django_db(transaction=True)
def test_e20_killed_before_the_commit(partner: PartnerSide, wire: Link) -> None:
    """Killed before each statement of the transaction in turn, and after the last one: nothing is left behind."""
    partner.send(partner.message(1, "a@partner.example"))
    arrival = partner.message(2, "b@partner.example")
    before = _everything()
    killed = 0
    while True:
        try:
            with _killed_at_statement(killed + 1):
                partner.send(arrival)
        except Killed:
            _starts_again()
            assert _everything() == before
            assert last_accepted(partner) == (1, "a@partner.example")
            killed += 1
        else:
            break
    assert killed > 5, "there are a message, an identity, a payload, an acknowledgement, events and the pair to write"
    assert received() == ["a@partner.example", "b@partner.example"]
    while work():
        pass
    acknowledged = [decoded(parcel).ref_to_message_id for parcel in wire.parcels]
    assert acknowledged == ["a@partner.example", "b@partner.example"]


class Killed(BaseException):
    """Stands for the end of the process."""


@contextmanager
def _killed_at_statement(number: int) -> Iterator[None]:
    """The process dies when it has sent so many statements to the database, before any effect is committed."""
    sent = 0

    def count(execute: Callable[..., Any], sql: str, *args: Any) -> Any:
        nonlocal sent
        result = execute(sql, *args)
        sent += 1
        if sent == number:
            raise Killed
        return result

    with connection.execute_wrapper(count):
        yield


def _starts_again() -> None:
    """What a process remembers is gone; what is committed is not."""
    registry.reset()
    pairs.reset()
    receiving._group = GroupCommit(accepting.accept)


def _everything() -> dict[str, int]:
    return {m.__name__: m.objects.count() for m in (Message, MessageIdentity, Payload, Signal, Event, Incident)}


def test_e29_senders_with_the_same_numbers_and_ids_do_not_disturb_each_other(wire: Link) -> None:
    one, other = partner_side(), partner_side()
    for number, message_id in [(1, "a@x"), (2, "b@x"), (3, "c@x")]:
        assert one.send(one.message(number, message_id)) == 204
        assert other.send(other.message(number, message_id)) == 204
    assert other.send(other.message(7, "d@x")) == 204
    while work():
        pass
    assert received() == ["a@x", "a@x", "b@x", "b@x", "c@x", "c@x"]
    assert last_accepted(one) == last_accepted(other) == (3, "c@x")
    by_address = {side.terms.tpa_id: [] for side in (one, other)}
    for parcel in wire.parcels:
        by_address[decoded(parcel).agreement_id].append(decoded(parcel).message_type)
    acks = [MessageType.ACKNOWLEDGEMENT] * 3
    assert by_address == {one.terms.tpa_id: acks, other.terms.tpa_id: [*acks, MessageType.ERROR]}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("processes", ["one", "two"])
def test_e30_the_same_message_at_the_same_moment(processes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads of one process meet in its group; two processes have a group each, and meet at the pair's lock."""
    if processes == "two":
        monkeypatch.setattr(receiving, "_group", _GroupOfEachThread())
    partner = partner_side()
    partner.send(partner.message(1, "m1@partner.example"))
    for number in range(2, 12):
        arrival = partner.message(number, f"m{number}@partner.example")
        assert _at_once([lambda: partner.send(arrival)] * 2) == [204, 204]  # noqa: B023  (both end within this round)
        stored = Message.objects.get(message_id=f"m{number}@partner.example")
        [ack] = Signal.objects.filter(about=stored)
        assert (stored.copies, ack.owed) == (1, 2), "one new, one duplicate, two acknowledgements"
    with link() as wire:
        while work():
            pass
    sent = [decoded(parcel).ref_to_message_id for parcel in wire.parcels]
    assert {number: sent.count(f"m{number}@partner.example") for number in range(1, 12)} == {1: 1} | dict.fromkeys(
        range(2, 12), 2
    )
    assert received() == [f"m{number}@partner.example" for number in range(1, 12)]


@pytest.mark.django_db(transaction=True)
def test_e30_two_messages_with_the_same_number_at_the_same_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """E13 in a race: which of the two it is, is chance; that only one is taken, is not."""
    monkeypatch.setattr(receiving, "_group", _GroupOfEachThread())
    partner = partner_side()
    partner.send(partner.message(1, "first@partner.example"))
    arrivals = [partner.message(2, "a@partner.example"), partner.message(2, "b@partner.example")]
    with ThreadPoolExecutor(2) as pool, closing(connection.copy()) as probe:
        with transaction.atomic():
            Pair.objects.select_for_update().get(pk=partner.inbound.pk)
            answers = [pool.submit(_apart, partner.send, arrival) for arrival in arrivals]
            eventually(lambda: _waiting_for_a_lock(probe) == 2)
        assert [answer.result(timeout=120) for answer in answers] == [204, 204]
    taken = received()
    assert len(taken) == 2
    assert last_accepted(partner) == (2, taken[1])
    [error] = Signal.objects.filter(kind=SignalKind.ERROR)
    assert {taken[1], error.ref_to_message_id} == {"a@partner.example", "b@partner.example"}
    assert error.error_code == ErrorCode.INCONSISTENT


class _GroupOfEachThread:
    """As if each thread were a process."""

    def __init__(self) -> None:
        self._own = threading.local()

    def submit(self, item: Item) -> int:
        if not hasattr(self._own, "group"):
            self._own.group = GroupCommit(accepting.accept)
        return self._own.group.submit(item)


def _waiting_for_a_lock(probe: BaseDatabaseWrapper) -> int:
    """How many connections to this database do. A connection of its own asks: in a transaction the answer is kept."""
    with probe.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return int(cursor.fetchone()[0])


def _apart(call: Callable[..., Any], *args: Any) -> Any:
    """The call, in a thread that leaves no connection behind."""
    try:
        return call(*args)
    finally:
        connections.close_all()


def _at_once(calls: list[Callable[[], Any]]) -> list[Any]:
    """What the calls return, or the first error, when they are made by threads that start at the same moment."""
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[], Any]) -> Any:
        connection.ensure_connection()
        barrier.wait(timeout=120)
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result(timeout=120) for future in [pool.submit(_apart, run, call) for call in calls]]


# --- sending ---


def test_e21_unanswered_it_is_sent_four_times_and_then_both_sides_of_us_are_told(
    partner: PartnerSide, wire: Link, time: FrozenClock
) -> None:
    endpoint_create(name="our application", url="http://127.0.0.1:9/hook", types=["message.failed"], actor=OPERATOR)
    message = submit(partner)
    sent_at = _seconds_of_transmissions(time, wire, 59.5)
    assert sent_at == [0, 30, 40, 50]
    assert len({parcel.body for parcel in wire.parcels}) == 1, "the same octets each time"
    assert decoded(wire.last).hop.sequence_number == 1
    assert partner.outbound.flow == Flow.AWAITING_ACK
    time.move(0.5)
    assert work() == []
    pair = partner.outbound
    assert (pair.flow, pair.cause, pair.in_flight_id, pair.due_at) == (Flow.SUSPENDED, "ack_timeout", message.pk, None)
    message.refresh_from_db()
    assert (message.state, message.cause, message.attempts) == (MessageState.FAILED, "ack_timeout", 4)
    # The administrator has an incident, the From-Party an event and its webhook.
    [incident] = Incident.objects.all()
    assert (incident.state, incident.cause, incident.pair, incident.message) == (
        IncidentState.OPEN,
        "ack_timeout",
        pair,
        message,
    )
    told = [event.type for event in Event.objects.order_by("id")]
    assert told[-3:] == ["message.failed", "pair.suspended", "incident.opened"]
    [delivery] = WebhookDelivery.objects.all()
    assert delivery.body["type"] == "message.failed"
    assert delivery.body["data"]["message_id"] == message.message_id
    time.move(1_000_000)
    assert work() == []


def _seconds_of_transmissions(time: FrozenClock, wire: Link, until: float) -> list[float]:
    """Lets time pass in half seconds; returns when something was transmitted."""
    seconds, found = 0.0, []
    while True:
        found += [seconds] * len(work())
        if seconds >= until:
            return found
        time.move(0.5)
        seconds += 0.5


def _give_up(partner: PartnerSide, time: FrozenClock) -> None:
    for seconds in (0, 30, 10, 10, 10):
        time.move(seconds)
        work()
    assert partner.outbound.flow == Flow.SUSPENDED


def test_e22_resumed_the_same_octets_go_first_and_what_was_submitted_meanwhile_waits(
    partner: PartnerSide, wire: Link, time: FrozenClock
) -> None:
    first = submit(partner, b"<Order n='1'/>")
    _give_up(partner, time)
    for number in (2, 3):
        submit(partner, f"<Order n='{number}'/>".encode())
    assert work() == []
    octets = wire.last.body
    wire.parcels.clear()
    operating.pair_resume(pair_id=partner.outbound.pk, actor=OPERATOR, reason="Their server is up again.")
    assert partner.outbound.retries == 0
    assert Incident.objects.get().state == IncidentState.RESOLVED
    assert _seconds_of_transmissions(time, wire, 59.5) == [0, 30, 40, 50]
    assert {parcel.body for parcel in wire.parcels} == {octets}
    assert partner.send(partner.acknowledgement(wire.last)) == 204
    first.refresh_from_db()
    assert first.state == MessageState.DELIVERED
    for number in (2, 3):
        work()
        assert decoded(wire.last).hop.sequence_number == number
        assert decoded(wire.last).payloads[0].content == f"<Order n='{number}'/>".encode()
        partner.send(partner.acknowledgement(wire.last))
    assert partner.outbound.flow == Flow.IDLE


def test_e23_the_next_is_not_transmitted_before_the_acknowledgement(
    partner: PartnerSide, wire: Link, time: FrozenClock
) -> None:
    submit(partner)
    work()
    submit(partner)
    _seconds_of_transmissions(time, wire, 55)
    assert {decoded(parcel).hop.sequence_number for parcel in wire.parcels} == {1}
    partner.send(partner.acknowledgement(wire.last))
    work()
    assert decoded(wire.last).hop.sequence_number == 2


def test_e24_acknowledgements_of_nothing_in_flight_are_discarded_silently(partner: PartnerSide, wire: Link) -> None:
    submit(partner)
    work()
    ack = partner.acknowledgement(wire.last)
    assert partner.send(ack) == 204
    submit(partner)
    work()
    before = _row(partner.outbound)
    stranger = partner_side()
    unwanted = [
        ack,  # again, with another message in flight
        partner.acknowledgement(wire.last, ref_to_message_id="unknown@partner.example"),
        replace(ack, presented=stranger.presented),  # by somebody else, in the partner's name
        stranger.arrival(replace(decoded(partner.acknowledgement(wire.last)), agreement_id=stranger.terms.tpa_id)),
    ]
    assert [partner.send(arrival) for arrival in unwanted] == [204] * 4
    assert _row(partner.outbound) == before
    kept = Signal.objects.filter(direction=Direction.IN).order_by("id").values_list("state", flat=True)
    assert list(kept) == [SignalState.MATCHED, *[SignalState.IGNORED] * 4]
    assert Signal.objects.filter(direction=Direction.OUT).count() == 0, "nothing is answered"
    assert work() == []


def _row(pair: Pair) -> dict[str, Any]:
    return Pair.objects.filter(pk=pair.pk).values().get()


@pytest.mark.parametrize(
    ("min_retry_secs", "pause"), [pytest.param(120, 120, id="E25"), pytest.param(None, 10, id="E26")]
)
def test_transient_error(
    min_retry_secs: int | None, pause: int, partner: PartnerSide, wire: Link, time: FrozenClock
) -> None:
    submit(partner)
    work()
    submit(partner)
    time.move(5)
    error = partner.error(wire.last, ErrorCode.TRANSIENT_ERROR, min_retry_secs=min_retry_secs)
    assert partner.send(error) == 204
    assert partner.outbound.flow == Flow.HOLDING
    octets = wire.last.body
    wire.parcels.clear()
    time.move(pause - 1)
    assert work() == [], "the whole pair pauses"
    time.move(1)
    work()
    assert [parcel.body for parcel in wire.parcels] == [octets]
    assert (partner.outbound.retries, partner.outbound.flow) == (0, Flow.AWAITING_ACK)
    assert Incident.objects.count() == 0


def test_e27_a_sender_that_forgets_its_numbers_starts_at_1(partner: PartnerSide, wire: Link) -> None:
    for _ in range(2):
        submit(partner)
        work()
        partner.send(partner.acknowledgement(wire.last))
    operating.pair_restart_sequence(
        pair_id=partner.outbound.pk, actor=OPERATOR, reason="The partner restored a backup."
    )
    submit(partner)
    work()
    assert [decoded(parcel).hop.sequence_number for parcel in wire.parcels] == [1, 2, 1]
    # And when it is the partner who forgot (E06, E10): new messages are taken, old ones are known.
    for number, message_id in [(1, "a@p"), (2, "b@p"), (1, "c@p"), (1, "a@p"), (1, "d@p"), (2, "e@p")]:
        assert partner.send(partner.message(number, message_id)) == 204
    assert received() == ["a@p", "b@p", "c@p", "d@p", "e@p"]


def test_a_restart_sends_the_refused_message_again_as_number_1(partner: PartnerSide, wire: Link) -> None:
    messages = [submit(partner) for _ in range(3)]
    work()
    partner.send(partner.acknowledgement(wire.last))
    work()
    partner.send(partner.error(wire.last, ErrorCode.INVALID_SEQUENCE_NUMBER))
    operating.pair_restart_sequence(pair_id=partner.outbound.pk, actor=OPERATOR, reason="They lost their counter.")
    for _ in range(2):
        work()
        partner.send(partner.acknowledgement(wire.last))
    sent = [(decoded(parcel).message_id, decoded(parcel).hop.sequence_number) for parcel in wire.parcels]
    ids = [message.message_id for message in messages]
    assert sent == [(ids[0], 1), (ids[1], 2), (ids[1], 1), (ids[2], 2)]
    assert set(Message.objects.values_list("state", flat=True)) == {MessageState.DELIVERED}


def test_a_restart_with_a_message_that_the_receiver_has_goes_on_at_2(partner: PartnerSide) -> None:
    for number, message_id in [(1, "a@p"), (2, "b@p"), (3, "c@p")]:
        partner.send(partner.message(number, message_id))
    # The acknowledgement of c was lost, and its sender was told to restart.
    restarted = partner.message(1, "c@p")
    for arrival in (restarted, restarted, partner.message(2, "d@p"), restarted, partner.message(3, "e@p")):
        assert partner.send(arrival) == 204
    assert received() == ["a@p", "b@p", "c@p", "d@p", "e@p"]
    assert Incident.objects.count() == 0
    assert partner.inbound.duplicates == 3


# --- answers that come at a bad moment ---


def test_answers_in_one_transaction_move_the_pair_once(
    partner: PartnerSide, wire: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(partner)
    submit(partner)
    work()
    ack, error = partner.acknowledgement(wire.last), partner.error(wire.last)
    accepting.accept(_items(monkeypatch, partner, [ack, ack, error]))
    assert (partner.outbound.flow, partner.outbound.in_flight_id, partner.outbound.done) == (Flow.IDLE, None, 1)
    work()
    accepting.accept(_items(monkeypatch, partner, [partner.error(wire.last), partner.acknowledgement(wire.last)]))
    assert (partner.outbound.flow, partner.outbound.in_flight_id, partner.outbound.done) == (Flow.SUSPENDED, None, 2)
    assert set(Message.objects.values_list("state", flat=True)) == {MessageState.DELIVERED}


def test_an_error_that_comes_twice_suspends_once(partner: PartnerSide, wire: Link) -> None:
    submit(partner)
    work()
    error = partner.error(wire.last, ErrorCode.INVALID_SEQUENCE_NUMBER)
    transient = partner.error(wire.last, ErrorCode.TRANSIENT_ERROR)
    assert [partner.send(arrival) for arrival in (error, error, transient)] == [204, 204, 204]
    pair = partner.outbound
    assert (pair.flow, pair.cause) == (Flow.SUSPENDED, "ebms_error_invalid_sequence_number")
    assert Incident.objects.get().occurrences == 1
    assert Message.objects.get().state == MessageState.FAILED


def test_a_late_acknowledgement_counts_and_the_pair_stays_with_its_operator(
    partner: PartnerSide, wire: Link, time: FrozenClock
) -> None:
    message = submit(partner)
    _give_up(partner, time)
    submit(partner)
    assert partner.send(partner.acknowledgement(wire.last)) == 204
    message.refresh_from_db()
    assert message.state == MessageState.DELIVERED
    assert (partner.outbound.flow, partner.outbound.in_flight_id) == (Flow.SUSPENDED, None)
    assert work() == []
    operating.pair_resume(pair_id=partner.outbound.pk, actor=OPERATOR, reason="It had arrived.")
    work()
    assert decoded(wire.last).hop.sequence_number == 2


def test_the_cause_of_a_suspension_is_what_was_wrong_last(partner: PartnerSide, wire: Link, time: FrozenClock) -> None:
    submit(partner)
    wire.answer = REFUSED
    work()
    assert (partner.outbound.cause, partner.outbound.cause_detail) == ("connect_refused", "Connection refused.")
    wire.answer = Receipt(ok=True, status=204)
    _seconds_of_transmissions(time, wire, 120)
    incident = Incident.objects.get()
    assert (incident.cause, incident.detail) == ("ack_timeout", "")


def test_after_a_skip_the_next_message_is_number_1(partner: PartnerSide, wire: Link) -> None:
    """Invariant 9, with the partner's part of it: it had taken the skipped number, and takes the next message too."""
    skipped, kept = submit(partner), submit(partner)
    work()
    operating.pair_skip_head(pair_id=partner.outbound.pk, actor=OPERATOR, reason="Ordered by telephone.")
    work()
    skipped.refresh_from_db()
    assert skipped.state == MessageState.SKIPPED
    sent = [(decoded(parcel).message_id, decoded(parcel).hop.sequence_number) for parcel in wire.parcels]
    assert sent == [(skipped.message_id, 1), (kept.message_id, 1)]
    assert partner.send(partner.acknowledgement(wire.parcels[0])) == 204, "of the skipped one: too late"
    assert partner.outbound.in_flight_id == kept.pk
