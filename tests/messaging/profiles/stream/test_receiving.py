"""What partners send in streams: accepted in order and once, and counted; M03 to M18, M41 through the real door.

What has overtaken its predecessor waits for it: in memory, for a moment, and only so many.
"""

from __future__ import annotations

import hashlib
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from messaging.deliveries.services import attended
from messaging.engine import preparing
from messaging.entrance.refusals import Answer, Arrival
from messaging.models import (
    Delivery,
    Event,
    Incident,
    IncomingStream,
    Message,
    MessageIdentity,
    Rejection,
    Signal,
)
from messaging.profiles.stream import accepting
from messaging.profiles.stream.arrivals import Holding, Position
from messaging.protocol.envelope import PayloadPart
from partners.models import Agreement
from rmhub.clock import FrozenClock
from tests import FIXTURES
from tests.messaging.conftest import NOON
from tests.messaging.deliveries.stage import make_trigger
from tests.messaging.factories import link, partner_side, work
from tests.messaging.profiles.repeatable.callers import caller, remembering_since
from tests.messaging.profiles.stream.partner import GAP, GUID, TAKEN, A, B, C, decoded, ids, items, post, stream_side
from tests.partners.factories import make_agreement
from tests.rmhub.conditions import eventually

pytestmark = pytest.mark.django_db


def test_a_message_is_stored_with_all_that_came(time: FrozenClock) -> None:
    partner = stream_side()
    arrival = partner.message(1, "m1@p", content=b"<Order\xff/>", ref_to_message_id="earlier@us")
    assert partner.send(arrival) == TAKEN
    message = Message.objects.get()
    assert (message.direction, message.state, message.semantics) == ("in", "received", "OnceAndOnlyOnce")
    assert (message.message_id, message.sequence_number, message.previous_number) == ("m1@p", 1, 0)
    assert (message.tx_sequence_id, message.ref_to_message_id) == (A, "earlier@us")
    assert (message.position, message.completed_at, message.content_type) == (1, NOON, arrival.content_type)
    assert message.digest == hashlib.sha256(arrival.body).hexdigest()
    [payload] = message.payloads.all()
    assert bytes(payload.content or b"") == b"<Order\xff/>"
    assert preparing.stored_body(message, [payload]) == arrival.body, "the exact octets, payloads stored once"
    pair = partner.inbound
    assert (pair.last_sequence, pair.last_message_id, pair.done, pair.last_success_at) == (1, "m1@p", 1, NOON)
    row = partner.row
    assert partner.state == (A, 1, 0)
    assert (row.last_access_at, row.receipts_to) == (NOON, partner.terms.partner_error_uri)
    assert row.agreement_version_id == partner.terms.version_id
    identity = MessageIdentity.objects.get()
    assert (identity.scope_id, identity.message_id, identity.stored_id) == (
        partner.terms.partner_id, "m1@p", message.pk,
    )  # fmt: skip
    assert list(Event.objects.values_list("type", flat=True)) == ["message.received"]


def test_m03_repeats_are_rejected_and_counted_and_an_order_ack_is_due(time: FrozenClock) -> None:
    partner = stream_side()
    partner.send(partner.message(1, "m1@p"))
    second = partner.message(2, "m2@p")
    assert [partner.send(second) for _ in range(3)] == [TAKEN] * 3
    assert partner.state == (A, 2, 2)
    assert (ids(), Message.objects.get(message_id="m2@p").copies) == (["m1@p", "m2@p"], 2)
    assert (partner.inbound.done, partner.inbound.duplicates) == (2, 2)
    assert Event.objects.filter(type="message.duplicate").count() == 2
    assert partner.row.order_ack_due_at == NOON + timedelta(milliseconds=500)


def test_m13_a_repeat_moves_nothing_so_that_what_followed_is_not_taken_twice() -> None:
    partner = stream_side()
    for number in range(1, 6):
        partner.send(partner.message(number, f"m{number}@p"))
    assert partner.state == (A, 5, 0)
    assert partner.send(partner.message(3, "m3@p")) == TAKEN
    assert partner.state == (A, 5, 1)
    assert partner.send(partner.message(4, "m4@p")) == TAKEN
    assert partner.state == (A, 5, 2)
    assert ids() == [f"m{number}@p" for number in range(1, 6)]


def test_m18_what_is_rejected_moves_the_last_access_time_and_the_reject_count(time: FrozenClock) -> None:
    partner = stream_side()
    partner.send(partner.message(1))
    later = time.move(7)
    assert partner.send(partner.message(3)) == GAP
    assert (partner.row.last_access_at, partner.state) == (later, (A, 1, 1))
    assert partner.send(partner.message(2)) == TAKEN
    assert partner.state == (A, 2, 0)


def test_m05_m06_m07_a_gap_waits_for_its_bridge_and_what_is_late_is_gone_for_good() -> None:
    partner = stream_side()
    partner.send(partner.message(1, "m1@p"))
    partner.send(partner.message(2, "m2@p"))
    assert partner.send(partner.message(4, "m4@p")) == GAP
    rejection = Rejection.objects.get()
    assert (rejection.reason, rejection.http_status, rejection.message_id) == ("stream_previous_missing", 503, "m4@p")
    assert partner.send(partner.message(4, "m4@p", previous=2)) == TAKEN
    assert partner.send(partner.message(3, "m3@p")) == TAKEN
    assert (partner.state, ids()) == ((A, 4, 1), ["m1@p", "m2@p", "m4@p"])
    assert (partner.inbound.duplicates, partner.inbound.rejected, Rejection.objects.count()) == (1, 1, 1)


def test_of_many_that_come_too_early_the_first_is_written_down_and_all_are_counted() -> None:
    partner = stream_side()
    partner.send(partner.message(1))
    assert [partner.send(partner.message(number)) for number in (3, 4, 5, 3)] == [GAP] * 4
    assert (partner.state, partner.inbound.rejected, Rejection.objects.count()) == ((A, 1, 4), 4, 1)
    assert Event.objects.filter(type="message.rejected").count() == 1
    partner.send(partner.message(2))
    partner.send(partner.message(5))
    assert Rejection.objects.count() == 2


def test_m09_m10_m11_m12_a_new_stream_begins_with_its_head_and_an_old_one_is_over() -> None:
    partner = stream_side()
    partner.send(partner.message(1, "a1@p"))
    assert partner.send(partner.message(2, "b2@p", sid=B)) == GAP
    assert partner.send(partner.message(1, "b1@p", sid=B)) == TAKEN
    assert partner.send(partner.message(2, "a2@p")) == TAKEN
    assert Rejection.objects.get(message_id="a2@p").reason == "stream_older_stream"
    assert partner.send(partner.message(4, "c4@p", sid=C, previous=0)) == TAKEN
    assert (partner.state, ids()) == ((C, 4, 0), ["a1@p", "b1@p", "c4@p"])


@pytest.mark.parametrize(("number", "previous"), [(1, 1), (1, 2), (2**32, 1)])
def test_m17_numbers_that_mean_nothing_are_refused_and_nothing_moves(number: int, previous: int) -> None:
    partner = stream_side()
    good, written = partner.message(1, "m@p"), f"<current>{number}</current><previous>{previous}</previous>"
    bad = replace(good, body=good.body.replace(b"<current>1</current>", written.encode()))
    assert bad.body != good.body
    assert partner.send(bad) == Answer(400)
    assert Rejection.objects.get().reason == "stream_malformed"
    assert not IncomingStream.objects.exists()
    assert (partner.inbound.rejected, ids()) == (1, [])


def test_two_senders_behind_one_pair_have_a_stream_each() -> None:
    partner = stream_side()
    other = replace(partner, source="99999999-2b48-43e8-b441-42745f280d53")
    partner.send(partner.message(1, "m1@p"))
    assert other.send(other.message(2, "o2@p")) == GAP
    assert other.send(other.message(1, "o1@p")) == TAKEN
    partner.send(partner.message(2, "m2@p"))
    assert (partner.state, other.state) == ((A, 2, 0), (A, 1, 0))
    assert ids() == ["m1@p", "o1@p", "m2@p"]


def test_a_group_is_taken_in_the_order_of_its_numbers_with_a_bounded_number_of_statements(
    django_assert_max_num_queries,
) -> None:
    partner = stream_side()
    partner.send(partner.message(1, "m1@p"))
    numbers = (5, 3, 2, 7, 4, 6, 3)
    group = items(partner, *(partner.message(number, f"m{number}@p") for number in numbers))
    with django_assert_max_num_queries(14):
        outcomes = accepting.accept(group)
    assert [outcome.status for outcome in outcomes] == [202] * 7
    assert ids() == [f"m{number}@p" for number in range(1, 8)]
    assert {outcome.position for outcome in outcomes} == {(A, 7)}
    group = items(partner, *(partner.message(number, f"m{number}@p") for number in range(8, 40)))
    with django_assert_max_num_queries(12):
        accepting.accept(group)
    assert partner.state == (A, 39, 0)


SAMPLES = FIXTURES / "streams"


def test_the_published_samples_are_taken_and_acknowledged(time: FrozenClock) -> None:
    """Three messages of one stream as [MC-MQSRM] prints them: `Stream`, no `previous`, none of our own block."""
    uri = "http://machine2/msmq/private$/tsimpleq"
    partner = stream_side(own_uri=uri, allowed=(("urn:orders", "NewOrder", "receive"),))
    sid = 4839986701558349830
    for number, name in enumerate(("01-stream.xml", "03-stream.xml", "05-stream.xml"), start=1):
        body = (SAMPLES / name).read_bytes().replace(b"uuid:1@", f"uuid:{number}@".encode())  # all three have one id
        assert partner.send(Arrival("text/xml", body, partner.presented)) == TAKEN
    assert partner.state == (sid, 3, 0)
    found = Message.objects.order_by("position").values_list("sequence_number", "previous_number", "service", "action")
    assert list(found) == [
        (1, 0, "urn:orders", "NewOrder"),
        (2, 1, "urn:orders", "NewOrder"),
        (3, 2, "urn:orders", "NewOrder"),
    ]
    assert partner.row.receipts_to == "http://machine1/MSMQ/private$/receipts?SenderStream=XRntV"
    with link() as wire:
        while work():
            pass
    receipt = decoded(wire.last).receipt
    assert receipt is not None
    assert (receipt.source, receipt.tx_sequence_id, receipt.last_ordinal) == (GUID, sid, 1), "the first asked for one"
    time.move(1)
    with link() as wire:
        work()
    receipt = decoded(wire.last).receipt
    assert receipt is not None
    assert receipt.last_ordinal == 3


# --- the MessageId, too ---


def test_a_stored_message_id_under_a_new_number_advances_the_stream_and_is_a_repeat() -> None:
    """An operator began the stream anew and sends again what had arrived: the stream goes on, the document does not."""
    partner = stream_side()
    partner.send(partner.message(1, "m1@p"))
    assert partner.send(partner.message(1, "m1@p", sid=B)) == TAKEN
    assert partner.send(partner.message(2, "m2@p", sid=B)) == TAKEN
    assert (partner.state, ids(), partner.inbound.duplicates) == ((B, 2, 0), ["m1@p", "m2@p"], 1)
    assert not Incident.objects.exists()
    assert partner.send(partner.message(3, "m1@p", sid=B, content=b"<Other/>")) == TAKEN
    assert Incident.objects.get().cause == "same_id_other_content"
    assert (partner.state, ids()) == ((B, 3, 0), ["m1@p", "m2@p"])


def test_the_same_id_twice_in_one_group() -> None:
    partner = stream_side()
    first, second = partner.message(1, "m1@p"), partner.message(2, "m1@p")
    accepting.accept(items(partner, first, second))
    assert (partner.state, ids(), partner.inbound.duplicates) == ((A, 2, 0), ["m1@p"], 1)


def test_a_message_that_came_by_ebxml_before_is_a_repeat() -> None:
    by_ebxml = partner_side()
    agreement = Agreement.objects.get(tpa_id=by_ebxml.terms.tpa_id)
    partner = stream_side(make_agreement(own_party=agreement.own_party, partner=agreement.partner, profile="stream"))
    assert by_ebxml.send(by_ebxml.message(1, "both@p")) == 204
    assert partner.send(partner.message(1, "both@p")) == TAKEN
    assert partner.send(partner.message(2, "second@p")) == TAKEN
    assert by_ebxml.send(by_ebxml.message(2, "second@p")) == 204
    assert (sorted(ids()), Incident.objects.count()) == (["both@p", "second@p"], 0)
    assert (partner.state, by_ebxml.inbound.last_sequence) == ((A, 2, 0), 2)


def test_a_request_that_is_not_executed_yet_stays_when_it_came_in_a_stream_too(monkeypatch, time: FrozenClock) -> None:
    """The stream's sender is told that it is stored: the request is not released any more, but executed later."""
    remembering_since(NOON - timedelta(days=30))
    by_request = caller(exchange_mode="synchronous", allowed=(("urn:orders", "NewOrder", "both"),))
    agreement = Agreement.objects.get(tpa_id=by_request.terms.tpa_id)
    partner = stream_side(make_agreement(own_party=agreement.own_party, partner=agreement.partner, profile="stream"))
    make_trigger(kind="http", url="http://127.0.0.1:9/", answers=True)
    talk = attended.talk

    def meanwhile(job: Any) -> Any:
        assert partner.send(partner.message(1, "order-1", content=b"<Order/>")) == TAKEN
        return talk(job)  # nobody listens there: certainly not executed

    monkeypatch.setattr(attended, "talk", meanwhile)
    assert by_request.post("order-1", NOON).status_code in (409, 503)
    assert (partner.state, ids(), Delivery.objects.get().state) == ((A, 1, 0), ["order-1"], "waiting")
    assert not Incident.objects.exists()


def test_a_message_without_payload_has_none() -> None:
    partner = stream_side()
    assert partner.send(partner.message(1, payloads=())) == TAKEN
    assert (Message.objects.get().size, Message.objects.get().payloads.count()) == (0, 0)


def test_several_payloads_come_in_their_order() -> None:
    partner = stream_side()
    parts = tuple(PayloadPart(f"p{n}@p", "text/plain", b"x" * n, filename=f"{n}.txt") for n in (1, 2, 3))
    partner.send(partner.message(1, payloads=parts))
    stored = Message.objects.get().payloads.order_by("number").values_list("content_id", "size", "filename")
    assert list(stored) == [("p1@p", 1, "1.txt"), ("p2@p", 2, "2.txt"), ("p3@p", 3, "3.txt")]


# --- outside of any stream ---


def test_m41_outside_of_a_stream_an_id_counts_once_and_a_repeat_refreshes_it(time: FrozenClock) -> None:
    partner = stream_side(detect_repeats=False)
    arrival = partner.message(None, "m1@p")
    assert partner.send(arrival) == TAKEN
    message = Message.objects.get()
    assert (message.semantics, message.sequence_number, message.tx_sequence_id) == ("BestEffort", None, None)
    time.move(29 * 60)
    assert partner.send(arrival) == TAKEN
    later = time.move(29 * 60)
    assert partner.send(arrival) == TAKEN
    assert (ids(), MessageIdentity.objects.get().created_at) == (["m1@p"], later)
    assert not Signal.objects.exists(), "silently"
    assert not IncomingStream.objects.exists()
    time.move(31 * 60)
    assert partner.send(arrival) == TAKEN
    assert ids() == ["m1@p", "m1@p"], "forgotten, and taken as new"
    assert partner.send(arrival) == TAKEN
    assert len(ids()) == 2
    assert MessageIdentity.objects.get().stored_id == Message.objects.latest("id").pk


@pytest.mark.parametrize(
    ("later", "taken"),
    [pytest.param(1800, 1, id="M41-after-half-an-hour"), pytest.param(1800.001, 2, id="M41-a-moment-later")],
)
def test_an_id_outside_of_a_stream_is_remembered_for_half_an_hour(time: FrozenClock, later: float, taken: int) -> None:
    partner = stream_side(detect_repeats=False)
    arrival = partner.message(None, "m1@p")
    assert post(arrival).status_code == 202
    time.move(later)
    assert post(arrival).status_code == 202
    assert ids() == ["m1@p"] * taken
    assert partner.inbound.duplicates == 2 - taken


def test_m41_two_copies_in_one_group_are_one_message(time: FrozenClock) -> None:
    partner = stream_side(detect_repeats=False)
    arrival = partner.message(None, "m1@p")
    accepting.accept(items(partner, arrival, arrival))
    time.move(1801)
    accepting.accept(items(partner, arrival, arrival))
    assert ids() == ["m1@p"] * 2


def test_m41_where_repeats_are_to_be_detected_an_id_counts_once_for_ever(time: FrozenClock) -> None:
    partner = stream_side(detect_repeats=True)
    arrival = partner.message(None, "m1@p")
    partner.send(arrival)
    time.move(2 * 86_400)
    partner.send(arrival)
    assert ids() == ["m1@p"]


KEY = (uuid.UUID(int=1), "guid")
WAIT = 120.0


class Waiter(threading.Thread):
    """Waits with message `number` of stream 1, which follows `previous`."""

    def __init__(self, holding: Holding, number: int, previous: int, *, look: Callable[[], Position] | None = None):
        super().__init__(daemon=True)
        self.holding, self.number, self.previous = holding, number, previous
        self.look = look or (lambda: (0, 0))
        self.seconds = WAIT
        self.ready: bool | None = None
        self.start()

    def run(self) -> None:
        self.ready = self.holding.wait(
            KEY,
            (1, self.number),
            is_ready=lambda position: position >= (1, self.previous),
            look=self.look,
            until=time.monotonic() + self.seconds,
        )

    def done(self) -> bool:
        self.join(WAIT)
        assert not self.is_alive()
        assert self.ready is not None
        return self.ready


def test_it_goes_on_when_its_predecessor_is_accepted() -> None:
    holding = Holding()
    waiter = Waiter(holding, 3, 2)
    eventually(lambda: holding.waiting() == 1)
    holding.advanced(KEY, (1, 1))
    assert waiter.ready is None, "1 is not what it waits for"
    holding.advanced(KEY, (1, 2))
    assert waiter.done() is True
    assert holding.waiting() == 0


def test_who_follows_right_behind_goes_on_too() -> None:
    """3, 4 and 5 become one group, and not three transactions one behind the other; 7 has to wait for 6."""
    holding = Holding()
    waiters = [Waiter(holding, number, number - 1) for number in (5, 7, 4, 3)]
    eventually(lambda: holding.waiting() == 4)
    holding.advanced(KEY, (1, 2))
    assert [waiters[index].done() for index in (0, 2, 3)] == [True] * 3
    assert holding.waiting() == 1
    holding.advanced(KEY, (1, 6))
    assert waiters[1].done() is True


def test_what_was_accepted_between_the_look_and_the_wait_is_not_missed() -> None:
    holding = Holding()
    holding.advanced(KEY, (1, 2))
    holding.advanced(KEY, (1, 1))  # a slower group says so later; streams never go back
    assert Waiter(holding, 3, 2).done() is True


def test_its_time_is_bounded() -> None:
    holding = Holding()
    assert holding.wait(KEY, (1, 3), is_ready=lambda _: False, look=lambda: (0, 0), until=time.monotonic()) is False
    until = time.monotonic() + 0.05
    assert holding.wait(KEY, (1, 3), is_ready=lambda _: False, look=lambda: (0, 0), until=until) is False
    assert time.monotonic() >= until


def test_only_so_many_wait_and_the_next_is_decided_at_once() -> None:
    holding = Holding(limit=2)
    waiters = [Waiter(holding, 3, 2), Waiter(holding, 4, 3)]
    eventually(lambda: holding.waiting() == 2)
    assert Waiter(holding, 5, 4).done() is False
    holding.advanced(KEY, (1, 2))
    assert [waiter.done() for waiter in waiters] == [True, True]
    assert Waiter(holding, 5, 1).done() is True, "there is room again"


def test_another_process_s_acceptance_is_seen_in_the_row() -> None:
    """One of those that wait for a stream looks, and wakes the others."""
    holding = Holding()
    looks: list[int] = []
    accepted = threading.Event()

    def look() -> Position:
        looks.append(1)
        return (1, 2) if accepted.is_set() else (1, 1)

    waiters = [Waiter(holding, number, 2, look=look) for number in (3, 4, 5)]
    eventually(lambda: len(looks) >= 2)
    assert holding.waiting() == 3
    accepted.set()
    assert [waiter.done() for waiter in waiters] == [True] * 3
