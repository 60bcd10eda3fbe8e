"""Continues in the transaction that decides: what follows from a fact is claimed where the fact is written.

Whoever stores a message of an idle pair, takes an acknowledgement or a reply, or owes a receipt, holds the lock already
and has the rows in hand. So it claims what is to be sent next, for a worker that lives, and hands it over after the
commit; nobody has to look for it. Only what is plain goes this way: over HTTP, small, to a server that takes it, of a
pair without trouble. Everything else, and everything while no worker is known, is due and found by
`claiming.claim_due`: the same steps of the same machine.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from django.db import transaction

from messaging import profile, storage
from messaging.choices import Direction
from messaging.claim import Claim, JobKind, lease_seconds
from messaging.engine import handover, preparing
from messaging.engine.handover import PLAIN_BYTES, Seat
from messaging.engine.pairs import is_due, queues
from messaging.engine.snapshots import apply_outbound, outbound_state, sender_policy
from messaging.models import Event, Message, Pair, Payload, Signal
from messaging.models.bulk import bulk_insert, bulk_set
from messaging.protocol.errors import EncodeError
from messaging.protocol.messages import Happened, move
from messaging.protocol.pair_state import Act, Flow, Gate, Kind
from messaging.protocol.pair_state import Event as PairEvent
from messaging.protocol.sender import step
from messaging.read_ahead import Octets, Unread
from messaging.servers import server_of_terms
from partners import registry
from partners.choices import VersionState
from partners.terms import Terms
from partners.transports import HTTP

STATE_FIELDS = ("state", "attempts", "due_at", "cause", "cause_detail", "first_sent_at", "completed_at")
PREPARED_FIELDS = (*STATE_FIELDS, "sequence_number", "content_type", "wire_frame", "digest")


class Continuation:
    """What one transaction claims for a worker beside what it decides. Made before it; `write` belongs to it."""

    def __init__(self, seat: Seat | None, now: datetime) -> None:
        self._seat = seat
        self.claim = Claim(now, max(1, seat.room) if seat is not None else 0, largest=PLAIN_BYTES)

    def takes(self, terms: Terms) -> bool:
        """Whether something under these terms may be claimed here at all."""
        return (
            self._seat is not None
            and terms.transport == HTTP.name
            and terms.state != VersionState.DISABLED
            and server_of_terms(terms) not in self._seat.full
        )

    def next_of(self, pair: Pair, message: Message, payloads: Sequence[Payload], terms: Terms) -> bool:
        """Claims the head of a pair's queue, if one is in flight at a time and it may go now. The caller writes both
        (`OUTBOUND_FIELDS`, `PREPARED_FIELDS`). False: nothing has changed, and the pair is due.
        """
        plain = profile.of(terms).numbered and not message.attempts and self.claim.carries(message)
        if not plain or not self.takes(terms) or not is_ready(pair):
            return False
        try:
            body = begin(pair, message, list(payloads), terms, self.claim)
        except (EncodeError, storage.PayloadMissing, Unread):
            return False  # the claim finds the same, and suspends the pair; or has it read
        transmit(pair, message, body, terms, self.claim)
        return True

    def once(self, pair: Pair, message: Message, payloads: Sequence[Payload], terms: Terms) -> bool:
        """Claims a message that is sent once, beside its pair. The caller writes it. False: it has not changed."""
        if pair.gate != Gate.OPEN or not self.takes(terms) or not self.claim.carries(message):
            return False
        try:
            send_once(message, payloads, terms, self.claim)
        except (EncodeError, storage.PayloadMissing, Unread):
            return False  # the claim finds the same, and ends it; or has it read
        return True

    def heads_of(self, pairs: Collection[Pair]) -> set[uuid.UUID]:
        """Claims the heads of these pairs, and writes their messages; returns the pairs that send one now."""
        ready = {pair.pk: pair for pair in pairs if self._seat is not None and is_ready(pair)}
        if not ready:
            return set()
        messages = heads(list(ready))
        payloads = Payload.of_messages(message.pk for message in messages.values())
        begun = []
        for pair_id, message in messages.items():
            terms = registry.current().version(message.agreement_version_id)
            if self.next_of(ready[pair_id], message, payloads[message.pk], terms):
                begun.append(message)
        bulk_set(begun, PREPARED_FIELDS)
        return {message.pair_id for message in begun}

    def many_of(self, pairs: Collection[Pair]) -> None:
        """Claims what may go now on those of these locked pairs that have several in flight: requests and streams.

        Writes messages and pairs; call it when all other rows are written. A pair that is due afterwards has more.
        """
        if self._seat is None:
            return
        now = self.claim.now
        due = {
            pair.pk: pair
            for pair in pairs
            if pair.direction == Direction.OUT and is_due(pair, now) and pair.flow == Flow.IDLE and not pair.cause
        }
        versions = registry.current()
        queued: dict[profile.Profile, dict[uuid.UUID, Message]] = {speaks: {} for speaks in profile.every()}
        for pair_id, head in heads([key for key, pair in due.items() if not pair.in_flight_id]).items():
            terms = versions.version(head.agreement_version_id)
            if self.takes(terms) and self.claim.carries(head):
                queued[profile.of(terms)][pair_id] = head
        for speaks, found in queued.items():
            if found:
                speaks.promote([due[pair_id] for pair_id in found], found, self.claim)

    def signal(self, signal: Signal, terms: Terms) -> bool:
        """Claims a receipt or an Error message that is not written yet. False: nothing has changed, and it is due."""
        if not self.takes(terms) or len(signal.body) > PLAIN_BYTES:
            return False
        preparing.answer(signal, terms, self.claim)
        return True

    def write(self) -> list[Event]:
        """Writes the attempts, and hands them over once the transaction is committed. Returns what happened beside."""
        seat, jobs, attempts = self._seat, self.claim.jobs, self.claim.transmissions
        if seat is not None and attempts:
            for attempt in attempts:
                attempt.worker = seat.worker
            bulk_insert(attempts)
            transaction.on_commit(lambda: handover.post(seat, jobs))
        return self.claim.written


def is_ready(pair: Pair) -> bool:
    """Whether the head of the pair's queue may go now."""
    return bool(
        pair.flow == Flow.IDLE and pair.queued and pair.gate == Gate.OPEN and not pair.probing and not pair.out_now
    )


def heads(pair_ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, Message]:
    """The first queued message of each pair."""
    return {pair_id: first for pair_id, (first, *_) in queues(dict.fromkeys(pair_ids, 1)).items()}


def begin(pair: Pair, message: Message, payloads: list[Payload], terms: Terms, claim: Claim) -> Octets:
    """Moves an idle pair on to the head of its queue, which it numbers and encodes; returns the body.

    Raises EncodeError, storage.PayloadMissing, Unread: no number is used up then, and both are as they were.
    """
    now = claim.now
    moved = step(outbound_state(pair), PairEvent(Kind.DUE), now, sender_policy(terms, probing=pair.probing))
    assert Act.PREPARE_NEXT in moved.acts
    message.sequence_number = moved.state.last_sequence
    try:
        body = _prepared(message, payloads, terms, claim)
    except (EncodeError, storage.PayloadMissing, Unread):
        message.sequence_number = None
        raise
    apply_outbound(pair, replace(moved.state, in_flight=str(message.pk)), now)
    return body


def _prepared(message: Message, payloads: list[Payload], terms: Terms, claim: Claim) -> Octets:
    return claim.octets(message, payloads, lambda one: preparing.prepare(one, payloads, terms, claim.now))


def transmit(pair: Pair, message: Message, body: Octets, terms: Terms, claim: Claim) -> None:
    """Claims the next attempt of the message that its pair has in flight."""
    message.state = move(message.state, Happened.TRANSMITTED, reliable=True)
    message.attempts += 1
    message.first_sent_at = message.first_sent_at or claim.now
    attempt = claim.transmit(
        JobKind.PAIR,
        message,
        body,
        terms,
        # A probe is the person's own look at the partner: it is made although the server is left alone just now.
        last=pair.probing or (pair.retries >= terms.retries and not terms.recovers(pair.transport_attempts)),
        **profile.of(terms).fields(message, terms),
    )
    pair.transmission_id = attempt.pk


def send_once(message: Message, payloads: Sequence[Payload], terms: Terms, claim: Claim) -> None:
    """Claims the only attempt of a message. Raises EncodeError, storage.PayloadMissing, Unread; it has not changed
    then.
    """
    body = _prepared(message, list(payloads), terms, claim)
    message.state = move(message.state, Happened.TRANSMITTED, reliable=False)
    message.attempts += 1
    message.first_sent_at = claim.now
    message.due_at = claim.now + timedelta(seconds=lease_seconds(terms))
    claim.transmit(JobKind.UNRELIABLE, message, body, terms, **profile.of(terms).fields(message, terms))
