"""What the diagnoses of all kinds of pairs share, and those of the profiles of specs 2, 3 and 5."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from messaging import causes
from messaging.causes import Cause
from messaging.choices import Direction
from messaging.journal.wording import documents, due_in, lasting, span, times, waits
from messaging.models import Pair
from messaging.overview.selectors.health import OVERDUE_SECONDS
from messaging.profile import in_flight_limit
from messaging.protocol.pair_state import Gate
from partners.services import gives_up_sentence
from partners.terms import Terms

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


Say = Callable[..., Diagnosis]  # `diagnosis`, with what is known of the pair


def diagnosis(state: str, cause: Cause | None = None, **said: Any) -> Diagnosis:
    """Return a diagnosis; why, what to do and the short form are the cause's where nothing else is said."""
    if cause is not None:
        words = {"why": cause.sentence, "advice": cause.action, "short": cause.label}
        said |= {name: text for name, text in words.items() if not said.get(name)}
    return Diagnosis(state=state, cause=cause, **said)


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


def shut(pair: Pair, blocked: int, by: tuple[str, str] | None, now: datetime, say: Say) -> Diagnosis:
    """A pair behind a closed gate. `by`: who closed it, and why."""
    paused = pair.gate == Gate.PAUSED
    who, said = by or ("a person", "")
    return say(
        causes.lookup("paused_by_user") if paused else causes.lookup("agreement_disabled"),
        headline=f"{f'Paused by {who}' if paused else 'Disabled'}{lasting(pair.changed_at, now)}.",
        why=f"{f'“{said}” ' if said else ''}Nothing is sent; submissions and the partner's answers are still taken.",
        outlook=waits(blocked, alone=True) or "Nothing waits.",
        advice="Release the pair when what it waits for is done."
        if paused
        else "Its agreement is not in force. Enable the agreement to let it go on.",
        short="Somebody paused the pair" if paused else "Agreement not in force",
        since=pair.changed_at,
        blocked=blocked,
    )


def suspended(pair: Pair, blocked: int, outlook: str, now: datetime, say: Say, why: str = "") -> Diagnosis:
    """A pair that waits for a person. `outlook`: what waits, and what happens to it; `why`: beside its cause."""
    cause = causes.lookup(pair.cause)
    if pair.gate == Gate.PAUSED:
        outlook += " It is paused as well, and has to be released after that."
    return say(
        cause,
        headline=f"Suspended{lasting(pair.changed_at, now)}.",
        why=why + cause.sentence,
        outlook=outlook.strip(),
        since=pair.changed_at,
        blocked=blocked,
    )


def at_rest(
    pair: Pair,
    now: datetime,
    say: Say,
    *,
    resting: str,
    answer: str,
    going: str = "the next goes out",
    never: str = "Nothing was sent yet.",
    never_short: str = "Nothing sent yet",
) -> Diagnosis:
    """A pair with nothing on the way. `resting`: what that means when nothing waits; `answer`: what came last;
    `going`: of what waits; `never`: without a success so far.
    """
    if overdue := overdue_seconds(pair, now):
        outlook, advice = workers_behind(overdue)
        return say(
            headline=f"{documents(pair.queued)} to send, and nothing happens.",
            outlook=outlook,
            advice=advice,
            short="Workers are behind",
            blocked=pair.queued,
        )
    if pair.queued:
        return say(headline=f"{documents(pair.queued)} to send; {going} at once.")
    if pair.last_success_at is None:
        return say(headline=never, short=never_short)
    ago = span((now - pair.last_success_at).total_seconds())
    return say(headline=resting, why=f"The last {answer} came {ago} ago.")


def under_way(pair: Pair, now: datetime, say: Say, *, outlook: str, short: str, **said: Any) -> Diagnosis:
    """A pair with something on the way. `outlook`: unless the hub itself is late; `short`: unless a cause says it."""
    cause, advice = causes.lookup(pair.cause) if pair.cause else None, ""
    if overdue := overdue_seconds(pair, now):
        outlook, advice = workers_behind(overdue)
    return say(cause, outlook=outlook.strip(), advice=advice, short="" if cause is not None else short, **said)


def silent(pair: Pair, now: datetime) -> Diagnosis:
    """A pair on which a document is expected that did not come."""
    ours = pair.direction == Direction.OUT
    every, grace = span(pair.expected_every), span(pair.silence_grace)
    return diagnosis(
        "silent",
        causes.lookup("silent"),
        headline=f"Silent{lasting(pair.silent_since, now)}.",
        why=f"{'Nothing was submitted' if ours else 'Nothing came from the partner'} when it was due. A document is "
        f"expected every {every}{f', with {grace} of grace' if pair.silence_grace else ''}.",
        outlook="What comes is sent as ever." if ours else "What comes is taken as ever.",
        advice="Ask our application whether it has nothing to send, or cannot."
        if ours
        else "Ask the partner whether they have nothing to send, or cannot reach us.",
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


# --- What is the matter with pairs of repeatable requests, streams and transactions (specs 2, 3, 5); `diagnosis` has
# the others. `state`: the pair's state word; `paused`: who paused it, and why.

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
    most = f", up to {in_flight_limit(terms)} at once" if terms is not None and not terms.ordered else ""
    headline = f"{flying} {are} on the way{most}."
    if pair.probing:
        headline = "One document is on the way, to see whether it gets through; the others wait for it."
    outlook = f"The next repeat goes out {due_in(repeat_at, now)}. " if pair.cause and repeat_at is not None else ""
    if terms is not None:
        outlook += f"{gives_up_sentence(terms)} "
    return under_way(
        pair,
        now,
        say,
        headline=headline,
        outlook=outlook + behind,
        short=f"{pair.out_now:,} on the way",
        next_at=repeat_at if pair.cause else pair.due_at,
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
    return under_way(
        pair,
        now,
        say,
        headline=headline,
        outlook=outlook + waits(pair.queued),
        short=f"{pair.out_now:,} in flight",
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
