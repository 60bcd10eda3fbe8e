"""A document that is too large to be held: a file that is read piece by piece."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from functools import cached_property
from typing import IO

PIECE = 256 * 1024  # bytes that are held of a document at once


class Large:
    """A file that can be read again from its beginning, by one thread at a time. It is closed with its last user."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    @cached_property
    def size(self) -> int:
        return self._file.seek(0, os.SEEK_END)

    @cached_property
    def sha256(self) -> str:
        """In hexadecimal; reads all of it once."""
        digest = hashlib.sha256()
        for piece in pieces(self.opened()):
            digest.update(piece)
        return digest.hexdigest()

    def opened(self) -> IO[bytes]:
        """The file, at its beginning."""
        self._file.seek(0)
        return self._file

    def head(self, most: int) -> bytes:
        """Its first bytes, all of them if there are no more."""
        return self.opened().read(most)


def pieces(file: IO[bytes]) -> Iterator[bytes]:
    """What a file holds, from where it is."""
    while piece := file.read(PIECE):
        yield piece
