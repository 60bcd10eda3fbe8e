"""Documents that came by mail: nobody counts how often they were handed over, so the count is unknown (spec 4, -1).

Those that came by files are in `files/test_collecting.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from messaging.deliveries.services import pulling
from messaging.entrance import authentication, mail
from messaging.messages.services import resubmitting
from messaging.models import Delivery
from messaging.protocol.codecs.mail import read_mail
from messaging.protocol.envelope import DEFAULT_LIMITS
from tests.messaging.deliveries import stage
from tests.messaging.deliveries.stage import Application, arrive, make_trigger, now_of, verdict, work
from tests.messaging.entrance.mail.partners import mail_of, mail_partner
from tests.messaging.factories import PartnerSide, partner_side

pytestmark = pytest.mark.django_db


@pytest.fixture
def app() -> Iterator[Application]:
    with stage.application() as made:
        yield made


@pytest.fixture
def partner() -> PartnerSide:
    return mail_partner()


def mailed(partner: PartnerSide, message_id: str = "d1@x") -> Delivery:
    """A document that comes in by mail, from a partner who has logged in."""
    principal = authentication.enter(partner.presented, "").principal
    octets = read_mail(mail_of(partner.message(1, message_id)))
    assert mail.take(octets, principal=principal, remote_address="192.0.2.7", limits=DEFAULT_LIMITS).status == 204
    return Delivery.objects.get(message__message_id=message_id)


def test_w47_without_history_and_resolver_it_is_new(partner: PartnerSide, app: Application) -> None:
    make_trigger(app, use_history=False)
    delivery = mailed(partner)
    assert delivery.redelivery_count == -1
    work()
    found = now_of(delivery)
    assert (found.state, found.verdict, app.documents) == ("completed", "new", ["d1@x"])
    assert found.evidence[0]["finding"] == "undefined"


@pytest.mark.parametrize(
    ("says", "state", "runs"), [("NEW", "completed", 1), ("DUPLICATE", "duplicate", 0), ("IN_DOUBT", "in_doubt", 0)]
)
def test_w47_the_resolver_is_asked_before_the_first_run(
    partner: PartnerSide, app: Application, says: str, state: str, runs: int
) -> None:
    make_trigger(app, use_history=False, resolver="http")
    app.plan("/resolver", verdict(says))
    delivery = mailed(partner)
    work()
    assert (now_of(delivery).state, len(app.documents), len(app.at("/resolver"))) == (state, runs, 1)


def test_w47_with_a_history_what_it_says_counts(partner: PartnerSide, app: Application) -> None:
    make_trigger(app, resolver="http")
    delivery = mailed(partner)
    work()
    assert (now_of(delivery).state, app.at("/resolver")) == ("completed", [])


def test_w47_a_second_hand_over_is_counted(partner: PartnerSide, app: Application) -> None:
    make_trigger(app, use_history=False)
    app.plan("/documents", stage.BROKEN)
    delivery = mailed(partner)
    for _ in range(3):
        work()
    found = now_of(delivery)
    assert (found.redelivery_count, found.state, found.executions) == (1, "in_doubt", 1)


def test_w47_by_http_and_in_a_pull_queue_the_hub_counts(app: Application) -> None:
    trigger = make_trigger(kind="pull", use_history=False)
    (delivery,) = arrive(partner_side(), "d1@x")
    assert delivery.redelivery_count == 0
    (leased,) = pulling.lease(trigger.pk, limit=1, consumer="erp")
    assert leased.delivery.evidence[0]["finding"] == "first"


def test_w47_by_http_under_an_agreement_by_mail_the_hub_counts(partner: PartnerSide, app: Application) -> None:
    make_trigger(app, use_history=False, resolver="http")
    (delivery,) = arrive(partner, "d1@x")
    assert delivery.redelivery_count == 0
    work()
    assert (now_of(delivery).state, app.documents, app.at("/resolver")) == ("completed", ["d1@x"], [])


def test_w47_by_mail_under_an_agreement_by_http_nobody_counts(app: Application) -> None:
    make_trigger(app, use_history=False, resolver="http")
    app.plan("/resolver", verdict("DUPLICATE"))
    delivery = mailed(partner_side())
    assert delivery.redelivery_count == -1
    work()
    assert (now_of(delivery).state, app.documents) == ("duplicate", [])


def test_w47_for_a_trigger_that_is_made_later_nobody_knows_the_count(app: Application) -> None:
    """How a stored document came is not kept."""
    make_trigger(app, name="first", use_history=False)
    message = mailed(partner_side()).message
    later = make_trigger(app, name="later", use_history=False)
    again = resubmitting.message_redeliver(message_id=message.pk, actor=stage.PERSON, reason="It was made later.")
    assert [(made.trigger, made.redelivery_count) for made in again.made] == [(later, -1)]
    work()
    assert (now_of(again.made[0]).state, app.documents) == ("completed", ["d1@x", "d1@x"])
