"""Which certificates a server may show, and which one we show: TLS contexts, made once for each set of them.

Certificates are always checked, the host's name among what is checked.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from functools import lru_cache

from messaging.transports.connecting import tls_context


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
