"""Connections reached in one bounded time, and TLS contexts for them: certificates and their names are checked."""

from __future__ import annotations

import os
import socket
import ssl
import tempfile
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


def context_for(pem: str = "", client: str = "") -> ssl.SSLContext:
    """The context for a server that may show only what these certificates vouch for: authorities, or its very own.

    `pem` "": what this machine trusts. `client`: our certificate with its private key, "" for none.
    The same object for the same arguments, so that connections are kept apart by it. Raises ValueError.
    """
    return _made(pem, client) if pem or client else tls_context()


@lru_cache(maxsize=256)
def _made(pem: str, client: str) -> ssl.SSLContext:
    if pem:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # A server's own certificate, entered as it is, ends the chain although no authority stands behind it.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        try:
            context.load_verify_locations(cadata=pem)
        except (ssl.SSLError, ValueError) as error:
            raise ValueError("The trusted certificates cannot be read: enter them again.") from error
    else:
        context = ssl.create_default_context()
    if client:
        _show(context, client)
    return context


def _show(context: ssl.SSLContext, client: str) -> None:
    """OpenSSL takes certificate and key from a file only: one that nobody else can read, and that is gone after it."""
    descriptor, path = tempfile.mkstemp()
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(client)
        context.load_cert_chain(path)
    except (ssl.SSLError, OSError) as error:
        raise ValueError("Our certificate for this partner cannot be used: store it again.") from error
    finally:
        os.unlink(path)


def looking_context() -> ssl.SSLContext:
    """Takes any certificate, so that a person can be told what a server shows. Nothing is ever sent over it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
