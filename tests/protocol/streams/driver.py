"""A sender of a stream under a clock in seconds, and what it puts on the wire."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from messaging.protocol.streams.envelope import tx_sequence_id
from messaging.protocol.streams.outgoing import (
    Act,
    Do,
    Event,
    InFlight,
    Kind,
    Outgoing,
    Place,
    Policy,
    next_due,
    room,
    step,
)

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
A = tx_sequence_id(1_000_000, 1)
POLICY = Policy(window=8, concurrency=8, retries=20, transport_retries=2, transport_retry_interval=4, lease=60)


@dataclass
class Sender:
    """`sent`: (second, number, previous) of every transmission. `done`: what left the flight, and how."""

    policy: Policy = POLICY
    state: Outgoing = field(default_factory=lambda: Outgoing(A))
    seconds: float = 0
    sent: list[tuple[float, int, int]] = field(default_factory=list)
    done: list[tuple[str, int]] = field(default_factory=list)
    acts: tuple[Act, ...] = ()

    @property
    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)

    @property
    def due(self) -> float | None:
        """When the pair is due, in seconds."""
        moment = next_due(self.state, self.now, self.policy)
        return None if moment is None else (moment - START).total_seconds()

    @property
    def flight(self) -> list[int]:
        return [row.number for row in self.state.flight]

    def row(self, number: int) -> InFlight:
        return next(row for row in self.state.flight if row.number == number)

    def __call__(self, kind: Kind, **event: object) -> tuple[Act, ...]:
        """One event, now."""
        result = step(self.state, Event(kind=kind, **event), self.now, self.policy)
        self.state, self.acts = result.state, result.acts
        self.sent += [(self.seconds, act.number, act.previous) for act in result.acts if act.do is Do.TRANSMIT]
        ends = (Do.COMPLETE, Do.EXPIRE, Do.DROP, Do.REQUEUE)
        self.done += [(act.do.value, act.number) for act in result.acts if act.do in ends]
        return result.acts

    def queue(self, count: int) -> None:
        for _ in range(count):
            self(Kind.QUEUED)

    def claim(self, *expires: float | None) -> None:
        """What a worker does when the pair is due. `expires`: seconds from the start, of the new messages."""
        self(Kind.DUE)
        count = room(self.state, self.policy)
        lives = tuple(None if second is None else START + timedelta(seconds=second) for second in expires)
        self(Kind.START, count=count, expires=lives)

    def handed_over(self, *numbers: int) -> None:
        """Their transmissions end well; without numbers, all of them."""
        on_wire = [row.number for row in self.state.flight if row.place is Place.ON_WIRE]
        for number in numbers or on_wire:
            self(Kind.SENT, number=number)

    def send(self, count: int = 1, *expires: float | None) -> None:
        """That many new messages are submitted and handed over."""
        self.queue(count)
        self.claim(*expires)
        self.handed_over()

    def acknowledged(self, number: int, sid: int | None = None) -> None:
        self(Kind.ACKNOWLEDGED, tx_sequence_id=sid or self.state.tx_sequence_id, number=number)

    def pass_to_due(self) -> None:
        """Time passes until the pair is due, and a worker looks; what it sends is handed over."""
        assert self.due is not None
        self.seconds = max(self.seconds, self.due)
        self.claim()
        self.handed_over()
