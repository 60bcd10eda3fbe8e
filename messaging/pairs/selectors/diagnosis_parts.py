"""What the diagnoses of all kinds of pairs share, and those of the profiles of specs 2, 3 and 5."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from messaging import causes
from messaging.causes import Cause
from messaging.choices import Direction
from messaging.journal.wording import due_in, lasting, span, times, waits
from messaging.models import Pair
from messaging.overview.selectors.health import OVERDUE_SECONDS
from messaging.profile import in_flight_limit
from messaging.protocol.pair_state import Gate
from partners.services import gives_up_sentence
from partners.terms import Terms
from rmhub.language import number

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
        if self.attempt <= 1:
            return _("first send")
        return _("{number} of {most}").format(number=self.attempt - 1, most=self.max_attempts - 1)

    @property
    def sentence(self) -> str:
        """All of it in a row, for the API and for screen readers."""
        return " ".join(part for part in (self.headline, self.why, self.outlook) if part)


Say = Callable[..., Diagnosis]  # `diagnosis`, with what is known of the pair


def diagnosis(state: str, cause: Cause | None = None, **said: Any) -> Diagnosis:
    """Return a diagnosis; why, what to do and the short form are the cause's where nothing else is said."""
    if cause is not None:
        words = {"why": str(cause.sentence), "advice": str(cause.action), "short": str(cause.label)}
        said |= {name: text for name, text in words.items() if not said.get(name)}
    return Diagnosis(state=state, cause=cause, **said)


def after_loss(pair: Pair, said: Diagnosis) -> Diagnosis:
    """What is the matter with a pair that needs resync: that first, unless something stops it."""
    cause = causes.lookup("needs_resync")
    until = f"{pair.resync_since:%Y-%m-%d %H:%M:%S}"
    if pair.resync_from:
        lost = _(
            "The hub's memory was lost: what happened on this pair between {begin} and {end} UTC may be missing here."
        ).format(begin=f"{pair.resync_from:%Y-%m-%d %H:%M:%S}", end=until)
    else:
        lost = _("The hub's memory was lost: what happened on this pair before {end} UTC may be missing here.").format(
            end=until
        )
    if pair.direction == Direction.IN:
        then = _("What comes in may be a repeat from then: the resolver is asked, or it is in doubt.")
    else:
        then = _(
            "What was submitted then may be delivered, or lost; what the hub still had goes out under the same ids."
        )
    lost = f"{lost} {then}"
    if said.cause is not None or said.state != "resync":
        return replace(said, why=f"{said.why} {lost}".strip(), advice=f"{said.advice} {cause.action}".strip())
    return replace(
        said,
        state="resync",
        headline=_("Both sides have to be compared."),
        why=f"{lost} {said.headline} {said.why}".strip(),
        advice=str(cause.action),
        short=str(cause.label),
        cause=cause,
        since=pair.resync_since,
    )


def shut(pair: Pair, blocked: int, by: tuple[str, str] | None, now: datetime, say: Say) -> Diagnosis:
    """A pair behind a closed gate. `by`: who closed it, and why."""
    paused = pair.gate == Gate.PAUSED
    who, said = by or (_("a person"), "")
    headline = _("Paused by {name}{lasting}.") if paused else _("Disabled{lasting}.")
    why = _("Nothing is sent; submissions and the partner's answers are still taken.")
    if said:
        why = _("“{quoted}”").format(quoted=said) + " " + why
    return say(
        causes.lookup("paused_by_user") if paused else causes.lookup("agreement_disabled"),
        headline=headline.format(name=who, lasting=lasting(pair.changed_at, now)),
        why=why,
        outlook=waits(blocked, alone=True) or _("Nothing waits."),
        advice=_("Release the pair when what it waits for is done.")
        if paused
        else _("Its agreement is not in force. Enable the agreement to let it go on."),
        short=_("Somebody paused the pair") if paused else _("Agreement not in force"),
        since=pair.changed_at,
        blocked=blocked,
    )


def suspended(pair: Pair, blocked: int, outlook: str, now: datetime, say: Say, why: str = "") -> Diagnosis:
    """A pair that waits for a person. `outlook`: what waits, and what happens to it; `why`: beside its cause."""
    cause = causes.lookup(pair.cause)
    if pair.gate == Gate.PAUSED:
        outlook += " " + _("It is paused as well, and has to be released after that.")
    return say(
        cause,
        headline=_("Suspended{lasting}.").format(lasting=lasting(pair.changed_at, now)),
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
    together: bool = False,
    never: str = "",
    never_short: str = "",
) -> Diagnosis:
    """A pair with nothing on the way. `resting`: what that means when nothing waits; `answer`: what came last, {ago};
    `together`: several of what waits go out at a time; `never`: without a success so far.
    """
    if overdue := overdue_seconds(pair, now):
        outlook, advice = workers_behind(overdue)
        return say(
            headline=ngettext(
                "{count} document to send, and nothing happens.",
                "{count} documents to send, and nothing happens.",
                pair.queued,
            ).format(count=number(pair.queued)),
            outlook=outlook,
            advice=advice,
            short=_("Workers are behind"),
            blocked=pair.queued,
        )
    if pair.queued:
        going = ngettext(
            "{count} document to send; the next goes out at once.",
            "{count} documents to send; the next goes out at once.",
            pair.queued,
        )
        if together:
            going = ngettext(
                "{count} document to send; it goes out at once.",
                "{count} documents to send; the next go out at once.",
                pair.queued,
            )
        return say(headline=going.format(count=number(pair.queued)))
    if pair.last_success_at is None:
        return say(headline=never or _("Nothing was sent yet."), short=never_short or _("Nothing sent yet"))
    ago = span((now - pair.last_success_at).total_seconds())
    return say(headline=resting, why=answer.format(ago=ago))


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
    missing = _("Nothing came from the partner when it was due.")
    if ours:
        missing = _("Nothing was submitted when it was due.")
    rhythm = _("A document is expected every {time}.")
    if pair.silence_grace:
        rhythm = _("A document is expected every {time}, with {grace} of grace.")
    return diagnosis(
        "silent",
        causes.lookup("silent"),
        headline=_("Silent{lasting}.").format(lasting=lasting(pair.silent_since, now)),
        why=f"{missing} {rhythm.format(time=every, grace=grace)}",
        outlook=_("What comes is sent as ever.") if ours else _("What comes is taken as ever."),
        advice=_("Ask our application whether it has nothing to send, or cannot.")
        if ours
        else _("Ask the partner whether they have nothing to send, or cannot reach us."),
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
        _("This was due {ago} ago: the hub's workers are not doing their work.").format(ago=span(overdue)),
        _("Check that workers and beat run (manage.py up), then look at their log."),
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
    behind, out = waits(pair.queued, alone=True), number(pair.out_now)
    if state == "suspended":
        outlook = f"{behind} " + _("Nothing is sent until somebody resumes the pair.")
        if pair.out_now:
            held = ngettext(
                "{count} document on the way is held.", "{count} documents on the way are held.", pair.out_now
            ).format(count=out)
            doubt = _("What was sent before and is still without an answer when its window ends is in doubt.")
            outlook = f"{held} {outlook} {doubt}"
        return suspended(pair, blocked, outlook, now, say)
    if not pair.out_now:
        if in_doubt and not pair.queued:
            return _doubtful(in_doubt, say)
        # Some may have ended in doubt, or failed: that is for their incidents to say.
        return at_rest(
            pair,
            now,
            say,
            resting=_("Nothing is on the way."),
            answer=_("The last answer came {ago} ago."),
            never=_("Nothing is on the way, and nothing was answered yet."),
            never_short=_("Nothing answered yet"),
        )
    if pair.probing:
        headline = _("One document is on the way, to see whether it gets through; the others wait for it.")
    elif terms is not None and not terms.ordered:
        headline = ngettext(
            "{count} document is on the way, up to {most} at once.",
            "{count} documents are on the way, up to {most} at once.",
            pair.out_now,
        ).format(count=out, most=number(in_flight_limit(terms)))
    else:
        headline = ngettext(
            "{count} document is on the way.", "{count} documents are on the way.", pair.out_now
        ).format(count=out)
    outlook = ""
    if pair.cause and repeat_at is not None:
        outlook = _("The next repeat goes out {when}.").format(when=due_in(repeat_at, now)) + " "
    if terms is not None:
        outlook += f"{gives_up_sentence(terms)} "
    return under_way(
        pair,
        now,
        say,
        headline=headline,
        outlook=outlook + behind,
        short=_("{count} on the way").format(count=out),
        next_at=repeat_at if pair.cause or repeat_at else pair.due_at,
        blocked=blocked if state == "retrying" else 0,
    )


def _doubtful(count: int, say: Say) -> Diagnosis:
    """Nothing moves, and that is not because all went well."""
    return say(
        causes.lookup("outcome_unknown"),
        headline=ngettext(
            "Nothing is on the way; {count} document is in doubt.",
            "Nothing is on the way; {count} documents are in doubt.",
            count,
        ).format(count=number(count)),
        outlook=_("New documents are sent as ever."),
        short=_("{count} in doubt").format(count=number(count)),
    )


def of_stream(pair: Pair, terms: Terms, now: datetime, state: str, paused: Paused) -> Diagnosis:
    """Many messages are in flight, timed together."""
    attempt = pair.retries + 1 if pair.out_now else 0
    say = partial(diagnosis, state, attempt=attempt, max_attempts=terms.retries + 1)
    blocked = pair.queued + pair.out_now
    if state in ("paused", "disabled"):
        return shut(pair, blocked, paused, now, say)
    out, most = number(pair.out_now), number(terms.max_in_flight)
    if state == "suspended":
        outlook = (
            waits(pair.queued, alone=not pair.out_now) + " " + _("Nothing is sent until somebody resumes the pair.")
        )
        if pair.out_now:
            unacknowledged = ngettext(
                "{count} document is not acknowledged; an acknowledgement that still comes counts.",
                "{count} documents are not acknowledged; an acknowledgement that still comes counts.",
                pair.out_now,
            ).format(count=out)
            outlook = f"{unacknowledged} {outlook.strip()}"
        return suspended(pair, blocked, outlook, now, say)
    if not pair.out_now:
        # Some may have expired, or wait for a final receipt: that is for their own pages and incidents to say.
        return at_rest(
            pair,
            now,
            say,
            resting=_("Nothing is in flight."),
            answer=_("The last order acknowledgement came {ago} ago."),
            together=True,
        )
    headline = ngettext(
        "{count} document in flight of at most {most}",
        "{count} documents in flight of at most {most}",
        pair.out_now,
    )
    if pair.out_now >= terms.max_in_flight:
        headline = ngettext(
            "{count} document in flight, and the window is full",
            "{count} documents in flight, and the window is full",
            pair.out_now,
        )
    flying = headline.format(count=out, most=most)
    headline = _("{flying}; an order acknowledgement is awaited.").format(flying=flying)
    if pair.retries:
        headline = _("{flying}: sent again {times} of {most}, without an order acknowledgement.").format(
            flying=flying, times=times(pair.retries), most=terms.retries
        )
    when = due_in(pair.due_at, now)
    if pair.retries >= terms.retries:
        outlook = _("If none comes, the pair is suspended {when}.").format(when=when) + " "
    else:
        outlook = _("If none comes, all go out again {when}.").format(when=when) + f" {gives_up_sentence(terms)} "
    return under_way(
        pair,
        now,
        say,
        headline=headline,
        outlook=outlook + waits(pair.queued),
        short=_("{count} in flight").format(count=out),
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
            headline=_("The last message was taken {ago} ago.").format(ago=ago)
            if ago
            else _("No message of a transaction was received yet."),
            outlook=_("Messages of transactions have no numbers: their participant says where they belong."),
            short="" if ago else _("Nothing received yet"),
        )
    if state in ("paused", "disabled"):
        held = _(
            "Messages of transactions are held here; participants that have voted wait for the decision meanwhile."
        )
        return replace(shut(pair, 0, paused, now, say), outlook=held)
    if pair.cause:
        failed = _("The last attempt to send a message of a transaction failed.")
        if pair.retries > 1:
            failed = _("The last attempt to send a message of a transaction failed ({times} in a row).")
        return say(
            causes.lookup(pair.cause),
            headline=failed.format(times=times(pair.retries)),
            outlook=gives_up_sentence(terms),
        )
    if not ago:
        return say(headline=_("No message of a transaction was sent yet."), short=_("Nothing sent yet"))
    return say(
        headline=_("Messages of transactions get through."),
        why=_("The partner took the last one {ago} ago.").format(ago=ago),
        outlook=gives_up_sentence(terms),
    )
