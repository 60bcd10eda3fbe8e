"""What the live watch writes: counts by pair and minute, each event once, and the incidents of what is unusual.

Counts and the transaction number through which they go (`LiveState.through`) are written in one transaction, so what is
counted is known exactly, whatever dies when. The checkpoint of the streaming query says where to go on; one that is
lost, old or of another database is replaced by a new one that begins where the counts end.

`LiveState.applied_at` is the "data as of": all that was committed before is counted. Judging is apart from counting,
because a partner that is silent makes no events.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db import connection, transaction

from messaging import anomalies
from messaging.anomalies import Finding, Usual
from messaging.choices import Direction, IncidentState
from messaging.journal import events, incidents
from messaging.journal.audit import SYSTEM
from messaging.models import Event, Incident, LiveMinute, LiveState, Pair
from messaging.models.pipeline import last_contacts, pasts, window_of, windows
from messaging.protocol.pair_state import Flow, Gate
from rmhub import clock
from rmhub.ids import uuid7

KEEP = timedelta(days=14)
# What a person has resolved is not opened again for so long: it may take a while until the range is usual again.
QUIET = timedelta(hours=1)
# Nothing is judged by counts that are older: what is missing from them would look like silence.
STALE = timedelta(minutes=2)
USUAL_KEPT = timedelta(minutes=10)
_BACK_IN_RANGE = {
    anomalies.ACK_SLOW: "Acknowledgements take as long as usual again.",
    anomalies.FAILURE_RATE: "Failures are back at the usual level.",
    anomalies.PARTNER_SILENT: "The partner is heard again.",
}


class Superseded(Exception):
    """Another watch counts with another checkpoint: this one must end."""


class Gap(Exception):
    """The checkpoint is ahead of the counts (the database was restored to an earlier time): begin with a new one."""


class Minute(NamedTuple):
    """What happened on a pair within a minute; columns as in LiveMinute."""

    pair_id: uuid.UUID
    minute: datetime
    accepted: int = 0
    delivered: int = 0
    failed: int = 0
    retried: int = 0
    received: int = 0
    duplicates: int = 0
    rejected: int = 0
    suspensions: int = 0
    acks: int = 0
    ack_seconds: float = 0.0
    ack_longest: float = 0.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where a watch begins: its row in LiveState, its checkpoint, and the transaction number of a new checkpoint."""

    query: str
    epoch: uuid.UUID
    through: int


@dataclass(slots=True)
class Memory:
    """What a watch remembers between looks: since when it runs, and the pairs' pasts, which it reads now and then."""

    since: datetime | None = None  # silence counts from then on: while the hub was down nobody could be heard
    usual_at: datetime | None = None
    usual: dict[uuid.UUID, Usual] = field(default_factory=dict)


def begin(has_checkpoint: Callable[[uuid.UUID], bool]) -> Place:
    """Where to go on. Without its checkpoint a new one begins where the counts end.

    On a database that never counted (or came from another server, whose transaction numbers mean nothing here) the
    events of the days that are kept are counted anew.
    """
    query = _query()
    with transaction.atomic():
        state = LiveState.objects.select_for_update().filter(pk=query).first()
        if state is None:
            edge = clock.now() - KEEP
            LiveState.objects.filter(query__startswith="live ").delete()
            LiveMinute.objects.all().delete()
            state = LiveState(query=query, epoch=uuid7(), batch=-1, through=first_after(edge), applied_at=edge)
            state.save(force_insert=True)
        elif not has_checkpoint(state.epoch):
            state.epoch, state.batch = uuid7(), -1
            state.save(update_fields=["epoch", "batch"])
        return Place(query, state.epoch, state.through)


def renew(query: str, epoch: uuid.UUID) -> None:
    """Lets the next `begin` make a new checkpoint in place of this one."""
    LiveState.objects.filter(pk=query, epoch=epoch).update(epoch=uuid7(), batch=-1)


def counted_through(query: str, epoch: uuid.UUID) -> int:
    """Transactions below this number are counted. Raises Superseded."""
    found = LiveState.objects.filter(pk=query, epoch=epoch).values_list("through", flat=True).first()
    if found is None:
        raise Superseded(f"Another live watch has taken over from checkpoint {epoch}.")
    return found


def apply(
    *,
    query: str,
    epoch: uuid.UUID,
    batch: int,
    begin: int,
    counted: int,
    through: int,
    as_of: datetime,
    minutes: Sequence[Minute],
) -> bool:
    """Counts one batch: the events of transactions from `counted` to below `through`, in one transaction.

    `begin`: where the batch began, at most `counted`; what lies between was counted before. False, and nothing is
    written, when this batch or its transactions are counted already. Raises Superseded and Gap.
    """
    with transaction.atomic(durable=True):
        state = LiveState.objects.select_for_update().filter(pk=query).first()
        if state is None or state.epoch != epoch:
            raise Superseded(f"Another live watch has taken over from checkpoint {epoch}.")
        if through <= state.through:
            return False
        if begin > state.through:
            raise Gap(f"Checkpoint {epoch} begins at transaction {begin}; counted are those below {state.through}.")
        if counted != state.through:
            raise Superseded(f"Transactions below {state.through} are counted; this batch was made for {counted}.")
        _add([minute for minute in minutes if minute.minute >= as_of - KEEP])
        state.batch, state.through, state.applied_at = batch, through, as_of
        state.save(update_fields=["batch", "through", "applied_at"])
    return True


def look(place: Place, memory: Memory) -> list[Incident]:
    """One round beside the counting: data as of now when nothing waits to be counted, anomalies, old minutes.

    Returns the incidents that it opened.
    """
    now = clock.now()
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE messaging_livestate s SET applied_at = greatest(applied_at, %s) WHERE query = %s AND epoch = %s"
            " AND NOT EXISTS (SELECT FROM messaging_event e WHERE e.xid >= s.through)",
            [now, place.query, place.epoch],
        )
    as_of = LiveState.objects.filter(pk=place.query, epoch=place.epoch).values_list("applied_at", flat=True).first()
    if as_of is None:
        raise Superseded(f"Another live watch has taken over from checkpoint {place.epoch}.")
    if as_of < now - STALE:
        return []
    return judge(as_of, memory)


def judge(as_of: datetime, memory: Memory) -> list[Incident]:
    """Opens incidents for what is out of its usual range at `as_of`, and resolves those that are back within it."""
    current = window_of(as_of) - anomalies.WINDOW
    pairs = list(Pair.objects.filter(gate=Gate.OPEN).only("id", "direction", "flow").order_by("pk"))
    if memory.usual_at is None or not timedelta() <= as_of - memory.usual_at < USUAL_KEPT:
        memory.usual = pasts([pair.pk for pair in pairs], current)
        memory.usual_at = as_of
    present = windows([pair.pk for pair in pairs], current - anomalies.WINDOW, current + anomalies.WINDOW)
    heard = last_contacts([pair.pk for pair in pairs if pair.direction == Direction.IN])
    unresolved = Incident.objects.filter(cause__in=anomalies.CAUSES, pair__isnull=False).exclude(
        state=IncidentState.RESOLVED
    )
    known = set(unresolved.values_list("pair_id", "cause"))
    opened: list[Incident] = []
    for pair in pairs:
        past = memory.usual.get(pair.pk, anomalies.UNKNOWN)
        for finding in _findings(pair, past, present.get(pair.pk, []), current, heard.get(pair.pk), memory, as_of):
            has = (pair.pk, finding.cause) in known
            if finding.out and not has and (incident := _open(pair, finding, as_of)):
                opened.append(incident)
            elif finding.out is False and has:
                _resolve(pair, finding.cause, as_of)
    LiveMinute.objects.filter(minute__lt=as_of - KEEP).delete()
    return opened


def _findings(
    pair: Pair,
    past: Usual,
    present: Sequence[anomalies.Window],
    current: datetime,
    heard: datetime | None,
    memory: Memory,
    as_of: datetime,
) -> list[Finding]:
    by_start = {window.start: window for window in present}
    empty = anomalies.Window(current)
    now, before = by_start.get(current, empty), by_start.get(current - anomalies.WINDOW, empty)
    findings = []
    for judge_one in (anomalies.judge_latency, anomalies.judge_failures):
        finding = judge_one(past, now)
        # Out in one window is enough for an alarm; back in range are two in a row, or it would come and go.
        if finding.out is False and judge_one(past, before).out:
            continue
        findings.append(finding)
    if pair.flow == Flow.SUSPENDED:  # somebody looks at it already, for a reason that is known
        findings = [finding for finding in findings if not finding.out]
    if pair.direction == Direction.IN and heard is not None:
        since = max(heard, memory.since) if memory.since else heard
        findings.append(anomalies.judge_silence(past, since, as_of))
    return findings


def _open(pair: Pair, finding: Finding, now: datetime) -> Incident | None:
    with transaction.atomic():
        locked = Pair.locked([pair.pk])[pair.pk]
        about = Incident.objects.filter(pair=pair, cause=finding.cause)
        if about.exclude(state=IncidentState.RESOLVED).exists():
            return None
        if about.filter(resolved_at__gt=now - QUIET).exclude(resolved_by=SYSTEM.name).exists():
            return None
        incident, written = incidents.incident_open(pair=locked, cause=finding.cause, now=now, detail=finding.sentence)
        events.write(written)
    return incident


def _resolve(pair: Pair, cause: str, now: datetime) -> None:
    with transaction.atomic():
        locked = Pair.locked([pair.pk])[pair.pk]
        written: list[Event] = incidents.incidents_resolve_for_pair(
            pair=locked, now=now, by=SYSTEM.name, resolution=_BACK_IN_RANGE[cause], causes=(cause,)
        )
        events.write(written)


def _add(minutes: Sequence[Minute]) -> None:
    """Adds to what is there; pairs that do not exist (any more) are left out."""
    if not minutes:
        return
    with connection.cursor() as cursor:
        # Always in the same order, so that two batches could never wait for each other.
        cursor.execute(_UPSERT, [list(column) for column in zip(*sorted(minutes), strict=True)])


def _upsert() -> str:
    counts = Minute._fields[2:11]
    kinds = ("uuid", "timestamptz", *("int" for _ in counts), "float8", "float8")
    names = ", ".join(Minute._fields)
    added = ", ".join(f"{name} = messaging_liveminute.{name} + excluded.{name}" for name in (*counts, "ack_seconds"))
    return (
        f"INSERT INTO messaging_liveminute ({names})"  # noqa: S608  (names of columns)
        f" SELECT v.* FROM unnest({', '.join(f'%s::{kind}[]' for kind in kinds)}) AS v({names})"
        " JOIN messaging_pair p ON p.id = v.pair_id"
        f" ON CONFLICT (pair_id, minute) DO UPDATE SET {added},"
        " ack_longest = greatest(messaging_liveminute.ack_longest, excluded.ack_longest)"
    )


_UPSERT = _upsert()


def _query() -> str:
    """The key in LiveState. Transaction numbers belong to one database of one server, and so do the counts."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT 'live ' || c.system_identifier || '/' || d.oid"
            " FROM pg_control_system() c, pg_database d WHERE d.datname = current_database()"
        )
        return str(cursor.fetchone()[0])


def first_after(edge: datetime) -> int:
    """A transaction number before which all events are older than `edge`; found by a few looks into the index.

    Numbers follow the time but for transactions that took long, so an hour more is read.
    """
    edge -= timedelta(hours=1)
    with connection.cursor() as cursor:

        def at(condition: str, order: str, number: int) -> tuple[int, datetime] | None:
            cursor.execute(
                f"SELECT xid, at FROM messaging_event WHERE xid {condition} %s"  # noqa: S608
                f" ORDER BY xid {order}, id {order} LIMIT 1",
                [number],
            )
            found: tuple[int, datetime] | None = cursor.fetchone()
            return found

        # Renumbered by a restore (`manage.py after_restore`): committed long ago, perhaps not old.
        restored = at("=", "DESC", 0)
        if restored is not None and restored[1] >= edge:
            return 0
        last = at(">", "DESC", 0)
        if last is None:
            return 0
        low, high = 1, last[0] + 1
        while high - low > 1:
            middle = (low + high) // 2
            found = at(">=", "ASC", middle)
            if found is None or found[1] >= edge:
                high = middle
            else:
                low = found[0] + 1 if found[0] + 1 < high else middle
        return low
