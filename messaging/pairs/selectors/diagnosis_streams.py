"""What is the matter with a pair that sends a transactional stream (spec 3), as `diagnosis` says it of other pairs."""

from __future__ import annotations

from datetime import datetime

from messaging import causes
from messaging.journal.wording import documents, due_in, lasting, span, waits
from messaging.models import Pair
from messaging.pairs.selectors.diagnosis_parts import Diagnosis, overdue_seconds, shut, workers_behind
from messaging.protocol.pair_state import Gate
from partners.services import gives_up_sentence
from partners.terms import Terms


def diagnose(pair: Pair, terms: Terms, now: datetime, state: str, paused: tuple[str, str] | None) -> Diagnosis:
    """`state`: its state word; `paused`: who paused it, and why. Many messages are in flight, timed together."""
    known: dict[str, object] = {
        "state": state,
        "attempt": pair.retries + 1 if pair.out_now else 0,
        "max_attempts": terms.retries + 1,
    }
    blocked = pair.queued + pair.out_now
    if state in ("paused", "disabled"):
        return shut(pair, blocked, paused, now, known)
    if state == "suspended":
        return _suspended(pair, blocked, now, known)
    overdue = overdue_seconds(pair, now)
    if not pair.out_now:
        return _at_rest(pair, overdue, now, known)
    return _in_flight(pair, terms, overdue, now, known)


def _suspended(pair: Pair, blocked: int, now: datetime, known: dict[str, object]) -> Diagnosis:
    cause = causes.lookup(pair.cause)
    outlook = f"{waits(pair.queued, alone=not pair.out_now)} Nothing is sent until somebody resumes the pair."
    if pair.out_now:
        outlook = (
            f"{documents(pair.out_now)} {'is' if pair.out_now == 1 else 'are'} not acknowledged; an acknowledgement "
            f"that still comes counts. {outlook.strip()}"
        )
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


def _at_rest(pair: Pair, overdue: float, now: datetime, known: dict[str, object]) -> Diagnosis:
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
        headline = f"{documents(pair.queued)} to send; the next go out at once."
        return Diagnosis(headline=headline, **known)  # type: ignore[arg-type]
    if pair.last_success_at is None:
        return Diagnosis(headline="Nothing was sent yet.", short="Nothing sent yet", **known)  # type: ignore[arg-type]
    ago = span((now - pair.last_success_at).total_seconds())
    # Some may have expired, or wait for a final receipt: that is for their own pages and incidents to say.
    return Diagnosis(
        headline="Nothing is in flight.",
        why=f"The last order acknowledgement came {ago} ago.",
        **known,  # type: ignore[arg-type]
    )


def _in_flight(pair: Pair, terms: Terms, overdue: float, now: datetime, known: dict[str, object]) -> Diagnosis:
    cause = causes.lookup(pair.cause) if pair.cause else None
    full = ", and the window is full" if pair.out_now >= terms.max_in_flight else f" of at most {terms.max_in_flight}"
    headline = f"{documents(pair.out_now)} in flight{full}; an order acknowledgement is awaited."
    if pair.retries:
        resends = "once" if pair.retries == 1 else f"{pair.retries} times"
        headline = (
            f"{documents(pair.out_now)} in flight{full}: sent again {resends} of {terms.retries}, without an order "
            "acknowledgement."
        )
    if pair.retries >= terms.retries:
        outlook = f"If none comes, the pair is suspended {due_in(pair.due_at, now)}. "
    else:
        outlook = f"If none comes, all go out again {due_in(pair.due_at, now)}. {gives_up_sentence(terms)} "
    outlook += waits(pair.queued)
    advice = cause.action if cause is not None else ""
    if overdue:
        outlook, advice = workers_behind(overdue)
    return Diagnosis(
        headline=headline,
        why=cause.sentence if cause is not None else "",
        outlook=outlook.strip(),
        advice=advice,
        short=cause.label if cause is not None else f"{pair.out_now:,} in flight",
        cause=cause,
        next_at=pair.due_at,
        blocked=pair.queued + pair.out_now if known["state"] == "retrying" else 0,
        **known,  # type: ignore[arg-type]
    )
