"""Counts which documents were due and which were in time, in the batch that counts traffic: nothing is done for a
message while it moves.

A document is counted by the time at which its limit ends: once as due, once more if it was done by then. So nothing has
to look for what is late: what is due and not met is missed as soon as that time is past.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from django.db import connection
from django.db.models import Q

from messaging.choices import DeliveryState, Direction, JoinType, SlaTarget
from messaging.models import Delivery, Event, Message, SlaSpan
from partners.choices import Profile, Semantics
from partners.models import AgreementVersion
from rmhub.ids import public_id

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
    processings = _processings([key for key, one in documents.items() if one.direction == Direction.IN])
    sums: dict[tuple[uuid.UUID, str, datetime], _Sum] = {}
    shares: dict[tuple[uuid.UUID, str, date], tuple[int, float]] = {}
    for event in told:
        document = documents.get(event.message_id)
        name = _counted(event, document, processings.get(event.message_id)) if document is not None else ""
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


@dataclass(slots=True)
class _Processing:
    """The deliveries that a document got when it came. `last`: the event that ended the last of them, once all ended
    well; that event counts the document, so that it is counted once.
    """

    ended_at: list[datetime | None]
    last: tuple[int, int] = (0, 0)

    def done_at(self, event: Event) -> datetime | None:
        """When the document was processed, if this event says so."""
        ends = [at for at in self.ended_at if at is not None]
        return max(ends) if len(ends) == len(self.ended_at) and (event.xid, event.pk) == self.last else None


def _counted(event: Event, document: _Document, processing: _Processing | None) -> str:
    """The count that the event adds one to; "" for none."""
    inbound = document.direction == Direction.IN
    if event.type == "message.accepted":
        return "" if inbound else "due"
    if event.type == "message.received":
        return "due" if inbound and processing is not None else ""  # what goes to no application is nobody's to process
    if event.type in _ENDED:
        at = processing.done_at(event) if processing is not None else None
        return "met" if at is not None and at <= document.promise.until else ""
    if inbound or event.at > document.promise.until:
        return ""
    return "met" if event.type == "message.delivered" else "withdrawn"


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


def _processings(keys: Collection[uuid.UUID | None]) -> dict[uuid.UUID | None, _Processing]:
    """How far the documents are. A delivery that a person made anew counts as little as a join, which waits for other
    documents.
    """
    if not keys:
        return {}
    found: dict[uuid.UUID | None, _Processing] = {}
    of_document: set[str] = set()
    rows = Delivery.objects.filter(
        message__in=list(keys), resubmission_of=None, join=None, trigger__join_type=JoinType.NONE
    )
    for message_id, key, state, at in rows.values_list("message_id", "pk", "state", "completed_at"):
        found.setdefault(message_id, _Processing([])).ended_at.append(at if state in PROCESSED_IN else None)
        of_document.add(public_id("del", key))
    ended = Event.objects.filter(message__in=list(found), type__in=_ENDED)
    for message_id, xid, number, data in ended.values_list("message_id", "xid", "pk", "data"):
        if data.get("delivery") in of_document:
            found[message_id].last = max(found[message_id].last, (xid, number))
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
