"""Which agreement a message is under, when a partner has several for atomic transactions with the same own endpoint."""

from __future__ import annotations

from typing import Any

import pytest

from messaging.choices import Direction
from messaging.models import CoordinationMessage, Rejection
from messaging.profiles.wsat.opening import context_of, coordination_open
from messaging.protocol.atomic.words import FaultCode, Note, Protocol
from partners import registry
from partners.choices import VersionState
from partners.models import AgreementVersion, Endpoint
from rmhub import clock
from tests.messaging.deliveries.stage import arrive, make_trigger
from tests.messaging.factories import partner_side
from tests.messaging.profiles.wsat.kit import HUB, Peer, coordination_of, party_of, peer
from tests.partners.factories import make_agreement

pytestmark = pytest.mark.django_db


def second(first: Peer, tpa_id: str, partner_uri: str, **terms: Any) -> Peer:
    """Another agreement of the same partner, with the same services of ours and the same credential."""
    version = make_agreement(
        profile="wsat",
        own_endpoint=Endpoint.objects.get(uri=HUB),
        partner=party_of(first),
        partner_uri=partner_uri,
        tpa_id=tpa_id,
        allowed=(),
        **terms,
    )
    return Peer(registry.current().version(version.pk), first.headers)


def both(**terms: Any) -> tuple[Peer, Peer]:
    """Two agreements of one partner at two origins; the first one comes first by TPAId."""
    stock = peer(tpa_id="tx:a", partner_uri="https://stock.example/tx")
    return stock, second(stock, "tx:b", "https://freight.example/tx", **terms)


def test_a_registration_is_under_the_agreement_where_the_participant_lies() -> None:
    stock, freight = both()
    context = peer().create()
    places = [one.register(context, Protocol.DURABLE) for one in (stock, freight)]
    agreed = [place.enlistment.agreement_version_id for place in places]
    assert agreed == [stock.terms.version_id, freight.terms.version_id]
    assert not Rejection.objects.exists()


def test_a_transaction_is_begun_under_the_agreement_where_the_reply_goes() -> None:
    _, freight = both()
    assert coordination_of(freight.create()).agreement_version_id == freight.terms.version_id


def test_a_notification_is_under_the_agreement_of_its_relationship() -> None:
    """The first one is strict: it takes no Prepared that does not say where its sender is. The second one does."""
    stock = peer(tpa_id="tx:a", partner_uri="https://stock.example/tx", addressing_strict=True)
    freight = second(stock, "tx:b", "https://freight.example/tx", addressing_strict=False)
    app = peer()
    context = app.create()
    initiator = app.register(context, Protocol.COMPLETION)
    near, far = (one.register(context, Protocol.DURABLE) for one in (stock, freight))
    initiator.say(Note.COMMIT)
    assert far.say(Note.PREPARED, without=("ReplyTo", "From")) == 202
    assert (near.enlistment.vote, far.enlistment.vote) == ("", "prepared")
    came = CoordinationMessage.objects.get(enlistment=far.enlistment, message__direction=Direction.IN, kind="Prepared")
    assert came.message.agreement_version_id == freight.terms.version_id
    near.say(Note.PREPARED, without=("ReplyTo", "From"))
    assert near.enlistment.vote == ""


def test_a_relationship_outlives_its_agreement() -> None:
    stock, freight = both()
    app = peer()
    context = app.create()
    initiator, far = app.register(context, Protocol.COMPLETION), freight.register(context, Protocol.DURABLE)
    AgreementVersion.objects.filter(pk=freight.terms.version_id).update(state=VersionState.DISABLED)
    registry.reset()
    initiator.say(Note.COMMIT)
    assert far.say(Note.PREPARED) == 202
    assert far.enlistment.vote == "prepared"
    assert stock.ask_register(context, Protocol.DURABLE, own=freight.place(), reply_to=stock.place()) == 202
    assert stock.sent()[-1].fault is FaultCode.INVALID_PARAMETERS, "nothing new begins under it"


def test_of_agreements_at_one_place_the_one_that_a_member_names() -> None:
    stock = peer(tpa_id="tx:a", partner_uri="https://shop.example/tx")
    freight = second(stock, "tx:b", "https://shop.example/tx/")
    whole = make_trigger(kind="atomic")
    member = make_trigger(
        name="freight",
        kind="http",
        url="http://127.0.0.1:9/",
        member_of_id=whole.pk,
        atomic_agreement_id=freight.terms.agreement_id,
    )
    assert member.atomic_agreement_id == freight.terms.agreement_id
    (delivery,) = arrive(partner_side(), "m1@partner.example")
    opened = coordination_open(terms=None, begun_by=whole.name, now=clock.now(), delivery=delivery)

    place = freight.register(context_of(opened, freight.terms, clock.now()), Protocol.DURABLE)
    assert place.enlistment.agreement_version_id == freight.terms.version_id
