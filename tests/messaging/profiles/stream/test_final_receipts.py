"""Final receipts that we owe: what became of a document after the order acknowledgement (M35), and of one passed on."""

from __future__ import annotations

from typing import Any

import pytest

from messaging.choices import Direction, SignalKind
from messaging.deliveries.services import pulling
from messaging.engine import pairs
from messaging.entrance.refusals import Arrival
from messaging.journal.audit import Actor
from messaging.models import (
    Delivery,
    Message,
    Pair,
    Signal,
)
from messaging.protocol.envelope import PartyId
from messaging.routing.services import routes, upstream
from partners import registry
from partners.models import Agreement
from rmhub.clock import FrozenClock
from tests.messaging.deliveries.stage import Application, application, http, make_trigger
from tests.messaging.deliveries.stage import work as deliver
from tests.messaging.profiles.stream.conftest import NOON
from tests.messaging.profiles.stream.partner import A, StreamSide, stream_side
from tests.messaging.profiles.stream.received import TAKEN, finals, ids

pytestmark = pytest.mark.django_db


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
