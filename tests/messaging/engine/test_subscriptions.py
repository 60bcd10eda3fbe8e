"""Which triggers a document goes to, and that its deliveries are stored with it or not at all."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from django.db import ProgrammingError

from messaging import dispatch
from messaging.choices import TriggerState
from messaging.engine import subscriptions
from messaging.engine.subscriptions import Subscription
from messaging.models import Delivery, Message, Trigger
from rmhub import remembered
from tests.messaging.factories import ACTION, SERVICE, partner_side

pytestmark = pytest.mark.django_db

ME, AGREEMENT = uuid.uuid4(), uuid.uuid4()


@pytest.mark.parametrize(
    ("subscription", "wanted"),
    [
        ({}, True),
        ({"party_id": ME}, True),
        ({"party_id": uuid.uuid4()}, False),
        ({"agreement_id": AGREEMENT}, True),
        ({"agreement_id": uuid.uuid4()}, False),
        ({"documents": (("urn:orders", "NewOrder"),)}, True),
        ({"documents": (("urn:orders", "*"),)}, True),
        ({"documents": (("urn:orders", "Cancel"), ("urn:orders", "NewOrder"))}, True),
        ({"documents": (("urn:orders", "Cancel"),)}, False),
        ({"documents": (("urn:billing", "*"),)}, False),
        ({"party_id": ME, "documents": (("urn:billing", "*"),)}, False),
    ],
)
def test_a_trigger_wants_what_fits_everything_that_it_names(subscription: dict, wanted: bool) -> None:
    known = Subscription(
        **{
            "trigger_id": ME,
            "party_id": None,
            "agreement_id": None,
            "documents": (),
            "answers": False,
            "kind": "http",
            "document_id_path": "",
            **subscription,
        }
    )
    assert wanted is known.wants(party_id=ME, agreement_id=AGREEMENT, service="urn:orders", action="NewOrder")


def test_a_document_gets_a_delivery_for_each_trigger_that_wants_it(woken: list[str]) -> None:
    partner = partner_side()
    wanting = Trigger.objects.create(name="all", kind="pull")
    narrow = Trigger.objects.create(
        name="orders",
        kind="pull",
        party_id=partner.terms.partner_id,
        agreement_id=partner.terms.agreement_id,
        documents=[{"service": SERVICE, "action": ACTION}],
    )
    Trigger.objects.create(name="other", kind="pull", documents=[{"service": "urn:billing", "action": "*"}])
    Trigger.objects.create(name="off", kind="pull", state=TriggerState.DISABLED)
    suspended = Trigger.objects.create(name="stopped", kind="pull", state=TriggerState.SUSPENDED)

    arrival = partner.message(1)
    assert partner.send(arrival) == 204
    assert partner.send(arrival) == 204  # the repeat makes no second one

    message = Message.objects.get()
    found = Delivery.objects.order_by("pk")
    assert {delivery.trigger_id for delivery in found} == {wanting.pk, narrow.pk, suspended.pk}
    for delivery in found:
        assert (delivery.state, delivery.redelivery_count, delivery.attended) == ("waiting", 0, False)
        assert (delivery.message_id, delivery.position) == (message.pk, message.position)
        assert delivery.document_id == message.message_id and delivery.due_at == message.created_at
    assert dispatch.DELIVER in woken


@pytest.mark.django_db(transaction=True)
def test_no_document_without_its_deliveries(
    commit_fails: Callable[[type], AbstractContextManager[None]], woken: list[str]
) -> None:
    partner = partner_side()
    Trigger.objects.create(name="all", kind="pull")
    arrival = partner.message(1)
    with commit_fails(Delivery), pytest.raises(ProgrammingError, match="no commit today"):
        partner.send(arrival)
    assert not Message.objects.exists() and not Delivery.objects.exists() and dispatch.DELIVER not in woken
    assert partner.send(arrival) == 204
    assert Delivery.objects.count() == 1


def test_a_trigger_that_is_new_is_seen_within_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    at = 1e12
    monkeypatch.setattr(remembered.time, "monotonic", lambda: at)
    monkeypatch.setattr(remembered, "SECONDS", 1.0)
    assert subscriptions.current() == ()
    Trigger.objects.create(name="new", kind="pull")
    assert subscriptions.current() == ()
    at += 1.1
    assert len(subscriptions.current()) == 1
