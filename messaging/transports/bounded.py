"""HTTP connections with one time limit for a whole exchange.

urllib3's time limits count from byte to byte: a server that sends one now and then holds its caller for hours, and a
large request has to be sent within the time that is meant for connecting. Here the time of all of it is counted.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.response import HTTPResponse


class _Limit(threading.local):
    """When the exchange of this thread has to be over, in monotonic seconds."""

    at = float("inf")


_limit = _Limit()


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Ends an exchange of this thread over one of these connections after so many seconds, with a timeout."""
    _limit.at = time.monotonic() + seconds
    try:
        yield
    finally:
        _limit.at = float("inf")


def _wait_no_longer(sock: socket.socket) -> None:
    """Sets what is left as the time limit of the socket's next operation. Raises TimeoutError when nothing is."""
    if _limit.at == float("inf"):
        return
    left = _limit.at - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    sock.settimeout(left)


@contextmanager
def _after_the_handshake() -> Iterator[None]:
    """TLS trouble on a connection that stands is a broken connection: the request may have been taken.

    As an SSLError it would look like a failed handshake, after which nothing was sent and repeating is harmless.
    """
    try:
        yield
    except ssl.SSLError as error:
        raise ConnectionResetError(f"TLS: {error}") from error


class _Reader(io.RawIOBase):
    """The incoming side of a socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._raw = sock.makefile("rb", buffering=0)  # keeps the descriptor open for as long as it is read

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        _wait_no_longer(self._sock)
        with _after_the_handshake():
            return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Incoming:
    """What http.client needs of a socket to read an answer from it."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self._sock))


class _Answer(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(_Incoming(sock), *args, **kwargs)  # type: ignore[arg-type]


class BoundedConnection(HTTPConnection):
    """http under `time_limit`; the answer has the read timeout as well, from the end of the request on."""

    response_class = _Answer

    def send(self, data: Any) -> None:
        if self.sock is None:
            self.connect()
        _wait_no_longer(self.sock)
        with _after_the_handshake():
            super().send(data)

    def getresponse(self) -> HTTPResponse:  # type: ignore[override]
        if self.timeout is not None:
            _limit.at = min(_limit.at, time.monotonic() + self.timeout)
        return super().getresponse()


class BoundedTLSConnection(BoundedConnection, HTTPSConnection):
    """https under `time_limit`."""


class _Pool(HTTPConnectionPool):
    ConnectionCls = BoundedConnection


class _TLSPool(HTTPSConnectionPool):
    ConnectionCls = BoundedTLSConnection


def bounded_pool(**options: Any) -> urllib3.PoolManager:
    """A pool of such connections, without redirects and retries. `options` are those of urllib3's PoolManager."""
    pool = urllib3.PoolManager(retries=False, **options)
    pool.pool_classes_by_scheme = {"http": _Pool, "https": _TLSPool}
    return pool


def bounded_reader(sock: socket.socket) -> io.BufferedReader:
    """The incoming side of a socket, under `time_limit`."""
    return io.BufferedReader(_Reader(sock))


def bounded_send(sock: socket.socket, data: bytes) -> None:
    """Sends all of it, under `time_limit`."""
    _wait_no_longer(sock)
    with _after_the_handshake():
        sock.sendall(data)


def bounded_handshake(sock: socket.socket, context: ssl.SSLContext, host: str) -> ssl.SSLSocket:
    """TLS on a connection that stands, the certificate checked against `host`, under `time_limit`."""
    _wait_no_longer(sock)
    return context.wrap_socket(sock, server_hostname=host)
