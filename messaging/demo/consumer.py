"""The demo's application as a consumer of pull queues: leases documents by the hub's API, and says when it is done.

It keeps no record of what it holds: what it had leased when it was killed comes again when the lease is over, or is in
doubt. Standard library only, like all of the application.
"""

from __future__ import annotations

import base64
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.parse import quote

AT_ONCE = 4  # documents leased together
IDLE = 0.5  # seconds between two looks into an empty queue
PATIENCE = 15  # seconds for an answer of the hub, who may ask the resolver before it gives


@dataclass(frozen=True, slots=True)
class Taken:
    """A leased document with its octets (of the first payload)."""

    delivery: str
    claim: str
    document_id: str
    trigger: str
    message_id: str
    redelivery_count: int
    content_type: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Queue:
    """A pull queue of one hub: its root URL, the name of the trigger, an API token."""

    url: str
    trigger: str
    token: str

    def lease(self) -> list[Taken]:
        """What is there to do. Raises OSError, HTTPException and ValueError when the hub cannot be asked."""
        path = f"/api/v1/triggers/{quote(self.trigger)}/lease?include=payloads"
        return [_read(entry) for entry in self._post(path, {"limit": AT_ONCE})["data"]]

    def complete(self, taken: Taken) -> None:
        """Says that the document is done. Raises like `lease`."""
        self._post(f"/api/v1/deliveries/{taken.delivery}/complete", {"claim": taken.claim})

    def _post(self, path: str, content: dict[str, object]) -> Any:
        request = urllib.request.Request(  # noqa: S310  (the hub's address, from the command line)
            self.url + path,
            data=json.dumps(content).encode(),
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"},
            method="POST",
        )
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:  # noqa: S310
            return json.loads(answer.read())


def consume(queue: Queue, effect: Callable[[Taken], None], stop: threading.Event) -> None:
    """Leases, has the effect, completes; until `stop` is set. `effect` runs in several threads at once."""
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="consumer") as pool:
        while not stop.is_set():
            try:
                taken = queue.lease()
            except (OSError, HTTPException, ValueError):
                taken = []
            if not taken:
                stop.wait(IDLE)
            for _ in pool.map(lambda one: _process(queue, one, effect), taken):
                pass


def _process(queue: Queue, taken: Taken, effect: Callable[[Taken], None]) -> None:
    effect(taken)
    for _ in range(10):  # saying it again is harmless, and not saying it would leave the document in doubt
        try:
            queue.complete(taken)
            return
        except urllib.error.HTTPError as error:
            error.close()
            if error.code < 500:
                return  # the lease was over: the hub has decided without us
        except (OSError, HTTPException, ValueError):
            pass
        threading.Event().wait(IDLE)


def _read(entry: dict[str, Any]) -> Taken:
    payload = entry["document"]["payloads"][0]
    return Taken(
        delivery=entry["delivery"],
        claim=entry["claim"],
        document_id=entry["document_id"],
        trigger=entry["trigger"]["name"],
        message_id=entry["document"]["message_id"],
        redelivery_count=entry["redelivery_count"],
        content_type=payload["content_type"],
        content=base64.b64decode(payload["content_base64"]),
    )
