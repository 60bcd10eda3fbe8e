"""Logs as Arrow reads and writes them: a partner's CSV or Parquet into the columns of `LOG_SCHEMA`, and our own out.

Streaming: a block of rows is in memory, whatever the size of the log. A row that cannot be read is counted and located
(the header is row 1, empty lines are not counted); whether the log is compared without it is the caller's decision.
"""

from __future__ import annotations

import bisect
import operator
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from messaging.exceptions import ApplicationError, InvalidSubmission
from messaging.pipeline import log_values
from messaging.pipeline.log_values import Faults
from messaging.reports.services import partner_logs, publishing
from partners import log_columns
from rmhub.ids import read_public_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from messaging.pipeline.driver import Context

LOG_SCHEMA = pa.schema(
    [
        pa.field("message_id", pa.string()),
        pa.field("direction", pa.string()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("digest", pa.string()),
        pa.field("status", pa.string()),
        pa.field("sequence_number", pa.int64()),
    ]
)
LOG_COLUMNS: tuple[str, ...] = tuple(LOG_SCHEMA.names)
# More than so many rows that cannot be read are no slips of the pen: the mapping is wrong, or the file.
MAX_UNREADABLE = 10_000
# Arrow reads some thirty blocks ahead.
_BLOCK = 1024 * 1024
_ROWS = 65_536
# A row with the wrong number of columns that is longer than this has swallowed others.
_SWALLOWED = 100_000
_METADATA = 64 * 1024 * 1024


class UnreadableLog(ApplicationError):
    """The log cannot be read; `detail` is a sentence for people."""

    code = "unreadable_log"


@dataclass(slots=True)
class Normalised:
    """What a log holds. `errors` are sentences about the first rows that could not be read, of `unreadable` in all."""

    rows: int = 0
    unreadable: int = 0
    errors: list[str] = field(default_factory=list)
    first_at: datetime | None = None
    last_at: datetime | None = None

    def sentence(self) -> str:
        """What is wrong with the rows, with the places of the first."""
        more = f" and {self.unreadable - len(self.errors):,} more" if self.unreadable > len(self.errors) else ""
        of = self.rows + self.unreadable
        return f"{self.unreadable:,} of {of:,} rows cannot be read: {'; '.join(self.errors)}{more}."


def normalise(
    source: Path, mapping: Mapping[str, Any], target: Path, progress: Callable[[int], None] = lambda rows: None
) -> Normalised:
    """Writes the log at `source` to the Parquet file `target`, in the columns of `LOG_SCHEMA`; all rows that it can.

    `progress` is told the rows so far. Raises UnreadableLog where the file, the header or more than `MAX_UNREADABLE`
    rows cannot be read, and leaves no target then.
    """
    found = Normalised()
    sent, received = log_columns.sides(mapping)
    rules = log_values.Rules(sent=sent, received=received, direction_is=mapping.get("direction_is", ""))
    faults = Faults(MAX_UNREADABLE)
    part = target.with_name(f".{target.name}.part")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with pq.ParquetWriter(part, LOG_SCHEMA, compression="zstd") as writer:
            for number_of, columns in _batches(source, mapping, faults):
                batch = log_values.read(columns, rules, faults, number_of)
                table = pa.Table.from_batches([batch], schema=LOG_SCHEMA)
                if table.num_rows:
                    writer.write_table(table)
                    _count(found, table)
                progress(found.rows)
        os.replace(part, target)
    except (log_values.TooManyFaults, pa.ArrowInvalid) as error:
        if faults.too_many:
            raise UnreadableLog(
                f"More than {MAX_UNREADABLE:,} rows cannot be read: {'; '.join(faults.sentences())}. "
                "Is the mapping of the columns right?"
            ) from error
        raise UnreadableLog(_plain(str(error), found.rows)) from error
    except (pa.ArrowException, OSError) as error:
        raise UnreadableLog(f"The file cannot be read: {str(error)[:300]}") from error
    finally:
        part.unlink(missing_ok=True)
    found.unreadable, found.errors = faults.count, faults.sentences()
    return found


def _count(found: Normalised, table: pa.Table) -> None:
    found.rows += table.num_rows
    bounds = pc.min_max(table.column("at")).as_py()
    if bounds["min"] is not None:
        least, most = bounds["min"].astimezone(UTC), bounds["max"].astimezone(UTC)
        found.first_at = least if found.first_at is None else min(found.first_at, least)
        found.last_at = most if found.last_at is None else max(found.last_at, most)


Columns = dict[str, pa.Array]


def _batches(
    source: Path, mapping: Mapping[str, Any], faults: Faults
) -> Iterator[tuple[Callable[[int], int], Columns]]:
    """(row number of the n-th row of the block, our column -> values as they stand in the file)."""
    try:
        head = partner_logs.read_head(source, rows=1)
    except InvalidSubmission as error:
        raise UnreadableLog(" ".join(error.errors["file"])) from error
    except FileNotFoundError as error:
        raise UnreadableLog("The log's file is not in the lake's folder any more: send the log again.") from error
    if head.format == partner_logs.PARQUET:
        yield from _parquet_batches(source, mapping)
    else:
        yield from _csv_batches(source, mapping, head, faults)


def _csv_batches(
    source: Path, mapping: Mapping[str, Any], head: partner_logs.Head, faults: Faults
) -> Iterator[tuple[Callable[[int], int], Columns]]:
    places = _places(mapping, head.columns)
    if not head.rows and source.stat().st_size <= partner_logs.HEAD_BYTES:
        return  # only a header: an empty log, which Arrow would stumble over
    names = [f"c{number}" for number in range(len(head.columns))]
    crooked: list[int] = []

    def skip(row: Any) -> str:
        # Nothing may be raised in here; the answer "error" ends the reading.
        crooked.append(row.number)
        faults.note(row.number, f"it has {row.actual_columns} columns, and the header has {row.expected_columns}")
        swallowed = "\n" in row.text and len(row.text) > _SWALLOWED
        return "error" if faults.too_many or swallowed else "skip"

    wanted = [names[place] for place in places.values()]
    reader = pyarrow.csv.open_csv(
        source,
        read_options=pyarrow.csv.ReadOptions(
            use_threads=False, block_size=_BLOCK, column_names=names, skip_rows_after_names=1
        ),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=head.delimiter, newlines_in_values=True, invalid_row_handler=skip
        ),
        # As bytes: one letter in another encoding must not stop the whole block without a word about the place.
        convert_options=pyarrow.csv.ConvertOptions(
            include_columns=wanted, column_types=dict.fromkeys(wanted, pa.binary()), strings_can_be_null=False
        ),
    )
    before = 0
    for batch in reader:
        if batch.num_rows:
            yield (
                partial(_row_number_behind, before, crooked),
                {column: log_values.unescaped(batch.column(names[place])) for column, place in places.items()},
            )
        before += batch.num_rows


def _parquet_batches(source: Path, mapping: Mapping[str, Any]) -> Iterator[tuple[Callable[[int], int], Columns]]:
    with pq.ParquetFile(
        source,
        thrift_string_size_limit=_METADATA,
        thrift_container_size_limit=_METADATA,
        page_checksum_verification=True,
    ) as file:
        names = file.schema_arrow.names
        places = _places(mapping, names)
        before = 0
        for batch in file.iter_batches(
            batch_size=_ROWS, columns=[names[place] for place in places.values()], use_threads=False
        ):
            yield (
                partial(operator.add, before + 1),
                {column: batch.column(batch.schema.get_field_index(names[p])) for column, p in places.items()},
            )
            before += batch.num_rows


def _places(mapping: Mapping[str, Any], header: Any) -> dict[str, int]:
    places, problems = log_columns.located(mapping, list(header))
    if problems:
        raise UnreadableLog(" ".join(problems))
    return places


def _row_number_behind(before: int, crooked: list[int], index: int) -> int:
    """The number of a good row behind `before` others; those in `crooked` (rising) were left out. The header is 1."""
    first = number = before + index + 2
    while True:
        moved = first + bisect.bisect_right(crooked, number)
        if moved == number:
            return number
        number = moved


def _plain(said: str, rows: int) -> str:
    if "straddling" in said or "Expected" in said:
        return f"Behind row {rows + 1:,} one row goes on for very many lines: is a quotation mark left open?"
    return f"The log cannot be read behind row {rows + 1:,}: {said[:300]}"


def write_export(batches: Iterator[pa.RecordBatch], folder: Path, name: str) -> tuple[int, dict[str, Path]]:
    """Writes batches in the columns of `LOG_SCHEMA` as `name`.csv and `name`.parquet: (rows, file by its name).

    CSV: RFC 4180, UTF-8, times in UTC. A text that a spreadsheet would take for a formula gets an apostrophe in front,
    which reading takes away again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = {f"{name}.csv": folder / f"{name}.csv", f"{name}.parquet": folder / f"{name}.parquet"}
    text = pa.schema([(column, pa.string()) for column in LOG_COLUMNS])
    rows = 0
    with (
        pyarrow.csv.CSVWriter(
            files[f"{name}.csv"], text, write_options=pyarrow.csv.WriteOptions(quoting_style="needed")
        ) as lines,
        pq.ParquetWriter(files[f"{name}.parquet"], LOG_SCHEMA, compression="zstd") as parquet,
    ):
        for batch in batches:
            rows += batch.num_rows
            parquet.write_batch(batch)
            lines.write_batch(log_values.as_text(batch, text))
    return rows, files


# What our export says of a message, and what a reader of it may rely on: the other side may lack all but the first two.
STATUS: Mapping[str, str] = {
    "delivered": "acknowledged",
    "received": "received",
    "sent": "sent",
    "failed": "failed",
    "skipped": "failed",
    "cancelled": "failed",
    "in_doubt": "in_doubt",
}
UNDER_WAY = "under_way"
EXPORTED: Mapping[str, tuple[str, ...]] = {
    "messages": (
        *("direction", "state", "pair_id", "agreement_version_id", "message_id", "sequence_number", "digest"),
        *("created_at", "first_sent_at"),
    ),
    "pairs": ("id", "partner_id"),
    "agreements": ("id", "agreement_id"),
}


def run_export(context: Context) -> None:
    """The job EXPORT: our log of what was exchanged with a partner, as CSV and Parquet among the run's files.

    Parameters: `party` (par_...), `agreement` (agr_..., optional). Messages that never went out are not in it.
    """
    context.extract()
    inputs, facts = context.inputs(EXPORTED, context.run.range_from, context.run.range_to)
    ours = our_log(inputs, context.run.parameters)
    folder = publishing.folder_of(context.run)
    context.progress("Putting in order")
    parts = folder / "parts"
    ours.orderBy("at", "message_id").write.mode("overwrite").parquet(str(parts))
    try:
        context.progress("Writing files")
        rows, files = write_export(_parts(parts), folder, "log")
    finally:
        shutil.rmtree(parts, ignore_errors=True)
    for name, path in files.items():
        context.artifact(name, path, rows)
    context.succeed(rows=rows, data_as_of=datetime.fromisoformat(str(facts["as_of"])), **facts)


def our_log(inputs: Mapping[str, DataFrame], parameters: Mapping[str, Any]) -> DataFrame:
    """Our messages with one partner in the columns of `LOG_SCHEMA`, from our side, unsorted."""
    from pyspark.sql import functions as F

    status = F.lit(UNDER_WAY)
    for state, word in STATUS.items():
        status = F.when(F.col("state") == state, word).otherwise(status)
    went = F.col("direction") == "out"
    return (
        of_partner(inputs, parameters)["messages"]
        .where((F.length("message_id") > 0) & (~went | F.col("first_sent_at").isNotNull()))
        .select(
            "message_id",
            "direction",
            F.when(went, F.col("first_sent_at")).otherwise(F.col("created_at")).alias("at"),
            F.coalesce("digest", F.lit("")).alias("digest"),
            status.alias("status"),
            "sequence_number",
        )
    )


def of_partner(inputs: Mapping[str, DataFrame], parameters: Mapping[str, Any]) -> dict[str, DataFrame]:
    """The inputs with the messages of one partner (`party`), and of one agreement (`agreement`) where it is named.

    Messages, pairs and agreements must be there with the columns of `EXPORTED`.
    """
    from pyspark.sql import functions as F

    party = str(read_public_id("par", parameters["party"]))
    pairs = inputs["pairs"].where(F.col("partner_id") == party)
    messages = inputs["messages"].join(
        F.broadcast(pairs.select(F.col("id").alias("pair_id"))), on="pair_id", how="left_semi"
    )
    if parameters.get("agreement"):
        agreement = str(read_public_id("agr", parameters["agreement"]))
        versions = inputs["agreements"].where(F.col("agreement_id") == agreement)
        versions = versions.select(F.col("id").alias("agreement_version_id"))
        messages = messages.join(F.broadcast(versions), on="agreement_version_id", how="left_semi")
    return {**inputs, "messages": messages, "pairs": pairs}


def _parts(folder: Path) -> Iterator[pa.RecordBatch]:
    """What Spark wrote, in its order."""
    for part in sorted(folder.glob("part-*.parquet")):
        with pq.ParquetFile(part) as file:
            for batch in file.iter_batches(batch_size=_ROWS, columns=list(LOG_COLUMNS)):
                yield pa.Table.from_batches([batch]).select(LOG_COLUMNS).cast(LOG_SCHEMA).to_batches()[0]
