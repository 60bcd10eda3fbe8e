"""What every place for payload bytes promises, and how it says that it cannot keep it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Protocol

# No transaction takes so long from keeping its bytes to its commit: a file that was wanted later than that is left.
YOUNG_SECONDS = 3600.0
DIGITS = 64  # of a SHA-256 in hexadecimal, with which every name begins after its folder


class PayloadMissing(Exception):
    """The store has no such file, or not its bytes: not restored with the database, removed, or damaged."""

    cause = "payload_missing"


class StoreUnavailable(OSError):
    """The store takes or gives no bytes at present; nothing was kept. `full`: there is no room left."""

    @classmethod
    def no_room(cls, where: str) -> StoreUnavailable:
        """Of what was counted before it was tried."""
        return cls(errno.ENOSPC, os.strerror(errno.ENOSPC), where)

    @property
    def full(self) -> bool:
        return self.errno in (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class Room:
    """Whether the store takes bytes right now, by a file that was written. `error`: why not, "" when it does.

    `free`: octets; None when that is not known, or the folder is not there.
    """

    error: str
    full: bool
    free: int | None


def digest_of(name: str) -> str:
    """The SHA-256, in hexadecimal, of the bytes that lie under this name."""
    return name.rpartition("/")[2][:DIGITS]


class Place(Protocol):
    """Where large payloads lie. What is put there is durable before its name is known, and never changes."""

    def put(self, digest: str, size: int, data: bytes | IO[bytes]) -> str:
        """Stores bytes, or what a file holds from its beginning, which is never held whole in memory.

        Returns the name that they have from now on. Raises StoreUnavailable.
        """

    def get(self, name: str) -> bytes:
        """The bytes, not compared with their digest. Raises PayloadMissing, StoreUnavailable."""

    def open(self, name: str) -> IO[bytes]:
        """The bytes as a file that can be read from any octet, likewise."""

    def room(self) -> Room:
        """Writes and removes a small file. Never raises."""

    def remove(self, name: str, is_named: Callable[[], bool]) -> bool:
        """Removes what no row names. False when it stays, as it is young or named; True when it is gone."""

    def names(self) -> Iterator[tuple[list[str], int]]:
        """Everything that is there, in portions, and how many old leavings of broken writes were removed with each."""

    def missing(self, names: list[str]) -> list[str]:
        """Those that are not there. Raises StoreUnavailable."""

    def note(self, name: str) -> bytes | None:
        """What was noted under a name beside the payloads, None = nothing. Raises OSError."""

    def write_note(self, name: str, data: bytes) -> None:
        """Notes it durably, in place of what was noted before. Raises OSError."""
