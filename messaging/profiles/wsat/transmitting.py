"""Messages of atomic transactions on their way (spec 5): claimed with what else is due, and what came of the attempt.

`Message.due_at` is the one timer of such a message: the end of its lease, its next resend, or the next look at a pair
that is shut. What awaits an answer is never given up by itself: a participant that has voted may not forget, and
neither may a coordinator that has decided. What nobody answers goes out until the other side takes it, or until a day
after its transaction has ended.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db import transaction

from messaging import storage
from messaging.choices import MessageState
from messaging.claim import Claim, Due, Job, Recorded
from messaging.engine import circuits, preparing
from messaging.journal import events, incidents
from messaging.models import Coordination, CoordinationMessage, Event, Message, Pair
from messaging.models.bulk import bulk_set, read
from messaging.profiles.wsat import due as transactions
from messaging.profiles.wsat.outgoing import OPEN, SILENT, let_go, may_go_to, transmit
from messaging.protocol.atomic.transaction import patience, wait
from messaging.protocol.circuit import UNREACHABLE
from messaging.protocol.messages import Happened, move_atomic
from messaging.protocol.pair_state import Gate
from messaging.transports import Receipt
from partners import registry
from partners.choices import VersionState
from partners.terms import Terms

log = logging.getLogger(__name__)

MESSAGE_FIELDS = ("state", "attempts", "due_at", "cause", "cause_detail", "first_sent_at", "completed_at")
_PAIR_FIELDS = ("retries", "cause", "cause_detail", "done", "last_success_at")
LOOK_AGAIN = timedelta(seconds=10)  # at a pair that is shut; releasing it makes all of it due at once
GIVEN_UP_AFTER = timedelta(days=1)  # since its transaction has ended: what nobody answers and nobody takes
ELSEWHERE = "address_outside_agreement"


# --- claim ---


@dataclass(frozen=True, slots=True)
class _Quiet:
    """Messages that go unanswered too long (`silent`), and those that wait too long behind a pair that is shut."""

    silent: list[uuid.UUID] = field(default_factory=list)
    held: list[uuid.UUID] = field(default_factory=list)


def send(due: Due, claim: Claim) -> None:
    """Claims locked messages that are due."""
    known = _facts(message.pk for message in due.messages)
    quiet = _Quiet()
    for message in due.messages:
        gate = due.pairs[message.pair_id].gate
        _send(message, known.get(message.pk), gate, quiet, claim)
    bulk_set(list(due.messages), MESSAGE_FIELDS)
    claim.after.append(lambda: report(quiet.silent, quiet.held, claim.now))


def _send(message: Message, facts: CoordinationMessage | None, gate: str, quiet: _Quiet, claim: Claim) -> None:
    now = claim.now
    terms = registry.current().version(message.agreement_version_id)
    if facts is None:
        _finish(message, Happened.CANCELLED, True, "transaction_forgotten", "Its transaction is forgotten.", now)
        return
    awaits = facts.awaits
    if gate != Gate.OPEN or terms.state == VersionState.DISABLED:
        _wait(message, awaits, now + LOOK_AGAIN)
        if awaits and transactions.matters(facts) and message.created_at <= now - _patience(terms):
            quiet.held.append(message.pk)
        return
    if not awaits and message.state == MessageState.RETRYING and _forgotten(facts, message, now):
        _finish(message, Happened.CANCELLED, False, "transaction_forgotten", message.cause_detail, now)
        return
    if awaits and message.attempts > terms.retries and not transactions.is_settled(facts):
        quiet.silent.append(message.pk)
    if not may_go_to(terms, facts.address):
        said = f"{facts.address} is not at {terms.partner_address} any more: it is not called."
        _not_sent(message, awaits, ELSEWHERE, said, terms, now)
        return
    try:
        body = preparing.stored_body(message, [])
    except storage.PayloadMissing as error:
        _not_sent(message, awaits, "payload_missing", str(error)[:500], terms, now)
        return
    transmit(message, facts, body, terms, claim)


def _not_sent(message: Message, awaits: bool, cause: str, detail: str, terms: Terms, now: datetime) -> None:
    """An attempt that never reached the network: the next one comes as after any other failure."""
    if message.state != MessageState.RETRYING:
        message.state = move_atomic(message.state, Happened.WILL_RETRY, awaits=awaits)
    message.attempts += 1
    message.cause, message.cause_detail = cause, detail
    message.due_at = now + _until_next(message, terms)


def _wait(message: Message, awaits: bool, until: datetime) -> None:
    """Not now. One whose lease ran out went out or not: it goes out again."""
    if message.state == MessageState.SENDING:
        message.state = move_atomic(message.state, Happened.WILL_RETRY, awaits=awaits)
    message.due_at = until


def _finish(message: Message, happened: Happened, awaits: bool, cause: str, detail: str, now: datetime) -> None:
    message.state = move_atomic(message.state, happened, awaits=awaits)
    message.cause, message.cause_detail = cause, detail
    message.due_at, message.completed_at = None, now


def _forgotten(facts: CoordinationMessage, message: Message, now: datetime) -> bool:
    """Whether its transaction ended a day ago; without one, whether the message is that old."""
    if facts.coordination is None:
        return message.created_at <= now - GIVEN_UP_AFTER
    ended_at = facts.coordination.ended_at
    return ended_at is not None and max(ended_at, message.created_at) <= now - GIVEN_UP_AFTER


def _until_next(message: Message, terms: Terms) -> timedelta:
    waits = wait(max(1, message.attempts), terms.repeat_interval, terms.repeat_interval_max)
    return timedelta(seconds=waits)


def _patience(terms: Terms) -> timedelta:
    return timedelta(seconds=patience(terms.retries, terms.repeat_interval, terms.repeat_interval_max))


def _facts(ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, CoordinationMessage]:
    rows = CoordinationMessage.objects.filter(pk__in=list(ids)).select_related("coordination", "enlistment")
    return {row.message_id: row for row in rows}


# --- record ---


@dataclass(frozen=True, slots=True)
class _News:
    """`fixed`: pairs that send again, and what was wrong with them. `refused`: what a partner refuses for good."""

    fixed: list[tuple[Pair, str]] = field(default_factory=list)
    refused: list[tuple[Pair, Message, Receipt]] = field(default_factory=list)


def record(outcomes: Sequence[tuple[Job, Receipt]], now: datetime) -> Recorded:
    """Moves messages and their pairs.

    An outcome that comes after its lease ran out, or after the answer, moves nothing. Messages are locked before their
    pairs, like by those who store an answer; the pairs so that new messages can be put into their outbox meanwhile.
    """
    moved: dict[uuid.UUID, str] = {}
    messages = Message.of_ids((job.message_id for job, _ in outcomes if job.message_id), lock=True)
    known = _facts(messages)
    taken: list[CoordinationMessage] = []
    by_pair: dict[uuid.UUID, list[tuple[Message, Receipt, bool]]] = {}
    for job, receipt in outcomes:
        message, facts = messages.get(job.message_id), known.get(job.message_id)  # type: ignore[arg-type]
        if message is None or facts is None:
            continue
        first = receipt.ok and facts.taken_at is None
        if first:
            facts.taken_at = now
            taken.append(facts)
        by_pair.setdefault(message.pair_id, []).append((message, receipt, first))
        if message.state != MessageState.SENDING or message.attempts != job.number:
            continue
        moved[job.transmission_id] = receipt.cause
        _move(message, facts.awaits, receipt, registry.current().version(job.version_id), now)
    bulk_set(list(messages.values()), MESSAGE_FIELDS)
    bulk_set(taken, ("taken_at",))
    news = _record_pairs(by_pair, now)
    return Recorded(moved, lambda: _tell(news, now))


def _move(message: Message, awaits: bool, receipt: Receipt, terms: Terms, now: datetime) -> None:
    happened = Happened.HANDED_OVER if receipt.ok else Happened.WILL_RETRY
    message.state = move_atomic(message.state, happened, awaits=awaits)
    message.cause, message.cause_detail = receipt.cause, receipt.detail
    if receipt.ok and not awaits:
        message.due_at, message.completed_at = None, now
        return
    pause = _until_next(message, terms)
    if receipt.retry_after is not None:
        pause = max(pause, timedelta(seconds=min(receipt.retry_after, terms.repeat_interval_max)))
    message.due_at = now + pause


def _record_pairs(by_pair: Mapping[uuid.UUID, list[tuple[Message, Receipt, bool]]], now: datetime) -> _News:
    """Counters and trouble of the pairs, for their pages."""
    news = _News()
    locked = read(
        Pair, "SELECT * FROM messaging_pair WHERE id = ANY(%s) ORDER BY id FOR NO KEY UPDATE", [list(by_pair)]
    )
    for pair in locked:
        for message, receipt, first in by_pair[pair.pk]:
            if receipt.ok:
                if pair.cause:
                    news.fixed.append((pair, pair.cause))
                pair.done += first
                pair.last_success_at = now
                pair.retries, pair.cause, pair.cause_detail = 0, "", ""
                continue
            pair.retries += 1
            pair.cause, pair.cause_detail = receipt.cause, receipt.detail
            if receipt.permanent:
                news.refused.append((pair, message, receipt))
    bulk_set(locked, _PAIR_FIELDS)
    for pair, cause in news.fixed:
        if cause in UNREACHABLE or cause == circuits.CAUSE:
            # The server is back: what it missed need not wait for the longest of its waits.
            let_go(pair, now, (MessageState.RETRYING,))
    return news


def _tell(news: _News, now: datetime) -> list[Event]:
    """Incidents: a permanent refusal is one at once, and what is taken again ends the one about its pair."""
    written: list[Event] = []
    for pair, cause in news.fixed:
        said = "A message of a transaction was taken again."
        written += incidents.incidents_resolve_for_pair(
            pair=pair, now=now, by="system", resolution=said, causes=(cause,)
        )
    for pair, message, receipt in news.refused:
        _, opened = incidents.incident_open(
            pair=pair, cause=receipt.cause, now=now, detail=receipt.detail, message_pk=message.pk
        )
        written += opened
    return written


# --- silence ---


def report(silent: Sequence[uuid.UUID], held: Sequence[uuid.UUID], now: datetime) -> None:
    """Messages were sent as often as agreed and are not answered (`silent`), or were not sent for as long as that takes
    (`held`): opens incidents about them, or counts once more, and lets their transactions know.

    Each step has a transaction of its own, with the coordinations locked first: whoever stores an answer holds one of
    those. Never raises: what is claimed has to go out, and the next resend, or look at the pair, reports again.
    """
    try:
        if silent:
            _open_incidents(silent, now)
        for message_id in silent:
            transactions.peer_is_silent(message_pk=message_id, now=now)
        if held:
            transactions.held_back(message_ids=held, now=now)
    except Exception:
        log.exception("silence not reported", extra={"action": SILENT, "messages": len(silent) + len(held)})


def _open_incidents(message_ids: Sequence[uuid.UUID], now: datetime) -> None:
    with transaction.atomic(durable=True):
        facts = CoordinationMessage.objects.filter(pk__in=message_ids)
        whose = sorted(one for one in facts.values_list("coordination_id", flat=True) if one is not None)
        list(Coordination.objects.filter(pk__in=whose).order_by("pk").select_for_update(no_key=True))
        found = facts.filter(message__state__in=OPEN).select_related("message", "coordination", "enlistment")
        rows = [row for row in found if not transactions.is_settled(row)]
        pairs = Pair.objects.filter(pk__in=[row.message.pair_id for row in rows]).select_related("partner")
        locked = {pair.pk: pair for pair in pairs.order_by("pk").select_for_update(of=("self",), no_key=True)}
        written: list[Event] = []
        for row in sorted(rows, key=lambda row: str(row.pk)):
            pair = locked[row.message.pair_id]
            _, opened = incidents.incident_open(
                pair=pair,
                cause=SILENT,
                now=now,
                detail=_silence(row, pair),
                message_pk=row.pk,
                coordination=row.coordination,
            )
            written += opened
        events.write(written)
    log.warning("transactions unanswered", extra={"action": SILENT, "messages": len(rows)})


def _silence(row: CoordinationMessage, pair: Pair) -> str:
    message = row.message
    terms = registry.current().version(message.agreement_version_id)
    since = f"{message.first_sent_at:%Y-%m-%d %H:%M:%S} UTC" if message.first_sent_at else "never"
    last = message.cause_detail or "it was taken, and no answer came"
    return (
        f"{row.kind} was sent to {pair.partner.name} since {since}, and was not answered when this was noted, after "
        f"attempt {message.attempts}. Last attempt: {last} "
        f"It goes on being sent every {terms.repeat_interval_max} s at most: that never ends by itself."
    )
