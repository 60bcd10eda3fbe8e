"""The demo's participants in atomic transactions: an application with a small HTTP server and a SQLite file of its own.

    python -m tests.worlds.atomic_participant --port 9201 --database p1.sqlite3

POST /documents takes a document with its CoordinationContext, registers with the coordinator that this names, and
answers 200 when it is taken in: the effect comes with the coordinator's Commit, or never. POST /participant and
/requester take the coordinator's messages. Killed and started again it goes on where its file says.
"""

from __future__ import annotations

import argparse
import base64
import hmac
import logging
import os
import signal
import sys
import threading
from binascii import Error as NotBase64
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import urllib3

from messaging.demo.application import MAX_BODY
from messaging.protocol.ws.messages import Unreadable
from messaging.protocol.ws.reading import decode, read_context
from rmhub_client import BadSignature, check
from tests.worlds.atomic_taking import Application, Letter, Votes

log = logging.getLogger(__name__)

# Environment: no list of processes shows what is in it.
SIGNED = "DEMO_PARTICIPANT_SIGNED"  # what signs documents (whsec_...)
SHOWN = "DEMO_PARTICIPANT_SHOWN"  # user:password that it shows the hub
ASKED = "DEMO_PARTICIPANT_ASKED"  # user:password that the hub has to show
PATIENCE = 5.0  # seconds for which it waits to be taken in
MAX_MESSAGE = 1024 * 1024
PAUSE = 0.05

Post = Callable[[Letter], bool]


@dataclass(frozen=True, slots=True)
class Door:
    """Who may come in: the signature of documents, and what the coordinator shows. Empty: anybody."""

    secret: str = ""
    asked: str = ""


class Handler(BaseHTTPRequestHandler):
    """One request of the hub."""

    protocol_version = "HTTP/1.1"
    application: Application
    door: Door

    def do_GET(self) -> None:
        self._say(200 if self.path == "/health" else 404)

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", "0") or "0")
        if length > MAX_BODY:
            self._say(413)
            return
        body = self.rfile.read(length)
        if self.path == "/documents":
            self._say(self._document(body))
        elif self.path in ("/participant", "/requester"):
            self._say(self._message(body))
        else:
            self._say(404)

    def _document(self, body: bytes) -> int:
        headers = {name.lower(): value for name, value in self.headers.items()}
        if self.door.secret:
            try:
                check(self.door.secret, headers, body)
            except BadSignature:
                return 401
        try:
            octets = base64.b64decode(headers.get("rm-coordination-context", ""), validate=True)
            context, version = read_context(octets)
        except (NotBase64, Unreadable):
            return 400
        redelivery = int(headers.get("rm-redelivery-count", "0"))
        key = self.application.take(context, version, unquote(headers.get("rm-document-id", "")), redelivery)
        return 200 if self.application.registered(key, PATIENCE) else 503

    def _message(self, body: bytes) -> int:
        if self.door.asked:
            wanted = "Basic " + base64.b64encode(self.door.asked.encode()).decode()
            if not hmac.compare_digest(self.headers.get("Authorization", "").encode(), wanted.encode()):
                return 401
        try:
            message = decode(
                self.headers.get("Content-Type", ""),
                body,
                max_bytes=MAX_MESSAGE,
                soap_action=self.headers.get("SOAPAction", ""),
            )
        except Unreadable as error:
            return error.status
        self.application.receive(message)
        return 202

    def _say(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: what is of interest is in the file."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


def server(application: Application, door: Door, port: int = 0) -> Server:
    """Listens on this port of the loopback interface (0: any); `serve_forever` answers."""
    handler = type("ParticipantHandler", (Handler,), {"application": application, "door": door})
    return Server(("127.0.0.1", port), handler)


def poster(shown: str) -> Post:
    """Puts messages on the wire, each on a connection of its own choice; whether they were taken (2xx)."""
    pool = urllib3.PoolManager(maxsize=8, retries=False, timeout=5)
    login = {"Authorization": "Basic " + base64.b64encode(shown.encode()).decode()} if shown else {}

    def post(letter: Letter) -> bool:
        try:
            headers = letter.octets.headers | login
            answer = pool.request("POST", letter.address, body=letter.octets.body, headers=headers)
        except urllib3.exceptions.HTTPError:
            return False
        if answer.status in (400, 415):
            log.error("refused", extra={"action": "refused", "status": answer.status, "address": letter.address})
        return 200 <= answer.status < 300

    return post


def flush(application: Application, post: Post) -> int:
    """Sends what is due once. Returns how many messages that were."""
    letters = application.due()
    for letter in letters:
        application.sent(letter, post(letter))
    return len(letters)


def send_all(application: Application, post: Post, stop: threading.Event) -> None:
    """Sends what is due until it is stopped."""
    with ThreadPoolExecutor(4) as pool:
        while not stop.is_set():
            letters = application.due()
            for letter, taken in zip(letters, pool.map(post, letters), strict=True):
                application.sent(letter, taken)
            if not letters:
                with application.changed:
                    application.changed.wait(PAUSE)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--database", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-share", type=float, default=0.0)
    parser.add_argument("--read-only-share", type=float, default=0.0)
    parser.add_argument("--place", type=int, default=0)
    parser.add_argument("--count", type=int, default=1)
    options = parser.parse_args()
    votes = Votes(options.seed, options.no_share, options.read_only_share, options.place, options.count)
    application = Application(options.database, f"http://127.0.0.1:{options.port}", votes)
    application.open()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    listening = server(application, Door(os.environ.get(SIGNED, ""), os.environ.get(ASKED, "")), options.port)
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    send_all(application, poster(os.environ.get(SHOWN, "")), stop)
    listening.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
