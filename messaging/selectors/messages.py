"""Messages and what belongs to them, as screens and API read them. Bytes are not loaded with lists."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db import OperationalError, connection, transaction
from django.db.models import Q, QuerySet

from messaging.exceptions import ApplicationError, NotFound
from messaging.models import Message, Pair, Payload, Signal, Transmission
from messaging.selectors import keyset, pairs
from messaging.selectors.keyset import Page, Place, floor_id
from partners.addresses import normalise_uri
from partners.models import AgreementVersion
from rmhub.ids import BadPublicId, public_id, read_public_id

SECONDS = 5
# An id is made a moment before its row's created_at is set, and the row waits for its pair's lock in between.
_ID_SLACK = timedelta(days=1)
# Above this many pairs, one scan in the order of the ids is cheaper than a probe for each pair.
_MAX_PROBES = 32


class TooBroad(ApplicationError):
    """A search took longer than `SECONDS`: no index serves it."""

    code = "query_too_broad"


class AmbiguousId(ApplicationError):
    """Several messages have this MessageId (one that we sent and one that we received, or of two partners)."""

    code = "ambiguous_message_id"


@dataclass(frozen=True, slots=True)
class MessageFilters:
    """What a list of messages is narrowed to; what is empty does not narrow.

    `conversation` and `ref` are exact ids; `q` is any exact id: `msg_...`, MessageId, ConversationId.
    """

    states: tuple[str, ...] = ()
    direction: str = ""
    pair_id: uuid.UUID | None = None
    partner_id: uuid.UUID | None = None
    agreement_id: uuid.UUID | None = None
    service: str = ""
    action: str = ""
    conversation: str = ""
    ref: str = ""
    created_gte: datetime | None = None
    created_lt: datetime | None = None
    q: str = ""


@dataclass(frozen=True, slots=True)
class _Narrowed:
    queryset: QuerySet[Message]
    pair_ids: list[uuid.UUID] | None = field(default=None)


def message_page(
    filters: MessageFilters, *, oldest_first: bool = False, limit: int = 50, place: Place | None = None
) -> Page[Message]:
    """One page of messages, newest first, with pair, partner and agreement.

    Raises TooBroad when the database needs longer than `SECONDS` for it.
    """
    order = ("id",) if oldest_first else ("-id",)
    narrowed = _narrowed(filters)
    queryset = narrowed.queryset
    with bounded():
        if narrowed.pair_ids is not None:
            backwards = place is not None and place.backwards
            queryset = _probed(
                queryset, narrowed.pair_ids, newest_first=oldest_first == backwards, limit=limit, place=place
            )
        return keyset.page(with_names(queryset), order=order, limit=limit, place=place)


def message(message_id: uuid.UUID) -> Message:
    """One message with pair, parties and agreement. Raises NotFound."""
    found = with_names(Message.objects.filter(pk=message_id)).first()
    if found is None:
        raise NotFound(f"There is no message {public_id('msg', message_id)}.")
    return found


def in_store(message_id: uuid.UUID | None) -> Message | None:
    """The same for what names a message that may have left the store; None when it has."""
    return with_names(Message.objects.filter(pk=message_id)).first() if message_id else None


def message_by_reference(reference: str) -> Message:
    """One message by its id (`msg_...`) or its MessageId. Raises NotFound, AmbiguousId."""
    try:
        return message(read_public_id("msg", reference))
    except BadPublicId:
        pass
    wanted = Message.objects.filter(message_id=reference) if "\x00" not in reference else Message.objects.none()
    found = list(with_names(wanted).order_by("-id")[:2])
    if not found:
        raise NotFound(f"There is no message {reference}.")
    if len(found) > 1:
        raise AmbiguousId(
            f"More than one message has the MessageId {reference}: look for it with q={reference} "
            "in the list of messages, and use the id of the one that you mean."
        )
    return found[0]


def with_names(queryset: QuerySet[Message]) -> QuerySet[Message]:
    """The same messages with what a row shows: pair, partner, agreement; without their bytes."""
    return queryset.select_related("pair__partner", "agreement_version__agreement").defer("wire_frame")


def payloads(message_id: uuid.UUID) -> QuerySet[Payload]:
    """A message's payloads in their order, without their bytes."""
    return Payload.objects.filter(message=message_id).defer("content").order_by("number")


def transmissions(message_id: uuid.UUID) -> QuerySet[Transmission]:
    """A message's attempts, oldest first, without the answers' bytes."""
    return Transmission.objects.filter(message=message_id).defer("response").order_by("id")


def transmission(transmission_id: uuid.UUID) -> Transmission:
    """One attempt with the head and body of its answer. Raises NotFound."""
    found = Transmission.objects.filter(pk=transmission_id).first()
    if found is None:
        raise NotFound(f"There is no transmission {public_id('att', transmission_id)}.")
    return found


def signals(message_id: uuid.UUID) -> QuerySet[Signal]:
    """Acknowledgements and error messages about a message, oldest first, without their octets."""
    return Signal.objects.filter(about=message_id).defer("body").order_by("id")


def signal(signal_id: uuid.UUID) -> Signal:
    """One acknowledgement or error message with its octets. Raises NotFound."""
    found = Signal.objects.filter(pk=signal_id).first()
    if found is None:
        raise NotFound(f"There is no signal {public_id('sig', signal_id)}.")
    return found


def _narrowed(filters: MessageFilters) -> _Narrowed:
    found = Message.objects.all()
    if filters.states:
        found = found.filter(state__in=filters.states)
    if filters.direction:
        found = found.filter(direction=filters.direction)
    if filters.service:
        found = found.filter(service=filters.service)
    if filters.action:
        found = found.filter(action=filters.action)
    if filters.conversation:
        found = found.filter(conversation_id=filters.conversation)
    if filters.ref:
        found = found.filter(ref_to_message_id=filters.ref)
    if filters.created_gte is not None:
        found = found.filter(created_at__gte=filters.created_gte, id__gte=_floor(filters.created_gte, -_ID_SLACK))
    if filters.created_lt is not None:
        found = found.filter(created_at__lt=filters.created_lt, id__lt=_floor(filters.created_lt, _ID_SLACK))
    if filters.q:
        found = found.filter(_exact(filters.q))
    pair_ids: list[uuid.UUID] | None = None
    if filters.pair_id is not None:
        pair_ids = [filters.pair_id]
    if filters.partner_id is not None:
        pair_ids = _common(pair_ids, pairs.pair_ids_of_partner(filters.partner_id))
    if filters.agreement_id is not None:
        versions = list(
            AgreementVersion.objects.filter(agreement=filters.agreement_id).select_related(
                "own_endpoint", "partner_endpoint"
            )
        )
        found = found.filter(agreement_version__in=[version.pk for version in versions])
        pair_ids = _common(pair_ids, _pair_ids_of(versions))
    if pair_ids is None or len(pair_ids) == 1:
        return _Narrowed(found.filter(pair=pair_ids[0]) if pair_ids else found)
    if not pair_ids:
        return _Narrowed(found.none())
    if len(pair_ids) > _MAX_PROBES:
        return _Narrowed(found.filter(pair__in=pair_ids))
    return _Narrowed(found, pair_ids)


def _probed(
    queryset: QuerySet[Message], pair_ids: Sequence[uuid.UUID], *, newest_first: bool, limit: int, place: Place | None
) -> QuerySet[Message]:
    """The first rows of each pair from its own index; the page is among them.

    `pair_id IN (...) ORDER BY id LIMIT` has no such plan: PostgreSQL would walk all messages, or sort the pairs'.
    """
    direction = "-id" if newest_first else "id"
    if place is not None:
        queryset = queryset.filter(**{"id__lt" if newest_first else "id__gt": place.values[0]})
    probes = [
        queryset.filter(pair=pair_id).order_by(direction).values_list("id", flat=True)[: limit + 1]
        for pair_id in pair_ids
    ]
    ids = list(probes[0].union(*probes[1:], all=True).order_by(direction)[: limit + 1])
    return Message.objects.filter(pk__in=ids)


def _floor(at: datetime, slack: timedelta) -> uuid.UUID:
    try:
        return floor_id(at + slack)
    except OverflowError:
        return floor_id(at)


def _exact(text: str) -> Q:
    found = Q(message_id=text) | Q(conversation_id=text)
    try:
        return found | Q(pk=read_public_id("msg", text))
    except BadPublicId:
        return found


def _common(chosen: list[uuid.UUID] | None, others: list[uuid.UUID]) -> list[uuid.UUID]:
    return others if chosen is None else [pair_id for pair_id in chosen if pair_id in set(others)]


def _pair_ids_of(versions: Sequence[AgreementVersion]) -> list[uuid.UUID]:
    """The pairs on which messages of these versions went, by the versions' URIs."""
    where = Q(pk__in=[])
    for version in versions:
        ours, theirs = normalise_uri(version.own_endpoint.uri), normalise_uri(version.partner_endpoint.uri)
        where |= Q(sender_uri=ours, receiver_uri=theirs) | Q(sender_uri=theirs, receiver_uri=ours)
    return list(Pair.objects.filter(where).order_by("id").values_list("id", flat=True))


@contextmanager
def bounded() -> Iterator[None]:
    """Ends a search that no index serves, before it ends the patience of whoever waits for it."""
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT set_config('statement_timeout', %s, true)", [str(SECONDS * 1000)])
            yield
    except OperationalError as error:
        if "statement timeout" not in str(error):
            raise
        raise TooBroad(
            f"This search took longer than {SECONDS} s and was stopped: narrow it by pair, partner, "
            "created_gte and created_lt, or search for an exact id with q."
        ) from error
