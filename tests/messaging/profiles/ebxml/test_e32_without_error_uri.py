"""A RoutingHeader without ErrorURI (spec 1, 2.2.2): never written, and taken from others at both ends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from messaging.entrance.refusals import Arrival
from messaging.models import Message, Rejection, Signal
from messaging.protocol.codecs import ebxml
from messaging.protocol.errors import EncodeError
from tests.messaging.factories import PartnerSide, decoded, link, partner_side, submit, work
from tests.messaging.wire import edited

pytestmark = pytest.mark.django_db


@pytest.fixture
def partner() -> PartnerSide:
    return partner_side()


def _without(partner: PartnerSide, arrival: Arrival) -> Arrival:
    uri = partner.terms.partner_error_uri
    assert uri
    return edited(arrival, (f"    <ErrorURI>{uri}</ErrorURI>\r\n", ""))


def test_e32_a_message_is_taken_and_acknowledged_and_errors_go_to_the_agreements_address(partner: PartnerSide) -> None:
    assert partner.send(_without(partner, partner.message(1, "a@p"))) == 204
    assert partner.send(_without(partner, partner.message(7, "b@p"))) == 204
    assert [message.message_id for message in Message.objects.all()] == ["a@p"]
    assert Rejection.objects.get().reason == "InvalidSequenceNumber"
    with link() as wire:
        work()
    answers = {decoded(parcel).ref_to_message_id: parcel for parcel in wire.parcels}
    assert answers["a@p"].address == partner.terms.partner_address
    assert answers["b@p"].address == partner.terms.partner_error_address


def test_e32_an_answer_without_one_counts_too(partner: PartnerSide) -> None:
    message = submit(partner)
    with link() as wire:
        work()
    assert partner.send(_without(partner, partner.acknowledgement(wire.last))) == 204
    assert Signal.objects.get(direction="in").state == "matched"
    assert Message.objects.get(pk=message.pk).state == "delivered"


def test_e32_whatever_we_send_has_one(partner: PartnerSide) -> None:
    submit(partner)
    partner.send(_without(partner, partner.message(1)))
    partner.send(_without(partner, partner.message(7)))
    with link() as wire:
        work()
    sent = [decoded(parcel) for parcel in wire.parcels]
    assert {str(envelope.message_type) for envelope in sent} == {"Normal", "Acknowledgement", "Error"}
    assert {envelope.hop.error_uri for envelope in sent} == {partner.terms.own_error_uri}
    bare = replace(sent[0], routing=(replace(sent[0].hop, error_uri=""),))
    with pytest.raises(EncodeError, match="ErrorURI"):
        ebxml.encode(bare)
