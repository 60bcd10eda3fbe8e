"""What is lost on the way comes again by the clock, the same octets, through the real services and the real worker.

When what awaits an answer goes out again: the pure schedule.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messaging.engine import pairs
from messaging.journal.audit import Actor
from messaging.models import Incident
from messaging.pairs.services import operating
from messaging.profiles.wsat import due
from messaging.profiles.wsat.settling import enlistment_settle
from messaging.protocol.atomic.transaction import GROWTH, patience, wait
from messaging.protocol.atomic.words import Note, Phase, Protocol
from messaging.protocol.ws.reading import decode
from messaging.transports import Receipt
from rmhub.clock import FrozenClock
from tests.messaging.factories import REFUSED, Link, link, work
from tests.messaging.profiles.wsat.kit import LIMIT, Peer, Place, peer
from tests.messaging.profiles.wsat.test_subordinate import below_another

pytestmark = pytest.mark.django_db


@pytest.fixture
def wire() -> Iterator[Link]:
    with link(Receipt(ok=True, status=202)) as found:
        yield found


@pytest.fixture
def shop(time: FrozenClock) -> Peer:
    return peer()


@pytest.fixture
def parts(shop: Peer, time: FrozenClock) -> tuple[Place, Place]:
    """Initiator and one durable participant; the initiator has asked for the commit."""
    app = peer()
    begun = app.create(expires_ms=3_600_000)
    initiator, member = app.register(begun, Protocol.COMPLETION), shop.register(begun, Protocol.DURABLE)
    initiator.say(Note.COMMIT)
    return initiator, member


def on_the_wire(wire: Link, place: Place, kind: str) -> list[bytes]:
    """Octets of this kind that went to this place, in their order."""
    found = []
    for parcel in wire.parcels:
        read = decode(parcel.content_type, parcel.body, max_bytes=LIMIT)
        if read.kind == kind and set(place.own.parameters) <= set(read.echoed):
            found.append(parcel.body)
    return found


def pass_time(time: FrozenClock, seconds: int) -> None:
    for _ in range(seconds):
        time.move(1)
        due.run_due()
        work()


def test_t23_prepare_comes_again_until_the_vote_gets_through(
    parts: tuple[Place, Place], wire: Link, time: FrozenClock
) -> None:
    initiator, member = parts
    work()
    pass_time(time, 25)  # after 5, 7 and 9.8 s

    prepares = on_the_wire(wire, member, "Prepare")
    assert len(prepares) == 4 and len(set(prepares)) == 1

    member.say(Note.PREPARED)
    member.say(Note.COMMITTED)
    pass_time(time, 60)
    assert on_the_wire(wire, member, "Prepare") == prepares
    assert initiator.heard() == ["Committed"]


def test_t25_commit_comes_again_until_it_is_answered(parts: tuple[Place, Place], wire: Link, time: FrozenClock) -> None:
    _, member = parts
    work()
    member.say(Note.PREPARED)
    work()
    pass_time(time, 25)

    commits = on_the_wire(wire, member, "Commit")
    assert len(commits) == 4 and len(set(commits)) == 1

    member.say(Note.COMMITTED)
    assert member.enlistment.coordination.phase == Phase.COMMITTED
    pass_time(time, 60)
    assert on_the_wire(wire, member, "Commit") == commits


def test_t22_a_participant_that_votes_again_gets_the_same_commit_at_once(
    parts: tuple[Place, Place], wire: Link, time: FrozenClock
) -> None:
    _, member = parts
    work()
    member.say(Note.PREPARED)
    work()
    time.move(1)

    member.say(Note.PREPARED)
    work()

    commits = on_the_wire(wire, member, "Commit")
    assert len(commits) == 2 and len(set(commits)) == 1
    member.say(Note.COMMITTED)
    assert member.enlistment.coordination.phase == Phase.COMMITTED


def test_t27_a_lost_committed_costs_one_more_commit(parts: tuple[Place, Place], wire: Link, time: FrozenClock) -> None:
    initiator, member = parts
    work()
    member.say(Note.PREPARED)
    work()
    pass_time(time, 5)  # its Committed was lost; it has forgotten by now, and answers what comes again
    assert len(on_the_wire(wire, member, "Commit")) == 2

    member.say(Note.COMMITTED)
    member.say(Note.COMMITTED)

    pass_time(time, 60)
    assert len(on_the_wire(wire, member, "Commit")) == 2
    assert initiator.heard() == ["Committed"]
    assert not Incident.objects.exists()


def test_a_partner_that_is_away_for_an_hour_is_told_when_it_is_back(
    parts: tuple[Place, Place], shop: Peer, time: FrozenClock
) -> None:
    _, member = parts
    with link(Receipt(ok=True, status=202)):
        work()
    member.say(Note.PREPARED)
    with link(REFUSED) as dead:
        for _ in range(360):
            pass_time_in_steps(time, 10)
        assert len(on_the_wire(dead, member, "Commit")) > 10
    assert Incident.objects.filter(cause="transaction_peer_silent").get().coordination == member.enlistment.coordination

    with link(Receipt(ok=True, status=202)) as back:
        pair_id = pairs.outbound_pair_id(shop.terms)
        operating.pair_retry_now(pair_id=pair_id, actor=Actor("ann"), reason="they are back")
        work()
        assert len(on_the_wire(back, member, "Commit")) == 1
    member.say(Note.COMMITTED)
    assert member.enlistment.coordination.phase == Phase.COMMITTED
    assert Incident.objects.filter(cause="transaction_peer_silent").get().state == "resolved"


def test_a_vote_that_a_person_settled_goes_on_and_nobody_is_told_of_its_silence_again(
    wire: Link, time: FrozenClock
) -> None:
    stage = below_another()
    stage.above.say(Note.PREPARE)
    stage.member.say(Note.PREPARED)
    for _ in range(30):
        pass_time_in_steps(time, 60)
    assert Incident.objects.get().cause == "transaction_peer_silent"
    enlistment_settle(enlistment_id=stage.superior.pk, outcome="commit", actor=Actor("ann"), reason="It is gone.")
    stage.member.say(Note.COMMITTED)
    incident = Incident.objects.get()
    assert (stage.row.phase, incident.state) == (Phase.COMMITTED, "resolved")

    votes = len(on_the_wire(wire, stage.above, "Prepared"))
    for _ in range(60):
        pass_time_in_steps(time, 60)
    assert len(on_the_wire(wire, stage.above, "Prepared")) > votes
    assert list(Incident.objects.values_list("pk", "state", "occurrences")) == [
        (incident.pk, "resolved", incident.occurrences)
    ]
    assert stage.superior.doubt == ""


def pass_time_in_steps(time: FrozenClock, seconds: int) -> None:
    time.move(seconds)
    due.run_due()
    work()


def test_each_wait_is_longer_by_the_same_factor_up_to_the_longest() -> None:
    waits = [round(wait(attempt, 5, 600), 3) for attempt in range(1, 20)]

    assert waits[:4] == [5.0, 7.0, 9.8, 13.72]
    assert waits[13] == pytest.approx(5 * GROWTH**13)
    assert waits[14:] == [pytest.approx(5 * GROWTH**14), 600.0, 600.0, 600.0, 600.0]


def test_a_longest_wait_below_the_first_does_not_shorten_that() -> None:
    assert wait(1, 5, 1) == 5.0
    assert wait(9, 5, 1) == 5.0


def test_patience_ends_when_the_last_repeat_has_had_its_time() -> None:
    assert patience(0, 5, 600) == 5.0
    assert patience(2, 5, 600) == pytest.approx(5 + 7 + 9.8)
    assert patience(3, 5, 6) == 5 + 6 + 6 + 6


@pytest.mark.parametrize(("attempt", "first"), [(0, 5), (-1, 5), (1, 0), (1, -2)])
def test_what_would_send_at_once_for_ever_is_refused(attempt: int, first: int) -> None:
    with pytest.raises(ValueError, match="both begin at 1"):
        wait(attempt, first, 600)


@given(st.integers(1, 100_000), st.integers(1, 86_400), st.integers(1, 86_400))
def test_waits_never_get_shorter_and_never_leave_their_bounds(attempt: int, first: int, most: int) -> None:
    now, then = wait(attempt, first, most), wait(attempt + 1, first, most)

    assert first <= now <= then <= max(first, most)
