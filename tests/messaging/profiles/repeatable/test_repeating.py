"""Our side as a sender of repeatable requests (spec 2): repeats within the partner's window, and never past it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.db import connection
from django.db.models import Min
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from messaging import transports
from messaging.engine import leases, preparing
from messaging.engine.claiming import JobKind, claim_due
from messaging.engine.recording import record
from messaging.exceptions import DuplicateMessageId, InvalidSubmission, WrongState
from messaging.journal.audit import Actor
from messaging.messages.services.submitting import NewPayload, message_submit
from messaging.models import AuditEntry, Event, Incident, Message, Pair, Transmission
from messaging.pairs.services import operating
from messaging.profiles.repeatable import repeating, replies
from messaging.protocol.repeating import Reached
from messaging.transports import Parcel, Receipt
from partners import registry
from rmhub import clock
from rmhub.clock import FrozenClock, frozen
from tests.messaging.factories import (
    ACTION,
    LOST,
    ORDER,
    REFUSED,
    SERVICE,
    TAKEN,
    Link,
    PartnerSide,
    answered,
    link,
    partner_side,
    submit,
    work,
)

pytestmark = pytest.mark.django_db

AT = datetime(2026, 5, 1, 12, 0, 0, 734_000, tzinfo=UTC)
FIRST_SENT = AT.replace(microsecond=0)
ANN = Actor("ann")
LEASE = 10 + 30 + 15  # connect and read timeout of an endpoint, and what is allowed beside them
HOUR, DAY = 3600, 86_400
LONG = 30.0


@pytest.fixture
def time() -> Iterator[FrozenClock]:
    with frozen(AT) as clock:
        yield clock


@pytest.fixture(autouse=True)
def no_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits are as long as they may be: 20 s, 40 s, 80 s ... with the factories' terms."""
    monkeypatch.setattr(replies, "jitter", lambda: 1.0)


@pytest.fixture
def wire() -> Iterator[Link]:
    with link(answered()) as found:
        yield found


def partner(**terms: object) -> PartnerSide:
    return partner_side(profile="repeatable", **terms)


def fresh(message: Message) -> Message:
    return Message.objects.get(pk=message.pk)


def states(*messages: Message) -> list[str]:
    return [fresh(message).state for message in messages]


def incidents() -> list[tuple[str, str]]:
    return list(Incident.objects.order_by("number").values_list("cause", "state"))


def types_of(message: Message) -> list[str]:
    return list(Event.objects.filter(message=message).order_by("id").values_list("type", flat=True))


def run_for(time: FrozenClock, seconds: float) -> None:
    """A worker that looks whenever something is due, for so long."""
    end = clock.now() + timedelta(seconds=seconds)
    while True:
        looks = (Message.objects, Pair.objects.filter(gate="open"))
        due = [at for look in looks if (at := look.aggregate(at=Min("due_at"))["at"]) is not None]
        upcoming = max(clock.now(), min(due, default=end))
        if upcoming >= end:
            break
        time.move((upcoming - clock.now()).total_seconds())
        if not work():
            time.move(1)  # what is due may have to wait for what is not a claim's
    time.move((end - clock.now()).total_seconds())
    work()


# --- what goes over the wire


def test_the_body_is_the_payload_and_the_headers_are_those_of_the_profile(wire: Link, time: FrozenClock) -> None:
    side = partner()
    message = submit(side, b'{"order": 1}', conversation_id="c-1", ref_to_message_id="m-0")
    [job] = work()
    assert job.kind is JobKind.OWN
    assert (wire.last.body, wire.last.content_type) == (b'{"order": 1}', "application/xml")
    assert dict(wire.last.headers) == {
        "Repeatability-Request-ID": message.message_id,
        "Repeatability-First-Sent": "Fri, 01 May 2026 12:00:00 GMT",
        "RM-Service": SERVICE,
        "RM-Action": ACTION,
        "RM-Conversation-ID": "c-1",
        "RM-Ref-To-Message-ID": "m-0",
    }
    message = fresh(message)
    assert (message.state, message.attempts, message.due_at) == ("delivered", 1, None)
    assert (message.first_sent_at, message.expires_at) == (FIRST_SENT, FIRST_SENT + timedelta(days=1))
    assert message.completed_at == AT
    assert preparing.stored_body(message, list(message.payloads.all())) == b'{"order": 1}'
    pair = side.outbound
    assert (pair.queued, pair.out_now, pair.done, pair.last_success_at, pair.due_at) == (0, 0, 1, AT, None)
    assert types_of(message) == ["message.accepted", "message.delivered"]


def test_an_agreement_may_identify_requests_by_an_idempotency_key(wire: Link) -> None:
    message = submit(partner(exchange_identity="key"), message_id='say-"hi"')
    work()
    headers = dict(wire.last.headers)
    assert headers["Idempotency-Key"] == '"say-\\"hi\\""'
    assert not {"Repeatability-Request-ID", "Repeatability-First-Sent"} & headers.keys()
    assert states(message) == ["delivered"]


def test_header_values_that_are_not_ascii_are_percent_encoded(wire: Link) -> None:
    side = partner(allowed=(("urn:bestellung/äöü 100%", "*", "both"),))
    message_submit(
        agreement=side.terms.tpa_id,
        service="urn:bestellung/äöü 100%",
        action="Neu",
        payloads=[NewPayload(ORDER, "application/xml")],
    )
    work()
    assert dict(wire.last.headers)["RM-Service"] == "urn:bestellung/%C3%A4%C3%B6%C3%BC 100%25"


def test_ids_that_the_hub_makes_are_uuids_and_one_that_is_given_is_compared_without_case(wire: Link) -> None:
    side = partner()
    made = submit(side)
    assert made.message_id == str(made.pk)
    given_id = "F0E1D2C3-0000-4000-8000-ABCDEFABCDEF"
    assert submit(side, message_id=given_id).message_id == given_id.lower()
    with pytest.raises(DuplicateMessageId):
        submit(side, message_id=given_id.lower())


@pytest.mark.parametrize(
    ("field", "wrong", "says"),
    [
        ("payloads", {"payloads": [NewPayload(b"1"), NewPayload(b"2")]}, "exactly one payload"),
        ("message_id", {"message_id": "x" * 97}, "At most 96 characters"),
        ("semantics", {"semantics": "BestEffort"}, "OnceAndOnlyOnce"),
    ],
)
def test_what_a_request_cannot_carry_is_refused_beside_its_field(field: str, wrong: dict, says: str) -> None:
    side = partner()
    values = {"payloads": [NewPayload(b"1", "text/plain")], **wrong}
    with pytest.raises(InvalidSubmission) as caught:
        message_submit(agreement=side.terms.tpa_id, service=SERVICE, action=ACTION, **values)
    assert list(caught.value.errors) == [field]
    assert says in caught.value.errors[field][0]
    assert not Message.objects.exists()


def test_an_id_of_96_characters_is_taken() -> None:
    assert submit(partner(), message_id="x" * 96).message_id == "x" * 96


# --- repeats


def test_lost_answers_lead_to_repeats_with_equal_bytes_and_headers(wire: Link, time: FrozenClock) -> None:
    """Protocols I9: same id, same first-instance time, same octets, whatever the hour."""
    wire.answer = LOST
    message = submit(partner(), b"<Order n='1'/>")
    work()
    for wait in (20, 40, 80, 160, 320, 600, 600):
        time.move(wait - 1)
        assert work() == []
        time.move(1)
        assert len(work()) == 1
    assert len(wire.parcels) == 8
    assert {(parcel.body, parcel.content_type, parcel.headers) for parcel in wire.parcels} == {
        (wire.last.body, wire.last.content_type, wire.last.headers)
    }
    assert (fresh(message).state, fresh(message).attempts, fresh(message).cause) == ("retrying", 8, "read_timeout")
    wire.answer = answered()
    time.move(600)
    work()
    assert (fresh(message).state, fresh(message).attempts) == ("delivered", 9)
    assert list(Transmission.objects.order_by("number").values_list("number", "outcome")) == [
        *((number, "failed") for number in range(1, 9)),
        (9, "sent"),
    ]


def test_a_409_waits_for_as_long_as_retry_after_says(wire: Link, time: FrozenClock) -> None:
    wire.answer = answered(409, Retry_After="90")
    message = submit(partner())
    work()
    assert (fresh(message).state, fresh(message).cause) == ("retrying", "still_in_work")
    assert Transmission.objects.get().cause == "still_in_work"
    time.move(89)
    assert work() == []
    wire.answer = answered()
    time.move(1)
    work()
    assert states(message) == ["delivered"]


def test_retry_after_may_be_a_date(wire: Link, time: FrozenClock) -> None:
    wire.answer = answered(503, "", Retry_After="Fri, 01 May 2026 12:10:00 GMT")
    message = submit(partner())
    work()
    assert fresh(message).due_at == datetime(2026, 5, 1, 12, 10, tzinfo=UTC)


def test_an_answer_whose_body_broke_off_is_asked_for_again(wire: Link, time: FrozenClock) -> None:
    """A synchronous partner has it stored, and gives it again."""
    wire.answer = Receipt(ok=True, status=200, response=b"HTTP 200 OK\r\n\r\nhal", complete=False)
    message = submit(partner(exchange_mode="synchronous"))
    work()
    assert (fresh(message).state, fresh(message).cause) == ("retrying", "answer_incomplete")
    wire.answer = answered(200, body=b"whole")
    time.move(20)
    work()
    assert states(message) == ["delivered"]
    assert bytes(Transmission.objects.get(number=2).response).endswith(b"whole")


def test_of_an_acknowledgement_the_head_says_it_all(wire: Link) -> None:
    wire.answer = replace(answered(202, body=b"{"), complete=False)
    message = submit(partner())
    work()
    assert states(message) == ["delivered"]


@pytest.mark.parametrize(
    ("result", "cause"), [("rejected", "answer_contradicts_itself"), ("", "answer_without_result")]
)
def test_success_that_was_not_accepted_is_not_taken_for_success(wire: Link, result: str, cause: str) -> None:
    """A log-in page on the way answers 200 as well, and the partner has nothing."""
    wire.answer = answered(200, result)
    message = submit(partner())
    work()
    assert (fresh(message).state, fresh(message).cause) == ("retrying", cause)


@pytest.mark.parametrize("status", [400, 422])
def test_a_request_that_will_never_be_taken_fails_with_the_partners_words(wire: Link, status: int) -> None:
    wire.answer = answered(status, "rejected", body=b'{"title": "Bad", "detail": "Total differs\\u0007 from lines"}')
    side = partner()
    message, other = submit(side), submit(side)
    work()
    message = fresh(message)
    assert (message.state, message.cause, message.attempts) == ("failed", "request_refused", 1)
    assert message.cause_detail == f"The partner answered HTTP {status}. Total differs  from lines"
    assert side.outbound.out_now == 0 and side.outbound.flow == "idle"
    assert incidents() == [("request_refused", "open")]
    assert Incident.objects.get().occurrences == 2 and states(other) == ["failed"]


def test_a_refusal_after_a_lost_answer_is_in_doubt(wire: Link, time: FrozenClock) -> None:
    """The copy that was refused was not executed; the one before it may have been."""
    wire.answer = LOST
    message = submit(partner())
    work()
    wire.answer = answered(400, "rejected")
    time.move(20)
    work()
    assert (fresh(message).state, fresh(message).cause) == ("in_doubt", "outcome_unknown")


def test_a_refusal_after_a_connection_that_never_came_up_is_none(wire: Link, time: FrozenClock) -> None:
    wire.answer = REFUSED
    message = submit(partner())
    work()
    wire.answer = answered(400, "rejected")
    time.move(20)
    work()
    assert (fresh(message).state, fresh(message).cause) == ("failed", "request_refused")


# --- the window


def test_g31_no_answer_until_the_window_is_over(wire: Link, time: FrozenClock) -> None:
    wire.answer = LOST
    side = partner(partner_window=2 * HOUR)
    message = submit(side)
    work()
    run_for(time, 3 * HOUR)
    message = fresh(message)
    assert (message.state, message.cause, message.due_at) == ("in_doubt", "outcome_unknown", None)
    sent = Transmission.objects.order_by("started_at").values_list("started_at", flat=True)
    assert max(sent) <= FIRST_SENT + timedelta(hours=2)
    assert len(sent) == len(wire.parcels) == message.attempts > 10
    # No new id: nothing but this message was ever made, and its id is the only one that went out.
    assert Message.objects.count() == 1
    assert {dict(parcel.headers)["Repeatability-Request-ID"] for parcel in wire.parcels} == {message.message_id}
    assert incidents() == [("outcome_unknown", "open")]
    assert types_of(message)[-1] == "message.in_doubt"
    assert (side.outbound.out_now, side.outbound.flow, side.outbound.retries) == (0, "idle", 0)
    before = len(wire.parcels)
    run_for(time, DAY)
    assert len(wire.parcels) == before


def test_g31_what_never_reached_the_partner_has_failed_and_is_not_in_doubt(wire: Link, time: FrozenClock) -> None:
    wire.answer = REFUSED
    message = submit(partner(partner_window=HOUR))
    work()
    run_for(time, 2 * HOUR)
    assert (fresh(message).state, fresh(message).cause) == ("failed", "never_sent")
    assert incidents() == [("never_sent", "open")]
    assert types_of(message)[-1] == "message.failed"


@pytest.mark.parametrize(
    ("answers", "state", "cause"),
    [
        ([answered(401, "")], "failed", "access_refused"),
        ([answered(403, "", body=b'{"title": "Agreement not in force."}')], "failed", "access_refused"),
        ([answered(401, ""), REFUSED], "failed", "access_refused"),
        ([REFUSED, answered(401, "")], "failed", "access_refused"),
        ([answered(401, ""), answered(404, "")], "failed", "turned_away"),
        ([answered(404, ""), answered(401, ""), REFUSED], "failed", "turned_away"),
        ([answered(501, "rejected")], "failed", "turned_away"),
        ([answered(401, ""), LOST], "in_doubt", "outcome_unknown"),
        ([answered(503, ""), answered(401, "")], "in_doubt", "outcome_unknown"),
        ([answered(200, ""), answered(401, "")], "in_doubt", "outcome_unknown"),
    ],
)
def test_g31_who_was_turned_away_at_the_entrance_is_told_so(
    wire: Link, time: FrozenClock, answers: list[Receipt], state: str, cause: str
) -> None:
    """What came of the attempts decides, in whichever order; `answers`: one after the other, the last until the end."""
    side = partner(partner_window=HOUR)
    message = submit(side)
    for reply in answers:
        wire.answer = reply
        if side.outbound.flow == "suspended":
            operating.pair_resume(pair_id=side.outbound.pk, actor=ANN, reason="Looks right now.")
        run_for(time, 300)
    assert fresh(message).attempts >= len(answers)
    run_for(time, 2 * HOUR)
    message = fresh(message)
    assert (message.state, message.cause) == (state, cause)
    assert (cause, "open") in incidents()
    assert message.cause_detail.startswith("Tried ")


def test_g31_one_lost_answer_among_refused_connections_is_a_doubt(wire: Link, time: FrozenClock) -> None:
    wire.answer = LOST
    message = submit(partner(partner_window=HOUR))
    work()
    wire.answer = REFUSED
    run_for(time, 2 * HOUR)
    assert (fresh(message).state, fresh(message).cause) == ("in_doubt", "outcome_unknown")


def test_g32_a_412_stops_the_repeats_and_a_person_decides(wire: Link, time: FrozenClock) -> None:
    wire.answer = answered(412, "rejected", body=b'{"detail": "The memory begins at 12:00."}')
    side = partner()
    message = submit(side)
    work()
    message = fresh(message)
    assert (message.state, message.cause, message.due_at) == ("in_doubt", "outside_memory_window", None)
    assert message.cause_detail.endswith("The memory begins at 12:00.")
    assert incidents() == [("outside_memory_window", "open")]
    run_for(time, HOUR)
    assert len(wire.parcels) == 1 and Message.objects.count() == 1
    # A person who found out that it was not executed sends it as a new message, with a new id and a new time.
    wire.answer = answered()
    again = submit(side)
    work()
    first, second = (dict(parcel.headers) for parcel in wire.parcels)
    assert first["Repeatability-Request-ID"] != second["Repeatability-Request-ID"] == again.message_id
    assert second["Repeatability-First-Sent"] == "Fri, 01 May 2026 13:00:00 GMT"


def test_a_parcel_that_waited_for_its_thread_until_the_window_was_over_is_not_sent(
    wire: Link, time: FrozenClock
) -> None:
    wire.answer = LOST
    message = submit(partner(partner_window=HOUR))
    work()
    # The last repeat is claimed within the window; every thread is busy until after it.
    due_at = fresh(message).due_at
    while due_at is not None and due_at + timedelta(seconds=600) < FIRST_SENT + timedelta(hours=1):
        time.move((due_at - AT).total_seconds() - (clock.now() - AT).total_seconds())
        work()
        due_at = fresh(message).due_at
    assert due_at is not None
    time.move((due_at - clock.now()).total_seconds())
    [job] = claim_due(limit=10)
    before = len(wire.parcels)
    time.move(HOUR)
    record([(job, transports.send(job.transport, job.parcel))])
    assert len(wire.parcels) == before
    assert (fresh(message).state, fresh(message).cause) == ("in_doubt", "outcome_unknown")
    assert Transmission.objects.order_by("number").last().cause == "window_over"


ANSWERS = {
    "done": answered(),
    "lost": LOST,
    "refused": REFUSED,
    "busy": answered(409, Retry_After="300"),
    "later": answered(503, "", Retry_After="5000"),
    "broken": answered(500, ""),
    "gone": answered(412, "rejected"),
}


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    window=st.integers(120, 3 * HOUR),
    trace=st.lists(st.tuples(st.sampled_from([*ANSWERS, "die"]), st.integers(0, 4000)), min_size=1, max_size=25),
)
def test_whatever_happens_it_is_never_sent_past_the_window(window: int, trace: list[tuple[str, int]]) -> None:
    registry.reset()
    with frozen(AT) as time, link() as wire:
        side = partner(partner_window=window, memory_window=DAY)
        message = submit(side)
        for what, seconds in trace:
            wire.answer = ANSWERS.get(what, TAKEN)
            if what == "die":
                wire.parcels += [job.parcel for job in claim_due(limit=10)]  # sent, and never recorded
            else:
                work()
            time.move(seconds)
        sent = Transmission.objects.filter(message=message).values_list("started_at", flat=True)
        assert all(at <= FIRST_SENT + timedelta(seconds=window) for at in sent)
        assert len({(parcel.body, parcel.headers) for parcel in wire.parcels}) == 1
        open_now = fresh(message).state in ("sending", "retrying")
        assert side.outbound.out_now == (1 if open_now else 0)
        if not open_now:
            assert claim_due(limit=10) == []
        Message.objects.filter(pk=message.pk).update(due_at=None)  # out of the next example's way


# --- many in flight, and one at a time


def test_many_go_at_once_and_never_more_than_agreed(wire: Link, time: FrozenClock) -> None:
    side = partner(max_in_flight=5)
    messages = [submit(side) for _ in range(12)]
    jobs = claim_due(limit=64)
    assert [job.message_id for job in jobs] == [message.pk for message in messages[:5]]
    assert claim_due(limit=64) == []
    assert (side.outbound.out_now, side.outbound.queued) == (5, 7)
    # One that is answered makes room for one.
    record([(jobs[3], answered())])
    [next_job] = claim_due(limit=64)
    assert next_job.message_id == messages[5].pk
    # One that has to be repeated keeps its room.
    record([(jobs[0], LOST)])
    assert claim_due(limit=64) == []
    record([(job, answered()) for job in (*jobs[1:3], jobs[4], next_job)])
    assert [job.message_id for job in claim_due(limit=64)] == [message.pk for message in messages[6:10]]


def test_a_claim_takes_no_more_than_its_limit_over_all_pairs(wire: Link) -> None:
    sides = [partner(), partner()]
    for side in sides:
        for _ in range(6):
            submit(side)
    jobs = claim_due(limit=4)
    assert sorted(side.outbound.out_now for side in sides) == [2, 2]
    assert len(jobs) == 4
    while jobs:
        record([(job, answered()) for job in jobs])
        jobs = claim_due(limit=4)
    assert [(side.outbound.done, side.outbound.queued, side.outbound.out_now) for side in sides] == [(6, 0, 0)] * 2


def test_an_ordered_pair_sends_one_at_a_time_in_order(wire: Link, time: FrozenClock) -> None:
    side = partner(ordered=True)
    messages = [submit(side, b"%d" % number) for number in range(3)]
    wire.answer = LOST
    work()
    assert (states(*messages), side.outbound.out_now) == (["retrying", "queued", "queued"], 1)
    time.move(20)
    wire.answer = answered()
    while work():
        pass
    assert [parcel.body for parcel in wire.parcels] == [b"0", b"0", b"1", b"2"]
    assert states(*messages) == ["delivered"] * 3


@pytest.mark.parametrize("reply", [answered(412, "rejected"), answered(400, "rejected")], ids=["in doubt", "refused"])
def test_on_an_ordered_pair_nothing_overtakes_what_needs_a_person(wire: Link, reply: Receipt) -> None:
    side = partner(ordered=True)
    first, second = submit(side), submit(side)
    wire.answer = reply
    work()
    assert (side.outbound.flow, side.outbound.cause) == ("suspended", fresh(first).cause)
    wire.answer = answered()
    assert work() == []
    operating.pair_resume(pair_id=side.outbound.pk, actor=ANN, reason="Partner has looked into it.")
    work()
    assert states(second) == ["delivered"]
    in_doubt = fresh(first).state == "in_doubt"
    # Resuming settles nothing: the incident about a message in doubt ends with its doubt.
    assert incidents() == [(fresh(first).cause, "open" if in_doubt else "resolved")]


# --- workers that die


def test_a_worker_dies_between_claim_and_record(wire: Link, time: FrozenClock) -> None:
    side = partner()
    message = submit(side)
    [job] = claim_due(limit=10)
    time.move(LEASE - 1)
    assert claim_due(limit=10) == []
    time.move(1)
    [again] = claim_due(limit=10)
    assert (again.parcel.body, again.parcel.headers) == (job.parcel.body, job.parcel.headers)
    assert again.number == 2
    assert list(Transmission.objects.order_by("number").values_list("outcome", flat=True)) == ["lost", "on_the_wire"]
    # What the first one brings in now comes too late to move anything, unless it is the answer.
    assert record([(job, LOST)]) == [False]
    assert states(message) == ["sending"]
    assert record([(job, answered())]) == [True]
    assert (states(message), side.outbound.done, side.outbound.out_now) == (["delivered"], 1, 0)
    assert record([(again, answered())]) == [False]
    assert (side.outbound.done, side.outbound.out_now) == (1, 0)


def test_work_of_a_dead_worker_is_taken_over_at_once(wire: Link, time: FrozenClock) -> None:
    message = submit(partner())
    claim_due(limit=10, worker=4711)  # nobody holds the lock of this number
    assert leases.release_dead(clock.now()) == 1
    [again] = work()
    assert again.number == 2
    assert states(message) == ["delivered"]


def test_an_answer_that_comes_when_the_window_is_over_ends_the_doubt(wire: Link, time: FrozenClock) -> None:
    side = partner(partner_window=HOUR)
    message = submit(side)
    [job] = claim_due(limit=10)
    time.move(2 * HOUR)
    claim_due(limit=10)
    assert (states(message), incidents()) == (["in_doubt"], [("outcome_unknown", "open")])
    record([(job, answered())])
    assert (states(message), incidents()) == (["delivered"], [("outcome_unknown", "resolved")])
    assert (side.outbound.done, side.outbound.out_now) == (1, 0)


# --- suspended, paused, and what people do


def test_a_closed_door_suspends_the_pair_and_resume_sends_the_same_again(wire: Link, time: FrozenClock) -> None:
    side = partner()
    first, second = submit(side), submit(side)
    wire.answer = answered(401, "")
    work()
    pair = side.outbound
    assert (pair.flow, pair.cause, pair.out_now) == ("suspended", "http_401_403", 2)
    assert states(first, second) == ["retrying", "retrying"]
    assert incidents() == [("http_401_403", "open")]
    assert [event.type for event in Event.objects.filter(type__startswith="pair.")] == ["pair.suspended"]
    third = submit(side)
    wire.answer = answered()
    run_for(time, HOUR)
    assert len(wire.parcels) == 2 and states(third) == ["queued"]
    operating.pair_resume(pair_id=pair.pk, actor=ANN, reason="New password stored.")
    work()
    assert states(first, second, third) == ["delivered"] * 3
    assert wire.parcels[0].headers in [parcel.headers for parcel in wire.parcels[2:]]
    assert incidents() == [("http_401_403", "resolved")]
    pair = side.outbound
    assert (pair.flow, pair.out_now, pair.queued, pair.cause) == ("idle", 0, 0, "")


def test_a_window_that_ends_while_the_pair_is_suspended_leads_to_doubt(wire: Link, time: FrozenClock) -> None:
    side = partner(partner_window=2 * HOUR)
    wire.answer = LOST
    lost = submit(side)
    work()
    wire.answer = answered(403, "")
    refused, waits = submit(side), submit(side)
    work()
    assert side.outbound.flow == "suspended"
    run_for(time, 3 * HOUR)
    # One that may have been executed is in doubt; those that were turned away at the entrance were not.
    assert states(lost, refused, waits) == ["in_doubt", "failed", "failed"]
    assert sorted(incidents()) == [
        ("access_refused", "open"),
        ("http_401_403", "open"),
        ("outcome_unknown", "open"),
    ]
    assert len(wire.parcels) == 3
    assert Message.objects.count() == 3
    assert (side.outbound.flow, side.outbound.out_now) == ("suspended", 0)


def test_a_window_that_ends_while_the_pair_is_paused_leads_to_doubt(wire: Link, time: FrozenClock) -> None:
    side = partner(partner_window=HOUR)
    wire.answer = LOST
    message = submit(side)
    work()
    operating.pair_pause(pair_id=side.outbound.pk, actor=ANN, reason="Maintenance.")
    run_for(time, 2 * HOUR)
    assert states(message) == ["in_doubt"]
    assert len(wire.parcels) == 1


def test_a_pause_holds_new_messages_and_repeats_and_a_release_lets_them_go(wire: Link, time: FrozenClock) -> None:
    side = partner()
    wire.answer = LOST
    first = submit(side)
    work()
    operating.pair_pause(pair_id=side.outbound.pk, actor=ANN, reason="Maintenance.")
    second = submit(side)
    wire.answer = answered()
    run_for(time, HOUR)
    assert (states(first, second), len(wire.parcels)) == (["retrying", "queued"], 1)
    assert claim_due(limit=10) == []
    operating.pair_release(pair_id=side.outbound.pk, actor=ANN, reason="Over.")
    work()
    assert states(first, second) == ["delivered", "delivered"]
    # Its window begins when it is sent first, however long it had to wait for that.
    sent = {dict(parcel.headers)["Repeatability-Request-ID"]: dict(parcel.headers) for parcel in wire.parcels}
    assert sent[second.message_id]["Repeatability-First-Sent"] == "Fri, 01 May 2026 13:00:00 GMT"
    assert sent[first.message_id]["Repeatability-First-Sent"] == "Fri, 01 May 2026 12:00:00 GMT"
    assert fresh(second).expires_at == FIRST_SENT + timedelta(hours=25)


def test_a_held_message_costs_no_look_until_its_pair_goes_on(wire: Link, time: FrozenClock) -> None:
    side = partner()
    wire.answer = LOST
    message = submit(side)
    work()
    operating.pair_pause(pair_id=side.outbound.pk, actor=ANN, reason="Maintenance.")
    run_for(time, 60)
    assert fresh(message).due_at == FIRST_SENT + timedelta(days=1, seconds=1)


def test_retry_now_repeats_what_waits(wire: Link, time: FrozenClock) -> None:
    side = partner()
    wire.answer = LOST
    messages = [submit(side), submit(side)]
    work()
    wire.answer = answered()
    assert work() == []
    before = side.outbound.version
    operating.pair_retry_now(pair_id=side.outbound.pk, actor=ANN, reason="Partner is up again.")
    work()
    assert states(*messages) == ["delivered", "delivered"]
    assert side.outbound.version == before + 1
    assert AuditEntry.objects.get().verb == "pair.retry_now"


def test_skip_drops_the_first_that_is_not_on_the_wire(wire: Link, time: FrozenClock) -> None:
    side = partner(max_in_flight=2)
    first, second, third = submit(side), submit(side), submit(side)
    jobs = claim_due(limit=10)
    with pytest.raises(WrongState, match="on the wire"):
        operating.pair_skip_head(pair_id=side.outbound.pk, actor=ANN, reason="Not wanted.")
    record([(jobs[1], LOST)])
    operating.pair_skip_head(pair_id=side.outbound.pk, actor=ANN, reason="Not wanted.")
    assert states(first, second, third) == ["sending", "skipped", "queued"]
    assert types_of(second)[-1] == "message.skipped"
    work()
    assert states(third) == ["delivered"]
    assert side.outbound.out_now == 1


def test_a_message_that_waits_or_is_between_repeats_can_be_cancelled(wire: Link, time: FrozenClock) -> None:
    side = partner(max_in_flight=1)
    first, second, third = submit(side), submit(side), submit(side)
    wire.answer = LOST
    work()
    operating.message_cancel(message_id=second.pk, actor=ANN, reason="Sent by mail.")
    assert (side.outbound.queued, side.outbound.out_now) == (1, 1)
    operating.message_cancel(message_id=first.pk, actor=ANN, reason="Sent by mail.")
    assert states(first, second) == ["cancelled", "cancelled"]
    wire.answer = answered()
    [job] = work()
    assert job.message_id == third.pk
    with pytest.raises(WrongState):
        operating.message_cancel(message_id=third.pk, actor=ANN, reason="It is too late.")
    assert (side.outbound.queued, side.outbound.out_now) == (0, 0)


def test_verbs_that_the_pair_does_not_take_say_why(wire: Link) -> None:
    side = partner()
    pair = side.outbound
    assert operating.allowed_verbs(pair) == ("pause",)
    for verb, why in (
        (operating.pair_resume, "not suspended"),
        (operating.pair_retry_now, "No message is in flight"),
        (operating.pair_skip_head, "No message is in flight"),
        (operating.pair_restart_sequence, "no sequence numbers"),
    ):
        with pytest.raises(WrongState, match=why):
            verb(pair_id=pair.pk, actor=ANN, reason="Only to see.")
    wire.answer = LOST
    submit(side)
    work()
    assert operating.allowed_verbs(side.outbound) == ("retry-now", "skip-head", "pause")
    wire.answer = answered(404, "")
    submit(side)
    work()
    assert operating.allowed_verbs(side.outbound) == ("resume", "skip-head", "pause")


def test_a_success_closes_the_incident_about_what_was_in_its_way(wire: Link, time: FrozenClock) -> None:
    wire.answer = Receipt(ok=False, cause="cert_expired", detail="certificate has expired", permanent=True)
    side = partner()
    submit(side)
    work()
    assert incidents() == [("cert_expired", "open")]
    assert (side.outbound.retries, side.outbound.cause) == (1, "cert_expired")
    wire.answer = answered()
    time.move(20)
    work()
    assert incidents() == [("cert_expired", "resolved")]
    assert (side.outbound.retries, side.outbound.cause) == (0, "")


def test_a_document_whose_file_is_gone_stops_the_pair(wire: Link, time: FrozenClock, settings) -> None:
    settings.RMHUB_INLINE_PAYLOAD_BYTES = 8
    side = partner()
    first = submit(side, b"a document in a file")
    wire.answer = LOST
    work()
    [file] = Path(settings.RMHUB_STORE_DIR).glob("??/*")
    octets = file.read_bytes()
    file.unlink()
    second = submit(side, b"")
    time.move(20)
    work()
    assert (side.outbound.flow, side.outbound.cause) == ("suspended", "payload_missing")
    assert states(first) == ["retrying"] and fresh(second).state in ("queued", "retrying")
    file.write_bytes(octets)
    wire.answer = answered()
    operating.pair_resume(pair_id=side.outbound.pk, actor=ANN, reason="Restored.")
    while work():
        pass
    assert states(first, second) == ["delivered", "delivered"]


# --- the clock jumps


def test_x12_a_clock_that_goes_back_makes_timers_late_and_never_double(wire: Link, time: FrozenClock) -> None:
    wire.answer = LOST
    message = submit(partner())
    work()
    time.move(-600)
    for _ in range(61):
        time.move(10)
        work()
    assert len(wire.parcels) == 1  # due 20 s after the instant at which it failed, by the clock as it was then
    time.move(10)
    work()
    assert len(wire.parcels) == 2
    assert len({parcel.headers for parcel in wire.parcels}) == 1
    assert fresh(message).first_sent_at == FIRST_SENT


def test_x12_a_clock_that_goes_forward_repeats_once_and_keeps_the_window(wire: Link, time: FrozenClock) -> None:
    wire.answer = LOST
    message = submit(partner(partner_window=2 * HOUR))
    work()
    time.move(HOUR)
    assert len(work()) == 1
    assert work() == []
    time.move(3 * HOUR)
    assert work() == []
    assert states(message) == ["in_doubt"]
    assert len(wire.parcels) == 2


# --- what it costs


def test_a_hub_without_requests_asks_the_database_no_more_than_before(wire: Link) -> None:
    """Requests are found by the claims that look for pairs and unreliable messages."""
    with CaptureQueriesContext(connection) as idle:
        claim_due(limit=64)
    selects = [query["sql"] for query in idle if query["sql"].startswith("SELECT")]
    assert len(selects) == 3, selects


@pytest.mark.django_db(transaction=True)
def test_two_workers_and_a_person_at_once_lose_and_double_nothing() -> None:
    """X18 for the sending side: claims, records and verbs of people side by side, without a deadlock."""
    side = partner(max_in_flight=8, repeat_interval=1, repeat_interval_max=1)
    messages = [submit(side) for _ in range(120)]
    pair_id = side.outbound.pk
    taken: dict[str, int] = {}
    failures: list[BaseException] = []
    guard = threading.Lock()
    turn = iter(range(10**6))
    stop = threading.Event()

    def answer(parcel: Parcel) -> Receipt:
        key = dict(parcel.headers)["Repeatability-Request-ID"]
        with guard:
            taken[key] = taken.get(key, 0) + 1
            number = next(turn)
        return LOST if number % 5 == 0 else answered(409, Retry_After="0") if number % 7 == 0 else answered()

    def worker() -> None:
        try:
            while not stop.is_set():
                work(limit=6)
        except BaseException as error:
            failures.append(error)
        finally:
            connection.close()

    def person() -> None:
        try:
            while not stop.is_set():
                for verb in (operating.pair_pause, operating.pair_release, operating.pair_retry_now):
                    with suppress(WrongState):
                        verb(pair_id=pair_id, actor=ANN, reason="To and fro.")
        except BaseException as error:
            failures.append(error)
        finally:
            connection.close()

    with link(answer):
        threads = [threading.Thread(target=target) for target in (worker, worker, person)]
        for thread in threads:
            thread.start()
        done = threading.Event()
        deadline = datetime.now(UTC) + timedelta(seconds=LONG)
        while not failures and datetime.now(UTC) < deadline:
            if Message.objects.filter(state="delivered").count() == len(messages):
                break
            done.wait(0.05)
        stop.set()
        for thread in threads:
            thread.join(LONG)
    assert failures == []
    assert set(states(*messages)) == {"delivered"}
    pair = Pair.objects.get(pk=pair_id)
    assert (pair.out_now, pair.queued, pair.done) == (0, 0, len(messages))
    assert set(taken) == {message.message_id for message in messages}
    assert set(repeating.furthest([message.pk for message in messages]).values()) == {Reached.SERVICE}
