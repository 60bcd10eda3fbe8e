"""The hub as participant of a transaction that another coordinator decides (conformance T28 to T31, T38 to T40)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from messaging.exceptions import InvalidSubmission, Stale, WrongState
from messaging.journal.audit import Actor
from messaging.models import AuditEntry, Coordination, Enlistment, Event, Incident
from messaging.profiles.wsat import asking, due
from messaging.profiles.wsat.settling import enlistment_settle, settlements, warning
from messaging.protocol.atomic.words import FaultCode, Note, Phase, Protocol, Seat
from messaging.protocol.ws.messages import CoordinationContext, EndpointReference, Register
from messaging.protocol.ws.names import Version, coordination_type
from rmhub.clock import FrozenClock
from tests.messaging.profiles.wsat.kit import Peer, Place, peer

pytestmark = pytest.mark.django_db

PREPARE, COMMIT, ROLLBACK = Note.PREPARE, Note.COMMIT, Note.ROLLBACK
ANNA = Actor("anna")
REASON = "The coordinator's machine is permanently gone."


@dataclass(slots=True)
class Stage:
    """A subordinate transaction: `above` decides, `member` (of `shop`) takes part below the hub."""

    above: Place
    member: Place
    shop: Peer

    @property
    def row(self) -> Coordination:
        return Coordination.objects.get()

    @property
    def superior(self) -> Enlistment:
        return Enlistment.objects.get(superior=True)


@pytest.fixture
def stage() -> Stage:
    return below_another()


def below_another(coordination_version: str = "2006/06", names: tuple[str, str] = ("Above", "Shop")) -> Stage:
    """A subordinate transaction of 60 s that its superior has taken, with one participant below."""
    root, shop = (peer(name, coordination_version=coordination_version) for name in names)
    kind = coordination_type(Version(coordination_version))
    current = CoordinationContext(
        f"urn:upstream:{names[0]}", EndpointReference(f"{root.base}/registration"), kind, 60_000
    )
    root.ask_create(current=current, message_id="urn:uuid:create")
    (register,) = root.sent()
    assert isinstance(register.body, Register)
    coordinator = root.place("coordinator")
    root.registered(register, own=coordinator)
    (created,) = root.answers_to("urn:uuid:create")
    member = shop.register(created.body.context, Protocol.DURABLE)  # type: ignore[union-attr]
    return Stage(Place(root, coordinator, register.body.participant), member, shop)


def test_t11_a_whole_transaction_below_another_coordinator(stage: Stage) -> None:
    stage.above.say(PREPARE)
    assert stage.member.heard() == ["Prepare"]
    assert stage.above.heard() == [], "no vote before those below have voted"
    stage.member.say(Note.PREPARED)
    assert stage.above.heard() == ["Prepared"]
    assert stage.row.phase == Phase.PREPARED
    assert stage.row.decided_at is None
    assert stage.member.heard() == ["Prepare"]
    stage.above.say(COMMIT)
    assert stage.member.heard() == ["Prepare", "Commit"]
    assert stage.above.heard() == ["Prepared"], "Committed when those below have committed"
    stage.member.say(Note.COMMITTED)
    assert stage.above.heard() == ["Prepared", "Committed"]
    assert (stage.row.phase, stage.superior.seat) == (Phase.COMMITTED, Seat.NONE)
    assert stage.row.decided_at is not None


def test_t28_in_none_prepare_and_rollback_are_aborted_and_commit_is_committed(stage: Stage) -> None:
    stage.row.delete()
    for note, answer in ((ROLLBACK, "Aborted"), (PREPARE, "Aborted"), (COMMIT, "Committed")):
        stage.above.say(note)
        assert stage.above.heard()[-1] == answer


def test_t28_rollback_again_is_answered_again(stage: Stage) -> None:
    stage.above.say(ROLLBACK)
    assert stage.member.heard() == ["Rollback"]
    stage.member.say(Note.ABORTED)
    assert stage.above.heard() == ["Aborted"]
    stage.above.say(ROLLBACK)
    assert stage.above.heard() == ["Aborted", "Aborted"]
    stage.above.say(PREPARE)
    assert stage.above.heard() == ["Aborted"] * 3
    assert (stage.row.phase, stage.row.cause) == (Phase.ABORTED, "transaction_superior_rolled_back")


def test_t29_prepare_again_is_answered_with_the_same_vote(stage: Stage) -> None:
    stage.above.say(PREPARE)
    stage.above.say(PREPARE)
    assert stage.member.heard() == ["Prepare"], "asked once"
    stage.member.say(Note.PREPARED)
    voted_at = stage.superior.voted_at
    stage.above.say(PREPARE)
    assert stage.above.heard() == ["Prepared"], "the one message that is open, due at once"
    (vote,) = stage.above.sent()
    assert vote.facts.awaits
    assert stage.superior.voted_at == voted_at


def test_t30_three_commits_are_one(stage: Stage) -> None:
    stage.above.say(PREPARE)
    stage.member.say(Note.PREPARED)
    for _ in range(3):
        stage.above.say(COMMIT)
    assert stage.member.heard() == ["Prepare", "Commit"]
    stage.member.say(Note.COMMITTED)
    assert stage.above.heard() == ["Prepared", "Committed"]


def test_t31_commit_without_a_vote_is_invalid_and_rolls_back(stage: Stage) -> None:
    stage.above.say(COMMIT, message_id="urn:uuid:t31")
    (fault,) = stage.above.peer.answers_to("urn:uuid:t31")
    assert fault.fault is FaultCode.INVALID_STATE
    assert stage.member.heard() == ["Rollback"]
    assert stage.row.phase == Phase.ABORTING
    assert stage.row.decided_at is None


def test_a_vote_against_is_said_above(stage: Stage) -> None:
    stage.above.say(PREPARE)
    stage.member.say(Note.ABORTED)
    assert stage.above.heard() == ["Aborted"]
    assert (stage.row.phase, stage.row.cause) == (Phase.ABORTED, "transaction_voted_no")
    stage.above.say(COMMIT)
    assert stage.member.heard() == ["Prepare"]


def test_nobody_below_who_has_to_commit_is_read_only(stage: Stage) -> None:
    stage.above.say(PREPARE)
    stage.member.say(Note.READ_ONLY)
    assert stage.above.heard() == ["ReadOnly"]
    assert stage.row.phase == Phase.COMMITTED


def test_it_expires_before_its_vote_and_never_after_it(time: FrozenClock, stage: Stage) -> None:
    stage.above.say(PREPARE)
    stage.member.say(Note.PREPARED)
    time.move(86_400)
    assert due.run_due() == 0
    assert stage.row.phase == Phase.PREPARED, "only its superior knows"


def test_without_a_word_of_its_superior_it_is_rolled_back_for_that(time: FrozenClock, stage: Stage) -> None:
    time.move(3600)
    assert due.run_due() == 1
    assert (stage.row.phase, stage.row.cause) == (Phase.ABORTING, "transaction_superior_silent")
    assert stage.row.cause_detail == "Its coordinator had asked for no vote until 2026-03-01 12:01:00 UTC."


def test_one_whose_superior_asked_for_the_vote_expires_as_any_other(time: FrozenClock, stage: Stage) -> None:
    stage.above.say(PREPARE)
    time.move(3600)
    due.run_due()
    assert stage.row.cause == "transaction_expired"


@pytest.mark.parametrize("verb", [asking.coordination_commit, asking.coordination_rollback])
def test_nobody_here_decides_instead_of_the_superior(verb: Callable[..., Coordination], stage: Stage) -> None:
    stage.above.say(PREPARE)
    stage.member.say(Note.PREPARED)
    with pytest.raises(WrongState):
        verb(coordination_id=stage.row.pk, actor=ANNA, reason="I want it.")
    assert asking.possible(stage.row) == ()


def test_t39_unknown_transaction_rolls_a_prepared_one_back(stage: Stage) -> None:
    stage.above.say(PREPARE)
    stage.member.say(Note.PREPARED)
    assert stage.above.fault(FaultCode.UNKNOWN_TRANSACTION, stage.above.sent()[0].message.message_id) == 202
    assert stage.member.heard() == ["Prepare", "Rollback"]
    stage.member.say(Note.ABORTED)
    assert stage.row.phase == Phase.ABORTED
    assert stage.row.doubtful_since is None
    (vote,) = stage.above.sent()
    assert vote.message.state in ("cancelled", "delivered"), "the vote is not repeated any more"


def test_another_fault_of_the_superior_leaves_it_in_doubt(stage: Stage) -> None:
    stage.above.say(PREPARE)
    stage.member.say(Note.PREPARED)
    stage.above.fault(FaultCode.INVALID_STATE, stage.above.sent()[0].message.message_id)
    assert stage.row.phase == Phase.PREPARED
    assert stage.row.doubtful_since is not None
    assert stage.superior.doubt == "transaction_peer_refused"
    assert Incident.objects.get().cause == "transaction_peer_refused"
    assert Event.objects.filter(type="transaction.in_doubt").count() == 1
    stage.above.say(COMMIT)
    assert stage.row.phase == Phase.COMMITTING
    assert stage.row.doubtful_since is None, "it answered after all, however long those below need"
    assert Incident.objects.get().state == "resolved"


# T40: people decide, and the superior decides otherwise


def prepared(stage: Stage) -> Enlistment:
    stage.above.say(PREPARE)
    stage.member.say(Note.PREPARED)
    return stage.superior


def test_t40_rolled_back_by_a_person_and_the_superior_commits(stage: Stage) -> None:
    superior = prepared(stage)
    assert settlements(superior) == ("commit", "rollback")
    assert "compare the data" in warning(superior, "rollback")
    settled = enlistment_settle(enlistment_id=superior.pk, outcome="rollback", actor=ANNA, reason=REASON)
    assert (settled.settled_as, settled.settled_by, settled.settled_reason) == ("aborted", "anna", REASON)
    assert stage.member.heard() == ["Prepare", "Rollback"]
    stage.member.say(Note.ABORTED)
    assert (stage.row.phase, stage.row.cause) == (Phase.ABORTED, "transaction_settled")
    entry = AuditEntry.objects.get(verb="transaction.settle_rollback")
    assert (entry.actor, entry.reason) == ("anna", REASON)

    stage.above.say(COMMIT, message_id="urn:uuid:t40")
    (fault,) = stage.above.peer.answers_to("urn:uuid:t40")
    assert fault.fault is FaultCode.INCONSISTENT
    incident = Incident.objects.get()
    assert (incident.cause, incident.state) == ("heuristic_outcome", "open")
    assert incident.coordination == stage.row
    assert stage.row.doubtful_since is not None
    assert settlements(stage.superior) == ("forget",)
    enlistment_settle(enlistment_id=superior.pk, outcome="forget", actor=ANNA, reason="Compared and fixed by hand.")
    assert stage.row.doubtful_since is None
    assert Incident.objects.get().state == "resolved"


def test_t40_committed_by_a_person_and_the_superior_rolls_back(stage: Stage) -> None:
    superior = prepared(stage)
    enlistment_settle(enlistment_id=superior.pk, outcome="commit", actor=ANNA, reason=REASON)
    assert stage.member.heard() == ["Prepare", "Commit"]
    stage.member.say(Note.COMMITTED)
    assert stage.row.phase == Phase.COMMITTED
    assert stage.row.decided_at is not None
    stage.above.say(ROLLBACK, message_id="urn:uuid:t40")
    (fault,) = stage.above.peer.answers_to("urn:uuid:t40")
    assert fault.fault is FaultCode.INCONSISTENT
    assert Incident.objects.get().cause == "heuristic_outcome"


def test_a_person_and_the_superior_agree(stage: Stage) -> None:
    superior = prepared(stage)
    enlistment_settle(enlistment_id=superior.pk, outcome="commit", actor=ANNA, reason=REASON)
    stage.member.say(Note.COMMITTED)
    stage.above.say(COMMIT)
    assert stage.above.heard()[-1] == "Committed"
    assert not Incident.objects.exists()
    told = Event.objects.filter(type="transaction.settled").get()
    assert (told.data["actor"], told.data["outcome"]) == ("anna", "commit")


def test_after_both_agree_a_repeated_rollback_is_no_contradiction(stage: Stage) -> None:
    """A vote that came late to a superior that has forgotten is answered with Rollback (presumed abort)."""
    superior = prepared(stage)
    enlistment_settle(enlistment_id=superior.pk, outcome="commit", actor=ANNA, reason=REASON)
    stage.above.say(COMMIT)  # while those below are still committing
    stage.member.say(Note.COMMITTED)
    assert stage.above.heard()[-1] == "Committed"
    stage.above.say(ROLLBACK)
    assert stage.above.heard()[-1] == "Aborted"
    assert not Incident.objects.exists()
    assert stage.superior.settled_as == "committed"


def test_a_contradiction_is_dealt_with_while_those_below_still_commit(stage: Stage) -> None:
    superior = prepared(stage)
    enlistment_settle(enlistment_id=superior.pk, outcome="commit", actor=ANNA, reason=REASON)
    stage.above.say(ROLLBACK)
    assert (stage.row.phase, stage.superior.doubt) == (Phase.COMMITTING, "heuristic_outcome")
    assert settlements(stage.superior) == ("forget",)
    enlistment_settle(enlistment_id=superior.pk, outcome="forget", actor=ANNA, reason="Compared and fixed by hand.")
    assert (stage.row.phase, stage.row.doubtful_since) == (Phase.COMMITTING, None)


def test_settling_asks_for_a_reason_the_right_state_and_what_was_looked_at(stage: Stage) -> None:
    superior = stage.superior
    with pytest.raises(WrongState):
        enlistment_settle(enlistment_id=superior.pk, outcome="commit", actor=ANNA, reason=REASON)
    prepared(stage)
    with pytest.raises(InvalidSubmission):
        enlistment_settle(enlistment_id=superior.pk, outcome="commit", actor=ANNA, reason="short")
    with pytest.raises(InvalidSubmission):
        enlistment_settle(enlistment_id=superior.pk, outcome="perhaps", actor=ANNA, reason=REASON)
    with pytest.raises(Stale):
        enlistment_settle(enlistment_id=superior.pk, outcome="commit", actor=ANNA, reason=REASON, expected_version=1)
    assert stage.row.phase == Phase.PREPARED
    assert not AuditEntry.objects.filter(verb__startswith="transaction.").exists()


# T40, the other side: the hub as coordinator


def test_t40_a_participant_that_did_the_opposite_is_an_incident_here_too() -> None:
    app = peer()
    context = app.create()
    initiator, member = app.register(context, Protocol.COMPLETION), peer("Shop").register(context, Protocol.DURABLE)
    initiator.say(COMMIT)
    member.say(Note.PREPARED)
    assert member.fault(FaultCode.INCONSISTENT, member.sent()[-1].message.message_id) == 202
    row = Coordination.objects.get()
    assert (row.phase, row.doubtful_since is not None) == (Phase.COMMITTING, True)
    assert member.enlistment.doubt == "heuristic_outcome"
    assert "rolled back" in member.enlistment.doubt_detail
    assert Incident.objects.get().cause == "heuristic_outcome"
    assert settlements(member.enlistment) == ("forget",)
    enlistment_settle(
        enlistment_id=member.enlistment.pk, outcome="forget", actor=ANNA, reason="The order was booked by hand."
    )
    row.refresh_from_db()
    assert (row.phase, row.doubtful_since) == (Phase.COMMITTED, None)
    assert member.enlistment.settled_as == "forget"
    assert Incident.objects.get().state == "resolved"
