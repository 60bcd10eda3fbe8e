"""What is the matter with a pair, in one sentence: state, cause, since when, what waits, what happens next, what to do.

Made from the pair's row, the message in flight and the terms; no queries of its own, so that lists can have it too.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from messaging import causes
from messaging.causes import Cause
from messaging.choices import Direction
from messaging.models import Message, Pair
from messaging.protocol.sender import REFUSALS, Flow, Gate, Kind, allowed, next_sequence
from messaging.selectors.health import OVERDUE_SECONDS
from messaging.selectors.pairs import state_of
from partners.terms import Terms


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """`short` is one line for lists. `next_at`: when the hub does the next thing by itself. `blocked`: documents that
    cannot go, the one in flight included; 0 when nothing is held up. `attempt` of `max_attempts`: reliable sends."""

    state: str
    headline: str
    why: str = ""
    outlook: str = ""
    advice: str = ""
    short: str = ""
    cause: Cause | None = None
    since: datetime | None = None
    next_at: datetime | None = None
    attempt: int = 0
    max_attempts: int = 0
    blocked: int = 0

    @property
    def retry(self) -> str:
        """`first send` or `2 of 3`: retries of reliable messaging; transport recovery is not among them."""
        return "first send" if self.attempt <= 1 else f"{self.attempt - 1} of {self.max_attempts - 1}"

    @property
    def sentence(self) -> str:
        """All of it in a row, for the API and for screen readers."""
        return " ".join(part for part in (self.headline, self.why, self.outlook) if part)


@dataclass(frozen=True, slots=True)
class VerbState:
    """Whether a verb of `services.operating` can be used now; `why_not` says what stands in its way."""

    slug: str
    enabled: bool
    why_not: str = ""


def diagnose(
    pair: Pair, head: Message | None, terms: Terms | None, now: datetime, *, paused: tuple[str, str] | None = None
) -> Diagnosis:
    """`head`: the message that goes first, in flight or not. `terms`: what it goes under (number of attempts).

    `paused`: who paused the pair, and why.
    """
    if pair.direction == Direction.IN:
        return _inbound(pair, now)
    state = state_of(pair)
    most = terms.retries + 1 if terms is not None else 0
    blocked = pair.queued + (1 if pair.in_flight_id else 0)
    known = {"state": state, "attempt": pair.retries + 1 if pair.in_flight_id else 0, "max_attempts": most}
    if state == "suspended":
        return _suspended(pair, head, blocked, now, known)
    if state in ("paused", "disabled"):
        return _shut(pair, blocked, paused, now, known)
    overdue = _overdue(pair, now)
    if pair.in_flight_id:
        return _under_way(pair, head, blocked, overdue, terms, now, known)
    return _idle(pair, overdue, now, known)


def verb_states(pair: Pair, terms: Terms | None) -> list[VerbState]:
    """Every verb of the pair's direction, each with the reason if it cannot be used now."""
    if pair.direction == Direction.IN:
        return [VerbState("expect-sequence", True)]
    flow = Flow(pair.flow)
    found = []
    for slug, kind in (
        ("resume", Kind.RESUME),
        ("retry-now", Kind.RETRY_NOW),
        ("skip-head", Kind.SKIP),
        ("restart-sequence", Kind.RESTART),
    ):
        why = "" if kind in allowed(flow) else REFUSALS.get((flow, kind), "Not possible in this state.")
        if kind is Kind.SKIP and not pair.in_flight_id and not why:
            why = "No message is in flight; one that waits in the queue is cancelled on its own page."
        if kind is Kind.RETRY_NOW and not why and _budget_is_used(pair, terms):
            why = "All retries are used; the pair suspends when this wait is over. Resume gives it a new budget."
        found.append(VerbState(slug, not why, why))
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
        why += f"was sent {_times(head.attempts)}. "
    elif head is not None:
        why += "never went out. "
    why += cause.sentence
    behind = _waits(pair.queued if pair.in_flight_id else max(0, pair.queued - 1))
    outlook = f"{behind} Nothing is sent until somebody resumes the pair."
    if pair.gate == Gate.PAUSED:
        outlook += " It is paused as well, and has to be released after that."
    return Diagnosis(
        headline=f"Suspended{_for(pair.changed_at, now)}.",
        why=why,
        outlook=outlook.strip(),
        advice=cause.action,
        short=cause.label,
        cause=cause,
        since=pair.changed_at,
        blocked=blocked,
        **known,  # type: ignore[arg-type]
    )


def _shut(pair: Pair, blocked: int, by: tuple[str, str] | None, now: datetime, known: dict[str, object]) -> Diagnosis:
    paused = pair.gate == Gate.PAUSED
    who, said = by or ("a person", "")
    advice = (
        "Release the pair when what it waits for is done."
        if paused
        else "Its agreement is not in force. Enable the agreement to let it go on."
    )
    waits = _waits(blocked, alone=True)
    return Diagnosis(
        headline=f"{f'Paused by {who}' if paused else 'Disabled'}{_for(pair.changed_at, now)}.",
        why=f"{f'“{said}” ' if said else ''}Nothing is sent; submissions and the partner's answers are still taken.",
        outlook=waits or "Nothing waits.",
        advice=advice,
        short="Somebody paused the pair" if paused else "Agreement not in force",
        cause=causes.lookup("paused_by_user") if paused else causes.lookup("agreement_disabled"),
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
    last_try = terms is not None and pair.retries >= terms.retries
    which = _which(pair, terms)
    name = _named(head)
    why = cause.sentence if cause is not None else ""
    advice = cause.action if cause is not None else ""
    since = head.first_sent_at if head is not None else None
    if state == "holding":
        headline = f"The partner asked for a pause{_for(pair.holding_since, now)}."
        outlook = f"{name} goes out again {_in(pair.due_at, now)}. {_waits(pair.queued)}"
        since = pair.holding_since or since
    elif pair.flow == Flow.SENDING:
        headline = f"{name} is on the wire ({which})."
        outlook = _waits(pair.queued)
    elif pair.flow == Flow.RESEND_WAIT:
        headline = f"{name} goes out again {_in(pair.due_at, now)} ({which})."
        outlook = _waits(pair.queued)
    else:
        then = "the pair is suspended" if last_try else "it goes out again"
        headline = f"{name} was handed over ({which}); the acknowledgement is awaited."
        outlook = f"If none comes, {then} {_in(pair.due_at, now)}. {_waits(pair.queued)}"
        if cause is not None:
            headline = f"{name} could not be handed over ({which})."
            then = "The pair is suspended" if last_try else "It goes out again"
            outlook = f"{then} {_in(pair.due_at, now)}. {_waits(pair.queued)}"
    if overdue:
        outlook, advice = _behind(overdue)
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


def _idle(pair: Pair, overdue: float, now: datetime, known: dict[str, object]) -> Diagnosis:
    if overdue:
        outlook, advice = _behind(overdue)
        return Diagnosis(
            headline=f"{_documents(pair.queued)} to send, and nothing happens.",
            outlook=outlook,
            advice=advice,
            short="Workers are behind",
            blocked=pair.queued,
            **known,  # type: ignore[arg-type]
        )
    if pair.queued:
        return Diagnosis(headline=f"{_documents(pair.queued)} to send; the next goes out at once.", **known)  # type: ignore[arg-type]
    if pair.last_success_at is None:
        return Diagnosis(headline="Nothing was sent yet.", short="Nothing sent yet", **known)  # type: ignore[arg-type]
    ago = span((now - pair.last_success_at).total_seconds())
    return Diagnosis(
        headline="Everything that was submitted is delivered.",
        why=f"The last acknowledgement came {ago} ago.",
        **known,  # type: ignore[arg-type]
    )


def _inbound(pair: Pair, now: datetime) -> Diagnosis:
    if pair.last_success_at is None:
        headline, why = "Nothing was received yet.", ""
    else:
        headline = f"The last message was taken {span((now - pair.last_success_at).total_seconds())} ago."
        why = f"Its sequence number was {pair.last_sequence}." if pair.last_sequence else ""
    return Diagnosis(
        state="active",
        headline=headline,
        why=why,
        outlook=f"Number {next_sequence(pair.last_sequence)} is expected next; a restart at 1 is taken too.",
        short="" if pair.last_success_at else "Nothing received yet",
    )


def _overdue(pair: Pair, now: datetime) -> float:
    """Seconds by which the hub itself is late with this pair; 0 when it is not."""
    if pair.due_at is None or pair.gate != Gate.OPEN:
        return 0
    late = (now - pair.due_at).total_seconds()
    return late if late > OVERDUE_SECONDS else 0


def _behind(overdue: float) -> tuple[str, str]:
    return (
        f"This was due {span(overdue)} ago: the hub's workers are not doing their work.",
        "Check that workers and beat run (manage.py up), then look at their log.",
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


def _waits(count: int, *, alone: bool = False) -> str:
    if not count:
        return ""
    return f"{_documents(count)} wait{'s' if count == 1 else ''}{'' if alone else ' behind it'}."


def _documents(count: int) -> str:
    return f"{count:,} document{'' if count == 1 else 's'}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _for(since: datetime | None, now: datetime) -> str:
    return f" for {span((now - since).total_seconds())}" if since is not None else ""


def _in(at: datetime | None, now: datetime) -> str:
    if at is None:
        return "soon"
    left = (at - now).total_seconds()
    return f"in {span(left)}" if left >= 1 else "at once"


def span(seconds: float) -> str:
    """A length of time to two units: `3 h 12 m`, `45 s`, `2 d 4 h`."""
    rest = max(0, int(seconds))
    parts: list[tuple[int, str]] = []
    for unit, name in ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s")):
        count, rest = divmod(rest, unit)
        if count or parts:
            parts.append((count, name))
        if len(parts) == 2:
            break
    if parts and parts[0][1] in ("m", "h", "d") and len(parts) == 2 and parts[1][0] == 0:
        parts = parts[:1]
    return " ".join(f"{count} {name}" for count, name in parts) or "0 s"
