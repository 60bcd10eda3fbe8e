"""The hub's coordinator and participants of others, over real HTTP and a proxy that loses, doubles and delays (X16).

Time is a number that the tests move to what is due next; nothing sleeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from messaging.models import Coordination, Enlistment, Incident, Message
from messaging.profiles.wsat.due import run_due
from messaging.protocol.atomic.participant import Taking
from messaging.protocol.atomic.words import FaultCode, Note, Phase, Protocol, Seat
from messaging.protocol.ws.messages import CoordinationContext, Created, EndpointReference, Registered
from messaging.protocol.ws.names import Soap, Style, Version
from partners import registry
from partners.choices import CredentialKind
from rmhub import clock
from rmhub.clock import FrozenClock, frozen
from tests.messaging.factories import work
from tests.messaging.profiles.wsat.proxy import How, Proxy, proxying
from tests.messaging.profiles.wsat.site import Member, Site, site_at
from tests.partners.factories import make_agreement, make_credential, make_endpoint, make_party

pytestmark = pytest.mark.django_db(transaction=True)

AT = datetime(2026, 5, 1, 12, tzinfo=UTC)
LOSSES = (How.LOST, How.CUT)


@dataclass(slots=True)
class World:
    """A hub, a site, and the proxy between them."""

    time: FrozenClock
    proxy: Proxy
    site: Site
    context: CoordinationContext | None = None
    initiator: tuple[EndpointReference, EndpointReference] | None = None

    def settle(self) -> None:
        """Both sides do what is due now, until there is nothing left to do."""
        for _ in range(100):
            if not (len(work()) + run_due() + self.site.work()):
                return
        raise AssertionError("they never come to rest")

    def until(self, done: Callable[[], bool], steps: int = 60) -> None:
        """Lets time go by until something is so."""
        for _ in range(steps):
            self.settle()
            if done():
                return
            self.time.move((self._next() - clock.now()).total_seconds())
        raise AssertionError(f"it never came to that: {self.proxy.seen}")

    def _next(self) -> datetime:
        rows = (Message, Coordination)
        due = [
            *(one for row in rows for one in row.objects.filter(due_at__isnull=False).values_list("due_at", flat=True))
        ]
        mine = self.site.due_at()
        return max(min([*due, mine] if mine is not None else due), clock.now())

    def begin(self, *protocols: Protocol, expires_ms: int = 60_000) -> list[Member]:
        """A transaction with an initiator and participants, all by messages."""
        asked = self.site.create(expires_ms)
        self.until(lambda: asked in self.site.replies)
        created = self.site.replies[asked]
        assert isinstance(created, Created)
        self.context = created.context
        members = []
        for protocol in (Protocol.COMPLETION, *protocols):
            asked, own = self.site.register(self.context, protocol)
            self.until(lambda asked=asked: asked in self.site.replies)  # type: ignore[misc]
            registered = self.site.replies[asked]
            assert isinstance(registered, Registered)
            if protocol is Protocol.COMPLETION:
                self.initiator = (registered.coordinator, own)
            else:
                members.append(self.site.join(own, registered.coordinator, protocol))
        return members

    def ask(self, note: Note) -> None:
        assert self.initiator is not None
        assert self.site.say(note, *self.initiator) == 202

    @property
    def coordination(self) -> Coordination:
        assert self.context is not None
        return Coordination.objects.get(identifier=self.context.identifier)

    def ended(self) -> bool:
        return self.coordination.ended_at is not None

    def enlistment(self, member: Member) -> Enlistment:
        return Enlistment.objects.get(peer_parameters=list(member.own.parameters))


@pytest.fixture
def world(request: pytest.FixtureRequest, live_server: Any) -> Iterator[World]:
    terms: dict[str, Any] = getattr(request, "param", {})
    with ExitStack() as stack:
        time = stack.enter_context(frozen(AT))
        proxy = stack.enter_context(proxying())
        own = make_endpoint(make_party(own=True), f"{proxy.url}/ws-tx")
        version = make_agreement(
            profile="wsat",
            own_party=own.party,
            own_endpoint=own,
            partner_uri=f"{proxy.url}/site",
            addressing_strict=True,
            retries=3,
            repeat_interval=5,
            repeat_interval_max=20,
            **terms,
        )
        _, token = make_credential(version.agreement.partner, kind=CredentialKind.BEARER)
        registry.reset()
        site = Site(
            f"{proxy.url}/site",
            f"{proxy.url}/ws-tx",
            f"Bearer {token}",
            Style(terms.get("addressing_profile", "seed")),
            Version(terms.get("coordination_version", "2006/06")),
            Soap(terms.get("soap_version", "1.1")),
        )
        proxy.routes = {"/ws-tx/": str(live_server), "/site/": stack.enter_context(site_at(site))}
        yield World(time, proxy, site)


def _committed(world: World, *members: Member) -> None:
    """Everywhere, once, and everybody knows."""
    assert world.coordination.phase == Phase.COMMITTED
    assert world.coordination.decided_at is not None
    for member in members:
        assert member.effects == ["committed"]
        assert (member.taking.seat, member.record) == (Seat.NONE, None)
        assert world.enlistment(member).seat == Seat.NONE
    assert world.site.heard == ["Committed"]


def _aborted(world: World, *members: Member) -> None:
    """Nowhere, and everybody knows."""
    assert world.coordination.phase == Phase.ABORTED
    assert world.coordination.decided_at is None
    for member in members:
        assert "committed" not in member.effects
        assert (member.taking.seat, member.record) == (Seat.NONE, None)
    assert world.site.heard == ["Aborted"]


def test_x16_without_faults_a_transaction_commits(world: World) -> None:
    first, second = world.begin(Protocol.VOLATILE, Protocol.DURABLE)
    world.ask(Note.COMMIT)
    world.until(world.ended)
    _committed(world, first, second)
    assert (first.heard, second.heard) == (["Prepare", "Commit"], ["Prepare", "Commit"])
    assert clock.now() == AT  # nothing had to wait


@pytest.mark.parametrize("how", [pytest.param(how, id=f"T22-{how}") for how in LOSSES])
def test_x16_t22_participant_crashes_after_prepared(world: World, how: How) -> None:
    (member,) = world.begin(Protocol.DURABLE)
    world.proxy.will(how, "Commit", times=1000, about=member.marks)
    world.ask(Note.COMMIT)
    world.until(lambda: world.proxy.happened(how, "Commit") > 0)
    world.site.crash(member)
    world.settle()
    assert world.coordination.phase == Phase.COMMITTING
    assert member.effects == []

    world.proxy.faults.clear()
    before = clock.now()
    world.site.restart(member)
    world.settle()

    assert clock.now() == before  # Prepared asked for it: no timer of the hub had to run
    assert member.heard == ["Prepare", "Commit"]
    _committed(world, member)


@pytest.mark.parametrize(
    "world", [{"coordination_version": "2004/10", "soap_version": "1.2"}], indirect=True, ids=["T42"]
)
def test_x16_t42_replay_of_2004_10_after_a_crash(world: World) -> None:
    (member,) = world.begin(Protocol.DURABLE)
    world.proxy.will(How.LOST, "Commit", times=1000, about=member.marks)
    world.ask(Note.COMMIT)
    world.until(lambda: world.proxy.happened(How.LOST, "Commit") > 0)
    world.site.crash(member)
    world.proxy.faults.clear()
    world.site.restart(member)
    world.settle()
    assert ("Replay", "") in world.proxy.seen
    _committed(world, member)


@pytest.mark.parametrize("how", [pytest.param(how, id=f"T23-{how}") for how in LOSSES])
def test_x16_t23_first_prepared_is_lost(world: World, how: How) -> None:
    (member,) = world.begin(Protocol.DURABLE)
    world.proxy.will(how, "Prepared")
    world.ask(Note.COMMIT)
    world.until(world.ended)
    assert member.heard == ["Prepare", "Prepare", "Commit"]
    assert world.proxy.happened(how, "Prepared") == 1
    _committed(world, member)


@pytest.mark.parametrize("how", [pytest.param(how, id=f"T24-{how}") for how in LOSSES])
def test_x16_t24_prepared_is_lost_until_expires(world: World, how: How) -> None:
    (member,) = world.begin(Protocol.DURABLE, expires_ms=30_000)
    world.proxy.will(how, "Prepared", times=1000)
    world.ask(Note.COMMIT)
    world.until(world.ended)
    assert (clock.now() - AT).total_seconds() >= 30
    assert set(member.heard) == {"Prepare", "Rollback"}
    assert member.effects == ["rolled back"]
    _aborted(world, member)


@pytest.mark.parametrize("how", [pytest.param(how, id=f"T25-{how}") for how in LOSSES])
def test_x16_t25_commit_is_lost(world: World, how: How) -> None:
    (member,) = world.begin(Protocol.DURABLE)
    world.proxy.will(how, "Commit", times=2, about=member.marks)
    world.ask(Note.COMMIT)
    world.until(world.ended)
    assert world.proxy.happened(how, "Commit") == 2
    assert member.heard == ["Prepare", "Commit"]
    _committed(world, member)


def test_x16_t26_prepared_of_a_transaction_that_expired_and_is_forgotten(world: World) -> None:
    volatile, durable = world.begin(Protocol.VOLATILE, Protocol.DURABLE, expires_ms=10_000)
    # The volatile one votes, and its vote is late; so late that everything is over, and every Rollback was lost.
    world.proxy.will(How.HELD, "Prepared")
    world.proxy.will(How.LOST, "Prepared", times=1000)
    world.proxy.will(How.LOST, "Rollback", times=1000)
    world.ask(Note.COMMIT)
    world.until(world.ended)
    assert volatile.taking.seat is Seat.PREPARED
    assert world.proxy.happened(How.LOST, "Rollback") > 1

    world.proxy.faults.clear()
    assert world.proxy.release() == 1
    world.settle()
    assert volatile.heard[-1] == FaultCode.UNKNOWN_TRANSACTION
    assert volatile.effects == ["rolled back"]

    # The durable one was never asked. It comes back from a crash with a vote that the hub has no use for.
    assert durable.heard == []
    durable.record = Taking(Seat.PREPARED)
    world.site.restart(durable)
    world.settle()
    assert durable.heard == ["Rollback"]
    assert durable.effects == ["rolled back"]
    _aborted(world, volatile, durable)


@pytest.mark.parametrize("how", [pytest.param(how, id=f"T27-{how}") for how in LOSSES])
def test_x16_t27_committed_is_lost(world: World, how: How) -> None:
    (member,) = world.begin(Protocol.DURABLE)
    world.proxy.will(how, "Committed", about=member.marks)
    world.ask(Note.COMMIT)
    world.until(lambda: world.proxy.happened(how, "Committed") == 1)
    assert (member.taking.seat, member.record) == (Seat.NONE, None)
    world.until(world.ended)
    assert member.heard == ["Prepare", "Commit", "Commit"]
    _committed(world, member)


_COMMIT = ("Prepare", "Prepared", "Commit", "Committed")
_SLOW = pytest.mark.long


def _with_each(world: World, how: How, actions: tuple[str, ...], ask: Note, judge: Callable[..., None]) -> None:
    """One transaction for each action, with this fault for the first such message of every participant."""
    for action in actions:
        world.proxy.faults.clear()
        world.proxy.seen.clear()
        world.site.heard.clear()
        members = world.begin(Protocol.VOLATILE, Protocol.DURABLE)
        for member in members:
            world.proxy.will(how, action, about=member.marks)
        world.ask(ask)
        world.until(world.ended)
        # What was kept back comes when everything is over.
        while world.proxy.held:
            world.proxy.release()
            world.settle()
        assert world.proxy.happened(how, action) == len(members), (action, how)
        judge(world, *members)


@pytest.mark.parametrize(
    ("world", "how"),
    [
        pytest.param({}, How.HELD, id="seed-held"),
        pytest.param({}, How.TWICE, id="seed-twice"),
        *(pytest.param({}, how, id=f"seed-{how}", marks=_SLOW) for how in (How.LOST, How.CUT, How.UNANSWERED)),
        *(pytest.param({"addressing_profile": "oasis"}, how, id=f"oasis-{how}", marks=_SLOW) for how in How),
    ],
    indirect=["world"],
)
def test_x16_each_message_of_a_commit(world: World, how: How) -> None:
    _with_each(world, how, _COMMIT, Note.COMMIT, _committed)
    assert not Incident.objects.exists()


@pytest.mark.parametrize("how", [pytest.param(how, marks=() if how is How.HELD else _SLOW) for how in How])
def test_x16_each_message_of_a_rollback(world: World, how: How) -> None:
    _with_each(world, how, ("Rollback", "Aborted"), Note.ROLLBACK, _aborted)


@pytest.mark.parametrize("how", [How.CUT, How.UNANSWERED, How.TWICE])
def test_x16_requests_and_replies_cut_or_doubled(world: World, how: How) -> None:
    for action in ("CreateCoordinationContext", "Register"):
        world.proxy.will(how, action)
        world.proxy.will(how, f"{action}Response")
    (member,) = world.begin(Protocol.DURABLE)
    world.ask(Note.COMMIT)
    world.until(world.ended)
    _committed(world, member)
    assert Coordination.objects.count() == 1
    assert Enlistment.objects.count() == 2
