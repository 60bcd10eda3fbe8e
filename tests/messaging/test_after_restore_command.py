"""`manage.py after_restore`: the feed shows events whose transaction numbers came from another server."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import call_command

from messaging.models import Event
from rmhub import clock


@pytest.mark.django_db
def test_events_of_another_server_are_renumbered_and_others_left_alone() -> None:
    ours = Event.objects.create(type="message.accepted", at=clock.now(), xid=1)
    theirs = Event.objects.create(type="message.accepted", at=clock.now(), xid=2**60)
    output = StringIO()
    call_command("after_restore", stdout=output)
    assert "1 events renumbered" in output.getvalue()
    xids = dict(Event.objects.values_list("pk", "xid"))
    assert (xids[ours.pk], xids[theirs.pk]) == (1, 0)
