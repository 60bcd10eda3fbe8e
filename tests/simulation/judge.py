"""Watches a simulated world from outside and says which promise (DESIGN.md, invariants) was broken.

It keeps books of its own, from what it sees happen: messages prepared, put on the wire, stored, acknowledged.
The hubs' rows are only held against them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from messaging.protocol.envelope import MAX_SEQUENCE_NUMBER
from messaging.protocol.messages import State
from messaging.protocol.pair_state import Flow

if TYPE_CHECKING:
    from tests.simulation.hub import Hub, Packet, Row

WAITING = frozenset({Flow.SENDING, Flow.AWAITING_ACK, Flow.RESEND_WAIT, Flow.HOLDING})
WITH_RECEIVER = frozenset({State.SENDING, State.AWAITING_ACK, State.RETRYING, State.FAILED})
GIVEN_UP = frozenset({State.SKIPPED, State.CANCELLED})
DONE = GIVEN_UP | {State.DELIVERED}
# Where the message in flight may stand while its pair is in a flow.
MATCHING: dict[Flow, frozenset[State]] = {
    Flow.SENDING: frozenset({State.SENDING}),
    # After transport recovery a pair waits as if its message had been sent (2.5.4), and the message says retrying.
    Flow.AWAITING_ACK: frozenset({State.AWAITING_ACK, State.RETRYING}),
    Flow.RESEND_WAIT: frozenset({State.RETRYING}),
    Flow.HOLDING: frozenset({State.RETRYING}),
    Flow.SUSPENDED: frozenset({State.FAILED}),
}


class Broken(AssertionError):
    """A promise was broken. `invariant` names it as DESIGN.md does."""

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant
        self.text = text


@dataclass(slots=True)
class Road:
    """Books of one direction: what the sending hub and the receiving hub did."""

    next_number: int
    prepared: dict[str, list[Packet]] = field(default_factory=dict)  # one entry more for each restart of the sequence
    on_the_wire: list[str] = field(default_factory=list)  # in the order in which they first went out
    stored: list[str] = field(default_factory=list)
    highest: int = 0  # position of the latest message stored that was not given up by then
    receipts: dict[str, int] = field(default_factory=dict)


class Judge:
    """One for a world. Its methods raise Broken."""

    def __init__(self, unwatched: frozenset[str] = frozenset()) -> None:
        self.unwatched = unwatched
        self.roads: dict[str, Road] = {}  # by the sending hub's name

    def _broken(self, invariant: str, text: str) -> None:
        if invariant not in self.unwatched:
            raise Broken(invariant, text)

    # What hubs tell as it happens.

    def prepared(self, hub: Hub, row: Row) -> None:
        """A message got its number and its octets."""
        road = self.roads[hub.name]
        if row.number != road.next_number:
            which = "invariant 9" if road.next_number == 1 else "invariant 3"
            self._broken(which, f"{row.id} is number {row.number}, and {road.next_number} comes next")
        for other in hub.rows.values():
            if other.state in WITH_RECEIVER:
                self._broken("invariant 2", f"{row.id} is numbered while {other.id} is in flight")
            if other.state is State.QUEUED and other.position < row.position:
                self._broken("invariant 3", f"{row.id} is numbered before {other.id}, which was submitted earlier")
        number = row.number or 0
        road.next_number = 1 if number >= MAX_SEQUENCE_NUMBER else number + 1
        road.prepared.setdefault(row.id, []).append(row.octets)

    def restarted(self, hub: Hub) -> None:
        """A person skipped or cancelled the message in flight, or restarted the sequence."""
        self.roads[hub.name].next_number = 1

    def transmitted(self, hub: Hub, packet: Packet) -> None:
        """A message of this hub goes on the wire."""
        road = self.roads[hub.name]
        if packet not in road.prepared.get(packet.id, ()):
            self._broken("invariant 3", f"{packet.id} goes out with other octets than those that were stored")
        if packet.id not in road.on_the_wire:
            road.on_the_wire.append(packet.id)
        pending = [i for i in road.on_the_wire if hub.rows[i].state not in DONE]
        if len(pending) > 1:
            self._broken("invariant 2", f"{pending} are on the wire at once, without acknowledgement")

    def stored(self, sender: Hub, packet: Packet) -> None:
        """The other hub committed this message."""
        road = self.roads[sender.name]
        if packet.id in road.stored:
            self._broken("invariant 4", f"{packet.id} is stored twice")
        road.stored.append(packet.id)
        row = sender.rows[packet.id]
        if row.state not in GIVEN_UP:
            if row.position < road.highest:
                self._broken("invariant 4", f"{packet.id} is stored after a message that was submitted after it")
            road.highest = row.position

    def received(self, sender: Hub, packet: Packet) -> None:
        """The other hub took a copy of this message, new or not, and has to acknowledge it."""
        receipts = self.roads[sender.name].receipts
        receipts[packet.id] = receipts.get(packet.id, 0) + 1

    def acknowledged(self, receiver: Hub, sender: Hub, packet: Packet) -> None:
        """An acknowledgement of the receiver goes on the wire."""
        if packet.id not in receiver.stored:
            self._broken("invariant 1", f"{packet.id} is acknowledged before it is stored")
        if packet.id not in sender.rows:
            self._broken("invariant 5", f"{packet.id} is acknowledged and is no message")

    # What must be true whenever no transaction is open.

    def look(self, hub: Hub, peer: Hub) -> None:
        """Holds the hub's rows against the books, and against each other."""
        pair, road = hub.pair, self.roads[hub.name]
        open_rows = [row for row in hub.rows.values() if row.state in WITH_RECEIVER]
        if len(open_rows) > 1:
            self._broken("invariant 2", f"{[row.id for row in open_rows]} are in flight at once")
        if [row.id for row in open_rows] != ([pair.in_flight] if pair.in_flight else []):
            self._broken("invariant 2", f"in flight is {pair.in_flight!r}, and rows say {[r.id for r in open_rows]}")
        if open_rows and open_rows[0].state not in MATCHING.get(pair.flow, frozenset()):
            text = f"{open_rows[0].id} is {open_rows[0].state} while its pair is {pair.flow}"
            self._broken("invariant 6", f"{text}: the outcome of another attempt was taken for its own")
        if (pair.flow in WAITING) != bool(pair.in_flight) and pair.flow is not Flow.SUSPENDED:
            self._broken("invariant 6", f"pair is {pair.flow} with {pair.in_flight!r} in flight")
        if pair.flow in WAITING and pair.due_at is None:
            self._broken("invariant 7", f"pair is {pair.flow} and nothing is due")
        queued = sum(1 for row in hub.rows.values() if row.state is State.QUEUED)
        if pair.queued != queued:
            self._broken("invariant 7", f"pair counts {pair.queued} queued, and there are {queued}")
        if pair.flow is Flow.IDLE and queued and pair.due_at is None:
            self._broken("invariant 7", f"{queued} messages wait and nothing is due")
        if pair.retries > hub.policy.retries or pair.transport_attempts > hub.policy.transport_retries:
            self._broken("invariant 6", f"more retries than agreed: {pair}")
        for row in hub.rows.values():
            if row.state is State.DELIVERED and row.id not in peer.stored:
                self._broken("invariant 4", f"{row.id} counts as delivered and is not stored")
        self._look_at_acknowledgements(peer, road)

    def _look_at_acknowledgements(self, receiver: Hub, road: Road) -> None:
        """Every receipt is acknowledged, still owed, or was given up after so many transport failures."""
        for message_id, receipts in road.receipts.items():
            signal = receiver.signals.get(f"ack {message_id}")
            counted = 0 if signal is None else signal.sends + signal.owed + signal.given_up
            if counted != receipts:
                text = f"{message_id} was received {receipts} times, and {counted} acknowledgements are accounted for"
                self._broken("invariant 5", text)
            if signal is not None and signal.owed and signal.due_at is None:
                self._broken("invariant 5", f"an acknowledgement of {message_id} is owed and not due")

    def close(self, hub: Hub, peer: Hub) -> None:
        """At the end, with the link healed and every suspended pair resumed: all is delivered, once, in order."""
        for row in hub.rows.values():
            if row.state not in DONE:
                self._broken("liveness", f"{row.id} is still {row.state}")
        kept = [row.id for row in hub.rows.values() if row.state is State.DELIVERED]
        given_up = {row.id for row in hub.rows.values() if row.state in GIVEN_UP}
        arrived = [message_id for message_id in peer.stored if message_id not in given_up]
        if arrived != kept:
            self._broken("liveness", f"sent {kept}, stored {arrived}")
        if hub.pair.flow is not Flow.IDLE:
            self._broken("liveness", f"the pair ends {hub.pair.flow}")
        owing = [signal.key for signal in hub.signals.values() if signal.owed]
        if owing:
            self._broken("liveness", f"still owed: {owing}")
