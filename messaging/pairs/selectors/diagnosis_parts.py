"""What the diagnoses of all kinds of pairs share: their shape, and what is the same whatever goes over the pair."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from messaging import causes
from messaging.causes import Cause
from messaging.choices import Direction
from messaging.journal.wording import lasting, span, waits
from messaging.models import Pair
from messaging.overview.selectors.health import OVERDUE_SECONDS
from messaging.protocol.pair_state import Gate

if TYPE_CHECKING:
    from messaging.pairs.selectors.newer import Sign


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """`short` is one line for lists. `next_at`: when the hub does the next thing by itself. `blocked`: documents that
    cannot go, the one in flight included; 0 when nothing is held up. `attempt` of `max_attempts`: reliable sends.
    `newer`: what is known since the cause was noted, and decides what is said (`newer`).
    """

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
    newer: Sign | None = None

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
    """Whether a verb of `services.operating` can be used now; `why_not` says what stands in its way, and `until` when
    that is over at the latest.
    """

    slug: str
    enabled: bool
    why_not: str = ""
    until: datetime | None = None


def after_loss(pair: Pair, said: Diagnosis) -> Diagnosis:
    """What is the matter with a pair that needs resync: that first, unless something stops it."""
    cause = causes.lookup("needs_resync")
    until = f"{pair.resync_since:%Y-%m-%d %H:%M:%S} UTC"
    since = f"between {pair.resync_from:%Y-%m-%d %H:%M:%S} and {until}" if pair.resync_from else f"before {until}"
    lost = f"The hub's memory was lost: what happened on this pair {since} may be missing here."
    if pair.direction == Direction.IN:
        lost += " What comes in may be a repeat from then: the resolver is asked, or it is in doubt."
    else:
        lost += (
            " What was submitted then may be delivered, or lost; what the hub still had goes out under the same ids."
        )
    if said.cause is not None or said.state != "resync":
        return replace(said, why=f"{said.why} {lost}".strip(), advice=f"{said.advice} {cause.action}".strip())
    return replace(
        said,
        state="resync",
        headline="Both sides have to be compared.",
        why=f"{lost} {said.headline} {said.why}".strip(),
        advice=cause.action,
        short=cause.label,
        cause=cause,
        since=pair.resync_since,
    )


def shut(pair: Pair, blocked: int, by: tuple[str, str] | None, now: datetime, known: dict[str, object]) -> Diagnosis:
    """A pair behind a closed gate. `by`: who closed it, and why."""
    paused = pair.gate == Gate.PAUSED
    who, said = by or ("a person", "")
    advice = (
        "Release the pair when what it waits for is done."
        if paused
        else "Its agreement is not in force. Enable the agreement to let it go on."
    )
    held = waits(blocked, alone=True)
    return Diagnosis(
        headline=f"{f'Paused by {who}' if paused else 'Disabled'}{lasting(pair.changed_at, now)}.",
        why=f"{f'“{said}” ' if said else ''}Nothing is sent; submissions and the partner's answers are still taken.",
        outlook=held or "Nothing waits.",
        advice=advice,
        short="Somebody paused the pair" if paused else "Agreement not in force",
        cause=causes.lookup("paused_by_user") if paused else causes.lookup("agreement_disabled"),
        since=pair.changed_at,
        blocked=blocked,
        **known,  # type: ignore[arg-type]
    )


def silent(pair: Pair, now: datetime) -> Diagnosis:
    """A pair on which a document is expected that did not come."""
    ours = pair.direction == Direction.OUT
    every, grace = span(pair.expected_every), span(pair.silence_grace)
    known = causes.lookup("silent")
    return Diagnosis(
        state="silent",
        headline=f"Silent{lasting(pair.silent_since, now)}.",
        why=f"{'Nothing was submitted' if ours else 'Nothing came from the partner'} when it was due. A document is "
        f"expected every {every}{f', with {grace} of grace' if pair.silence_grace else ''}.",
        outlook="What comes is sent as ever." if ours else "What comes is taken as ever.",
        advice="Ask our application whether it has nothing to send, or cannot."
        if ours
        else "Ask the partner whether they have nothing to send, or cannot reach us.",
        short=known.label,
        cause=known,
        since=pair.silent_since,
    )


def overdue_seconds(pair: Pair, now: datetime) -> float:
    """Seconds by which the hub itself is late with this pair; 0 when it is not.

    Behind a gate, and while it is suspended, it is not late: it counts from the last change of these (`changed_at`).
    """
    if pair.due_at is None or pair.gate != Gate.OPEN:
        return 0
    late = (now - max(pair.due_at, pair.changed_at or pair.due_at)).total_seconds()
    return late if late > OVERDUE_SECONDS else 0


def workers_behind(overdue: float) -> tuple[str, str]:
    """Outlook and advice where the hub itself is late."""
    return (
        f"This was due {span(overdue)} ago: the hub's workers are not doing their work.",
        "Check that workers and beat run (manage.py up), then look at their log.",
    )
