"""One message through the sender's own machine, event by event: what the timing advice must agree with."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from messaging.protocol.pair_state import Act, Event, Flow, Kind, PairState, SenderPolicy
from messaging.protocol.sender import step

_START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class World:
    """How the partner was while the message was under way; microseconds, None = for ever (`jobs.replay`)."""

    outage: int | None
    latency: int | None
    failing: bool
    lost_takes: int
    sent_takes: int


@dataclass(frozen=True, slots=True)
class Choice:
    """Seconds and counts of an agreement."""

    timeout: int
    retries: int
    retry_interval: int
    transport_retries: int = 2
    transport_retry_interval: int = 10


@dataclass(frozen=True, slots=True)
class Course:
    """What came of it; `micros` is None when the pair was suspended first."""

    attempts: int
    needless: int
    gave_up: bool
    micros: int | None


def course(world: World, choice: Choice) -> Course:
    """Runs the machine until the message is acknowledged or the pair is suspended."""
    policy = SenderPolicy(
        timeout=choice.timeout,
        retries=choice.retries,
        retry_interval=choice.retry_interval,
        transport_retries=choice.transport_retries,
        transport_retry_interval=choice.transport_retry_interval,
        lease=10**9,
    )
    attempts = needless = 0
    recorded_at: datetime | None = None  # when the attempt on the wire is recorded, and as what
    recorded = Kind.SENT
    answer_at: datetime | None = None

    def transmitted(now: datetime) -> None:
        nonlocal attempts, needless, recorded_at, recorded, answer_at
        attempts += 1
        needless += answer_at is not None
        since = (now - _START) // timedelta(microseconds=1)
        up = world.outage is not None and world.latency is not None and since >= world.outage
        takes = world.sent_takes if up else world.lost_takes
        recorded_at = now + timedelta(microseconds=takes)
        recorded = Kind.TRANSPORT_FAILED if world.failing and not up else Kind.SENT
        if up and answer_at is None:
            assert world.latency is not None
            answer_at = now + timedelta(microseconds=world.latency)

    moved = step(PairState(queued=1, due_at=_START), Event(Kind.DUE), _START, policy)
    state = moved.state
    assert Act.PREPARE_NEXT in moved.acts
    transmitted(_START)
    while True:
        timer = recorded_at if state.flow is Flow.SENDING else state.due_at
        assert timer is not None
        if answer_at is not None and answer_at <= timer:
            moved = step(state, Event(Kind.ACKNOWLEDGED), answer_at, policy)
            assert Act.COMPLETE in moved.acts
            return Course(attempts, needless, False, (answer_at - _START) // timedelta(microseconds=1))
        kind = recorded if state.flow is Flow.SENDING else Kind.DUE
        moved = step(state, Event(kind, cause="some"), timer, policy)
        state = moved.state
        if Act.TRANSMIT in moved.acts:
            transmitted(timer)
        if Act.GIVE_UP in moved.acts:
            return Course(attempts, needless, True, None)
