"""What is the matter with a transaction, in one sentence, and what a person can do: a closed list of situations."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from django.utils.translation import gettext as _
from django.utils.translation import ngettext, npgettext

from messaging.journal.wording import span, times
from messaging.models import Coordination, Enlistment
from messaging.overview.selectors.health import OVERDUE_SECONDS
from messaging.pairs.selectors.diagnosis_parts import workers_behind
from messaging.protocol.atomic.words import ENDED, Phase, Protocol, Seat
from messaging.protocol.pair_state import Gate
from messaging.transactions.selectors.coordinations import Pending, beginner, cause_named, cause_of, name_of
from rmhub.language import gettext_lazy, inside, number

_NAMED = 3  # participants that a sentence names; the others are counted
# A message that went out so often without an answer: its receiver is silent.
_SILENT_AFTER = 3
_SILENT = "transaction_peer_silent"
_HELD = "transaction_pair_shut"
_ASK = gettext_lazy("Nothing ends it by itself: ask the participants that have not voted.")


class Situation(StrEnum):
    """What a transaction waits for, or how it ended. Stable: the API says it too."""

    OPEN = "open"
    NOBODY = "nobody"
    VOTES = "waiting_for_votes"
    DECIDING = "deciding"
    SUPERIOR = "waiting_for_coordinator"
    COMMITTING = "committing"
    SILENT = "not_answering"
    ABORTING = "rolling_back"
    COMMITTED = "committed"
    GIVEN_UP = "given_up"
    ABORTED = "rolled_back"
    DOUBT = "in_doubt"
    CONTRADICTION = "contradiction"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """`headline` and `why`: what is the matter; `action`: what a person can do, "" for nothing; `colour`: of a state.

    `next_at`: when the hub does something by itself, which `next_what` says.
    """

    situation: Situation
    colour: str
    headline: str
    why: str = ""
    action: str = ""
    next_at: datetime | None = None
    next_what: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """A transaction with its participants, and what each of them has not answered; `hidden` more may not be named."""

    one: Coordination
    takers: Sequence[Enlistment]
    now: datetime
    pending: Mapping[uuid.UUID, Pending]
    hidden: int

    @property
    def voting(self) -> list[Enlistment]:
        """Those that vote: initiators of the Completion protocol and a superior do not."""
        return [taker for taker in self.takers if taker.protocol != Protocol.COMPLETION and not taker.superior]

    @property
    def superior(self) -> Enlistment | None:
        return next((taker for taker in self.takers if taker.superior), None)

    def silent(self, takers: Sequence[Enlistment]) -> list[Enlistment]:
        """Those that were sent something too often without an answer."""
        known = self.pending
        return [
            taker
            for taker in takers
            if taker.doubt == _SILENT or (taker.pk in known and known[taker.pk].attempts > _SILENT_AFTER)
        ]

    def unanswered(self, takers: Sequence[Enlistment]) -> str:
        """`Globex Ltd was sent Commit 4 times in 3 m 10 s and has not answered.` of the one that waits the longest."""
        known, now = self.pending, self.now
        waiting = [(known[taker.pk], taker) for taker in takers if taker.pk in known and known[taker.pk].attempts]
        if not waiting:
            return ""
        what, taker = min(waiting, key=lambda one: one[0].since)
        sent = {
            "kind": what.kind,
            "name": name_of(taker),
            "times": times(what.attempts),
            "time": _since(what.since, now),
        }
        if what.cause:
            label = cause.label if (cause := cause_named(what.cause)) is not None else what.cause
            return _("{kind} to {name} was tried {times} in {time}, and the last attempt failed: {cause}.").format(
                cause=inside(label), **sent
            )
        said = _("{name} was sent {kind} {times} in {time} and has not answered.").format(**sent)
        took = taker.pair.last_success_at if taker.pair is not None else None
        if took is None or took < what.since or took > now:
            return said
        return f"{said} " + _("Their server took a message {time} ago.").format(time=_since(took, now))

    def next_at(self, takers: Sequence[Enlistment]) -> datetime | None:
        """When something goes out again to one of them."""
        due = [self.pending[taker.pk].next_at for taker in takers if taker.pk in self.pending]
        return min((at for at in due if at is not None), default=None)


def diagnose(
    one: Coordination,
    enlistments: Sequence[Enlistment],
    now: datetime,
    *,
    pending: Mapping[uuid.UUID, Pending] | None = None,
    hidden: int = 0,
) -> Diagnosis:
    """Of a transaction that `coordinations` read. `pending`: what is not answered; without it nobody is called silent.

    `hidden` of its participants may not be named.
    """
    found = _said(Seen(one, enlistments, now, pending or {}, hidden))
    late = (now - one.due_at).total_seconds() if one.due_at is not None else 0
    if late <= OVERDUE_SECONDS or one.phase in ENDED:
        return found
    outlook, advice = workers_behind(late)
    return replace(found, why=f"{found.why} {outlook}".strip(), action=advice)


def _said(seen: Seen) -> Diagnosis:
    one = seen.one
    doubts = [taker for taker in seen.takers if taker.doubt]
    # Somebody who only does not answer: what it waits for says more.
    unclear = [taker for taker in doubts if taker.doubt != _SILENT or one.phase in ENDED]
    if one.doubtful_since is not None and unclear:
        return _doubtful(one, unclear, seen.now)
    if one.doubtful_since is not None and one.phase not in _SAID:
        return _doubtful(one, doubts, seen.now)
    if one.phase == Phase.PREPARED:
        return _subordinate(seen)
    if one.phase in _SAID:
        return _SAID[Phase(one.phase)](seen)
    return Diagnosis(Situation.OPEN, "azure", _("The transaction is open."))


def _open(seen: Seen) -> Diagnosis:
    voting = seen.voting
    count = len(voting) + seen.hidden
    asks = _("{name} has not asked for the outcome yet.").format(name=beginner(seen.one))
    if seen.one.subordinate:
        asks = _("Another coordinator decides about it.")
        if seen.superior is not None:
            asks = _("{name} decides about it.").format(name=name_of(seen.superior))
    return Diagnosis(
        Situation.OPEN if count else Situation.NOBODY,
        "azure",
        ngettext("Open: {names} takes part.", "Open: {names} take part.", count).format(
            names=_names(voting, seen.hidden)
        )
        if count
        else _("Open, and nobody takes part yet."),
        asks,
        _("Nothing to do: its initiator commits or rolls back. If the initiator is gone, roll it back.")
        if count
        else _("Nothing to do: participants register, and the initiator commits or rolls back."),
        seen.one.expires_at,
        _("it is rolled back"),
    )


def _votes(seen: Seen) -> Diagnosis:
    asked = [taker for taker in seen.voting if taker.seat == Seat.PREPARING and not taker.local]
    headline = (
        _("Waits for the vote of {names}.").format(names=_names(asked, seen.hidden))
        if asked or seen.hidden
        else _("Waits for the votes.")
    )
    first = (
        _("The volatile participants are asked before the durable ones.") + " "
        if seen.one.phase == Phase.PREPARING_VOLATILE
        else ""
    )
    alone = _("Nothing to do: without all votes it is rolled back when its time is over.")
    return Diagnosis(
        Situation.VOTES,
        "yellow" if seen.silent(asked) else "azure",
        headline,
        first + seen.unanswered(asked),
        f"{alone if seen.one.expires_at else _ASK} " + _("Rolling it back now is safe."),
        seen.one.expires_at,
        _("it is rolled back"),
    )


def _deciding(seen: Seen) -> Diagnosis:
    local = [taker for taker in seen.takers if taker.local]
    since = _since(seen.one.due_at or seen.one.changed_at, seen.now)
    why = _("What this hub does itself and the commit record are one step, which has been due for {time}.")
    if local:
        why = _(
            "What this hub does itself ({names}) and the commit record are one step, which has been due for {time}."
        )
    return Diagnosis(
        Situation.DECIDING,
        "azure",
        _("All votes are in: the hub does its own share and writes the decision."),
        why.format(names=_names(local), time=since),
        _("Nothing to do. If it stays so, look at the workers."),
        seen.one.due_at,
        _("a worker takes it up"),
    )


def _committing(seen: Seen) -> Diagnosis:
    told = [taker for taker in seen.voting if taker.seat == Seat.COMMITTING]
    silent = seen.silent(told)
    why = (_("The decision is written and cannot change.") + f" {seen.unanswered(told)}").strip()
    again = _("it is told again")
    if silent:
        return Diagnosis(
            Situation.SILENT,
            "orange",
            ngettext(
                "Committed, but {names} has not confirmed it.",
                "Committed, but {names} have not confirmed it.",
                len(silent),
            ).format(names=_names(silent)),
            why,
            f"{_ask(seen, silent)} "
            + _(
                "What they prepared stays locked until they hear of it. Nothing is lost by waiting. Give one up only "
                "when it is permanently gone."
            ),
            seen.next_at(told),
            again,
        )
    return Diagnosis(
        Situation.COMMITTING,
        "azure",
        ngettext(
            "Committed; {names} is being told.", "Committed; {names} are being told.", len(told) + seen.hidden
        ).format(names=_names(told, seen.hidden))
        if told or seen.hidden
        else _("Committed; the last participants are being told."),
        why,
        "",
        seen.next_at(told),
        again,
    )


def _aborting(seen: Seen) -> Diagnosis:
    told = [taker for taker in seen.voting if taker.seat == Seat.ABORTING]
    silent = seen.silent(told)
    headline, again = _rolled_back(seen.one), _("it is told again")
    if silent:
        return Diagnosis(
            Situation.SILENT,
            "orange",
            f"{headline} "
            + ngettext("{names} has not confirmed it.", "{names} have not confirmed it.", len(silent)).format(
                names=_names(silent)
            ),
            seen.unanswered(told),
            _("A participant that asks again is told to roll back in any case. Give it up if it is permanently gone."),
            seen.next_at(told),
            again,
        )
    telling = _("The last participants are being told.")
    if told or seen.hidden:
        telling = ngettext("{names} is being told.", "{names} are being told.", len(told) + seen.hidden)
    return Diagnosis(
        Situation.ABORTING,
        "yellow",
        f"{headline} {telling.format(names=_names(told, seen.hidden))}",
        seen.unanswered(told),
        "",
        seen.next_at(told),
        again,
    )


def _committed(seen: Seen) -> Diagnosis:
    if given_up := _given_up(seen.takers):
        said = ngettext(
            "Committed; {names} was settled by a person.", "Committed; {names} were settled by a person.", len(given_up)
        )
        return _settled("green", said.format(names=_names(given_up)))
    return Diagnosis(Situation.COMMITTED, "green", _("Committed: all who took part have done it."))


def _aborted(seen: Seen) -> Diagnosis:
    cause = cause_of(seen.one)
    if given_up := _given_up(seen.takers):
        # One that a person rolled back here says no more by its cause than that.
        if cause is not None and cause.code == "transaction_settled":
            said = ngettext(
                "Rolled back; {names} was settled by a person.",
                "Rolled back; {names} were settled by a person.",
                len(given_up),
            )
            return _settled("secondary", said.format(names=_names(given_up)))
        said = ngettext("{names} was settled by a person.", "{names} were settled by a person.", len(given_up))
        return _settled("secondary", f"{_rolled_back(seen.one)} {said.format(names=_names(given_up))}")
    return Diagnosis(
        Situation.ABORTED,
        "secondary",
        f"{_rolled_back(seen.one)} " + _("Nobody has changed anything."),
        cause.sentence if cause is not None else "",
        cause.action if cause is not None else "",
    )


def _given_up(takers: Sequence[Enlistment]) -> list[Enlistment]:
    """Those that a person has settled."""
    return [taker for taker in takers if taker.settled_as]


def _settled(colour: str, headline: str) -> Diagnosis:
    return Diagnosis(
        Situation.GIVEN_UP,
        colour,
        headline,
        _("The hub does not know what became of it over there."),
        _("Compare with the partner, if nobody has done so yet."),
    )


def _subordinate(seen: Seen) -> Diagnosis:
    takers = [seen.superior] if seen.superior is not None else []
    headline = _("Voted yes; its coordinator decides.")
    if takers:
        headline = _("Voted yes; {name} decides.").format(name=name_of(takers[0]))
    since = takers[0].voted_at if takers else seen.one.changed_at
    why = _("This hub has been waiting for the outcome, and may do neither by itself.")
    if since is not None:
        why = _("This hub has been waiting for the outcome for {time}, and may do neither by itself.").format(
            time=_since(since, seen.now)
        )
    return Diagnosis(
        Situation.SUPERIOR,
        "yellow",
        headline,
        f"{why} {seen.unanswered(takers)}".strip(),
        _(
            "Ask them whether their coordinator runs. Decide here only when it is permanently gone: their outcome may "
            "be another one."
        ),
        seen.next_at(takers),
        _("the vote is sent again"),
    )


_SAID: Mapping[Phase, Callable[[Seen], Diagnosis]] = {
    Phase.ACTIVE: _open,
    Phase.PREPARING_VOLATILE: _votes,
    Phase.PREPARING_DURABLE: _votes,
    Phase.DECIDING: _deciding,
    Phase.COMMITTING: _committing,
    Phase.ABORTING: _aborting,
    Phase.COMMITTED: _committed,
    Phase.ABORTED: _aborted,
}


def _doubtful(one: Coordination, doubts: Sequence[Enlistment], now: datetime) -> Diagnosis:
    codes = {taker.doubt for taker in doubts}
    contradicts = "heuristic_outcome" in codes
    cause = cause_named("heuristic_outcome" if contradicts else next(iter(sorted(codes)), "transaction_in_doubt"))
    assert cause is not None
    opened = _opened(doubts, now)
    said = _("{cause}: {names}.") if doubts else "{cause}."
    since = _("In doubt for {time}.").format(time=_since(one.doubtful_since or now, now))
    return Diagnosis(
        Situation.CONTRADICTION if contradicts else Situation.DOUBT,
        "red" if contradicts else "orange",
        said.format(cause=cause.label, names=_names(doubts)),
        f"{cause.sentence} {since} {opened}".strip(),
        _("Wait: what was held goes out now, and their answer ends the doubt.") if opened else cause.action,
    )


def _opened(doubts: Sequence[Enlistment], now: datetime) -> str:
    """That the pairs that held what had to be said are open again; "" while one is not."""
    pairs = [taker.pair for taker in doubts if taker.pair is not None]
    if {taker.doubt for taker in doubts} != {_HELD} or any(pair.gate != Gate.OPEN for pair in pairs):
        return ""
    opened = max((pair.changed_at for pair in pairs if pair.changed_at is not None), default=None)
    if opened is None:
        return ngettext("The pair has been open again.", "These pairs have been open again.", len(pairs))
    return ngettext(
        "The pair has been open again for {time}.", "These pairs have been open again for {time}.", len(pairs)
    ).format(time=_since(opened, now))


def _ask(seen: Seen, silent: Sequence[Enlistment]) -> str:
    """What to ask those who do not answer: their server, or what stands behind one that takes messages."""
    if any(seen.pending[taker.pk].cause for taker in silent if taker.pk in seen.pending):
        return _("Ask them whether their system runs and can be reached.")
    return _("Ask them whether the system behind their server runs.")


def _rolled_back(one: Coordination) -> str:
    """`Rolled back.`, with why where that is known."""
    cause = cause_of(one)
    if cause is None:
        return _("Rolled back.")
    if cause.code == "transaction_rolled_back":
        return _("Rolled back on request.")
    return _("Rolled back: {cause}.").format(cause=inside(cause.label))


def _since(since: datetime, now: datetime) -> str:
    return span((now - since).total_seconds())


def _names(takers: Sequence[Enlistment], hidden: int = 0) -> str:
    """`A`, `A and B`, `A, B, C and 4 more`; nobody twice."""
    names = list(dict.fromkeys(name_of(taker) for taker in takers))
    more = max(0, len(names) - _NAMED) + hidden
    if more:
        rest = (
            npgettext("participants", "{count} more", "{count} more", more)
            if names
            else ngettext("{count} other", "{count} others", more)
        )
        names = [*names[:_NAMED], rest.format(count=number(more))]
    if len(names) < 2:
        return "".join(names)
    return _("{names} and {last}").format(names=", ".join(names[:-1]), last=names[-1])
