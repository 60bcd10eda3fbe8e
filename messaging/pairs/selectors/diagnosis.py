"""What is the matter with a pair, in one sentence: state, cause, since when, what waits, what happens next, what to do.

Made from the pair's row, the message in flight and the terms; no queries of its own, so that lists can have it too.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from functools import partial

from django.utils.translation import gettext as _

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
from rmhub.language import gettext_lazy


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
    requests, streams = speaks.one_by_one, speaks.windowed
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
        why = ""
        if head is not None:
            said = _("{message} was tried {times}.") if head.attempts else _("{message} never went out.")
            why = said.format(message=_named(head), times=times(head.attempts)) + " "
        behind = waits(pair.queued if pair.in_flight_id else max(0, pair.queued - 1))
        outlook = f"{behind} " + _("Nothing is sent until somebody resumes the pair.")
        return suspended(pair, blocked, outlook, now, say, why)
    if state in ("paused", "disabled"):
        return shut(pair, blocked, paused, now, say)
    if pair.in_flight_id:
        return _under_way(pair, head, terms, now, state, blocked, say)
    return at_rest(
        pair,
        now,
        say,
        resting=_("Everything that was submitted is delivered."),
        answer=_("The last acknowledgement came {ago} ago."),
    )


def _under_way(
    pair: Pair, head: Message | None, terms: Terms | None, now: datetime, state: str, blocked: int, say: Say
) -> Diagnosis:
    last_try = pair.probing or (terms is not None and pair.retries >= terms.retries)
    which = _("the probe: the first failure suspends the pair again") if pair.probing else _which(pair, terms)
    name = _named(head)
    since = head.first_sent_at if head is not None else None
    behind, due = waits(pair.queued), due_in(pair.due_at, now)
    if state == "holding":
        headline = _("The partner asked for a pause{lasting}.").format(lasting=lasting(pair.holding_since, now))
        outlook = _("{message} goes out again {when}.").format(message=name, when=due)
        since = pair.holding_since or since
    elif pair.flow == Flow.SENDING:
        headline = _("{message} is on the wire ({which}).").format(message=name, which=which)
        outlook = ""
    elif pair.flow == Flow.RESEND_WAIT:
        headline = _("{message} goes out again {when} ({which}).").format(message=name, when=due, which=which)
        outlook = ""
    elif pair.cause:
        headline = _("{message} could not be handed over ({which}).").format(message=name, which=which)
        outlook = _("The pair is suspended {when}.") if last_try else _("It goes out again {when}.")
        outlook = outlook.format(when=due)
    else:
        said = _("{message} was handed over ({which}); the acknowledgement is awaited.")
        headline = said.format(message=name, which=which)
        outlook = (
            _("If none comes, the pair is suspended {when}.")
            if last_try
            else _("If none comes, it goes out again {when}.")
        ).format(when=due)
    outlook = f"{outlook} {behind}"
    return under_way(
        pair,
        now,
        say,
        headline=headline,
        outlook=outlook,
        short=str(_SHORT_WAITS.get(pair.flow, "")),
        since=since,
        next_at=pair.due_at,
        blocked=blocked if state in ("holding", "retrying") else 0,
    )


def _inbound(pair: Pair, now: datetime, requests: bool, streams: bool) -> Diagnosis:
    if pair.last_success_at is None:
        headline, why = _("Nothing was received yet."), ""
    else:
        ago = span((now - pair.last_success_at).total_seconds())
        headline, why = _("The last message was taken {ago} ago.").format(ago=ago), ""
        if pair.last_sequence and not streams:
            why = _("Its sequence number was {number}.").format(number=pair.last_sequence)
    outlook = _("Number {number} is expected next; a restart at 1 is taken too.").format(
        number=next_sequence(pair.last_sequence)
    )
    if pair.takes_any_number:
        outlook = _("Whatever number comes next is taken: the hub no longer knows which one it should be.")
    if requests:
        outlook = _("Messages are recognised by their ids; the pair has no numbers.")
    if streams:
        outlook = _("Each of the partner's senders has a stream of its own, with numbers of its own.")
    return Diagnosis(
        state=state_of(pair),
        headline=headline,
        why=why,
        outlook=outlook,
        short="" if pair.last_success_at else _("Nothing received yet"),
    )


def _named(message: Message | None) -> str:
    if message is None:
        return _("The message")
    if message.sequence_number:
        return _("Message #{number} ({action})").format(number=message.sequence_number, action=message.action)
    return _("The message ({action})").format(action=message.action)


def _which(pair: Pair, terms: Terms | None) -> str:
    """Which send this is, in the terms of spec 1: Retries, and transport recovery below them (2.5.4)."""
    parts = []
    if pair.transport_attempts:
        said = _("transport recovery {number}") if terms is None else _("transport recovery {number} of {most}")
        parts.append(said.format(number=pair.transport_attempts, most=terms.transport_retries if terms else 0))
    if pair.retries:
        said = _("retry {number}") if terms is None else _("retry {number} of {most}")
        parts.append(said.format(number=pair.retries, most=terms.retries if terms else 0))
    elif not parts:
        parts.append(_("first send"))
    return ", ".join(parts)


_SHORT_WAITS = {
    Flow.SENDING.value: gettext_lazy("On the wire"),
    Flow.AWAITING_ACK.value: gettext_lazy("Acknowledgement awaited"),
    Flow.RESEND_WAIT.value: gettext_lazy("Goes out again"),
}
