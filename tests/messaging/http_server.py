"""HTTP servers on loopback whose every octet a test decides."""

from __future__ import annotations

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
