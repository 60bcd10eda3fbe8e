"""A TCP forwarder in front of a server, so that it can be away for one hub while the judge still reaches it."""

from __future__ import annotations

import contextlib
import socket
import threading


class Proxy:
    """Listens on a port of its own and forwards to `target`. While it is shut it refuses connections, like a server
    that is not there; those that it had are broken off. `delay`: seconds that every piece takes each way. While it
    `lies` it answers 200 by itself, and what it was asked never arrives: a log-in page of somebody's network does that.
    """

    _LIE = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\nConnection: close\r\n\r\nOK"

    def __init__(self, target: int) -> None:
        self._target = target
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._listener: socket.socket | None = None
        self.delay = 0.0
        self.lies = False
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.open()

    def open(self) -> None:
        listener = socket.create_server(("127.0.0.1", self.port), backlog=256)
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def shut(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        with self._lock:
            broken, self._sockets = self._sockets, set()
        for one in broken:
            _end(one)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._target), timeout=5)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            with self._lock:
                shut = self._listener is not listener
                if not shut:
                    self._sockets |= {near, far}
            if shut:
                _end(near)
                _end(far)
                return
            for source, sink, asks in ((near, far, True), (far, near, False)):
                threading.Thread(target=self._pump, args=(source, sink, asks), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, asks: bool) -> None:
        with contextlib.suppress(OSError):
            while chunk := source.recv(65536):
                if self.delay:
                    threading.Event().wait(self.delay)
                if asks and self.lies:
                    source.sendall(self._LIE)
                    break
                sink.sendall(chunk)
        with self._lock:
            self._sockets -= {source, sink}
        for one in (source, sink):
            _end(one)


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
