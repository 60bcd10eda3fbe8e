"""A proxy between the hub and its peers that loses, cuts, doubles or keeps back messages by their action (X16)."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

WAIT = 120.0
_ACTION = re.compile(rb"<(?:\w+:)?Action[^>]*>[^<]*/(\w+)</")


class How(StrEnum):
    LOST = "lost"  # taken with 202, and gone
    CUT = "cut"  # the connection closes instead of an answer; the message does not arrive
    UNANSWERED = "unanswered"  # it arrives, and the connection closes instead of an answer
    TWICE = "twice"
    HELD = "held"  # taken with 202, and kept until `Proxy.release`


@dataclass(frozen=True, slots=True)
class Post:
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def action(self) -> str:
        found = _ACTION.search(self.body)
        return found[1].decode() if found else ""


@dataclass(slots=True)
class Fault:
    """What happens to the next `times` messages with this action whose body has one of `about` in it (none: all)."""

    action: str
    how: How
    times: int = 1
    about: tuple[bytes, ...] = ()

    def takes(self, post: Post) -> bool:
        about = not self.about or any(text in post.body for text in self.about)
        return self.times > 0 and self.action == post.action and about


@dataclass(slots=True)
class Proxy:
    """`routes`: the beginning of a path -> the base URL it is sent to. `seen`: what came, and what was made of it."""

    port: int
    routes: dict[str, str] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    seen: list[tuple[str, str]] = field(default_factory=list)
    held: list[Post] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def will(self, how: How, action: str, times: int = 1, about: tuple[bytes, ...] = ()) -> None:
        self.faults.append(Fault(action, how, times, about))

    def happened(self, how: How, action: str) -> int:
        """How many messages with this action were treated so."""
        return self.seen.count((action, how.value))

    def release(self) -> int:
        """Passes on what was held, in its order. Returns how many."""
        posts, self.held = self.held, []
        for post in posts:
            assert self.forward(post) == 202
        return len(posts)

    def treatment(self, post: Post) -> str:
        with self._lock:
            for fault in self.faults:
                if fault.takes(post):
                    fault.times -= 1
                    self.seen.append((post.action, fault.how.value))
                    if fault.how is How.HELD:
                        self.held.append(post)
                    return fault.how.value
            self.seen.append((post.action, ""))
            return ""

    def forward(self, post: Post) -> int:
        target = next(base for prefix, base in self.routes.items() if post.path.startswith(prefix))
        parts = urlsplit(target)
        connection = HTTPConnection(parts.hostname or "", parts.port, timeout=WAIT)
        try:
            connection.request("POST", parts.path + post.path, post.body, post.headers)
            return connection.getresponse().status
        finally:
            connection.close()


class _Handler(BaseHTTPRequestHandler):
    """HTTP/1.0: one connection for each message."""

    server: Any

    def do_POST(self) -> None:
        post = read_post(self)
        how = self.server.proxy.treatment(post)
        status = 202
        if how in ("", How.UNANSWERED, How.TWICE):
            status = self.server.proxy.forward(post)
        if how == How.TWICE:
            self.server.proxy.forward(post)
        if how in (How.CUT, How.UNANSWERED):
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        answer(self, status)

    def log_message(self, format: str, *args: object) -> None:
        pass


def read_post(handler: BaseHTTPRequestHandler) -> Post:
    names = ("Content-Type", "SOAPAction", "Authorization")
    headers = {name: handler.headers[name] for name in names if handler.headers[name] is not None}
    return Post(handler.path, headers, handler.rfile.read(int(handler.headers["Content-Length"])))


def answer(handler: BaseHTTPRequestHandler, status: int) -> None:
    handler.send_response(status)
    handler.send_header("Content-Length", "0")
    handler.end_headers()


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler], port: int = 0) -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join(WAIT)
        server.server_close()
        assert not thread.is_alive()


@contextmanager
def proxying() -> Iterator[Proxy]:
    with serving(_Handler) as server:
        proxy = Proxy(server.server_address[1])
        server.proxy = proxy  # type: ignore[attr-defined]
        yield proxy
