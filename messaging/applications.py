"""What a Django app registers to take documents in the worker's own process.

    from messaging.applications import Document, Transient, service

    @service("orders.import")
    def import_order(document: Document) -> None: ...

Import the module from the app's `AppConfig.ready`. A callable runs inside the transaction that writes the document
history (spec 4): what it does with Django's database connection and the entry "completed" are committed together.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import IO, TypeVar

from messaging.storage import Large


@dataclass(frozen=True, slots=True)
class Part:
    """One payload: its octets and what the message says of it."""

    octets: bytes | Large
    content_type: str
    filename: str = ""
    label: str = ""

    @property
    def content(self) -> bytes:
        """The octets in memory, however many they are."""
        return self.octets if isinstance(self.octets, bytes) else self.octets[:]

    def open(self) -> IO[bytes]:
        """The octets as a file, at its beginning: a large document is then never in memory."""
        return io.BytesIO(self.octets) if isinstance(self.octets, bytes) else self.octets.opened()


@dataclass(frozen=True, slots=True)
class Document:
    """A document as an application sees it.

    `document_id` is what the document history goes by, `redelivery_count` how often it was handed over before (-1: not
    known). `others` holds the other documents of a join, in the order of their arrival.
    """

    delivery: str
    trigger: str
    document_id: str
    redelivery_count: int
    message: uuid.UUID
    message_id: str
    conversation_id: str
    ref_to_message_id: str
    agreement: str
    sender: str
    profile: str
    service: str
    action: str
    received_at: datetime
    parts: tuple[Part, ...] = ()
    others: tuple[Document, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Reply:
    """What a service answers to a synchronous exchange. Headers are names and values; hop-by-hop ones are left out."""

    status: int = 200
    body: bytes = b""
    content_type: str = "application/octet-stream"
    headers: tuple[tuple[str, str], ...] = ()


class Transient(Exception):
    """Raised by a service, resolver or monitor: not now, the same may succeed later (spec 4's transient error).

    What a service did in its transaction is undone; it is run again as the trigger's retry settings say.
    """

    def __init__(self, detail: str = "", *, retry_after: int | None = None) -> None:
        super().__init__(detail)
        self.retry_after = retry_after


Service = Callable[[Document], Reply | None]
Resolver = Callable[[Document], object]  # "NEW", "DUPLICATE" or "IN DOUBT"; anything else is in doubt
Monitor = Callable[[], object]  # True or "true": the resources are there
_Any = TypeVar("_Any", bound=Callable[..., object])

SERVICES: dict[str, Service] = {}
RESOLVERS: dict[str, Resolver] = {}
MONITORS: dict[str, Monitor] = {}


def _registers(table: dict[str, _Any], name: str) -> Callable[[_Any], _Any]:
    def register(function: _Any) -> _Any:
        known = table.setdefault(name, function)
        if known is not function:
            raise ValueError(f"{name!r} is registered already, by {known.__module__}.{known.__qualname__}")
        return function

    return register


def service(name: str) -> Callable[[Service], Service]:
    """Registers a service for triggers of kind "callable". Raises ValueError for a name that is taken."""
    return _registers(SERVICES, name)


def resolver(name: str) -> Callable[[Resolver], Resolver]:
    """Registers a document resolver service (spec 4, step 3). Raises ValueError for a name that is taken."""
    return _registers(RESOLVERS, name)


def monitor(name: str) -> Callable[[Monitor], Monitor]:
    """Registers a resource monitor, asked while a trigger is suspended. Raises ValueError for a name that is taken."""
    return _registers(MONITORS, name)
