"""The scenarios of the interoperability suites, by their numbers, and the order of a whole transaction, with the hub
as coordinator, through the real entrance (conformance T12 to T27, T36, T41, T49 to T52; protocols.md 5.8).

Letters say what is posted, in their order: I is the initiator, D and E are durable participants, V is a volatile one.
`X+` posts the notification and `X-` loses it on the way; `...` lets so many seconds pass and timers do their work.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from messaging.models import CoordinationMessage, Event, Message
from messaging.profiles.wsat import due
from messaging.protocol.atomic.words import FaultCode, Note, Phase, Protocol, Seat
from messaging.protocol.ws.messages import EndpointReference, parameter
from rmhub.clock import FrozenClock
from rmhub.ids import public_id, uuid7
from tests.messaging.profiles.wsat.kit import Peer, Place, coordination_of, peer

pytestmark = pytest.mark.django_db

C, R, P = Note.COMMIT, Note.ROLLBACK, Note.PREPARED
RO, AB, CO = Note.READ_ONLY, Note.ABORTED, Note.COMMITTED
Said = tuple[str, Note] | float


@dataclass(frozen=True, slots=True)
class Scenario:
    """`who`: participants beside the initiator. `said` in order. `heard`: what each is told; `decided`: a record."""

    who: str
    said: tuple[Said, ...]
    heard: dict[str, list[str]]
    phase: Phase
    decided: bool = False


SCENARIOS = {
    "T12 1.1 CompletionCommit": Scenario("", (("I", C),), {"I": ["Committed"]}, Phase.COMMITTED),
    "T13 1.2 CompletionRollback": Scenario("", (("I", R),), {"I": ["Aborted"]}, Phase.ABORTED),
    "T14 2.1 Commit": Scenario(
        "D",
        (("I", C), ("D", P), ("D", CO)),
        {"D": ["Prepare", "Commit"], "I": ["Committed"]},
        Phase.COMMITTED,
        decided=True,
    ),
    "T15 2.2 Rollback": Scenario("D", (("I", R), ("D", AB)), {"D": ["Rollback"], "I": ["Aborted"]}, Phase.ABORTED),
    "T16 3.1 Phase2Rollback": Scenario(
        "DE",
        (("I", C), ("D", P), ("E", AB), ("D", AB)),
        {"D": ["Prepare", "Rollback"], "E": ["Prepare"], "I": ["Aborted"]},
        Phase.ABORTED,
    ),
    "T17 3.2 Readonly": Scenario(
        "DE",
        (("I", C), ("D", RO), ("E", P), ("E", CO)),
        {"D": ["Prepare"], "E": ["Prepare", "Commit"], "I": ["Committed"]},
        Phase.COMMITTED,
        decided=True,
    ),
    "T18 every vote ReadOnly": Scenario(
        "DV",
        (("I", C), ("V", RO), ("D", RO)),
        {"D": ["Prepare"], "V": ["Prepare"], "I": ["Committed"]},
        Phase.COMMITTED,
    ),
    "T19 3.3 VolatileAndDurable": Scenario(
        "VD",
        (("I", C), ("V", P), ("D", P), ("V", CO), ("D", CO)),
        {"V": ["Prepare", "Commit"], "D": ["Prepare", "Commit"], "I": ["Committed"]},
        Phase.COMMITTED,
        decided=True,
    ),
    "T20 3.4 EarlyReadonly": Scenario(
        "DE",
        (("D", RO), ("I", C), ("E", P), ("E", CO)),
        {"D": [], "E": ["Prepare", "Commit"], "I": ["Committed"]},
        Phase.COMMITTED,
        decided=True,
    ),
    "T21 3.5 EarlyAborted": Scenario(
        "DE",
        (("D", AB), ("E", AB), ("I", C)),
        {"D": [], "E": ["Rollback"], "I": ["Aborted", "Aborted"]},
        Phase.ABORTED,
    ),
    # The participant lost its answer to Commit with its memory, and says Prepared again when it is back.
    "T22 3.6 ReplayCommit": Scenario(
        "D",
        (("I", C), ("D", P), ("D", P), ("D", CO)),
        {"D": ["Prepare", "Commit"], "I": ["Committed"]},
        Phase.COMMITTED,
        decided=True,
    ),
    # Its first Prepared was lost: nothing but what it says again. (That Prepare goes out again: test_outgoing.)
    "T23 3.7 RetryPreparedCommit": Scenario(
        "D",
        (("I", C), 20.0, ("D", P), ("D", CO)),
        {"D": ["Prepare", "Commit"], "I": ["Committed"]},
        Phase.COMMITTED,
        decided=True,
    ),
    "T24 3.8 RetryPreparedAbort": Scenario(
        "D",
        (("I", C), 61.0, ("D", AB)),
        {"D": ["Prepare", "Rollback"], "I": ["Aborted"]},
        Phase.ABORTED,
    ),
    "T25 3.9 RetryCommit": Scenario(
        "D",
        (("I", C), ("D", P), 120.0, ("D", CO)),
        {"D": ["Prepare", "Commit"], "I": ["Committed"]},
        Phase.COMMITTED,
        decided=True,
    ),
    "T26 3.10 PreparedAfterTimeout": Scenario(
        "D",
        (("I", C), 61.0, ("D", AB), ("D", P)),
        {"D": ["Prepare", "Rollback", "Rollback"], "I": ["Aborted"]},
        Phase.ABORTED,
    ),
    # Committed came twice: the participant that had forgotten answered the Commit that was sent again.
    "T27 3.11 LostCommitted": Scenario(
        "D",
        (("I", C), ("D", P), 30.0, ("D", CO), ("D", CO)),
        {"D": ["Prepare", "Commit"], "I": ["Committed"]},
        Phase.COMMITTED,
        decided=True,
    ),
    "T52 expired": Scenario(
        "D",
        (60.5, ("D", AB), ("I", C)),
        {"D": ["Rollback"], "I": ["Aborted", "Aborted"]},
        Phase.ABORTED,
    ),
}


def played(said: tuple[Said, ...], places: dict[str, Place], time: FrozenClock) -> None:
    for step in said:
        if isinstance(step, float):
            time.move(step)
            due.run_due()
        else:
            assert places[step[0]].say(step[1]) == 202


def stage(who: str, **terms: object) -> tuple[Peer, dict[str, Place]]:
    """An initiator and a peer for each participant, in a transaction of 60 s."""
    app = peer(**terms)
    context = app.create(expires_ms=60_000)
    places = {"I": app.register(context, Protocol.COMPLETION)}
    for letter in who:
        protocol = Protocol.VOLATILE if letter == "V" else Protocol.DURABLE
        places[letter] = peer(**terms).register(context, protocol)
    return app, places


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_scenario(scenario: Scenario, time: FrozenClock) -> None:
    _, places = stage(scenario.who)
    played(scenario.said, places, time)
    assert {letter: place.heard() for letter, place in places.items()} == {"I": []} | scenario.heard
    begun = places["I"].enlistment.coordination
    assert begun.phase == scenario.phase
    assert (begun.decided_at is not None) == scenario.decided, "a commit record only where somebody is told Commit"
    assert begun.ended_at is not None
    assert begun.due_at is None
    assert not begun.enlistments.exclude(seat=Seat.NONE).exists()
    assert not begun.messages.filter(awaits=True, message__state__in=("queued", "awaiting_ack", "retrying")).exists()
    outcome = "transaction.committed" if begun.phase == Phase.COMMITTED else "transaction.aborted"
    told = Event.objects.filter(type__startswith="transaction.").order_by("id").values_list("type", flat=True)
    assert list(told) == ["transaction.begun", outcome]


@pytest.mark.parametrize("version", ["2004/10", "2006/06"])
@pytest.mark.parametrize("profile", ["seed", "oasis"])
def test_t14_every_profile_and_version_commits(version: str, profile: str, time: FrozenClock) -> None:
    _, places = stage("D", coordination_version=version, addressing_profile=profile)
    played(SCENARIOS["T14 2.1 Commit"].said, places, time)
    assert places["D"].heard() == ["Prepare", "Commit"]
    assert places["I"].heard() == ["Committed"]
    # Who it is from stands in ReplyTo by spec 5, in From by the practice of 2006/06.
    assert {one.ws.addressing.sender is not None for one in places["D"].sent()} == {profile == "oasis"}


def test_what_was_asked_and_answered_is_delivered_and_what_nobody_asks_for_any_more_is_cancelled(
    time: FrozenClock,
) -> None:
    _, places = stage("DE")
    places["I"].say(C)
    Message.objects.filter(direction="out", action=Note.PREPARE).update(
        state="awaiting_ack", first_sent_at=time.move(1)
    )
    places["D"].say(P)
    places["E"].say(AB)
    (asked, rollback), (other,) = places["D"].sent(), places["E"].sent()
    assert (asked.message.state, other.message.state) == ("delivered", "delivered")
    assert (rollback.kind, rollback.message.state, rollback.facts.awaits) == ("Rollback", "queued", True)

    _, places = stage("D")
    places["I"].say(C)
    Message.objects.filter(direction="out", action=Note.PREPARE).update(
        state="awaiting_ack", first_sent_at=time.move(1)
    )
    time.move(61)
    due.run_due()
    assert [(one.kind, one.message.state) for one in places["D"].sent()] == [
        ("Prepare", "cancelled"),
        ("Rollback", "queued"),
    ]


def test_t19_no_durable_is_asked_before_the_last_volatile_vote(time: FrozenClock) -> None:
    app = peer()
    context = app.create()
    initiator = app.register(context, Protocol.COMPLETION)
    first, second = (peer().register(context, Protocol.VOLATILE) for _ in range(2))
    durable = peer().register(context, Protocol.DURABLE)
    initiator.say(C)
    first.say(P)
    assert durable.heard() == []
    second.say(RO)
    assert durable.heard() == ["Prepare"]


def test_t24_after_expiry_a_volatile_participant_of_a_known_transaction_hears_unknown(time: FrozenClock) -> None:
    _, places = stage("VD")
    played((("I", C), ("V", P), 61.0, ("V", P)), places, time)
    assert places["V"].heard() == ["Prepare", "Rollback", "UnknownTransaction"]


def test_t26_prepared_about_nothing_that_is_known_is_told_rollback_at_its_reply_to() -> None:
    app = peer()
    context = app.create()
    member = app.register(context, Protocol.DURABLE)
    coordination_of(context).delete()
    assert member.say(P, message_id="urn:uuid:t26") == 202
    assert member.heard() == ["Rollback"]
    (rollback,) = app.answers_to("urn:uuid:t26")
    assert rollback.facts.coordination is None


@pytest.mark.parametrize("note", [C, R])
def test_t36_an_initiator_that_asks_about_a_forgotten_transaction_hears_unknown(note: Note) -> None:
    app = peer()
    context = app.create()
    initiator = app.register(context, Protocol.COMPLETION)
    coordination_of(context).delete()
    initiator.say(note)
    assert initiator.heard() == ["UnknownTransaction"]


def test_t36_an_initiator_that_asks_again_is_told_the_outcome(time: FrozenClock) -> None:
    _, places = stage("D")
    played((("I", C), ("D", P), ("I", C)), places, time)
    assert places["I"].heard() == ["Committed", "Committed"]
    assert places["D"].heard() == ["Prepare", "Commit"], "nobody is asked again"


# What a state does not allow


def test_t32_who_voted_cannot_take_it_back(time: FrozenClock) -> None:
    _, places = stage("DE")
    played((("I", C), ("D", P)), places, time)
    for note in (AB, RO):
        assert places["D"].say(note, message_id=f"urn:uuid:t32:{note}") == 202
        (fault,) = places["D"].peer.answers_to(f"urn:uuid:t32:{note}")
        assert fault.fault is FaultCode.INVALID_STATE
    assert places["D"].enlistment.seat == Seat.PREPARED
    assert places["I"].enlistment.coordination.phase == Phase.PREPARING_DURABLE
    places["E"].say(P)
    assert places["D"].heard()[-1] == "Commit"


@pytest.mark.parametrize("asked", [False, True], ids=["T33 active", "T34 preparing"])
def test_committed_too_early_is_invalid_and_aborts(asked: bool, time: FrozenClock) -> None:
    _, places = stage("D")
    played((("I", C),) if asked else (), places, time)
    places["D"].say(CO)
    heard = places["D"].heard()
    assert sorted(heard) == sorted([*(["Prepare"] if asked else []), "InvalidState", "Rollback"])
    begun = places["I"].enlistment.coordination
    assert begun.phase == Phase.ABORTING
    assert begun.cause == "transaction_invalid_message"
    assert places["D"].enlistment.seat == Seat.ABORTING, "not forgotten"
    assert places["I"].heard() == ["Aborted"]


# Replay


@pytest.mark.parametrize(
    ("said", "heard", "phase"),
    [
        (((("I", C), ("D", P))), ["Prepare", "Commit"], Phase.COMMITTING),
        ((("I", C), ("D", P), ("D", CO), ("D", CO)), ["Prepare", "Commit", "Commit"], Phase.COMMITTED),
        ((("D", RO), ("I", C)), ["Rollback"], Phase.COMMITTED),
        ((), ["Rollback"], Phase.ABORTING),
    ],
    ids=["committing", "committed and known", "left before", "active"],
)
def test_t41_replay_of_2006_06_is_taken_for_what_it_says_and_noted(
    said: tuple[Said, ...], heard: list[str], phase: Phase, time: FrozenClock
) -> None:
    _, places = stage("D")
    played(said, places, time)
    member = places["D"]
    changed = (("2006/06/Prepared", "2006/06/Replay"), ("wsat:Prepared", "wsat:Replay"))
    octets = member.peer.write(P.value, to=member.hub, me=member.own, replace=changed)
    octets = replace(octets, soap_action=octets.soap_action.replace("Prepared", "Replay"))
    assert member.peer.post("coordinator", octets) == 202
    assert member.heard() == heard
    begun = places["I"].enlistment.coordination
    assert begun.phase == phase
    assert "deprecated" in begun.messages.get(kind=Note.REPLAY).note


def test_t42_replay_of_2004_10_waits_for_the_decision(time: FrozenClock) -> None:
    _, places = stage("DE", coordination_version="2004/10")
    played((("I", C), ("D", P), ("D", Note.REPLAY)), places, time)
    assert places["D"].heard() == ["Prepare"]
    played((("E", P), ("D", Note.REPLAY)), places, time)
    assert places["D"].heard() == ["Prepare", "Commit"], "the one Commit that is open, sent once more"
    assert "deprecated" not in places["I"].enlistment.coordination.messages.filter(kind=Note.REPLAY).last().note


# Faults and where answers go


def test_t47_a_fault_relates_to_the_offender_and_goes_to_its_fault_to(time: FrozenClock) -> None:
    _, places = stage("D")
    member = places["D"]
    member.say(CO, message_id="urn:uuid:offender")
    (fault,) = (one for one in member.peer.answers_to("urn:uuid:offender") if one.kind == "Fault")
    assert fault.ws.addressing.to == member.own.address, "the registered endpoint"

    _, places = stage("D")
    member, elsewhere = places["D"], places["D"].peer.place("faults")
    member.say(CO, message_id="urn:uuid:offender2", fault_to=elsewhere)
    (fault,) = (one for one in member.peer.answers_to("urn:uuid:offender2") if one.kind == "Fault")
    assert fault.ws.addressing.to == elsewhere.address
    assert fault.ws.echoed == elsewhere.parameters
    assert "Fault" not in member.heard()


def test_t48_a_fault_about_a_message_without_message_id(time: FrozenClock) -> None:
    _, places = stage("D")
    member = places["D"]
    assert member.say(CO, without=("MessageID",)) == 202
    (fault,) = (one for one in member.sent() if one.kind == "Fault")
    assert fault.fault is FaultCode.INVALID_STATE
    assert fault.ws.addressing.relates_to == "", "`unspecified`"
    stored = places["I"].enlistment.coordination.messages.get(kind=CO)
    assert "MessageID" in stored.note


def test_t49_commit_about_a_forgotten_transaction_is_answered_at_its_reply_to() -> None:
    above = peer()
    member = Place(above, above.place("superior"), _forgotten(above, "participant"))
    for note, answer in ((C, "Committed"), (R, "Aborted"), (Note.PREPARE, "Aborted")):
        assert member.say(note, message_id=f"urn:uuid:t49:{note}") == 202
        (told,) = above.answers_to(f"urn:uuid:t49:{note}")
        assert (told.kind, told.ws.addressing.to) == (answer, member.own.address)
        assert told.ws.echoed == member.own.parameters


def test_t49_an_answer_never_goes_where_only_the_message_says() -> None:
    above = peer()
    member = Place(above, EndpointReference("https://victim.example/x"), _forgotten(above, "participant"))
    assert member.say(C) == 202
    assert above.sent() == []


def test_t49_what_is_answered_about_a_forgotten_transaction_names_it() -> None:
    app = peer()
    member = Place(app, app.place(), _forgotten(app, "coordinator"))
    assert member.say(P) == 202
    (rollback,) = member.sent()
    assert (rollback.kind, rollback.ws.addressing.reply_to) == ("Rollback", member.hub)
    assert Place(app, member.own, member.hub).say(AB) == 202, "said to where the Rollback came from"
    assert member.heard() == ["Rollback"]


_NOT_ONE = {
    "missing": (),
    "malformed": (parameter("Enlistment", "enl_12"),),
    "empty": (parameter("Enlistment", ""),),
    "of a transaction": (parameter("Enlistment", "txn_0192f0c0c0c07000800000000000000a"),),
    "two": tuple(parameter("Enlistment", f"enl_0192f0c0c0c0700080000000000000{n:02d}") for n in (1, 2)),
}


@pytest.mark.parametrize("parameters", _NOT_ONE.values(), ids=_NOT_ONE)
@pytest.mark.parametrize(
    ("service", "note"),
    [("participant", C), ("participant", R), ("coordinator", P), ("coordinator", CO), ("completion", C)],
)
def test_who_does_not_say_what_it_is_about_is_told_no_outcome(
    service: str, note: Note, parameters: tuple[str, ...], time: FrozenClock
) -> None:
    _, places = stage("D")
    begun = places["I"].enlistment.coordination
    app = places["D"].peer
    heard = len(app.sent())
    nameless = Place(app, app.place(), EndpointReference(f"{app.terms.own_uri}/{service}", parameters))
    assert nameless.say(note, message_id="urn:uuid:nameless", fault_to=app.place("faults")) == 202
    (fault,) = app.answers_to("urn:uuid:nameless")
    assert fault.fault is FaultCode.INVALID_PARAMETERS
    assert fault.ws.addressing.to == f"{app.base}/faults"
    assert len(app.sent()) == heard + 1
    stored = CoordinationMessage.objects.get(message__message_id="urn:uuid:nameless")
    assert "copy the reference parameters" in stored.note
    assert (stored.coordination, stored.enlistment) == (None, None)
    again = places["I"].enlistment.coordination
    assert (again.phase, again.lock_version) == (begun.phase, begun.lock_version)


def test_one_of_two_relationships_is_not_chosen(time: FrozenClock) -> None:
    _, places = stage("DE")
    places["I"].say(C)
    both = EndpointReference(places["D"].hub.address, (*places["D"].hub.parameters, *places["E"].hub.parameters))
    assert Place(places["D"].peer, places["D"].own, both).say(P) == 202
    assert places["D"].heard() == ["Prepare", "InvalidParameters"]
    assert places["D"].enlistment.seat == places["E"].enlistment.seat == Seat.PREPARING


@pytest.mark.parametrize("parameters", _NOT_ONE.values(), ids=_NOT_ONE)
def test_a_fault_that_does_not_say_what_it_is_about_is_kept_and_not_answered(parameters: tuple[str, ...]) -> None:
    app = peer()
    nameless = Place(app, app.place(), EndpointReference(f"{app.terms.own_uri}/coordinator", parameters))
    assert nameless.fault(FaultCode.INVALID_STATE, "urn:uuid:whatever") == 202
    assert app.sent() == []
    assert "nothing is done" in CoordinationMessage.objects.get().note


def _forgotten(one: Peer, service: str) -> EndpointReference:
    """What the hub gave out for a relationship that it has forgotten."""
    return EndpointReference(f"{one.terms.own_uri}/{service}", (parameter("Enlistment", public_id("enl", uuid7())),))


def test_t50_an_anonymous_fault_to_is_not_used(time: FrozenClock) -> None:
    _, places = stage("D")
    member = places["D"]
    nowhere = EndpointReference("http://www.w3.org/2005/08/addressing/anonymous")
    assert member.say(CO, fault_to=nowhere) == 202
    assert "InvalidState" in member.heard(), "the registered endpoint instead"


@pytest.mark.parametrize("strict", [True, False], ids=["strict", "liberal"])
def test_t46_a_vote_without_reply_to(strict: bool, time: FrozenClock) -> None:
    _, places = stage("D", addressing_strict=strict)
    places["I"].say(C)
    assert places["D"].say(P, without=("ReplyTo",)) == 202
    assert places["D"].heard() == ["Prepare", "InvalidParameters" if strict else "Commit"]
    assert places["D"].enlistment.seat == (Seat.PREPARING if strict else Seat.COMMITTING)


def test_t52_expiry_names_itself_as_the_cause_and_frees_everybody(time: FrozenClock) -> None:
    _, places = stage("DE")
    time.move(59)
    assert due.run_due() == 0
    time.move(2)
    assert due.run_due() == 1
    begun = places["I"].enlistment.coordination
    assert (begun.phase, begun.cause) == (Phase.ABORTING, "transaction_expired")
    assert [places[letter].heard() for letter in "DEI"] == [["Rollback"], ["Rollback"], ["Aborted"]]
    assert due.run_due() == 0
