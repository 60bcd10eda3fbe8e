"""What is the matter with a pair, in one sentence: state, cause, since when, what waits, what happens next, what to do.

Made from the pair's row, the message in flight and the terms; no queries of its own, so that lists can have it too.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from functools import partial

from messaging import profile
from messaging.choices import Direction
from messaging.journal.wording import due_in, lasting, span, times, waits
from messaging.models import Message, Pair
from messaging.pairs.selectors import diagnosis_parts, newer
from messaging.pairs.selectors.diagnosis_parts import (
    Diagnosis,
    Say,
    after_loss,
    at_rest,
    diagnosis,
    shut,
    silent,
    suspended,
    under_way,
)
from messaging.pairs.selectors.newer import Sign
from messaging.pairs.selectors.pairs import state_of
from messaging.protocol.pair_state import Flow
from messaging.protocol.sender import next_sequence
from partners.terms import Terms


def diagnose(
    pair: Pair,
    head: Message | None,
    terms: Terms | None,
    now: datetime,
    *,
    paused: tuple[str, str] | None = None,
    repeat_at: datetime | None = None,
    in_doubt: int = 0,
    signs: Collection[Sign] = (),
) -> Diagnosis:
    """What is the matter, and what a loss of memory adds to it.

    `head`: the message that goes first, in flight or not. `terms`: what it goes under (number of attempts).

    `paused`: who paused the pair, and why. `repeat_at`: when the next of its requests in flight goes out again.
    `in_doubt`: how many of its requests nobody knows the end of (`deliveries.selectors.in_doubt.outbound_counts`).
    `signs`: what is known of the way to the partner (`newer.signs`).
    """
    said = newer.applied(_by_state(pair, head, terms, now, paused, repeat_at, in_doubt), pair, signs, now)
    return said if pair.resync_since is None else after_loss(pair, said)


def _by_state(
    pair: Pair,
    head: Message | None,
    terms: Terms | None,
    now: datetime,
    paused: tuple[str, str] | None,
    repeat_at: datetime | None,
    in_doubt: int,
) -> Diagnosis:
    speaks = profile.carried(pair, terms)
    requests, streams = speaks.answered_at_once, speaks.windowed
    state = state_of(pair)
    if state == "silent":
        return silent(pair, now)
    if terms is not None and not speaks.carries_documents:
        return diagnosis_parts.of_transactions(pair, terms, now, state, paused)
    if pair.direction == Direction.IN:
        return _inbound(pair, now, requests, streams)
    if streams and terms is not None:
        return diagnosis_parts.of_stream(pair, terms, now, state, paused)
    if requests:
        return diagnosis_parts.of_requests(pair, terms, now, state, paused, repeat_at, in_doubt)
    most = terms.retries + 1 if terms is not None else 0
    blocked = pair.queued + (1 if pair.in_flight_id else 0)
    say = partial(diagnosis, state, attempt=pair.retries + 1 if pair.in_flight_id else 0, max_attempts=most)
    if state == "suspended":
        why = f"{_named(head)} " if head is not None else ""
        if head is not None:
            why += f"was tried {times(head.attempts)}. " if head.attempts else "never went out. "
        behind = waits(pair.queued if pair.in_flight_id else max(0, pair.queued - 1))
        outlook = f"{behind} Nothing is sent until somebody resumes the pair."
        return suspended(pair, blocked, outlook, now, say, why)
    if state in ("paused", "disabled"):
        return shut(pair, blocked, paused, now, say)
    if pair.in_flight_id:
        return _under_way(pair, head, terms, now, state, blocked, say)
    return at_rest(pair, now, say, resting="Everything that was submitted is delivered.", answer="acknowledgement")


def _under_way(
    pair: Pair, head: Message | None, terms: Terms | None, now: datetime, state: str, blocked: int, say: Say
) -> Diagnosis:
    last_try = pair.probing or (terms is not None and pair.retries >= terms.retries)
    which = "the probe: the first failure suspends the pair again" if pair.probing else _which(pair, terms)
    name = _named(head)
    since = head.first_sent_at if head is not None else None
    behind, due = waits(pair.queued), due_in(pair.due_at, now)
    if state == "holding":
        headline = f"The partner asked for a pause{lasting(pair.holding_since, now)}."
        outlook = f"{name} goes out again {due}. {behind}"
        since = pair.holding_since or since
    elif pair.flow == Flow.SENDING:
        headline = f"{name} is on the wire ({which})."
        outlook = behind
    elif pair.flow == Flow.RESEND_WAIT:
        headline = f"{name} goes out again {due} ({which})."
        outlook = behind
    elif pair.cause:
        headline = f"{name} could not be handed over ({which})."
        outlook = f"{'The pair is suspended' if last_try else 'It goes out again'} {due}. {behind}"
    else:
        headline = f"{name} was handed over ({which}); the acknowledgement is awaited."
        outlook = f"If none comes, {'the pair is suspended' if last_try else 'it goes out again'} {due}. {behind}"
    return under_way(
        pair,
        now,
        say,
        headline=headline,
        outlook=outlook,
        short=_SHORT_WAITS.get(pair.flow, ""),
        since=since,
        next_at=pair.due_at,
        blocked=blocked if state in ("holding", "retrying") else 0,
    )


def _inbound(pair: Pair, now: datetime, requests: bool, streams: bool) -> Diagnosis:
    if pair.last_success_at is None:
        headline, why = "Nothing was received yet.", ""
    else:
        headline = f"The last message was taken {span((now - pair.last_success_at).total_seconds())} ago."
        why = f"Its sequence number was {pair.last_sequence}." if pair.last_sequence and not streams else ""
    outlook = f"Number {next_sequence(pair.last_sequence)} is expected next; a restart at 1 is taken too."
    if pair.takes_any_number:
        outlook = "Whatever number comes next is taken: the hub no longer knows which one it should be."
    if requests:
        outlook = "Requests are recognised by their ids; they have no numbers."
    if streams:
        outlook = "Each of the partner's senders has a stream of its own, with numbers of its own."
    return Diagnosis(
        state=state_of(pair),
        headline=headline,
        why=why,
        outlook=outlook,
        short="" if pair.last_success_at else "Nothing received yet",
    )


def _named(message: Message | None) -> str:
    if message is None:
        return "The message"
    number = f"Message #{message.sequence_number}" if message.sequence_number else "The message"
    return f"{number} ({message.action})"


def _which(pair: Pair, terms: Terms | None) -> str:
    """Which send this is, in the terms of spec 1: Retries, and transport recovery below them (2.5.4)."""
    parts = []
    if pair.transport_attempts:
        most = f" of {terms.transport_retries}" if terms is not None else ""
        parts.append(f"transport recovery {pair.transport_attempts}{most}")
    if pair.retries or not parts:
        most = f" of {terms.retries}" if terms is not None else ""
        parts.append(f"retry {pair.retries}{most}" if pair.retries else "first send")
    return ", ".join(parts)


_SHORT_WAITS = {
    Flow.SENDING.value: "On the wire",
    Flow.AWAITING_ACK.value: "Acknowledgement awaited",
    Flow.RESEND_WAIT.value: "Goes out again",
}
