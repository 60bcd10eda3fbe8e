"""The parts of a message, for the library that makes and checks signatures: read piece by piece, and nothing else.

libxmlsec1 reads what references name through functions that are the same for the whole process. By default they open
files and URLs; here they know the parts of one message, while a lock is held, and at all other times nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar
from urllib.parse import quote, unquote

import xmlsec

Part = bytes | Iterable[bytes]

_T = TypeVar("_T")
_LIBRARY = threading.Lock()


def uri_of(cid: str) -> str:
    """The URI of a Content-ID without angle brackets (RFC 2392)."""
    return "cid:" + quote(cid, safe="!$&'()*+,-.:;=@_~")


def cid_of(uri: str) -> str | None:
    """The Content-ID that a cid: URI names, percent-encoded or not; None for any other URI."""
    scheme, _colon, rest = uri.partition(":")
    return unquote(rest) if scheme.lower() == "cid" and rest and "#" not in uri else None


def with_parts(parts: Mapping[str, Part], work: Callable[[], _T]) -> _T:
    """Does work of the library in which each of these URIs leads to its part, and no other URI anywhere.

    No other thread signs or verifies meanwhile, so parts should be at hand and not come over a network. Nothing of a
    part is kept but the piece that is read. Raises what reading a part raises.
    """
    with _LIBRARY:
        _access.parts = {uri.encode(): part for uri, part in parts.items()}
        try:
            return work()
        except xmlsec.Error:
            if _access.failure is not None:
                raise _access.failure from None
            raise
        finally:
            _access.parts, _access.failure = {}, None


class _Pieces:
    """One part that is being read."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._pieces: Iterator[bytes] | None = None
        self._rest = memoryview(b"")

    def into(self, buffer: memoryview) -> int:
        """Fills as much of the buffer as the next octets do; 0 at the end."""
        if self._pieces is None:
            self._pieces = iter((self._part,) if isinstance(self._part, bytes) else self._part)
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = memoryview(piece)
        count = min(len(self._rest), len(buffer))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


class _Access:
    """What the library calls. It cannot pass exceptions on, so the first is kept."""

    def __init__(self) -> None:
        self.parts: dict[bytes, Part] = {}
        self.failure: BaseException | None = None

    def knows(self, uri: bytes) -> bool:
        return uri in self.parts

    def open(self, uri: bytes) -> _Pieces:
        return _Pieces(self.parts[uri])

    def read(self, pieces: _Pieces, buffer: memoryview) -> int:
        try:
            return pieces.into(buffer)
        except BaseException as error:
            self.failure = self.failure or error
            return -1

    def close(self, pieces: _Pieces) -> None:
        """Nothing is held that would have to be closed."""


_access = _Access()
# Once, and never removed: after a failure the library closes what it has opened when its context goes, which can be
# long after the work, and it crashes if the functions are gone by then.
xmlsec.cleanup_callbacks()
xmlsec.register_callbacks(_access.knows, _access.open, _access.read, _access.close)
