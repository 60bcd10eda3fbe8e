"""Somebody hears of what is missing in a conversation, after a while, and that it has come."""

from __future__ import annotations

from datetime import timedelta

import pytest

from messaging.models import Incident, OrderedConversation
from messaging.profiles.ebms2 import ordering
from messaging.profiles.ebms2.ordering import GAP
from rmhub.clock import FrozenClock, now
from tests.messaging.profiles.ebms2.partner import Ebms2Side, ebms2_side

pytestmark = pytest.mark.django_db
LONG = GAP.total_seconds()


def bring(partner: Ebms2Side, conversation: str, *numbers: int) -> None:
    for number in numbers:
        partner.bring(partner.ordered(number, f"{conversation}{number}", conversation=conversation))


def told(partner: Ebms2Side) -> list[tuple[str, str]]:
    """State and detail of the incidents about something missing."""
    found = Incident.objects.filter(cause="order_gap", pair=partner.inbound).order_by("pk")
    return list(found.values_list("state", "detail"))


def test_it_is_told_once_after_ten_minutes_and_ends_when_what_is_missing_comes(clock: FrozenClock) -> None:
    partner = ebms2_side(message_order=True)
    bring(partner, "a", 0, 2)
    since = now()
    clock.move(LONG)
    assert (ordering.watch(now()), told(partner)) == (0, [])
    clock.move(1)
    for _ in range(2):
        assert ordering.watch(now()) == 1
    [(state, detail)] = told(partner)
    assert state == "open"
    assert detail == f"Conversation a waits for number 1 since {since:%Y-%m-%d %H:%M:%S} UTC."
    bring(partner, "a", 1)
    assert ordering.watch(now()) == 0
    assert [state for state, _ in told(partner)] == ["resolved"]


def test_a_beginning_that_is_missing_is_told_too(clock: FrozenClock) -> None:
    partner = ebms2_side(message_order=True)
    bring(partner, "a", 3)
    clock.move(LONG + 1)
    ordering.watch(now())
    assert "Conversation a waits for number 0 since" in told(partner)[0][1]


def test_of_several_conversations_the_one_that_waits_longest_is_told_until_none_waits(clock: FrozenClock) -> None:
    partner, other = ebms2_side(message_order=True), ebms2_side(message_order=True)
    bring(partner, "a", 0, 2)
    clock.move(1)
    bring(partner, "b", 0, 2)
    bring(other, "c", 0, 1)
    clock.move(LONG + 1)
    assert ordering.watch(now()) == 1, "pairs"
    assert "Conversation a waits" in told(partner)[0][1]
    assert told(other) == []
    bring(partner, "a", 1)
    ordering.watch(now())
    assert [state for state, _ in told(partner)] == ["open"], "b still waits"
    bring(partner, "b", 1)
    ordering.watch(now())
    assert [state for state, _ in told(partner)] == ["resolved"]


def test_time_counts_for_the_number_that_is_missing_now(clock: FrozenClock) -> None:
    """One gap after the other in a busy conversation is no gap of ten minutes."""
    partner = ebms2_side(message_order=True)
    bring(partner, "a", 0, 2)
    for number in range(4, 30, 2):
        clock.move(60)
        bring(partner, "a", number)
        bring(partner, "a", number - 3)
        assert OrderedConversation.objects.get().gap_since == now()
    assert (ordering.watch(now()), told(partner)) == (0, [])
    # What comes after the gap does not make it a new one.
    clock.move(60)
    bring(partner, "a", 40)
    assert OrderedConversation.objects.get().gap_since == now() - timedelta(seconds=60)


def test_a_reset_ends_a_gap(clock: FrozenClock) -> None:
    partner = ebms2_side(message_order=True)
    bring(partner, "a", 0, 2)
    clock.move(LONG + 1)
    ordering.watch(now())
    partner.bring(partner.ordered(0, "again", conversation="a"))
    assert ordering.watch(now()) == 0
    assert [state for state, _ in told(partner)] == ["resolved"]
    assert Incident.objects.filter(cause="order_given_up").count() == 1
