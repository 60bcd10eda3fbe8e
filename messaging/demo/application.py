"""The demo's receiving application: a small HTTP server of its own, with nothing of the hub in it.

    python -m messaging.demo.application --port 9100 --database effects.sqlite3 --secret whsec_...

POST /documents has one effect, a row in the SQLite file, and no protection at all against having it twice: no unique
constraint, no look whether the document was here before. What comes twice is seen twice. POST /resolve says from the
same file whether a document has had its effect (spec 4's document resolver service); GET /health is asked while the hub
holds documents back. Requests carry a Standard Webhooks signature; others are refused. With --pull it fetches documents
instead, from the pull queue of a hub, and has the same effect.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import hashlib
import json
import os
import signal
import sqlite3
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

from messaging.demo.consumer import consume
from rmhub_client import BadSignature, Client, Taken, check

SECRETS = "DEMO_APPLICATION_SECRETS"  # environment variable: no list of processes shows what is in it
TOKENS = "DEMO_APPLICATION_TOKENS"  # the same: API tokens, one for each --pull
MAX_BODY = 64 * 1024 * 1024
PATIENCE = 5.0  # seconds for which the resolver waits for a call that is in work
_TABLE = """
CREATE TABLE IF NOT EXISTS effect (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    document_id TEXT NOT NULL,
    trigger_name TEXT NOT NULL,
    delivery TEXT NOT NULL,
    message_id TEXT NOT NULL,
    redelivery_count INTEGER NOT NULL,
    content_type TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    at TEXT NOT NULL
)
"""


def open_file(path: Path) -> sqlite3.Connection:
    """The application's own database; what it has committed survives a kill and a power cut."""
    connection = sqlite3.connect(path, timeout=30, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


@dataclass(frozen=True, slots=True)
class InWork:
    """Which documents a thread is busy with. A resolver that did not know would call a document new while it is."""

    changed: threading.Condition = field(default_factory=threading.Condition)
    count: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def doing(self, document_id: str) -> Iterator[None]:
        with self.changed:
            self.count[document_id] += 1
        try:
            yield
        finally:
            with self.changed:
                self.count[document_id] -= 1
                if not self.count[document_id]:
                    del self.count[document_id]
                self.changed.notify_all()

    def ended(self, document_id: str) -> bool:
        """Waits until nobody is busy with the document; False when that takes longer than `PATIENCE`."""
        with self.changed:
            return self.changed.wait_for(lambda: not self.count[document_id], PATIENCE)


@dataclass(frozen=True, slots=True)
class Handed:
    """A document with its octets, however it came."""

    delivery: str
    document_id: str
    trigger: str
    message_id: str
    redelivery_count: int
    content_type: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Application:
    """The file with the effects, the secrets of the triggers that may call, and how long a document takes (seconds).

    Half of that time is before the effect and half after it, so that a kill in mid-call hits either.
    """

    path: Path
    secrets: tuple[str, ...]
    takes: float = 0.0
    in_work: InWork = field(default_factory=InWork)

    def take(self, headers: Mapping[str, str], body: bytes) -> tuple[int, dict[str, object]]:
        """The effect of one document, committed before the answer."""
        document_id = _header(headers, "rm-document-id")
        if not document_id:
            return 400, {"error": "RM-Document-ID is missing"}
        try:
            redelivered = int(_header(headers, "rm-redelivery-count") or "0")
        except ValueError:
            return 400, {"error": "RM-Redelivery-Count is not a number"}
        number = self._effect(
            Handed(
                delivery=headers.get("webhook-id", ""),
                document_id=document_id,
                trigger=_header(headers, "rm-trigger"),
                message_id=_header(headers, "rm-message-id"),
                redelivery_count=redelivered,
                content_type=headers.get("content-type", ""),
                content=body,
            )
        )
        return 200, {"effect": number, "document": document_id}

    def pulled(self, taken: Taken) -> None:
        """The effect of a document from a pull queue."""
        self._effect(
            Handed(
                delivery=taken.delivery,
                document_id=taken.document_id,
                trigger=taken.members["trigger"]["name"],
                message_id=taken.document["message_id"],
                redelivery_count=taken.redelivery_count,
                content_type=taken.document["payloads"][0]["content_type"],
                content=taken.content(),
            )
        )

    def _effect(self, taken: Handed) -> int | None:
        row = (
            taken.document_id,
            taken.trigger,
            taken.delivery,
            taken.message_id,
            taken.redelivery_count,
            taken.content_type,
            hashlib.sha256(taken.content).hexdigest(),
            datetime.now(UTC).isoformat(),
        )
        with self.in_work.doing(taken.document_id):
            time.sleep(self.takes / 2)
            with closing(open_file(self.path)) as file:
                number = file.execute(
                    "INSERT INTO effect (document_id, trigger_name, delivery, message_id, redelivery_count,"
                    " content_type, sha256, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    row,
                ).lastrowid
            time.sleep(self.takes / 2)
        return number

    def resolve(self, body: bytes) -> tuple[int, dict[str, object]]:
        """spec 4's document resolver service: whether the document of this uuid has had its effect."""
        try:
            document_id = json.loads(body)["uuid"]
        except (ValueError, TypeError, KeyError, RecursionError):
            document_id = None
        if not isinstance(document_id, str) or not document_id:
            return 400, {"error": "a JSON object with a uuid is needed"}
        if not self.in_work.ended(document_id):
            return 503, {"error": "a call with this document is still in progress"}
        with closing(open_file(self.path)) as file:
            found = file.execute("SELECT max(number) FROM effect WHERE document_id = ?", (document_id,)).fetchone()[0]
        if found is None:
            return 200, {"status": "NEW", "message": "no effect of this document"}
        return 200, {"status": "DUPLICATE", "message": f"effect {found}"}


def _header(headers: Mapping[str, str], name: str) -> str:
    """The hub percent-encodes what a header cannot carry."""
    return unquote(headers.get(name, ""))


class Server(ThreadingHTTPServer):
    """One thread a connection; `application` is what its handlers call."""

    request_queue_size = 128

    def __init__(self, port: int, application: Application) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.application = application

    def handle_error(self, request: object, client_address: object) -> None:
        error = sys.exc_info()[1]
        if not isinstance(error, ConnectionError | TimeoutError):
            print(f"{type(error).__name__}: {error}", flush=True)


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    timeout = 60
    wbufsize = 64 * 1024  # head and body of an answer in one packet
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        if self.path == "/health":
            self._answer(200, {"isAvailable": True})
        else:
            self._answer(404, {"error": "GET /health, POST /documents or POST /resolve"})

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdigit():
            self._refuse(411, "Content-Length is needed")
            return
        if len(length) > 12 or int(length) > MAX_BODY:
            self._refuse(413, f"at most {MAX_BODY} bytes")
            return
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            self.close_connection = True
            return
        application = self.server.application
        headers = {name.lower(): value for name, value in self.headers.items()}
        try:
            check(application.secrets, headers, body)
        except BadSignature as error:
            self._answer(401, {"error": str(error)})
            return
        if self.path == "/documents":
            self._answer(*application.take(headers, body))
        elif self.path == "/resolve":
            self._answer(*application.resolve(body))
        else:
            self._answer(404, {"error": "GET /health, POST /documents or POST /resolve"})

    def _refuse(self, status: int, error: str) -> None:
        """The body was not read, so that what follows on this connection could not be told from it."""
        self.close_connection = True
        self._answer(status, {"error": error})

    def _answer(self, status: int, content: dict[str, object]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if status == 503:
            self.send_header("Retry-After", "1")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Silent: the effects are the log."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--database", type=Path, required=True, help="SQLite file with the effects; made if missing")
    parser.add_argument(
        "--secret", action="append", default=[], help=f"whsec_..., once or more; also read from {SECRETS}"
    )
    parser.add_argument("--work-ms", type=float, default=0.0, help="how long a document takes, half of it each side")
    parser.add_argument("--pull", action="append", default=[], help=f"URL of a hub, once or more; tokens in {TOKENS}")
    parser.add_argument("--trigger", default="Demo application", help="with --pull: the name of the hubs' pull queue")
    options = parser.parse_args()
    tokens = os.environ.get(TOKENS, "").split()
    if len(tokens) != len(options.pull):
        parser.error(f"{TOKENS} needs one token for each --pull")
    secrets = (*options.secret, *os.environ.get(SECRETS, "").split())
    try:
        for secret in secrets:
            base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except binascii.Error:
        parser.error("a secret is whsec_ followed by base64")
    if not secrets:
        parser.error(f"--secret or {SECRETS} is needed: unsigned documents are refused")
    with closing(open_file(options.database)) as file:
        file.execute(_TABLE)
    application = Application(options.database, secrets, options.work_ms / 1000)
    server = Server(options.port, application)
    stop = threading.Event()

    def end(*args: object) -> None:
        stop.set()
        threading.Thread(target=server.shutdown).start()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    for url, token in zip(options.pull, tokens, strict=True):
        hub = Client(url.rstrip("/"), token, timeout=15, patience=5)
        threading.Thread(target=consume, args=(hub, options.trigger, application.pulled, stop)).start()
    server.serve_forever(poll_interval=0.2)
    server.server_close()


if __name__ == "__main__":
    main()
