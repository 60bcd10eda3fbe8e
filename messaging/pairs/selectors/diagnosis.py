"""What is the matter with a pair, in one sentence: state, cause, since when, what waits, what happens next, what to do.

Made from the pair's row, the message in flight and the terms; no queries of its own, so that lists can have it too.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from messaging import causes, profile
from messaging.choices import Direction
from messaging.journal.wording import documents, due_in, lasting, span, times, waits
from messaging.models import Message, Pair
from messaging.pairs.selectors import diagnosis_streams, diagnosis_transactions, newer
from messaging.pairs.selectors.diagnosis_parts import (
    Diagnosis,
    VerbState,
    after_loss,
    overdue_seconds,
    shut,
    silent,
    workers_behind,
)
from messaging.pairs.selectors.newer import Sign
from messaging.pairs.selectors.pairs import state_of
from messaging.profile import in_flight_limit
from messaging.protocol.pair_state import Flow, Gate, Kind
from messaging.protocol.sender import REFUSALS, allowed, next_sequence
from partners.services import gives_up_sentence
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
    `in_doubt`: how many of its requests nobody knows the end of (`deliveries.selectors.doubts.outbound_counts`).
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
        return diagnosis_transactions.diagnose(pair, terms, now, state, paused)
    if pair.direction == Direction.IN:
        return _inbound(pair, now, requests, streams)
    if streams and terms is not None:
        return diagnosis_streams.diagnose(pair, terms, now, state, paused)
    if requests:
        return _requests(pair, terms, now, state, paused, repeat_at, in_doubt)
    most = terms.retries + 1 if terms is not None else 0
    blocked = pair.queued + (1 if pair.in_flight_id else 0)
    known = {"state": state, "attempt": pair.retries + 1 if pair.in_flight_id else 0, "max_attempts": most}
    if state == "suspended":
        return _suspended(pair, head, blocked, now, known)
    if state in ("paused", "disabled"):
        return shut(pair, blocked, paused, now, known)
    overdue = overdue_seconds(pair, now)
    if pair.in_flight_id:
        return _under_way(pair, head, blocked, overdue, terms, now, known)
    return _idle(pair, overdue, now, known)


def verb_states(pair: Pair, terms: Terms | None) -> list[VerbState]:
    """Every verb of the pair's direction, each with the reason if it cannot be used now.

    What ends a loss of memory is among them only where there was one.
    """
    marked = [VerbState("clear-resync", True)] if pair.resync_since is not None else []
    return marked + _verb_states(pair, terms)


def _verb_states(pair: Pair, terms: Terms | None) -> list[VerbState]:
    speaks = profile.carried(pair, terms)
    if pair.direction == Direction.IN:
        return [VerbState("expect-sequence", True)] if speaks.numbered else []
    flow = Flow(pair.flow)
    # While an attempt is on the wire the pair is due when its lease is over.
    until = pair.due_at if flow is Flow.SENDING else None
    found = []
    for slug, kind in (
        ("resume", Kind.RESUME),
        ("retry-now", Kind.RETRY_NOW),
        ("skip-head", Kind.SKIP),
        ("restart-sequence", Kind.RESTART),
    ):
        if not speaks.numbered:
            if kind in speaks.verbs:
                refusal = speaks.refusal(pair, kind)
                found.append(VerbState(slug, refusal is None, refusal or ""))
            continue
        why = "" if kind in allowed(flow) else REFUSALS.get((flow, kind), "Not possible in this state.")
        if kind is Kind.SKIP and not pair.in_flight_id and not why:
            why = "No message is in flight; one that waits in the queue is cancelled on its own page."
        if kind is Kind.RETRY_NOW and not why and _budget_is_used(pair, terms):
            why = "All retries are used; the pair suspends when this wait is over. Resume gives it a new budget."
        found.append(VerbState(slug, not why, why, until if why else None))
    gate = Gate(pair.gate)
    if gate is Gate.PAUSED:
        found.append(VerbState("release", True))
    else:
        why = "" if gate is Gate.OPEN else "The pair is disabled."
        found.append(VerbState("pause", not why, why))
    return found


def _budget_is_used(pair: Pair, terms: Terms | None) -> bool:
    return pair.flow == Flow.AWAITING_ACK and terms is not None and pair.retries >= terms.retries


def _suspended(pair: Pair, head: Message | None, blocked: int, now: datetime, known: dict[str, object]) -> Diagnosis:
    cause = causes.lookup(pair.cause)
    why = f"{_named(head)} " if head is not None else ""
    if head is not None and head.attempts:
        why += f"was tried {times(head.attempts)}. "
    elif head is not None:
        why += "never went out. "
    why += cause.sentence
    behind = waits(pair.queued if pair.in_flight_id else max(0, pair.queued - 1))
    outlook = f"{behind} Nothing is sent until somebody resumes the pair."
    if pair.gate == Gate.PAUSED:
        outlook += " It is paused as well, and has to be released after that."
    return Diagnosis(
        headline=f"Suspended{lasting(pair.changed_at, now)}.",
        why=why,
        outlook=outlook.strip(),
        advice=cause.action,
        short=cause.label,
        cause=cause,
        since=pair.changed_at,
        blocked=blocked,
        **known,  # type: ignore[arg-type]
    )


def _under_way(
    pair: Pair,
    head: Message | None,
    blocked: int,
    overdue: float,
    terms: Terms | None,
    now: datetime,
    known: dict[str, object],
) -> Diagnosis:
    state = known["state"]
    cause = causes.lookup(pair.cause) if pair.cause else None
    last_try = pair.probing or (terms is not None and pair.retries >= terms.retries)
    which = "the probe: the first failure suspends the pair again" if pair.probing else _which(pair, terms)
    name = _named(head)
    why = cause.sentence if cause is not None else ""
    advice = cause.action if cause is not None else ""
    since = head.first_sent_at if head is not None else None
    if state == "holding":
        headline = f"The partner asked for a pause{lasting(pair.holding_since, now)}."
        outlook = f"{name} goes out again {due_in(pair.due_at, now)}. {waits(pair.queued)}"
        since = pair.holding_since or since
    elif pair.flow == Flow.SENDING:
        headline = f"{name} is on the wire ({which})."
        outlook = waits(pair.queued)
    elif pair.flow == Flow.RESEND_WAIT:
        headline = f"{name} goes out again {due_in(pair.due_at, now)} ({which})."
        outlook = waits(pair.queued)
    else:
        then = "the pair is suspended" if last_try else "it goes out again"
        headline = f"{name} was handed over ({which}); the acknowledgement is awaited."
        outlook = f"If none comes, {then} {due_in(pair.due_at, now)}. {waits(pair.queued)}"
        if cause is not None:
            headline = f"{name} could not be handed over ({which})."
            then = "The pair is suspended" if last_try else "It goes out again"
            outlook = f"{then} {due_in(pair.due_at, now)}. {waits(pair.queued)}"
    if overdue:
        outlook, advice = workers_behind(overdue)
    short = cause.label if cause is not None else _short_wait(pair)
    return Diagnosis(
        headline=headline,
        why=why,
        outlook=outlook.strip(),
        advice=advice,
        short=short,
        cause=cause,
        since=since,
        next_at=pair.due_at,
        blocked=blocked if state in ("holding", "retrying") else 0,
        **known,  # type: ignore[arg-type]
    )


def _requests(
    pair: Pair,
    terms: Terms | None,
    now: datetime,
    state: str,
    paused: tuple[str, str] | None,
    repeat_at: datetime | None,
    in_doubt: int,
) -> Diagnosis:
    """A pair of repeatable requests (spec 2): each message in flight has its own timer and its own end."""
    known: dict[str, object] = {"state": state, "attempt": 0, "max_attempts": 0}
    blocked = pair.queued + pair.out_now
    if state in ("paused", "disabled"):
        return shut(pair, blocked, paused, now, known)
    cause = causes.lookup(pair.cause) if pair.cause else None
    behind = waits(pair.queued, alone=True)
    if state == "suspended":
        assert cause is not None
        flying = f"{documents(pair.out_now)} on the way {'is' if pair.out_now == 1 else 'are'} held. "
        outlook = f"{flying if pair.out_now else ''}{behind} Nothing is sent until somebody resumes the pair."
        if pair.out_now:
            outlook += " What was sent before and is still without an answer when its window ends is in doubt."
        if pair.gate == Gate.PAUSED:
            outlook += " It is paused as well, and has to be released after that."
        return Diagnosis(
            headline=f"Suspended{lasting(pair.changed_at, now)}.",
            why=cause.sentence,
            outlook=outlook.strip(),
            advice=cause.action,
            short=cause.label,
            cause=cause,
            since=pair.changed_at,
            blocked=blocked,
            **known,  # type: ignore[arg-type]
        )
    overdue = overdue_seconds(pair, now)
    if not pair.out_now:
        if in_doubt and not pair.queued:
            return _doubtful(in_doubt, known)
        return _idle(pair, overdue, now, known, requests=True)
    most = f", up to {in_flight_limit(terms)} at once" if terms is not None and not terms.ordered else ""
    headline = f"{documents(pair.out_now)} {'is' if pair.out_now == 1 else 'are'} on the way{most}."
    if pair.probing:
        headline = "One document is on the way, to see whether it gets through; the others wait for it."
    outlook = (
        f"The next repeat goes out {due_in(repeat_at, now)}. " if cause is not None and repeat_at is not None else ""
    )
    if terms is not None:
        outlook += f"{gives_up_sentence(terms)} "
    outlook += behind
    advice = cause.action if cause is not None else ""
    if overdue:
        outlook, advice = workers_behind(overdue)
    return Diagnosis(
        headline=headline,
        why=cause.sentence if cause is not None else "",
        outlook=outlook.strip(),
        advice=advice,
        short=cause.label if cause is not None else f"{pair.out_now:,} on the way",
        cause=cause,
        next_at=repeat_at if cause is not None else pair.due_at,
        blocked=blocked if state == "retrying" else 0,
        **known,  # type: ignore[arg-type]
    )


def _doubtful(count: int, known: dict[str, object]) -> Diagnosis:
    """Nothing moves, and that is not because all went well."""
    cause = causes.lookup("outcome_unknown")
    return Diagnosis(
        headline=f"Nothing is on the way; {documents(count)} {'is' if count == 1 else 'are'} in doubt.",
        why=cause.sentence,
        outlook="New documents are sent as ever.",
        advice=cause.action,
        short=f"{count:,} in doubt",
        cause=cause,
        **known,  # type: ignore[arg-type]
    )


def _idle(pair: Pair, overdue: float, now: datetime, known: dict[str, object], *, requests: bool = False) -> Diagnosis:
    if overdue:
        outlook, advice = workers_behind(overdue)
        return Diagnosis(
            headline=f"{documents(pair.queued)} to send, and nothing happens.",
            outlook=outlook,
            advice=advice,
            short="Workers are behind",
            blocked=pair.queued,
            **known,  # type: ignore[arg-type]
        )
    if pair.queued:
        return Diagnosis(headline=f"{documents(pair.queued)} to send; the next goes out at once.", **known)  # type: ignore[arg-type]
    if pair.last_success_at is None and requests:
        # Some may have gone out and ended in doubt: no answer is all that this row tells.
        headline = "Nothing is on the way, and nothing was answered yet."
        return Diagnosis(headline=headline, short="Nothing answered yet", **known)  # type: ignore[arg-type]
    if pair.last_success_at is None:
        return Diagnosis(headline="Nothing was sent yet.", short="Nothing sent yet", **known)  # type: ignore[arg-type]
    ago = span((now - pair.last_success_at).total_seconds())
    if requests:
        # Some may have ended in doubt, or failed: that is for their incidents to say.
        return Diagnosis(headline="Nothing is on the way.", why=f"The last answer came {ago} ago.", **known)  # type: ignore[arg-type]
    return Diagnosis(
        headline="Everything that was submitted is delivered.",
        why=f"The last acknowledgement came {ago} ago.",
        **known,  # type: ignore[arg-type]
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


def _short_wait(pair: Pair) -> str:
    return {
        Flow.SENDING.value: "On the wire",
        Flow.AWAITING_ACK.value: "Acknowledgement awaited",
        Flow.RESEND_WAIT.value: "Goes out again",
    }.get(pair.flow, "")
