"""What has overtaken its predecessor waits a moment, so that the rules see the messages of a stream in their order.

A sender may have several requests of one stream on the wire, and a network does not keep them in order. The rules of
spec 3 refuse what comes before its predecessor, and the sender would send it again half a minute later. So it is held
back in memory, for a second at most, until the predecessor is accepted; the rules stay as they are, only later.

What comes right behind a message that is being taken in this moment does not wait: both become one transaction. Nobody
waits inside a transaction, and only so many wait at all that the web server has threads left for what they wait
for. Another process's acceptance is seen by looking at the stream's row.

What the entrance of streams hands on: messages to `accepting`, receipts to `acknowledged`.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from django.conf import settings

from messaging import storage
from messaging.choices import SignalKind
from messaging.entrance.effects import Arrived
from messaging.protocol.codecs.stream import StreamEnvelope, StreamPosition
from messaging.protocol.streams.acceptance import Arrival as Place
from messaging.protocol.streams.final import Reason
from partners.terms import Principal, Terms
from rmhub.postgresql.base import give_back

# How long until the stream's row is looked at, and how long at most until it is looked at again.
FIRST_LOOK_SECONDS, LOOK_SECONDS = 0.01, 0.1
_MAX_KNOWN = 10_000

# (inbound pair, source) of a stream; (TxSequenceID, TxSequenceNumber) that it has come to.
Key = tuple[uuid.UUID, str]
Position = tuple[int, int]


@dataclass(slots=True)
class _Waiter:
    at: Position
    is_ready: Callable[[Position], bool]
    follows: bool  # it may go on as soon as its predecessor is being taken
    woken: threading.Event = field(default_factory=threading.Event)


class Holding:
    """Who waits for what, in this process."""

    def __init__(self, limit: int | None = None) -> None:
        """`limit`: how many may wait; None: half of the web server's threads, for what is waited for needs one, too."""
        self._limit = limit
        self._lock = threading.Lock()
        self._waiters: dict[Key, list[_Waiter]] = {}
        self._known: OrderedDict[Key, Position] = OrderedDict()  # the last ones that moved in this process
        self._taken_now: dict[Key, Counter[Position]] = {}
        self._looked_at: dict[Key, float] = {}
        self._count = 0

    def wait(
        self,
        key: Key,
        at: Position,
        *,
        is_ready: Callable[[Position], bool],
        look: Callable[[], Position],
        until: float,
        first: bool = False,
    ) -> bool:
        """Waits until the stream has come so far that the message `at` this place may be tried (again).

        `is_ready`: whether it may, with the stream at a position. `look`: where the stream's row says that it is.
        `until`: monotonic seconds. `first`: the rules have not seen it yet; it does not wait when its predecessor is
        being taken, nor when this process knows nothing of the stream. False: its time is over, or too many wait
        already; let the rules decide now.
        """
        waiter = _Waiter(at, is_ready, follows=first)
        with self._lock:
            known = self._known.get(key)
            if known is not None and is_ready(known):
                return True  # accepted between the rules' look and ours
            if first and (known is None or any(is_ready(taken) for taken in self._taken_now.get(key, ()))):
                return True
            limit = settings.RMHUB_WEB_THREADS // 2 if self._limit is None else self._limit
            if self._count >= limit or time.monotonic() >= until:
                return False
            self._count += 1
            self._waiters.setdefault(key, []).append(waiter)
        try:
            pause = FIRST_LOOK_SECONDS
            while (left := until - time.monotonic()) > 0:
                give_back()
                if waiter.woken.wait(min(left, pause)):
                    return True
                if self._may_look(key, pause):
                    self.advanced(key, look())
                pause = min(2 * pause, LOOK_SECONDS)
            return waiter.woken.is_set()
        finally:
            with self._lock:
                self._count -= 1
                waiting = self._waiters[key]
                waiting.remove(waiter)
                if not waiting:
                    del self._waiters[key]
                    self._looked_at.pop(key, None)

    def advanced(self, key: Key, position: Position) -> None:
        """The stream has come to `position`, committed: wakes whoever may go on, and who follows right behind them."""
        with self._lock:
            known = self._known.pop(key, position)
            self._known[key] = position = max(known, position)
            while len(self._known) > _MAX_KNOWN:
                self._known.popitem(last=False)
            self._wake(position, [*self._waiters.get(key, ())])

    @contextmanager
    def taking(self, key: Key, at: Position) -> Iterator[None]:
        """The message `at` this place is on its way through the rules."""
        with self._lock:
            self._taken_now.setdefault(key, Counter())[at] += 1
            self._wake(at, [waiter for waiter in self._waiters.get(key, ()) if waiter.follows])
        try:
            yield
        finally:
            with self._lock:
                taken = self._taken_now[key]
                taken[at] -= 1
                if not taken[at]:
                    del taken[at]
                if not taken:
                    del self._taken_now[key]

    @staticmethod
    def _wake(position: Position, waiters: list[_Waiter]) -> None:
        for waiter in sorted(waiters, key=lambda one: one.at):
            if waiter.is_ready(position):
                waiter.woken.set()
                position = max(position, waiter.at)

    def waiting(self) -> int:
        """How many wait."""
        with self._lock:
            return self._count

    def reset(self) -> None:
        """Forgets where streams are (tests, whose transactions are rolled back)."""
        with self._lock:
            self._known.clear()

    def _may_look(self, key: Key, pause: float) -> bool:
        """One of those that wait for a stream looks at its row, and not the next one a moment later."""
        now = time.monotonic()
        with self._lock:
            if now - self._looked_at.get(key, 0.0) < pause:
                return False
            self._looked_at[key] = now
            return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Item(Arrived):
    """One message under an agreement in force, checked as far as it goes alone.

    `service`, `action`: what it says, or the agreement's only ones. `refused`: why it is not taken, whatever its place
    in the stream (its sender gets a final receipt); `detail` says it in words. `may_wait`: when its predecessor is not
    there yet, nothing is decided.
    """

    envelope: StreamEnvelope
    terms: Terms
    pair_id: uuid.UUID
    service: str
    action: str
    refused: Reason | None = None
    detail: str = ""
    may_wait: bool = False

    @property
    def position(self) -> StreamPosition:
        """Of a transactional message."""
        assert self.envelope.position is not None
        return self.envelope.position

    @property
    def place(self) -> Place:
        """What the rules of spec 3 look at."""
        position = self.position
        return Place(position.tx_sequence_id, position.current, position.previous)

    @property
    def stream(self) -> Key:
        """Which stream it belongs to."""
        return self.pair_id, self.position.source


@dataclass(frozen=True, slots=True)
class Receipt:
    """An order acknowledgement (kind ACKNOWLEDGEMENT) or a final receipt (FINAL) of an authenticated partner.

    `terms`: the agreement in force whose address it came to, if there is one. `source`, `tx_sequence_id`: the stream
    that it names ("" and 0 without one). `number`: lastOrdinal; of a final receipt the message's number, or 0.
    `about`: MessageId that a final receipt is about.
    """

    kind: SignalKind
    principal: Principal
    terms: Terms | None
    message_id: str
    source: str
    tx_sequence_id: int
    number: int
    about: str
    message_class: int
    content_type: str
    body: bytes | storage.Large
    digest: str
    remote_address: str = ""
    traceparent: str = ""
