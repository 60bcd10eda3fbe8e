"""Since when ids are remembered without a gap, and how it is noticed that the memory was lost (spec 2; protocols 2.5).

The row says it; a note in the payload store has the same epoch and heartbeat. The row is written first, so a file that
is newer than the row, or of another epoch, or without a row means: this database is not what it was. The file names the
table's object id too: a dump that was read back has made the tables anew, however short before it was taken. And it
names the timeline of the write-ahead log, and whether a standby confirmed each commit: a standby that has taken over
writes a new timeline, and without that confirmation it may lack what was committed last (PostgreSQL documentation,
25.3.6 and 26.2.8).
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db import NotSupportedError, ProgrammingError, connection, transaction
from django.db.migrations.recorder import MigrationRecorder
from django.db.models import Max

from messaging import profile, storage
from messaging.engine import forgetting, handover
from messaging.journal import audit, events, incidents
from messaging.journal.audit import SYSTEM, Actor
from messaging.models import MemoryEpoch
from messaging.models.bulk import read
from messaging.pairs.services import resync
from messaging.protocol.memory import Memory, horizon, start_after_loss
from partners.terms import Terms
from rmhub import clock
from rmhub.ids import uuid7
from rmhub.postgresql.base import TIMELINE, give_back, locked, timeline

log = logging.getLogger(__name__)

FILE = "memory-epoch.json"
CAUSE = "memory_lost"
_LOCK = 0x524D4D45  # key of the advisory lock under which row and file are compared and written
_one = threading.Lock()
_MADE_BY = ("messaging", "0001_initial")  # the migration that made the memory
_LEAST_SKEW = 300

# What this process saw last. A row that is older, or another one, was put there by somebody who restored a backup.
_seen: tuple[uuid.UUID, datetime] | None = None
_seen_timeline = 0
_looked_at: float | None = None
LOOK_SECONDS = 2.0


class MemoryChanged(Exception):
    """The row is not the one that this process knows: call `check`, outside of the present transaction."""


@dataclass(frozen=True, slots=True)
class _Note:
    """What the file says."""

    epoch: uuid.UUID
    heartbeat: datetime
    tables: str = ""  # "" in a file of an older version
    timeline: int = 0  # 0 in a file of an older version, and where the server does not tell
    synchronous: bool = False


@dataclass(frozen=True, slots=True)
class _Server:
    """What tells a standby that has taken over. `synchronous`: whether commits wait for one."""

    timeline: int
    synchronous: bool


def look() -> None:
    """Call before anything is taken in, sent or handed over: a memory that was lost is noticed before it is relied on.

    The first call of a process compares row and file; then the row is looked at every two seconds at most. Raises
    DatabaseError, OSError. Call outside of transactions.
    """
    global _looked_at
    at = time.monotonic()
    if _looked_at is not None and at - _looked_at < LOOK_SECONDS and timeline() in (0, _seen_timeline):
        return
    try:
        ready(clock.now())
        if _server().timeline != _seen_timeline:
            check(clock.now())
    except OSError:
        # A full disk takes no note, which is no loss.
        row, note = MemoryEpoch.objects.first(), _read()
        if row is None or note is None or _lost(row, note, _server()):
            raise
        log.exception("the heartbeat of the memory cannot be noted", extra={"action": "epoch_file"})
    _looked_at = at


def current() -> MemoryEpoch:
    """The row, as it is now. Raises MemoryChanged when `check` has to look at it first."""
    row = next(iter(read(MemoryEpoch, "SELECT * FROM messaging_memoryepoch ORDER BY id LIMIT 1")), None)
    if row is None or _seen is None or row.epoch != _seen[0] or row.heartbeat < _seen[1]:
        raise MemoryChanged
    _saw(row)
    return row


def ready(now: datetime) -> MemoryEpoch:
    """The row; compares it with the file where this process has not done so, or where it has become another one."""
    try:
        return current()
    except MemoryChanged:
        return check(now)


def memory(row: MemoryEpoch, terms: Terms) -> Memory:
    """What is remembered under one agreement."""
    return Memory(
        window=timedelta(seconds=terms.memory_window),
        skew=timedelta(seconds=terms.clock_skew),
        memory_start=row.memory_start,
        forgotten_through=row.forgotten_through,
        heartbeat=row.heartbeat,
    )


def check(now: datetime) -> MemoryEpoch:
    """Compares row and file, makes both at the first boot, and moves the start of memory when it was lost.

    The heartbeat of both becomes `now`, or stays where it is when the clock was set back. Call outside of transactions.
    """
    with _alone():
        note, server = _read(), _server()
        with transaction.atomic():
            row = MemoryEpoch.objects.select_for_update().first()
            reason = ""
            if row is None and note is None:
                row = _first(now)
            else:
                reason = _lost(row, note, server)
                if reason:
                    row = _start_again(row, note, reason, now, SYSTEM)
            assert row is not None
            if now > row.heartbeat:
                row.heartbeat = now
                row.save(update_fields=["heartbeat"])
        if reason:
            _tell_profiles(now)
        elif note is not None and 0 < note.timeline < server.timeline:
            log.warning(
                "the database has failed over, and nothing is lost: commits had waited for a standby",
                extra={"action": "database_failed_over", "timeline": server.timeline},
            )
        _note_down(row, server)
    return row


def hold(memory: Memory, first_sent: datetime, now: datetime) -> None:
    """Makes a refusal as too old hold when the clock is set back: then the window goes by the heartbeat (X12).

    Call before the refusal is answered, outside of transactions. Raises DatabaseError, OSError.
    """
    if first_sent >= horizon(memory, memory.heartbeat):
        check(now)


def lost(now: datetime, *, reason: str, actor: Actor) -> MemoryEpoch:
    """Somebody knows that ids were lost (a restored backup): memory starts again now, with an audit entry."""
    with _alone():
        with transaction.atomic():
            row = _start_again(MemoryEpoch.objects.select_for_update().first(), _read(), reason, now, actor)
        _tell_profiles(now)
        _note_down(row, _server())
    return row


def _tell_profiles(now: datetime) -> None:
    for speaks in profile.every():
        speaks.restored(now)


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Nobody else looks at row and file while one of them is written and the other is not yet."""
    give_back()  # whoever is first may need one
    with _one, locked(_LOCK):  # however many threads ask, the process has one connection for it
        yield


def _lost(row: MemoryEpoch | None, note: _Note | None, server: _Server) -> str:
    """How it shows that ids were lost; empty when they were not. A clean restart must not look like a loss."""
    if row is None:
        return "The database holds no memory, but the store folder says that there was one."
    if note is None:
        return f"The store folder holds no {FILE}: database and folder are not those that belong together."
    if note.epoch != row.epoch:
        return "The database's memory is not the one that the store folder belongs to."
    if note.tables and note.tables != _tables():
        return "The database's tables were created again since this hub last ran: they were read back from a dump."
    latest = max(note.heartbeat, _seen[1]) if _seen is not None and _seen[0] == row.epoch else note.heartbeat
    if latest > row.heartbeat:
        return (
            f"The database is as of {row.heartbeat:%Y-%m-%d %H:%M:%S} UTC, but was in use until"
            f" {latest:%Y-%m-%d %H:%M:%S} UTC: it was restored from a backup."
        )
    if 0 < note.timeline < server.timeline and not note.synchronous:
        return "The database failed over, and no standby had confirmed each commit: the last ones may be missing."
    return ""


def _first(now: datetime) -> MemoryEpoch:
    """Nothing can have been forgotten since the tables were made, which may be some time before the first request."""
    app, name = _MADE_BY
    made = MigrationRecorder.Migration.objects.filter(app=app, name=name).aggregate(at=Max("applied"))["at"]
    start = min(now, made) if made is not None else now
    return MemoryEpoch.objects.create(
        memory_start=start, forgotten_through=_midnight(start), heartbeat=now, reason="The hub was set up."
    )


def _start_again(row: MemoryEpoch | None, note: _Note | None, reason: str, now: datetime, actor: Actor) -> MemoryEpoch:
    """A new epoch. A sender whose clock is fast may have stamped later than now what was processed before (2.5)."""
    known = (now, note.heartbeat if note else None, row.heartbeat if row else None)
    latest = max(moment for moment in known if moment is not None)
    start = start_after_loss(now, latest, timedelta(seconds=_skew()))
    before: dict[str, object] = {}
    as_of = row.heartbeat if row is not None else None
    if row is None:
        row = MemoryEpoch(forgotten_through=_midnight(latest), heartbeat=latest)
    else:
        before = {"memory_start": row.memory_start.isoformat(), "heartbeat": row.heartbeat.isoformat()}
    row.epoch = uuid7()
    row.memory_start = start
    row.heartbeat = max(row.heartbeat, latest)
    row.reason = reason[:120]
    row.save()
    after = {"memory_start": start.isoformat()}
    audit.record(actor, "memory.start_again", row, reason=reason, before=before, after=after)
    _, opened = incidents.incident_open(
        pair=None,
        cause=CAUSE,
        now=now,
        detail=f"{reason} Requests first sent before {start:%Y-%m-%d %H:%M:%S} UTC are"
        " refused, because they may be repeats of requests that are forgotten.",
    )
    events.write(opened)
    resync.begin(now, as_of, reason)
    log.error("memory of ids was lost", extra={"action": "memory_lost", "reason": reason, "start": start.isoformat()})
    return row


def _skew() -> int:
    """The largest clock skew, in seconds, that any agreement allows its partner."""
    return max(forgetting.remembered().aggregate(most=Max("clock_skew"))["most"] or 0, _LEAST_SKEW)


def _tables() -> str:
    """What tells these tables from others of the same content: whoever reads a dump back makes new ones."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT (SELECT oid FROM pg_database WHERE datname = current_database()), %s::regclass::oid",
            [MemoryEpoch._meta.db_table],
        )
        database, table = cursor.fetchone()
    return f"{database}/{table}"


def _server() -> _Server:
    """Ask PostgreSQL for its timeline. Call outside of transactions: what is not quite PostgreSQL does not know it."""
    waits = "current_setting('synchronous_standby_names') <> ''"
    how = "current_setting('synchronous_commit') NOT IN ('off', 'local')"
    with connection.cursor() as cursor:
        try:
            cursor.execute(f"SELECT {TIMELINE}, {waits} AND {how}")
            return _Server(*cursor.fetchone())
        except (NotSupportedError, ProgrammingError):
            return _Server(0, False)


def _midnight(instant: datetime) -> datetime:
    return instant.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def _read() -> _Note | None:
    try:
        noted = storage.note(FILE)
        if noted is None:
            return None
        values = json.loads(noted)
        return _Note(
            uuid.UUID(values["epoch"]),
            datetime.fromisoformat(values["heartbeat"]),
            str(values.get("tables", "")),
            int(values.get("timeline", 0)),
            bool(values.get("synchronous", False)),
        )
    except (ValueError, KeyError, TypeError) as error:
        log.error("unreadable, taken as missing", extra={"action": "epoch_file", "path": FILE, "error": str(error)})
        return None


def _note_down(row: MemoryEpoch, server: _Server) -> None:
    """Writes what is committed into the file."""
    global _seen_timeline
    _seen_timeline = server.timeline  # also when it cannot be written
    noted = {
        "epoch": str(row.epoch),
        "heartbeat": row.heartbeat.isoformat(),
        "memory_start": row.memory_start.isoformat(),
        "tables": _tables(),
        "timeline": server.timeline,
        "synchronous": server.synchronous,
    }
    storage.write_note(FILE, json.dumps(noted).encode())
    _saw(row)


def _saw(row: MemoryEpoch) -> None:
    global _seen
    _seen = (row.epoch, row.heartbeat)
    handover.of_hub(row.epoch)


def reset() -> None:
    """Forgets what this process has seen (tests)."""
    global _seen, _seen_timeline, _looked_at
    _seen = _looked_at = None
    _seen_timeline = 0
    handover.forget()
