"""`manage.py after_restore`: transaction numbers that came from another server, and a lake that knows only those."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import call_command
from django.db import connection

from messaging.models import Event, LakeFile, LakeState, Message
from rmhub import clock
from tests.messaging.factories import partner_side, submit


@pytest.mark.django_db
def test_events_of_another_server_are_renumbered_and_others_left_alone() -> None:
    ours = Event.objects.create(type="message.accepted", at=clock.now(), xid=1)
    theirs = Event.objects.create(type="message.accepted", at=clock.now(), xid=2**60)
    output = StringIO()
    call_command("after_restore", stdout=output)
    assert "1 events renumbered" in output.getvalue()
    xids = dict(Event.objects.values_list("pk", "xid"))
    assert (xids[ours.pk], xids[theirs.pk]) == (1, 0)


@pytest.mark.django_db
def test_rows_that_change_get_a_number_of_this_server() -> None:
    """A number that is far ahead would keep a row out of the lake until this server has counted as far."""
    partner = partner_side()
    ours, theirs = submit(partner), submit(partner)
    with connection.cursor() as cursor:  # as a restore writes them: rows that are inserted keep what they bring
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("ALTER TABLE messaging_message DISABLE TRIGGER USER")
        cursor.execute("UPDATE messaging_message SET xid = 5 WHERE id = %s", [ours.pk])
        cursor.execute("UPDATE messaging_message SET xid = %s WHERE id = %s", [2**60, theirs.pk])
        cursor.execute("ALTER TABLE messaging_message ENABLE TRIGGER USER")
        cursor.execute("SELECT pg_current_xact_id()::text::bigint")
        (now,) = cursor.fetchone()
    output = StringIO()
    call_command("after_restore", stdout=output)
    assert "1 messages, transmissions, signals and deliveries renumbered" in output.getvalue()
    xids = dict(Message.objects.values_list("pk", "xid"))
    assert xids[ours.pk] == 5
    assert 0 <= xids[theirs.pk] <= now


@pytest.mark.django_db
def test_the_lake_begins_a_new_generation() -> None:
    LakeState.objects.create(generation=4, source="7/1", extracted_through=900, extracted_at=clock.now())
    LakeFile.objects.create(
        generation=4,
        entity="events",
        path="g4/events/x.parquet",
        schema_version=1,
        rows=1,
        bytes=1,
        sha256="",
        from_xid=1,
        to_xid=2,
        created_at=clock.now(),
    )
    call_command("after_restore", stdout=StringIO())
    state = LakeState.objects.get()
    assert (state.generation, state.source, state.extracted_through, state.extracted_at) == (5, "", 0, None)
    assert LakeFile.objects.get().replaced_at is not None
