"""Which sample documents go where, and handing them over through the API."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from messaging.demo.seeding import BILLING, EDI, ORDERS, tpa_id
from messaging.demo.stage import Stage
from rmhub_client import Client
from rmhub_client import Document as Payload

FOLDER = Path(__file__).parent / "documents"


@dataclass(frozen=True, slots=True)
class Document:
    """A sample document with the service and action under which it is sent."""

    name: str
    service: str
    action: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Errand:
    """One document to hand over to one of the hubs ("a" is the buyer's)."""

    hub: str
    agreement: str
    document: Document


@cache
def documents() -> tuple[Document, ...]:
    """All sample documents, in the order of their names."""
    found = []
    for path in sorted(FOLDER.glob("*.*")):
        if path.suffix == ".edi":
            found.append(Document(path.name, EDI, "Invoice" if "invoice" in path.name else "Order", path.read_bytes()))
        elif path.suffix == ".xml":
            order = "order" in path.name
            credit = "creditnote" in path.name
            action = "Order" if order else "CreditNote" if credit else "Invoice"
            found.append(Document(path.name, ORDERS if order else BILLING, action, path.read_bytes()))
    return tuple(found)


def plan(stage: Stage, total: int, agreements: int) -> Iterator[Errand]:
    """`total` errands, alternating between the two directions and over all agreements."""
    known = documents()
    for number in range(total):
        hub = (stage.buyer, stage.seller)[number % 2].name
        yield Errand(hub, tpa_id(number // 2 % agreements + 1), known[number % len(known)])


def by_pair(errands: list[Errand]) -> list[list[Errand]]:
    """The errands by pair, each in its order."""
    found: dict[tuple[str, str], list[Errand]] = defaultdict(list)
    for errand in errands:
        found[errand.hub, errand.agreement].append(errand)
    return list(found.values())


def submit(stage: Stage, errands: list[Errand], *, together: bool = False) -> tuple[str, set[str]]:
    """Hands over the errands of one pair, one after the other; returns the hub and the MessageIds that it accepted.

    `together`: all of them belong to one conversation.
    """
    hub = stage.buyer if errands[0].hub == "a" else stage.seller
    with closing(stage.client(hub)) as client:
        return hub.name, {
            hand_over(client, errand.agreement, errand.document, errand.agreement if together else "")
            for errand in errands
        }


def hand_over(client: Client, agreement: str, document: Document, conversation: str = "") -> str:
    """Submits one document; returns its MessageId. Raises rmhub_client.Problem and NoAnswer."""
    more: dict[str, Any] = {"conversation_id": conversation} if conversation else {}
    kind = "application/xml" if document.name.endswith(".xml") else "application/edifact"
    receipt = client.submit(
        agreement=agreement,
        service=document.service,
        action=document.action,
        documents=[Payload(document.content, kind, document.name, document.action)],
        **more,
    )
    return receipt.message_id
