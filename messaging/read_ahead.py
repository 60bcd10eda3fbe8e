"""Reads what lies in the store before a claim needs it: no transaction waits for a disk or a bucket.

A claim that comes to such a message leaves it as it is (`Unread`). Its octets are made after the commit, with no lock
held: files are read, compared with their digests, searched for a boundary, hashed. The next claim finds them here, or
why there are none, and goes on as with octets of a row; unless the message has come to another place meanwhile, and is
made again.
"""

from __future__ import annotations

import copy
import logging
import threading
import time
import uuid
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from messaging.models import Message
from messaging.protocol.envelope import Pieces
from messaging.protocol.errors import EncodeError
from messaging.storage import PayloadMissing
from rmhub.postgresql.base import give_back

log = logging.getLogger(__name__)

Octets = bytes | Pieces
Encode = Callable[[Message], Octets]  # sets `_FIELDS` of the message

_THREADS = 2
# So long what was read waits for its claim, with its open files.
KEPT_SECONDS = 60.0
# So long a store that could not be read is left alone.
AGAIN_SECONDS = 10.0
_FIELDS = ("sequence_number", "previous_number", "tx_sequence_id", "content_type", "wire_frame", "digest")


class Unread(Exception):
    """The octets lie in the store and were not read yet. Nothing has changed: the message stays due."""


@dataclass(slots=True)
class _Entry:
    """One message under its place. Once it is read (`read_at`, monotonic): its octets, or why there are none; neither
    while the store is away.
    """

    place: Hashable
    message: Message
    encode: Encode
    begun: bool = False
    octets: Octets | None = None
    error: EncodeError | PayloadMissing | None = None
    read_at: float | None = None

    @property
    def tells(self) -> bool:
        """Whether a claim can go on with it: there are octets, or it is known why there will be none."""
        return self.octets is not None or self.error is not None

    def is_over(self, now: float) -> bool:
        """Whether it is of no use any more."""
        kept = KEPT_SECONDS if self.tells else AGAIN_SECONDS
        return self.read_at is not None and now - self.read_at > kept


class Reader:
    """What was asked for and what was read, by message. `done`: called when something was read by a thread of its own;
    None = `read` reads, and raises StoreUnavailable.
    """

    def __init__(self, done: Callable[[], None] | None = None) -> None:
        self._done = done
        self._lock = threading.Lock()
        self._entries: dict[uuid.UUID, _Entry] = {}
        self._pool: ThreadPoolExecutor | None = None

    def octets(self, message: Message, place: Hashable, encode: Encode) -> Octets:
        """The octets of a message at its place, as `encode` made them; sets its fields.

        Raises Unread, and asks for it; and what `encode` raised: EncodeError, storage.PayloadMissing.
        """
        with self._lock:
            entry = self._entries.get(message.pk)
            if entry is None or (entry.place != place and entry.read_at is not None):
                self._entries[message.pk] = _Entry(place, copy.copy(message), encode)
                raise Unread
        if entry.place != place or not entry.tells:
            raise Unread
        if entry.octets is None:
            assert entry.error is not None
            raise type(entry.error)(*entry.error.args)
        for name in _FIELDS:
            setattr(message, name, getattr(entry.message, name))
        return entry.octets

    def drop(self, message_pk: uuid.UUID) -> None:
        """It is claimed, or ended."""
        with self._lock:
            self._entries.pop(message_pk, None)

    def pairs(self) -> set[uuid.UUID]:
        """The pairs for which nothing can be claimed now: their message is being read, or the store is away."""
        now = time.monotonic()
        with self._lock:
            self._entries = {key: entry for key, entry in self._entries.items() if not entry.is_over(now)}
            return {entry.message.pair_id for entry in self._entries.values() if not entry.tells}

    def read(self) -> bool:
        """Reads what was asked for, or begins to. True: all of it was read, and a claim finds it."""
        with self._lock:
            asked = [entry for entry in self._entries.values() if not entry.begun]
            for entry in asked:
                entry.begun = True
            if asked and self._done is not None and self._pool is None:
                self._pool = ThreadPoolExecutor(_THREADS, "read-ahead")
        for entry in asked:
            if self._pool is not None:
                self._pool.submit(self._read_apart, entry)
                continue
            self._read(entry)
        return bool(asked) and self._done is None

    def close(self) -> None:
        """Begins nothing new, and waits for what is being read."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None
        self._entries.clear()

    def _read_apart(self, entry: _Entry) -> None:
        assert self._done is not None
        try:
            self._read(entry)
        except Exception as error:
            log.warning(
                "a message cannot be read from the store now; tried again",
                extra={"action": "read_ahead_failed", "message_id": entry.message.public_id, "error": str(error)[:200]},
            )
        finally:
            give_back()
        self._done()

    def _read(self, entry: _Entry) -> None:
        try:
            entry.octets = entry.encode(entry.message)
        except (EncodeError, PayloadMissing) as error:
            # Without its traceback, in which files are open.
            entry.error = type(error)(*error.args)
        finally:
            entry.read_at = time.monotonic()
