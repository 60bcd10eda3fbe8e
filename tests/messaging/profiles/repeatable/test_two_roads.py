"""X01: one MessageId by ebXML and as a repeatable request is one delivery, and each road gets its own answer."""

from __future__ import annotations

import threading
import uuid
from typing import NamedTuple

import pytest
from django.db import connections

from messaging.applications import Document, Reply, Transient
from messaging.choices import DeliveryState, Direction, SignalKind
from messaging.deliveries.services import attended
from messaging.engine import subscriptions
from messaging.models import Delivery, Incident, Message, MessageIdentity, RememberedRequest, Signal, Trigger
from messaging.profiles.repeatable import admitting, remembering
from partners.choices import ExchangeMode, Profile
from partners.models import AgreementVersion
from tests.messaging.factories import ORDER, PartnerSide, partner_side
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
from tests.partners.factories import make_agreement, make_endpoint

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
    subscriptions.reset()
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
