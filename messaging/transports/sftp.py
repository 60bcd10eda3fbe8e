"""Files put into a partner's folder on an SFTP server (docs/ftp-binding.md).

A file is written under a temporary name and renamed when the server has all of it, so that a reader of final names
never sees a part. The name says what is in it: a copy that still lies there unread is not written again.
"""

from __future__ import annotations

import re
import stat
import time
import uuid
from contextlib import suppress

import paramiko

from messaging.protocol.codecs import entity_file
from messaging.transports.base import Parcel, Receipt, printable, server_of
from messaging.transports.connecting import connect
from messaging.transports.probe import Failed, Look, ProbeStep, line_of, reach, split
from messaging.transports.sftp_connection import (
    Place,
    Server,
    Session,
    Trouble,
    fingerprint,
    place_of,
    session,
    trouble_of,
)

CHUNK = 32 * 1024  # bytes; what paramiko puts into one request
STALE_SECONDS = 24 * 3600  # a temporary file that is so old belongs to nobody
SWEEP_SECONDS = 3600.0  # so often the folder is looked through for such files
MOST_LISTED = 2000
_TEMPORARY = re.compile(r"\.[A-Za-z0-9._-]{1,220}\.tmp", re.ASCII)
_swept: dict[Place, float] = {}


def send(parcel: Parcel) -> Receipt:
    """Uploads one parcel and reports what came of it. Never raises for anything that network and server can do.

    All of it takes no longer than connect and read timeout together, which is less than the lease of the transmission.
    """
    until = time.monotonic() + parcel.connect_timeout + parcel.read_timeout
    try:
        return _put(parcel, until)
    except Trouble as trouble:
        return Receipt(ok=False, cause=trouble.cause, detail=trouble.detail, permanent=trouble.permanent)


def look(found: Look) -> None:
    """Looks at a file server as far as its host key. Nothing is sent."""
    _, _, sock = reach(found)
    with sock, found.step("sftp") as step:
        banner = line_of(found, sock)
        step.facts = {"banner": banner}
        if not banner.startswith("SSH-2.0"):
            raise Failed("connection_reset", f"This is not an SSH server; it says: {banner[:200]}")
        step.detail = f"An SSH server answers: {banner[:120]}"
    if not found.target.host_key:
        found.steps.append(
            ProbeStep("host_key", "warning", "The endpoint has no host key: nothing is sent without one.")
        )
        return
    with found.step("host_key") as step:
        shown = _host_key(found)
        step.facts = {"shown": shown, "expected": found.target.host_key}
        if shown != found.target.host_key.strip():
            raise Failed("host_key_mismatch", f"The server shows {shown}, the endpoint has {found.target.host_key}.")
        step.detail = f"The host key is the agreed one: {shown}."


def _host_key(found: Look) -> str:
    """The fingerprint of the key that an SSH server shows."""
    _, host, port = split(server_of(found.target.address, found.target.server))
    sock = connect(host, port, found.left)
    session = paramiko.Transport(sock)
    try:
        session.start_client(timeout=found.left)
        return fingerprint(session.get_remote_server_key())
    except paramiko.SSHException as error:
        raise Failed("connection_reset", printable(str(error))[:300]) from error
    finally:
        session.close()


def _put(parcel: Parcel, until: float) -> Receipt:
    place = place_of(parcel.address, parcel.server)
    if parcel.login is None:
        raise Trouble(
            "login_missing",
            f"There is no credential for {place.host}: store the user name with a password or a private key.",
            permanent=True,
        )
    try:
        content = entity_file.pack(parcel.content_type, parcel.octets)
    except UnicodeEncodeError as error:
        raise Trouble("internal_error", f"The content type is not ASCII: {error}", permanent=True) from error
    name = entity_file.file_name(parcel.name, content)
    server = Server(place.host, place.port, parcel.host_key, parcel.login)
    for new in (False, True):
        try:
            left = max(until - time.monotonic(), 0.0)
            soon = min(parcel.connect_timeout, left)
            with session(server, connect_timeout=soon, read_timeout=left - soon, within=left, new=new) as open_session:
                fresh = open_session.fresh
                return _upload(open_session, place, name, content, until)
        except Trouble as trouble:
            # A kept connection may have ended while nobody used it; the upload can be begun again at any point.
            if trouble.cause != "connection_reset" or new or fresh:
                raise
    raise AssertionError("the second round returns or raises")


def _upload(open_session: Session, place: Place, name: str, content: bytes, until: float) -> Receipt:
    sftp, final = open_session.sftp, place.path(name)
    open_session.limit(until - time.monotonic())
    if _size(open_session, final) == len(content):
        return _taken(f"{name} still lies there unread; it was not written again.")
    temporary = place.path(f".{name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        with sftp.open(temporary, "wx") as file:
            # Many chunks on their way at once; the last one waits for the answers to all of them. Closed in this mode,
            # the file would pass over the refusals among them.
            file.set_pipelined(True)
            for start in range(0, len(content), CHUNK):
                open_session.limit(until - time.monotonic())
                file.set_pipelined(start + CHUNK < len(content))
                file.write(content[start : start + CHUNK])
            open_session.limit(until - time.monotonic())
        facts = sftp.stat(temporary)
        if facts.st_size != len(content):
            raise Trouble("file_failed", f"The server has {facts.st_size} of {len(content)} bytes.")
        _rename(open_session, temporary, final)
    except BaseException:
        with suppress(Exception):
            open_session.limit(min(5.0, max(until - time.monotonic(), 1.0)))
            sftp.remove(temporary)
        raise
    with suppress(Exception):
        _sweep(open_session, place, facts.st_mtime, until)
    return _taken(f"{name}, {len(content)} bytes.")


def _taken(text: str) -> Receipt:
    return Receipt(ok=True, response=text.encode())


def _size(open_session: Session, path: str) -> int | None:
    try:
        facts = open_session.sftp.lstat(path)
    except FileNotFoundError:
        return None
    return facts.st_size if facts.st_mode is None or stat.S_ISREG(facts.st_mode) else None


def _rename(open_session: Session, temporary: str, final: str) -> None:
    """Replaces in one step where the server can (posix-rename@openssh.com); else only where nothing lies yet."""
    try:
        open_session.sftp.posix_rename(temporary, final)
        return
    except OSError as error:
        if isinstance(error, TimeoutError | ConnectionError | FileNotFoundError | PermissionError):
            raise
    try:
        open_session.sftp.rename(temporary, final)
    except OSError as error:
        if isinstance(error, TimeoutError | ConnectionError):
            raise
        # SFTP 3 does not rename onto what is there. Another upload of the same octets may have been quicker.
        size = _size(open_session, temporary)
        if size is not None and _size(open_session, final) == size:
            open_session.sftp.remove(temporary)
            return
        raise trouble_of(error) from error


def _sweep(open_session: Session, place: Place, now: int | None, until: float) -> None:
    """Removes what uploads that died left, by the server's own clock (`now`: when it wrote our file)."""
    began = time.monotonic()
    if now is None or began - _swept.get(place, float("-inf")) < SWEEP_SECONDS or len(_swept) > 10_000:
        return
    _swept[place] = began
    stale = []
    # Nothing else may be asked while it lists: the answers to its requests are still on their way.
    for number, facts in enumerate(open_session.sftp.listdir_iter(place.folder)):
        if number >= MOST_LISTED or time.monotonic() > until - 1:
            break
        old = facts.st_mtime is not None and now - facts.st_mtime > STALE_SECONDS
        if old and _TEMPORARY.fullmatch(facts.filename):
            stale.append(facts.filename)
    for name in stale:
        open_session.limit(until - time.monotonic())
        open_session.sftp.remove(place.path(name))
