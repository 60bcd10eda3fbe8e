"""HTTP servers on loopback whose every octet a test decides."""

from __future__ import annotations

import hashlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Handler = Callable[[socket.socket], None]
WAIT = 120.0


class Server:
    """Takes connections on loopback; `handler` has each of them in a thread of its own."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/msh"

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            self._handler(connection)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self.connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in list(self._threads):
            thread.join(WAIT)
            assert not thread.is_alive()


@contextmanager
def serving(handler: Handler) -> Iterator[Server]:
    server = Server(handler)
    try:
        yield server
    finally:
        server.close()


def read_request(connection: socket.socket) -> tuple[bytes, bytes]:
    """(head, body) of one request; (b"", b"") when the other side closed."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            return b"", b""
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = (int(line[16:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length: "))
    length = next(lengths, 0)
    pieces, missing = [body], length - len(body)
    while missing:
        pieces.append(connection.recv(1 << 20))
        missing -= len(pieces[-1])
    return head, b"".join(pieces)


def answering(*answers: bytes) -> Handler:
    """Answers requests of one connection with these octets, one after another; then closes."""

    def handle(connection: socket.socket) -> None:
        for answer in answers:
            head, _ = read_request(connection)
            if not head:
                return
            connection.sendall(answer)

    return handle


@contextmanager
def taking() -> Iterator[tuple[str, list[tuple[int, str]]]]:
    """A server that takes bodies and says 200; yields its URL, and the size and SHA-256 of each body."""
    taken: list[tuple[int, str]] = []

    def take(connection: socket.socket) -> None:
        with connection.makefile("rb") as read:
            length = 0
            while (line := read.readline()) not in (b"\r\n", b""):
                assert not line.lower().startswith(b"transfer-encoding")
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            found, left = hashlib.sha256(), length
            while left and (piece := read.read(min(left, 1024 * 1024))):
                found.update(piece)
                left -= len(piece)
            taken.append((length - left, found.hexdigest()))
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    with serving(take) as server:
        yield server.url, taken
