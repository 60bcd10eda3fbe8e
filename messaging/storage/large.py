"""Octets that are too many to be held: files that are read piece by piece, and bodies made of them."""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import IO, Any

from django.conf import settings

PIECE = 256 * 1024  # bytes that are held of a document at once; one that is no larger is no file


class Searched(ABC):
    """Octets of which few are looked at at once; `envelope.Sought`."""

    size: int
    _window = (0, b"")  # where the octets were that were looked at last, and these

    @abstractmethod
    def __getitem__(self, where: slice[int | None, int | None, None], /) -> bytes: ...

    def find(self, sought: bytes, begin: int = 0, end: int | None = None, /) -> int:
        """Where these bytes are first within `begin` and `end`, also where two pieces meet; -1 for nowhere."""
        reach = len(sought) - 1
        end = self.size if end is None else min(end, self.size)
        while begin + reach < end:
            at = begin - begin % PIECE
            found = self._around(at, reach).find(sought, begin - at, end - at)
            if found >= 0:
                return at + found
            begin = at + PIECE
        return -1

    def _around(self, at: int, reach: int) -> bytes:
        """The piece at `at`, and so many octets more; one piece is often looked at many times."""
        known, window = self._window
        if known != at or len(window) < min(PIECE + reach, self.size - at):
            window = self[at : at + PIECE + reach]
            self._window = (at, window)
        return window

    def __len__(self) -> int:
        return self.size

    def __contains__(self, sought: bytes) -> bool:
        return self.find(sought) >= 0


class Large(Searched):
    """A file that can be read again from its beginning, by one thread at a time.

    `begin`, `size`: where in the file it lies, when it is a part of it. The file is closed with its last user.
    `stored_as`: the name of these octets in the store, once they are there.
    """

    stored_as = ""

    def __init__(self, file: IO[bytes], begin: int = 0, size: int | None = None, whole: Large | None = None) -> None:
        self._file = file
        self._begin = begin
        self._whole = whole
        self.size = file.seek(0, os.SEEK_END) - begin if size is None else size

    def __del__(self) -> None:
        if getattr(self, "_whole", self) is None:
            self._file.close()

    @cached_property
    def sha256(self) -> str:
        """In hexadecimal; reads all of it once."""
        return digest(iter(self))

    def opened(self) -> IO[bytes]:
        """A file of its own, at its beginning."""
        return io.BufferedReader(_Reader(self), PIECE)

    def part(self, begin: int = 0, end: int | None = None) -> Large:
        """The octets from `begin` up to `end`."""
        return Large(self._file, self._begin + begin, (self.size if end is None else end) - begin, self._whole or self)

    def held(self) -> bytes | Large:
        """Its bytes, if they are no more than are held of a document at once."""
        return self if self.size > PIECE else self[:]

    def __getitem__(self, where: slice[int | None, int | None, None], /) -> bytes:
        begin, end, _ = where.indices(self.size)
        self._file.seek(self._begin + begin)
        return self._file.read(max(0, end - begin))

    def __iter__(self) -> Iterator[bytes]:
        yield from pieces(self.opened())


class _Reader(io.RawIOBase):
    """A `Large` as a file; where it is read is its own."""

    def __init__(self, large: Large) -> None:
        self._large, self._at = large, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._large.size}[whence]
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        piece = self._large[self._at : self._at + len(buffer)]
        buffer[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)


class Cut:
    """Octets that come in pieces, which a web server reads."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._piece = pieces, b""

    def read(self, size: int = -1) -> bytes:
        """All of them, or the next of them: at most `size`, none at their end."""
        if size < 0:
            return self._piece + b"".join(self._pieces)
        self._piece = self._piece or next(self._pieces, b"")
        found, self._piece = self._piece[:size], self._piece[size:]
        return found


class Body(Searched):
    """Octets one after the other, some of which are in files: what goes out without being held."""

    def __init__(self, parts: Sequence[bytes | Large]) -> None:
        self._parts = parts
        self.size = sum(map(len, parts))

    def __iter__(self) -> Iterator[bytes]:
        for part in self._parts:
            if isinstance(part, Large):
                yield from part
            else:
                yield part

    def part(self, begin: int = 0, end: int | None = None) -> Body:
        """The octets from `begin` up to `end`."""
        end, at, found = self.size if end is None else end, 0, list[bytes | Large]()
        for part in self._parts:
            first, last = max(begin - at, 0), min(end - at, len(part))
            at += len(part)
            if first < last:
                found.append(part.part(first, last) if isinstance(part, Large) else part[first:last])
        return Body(found)

    def __getitem__(self, where: slice[int | None, int | None, None], /) -> bytes:
        begin, end, _ = where.indices(self.size)
        return b"".join(self.part(begin, end))

    def opened(self) -> Cut:
        """For who reads them once, from their beginning."""
        return Cut(iter(self))


def join(parts: Sequence[bytes | Large]) -> bytes | Body:
    """The parts one after the other; in memory, unless one of them is large."""
    small = [part for part in parts if isinstance(part, bytes)]
    return b"".join(small) if len(small) == len(parts) else Body(parts)


def digest(octets: bytes | Iterable[bytes]) -> str:
    """The SHA-256 of octets, in hexadecimal."""
    if isinstance(octets, Large):
        return octets.sha256
    if isinstance(octets, bytes):
        return hashlib.sha256(octets).hexdigest()
    found = hashlib.sha256()
    for piece in octets:
        found.update(piece)
    return found.hexdigest()


def unnamed() -> IO[bytes]:
    """A file without a name on the disk of RMHUB_VAR, for whoever asked to fill; it is gone when it is closed."""
    folder = settings.VAR_DIR / "spool"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return tempfile.TemporaryFile(dir=folder)


def pieces(file: IO[bytes]) -> Iterator[bytes]:
    """What a file holds, from where it is."""
    while piece := file.read(PIECE):
        yield piece
