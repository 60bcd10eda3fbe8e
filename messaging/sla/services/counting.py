"""Counts which documents were due and which were in time, in the batch that counts traffic: nothing is done for a
message while it moves.

A document is counted by the time at which its limit ends: once as due, once more if it was done by then. So nothing has
to look for what is late: what is due and not met is missed as soon as that time is past.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from django.db import connection
from django.db.models import Q

from messaging.choices import DeliveryState, Direction, JoinType, SlaTarget
from messaging.models import Delivery, Event, Message, SlaSpan
from partners.choices import Profile, Semantics
from partners.models import AgreementVersion
from rmhub.ids import BadPublicId, read_public_id

SPAN = timedelta(minutes=5)
KEEP = timedelta(days=2)  # of spans that are past: the longest window of a burn rate, and a night to look at it
PROCESSED_IN = (DeliveryState.COMPLETED.value, DeliveryState.DUPLICATE.value)
_ENDED = ("delivery.completed", "delivery.duplicate")
_TOLD = frozenset({"message.accepted", "message.received", "message.delivered", "message.cancelled", *_ENDED})
_HAS_TARGET = Q(acknowledged_within__gt=0) | Q(processed_within__gt=0)
_SPANS = """
INSERT INTO messaging_slaspan AS t (agreement_id, target, at, due, met, withdrawn)
SELECT * FROM unnest(%s::uuid[], %s::text[], %s::timestamptz[], %s::int[], %s::int[], %s::int[])
ON CONFLICT (agreement_id, target, at) DO UPDATE SET
    due = t.due + excluded.due, met = t.met + excluded.met, withdrawn = t.withdrawn + excluded.withdrawn
"""
_MONTHS = """
INSERT INTO messaging_slamonth AS t (agreement_id, target, month, due, met, withdrawn, version_number, percent)
SELECT * FROM unnest(%s::uuid[], %s::text[], %s::date[], %s::int[], %s::int[], %s::int[], %s::int[], %s::float8[])
ON CONFLICT (agreement_id, target, month) DO UPDATE SET
    due = t.due + excluded.due, met = t.met + excluded.met, withdrawn = t.withdrawn + excluded.withdrawn,
    version_number = greatest(t.version_number, excluded.version_number),
    percent = CASE WHEN excluded.version_number >= t.version_number THEN excluded.percent ELSE t.percent END
"""


@dataclass(frozen=True, slots=True)
class Promise:
    """What one document was promised: by the agreement's version that it went under. `until`: the end of its limit."""

    agreement_id: uuid.UUID
    target: str
    until: datetime
    version_number: int
    percent: float


@dataclass(frozen=True, slots=True)
class _Document:
    direction: str
    promise: Promise


@dataclass(slots=True)
class _Sum:
    due: int = 0
    met: int = 0
    withdrawn: int = 0


def span_of(at: datetime) -> datetime:
    """Return the beginning of its five minutes, UTC. Months begin with such a span."""
    at = at.astimezone(UTC)
    return at.replace(minute=at.minute - at.minute % 5, second=0, microsecond=0)


def month_of(at: datetime) -> date:
    """Return the first day of its calendar month, UTC."""
    return at.astimezone(UTC).date().replace(day=1)


def count(events: Sequence[Event]) -> None:
    """Count what these events say of promises, each once. Call in the transaction that moves the place in the feed."""
    told = [event for event in events if event.type in _TOLD and event.message_id is not None]
    if not told or not AgreementVersion.objects.filter(_HAS_TARGET).exists():
        return
    documents = _documents({event.message_id for event in told})
    if not documents:
        return
    arrived = {key for key, one in documents.items() if one.direction == Direction.IN}
    deliveries = _deliveries(arrived)
    sums: dict[tuple[uuid.UUID, str, datetime], _Sum] = {}
    shares: dict[tuple[uuid.UUID, str, date], tuple[int, float]] = {}
    for event in told:
        document = documents.get(event.message_id)
        name = _counted(event, document, deliveries.get(event.message_id, ())) if document is not None else ""
        if document is None or not name:
            continue
        promise = document.promise
        total = sums.setdefault((promise.agreement_id, promise.target, span_of(promise.until)), _Sum())
        setattr(total, name, getattr(total, name) + 1)
        place = (promise.agreement_id, promise.target, month_of(promise.until))
        shares[place] = max(shares.get(place, (0, 0.0)), (promise.version_number, promise.percent))
    if sums:
        _write(sums, shares)


def forget(now: datetime) -> None:
    """Drop the spans that no window reaches any more; months stay."""
    SlaSpan.objects.filter(at__lt=now - KEEP).delete()


_Delivered = tuple[uuid.UUID, str, datetime | None]  # id, state, completed_at


def _counted(event: Event, document: _Document, deliveries: Sequence[_Delivered]) -> str:
    """The count that the event adds one to; "" for none."""
    inbound = document.direction == Direction.IN
    if event.type == "message.accepted":
        return "" if inbound else "due"
    if event.type == "message.received":
        return "due" if inbound and deliveries else ""  # what goes to no application is nobody's to process
    if event.type in _ENDED:
        at = _processed_at(event, deliveries) if inbound else None
        return "met" if at is not None and at <= document.promise.until else ""
    if inbound or event.at > document.promise.until:
        return ""
    return "met" if event.type == "message.delivered" else "withdrawn"


def _processed_at(event: Event, deliveries: Sequence[_Delivered]) -> datetime | None:
    """When the document was processed, if this is the end of the last of its deliveries, so that it is counted once."""
    if not deliveries or any(state not in PROCESSED_IN or at is None for _, state, at in deliveries):
        return None
    at, key = max((at, key) for key, _, at in deliveries if at is not None)
    try:
        return at if read_public_id("del", str(event.data.get("delivery", ""))) == key else None
    except BadPublicId:
        return None


def _documents(keys: Iterable[uuid.UUID | None]) -> dict[uuid.UUID | None, _Document]:
    """Those of these messages that were promised something."""
    rows = list(
        Message.objects.filter(pk__in=[key for key in keys if key is not None]).values_list(
            "pk", "direction", "semantics", "agreement_version_id", "created_at"
        )
    )
    known = AgreementVersion.objects.filter(_HAS_TARGET, pk__in={row[3] for row in rows})
    versions = {version.pk: version for version in known}
    found: dict[uuid.UUID | None, _Document] = {}
    for key, direction, semantics, version_id, created_at in rows:
        version = versions.get(version_id)
        target = target_of(version, direction, semantics) if version is not None else None
        if version is not None and target is not None:
            until = created_at + timedelta(seconds=getattr(version, f"{target}_within"))
            share = getattr(version, f"{target}_percent")
            found[key] = _Document(direction, Promise(version.agreement_id, target, until, version.number, share))
    return found


def target_of(version: AgreementVersion, direction: str, semantics: str) -> SlaTarget | None:
    """Return the target that holds for a message under this version, None without one."""
    if direction == Direction.IN:
        target = SlaTarget.PROCESSED
    elif semantics != Semantics.ONCE_AND_ONLY_ONCE:
        return None  # nobody acknowledges it
    elif version.profile == Profile.STREAM and version.final_receipt:
        target = SlaTarget.PROCESSED
    else:
        target = SlaTarget.ACKNOWLEDGED
    return target if getattr(version, f"{target}_within") else None


def _deliveries(keys: Iterable[uuid.UUID | None]) -> dict[uuid.UUID | None, list[_Delivered]]:
    """The deliveries that a document got when it came. One that a person made anew counts as little as a join, which
    waits for other documents.
    """
    found: dict[uuid.UUID | None, list[_Delivered]] = {}
    rows = Delivery.objects.filter(
        message__in=list(keys), resubmission_of=None, join=None, trigger__join_type=JoinType.NONE
    )
    for message_id, key, state, at in rows.values_list("message_id", "pk", "state", "completed_at"):
        found.setdefault(message_id, []).append((key, state, at))
    return found


def _write(
    sums: Mapping[tuple[uuid.UUID, str, datetime], _Sum],
    shares: Mapping[tuple[uuid.UUID, str, date], tuple[int, float]],
) -> None:
    months: dict[tuple[uuid.UUID, str, date], Counter[str]] = {}
    for (agreement_id, target, at), total in sums.items():
        counts = Counter(due=total.due, met=total.met, withdrawn=total.withdrawn)
        months.setdefault((agreement_id, target, month_of(at)), Counter()).update(counts)
    # In one order, so that two writers never wait for each other.
    spans, keys = sorted(sums), sorted(months)
    with connection.cursor() as sql:
        totals = [[getattr(sums[key], name) for key in spans] for name in ("due", "met", "withdrawn")]
        sql.execute(_SPANS, [*map(list, zip(*spans, strict=True)), *totals])
        totals = [[months[key][name] for key in keys] for name in ("due", "met", "withdrawn")]
        newest = [[shares[key][part] for key in keys] for part in (0, 1)]
        sql.execute(_MONTHS, [*map(list, zip(*keys, strict=True)), *totals, *newest])
