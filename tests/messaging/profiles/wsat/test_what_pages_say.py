"""What the page of a transaction says where its participants and its outcome are not all that there is to it.

The large demo world has transactions of every kind that an operator meets.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from django.db import transaction

from messaging.messages.selectors.history import Step
from messaging.models import Coordination, Enlistment, Incident, Message
from messaging.profiles.wsat import in_doubt, opening
from messaging.profiles.wsat.asking import coordination_rollback
from messaging.profiles.wsat.settling import enlistment_settle
from messaging.protocol.atomic.words import Note, Phase
from messaging.transactions.selectors import coordinations
from messaging.transactions.selectors.diagnosis import Diagnosis, Situation, diagnose
from messaging.transactions.selectors.sequence import sequence
from rmhub import clock
from rmhub.clock import FrozenClock
from rmhub.ids import read_public_id
from tests.messaging.profiles.wsat import scenes
from tests.messaging.profiles.wsat.kit import Place
from tests.messaging.profiles.wsat.test_subordinate import Stage, below_another
from tests.worlds.ux import certificates, directory, transactions
from tests.worlds.ux.plan import TROUBLES, Plan

pytestmark = pytest.mark.django_db


def said(one: Coordination) -> Diagnosis:
    known = coordinations.coordination(one.pk)
    return diagnose(known, coordinations.taking_part(known), clock.now(), pending=coordinations.pending(one.pk))


def steps(one: Coordination) -> list[Step]:
    return sequence(coordinations.coordination_screen(coordinations.coordination(one.pk))).steps


def give_up(place: Place) -> None:
    enlistment_settle(
        enlistment_id=place.enlistment.pk, outcome="forget", actor=scenes.ANA, reason="Their system is gone."
    )


def prepared() -> Stage:
    stage = below_another()
    stage.above.say(Note.PREPARE)
    stage.member.say(Note.PREPARED)
    return stage


def test_one_that_waits_for_its_superior_says_when_the_vote_goes_out_again(time: FrozenClock) -> None:
    stage = prepared()
    at = clock.now() + timedelta(seconds=7)
    Message.objects.filter(coordinating__kind="Prepared", direction="out").update(
        state="awaiting_ack", attempts=1, due_at=at
    )
    found = said(stage.row)
    assert (found.situation, found.next_at, found.next_what) == (Situation.SUPERIOR, at, "the vote is sent again")


def test_a_superior_that_does_not_answer_is_named_with_what_is_the_matter(time: FrozenClock) -> None:
    stage = prepared()
    with transaction.atomic():
        row = opening.locked(stage.row.pk)
        in_doubt.mark(row, stage.superior, in_doubt.SILENT, "Sent 11 times.", clock.now(), [])
    found = said(stage.row)
    assert (found.situation, found.headline) == (Situation.DOUBT, "Transaction: no answer: Above.")


def test_who_was_given_up_after_a_rollback_may_have_changed_something(time: FrozenClock) -> None:
    one, (shop, _) = scenes.prepared("Shop", "Stock")
    coordination_rollback(coordination_id=one.pk, actor=scenes.ANA, reason="The order was cancelled")
    give_up(shop)
    for rest in Enlistment.objects.filter(coordination=one, seat="aborting"):
        enlistment_settle(enlistment_id=rest.pk, outcome="forget", actor=scenes.ANA, reason="That one is gone, too.")
    found = said(one)
    assert (found.situation, found.headline) == (
        Situation.GIVEN_UP,
        "Rolled back on request. Shop and Stock were settled by a person.",
    )
    assert "Nobody has changed anything" not in found.headline + found.why


def test_one_that_a_person_rolled_back_here_says_so_once(time: FrozenClock) -> None:
    stage = prepared()
    enlistment_settle(
        enlistment_id=stage.superior.pk, outcome="rollback", actor=scenes.ANA, reason="It is permanently gone."
    )
    stage.member.say(Note.ABORTED)
    assert stage.row.phase == Phase.ABORTED
    assert said(stage.row).headline == "Rolled back; Above was settled by a person."


@pytest.mark.parametrize("ended", [False, True])
def test_the_rollback_stands_before_what_tells_of_it(time: FrozenClock, ended: bool) -> None:
    one, places = scenes.prepared("Shop", "Stock")
    time.move(5)
    places[0].say(Note.PREPARED)
    time.move(5)
    coordination_rollback(coordination_id=one.pk, actor=scenes.ANA, reason="The order was cancelled")
    time.move(5)
    for place in places if ended else places[:1]:
        place.say(Note.ABORTED)
    labels = [step.label for step in steps(one)]
    assert labels.count("Rollback") == 2 and labels.count("Rolled back") == 1
    assert labels.index("Prepared") < labels.index("Rolled back") < labels.index("Rollback")


def test_a_vote_against_stands_before_the_rollback_that_it_causes(time: FrozenClock) -> None:
    one, places = scenes.prepared("Shop", "Stock")
    time.move(5)
    places[0].say(Note.ABORTED)
    time.move(5)
    places[1].say(Note.ABORTED)
    labels = [step.label for step in steps(one)]
    assert labels.index("Aborted") < labels.index("Rolled back") < labels.index("Rollback")


@pytest.mark.parametrize(
    ("given_up", "label"),
    [(False, "Everybody has committed"), (True, "Ended: the participants that were given up have not confirmed it")],
)
def test_the_last_line_of_a_commit_does_not_speak_for_who_was_given_up(
    time: FrozenClock, given_up: bool, label: str
) -> None:
    one, (shop, stock) = scenes.committing("Shop", "Stock")
    time.move(5)
    stock.say(Note.COMMITTED)
    if given_up:
        give_up(shop)
    else:
        shop.say(Note.COMMITTED)
    marks = [step.label for step in steps(one) if step.kind == "mark"]
    assert marks[-1] == label
    assert ("Everybody has committed" in marks) is not given_up


def test_each_transaction_is_as_it_says(tmp_path: Path) -> None:
    now = clock.now()
    plan = Plan(now=now, folder=tmp_path, partners=len(TROUBLES) + 3, pairs=2 * (len(TROUBLES) + 4))
    certificates.write(tmp_path, now, now)
    lanes = directory.make(plan)
    directory.write_pairs(lanes)
    facts = transactions.happen(plan, lanes)["transactions"]
    assert isinstance(facts, dict)

    def situation(name: str) -> Situation:
        one = coordinations.coordination(read_public_id("txn", facts[name]))
        takers = coordinations.taking_part(one)
        return diagnose(one, takers, now, pending=coordinations.pending(one.pk)).situation

    assert {name: situation(name) for name in facts} == {
        "committed": Situation.COMMITTED,
        "aborted": Situation.ABORTED,
        "contradiction": Situation.CONTRADICTION,
        "silent": Situation.SILENT,
    }
    assert set(Incident.objects.values_list("cause", flat=True)) == {"heuristic_outcome", "transaction_peer_silent"}
    assert not Message.objects.filter(due_at__lt=now).exists(), "nothing was left undone"
    assert Coordination.objects.filter(created_at__lt=now).count() == len(facts)
