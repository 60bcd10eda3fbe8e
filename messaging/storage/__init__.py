"""Payload bytes: small ones lie in the row, large ones in the store, a folder or a bucket of objects
(RMHUB_STORE_URL); and the frame that makes them whole again.

Bytes are durable in the store before the row that names them is committed, so a committed row always finds them.
A file whose row never came is an orphan: nothing reads it, and the archive's runs sweep it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from django.conf import settings

from messaging.protocol.envelope import Sought
from messaging.storage.base import PayloadMissing, Place, Room, StoreUnavailable, digest_of
from messaging.storage.folder import Folder, synchronise
from messaging.storage.frames import cut_frame, pack_frame, unpack_frame
from messaging.storage.large import Body, Large, digest, join, unnamed

__all__ = (
    "Body",
    "Large",
    "PayloadMissing",
    "Room",
    "StoreUnavailable",
    "Stored",
    "cut_frame",
    "digest",
    "join",
    "keep",
    "load",
    "missing",
    "names",
    "note",
    "opened",
    "pack_frame",
    "place",
    "remove",
    "room",
    "synchronise",
    "unnamed",
    "unpack_frame",
    "write_note",
)


_FEW = 64 * 1024  # bytes of a file that are held in a row: a message may have a thousand of them


@dataclass(frozen=True, slots=True)
class Stored:
    """Where bytes lie: in `content`, or as `stored_as` in the store."""

    size: int
    sha256: str
    content: bytes | None
    stored_as: str


def place() -> Place:
    """Where this hub's large payloads lie."""
    if settings.RMHUB_STORE_URL is None:
        return Folder(settings.RMHUB_STORE_DIR)
    # A hub with a folder is spared the memory (20 MB) and the time that the client of S3 costs.
    from messaging.storage.objects import Objects

    return Objects(settings.RMHUB_STORE_URL, settings.RMHUB_STORE_ACCESS_KEY, settings.RMHUB_STORE_SECRET_KEY)


def keep(data: bytes | Sought) -> Stored:
    """Stores bytes durably; those of a file piece by piece, and once, however often that is asked for. Raises
    StoreUnavailable.
    """
    if not isinstance(data, bytes):
        assert isinstance(data, Large)
        return _keep_large(data)
    digest = hashlib.sha256(data).hexdigest()
    if len(data) <= settings.RMHUB_INLINE_PAYLOAD_BYTES:
        return Stored(len(data), digest, data, "")
    return Stored(len(data), digest, None, place().put(digest, len(data), data))


def _keep_large(large: Large) -> Stored:
    if large.size <= min(settings.RMHUB_INLINE_PAYLOAD_BYTES, _FEW):
        return keep(large[:])
    if not large.stored_as:
        large.stored_as = place().put(large.sha256, large.size, large.opened())
    return Stored(large.size, large.sha256, None, large.stored_as)


def load(content: bytes | memoryview | None, stored_as: str) -> bytes:
    """The bytes of a payload. Raises PayloadMissing when its file is not there, or does not hold what its name says,
    and StoreUnavailable while the store cannot be read: then nothing is known about the file.
    """
    if content is not None:
        return bytes(content)
    data = place().get(stored_as)
    if hashlib.sha256(data).hexdigest() != digest_of(stored_as):
        raise PayloadMissing(f"payload file {stored_as} is damaged")
    return data


def opened(content: bytes | memoryview | None, stored_as: str) -> bytes | Large:
    """The bytes of a payload, or the file that holds them; its bytes are what its name says. Raises as `load` does."""
    if content is not None:
        return bytes(content)
    large = Large(place().open(stored_as))
    try:
        is_whole = large.sha256 == digest_of(stored_as)
    except OSError as error:
        raise PayloadMissing(f"payload file {stored_as} cannot be read: {error.strerror}") from error
    if not is_whole:
        raise PayloadMissing(f"payload file {stored_as} is damaged")
    return large.held()


def room() -> Room:
    """Whether the store takes bytes now, by writing and removing a few, as `keep` does. Never raises."""
    return place().room()


def remove(name: str, is_named: Callable[[], bool]) -> bool:
    """Removes the file that payloads were `stored_as`, unless it is young or `is_named`.

    False when it stays; True when it is gone. Raises OSError.
    """
    return place().remove(name, is_named)


def names() -> Iterator[tuple[list[str], int]]:
    """All that payloads may be `stored_as`, in portions; and how many old leavings of broken writes went with each."""
    return place().names()


def missing(names: list[str]) -> list[str]:
    """Those of the names under which the store has nothing. Raises StoreUnavailable."""
    return place().missing(names)


def note(name: str) -> bytes | None:
    """What the hub has noted beside the payloads under this name. Raises OSError."""
    return place().note(name)


def write_note(name: str, data: bytes) -> None:
    """Notes something beside the payloads, durably, in place of what was there. Raises OSError."""
    place().write_note(name, data)
