"""Logs that partners drop into a folder: `<lake>/partner-logs/inbox/<partner>/[<agreement>/]<file>`.

A folder is called like the party (its id or its name), one in it like an agreement (its id or TPAId). Write a log under
a name that begins with a dot or ends in .part or .tmp, and rename it when it is whole. What was taken is gone from the
folder; what cannot be taken lies in `rejected` beside a text that says why.
"""

from __future__ import annotations

import logging
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from messaging.exceptions import ApplicationError, InvalidSubmission, WrongState
from messaging.report_choices import LogState
from messaging.services import partner_logs
from messaging.services.audit import Actor
from partners.models import Agreement, Party
from rmhub.ids import BadPublicId, read_public_id

log = logging.getLogger(__name__)
FOLDER = Actor("drop folder")
REJECTED = "rejected"
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


def take_from_folder(*, wall_time: float | None = None) -> list[Taken]:
    """Takes in what lies there complete, and asks for each log's comparison. Safe to run twice at once, and to die.

    `wall_time` is the present as files have it (seconds since 1970), for tests.
    """
    now = time.time() if wall_time is None else wall_time
    taken = []
    for party_folder in _folders(inbox()):
        for place, agreement_name in _places(party_folder):
            for file in _settled(place, now):
                taken.append(_take(file, party_folder.name, agreement_name))
    _sweep(now)
    return taken


def _take(file: Path, party_name: str, agreement_name: str) -> Taken:
    try:
        party = _party(party_name)
        agreement = _agreement(party, agreement_name)
        handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(handle, "rb") as source:
            received = partner_logs.log_receive(
                party_id=party.pk,
                agreement_id=agreement.pk if agreement else None,
                chunks=_unchanged(source),
                filename=file.name,
                actor=FOLDER,
            )
    except FileNotFoundError:
        return Taken(file.name)  # another process took it
    except _Changing:
        return Taken(file.name)  # not whole yet: the next look finds it
    except ApplicationError as error:
        return _put_aside(file, error)
    run = ""
    # Also when it was there before: whoever took it in may have died before asking for the comparison.
    if received.log.state == LogState.RECEIVED:
        try:
            run = partner_logs.log_reconcile(log_id=received.log.pk, actor=FOLDER).public_id
        except (WrongState, InvalidSubmission) as error:
            log.info("log was not compared", extra={"log": received.log.public_id, "why": error.detail})
    file.unlink(missing_ok=True)
    log.info(
        "partner's log taken from the drop folder",
        extra={"action": "partner_log_taken", "log": received.log.public_id, "run": run, "file": file.name},
    )
    return Taken(file.name, received.log.public_id, run)


def _party(name: str) -> Party:
    try:
        found = Party.objects.filter(pk=read_public_id("par", name)).first()
    except BadPublicId:
        found = Party.objects.filter(name=name, is_own=False).first()
    if found is None:
        raise InvalidSubmission({"party": [f"The folder {name} is called like no partner, by id or name."]})
    return found


def _agreement(party: Party, name: str) -> Agreement | None:
    """The agreement of a folder in the party's; None for a log of all that is exchanged with them."""
    if not name:
        return None
    try:
        found = Agreement.objects.filter(pk=read_public_id("agr", name)).first()
    except BadPublicId:
        found = Agreement.objects.filter(partner=party, tpa_id=name).first()
    if found is None:
        raise InvalidSubmission({"agreement": [f"The folder {name} is called like no agreement, by id or TPAId."]})
    return found


def _unchanged(source: BinaryIO) -> Iterator[bytes]:
    """The file in blocks. Raises _Changing when somebody wrote to it meanwhile."""
    before = os.fstat(source.fileno())
    yield from iter(lambda: source.read(_BLOCK), b"")
    after = os.fstat(source.fileno())
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise _Changing


def _put_aside(file: Path, error: ApplicationError) -> Taken:
    aside = file.parent / REJECTED
    aside.mkdir(exist_ok=True)
    target = aside / file.name
    number = 1
    while target.exists() or target.is_symlink():
        number += 1
        target = aside / f"{file.stem}-{number}{file.suffix}"
    try:
        os.rename(file, target)
    except FileNotFoundError:
        return Taken(file.name)
    target.with_name(f"{target.name}.txt").write_text(f"{error.detail}\n", encoding="utf-8")
    log.warning(
        "partner's log put aside", extra={"action": "partner_log_rejected", "file": str(target), "why": error.detail}
    )
    return Taken(file.name, error=error.detail)


def _folders(place: Path) -> list[Path]:
    """Real folders in a folder; not what a link leads to, for partners may write here."""
    try:
        with os.scandir(place) as entries:
            found = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []
    return sorted(path for path in found if not path.name.startswith(".") and path.name != REJECTED)


def _places(party_folder: Path) -> Iterator[tuple[Path, str]]:
    yield party_folder, ""
    for agreement_folder in _folders(party_folder):
        yield agreement_folder, agreement_folder.name


def _settled(place: Path, now: float) -> list[Path]:
    """Files that nobody is writing to: by their names, and by the time of their last change."""
    found = []
    with os.scandir(place) as entries:
        for entry in entries:
            if entry.name.startswith(".") or entry.name.lower().endswith(_UNFINISHED):
                continue
            state = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(state.st_mode) and now - state.st_mtime >= SETTLED_SECONDS:
                found.append(Path(entry.path))
    return sorted(found)


def _sweep(now: float) -> None:
    """What a process that died left of a log that it was taking in."""
    for file in (partner_logs.folder() / "incoming").glob("*.part"):
        try:
            if now - file.stat().st_mtime > _PART_SECONDS:
                file.unlink()
        except FileNotFoundError:
            continue
