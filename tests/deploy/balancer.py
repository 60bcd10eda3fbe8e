"""A small balancer before web servers, for a rolling restart: what deploy/Caddyfile asks of Caddy, in the open.

It asks each server for `/readyz` several times a second, and leaves alone the ones that do not say 200. A request goes
to one server on a connection of its own. Where nobody listens it goes to the next; once sent it is never sent again.
"""

from __future__ import annotations

import http.client
import itertools
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

NAME = "hub.example.org"
_LOOK = 0.1  # seconds between two looks
_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "host", "x-forwarded-for", "x-forwarded-proto"}


class Balancer(ThreadingHTTPServer):
    """`failed`: what clients were not served, or were told that the servers are in trouble (5xx). `served`: by port."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.port: int = self.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.failed: list[str] = []
        self.served: Counter[int] = Counter()
        self._ports: Sequence[int] = ()
        self._ready: set[int] = set()
        self._changed = threading.Condition()
        self._turns = itertools.count()
        self._over = threading.Event()

    def before(self, ports: Sequence[int]) -> None:
        """Name the servers. They get requests as soon as they are ready."""
        self._ports = tuple(ports)

    def is_ready(self, port: int) -> bool:
        with self._changed:
            return port in self._ready

    def look(self) -> None:
        """Runs in a thread of its own."""
        while not self._over.wait(_LOOK):
            for port in self._ports:
                ready = _says_ready(port)
                with self._changed:
                    (self._ready.add if ready else self._ready.discard)(port)
                    self._changed.notify_all()

    def connection(self) -> tuple[int, http.client.HTTPConnection]:
        """Connect to a server that is ready; waits for one. Raises TimeoutError when there is none for a minute."""
        with self._changed:
            while self._changed.wait_for(lambda: self._ready, timeout=60):
                ready = sorted(self._ready)
                port = ready[next(self._turns) % len(ready)]
                one = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
                try:
                    one.connect()
                except OSError:
                    self._ready.discard(port)  # nothing was sent
                    continue
                return port, one
        raise TimeoutError("no server is ready")

    def close(self) -> None:
        self._over.set()
        self.shutdown()
        self.server_close()


def _says_ready(port: int) -> bool:
    one = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        one.request("GET", "/readyz")  # by its address and without TLS, as a balancer does
        return one.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        one.close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Balancer

    def _relay(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}
        headers |= {"Host": NAME, "X-Forwarded-Proto": "https", "X-Forwarded-For": self.client_address[0]}
        try:
            port, one = self.server.connection()
            try:
                one.request(self.command, self.path, body=body, headers=headers)
                answer = one.getresponse()
                content = answer.read()
            finally:
                one.close()
        except (OSError, http.client.HTTPException) as error:
            self.server.failed.append(f"{self.command} {self.path}: {error!r}")
            self.send_error(502)
            return
        self.server.served[port] += 1
        if answer.status >= 500:
            self.server.failed.append(f"{self.command} {self.path}: {answer.status} {content[:300]!r}")
        self.send_response_only(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in _HOP_BY_HOP | {"content-length"}:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _relay

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def balancer() -> Iterator[Balancer]:
    """A balancer that runs; its servers are named later."""
    made = Balancer()
    threads = [threading.Thread(target=run, daemon=True) for run in (made.serve_forever, made.look)]
    for thread in threads:
        thread.start()
    try:
        yield made
    finally:
        made.close()
        for thread in threads:
            thread.join()
