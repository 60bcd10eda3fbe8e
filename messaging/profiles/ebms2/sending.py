"""Claims of ebXML Messaging 2.0: puts queued messages in flight, sends again what nobody acknowledged, ends their time.

Each message in flight has its own timer: `Message.due_at` is its next attempt, the end of its lease, or, while its pair
is shut, the end of its time (`expires_at`). What the partner says of them is `answered`'s.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial

from messaging import dispatch, storage
from messaging.choices import MessageState
from messaging.claim import Claim, Due, Job, JobKind, lease_seconds
from messaging.engine import preparing
from messaging.engine.pairs import is_due, stop
from messaging.engine.snapshots import REPEATABLE_FIELDS
from messaging.journal import events, incidents
from messaging.models import Event, Message, Pair, Payload
from messaging.models.bulk import bulk_set
from messaging.profiles.ebms2 import answered, ordering, writing
from messaging.profiles.repeatable import repeating
from messaging.profiles.repeatable.repeating import MESSAGE_FIELDS, NOT_MADE, hold, moved, pairs_if_free
from messaging.protocol.ebms import sending as machine
from messaging.protocol.ebms.sending import (
    NO_ANSWER,
    Policy,
    Reply,
    State,
    Step,
    begin,
    classify,
    expire,
    step,
    wait_over,
)
from messaging.protocol.errors import EncodeError
from messaging.protocol.messages import Happened
from messaging.protocol.pair_state import Flow, Gate
from messaging.protocol.repeating import Act, Reached
from messaging.read_ahead import Octets, Unread
from messaging.routing.services import upstream
from messaging.transports import Receipt
from partners import registry
from partners.choices import VersionState
from partners.terms import Terms

_UNANSWERED = "No acknowledgement came after {attempts} attempts."


def policy_of(terms: Terms, *, probing: bool = False) -> Policy:
    """The agreement's parameters for the machine of one message. `probing`: the one that its pair was resumed with
    first, which is not retried.
    """
    return Policy(
        retries=0 if probing else terms.retries,
        retry_interval=terms.retry_interval,
        persist=timedelta(seconds=terms.partner_window),
        lease=lease_seconds(terms),
    )


def first_send(pair: Pair, message: Message, payloads: list[Payload], claim: Claim) -> bool:
    """Gives a message its place and its octets, and claims its first attempt (`repeating.promote`)."""
    now, terms = claim.now, _terms(message)
    maybe_sent = message.attempts > 0  # before the database was restored
    if message.expires_at is not None and message.expires_at < now:
        if maybe_sent:
            _doubt(pair, message, claim)
        else:
            _never_sent(pair, message, claim)
        return pair.flow == Flow.IDLE
    cause = detail = ""
    if terms.state == VersionState.DISABLED:
        cause, detail = "agreement_disabled", f"Agreement {terms.tpa_id} is disabled."
    else:
        place = ordering.next_place(message, claim.transmissions) if terms.message_order else None
        message.order_number = place.sequence_number if place is not None else None
        try:
            body = claim.octets(message, payloads, partial(_encoded, payloads=payloads, claim=claim), place)
        except (Unread, EncodeError, storage.PayloadMissing) as error:
            message.order_number = None
            if isinstance(error, Unread):
                return False
            cause, detail = error.cause, str(error)[:500]
    if cause:
        claim.written += stop(pair, message, cause, detail, terms, now)
        return False
    policy = policy_of(terms, probing=pair.probing)
    begun = begin(State(), now, policy, message.expires_at)
    message.first_sent_at, message.expires_at = message.first_sent_at or now, begun.state.expires
    if place is not None:
        # The partner takes no Reset from what it has already.
        ordering.took(message, now, anew=maybe_sent)
    pair.queued = max(0, pair.queued - 1)
    pair.out_now += 1
    _transmit(message, begun, body, claim, policy)
    return True


def _encoded(message: Message, *, payloads: list[Payload], claim: Claim) -> Octets:
    return preparing.prepare(message, payloads, _terms(message), claim.now)


def _never_sent(pair: Pair, message: Message, claim: Claim) -> None:
    """The end of its TimeToLive came while it waited: it is a dead letter, and its place in the order goes to the next
    one.
    """
    detail = "Its TimeToLive ended before it could be sent."
    message.state = moved(message, Happened.GAVE_UP)
    message.cause, message.cause_detail = "expired", detail
    message.completed_at = claim.now
    pair.queued = max(0, pair.queued - 1)
    upstream.onward_ended([(message.forwarded_from_id, message.state)], claim.now)
    data = {"cause": message.cause, "detail": detail, "attempts": 0}
    claim.written.append(events.event("message.failed", claim.now, pair=pair, message=message, data=data))
    _, opened = incidents.incident_open(
        pair=pair, cause=message.cause, now=claim.now, detail=detail, message_pk=message.pk
    )
    claim.written += opened


def _doubt(pair: Pair, message: Message, claim: Claim) -> None:
    """It waited in a database that was restored, and its time has ended: it may have been sent in the time that is
    forgotten.
    """
    pair.queued = max(0, pair.queued - 1)
    pair.out_now += 1
    message.state = moved(message, Happened.TRANSMITTED)
    end(pair, message, expire(State(reached=Reached.SERVICE)), claim.now, claim.written)


def resend(due: Due, claim: Claim) -> None:
    """Sends locked messages again whose timer has run out, the same octets; or ends what is out of time.

    A message of a shut pair waits until the pair goes on, or for its end.
    """
    changed: list[Message] = []
    over: list[Message] = []
    stuck: dict[uuid.UUID, tuple[str, str]] = {}
    for message in due.messages:
        pair = due.pairs[message.pair_id]
        policy = policy_of(_terms(message), probing=pair.probing)
        moves = wait_over(_state(message), claim.now, policy)
        if moves.act not in (Act.SEND, Act.HOLD):
            over.append(message)
        elif pair.gate != Gate.OPEN or pair.flow == Flow.SUSPENDED:
            hold(message)
            changed.append(message)
        elif moves.act is Act.HOLD and message.state == MessageState.SENDING:
            # Its worker is gone: what the last attempt leads to is waited for as after any other.
            message.state = moved(message, Happened.WILL_RETRY)
            message.due_at = step(_state(message), Reply.LOST, claim.now, policy).due_at
            changed.append(message)
        elif moves.act is Act.HOLD:
            said = _UNANSWERED.format(attempts=message.attempts)
            stuck[message.pk] = (message.cause or moves.cause, message.cause_detail or said)
        else:
            try:
                body = _stored(message, due.payloads[message.pk], claim)
            except Unread:
                continue
            except (EncodeError, storage.PayloadMissing) as error:
                stuck[message.pk] = (error.cause, str(error)[:500])
                continue
            _transmit(message, moves, body, claim, policy)
            changed.append(message)
    bulk_set(changed, MESSAGE_FIELDS)
    if over or stuck:
        _with_their_pairs(over, [message for message in due.messages if message.pk in stuck], stuck, claim)


def _stored(message: Message, payloads: list[Payload], claim: Claim) -> Octets:
    return claim.octets(message, payloads, lambda one: preparing.stored_octets(one, payloads))


def _with_their_pairs(
    over: Sequence[Message],
    stuck: Sequence[Message],
    why: Mapping[uuid.UUID, tuple[str, str]],
    claim: Claim,
) -> None:
    """What changes the pair as well. Its lock comes before a message's everywhere else, so here it is only tried: the
    messages of a pair that somebody holds stay due, for the next claim.
    """
    now = claim.now
    pairs = pairs_if_free(message.pair_id for message in (*over, *stuck))
    known = repeating.furthest([message.pk for message in over], reached=reached)
    ended = [message for message in over if message.pair_id in pairs]
    for message in ended:
        end(pairs[message.pair_id], message, expire(State(reached=known[message.pk])), now, claim.written)
    held = [message for message in stuck if message.pair_id in pairs]
    for message in held:
        cause, detail = why[message.pk]
        claim.written += stop(pairs[message.pair_id], message, cause, detail, _terms(message), now)
        message.cause, message.cause_detail = cause, detail
        hold(message)
    bulk_set([*ended, *held], MESSAGE_FIELDS)
    bulk_set(list(pairs.values()), REPEATABLE_FIELDS)
    if any(is_due(pair, now) for pair in pairs.values()):
        dispatch.wake_on_commit(dispatch.SEND)


def end(pair: Pair, message: Message, ended: Step, now: datetime, written: list[Event], detail: str = "") -> None:
    """The end of a message in flight without delivery: in doubt, or failed. Call with both locked; the caller saves
    both.
    """
    detail = detail or repeating.window_over(message)
    written += repeating.end(pair, message, ended.act, ended.cause, _terms(message), detail, now)
    ordering.interrupted([message])


def reached(status: int | None, cause: str) -> Reached:
    """How far an attempt can have got that ended with this HTTP status, or for this cause without one."""
    return machine.STEPS[classify(status, cause)].reached


def _transmit(message: Message, begun: Step, body: Octets, claim: Claim, policy: Policy) -> None:
    now, terms = claim.now, _terms(message)
    message.state = moved(message, Happened.TRANSMITTED)
    message.attempts += 1
    message.due_at = begun.due_at
    if message.attempts > 1:
        cause = message.cause or NO_ANSWER
        data = {"attempt": message.attempts, "cause": cause}
        claim.written.append(events.event("message.retrying", now, pair=message.pair_id, message=message, data=data))
    # A probe is made although the server is left alone just now.
    last = begun.state.attempts > policy.retries
    claim.transmit(JobKind.OWN, message, body, terms, last=last, **writing.fields(message, terms))


def record(
    outcomes: Sequence[tuple[Job, Receipt]],
    pairs: Mapping[uuid.UUID, Pair],
    now: datetime,
    written: list[Event],
    take_message: answered.Take,
) -> dict[uuid.UUID, str]:
    """Moves messages and their locked pairs. Returns the transmissions that moved something, each with its cause.

    `take_message`: what comes of a message in a response.
    What the partner says in its answer counts whenever it comes; the outcome itself only while its lease runs.
    """
    messages = Message.of_ids((job.message_id for job, _ in outcomes if job.message_id), lock=True)
    changed: dict[uuid.UUID, str] = {}
    touched: dict[uuid.UUID, Pair] = {}
    answered.read_frames(
        messages[job.message_id] for job, receipt in outcomes if receipt.response and job.message_id in messages
    )
    for job, receipt in outcomes:
        message = messages.get(job.message_id) if job.message_id else None
        if message is None:
            continue
        pair = pairs[message.pair_id]
        waited_for = message.state == MessageState.SENDING and message.attempts == job.number
        said = receipt.response and answered.in_response(receipt, message, pair, now, written, take_message)
        if said:
            changed[job.transmission_id] = ""
        elif waited_for:
            changed[job.transmission_id] = receipt.cause
            _follow(pair, message, receipt, now, written)
        else:
            continue
        touched[pair.pk] = pair
    bulk_set(list(messages.values()), MESSAGE_FIELDS)
    bulk_set(list(touched.values()), REPEATABLE_FIELDS)
    return changed


def _follow(pair: Pair, message: Message, receipt: Receipt, now: datetime, written: list[Event]) -> None:
    terms = _terms(message)
    reply = classify(receipt.status, receipt.cause)
    made = receipt.cause != NOT_MADE
    if not made or (pair.probing and reply is Reply.BUSY):
        message.attempts_before += 1  # it uses no retry, and says nothing of a probe
    following = step(_state(message), reply, now, policy_of(terms), receipt.retry_after)
    happened = Happened.HANDED_OVER if reply is Reply.TAKEN else Happened.WILL_RETRY
    message.state = moved(message, happened)
    message.cause, message.cause_detail = ("", "") if reply is Reply.TAKEN else (receipt.cause, receipt.detail)
    message.due_at = following.due_at
    failed = made and reply not in (Reply.TAKEN, Reply.BUSY)
    if following.act is Act.HOLD or (pair.probing and failed and pair.flow != Flow.SUSPENDED):
        hold(message)
        written += stop(pair, message, receipt.cause, receipt.detail, terms, now)
    elif pair.flow != Flow.SUSPENDED and reply is not Reply.TAKEN:
        pair.retries += 1
        pair.cause, pair.cause_detail = receipt.cause, receipt.detail
        if receipt.permanent:
            # It is tried again all the same, but a person should see it at once.
            _, opened = incidents.incident_open(
                pair=pair, cause=receipt.cause, now=now, detail=receipt.detail, message_pk=message.pk
            )
            written += opened


def is_spent(message: Message, terms: Terms) -> bool:
    """Whether its retries are used. Reads its pair."""
    return _state(message).attempts > policy_of(terms, probing=message.pair.probing).retries


def _state(message: Message) -> State:
    return State(message.attempts - message.attempts_before, message.expires_at)


def _terms(message: Message) -> Terms:
    return registry.current().version(message.agreement_version_id)
