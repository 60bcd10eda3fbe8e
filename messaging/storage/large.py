"""Octets that are too many to be held: files that are read piece by piece, and bodies made of them."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import IO

from django.conf import settings

PIECE = 256 * 1024  # bytes that are held of a document at once; one that is no larger is no file


class Large:
    """A file that can be read again from its beginning, by one thread at a time; `envelope.Sought`.

    It is closed with its last user.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def __del__(self) -> None:
        self._file.close()

    @cached_property
    def size(self) -> int:
        return self._file.seek(0, os.SEEK_END)

    @cached_property
    def sha256(self) -> str:
        """In hexadecimal; reads all of it once."""
        return digest(self)

    def opened(self) -> IO[bytes]:
        """The file, at its beginning; whoever reads it keeps this object too."""
        self._file.seek(0)
        return self._file

    def part(self, begin: int = 0, end: int | None = None) -> Part:
        """The octets from `begin` up to `end`, for who reads them later."""
        self._file.seek(begin)
        return Part(self, self._file, (self.size if end is None else end) - begin)

    def held(self) -> bytes | Large:
        """Its bytes, if they are no more than are held of a document at once."""
        return self if self.size > PIECE else self.head(PIECE)

    def head(self, most: int) -> bytes:
        """Its first bytes, all of them if there are no more."""
        return self.opened().read(most)

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[bytes]:
        yield from pieces(self.opened())

    def __contains__(self, sought: bytes) -> bool:
        """Whether these bytes are in it, also where two pieces meet."""
        before = b""
        for piece in self:
            if sought in before + piece:
                return True
            before = piece[1 - len(sought) :] if len(sought) > 1 else b""
        return False


class Part:
    """So many octets of a file from where it is, which a web server reads piece by piece."""

    def __init__(self, large: Large, file: IO[bytes], size: int) -> None:
        self._large, self._file, self._left = large, file, size

    def read(self, size: int = -1) -> bytes:
        piece = self._file.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(piece)
        return piece

    def close(self) -> None:
        self._file.close()


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


class Body:
    """Octets one after the other, some of which are in files: what goes out without being held; `envelope.Pieces`."""

    def __init__(self, parts: Sequence[bytes | Large]) -> None:
        self._parts = parts

    def __len__(self) -> int:
        return sum(len(part) for part in self._parts)

    def __iter__(self) -> Iterator[bytes]:
        yield from self._between(0, len(self))

    def part(self, begin: int = 0, end: int | None = None) -> Cut:
        """The octets from `begin` up to `end`, for who reads them later."""
        return Cut(self._between(begin, len(self) if end is None else end))

    def _between(self, begin: int, end: int) -> Iterator[bytes]:
        at = 0
        for part in self._parts:
            first, last = max(begin - at, 0), min(end - at, len(part))
            at += len(part)
            if first >= last:
                continue
            if isinstance(part, Large):
                yield from pieces(part.part(first, last))
            else:
                yield part[first:last]


def join(parts: Sequence[bytes | Large]) -> bytes | Body:
    """The parts one after the other; in memory, unless one of them is large."""
    small = [part for part in parts if isinstance(part, bytes)]
    return b"".join(small) if len(small) == len(parts) else Body(parts)


def digest(octets: bytes | Iterable[bytes]) -> str:
    """The SHA-256 of octets, in hexadecimal."""
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


def pieces(file: IO[bytes] | Part) -> Iterator[bytes]:
    """What a file holds, from where it is."""
    while piece := file.read(PIECE):
        yield piece
