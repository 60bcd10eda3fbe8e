"""Outcomes of transmissions: each moves what it belongs to, once; the timers of table 2-1 follow from them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import pytest
from django.db import OperationalError, connection

from messaging.engine import recording
from messaging.engine.claiming import Job, claim_due
from messaging.engine.group import GroupCommit
from messaging.engine.recording import record
from messaging.journal.audit import Actor
from messaging.models import Event, Incident, Message, Signal, Transmission
from messaging.pairs.services import operating
from messaging.transports import Receipt
from rmhub.clock import FrozenClock, frozen
from tests.messaging.factories import REFUSED, TAKEN, PartnerSide, link, partner_side, submit, work

pytestmark = pytest.mark.django_db

AT = datetime(2026, 5, 1, 12, tzinfo=UTC)
ANN = Actor("ann")
WAIT = 120.0


@pytest.fixture
def time() -> Iterator[FrozenClock]:
    with frozen(AT) as clock:
        yield clock


def due_in(partner: PartnerSide) -> float | None:
    """Seconds from the start of the test until the pair is due."""
    due = partner.outbound.due_at
    return None if due is None else (due - AT).total_seconds()


def test_handed_over_it_waits_for_its_answer(time: FrozenClock) -> None:
    partner = partner_side(timeout=30)
    message = submit(partner)
    [job] = claim_due(limit=10)
    time.move(2)
    receipt = Receipt(ok=True, status=202, response=b"HTTP 202 Accepted\r\n\r\n\x00\xff")
    assert record([(job, receipt)]) == [True]
    message.refresh_from_db()
    assert (message.state, partner.outbound.flow, due_in(partner)) == ("awaiting_ack", "awaiting_ack", 32)
    transmission = Transmission.objects.get()
    assert (transmission.outcome, transmission.http_status) == ("sent", 202)
    assert bytes(transmission.response or b"") == b"HTTP 202 Accepted\r\n\r\n\x00\xff"
    assert (transmission.started_at, transmission.finished_at) == (AT, AT + timedelta(seconds=2))


def test_a_failed_transport_is_tried_again_below_reliable_messaging(time: FrozenClock) -> None:
    """2.5.4: recovery of the transport has a counter of its own; then it counts as a send without an answer."""
    partner = partner_side(timeout=30, retries=1, retry_interval=20, transport_retries=2, transport_retry_interval=5)
    message = submit(partner)
    attempts: list[float] = []
    with link(REFUSED):
        while partner.outbound.flow != "suspended":
            if work():
                attempts.append((time.move(0) - AT).total_seconds())
                message.refresh_from_db()
                assert (message.state, message.cause) == ("retrying", "connect_refused")
            time.move(1)
    # Three attempts 5 s apart, then RetryInterval, the one retry with its own recovery, and RetryInterval again.
    assert attempts == [0, 5, 10, 30, 35, 40]
    assert (time.move(0) - AT).total_seconds() == 61
    pair = partner.outbound
    assert (pair.cause, pair.cause_detail) == ("connect_refused", "Connection refused.")
    message.refresh_from_db()
    assert (message.state, message.cause) == ("failed", "connect_refused")
    assert Incident.objects.get().cause == "connect_refused"


def test_the_schedule_without_an_answer(time: FrozenClock) -> None:
    """Table 2-1 and 2.1.4: Timeout after the first send, RetryInterval after each retry, then suspended."""
    partner = partner_side(timeout=30, retries=3, retry_interval=10)
    submit(partner)
    sends: list[float] = []
    with link():
        while partner.outbound.flow != "suspended":
            if work():
                sends.append((time.move(0) - AT).total_seconds())
            time.move(1)
    assert sends == [0, 30, 40, 50]
    assert (time.move(0) - AT).total_seconds() == 61
    assert partner.outbound.cause == "ack_timeout"
    types = list(Event.objects.order_by("id").values_list("type", flat=True))
    assert types == [
        "message.accepted", "message.retrying", "pair.retry_budget", "message.retrying", "pair.retry_budget",
        "message.retrying", "message.failed", "pair.suspended", "incident.opened",
    ]  # fmt: skip


@pytest.mark.parametrize("permanent", [True, False])
def test_a_failure_that_time_does_not_mend_is_shown_at_once_and_tried_again(permanent: bool, time: FrozenClock) -> None:
    partner = partner_side(transport_retries=2, transport_retry_interval=5)
    submit(partner)
    refused = Receipt(ok=False, status=404, cause="http_404", detail="HTTP 404.", permanent=permanent)
    with link(refused):
        work()
        assert Incident.objects.count() == permanent
        time.move(5)
        work()
    assert [incident.occurrences for incident in Incident.objects.all()] == [2] * permanent
    assert partner.outbound.flow == "resend_wait"


def test_many_outcomes_of_all_kinds_are_one_commit() -> None:
    partners = [partner_side() for _ in range(3)]
    for partner in partners:
        submit(partner)
        submit(partner, semantics="AtMostOnce")
        partner.send(partner.message(1))
    jobs = claim_due(limit=64)
    assert len(jobs) == 9
    outcomes = [(job, TAKEN if index % 2 else REFUSED) for index, job in enumerate(jobs)]
    assert record(outcomes) == [True] * 9
    assert Transmission.objects.filter(outcome="on_the_wire").count() == 0
    for job, receipt in outcomes:
        assert Transmission.objects.get(pk=job.transmission_id).outcome == ("sent" if receipt.ok else "failed")
    assert record(outcomes) == [False] * 9, "recorded twice, it moves nothing"


def test_nothing_to_record_is_nothing() -> None:
    assert record([]) == []


def test_an_outcome_after_a_resume_moves_nothing(time: FrozenClock) -> None:
    """A person resumed while the old attempt was still on the wire of a worker that everybody took for dead."""
    partner = partner_side(retries=0, transport_retries=0)
    message = submit(partner)
    [stale] = claim_due(limit=10)
    time.move(10_000)
    claim_due(limit=10)
    time.move(10_000)
    claim_due(limit=10)
    assert partner.outbound.flow == "suspended"
    operating.pair_resume(pair_id=partner.outbound.pk, actor=ANN, reason="again")
    assert record([(stale, REFUSED)]) == [False]
    [job] = claim_due(limit=10)
    assert record([(stale, REFUSED), (job, TAKEN)]) == [False, True]
    message.refresh_from_db()
    assert message.state == "awaiting_ack"


def test_an_outcome_for_a_message_that_was_skipped_meanwhile_moves_nothing(time: FrozenClock) -> None:
    partner = partner_side()
    submit(partner)
    following = submit(partner)
    [stale] = claim_due(limit=10)
    time.move(55)
    claim_due(limit=10)  # the lease ran out; it waits to be sent again
    operating.pair_skip_head(pair_id=partner.outbound.pk, actor=ANN, reason="not wanted any more")
    [job] = claim_due(limit=10)
    assert (job.message_id, record([(stale, TAKEN)])) == (following.pk, [False])
    following.refresh_from_db()
    assert following.state == "sending"


def test_an_acknowledgement_on_the_wire_keeps_count_of_what_came_meanwhile() -> None:
    partner = partner_side()
    arrival = partner.message(1)
    partner.send(arrival)
    [job] = claim_due(limit=10)
    for _ in range(2):
        partner.send(arrival)
    signal = Signal.objects.get()
    assert (signal.state, signal.owed) == ("sending", 3)
    assert claim_due(limit=10) == [], "one at a time"
    record([(job, TAKEN)])
    signal.refresh_from_db()
    assert (signal.state, signal.owed, signal.sends) == ("pending", 2, 1)
    for left in (1, 0):
        [job] = claim_due(limit=10)
        record([(job, TAKEN)])
        signal.refresh_from_db()
        assert signal.owed == left
    assert (signal.state, signal.due_at, signal.sends) == ("sent", None, 3)


@pytest.mark.django_db(transaction=True)
def test_outcomes_of_many_threads_are_recorded_in_groups_and_each_hears_of_its_own() -> None:
    partners = [partner_side() for _ in range(8)]
    for partner in partners:
        submit(partner)
    jobs = claim_due(limit=64)
    group = GroupCommit(record)
    outcomes = [(job, TAKEN if index % 2 else REFUSED) for index, job in enumerate(jobs)]
    moved: dict[object, bool] = {}
    start = threading.Barrier(8)

    def run(job: Job, receipt: Receipt) -> None:
        try:
            start.wait(WAIT)
            moved[job.transmission_id] = group.submit((job, receipt))
        finally:
            connection.close()

    for expected in (True, False):  # the second time round, every outcome is stale
        threads = [threading.Thread(target=run, args=outcome) for outcome in outcomes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT)
            assert not thread.is_alive()
        assert set(moved.values()) == {expected}
        for job, receipt in outcomes:
            state = Message.objects.get(pk=job.message_id).state
            assert state == ("awaiting_ack" if receipt.ok else "retrying")


@pytest.mark.django_db(transaction=True)
def test_a_record_that_fails_leaves_everything_to_the_lease(time: FrozenClock) -> None:
    partner = partner_side()
    message = submit(partner)
    [job] = claim_due(limit=10)
    with (
        mock.patch.object(recording, "bulk_set", side_effect=OperationalError("gone")),
        pytest.raises(OperationalError),
    ):
        record([(job, TAKEN)])
    message.refresh_from_db()
    assert (message.state, partner.outbound.flow) == ("sending", "sending")
    time.move(55)
    again = claim_due(limit=10) + claim_due(limit=10)
    assert [j.parcel.body for j in again] == [job.parcel.body]


# --- acknowledgements of ours ---


@pytest.mark.parametrize("late", [TAKEN, REFUSED], ids=["taken", "refused"])
def test_the_outcome_of_a_lost_hand_over_moves_no_acknowledgement(time: FrozenClock, late: Receipt) -> None:
    """Its worker was believed dead, and another has it on the wire: one is owed until that hand-over ends."""
    partner = partner_side(transport_retries=2)
    partner.send(partner.message(1))
    [first] = claim_due(limit=10)
    time.move(600)
    [second] = claim_due(limit=10)
    assert record([(first, late)]) == [False]
    signal = Signal.objects.get()
    assert (signal.state, signal.owed, signal.sends) == ("sending", 1, 0)
    assert record([(second, TAKEN)]) == [True]
    signal.refresh_from_db()
    assert (signal.state, signal.owed, signal.sends) == ("sent", 0, 1)


def test_what_is_due_again_at_once_wakes_a_worker(
    time: FrozenClock, woken: list[str], django_capture_on_commit_callbacks: Any
) -> None:
    """A claim that came while the outcome held the lock has passed the pair over, and nobody else would tell."""
    partner = partner_side(transport_retries=2, transport_retry_interval=0)
    submit(partner)
    [job] = claim_due(limit=10)
    woken.clear()
    with django_capture_on_commit_callbacks(execute=True):
        assert record([(job, REFUSED)]) == [True]
    assert (partner.outbound.flow, partner.outbound.due_at) == ("resend_wait", AT)
    assert woken == ["messaging.send_due"]
