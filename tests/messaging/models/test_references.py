"""What names rows that the database does not hold by foreign keys: removed with them, or it keeps them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.db.models import ProtectedError

from messaging.choices import DeliveryState, JoinState
from messaging.journal.audit import Actor
from messaging.models import (
    Coordination,
    CoordinationMessage,
    Delivery,
    Enlistment,
    Event,
    Join,
    Message,
    Payload,
    Signal,
    Transmission,
    WebhookDelivery,
)
from messaging.models.delivery import DocumentStarted
from messaging.notifications.services import webhooks
from messaging.profiles.wsat import due
from rmhub import clock
from tests.messaging.deliveries.stage import make_trigger
from tests.messaging.factories import partner_side
from tests.messaging.profiles.wsat.test_keeping import _committed
from tests.rmhub.test_connections import WAIT, in_threads

HOT = (
    Message,
    Payload,
    Transmission,
    Signal,
    Event,
    Delivery,
    DocumentStarted,
    CoordinationMessage,
    WebhookDelivery,
)


@pytest.mark.django_db
def test_what_is_written_for_each_message_locks_no_row_that_it_names() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT conrelid::regclass::text, pg_get_constraintdef(oid) FROM pg_constraint"
            " WHERE contype = 'f' AND conrelid = ANY(%s::regclass[]::oid[])",
            [[model._meta.db_table for model in HOT]],
        )
        assert cursor.fetchall() == []


@pytest.mark.django_db
def test_a_trigger_and_a_join_stay_as_long_as_deliveries_name_them() -> None:
    trigger, partner = make_trigger(kind="pull"), partner_side()
    assert partner.send(partner.message(1)) == 204
    at = clock.now()
    join = Join.objects.create(trigger=trigger, activation="c", state=JoinState.OPEN, expires_at=at, created_at=at)
    Delivery.objects.update(part_of=join)
    with pytest.raises(ProtectedError):
        join.delete()
    delivery = Delivery.objects.get()
    Delivery.objects.filter(pk=delivery.pk).update(part_of=None, state=DeliveryState.SETTLED)
    with pytest.raises(ProtectedError):
        trigger.delete()
    again = Delivery.objects.get()
    again.pk, again.resubmission_of = None, delivery
    again.save(force_insert=True)
    with pytest.raises(ProtectedError):
        Delivery.objects.get(pk=delivery.pk).delete()


@pytest.mark.django_db
def test_what_is_owed_to_an_endpoint_goes_with_it() -> None:
    made, _ = webhooks.endpoint_create(url="http://127.0.0.1:1/", types=[], name="", actor=Actor("ann"))
    partner = partner_side()
    assert partner.send(partner.message(1)) == 204
    assert WebhookDelivery.objects.filter(endpoint=made).exists()
    webhooks.endpoint_delete(endpoint_id=made.pk, actor=Actor("ann"))
    assert not WebhookDelivery.objects.exists()


@pytest.mark.django_db
def test_messages_of_a_forgotten_transaction_name_neither_it_nor_its_participants() -> None:
    old, other = _committed(), _committed()
    messages = Message.objects.count()
    Coordination.objects.filter(pk=old.pk).update(ended_at=clock.now() - timedelta(days=91))
    assert due.forget_old(clock.now()) == 1
    assert set(CoordinationMessage.objects.values_list("coordination", flat=True)) == {other.pk}
    assert set(Enlistment.objects.values_list("coordination", flat=True)) == {other.pk}
    assert Message.objects.count() == messages


@pytest.mark.django_db(transaction=True)
def test_a_transaction_to_which_somebody_adds_a_message_is_not_forgotten_meanwhile() -> None:
    old = _committed()
    Coordination.objects.update(ended_at=clock.now() - timedelta(days=91))
    forgotten: list[int] = []
    with transaction.atomic():
        Coordination.objects.select_for_update().get(pk=old.pk)
        (thread,) = in_threads(1, lambda: forgotten.append(due.forget_old(clock.now())))
        thread.join(WAIT)
    assert forgotten == [0]
    assert due.forget_old(clock.now()) == 1
