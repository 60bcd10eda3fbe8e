"""Lists of messages: which a search means, one page of them, and about how many there are.

Ids are UUIDv7: they are in the order of time, so that a time is a bound on ids and thereby on their index. What no
index serves is looked through by id, and no further than a request may take.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import reduce
from operator import or_

from django.db.models import F, Q, QuerySet, Sum

from messaging import keyset
from messaging.choices import Direction, MessageState
from messaging.keyset import Page, Place, floor_id, id_time
from messaging.messages.selectors.messages import bounded, named, of_document, with_attribute, with_names
from messaging.models import Message, Pair, TrafficHour
from messaging.pairs.selectors import pairs
from partners import visibility
from partners.addresses import normalise_uri
from partners.models import AgreementVersion
from rmhub import clock

ORDERS = {"-created_at": ("-id",), "created_at": ("id",)}  # of the list, by what the API calls them
# Above this many pairs, one scan in the order of the ids is cheaper than a probe for each pair.
_MAX_PROBES = 64
# Up to so many messages with an attribute are found by its index and put in order; of more, a page of fifty lies within
# as many rows from the end of ten millions.
_MOST_VALUED = 10_000
# States that the partial index `message_open` holds.
OPEN_STATES = frozenset(MessageState.values) - {MessageState.DELIVERED, MessageState.RECEIVED}
# What no index serves is looked for among so many messages a request; the next page goes on from there.
SCANNED = 30_000
# An id is made a moment before its row's created_at is set, and the row waits for its pair's lock in between; and the
# clocks of two machines differ a little.
_BEFORE, _AFTER = timedelta(hours=1), timedelta(minutes=10)
MISFIT = "misfit"
_HOUR = timedelta(hours=1)
_COUNTED = timedelta(days=14)  # as long as `overview.services.traffic_hours` keeps its rows


@dataclass(frozen=True, slots=True)
class MessageFilters:
    """What a list of messages is narrowed to; what is empty does not narrow.

    `conversation`, `document` and `ref` are exact ids; `attributes`: names with whole values; `q` is any exact id
    (`msg_...`, MessageId, document id, ConversationId) or the value of an attribute, else the beginning of a
    MessageId. `_gt` and `_lt` leave out the value itself; sizes are bytes.
    `cause` is a cause's code; `schema` the name of a schema that documents do not fit, or `MISFIT` for any.
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
    attributes: tuple[tuple[str, str], ...] = ()
    ref: str = ""
    created_gte: datetime | None = None
    created_lt: datetime | None = None
    size_gt: int | None = None
    size_lt: int | None = None
    attempts_gt: int | None = None
    attempts_lt: int | None = None
    cause: str = ""
    schema: str = ""
    q: str = ""

    @property
    def backwards(self) -> bool:
        """Whether its range of times ends before it begins."""
        begin, end = self.created_gte, self.created_lt
        return begin is not None and end is not None and end <= begin

    @property
    def by_id(self) -> bool:
        """Whether it names messages by what has an index of its own, so that no time is needed."""
        return bool(self.q or self.conversation or self.document or self.ref or self.attributes or self.schema)

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

    A page may be short and yet have a following one: for what no index serves, `SCANNED` messages are
    looked through at a time. Raises TooBroad when the database needs longer than `SECONDS`, or when too many ids begin
    alike.
    """
    order = ("id",) if oldest_first else ("-id",)
    with bounded():
        narrowed = _narrowed(filters)
        backwards = place is not None and place.backwards
        newest_first = oldest_first == backwards
        queryset, end = narrowed.queryset, None
        if filters.unindexed:
            end = _end(_range(filters), narrowed.scanned, newest_first=newest_first, place=place)
        if end is not None:
            queryset = queryset.filter(**{"id__gte" if newest_first else "id__lte": end})
        if narrowed.probes is not None:
            queryset = _probed(queryset, narrowed.probes, newest_first=newest_first, limit=limit, place=place)
        found = keyset.page(with_names(queryset), order=order, limit=limit, place=place)
    return found if end is None else _going_on(found, Place((end,), backwards), came_from=place)


def planned(filters: MessageFilters) -> int:
    """About how many messages there are, by the statistics that the database plans with; nothing is counted."""
    with bounded():
        return keyset.estimate(_narrowed(filters).whole)


def matching(filters: MessageFilters) -> QuerySet[Message]:
    """All messages of a search, in no order: for jobs, which read them in an order of their own."""
    return _narrowed(filters).whole


def looked_back_to(page: Page[Message], limit: int) -> datetime | None:
    """Until when a page that is short was looked for; None for one that is full, or the last."""
    if page.following is None or len(page.rows) >= limit:
        return None
    return id_time(page.following.values[0])


def estimate(filters: MessageFilters) -> int:
    """About how many; nothing is counted one by one.

    By the hourly counters where they know it: they count every event, and are what the dashboard says. Else by the
    database's statistics: a sample that may be hours old, and wrong by a factor where traffic has changed since.
    """
    return _counted(filters, clock.now()) or planned(filters)


def _counted(filters: MessageFilters, now: datetime) -> int:
    """By the counters; 0 when they do not know: another filter than time, pair, partner and direction, or long ago."""
    begin = filters.created_gte
    known = ("pair_id", "partner_id", "partner_ids", "direction", "created_gte", "created_lt")
    if begin is None or begin < now - _COUNTED:
        return 0
    if MessageFilters(**{name: getattr(filters, name) for name in known}) != filters:
        return 0
    end = min(filters.created_lt or now, now)
    rows = visibility.limit(TrafficHour.objects.filter(hour__gt=begin - _HOUR, hour__lt=end), "pair__partner")
    if filters.pair_id is not None:
        rows = rows.filter(pair=filters.pair_id)
    if filters.partner_id is not None:
        rows = rows.filter(pair__partner=filters.partner_id)
    if filters.partner_ids:
        rows = rows.filter(pair__partner__in=filters.partner_ids)
    which = {Direction.OUT.value: F("accepted"), Direction.IN.value: F("received")}
    number = Sum(which.get(filters.direction, F("accepted") + F("received")))
    sums = rows.values_list("hour").annotate(number=number).order_by()
    total: float = sum(count * _share(hour, begin, end, now) for hour, count in sums)
    return round(total)


def _share(hour: datetime, begin: datetime, end: datetime, now: datetime) -> float:
    """How much of what an hour counted lies in the range, if it came evenly."""
    whole = (min(hour + _HOUR, now) - hour).total_seconds()
    part = (min(hour + _HOUR, end) - max(hour, begin)).total_seconds()
    return max(0.0, min(1.0, part / whole)) if whole > 0 else 0.0


def _narrowed(filters: MessageFilters) -> _Narrowed:
    exact = {
        "direction": filters.direction,
        "service": filters.service,
        "action": filters.action,
        "conversation_id": filters.conversation,
        "ref_to_message_id": filters.ref,
        "created_at__gte": filters.created_gte,
        "created_at__lt": filters.created_lt,
        "size__gt": filters.size_gt,
        "size__lt": filters.size_lt,
        "attempts__gt": filters.attempts_gt,
        "attempts__lt": filters.attempts_lt,
        "cause": filters.cause,
    }
    given = {name: value for name, value in exact.items() if value not in ("", None)}
    found = Message.objects.filter(_range(filters), **given)
    if filters.document:
        found = found.filter(of_document(filters.document))
    for name, value in filters.attributes:
        having = with_attribute(name, value, most=_MOST_VALUED + 1)
        # Of many the newest are met early in the order of the ids.
        few = len(having) <= _MOST_VALUED
        found = found.filter(pk__in=having) if few else found.filter(attributes__contains={name: value})
    if filters.schema:
        found = found.filter(schema_faults__isnull=False)
        if filters.schema != MISFIT:
            found = found.filter(schema_faults__name=filters.schema)
    if filters.q:
        found = found.filter(named(filters.q))
    pair_ids, versions = _pairs(filters)
    if versions is not None:
        found = found.filter(agreement_version__in=versions)
    # What is delivered has no cause, so that the index of what is not serves it.
    states = filters.states or (tuple(sorted(OPEN_STATES)) if filters.cause else ())
    if pair_ids is None and len(states) > 1 and not filters.by_id and OPEN_STATES.issuperset(states):
        return _Narrowed(found, [Q(state=state) for state in states])
    if states:
        found = found.filter(state__in=states)
    if pair_ids is None:
        return _Narrowed(found)
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
        found &= Q(id__gte=_before(filters.created_gte))
    if filters.created_lt is not None:
        found &= Q(id__lt=_after(filters.created_lt))
    return found


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


def _common(chosen: list[uuid.UUID] | None, others: list[uuid.UUID]) -> list[uuid.UUID]:
    return others if chosen is None else [pair_id for pair_id in chosen if pair_id in set(others)]


def _pair_ids_of(versions: Sequence[AgreementVersion]) -> list[uuid.UUID]:
    """The pairs on which messages of these versions went, by the versions' URIs."""
    where = Q(pk__in=[])
    for version in versions:
        ours, theirs = normalise_uri(version.own_endpoint.uri), normalise_uri(version.partner_endpoint.uri)
        where |= Q(sender_uri=ours, receiver_uri=theirs) | Q(sender_uri=theirs, receiver_uri=ours)
    return list(Pair.objects.filter(where).order_by("id").values_list("id", flat=True))


def _before(at: datetime) -> uuid.UUID:
    """An id that is not greater than those of messages that were created at `at` or later."""
    return _floor(at, -_BEFORE)


def _after(at: datetime) -> uuid.UUID:
    """An id that is greater than those of messages that were created before `at`."""
    return _floor(at, _AFTER)


def _floor(at: datetime, slack: timedelta) -> uuid.UUID:
    try:
        return floor_id(at + slack)
    except OverflowError:
        return floor_id(at)


def _probed(
    queryset: QuerySet[Message], ranges: Sequence[Q], *, newest_first: bool, limit: int, place: Place | None
) -> QuerySet[Message]:
    """The first rows of each range from its own index; the page is among them.

    `pair_id IN (...) ORDER BY id LIMIT` has no such plan: PostgreSQL would walk all messages, or sort the pairs'.
    """
    direction = "-id" if newest_first else "id"
    if place is not None:
        queryset = queryset.filter(**{_beyond(newest_first): place.values[0]})
    probes = [queryset.filter(one).order_by(direction).values_list("id", flat=True)[: limit + 1] for one in ranges]
    ids = list(probes[0].union(*probes[1:], all=True).order_by(direction)[: limit + 1])
    return Message.objects.filter(pk__in=ids)


def _end(within: Q, ranges: Sequence[Q], *, newest_first: bool, place: Place | None) -> uuid.UUID | None:
    """The id up to which rows are looked through this time; None when that is all of them.

    Found in the index alone. Of several ranges each has its share, and the nearest end counts for all.
    """
    rows = Message.objects.filter(within)
    if place is not None:
        rows = rows.filter(**{_beyond(newest_first): place.values[0]})
    share = max(1, SCANNED // max(1, len(ranges)))
    ids = [rows.filter(one).order_by("-id" if newest_first else "id").values_list("id", flat=True) for one in ranges]
    # Skipping is bounded: at most SCANNED entries of an index.
    ends = [one[share : share + 1] for one in ids]
    found = list(ends[0].union(*ends[1:], all=True)) if len(ends) > 1 else [key for one in ends for key in one]
    if not found:
        return None
    return max(found) if newest_first else min(found)


def _going_on(found: Page[Message], ended: Place, *, came_from: Place | None) -> Page[Message]:
    """The page of a scan that ended early: its neighbour in the direction of the scan begins where the scan ended.

    A page without rows has the way back nevertheless: to the row from which the scan set out.
    """
    following, previous = found.following, found.previous
    if ended.backwards:
        if following is None and came_from is not None:
            following = Place((_next_to(came_from, 1),))
        return Page(found.rows, following, previous or ended)
    if previous is None and came_from is not None:
        previous = Place((_next_to(came_from, -1),), backwards=True)
    return Page(found.rows, following or ended, previous)


def _next_to(place: Place, by: int) -> uuid.UUID:
    key: uuid.UUID = place.values[0]
    return uuid.UUID(int=min(max(key.int + by, 0), (1 << 128) - 1))


def _beyond(newest_first: bool) -> str:
    return "id__lt" if newest_first else "id__gt"
