"""Payload bytes: small ones lie in the row, large ones in files; and the frame that makes them whole again.

A file is written, synced and renamed before the row that names it is committed, so a committed row always
finds its file. A file whose row never came is an orphan: nothing reads it.

Files are named by digest, so one that is about to be removed may be wanted again in this very moment by a row that is
not committed yet. Whoever keeps bytes makes their file young; `remove` takes old files only, and looks under a lock.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import struct
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

# No transaction takes so long from keeping its bytes to its commit: a file that was wanted later than that is left.
YOUNG_SECONDS = 3600.0
_LOCK = ".lock"


class PayloadMissing(Exception):
    """The store folder has no such file, or not its bytes: not restored with the database, removed, or damaged."""


class StoreUnavailable(OSError):
    """The store folder takes or gives no bytes at present; nothing was kept. `full`: there is no room left."""

    @property
    def full(self) -> bool:
        return self.errno in (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class Room:
    """Whether the store folder takes bytes right now, by a file that was written. `error`: why not, "" when it does.

    `free`: octets; None when the folder is not there.
    """

    error: str
    full: bool
    free: int | None


@dataclass(frozen=True, slots=True)
class Stored:
    """Where bytes lie: in `content`, or in the file `stored_as` of the store folder."""

    size: int
    sha256: str
    content: bytes | None
    stored_as: str


def keep(data: bytes) -> Stored:
    """Stores bytes durably. Names files by digest, so the same bytes are kept once. Raises StoreUnavailable."""
    digest = hashlib.sha256(data).hexdigest()
    if len(data) <= settings.RMHUB_INLINE_PAYLOAD_BYTES:
        return Stored(len(data), digest, data, "")
    name = f"{digest[:2]}/{digest}"
    try:
        _write(Path(settings.RMHUB_STORE_DIR) / name, data)
    except OSError as error:
        raise StoreUnavailable(error.errno, error.strerror or type(error).__name__, str(error.filename)) from error
    return Stored(len(data), digest, None, name)


def room() -> Room:
    """Writes, syncs and removes a small file, as `keep` does with a payload. Never raises."""
    folder = Path(settings.RMHUB_STORE_DIR)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder, prefix=".probe-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(bytes(4096))
                file.flush()
                os.fsync(file.fileno())
        finally:
            Path(name).unlink(missing_ok=True)
        return Room("", False, shutil.disk_usage(folder).free)
    except OSError as error:
        refused = StoreUnavailable(error.errno, error.strerror or type(error).__name__)
        free = shutil.disk_usage(folder).free if folder.is_dir() else None
        return Room(str(refused.strerror), refused.full, free)


def _write(path: Path, data: bytes) -> None:
    """Puts a file in its place whole, or not at all."""
    if not (path.exists() and _made_young(path)):
        new_folder = not path.parent.exists()
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".incoming-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            with _locked(fcntl.LOCK_SH):
                os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        synchronise(path.parent)
        if new_folder:
            synchronise(path.parent.parent)


def load(content: bytes | memoryview | None, stored_as: str) -> bytes:
    """The bytes of a payload. Raises PayloadMissing when its file is not there, or does not hold what its name says,
    and StoreUnavailable while the folder is none that can be read: then nothing is known about the file.
    """
    if content is not None:
        return bytes(content)
    folder = Path(settings.RMHUB_STORE_DIR)
    try:
        data = (folder / stored_as).read_bytes()
    except FileNotFoundError as error:
        raise PayloadMissing(f"payload file {stored_as} is missing from {folder}") from error
    except OSError as error:
        if not folder.is_dir():
            raise StoreUnavailable(error.errno, error.strerror, str(folder)) from error
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise  # the machine's trouble, not the file's
        reason = error.strerror or type(error).__name__
        raise PayloadMissing(f"payload file {stored_as} of {folder}: {reason}") from error
    if hashlib.sha256(data).hexdigest() != stored_as.rpartition("/")[2]:
        raise PayloadMissing(f"payload file {stored_as} of {folder} is damaged")
    return data


def synchronise(path: Path) -> None:
    """Waits until the file, or the names in the folder, are on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove(name: str, is_named: Callable[[], bool]) -> bool:
    """Removes the file that payloads were `stored_as`, unless it is young or `is_named` (asked under the lock).

    False when it stays; True when it is gone.
    """
    path = Path(settings.RMHUB_STORE_DIR) / name
    if not path.parent.exists():
        return True
    with _locked(fcntl.LOCK_EX):
        try:
            age = time.time() - path.stat().st_mtime
        except FileNotFoundError:
            return True
        if age < YOUNG_SECONDS or is_named():
            return False
        path.unlink(missing_ok=True)
    return True


def _made_young(path: Path) -> bool:
    """False when it was removed in this moment."""
    with _locked(fcntl.LOCK_SH):
        try:
            os.utime(path)
        except FileNotFoundError:
            return False
    return True


@contextmanager
def _locked(kind: int) -> Iterator[None]:
    """Whoever removes is alone; those who keep do not wait for each other."""
    handle = os.open(Path(settings.RMHUB_STORE_DIR) / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, kind)
        yield
    finally:
        os.close(handle)


def pack_frame(literals: Sequence[bytes]) -> bytes:
    """The literals between the payloads as one value: their number, their lengths (big-endian), their bytes."""
    lengths = [len(literal) for literal in literals]
    return struct.pack(f">H{len(lengths)}I", len(lengths), *lengths) + b"".join(literals)


def unpack_frame(frame: bytes | memoryview) -> tuple[bytes, ...]:
    """The literals that `pack_frame` was given."""
    data = bytes(frame)
    (count,) = struct.unpack_from(">H", data)
    lengths = struct.unpack_from(f">{count}I", data, 2)
    literals, at = [], 2 + 4 * count
    for length in lengths:
        literals.append(data[at : at + length])
        at += length
    return tuple(literals)


def cut_frame(body: bytes, slices: Sequence[tuple[int, int]]) -> bytes:
    """The frame of a received body: what is left when the payload slices (offset, length; ascending) are taken out."""
    literals, at = [], 0
    for offset, length in slices:
        literals.append(body[at:offset])
        at = offset + length
    literals.append(body[at:])
    return pack_frame(literals)
