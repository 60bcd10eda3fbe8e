"""An agreement of somebody else is answered like one that does not exist: nobody learns who has which."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.http import HttpResponse

from messaging.choices import Direction
from messaging.entrance.refusals import Arrival
from messaging.models import Message, Rejection, Signal
from partners import registry, services
from partners.models import Agreement
from tests.messaging.factories import PartnerSide, decoded, link, partner_side, submit, work
from tests.messaging.wire import edited, post

pytestmark = pytest.mark.django_db
NOBODY = "tpa:nobody"


@pytest.fixture
def partner() -> PartnerSide:
    return partner_side()


@pytest.fixture
def stranger() -> PartnerSide:
    """Another partner, who has an agreement of its own."""
    return partner_side()


def seen(answer: HttpResponse) -> Any:
    """All of an answer that its sender sees, but what differs from answer to answer."""
    told = ("Content-Type", "Content-Length", "Retry-After", "WWW-Authenticate", "Allow")
    return answer.status_code, answer.content, sorted(answer.headers), [answer.get(name) for name in told]


def both(arrival: Arrival, partner: PartnerSide) -> list[Any]:
    """The answers to a message that names the partner's agreement, and to the same one that names none."""
    unknown = edited(arrival, (f">{partner.terms.tpa_id}<", f">{NOBODY}<"))
    return [seen(post(arrival)), seen(post(unknown))]


def test_a_message_in_the_name_of_another_partner(partner: PartnerSide, stranger: PartnerSide) -> None:
    foreign, unknown = both(replace(partner.message(1), presented=stranger.presented), partner)
    assert foreign == unknown and foreign[0] == 204
    with link() as wire:
        work()
    told = [decoded(parcel).error for parcel in wire.parcels]
    assert {parcel.address for parcel in wire.parcels} == {stranger.terms.partner_error_uri}
    texts = [error.description.replace(partner.terms.tpa_id, NOBODY) for error in told if error is not None]
    assert len(texts) == 2 and len(set(texts)) == 1
    assert len({(error.code, error.severity) for error in told if error is not None}) == 1
    assert list(Rejection.objects.order_by("id").values_list("reason", flat=True)) == [
        "wrong_partner",
        "unknown_agreement",
    ], "our own people are told which it was"
    assert not Message.objects.exists()


def test_one_who_has_no_agreement_of_its_own(partner: PartnerSide, stranger: PartnerSide) -> None:
    services.agreement_disable(agreement=Agreement.objects.get(pk=stranger.terms.agreement_id))
    registry.reset()
    foreign, unknown = both(replace(partner.message(1), presented=stranger.presented), partner)
    assert foreign == unknown and foreign[0] == 403


@pytest.mark.parametrize("kind", ["acknowledgement", "error"])
def test_an_answer_in_the_name_of_another_partner(partner: PartnerSide, stranger: PartnerSide, kind: str) -> None:
    message = submit(partner)
    with link() as wire:
        work()
    answer = getattr(partner, kind)(wire.last)
    foreign, unknown = both(replace(answer, presented=stranger.presented), partner)
    assert foreign == unknown and foreign[0] == 204
    assert Signal.objects.filter(direction=Direction.IN, state="ignored").count() == 2
    assert Message.objects.get(pk=message.pk).state == "awaiting_ack"
    assert partner.outbound.flow == "awaiting_ack" and partner.outbound.cause == ""
