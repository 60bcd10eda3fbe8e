"""Copies what is due to the archive: written, read back, compared, then entered; and keeps count of what was done."""

from __future__ import annotations

import hashlib
import struct
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from messaging import storage
from messaging.archive.services import archived, message_rows, retention
from messaging.archive.services.archived import Copied, Due, NewFile
from messaging.archive.services.message_rows import MessageRows, Proof
from messaging.models import PipelineRun
from messaging.pipeline import archive_file
from messaging.pipeline.archive_file import Entry, Files, Written
from rmhub import clock
from rmhub.ids import public_id, uuid7

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Share of the time in which the store is worked on; the rest is left to the live traffic.
SHARE = 0.25

Progress = Callable[[str, int, int], None]


@dataclass(slots=True)
class Day:
    """One row of the report."""

    messages: int = 0
    payloads: int = 0
    bytes: int = 0
    purged: int = 0
    held: int = 0
    differing: int = 0


@dataclass(slots=True)
class Tally:
    """What a run has done. `kept`: why messages that are old enough were not purged."""

    days: defaultdict[date, Day] = field(default_factory=lambda: defaultdict(Day))
    kept: Counter[str] = field(default_factory=Counter)
    files: int = 0
    payload_files: int = 0
    events: int = 0
    signals: int = 0
    expired: int = 0

    def table(self) -> pa.Table:
        """The report's rows, by day."""
        kinds = [("day", pa.date32()), *((count.name, pa.int64()) for count in fields(Day))]
        rows = [{"day": day, **asdict(counts)} for day, counts in sorted(self.days.items())]
        return pa.Table.from_pylist(rows, schema=pa.schema(kinds))

    def facts(self) -> dict[str, object]:
        return {
            "archived": sum(day.messages for day in self.days.values()),
            "purged": sum(day.purged for day in self.days.values()),
            "files": self.files,
            "kept": dict(self.kept),
            "payload_files_removed": self.payload_files,
            "events_removed": self.events,
            "signals_removed": self.signals,
            "files_expired": self.expired,
        }


@dataclass(slots=True)
class Pace:
    """Leaves the store alone for most of the time, so that live traffic hardly notices. `share` in (0, 1]."""

    share: float = field(default_factory=lambda: SHARE)
    pause: Callable[[float], None] = time.sleep

    @contextmanager
    def work(self) -> Iterator[None]:
        """What is done within is followed by a pause, in proportion to the time that it took."""
        begun = time.monotonic()
        yield
        self.pause((time.monotonic() - begun) * (1 / self.share - 1))


# What is copied, read back and entered together: bounds what a killed run does again, and what a file holds.
PORTION_MESSAGES = 10_000
PORTION_BYTES = 256 * 1024 * 1024
# What is read from the store at once.
_READ_MESSAGES, _READ_BYTES = 200, 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ReadBack:
    """A message as it was found in a file, computed from the octets (see `jobs.archive.verify`)."""

    contents: tuple[str, ...]
    payload_bytes: int
    wrong: tuple[int, ...]
    body_digest: str | None
    proof: Proof


# Paths of files -> for each path and message what was read.
Verify = Callable[[Sequence[Path]], Mapping[Path, Mapping[uuid.UUID, ReadBack]]]


def copy(run: PipelineRun | None, progress: Progress, verify: Verify, tally: Tally, pace: Pace | None = None) -> None:
    """Copies what is due, portion by portion. Call within `archiving.alone`."""
    pace = pace or Pace()
    for path in archived.strays(time.time()):
        path.unlink(missing_ok=True)  # of a run that died: nobody else writes here
    before = clock.now() - timedelta(days=retention.policy().archive_after)
    name = run.id.hex if run is not None else uuid7().hex
    done = 0
    differing: dict[uuid.UUID, list[str]] = defaultdict(list)
    progress("Copying to the archive", done, 0)
    for number, portion in enumerate(_portions(archived.due(before), PORTION_MESSAGES, PORTION_BYTES)):
        files = _write(portion, f"{name}-{number}", tally, differing, pace)
        if files:
            progress("Reading the copies back", done, 0)
            _enter(files, verify, run, tally, differing)
        done += len(portion)
        progress("Copying to the archive", done, 0)
    archived.differing(differing)


def _portions(found: Iterable[Due], most: int, most_bytes: int) -> Iterator[list[Due]]:
    """In their order; no more than fit, and at least one."""
    portion: list[Due] = []
    size = 0
    for one in found:
        if portion and (len(portion) == most or size + one.size > most_bytes):
            yield portion
            portion, size = [], 0
        portion.append(one)
        size += one.size
    if portion:
        yield portion


def _write(
    portion: Sequence[Due], name: str, tally: Tally, differing: dict[uuid.UUID, list[str]], pace: Pace
) -> list[Written]:
    files = Files(name)
    for some in _portions(portion, _READ_MESSAGES, _READ_BYTES):
        with pace.work():
            with message_rows.snapshot():
                found = message_rows.read([one.id for one in some])
            for one in found.values():
                wrong = _load(one)
                if wrong:
                    _differs(one.message["pair_id"], one.message, wrong, tally, differing)
                else:
                    files.add(one)
    return files.finish()


def _load(one: MessageRows) -> str:
    """Brings the payloads' bytes. Returns why the message is not what the store recorded; "" when it is."""
    if one.damaged:
        return one.damaged
    slices = []
    for payload in one.parts["payloads"]:
        try:
            payload["content"] = storage.load(payload["content"], payload["stored_as"])
        except storage.PayloadMissing as error:
            return str(error)
        if hashlib.sha256(payload["content"]).hexdigest() != payload["sha256"]:
            return f"payload {payload['number']} is not that of its SHA-256"
        if len(payload["content"]) != payload["size"]:
            return f"payload {payload['number']} has {len(payload['content'])} bytes and not {payload['size']}"
        if not payload["in_frame"]:
            slices.append(payload["content"])
    frame = one.message["wire_frame"]
    if frame is None:
        return ""
    try:
        literals = storage.unpack_frame(frame)
    except struct.error:
        return "the frame is damaged"
    if len(literals) != len(slices) + 1:
        return "frame and payloads do not fit together"
    digest = hashlib.sha256(literals[0])
    for content, literal in zip(slices, literals[1:], strict=True):
        digest.update(content)
        digest.update(literal)
    if one.message["digest"] and digest.hexdigest() != one.message["digest"]:
        return "the octets are not those of its SHA-256"
    return ""


def _enter(
    files: Sequence[Written],
    verify: Verify,
    run: PipelineRun | None,
    tally: Tally,
    differing: dict[uuid.UUID, list[str]],
) -> None:
    """Reads the files back and enters what is the same as in the store."""
    paths = {archived.root() / file.path: file for file in files}
    known = verify(list(paths))
    for path, file in paths.items():
        found = known.get(path, {})
        good = []
        for row, entry in enumerate(file.entries):
            wrong = compared(entry, found.get(entry.message["id"]))
            if wrong:
                _differs(entry.message["pair_id"], entry.message, wrong, tally, differing)
            else:
                good.append((row, entry))
        same = _register(file, good, run)
        if not same:
            path.unlink(missing_ok=True)
            continue
        tally.files += 1
        day = tally.days[file.day]
        for _, entry in good:
            if entry.message["id"] in same:
                day.messages += 1
                day.payloads += len(entry.contents)
                day.bytes += entry.payload_bytes


def _register(file: Written, good: Sequence[tuple[int, Entry]], run: PipelineRun | None) -> set[uuid.UUID]:
    if not good:
        return set()
    return archived.register(
        NewFile(
            day=file.day,
            path=file.path,
            schema_version=archive_file.VERSION,
            payloads=sum(len(entry.contents) for _, entry in good),
            payload_bytes=sum(entry.payload_bytes for _, entry in good),
            bytes=file.bytes,
            sha256=file.sha256,
            messages=[Copied(entry.message, row, entry.proof, entry.contents) for row, entry in good],
        ),
        run,
    )


def compared(entry: Entry, found: ReadBack | None) -> str:
    """Why the copy is not what the store said; "" when it is."""
    if found is None:
        return "the copy cannot be found in its file"
    if found.wrong:
        return f"the copy of payload {found.wrong[0]} is not that of its SHA-256"
    if found.contents != entry.contents or found.payload_bytes != entry.payload_bytes:
        return "the copy has other payloads"
    if found.proof != entry.proof:
        return "the copy has other rows"
    if found.body_digest is None:
        return "frame and payloads of the copy do not fit together"
    if found.body_digest and entry.message["digest"] and found.body_digest != entry.message["digest"]:
        return "the octets of the copy are not those of its SHA-256"
    return ""


def _differs(
    pair_id: uuid.UUID, message: message_rows.Row, wrong: str, tally: Tally, differing: dict[uuid.UUID, list[str]]
) -> None:
    tally.days[archived.ended_at(message).date()].differing += 1
    differing[pair_id].append(f"{message['message_id']} ({public_id('msg', message['id'])}): {wrong}.")


def spark_verify(session: Callable[[], SparkSession]) -> Verify:
    """Reads files back with Spark. `session` starts it, when there is something to read."""

    def verify(paths: Sequence[Path]) -> dict[Path, dict[uuid.UUID, ReadBack]]:
        from messaging.pipeline.jobs import archive

        files = session().read.schema(archive.FILE).parquet(*(f"file://{path.resolve()}" for path in paths))
        by_path = {path.resolve(): path for path in paths}
        found: dict[Path, dict[uuid.UUID, ReadBack]] = defaultdict(dict)
        for row in archive.verify(files).toArrow().to_pylist():
            path = by_path[Path(unquote(urlsplit(row["file"]).path)).resolve()]
            found[path][uuid.UUID(row["id"])] = ReadBack(
                tuple(row["contents"]),
                row["payload_bytes"],
                tuple(row["wrong"]),
                row["body_digest"],
                Proof(row["written"], row["entries"]),
            )
        return found

    return verify
