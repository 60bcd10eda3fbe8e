"""Takes what partners put into a folder on an SFTP server (docs/ftp-binding.md).

A file is read whole, handed to `receiving.receive`, which commits, and only then moved to done/ or removed. Where the
hub dies in between, the next look reads it again, and its MessageId makes it a repeat.
"""

from __future__ import annotations

import logging
import stat
import time
from contextlib import suppress
from dataclasses import dataclass

import paramiko
from django.conf import settings
from django.db import DatabaseError, InterfaceError

from messaging.entrance.refusals import Arrival, refuse
from messaging.pollers.services.collecting import LOOK_SECONDS, MOST_ITEMS, Found, Look
from messaging.profiles.ebxml.receiving import receive
from messaging.protocol.codecs import entity_file
from messaging.protocol.codecs.entity_file import NotAnEntity
from messaging.protocol.envelope import Limits
from messaging.transports.sftp_connection import Place, Server, Session, Trouble, place_of, session, trouble_of
from partners.terms import Presented
from partners.transports import SFTP
from rmhub import clock
from rmhub.postgresql.base import give_back

log = logging.getLogger(__name__)

MOST_LISTED = 10_000  # entries of the folder that one look reads
CHUNK = 32 * 1024
DONE, FAILED = "done", "failed"
# A file under a final name that is not whole: its writer does not keep to the rule, or was cut off. It gets so long.
SETTLED_SECONDS = 60
INCOMPLETE_SECONDS = 3600
ITEM_SECONDS = 100  # for reading one file, so that a look ends before its lease does
_AHEAD = 256 * 1024  # from this size on, several requests are on their way at once


class Unreadable(Exception):
    """A file that the server does not let our log-in read."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file that may be read, as the listing shows it."""

    name: str
    size: int
    changed: int  # Unix seconds, by the server's clock; 0 = it does not say


@dataclass(frozen=True, slots=True)
class Listing:
    """What lies in the folder: files that may be read, oldest first; whether done/ is there; how much is left alone."""

    entries: list[Entry]
    keeps: bool
    others: int
    cut: bool


def collect(look: Look) -> Found:
    """One look into a folder. Never raises for what network and server do."""
    found = Found()
    try:
        if look.login is None:
            raise Trouble("login_missing", "No user name with password or key is stored.", permanent=True)
        if look.partner is None:
            raise Trouble("internal_error", "The folder has no partner: say who puts files there.", permanent=True)
        place = place_of(look.url)
        server = Server(place.host, place.port, look.host_key, look.login)
        # A new connection for each look: a kept one would often have ended since the look before.
        with session(
            server,
            connect_timeout=look.connect_timeout,
            read_timeout=look.read_timeout,
            within=LOOK_SECONDS + ITEM_SECONDS,
            new=True,
        ) as open_session:
            _collect(open_session, place, look, found)
    except Trouble as trouble:
        found.cause, found.detail, found.permanent = trouble.cause, trouble.detail, trouble.permanent
    except (DatabaseError, InterfaceError):
        log.exception("cannot store now", extra={"action": "collect_failed", "poller": look.name})
        found.cause, found.detail = "internal_error", "The hub's database could not store what was read."
    return found


def _collect(open_session: Session, place: Place, look: Look, found: Found) -> None:
    open_session.limit(look.read_timeout)
    listing = _list(open_session, place)
    for number, entry in enumerate(listing.entries):
        if number >= MOST_ITEMS or look.time_is_up():
            found.more = True
            return
        open_session.limit(look.read_timeout)
        try:
            _take(open_session, place, entry, listing.keeps, look, found)
            give_back()  # the next one may take its time to come
        except Unreadable as error:
            # One file that is closed to us must not keep those behind it.
            found.cause, found.detail, found.permanent = "folder_closed", f"{entry.name}: {error}", True
    found.more = listing.cut and found.taken + found.refused > 0
    if listing.others and not found.cause:
        found.detail = f"Not taken, because the name is not that of a complete file: {listing.others}."


def _list(open_session: Session, place: Place) -> Listing:
    entries: list[Entry] = []
    keeps, others, cut = False, 0, False
    for number, facts in enumerate(open_session.sftp.listdir_iter(place.folder)):
        if number >= MOST_LISTED:
            cut = True
            break
        mode = facts.st_mode or 0
        if stat.S_ISDIR(mode):
            keeps = keeps or facts.filename == DONE
        elif stat.S_ISREG(mode) and entity_file.is_final(facts.filename):
            entries.append(Entry(facts.filename, facts.st_size or 0, facts.st_mtime or 0))
        elif not facts.filename.startswith("."):
            others += 1
    entries.sort(key=lambda entry: (entry.changed, entry.name))
    return Listing(entries, keeps, others, cut)


def _take(open_session: Session, place: Place, entry: Entry, keeps: bool, look: Look, found: Found) -> None:
    """One file: read, stored, taken away. Raises Trouble, and what paramiko and the database raise."""
    limits = Limits(body=settings.RMHUB_MAX_MESSAGE_BYTES)
    if entry.size > limits.body + entity_file.MAX_HEAD:
        detail = f"{entry.size} bytes; the limit is {limits.body}."
        _set_aside(open_session, place, entry, b"", "", look, found, "body_too_large", detail, status=413)
        return
    data = _read(open_session, place, entry)
    if data is None:
        return
    try:
        entity = entity_file.unpack(data)
    except NotAnEntity as error:
        if not _may_still_come(entry, error):
            _set_aside(open_session, place, entry, data, "", look, found, "not_mime", error.detail, status=400)
        return
    if not entity.declared and not _is_settled(entry, SETTLED_SECONDS):
        return  # without a length nothing says that this is all of it but that nobody writes any more
    assert look.partner is not None, "a folder without one is not looked into"
    arrival = Arrival(entity.content_type[:1000], entity.body, Presented(), place.host, SFTP)
    try:
        status = receive(arrival, limits=limits, principal=look.partner)
    except OSError as error:  # of the hub's own store, not of the server
        raise Trouble("internal_error", f"{entry.name} could not be stored: {error}") from error
    if status == 204:
        open_session.limit(look.read_timeout)
        _away(open_session, place, entry, keeps)
        found.taken += 1
    elif status in (400, 401, 403, 413):
        _move_to_failed(
            open_session, place, entry, f"Refused with status {status}; the hub's rejections say why.", look
        )
        found.refused += 1
    else:
        raise Trouble("internal_error", f"{entry.name} was answered {status}.")


def _read(open_session: Session, place: Place, entry: Entry) -> bytes | None:
    """The bytes of a file; None when it is gone, is no plain file any more, or changes while it is read."""
    path = place.path(entry.name)
    try:
        facts = open_session.sftp.lstat(path)
        if not stat.S_ISREG(facts.st_mode or 0) or facts.st_size != entry.size:
            return None
        pieces: list[bytes] = []
        size = 0
        began = time.monotonic()
        with open_session.sftp.open(path, "rb") as file:
            if entry.size > _AHEAD:
                file.prefetch(entry.size)
            while piece := file.read(CHUNK):
                size += len(piece)
                if size > entry.size:
                    return None
                pieces.append(piece)
                if time.monotonic() - began > ITEM_SECONDS:
                    raise TimeoutError("timed out")
    except FileNotFoundError:
        return None  # another look was quicker
    except PermissionError as error:
        raise Unreadable(str(error)) from error
    return b"".join(pieces) if size == entry.size else None


def _may_still_come(entry: Entry, error: NotAnEntity) -> bool:
    """Whether a file that is not whole is left where it is, for a writer that is not at its end."""
    return not _is_settled(entry, INCOMPLETE_SECONDS if error.incomplete else SETTLED_SECONDS)


def _is_settled(entry: Entry, seconds: int) -> bool:
    """Whether the file was last changed longer ago than that, by our clock against the server's."""
    return clock.now().timestamp() - entry.changed > seconds


def _away(open_session: Session, place: Place, entry: Entry, keeps: bool) -> None:
    """After the commit: to done/ where that folder is, else removed. Gone already is as good."""
    with suppress(FileNotFoundError):
        if keeps:
            _move(open_session, place.path(entry.name), place.path(f"{DONE}/{entry.name}"))
        else:
            open_session.sftp.remove(place.path(entry.name))


def _set_aside(
    open_session: Session,
    place: Place,
    entry: Entry,
    data: bytes,
    content_type: str,
    look: Look,
    found: Found,
    reason: str,
    detail: str,
    *,
    status: int,
) -> None:
    """A file that is no message: written down as a rejection and moved to failed/, with the reason beside it."""
    arrival = Arrival(content_type, data, Presented(), remote_address=place.host)
    refuse(arrival, status, reason, f"{entry.name}: {detail}", principal=look.partner)
    _move_to_failed(open_session, place, entry, detail, look)
    found.refused += 1


def _move_to_failed(open_session: Session, place: Place, entry: Entry, detail: str, look: Look) -> None:
    open_session.limit(look.read_timeout)
    folder = place.path(FAILED)
    try:
        mode = open_session.sftp.lstat(folder).st_mode
    except FileNotFoundError:
        mode = None
        with suppress(OSError):  # another look may make it at the same moment; the move tells
            open_session.sftp.mkdir(folder, 0o750)
    if mode is not None and not stat.S_ISDIR(mode):
        # The partner may write here: through a link, files would go wherever it leads.
        raise Trouble(
            "folder_closed",
            f"{FAILED} is a link or a file: {entry.name} cannot be set aside before it is a folder, or gone.",
            permanent=True,
        )
    with suppress(FileNotFoundError):
        _move(open_session, place.path(entry.name), f"{folder}/{entry.name}")
    reason = f"{folder}/{entry.name}.reason.txt"
    # The rejection has it as well. Never onto what lies there: it may be a link.
    with suppress(OSError, paramiko.SSHException), open_session.sftp.open(reason, "wx") as file:
        file.write(f"{clock.now():%Y-%m-%dT%H:%M:%SZ} {detail}\n".encode())


def _move(open_session: Session, source: str, target: str) -> None:
    """Moves a file; where one of that name lies already, under a name of its own."""
    try:
        open_session.sftp.rename(source, target)
    except OSError as error:
        if isinstance(error, TimeoutError | ConnectionError | FileNotFoundError | PermissionError):
            raise
        try:
            open_session.sftp.lstat(target)
        except FileNotFoundError:
            raise trouble_of(error) from error
        stem = target.removesuffix(entity_file.SUFFIX)
        open_session.sftp.rename(source, f"{stem}.{clock.now():%Y%m%dT%H%M%S%f}{entity_file.SUFFIX}")
