"""Payload files in a folder that all machines of a hub share.

Files are named by digest, so one that is about to be removed may be wanted again in this very moment by a row that is
not committed yet. Whoever keeps bytes makes their file young; `remove` takes old files only, and looks under a lock.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from messaging.storage import base
from messaging.storage.base import PayloadMissing, Room, StoreUnavailable
from messaging.storage.large import pieces

_LOCK = ".lock"


@dataclass(frozen=True, slots=True)
class Folder:
    """A `base.Place`: files `ab/<SHA-256>`, written, synced and renamed."""

    root: Path

    def put(self, digest: str, size: int, data: bytes | IO[bytes]) -> str:
        name = f"{digest[:2]}/{digest}"
        path = self.root / name
        try:
            if not (path.exists() and self._made_young(path)):
                with self._incoming(path) as file:
                    if isinstance(data, bytes):
                        file.write(data)
                    else:
                        file.writelines(pieces(data))
        except OSError as error:
            raise StoreUnavailable(error.errno, error.strerror or type(error).__name__, str(error.filename)) from error
        return name

    def get(self, name: str) -> bytes:
        with self._read(name):
            return (self.root / name).read_bytes()

    def open(self, name: str) -> IO[bytes]:
        with self._read(name):
            return (self.root / name).open("rb")

    @contextmanager
    def _read(self, name: str) -> Iterator[None]:
        """Says what it means that a file cannot be read."""
        try:
            yield
        except FileNotFoundError as error:
            raise PayloadMissing(f"payload file {name} is missing from {self.root}") from error
        except OSError as error:
            if not self.root.is_dir():
                raise StoreUnavailable(error.errno, error.strerror, str(self.root)) from error
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
                raise  # the machine's trouble, not the file's
            reason = error.strerror or type(error).__name__
            raise PayloadMissing(f"payload file {name} of {self.root}: {reason}") from error

    def room(self) -> Room:
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self.root, prefix=".probe-")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(bytes(4096))
                    file.flush()
                    os.fsync(file.fileno())
            finally:
                Path(name).unlink(missing_ok=True)
            return Room("", False, shutil.disk_usage(self.root).free)
        except OSError as error:
            refused = StoreUnavailable(error.errno, error.strerror or type(error).__name__)
            free = shutil.disk_usage(self.root).free if self.root.is_dir() else None
            return Room(str(refused.strerror), refused.full, free)

    def remove(self, name: str, is_named: Callable[[], bool]) -> bool:
        path = self.root / name
        if not path.parent.exists():
            return True
        with self._locked(fcntl.LOCK_EX):
            try:
                age = time.time() - path.stat().st_mtime
            except FileNotFoundError:
                return True
            if age < base.YOUNG_SECONDS or is_named():
                return False
            path.unlink(missing_ok=True)
        return True

    def names(self) -> Iterator[tuple[list[str], int]]:
        for folder in sorted(self.root.glob("??")):
            gone = 0
            found: list[str] = []
            for path in folder.iterdir():
                if not path.name.startswith("."):
                    found.append(f"{folder.name}/{path.name}")
                elif time.time() - path.stat().st_mtime > base.YOUNG_SECONDS:
                    path.unlink(missing_ok=True)
                    gone += 1
            yield found, gone

    def missing(self, names: list[str]) -> list[str]:
        if not self.root.is_dir():
            raise StoreUnavailable(errno.ENOENT, os.strerror(errno.ENOENT), str(self.root))
        return [name for name in names if not (self.root / name).exists()]

    def note(self, name: str) -> bytes | None:
        try:
            return (self.root / name).read_bytes()
        except FileNotFoundError:
            return None

    def write_note(self, name: str, data: bytes) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=self.root, prefix=".note-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.root / name)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise

    @contextmanager
    def _incoming(self, path: Path) -> Iterator[IO[bytes]]:
        """A file to be written, which is then put in its place whole, or not at all."""
        new_folder = not path.parent.exists()
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".incoming-")
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            with self._locked(fcntl.LOCK_SH):
                os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        synchronise(path.parent)
        if new_folder:
            synchronise(path.parent.parent)

    def _made_young(self, path: Path) -> bool:
        """False when it was removed in this moment."""
        with self._locked(fcntl.LOCK_SH):
            try:
                os.utime(path)
            except FileNotFoundError:
                return False
        return True

    @contextmanager
    def _locked(self, kind: int) -> Iterator[None]:
        """Whoever removes is alone; those who keep do not wait for each other."""
        handle = os.open(self.root / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, kind)
            yield
        finally:
            os.close(handle)


def synchronise(path: Path) -> None:
    """Waits until the file, or the names in the folder, are on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
