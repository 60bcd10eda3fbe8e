"""A document keeps its id from hub to hub: when it is sent anew (W45), and on its way through routers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from messaging import applications
from messaging.applications import Document
from messaging.choices import MessageState
from messaging.deliveries.services import settling
from messaging.engine import subscriptions
from messaging.messages.services import resubmitting
from messaging.messages.services.submitting import NewPayload, message_submit
from messaging.models import Delivery, Message, Trigger
from messaging.pairs.services import operating
from messaging.protocol.codecs import ebxml, stream
from rmhub.clock import FrozenClock
from tests.messaging.deliveries import stage
from tests.messaging.profiles.repeatable.callers import T, remembering_since
from tests.messaging.routing.hubs import SERVICE, WHO, Network, join, network, uri
from tests.messaging.routing.test_bridging import chain  # noqa: F401  (a fixture)
from tests.messaging.routing.test_store_and_forward import submit

TPA = "tpa:A-B"
WHY = "the answer was lost, and nobody at B can be asked"
# profile -> where B takes messages, and the terms under which A gives up soon
ROADS = {
    "ebxml": ("msh", {"timeout": 30, "retries": 1, "retry_interval": 30, "transport_retries": 0}),
    "repeatable": (f"exchange/{TPA}/", {"timeout": 30, "partner_window": 600, "repeat_interval": 60}),
    "ebms2": ("msh", {"retries": 1, "retry_interval": 60, "partner_window": 600}),
    "stream": ("streams", {"time_to_live": 600, "resend_schedule": "60"}),
}


@pytest.fixture
def two(time: FrozenClock, settings: object, request: pytest.FixtureRequest) -> Iterator[Network]:
    """A and B, by the profile that is the indirect parameter; B's application writes down what it is run with."""
    profile = request.param
    settings.RMHUB_STREAM_HOLD_MS = 0  # type: ignore[attr-defined]
    at, terms = ROADS[profile]
    ours, theirs = uri("A", "streams" if profile == "stream" else "msh"), uri("B", at)
    with network("AB") as made:
        with made["A"] as a:
            a.agrees("B", TPA, profile=profile, ours=ours, theirs=theirs, **terms)
            remembering_since(T.replace(month=1))
        with made["B"] as b:
            b.agrees("A", TPA, profile=profile, ours=theirs, theirs=ours)
            remembering_since(T.replace(month=1))
            Trigger.objects.create(name="orders", kind="callable", callable_name="w45")
            subscriptions.current.forget()
        join(made["A"], made["B"])
        yield made


@pytest.fixture
def executed() -> Iterator[list[Document]]:
    found: list[Document] = []
    applications.service("w45")(lambda document: found.append(document))
    yield found
    applications.SERVICES.pop("w45")


def run_at_b(net: Network) -> None:
    with net["B"]:
        stage.work()


def give_up(net: Network, time: FrozenClock, wanted: set[str]) -> Message:
    """B gets everything, and A hears nothing of it until it gives up."""
    net.faults = lambda sender, receiver, parcel: (False,) if sender == "A" else ()
    for _ in range(60):
        net.work()
        with net["A"]:
            found = Message.objects.get(direction="out")
        if found.state in wanted:
            net.faults = lambda sender, receiver, parcel: (True,)
            return found
        time.move(60)
    raise AssertionError(f"it is {found.state}")


@pytest.mark.parametrize(
    "two",
    [
        pytest.param("ebxml", id="W45-ebxml"),
        pytest.param("repeatable", id="W45-repeatable"),
        pytest.param("stream", id="W45-stream"),
    ],
    indirect=True,
)
def test_what_was_in_doubt_and_is_sent_anew_is_not_executed_twice(
    two: Network, time: FrozenClock, executed: list[Document], request: pytest.FixtureRequest
) -> None:
    profile = request.node.callspec.params["two"]
    with two["A"]:
        first = submit(tpa_id=TPA)
    message = give_up(two, time, {MessageState.FAILED.value, MessageState.IN_DOUBT.value})
    run_at_b(two)
    assert [document.document_id for document in executed] == [first.message_id]
    with two["A"]:
        if profile == "ebxml":
            pair = two["A"].outbound(TPA)
            operating.pair_skip_head(pair_id=pair.pk, actor=WHO, reason=WHY, expected_version=pair.version)
            resubmitting.message_resubmit(message_id=message.pk, actor=WHO, reason=WHY)
        else:
            assert message.state == MessageState.IN_DOUBT
            settling.message_settle(
                message_id=message.pk, decision=settling.MessageDecision.RESUBMIT, actor=WHO, reason=WHY
            )
        anew = Message.objects.exclude(pk=message.pk).get(direction="out")
        assert anew.message_id != first.message_id
        assert (anew.document_id, anew.resubmitted_from_id) == (first.message_id, message.pk)
    for _ in range(10):
        two.work()
        time.move(60)
    run_at_b(two)
    with two["A"]:
        assert Message.objects.get(pk=anew.pk).state == MessageState.DELIVERED
    with two["B"]:
        assert [message.message_id for message in two["B"].received()] == [first.message_id, anew.message_id]
        kept = Delivery.objects.get(message__message_id=anew.message_id)
        assert (kept.state, kept.document_id, kept.document_id_from) == ("duplicate", first.message_id, "sender")
    assert len(executed) == 1


@pytest.mark.parametrize("two", ["ebxml"], indirect=True)
def test_w45_under_another_id_it_is_another_document(two: Network, executed: list[Document]) -> None:
    with two["A"]:
        first = submit(tpa_id=TPA, document_id="order-1")
    two.work()
    with two["A"]:
        same = resubmitting.message_resubmit(message_id=first.pk, actor=WHO, reason=WHY).message
        assert same.document_id == "order-1"
    two.work()
    run_at_b(two)
    assert [document.document_id for document in executed] == ["order-1"]
    with two["A"]:
        other = resubmitting.message_resubmit(message_id=same.pk, actor=WHO, reason=WHY, document_id="order-1b").message
        assert other.document_id == "order-1b"
    two.work()
    run_at_b(two)
    assert [document.document_id for document in executed] == ["order-1", "order-1b"]


def test_w44_a_router_passes_it_on(net: Network) -> None:
    with net["A"]:
        message_submit(
            agreement="tpa:A-C",
            service=SERVICE,
            action="NewOrder",
            payloads=[NewPayload(b"<Order/>", "application/xml")],
            document_id="100% order 1",
        )
        submit()
    net.work()
    with net["C"]:
        assert [message.document_id for message in net["C"].received()] == ["100% order 1", ""]
    first, second = (ebxml.decode(parcel.content_type, parcel.body) for parcel in net.between("B", "C")[:2])
    assert (first.document_id, second.document_id) == ("100% order 1", "")
    assert b"RM-Document-ID: 100%25 order 1\r\n" in net.between("B", "C")[0].body
    assert b"RM-Document-ID" not in net.between("B", "C")[1].body


def test_w44_it_crosses_bridges_from_profile_to_profile(chain: Network, time: FrozenClock) -> None:  # noqa: F811
    with chain["A"]:
        submit(tpa_id="tpa:A-D", document_id="order-1")
    for _ in range(10):
        chain.work()
        time.move(61)
    [streamed] = [stream.decode(one.content_type, one.body) for one in chain.between("B", "C")[:1]]
    assert streamed.document_id == "order-1"
    assert ("RM-Document-ID", "order-1") in chain.between("C", "D")[0].headers
    with chain["D"]:
        assert Message.objects.get(direction="in").document_id == "order-1"
        assert Delivery.objects.get().document_id == "order-1"
