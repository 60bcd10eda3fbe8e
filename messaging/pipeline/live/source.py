"""The streaming source `hub_events`: the hub's events by transaction number, each exactly once.

An offset is the number of a transaction: all below it are read. It never passes a transaction that may still be under
way (`models.feed.HORIZON`), so what commits late is read later and not lost; and what lies between two offsets never
changes, so a batch that is read again after a crash has the same rows.

Runs in Spark's Python workers, without Django: psycopg and pyarrow only. Options: `dsn` (conninfo; a password is in the
passfile that it names, because options are written to logs), `horizon` (SQL), `first` (where a new checkpoint begins),
`rows` (about how many a batch has; a transaction is never cut, however many it has).
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.csv
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

NAME = "hub_events"
SCHEMA = (
    "xid bigint, at timestamp, type string, pair_id string, ack_seconds double,"
    " begin bigint, through bigint, as_of timestamp"
)
_MICROSECONDS = pa.timestamp("us", tz="UTC")
_READ = {
    "xid": pa.int64(),
    "at": pa.int64(),
    "type": pa.string(),
    "pair_id": pa.string(),
    "ack_seconds": pa.float64(),
}
# Numbers, because how a server writes times down is a setting of its own.
_IN_MICROSECONDS = "(extract(epoch FROM e.at) * 1000000)::bigint"
# How long an acknowledgement took: from the first time that the message went out.
_ROWS = """
COPY (
    SELECT e.xid, {at}, e.type, e.pair_id,
           greatest(extract(epoch FROM e.at - m.first_sent_at), CASE WHEN m.first_sent_at IS NOT NULL THEN 0 END)
    FROM messaging_event e
    LEFT JOIN messaging_message m ON e.type = 'message.delivered' AND m.id = e.message_id
    WHERE e.xid >= {begin} AND e.xid < {through}
) TO STDOUT (FORMAT csv)
"""
_BLOCK = 1 << 20


@dataclass
class Events(InputPartition):
    """What one batch reads: transactions from `begin` to below `through`; `as_of`: microseconds since 1970."""

    begin: int
    through: int
    as_of: int


class HubEvents(DataSource):
    """Registered with a session by `session.dataSource.register(HubEvents)`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> EventReader:
        return EventReader(self.options)


class EventReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are `{"xid": number, "as_of": microseconds since 1970}`.

    All that was committed before `as_of` has numbers below `xid`.
    """

    def __init__(self, options: Any) -> None:
        self.dsn = options["dsn"]
        self.horizon = options["horizon"]
        self.first = int(options["first"])
        self.rows = int(options["rows"])
        self.target: int | None = None
        self.connection: psycopg.Connection | None = None

    def initialOffset(self) -> dict[str, Any]:
        return {"xid": self.first, "as_of": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self.rows)

    def prepareForTriggerAvailableNow(self) -> None:
        self.target = self._horizon()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """As far as is safe and the limit allows; `start` itself when no event has come, so that no batch is made."""
        begin = int(start["xid"])
        now = time.time_ns() // 1000
        end = self._horizon()
        if self.target is not None:
            end = min(end, self.target)
        between = "FROM messaging_event WHERE xid >= %s AND xid < %s"
        cut = None
        if isinstance(limit, ReadMaxRows):
            cut = self._number(
                f"SELECT xid {between} ORDER BY xid, id LIMIT 1 OFFSET %s",
                begin,
                end,
                limit.max_rows,
            )
        if cut is not None:
            end = max(cut, begin + 1)
        else:
            last = self._number(f"SELECT max(xid) {between}", begin, end)
            if last is None:
                return start
            end = last + 1
        waiting = self._number(
            f"SELECT {_IN_MICROSECONDS} FROM messaging_event e WHERE xid >= %s ORDER BY xid, id LIMIT 1",  # noqa: S608
            end,
        )
        return {"xid": end, "as_of": now if waiting is None else min(now, waiting)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begin, through = int(start["xid"]), int(end["xid"])
        return [Events(begin, through, int(end["as_of"]))] if begin < through else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Events)
        sql = _ROWS.format(at=_IN_MICROSECONDS, begin=int(partition.begin), through=int(partition.through))
        with (
            psycopg.connect(self.dsn, autocommit=True) as connection,
            connection.cursor() as cursor,
            cursor.copy(sql.encode()) as copy,
        ):
            for table in _tables(iter(copy)):
                count = table.num_rows
                columns = {
                    **{name: table[name].combine_chunks() for name in _READ},
                    "at": table["at"].combine_chunks().cast(_MICROSECONDS),
                    "begin": pa.repeat(pa.scalar(partition.begin, pa.int64()), count),
                    "through": pa.repeat(pa.scalar(partition.through, pa.int64()), count),
                    "as_of": pa.repeat(pa.scalar(partition.as_of, pa.int64()), count).cast(_MICROSECONDS),
                }
                yield pa.RecordBatch.from_pydict(columns)

    def stop(self) -> None:
        if self.connection is not None:
            self.connection.close()

    def _row(self, sql: str, *values: object) -> Any:
        """One row or None; on a connection that is kept, because this is asked every few seconds."""
        for fresh in (False, True):
            if self.connection is None or self.connection.closed or fresh:
                self.connection = psycopg.connect(self.dsn, autocommit=True, connect_timeout=5)
            try:
                return self.connection.execute(sql.encode(), values or None).fetchone()
            except psycopg.OperationalError:
                if fresh:
                    raise
        return None

    def _number(self, sql: str, *values: object) -> Any:
        row = self._row(sql, *values)
        return None if row is None or row[0] is None else int(row[0])

    def _horizon(self) -> int:
        """As `models.feed.horizon`."""
        for _ in range(3):
            number, ended = self._row(self.horizon)
            if not ended:
                break
        return int(number)


def _tables(blocks: Iterator[Any]) -> Iterator[pa.Table]:
    """The rows of a COPY, about a MiB at a time, so that the memory needed does not grow with the batch."""
    held = io.BytesIO()
    for block in blocks:
        held.write(block)  # one row each
        if held.tell() >= _BLOCK:
            yield _table(held)
            held = io.BytesIO()
    if held.tell():
        yield _table(held)


def _table(held: io.BytesIO) -> pa.Table:
    return pyarrow.csv.read_csv(
        pa.py_buffer(held.getvalue()),
        read_options=pyarrow.csv.ReadOptions(column_names=list(_READ), use_threads=False),
        convert_options=pyarrow.csv.ConvertOptions(column_types=_READ, strings_can_be_null=True),
    )
