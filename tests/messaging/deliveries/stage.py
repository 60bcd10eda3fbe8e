"""The application at the other end of triggers, and a worker, for tests of deliveries.

`application` is a real HTTP server on loopback that writes down what it is asked. `arrive` brings documents in through
our entrance, `copy_of` makes the second copy of one that came by another road, and `work` does what a worker does with
all that is due at the moment at which the clock stands.
"""

from __future__ import annotations

import itertools
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from messaging.deliveries.services import claiming, talking, triggering
from messaging.deliveries.services.job import Job
from messaging.engine import subscriptions
from messaging.journal.audit import Actor
from messaging.models import Delivery, Message, Payload, Trigger
from rmhub import clock
from rmhub.ids import uuid7
from tests.messaging.factories import PartnerSide
from tests.messaging.http_server import Server, read_request, serving

PERSON = Actor("olga")
_count = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: its path, its headers (lower-case names), its body."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def document_id(self) -> str:
        return self.headers["rm-document-id"]

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.body)


Answer = bytes | Callable[[Asked], bytes]
BROKEN = b""  # the connection is closed without an answer


def http(status: int, body: bytes | str = b"", **headers: str) -> bytes:
    """An answer as octets; `headers` as in `Retry_After="30"`."""
    octets = body.encode() if isinstance(body, str) else body
    head = f"HTTP/1.1 {status} Whatever\r\nContent-Length: {len(octets)}\r\n"
    head += "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return head.encode() + b"\r\n" + octets


def verdict(status: object, message: object = None) -> bytes:
    """What a resolver answers."""
    return http(200, json.dumps({"status": status, "message": message}), Content_Type="application/json")


@dataclass(slots=True)
class Application:
    """Answers requests to a path with what is planned for it, the last one for ever; 200 when nothing is."""

    server: Server | None = None
    asked: list[Asked] = field(default_factory=list)
    plans: dict[str, list[Answer]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def url(self, path: str = "/documents") -> str:
        assert self.server is not None
        return f"http://127.0.0.1:{self.server.port}{path}"

    def plan(self, path: str, *answers: Answer) -> None:
        self.plans[path] = list(answers)

    def at(self, path: str) -> list[Asked]:
        return [one for one in self.asked if one.path == path]

    @property
    def documents(self) -> list[str]:
        """Ids of the documents that the service was run with, in that order."""
        return [one.document_id for one in self.at("/documents")]

    def handle(self, connection: socket.socket) -> None:
        while True:
            head, body = read_request(connection)
            if not head:
                return
            request_line, *lines = head.decode("latin-1").split("\r\n")
            named = (line.partition(": ") for line in lines)
            asked = Asked(request_line.split(" ")[1], {name.lower(): value for name, _, value in named}, body)
            with self._lock:
                self.asked.append(asked)
                planned = self.plans.get(asked.path) or [http(200, "thanks")]
                answer = planned.pop(0) if len(planned) > 1 else planned[0]
            octets = answer(asked) if callable(answer) else answer
            if octets == BROKEN:
                return
            connection.sendall(octets)


@contextmanager
def application() -> Iterator[Application]:
    made = Application()
    with serving(made.handle) as server:
        made.server = server
        yield made


def make_trigger(app: Application | None = None, **values: Any) -> Trigger:
    """An active trigger for every document, for the application's service at /documents unless `values` say otherwise.

    `resolver="http"` is its /resolver.
    """
    settings: dict[str, Any] = {"name": f"trigger {next(_count)}"}
    if app is not None:
        settings |= {"kind": "http", "url": app.url()}
        if values.get("resolver") == "http":
            settings["resolver_url"] = app.url("/resolver")
    made, _ = triggering.trigger_create(actor=PERSON, reason="test", **{**settings, **values})
    subscriptions.current.forget()
    return made


def arrive(partner: PartnerSide, *message_ids: str, **changes: Any) -> list[Delivery]:
    """Documents with these MessageIds come in from the partner, one after another. Returns their deliveries."""
    first = partner.inbound.last_sequence + 1 if _has_pair(partner) else 1
    for number, message_id in enumerate(message_ids, start=first):
        reliable = changes.get("semantics") is None
        assert partner.send(partner.message(number if reliable else None, message_id, **changes)) == 204
    return list(Delivery.objects.filter(message__message_id__in=message_ids).order_by("position", "id"))


def _has_pair(partner: PartnerSide) -> bool:
    return Message.objects.filter(agreement_version=partner.terms.version_id, direction="in").exists()


def copy_of(delivery: Delivery, **changes: Any) -> Delivery:
    """A second copy of the same document, on its way to the same trigger: it came by another road."""
    message = Message.objects.get(pk=delivery.message_id)
    payloads = list(Payload.objects.filter(message=message))
    message.pk = uuid7()
    message.position = message.pair.next_position
    message.pair.next_position += 1
    message.pair.save(update_fields=["next_position"])
    message.save(force_insert=True)
    for payload in payloads:
        payload.pk = None
        payload.message = message
        payload.save(force_insert=True)
    now = clock.now()
    made = Delivery(
        trigger_id=delivery.trigger_id,
        message=message,
        pair_id=delivery.pair_id,
        sender_id=delivery.sender_id,
        position=message.position,
        document_id=delivery.document_id,
        due_at=now,
        created_at=now,
    )
    for name, value in changes.items():
        setattr(made, name, value)
    made.save(force_insert=True)
    return made


def claim(*, limit: int = 64, worker: int = 0) -> list[Job]:
    """The first step alone: what a worker that dies now has done."""
    return claiming.claim_due(limit=limit, worker=worker)


def finish(jobs: list[Job]) -> None:
    """The second and the third step, and whatever follows from them at once."""
    while jobs:
        followers = talking.record([(job, talking.talk(job)) for job in jobs])
        jobs = [job for job in followers if job is not None]


def work(*, limit: int = 64) -> int:
    """What workers do until nothing is due right now. Returns how many hand-overs that were."""
    total = 0
    while jobs := claim(limit=limit):
        finish(jobs)
        total += len(jobs)
    return total


def now_of(delivery: Delivery) -> Delivery:
    """The delivery as it is in the database."""
    return Delivery.objects.select_related("trigger", "message").get(pk=delivery.pk)


def states(*deliveries: Delivery) -> list[str]:
    return [now_of(delivery).state for delivery in deliveries]


def lose(*jobs: Job) -> None:
    """The leases of these hand-overs are over: their worker died and recorded nothing."""
    Delivery.objects.filter(pk__in=[job.delivery.pk for job in jobs]).update(due_at=clock.now() - timedelta(seconds=1))
