"""What one transaction writes of messages that came in, the same for every profile: rows, counts, events.

A profile decides about each message of a group and says here what follows; `insert`, `count_copies` and `finish` write
it, in one order of locks.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Self

from django.db.models import F

from messaging import dispatch, storage
from messaging.choices import Direction
from messaging.engine import attributes, schemas
from messaging.engine.continuing import Continuation
from messaging.engine.handover import Seat
from messaging.engine.pairs import PAIR_FIELDS
from messaging.engine.subscriptions import Documents
from messaging.entrance.refusals import SAMPLE
from messaging.journal import events, incidents
from messaging.models import (
    Delivery,
    Event,
    Message,
    MessageIdentity,
    Pair,
    Payload,
    Rejection,
    Signal,
    Transmission,
)
from messaging.models.bulk import bulk_insert, bulk_set, together
from messaging.protocol import selecting
from messaging.protocol.envelope import DocumentReference, ErrorInfo, PayloadPart, Sought
from messaging.routing.services import forwarding
from messaging.routing.services.routing import Road
from partners.terms import Principal, Terms


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """One message of an authenticated partner, decoded. `digest`: SHA-256 of its octets, hex. `road`: of one that is
    for somebody else. `traceparent`: as in `Arrival`.
    """

    body: bytes | storage.Large
    content_type: str
    principal: Principal
    digest: str
    road: Road | None = None
    remote_address: str = ""
    traceparent: str = ""


@dataclass(slots=True)
class Effects:
    """What one transaction will write. `pairs`: all that it touches, locked. `wake`: something is due to be sent."""

    now: datetime
    pairs: dict[uuid.UUID, Pair]
    onward: forwarding.Onward
    continuation: Continuation
    messages: list[Message] = field(default_factory=list)
    payloads: list[Payload] = field(default_factory=list)
    identities: list[MessageIdentity] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    signals: list[Signal] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
    attempts: list[Transmission] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    copies: dict[uuid.UUID, int] = field(default_factory=dict)
    wake: bool = False

    @classmethod
    def begin(
        cls,
        now: datetime,
        pair_ids: set[uuid.UUID],
        arriving: Sequence[tuple[Arrived, str]],
        seat: Seat | None = None,
    ) -> Self:
        """Locks the pairs, with those to which what is for somebody else goes on (`arriving`: with its MessageId).

        `seat`: the worker that what follows is claimed for.
        """
        leaving = [(item.road, message_id) for item, message_id in arriving if item.road is not None]
        pairs = Pair.locked(pair_ids | forwarding.pair_ids(leaving))
        return cls(now, pairs, forwarding.look_up(leaving, now), Continuation(seat, now))

    def store(self, message: Message, rows: list[Payload], pair: Pair) -> None:
        """A new message, at the end of its pair."""
        partner, service, action = pair.partner_id, message.service, message.action
        seen = [row for row in rows if row.size <= selecting.MAX_BYTES]

        def documents() -> Iterable[tuple[bytes, str]]:
            return ((storage.load(row.content, row.stored_as), row.content_type) for row in seen)

        message.attributes = attributes.of_documents(documents, partner_id=partner, service=service, action=action)
        misfit = schemas.misfit(
            documents,
            partner_id=partner,
            service=service,
            action=action,
            direction=Direction.IN,
            unseen=len(seen) < len(rows),
        )
        message.schema_faults = misfit.kept(Direction.IN) if misfit is not None else None
        pair.next_position += 1
        pair.done += 1
        pair.last_success_at = self.now
        self.messages.append(message)
        self.payloads += rows

    def blocked(self, road: Road, message_id: str, *, reliable: bool = True) -> ErrorInfo | None:
        """Why a new message for somebody else cannot go on; None when it can."""
        return forwarding.refusal(road, message_id, self.pairs, self.onward, self.now, reliable=reliable)

    def pass_on(self, message: Message, rows: list[Payload], road: Road, *, memory_lost: bool) -> None:
        """Queues what was stored for the next hop."""
        assert road.pair_id is not None
        made = forwarding.forward(message, rows, road, self.pairs[road.pair_id], self.now, memory_lost=memory_lost)
        made.message.attributes = message.attributes
        self.messages.append(made.message)
        self.attempts += made.attempts
        self.payloads += made.payloads
        if made.identity is not None:
            self.identities.append(made.identity)
            self.onward = self.onward.with_taken(road.onward.own_party_id, message.message_id)
        self.events += made.events
        self.wake = True

    def repeated(
        self, item: Arrived, pair: Pair, message_pk: uuid.UUID | None, message_id: str, data: dict[str, object]
    ) -> None:
        """A further copy, discarded. `message_pk`: of the first one, where that is known."""
        message = None
        if message_pk is not None:
            self.copies[message_pk] = self.copies.get(message_pk, 0) + 1
            message = Message(pk=message_pk, message_id=message_id)
        self.events.append(
            events.event(
                "message.duplicate", self.now, pair=pair, message=message, data=data, traceparent=item.traceparent
            )
        )

    def differs(self, pair: Pair, message_pk: uuid.UUID, message_id: str, cause: str) -> None:
        """A copy that is no copy: for people to look at."""
        detail = f"MessageId {message_id} came again with other content; the first was kept."
        self.incident(pair, cause, detail, message_pk)

    def reject(
        self,
        item: Arrived,
        terms: Terms,
        pair: Pair,
        message_id: str,
        *,
        reason: str,
        code: str,
        detail: str,
        status: int,
        **data: object,
    ) -> None:
        """Not stored as a message, and written down under this reason; `code` and `data` are for the event."""
        pair.rejected += 1
        self.rejections.append(
            Rejection(
                at=self.now,
                remote_address=item.remote_address[:64],
                party_name=item.principal.party_name,
                reason=reason[:60],
                detail=detail[:2000],
                http_status=status,
                tpa_id=terms.tpa_id,
                message_id=message_id[:512],
                content_type=item.content_type[:255],
                size=len(item.body),
                sha256=item.digest,
                sample=item.body[:SAMPLE],
            )
        )
        said = {"message_id": message_id, "code": code, "detail": detail, **data}
        self.events.append(events.event("message.rejected", self.now, pair=pair, data=said))

    def owe(self, signal: Signal, terms: Terms) -> None:
        """Something that we owe the sender: a new signal, which goes at once where it can."""
        self.signals.append(signal)
        if not self.continuation.signal(signal, terms):
            self.wake = True

    def incident(self, pair: Pair, cause: str, detail: str, message_pk: uuid.UUID | None = None) -> None:
        """Opens an incident of the pair."""
        _, opened = incidents.incident_open(pair=pair, cause=cause, now=self.now, detail=detail, message_pk=message_pk)
        self.events += opened

    def insert(self) -> None:
        """Inserts all new rows: first of what it writes."""
        with together():
            bulk_insert(self.messages)
            bulk_insert(self.identities)
            bulk_insert(self.payloads)
            bulk_insert(self.deliveries)
            bulk_insert(self.signals)
            bulk_insert(self.rejections)
            bulk_insert(self.attempts)

    def count_copies(self) -> None:
        """Counts further copies on the messages that they are copies of."""
        for message_pk, copies in self.copies.items():
            Message.objects.filter(pk=message_pk).update(copies=F("copies") + copies)

    def finish(self, inbound: Iterable[str], outbound: Iterable[str] = PAIR_FIELDS) -> None:
        """Writes these fields of the pairs, and the events: last of what it writes."""
        pairs = self.pairs.values()
        with together():
            bulk_set([pair for pair in pairs if pair.direction == Direction.IN], inbound)
            bulk_set([pair for pair in pairs if pair.direction == Direction.OUT], outbound)
            events.write(self.events)

    def wake_workers(self) -> None:
        """Call after the commit."""
        if self.wake:
            dispatch.wake(dispatch.SEND)
        if any(not delivery.attended for delivery in self.deliveries):
            dispatch.wake(dispatch.DELIVER)


def received_event(message: Message, terms: Terms, now: datetime, traceparent: str = "") -> Event:
    """`message.received`."""
    data: dict[str, object] = {"agreement": terms.tpa_id, "service": message.service, "action": message.action}
    data["size"] = message.size
    if found := attributes.shown(message.attributes):
        data["attributes"] = found
    if message.schema_faults:
        data["schema_faults"] = message.schema_faults
    return events.event(
        "message.received", now, pair=message.pair_id, message=message, data=data, traceparent=traceparent
    )


def documents_of(payloads: Sequence[PayloadPart]) -> Documents:
    """What they hold, for `subscriptions.deliveries_for`: of what is too large to be looked into only as much as shows
    that.
    """
    return lambda: ((part.content[: selecting.MAX_BYTES + 1], part.content_type) for part in payloads)


def keep_large(contents: Iterable[bytes | Sought]) -> None:
    """Has the store take what is not in memory, before a transaction holds the pair of the message. What is refused
    then is removed some time, as all that no row names. Raises StoreUnavailable.
    """
    for content in contents:
        if not isinstance(content, bytes):
            storage.keep(content)


def payload_rows(
    message: Message, payloads: Sequence[PayloadPart], manifest: Sequence[DocumentReference]
) -> list[Payload]:
    """Unsaved rows, numbered from 1. Large contents are in the store folder when this returns."""
    labels = {one.document_id.removeprefix("cid:"): one.label or one.description for one in manifest}
    rows: list[Payload] = []
    for number, part in enumerate(payloads, start=1):
        kept = storage.keep(part.content)
        rows.append(
            Payload(
                message=message,
                number=number,
                content_id=part.content_id,
                content_type=part.content_type[:255],
                filename=part.filename[:255],
                label=labels.get(part.content_id, "")[:120],
                size=kept.size,
                sha256=kept.sha256,
                content=kept.content,
                stored_as=kept.stored_as,
                in_frame=part.offset is None,
            )
        )
    return rows
