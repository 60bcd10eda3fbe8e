"""Logs that partners drop into a folder: `<lake>/partner-logs/inbox/<partner>/[<agreement>/]<file>`.

A folder is called like the party (its id or its name), one in it like an agreement (its id or TPAId). Write a log under
a name that begins with a dot or ends in .part or .tmp, and rename it when it is whole. What was taken is gone from the
folder; a copy of what cannot be taken lies in `<lake>/partner-logs/rejected`, beside a text that says why.

Partners write in these folders, at any moment: nothing in them is trusted. Folders and files are opened without
following links, relative to the folder that is open already; what was opened is what is judged, read and copied; and
nothing of the hub's is ever written in there, or under a name that a partner chose.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from django.conf import settings

from messaging.exceptions import ApplicationError, InvalidSubmission, WrongState
from messaging.journal.audit import Actor
from messaging.report_choices import LogState
from messaging.reports.services import partner_logs
from partners.models import Agreement, Party
from rmhub.ids import BadPublicId, read_public_id, uuid7

log = logging.getLogger(__name__)
FOLDER = Actor("drop folder")
# O_NONBLOCK: a pipe that somebody made here must not hold the process up.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Somebody may be writing still to what was changed a moment ago.
SETTLED_SECONDS = 5.0
_PART_SECONDS = 24 * 3600.0
_UNFINISHED = (".part", ".tmp", ".filepart", ".crdownload", ".swp")
_BLOCK = 1024 * 1024


class _Changing(Exception):
    """Somebody is writing to the file."""


@dataclass(frozen=True, slots=True)
class Taken:
    """One file of the folder: `log` and `run` are public ids, "" where there is none; `error` why it was put aside."""

    name: str
    log: str = ""
    run: str = ""
    error: str = ""


def inbox() -> Path:
    """The folder that is looked into."""
    return partner_logs.folder() / "inbox"


def rejected() -> Path:
    """The folder with copies of what could not be taken: the hub's own, partners do not write there."""
    return partner_logs.folder() / "rejected"


def take_from_folder(*, wall_time: float | None = None) -> list[Taken]:
    """Takes in what lies there complete, and asks for each log's comparison. Safe to run twice at once, and to die.

    `wall_time` is the present as files have it (seconds since 1970), for tests.
    """
    now = time.time() if wall_time is None else wall_time
    taken: list[Taken] = []
    try:
        top = os.open(inbox(), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return taken
    try:
        for party_name in _folders(top):
            with _entered(top, party_name) as party_folder:
                if party_folder is None:
                    continue
                taken += _take_all(party_folder, party_name, "", now)
                for agreement_name in _folders(party_folder):
                    with _entered(party_folder, agreement_name) as agreement_folder:
                        if agreement_folder is not None:
                            taken += _take_all(agreement_folder, party_name, agreement_name, now)
    finally:
        os.close(top)
    _sweep(now)
    return taken


def _take_all(folder: int, party_name: str, agreement_name: str, now: float) -> list[Taken]:
    taken = []
    for name in _whole(folder):
        try:
            source = os.fdopen(os.open(name, _FILE, dir_fd=folder), "rb")
        except OSError:
            continue  # taken by another process, or a link, or closed to us
        with source:
            if _is_settled(os.fstat(source.fileno()), now):
                taken.append(_take(source, folder, name, party_name, agreement_name))
    return taken


def _take(source: BinaryIO, folder: int, name: str, party_name: str, agreement_name: str) -> Taken:
    shown = partner_logs.clean_name(name)
    try:
        party = _party(party_name)
        agreement = _agreement(party, agreement_name)
        received = partner_logs.log_receive(
            party_id=party.pk,
            agreement_id=agreement.pk if agreement else None,
            chunks=_unchanged(source),
            filename=shown,
            actor=FOLDER,
        )
    except _Changing:
        return Taken(shown)  # not whole yet: the next look finds it
    except ApplicationError as error:
        return _put_aside(source, folder, name, error, party_name)
    run = ""
    # Also when it was there before: whoever took it in may have died before asking for the comparison.
    if received.log.state == LogState.RECEIVED:
        try:
            run = partner_logs.log_reconcile(log_id=received.log.pk, actor=FOLDER).public_id
        except (WrongState, InvalidSubmission) as error:
            log.info("log was not compared", extra={"log": received.log.public_id, "why": error.detail})
    _remove(folder, name)
    log.info(
        "partner's log taken from the drop folder",
        extra={"action": "partner_log_taken", "log": received.log.public_id, "run": run, "file": shown},
    )
    return Taken(shown, received.log.public_id, run)


def _party(name: str) -> Party:
    try:
        found = Party.objects.filter(pk=read_public_id("par", name)).first()
    except BadPublicId:
        found = Party.objects.filter(name=_utf8(name), is_own=False).first()
    if found is None:
        raise InvalidSubmission({"party": [f"The folder {name} is called like no partner, by id or name."]})
    return found


def _agreement(party: Party, name: str) -> Agreement | None:
    """The agreement of a folder in the party's; None for a log of all that is exchanged with them."""
    if not name:
        return None
    theirs = Agreement.objects.filter(partner=party)
    try:
        found = theirs.filter(pk=read_public_id("agr", name)).first()
    except BadPublicId:
        found = theirs.filter(tpa_id=_utf8(name)).first()
    if found is None:
        raise InvalidSubmission({"agreement": [f"The folder {name} is called like no agreement, by id or TPAId."]})
    return found


def _utf8(name: str) -> str:
    """The name of a folder, which may be any bytes. Raises InvalidSubmission for one that is not text."""
    try:
        name.encode()
    except UnicodeEncodeError as error:
        shown = partner_logs.clean_name(name)
        raise InvalidSubmission({"folder": [f"The name of the folder {shown} is not UTF-8."]}) from error
    return name


def _unchanged(source: BinaryIO) -> Iterator[bytes]:
    """The file in blocks. Raises _Changing when somebody wrote to it meanwhile."""
    before = os.fstat(source.fileno())
    yield from iter(lambda: source.read(_BLOCK), b"")
    after = os.fstat(source.fileno())
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise _Changing


def _put_aside(source: BinaryIO, folder: int, name: str, error: ApplicationError, party_name: str) -> Taken:
    """Copies what was read to a folder of the hub's own, under a name of the hub's; the partner's file goes."""
    shown = partner_logs.clean_name(name)
    place = rejected()
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    target = place / f"{uuid7().hex}.log"
    source.seek(0)
    with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as copy:
        left = settings.RMHUB_PARTNER_LOG_MAX_BYTES
        while left > 0 and (block := source.read(min(_BLOCK, left))):
            copy.write(block)
            left -= len(block)
    where = f"{partner_logs.clean_name(party_name)}: {shown}"
    with open(os.open(target.with_suffix(".txt"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as text:
        text.write(f"{where}\n{error.detail}\n".encode(errors="replace"))
    _remove(folder, name)
    log.warning(
        "partner's log put aside",
        extra={"action": "partner_log_rejected", "file": str(target), "name_given": where, "why": error.detail},
    )
    return Taken(shown, error=error.detail)


def _remove(folder: int, name: str) -> None:
    # Where it was renamed or became a folder meanwhile, the next look judges what lies there.
    with contextlib.suppress(FileNotFoundError, IsADirectoryError):
        os.unlink(name, dir_fd=folder)


@contextmanager
def _entered(above: int, name: str) -> Iterator[int | None]:
    """A real folder in an open one; None for what a link leads to, and what is gone."""
    try:
        handle = os.open(name, _FOLDER, dir_fd=above)
    except OSError:
        yield None
        return
    try:
        yield handle
    finally:
        os.close(handle)


def _folders(place: int) -> list[str]:
    with os.scandir(place) as entries:
        found = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    return sorted(name for name in found if not name.startswith("."))


def _whole(place: int) -> list[str]:
    """Names of files that nobody is writing to, by their names."""
    with os.scandir(place) as entries:
        found = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
    return sorted(name for name in found if not name.startswith(".") and not name.lower().endswith(_UNFINISHED))


def _is_settled(state: os.stat_result, now: float) -> bool:
    """A plain file that nobody changed a moment ago, and that has no second name: that may be anybody's file."""
    return stat.S_ISREG(state.st_mode) and state.st_nlink == 1 and now - state.st_mtime >= SETTLED_SECONDS


def _sweep(now: float) -> None:
    """What a process that died left of a log that it was taking in."""
    for file in (partner_logs.folder() / "incoming").glob("*.part"):
        try:
            if now - file.stat().st_mtime > _PART_SECONDS:
                file.unlink()
        except FileNotFoundError:
            continue
