"""HTTP connections with one time limit for a whole exchange; and those that go to the public internet only.

urllib3's time limits count from byte to byte: a server that sends one now and then holds its caller for hours, and a
large request has to be sent within the time that is meant for connecting. Here the time of all of it is counted.
A name can be looked up once for a check and point elsewhere when it is connected to; the address of the socket can not.
"""

from __future__ import annotations

import http.client
import io
import ipaddress
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
from urllib3.exceptions import NewConnectionError
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


# Prefixes whose addresses lead to an IPv4 address that stands in them, NAT64 (RFC 6052) and 6to4 (RFC 3056), and how
# many bits from the right it stands.
_LEADING_ON = ((ipaddress.IPv6Network("64:ff9b::/96"), 0), (ipaddress.IPv6Network("2002::/16"), 80))
# What is_global takes for public, and is not: site-local (RFC 3879), Teredo (RFC 4380), IPv4-compatible and translated
# addresses, NAT64 of one's own network (RFC 8215), and documentation, ORCHID and other blocks for special purposes.
_SPECIAL = tuple(
    ipaddress.IPv6Network(one) for one in ("fec0::/10", "::/32", "::ffff:0:0:0/96", "64:ff9b:1::/48", "2001::/23")
)


def is_public(address: str) -> bool:
    """Whether an IP address belongs to the public internet, whatever road leads there. False for what is no address."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        elif any(found in network for network in _SPECIAL):
            return False
        else:
            behind = next((bits for network, bits in _LEADING_ON if found in network), None)
            if behind is not None:
                found = ipaddress.IPv4Address(int(found) >> behind & 0xFFFFFFFF)
    return found.is_global and not found.is_multicast


class _PublicConnection(BoundedTLSConnection):
    """Closes a connection to a private, loopback or otherwise special address before a byte is sent."""

    def _new_conn(self) -> socket.socket:
        sock = super()._new_conn()
        address = sock.getpeername()[0]
        if not is_public(address):
            sock.close()
            raise NewConnectionError(self, f"{self.host} is at {address}, which is not a public address")
        return sock


class _PublicPool(HTTPSConnectionPool):
    ConnectionCls = _PublicConnection


def public_pool() -> urllib3.PoolManager:
    """A pool that speaks https to public addresses and nothing else."""
    pool = urllib3.PoolManager(num_pools=50, maxsize=4, retries=False)
    pool.pool_classes_by_scheme = {"https": _PublicPool}
    return pool
