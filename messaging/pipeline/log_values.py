"""The values of a partner's log, a block of rows at a time: what each column may hold, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

MAX_MESSAGE_ID = 512
MAX_STATUS = 40
_SHOWN = 20
_INSTANT = pa.timestamp("us", "UTC")
_TEXTS = (
    pa.types.is_null,
    pa.types.is_integer,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
)
_OCTETS = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
_FORMULA = r"^(['=+\-@\t\r])"
_ESCAPED = r"^'(['=+\-@\t\r])"
_DATE = r"^\d{4}-\d\d-\d\d"
_NAIVE = _DATE + r"([T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?)?$"
_ZONED = _DATE + r"[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d(:?\d\d)?)$"
_EPOCH = r"^([1-8]?\d{1,18}|\d{1,12}\.\d{1,9})$"


class TooManyFaults(Exception):
    """There are more than `Faults.most`."""


@dataclass(slots=True)
class Faults:
    """Rows that cannot be read: how many, and where the first ones are."""

    most: int
    count: int = 0
    first: list[tuple[int, str]] = field(default_factory=list)

    def add(self, row: int, what: str) -> None:
        """Raises TooManyFaults."""
        self.note(row, what)
        if self.too_many:
            raise TooManyFaults

    def note(self, row: int, what: str) -> None:
        """The same where nothing can be raised: in what Arrow calls."""
        self.count += 1
        if len(self.first) < _SHOWN:
            self.first.append((row, what))

    @property
    def too_many(self) -> bool:
        return self.count > self.most

    def sentences(self) -> list[str]:
        """`row 17: ...`, by row."""
        return [f"row {row:,}: {what}" for row, what in sorted(self.first)]


@dataclass(frozen=True, slots=True)
class Rules:
    """What the partner writes for what they sent and received (lower case); or that all rows are one of these."""

    sent: frozenset[str]
    received: frozenset[str]
    direction_is: str = ""


def read(
    columns: Mapping[str, pa.Array], rules: Rules, faults: Faults, number_of: Callable[[int], int]
) -> pa.RecordBatch:
    """The rows that can be read, in our columns and from our side; the others are added to the faults."""
    reader = _Reader(len(columns["message_id"]))
    message_id = reader.text("message_id", columns)
    reader.refuse(pc.equal(message_id, ""), lambda i: "the MessageId is empty")
    long = pc.greater(pc.utf8_length(message_id), MAX_MESSAGE_ID)
    reader.refuse(long, lambda i: f"the MessageId has more than {MAX_MESSAGE_ID} characters")
    reader.refuse(
        pc.match_substring_regex(message_id, r"[\x00-\x1f\x7f]"), lambda i: "the MessageId has a control character"
    )
    made = {
        "message_id": message_id,
        "direction": reader.direction(columns, rules),
        "at": reader.instant(columns),
        "digest": reader.digest(columns),
        "status": pc.utf8_slice_codeunits(
            pc.replace_substring_regex(pc.utf8_lower(reader.text("status", columns)), r"[\x00-\x1f\x7f]", " "),
            0,
            MAX_STATUS,
        ),
        "sequence_number": reader.number(columns),
    }
    for index, what in sorted(reader.wrong.items()):
        faults.add(number_of(index), what)
    batch = pa.RecordBatch.from_arrays(list(made.values()), names=list(made))
    if reader.wrong:
        batch = batch.filter(pa.array([index not in reader.wrong for index in range(reader.rows)]))
    return batch


def unescaped(values: pa.Array) -> pa.Array:
    """Cells of a CSV file without the apostrophe that stands before what a spreadsheet would take for a formula."""
    return pc.replace_substring_regex(values, _ESCAPED, r"\1")


def as_text(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch as the cells of a CSV file: times as ISO 8601 in UTC, nothing for null, formulas made harmless."""
    cells = []
    for column in batch.columns:
        if pa.types.is_timestamp(column.type):
            text = pc.binary_join_element_wise(pc.strftime(column, "%Y-%m-%dT%H:%M:%S"), "Z", "")
        else:
            text = pc.cast(column, pa.string())
        cells.append(pc.fill_null(pc.replace_substring_regex(text, _FORMULA, r"'\1"), ""))
    return pa.RecordBatch.from_arrays(cells, schema=schema)


class _Reader:
    """The columns of one block, and by index what is wrong with a row: the first thing that is."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.wrong: dict[int, str] = {}

    def refuse(self, mask: pa.Array, what: Callable[[int], str]) -> None:
        if pc.any(mask).as_py():
            for index in pc.indices_nonzero(pc.fill_null(mask, False)).to_pylist():
                self.wrong.setdefault(index, what(index))

    def text(self, name: str, columns: Mapping[str, pa.Array]) -> pa.Array:
        """Trimmed texts, "" where there is none. Whole numbers are taken for texts."""
        values = columns.get(name)
        if values is None:
            return pa.array([""] * self.rows, pa.string())
        if pa.types.is_dictionary(values.type):
            values = values.cast(values.type.value_type)
        kind = values.type
        if any(is_kind(kind) for is_kind in _TEXTS):
            values = values.cast(pa.string())
        elif any(is_kind(kind) for is_kind in _OCTETS):
            values = self._decoded(name, values)
        else:
            raise pa.ArrowInvalid(f"the column of {name} has the type {kind}: write it as text")
        return pc.utf8_trim_whitespace(pc.fill_null(values, ""))

    def _decoded(self, name: str, values: pa.Array) -> pa.Array:
        try:
            return values.cast(pa.binary()).cast(pa.string())
        except pa.ArrowInvalid:
            decoded = []
            for index, octets in enumerate(values.to_pylist()):
                try:
                    decoded.append((octets or b"").decode())
                except UnicodeDecodeError as error:
                    decoded.append("")
                    self.wrong.setdefault(index, f"{name} has the byte 0x{octets[error.start]:02x}, which is not UTF-8")
            return pa.array(decoded, pa.string())

    def direction(self, columns: Mapping[str, pa.Array], rules: Rules) -> pa.Array:
        """What the partner sent came in here; what they received went out."""
        if rules.direction_is:
            return pa.array(["in" if rules.direction_is == "sent" else "out"] * self.rows, pa.string())
        said = self.text("direction", columns)
        plain = pc.utf8_lower(said)
        sent = pc.is_in(plain, pa.array(sorted(rules.sent), pa.string()))
        received = pc.is_in(plain, pa.array(sorted(rules.received), pa.string()))
        self.refuse(
            pc.invert(pc.or_(sent, received)),
            lambda i: f"the direction {_quoted(said[i])} means neither sent nor received",
        )
        return pc.if_else(sent, "in", "out")

    def digest(self, columns: Mapping[str, pa.Array]) -> pa.Array:
        """SHA-256, 64 hexadecimal digits, lower case; "sha256:" in front is taken away."""
        said = self.text("digest", columns)
        plain = pc.replace_substring_regex(pc.utf8_lower(said), r"^sha-?256[:=]", "")
        self.refuse(
            pc.invert(pc.match_substring_regex(plain, r"^([0-9a-f]{64})?$")),
            lambda i: f"the digest {_quoted(said[i])} is not a SHA-256 of 64 hexadecimal digits",
        )
        return plain

    def number(self, columns: Mapping[str, pa.Array]) -> pa.Array:
        said = self.text("sequence_number", columns)
        good = pc.match_substring_regex(said, r"^\d{1,18}$")
        self.refuse(
            pc.and_(pc.invert(good), pc.not_equal(said, "")),
            lambda i: f"the sequence number {_quoted(said[i])} is not a whole number",
        )
        return pc.if_else(good, said, pa.scalar(None, pa.string())).cast(pa.int64())

    def instant(self, columns: Mapping[str, pa.Array]) -> pa.Array:
        """ISO 8601 with a zone, or without (UTC); seconds, milli-, micro- or nanoseconds since 1970."""
        values = columns.get("at")
        if values is not None and pa.types.is_timestamp(values.type):
            return values.cast(pa.timestamp("us", values.type.tz), safe=False).cast(_INSTANT)
        if values is not None and pa.types.is_date(values.type):
            return values.cast(pa.timestamp("us")).cast(_INSTANT)
        said = self.text("at", columns)
        found = _instants(_usual(said))
        self.refuse(
            pc.and_(pc.is_null(found), pc.not_equal(said, "")),
            lambda i: f"the time {_quoted(said[i])} cannot be read: write it like 2026-01-31T12:00:00Z",
        )
        return found


def _usual(said: pa.Array) -> pa.Array:
    """Times with Z for UTC, a point, at most six digits of a second, and no blank before the zone."""
    text = pc.utf8_upper(said)
    for pattern, instead in ((r" ?(UTC|GMT)$", "Z"), (r",", "."), (r" ([+-])", r"\1"), (r"(:\d\d\.\d{6})\d+", r"\1")):
        text = pc.replace_substring_regex(text, pattern, instead)
    return text


def _instants(text: pa.Array) -> pa.Array:
    """Null for what is no time."""
    nothing = pa.scalar(None, pa.string())
    zoned = _timestamps(pc.if_else(pc.match_substring_regex(text, _ZONED), text, nothing), _INSTANT)
    naive = _timestamps(pc.if_else(pc.match_substring_regex(text, _NAIVE), text, nothing), pa.timestamp("us"))
    epoch = _epochs(pc.if_else(pc.match_substring_regex(text, _EPOCH), text, nothing))
    return pc.coalesce(zoned, naive.cast(_INSTANT), epoch)


def _timestamps(text: pa.Array, kind: pa.DataType) -> pa.Array:
    if text.null_count == len(text):
        return pa.nulls(len(text), kind)
    try:
        return text.cast(kind)
    except pa.ArrowInvalid:  # the 31st of February, the 25th hour: then one by one
        return pa.array([_one(value, kind) for value in text.to_pylist()], kind)


def _one(text: str | None, kind: pa.DataType) -> datetime | None:
    try:
        return pa.scalar(text).cast(kind).as_py() if text is not None else None
    except pa.ArrowInvalid:
        return None


def _epochs(text: pa.Array) -> pa.Array:
    if text.null_count == len(text):
        return pa.nulls(len(text), _INSTANT)
    parts = pc.split_pattern(text, ".", max_splits=1)
    whole = pc.list_element(parts, 0).cast(pa.int64())
    parted = pc.match_substring(text, ".")
    exact = pc.if_else(parted, text, "0").cast(pa.float64())
    rest = pc.subtract(exact, pc.if_else(parted, whole, 0).cast(pa.float64()))
    fraction = pc.round(pc.multiply(rest, 1e6)).cast(pa.int64())
    # By size: seconds until the year 5138, milliseconds from 1973, and so on.
    micros = pc.case_when(
        pc.make_struct(
            pc.less(whole, 10**11), pc.less(whole, 10**14), pc.less(whole, 10**17), field_names=["s", "ms", "us"]
        ),
        pc.add(pc.multiply(_below(whole, 10**11), 1_000_000), fraction),
        pc.multiply(_below(whole, 10**14), 1_000),
        whole,
        pc.divide(whole, 1_000),
    )
    return micros.cast(pa.timestamp("us")).cast(_INSTANT)


def _below(values: pa.Array, bound: int) -> pa.Array:
    """What is multiplied: nothing that another unit is meant for, so that nothing overflows."""
    return pc.if_else(pc.less(values, bound), values, 0)


def _quoted(value: Any) -> str:
    text = str(value)
    return f"“{text[:40]}{'…' if len(text) > 40 else ''}”"


def described(values: Sequence[datetime]) -> str:
    """Instants in UTC for a sentence."""
    return " to ".join(f"{value.astimezone(UTC):%Y-%m-%d %H:%M}" for value in values)
