"""Transactions and participants in short words, and what they do."""

from __future__ import annotations

from dataclasses import dataclass, field

from messaging.protocol.atomic import participant
from messaging.protocol.atomic.coordinator import Act, Event, Kind, Partaker, Transaction, step
from messaging.protocol.atomic.words import FaultCode, Note, Phase, Protocol, Seat, Vote

D, V, C = Protocol.DURABLE, Protocol.VOLATILE, Protocol.COMPLETION
ALL = {seat.value: seat for seat in Seat}


def said(acts: tuple[Act, ...] | tuple[participant.Act, ...], key: str | None = None) -> str:
    """Acts as words: `Prepare a`, `InvalidState a`, `forget a`, `decide` ... With a key only what concerns it."""
    words = []
    for act in acts:
        about = getattr(act, "key", "")
        if key is not None and about != key:
            continue
        what = act.note or act.fault or act.kind.value
        if act.kind.value in ("vote", "outcome", "answer"):
            what = f"{act.kind.value} {what}"
        words.append(f"{what} {about}".strip() if key is None else str(what))
    return ", ".join(words)


@dataclass
class Coordinator:
    """A transaction, and everything it did: `log` has one line for each event."""

    transaction: Transaction = field(default_factory=Transaction)
    log: list[str] = field(default_factory=list)
    acts: tuple[Act, ...] = ()

    def feed(self, event: Event) -> str:
        done = step(self.transaction, event)
        self.transaction, self.acts = done.transaction, done.acts
        self.log.append(said(done.acts))
        return self.log[-1]

    def enlist(self, key: str, protocol: Protocol, *, local: bool = False) -> str:
        return self.feed(Event(Kind.ENLIST, key, protocol=protocol, local=local))

    def hear(self, key: str, note: Note) -> str:
        return self.feed(Event(Kind.RECEIVED, key, note=note))

    def fault(self, key: str, fault: FaultCode) -> str:
        return self.feed(Event(Kind.FAULT_RECEIVED, key, fault=fault))

    def do(self, kind: Kind, key: str = "", outcome: Phase | None = None, fault: FaultCode | None = None) -> str:
        return self.feed(Event(kind, key, outcome=outcome, fault=fault))

    def seat(self, key: str) -> Seat:
        partaker = self.transaction.partaker(key)
        assert partaker is not None
        return partaker.seat

    @property
    def phase(self) -> Phase:
        return self.transaction.phase


def begun(**protocols: Protocol) -> Coordinator:
    """A transaction with these partakers, not yet completed; those whose name begins with `own` are local."""
    coordinator = Coordinator()
    for key, protocol in protocols.items():
        coordinator.enlist(key, protocol, local=key.startswith("own"))
    return coordinator


def subordinate(**protocols: Protocol) -> Coordinator:
    """The same, interposed: another coordinator decides."""
    coordinator = Coordinator(Transaction(subordinate=True))
    for key, protocol in protocols.items():
        coordinator.enlist(key, protocol)
    return coordinator


def committing(**protocols: Protocol) -> Coordinator:
    """It is decided, and nobody has answered Commit."""
    coordinator = preparing(**protocols)
    for protocol in (V, D):
        for one in coordinator.transaction.partakers:
            if one.protocol is protocol and one.votes:
                coordinator.hear(one.key, Note.PREPARED)
    coordinator.do(Kind.DECIDED)
    return coordinator


def preparing(**protocols: Protocol) -> Coordinator:
    coordinator = begun(**protocols)
    coordinator.do(Kind.COMMIT_ASKED)
    return coordinator


_PHASES = {
    Seat.NONE: Phase.ABORTED,
    Seat.ACTIVE: Phase.ACTIVE,
    Seat.PREPARING: Phase.PREPARING_DURABLE,
    Seat.PREPARED: Phase.PREPARING_DURABLE,
    Seat.COMMITTING: Phase.COMMITTING,
    Seat.ABORTING: Phase.ABORTING,
}


def sitting(seat: Seat, protocol: Protocol = D, version: str = "2006/06") -> Coordinator:
    """`p` has this seat in a transaction whose other participant, `q`, owes an answer too."""
    phase = _PHASES[seat]
    other = {Seat.NONE: Seat.NONE, Seat.PREPARED: Seat.PREPARING}.get(seat, seat)
    voted = Vote.PREPARED if seat in (Seat.PREPARED, Seat.COMMITTING) else None
    rows = (Partaker("p", protocol, seat, voted), Partaker("q", D, other, None if seat is Seat.PREPARED else voted))
    return Coordinator(Transaction(phase, rows, decided=phase is Phase.COMMITTING, version=version))


@dataclass
class Participant:
    taking: participant.Taking = field(default_factory=participant.Taking)
    log: list[str] = field(default_factory=list)

    def feed(self, event: participant.Event) -> str:
        done = participant.step(self.taking, event)
        self.taking = done.taking
        self.log.append(said(done.acts))
        return self.log[-1]

    def hear(self, note: Note) -> str:
        return self.feed(participant.Event(participant.Kind.RECEIVED, note=note))

    def fault(self, fault: FaultCode) -> str:
        return self.feed(participant.Event(participant.Kind.FAULT_RECEIVED, fault=fault))

    def do(self, kind: participant.Kind, outcome: Phase | None = None) -> str:
        return self.feed(participant.Event(kind, outcome=outcome))

    @property
    def seat(self) -> Seat:
        return self.taking.seat


def taking(seat: Seat, protocol: Protocol = D, version: str = "2006/06", settled: Phase | None = None) -> Participant:
    return Participant(participant.Taking(seat, protocol, version, settled))


def awaiting(acts: tuple[Act, ...]) -> list[str]:
    """What goes out again until it is answered."""
    return [f"{act.note} {act.key}" for act in acts if act.awaits]
