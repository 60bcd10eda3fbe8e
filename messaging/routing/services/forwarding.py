"""Passes on what came for somebody else (spec 1, 4.1): stored as received, and queued for the next hop as a message.

Everything here runs in the transaction that takes the arrival, whatever profile it came by. Whether the previous hop is
acknowledged at once or when the next one has acknowledged is the route's mode (`upstream`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from messaging import profile
from messaging.choices import Direction, MessageState
from messaging.engine.pairs import enqueue
from messaging.journal import events
from messaging.models import Event, Message, MessageIdentity, Pair, Payload, Transmission
from messaging.profiles.repeatable import repeating
from messaging.protocol.envelope import ErrorInfo, Semantics
from messaging.protocol.errors import ErrorCode, Severity
from messaging.routing.services import upstream
from messaging.routing.services.routing import Road
from rmhub import traces
from rmhub.ids import uuid7

Arriving = tuple[Road, str]  # and its MessageId
_UNKNOWN = "The database was restored: it may have come, and gone on, in the time that is forgotten."


@dataclass(frozen=True, slots=True)
class Onward:
    """What a group of arrivals needs to know of the ways onward."""

    shut: Mapping[str, datetime] = field(default_factory=dict)  # servers that are left alone, until when
    taken: frozenset[tuple[uuid.UUID, str]] = frozenset()  # (own party, MessageId) that went out before

    def with_taken(self, own_party_id: uuid.UUID, message_id: str) -> Onward:
        """The same after one more has gone out."""
        return replace(self, taken=self.taken | {(own_party_id, message_id)})


@dataclass(frozen=True, slots=True)
class Forwarded:
    """A message that goes on, with what is written beside it."""

    message: Message
    payloads: list[Payload]
    identity: MessageIdentity | None
    events: list[Event]
    attempts: list[Transmission] = field(default_factory=list)


def pair_ids(arriving: Sequence[Arriving]) -> set[uuid.UUID]:
    """The outbound pairs that these arrivals touch; lock them together with the inbound ones, in one call."""
    if not arriving:
        return set()
    # A copy touches the pair that its message went to, wherever the route leads today.
    earlier = Message.objects.filter(
        message_id__in={message_id for _, message_id in arriving}, direction=Direction.OUT, forwarded_from__isnull=False
    )
    known = set(earlier.values_list("pair_id", flat=True))
    return known | {road.pair_id for road, _ in arriving if road.pair_id is not None}


def look_up(arriving: Sequence[Arriving], now: datetime) -> Onward:
    """What `refusal` has to know, for a whole group: two queries. Call with the pairs locked."""
    leading = [(road.onward, message_id) for road, message_id in arriving if road.pair_id is not None]
    if not leading:
        return Onward()
    taken = MessageIdentity.objects.filter(
        scope_id__in={terms.own_party_id for terms, _ in leading},
        direction=Direction.OUT,
        message_id__in={message_id for _, message_id in leading},
    ).values_list("scope_id", "message_id")
    return Onward(upstream.shut_servers((terms for terms, _ in leading), now), frozenset(taken))


def refusal(
    road: Road,
    message_id: str,
    pairs: Mapping[uuid.UUID, Pair],
    onward: Onward,
    now: datetime,
    *,
    reliable: bool = True,
) -> ErrorInfo | None:
    """Why a new message is not taken: not yet (a Transient Error), or never; None when it is.

    What is refused leaves nothing behind: no number moves (4.1.3).
    """
    if road.refusal is not None:
        return road.refusal
    assert road.entry is not None
    if road.pair_id is None:
        text = f"Route {road.entry.name} leads nowhere now: its agreement is not in force"
        return upstream.transient(text, road.entry.min_retry_secs)
    if not reliable:
        return None  # what nobody acknowledges is not sent again either: it is taken, and waits here
    if (road.onward.own_party_id, message_id) in onward.taken:
        text = f"MessageId {message_id} has gone out from here before, as another message."
        return ErrorInfo(ErrorCode.INCONSISTENT, Severity.ERROR, text, "/ebXMLHeader/Header/MessageData/MessageId")
    return upstream.blocked(road.onward, pairs[road.pair_id], onward.shut, now, road.entry.min_retry_secs)


def forward(
    message: Message, payloads: Iterable[Payload], road: Road, pair: Pair, now: datetime, *, memory_lost: bool
) -> Forwarded:
    """Queues what was received (`message` with its payload rows) for the next hop; nothing is written yet.

    MessageId, conversation and documents stay; header and number are given when it is prepared. `memory_lost`: it may
    have gone on before, in a time that the database has forgotten. The next hop knows it by its id then, and a request
    that is refused is in doubt. Call with the pair's lock held; the caller saves the pair (`engine.pairs.PAIR_FIELDS`).
    """
    terms = road.onward
    assert road.entry is not None
    speaks = profile.of(terms)
    as_it_came = speaks.numbered or speaks.acknowledged_singly
    semantics = message.semantics if as_it_came else Semantics.ONCE_AND_ONLY_ONCE
    onward = Message(
        id=uuid7(),
        direction=Direction.OUT,
        state=MessageState.QUEUED,
        agreement_version_id=terms.version_id,
        semantics=semantics,
        message_id=message.message_id,
        document_id=message.document_id,
        conversation_id=message.conversation_id,
        ref_to_message_id=message.ref_to_message_id,
        service=message.service,
        action=message.action,
        forwarded_from=message,
        size=message.size,
    )
    enqueue(onward, pair, terms, now)
    rows = [
        Payload(
            message=onward,
            number=row.number,
            content_id=row.content_id,
            content_type=row.content_type,
            filename=row.filename,
            label=row.label,
            size=row.size,
            sha256=row.sha256,
            content=row.content,
            stored_as=row.stored_as,
            in_frame=terms.encrypts,
        )
        for row in payloads
    ]
    identity = None
    if semantics == Semantics.ONCE_AND_ONLY_ONCE:
        identity = MessageIdentity(
            scope_id=terms.own_party_id,
            direction=Direction.OUT,
            message_id=onward.message_id,
            stored_id=onward.pk,
            created_at=now,
        )
    passed: dict[str, object] = {"route": road.entry.name, "mode": road.entry.mode}
    passed |= {"agreement": terms.tpa_id, "onward": onward.public_id}
    attempts = []
    if memory_lost:
        passed["detail"] = _UNKNOWN
        if profile.of(terms).one_by_one and semantics == Semantics.ONCE_AND_ONLY_ONCE:
            as_of = message.pair.resync_from or now
            attempts.append(repeating.maybe_sent(onward, terms, as_of, now, cause="needs_resync", detail=_UNKNOWN))
    accepted = {"agreement": terms.tpa_id, "service": onward.service, "action": onward.action, "size": onward.size}
    written = [
        events.event("message.forwarded", now, pair=message.pair_id, message=message, data=passed),
        events.event(
            "message.accepted",
            now,
            pair=pair,
            message=onward,
            data=accepted,
            traceparent=traces.root(message.pk),
        ),
    ]
    return Forwarded(onward, rows, identity, written, attempts)
