"""Claims of the repeatable-request profile (spec 2): puts queued messages in flight, repeats them, ends their time.

A pair may have many messages in flight; `Pair.out_now` counts them and `Pair.due_at` says that a queued one may go.
Each message in flight has its own timer: `Message.due_at` is its next repeat, the end of its lease, or, while its pair
is shut, the end of its window. So an idle hub pays nothing for this profile: the claims of `sending` find all of it.
What the partner's replies lead to is in `replies`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from django.db.models import Case, F, Q, Value, When

from messaging import dispatch, profile, storage
from messaging.choices import MessageState, Outcome
from messaging.claim import Claim, Due, JobKind
from messaging.engine import preparing
from messaging.engine.pairs import is_due, queues, stop
from messaging.engine.snapshots import REPEATABLE_FIELDS, repeat_policy
from messaging.journal import events, incidents
from messaging.models import Event, Message, Pair, Payload, Transmission
from messaging.models.bulk import bulk_set, read
from messaging.models.message import IN_FLIGHT
from messaging.profile import in_flight_limit
from messaging.profiles.repeatable import writing
from messaging.protocol.errors import EncodeError
from messaging.protocol.messages import Happened, move_repeatable
from messaging.protocol.messages import State as Place
from messaging.protocol.pair_state import Flow, Gate
from messaging.protocol.repeating import Act, Reached, State, Step, begin, deadline, expire, reached
from messaging.read_ahead import Octets, Unread
from messaging.routing.services import upstream
from partners import registry
from partners.choices import VersionState
from partners.terms import Terms

MESSAGE_FIELDS = ("state", "attempts", "attempts_before", "due_at", "cause", "cause_detail", "completed_at")
FIRST_FIELDS = (
    *MESSAGE_FIELDS,
    *("first_sent_at", "expires_at", "order_number", "content_type", "wire_frame", "digest"),
)
FirstSend = Callable[[Pair, Message, list[Payload], Claim], bool]


class Later(Exception):
    """The first message of a queue waits for the end of something that is in flight, which makes its pair due again."""


MAYBE_SENT = ("first_sent_at", "expires_at", "attempts", "attempts_before")
# Incidents that say that messages of a pair are in doubt; they end when the last of those is settled.
# Of attempts that were not made: their server is left alone just now.
NOT_MADE = "circuit_open"
# So long after the end of its time a message is looked at whose pair is shut.
_HELD = timedelta(seconds=1)
DOUBTS = ("outcome_unknown", "outside_memory_window", "expired_unconfirmed", "unconfirmed")


def enqueue(pair: Pair, terms: Terms, now: datetime) -> None:
    """A message was submitted. Call with the pair's lock held; the caller saves it."""
    pair.queued += 1
    set_timer(pair, terms, now)


def set_timer(pair: Pair, terms: Terms, now: datetime) -> None:
    """The pair is due when a queued message may go out, and not otherwise."""
    free = pair.flow == Flow.IDLE and pair.queued > 0 and pair.out_now < _at_once(pair, terms)
    pair.due_at = (pair.due_at or now) if free else None


def _at_once(pair: Pair, terms: Terms) -> int:
    """How many may be in flight: one, while the pair is tried with one message first."""
    return 1 if pair.probing else in_flight_limit(terms)


def promote(pairs: Sequence[Pair], heads: Mapping[uuid.UUID, Message], claim: Claim, first_send: FirstSend) -> None:
    """Puts queued messages of locked pairs in flight, in their order, as many as may be.

    `heads`: the first queued message of each. Together they get no more than the claim's limit, so that no lease runs
    out while its job waits for a thread. `first_send`: claims the first attempt of one; False when the pair had to stop
    instead, or the store is to be read first.
    """
    share = max(1, claim.limit // len(pairs))
    room: dict[uuid.UUID, int] = {}
    for pair in pairs:
        terms = _terms(heads[pair.pk])
        room[pair.pk] = min(_at_once(pair, terms) - pair.out_now, share)
    waiting = {pair_id: [heads[pair_id]] for pair_id, count in room.items() if count > 0}
    waiting |= queues({pair_id: count for pair_id, count in room.items() if count > 1})
    payloads = Payload.of_messages(message.pk for queue in waiting.values() for message in queue)
    changed: list[Message] = []
    waits: set[uuid.UUID] = set()
    for pair in pairs:
        terms = _terms(heads[pair.pk])
        for message in waiting.get(pair.pk, ()):
            if not claim.carries(message):
                break
            try:
                goes_on = first_send(pair, message, payloads[message.pk], claim)
            except Later:
                waits.add(pair.pk)
                break
            changed.append(message)
            if not goes_on:
                break
        set_timer(pair, terms, claim.now)
        if pair.pk in waits:
            pair.due_at = None
    bulk_set(changed, FIRST_FIELDS)
    bulk_set(pairs, REPEATABLE_FIELDS)


def resend(due: Due, claim: Claim) -> None:
    """Repeats locked messages whose timer has run out, the same bytes and headers; or ends what is out of time.

    A message of a shut pair waits until the pair goes on, or for its end.
    """
    changed: list[Message] = []
    over: list[Message] = []
    unsendable: dict[uuid.UUID, tuple[str, str]] = {}
    for message in due.messages:
        policy = repeat_policy(_terms(message))
        begun = begin(State(message.attempts, message.first_sent_at), claim.now, policy)
        if begun.act is not Act.SEND:
            over.append(message)
            continue
        pair = due.pairs[message.pair_id]
        if pair.gate != Gate.OPEN or pair.flow == Flow.SUSPENDED:
            hold(message)
            changed.append(message)
            continue
        try:
            body = _stored(message, due.payloads[message.pk], claim)
        except Unread:
            continue
        except (EncodeError, storage.PayloadMissing) as error:
            unsendable[message.pk] = (error.cause, str(error)[:500])
            continue
        _transmit(message, begun, body, claim, probing=pair.probing)
        changed.append(message)
    bulk_set(changed, MESSAGE_FIELDS)
    stuck = [message for message in due.messages if message.pk in unsendable]
    if over or stuck:
        _with_their_pairs(over, stuck, unsendable, claim)


def _stored(message: Message, payloads: list[Payload], claim: Claim) -> Octets:
    return claim.octets(message, payloads, lambda one: preparing.stored_octets(one, payloads))


def hold(message: Message) -> None:
    """Its pair is shut: it waits, and is looked at again when its window is over."""
    if message.state == MessageState.SENDING:
        message.state = moved(message, Happened.WILL_RETRY)
    assert message.expires_at is not None
    message.due_at = message.expires_at + _HELD


class Goes(StrEnum):
    """What goes out at once of what waits in flight."""

    HELD = "held"  # what came due while its pair was shut
    NOW = "now"  # all, since a person wants it: an attempt that uses no retry
    ANEW = "anew"  # all, and their retries count from here


def let_go(pair: Pair, now: datetime, goes: Goes) -> None:
    """What waits in flight is due at once. Call with the pair's lock held.

    One that is on the wire keeps its lease. It is among the rows all the same: a claim that holds it right now may be
    about to put it back. While the pair is probing it is the first of them alone; the others wait for how that ends.
    """
    under_way = Message.objects.filter(pair=pair, state__in=IN_FLIGHT, expires_at__isnull=False)
    stay = [When(state=MessageState.SENDING, then=F("due_at"))]
    if pair.probing and (first := under_way.order_by("position").values_list("pk", flat=True).first()):
        stay.append(When(~Q(pk=first), then=F("expires_at") + _HELD))
    if goes is Goes.HELD:
        stay.append(When(due_at__lt=F("expires_at") + _HELD, then=F("due_at")))
    changes: dict[str, Any] = {}
    if goes is Goes.ANEW:
        changes["attempts_before"] = F("attempts")
    elif goes is Goes.NOW:
        earlier = ~Q(state=MessageState.SENDING) & Q(due_at__gt=now, attempts_before__lt=F("attempts"))
        changes["attempts_before"] = F("attempts_before") + Case(When(earlier, then=1), default=0)
    under_way.update(due_at=Case(*stay, default=Value(now)), **changes)
    dispatch.wake_on_commit(dispatch.SEND)


def end(pair: Pair, message: Message, act: Act, cause: str, terms: Terms, detail: str, now: datetime) -> list[Event]:
    """The end of a message in flight without delivery: in doubt, or failed. Call with both locked.

    A person has to look at it. On an ordered pair what comes after it waits for that person.
    """
    happened, kind = {
        Act.IN_DOUBT: (Happened.DOUBTED, "message.in_doubt"),
        Act.FAIL: (Happened.GAVE_UP, "message.failed"),
    }[act]
    message.state = moved(message, happened)
    message.cause, message.cause_detail = cause, detail
    message.due_at = None
    message.completed_at = now if act is Act.FAIL else None
    pair.out_now -= 1
    if not pair.out_now and pair.flow != Flow.SUSPENDED:
        pair.retries, pair.cause, pair.cause_detail = 0, "", ""
    upstream.onward_ended([(message.forwarded_from_id, message.state)], now)
    data = {"cause": cause, "detail": detail, "attempts": message.attempts}
    written = [events.event(kind, now, pair=pair, message=message, data=data)]
    if (terms.ordered or terms.message_order or pair.probing) and pair.flow != Flow.SUSPENDED:
        written += stop(pair, message, cause, detail, terms, now)
    else:
        _, opened = incidents.incident_open(pair=pair, cause=cause, now=now, detail=detail, message_pk=message.pk)
        written += opened
    set_timer(pair, terms, now)
    return written


def delivered(pair: Pair, message: Message, terms: Terms, now: datetime, said: str) -> list[Event]:
    """The partner has it; `said`: in a sentence. Call with both locked; the caller saves both."""
    was_in_doubt = message.state == MessageState.IN_DOUBT
    message.state = moved(message, Happened.ACKNOWLEDGED)
    message.cause = message.cause_detail = ""
    message.due_at, message.completed_at = None, now
    pair.done += 1
    pair.last_success_at = now
    written = [events.event("message.delivered", now, pair=pair, message=message, data={"attempts": message.attempts})]
    if was_in_doubt:
        # The answer was under way when the window ended. Saved now, for the question whether others are in doubt.
        bulk_set([message], ("state",))
        return written + settle(pair, now=now, by="system", resolution=said)
    pair.out_now -= 1
    if pair.probing:
        # It got through: now the others, too.
        pair.probing = False
        let_go(pair, now, Goes.HELD)
    written += over(pair, said, now)
    set_timer(pair, terms, now)
    return written


def over(pair: Pair, said: str, now: datetime) -> list[Event]:
    """What failed on a pair that goes on is over; `said`: why. Call with it locked; the caller saves it."""
    if pair.flow == Flow.SUSPENDED:
        return []
    causes = (pair.cause,)
    pair.retries, pair.cause, pair.cause_detail = 0, "", ""
    if causes == ("",):
        return []
    return incidents.incidents_resolve_for_pair(pair=pair, now=now, by="system", resolution=said, causes=causes)


def moved(message: Message, happened: Happened) -> Place:
    """The state of a message in flight after that, by the table of its profile."""
    return profile.of(_terms(message)).move(message.state, happened)


def settle(pair: Pair, *, now: datetime, by: str, resolution: str) -> list[Event]:
    """Resolves the incidents about messages in doubt when none is left. Call with the pair's lock held.

    What a suspended pair stands still for ends when somebody resumes it.
    """
    if Message.objects.filter(pair=pair, state=MessageState.IN_DOUBT).exists():
        return []
    causes = [cause for cause in DOUBTS if pair.flow != Flow.SUSPENDED or cause != pair.cause]
    return incidents.incidents_resolve_for_pair(pair=pair, now=now, by=by, resolution=resolution, causes=causes)


def furthest(
    message_ids: Collection[uuid.UUID],
    *,
    but: uuid.UUID | None = None,
    reached: Callable[[int | None, str], Reached] = reached,
) -> dict[uuid.UUID, Reached]:
    """How far the furthest attempt of each of these messages (other than `but`) can have got. `reached`: by the status
    of its answer and its cause.
    """
    found = dict.fromkeys(message_ids, Reached.NOWHERE)
    attempts = Transmission.objects.filter(message_id__in=message_ids).exclude(pk__in=[but] if but else [])
    known = attempts.order_by().values_list("message_id", "outcome", "http_status", "cause").distinct()
    for pk, outcome, status, cause in known:
        assert pk is not None
        far = reached(status, cause) if outcome == Outcome.FAILED else Reached.SERVICE
        found[pk] = max(found[pk], far)
    return found


def maybe_sent(
    message: Message, terms: Terms, as_of: datetime, now: datetime, *, cause: str, detail: str
) -> Transmission:
    """A message that waits may have been sent before, in a time from `as_of` on that is forgotten.

    It gets the earliest first-sent time that it can have had, and is not sent after the end that follows from it.
    Returns the attempt, which uses no retry, and of which nobody knows what came; the caller saves both (`MAYBE_SENT`).
    """
    message.first_sent_at = as_of.replace(microsecond=0)
    message.expires_at = profile.of(terms).last_send(message, terms)
    message.attempts = message.attempts_before = 1
    return Transmission(
        pair_id=message.pair_id,
        message=message,
        number=1,
        address=terms.partner_address,
        outcome=Outcome.LOST,
        cause=cause,
        detail=detail,
        started_at=message.first_sent_at,
        finished_at=now,
    )


def _terms(message: Message) -> Terms:
    return registry.current().version(message.agreement_version_id)


def first_send(pair: Pair, message: Message, payloads: list[Payload], claim: Claim) -> bool:
    """Fixes the first-instance time and the bytes of a request (`promote`)."""
    terms = _terms(message)
    cause = detail = ""
    if terms.state == VersionState.DISABLED:
        cause, detail = "agreement_disabled", f"Agreement {terms.tpa_id} is disabled."
    else:
        try:
            body = claim.octets(message, payloads, lambda one: writing.prepare(one, payloads))
        except Unread:
            return False
        except (EncodeError, storage.PayloadMissing) as error:
            cause, detail = error.cause, str(error)[:500]
    if cause:
        claim.written += stop(pair, message, cause, detail, terms, claim.now)
        return False
    policy = repeat_policy(terms)
    # One that has a first-instance time already may have been sent before (`resync`).
    known = Reached.SERVICE if message.attempts else Reached.NOWHERE
    begun = begin(State(message.attempts, message.first_sent_at, known), claim.now, policy)
    assert begun.state.first_sent is not None
    message.first_sent_at = begun.state.first_sent
    message.expires_at = deadline(begun.state.first_sent, policy)
    pair.queued = max(0, pair.queued - 1)
    pair.out_now += 1
    if begun.act is not Act.SEND:
        message.state = move_repeatable(message.state, Happened.TRANSMITTED)
        claim.written += end(pair, message, begun.act, begun.cause, terms, window_over(message), claim.now)
        return pair.flow == Flow.IDLE
    _transmit(message, begun, body, claim, probing=pair.probing)
    return True


def _transmit(message: Message, begun: Step, body: Octets, claim: Claim, *, probing: bool) -> None:
    now, terms, pair_id = claim.now, _terms(message), message.pair_id
    message.state = move_repeatable(message.state, Happened.TRANSMITTED)
    message.attempts = begun.state.attempts
    message.due_at = begun.due_at
    if message.attempts > 1:
        data = {"attempt": message.attempts, "cause": message.cause}
        claim.written.append(events.event("message.retrying", now, pair=pair_id, message=message, data=data))
    # A probe is made although the server is left alone just now.
    claim.transmit(JobKind.OWN, message, body, terms, last=probing, **writing.fields(message, terms))


def _with_their_pairs(
    over: Sequence[Message], stuck: Sequence[Message], why: Mapping[uuid.UUID, tuple[str, str]], claim: Claim
) -> None:
    """What changes the pair as well. Its lock comes before a message's everywhere else, so here it is only tried:
    the messages of a pair that somebody holds stay due, for the next claim.
    """
    pairs = pairs_if_free(message.pair_id for message in (*over, *stuck))
    known = furthest([message.pk for message in over])
    changed: list[Message] = []
    for message in over:
        pair = pairs.get(message.pair_id)
        if pair is None:
            continue
        ended = expire(State(message.attempts, message.first_sent_at, known[message.pk]))
        said = window_over(message)
        claim.written += end(pair, message, ended.act, ended.cause, _terms(message), said, claim.now)
        changed.append(message)
    for message in stuck:
        pair = pairs.get(message.pair_id)
        if pair is None:
            continue
        claim.written += stop(pair, message, *why[message.pk], _terms(message), claim.now)
        hold(message)
        changed.append(message)
    bulk_set(changed, MESSAGE_FIELDS)
    bulk_set(list(pairs.values()), REPEATABLE_FIELDS)
    if any(is_due(pair, claim.now) for pair in pairs.values()):
        dispatch.wake_on_commit(dispatch.SEND)


def window_over(message: Message) -> str:
    """What is known of a message whose window is over, for a person."""
    assert message.first_sent_at is not None and message.expires_at is not None
    times = "once" if message.attempts == 1 else f"{message.attempts} times"
    return (
        f"Tried {times}, first at {message.first_sent_at:%Y-%m-%d %H:%M:%S} UTC; "
        f"the time for repeats ended at {message.expires_at:%Y-%m-%d %H:%M:%S} UTC."
    )


def pairs_if_free(pair_ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, Pair]:
    """Those of the pairs that nobody holds, locked."""
    rows = read(
        Pair,
        "SELECT * FROM messaging_pair WHERE id = ANY(%s) ORDER BY id FOR UPDATE SKIP LOCKED",
        [list(set(pair_ids))],
    )
    return {pair.pk: pair for pair in rows}
