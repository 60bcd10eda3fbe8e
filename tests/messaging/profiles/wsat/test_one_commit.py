"""Everything of one message is one commit, whoever dies and whoever comes at the same moment (T35 to T38).

With real commits: threads with connections of their own, and commits that fail.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from django.db import DatabaseError, connection, connections, models, transaction

from messaging.exceptions import WrongState
from messaging.models import Coordination, CoordinationMessage, Enlistment, Event, Message
from messaging.profiles.wsat import asking, delivering, due, opening, registering
from messaging.profiles.wsat.opening import LocalWorkFailed
from messaging.protocol.atomic.words import Note, Phase, Protocol, Seat
from messaging.protocol.ws.messages import Created, Octets, Registered
from rmhub.clock import FrozenClock
from tests.messaging.profiles.wsat.kit import Peer, Place, coordination_of, peer
from tests.messaging.profiles.wsat.test_subordinate import below_another
from tests.rmhub.conditions import eventually

pytestmark = pytest.mark.django_db(transaction=True)

CommitFails = Callable[[type[models.Model]], AbstractContextManager[None]]
WAIT = 120.0


def rows() -> list[object]:
    """All that a transaction is, without what only tells that somebody came by."""
    return [
        *Coordination.objects.order_by("id").values_list("phase", "decided_at", "lock_version", "cause"),
        *Enlistment.objects.order_by("id").values_list("seat", "vote", "register_message_id"),
        *CoordinationMessage.objects.order_by("at", "message_id").values_list("kind", "message__state", "note"),
        Message.objects.count(),
        Event.objects.count(),
    ]


def test_t35_t36_killed_before_any_commit_and_asked_again_every_message_leads_to_the_same_end(
    commit_fails: CommitFails,
) -> None:
    """Each message of a whole transaction is lost in the commit once, and comes again with the same octets."""
    app, shop = peer(), peer()

    def posted(one: Peer, service: str, octets: Octets) -> None:
        before = rows()
        with commit_fails(CoordinationMessage):
            assert one.post(service, octets) == 503
        assert rows() == before, "nothing of it happened"
        assert one.post(service, octets) == 202

    posted(app, "activation", app.creating(message_id="urn:uuid:create"))
    (created,) = app.answers_to("urn:uuid:create")
    assert isinstance(created.body, Created)
    context = created.body.context
    places = []
    for one, protocol in ((app, Protocol.COMPLETION), (shop, Protocol.DURABLE)):
        own, message_id = one.place(), f"urn:uuid:{protocol}"
        posted(one, "registration", one.registering(context, protocol, own, message_id=message_id))
        (registered,) = one.answers_to(message_id)
        assert isinstance(registered.body, Registered)
        places.append(Place(one, own, registered.body.coordinator))
    initiator, member = places

    for place, note in ((initiator, Note.COMMIT), (member, Note.PREPARED), (member, Note.COMMITTED)):
        posted(place.peer, place.hub.address, place.peer.write(note.value, to=place.hub, me=place.own))
    assert member.heard() == ["Prepare", "Commit"]
    assert initiator.heard() == ["Committed"]
    begun = coordination_of(context)
    assert (begun.phase, begun.decided_at is not None) == (Phase.COMMITTED, True)
    assert Coordination.objects.count() == 1
    assert Enlistment.objects.count() == 2
    assert Event.objects.filter(type="transaction.committed").count() == 1


def started() -> tuple[Place, Place, Place]:
    """A transaction whose initiator asked for commit, and two durable participants that are asked for their votes."""
    app = peer()
    context = app.create(expires_ms=60_000)
    initiator = app.register(context, Protocol.COMPLETION)
    members = [peer().register(context, Protocol.DURABLE) for _ in range(2)]
    initiator.say(Note.COMMIT)
    return initiator, members[0], members[1]


def test_t35_killed_before_the_commit_record_nobody_is_told_commit_and_expiry_rolls_back(
    commit_fails: CommitFails, time: FrozenClock
) -> None:
    initiator, one, other = started()
    one.say(Note.PREPARED)
    with commit_fails(CoordinationMessage):
        assert other.say(Note.PREPARED) == 503
    begun = initiator.enlistment.coordination
    assert (begun.phase, begun.decided_at) == (Phase.PREPARING_DURABLE, None)
    assert [one.heard(), other.heard(), initiator.heard()] == [["Prepare"], ["Prepare"], []]
    time.move(61)
    assert due.run_due() == 1
    assert [one.heard()[-1], other.heard()[-1], initiator.heard()] == ["Rollback", "Rollback", ["Aborted"]]
    one.say(Note.ABORTED)
    other.say(Note.ABORTED)
    other.say(Note.PREPARED)
    assert other.heard()[-1] == "Rollback", "presumed abort"


@pytest.mark.parametrize("broken", [DatabaseError("disk full"), LocalWorkFailed("transaction_local_work", "no")])
def test_t37_a_commit_record_that_cannot_be_written_rolls_back_and_is_never_commit(
    broken: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    initiator, one, other = started()
    one.say(Note.PREPARED)

    def fails(*args: object) -> None:
        Coordination.objects.update(begun_by="left behind")
        raise broken

    monkeypatch.setattr(delivering, "decide_locally", fails)
    assert other.say(Note.PREPARED) == 202
    begun = initiator.enlistment.coordination
    assert (begun.phase, begun.decided_at) == (Phase.ABORTING, None)
    assert begun.cause == "transaction_local_work"
    assert begun.begun_by != "left behind", "what the work had written is undone"
    assert [one.heard(), other.heard(), initiator.heard()] == [["Prepare", "Rollback"]] * 2 + [["Aborted"]]


def test_t38_a_vote_that_cannot_be_written_is_never_said_and_expiry_says_aborted(
    commit_fails: CommitFails, time: FrozenClock
) -> None:
    stage = below_another()
    stage.above.say(Note.PREPARE)
    with commit_fails(CoordinationMessage):
        assert stage.member.say(Note.PREPARED) == 503
    assert stage.above.heard() == []
    assert stage.row.phase == Phase.PREPARING_DURABLE
    time.move(61)
    assert due.run_due() == 1
    assert stage.above.heard() == ["Aborted"]
    assert stage.member.heard()[-1] == "Rollback"


def test_a_worker_that_dies_leaves_the_expired_one_due(commit_fails: CommitFails, time: FrozenClock) -> None:
    initiator, one, _ = started()
    time.move(61)
    with commit_fails(Event):
        assert due.run_due() == 0
    assert initiator.enlistment.coordination.phase == Phase.PREPARING_DURABLE
    assert one.heard() == ["Prepare"]
    assert due.run_due() == 1
    assert one.heard() == ["Prepare", "Rollback"]


# What a worker decides, because the hub's own work takes part


def test_what_a_worker_has_to_decide_stays_due_until_one_has(
    monkeypatch: pytest.MonkeyPatch, time: FrozenClock, commit_fails: CommitFails
) -> None:
    done: list[object] = []
    monkeypatch.setattr(delivering, "runs_here", lambda coordination: True)
    monkeypatch.setattr(delivering, "decide_locally", lambda coordination, now, written: done.append(coordination.pk))
    app = peer()
    context = app.create()
    member = app.register(context, Protocol.DURABLE)
    begun = coordination_of(context)
    with transaction.atomic():
        registering.enlist(
            coordination=opening.locked(begun.pk), protocol=Protocol.DURABLE, peer=None, terms=None, local="a callable"
        )
    asking.coordination_commit(coordination_id=begun.pk)
    member.say(Note.PREPARED)
    begun.refresh_from_db()
    assert (begun.phase, done, member.heard()) == (Phase.DECIDING, [], ["Prepare"])
    with commit_fails(Event):
        assert due.run_due() == 0
    begun.refresh_from_db()
    assert (begun.phase, begun.decided_at, member.heard()) == (Phase.DECIDING, None, ["Prepare"])
    assert due.run_due() == 0, "not at once: what failed may fail again"
    time.move(due.LEASE.total_seconds())
    assert due.run_due() == 1
    begun.refresh_from_db()
    assert (begun.phase, member.heard()) == (Phase.COMMITTING, ["Prepare", "Commit"])
    assert begun.enlistments.get(local="a callable").seat == Seat.NONE
    assert due.run_due() == 0


class Killed(BaseException):
    """The worker's process ends, whatever it was doing."""


def test_work_that_kills_its_worker_is_taken_up_again_after_its_lease_and_never_after_the_expiry(
    monkeypatch: pytest.MonkeyPatch, time: FrozenClock
) -> None:
    ran: list[object] = []

    def kills(coordination: Coordination, now: object, written: object) -> None:
        ran.append(coordination.pk)
        raise Killed

    monkeypatch.setattr(delivering, "runs_here", lambda coordination: True)
    monkeypatch.setattr(delivering, "decide_locally", kills)
    app = peer()
    context = app.create(expires_ms=60_000)
    member = app.register(context, Protocol.DURABLE)
    begun = coordination_of(context)
    asking.coordination_commit(coordination_id=begun.pk)
    member.say(Note.PREPARED)
    with pytest.raises(Killed):
        due.run_due()
    assert (due.run_due(), len(ran)) == (0, 1), "the other workers are let alone"
    time.move(due.LEASE.total_seconds())
    with pytest.raises(Killed):
        due.run_due()
    begun.refresh_from_db()
    assert (begun.phase, len(ran)) == (Phase.DECIDING, 2)
    time.move(due.LEASE.total_seconds())
    assert (due.run_due(), len(ran)) == (1, 2), "its time is over"
    begun.refresh_from_db()
    assert (begun.phase, begun.decided_at, begun.cause) == (Phase.ABORTING, None, due.EXPIRED)
    assert member.heard() == ["Prepare", "Rollback"]


# At the same moment


class Thread(threading.Thread):
    """Does one thing with connections of its own."""

    def __init__(self, what: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self.what, self.result, self.error = what, None, None
        self.start()

    def run(self) -> None:
        try:
            self.result = self.what()
        except Exception as error:
            self.error = error
        finally:
            connections.close_all()

    def done(self) -> Any:
        self.join(WAIT)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error
        return self.result


def waiting_for_locks() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")  # a transaction sees the same sessions until then
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return int(cursor.fetchone()[0])


def together(coordination: Coordination, *what: Callable[[], Any]) -> list[Any]:
    """Does all of it at the same moment: everybody stands before the transaction's lock until the last one has come."""
    with transaction.atomic():
        opening.locked(coordination.pk)
        threads = [Thread(one) for one in what]
        eventually(lambda: waiting_for_locks() == len(what), within=WAIT)
    return [thread.done() for thread in threads]


def test_the_last_two_votes_at_once_are_one_decision() -> None:
    initiator, one, other = started()
    begun = initiator.enlistment.coordination
    assert together(begun, lambda: one.say(Note.PREPARED), lambda: other.say(Note.PREPARED)) == [202, 202]
    assert [one.heard(), other.heard(), initiator.heard()] == [["Prepare", "Commit"]] * 2 + [["Committed"]]
    assert Event.objects.filter(type="transaction.committed").count() == 1
    begun.refresh_from_db()
    assert begun.phase == Phase.COMMITTING


def test_the_last_vote_and_a_rollback_at_once_have_one_outcome() -> None:
    initiator, one, other = started()
    begun = initiator.enlistment.coordination
    one.say(Note.PREPARED)

    def rollback() -> str:
        try:
            return asking.coordination_rollback(coordination_id=begun.pk, cause="transaction_rolled_back").phase
        except WrongState as wrong:
            return wrong.state

    _, phase = together(begun, lambda: other.say(Note.PREPARED), rollback)
    begun.refresh_from_db()
    told = "Commit" if begun.decided_at is not None else "Rollback"
    assert phase == begun.phase == (Phase.COMMITTING if told == "Commit" else Phase.ABORTING)
    assert "Commit" not in (one.heard() + other.heard()) or told == "Commit"
    assert one.heard()[-1] == told
    outcomes = Event.objects.filter(type__in=("transaction.committed", "transaction.aborted")).count()
    assert outcomes == 1


def test_two_workers_expire_a_transaction_once(time: FrozenClock) -> None:
    initiator, one, _ = started()
    time.move(61)
    begun = initiator.enlistment.coordination
    with transaction.atomic():
        opening.locked(begun.pk)
        assert Thread(due.run_due).done() == 0, "it passes over what another one holds"
    assert due.run_due() + due.run_due() == 1
    assert one.heard() == ["Prepare", "Rollback"]


@pytest.mark.parametrize("round_", range(3))
def test_the_same_create_twice_at_once_is_one_transaction(round_: int) -> None:
    app = peer()
    barrier = threading.Barrier(2)

    def create() -> int:
        barrier.wait(WAIT)
        return app.ask_create(message_id="urn:uuid:both")

    threads = [Thread(create) for _ in range(2)]
    assert [thread.done() for thread in threads] == [202, 202]
    assert Coordination.objects.count() == 1


def test_t57_the_same_register_twice_at_once_is_one_enlistment() -> None:
    app = peer()
    context = app.create()
    own = app.place()

    def register() -> int:
        return app.ask_register(context, Protocol.DURABLE, own=own, message_id="urn:uuid:both")

    assert together(coordination_of(context), register, register) == [202, 202]
    assert Enlistment.objects.count() == 1
    assert len(app.answers_to("urn:uuid:both")) == 1


def test_a_registration_and_the_end_of_the_volatile_phase_at_once() -> None:
    """Whoever comes first: the late participant is asked to prepare, or it is refused. Never left out of the vote."""
    app, late = peer(), peer()
    context = app.create()
    initiator, cache = app.register(context, Protocol.COMPLETION), app.register(context, Protocol.VOLATILE)
    app.register(context, Protocol.DURABLE)
    initiator.say(Note.COMMIT)
    begun = coordination_of(context)
    together(
        begun,
        lambda: cache.say(Note.PREPARED),
        lambda: late.ask_register(context, Protocol.DURABLE, message_id="urn:uuid:late"),
    )
    (answer,) = late.answers_to("urn:uuid:late")
    kinds = [one.kind for one in late.sent()]
    if answer.fault is None:
        assert "Prepare" in kinds
        assert begun.enlistments.count() == 4
    else:
        assert kinds == ["Fault"]
        assert begun.enlistments.count() == 3
