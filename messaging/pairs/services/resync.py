"""After a loss of memory (`engine.memory`): what is no longer known of pairs, and who says that they agree again.

The database is as of some moment, and partners and applications have gone on since. So no number is used that may be
taken, nothing is sent or processed as if it were certainly the first time, and each pair says that it needs resync
until a person has compared what both sides have. Traffic goes on meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime

from messaging import dispatch, profile
from messaging.bulk.services import endings as job_endings
from messaging.choices import Direction, MessageState, Outcome, ServiceKind
from messaging.engine.pairs import ensure_pairs
from messaging.engine.snapshots import OUTBOUND_FIELDS, apply_outbound, outbound_state
from messaging.journal import events, incidents
from messaging.models import Delivery, Event, Message, Pair, Transmission
from messaging.models.bulk import bulk_insert, bulk_set
from messaging.profile import terms_in_force
from messaging.profiles.repeatable import repeating
from messaging.profiles.stream.moving import begin_anew
from messaging.protocol.envelope import Semantics
from messaging.protocol.messages import Happened, move
from messaging.protocol.pair_state import Act, Kind, SenderPolicy
from messaging.protocol.pair_state import Event as PairEvent
from messaging.protocol.sender import step
from partners import registry

CAUSE = "needs_resync"
TRANSACTION = "transaction_lost"  # somebody asks about one that was begun in the time that is forgotten
# What no timer of the agreement has a part in.
_NO_TERMS = SenderPolicy(timeout=0, retries=0, retry_interval=0)
MARK = ("resync_since", "resync_from", "version")
_UNKNOWN = "The database was restored: it may have been sent after the backup."


def begin(now: datetime, as_of: datetime | None, reason: str) -> int:
    """Everything that a loss of memory makes uncertain, marked; returns how many pairs there are.

    `as_of`: what came before it is in the database for certain; None when nothing says so. Call inside a transaction.
    """
    # Before the pairs: a job's worker holds its item, and then asks for the pair of what it works on.
    job_endings.refuse_what_waits(now)
    ensure_pairs()  # one that no message has needed yet may have been used since
    pairs = Pair.locked(Pair.objects.values_list("pk", flat=True))
    outbound = [pair for pair in pairs.values() if pair.direction == Direction.OUT]
    inbound = [pair for pair in pairs.values() if pair.direction == Direction.IN]
    _restart_sequences(outbound, now)
    begin_anew(now)
    _doubt_what_waits(outbound, as_of or now, now)
    _give_up_what_goes_out_once(now)
    _lose_numbers(inbound)
    # What callables did was in this database, and went with it.
    waiting = Delivery.objects.filter(state="waiting").exclude(trigger__kind=ServiceKind.CALLABLE)
    waiting.update(memory_lost=True)
    # One that is lost in a transaction is rolled back, and new again; but this one may have been committed since.
    in_transactions = Delivery.objects.filter(state="running", trigger__kind=ServiceKind.ATOMIC)
    in_transactions.update(memory_lost=True)
    # Read again: streams have moved theirs.
    written: list[Event] = []
    marked = Pair.locked(pairs)
    for pair in marked.values():
        written += _mark(pair, as_of, reason, now)
    bulk_set(list(marked.values()), MARK)
    events.write(written)
    dispatch.wake_on_commit(dispatch.SEND)
    return len(marked)


def clear(pair: Pair, *, by: str, evidence: str, now: datetime) -> list[Event]:
    """A person has compared both sides: what comes from now on is new again. What is in doubt stays so.

    Call with the pair locked; the caller saves it. Returns the events.
    """
    pair.resync_since = pair.resync_from = None
    pair.version += 1
    cleared = events.event("pair.resynced", now, pair=pair, data={"reason": evidence, "actor": by})
    resolved = incidents.incidents_resolve_for_pair(
        pair=pair, now=now, by=by, resolution=evidence, causes=(CAUSE, TRANSACTION)
    )
    return [cleared, *resolved]


def _restart_sequences(pairs: Iterable[Pair], now: datetime) -> None:
    """Outbound pairs of spec 1: what the database does not know was sent under the numbers that it would give next."""
    changed, lost = [], []
    for pair in pairs:
        if not profile.carried(pair, terms_in_force(pair)).numbered:
            continue
        moved = step(outbound_state(pair), PairEvent(Kind.FORGOTTEN), now, _NO_TERMS)
        apply_outbound(pair, moved.state, now)
        changed.append(pair)
        if Act.RESEND in moved.acts:
            assert pair.in_flight_id is not None
            lost.append(pair.in_flight_id)
            pair.transmission_id = None
    bulk_set(changed, OUTBOUND_FIELDS)
    messages = list(Message.objects.filter(pk__in=lost).order_by("pk").select_for_update().defer("wire_frame"))
    for message in messages:
        message.state = move(message.state, Happened.WILL_RETRY, reliable=True)
    bulk_set(messages, ("state",))
    on_the_wire = Transmission.objects.filter(message_id__in=lost, outcome=Outcome.ON_THE_WIRE)
    on_the_wire.update(outcome=Outcome.LOST, cause="worker_lost", detail=_UNKNOWN, finished_at=now)


def _doubt_what_waits(pairs: Collection[Pair], as_of: datetime, now: datetime) -> None:
    """Messages in flight one by one that wait in the database may have been sent since, first at a time that is
    forgotten.

    They get the earliest that it can have been. A partner that has a request refuses the other time, and as an attempt
    of nobody knows what outcome came before, it is in doubt then; and nothing is sent once the partner may have
    forgotten it.
    """
    queued = Message.objects.filter(
        pair__in=[pair.pk for pair in pairs], state=MessageState.QUEUED, attempts=0, due_at=None
    )
    versions = registry.current()
    messages: list[Message] = []
    attempts: list[Transmission] = []
    for message in queued.order_by("pk").select_for_update(of=("self",)).defer("wire_frame").iterator():
        terms = versions.version(message.agreement_version_id)
        if not profile.of(terms).one_by_one:
            continue
        attempts.append(repeating.maybe_sent(message, terms, as_of, now, cause=CAUSE, detail=_UNKNOWN))
        messages.append(message)
    bulk_set(messages, repeating.MAYBE_SENT)
    bulk_insert(attempts)


def _give_up_what_goes_out_once(now: datetime) -> None:
    """A message that goes out once at most, and waits, may have gone out: its sender is told (spec 1, 3.1.2)."""
    found = Message.objects.filter(
        direction=Direction.OUT, state=MessageState.QUEUED, semantics=Semantics.AT_MOST_ONCE, due_at__isnull=False
    )
    messages = list(found.order_by("pk").select_for_update().defer("wire_frame"))
    for message in messages:
        for happened in (Happened.TRANSMITTED, Happened.GAVE_UP):
            message.state = move(message.state, happened, reliable=False)
        message.cause, message.cause_detail = CAUSE, _UNKNOWN
        message.due_at, message.completed_at = None, now
    bulk_set(messages, ("state", "cause", "cause_detail", "due_at", "completed_at"))
    data = {"cause": CAUSE, "detail": _UNKNOWN}
    events.write([events.event("message.failed", now, pair=one.pair_id, message=one, data=data) for one in messages])


def _lose_numbers(pairs: Iterable[Pair]) -> None:
    """Inbound pairs of spec 1: the partner goes on with numbers whose predecessors are forgotten.

    The sender of a stream leads past what is forgotten by itself (protocols 3.4), and requests have no numbers.
    """
    numbered = [pair for pair in pairs if profile.carried(pair, terms_in_force(pair)).numbered]
    for pair in numbered:
        pair.takes_any_number = True
    bulk_set(numbered, ("takes_any_number",))


def _mark(pair: Pair, as_of: datetime | None, reason: str, now: datetime) -> list[Event]:
    earlier = [moment for moment in (pair.resync_from, as_of) if moment is not None]
    pair.resync_from = min(earlier) if earlier else None
    pair.resync_since = now
    pair.version += 1
    detail = f"{reason} {forgotten(pair)} {_advice(pair)}"
    incident, opened = incidents.incident_open(pair=pair, cause=CAUSE, now=now, detail=detail)
    data = {"cause": CAUSE, "detail": detail, "incident": incident.public_id}
    return [events.event("pair.needs_resync", now, pair=pair, data=data), *opened]


def forgotten(pair: Pair) -> str:
    """Which time is not known, in a sentence."""
    until = f"{pair.resync_since:%Y-%m-%d %H:%M:%S}"
    if pair.resync_from is None:
        return f"What happened on this pair before {until} UTC may be missing here."
    return (
        f"What happened on this pair between {pair.resync_from:%Y-%m-%d %H:%M:%S} and {until} UTC may be missing here."
    )


def _advice(pair: Pair) -> str:
    if pair.direction == Direction.IN:
        return (
            "Ask the partner which messages of that time were acknowledged: those are not here. What comes from now on"
            " may be a repeat of one, and is handed to applications only when their resolver says that it is new."
        )
    again = pair.in_queue
    said = (
        f"{again:,} that this database has as waiting or on the way may have been delivered since; "
        f"{'it goes' if again == 1 else 'they go'} out again under the same ids. "
        if again
        else ""
    )
    return (
        f"{said}Ask the applications what they have submitted in that time: what is not here was delivered, or is lost."
    )
