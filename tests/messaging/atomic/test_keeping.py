"""What becomes of transactions that ended long ago, and of open ones when an older database is restored."""

from __future__ import annotations

from datetime import timedelta

import pytest

from messaging.models import Coordination, Enlistment, Incident
from messaging.protocol.atomic.words import Note, Phase, Protocol
from messaging.services.atomic import due, keeping
from messaging.services.atomic.asking import coordination_rollback
from messaging.services.atomic.settling import enlistment_settle
from rmhub import clock
from rmhub.clock import FrozenClock
from tests.messaging.atomic import scenes
from tests.messaging.atomic.kit import peer

pytestmark = pytest.mark.django_db


def _committed() -> Coordination:
    app, shop = peer(), peer()
    begun = app.create()
    initiator, member = app.register(begun, Protocol.COMPLETION), shop.register(begun, Protocol.DURABLE)
    initiator.say(Note.COMMIT)
    member.say(Note.PREPARED)
    member.say(Note.COMMITTED)
    return Coordination.objects.get(phase=Phase.COMMITTED, identifier=begun.identifier)


def test_what_ended_long_ago_is_forgotten_and_its_messages_stay() -> None:
    old, other = _committed(), _committed()
    Coordination.objects.filter(pk=old.pk).update(ended_at=clock.now() - timedelta(days=91))
    assert keeping.forget_old(clock.now()) == 1
    assert list(Coordination.objects.values_list("pk", flat=True)) == [other.pk]


def test_what_a_person_settled_or_has_to_look_at_is_not_forgotten() -> None:
    settled, doubtful = _committed(), _committed()
    Coordination.objects.update(ended_at=clock.now() - timedelta(days=400))
    Enlistment.objects.filter(coordination=settled, protocol=Protocol.DURABLE).update(settled_as="forget")
    Coordination.objects.filter(pk=doubtful.pk).update(doubtful_since=clock.now())
    assert keeping.forget_old(clock.now()) == 0


def test_after_a_restore_people_are_told_of_open_transactions() -> None:
    app, shop = peer(), peer()
    begun = app.create()
    initiator, member = app.register(begun, Protocol.COMPLETION), shop.register(begun, Protocol.DURABLE)
    _committed()
    initiator.say(Note.COMMIT)
    assert keeping.restored(clock.now()) == 1
    incident = Incident.objects.get()
    assert (incident.cause, incident.coordination.identifier) == ("transaction_in_doubt", begun.identifier)  # type: ignore[union-attr]
    assert "may have been told so" in incident.detail
    member.say(Note.PREPARED)
    assert member.heard() == ["Prepare", "Commit"]
    member.say(Note.COMMITTED)
    incident.refresh_from_db()
    assert (incident.state, member.enlistment.doubt) == ("resolved", "")
    assert scenes.fresh(incident.coordination).doubtful_since is None  # type: ignore[arg-type]


def test_after_a_restore_a_vote_against_may_be_of_one_that_committed_and_forgot() -> None:
    one, (shop,) = scenes.prepared("Shop")
    keeping.restored(clock.now())
    shop.say(Note.ABORTED)
    incident = Incident.objects.get()
    assert scenes.fresh(one).phase == Phase.ABORTED
    assert (incident.state, shop.enlistment.doubt) == ("open", "transaction_in_doubt")
    enlistment_settle(
        enlistment_id=shop.enlistment.pk, outcome="forget", actor=scenes.ANA, reason="They say it was never booked."
    )
    incident.refresh_from_db()
    assert (incident.state, scenes.fresh(one).doubtful_since) == ("resolved", None)


def test_after_a_restore_the_answer_to_a_rollback_of_a_person_ends_the_doubt() -> None:
    one, (shop,) = scenes.prepared("Shop")
    keeping.restored(clock.now())
    coordination_rollback(coordination_id=one.pk, actor=scenes.ANA, reason="They say that it was not committed")
    assert Incident.objects.get().state == "open"
    shop.say(Note.ABORTED)
    assert (Incident.objects.get().state, shop.enlistment.doubt) == ("resolved", "")


def test_after_a_restore_no_transaction_ends_by_itself(time: FrozenClock) -> None:
    one, places = scenes.prepared("Stock", "Freight")
    other, (lonely,) = scenes.prepared("Alone")
    assert keeping.restored(clock.now()) == 2
    time.move(30 * 86400)
    assert due.run_due() == 0
    assert scenes.fresh(one).phase == scenes.fresh(other).phase == Phase.PREPARING_DURABLE
    places[0].say(Note.PREPARED)
    assert due.run_due() == 0, "a vote does not give it a time again"
    places[1].say(Note.PREPARED)
    assert places[0].heard() == places[1].heard() == ["Prepare", "Commit"]
    coordination_rollback(coordination_id=other.pk, actor=scenes.ANA, reason="They say that it was not committed")
    assert lonely.heard() == ["Prepare", "Rollback"]
