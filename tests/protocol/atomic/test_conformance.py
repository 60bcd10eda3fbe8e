"""The cases of atomic transactions that are decisions: what the machines do, without a wire."""

from __future__ import annotations

import pytest

from messaging.protocol.atomic import participant
from messaging.protocol.atomic.coordinator import ActKind, Kind, unknown
from messaging.protocol.atomic.participant import Taking
from messaging.protocol.atomic.words import FaultCode, Note, Phase, Seat
from messaging.protocol.errors import IllegalTransition

from .driver import C, D, Participant, V, begun, committing, preparing, said, sitting, subordinate, taking

P = participant.Kind


def test_t08_durable_registers_in_the_volatile_phase_and_is_prepared_later() -> None:
    tx = begun(v=V, i=C)
    assert tx.hear("i", Note.COMMIT) == "Prepare v"
    assert tx.enlist("d", D) == ""
    assert tx.seat("d") is Seat.ACTIVE
    assert tx.enlist("w", V) == "Prepare w"  # the phase lasts on
    assert tx.hear("v", Note.PREPARED) == "stop v"
    assert tx.hear("w", Note.READ_ONLY) == "stop w, forget w, Prepare d"
    assert tx.hear("d", Note.PREPARED) == "stop d, decide"


@pytest.mark.parametrize("protocol", [D, V, C])
def test_t09_nobody_registers_once_durable_ones_are_prepared_or_it_is_over(protocol) -> None:
    over = begun(d=D)
    over.do(Kind.ROLLBACK_ASKED)
    over.hear("d", Note.ABORTED)
    for tx in (preparing(d=D), committing(d=D), over, preparing(own=D)):
        before = tx.transaction
        assert tx.enlist("late", protocol) == "CannotRegisterParticipant late"
        assert tx.transaction == before
        assert tx.acts[0].reason


def test_t12_completion_only_is_committed_at_once() -> None:
    tx = begun(i=C)
    assert tx.hear("i", Note.COMMIT) == "outcome Committed i, end"
    assert tx.phase is Phase.COMMITTED
    assert tx.hear("i", Note.COMMIT) == "outcome Committed i"  # it asks again: the first answer was lost


def test_t13_completion_only_is_rolled_back() -> None:
    tx = begun(i=C)
    assert tx.hear("i", Note.ROLLBACK) == "outcome Aborted i, end"
    assert tx.phase is Phase.ABORTED
    assert tx.hear("i", Note.COMMIT) == "outcome Aborted i"


def test_t14_one_durable_commits() -> None:
    tx = begun(i=C, d=D)
    tx.hear("i", Note.COMMIT)
    tx.hear("d", Note.PREPARED)
    tx.do(Kind.DECIDED)
    tx.hear("d", Note.COMMITTED)
    assert tx.log[2:] == [
        "Prepare d",
        "stop d, decide",
        "Commit d, outcome Committed i",
        "stop d, forget d, end",
    ]
    assert (tx.phase, tx.transaction.decided) == (Phase.COMMITTED, True)


def test_t15_one_durable_rolls_back() -> None:
    tx = begun(i=C, d=D)
    assert tx.hear("i", Note.ROLLBACK) == "Rollback d, outcome Aborted i"
    assert tx.hear("d", Note.ABORTED) == "stop d, forget d, end"
    assert (tx.phase, tx.transaction.decided) == (Phase.ABORTED, False)


@pytest.mark.parametrize("first", [None, Note.PREPARED])
def test_t16_one_votes_aborted_and_the_other_is_rolled_back(first) -> None:
    tx = begun(i=C, a=D, b=D)
    tx.hear("i", Note.COMMIT)
    if first:
        tx.hear("b", first)
    stop = "" if first else "stop b, "
    assert tx.hear("a", Note.ABORTED) == f"stop a, forget a, {stop}Rollback b, outcome Aborted i"
    assert tx.hear("b", Note.ABORTED) == "stop b, forget b, end"
    assert (tx.phase, tx.transaction.decided) == (Phase.ABORTED, False)


def test_t17_a_read_only_one_has_no_second_phase() -> None:
    tx = begun(i=C, a=D, b=D)
    tx.hear("i", Note.COMMIT)
    assert tx.hear("a", Note.READ_ONLY) == "stop a, forget a"
    assert tx.hear("b", Note.PREPARED) == "stop b, decide"
    assert tx.do(Kind.DECIDED) == "Commit b, outcome Committed i"


def test_t18_all_read_only_commit_without_a_record() -> None:
    tx = begun(i=C, v=V, a=D, b=D)
    tx.hear("i", Note.COMMIT)
    tx.hear("v", Note.READ_ONLY)
    tx.hear("a", Note.READ_ONLY)
    assert tx.hear("b", Note.READ_ONLY) == "stop b, forget b, outcome Committed i, end"
    assert (tx.phase, tx.transaction.decided) == (Phase.COMMITTED, False)
    assert not any("decide" in line for line in tx.log)


def test_t19_every_volatile_vote_comes_before_the_first_durable_prepare() -> None:
    tx = begun(d=D, v=V, w=V, e=D)
    assert tx.do(Kind.COMMIT_ASKED) == "Prepare v, Prepare w"
    assert tx.hear("w", Note.PREPARED) == "stop w"
    assert tx.hear("v", Note.PREPARED) == "stop v, Prepare d, Prepare e"


def test_t20_an_early_read_only_is_forgotten_and_the_rest_commits() -> None:
    tx = begun(a=D, b=D)
    assert tx.hear("a", Note.READ_ONLY) == "stop a, forget a"
    assert tx.do(Kind.COMMIT_ASKED) == "Prepare b"


def test_t21_an_early_aborted_ends_it_and_commit_is_answered_aborted() -> None:
    tx = begun(i=C, a=D, b=D)
    assert tx.hear("a", Note.ABORTED) == "stop a, forget a, Rollback b, outcome Aborted i"
    assert tx.phase is Phase.ABORTING
    assert tx.hear("i", Note.COMMIT) == "outcome Aborted i"


def test_t26_prepared_after_it_is_forgotten() -> None:
    assert said(unknown(Note.PREPARED, D)) == "answer Rollback"
    assert said(unknown(Note.PREPARED, V)) == "UnknownTransaction"
    tx = begun(d=D, v=V)
    tx.do(Kind.COMMIT_ASKED)
    tx.do(Kind.EXPIRED)
    tx.hear("d", Note.ABORTED)
    tx.hear("v", Note.ABORTED)
    assert tx.phase is Phase.ABORTED
    assert tx.hear("d", Note.PREPARED) == "Rollback d"
    assert tx.hear("v", Note.PREPARED) == "UnknownTransaction v"


def test_t27_commit_again_to_a_participant_that_has_forgotten() -> None:
    one = taking(Seat.COMMITTING)
    assert one.do(P.WORK_COMMITTED) == "Committed, forget"
    assert one.hear(Note.COMMIT) == "Committed"


def test_t28_rollback_and_prepare_to_a_participant_that_has_forgotten() -> None:
    one = taking(Seat.NONE)
    assert one.hear(Note.ROLLBACK) == "Aborted"
    assert one.hear(Note.PREPARE) == "Aborted"


def test_t29_prepare_again_is_answered_from_the_record() -> None:
    one = taking(Seat.PREPARED)
    before = one.taking
    assert one.hear(Note.PREPARE) == "Prepared"
    assert one.taking == before


def test_t30_three_commits_are_one() -> None:
    one = taking(Seat.PREPARED)
    heard = [one.hear(Note.COMMIT) for _ in range(3)]
    assert heard == ["stop, commit_work", "ignore", "ignore"]
    assert one.do(P.WORK_COMMITTED) == "Committed, forget"


def test_t31_commit_without_a_vote_is_invalid_and_rolls_back() -> None:
    one = taking(Seat.ACTIVE)
    assert one.hear(Note.COMMIT) == "InvalidState, roll_back_work"
    assert one.seat is Seat.ABORTING
    one.do(P.WORK_ROLLED_BACK)
    assert one.hear(Note.COMMIT) == "InvalidState"  # never Committed
    assert one.hear(Note.ROLLBACK) == "Aborted, forget"


@pytest.mark.parametrize("note", [Note.ABORTED, Note.READ_ONLY])
def test_t32_who_voted_prepared_cannot_take_it_back(note) -> None:
    tx = preparing(a=D, b=D)
    tx.hear("a", Note.PREPARED)
    before = tx.transaction
    assert tx.hear("a", note) == "InvalidState a"
    assert tx.transaction == before


def test_t33_committed_from_an_active_participant_aborts() -> None:
    tx = begun(a=D, b=D)
    assert tx.hear("a", Note.COMMITTED) == "InvalidState a, Rollback a, Rollback b"
    assert tx.phase is Phase.ABORTING


def test_t34_committed_from_a_preparing_participant_aborts_and_it_is_not_forgotten() -> None:
    tx = preparing(a=D, b=D)
    assert tx.hear("a", Note.COMMITTED) == "InvalidState a, stop a, Rollback a, stop b, Rollback b"
    assert (tx.phase, tx.seat("a")) == (Phase.ABORTING, Seat.ABORTING)


def test_t37_a_record_that_cannot_be_written_rolls_back() -> None:
    tx = preparing(i=C, a=D, b=D, own=D)
    tx.hear("a", Note.PREPARED)
    assert tx.hear("b", Note.PREPARED) == "stop b, decide"
    assert tx.do(Kind.REFUSED) == "Rollback a, Rollback b, outcome Aborted i, forget own"
    assert not any("Commit " in line for line in tx.log)
    with pytest.raises(IllegalTransition):
        tx.do(Kind.DECIDED)


def test_t38_a_vote_that_cannot_be_written_is_aborted() -> None:
    one = taking(Seat.ACTIVE)
    assert one.hear(Note.PREPARE) == "prepare_work"
    assert one.do(P.WORK_FAILED) == "roll_back_work, Aborted, forget"
    assert one.seat is Seat.NONE


def test_t39_unknown_transaction_rolls_back_what_is_prepared() -> None:
    one = taking(Seat.PREPARED)
    assert one.fault(FaultCode.UNKNOWN_TRANSACTION) == "stop, roll_back_work, forget"


def test_t40_a_heuristic_rollback_meets_commit_and_both_sides_have_a_person_look() -> None:
    one = taking(Seat.PREPARED)
    one.do(P.SETTLED, Phase.ABORTED)
    assert one.hear(Note.COMMIT) == "stop, InconsistentInternalState, doubt"
    tx = committing(a=D)
    assert tx.fault("a", FaultCode.INCONSISTENT) == "stop a, doubt a"
    assert [act.cause for act in tx.acts] == ["", "heuristic_outcome"]
    assert tx.phase is Phase.COMMITTING  # until a person gives up on it
    assert tx.do(Kind.FORGOTTEN, "a") == "stop a, forget a, end"


def test_t40_the_same_of_a_subordinate_transaction() -> None:
    for outcome, heard in ((Phase.ABORTED, Kind.SUPERIOR_COMMIT), (Phase.COMMITTED, Kind.SUPERIOR_ROLLBACK)):
        tx = subordinate(d=D)
        tx.do(Kind.SUPERIOR_PREPARE)
        tx.hear("d", Note.PREPARED)
        tx.do(Kind.SETTLED, outcome=outcome)
        assert tx.do(heard) == "stop, InconsistentInternalState, doubt"
        tx.hear("d", Note.ABORTED if outcome is Phase.ABORTED else Note.COMMITTED)
        assert tx.phase is outcome
        assert tx.do(heard) == "stop, InconsistentInternalState, doubt"


def test_t41_replay_of_2006_06_says_what_prepared_would_and_is_remarked_upon() -> None:
    assert sitting(Seat.COMMITTING).hear("p", Note.REPLAY) == "remark p, Commit p"
    assert said(unknown(Note.REPLAY, D)) == "remark, answer Rollback"
    active = sitting(Seat.ACTIVE)
    assert active.hear("p", Note.REPLAY) == "remark p, Rollback p, Rollback q"
    assert active.phase is Phase.ABORTING
    for seat in Seat:
        one = taking(seat)
        one.do(P.RESTARTED)
        assert "Replay" not in one.log[-1]


def test_t42_replay_of_2004_10_is_emitted_after_a_restart_and_waits_for_the_decision() -> None:
    one = taking(Seat.PREPARED, version="2004/10")
    assert one.do(P.RESTARTED) == "Replay"
    assert one.do(P.RESEND) == "Prepared"
    assert sitting(Seat.PREPARED, version="2004/10").hear("p", Note.REPLAY) == "ignore p"


def test_t52_what_expires_is_rolled_back_and_commit_comes_too_late() -> None:
    tx = begun(i=C, a=D)
    assert tx.do(Kind.EXPIRED) == "Rollback a, outcome Aborted i"
    assert tx.hear("i", Note.COMMIT) == "outcome Aborted i"
    late = committing(a=D)
    assert late.do(Kind.EXPIRED) == "ignore"


def test_t11_a_subordinate_votes_when_its_own_have_voted() -> None:
    tx = subordinate(v=V, d=D)
    assert tx.do(Kind.SUPERIOR_PREPARE) == "Prepare v"
    tx.hear("v", Note.PREPARED)
    assert tx.hear("d", Note.PREPARED) == "stop d, vote Prepared"
    assert [act.note for act in tx.acts if act.awaits] == [Note.PREPARED]
    assert (tx.phase, tx.transaction.decided) == (Phase.PREPARED, False)
    assert tx.do(Kind.EXPIRED) == "ignore"
    assert tx.do(Kind.SUPERIOR_PREPARE) == "vote Prepared"
    assert tx.do(Kind.SUPERIOR_COMMIT) == "stop, Commit v, Commit d"
    assert tx.transaction.decided
    assert tx.do(Kind.SUPERIOR_COMMIT) == "ignore"
    tx.hear("v", Note.COMMITTED)
    assert tx.hear("d", Note.COMMITTED) == "stop d, forget d, vote Committed, end"
    assert tx.do(Kind.SUPERIOR_COMMIT) == "vote Committed"
    assert tx.do(Kind.SUPERIOR_ROLLBACK) == "vote Aborted"  # a repeat that was under way: the None column


def test_t11_a_subordinate_in_which_nobody_changed_anything_is_read_only() -> None:
    tx = subordinate(d=D)
    tx.do(Kind.SUPERIOR_PREPARE)
    assert tx.hear("d", Note.READ_ONLY) == "stop d, forget d, vote ReadOnly, end"
    assert subordinate().do(Kind.SUPERIOR_PREPARE) == "vote ReadOnly, end"


def test_t11_a_subordinate_rolls_back_and_says_so() -> None:
    tx = subordinate(d=D)
    assert tx.do(Kind.SUPERIOR_ROLLBACK) == "Rollback d, vote Aborted"
    assert tx.do(Kind.SUPERIOR_PREPARE) == "vote Aborted"
    tx = subordinate(d=D)
    tx.do(Kind.SUPERIOR_PREPARE)
    assert tx.hear("d", Note.ABORTED) == "stop d, forget d, vote Aborted, end"
    tx = subordinate(d=D)
    tx.do(Kind.SUPERIOR_PREPARE)
    tx.hear("d", Note.PREPARED)
    assert tx.do(Kind.SUPERIOR_ROLLBACK) == "stop, Rollback d, vote Aborted"


def test_t11_a_subordinate_refuses_what_only_its_superior_may_do() -> None:
    tx = subordinate(d=D)
    assert tx.enlist("i", C) == "CannotRegisterParticipant i"
    assert tx.enlist("own", D, local=True) == "CannotRegisterParticipant own"
    with pytest.raises(IllegalTransition, match="Another coordinator"):
        tx.do(Kind.COMMIT_ASKED)
    tx.do(Kind.SUPERIOR_PREPARE)
    tx.hear("d", Note.PREPARED)
    with pytest.raises(IllegalTransition, match="above it decides"):
        tx.do(Kind.ROLLBACK_ASKED)
    assert begun(d=D).do(Kind.ROLLBACK_ASKED) == "Rollback d"


@pytest.mark.parametrize(
    ("fault", "answer", "phase"),
    [
        (FaultCode.UNKNOWN_TRANSACTION, "stop, Rollback d", Phase.ABORTING),
        (FaultCode.INVALID_STATE, "doubt", Phase.PREPARED),
        (FaultCode.INCONSISTENT, "doubt", Phase.PREPARED),
    ],
)
def test_t39_faults_of_a_superior(fault, answer, phase) -> None:
    tx = subordinate(d=D)
    tx.do(Kind.SUPERIOR_PREPARE)
    tx.hear("d", Note.PREPARED)
    assert tx.do(Kind.SUPERIOR_FAULT, fault=fault) == answer
    assert tx.phase is phase
    active = subordinate(d=D)
    assert active.do(Kind.SUPERIOR_FAULT, fault=fault) == "Rollback d"


def test_t31_commit_of_a_superior_that_got_no_vote() -> None:
    tx = subordinate(d=D)
    assert tx.do(Kind.SUPERIOR_COMMIT) == "InvalidState, Rollback d"
    assert tx.do(Kind.SUPERIOR_COMMIT) == "InvalidState"
    tx.hear("d", Note.ABORTED)
    assert tx.phase is Phase.ABORTED
    # Forgotten, it would have to say Committed; the row knows better.
    assert tx.do(Kind.SUPERIOR_COMMIT) == "stop, InconsistentInternalState, doubt"


def test_a_superior_that_agrees_with_a_person_ends_the_doubt() -> None:
    tx = subordinate(d=D)
    tx.do(Kind.SUPERIOR_PREPARE)
    tx.hear("d", Note.PREPARED)
    assert tx.do(Kind.SETTLED, outcome=Phase.COMMITTED) == "Commit d"
    assert tx.do(Kind.SUPERIOR_PREPARE) == "vote Prepared"  # still asking
    assert tx.hear("d", Note.COMMITTED) == "stop d, forget d, end"
    assert tx.do(Kind.SUPERIOR_FAULT, fault=FaultCode.UNKNOWN_TRANSACTION) == "stop, doubt"
    assert tx.do(Kind.SUPERIOR_COMMIT) == "stop, vote Committed"
    assert tx.transaction.settled is None

    tx = subordinate(d=D)
    tx.do(Kind.SUPERIOR_PREPARE)
    tx.hear("d", Note.PREPARED)
    assert tx.do(Kind.SETTLED, outcome=Phase.ABORTED) == "stop, Rollback d, vote Aborted"
    assert tx.do(Kind.SUPERIOR_ROLLBACK) == "vote Aborted"
    assert tx.transaction.settled is None


def test_after_the_decision_nobody_rolls_back() -> None:
    tx = committing(i=C, d=D)
    assert tx.hear("i", Note.ROLLBACK) == "InvalidState i"
    assert tx.hear("i", Note.COMMIT) == "outcome Committed i"
    with pytest.raises(IllegalTransition, match="committed"):
        tx.do(Kind.ROLLBACK_ASKED)
    assert tx.do(Kind.COMMIT_ASKED) == "ignore"


def test_local_work_alone_is_decided_without_a_message() -> None:
    """What the hub does itself needs the record, and nobody else to be asked."""
    tx = begun(i=C, own=D, own_too=D)
    assert tx.hear("i", Note.COMMIT) == "decide"
    assert tx.phase is Phase.DECIDING
    assert tx.hear("i", Note.COMMIT) == "ignore i"
    assert tx.do(Kind.DECIDED) == "outcome Committed i, forget own, forget own_too, end"
    assert (tx.phase, tx.transaction.decided) == (Phase.COMMITTED, True)


def test_while_it_is_being_decided_time_and_people_still_roll_back() -> None:
    for kind in (Kind.EXPIRED, Kind.ROLLBACK_ASKED):
        tx = preparing(own=D, d=D)
        tx.hear("d", Note.PREPARED)
        assert tx.do(kind) == "Rollback d, forget own"
        with pytest.raises(IllegalTransition):
            tx.do(Kind.DECIDED)


def test_an_initiator_says_only_commit_and_rollback() -> None:
    tx = begun(i=C)
    assert tx.hear("i", Note.PREPARED) == "InvalidState i"
    assert tx.do(Kind.RESEND, "i") == "ignore i"
    assert tx.fault("i", FaultCode.INVALID_STATE) == "ignore i"
    assert tx.phase is Phase.ACTIVE
    assert tx.enlist("i", C) == "CannotRegisterParticipant i"


def test_a_participant_walks_through_a_whole_transaction() -> None:
    one = Participant()
    one.hear(Note.PREPARE)
    one.do(P.WORK_PREPARED)
    one.hear(Note.COMMIT)
    one.do(P.WORK_COMMITTED)
    assert one.log == ["prepare_work", "force_write, Prepared", "stop, commit_work", "Committed, forget"]
    assert one.taking == Taking(Seat.NONE)


def test_a_partaker_that_a_person_gave_up_on_still_learns_the_outcome() -> None:
    tx = committing(a=D, b=D)
    assert tx.do(Kind.FORGOTTEN, "a") == "stop a, forget a"
    assert tx.hear("a", Note.PREPARED) == "Commit a"
    assert ActKind.DOUBT not in {act.kind for act in tx.acts}
