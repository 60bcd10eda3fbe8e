"""What is the matter with pairs of repeatable requests, streams and transactions (specs 2, 3, 5); `diagnosis` has the
others. `state`: the pair's state word; `paused`: who paused it, and why.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from functools import partial

from messaging import causes
from messaging.choices import Direction
from messaging.journal.wording import documents, due_in, span, times, waits
from messaging.models import Pair
from messaging.pairs.selectors.diagnosis_parts import (
    Diagnosis,
    Say,
    at_rest,
    diagnosis,
    overdue_seconds,
    shut,
    suspended,
    workers_behind,
)
from messaging.profile import in_flight_limit
from partners.services import gives_up_sentence
from partners.terms import Terms

Paused = tuple[str, str] | None


def of_requests(
    pair: Pair,
    terms: Terms | None,
    now: datetime,
    state: str,
    paused: Paused,
    repeat_at: datetime | None,
    in_doubt: int,
) -> Diagnosis:
    """Each message in flight has its own timer and its own end."""
    say = partial(diagnosis, state)
    blocked = pair.queued + pair.out_now
    if state in ("paused", "disabled"):
        return shut(pair, blocked, paused, now, say)
    behind, flying = waits(pair.queued, alone=True), documents(pair.out_now)
    are = "is" if pair.out_now == 1 else "are"
    if state == "suspended":
        outlook = f"{behind} Nothing is sent until somebody resumes the pair."
        if pair.out_now:
            outlook = (
                f"{flying} on the way {are} held. {outlook} What was sent before and is still without an answer when "
                "its window ends is in doubt."
            )
        return suspended(pair, blocked, outlook, now, say)
    if not pair.out_now:
        if in_doubt and not pair.queued:
            return _doubtful(in_doubt, say)
        # Some may have ended in doubt, or failed: that is for their incidents to say.
        return at_rest(
            pair,
            now,
            say,
            resting="Nothing is on the way.",
            answer="answer",
            never="Nothing is on the way, and nothing was answered yet.",
            never_short="Nothing answered yet",
        )
    cause = causes.lookup(pair.cause) if pair.cause else None
    most = f", up to {in_flight_limit(terms)} at once" if terms is not None and not terms.ordered else ""
    headline = f"{flying} {are} on the way{most}."
    if pair.probing:
        headline = "One document is on the way, to see whether it gets through; the others wait for it."
    outlook = (
        f"The next repeat goes out {due_in(repeat_at, now)}. " if cause is not None and repeat_at is not None else ""
    )
    if terms is not None:
        outlook += f"{gives_up_sentence(terms)} "
    outlook, advice = outlook + behind, ""
    if overdue := overdue_seconds(pair, now):
        outlook, advice = workers_behind(overdue)
    return say(
        cause,
        headline=headline,
        outlook=outlook.strip(),
        advice=advice,
        short="" if cause is not None else f"{pair.out_now:,} on the way",
        next_at=repeat_at if cause is not None else pair.due_at,
        blocked=blocked if state == "retrying" else 0,
    )


def _doubtful(count: int, say: Say) -> Diagnosis:
    """Nothing moves, and that is not because all went well."""
    return say(
        causes.lookup("outcome_unknown"),
        headline=f"Nothing is on the way; {documents(count)} {'is' if count == 1 else 'are'} in doubt.",
        outlook="New documents are sent as ever.",
        short=f"{count:,} in doubt",
    )


def of_stream(pair: Pair, terms: Terms, now: datetime, state: str, paused: Paused) -> Diagnosis:
    """Many messages are in flight, timed together."""
    attempt = pair.retries + 1 if pair.out_now else 0
    say = partial(diagnosis, state, attempt=attempt, max_attempts=terms.retries + 1)
    blocked = pair.queued + pair.out_now
    if state in ("paused", "disabled"):
        return shut(pair, blocked, paused, now, say)
    flying = documents(pair.out_now)
    if state == "suspended":
        outlook = f"{waits(pair.queued, alone=not pair.out_now)} Nothing is sent until somebody resumes the pair."
        if pair.out_now:
            outlook = (
                f"{flying} {'is' if pair.out_now == 1 else 'are'} not acknowledged; an acknowledgement that still "
                f"comes counts. {outlook.strip()}"
            )
        return suspended(pair, blocked, outlook, now, say)
    if not pair.out_now:
        # Some may have expired, or wait for a final receipt: that is for their own pages and incidents to say.
        return at_rest(
            pair,
            now,
            say,
            resting="Nothing is in flight.",
            answer="order acknowledgement",
            going="the next go out",
        )
    cause = causes.lookup(pair.cause) if pair.cause else None
    full = ", and the window is full" if pair.out_now >= terms.max_in_flight else f" of at most {terms.max_in_flight}"
    headline = f"{flying} in flight{full}; an order acknowledgement is awaited."
    if pair.retries:
        resends = "once" if pair.retries == 1 else f"{pair.retries} times"
        headline = (
            f"{flying} in flight{full}: sent again {resends} of {terms.retries}, without an order acknowledgement."
        )
    if pair.retries >= terms.retries:
        outlook = f"If none comes, the pair is suspended {due_in(pair.due_at, now)}. "
    else:
        outlook = f"If none comes, all go out again {due_in(pair.due_at, now)}. {gives_up_sentence(terms)} "
    outlook, advice = outlook + waits(pair.queued), ""
    if overdue := overdue_seconds(pair, now):
        outlook, advice = workers_behind(overdue)
    return say(
        cause,
        headline=headline,
        outlook=outlook.strip(),
        advice=advice,
        short="" if cause is not None else f"{pair.out_now:,} in flight",
        next_at=pair.due_at,
        blocked=blocked if state == "retrying" else 0,
    )


def of_transactions(pair: Pair, terms: Terms, now: datetime, state: str, paused: Paused) -> Diagnosis:
    """Messages of atomic transactions time themselves, each on its own."""
    say = partial(diagnosis, state)
    last = pair.last_success_at
    ago = span((now - last).total_seconds()) if last is not None else ""
    if pair.direction == Direction.IN:
        return say(
            headline=f"The last message was taken {ago} ago."
            if ago
            else "No message of a transaction was received yet.",
            outlook="Messages of transactions have no numbers: their participant says where they belong.",
            short="" if ago else "Nothing received yet",
        )
    if state in ("paused", "disabled"):
        held = "Messages of transactions are held here; participants that have voted wait for the decision meanwhile."
        return replace(shut(pair, 0, paused, now, say), outlook=held)
    if pair.cause:
        failed = f" ({times(pair.retries)} in a row)" if pair.retries > 1 else ""
        return say(
            causes.lookup(pair.cause),
            headline=f"The last attempt to send a message of a transaction failed{failed}.",
            outlook=gives_up_sentence(terms),
        )
    if not ago:
        return say(headline="No message of a transaction was sent yet.", short="Nothing sent yet")
    return say(
        headline="Messages of transactions get through.",
        why=f"The partner took the last one {ago} ago.",
        outlook=gives_up_sentence(terms),
    )
