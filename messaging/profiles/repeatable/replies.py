"""What a partner's replies to repeatable requests lead to (spec 2): the third step, after claim and talk.

The HTTP answer is the acknowledgement. `protocol.repeating` decides; here rows are moved.
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from messaging.choices import MessageState
from messaging.claim import Job
from messaging.engine.pairs import stop
from messaging.engine.snapshots import REPEATABLE_FIELDS, repeat_policy
from messaging.journal import incidents
from messaging.models import Event, Message, Pair
from messaging.models.bulk import bulk_set
from messaging.profiles.repeatable import repeating
from messaging.protocol.codecs import repeatable
from messaging.protocol.messages import Happened, move_repeatable
from messaging.protocol.repeating import ENDS, Act, Reply, State, Step, classify, step
from messaging.routing.services import upstream
from messaging.transports import Receipt
from messaging.transports.base import printable
from partners import registry
from partners.choices import ExchangeMode
from partners.terms import Terms

# Replies that leave the message where it may still get through.
_OPEN = (MessageState.SENDING, MessageState.RETRYING)
_MAX_SAID = 300  # characters of what the partner said


def record(
    outcomes: Sequence[tuple[Job, Receipt]], pairs: Mapping[uuid.UUID, Pair], now: datetime, written: list[Event]
) -> dict[uuid.UUID, str]:
    """Moves messages and their locked pairs. Returns the transmissions that moved something, each with its cause.

    An outcome that comes after its lease ran out moves nothing, unless it is the answer that all repeats were for.
    """
    messages = Message.of_ids((job.message_id for job, _ in outcomes if job.message_id), lock=True)
    moved: dict[uuid.UUID, str] = {}
    touched: dict[uuid.UUID, Pair] = {}
    delivered: list[Message] = []
    for job, receipt in outcomes:
        message = messages.get(job.message_id) if job.message_id else None
        if message is None:
            continue
        pair = pairs[message.pair_id]
        terms = registry.current().version(job.version_id)
        reply = reply_of(receipt, terms)
        if reply is Reply.DONE and message.state in (*_OPEN, MessageState.IN_DOUBT):
            said = f"The partner answered {message.message_id}."
            written += repeating.delivered(pair, message, terms, now, said)
            delivered.append(message)
            moved[job.transmission_id] = ""
        elif message.state == MessageState.SENDING and message.attempts == job.number:
            following = _decided(job, message, reply, receipt, terms, now)
            moved[job.transmission_id] = _told(receipt, reply, following)
            written += _follow(pair, message, reply, following, receipt, terms, now)
        else:
            continue
        touched[pair.pk] = pair
    bulk_set(list(messages.values()), repeating.MESSAGE_FIELDS)
    bulk_set(list(touched.values()), REPEATABLE_FIELDS)
    upstream.onward_ended([(message.forwarded_from_id, message.state) for message in delivered], now)
    return moved


def reply_of(receipt: Receipt, terms: Terms) -> Reply:
    """What the answer means. An application's response whose body broke off is asked for again: the partner has it
    stored. Of an acknowledgement the head says it all.
    """
    if receipt.ok and not receipt.complete and terms.exchange_mode == ExchangeMode.SYNCHRONOUS:
        return Reply.LOST
    return classify(receipt.status, _result(receipt), receipt.cause)


def _result(receipt: Receipt) -> str:
    values = [value for name, value in receipt.headers if name.lower() == repeatable.RESULT.lower()]
    return repeatable.read_result(values)


def jitter() -> float:
    """0 to 1: so that messages which failed together are not repeated together."""
    return random.random()  # noqa: S311  (nobody gains from guessing it)


def _decided(job: Job, message: Message, reply: Reply, receipt: Receipt, terms: Terms, now: datetime) -> Step:
    policy = repeat_policy(terms)
    state = State(message.attempts, message.first_sent_at)
    chance, wait = jitter(), _retry_after(receipt, now)
    following = step(state, reply, now, policy, chance, wait)
    # How far earlier attempts can have got costs a query, and matters only where this one was not executed.
    if following.act is Act.FAIL and message.attempts > 1:
        known = repeating.furthest([message.pk], but=job.transmission_id)[message.pk]
        following = step(replace(state, reached=known), reply, now, policy, chance, wait)
    return following


def _follow(
    pair: Pair, message: Message, reply: Reply, following: Step, receipt: Receipt, terms: Terms, now: datetime
) -> list[Event]:
    detail = _detail(receipt)
    cause = _told(receipt, reply, following)
    if following.act in (Act.IN_DOUBT, Act.FAIL):
        own_words = following.cause in {cause for _, cause in ENDS.values()}
        said = f"{repeating.window_over(message)} {detail}".strip() if own_words else detail
        return repeating.end(pair, message, following.act, following.cause, terms, said, now)
    message.state = move_repeatable(message.state, Happened.WILL_RETRY)
    message.cause, message.cause_detail = cause, detail
    message.due_at = following.due_at
    # A probe fails with its first failure; "not now" is none, nor is an attempt that was not made.
    failed = reply is not Reply.BUSY and receipt.cause != repeating.NOT_MADE
    if following.act is Act.HOLD or (pair.probing and failed and pair.flow != "suspended"):
        repeating.hold(message)
        return stop(pair, message, cause, detail, terms, now)
    if pair.flow == "suspended":
        return []
    pair.retries += 1
    pair.cause, pair.cause_detail = cause, detail
    if not receipt.permanent:
        return []
    # It is tried again all the same, but a person should see it at once.
    _, opened = incidents.incident_open(pair=pair, cause=cause, now=now, detail=detail, message_pk=message.pk)
    return opened


def _told(receipt: Receipt, reply: Reply, following: Step) -> str:
    """The cause code of this one attempt: what a status means in this profile, else what the transport says."""
    if reply in (Reply.OUTSIDE_WINDOW, Reply.ENDED_IN_ERROR):
        return following.cause
    if reply is Reply.REFUSED:
        return "request_refused"
    if receipt.ok:
        if not receipt.complete:
            return "answer_incomplete"
        return "answer_contradicts_itself" if _result(receipt) else "answer_without_result"
    return "still_in_work" if receipt.status == 409 else receipt.cause


def _retry_after(receipt: Receipt, now: datetime) -> float | None:
    """Seconds; an HTTP date counts as well (RFC 9110, 10.2.3)."""
    if receipt.retry_after is not None:
        return receipt.retry_after
    for name, value in receipt.headers:
        if name.lower() == "retry-after":
            try:
                return max(0.0, (repeatable.parse_imf_fixdate(value.strip()) - now).total_seconds())
            except ValueError:
                return None
    return None


def _detail(receipt: Receipt) -> str:
    """The transport's sentence, and the partner's own from a problem document (RFC 9457)."""
    _, _, body = receipt.response.partition(b"\r\n\r\n")
    try:
        members = json.loads(body) if body[:1] == b"{" else {}
    except ValueError:
        members = {}
    said = members.get("detail") or members.get("title") or "" if isinstance(members, dict) else ""
    if not isinstance(said, str) or not said:
        return receipt.detail
    return f"{receipt.detail} {printable(said[:_MAX_SAID])}".strip()
