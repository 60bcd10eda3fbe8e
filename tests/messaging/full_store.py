"""A store in which a year has left its traces, for tests that ask what statements cost in one.

Its tables have 20,000 rows: enough that a plan that reads all of one shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta

import pytest
from django.db import connection, models, transaction

from messaging.journal.audit import Actor
from messaging.models import (
    ArchivedMessage,
    Delivery,
    Event,
    Message,
    MessageIdentity,
    Pair,
    Payload,
    Signal,
    Transmission,
    WebhookDelivery,
)
from messaging.notifications.services import webhooks
from rmhub import clock
from rmhub.ids import floor_id
from tests.messaging.factories import link, partner_side, submit, work
from tests.staged import forget_all

ROWS = 20_000
BIG = (Pair, Delivery, Message, MessageIdentity, Payload, Signal, Transmission, Event, WebhookDelivery, ArchivedMessage)


def multiply(model: type[models.Model], rows: str = f"generate_series(1, {ROWS}) AS n", **changes: str) -> None:
    """Copies the model's first row once for each of `rows`. `changes` are SQL expressions over them.

    The first is the one that was made first, and the copies come after it: where a row lies in its table depends on
    what was there before, in other tests too.
    """
    table = model._meta.db_table
    columns = [f.column for f in model._meta.concrete_fields if f.column != "xid" and not f.generated]
    if isinstance(model._meta.pk, models.AutoField):
        columns.remove("id")
    else:
        changes.setdefault("id", "overlay(gen_random_uuid()::text placing 'f' from 1 for 1)::uuid")
    order = ", ".join(field.column for field in model._meta.pk_fields)
    values = ", ".join(changes.get(column, f"t.{column}") for column in columns)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} ({', '.join(columns)}) SELECT {values} "
            f"FROM (SELECT * FROM {table} ORDER BY {order} LIMIT 1) AS t, {rows}"
        )
        cursor.execute(f"ANALYZE {table}")


def fill() -> None:
    """A store in which a year has left its traces: nearly all of it done."""
    webhooks.endpoint_create(url="http://127.0.0.1:1/", types=[], name="", actor=Actor("ann"))
    partner = partner_side()
    submit(partner)
    partner.send(partner.message(1))
    partner.send(partner.message(7))
    with link():
        work()
    multiply(Pair, sender_uri="'urn:' || n", code="'pair ' || n", due_at="NULL", flow="'idle'", in_flight_id="NULL")
    done = {"state": "'delivered'", "due_at": "NULL", "wire_frame": "NULL"}
    multiply(Message, message_id="'m' || n", conversation_id="'c' || n", **done)
    multiply(MessageIdentity, message_id="'m' || n")
    multiply(Payload, "(SELECT id FROM messaging_message) AS m", message_id="m.id", number="99")
    done = {"state": "'sent'", "due_at": "NULL", "body": "''"}
    multiply(Signal, about_id="gen_random_uuid()", message_id="'s' || n", **done)
    multiply(Transmission, message_id="gen_random_uuid()", signal_id="NULL", outcome="'sent'")
    multiply(Event, message_id="gen_random_uuid()")
    yesterday = floor_id(clock.now() - timedelta(days=1)).hex[:12]  # ids follow the time
    multiply(
        WebhookDelivery, id=f"('{yesterday}' || lpad(to_hex(n), 20, '0'))::uuid", state="'delivered'", due_at="NULL"
    )


def alone(subtests: pytest.Subtests, *parts: Callable[[], None]) -> None:
    """Runs each part on what was there before the first: a full store takes longer to build than all that is asked."""
    for part in parts:
        with subtests.test(part.__name__):
            before = transaction.savepoint()  # an atomic block would be one that holds durable ones
            forget_all()
            try:
                part()
            finally:
                transaction.savepoint_rollback(before)


def told(found: Mapping[str, list[str]]) -> str:
    """What is wrong with each path, to be read."""
    return "\n\n".join(f"{name}:\n" + "\n".join(wrong) for name, wrong in found.items())
