"""A client of the REST API as an application would write it: it repeats under one Idempotency-Key until answered."""

from __future__ import annotations

import base64
import itertools
import json
import random
import time
from dataclasses import dataclass
from typing import Any

import urllib3


class Refused(Exception):
    """The hub answered with a problem that a repeat would not cure."""


@dataclass(frozen=True, slots=True)
class Client:
    """One hub's API. `patience`: seconds after which an unanswered request is given up. `others`: further addresses of
    the same hub, which requests and their repeats go to in turn.
    """

    url: str
    token: str
    pool: urllib3.PoolManager
    patience: float = 600.0  # a busy machine takes minutes to start a server that was killed
    others: tuple[str, ...] = ()

    def submit(
        self, *, key: str, agreement: str, service: str, action: str, name: str, content: bytes
    ) -> dict[str, Any]:
        """Submits one document. Raises Refused for a 4xx, TimeoutError when nobody answers within `patience`."""
        kind = "application/xml" if name.endswith(".xml") else "application/edifact"
        body = {
            "agreement": agreement,
            "service": service,
            "action": action,
            "payloads": [
                {
                    "content_type": kind,
                    "filename": name,
                    "label": action,
                    "content_base64": base64.b64encode(content).decode(),
                }
            ],
        }
        return self._repeat("POST", "/api/v1/messages", json.dumps(body).encode(), {"Idempotency-Key": f'"{key}"'})

    def _repeat(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> dict[str, Any]:
        until = time.monotonic() + self.patience
        wait = 0.05
        addresses = [self.url, *self.others]
        random.shuffle(addresses)
        for address in itertools.cycle(addresses):
            try:
                answer = self.pool.request(
                    method,
                    address + path,
                    body=body,
                    headers={"Authorization": f"Bearer {self.token}", "Content-Type": "application/json", **headers},
                    retries=False,
                    timeout=10,
                )
                if answer.status < 300:
                    result: dict[str, Any] = json.loads(answer.data)
                    return result
                if answer.status < 500 and answer.status not in (409, 429):
                    raise Refused(f"HTTP {answer.status}: {answer.data[:500].decode(errors='replace')}")
                trouble = f"HTTP {answer.status}"
            except urllib3.exceptions.HTTPError as error:
                trouble = str(error)
            if time.monotonic() > until:
                raise TimeoutError(f"{address}{path}: {trouble}")
            time.sleep(wait)
            wait = min(wait * 2, 1.0)
        raise AssertionError("a cycle of addresses has no end")
