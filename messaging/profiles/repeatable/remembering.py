"""Remembered requests (spec 2): what they have come to, and how deliveries change it.

`answered`, `doubtful` and `released` are called by whoever ends a delivery, in the transaction that ends it, so that
what the application did, its answer and what a repeat of the request meets are committed together. They do nothing for
deliveries that no synchronous request waits for.

The same MessageId by two profiles: a partner may send by ebXML what it could not send as a request, and vice versa.

One delivery, and each road its own kind of acknowledgement (conformance X01). Every profile writes `MessageIdentity`,
requests while the partner has agreements of other kinds in force, so of two copies at once one waits for the other, and
finds it. One without a digest came otherwise than by ebXML: its payloads are compared.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, NamedTuple

from django.db import connection, transaction

from messaging import dispatch, storage
from messaging.applications import Reply
from messaging.choices import DeliveryState, Direction, RequestState
from messaging.engine import subscriptions
from messaging.engine.forgetting import day_of
from messaging.entrance.effects import received_event
from messaging.journal import events
from messaging.models import (
    ArchivedMessage,
    Delivery,
    Message,
    MessageIdentity,
    Payload,
    RememberedRequest,
    Signal,
)
from messaging.models.bulk import bulk_insert
from messaging.protocol.codecs.repeatable import storable_headers
from partners import registry
from partners.choices import Profile

log = logging.getLogger(__name__)

_UNDECIDED = (RequestState.RUNNING.value, RequestState.IN_DOUBT.value)
_NO_REPLY = Reply(status=204)
_BAD_REPLY = Reply(502, b"The application has answered with a status that HTTP does not have.\n", "text/plain")
_LOCKS = 0x524D5251  # first half of the advisory locks: "this id of this sender"


class _Stays(Exception):
    """The message cannot be released."""


class Key(NamedTuple):
    """Ids belong to their authenticated sender."""

    sender_id: uuid.UUID
    request_id: str


@dataclass(frozen=True, slots=True)
class Remembered:
    """A remembered request without its answer."""

    key: Key
    day: date
    first_sent: datetime
    content: str  # the fingerprint, hexadecimal
    state: str
    message_pk: uuid.UUID | None
    delivery_id: uuid.UUID | None


@dataclass(frozen=True, slots=True)
class Answered:
    """A stored answer: what a repeat gets."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


def lock(keys: Collection[Key]) -> None:
    """Until the end of the transaction nobody else admits these ids. After the locks of pairs; all of a group at once.

    The primary key alone would not do: it holds the day, and an id must not come twice with two days.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_advisory_xact_lock(k) FROM (SELECT DISTINCT hashtextextended(v, %s) AS k"
            " FROM unnest(%s::text[]) AS v ORDER BY k) AS locks",
            [_LOCKS, [f"{key.sender_id} {key.request_id}" for key in keys]],
        )


def recall(keys: Collection[Key], earliest: date) -> dict[Key, Remembered]:
    """What is remembered of these ids with a first-instance day of `earliest` or later; one probe a day and id."""
    if not keys:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(RECALL, [[key.sender_id for key in keys], [key.request_id for key in keys], earliest])
        found = [
            Remembered(Key(sender, request_id), day, first_sent, bytes(content).hex(), state, message_pk, delivery_id)
            for sender, request_id, day, first_sent, content, state, message_pk, delivery_id in cursor.fetchall()
        ]
    return {one.key: one for one in sorted(found, key=lambda one: one.day)}


RECALL = """
SELECT r.sender_id, r.request_id, r.day, r.first_sent, r.content, r.state, r.message_id, r.delivery_id
FROM unnest(%s::uuid[], %s::text[]) AS w(sender_id, request_id)
JOIN messaging_rememberedrequest r ON r.sender_id = w.sender_id AND r.request_id = w.request_id
WHERE r.day >= %s
"""


def answer_of(one: Remembered) -> tuple[str, Answered | None]:
    """The state as it is now, and the stored answer when there is one. ("", None): it was released."""
    row = _row(one.key, one.day).values_list("state", "status", "headers", "body").first()
    if row is None:
        return "", None
    state, status, headers, body = row
    if state != RequestState.ANSWERED or status is None:
        return state, None
    return state, Answered(status, tuple((name, value) for name, value in headers or ()), bytes(body or b""))


def stored_at(message_pks: Collection[uuid.UUID]) -> dict[uuid.UUID, datetime]:
    """When the first copies of these were stored. Every copy is answered like the first, also after the message has
    gone to the archive.
    """
    if not message_pks:
        return {}
    found = dict(Message.objects.filter(pk__in=message_pks).values_list("pk", "created_at"))
    if gone := set(message_pks) - set(found):
        found |= dict(ArchivedMessage.objects.filter(pk__in=gone).values_list("pk", "created_at"))
    return found


def in_work(deliveries: Collection[uuid.UUID], now: datetime) -> set[uuid.UUID]:
    """Those of the deliveries that somebody works on, or has in hand to begin with."""
    open_states = (DeliveryState.RUNNING, DeliveryState.WAITING)
    found = Delivery.objects.filter(pk__in=deliveries, state__in=open_states, due_at__gt=now)
    return set(found.values_list("pk", flat=True))


def answered(delivery: Delivery, reply: Reply | None, now: datetime) -> None:
    """The application's answer is what the request and each repeat of it get; without one (its outcome is known, its
    answer lost) 204. The triggers that only listen get the document now.
    """
    if not delivery.attended:
        return
    message = delivery.message
    reply = reply if reply is not None else _NO_REPLY
    if not 200 <= reply.status <= 599:
        reply = _BAD_REPLY
    headers = list(reply.headers)
    if reply.body or reply.content_type != _NO_REPLY.content_type:
        headers = [
            ("Content-Type", reply.content_type),
            *(pair for pair in headers if pair[0].lower() != "content-type"),
        ]
    row = _row(_key(delivery, message), _day(message)).filter(state__in=_UNDECIDED)
    if row.update(
        state=RequestState.ANSWERED, status=reply.status, headers=_storable(headers), body=reply.body or None
    ):
        _tell_listeners(delivery, message, now)


def doubtful(delivery: Delivery) -> None:
    """Nobody can say whether the application has processed it: repeats are refused until a person settles it."""
    if delivery.attended:
        message = delivery.message
        _row(_key(delivery, message), _day(message)).filter(state=RequestState.RUNNING).update(
            state=RequestState.IN_DOUBT
        )


def released(delivery: Delivery) -> bool:
    """The request was not executed, and is as if it had never been received: the next copy is executed.

    Deletes the memory, the message and this delivery: do not save the delivery afterwards. False, and nothing happens,
    for a delivery that no request waits for, and for one that an operator resubmitted (it is no longer the sender's).
    """
    if not delivery.attended or delivery.resubmission_of_id is not None:
        return False
    message = delivery.message
    key = _key(delivery, message)
    try:
        with transaction.atomic():
            gone, _ = _row(key, _day(message)).filter(state=RequestState.RUNNING).delete()
            known = MessageIdentity.objects.filter(
                scope_id=key.sender_id, message_id=key.request_id, stored_id=message.pk
            )
            known.filter(sequence_number__isnull=True).delete()
            # After its identity, which whoever acknowledges it holds: the same may have come by ebXML meanwhile, or in
            # a stream, where it got a number.
            if not gone or known.exists() or Signal.objects.filter(about=message.pk).exists():
                raise _Stays
    except _Stays:
        return False
    Message.objects.filter(pk=message.pk).delete()  # and with it payloads and deliveries
    return True


def forget(sender_id: uuid.UUID, *, request_ids: Collection[str] = (), client_id: str = "") -> int:
    """The sender needs these answers no more (Repeatable Requests, clean-up). Returns how many went.

    The ids stay, as tombstones: a late copy must be refused, and not executed. What is in work or in doubt stays.
    """
    ended = (RequestState.ACCEPTED, RequestState.ANSWERED)
    rows = RememberedRequest.objects.filter(sender_id=sender_id, state__in=ended)
    rows = rows.filter(request_id__in=request_ids) if request_ids else rows.filter(client_id=client_id)
    return rows.update(state=RequestState.FORGOTTEN, status=None, headers=None, body=None)


def _tell_listeners(delivery: Delivery, message: Message, now: datetime) -> None:
    """Before, the message might still have been released, as if it had never come."""
    terms = registry.current().version(message.agreement_version_id)
    known = Delivery.objects.filter(message=message).values_list("trigger_id", flat=True)
    lost = delivery.memory_lost
    try:
        wanted = subscriptions.deliveries_for(message, subscriptions.stored(message), terms, now, memory_lost=lost)
    except storage.PayloadMissing:
        # What the application answered is written down all the same; the listeners' deliveries say what is missing.
        log.exception("a document cannot be looked into for its id", extra={"action": "payload_missing"})
        wanted = subscriptions.deliveries_for(message, None, terms, now, memory_lost=lost)
    theirs = [one for one in wanted if one.trigger_id not in set(known)]
    bulk_insert(theirs)
    events.write([received_event(message, terms, now)])
    if theirs:
        dispatch.wake_on_commit(dispatch.DELIVER)


def _key(delivery: Delivery, message: Message) -> Key:
    return Key(delivery.sender_id, message.message_id)


def _day(message: Message) -> date:
    assert message.first_sent_at is not None, "every message of this profile has one"
    return day_of(message.first_sent_at)


def _row(key: Key, day: date) -> Any:
    return RememberedRequest.objects.filter(sender_id=key.sender_id, request_id=key.request_id, day=day)


def _storable(headers: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """What of an answer's headers a repeat gets too. A name may come several times, which a mapping cannot say."""
    names = set(storable_headers(dict(headers)))
    return [(name, value) for name, value in headers if name in names and storable_headers({name: value})]


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A message that came by the other road. `contents`: the SHA-256 of its payloads, in their order; None when nobody
    knows them any more (it has left the store and the archive), so that its id alone decides.
    """

    message_pk: uuid.UUID
    contents: tuple[str, ...] | None

    def has(self, *digests: str) -> bool:
        """Whether these may be its payloads."""
        return self.contents is None or self.contents == digests


def has_others(party_id: uuid.UUID, profile: Profile) -> bool:
    """Whether the partner may send by another profile than this one, too."""
    return any(terms.profile != profile for terms in registry.current().by_hop(party_id))


def stored_message(message_pk: uuid.UUID) -> Elsewhere:
    """A message that is stored, with what its payloads are known by."""
    key = Key(message_pk, "")
    return _with_contents({key: message_pk})[key]


def stored_by_ebxml(keys: Collection[Key]) -> dict[Key, Elsewhere]:
    """Those of the ids, none of which is remembered as a request, that messages came under."""
    if not keys:
        return {}
    rows = MessageIdentity.objects.filter(
        scope_id__in={key.sender_id for key in keys},
        direction=Direction.IN,
        message_id__in={key.request_id for key in keys},
    ).values_list("scope_id", "message_id", "stored_id")
    return _with_contents({Key(scope, message_id): stored for scope, message_id, stored in rows})


def stored_as_requests(keys: Collection[Key]) -> dict[Key, Elsewhere]:
    """Those of the MessageIds that requests came under.

    Their identities are held until the end of the transaction: a request that is released meanwhile (it was never
    received, then) waits, and is not released once its message is acknowledged here.
    """
    if not keys:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(HELD, [[key.sender_id for key in keys], [key.request_id for key in keys]])
        found = {Key(scope, message_id): stored for scope, message_id, stored in cursor.fetchall()}
    for key, one in recall(set(keys) - set(found), date.min).items():
        if one.message_pk is not None:
            found[key] = one.message_pk
    return _with_contents(found)


HELD = """
SELECT i.scope_id, i.message_id, i.stored_id
FROM unnest(%s::uuid[], %s::text[]) AS w(scope_id, message_id)
JOIN messaging_messageidentity i ON i.scope_id = w.scope_id AND i.direction = 'in' AND i.message_id = w.message_id
WHERE i.digest = ''
FOR KEY SHARE OF i
"""


def _with_contents(found: dict[Key, uuid.UUID]) -> dict[Key, Elsewhere]:
    contents: dict[uuid.UUID, list[str]] = {}
    if found:
        payloads = Payload.objects.filter(message_id__in=found.values()).order_by("message_id", "number")
        for message_pk, sha256 in payloads.values_list("message_id", "sha256"):
            contents.setdefault(message_pk, []).append(sha256)
    if gone := set(found.values()) - set(contents):
        contents |= dict(ArchivedMessage.objects.filter(pk__in=gone).values_list("pk", "contents"))
        contents |= {pk: [] for pk in Message.objects.filter(pk__in=gone).values_list("pk", flat=True)}
    return {key: Elsewhere(pk, tuple(contents[pk]) if pk in contents else None) for key, pk in found.items()}
