"""The client: requests that are repeated where that is safe, lists that are read page by page, queues."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import os
import random
import ssl
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO
from urllib.parse import quote, urlencode, urlsplit

from rmhub_client.problems import NoAnswer, Problem, read

_PART = 8 * 1024 * 1024  # octets of an upload that one request carries
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 10.0  # seconds between two tries
_SAFE = ("GET", "HEAD")
_LATER = (500, 502, 503, 504, 507)


@dataclass(frozen=True, slots=True)
class Document:
    """A document to submit. The hub is told its SHA-256, and takes nothing else."""

    content: bytes
    content_type: str = "application/octet-stream"
    filename: str = ""
    label: str = "Document"


@dataclass(frozen=True, slots=True)
class Uploaded:
    """A document that was uploaded (`Client.upload`), to be submitted in place of a Document. `id`: of the upload."""

    id: str
    content_type: str = "application/octet-stream"
    filename: str = ""
    label: str = "Document"


@dataclass(frozen=True, slots=True)
class Warned:
    """What one should know of a submission that was taken: `pair_suspended`, for instance."""

    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class Receipt:
    """What was stored. `replayed`: the key was known, so nothing new was. `members`: all of the answer."""

    id: str
    state: str
    message_id: str
    document_id: str
    position: int
    replayed: bool
    warnings: tuple[Warned, ...]
    members: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class EventPage:
    """Some events in their order. Process them, then store `cursor`: it is where to go on."""

    events: Sequence[Mapping[str, Any]]
    cursor: str
    more: bool


@dataclass(frozen=True, slots=True)
class Taken:
    """A document from a pull queue: yours until `lease_until`. `payloads`: with `content` where it was asked for."""

    delivery: str
    claim: str
    document_id: str
    redelivery_count: int
    lease_until: str
    document: Mapping[str, Any]
    members: Mapping[str, Any] = field(repr=False)

    def content(self, number: int = 1) -> bytes:
        """The octets of a payload that came with the lease. Raises KeyError when they did not: it was too large."""
        return base64.b64decode(self.document["payloads"][number - 1]["content_base64"])


class Client:
    """One hub, as the owner of a token sees it.

    `url`: its root, or several roots of one hub, which are tried in turn. `timeout`: seconds for one try. `patience`:
    how long a request is repeated that gets no answer, or one that says "later" (429, 500, 502, 503, 504, 507): only
    what is safe to repeat. Requests raise Problem for an answer that is not 2xx, and NoAnswer.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        token: str,
        *,
        timeout: float = 35.0,
        patience: float = 60.0,
        context: ssl.SSLContext | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._roots = [url] if isinstance(url, str) else list(url)
        self._token = token
        self._timeout = timeout
        self._patience = patience
        self._context = context
        self._sleep = sleep
        self._mine = threading.local()

    # --- documents ---

    def submit(
        self,
        *,
        agreement: str,
        service: str,
        action: str,
        documents: Sequence[Document | Uploaded],
        key: str = "",
        attributes: Mapping[str, str] | None = None,
        **names: Any,
    ) -> Receipt:
        """Hands documents over for the partner of an agreement. When it returns they are stored and will be delivered.

        `key`: names this submission, an id that the application has stored already: then it may be made again after a
        crash. Without one it is only safe to repeat while this call lasts. `names`: `message_id`, `document_id`,
        `conversation_id`, `ref_to_message_id`, `semantics`, `time_to_live`, `resubmitted_from`.
        """
        body: dict[str, Any] = {"agreement": agreement, "service": service, "action": action, **names}
        if attributes:
            body["attributes"] = dict(attributes)
        body["payloads"] = [
            {
                **_octets(one),
                "content_type": one.content_type,
                "filename": one.filename,
                "label": one.label,
            }
            for one in documents
        ]
        headers, found = self._call("POST", "/messages", body=body, key=key or uuid.uuid4().hex)
        warnings = tuple(Warned(one["code"], one["detail"]) for one in found.get("warnings") or ())
        replayed = headers.get("idempotent-replayed") == "true"
        return Receipt(
            id=found["id"],
            state=found["state"],
            message_id=found["message_id"],
            document_id=found["document_id"],
            position=found["position"],
            replayed=replayed,
            warnings=warnings,
            members=found,
        )

    def upload(
        self,
        file: BinaryIO,
        *,
        id: str = "",
        part: int = _PART,
        began: Callable[[str], object] | None = None,
    ) -> str:
        """Uploads what a file holds, part by part, and returns the id of the upload, for `Uploaded`. A connection that
        breaks costs a part at most: it goes on where the hub is, for as long as parts come within `patience`.

        `id`: of an upload of the same file to go on with, after a crash; `began` is told the id of a new one before
        its first part. `part`: octets of one, which are held in memory. The hub checks the SHA-256 of the whole when
        the upload is submitted.
        """
        size = file.seek(0, os.SEEK_END)
        if not id:
            digest = _digest(file)
            # What nobody heard of is deleted after a day.
            id = self._call("POST", "/uploads", body={"size": size, "sha256": digest}, repeatable=True)[1]["id"]
            if began is not None:
                began(id)
        path = f"/uploads/{quote(id, safe='')}"
        offset = self._uploaded(path)
        until, wait = time.monotonic() + self._patience, _FIRST_WAIT
        while offset < size:
            file.seek(offset)
            headers = {"Content-Type": "application/octet-stream", "Upload-Offset": str(offset)}
            try:
                got, _ = self._send("PATCH", path, {}, file.read(part), headers, again=False)
                now = int(got["upload-offset"])
            except (NoAnswer, Problem) as error:
                elsewhere = isinstance(error, Problem) and error.code == "upload_offset_mismatch"
                lasting = isinstance(error, Problem) and not (error.retryable or elsewhere)
                if lasting or time.monotonic() + wait > until:
                    raise
                self._sleep(wait * random.uniform(0.8, 1.2))  # noqa: S311
                wait = min(wait * 2, _LONGEST_WAIT)
                now = self._uploaded(path)
            if now != offset:
                until, wait = time.monotonic() + self._patience, _FIRST_WAIT
            offset = now
        return id

    def _uploaded(self, path: str) -> int:
        return int(self._send("HEAD", path, {}, None, {})[0]["upload-offset"])

    def message(self, reference: str, *include: str) -> Mapping[str, Any]:
        """One message by its id or MessageId, with its `transmissions`, `signals` or `events` where included."""
        query = {"include": ",".join(include)} if include else {}
        return self.get(f"/messages/{quote(reference, safe='')}", **query)

    def messages(self, **filters: str | int) -> Iterator[Mapping[str, Any]]:
        """Messages, newest first, however many: `q="invoice:4711"`, `state="failed,in_doubt"`, `created_gte=...`."""
        return self.pages("/messages", **filters)

    def payload(self, reference: str, number: int = 1) -> bytes:
        """The octets of a message's document. Reading it is in the hub's audit log."""
        path = f"/messages/{quote(reference, safe='')}/payloads/{number}"
        return self._send("GET", path, {}, None, {})[1]

    # --- events ---

    def events(
        self, cursor: str = "", *, types: Sequence[str] = (), start: str = "", wait: int = 30
    ) -> Iterator[EventPage]:
        """Events in their order, for ever: none is left out, none comes twice. Store a page's `cursor` when you have
        processed it, and begin with it again.

        Without a cursor from the oldest event on, or from now on (`start="latest"`). `wait`: seconds for the first
        event, at most 30. A page may be empty.
        """
        query: dict[str, str | int] = {"wait": wait}
        if types:
            query["types"] = ",".join(types)
        if start and not cursor:
            query["start"] = start
        while True:
            found = self.get("/events", **({**query, "cursor": cursor} if cursor else query))
            cursor = found["next_cursor"] or cursor
            query.pop("start", None)
            yield EventPage(found["data"], cursor, found["has_more"])

    # --- pull queues ---

    def lease(self, trigger: str, *, limit: int = 10, consumer: str = "", payloads: bool = True) -> list[Taken]:
        """Takes documents from a pull queue, by the name or id of its trigger. What is not completed comes again."""
        body: dict[str, Any] = {"limit": limit, **({"consumer": consumer} if consumer else {})}
        path = f"/triggers/{quote(trigger, safe='')}/lease"
        found = self._call("POST", path, query={"include": "payloads"} if payloads else {}, body=body)[1]
        return [
            Taken(
                delivery=one["delivery"],
                claim=one["claim"],
                document_id=one["document_id"],
                redelivery_count=one["redelivery_count"],
                lease_until=one["lease_until"],
                document=one["document"],
                members=one,
            )
            for one in found["data"]
        ]

    def complete(self, taken: Taken) -> None:
        """Says that the document is processed. Safe to say again: the claim tells which hand-over is meant."""
        self._call("POST", f"/deliveries/{taken.delivery}/complete", body={"claim": taken.claim}, repeatable=True)

    def fail(self, taken: Taken, detail: str) -> None:
        """Says that it is processed, with an error that a person should see."""
        body = {"claim": taken.claim, "detail": detail}
        self._call("POST", f"/deliveries/{taken.delivery}/fail", body=body, repeatable=True)

    def release(self, taken: Taken, *, delay: int = 0) -> None:
        """Says that nothing was done with it: the next lease gets it as new, not before `delay` seconds."""
        body = {"claim": taken.claim, "delay": delay}
        self._call("POST", f"/deliveries/{taken.delivery}/release", body=body, repeatable=True)

    def extend(self, taken: Taken, seconds: int) -> None:
        """Asks for more time."""
        body = {"claim": taken.claim, "seconds": seconds}
        self._call("POST", f"/deliveries/{taken.delivery}/extend", body=body, repeatable=True)

    # --- everything else ---

    def get(self, path: str, **query: str | int) -> Mapping[str, Any]:
        """GET of any path of the API, which begins behind `/api/v1`."""
        return self._call("GET", path, query=query)[1]

    def post(self, path: str, body: Mapping[str, Any], *, key: str = "", etag: str = "") -> Mapping[str, Any]:
        """POST of any path. With `key` (Idempotency-Key) or `etag` (If-Match) it is repeated where it has no answer."""
        return self._call("POST", path, body=body, key=key, etag=etag, repeatable=bool(etag))[1]

    def patch(self, path: str, body: Mapping[str, Any], *, etag: str = "") -> Mapping[str, Any]:
        """PATCH of any path."""
        return self._call("PATCH", path, body=body, etag=etag, repeatable=True)[1]

    def delete(self, path: str, body: Mapping[str, Any] | None = None, *, etag: str = "") -> None:
        """DELETE of any path."""
        self._call("DELETE", path, body=body, etag=etag, repeatable=True)

    def pages(self, path: str, **filters: str | int) -> Iterator[Mapping[str, Any]]:
        """All rows of a list, one page after the other as they are needed."""
        query = dict(filters)
        while True:
            found = self.get(path, **query)
            yield from found["data"]
            if not found["has_more"]:
                return
            query["cursor"] = found["next_cursor"]

    def close(self) -> None:
        """Closes this thread's connections."""
        for connection in self._connections().values():
            connection.close()
        self._connections().clear()

    # --- the wire ---

    def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str | int] | None = None,
        body: Mapping[str, Any] | None = None,
        key: str = "",
        etag: str = "",
        repeatable: bool = False,
    ) -> tuple[Mapping[str, str], dict[str, Any]]:
        headers = {}
        if key:
            headers["Idempotency-Key"] = f'"{key}"'
        if etag:
            headers["If-Match"] = etag
        octets = None
        if body is not None:
            octets = json.dumps(body, separators=(",", ":")).encode()
            headers["Content-Type"] = "application/json"
        again = repeatable or bool(key) or method in _SAFE
        got, content = self._send(method, path, query or {}, octets, headers, again=again)
        return got, json.loads(content) if content else {}

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | int],
        body: bytes | None,
        headers: Mapping[str, str],
        *,
        again: bool = True,
    ) -> tuple[Mapping[str, str], bytes]:
        until = time.monotonic() + self._patience
        wait = _FIRST_WAIT
        turn = random.randrange(len(self._roots))  # noqa: S311  (no secret)
        while True:
            root = self._roots[turn % len(self._roots)]
            try:
                status, got, content = self._once(root, method, path, query, body, headers)
            except (OSError, http.client.HTTPException) as error:
                if not again or time.monotonic() + wait > until:
                    raise NoAnswer(f"{method} {root}/api/v1{path}: {error!r}") from error
                pause = wait
            else:
                if status < 300:
                    return got, content
                problem = read(status, got.get("content-type", ""), content, got.get("retry-after", ""))
                # What was refused for now has changed nothing, whatever it was.
                later = status == 429 or (again and (problem.retryable or status in _LATER))
                pause = max(wait, problem.retry_after or 0.0)
                if not later or time.monotonic() + pause > until:
                    raise problem
            self._sleep(pause * random.uniform(0.8, 1.2))  # noqa: S311
            wait = min(wait * 2, _LONGEST_WAIT)
            turn += 1

    def _once(
        self,
        root: str,
        method: str,
        path: str,
        query: Mapping[str, str | int],
        body: bytes | None,
        headers: Mapping[str, str],
    ) -> tuple[int, Mapping[str, str], bytes]:
        target = urlsplit(root).path.rstrip("/") + "/api/v1" + path + (f"?{urlencode(query)}" if query else "")
        sent = {"Authorization": f"Bearer {self._token}", "User-Agent": "rmhub-client/1.0", **headers}
        connection = self._connection(root)
        try:
            connection.request(method, target, body=body, headers=sent)
            answer = connection.getresponse()
            content = answer.read()
        except BaseException:
            connection.close()
            self._connections().pop(root, None)
            raise
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, content

    def _connections(self) -> dict[str, http.client.HTTPConnection]:
        found: dict[str, http.client.HTTPConnection] | None = getattr(self._mine, "connections", None)
        if found is None:
            found = self._mine.connections = {}
        return found

    def _connection(self, root: str) -> http.client.HTTPConnection:
        known = self._connections()
        if root not in known:
            parts = urlsplit(root)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError(f"{root} is no address such as https://hub.example.org")
            if parts.scheme == "https":
                context = self._context or ssl.create_default_context()
                known[root] = http.client.HTTPSConnection(
                    parts.hostname, parts.port, timeout=self._timeout, context=context
                )
            else:
                known[root] = http.client.HTTPConnection(parts.hostname, parts.port, timeout=self._timeout)
        return known[root]


def _digest(file: BinaryIO) -> str:
    """The SHA-256 of all that a file holds, in hexadecimal."""
    found = hashlib.sha256()
    file.seek(0)
    while piece := file.read(_PART):
        found.update(piece)
    return found.hexdigest()


def _octets(one: Document | Uploaded) -> dict[str, str]:
    """What a payload of a submission says of its octets."""
    if isinstance(one, Uploaded):
        return {"upload": one.id}
    return {
        "content_base64": base64.b64encode(one.content).decode(),
        "sha256": hashlib.sha256(one.content).hexdigest(),
    }
