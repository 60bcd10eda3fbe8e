"""Documents that do not fit a schema which holds them: no application gets them before a person says so."""

from __future__ import annotations

import pytest

from messaging.deliveries.services.settling import delivery_decisions, delivery_settle
from messaging.models import Delivery, DocumentStarted
from tests.messaging.deliveries.stage import Application, claim, lose, make_trigger, now_of, work
from tests.messaging.factories import partner_side
from tests.messaging.messages.test_schemas import ADA, BAD, GOOD, come_in, make_schema

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("use_history", [True, False])
@pytest.mark.parametrize("resolver", ["none", "http"])
def test_what_is_held_reaches_an_application_when_a_person_says_so(
    app: Application, use_history: bool, resolver: str
) -> None:
    make_schema(on_receipt="hold")
    trigger = make_trigger(app, use_history=use_history, resolver=resolver)
    partner = partner_side()
    come_in(partner, BAD)
    come_in(partner, GOOD, number=2)
    work()
    held, fine = Delivery.objects.order_by("id")
    assert (held.state, held.doubt, fine.state) == ("in_doubt", "does_not_fit_schema", "completed")
    assert not DocumentStarted.objects.filter(delivery=held).exists()
    assert len(app.at("/documents")) == 1
    assert delivery_decisions(held, trigger) == ("duplicate", "resubmit", "later")
    delivery_settle(delivery_id=held.pk, decision="resubmit", actor=ADA, reason="the partner says it is right so")
    work()
    assert Delivery.objects.latest("id").state == "completed"
    assert len(app.at("/documents")) == 2


def test_a_copy_of_what_was_processed_is_a_duplicate_whatever_it_looks_like(app: Application) -> None:
    make_trigger(app, document_id_path="$.id")
    partner = partner_side()
    come_in(partner, b'{"id": "a", "number": "1"}')
    work()
    make_schema(on_receipt="hold")
    come_in(partner, b'{"id": "a", "number": 1}', number=2)
    work()
    assert [one.state for one in Delivery.objects.order_by("id")] == ["completed", "duplicate"]


def test_what_is_marked_as_processed_is_not_handed_over(app: Application) -> None:
    make_schema(on_receipt="hold")
    make_trigger(app)
    come_in(partner_side(), BAD)
    work()
    held = Delivery.objects.get()
    delivery_settle(delivery_id=held.pk, decision="duplicate", actor=ADA, reason="a corrected one came by mail")
    work()
    assert now_of(held).state == "settled"
    assert app.at("/documents") == []


def test_what_a_person_has_handed_over_is_not_held_again_when_it_is_repeated(app: Application) -> None:
    make_schema(on_receipt="hold")
    make_trigger(app, detect_duplicates=False)
    come_in(partner_side(), BAD)
    work()
    delivery_settle(delivery_id=Delivery.objects.get().pk, decision="resubmit", actor=ADA, reason="it is right so")
    lose(*claim())
    work()
    assert Delivery.objects.latest("id").state == "completed"
