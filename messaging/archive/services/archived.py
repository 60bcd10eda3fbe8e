"""The archive's books: which messages are due for it, what was copied and proved, and what leaves it again.

A message is in the archive when it has an `ArchivedMessage`, which is written only after its copy was read back. Files
without an `ArchiveFile` do not count: their run died on the way.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connection, transaction

from messaging.archive.services import holds, message_rows, retention
from messaging.archive.services.message_rows import Proof, Row
from messaging.choices import MessageState
from messaging.journal import audit, events, incidents
from messaging.journal.audit import SYSTEM
from messaging.models import ArchivedMessage, ArchiveFile, Pair, PipelineRun
from messaging.report_choices import ArchiveState
from rmhub import clock

FINAL = (
    MessageState.DELIVERED,
    MessageState.SENT,
    MessageState.SKIPPED,
    MessageState.CANCELLED,
    MessageState.RECEIVED,
)
# Of a message `m`: nothing about it is under way or waits for anybody. Parameter: the final states.
FINISHED = """
m.state = ANY(%(final)s) AND m.due_at IS NULL
AND NOT EXISTS (SELECT FROM messaging_delivery d WHERE d.message_id = m.id
    AND d.state NOT IN ('completed', 'duplicate', 'discarded', 'settled'))
AND NOT EXISTS (SELECT FROM messaging_delivery d JOIN messaging_documentstarted b ON b.trigger_id = d.trigger_id
    AND b.sender_id = d.sender_id AND b.document_id = d.document_id
    WHERE d.message_id = m.id AND b.delivery_id = d.id)
AND NOT EXISTS (SELECT FROM messaging_signal s WHERE s.about_id = m.id
    AND (s.state IN ('pending', 'sending') OR s.due_at IS NOT NULL))
AND NOT EXISTS (SELECT FROM messaging_transmission t WHERE t.message_id = m.id AND t.outcome = 'on_the_wire')
AND NOT EXISTS (SELECT FROM messaging_signal s JOIN messaging_transmission t ON t.signal_id = s.id
    WHERE s.about_id = m.id AND t.outcome = 'on_the_wire')
AND NOT EXISTS (SELECT FROM messaging_pair p WHERE p.id = m.pair_id AND p.in_flight_id = m.id)
AND NOT EXISTS (SELECT FROM messaging_incident i WHERE i.message_id = m.id AND i.state IN ('open', 'acknowledged'))
AND NOT EXISTS (SELECT FROM messaging_coordinationmessage c JOIN messaging_coordination k ON k.id = c.coordination_id
    WHERE c.message_id = m.id AND k.ended_at IS NULL)
AND NOT EXISTS (SELECT FROM messaging_message o WHERE o.forwarded_from_id = m.id AND NOT o.state = ANY(%(final)s))
"""
_DUE = f"""
SELECT m.id, m.size FROM messaging_message m
WHERE m.id = ANY(%(page)s) AND coalesce(m.completed_at, m.created_at) < %(before)s
AND NOT EXISTS (SELECT FROM messaging_archivedmessage a WHERE a.id = m.id AND a.entries > 0)
AND {FINISHED}
ORDER BY m.id
"""  # noqa: S608  (constants)
_PAGE = 5000


@dataclass(frozen=True, slots=True)
class Due:
    """A message that may be copied. `size`: bytes of its payloads."""

    id: uuid.UUID
    size: int


@dataclass(frozen=True, slots=True)
class Copied:
    """A message in a file that was read back. `row` counts from 0; `contents`: SHA-256 of the payloads."""

    message: Row
    row: int
    proof: Proof
    contents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file that was read back. `path` is relative to the archive's folder."""

    day: date
    path: str
    schema_version: int
    payloads: int
    payload_bytes: int
    bytes: int
    sha256: str
    messages: Sequence[Copied] = field(repr=False)


def ended_at(message: Mapping[str, datetime | None]) -> datetime:
    """When a message ended, as its row (by columns) says; the days of the policy count from then."""
    found = message["completed_at"] or message["created_at"]
    assert found is not None
    return found


def due(before: datetime) -> Iterator[Due]:
    """Finished messages that ended before `before` and are not in the archive as they are now, in the order of ids.

    Goes through the store by its key and stops where everything is too young: ids go by the time of entry.
    """
    after = uuid.UUID(int=0)
    while True:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT id, created_at FROM messaging_message WHERE id > %s ORDER BY id LIMIT %s", [after, _PAGE]
            )
            page = cursor.fetchall()
            if not page or all(created_at >= before for _, created_at in page):
                return
            after = page[-1][0]
            names: dict[str, Any] = {
                "page": [key for key, _ in page],
                "before": before,
                "final": [state.value for state in FINAL],
            }
            cursor.execute(_DUE, names)
            found = cursor.fetchall()
        yield from (Due(key, size) for key, size in found)


def unfinished(ids: Collection[uuid.UUID]) -> set[uuid.UUID]:
    """Those of the messages that are not finished, or are not there."""
    names: dict[str, Any] = {"ids": list(ids), "final": [state.value for state in FINAL]}
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT m.id FROM messaging_message m WHERE m.id = ANY(%(ids)s) AND {FINISHED}", names)  # noqa: S608
        return set(ids) - {key for (key,) in cursor.fetchall()}


def register(file: NewFile, run: PipelineRun | None) -> set[uuid.UUID]:
    """Enters a file that was read back, with those of its messages that are in the store as they were copied.

    Returns the ids of these; the others changed meanwhile and are copied anew some other time. With none of them the
    file is not entered. One transaction.
    """
    now = clock.now()
    with transaction.atomic():
        known = message_rows.proofs([one.message["id"] for one in file.messages])
        same = [one for one in file.messages if known.get(one.message["id"]) == one.proof]
        if not same:
            return set()
        row = ArchiveFile.objects.create(
            run=run,
            day=file.day,
            path=file.path,
            schema_version=file.schema_version,
            messages=len(same),
            payloads=file.payloads,
            payload_bytes=file.payload_bytes,
            bytes=file.bytes,
            sha256=file.sha256,
            created_at=now,
            verified_at=now,
        )
        rows = [_entry(one, row) for one in same]
        # One that was restored stays so: its time in the store counts from the restore.
        ArchivedMessage.objects.bulk_create(
            rows, update_conflicts=True, unique_fields=["id"], update_fields=_REPLACED, batch_size=1000
        )
        return {one.message["id"] for one in same}


_REPLACED = (
    *("file", "row", "message_state", "document_id", "size", "completed_at", "contents", "attributes"),
    *("written", "entries"),
)
_COPIED = (
    *("id", "message_id", "document_id", "conversation_id", "direction", "pair_id", "service", "action"),
    *("sequence_number", "size", "created_at"),
)


def _entry(one: Copied, file: ArchiveFile) -> ArchivedMessage:
    return ArchivedMessage(
        **{name: one.message[name] for name in _COPIED},
        state=ArchiveState.COPIED,
        message_state=one.message["state"],
        file=file,
        row=one.row,
        completed_at=ended_at(one.message),
        contents=list(one.contents),
        attributes=json.loads(one.message["attributes"]) if one.message["attributes"] else None,
        written=one.proof.written,
        entries=one.proof.entries,
    )


def differing(found: Mapping[uuid.UUID, Sequence[str]]) -> None:
    """Opens an incident for each pair with messages whose copy would not be what the store says.

    `found`: pair -> a sentence for each message. They stay in the store.
    """
    for pair_id, sentences in found.items():
        _open(pair_id, "archive_differs", sentences)


def damaged(paths: Sequence[str]) -> None:
    """Opens an incident: files of the archive are not what was written, so nothing that lies in them is purged."""
    if paths:
        _open(None, "archive_damaged", [f"{path} is missing or was changed." for path in paths])


def _open(pair_id: uuid.UUID | None, cause: str, sentences: Sequence[str]) -> None:
    now = clock.now()
    detail = " ".join(sentences[:20])
    if len(sentences) > 20:
        detail += f" And {len(sentences) - 20} more."
    with transaction.atomic():
        pair = Pair.locked([pair_id])[pair_id] if pair_id else None
        _, opened = incidents.incident_open(pair=pair, cause=cause, now=now, detail=detail)
        events.write(opened)


# --- files ---


def root() -> Path:
    return Path(settings.RMHUB_ARCHIVE_DIR)


def is_whole(file: ArchiveFile) -> bool:
    """Whether the file is there with the octets that were written. Reads all of it."""
    return sha256_of(root() / file.path) == file.sha256


def sha256_of(path: Path) -> str:
    """Hexadecimal; "" for a file that cannot be read."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError:
        return ""
    return digest.hexdigest()


def strays(older_than: float) -> Iterator[Path]:
    """What runs that died have left in the archive's folder: files that no row names, last changed before this Unix
    time. Finished files of runs that this database does not know are not ours to remove: it may have been restored
    from a backup that is older than they are, and they hold what is nowhere else.
    """
    for folder in sorted(root().glob("day=*")):
        paths = {path.relative_to(root()).as_posix(): path for path in folder.iterdir() if path.is_file()}
        known = set(ArchiveFile.objects.filter(path__in=paths).values_list("path", flat=True))
        for name, path in paths.items():
            if name in known or path.stat().st_mtime >= older_than:
                continue
            if path.name.startswith(".") or _is_of_our_run(path.name):
                yield path


def _is_of_our_run(name: str) -> bool:
    try:
        run = uuid.UUID(name.partition("-")[0])
    except ValueError:
        return False
    return PipelineRun.objects.filter(pk=run).exists()


def expire() -> list[tuple[str, int]]:
    """Ends files that are kept longer than the policy says, and all of whose messages have left the store: their path
    and number of messages. Written into the audit log. Files with a restored message, or one on hold, stay.
    """
    days = retention.policy().keep_archive
    if not days:
        return []
    edge = (clock.now() - timedelta(days=days)).date()
    ended = []
    for key in list(ArchiveFile.objects.filter(day__lt=edge).values_list("pk", flat=True)):
        with transaction.atomic():
            holds.wait_for_none()
            file = ArchiveFile.objects.select_for_update(skip_locked=True, of=("self",)).filter(pk=key).first()
            if file is None:
                continue
            contents = list(file.contents.order_by("pk").select_for_update())
            held = holds.held()
            if any(one.state != ArchiveState.ARCHIVED for one in contents) or (
                held is not None and file.contents.filter(held).exists()
            ):
                continue
            after = {"day": f"{file.day}", "messages": len(contents), "sha256": file.sha256}
            audit.record(SYSTEM, "archive.expire", file, reason=f"Kept for {days} days.", after=after)
            file.contents.all().delete()
            file.delete()
        (root() / file.path).unlink(missing_ok=True)  # after the commit; one that is left is a stray
        ended.append((file.path, len(contents)))
    return ended
