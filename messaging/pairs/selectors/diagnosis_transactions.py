"""What is the matter with a pair that carries messages of atomic transactions (spec 5), as `diagnosis` says it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from messaging import causes
from messaging.choices import Direction
from messaging.journal.wording import span, times
from messaging.models import Pair
from messaging.pairs.selectors.diagnosis_parts import Diagnosis, shut
from partners.services import gives_up_sentence
from partners.terms import Terms


def diagnose(pair: Pair, terms: Terms, now: datetime, state: str, paused: tuple[str, str] | None) -> Diagnosis:
    """`state`: its state word; `paused`: who paused it, and why. Its messages time themselves, each on its own."""
    known: dict[str, object] = {"state": state, "attempt": 0, "max_attempts": 0}
    if pair.direction == Direction.IN:
        return _inbound(pair, state, now)
    if state in ("paused", "disabled"):
        held = "Messages of transactions are held here; participants that have voted wait for the decision meanwhile."
        return replace(shut(pair, 0, paused, now, known), outlook=held)
    if pair.cause:
        cause = causes.lookup(pair.cause)
        failed = f" ({times(pair.retries)} in a row)" if pair.retries > 1 else ""
        return Diagnosis(
            headline=f"The last attempt to send a message of a transaction failed{failed}.",
            why=cause.sentence,
            outlook=gives_up_sentence(terms),
            advice=cause.action,
            short=cause.label,
            cause=cause,
            **known,  # type: ignore[arg-type]
        )
    if pair.last_success_at is None:
        headline = "No message of a transaction was sent yet."
        return Diagnosis(headline=headline, short="Nothing sent yet", **known)  # type: ignore[arg-type]
    ago = span((now - pair.last_success_at).total_seconds())
    return Diagnosis(
        headline="Messages of transactions get through.",
        why=f"The partner took the last one {ago} ago.",
        outlook=gives_up_sentence(terms),
        **known,  # type: ignore[arg-type]
    )


def _inbound(pair: Pair, state: str, now: datetime) -> Diagnosis:
    if pair.last_success_at is None:
        headline = "No message of a transaction was received yet."
    else:
        headline = f"The last message was taken {span((now - pair.last_success_at).total_seconds())} ago."
    return Diagnosis(
        state=state,
        headline=headline,
        outlook="Messages of transactions have no numbers: their participant says where they belong.",
        short="" if pair.last_success_at else "Nothing received yet",
    )
