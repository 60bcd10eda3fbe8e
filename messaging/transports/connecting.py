"""Connections to mail servers: reached in one bounded time, with certificates always checked."""

from __future__ import annotations

import os
import socket
import ssl
import time
from functools import lru_cache

from messaging.transports.base import printable


class NotReached(Exception):
    """The server did not take the connection. `cause`: stable code (docs/causes.md); `str()`: one printable line."""

    def __init__(self, cause: str, detail: str) -> None:
        super().__init__(detail)
        self.cause = cause


def connect(host: str, port: int, seconds: float) -> socket.socket:
    """A connection to the first address of the host that takes one, within this time for all of them together.

    Raises NotReached.
    """
    end = time.monotonic() + seconds
    last: OSError | None = None
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise NotReached("dns_error", f"{host}: {printable(str(error))[:400]}") from None
    for family, kind, protocol, _, address in addresses:
        left = end - time.monotonic()
        if left <= 0:
            break
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(left)
            sock.connect(address)
        except OSError as error:
            sock.close()
            last = error
            continue
        return sock
    if last is None or isinstance(last, TimeoutError):
        raise NotReached("connect_timeout", f"No connection to {host} port {port} in time.")
    raise NotReached("connect_refused", f"{host} port {port}: {printable(str(last))[:400]}")


def tls_context() -> ssl.SSLContext:
    """The default trust of the machine; SSL_CERT_FILE and SSL_CERT_DIR name another."""
    return _context_for(os.environ.get("SSL_CERT_FILE", ""), os.environ.get("SSL_CERT_DIR", ""))


@lru_cache(maxsize=4)
def _context_for(_file: str, _directory: str) -> ssl.SSLContext:
    return ssl.create_default_context()
