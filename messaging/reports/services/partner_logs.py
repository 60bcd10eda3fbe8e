"""Partners' logs come in (console, API, drop folder) and are compared with ours when somebody asks for it.

A log is written to the lake's folder first, whole and synced, and entered after that: an entered log always has its
file. The same bytes from the same partner are one log, however often they come.
"""

from __future__ import annotations

import codecs
import csv
import hashlib
import io
import os
import re
import tempfile
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils.translation import gettext as _

from messaging.exceptions import InvalidSubmission, TooLarge
from messaging.journal import audit
from messaging.journal.audit import Actor
from messaging.models import PartnerLog, PipelineRun
from messaging.models.base import existing
from messaging.report_choices import LogState, PipelineJob, RunState
from messaging.reports.services import runs as pipeline_runs
from messaging.storage import synchronise
from partners import log_columns
from partners.models import Agreement, Party
from rmhub import clock
from rmhub.ids import uuid7
from rmhub.language import gettext_lazy, number

FOLDER = "partner-logs"
_UNCLEAN = re.compile(r"[\x00-\x1f\x7f/\\\ud800-\udfff]+")


@dataclass(frozen=True, slots=True)
class Received:
    """`created` is False when the partner's log was there before. `problems` keep it from being compared as it is."""

    log: PartnerLog
    created: bool
    problems: tuple[str, ...] = ()


def folder() -> Path:
    """Where logs of partners lie."""
    return Path(settings.RMHUB_LAKE_DIR) / FOLDER


def path_of(log: PartnerLog) -> Path:
    """The log's file."""
    return Path(settings.RMHUB_LAKE_DIR) / log.path


def log_receive(
    *,
    party_id: uuid.UUID,
    chunks: Iterable[bytes],
    filename: str,
    actor: Actor,
    agreement_id: uuid.UUID | None = None,
    columns: Mapping[str, Any] | None = None,
    range_from: datetime | None = None,
    range_to: datetime | None = None,
    strict: bool = True,
    reason: str = "",
) -> Received:
    """Takes a log in. `columns` is its mapping (partners.log_columns); None = what agreements say.

    With `strict`, a mapping that does not fit the header is refused; without, the log is kept and `problems` says what
    to map. A partner's log that is there already is answered as it is. Raises InvalidSubmission by field, TooLarge.
    """
    party, agreement = _whose(party_id, agreement_id)
    check_range(range_from, range_to)
    mapping = _default_mapping(party, agreement) if columns is None else _checked(columns)
    number = uuid7()
    incoming, size, digest = _written(chunks)
    try:
        known = PartnerLog.objects.filter(party=party, sha256=digest).first()
        if known is not None:
            return Received(known, created=False, problems=fit(known))
        head = read_head(incoming)
        problems = _fit(head, mapping)
        if problems and strict:
            raise InvalidSubmission({"columns": list(problems)})
        place = f"{FOLDER}/{party.public_id}/{number.hex}.{head.format}"
        target = Path(settings.RMHUB_LAKE_DIR) / place
        target.parent.mkdir(parents=True, exist_ok=True)
        with transaction.atomic():
            entered = PartnerLog(
                id=number,
                party=party,
                agreement=agreement,
                source=actor.interface,
                filename=clean_name(filename),
                path=place,
                format=head.format,
                size=size,
                sha256=digest,
                columns=mapping,
                range_from=range_from,
                range_to=range_to,
                uploaded_by=actor.name[:150],
                created_at=clock.now(),
            )
            made = PartnerLog.objects.bulk_create([entered], ignore_conflicts=True)
            log = PartnerLog.objects.get(party=party, sha256=digest)
            if log.pk != number:  # the same bytes came by another way at the same moment
                return Received(log, created=False, problems=fit(log))
            os.replace(incoming, target)
            synchronise(target.parent)
            after = {"party": party.name, "size": size, "sha256": digest, "columns": mapping}
            audit.record(actor, "partner_log.receive", made[0], reason=reason, after=after)
        return Received(log, created=True, problems=problems)
    finally:
        incoming.unlink(missing_ok=True)


def log_reconcile(
    *,
    log_id: uuid.UUID,
    actor: Actor,
    reason: str = "",
    columns: Mapping[str, Any] | None = None,
    covers: tuple[datetime | None, datetime | None] | None = None,
    skip_unreadable: bool = False,
) -> PipelineRun:
    """Asks for the comparison with our log; what is given (mapping, range) is kept with the log.

    `covers`: what the log covers, None at an end for its first or last row; without it the range stays, unless another
    column gives the times. `skip_unreadable` compares without the rows that cannot be read; otherwise one of them fails
    the run. Raises NotFound, InvalidSubmission by field, WrongState while a comparison of this log waits or runs.
    """
    if covers is not None:
        check_range(*covers)
    with transaction.atomic():
        log = existing(PartnerLog.objects.select_for_update(of=("self",)), log_id)
        before = _described(log)
        if columns is not None:
            mapping = _checked(columns)
            if mapping.get("at") != log.columns.get("at") and log.rows is not None:
                log.range_from = log.range_to = None
            log.columns = mapping
        if covers is not None:
            log.range_from, log.range_to = covers
        if problems := fit(log):
            raise InvalidSubmission({"columns": list(problems)})
        log.save(update_fields=["columns", "range_from", "range_to"])
        run = pipeline_runs.run_request(
            job=PipelineJob.RECONCILE,
            actor=actor,
            parameters={"log": log.public_id, "skip_unreadable": skip_unreadable},
            range_from=log.range_from,
            range_to=log.range_to,
            scope=log.public_id,
            reason=reason,
        )
        after = {**_described(log), "run": run.public_id}
        audit.record(actor, "partner_log.reconcile", log, reason=reason, before=before, after=after)
    return run


def export_request(
    *,
    party_id: uuid.UUID,
    actor: Actor,
    agreement_id: uuid.UUID | None = None,
    range_from: datetime | None = None,
    range_to: datetime | None = None,
    reason: str = "",
) -> PipelineRun:
    """Asks for our own log of what was exchanged with a partner, as CSV and Parquet to download from the run.

    Raises InvalidSubmission by field, WrongState while one for this partner waits or runs.
    """
    party, agreement = _whose(party_id, agreement_id)
    check_range(range_from, range_to)
    parameters = {"party": party.public_id}
    if agreement is not None:
        parameters["agreement"] = agreement.public_id
    return pipeline_runs.run_request(
        job=PipelineJob.EXPORT,
        actor=actor,
        parameters=parameters,
        range_from=range_from,
        range_to=range_to,
        scope=(agreement or party).public_id,
        reason=reason,
    )


def log_read(log: PartnerLog, run: PipelineRun, *, rows: int, range_from: datetime, range_to: datetime) -> None:
    """The run has read the log: so many rows, and what it covers, also where nobody said so."""
    log.rows, log.range_from, log.range_to = rows, range_from, range_to
    run.range_from, run.range_to = range_from, range_to
    with transaction.atomic():
        log.save(update_fields=["rows", "range_from", "range_to"])
        mine = PipelineRun.objects.filter(pk=run.pk, claim=run.claim, state=RunState.RUNNING)
        mine.update(range_from=range_from, range_to=range_to)


def log_ended(log: PartnerLog, *, error: str = "") -> None:
    """The comparison came to its end: with a result, or with a sentence that says why there is none."""
    log.state = LogState.FAILED if error else LogState.RECONCILED
    log.error = error
    log.save(update_fields=["state", "error"])


def fit(log: PartnerLog) -> tuple[str, ...]:
    """What keeps the log from being compared with the mapping that it has; nothing for Parquet before it is read."""
    try:
        return _fit(read_head(path_of(log)), log.columns)
    except InvalidSubmission as error:
        return tuple(sentence for sentences in error.errors.values() for sentence in sentences)
    except OSError:
        return (_("The log's file is not in the lake's folder any more: send the log again."),)


def check_range(range_from: datetime | None, range_to: datetime | None) -> None:
    """Raises InvalidSubmission for a range that ends before it begins."""
    if range_from is not None and range_to is not None and range_from >= range_to:
        raise InvalidSubmission({"range_to": [_("It must be later than the beginning of the range.")]})


def _fit(head: Head, mapping: Mapping[str, Any]) -> tuple[str, ...]:
    if head.format == PARQUET:
        return ()
    return tuple(log_columns.located(mapping, head.columns)[1])


def _default_mapping(party: Party, agreement: Agreement | None) -> dict[str, Any]:
    """That of the agreement; for a log of all agreements, the one that all of theirs that have one share."""
    if agreement is not None:
        return dict(agreement.log_columns)
    mapped = Agreement.objects.filter(partner=party).exclude(log_columns={}).order_by("tpa_id")
    found: list[dict[str, Any]] = list(mapped.values_list("log_columns", flat=True))
    return dict(found[0]) if found and all(one == found[0] for one in found) else {}


def _checked(columns: Mapping[str, Any]) -> dict[str, Any]:
    if faults := log_columns.faults(columns):
        raise InvalidSubmission({"columns": faults})
    return log_columns.cleaned(columns)


def _whose(party_id: uuid.UUID, agreement_id: uuid.UUID | None) -> tuple[Party, Agreement | None]:
    """The partner and, where it is named, the agreement. Raises InvalidSubmission."""
    party = Party.objects.filter(pk=party_id).first()
    if party is None:
        raise InvalidSubmission({"party": [_("There is no such party.")]})
    if party.is_own:
        raise InvalidSubmission(
            {"party": [_("{party} is ours: a log is compared that a partner wrote.").format(party=party)]}
        )
    if agreement_id is None:
        return party, None
    agreement = Agreement.objects.filter(pk=agreement_id).first()
    if agreement is None:
        raise InvalidSubmission({"agreement": [_("There is no such agreement.")]})
    if agreement.partner_id != party.pk:
        raise InvalidSubmission(
            {"agreement": [_("{agreement} is not an agreement with {party}.").format(agreement=agreement, party=party)]}
        )
    return party, agreement


def _written(chunks: Iterable[bytes]) -> tuple[Path, int, str]:
    """(file, bytes, SHA-256) of what comes in, written durably under a passing name. Raises TooLarge."""
    most = settings.RMHUB_PARTNER_LOG_MAX_BYTES
    incoming = folder() / "incoming"
    incoming.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=incoming, suffix=".part")
    size, digest = 0, hashlib.sha256()
    try:
        with os.fdopen(handle, "wb") as file:
            for chunk in chunks:
                size += len(chunk)
                if size > most:
                    raise TooLarge(
                        too_large(most),
                        code="body_too_large",
                    )
                digest.update(chunk)
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return Path(temporary), size, digest.hexdigest()


def too_large(most: int) -> str:
    """What is said of a log that has more bytes than may come."""
    return _("The log is larger than {most} bytes: send it in parts, one for each month perhaps.").format(
        most=number(most)
    )


def _described(log: PartnerLog) -> dict[str, Any]:
    return {
        "columns": log.columns,
        "range_from": log.range_from.isoformat() if log.range_from else None,
        "range_to": log.range_to.isoformat() if log.range_to else None,
        "state": log.state,
    }


def clean_name(filename: str) -> str:
    """A name that a partner gave a file or folder, as it may be stored and shown: never one to write under."""
    return _UNCLEAN.sub("_", filename.strip())[-255:] or "log"


# --- The beginning of a partner's log: what kind of file it is, its columns and first rows, read without Arrow.
#
# Whether every row can be read is found out when the log is compared (`messaging.pipeline.partner_logs`).

CSV, PARQUET = "csv", "parquet"
HEAD_BYTES = 1024 * 1024
MAX_FIELD = 128 * 1024
MAX_COLUMNS = 1000
DELIMITERS = (",", ";", "\t", "|")
_MAGIC = b"PAR1"
_KINDS = (
    (b"PK\x03\x04", gettext_lazy("It is a ZIP archive or a spreadsheet: send the log itself, as CSV or Parquet.")),
    (
        b"\x1f\x8b",
        gettext_lazy("It is compressed with gzip: unpack it, or send Parquet, which is compressed in itself."),
    ),
    (
        b"\x28\xb5\x2f\xfd",
        gettext_lazy("It is compressed with zstd: unpack it, or send Parquet, which is compressed in itself."),
    ),
    (b"\xff\xfe", gettext_lazy("It is encoded in UTF-16: save it as UTF-8.")),
    (b"\xfe\xff", gettext_lazy("It is encoded in UTF-16: save it as UTF-8.")),
    (b"PARE", gettext_lazy("The Parquet file is encrypted: send it without encryption.")),
)


@dataclass(frozen=True, slots=True)
class Head:
    """`columns` as the header has them; empty for Parquet, whose columns stand at its end in a form of its own."""

    format: str
    delimiter: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


def read_head(path: Path, *, rows: int = 0) -> Head:
    """The head of a log, with so many of its first rows. Raises InvalidSubmission, with a sentence under `file`."""
    with path.open("rb") as file:
        begin = file.read(HEAD_BYTES)
        size = path.stat().st_size
        if not begin:
            raise refused(_("The file is empty: nothing can be compared with it."))
        if begin.startswith(_MAGIC):
            file.seek(max(0, size - 4))
            if size < 12 or file.read(4) != _MAGIC:
                raise refused(_("The Parquet file is not complete: its end is missing. Send it again."))
            return Head(PARQUET)
    for mark, sentence in _KINDS:
        if begin.startswith(mark):
            raise refused(str(sentence))
    return _csv_head(_text(begin, whole=size <= HEAD_BYTES), rows, whole=size <= HEAD_BYTES)


def refused(sentence: str) -> InvalidSubmission:
    """The error for a file that is no log."""
    return InvalidSubmission({"file": [sentence]})


def _text(begin: bytes, *, whole: bool) -> str:
    if b"\x00" in begin:
        place = begin.index(b"\x00")
        said = _("There is a zero byte at position {place}: this is not text. Send CSV in UTF-8, or Parquet.")
        raise refused(said.format(place=place))
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(begin, final=whole)
    except UnicodeDecodeError as error:
        line = begin.count(b"\n", 0, error.start) + 1
        said = _(
            "The byte {byte} in line {line} is not UTF-8: the file has another encoding (Windows-1252 or ISO 8859-1, "
            "perhaps). Save it as UTF-8."
        )
        raise refused(said.format(byte=f"0x{begin[error.start]:02x}", line=line)) from error
    return text.removeprefix("\ufeff")


def _csv_head(text: str, rows: int, *, whole: bool) -> Head:
    delimiter = _delimiter(text)
    lines = _lines(text, delimiter, rows + 1, whole=whole)
    if not lines:
        raise refused(_("The file holds no line with text: nothing can be compared with it."))
    columns = tuple(name.strip() for name in lines[0])
    if len(columns) > MAX_COLUMNS:
        said = _("The first line has {count} columns, and {most} are the most. Is it CSV?")
        raise refused(said.format(count=len(columns), most=MAX_COLUMNS))
    return Head(CSV, delimiter, columns, tuple(tuple(cell[:200] for cell in line) for line in lines[1:]))


def _delimiter(text: str) -> str:
    """The character that the first line has most often outside of quotes; a comma where it has none."""
    counts = dict.fromkeys(DELIMITERS, 0)
    quoted = begun = False
    for character in text:
        if character == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif character in "\r\n":
            if begun:
                break
        elif character in counts:
            counts[character] += 1
        begun = begun or not character.isspace()
    return max(DELIMITERS, key=lambda character: counts[character])


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
            said = _("The first line cannot be read as CSV ({why}): is a quotation mark left open?")
            raise refused(said.format(why=error)) from error
    finally:
        csv.field_size_limit(before)
    if not found and not whole:
        said = _("The first line is longer than {count} KiB: this is no CSV with a header.")
        raise refused(said.format(count=HEAD_BYTES // 1024))
    return found
