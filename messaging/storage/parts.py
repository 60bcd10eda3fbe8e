"""Documents that come in parts: a file each, in the store folder, until a message has them.

They lie in the folder also where payloads lie in a bucket, whose objects cannot grow. All web servers of a hub need to
see the same folder then, too. How much of a file counts is said by its row (`models.Upload`).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from django.conf import settings

from messaging.storage.base import YOUNG_SECONDS, PayloadMissing, StoreUnavailable
from messaging.storage.folder import synchronise
from messaging.storage.large import PIECE, Large


class Busy(Exception):
    """Somebody else is writing into it."""


@contextmanager
def alone(key: uuid.UUID) -> Iterator[IO[bytes]]:
    """The file, which nobody else writes into meanwhile; a new one if there is none. Raises Busy, StoreUnavailable."""
    path = _path(key)
    with _refusing():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "r+b") as file:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # ends with the process that has it
        except BlockingIOError as error:
            raise Busy from error
        yield file


def append(file: IO[bytes], offset: int, source: IO[bytes]) -> int:
    """Writes all of `source` at `offset`, in place of what was there, and waits until it is on the disk. Returns how
    many octets that were. Raises PayloadMissing when the file does not reach as far, and StoreUnavailable.
    """
    if os.fstat(file.fileno()).st_size < offset:
        raise PayloadMissing(f"the file of an upload ends before {offset}")
    with _refusing():
        file.truncate(offset)
        file.seek(offset)
        shutil.copyfileobj(source, file, PIECE)
        file.flush()
        os.fsync(file.fileno())
        if offset == 0:
            synchronise(folder())
        return file.tell() - offset


def whole(key: uuid.UUID, size: int) -> Large:
    """All of it. Raises PayloadMissing when the file is not there, or not so long."""
    try:
        found = Large(_path(key).open("rb"))
    except OSError as error:
        raise PayloadMissing(f"the file of an upload: {error.strerror}") from error
    if found.size != size:
        raise PayloadMissing(f"the file of an upload has {found.size} octets instead of {size}")
    return found


def free() -> int:
    """Octets that the disk has room for. Raises StoreUnavailable."""
    with _refusing():
        folder().mkdir(mode=0o700, parents=True, exist_ok=True)
        return shutil.disk_usage(folder()).free


def remove(key: uuid.UUID) -> None:
    """Removes the file, if it is there. Raises OSError."""
    _path(key).unlink(missing_ok=True)


def sweep(known: Callable[[Collection[uuid.UUID]], Collection[uuid.UUID]]) -> int:
    """Removes files that are not young and are none of the `known`; returns how many."""
    old = time.time() - YOUNG_SECONDS
    found = set()
    for path in folder().glob("[0-9a-f]" * 32):
        with suppress(FileNotFoundError):  # in this moment
            if path.stat().st_mtime < old:
                found.add(uuid.UUID(path.name))
    gone = found - set(known(found))
    for key in gone:
        remove(key)
    return len(gone)


def folder() -> Path:
    """Where the files are."""
    return Path(settings.RMHUB_STORE_DIR) / "uploads"


def _path(key: uuid.UUID) -> Path:
    return folder() / key.hex


@contextmanager
def _refusing() -> Iterator[None]:
    """Says what it means that nothing can be written."""
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(error.errno, error.strerror or type(error).__name__, str(error.filename)) from error
