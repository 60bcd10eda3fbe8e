"""One statement for many rows: values arrive as Django would have written them, in rows of their own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import IntegrityError, connection, models, transaction
from django.test.utils import isolate_apps

from messaging.choices import Direction, IncidentState, WebhookState
from messaging.models import Event, Incident, Message, MessageIdentity, Pair, Payload, WebhookDelivery, WebhookEndpoint
from messaging.models.bulk import bulk_insert, bulk_set, read, together
from messaging.protocol.pair_state import Flow
from rmhub.ids import uuid7
from tests.messaging.factories import partner_side, submit

pytestmark = pytest.mark.django_db

AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
ODD = 'a\'b"c\\d%s %% {x} \u00e9\u20ac\U0001f600 NULL,{"\n'


def test_each_row_gets_its_own_values() -> None:
    pairs = [partner_side().outbound for _ in range(3)]
    untouched = partner_side().outbound
    for number, pair in enumerate(pairs, start=1):
        pair.flow = Flow.SUSPENDED
        pair.cause_detail = ODD * number
        pair.due_at = AT if number == 2 else None
        pair.in_flight_id = uuid7() if number == 3 else None
        pair.done = number * 10**12
        pair.code = "not among the fields"
    bulk_set(list(reversed(pairs)), ("flow", "cause_detail", "due_at", "in_flight_id", "done"))
    for number, pair in enumerate(pairs, start=1):
        found = Pair.objects.get(pk=pair.pk)
        assert (found.flow, found.cause_detail, found.done) == ("suspended", ODD * number, number * 10**12)
        assert found.due_at == (AT if number == 2 else None)
        assert found.in_flight_id == pair.in_flight_id
        assert found.code != "not among the fields"
    assert Pair.objects.get(pk=untouched.pk).flow == "idle"


def test_setting_nothing_sends_nothing(django_assert_num_queries) -> None:
    with django_assert_num_queries(0):
        bulk_set([], ("flow",))
        bulk_insert([])


def test_what_is_read_is_what_django_reads() -> None:
    """Every kind of field, those with a form of their own in the database too, and what was not asked for."""
    message = submit(partner_side())
    message.wire_frame = bytes(range(256))
    bulk_set([message], ("wire_frame",))
    event = Event.objects.create(type="message.sent", at=AT, message=message, data={"deep": [1, ODD]})
    for model, key in ((Message, message.pk), (Event, event.pk), (Pair, message.pair_id)):
        (found,) = read(model, f"SELECT * FROM {model._meta.db_table} WHERE id = %s", [key])
        theirs = model.objects.get(pk=key)
        for field in model._meta.concrete_fields:
            assert getattr(found, field.attname) == getattr(theirs, field.attname), field
        assert (found._state.adding, found._state.db, found.get_deferred_fields()) == (False, "default", set())
    (found,) = read(Message, "SELECT id, state FROM messaging_message WHERE id = %s", [message.pk])
    assert "wire_frame" in found.get_deferred_fields() and found.wire_frame == bytes(range(256))
    found.state = "sending"
    found.save(update_fields=["state"])
    assert Message.objects.get(pk=message.pk).state == "sending"


def test_statements_together_are_all_written_or_none() -> None:
    first, second = partner_side().outbound, partner_side().outbound
    for pair in (first, second):
        pair.flow = Flow.SUSPENDED
    with together():
        bulk_set([first], ("flow",))
        with together():
            bulk_set([second], ("flow",))
        (found,) = read(Pair, "SELECT * FROM messaging_pair WHERE id = %s", [second.pk])
        assert found.flow == "suspended"
    assert Pair.objects.get(pk=first.pk).flow == "suspended"

    twin = Pair.objects.get(pk=first.pk)
    twin.pk = uuid7()
    first.done = 7
    with pytest.raises(IntegrityError), transaction.atomic(), together():
        bulk_set([first], ("done",))
        bulk_insert([twin])
        bulk_set([second], ("done",))
    assert Pair.objects.get(pk=first.pk).done == 0


def test_bytes_and_nulls_arrive_as_they_are() -> None:
    message = submit(partner_side())
    message.wire_frame, message.first_sent_at = bytes(range(256)), AT
    bulk_set([message], ("wire_frame", "first_sent_at"))
    found = Message.objects.get(pk=message.pk)
    assert (bytes(found.wire_frame or b""), found.first_sent_at) == (bytes(range(256)), AT)
    message.wire_frame = message.first_sent_at = None
    bulk_set([message], ("wire_frame", "first_sent_at"))
    found = Message.objects.get(pk=message.pk)
    assert (found.wire_frame, found.first_sent_at) == (None, None)


def test_inserted_rows_are_those_that_django_would_write() -> None:
    message = submit(partner_side())
    rows = [
        Payload(message=message, number=number, content_id=f"{number}@x", content_type=ODD, size=2**40, sha256="")
        for number in (5, 3, 4)
    ]
    rows[1].content, rows[2].stored_as = b"\x00\xff", "ab/cd"
    bulk_insert(rows)
    found = list(Payload.objects.filter(message=message, number__gte=3).order_by("number"))
    assert [(p.number, p.content_type, p.size) for p in found] == [(n, ODD, 2**40) for n in (3, 4, 5)]
    assert [p.content and bytes(p.content) for p in found] == [b"\x00\xff", None, None]
    assert [p.stored_as for p in found] == ["", "ab/cd", ""]
    assert [p.in_frame for p in found] == [False] * 3
    assert all(p.pk for p in found)


def test_keys_come_back_to_the_rows_that_they_belong_to() -> None:
    events = [Event(type=f"test.{n}", at=AT, data={"n": [n, None, {"deep": ODD}]}) for n in range(20)]
    bulk_insert(events, returning_key=True)
    assert len({event.pk for event in events}) == 20
    for event in events:
        found = Event.objects.get(pk=event.pk)
        assert (found.type, found.data) == (event.type, event.data)
        assert found.xid > 0, "the column with a database default is left to the database"


def test_json_of_deliveries_is_json() -> None:
    endpoint = WebhookEndpoint.objects.create(url="https://x.example/", secret_encrypted=b"s", created_at=AT)
    event = Event(type="test", at=AT)
    bulk_insert([event], returning_key=True)
    body = {"type": "x", "list": [1, 2.5, "\u20ac", None, True]}
    row = WebhookDelivery(endpoint=endpoint, event=event, body=body, due_at=AT, created_at=AT)
    bulk_insert([row])
    found = WebhookDelivery.objects.get(pk=row.pk)
    assert (found.body, found.state, found.attempts, found.last_status) == (body, WebhookState.PENDING, 0, None)


def test_choices_are_written_as_their_values() -> None:
    incident = Incident(number=1, cause="x", opened_at=AT, last_seen_at=AT, state=IncidentState.ACKNOWLEDGED)
    bulk_insert([incident])
    assert Incident.objects.get().state == "acknowledged"
    incident.state = IncidentState.RESOLVED
    bulk_set([incident], ("state",))
    assert Incident.objects.filter(state="resolved").count() == 1


def test_a_constraint_that_is_broken_is_an_integrity_error_and_writes_nothing() -> None:
    message = submit(partner_side())
    scope = message.pair.own_party_id
    rows = [
        MessageIdentity(scope_id=scope, direction="out", message_id=name, stored_id=message.pk, created_at=AT)
        for name in ("new@x", message.message_id)
    ]
    with pytest.raises(IntegrityError), transaction.atomic():
        bulk_insert(rows)
    assert not MessageIdentity.objects.filter(message_id="new@x").exists()


def test_direction_and_other_enumerations_may_be_given_as_members() -> None:
    pair = partner_side().outbound
    pair.direction = Direction.IN
    bulk_set([pair], ("direction",))
    assert Pair.objects.filter(pk=pair.pk, direction="in").exists()


@isolate_apps("messaging")
def test_a_field_that_it_cannot_write_is_refused_and_not_garbled() -> None:
    class Sum(models.Model):
        amount = models.DurationField()

        class Meta:
            app_label = "messaging"

        def __str__(self) -> str:
            return str(self.amount)

    with pytest.raises(TypeError, match="amount"):
        bulk_insert([Sum(amount=timedelta(seconds=1))])


def test_a_column_that_a_later_release_adds_meanwhile_disturbs_no_reader() -> None:
    """Nor does it change the rows of a statement that the server has prepared, which it would refuse."""
    pair = partner_side().outbound

    def found() -> list[Pair]:
        return read(Pair, "SELECT p.* FROM messaging_pair p WHERE id = %s FOR UPDATE", [pair.pk])

    threshold = connection.connection.prepare_threshold
    assert threshold is not None
    for _ in range(threshold + 2):
        assert found() == [pair]
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("ALTER TABLE messaging_pair ADD COLUMN of_a_later_release text")
    assert found() == [pair]
