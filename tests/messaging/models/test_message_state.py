"""The state of a message and what indexes know of it."""

from __future__ import annotations

import pytest
from django.db import connection
from django.db.models import F, Q
from django.test.utils import CaptureQueriesContext

from messaging.choices import MessageState
from messaging.models import Message
from messaging.models.message import DONE, OPEN, standings
from tests.messaging.factories import link, partner_side, submit, work

pytestmark = pytest.mark.django_db


@pytest.fixture
def message() -> Message:
    return submit(partner_side())


@pytest.mark.parametrize("state", MessageState.values)
def test_the_standing_follows_the_state(message: Message, state: str) -> None:
    Message.objects.filter(pk=message.pk).update(state=state)
    message.refresh_from_db()
    assert message.standing == ("open" if state in OPEN else None if state in DONE else state)
    assert standings([state]) == ([message.standing] if message.standing else None)


@pytest.mark.parametrize("state", MessageState.values)
def test_each_question_about_states_has_its_answer(message: Message, state: str) -> None:
    others = [one for one in MessageState.values if one != state]
    Message.objects.filter(pk=message.pk).update(state=state)
    found = Message.objects
    assert found.filter(state=state).exists() and not found.exclude(state=state).exists()
    assert found.filter(state__in=[state, others[0]]).exists() and not found.filter(state__in=others).exists()
    assert found.exclude(state__in=others).exists() and not found.exclude(state__in=[state]).exists()
    assert found.filter(~Q(state=others[0])).exists() and not found.filter(~Q(state=state)).exists()
    assert found.filter(state=F("state")).exists() and found.filter(state__in=MessageState.values).exists()
    assert not found.filter(state__in=[]).exists()


def test_who_asks_for_a_state_asks_for_its_standing() -> None:
    with CaptureQueriesContext(connection) as captured:
        list(Message.objects.filter(state="queued"))
        list(Message.objects.filter(state__in=["failed", "in_doubt"], pair__gate="open"))
        list(Message.objects.filter(state="delivered"))
    queued, troubled, delivered = (query["sql"] for query in captured)
    assert '"standing" = ANY' in queued and "'{open}'" in queued
    assert '"messaging_message"."standing" = ANY' in troubled and "'{failed,in_doubt}'" in troubled
    assert '"standing" =' not in delivered


def test_a_message_on_its_way_writes_into_no_index_until_it_is_done() -> None:
    """Of updates that stay within their page and change nothing that an index knows, PostgreSQL keeps a count."""
    partner = partner_side()
    message = submit(partner)

    def counted() -> tuple[int, int]:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables WHERE relname = 'messaging_message'"
            )
            updates, within_pages = cursor.fetchone()
        return int(updates), int(within_pages)

    before = counted()
    with link() as wire:
        work()
    sent = counted()
    partner.send(partner.acknowledgement(wire.last))
    done = counted()
    message.refresh_from_db()
    assert (message.state, message.attempts) == ("delivered", 1)
    assert sent[0] - before[0] == sent[1] - before[1] == 2, "it was numbered and sent, then it waited"
    assert (done[0] - sent[0], done[1] - sent[1]) == (1, 0), "it left the index of what is open"
