"""The application's response in the HTTP response (signalsAndResponse, responseOnly)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any
from unittest import mock

import pytest

from messaging.choices import CircuitState, Direction, MessageState, SignalState
from messaging.engine import circuits
from messaging.entrance.refusals import Answer
from messaging.models import Circuit, Message, Signal, Transmission
from messaging.profiles.ebms2 import awaited, receiving
from messaging.protocol.codecs import ebms2
from messaging.protocol.envelope import Acknowledgment
from messaging.transports import Parcel, Receipt
from messaging.transports.base import server_of
from rmhub import clock
from rmhub.clock import FrozenClock
from tests.messaging.factories import link, submit, work
from tests.messaging.profiles.ebms2.partner import RELIABLE, Ebms2Side, decoded, ebms2_side

pytestmark = pytest.mark.django_db(transaction=True)
ASKS = replace(RELIABLE, sync_reply=True)
BOTH, ALONE = "signalsAndResponse", "responseOnly"


@contextmanager
def application(does: Callable[[], Any]) -> Iterator[list[float]]:
    """What an application does while somebody waits for it: gives the pauses of who waits."""
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 1:
            does()

    with mock.patch.object(awaited, "response_to", partial(awaited.response_to, pause=pause)):
        yield pauses


def responds(side: Ebms2Side, to: str, content: bytes = b"<Response/>") -> Callable[[], Any]:
    return lambda: submit(side, content, ref_to_message_id=to)


def asked(side: Ebms2Side, message_id: str) -> Answer:
    return side.bring(side.business(message_id, ebms=ASKS))


@pytest.mark.parametrize("mode", [BOTH, ALONE])
def test_the_response_comes_in_the_response_and_is_acknowledged_like_any_message(mode: str, clock: FrozenClock) -> None:
    side = ebms2_side(sync_reply=mode)
    with application(responds(side, "m1@partner.example")), link() as wire:
        answer = asked(side, "m1@partner.example")
        work()
    said = decoded(answer)
    assert (answer.status, said.ref_to_message_id) == (200, "m1@partner.example")
    assert said.ebms is not None and not said.ebms.sync_reply
    assert [payload.content[:] for payload in said.payloads] == [b"<Response/>"]
    told = [one.ref_to_message_id for one in said.ebms.acknowledgments]
    by_itself = [one for parcel in wire.parcels for one in acknowledgments(parcel)]
    if mode == BOTH:
        assert (told, by_itself) == (["m1@partner.example"], [])
    else:
        assert (told, [one.ref_to_message_id for one in by_itself]) == ([], ["m1@partner.example"])
    response = Message.objects.get(direction=Direction.OUT)
    assert response.state == MessageState.AWAITING_ACK
    assert Transmission.objects.get(message=response).detail == "In the response to the message that it answers."
    side.bring(side.acknowledging(answer_as_arrival(side, answer)))
    response.refresh_from_db()
    assert response.state == MessageState.DELIVERED
    assert (side.outbound.queued, side.outbound.out_now) == (0, 0)


def test_a_response_that_got_lost_goes_out_by_itself_and_with_a_copy_of_the_request(clock: FrozenClock) -> None:
    side = ebms2_side(sync_reply=BOTH, retry_interval=60)
    with application(responds(side, "m1@partner.example")):
        first = asked(side, "m1@partner.example")
    with application(lambda: pytest.fail("it is there already")):
        again = asked(side, "m1@partner.example")
    assert again.body == first.body
    clock.move(61)
    with link() as wire:
        work()
    assert [parcel.octets for parcel in wire.parcels] == [first.body]


def test_who_waits_in_vain_gets_the_acknowledgement_and_the_response_later(clock: FrozenClock) -> None:
    side = ebms2_side(sync_reply=BOTH)
    with application(lambda: None) as pauses:
        answer = asked(side, "m1@partner.example")
    assert sum(pauses) == pytest.approx(awaited.PATIENCE, abs=0.2)
    assert acknowledgments(answer)[0].ref_to_message_id == "m1@partner.example"
    submit(side, b"<Late/>", ref_to_message_id="m1@partner.example")
    with link() as wire:
        work()
        assert wire.parcels == [], "left to whoever waits"
        clock.move(3)
        work()
    assert decoded(wire.last).ref_to_message_id == "m1@partner.example"


def test_a_response_that_need_not_be_acknowledged_is_sent(clock: FrozenClock) -> None:
    side = ebms2_side(sync_reply=ALONE, semantics="BestEffort", retries=0)
    with application(responds(side, "m1@partner.example")):
        answer = asked(side, "m1@partner.example")
    assert decoded(answer).ref_to_message_id == "m1@partner.example"
    assert Message.objects.get(direction=Direction.OUT).state == MessageState.SENT


def test_nobody_waits_for_what_was_refused_or_without_a_seat(clock: FrozenClock) -> None:
    side = ebms2_side(sync_reply=BOTH)
    with application(lambda: pytest.fail("nobody should wait")):
        refused = side.bring(side.business(ebms=ASKS, action="NotAgreed", service="urn:other"))
        assert decoded(refused).ebms.errors  # type: ignore[union-attr]
        with mock.patch.object(awaited, "_seats") as seats:
            seats.acquire.return_value = False
            assert acknowledgments(asked(side, "m1@partner.example"))
        side.bring(side.business(ebms=RELIABLE))  # it does not ask


# ---- when we ask


@pytest.mark.parametrize("asks", [False, True], ids=["plain", "SyncReply"])
def test_the_response_to_ours_is_taken_like_any_message_with_what_it_acknowledges(
    asks: bool, clock: FrozenClock
) -> None:
    """Its SyncReply, which many write into all messages of an agreement, asks for what no response can have."""
    side = ebms2_side(sync_reply=BOTH)
    message = submit(side)
    with (
        application(lambda: pytest.fail("nobody waits for it")),
        link(lambda parcel: response_to(side, parcel, sync_reply=asks)) as wire,
    ):
        work()
    asked = decoded(wire.parcels[0]).ebms
    assert asked is not None and asked.sync_reply
    came = Message.objects.get(direction=Direction.IN)
    assert (came.ref_to_message_id, came.state) == (message.message_id, MessageState.RECEIVED)
    message.refresh_from_db()
    assert message.state == MessageState.DELIVERED
    with link() as later:
        work()
    assert [one.ref_to_message_id for one in acknowledgments(later.last)] == [came.message_id]


def test_the_response_to_one_that_is_sent_once_is_taken_too(clock: FrozenClock) -> None:
    side = ebms2_side(sync_reply=ALONE, semantics="BestEffort", retries=0)
    message = submit(side)
    with link(lambda parcel: response_to(side, parcel)):
        work()
    assert Message.objects.get(direction=Direction.IN).ref_to_message_id == message.message_id
    message.refresh_from_db()
    assert message.state == MessageState.SENT


@pytest.mark.parametrize(
    ("mode", "changes"),
    [("mshSignalsOnly", {}), ("none", {}), (BOTH, {"ref_to_message_id": "another@partner.example"})],
    ids=["signals", "none", "another"],
)
def test_a_document_in_a_response_is_taken_only_where_it_is_agreed_and_as_the_answer(
    mode: str, changes: dict[str, str], clock: FrozenClock
) -> None:
    """A response shows no credential: whoever is in the middle of plain HTTP could bring anything."""
    side = ebms2_side(sync_reply=mode)
    message = submit(side)
    with link(lambda parcel: response_to(side, parcel, **changes)):
        work()
    message.refresh_from_db()
    assert message.state == MessageState.AWAITING_ACK
    assert not Message.objects.filter(direction=Direction.IN).exists()


def test_a_response_that_cannot_be_taken_loses_nothing(clock: FrozenClock) -> None:
    side = ebms2_side(sync_reply=BOTH, retry_interval=60)
    message = submit(side)
    with link(lambda parcel: response_to(side, parcel)) as wire:
        with mock.patch.object(receiving, "receive", side_effect=RuntimeError("the disk is full")):
            work()
        message.refresh_from_db()
        assert message.state == MessageState.AWAITING_ACK
        clock.move(61)
        work()
    assert len([one for one in wire.parcels if decoded(one).message_id == message.message_id]) == 2
    message.refresh_from_db()
    assert message.state == MessageState.DELIVERED
    assert Message.objects.filter(direction=Direction.IN).count() == 1


def test_both_hubs_understand_each_other() -> None:
    """What we say in a response is what we take."""
    side = ebms2_side(sync_reply=BOTH)
    with application(responds(side, "m1@partner.example")):
        answer = asked(side, "m1@partner.example")
    assert isinstance(acknowledgments(answer)[0], Acknowledgment)
    assert Signal.objects.get(direction=Direction.OUT).state == SignalState.SENT


def response_to(side: Ebms2Side, parcel: Parcel, sync_reply: bool = False, **changes: Any) -> Receipt:
    """The partner's application answers at once."""
    asked = decoded(parcel)
    if asked.ebms is None or asked.ebms.kind.value != "Business":
        return Receipt(ok=True, status=204)
    said = Acknowledgment(asked.message_id, clock.now())
    envelope = side.envelope(
        "r1@partner.example",
        ebms=replace(RELIABLE, acknowledgments=(said,), sync_reply=sync_reply),
        **{"ref_to_message_id": asked.message_id, "conversation_id": asked.conversation_id, **changes},
    )
    wire = ebms2.encode(envelope)
    body = wire.join([payload.content[:] for payload in envelope.payloads])
    head = (("Content-Type", wire.content_type),)
    return Receipt(ok=True, status=200, response=b"HTTP 200\r\n\r\n" + body, headers=head)


def acknowledgments(octets: Any) -> tuple[Acknowledgment, ...]:
    ebms = decoded(octets).ebms
    assert ebms is not None
    return ebms.acknowledgments


def answer_as_arrival(side: Ebms2Side, answer: Answer) -> Any:
    return replace(side.business(), content_type=answer.content_type, body=answer.body)


# ---- what goes out by itself meanwhile


def test_responses_hold_up_nothing_that_waited_before_them(clock: FrozenClock) -> None:
    """However short the time between two of them."""
    side = ebms2_side(sync_reply=BOTH, max_in_flight=16)
    with link() as wire:
        for number in range(4):
            submit(side, ref_to_message_id=f"m{number}@partner.example")
            clock.move(1.5)
            work()
    assert len(wire.parcels) >= 3


@pytest.mark.parametrize("ended", ["skipped", "cancelled", "failed", "in_doubt"])
@pytest.mark.usefixtures("clock")
def test_a_copy_of_a_request_gets_no_response_that_has_ended_but_its_successor(ended: str) -> None:
    side = ebms2_side(sync_reply=BOTH)
    with application(responds(side, "m1@partner.example")):
        first = asked(side, "m1@partner.example")
    Message.objects.filter(direction=Direction.OUT).update(state=ended, completed_at=clock.now())
    with application(responds(side, "m1@partner.example", b"<Again/>")):
        again = asked(side, "m1@partner.example")
    assert decoded(first).message_id != decoded(again).message_id
    assert [payload.content[:] for payload in decoded(again).payloads] == [b"<Again/>"]


@pytest.mark.usefixtures("clock")
def test_a_response_in_a_response_says_nothing_of_the_partners_server() -> None:
    side = ebms2_side(sync_reply=BOTH)
    address = server_of(side.terms.partner_address)
    now = clock.now()
    later = now + timedelta(hours=1)
    Circuit.objects.create(
        address=address, state=CircuitState.OPEN, failures=9, opened_at=now, retry_at=later, updated_at=now
    )
    circuits.refresh(at_once=True)
    with application(responds(side, "m1@partner.example")):
        assert decoded(asked(side, "m1@partner.example")).ref_to_message_id
    assert Circuit.objects.get(pk=address).state == CircuitState.OPEN
