"""Lets the store forget what the archive has: small transactions, in which everything is looked at again.

A message leaves when its copy was read back, is older than the policy says, and nothing has changed since; when no hold
covers it, nothing about it is open, and the lake has all its rows. Locked rows are passed over, so that nobody who has
live work to do ever waits for a row that is about to go, nor a purge for them.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any

from django.db import connection, transaction
from django.db.models import Q

from messaging import storage
from messaging.archive.services import archived, holds, message_rows, retention
from messaging.models import ArchivedMessage, ArchiveFile, Event, LakeState, Message, Payload, Signal
from messaging.report_choices import ArchiveState
from rmhub import clock

# Where a page of candidates ended: when they may leave (what the policy counts from), and the id.
Place = tuple[datetime, uuid.UUID]


@dataclass(slots=True)
class Batch:
    """What one transaction did. `kept`: reason -> messages that stay; `files`: payload files that may be unused now."""

    purged: Counter[date] = field(default_factory=Counter)
    held: Counter[date] = field(default_factory=Counter)
    kept: Counter[str] = field(default_factory=Counter)
    files: set[str] = field(default_factory=set)


def candidates(*, after: Place | None, limit: int) -> list[tuple[datetime, uuid.UUID]]:
    """Archived messages that the policy lets go, oldest first; the last of a page is the next one's `after`."""
    edge = _edge()
    found = ArchivedMessage.objects.filter(~Q(state=ArchiveState.ARCHIVED), completed_at__lt=edge, entries__gt=0)
    found = found.filter(Q(state=ArchiveState.COPIED) | Q(restored_at__lt=edge))
    if after is not None:
        found = found.filter(Q(completed_at=after[0], id__gt=after[1]) | Q(completed_at__gt=after[0]))
    rows = found.order_by("completed_at", "id").values_list("completed_at", "id")[:limit]
    return [(at, key) for at, key in rows if at is not None]


class _Grown(Exception):
    """Rows came that were not there when everything was looked at."""


def purge(ids: Collection[uuid.UUID], is_whole: Callable[[ArchiveFile], bool] = archived.is_whole) -> Batch:
    """Purges those of the messages that may go, in one transaction. Messages of one join leave together or not at all.

    `is_whole` says whether a file of the archive is there, unchanged; it is asked before the transaction.
    """
    groups = message_rows.grouped_by_join(ids)
    files = ArchiveFile.objects.filter(contents__in=groups).distinct()
    whole = {file.pk for file in files if is_whole(file)}
    try:
        return _purge(ids, groups, whole)
    except _Grown:
        # A late answer of a partner, in this very moment; the next look finds the message changed.
        return Batch(kept=Counter({"changed": len(set(ids))}))


def _purge(ids: Collection[uuid.UUID], groups: Collection[uuid.UUID], whole: Collection[int]) -> Batch:
    batch = Batch()
    with transaction.atomic(durable=True):
        holds.wait_for_none()
        entries = {
            one.pk: one
            for one in ArchivedMessage.objects.filter(pk__in=groups).select_for_update(skip_locked=True, of=("self",))
        }
        locked = _locked(groups)
        reasons = _reasons(entries, locked, whole)
        # Joins may have grown before the locks were there.
        together = message_rows.grouped_by_join(locked)
        going = {key for key in locked if all(other in locked and other not in reasons for other in together[key])}
        for key in sorted(set(ids) | set(locked)):
            if key not in going:
                reason = reasons.get(key, "locked" if key not in locked else "together")
                batch.kept[reason] += 1
                if reason == "held":
                    batch.held[_day(entries[key])] += 1
        if going:
            count, batch.files = message_rows.delete(going)
            if count != sum(entries[key].entries for key in going):
                raise _Grown
            now = clock.now()
            ArchivedMessage.objects.filter(pk__in=going).update(state=ArchiveState.ARCHIVED, purged_at=now)
            batch.purged.update(_day(entries[key]) for key in going)
        changed = [key for key, reason in reasons.items() if reason == "changed"]
        if changed:
            ArchivedMessage.objects.filter(pk__in=changed).update(entries=0)  # the next run copies it anew
    return batch


def _reasons(
    entries: dict[uuid.UUID, ArchivedMessage], locked: Collection[uuid.UUID], whole: Collection[int]
) -> dict[uuid.UUID, str]:
    """Why messages stay, under their locks."""
    edge, through = _edge(), extracted_through()
    proofs = message_rows.proofs(locked)
    open_ones = archived.unfinished(locked)
    held = holds.held()
    covered = Message.objects.filter(held, pk__in=locked) if held is not None else Message.objects.none()
    on_hold = set(covered.values_list("pk", flat=True))
    reasons = {}
    for key in locked:
        one = entries.get(key)
        if one is None:
            reasons[key] = "not archived"
        elif not _is_due(one, edge):
            reasons[key] = "too young"
        elif key in on_hold:
            reasons[key] = "held"
        elif key in open_ones:
            reasons[key] = "open"
        elif (one.written, one.entries) != proofs[key]:
            reasons[key] = "changed"
        elif one.written >= through:
            reasons[key] = "not in the lake"
        elif one.file_id not in whole:
            reasons[key] = "archive damaged"
    return reasons


def _is_due(one: ArchivedMessage, edge: datetime) -> bool:
    if one.state == ArchiveState.ARCHIVED or one.completed_at is None or one.completed_at >= edge:
        return False
    return one.state == ArchiveState.COPIED or (one.restored_at is not None and one.restored_at < edge)


def _edge() -> datetime:
    return clock.now() - timedelta(days=retention.policy().purge_after)


def _day(one: ArchivedMessage) -> date:
    assert one.completed_at is not None
    return one.completed_at.date()


def _locked(ids: Collection[uuid.UUID]) -> set[uuid.UUID]:
    """Locks messages with their signals, transmissions and deliveries; those of which somebody else holds any are out.

    Nothing here waits, so the order in which others take locks does not matter.
    """
    if not ids:
        return set()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id FROM messaging_message WHERE id = ANY(%s) ORDER BY id FOR UPDATE SKIP LOCKED", [list(ids)]
        )
        got = {key for (key,) in cursor.fetchall()}
        for part in (message_rows.SIGNALS, message_rows.TRANSMISSIONS, message_rows.DELIVERIES):
            names = {"ids": list(got)}
            where = f"FROM {part.table} t WHERE {part.where}"
            cursor.execute(f"SELECT t.id, {part.owner} {where}", names)
            owners = dict(cursor.fetchall())
            cursor.execute(f"SELECT t.id {where} FOR UPDATE OF t SKIP LOCKED", names)
            mine = {key for (key,) in cursor.fetchall()}
            got -= {owner for key, owner in owners.items() if key not in mine}
    return got


def extracted_through() -> int:
    """All transactions below are in the lake; 0 when the lake is another database's."""
    state = LakeState.objects.filter(pk=1).first()
    if state is None:
        return 0
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT (SELECT system_identifier FROM pg_control_system())::text || '/' ||"
            " (SELECT oid FROM pg_database WHERE datname = current_database())::text"
        )
        (source,) = cursor.fetchone()
    return state.extracted_through if state.source == source else 0


# --- what is left over ---


def purge_events(*, after: int, limit: int) -> tuple[int, int | None]:
    """Removes old events that are of no message in the store, of the next `limit` events behind `after`, once the lake
    has them. Returns how many went, and where to go on (None: the rest is too young).
    """
    edge, through = _edge(), extracted_through()
    rows = list(Event.objects.filter(pk__gt=after).order_by("pk").values_list("pk", "at", "xid", "message_id")[:limit])
    if not rows or all(at >= edge for _, at, _, _ in rows):
        return 0, None
    with transaction.atomic():
        holds.wait_for_none()
        there = {key for _, _, _, key in rows if key is not None}
        there &= set(Message.objects.filter(pk__in=there).values_list("pk", flat=True))
        going = [pk for pk, at, xid, key in rows if at < edge and xid < through and key not in there]
        found = Event.objects.filter(pk__in=going)
        held = holds.held_events()
        gone, _ = (found if held is None else found.exclude(held)).delete()
    return gone, rows[-1][0]


_LOST_SIGNALS = """
SELECT s.id FROM messaging_signal s
WHERE s.id = ANY(%(page)s) AND s.created_at < %(edge)s AND (s.about_id IS NOT NULL OR s.kind = 'ack')
AND s.due_at IS NULL
AND s.state NOT IN ('pending', 'sending') AND s.xid < %(through)s
AND NOT EXISTS (SELECT FROM messaging_message m WHERE m.id = s.about_id)
AND NOT EXISTS (SELECT FROM messaging_transmission t WHERE t.signal_id = s.id
    AND (t.outcome = 'on_the_wire' OR t.xid >= %(through)s))
FOR UPDATE OF s SKIP LOCKED
"""


def purge_signals(*, after: uuid.UUID, limit: int) -> tuple[int, uuid.UUID | None]:
    """Removes old acknowledgements and errors about messages that have left (answers to late repeats, late answers),
    and acknowledgements that are about no message of their own (streams), with their transmissions, once the lake has
    them; of the next `limit` signals behind `after`. Returns how many went, and where to go on (None: the rest is too
    young).
    """
    edge = _edge()
    rows = list(Signal.objects.filter(pk__gt=after).order_by("pk").values_list("pk", "created_at")[:limit])
    if not rows or all(at >= edge for _, at in rows):
        return 0, None
    with transaction.atomic(), connection.cursor() as cursor:
        page = [key for key, _ in rows]
        names: dict[str, Any] = {"page": page, "edge": edge, "through": extracted_through()}
        cursor.execute(_LOST_SIGNALS, names)
        ids = [key for (key,) in cursor.fetchall()]
        cursor.execute("DELETE FROM messaging_transmission WHERE signal_id = ANY(%s)", [ids])
        cursor.execute("DELETE FROM messaging_signal WHERE id = ANY(%s)", [ids])
    return len(ids), page[-1]


def remove_files(names: Collection[str]) -> int:
    """Removes payload files that no payload names any more; after the commit that removed the rows. Returns how many.

    Young ones stay: somebody may have just found the file there and not committed the row yet. `sweep_files` has them.
    """
    named = Payload.objects.filter
    return sum(storage.remove(name, named(stored_as=name).exists) for name in names)


def sweep_files() -> Iterator[int]:
    """Removes old files of the store that no payload names: what a crash left between file and commit, or between
    commit and removal. Yields how many went, portion by portion.
    """
    for names, gone in storage.names():
        for begin in range(0, len(names), 500):
            some = names[begin : begin + 500]
            known = set(Payload.objects.filter(stored_as__in=some).values_list("stored_as", flat=True))
            gone += remove_files([name for name in some if name not in known])
        yield gone
