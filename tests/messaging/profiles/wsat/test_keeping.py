"""What becomes of transactions that ended long ago, and of open ones when an older database is restored."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import transaction

from messaging.engine import memory as hub_memory
from messaging.models import Coordination, Enlistment, Incident, MemoryEpoch, Pair
from messaging.pairs.services import resync
from messaging.profiles.wsat import due
from messaging.profiles.wsat.asking import coordination_rollback
from messaging.profiles.wsat.settling import enlistment_settle
from messaging.protocol.atomic.words import Note, Phase, Protocol
from rmhub import clock
from rmhub.clock import FrozenClock
from tests.messaging.profiles.wsat import scenes
from tests.messaging.profiles.wsat.kit import peer
from tests.messaging.profiles.wsat.test_subordinate import below_another

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
    assert due.forget_old(clock.now()) == 1
    assert list(Coordination.objects.values_list("pk", flat=True)) == [other.pk]


def test_what_a_person_settled_or_has_to_look_at_is_not_forgotten() -> None:
    settled, doubtful = _committed(), _committed()
    Coordination.objects.update(ended_at=clock.now() - timedelta(days=400))
    Enlistment.objects.filter(coordination=settled, protocol=Protocol.DURABLE).update(settled_as="forget")
    Coordination.objects.filter(pk=doubtful.pk).update(doubtful_since=clock.now())
    assert due.forget_old(clock.now()) == 0


def test_after_a_restore_people_are_told_of_open_transactions() -> None:
    app, shop = peer(), peer()
    begun = app.create()
    initiator, member = app.register(begun, Protocol.COMPLETION), shop.register(begun, Protocol.DURABLE)
    _committed()
    initiator.say(Note.COMMIT)
    _restore(60)
    incident = Incident.objects.get(coordination__isnull=False)
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
    due.restored(clock.now())
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
    due.restored(clock.now())
    coordination_rollback(coordination_id=one.pk, actor=scenes.ANA, reason="They say that it was not committed")
    assert Incident.objects.get().state == "open"
    shop.say(Note.ABORTED)
    assert (Incident.objects.get().state, shop.enlistment.doubt) == ("resolved", "")


def test_after_a_restore_no_transaction_ends_by_itself(time: FrozenClock) -> None:
    one, places = scenes.prepared("Stock", "Freight")
    other, (lonely,) = scenes.prepared("Alone")
    assert due.restored(clock.now()) == 2
    time.move(30 * 86400)
    assert due.run_due() == 0
    assert scenes.fresh(one).phase == scenes.fresh(other).phase == Phase.PREPARING_DURABLE
    places[0].say(Note.PREPARED)
    assert due.run_due() == 0, "a vote does not give it a time again"
    places[1].say(Note.PREPARED)
    assert places[0].heard() == places[1].heard() == ["Prepare", "Commit"]
    coordination_rollback(coordination_id=other.pk, actor=scenes.ANA, reason="They say that it was not committed")
    assert lonely.heard() == ["Prepare", "Rollback"]


def _restore(back: int) -> None:
    """As if the database were read back from a backup that is so many seconds old."""
    MemoryEpoch.objects.update(heartbeat=clock.now() - timedelta(seconds=back))
    hub_memory.lost(clock.now(), reason="a test", actor=scenes.ANA)


def test_after_a_restore_the_superiors_rollback_proves_nothing_where_this_hub_had_voted() -> None:
    voted, begun = below_another(), below_another(names=("Higher", "Store"))
    voted.above.say(Note.PREPARE)
    voted.member.say(Note.PREPARED)
    assert due.restored(clock.now()) == 2
    for stage in (voted, begun):
        stage.above.say(Note.ROLLBACK)
        assert stage.member.heard()[-1] == "Rollback"
        stage.member.say(Note.ABORTED)
    first, second = Coordination.objects.filter(phase=Phase.ABORTED).order_by("id")
    assert first.doubtful_since is not None
    assert second.doubtful_since is None
    superior = Enlistment.objects.get(superior=True, coordination=first)
    assert "it answers Rollback, whatever the outcome was" in superior.doubt_detail
    enlistment_settle(enlistment_id=superior.pk, outcome="forget", actor=scenes.ANA, reason="They rolled it back too.")
    assert not Coordination.objects.exclude(doubtful_since=None).exists()
    assert not Incident.objects.exclude(state="resolved").exists()


def test_after_a_restore_the_superiors_commit_ends_the_doubt() -> None:
    stage = below_another()
    stage.above.say(Note.PREPARE)
    stage.member.say(Note.PREPARED)
    due.restored(clock.now())
    assert stage.row.doubtful_since is not None
    assert (stage.row.phase, stage.row.due_at) == (Phase.PREPARED, None)
    stage.above.say(Note.COMMIT)
    assert stage.row.doubtful_since is None
    assert Incident.objects.get().state == "resolved"


@pytest.mark.parametrize("role", ["participant", "superior"])
def test_after_a_restore_nobody_hears_an_outcome_of_what_was_begun_since_the_backup(role: str) -> None:
    stage = below_another()
    place, note, answer = {
        "participant": (stage.member, Note.PREPARED, "Rollback"),
        "superior": (stage.above, Note.COMMIT, "Committed"),
    }[role]
    Coordination.objects.all().delete()
    _restore(back=3600)
    before = place.heard()
    for _ in range(2):
        assert place.say(note) == 202
    assert place.heard() == before
    lost = Incident.objects.get(cause="transaction_lost")
    assert (lost.occurrences, lost.state) == (2, "open")
    assert lost.pair is not None and note in lost.detail
    with transaction.atomic():
        pair = Pair.objects.select_for_update().get(pk=lost.pair_id)
        resync.clear(pair, by="ana", evidence="We have compared.", now=clock.now())
        pair.save()
    place.say(note)
    assert place.heard() == [*before, answer]
    assert Incident.objects.get(cause="transaction_lost").state == "resolved"


@pytest.mark.parametrize("begun", ["before the backup", "after the restore"])
def test_after_a_restore_what_was_forgotten_before_or_begun_since_is_answered(begun: str) -> None:
    if begun == "after the restore":
        below_another(names=("Higher", "Store"))
        _restore(back=3600)
    stage = below_another()
    Coordination.objects.all().delete()
    if begun == "before the backup":
        with clock.frozen(clock.now() + timedelta(hours=1)):
            _restore(back=60)
    stage.member.say(Note.PREPARED)
    assert stage.member.heard() == ["Rollback"]
    assert not Incident.objects.filter(cause="transaction_lost").exists()
