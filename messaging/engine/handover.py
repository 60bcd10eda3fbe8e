"""Hands transmissions that are claimed for a worker over to it, through Valkey.

Whoever commits that something is to be sent claims it in the same transaction for a worker that lives (`seat`), and
tells that worker so after the commit (`post`). The database knows the attempt and whose it is: a hand-over that is
lost, comes twice or comes late costs time and nothing else, because each worker asks once a second which attempts are
its own and not in its hands (`missing`). A hand-over has no credentials: the worker takes them from its own registry.

In Valkey, under the epoch of this hub's memory, so that two hubs that share one do not take each other's workers: the
numbers of the workers (`rmhub:<epoch>:workers`), what each says of itself, void after three seconds
(`...:worker:<number>`), and a list of hand-overs for each (`...:handover:<number>`).
"""

from __future__ import annotations

import json
import logging
import random
import threading
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import redis
from django.conf import settings
from django.db import connection

from messaging import dispatch
from messaging.claim import WITHHELD, Job, JobKind, parcel
from messaging.models import Transmission
from partners import registry
from rmhub import broker, clock
from rmhub.ids import public_id
from rmhub.postgresql.base import give_back

log = logging.getLogger(__name__)

# What a worker says of itself holds so long, and is said so often, seconds.
VOID_AFTER, SAY_EVERY = 3.0, 1.0
# So long this process relies on what it has read.
_READ_EVERY = 0.5
_LIST_SECONDS = 60
# What is larger is not encoded under the lock of its pair, and not sent through Valkey.
PLAIN_BYTES = 64 * 1024
_TOGETHER = 64


def _key(what: str, worker: int | None = None) -> str:
    assert _seats.hub is not None
    return f"rmhub:{_seats.hub.hex}:{what}" + (f":{worker}" if worker is not None else "")


@dataclass(slots=True)
class Seat:
    """A worker that takes more: how much (`room`), and for which servers nothing (`full`)."""

    worker: int
    room: int
    full: frozenset[str] = frozenset()


class _Seats:
    """What this process knows of the workers. One thread at a time reads it anew; the others go on with what it was."""

    def __init__(self, hub: uuid.UUID | None = None) -> None:
        self.hub = hub
        self.reading = threading.Lock()
        self.read_at = float("-inf")  # monotonic
        self.seats: list[Seat] = []


_seats = _Seats()


def of_hub(epoch: uuid.UUID) -> None:
    """Says which hub this process is of: before, there is no worker for it."""
    global _seats
    if _seats.hub != epoch:
        _seats = _Seats(epoch)


def forget() -> None:
    """Forgets the hub and its workers (tests)."""
    global _seats
    _seats = _Seats()


def seat() -> Seat | None:
    """A worker that what is to be sent can be claimed for; None when none lives, or has room. Never raises.

    Call it before the transaction: Valkey may need a moment. Inside of one it goes by what was read before.
    """
    known = _seats
    if known.hub is None:
        return None
    old = time.monotonic() - known.read_at >= _READ_EVERY and not connection.in_atomic_block
    if old and known.reading.acquire(blocking=False):
        try:
            known.seats = _read()
            known.read_at = time.monotonic()
        finally:
            known.reading.release()
    free = [one for one in known.seats if one.room > 0]
    if not free or time.monotonic() - known.read_at > VOID_AFTER:
        return None
    return random.choice(free)  # noqa: S311  (no secret)


def _read() -> list[Seat]:
    if dispatch.is_down():
        return []
    try:
        numbers = [int(number) for number in dispatch.valkey().smembers(_key("workers"))]
        said = dispatch.valkey().mget([_key("worker", number) for number in numbers]) if numbers else []
    except redis.RedisError as error:
        dispatch.failed("workers not read", dispatch.SEND, error)
        return []
    found = []
    for number, what in zip(numbers, said, strict=True):
        if what is not None:
            read = json.loads(what)
            found.append(Seat(number, int(read["room"]), frozenset(read["full"])))
    return found


def say(worker: int, room: int, full: Collection[str]) -> None:
    """Makes this worker known to all processes. Raises RedisError."""
    with dispatch.valkey().pipeline(transaction=False) as together:
        together.sadd(_key("workers"), worker)
        together.set(
            _key("worker", worker), json.dumps({"room": room, "full": sorted(full)}), px=int(VOID_AFTER * 1000)
        )
        together.execute()


def lengths() -> list[int]:
    """How many hand-overs wait in each worker's list. Never raises: nobody knows of any without Valkey."""
    if _seats.hub is None or dispatch.is_down():
        return []
    try:
        with dispatch.valkey().pipeline(transaction=False) as together:
            for worker in dispatch.valkey().smembers(_key("workers")):
                together.llen(_key("handover", int(worker)))
            return [int(length) for length in together.execute()]
    except redis.RedisError as error:
        dispatch.failed("hand-overs not counted", dispatch.SEND, error)
        return []


def unsay(worker: int) -> None:
    """The worker takes nothing more. Never raises: what it said is void soon."""
    if _seats.hub is None:
        return
    try:
        with dispatch.valkey().pipeline(transaction=False) as together:
            together.srem(_key("workers"), worker)
            together.delete(_key("worker", worker))
            together.execute()
    except redis.RedisError as error:
        dispatch.failed("worker not signed off", dispatch.SEND, error)


def post(seat: Seat, jobs: Sequence[Job]) -> None:
    """Tells the worker what was claimed for it, after the commit. Never raises: what is lost it finds by itself."""
    seat.room -= len(jobs)
    small = [job for job in jobs if len(job.parcel.body) <= 2 * PLAIN_BYTES]
    if not small or dispatch.is_down():
        return
    try:
        key = _key("handover", seat.worker)
        with dispatch.valkey().pipeline(transaction=False) as together:
            together.rpush(key, *(_packed(job) for job in small))
            together.expire(key, _LIST_SECONDS)
            together.execute()
    except redis.RedisError as error:
        dispatch.failed("hand-over not sent", dispatch.SEND, error)


def _packed(job: Job) -> bytes:
    """The job as octets: a line of JSON, then the body."""
    sent = job.parcel
    head = {
        "kind": job.kind,
        "attempt": job.transmission_id.hex,
        "version": job.version_id.hex,
        "pair": job.pair_id.hex if job.pair_id else None,
        "message": job.message_id.hex if job.message_id else None,
        "signal": job.signal_id.hex if job.signal_id else None,
        "about": job.about_id.hex if job.about_id else None,
        "number": job.number,
        "last": job.last,
        "address": sent.address,
        "target": sent.target,
        "type": sent.content_type,
        "name": sent.name,
        "headers": sent.headers,
        "answer": sent.answer_bytes,
        "until": sent.not_after.isoformat() if sent.not_after else None,
        "bare": not (sent.authorization or sent.login or sent.client_certificate),
        "at": time.time(),
    }
    return json.dumps(head, separators=(",", ":")).encode() + b"\n" + sent.octets


def _unpacked(octets: bytes) -> tuple[Job, float]:
    """The job, and how many seconds ago it was handed over. Raises LookupError when its agreement is not known here."""
    line, _, body = octets.partition(b"\n")
    head = json.loads(line)
    attempt, version = uuid.UUID(head["attempt"]), uuid.UUID(head["version"])
    terms = registry.current().version(version)
    # A server that was not to see our credentials is not shown them here either.
    withheld: dict[str, Any] = WITHHELD if head["bare"] else {}
    job = Job(
        kind=JobKind(head["kind"]),
        transmission_id=attempt,
        transport=terms.transport,
        parcel=parcel(
            terms,
            head["address"],
            head["type"],
            body,
            clock.now(),
            target=head["target"],
            name=head["name"],
            headers=tuple((name, value) for name, value in head["headers"]),
            answer_bytes=head["answer"],
            not_after=datetime.fromisoformat(head["until"]) if head["until"] else None,
            attempt=public_id(Transmission.PREFIX, attempt),
            **withheld,
        ),
        version_id=version,
        pair_id=_id(head["pair"]),
        message_id=_id(head["message"]),
        signal_id=_id(head["signal"]),
        about_id=_id(head["about"]),
        number=head["number"],
        last=head["last"],
    )
    return job, max(0.0, time.time() - head["at"])


def _id(text: str | None) -> uuid.UUID | None:
    return uuid.UUID(text) if text else None


class Mailbox:
    """Reads what is handed over to this worker, in a thread of its own, and says once a second that it does.

    `state`: room and full servers, None = nothing is to be handed over now. `take`: jobs with their age in seconds.
    """

    def __init__(
        self,
        worker: int,
        *,
        state: Callable[[], tuple[int, Collection[str]] | None],
        take: Callable[[list[tuple[Job, float]]], None],
    ) -> None:
        self._worker = worker
        self._state = state
        self._take = take
        self._over = threading.Event()
        self._said_at = float("-inf")
        self._client = broker.client(settings.REDIS_URL, socket_timeout=5, socket_connect_timeout=1)
        self._thread = threading.Thread(target=self._run, name="mailbox", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Signs off, and takes what others, who have not noticed yet, still hand over.

        What comes later is due when this worker's presence has ended.
        """
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        self._client.close()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self._say()
                self._read(SAY_EVERY)
            except redis.RedisError as error:
                dispatch.failed("hand-overs not read", dispatch.SEND, error)
                self._over.wait(SAY_EVERY)
            except Exception:
                # What was read and not taken is missing, and found as such.
                log.exception("hand-over not taken", extra={"action": "hand_over_failed"})
                self._over.wait(SAY_EVERY)
            finally:
                give_back()
        self._read_the_rest()

    def _read_the_rest(self) -> None:
        unsay(self._worker)
        until = time.monotonic() + _READ_EVERY
        while (left := until - time.monotonic()) > 0:
            try:
                self._read(left)
            except redis.RedisError as error:
                dispatch.failed("hand-overs not read", dispatch.SEND, error)
                return
            except Exception:
                log.exception("hand-over not taken", extra={"action": "hand_over_failed"})
            finally:
                give_back()

    def _say(self) -> None:
        if time.monotonic() - self._said_at < SAY_EVERY:
            return
        state = self._state()
        give_back()
        if state is None:
            unsay(self._worker)
        else:
            say(self._worker, *state)
        self._said_at = time.monotonic()

    def _read(self, seconds: float) -> None:
        if _seats.hub is None:
            self._over.wait(seconds)
            return
        key = _key("handover", self._worker)
        first = self._client.blpop([key], timeout=seconds)
        if first is None:
            return
        more = self._client.lpop(key, _TOGETHER) or []
        self._take([_unpacked(octets) for octets in (first[1], *more)])
