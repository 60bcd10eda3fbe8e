"""X01: one MessageId by ebXML and as a repeatable request is one delivery, and each road gets its own answer.

Our own sender against our own entrance: two agreements of one hub, and a wire between that loses answers.
"""

from __future__ import annotations

import base64
import itertools
import threading
import uuid
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from django.db import connections
from django.test import Client

from messaging.applications import Document, Reply, Transient
from messaging.choices import DeliveryState, Direction, SignalKind
from messaging.deliveries.services import attended
from messaging.engine import subscriptions
from messaging.engine.claiming import claim_due
from messaging.models import (
    Delivery,
    Incident,
    Message,
    MessageIdentity,
    Payload,
    RememberedRequest,
    Signal,
    Transmission,
    Trigger,
)
from messaging.profiles.repeatable import admitting, remembering, replies
from messaging.transports import Parcel, Receipt
from messaging.transports.http import status_cause
from partners import registry
from partners.choices import ExchangeMode, Profile
from partners.models import AgreementVersion
from rmhub.clock import FrozenClock, frozen
from tests.messaging.factories import LOST, ORDER, PartnerSide, link, partner_side, submit, work
from tests.messaging.profiles.repeatable.callers import (
    BODY,
    NEW_ORDER,
    ORDERS,
    Caller,
    T,
    application,
    brief,
    caller,
    remembering_since,
)
from tests.partners.factories import make_agreement, make_endpoint, make_outbound_credential

pytestmark = pytest.mark.django_db

ACCEPTED = (202, "accepted", "")
assert BODY == ORDER


class Both(NamedTuple):
    """One partner, by both roads."""

    ebxml: PartnerSide
    http: Caller


def both(**terms: object) -> Both:
    side = partner_side()
    first = AgreementVersion.objects.get(pk=side.terms.version_id).agreement
    second = make_agreement(
        own_endpoint=make_endpoint(first.own_party, "https://us.example/exchange/second/"),
        partner_endpoint=make_endpoint(first.partner, "https://them.example/exchange/second/"),
        profile=Profile.REPEATABLE,
        allowed=((ORDERS, NEW_ORDER, "both"),),
        **terms,
    )
    return Both(side, Caller(caller(second).terms, side.presented.authorization))


@pytest.fixture
def partner(db, now) -> Both:
    remembering_since(T.replace(month=1))
    Trigger.objects.create(name="orders", kind="pull")
    subscriptions.current.forget()
    return both()


def acknowledgements() -> list[str]:
    ours = Signal.objects.filter(direction=Direction.OUT, kind=SignalKind.ACKNOWLEDGEMENT).order_by("pk")
    return [message_id for signal in ours for message_id in [signal.ref_to_message_id] * signal.owed]


def test_x01_by_http_first(partner: Both) -> None:
    assert brief(partner.http.post("order-1")) == ACCEPTED
    assert partner.ebxml.send(partner.ebxml.message(1, "order-1")) == 204
    assert acknowledgements() == ["order-1"]
    assert (Message.objects.count(), Delivery.objects.count()) == (1, 1)
    assert not Incident.objects.exists()
    assert partner.ebxml.send(partner.ebxml.message(2, "order-2")) == 204, "its number counts: the next one is the next"
    assert acknowledgements() == ["order-1", "order-2"]
    assert partner.ebxml.send(partner.ebxml.message(1, "order-1")) == 204, "a late copy is a copy"
    assert partner.ebxml.send(partner.ebxml.message(3, "order-3")) == 204
    assert partner.ebxml.inbound.last_sequence == 3
    assert Message.objects.count() == Delivery.objects.count() == 3


def test_x01_by_ebxml_first(partner: Both) -> None:
    assert partner.ebxml.send(partner.ebxml.message(1, "order-1")) == 204
    first = partner.http.post("order-1")
    assert brief(first) == ACCEPTED
    assert partner.http.post("order-1").content == first.content
    assert acknowledgements() == ["order-1"]
    assert (Message.objects.count(), Delivery.objects.count()) == (1, 1)
    assert Message.objects.get().copies == 2
    assert RememberedRequest.objects.get().message_id == Message.objects.get().pk


def test_x01_other_content_under_the_same_id_is_no_repeat(partner: Both) -> None:
    partner.ebxml.send(partner.ebxml.message(1, "order-1"))
    assert brief(partner.http.post("order-1", body=b"<Other/>")) == (400, "rejected", "content-differs")
    assert not RememberedRequest.objects.exists()
    assert brief(partner.http.post("order-2")) == ACCEPTED
    partner.ebxml.send(partner.ebxml.message(2, "order-2", content=b"<Other/>"))
    assert Incident.objects.get().cause == "same_id_other_content"
    assert Message.objects.count() == Delivery.objects.count() == 2


def test_x01_a_request_from_before_the_ebxml_agreement_is_known_to_it(db, now) -> None:
    remembering_since(T.replace(month=1))
    http = caller()
    assert brief(http.post("order-1")) == ACCEPTED
    assert not MessageIdentity.objects.exists(), "nobody but requests looks there yet"
    first = AgreementVersion.objects.get(pk=http.terms.version_id).agreement
    second = make_agreement(own_endpoint=make_endpoint(first.own_party), partner_endpoint=make_endpoint(first.partner))
    ebxml = partner_side(second)
    assert ebxml.send(ebxml.message(1, "order-1")) == 204
    assert ebxml.send(ebxml.message(2, "order-2")) == 204
    assert ebxml.send(ebxml.message(1, "order-1")) == 204
    assert ebxml.send(ebxml.message(3, "order-3")) == 204
    assert sorted(Message.objects.values_list("message_id", flat=True)) == ["order-1", "order-2", "order-3"]


@pytest.mark.django_db(transaction=True)
def test_x01_of_two_at_once_the_second_finds_the_first(now, monkeypatch) -> None:
    """Both have looked before either has stored: the identity's uniqueness makes the second look again."""
    remembering_since(T.replace(month=1))
    partner = both()
    looked, stored = threading.Event(), threading.Event()
    write = admitting._write

    def late(batch: object) -> None:
        looked.set()
        assert stored.wait(120)
        write(batch)

    monkeypatch.setattr(admitting, "_write", late)
    answers = []

    def request() -> None:
        try:
            answers.append(partner.http.post("order-1"))
        finally:
            connections.close_all()

    thread = threading.Thread(target=request)
    thread.start()
    assert looked.wait(120)
    assert partner.ebxml.send(partner.ebxml.message(1, "order-1")) == 204
    stored.set()
    thread.join(120)
    assert brief(answers[0]) == ACCEPTED
    assert (Message.objects.count(), Message.objects.get().copies) == (1, 1)
    assert MessageIdentity.objects.get().digest, "the one that ebXML wrote"


def test_a_request_whose_message_is_acknowledged_by_ebxml_is_not_taken_back(db, now, monkeypatch) -> None:
    remembering_since(T.replace(month=1))
    partner = both(exchange_mode=ExchangeMode.SYNCHRONOUS)
    released = []
    run = attended.run

    def behave(document: Document) -> Reply:
        raise Transient

    def acknowledged_meanwhile(delivery_id: uuid.UUID) -> attended.Finished:
        assert partner.ebxml.send(partner.ebxml.message(1, "order-1")) == 204
        released.append(remembering.released(Delivery.objects.get(pk=delivery_id)))
        return run(delivery_id)

    monkeypatch.setattr(attended, "run", acknowledged_meanwhile)
    with application(behave):
        answer = partner.http.post("order-1")
    assert released == [False]
    assert brief(answer) == (409, "accepted", "in-work")
    assert Message.objects.filter(message_id="order-1").exists(), "an acknowledgement says: stored"
    assert Delivery.objects.get().state == DeliveryState.WAITING, "and the workers go on with it"


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Iterator[FrozenClock]:
    monkeypatch.setattr(replies, "jitter", lambda: 1.0)
    with frozen(T) as clock:
        remembering_since(T.replace(month=1))
        yield clock


def entrance(parcel: Parcel) -> Receipt:
    """The other hub's view, asked like by HTTP."""
    headers = {**dict(parcel.headers), "Authorization": parcel.authorization}
    path = parcel.address.removeprefix("https://receiver.example")
    answer = Client().generic("POST", path, parcel.body, parcel.content_type, headers=headers)
    ok = 200 <= answer.status_code < 300
    return Receipt(
        ok=ok,
        status=answer.status_code,
        cause="" if ok else status_cause(answer.status_code),
        response=b"HTTP\r\n\r\n" + answer.content,
        retry_after=int(answer["Retry-After"]) if answer.has_header("Retry-After") else None,
        headers=tuple(answer.items()),
    )


def two_hubs(**terms: object) -> tuple[PartnerSide, Caller]:
    """We as the sender, and the other hub with the agreement under which it receives from us."""
    receiving = caller(tpa_id="tpa:receiving", **terms)
    scheme, _, secret = receiving.authorization.partition(" ")
    assert scheme == "Basic"
    sending = partner_side(
        profile="repeatable", partner_uri=f"https://receiver.example{receiving.path}", partner_window=7200, **terms
    )
    username, _, password = base64.b64decode(secret).decode().partition(":")
    party = AgreementVersion.objects.get(pk=sending.terms.version_id).agreement.partner
    make_outbound_credential(party, username=username, secret=password)
    registry.reset()
    return sending, receiving


def received() -> list[Message]:
    return list(Message.objects.filter(direction=Direction.IN).order_by("position"))


def test_one_way_messages_arrive_once_whatever_becomes_of_the_answers(time: FrozenClock) -> None:
    sending, _ = two_hubs()
    turns = itertools.count()

    def flaky(parcel: Parcel) -> Receipt:
        answer = entrance(parcel)
        return LOST if next(turns) % 3 else answer

    messages = [submit(sending, b"<Order n='%d'/>" % number, conversation_id="c-ü%20") for number in range(6)]
    with link(flaky):
        for _ in range(12):
            work()
            time.move(160)
    assert {message.state for message in Message.objects.filter(direction=Direction.OUT)} == {"delivered"}
    got = received()
    assert sorted(message.message_id for message in got) == sorted(message.message_id for message in messages)
    assert {message.conversation_id for message in got} == {"c-ü%20"}
    assert {(message.service, message.action) for message in got} == {(ORDERS, "NewOrder")}
    contents = sorted(bytes(payload.content) for payload in Payload.objects.filter(message__in=got))
    assert contents == [b"<Order n='%d'/>" % number for number in range(6)]
    assert {message.first_sent_at for message in got} == {T}
    assert sum(message.copies for message in got) == Transmission.objects.count() - 6 > 0


def test_the_answer_of_a_synchronous_application_is_kept_with_the_attempt_that_brought_it(time: FrozenClock) -> None:
    sending, _ = two_hubs(exchange_mode="synchronous")
    with application() as app, link(lambda parcel: (entrance(parcel), LOST)[1]) as wire:
        message = submit(sending)
        work()
        wire.answer = entrance
        time.move(20)
        work()
        assert app.executions == 1
    message.refresh_from_db()
    assert message.state == "delivered"
    last = Transmission.objects.filter(message=message).latest("number")
    assert bytes(last.response).endswith(b'{"executions": 1}')


def test_g31_a_copy_that_comes_after_the_window_is_refused_and_never_executed_twice(time: FrozenClock) -> None:
    """The sender stops before; a copy that a network held back is turned away by the receiver."""
    sending, _ = two_hubs()
    submit(sending)
    [job] = claim_due(limit=10)
    assert entrance(job.parcel).status == 202
    time.move(7201)
    late = entrance(job.parcel)
    assert (late.status, dict(late.headers)["Repeatability-Result"]) == (412, "rejected")
    assert len(received()) == 1
