"""Files of the archive: one row a message, with everything that is needed to put it back into the store.

Columns are those of the database: the message's own at the top, its rows as lists of structs, payloads always
with their bytes. A column that came later is missing in older files and gets the model's default on restore; columns
are never renamed. Written in row groups of bounded size, so neither writing nor reading a row needs the whole file.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from django.db import models

from messaging.archive.services import archived, message_rows
from messaging.archive.services.message_rows import MessageRows, Proof, Row
from messaging.models import Join, Message
from messaging.storage import synchronise

VERSION = 1
GROUP_BYTES = 32 * 1024 * 1024
_META = b"rmhub.archive"


def kind_of(column: models.Field[Any, Any]) -> pa.DataType:
    """The Arrow type of a column; JSON and UUIDs are text. Raises TypeError for one that the archive cannot hold."""
    if isinstance(column, models.ForeignKey):
        return kind_of(column.target_field)
    if isinstance(column, models.UUIDField | models.JSONField | models.CharField | models.TextField):
        return pa.string()
    if isinstance(column, models.BinaryField):
        return pa.large_binary()
    if isinstance(column, models.DateTimeField):
        return pa.timestamp("us", tz="UTC")
    if isinstance(column, models.BooleanField):
        return pa.bool_()
    if isinstance(column, models.IntegerField):
        return pa.int64()
    if isinstance(column, models.DecimalField):
        return pa.decimal128(column.max_digits or 38, column.decimal_places or 0)
    raise TypeError(f"{column} cannot be archived")


def _fields(model: type[models.Model]) -> list[pa.Field]:
    return [pa.field(str(column.column), kind_of(column)) for column in message_rows.columns(model)]


@cache
def schema() -> pa.Schema:
    """The schema of files that are written now."""
    lists = [
        pa.field(part.name, pa.list_(pa.field("element", pa.struct(_fields(part.model)))))
        for part in message_rows.PARTS
    ]
    joins = pa.field("joins", pa.list_(pa.field("element", pa.struct(_fields(Join)))))
    return pa.schema([*_fields(Message), *lists, joins], metadata={_META: str(VERSION).encode()})


@dataclass(frozen=True, slots=True)
class Entry:
    """A message in a file that was written. `contents`: SHA-256 of its payloads as the store recorded them."""

    message: Row  # without its frame
    proof: Proof
    contents: tuple[str, ...]
    payload_bytes: int


@dataclass(frozen=True, slots=True)
class Written:
    """A finished file; its messages in the order of the rows. `path` is relative to the archive's folder."""

    day: date
    path: str
    bytes: int
    sha256: str
    entries: list[Entry] = field(repr=False)


@dataclass(slots=True)
class _Open:
    day: date
    target: Path
    temporary: Path
    writer: pq.ParquetWriter
    entries: list[Entry] = field(default_factory=list)
    waiting: list[Row] = field(default_factory=list)
    bytes: int = 0


class Files:
    """Writes messages to a file for each day on which they ended. `name`: begin of the files' names.

    Holds no more than `GROUP_BYTES` of rows, and one message, in memory. `finish` makes the files durable and gives
    them their names; whatever was not finished is a stray that a later run removes.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._open: dict[date, _Open] = {}

    def add(self, one: MessageRows) -> None:
        """Its payloads must have their content."""
        day = archived.ended_at(one.message).date()
        file = self._open.get(day) or self._begin(day)
        payloads = one.parts["payloads"]
        light = {name: value for name, value in one.message.items() if name != "wire_frame"}
        contents = tuple(row["sha256"] for row in payloads)
        file.entries.append(Entry(light, one.proof, contents, sum(len(row["content"]) for row in payloads)))
        row = _plain(one.message)
        row |= {part.name: [_plain(each) for each in one.parts[part.name]] for part in message_rows.PARTS}
        row["joins"] = [_plain(each) for each in one.joins]
        file.waiting.append(row)
        file.bytes += _weight(row)
        while sum(each.bytes for each in self._open.values()) >= GROUP_BYTES:
            self._flush(max(self._open.values(), key=lambda each: each.bytes))

    def finish(self) -> list[Written]:
        return [self._finish(self._open.pop(day)) for day in sorted(self._open)]

    def _begin(self, day: date) -> _Open:
        folder = archived.root() / f"day={day:%Y-%m-%d}"
        if not folder.exists():
            folder.mkdir(parents=True)
            synchronise(folder.parent)
        target = folder / f"{self._name}.parquet"
        temporary = folder / f".{self._name}.parquet"
        writer = pq.ParquetWriter(temporary, schema(), compression="zstd")
        self._open[day] = _Open(day, target, temporary, writer)
        return self._open[day]

    def _flush(self, file: _Open) -> None:
        if file.waiting:
            file.writer.write_table(pa.Table.from_pylist(file.waiting, schema=schema()))
        file.waiting, file.bytes = [], 0

    def _finish(self, file: _Open) -> Written:
        self._flush(file)
        file.writer.close()
        synchronise(file.temporary)
        digest, size = archived.sha256_of(file.temporary), file.temporary.stat().st_size
        os.replace(file.temporary, file.target)
        synchronise(file.target.parent)
        path = file.target.relative_to(archived.root()).as_posix()
        return Written(file.day, path, size, digest, file.entries)


def read(path: Path, rows: Collection[int]) -> Iterator[MessageRows]:
    """The messages in these rows of a file, in their order; one row group in memory at a time.

    Raises OSError, pyarrow.ArrowInvalid for a file that is missing or damaged.
    """
    wanted = sorted(set(rows))
    with pq.ParquetFile(path) as file:
        first = 0
        for number in range(file.num_row_groups):
            count = file.metadata.row_group(number).num_rows
            here = [row - first for row in wanted if first <= row < first + count]
            if here:
                for values in file.read_row_group(number).take(here).to_pylist():
                    yield _message_rows(values)
            first += count


def _message_rows(values: Row) -> MessageRows:
    one = MessageRows(_row(Message, values))
    one.parts = {
        part.name: [_row(part.model, each) for each in values.get(part.name) or ()] for part in message_rows.PARTS
    }
    one.joins = [_row(Join, each) for each in values.get("joins") or ()]
    return one


def _row(model: type[models.Model], values: Row) -> Row:
    found = {}
    for column in message_rows.columns(model):
        name = str(column.column)
        if name in values:
            value = values[name]
            found[name] = uuid.UUID(value) if value is not None and _is_uuid(column) else value
    return found


def _is_uuid(column: models.Field[Any, Any]) -> bool:
    if isinstance(column, models.ForeignKey):
        return _is_uuid(column.target_field)
    return isinstance(column, models.UUIDField)


def _plain(row: Row) -> Row:
    return {name: str(value) if isinstance(value, uuid.UUID) else value for name, value in row.items()}


def _weight(row: Row) -> int:
    """About the bytes of a row."""
    total = 400
    for value in row.values():
        if isinstance(value, str | bytes | memoryview):
            total += len(value)
        elif isinstance(value, list):
            total += sum(_weight(each) for each in value)
        else:
            total += 8
    return total
