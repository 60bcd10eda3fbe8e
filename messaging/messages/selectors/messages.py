"""Messages and what belongs to them, as screens and API read them. Bytes are not loaded with lists."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce
from operator import or_

from django.db import OperationalError, connection, transaction
from django.db.models import Q, QuerySet

from messaging import keyset
from messaging.choices import DocumentIdSource, MessageState
from messaging.exceptions import ApplicationError, NotFound
from messaging.keyset import Page, Place, id_time
from messaging.messages.selectors import scan as message_scan
from messaging.models import Delivery, Message, Pair, Payload, Signal, Transmission
from messaging.pairs.selectors import pairs
from partners import visibility
from partners.addresses import normalise_uri
from partners.models import AgreementVersion
from rmhub.ids import BadPublicId, public_id, read_public_id

SECONDS = 3
# Above this many pairs, one scan in the order of the ids is cheaper than a probe for each pair.
_MAX_PROBES = 64
# Beginnings of ids are looked up in the order of the ids' text, so that the newest of them must all be read first.
MOST_ALIKE, SHORTEST_BEGINNING = 1000, 3
# States that the partial index `message_open` holds.
OPEN_STATES = frozenset(MessageState.values) - {MessageState.DELIVERED, MessageState.RECEIVED}


class TooBroad(ApplicationError):
    """A search took longer than `SECONDS`, or is about more than can be put in order."""

    code = "query_too_broad"


class AmbiguousId(ApplicationError):
    """Several messages have this MessageId (one that we sent and one that we received, or of two partners)."""

    code = "ambiguous_message_id"


@dataclass(frozen=True, slots=True)
class MessageFilters:
    """What a list of messages is narrowed to; what is empty does not narrow.

    `conversation`, `document` and `ref` are exact ids; `q` is any exact id (`msg_...`, MessageId, document id,
    ConversationId), else the beginning of a MessageId. `_gt` and `_lt` leave out the value itself; sizes are bytes.
    `cause` is a cause's code.
    """

    states: tuple[str, ...] = ()
    direction: str = ""
    pair_id: uuid.UUID | None = None
    partner_id: uuid.UUID | None = None
    partner_ids: tuple[uuid.UUID, ...] = ()
    agreement_id: uuid.UUID | None = None
    service: str = ""
    action: str = ""
    conversation: str = ""
    document: str = ""
    ref: str = ""
    created_gte: datetime | None = None
    created_lt: datetime | None = None
    size_gt: int | None = None
    size_lt: int | None = None
    attempts_gt: int | None = None
    attempts_lt: int | None = None
    cause: str = ""
    q: str = ""

    @property
    def backwards(self) -> bool:
        """Whether its range of times ends before it begins."""
        begin, end = self.created_gte, self.created_lt
        return begin is not None and end is not None and end <= begin

    @property
    def by_id(self) -> bool:
        """Whether it names messages by an id: these have indexes of their own, and no time is needed."""
        return bool(self.q or self.conversation or self.document or self.ref)

    @property
    def unindexed(self) -> bool:
        """Whether it asks for something that no index serves, so that rows must be looked through."""
        values = (self.size_gt, self.size_lt, self.attempts_gt, self.attempts_lt)
        closed = bool(self.states) and not OPEN_STATES.issuperset(self.states)
        texts = bool(self.direction or self.service or self.action or self.agreement_id)
        return not self.by_id and (texts or closed or any(value is not None for value in values))


@dataclass(frozen=True, slots=True)
class _Narrowed:
    """`probes`: the ranges of an index in which the rows lie; one for each pair, or for each state. None = one.

    `scanned`: the ranges that are looked through for what no index serves.
    """

    queryset: QuerySet[Message]
    probes: list[Q] | None = field(default=None)
    scanned: list[Q] = field(default_factory=lambda: [Q()])

    @property
    def whole(self) -> QuerySet[Message]:
        """All of it as one queryset."""
        if self.probes is None:
            return self.queryset
        return self.queryset.filter(reduce(or_, self.probes)) if self.probes else self.queryset.none()


def message_page(
    filters: MessageFilters, *, oldest_first: bool = False, limit: int = 50, place: Place | None = None
) -> Page[Message]:
    """One page of messages, newest first, with pair, partner and agreement.

    A page may be short and yet have a following one: for what no index serves, `message_scan.SCANNED` messages are
    looked through at a time. Raises TooBroad when the database needs longer than `SECONDS`, or when too many ids begin
    alike.
    """
    order = ("id",) if oldest_first else ("-id",)
    with bounded():
        narrowed = _narrowed(filters)
        backwards = place is not None and place.backwards
        newest_first = oldest_first == backwards
        queryset, bound = narrowed.queryset, None
        if filters.unindexed:
            bound = message_scan.end(_range(filters), narrowed.scanned, newest_first=newest_first, place=place)
        if bound is not None:
            queryset = queryset.filter(**{"id__gte" if newest_first else "id__lte": bound})
        if narrowed.probes is not None:
            queryset = message_scan.probed(
                queryset, narrowed.probes, newest_first=newest_first, limit=limit, place=place
            )
        found = keyset.page(with_names(queryset), order=order, limit=limit, place=place)
    if bound is None:
        return found
    return message_scan.going_on(found, Place((bound,), backwards), came_from=place)


def estimate(filters: MessageFilters) -> int:
    """About how many messages there are, by the statistics that the database plans with; nothing is counted."""
    with bounded():
        plan = _narrowed(filters).whole.order_by().values("id").explain(format="json")
    # Without a plan there is nothing to look for: no pair, or no id that begins so.
    rows: int = json.loads(plan)[0]["Plan"]["Plan Rows"] if plan else 0
    return rows


def matching(filters: MessageFilters) -> QuerySet[Message]:
    """All messages of a search, in no order: for jobs, which read them in an order of their own."""
    return _narrowed(filters).whole


def looked_back_to(page: Page[Message], limit: int) -> datetime | None:
    """Until when a page that is short was looked for; None for one that is full, or the last."""
    if page.following is None or len(page.rows) >= limit:
        return None
    return id_time(page.following.values[0])


def message(message_id: uuid.UUID) -> Message:
    """One message with pair, parties and agreement. Raises NotFound."""
    found = with_names(shown().filter(pk=message_id)).first()
    if found is None:
        raise NotFound(f"There is no message {public_id('msg', message_id)}.")
    return found


def shown() -> QuerySet[Message]:
    """The messages that the present request may show."""
    return visibility.limit(Message.objects.all(), "pair__partner")


def in_store(message_id: uuid.UUID | None) -> Message | None:
    """The same for what names a message that may have left the store; None when it has."""
    return with_names(shown().filter(pk=message_id)).first() if message_id else None


def message_by_reference(reference: str) -> Message:
    """One message by its id (`msg_...`) or its MessageId. Raises NotFound, AmbiguousId."""
    try:
        return message(read_public_id("msg", reference))
    except BadPublicId:
        pass
    wanted = shown().filter(message_id=reference) if "\x00" not in reference else Message.objects.none()
    found = list(with_names(wanted).order_by("-id")[:2])
    if not found:
        raise NotFound(f"There is no message {reference}.")
    if len(found) > 1:
        raise AmbiguousId(
            f"More than one message has the MessageId {reference}: look for it with q={reference} "
            "in the list of messages, and use the id of the one that you mean."
        )
    return found[0]


def has_id(text: str) -> bool:
    """Whether a message has this id, or a MessageId that begins so: what `MessageFilters.q` would find."""
    try:
        with bounded():
            return shown().filter(_named(text)).exists()
    except TooBroad:
        return True  # too many have it


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
    found = visibility.limit(Transmission.objects.filter(pk=transmission_id), "pair__partner").first()
    if found is None:
        raise NotFound(f"There is no transmission {public_id('att', transmission_id)}.")
    return found


def signals(message_id: uuid.UUID) -> QuerySet[Signal]:
    """Acknowledgements and error messages about a message, oldest first, without their octets."""
    return Signal.objects.filter(about=message_id).defer("body").order_by("id")


def signal(signal_id: uuid.UUID) -> Signal:
    """One acknowledgement or error message with its octets. Raises NotFound."""
    found = visibility.limit(Signal.objects.filter(pk=signal_id), "pair__partner").first()
    if found is None:
        raise NotFound(f"There is no signal {public_id('sig', signal_id)}.")
    return found


def _narrowed(filters: MessageFilters) -> _Narrowed:
    found = Message.objects.all()
    if filters.direction:
        found = found.filter(direction=filters.direction)
    for name in ("service", "action"):
        if text := getattr(filters, name):
            found = found.filter(**{name: text})
    if filters.conversation:
        found = found.filter(conversation_id=filters.conversation)
    if filters.document:
        found = found.filter(of_document(filters.document))
    if filters.ref:
        found = found.filter(ref_to_message_id=filters.ref)
    found = found.filter(_range(filters))
    if filters.created_gte is not None:
        found = found.filter(created_at__gte=filters.created_gte)
    if filters.created_lt is not None:
        found = found.filter(created_at__lt=filters.created_lt)
    for name in ("size", "attempts"):
        for bound in ("gt", "lt"):
            if (number := getattr(filters, f"{name}_{bound}")) is not None:
                found = found.filter(**{f"{name}__{bound}": number})
    if filters.cause:
        found = found.filter(cause=filters.cause)
    if filters.q:
        found = found.filter(_named(filters.q))
    pair_ids, versions = _pairs(filters)
    if versions is not None:
        found = found.filter(agreement_version__in=versions)
    # What is delivered has no cause, so that the index of what is not serves it.
    states = filters.states or (tuple(sorted(OPEN_STATES)) if filters.cause else ())
    if pair_ids is None:
        return _by_states(found, states, filters)
    if states:
        found = found.filter(state__in=states)
    ranges = [Q(pair=pair_id) for pair_id in pair_ids]
    if len(pair_ids) == 1:
        return _Narrowed(found.filter(ranges[0]), scanned=ranges)
    if not pair_ids:
        return _Narrowed(found.none(), scanned=[])
    if len(pair_ids) > _MAX_PROBES or filters.by_id:
        return _Narrowed(found.filter(pair__in=pair_ids))
    return _Narrowed(found, ranges, ranges)


def _range(filters: MessageFilters) -> Q:
    """The ids between which the messages of the time lie."""
    found = Q()
    if filters.created_gte is not None:
        found &= Q(id__gte=message_scan.before(filters.created_gte))
    if filters.created_lt is not None:
        found &= Q(id__lt=message_scan.after(filters.created_lt))
    return found


def _by_states(found: QuerySet[Message], states: Sequence[str], filters: MessageFilters) -> _Narrowed:
    if len(states) > 1 and not filters.by_id and OPEN_STATES.issuperset(states):
        return _Narrowed(found, [Q(state=state) for state in states])
    return _Narrowed(found.filter(state__in=states) if states else found)


def _pairs(filters: MessageFilters) -> tuple[list[uuid.UUID] | None, list[uuid.UUID] | None]:
    """(the pairs that the search is limited to, the agreement's versions); None = to none."""
    pair_ids: list[uuid.UUID] | None = None
    versions: list[uuid.UUID] | None = None
    if filters.pair_id is not None:
        pair_ids = [filters.pair_id]
    wanted = [*filters.partner_ids, *([filters.partner_id] if filters.partner_id else [])]
    if wanted:
        pair_ids = _common(pair_ids, pairs.pair_ids_of_partners(wanted))
    if filters.agreement_id is not None:
        rows = list(
            AgreementVersion.objects.filter(agreement=filters.agreement_id).select_related(
                "own_endpoint", "partner_endpoint"
            )
        )
        versions = [version.pk for version in rows]
        pair_ids = _common(pair_ids, _pair_ids_of(rows))
    allowed = visibility.visible()
    if allowed is not None:
        pair_ids = _common(pair_ids, pairs.pair_ids_of_partners(allowed))
    return pair_ids, versions


def of_document(document_id: str) -> Q:
    """Messages that bring the document with this id: by what their senders said, or by what it says itself."""
    inside = Delivery.objects.filter(document_id=document_id, document_id_from=DocumentIdSource.DOCUMENT)
    brought = list(inside.order_by("-id").values_list("message", flat=True)[:MOST_ALIKE])
    # The condition of its index is said in full, so that every plan can use it.
    said = Q(document_id=document_id) & ~Q(document_id="")
    return said | Q(message_id=document_id, document_id="") | Q(pk__in=brought)


def _named(text: str) -> Q:
    """Messages with exactly this id; when there are none, those whose MessageId begins so. Raises TooBroad."""
    exact = of_document(text) | Q(conversation_id=text)
    with suppress(BadPublicId):
        exact |= Q(pk=read_public_id("msg", text))
    if len(text) < SHORTEST_BEGINNING or Message.objects.filter(exact).exists():
        return exact
    alike = list(Message.objects.filter(message_id__startswith=text).values_list("id", flat=True)[: MOST_ALIKE + 1])
    if len(alike) > MOST_ALIKE:
        raise TooBroad(f"More than {MOST_ALIKE:,} MessageIds begin with {text}: give more of the id.")
    return Q(pk__in=alike)


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
            # Planned for these values each time: a plan for any value cannot use the indexes of some states only.
            cursor.execute(
                "SELECT set_config('statement_timeout', %s, true),"
                " set_config('plan_cache_mode', 'force_custom_plan', true)",
                [str(SECONDS * 1000)],
            )
            yield
    except OperationalError as error:
        if "statement timeout" not in str(error):
            raise
        raise TooBroad(
            f"This search took longer than {SECONDS} s and was stopped: narrow it by date or partner "
            "(created_gte, created_lt, partner, pair), or search for an exact id with q."
        ) from error
