"""Where conversations with an order are is forgotten after a long silence, ours before those of partners."""

from __future__ import annotations

import itertools
import threading
from datetime import timedelta

import pytest
from django.db import connection, transaction

from messaging.models import Incident, Message, OrderedConversation, Pair
from messaging.overview.services import housekeeping
from messaging.profiles.ebms2 import ordering
from messaging.profiles.ebms2.ordering import OURS_KEPT, THEIRS_KEPT
from rmhub.clock import FrozenClock, now
from tests.messaging.factories import link, submit, work
from tests.messaging.profiles.ebms2.partner import Ebms2Side, decoded, ebms2_side

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)
WAIT = 30


def known() -> set[str]:
    return set(OrderedConversation.objects.values_list("conversation_id", flat=True))


def exchange(partner: Ebms2Side, clock: FrozenClock, conversation: str) -> tuple[int, bool]:
    """One message of ours goes out and is acknowledged. Returns its number and Reset."""
    submit(partner, conversation_id=conversation)
    with link() as wire:
        work()
        clock.move(1)
        partner.bring(partner.acknowledging(wire.last))
    order = decoded(wire.last).ebms.order  # type: ignore[union-attr]
    assert order is not None
    return order.sequence_number, order.reset


def silence(clock: FrozenClock, time: timedelta) -> None:
    clock.move(time.total_seconds())


def test_a_conversation_of_ours_is_forgotten_and_begins_anew(clock: FrozenClock) -> None:
    partner = ebms2_side(message_order=True)
    assert [exchange(partner, clock, "ours") for _ in range(2)] == [(0, True), (1, False)]
    silence(clock, OURS_KEPT - 2 * SECOND)
    ordering.watch(now())
    assert exchange(partner, clock, "ours") == (2, False)
    silence(clock, OURS_KEPT + SECOND)
    housekeeping.run()
    assert known() == set()
    assert exchange(partner, clock, "ours") == (0, True)


def test_a_conversation_of_a_partner_goes_on_after_a_long_silence(clock: FrozenClock) -> None:
    """A hub like this one has forgotten it by then and begins anew; another goes on with its number. Both are taken."""
    partner = ebms2_side(message_order=True)
    for conversation in ("a", "b"):
        partner.bring(partner.ordered(0, f"{conversation}0", conversation=conversation))
    silence(clock, OURS_KEPT + DAY)
    ordering.watch(now())
    assert known() == {"a", "b"}
    partner.bring(partner.ordered(1, "a1", conversation="a"))
    partner.bring(partner.ordered(0, "b-again", conversation="b"))
    assert set(Message.objects.values_list("state", flat=True)) == {"received"}


def test_what_goes_on_after_it_is_forgotten_waits_and_a_person_is_told(clock: FrozenClock) -> None:
    partner = ebms2_side(message_order=True)
    partner.bring(partner.ordered(0, "m0"))
    silence(clock, THEIRS_KEPT + DAY)
    ordering.watch(now())
    assert known() == set()
    partner.bring(partner.ordered(1, "m1"))
    assert Message.objects.get(message_id="m1").state == "held"
    silence(clock, ordering.GAP + SECOND)
    assert ordering.watch(now()) == 1
    assert "waits for number 0" in Incident.objects.get(cause="order_gap").detail
    partner.bring(partner.ordered(0, "m2"))
    states = dict(Message.objects.values_list("message_id", "state"))
    assert states == {"m0": "received", "m1": "received", "m2": "received"}


def test_a_copy_of_what_came_before_it_was_forgotten_begins_nothing(clock: FrozenClock) -> None:
    """Ids are remembered for ever: an old Reset takes nothing back."""
    partner = ebms2_side(message_order=True)
    beginning = partner.ordered(0, "m0")
    partner.bring(beginning)
    silence(clock, THEIRS_KEPT + DAY)
    ordering.watch(now())
    partner.bring(beginning)
    assert known() == set()
    assert Message.objects.count() == 1


def test_a_conversation_in_which_something_waits_is_never_forgotten(clock: FrozenClock) -> None:
    partner = ebms2_side(message_order=True)
    for number in (0, 2):
        partner.bring(partner.ordered(number, f"m{number}", conversation="gap"))
    partner.bring(partner.ordered(0, "other", conversation="other"))
    silence(clock, 3 * THEIRS_KEPT)
    ordering.watch(now())
    assert known() == {"gap"}
    partner.bring(partner.ordered(1, "m1", conversation="gap"))
    assert set(Message.objects.values_list("state", flat=True)) == {"received"}


def test_a_round_looks_at_one_part_of_the_table_and_in_the_end_all_are_looked_at(
    clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ordering, "_AT_ONCE", 2)
    partner = ebms2_side(message_order=True)
    for number in range(6):
        partner.bring(partner.ordered(0, f"m{number}", conversation=f"c{number}"))
    rows = list(OrderedConversation.objects.order_by("pk"))
    OrderedConversation.objects.all().delete()
    for place, row in enumerate(rows, start=1):
        row.pk = place
    OrderedConversation.objects.bulk_create(rows)
    later = now() + THEIRS_KEPT + DAY
    left = [6]
    for part in range(100):
        ordering.watch(later.replace(microsecond=part))
        left.append(len(known()))
        if not left[-1]:
            break
    assert [before for before, after in itertools.pairwise(left) if before - after > 2] == []
    assert left[-1] == 0


@pytest.mark.django_db(transaction=True)
def test_one_whose_pair_is_at_work_stays(clock: FrozenClock) -> None:
    """What goes on there may be going on in the conversation: it changes under that lock."""
    partner = ebms2_side(message_order=True)
    partner.bring(partner.ordered(0, "m0"))
    silence(clock, THEIRS_KEPT + DAY)
    holding, done = threading.Event(), threading.Event()

    def hold() -> None:
        try:
            with transaction.atomic():
                Pair.locked([partner.inbound.pk])
                holding.set()
                done.wait(WAIT)
        finally:
            connection.close()

    thread = threading.Thread(target=hold)
    thread.start()
    assert holding.wait(WAIT)
    ordering.watch(now())
    assert known() == {"conv"}
    done.set()
    thread.join(WAIT)
    ordering.watch(now())
    assert known() == set()
