"""The beginning of a partner's log: what kind of file it is, its columns and first rows, read without Arrow.

Whether every row can be read is found out when the log is compared (`messaging.pipeline.partner_logs`).
"""

from __future__ import annotations

import codecs
import csv
import io
from dataclasses import dataclass
from pathlib import Path

from messaging.exceptions import InvalidSubmission

CSV, PARQUET = "csv", "parquet"
HEAD_BYTES = 1024 * 1024
MAX_FIELD = 128 * 1024
MAX_COLUMNS = 1000
DELIMITERS = (",", ";", "\t", "|")
_MAGIC = b"PAR1"
_KINDS = (
    (b"PK\x03\x04", "It is a ZIP archive or a spreadsheet: send the log itself, as CSV or Parquet."),
    (b"\x1f\x8b", "It is compressed with gzip: unpack it, or send Parquet, which is compressed in itself."),
    (b"\x28\xb5\x2f\xfd", "It is compressed with zstd: unpack it, or send Parquet, which is compressed in itself."),
    (b"\xff\xfe", "It is encoded in UTF-16: save it as UTF-8."),
    (b"\xfe\xff", "It is encoded in UTF-16: save it as UTF-8."),
    (b"PARE", "The Parquet file is encrypted: send it without encryption."),
)


@dataclass(frozen=True, slots=True)
class Head:
    """`columns` as the header has them; empty for Parquet, whose columns stand at its end in a form of its own."""

    format: str
    delimiter: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


def head(path: Path, *, rows: int = 0) -> Head:
    """The head of a log, with so many of its first rows. Raises InvalidSubmission, with a sentence under `file`."""
    with path.open("rb") as file:
        begin = file.read(HEAD_BYTES)
        size = path.stat().st_size
        if not begin:
            raise refused("The file is empty: nothing can be compared with it.")
        if begin.startswith(_MAGIC):
            file.seek(max(0, size - 4))
            if size < 12 or file.read(4) != _MAGIC:
                raise refused("The Parquet file is not complete: its end is missing. Send it again.")
            return Head(PARQUET)
    for mark, sentence in _KINDS:
        if begin.startswith(mark):
            raise refused(sentence)
    return _csv_head(_text(begin, whole=size <= HEAD_BYTES), rows, whole=size <= HEAD_BYTES)


def refused(sentence: str) -> InvalidSubmission:
    """The error for a file that is no log."""
    return InvalidSubmission({"file": [sentence]})


def _text(begin: bytes, *, whole: bool) -> str:
    if b"\x00" in begin:
        place = begin.index(b"\x00")
        raise refused(f"There is a zero byte at position {place}: this is no text. Send CSV in UTF-8, or Parquet.")
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(begin, final=whole)
    except UnicodeDecodeError as error:
        line = begin.count(b"\n", 0, error.start) + 1
        raise refused(
            f"The byte 0x{begin[error.start]:02x} in line {line} is no UTF-8: the file has another encoding "
            "(Windows-1252 or ISO 8859-1, perhaps). Save it as UTF-8."
        ) from error
    return text.removeprefix("\ufeff")


def _csv_head(text: str, rows: int, *, whole: bool) -> Head:
    delimiter = _delimiter(text)
    lines = _lines(text, delimiter, rows + 1, whole=whole)
    if not lines:
        raise refused("The file holds no line with text: nothing can be compared with it.")
    columns = tuple(name.strip() for name in lines[0])
    if len(columns) > MAX_COLUMNS:
        raise refused(f"The first line has {len(columns)} columns, and {MAX_COLUMNS} are the most. Is it CSV?")
    return Head(CSV, delimiter, columns, tuple(tuple(cell[:200] for cell in line) for line in lines[1:]))


def _delimiter(text: str) -> str:
    """The sign that the first line has most often outside of quotes; a comma where it has none."""
    counts = dict.fromkeys(DELIMITERS, 0)
    quoted = begun = False
    for sign in text:
        if sign == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif sign in "\r\n":
            if begun:
                break
        elif sign in counts:
            counts[sign] += 1
        begun = begun or not sign.isspace()
    return max(DELIMITERS, key=lambda sign: counts[sign])


def _lines(text: str, delimiter: str, wanted: int, *, whole: bool) -> list[list[str]]:
    """The first lines that hold something; one that the head cuts in two is left out."""
    found: list[list[str]] = []
    before = csv.field_size_limit(MAX_FIELD)
    try:
        source = io.StringIO(text, newline="")
        reader = csv.reader(source, delimiter=delimiter, strict=True)
        for line in reader:
            if not whole and source.tell() >= len(text):
                break
            if any(cell.strip() for cell in line):
                found.append(line)
            if len(found) == wanted:
                break
    except csv.Error as error:
        if not found:
            raise refused(f"The first line cannot be read as CSV ({error}): is a quotation mark left open?") from error
    finally:
        csv.field_size_limit(before)
    if not found and not whole:
        raise refused(f"The first line is longer than {HEAD_BYTES // 1024} KiB: this is no CSV with a header.")
    return found
