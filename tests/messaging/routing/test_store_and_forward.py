"""A router that stores and forwards (spec 1, 4.1): sender A, router B, receiver C."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from messaging.messages.services.submitting import NewPayload, message_submit
from messaging.models import Circuit, Event, Message, MessageIdentity, Pair, Payload, Rejection, Signal, Transmission
from messaging.pairs.services import operating
from messaging.profiles.acknowledging import Item
from messaging.profiles.ebxml import accepting, receiving
from messaging.protocol.codecs import ebxml
from messaging.protocol.envelope import Envelope, MessageType
from messaging.protocol.errors import ErrorCode
from messaging.routing.services import routes
from messaging.transports import Parcel
from partners import registry, services
from rmhub.clock import FrozenClock, now
from tests.messaging.routing.hubs import SERVICE, WHO, WHY, Hub, Network


def submit(content: bytes = b"<Order/>", tpa_id: str = "tpa:A-C", **fields: object) -> Message:
    payloads = [NewPayload(content, "application/xml", "order.xml", "Order")]
    return message_submit(agreement=tpa_id, service=SERVICE, action="NewOrder", payloads=payloads, **fields).message


def read(parcel: Parcel) -> Envelope:
    return ebxml.decode(parcel.content_type, parcel.body)


def errors(parcels: list[Parcel]) -> list[Envelope]:
    return [one for one in map(read, parcels) if one.message_type is MessageType.ERROR]


def acknowledgements(parcels: list[Parcel]) -> list[Envelope]:
    return [one for one in map(read, parcels) if one.message_type is MessageType.ACKNOWLEDGEMENT]


def states(hub: Hub) -> list[str]:
    with hub:
        return [message.state for message in hub.sent()]


def suspend_onward(net: Network) -> None:
    """B's pair to C gives up."""
    with net["B"] as b:
        pair = b.outbound("tpa:B-C")
        pair.flow, pair.cause = "suspended", "ack_timeout"
        pair.save()


def nothing_was_stored(net: Network) -> bool:
    with net["B"] as b:
        pair = b.inbound("tpa:B-A")
        return (
            (pair.last_sequence, pair.last_message_id, pair.done) == (0, "", 0)
            and not Message.objects.exists()
            and not MessageIdentity.objects.exists()
        )


def test_a_message_for_somebody_else_goes_on_with_its_header_and_documents_untouched(net: Network) -> None:
    with net["A"]:
        message = submit(b"<Order n='1'/>")
    net.work()
    with net["A"]:
        message.refresh_from_db()
        assert message.state == "delivered"
    with net["C"]:
        [received] = net["C"].received()
        assert (received.message_id, received.conversation_id) == (message.message_id, message.conversation_id)
        [payload] = Payload.objects.filter(message=received)
        assert (bytes(payload.content), payload.label) == (b"<Order n='1'/>", "Order")
    with net["B"]:
        [came], [went] = net["B"].received(), net["B"].sent()
        assert went.forwarded_from_id == came.pk
        assert (came.state, went.state) == ("received", "delivered")
        kinds = list(Event.objects.filter(message=came).order_by("id").values_list("type", flat=True))
        assert kinds == ["message.received", "message.forwarded"]
    [first], [second] = net.between("A", "B"), [p for p in net.between("B", "C") if read(p).service]
    assert read(second).routing[:-1] == read(first).routing
    hop = read(second).hop
    assert (hop.sender_uri, hop.receiver_uri, hop.sequence_number) == (
        "https://b.example/msh",
        "https://c.example/msh",
        1,
    )
    assert between(second.body, b"<Header>", b"</Header>") == between(first.body, b"<Header>", b"</Header>")
    assert between(second.body, b"<Manifest>", b"</Manifest>") == between(first.body, b"<Manifest>", b"</Manifest>")


def between(body: bytes, start: bytes, end: bytes) -> bytes:
    return body[body.index(start) : body.index(end) + len(end)]


def test_a_large_document_goes_on_from_the_disk(net: Network, settings: Any) -> None:
    settings.RMHUB_INLINE_PAYLOAD_BYTES = 1000
    document = b"<Order n='1'/>" * 50_000
    with net["A"]:
        submit(document)
    net.work()
    [sent] = [parcel for parcel in net.between("B", "C") if not isinstance(parcel.body, bytes)]
    with net["C"]:
        [received] = net["C"].received()
        assert Payload.objects.get(message=received).sha256 == hashlib.sha256(document).hexdigest()
        assert received.digest == hashlib.sha256(sent.octets).hexdigest()


def test_everything_arrives_once_and_in_order_whatever_the_links_do(net: Network, time: FrozenClock) -> None:
    turns = iter(range(10_000))

    def bad(sender: str, receiver: str, parcel: Parcel) -> list[bool]:
        return [[True], [True, True], [False], []][next(turns) % 4]

    net.faults = bad
    with net["A"]:
        sent = [submit(b"<Order n='%d'/>" % number).message_id for number in range(3)]
    for _ in range(80):
        net.work()
        if set(states(net["A"]) + states(net["B"])) == {"delivered"} and len(states(net["B"])) == len(sent):
            break
        time.move(61)
        for hub in net.hubs.values():
            with hub:
                for pair in Pair.objects.filter(direction="out", flow="suspended"):
                    operating.pair_resume(pair_id=pair.pk, actor=WHO, reason=WHY)
    assert set(states(net["A"])) == set(states(net["B"])) == {"delivered"}
    with net["C"] as c:
        assert [message.message_id for message in c.received()] == sent
    with net["B"] as b:
        assert [message.message_id for message in b.received()] == sent


def test_the_forwarded_octets_are_frozen_before_the_first_send(net: Network, time: FrozenClock) -> None:
    net.down = {"C"}
    with net["A"]:
        submit()
    net.work()
    time.move(40)
    with net["B"]:
        first = bytes(Message.objects.get(direction="out").wire_frame)
    net.down = set()
    net.work()
    with net["B"]:
        assert bytes(Message.objects.get(direction="out").wire_frame) == first
        assert Transmission.objects.filter(message__direction="out").count() == 2


@pytest.mark.parametrize("shut", ["suspended", "paused", "disabled", "agreement"])
def test_e28_the_next_hop_is_down_so_the_hop_before_gets_a_transient_error_and_no_acknowledgement(
    net: Network, time: FrozenClock, shut: str
) -> None:
    with net["B"] as b:
        pair = b.outbound("tpa:B-C")
        if shut == "suspended":
            pair.flow, pair.cause = "suspended", "ack_timeout"
            pair.save()
        elif shut == "paused":
            operating.pair_pause(pair_id=pair.pk, actor=WHO, reason=WHY)
        elif shut == "disabled":
            Pair.objects.filter(pk=pair.pk).update(gate="disabled")
        else:
            services.agreement_disable(agreement=services.agreements.Agreement.objects.get(tpa_id="tpa:B-C"))
        registry.reset()
    with net["A"]:
        message = submit()
    net.work()
    [error] = errors(net.between("B", "A"))
    assert error.error is not None
    assert (error.error.code, error.error.min_retry_secs) == (ErrorCode.TRANSIENT_ERROR, 60)
    assert error.ref_to_message_id == message.message_id
    assert acknowledgements(net.between("B", "A")) == []
    assert nothing_was_stored(net)
    with net["A"] as a:
        pair = a.outbound("tpa:A-C")
        assert (pair.flow, pair.retries) == ("holding", 0)
    with net["B"] as b:
        if shut == "agreement":
            services.agreement_enable(agreement=services.agreements.Agreement.objects.get(tpa_id="tpa:B-C"))
        else:
            Pair.objects.filter(direction="out").update(gate="open", flow="idle", cause="")
        registry.reset()
    time.move(59)
    assert net.work() == []
    time.move(1)
    net.work()
    assert states(net["A"]) == states(net["B"]) == ["delivered"]
    first, second = net.between("A", "B")[:2]
    assert first.body == second.body


def test_e28_while_the_next_hop_pauses_the_hop_before_is_told_for_how_long(net: Network, time: FrozenClock) -> None:
    with net["A"]:
        submit(b"<Order n='1'/>")
    net.down = {"C"}
    net.work()
    with net["B"] as b:
        pair = b.outbound("tpa:B-C")
        Pair.objects.filter(pk=pair.pk).update(flow="holding", due_at=now() + timedelta(seconds=125))
    with net["A"]:
        submit(b"<Order n='2'/>")
    net.work("A", "B")
    [error] = errors(net.between("B", "A"))
    assert error.error is not None and error.error.min_retry_secs == 125


def test_e28_while_the_next_hop_s_circuit_is_open_nothing_is_taken(net: Network, time: FrozenClock) -> None:
    with net["B"]:
        until = now() + timedelta(seconds=60)
        Circuit.objects.create(
            address="https://c.example:443", state="open", failures=9, retry_at=until, opened_at=until, updated_at=until
        )
    with net["A"]:
        submit()
    net.work()
    [error] = errors(net.between("B", "A"))
    assert error.error is not None and error.error.min_retry_secs == 60
    assert nothing_was_stored(net)
    time.move(61)  # now one attempt is let through, and so is the message
    net.work()
    assert states(net["A"]) == ["delivered"]


def test_e28_once_the_next_hop_was_found_unreachable_nothing_more_is_taken(net: Network, time: FrozenClock) -> None:
    """Store and forward, by attempts that really fail: the first message shows it, and is this hub's to deliver."""
    net.down = {"C"}
    with net["A"]:
        first = submit(b"<Order n='1'/>")
    net.work()
    assert states(net["A"]) == ["delivered"], "it is stored at B, and B has said so"
    for _ in range(20):
        with net["B"] as b:
            if b.outbound("tpa:B-C").flow == "suspended" or Circuit.objects.filter(state="open").exists():
                break
        time.move(10)
        net.work()
    else:
        raise AssertionError("B never found out")
    with net["A"]:
        second = submit(b"<Order n='2'/>")
    net.work()
    assert [error.ref_to_message_id for error in errors(net.between("B", "A"))] == [second.message_id]
    [error] = errors(net.between("B", "A"))
    assert error.error is not None and error.error.code == ErrorCode.TRANSIENT_ERROR
    assert {one.ref_to_message_id for one in acknowledgements(net.between("B", "A"))} == {first.message_id}
    with net["B"] as b:
        assert [one.message_id for one in b.received()] == [first.message_id]
        assert b.inbound("tpa:B-A").last_sequence == 1
    net.down = set()
    for _ in range(40):
        time.move(30)
        with net["B"]:
            for pair in Pair.objects.filter(direction="out", flow="suspended"):
                operating.pair_resume(pair_id=pair.pk, actor=WHO, reason=WHY)
        net.work()
        if states(net["A"]) == states(net["B"]) == ["delivered", "delivered"]:
            break
    with net["C"] as c:
        assert [one.message_id for one in c.received()] == [first.message_id, second.message_id]


def test_what_is_stored_is_acknowledged_again_whatever_became_of_the_way(net: Network, time: FrozenClock) -> None:
    net.faults = lambda sender, receiver, parcel: [] if (sender, receiver) == ("B", "A") else [True]
    with net["A"]:
        message = submit()
    net.work()
    with net["B"]:
        [route] = routes.Route.objects.all()
        routes.route_disable(route_id=route.pk, actor=WHO, reason=WHY)
        registry.reset()
    suspend_onward(net)
    net.faults = lambda sender, receiver, parcel: [True]
    time.move(601)
    net.work()
    assert {one.ref_to_message_id for one in acknowledgements(net.between("B", "A"))} == {message.message_id}
    assert states(net["A"]) == ["delivered"]
    assert errors(net.between("B", "A")) == []


def test_without_a_route_the_message_is_refused_for_good(net: Network) -> None:
    with net["B"]:
        [route] = routes.Route.objects.all()
        routes.route_delete(route_id=route.pk, actor=WHO, reason=WHY)
        registry.reset()
    with net["A"]:
        submit()
    net.work()
    [error] = errors(net.between("B", "A"))
    assert error.error is not None
    assert (error.error.code, error.error.description) == (
        ErrorCode.NOT_SUPPORTED,
        "No route leads to DUNS:C-1 from here.",
    )
    assert nothing_was_stored(net)
    with net["A"] as a:
        assert a.outbound("tpa:A-C").flow == "suspended"
    with net["B"]:
        assert Rejection.objects.get().reason == "NotSupported"


def test_a_route_for_the_service_goes_before_the_one_for_the_party(net: Network) -> None:
    with net["B"] as b:
        elsewhere = b.agrees("E", "tpa:B-E")
        b.routes_to("C", elsewhere, name="orders to C by E", service=SERVICE)
    net.down = {"E"}
    with net["A"]:
        submit()
    net.work()
    with net["B"] as b:
        [went] = b.sent()
        assert went.pair_id == b.outbound("tpa:B-E").pk


def test_a_disabled_route_is_not_there(net: Network) -> None:
    with net["B"] as b:
        elsewhere = b.agrees("E", "tpa:B-E")
        b.routes_to("C", elsewhere, name="orders to C by E", service=SERVICE, enabled=False)
    with net["A"]:
        submit()
    net.work()
    assert states(net["A"]) == ["delivered"]


@pytest.mark.parametrize("net", [{"max_hops": 1}], indirect=True)
def test_a_message_that_has_had_too_many_hops_is_refused(net: Network) -> None:
    with net["A"]:
        submit()
    net.work()
    [error] = errors(net.between("B", "A"))
    assert error.error is not None and error.error.code == ErrorCode.DELIVERY_FAILURE
    assert "has had 1 hops" in error.error.description
    assert nothing_was_stored(net)


def test_a_loop_ends_where_the_message_has_been_before(net: Network) -> None:
    """B sends what is for C to C, which is told to send it to B again."""
    with net["C"] as c:
        services.agreement_disable(agreement=services.agreements.Agreement.objects.get(tpa_id="tpa:A-C"))
        back = c.agrees("B", "tpa:C-B")
        registry.reset()
        c.party.identifiers.all().delete()
        c.routes_to("C", back)
    with net["A"]:
        submit()
    net.work()
    [error] = errors(net.between("C", "B"))
    assert error.error is not None and error.error.code == ErrorCode.DELIVERY_FAILURE
    assert "a loop" in error.error.description
    with net["C"] as c:
        assert c.received() == []
    with net["B"] as b:
        assert b.outbound("tpa:B-C").flow == "suspended"


def test_a_router_takes_from_whom_it_has_an_agreement_with_and_nobody_else(net: Network) -> None:
    """The hop's agreement is found by who brought the message and by the URIs, not by the TPAId of others."""
    with net["B"]:
        services.agreement_disable(agreement=services.agreements.Agreement.objects.get(tpa_id="tpa:B-A"))
        registry.reset()
    with net["A"]:
        submit()
    net.work()
    with net["B"] as b:
        assert b.received() == b.sent() == []
        assert Rejection.objects.get().reason == "unknown_agreement"


def test_best_effort_messages_are_passed_on_once_and_unnumbered(net: Network) -> None:
    with net["A"]:
        submit(semantics="BestEffort")
    net.work()
    with net["C"] as c:
        [received] = c.received()
        assert received.sequence_number is None
    assert states(net["A"]) == states(net["B"]) == ["sent"]
    assert acknowledgements(net.between("B", "A")) == []


def test_the_same_id_from_another_sender_is_not_taken_for_the_same_message(net: Network) -> None:
    with net["B"] as b:
        MessageIdentity.objects.create(
            scope=b.party, direction="out", message_id="twice@a.example", stored_id=b.party.pk, created_at=now()
        )
    with net["A"]:
        submit(message_id="twice@a.example")
    net.work()
    [error] = errors(net.between("B", "A"))
    assert error.error is not None and error.error.code == ErrorCode.INCONSISTENT
    with net["B"] as b:
        assert b.received() == []


def test_routing_costs_a_fixed_number_of_queries_for_a_group(net: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    with net["A"]:
        for number in range(8):
            submit(b"<Order n='%d'/>" % number, semantics="BestEffort")
    items: list[Item] = []
    monkeypatch.setattr(receiving._group, "submit", lambda item: items.append(item) or 204)
    net.work("A")
    assert len(items) == 8
    with net["B"] as b:
        with CaptureQueriesContext(connection) as one:
            accepting.accept(items[:1])
        with CaptureQueriesContext(connection) as seven:
            accepting.accept(items[1:])
        assert len(seven) <= len(one)
        assert len(b.sent()) == 8


def test_a_skipped_message_was_acknowledged_long_ago(net: Network) -> None:
    net.down = {"C"}
    with net["A"]:
        submit()
    net.work()
    assert states(net["A"]) == ["delivered"]
    with net["B"] as b:
        operating.pair_skip_head(pair_id=b.outbound("tpa:B-C").pk, actor=WHO, reason=WHY)
        assert Signal.objects.filter(direction="out", kind="error").count() == 0
