"""HTTP POST with kept-alive connections. No redirects, bounded answers, a time limit on everything."""

from __future__ import annotations

import socket
import ssl
from functools import lru_cache

import urllib3
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    LocationParseError,
    MaxRetryError,
    NameResolutionError,
    NewConnectionError,
    PoolError,
    ProtocolError,
    ProxyError,
    ReadTimeoutError,
    SSLError,
)
from urllib3.util import parse_url

from messaging.transports.base import Parcel, Receipt, printable
from messaging.transports.bounded import bounded_pool, time_limit
from messaging.transports.connecting import context_for
from rmhub import traces

_pool = bounded_pool(
    num_pools=500,
    maxsize=64,
    ssl_context=ssl.create_default_context(),
    headers={"User-Agent": "rmhub"},
)


def send(parcel: Parcel) -> Receipt:
    """Sends one parcel and reports what came of it. Never raises for anything that the network can do.

    All of it takes no longer than connect and read timeout together, which is less than the lease of the transmission.
    """
    with time_limit(parcel.connect_timeout + parcel.read_timeout):
        return _exchange("POST", parcel)


def get(parcel: Parcel) -> Receipt:
    """Asks for what lies at the parcel's address; it has no body. In everything else like `post`."""
    with time_limit(parcel.connect_timeout + parcel.read_timeout):
        return _exchange("GET", parcel)


@lru_cache(maxsize=4096)
def _route(address: str) -> tuple[str, str, int | None, str]:
    """Scheme, host, port and request target of an address, which is the same for thousands of messages.

    Raises LocationParseError (an HTTPError and ValueError) when it is not an address.
    """
    url = parse_url(address)
    if url.scheme not in ("http", "https") or not url.host:
        raise LocationParseError(address)
    return url.scheme, url.host, url.port, url.request_uri


def _pool_options(scheme: str, parcel: Parcel) -> dict[str, ssl.SSLContext] | None:
    """Connections of another trust are other connections: the pool keeps them apart by their context."""
    if scheme != "https" or not (parcel.trusted_certificates or parcel.client_certificate):
        return None
    return {"ssl_context": context_for(parcel.trusted_certificates, parcel.client_certificate)}


def _exchange(method: str, parcel: Parcel) -> Receipt:
    kind = {"Content-Type": parcel.content_type} if parcel.content_type else {}
    headers = {**kind, "User-Agent": "rmhub", **traces.headers(), **dict(parcel.headers)}
    if method == "POST" and not isinstance(parcel.body, bytes):
        headers["Content-Length"] = str(len(parcel.body))
    if parcel.authorization:
        headers["Authorization"] = parcel.authorization
    try:
        scheme, host, port, target = _route(parcel.address)
        answer = _pool.connection_from_host(host, port, scheme, _pool_options(scheme, parcel)).urlopen(
            method,
            target,
            body=parcel.body if method == "POST" else None,
            headers=headers,
            redirect=False,
            retries=False,
            preload_content=False,
            timeout=urllib3.Timeout(connect=parcel.connect_timeout, read=parcel.read_timeout),
        )
    except (HTTPError, OSError, ValueError) as error:
        cause, permanent = cause_of(error)
        return Receipt(ok=False, cause=cause, detail=sentence_of(error), permanent=permanent)
    complete = True
    try:
        body = answer.read(parcel.answer_bytes + 1, decode_content=False)
        # One that is longer than anybody wants costs us its connection, not our memory.
        if len(body) > parcel.answer_bytes:
            answer.close()
        else:
            complete = not answer.length_remaining
    except (HTTPError, OSError) as error:
        # The status line came, so the request was taken or refused already.
        body, complete = f"[answer broken off: {type(error).__name__}]".encode(), False
        answer.close()
    finally:
        answer.release_conn()
    named = tuple(answer.headers.items())
    head = f"HTTP {answer.status} {answer.reason or ''}\r\n" + "".join(f"{k}: {v}\r\n" for k, v in named)
    response = (head.encode("latin-1", "replace") + b"\r\n" + body)[: parcel.answer_bytes]
    status = answer.status
    if 200 <= status < 300:
        return Receipt(ok=True, status=status, response=response, headers=named, complete=complete)
    return Receipt(
        ok=False,
        status=status,
        cause=status_cause(status),
        detail=f"The partner answered HTTP {status}.",
        permanent=status in (401, 403, 404, 405, 413),
        response=response,
        retry_after=retry_after_of(answer.headers.get("Retry-After")),
        headers=named,
        complete=complete,
    )


def retry_after_of(text: str | None) -> int | None:
    """Seconds from a Retry-After header; None when it names none."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 7 else None


def status_cause(status: int) -> str:
    """The cause code of a status that is no success."""
    if 300 <= status < 400:
        return "http_3xx"
    if status in (401, 403):
        return "http_401_403"
    if status in (404, 413, 429):
        return f"http_{status}"
    return "http_5xx" if status >= 500 else "http_4xx"


def _root(error: BaseException) -> BaseException:
    """The innermost reason of urllib3's nest of exceptions."""
    seen = error
    while True:
        inner = getattr(seen, "reason", None) if isinstance(seen, MaxRetryError | SSLError | ProxyError) else None
        if isinstance(inner, BaseException):
            seen = inner
        elif isinstance(seen, SSLError | ProtocolError) and seen.args and isinstance(seen.args[-1], BaseException):
            seen = seen.args[-1]
        else:
            return seen


def cause_of(error: BaseException) -> tuple[str, bool]:
    """Stable code, and whether a person should see it at once."""
    root = _root(error)
    if isinstance(root, NameResolutionError | socket.gaierror):
        return "dns_error", False
    if isinstance(root, ssl.SSLCertVerificationError):
        expired = "expired" in (root.verify_message or "")
        return ("cert_expired" if expired else "cert_untrusted"), True
    if isinstance(root, ssl.SSLError | SSLError):
        return "tls_handshake", True
    if isinstance(root, ConnectTimeoutError) and not isinstance(root, NewConnectionError):
        return "connect_timeout", False
    if isinstance(root, ReadTimeoutError | TimeoutError):
        return "read_timeout", False
    if isinstance(error, ProxyError):
        return "proxy_error", False
    if isinstance(root, NewConnectionError | ConnectionRefusedError):
        return "connect_refused", False
    if isinstance(root, ProtocolError | ConnectionError) or "RemoteDisconnected" in type(root).__name__:
        return "connection_reset", False
    return ("internal_error" if isinstance(root, ValueError) else "connection_reset"), isinstance(root, ValueError)


def sentence_of(error: BaseException) -> str:
    """What an exchange that failed says of itself: one printable line."""
    root = _root(error)
    text = str(root) or type(root).__name__
    if isinstance(root, NewConnectionError | PoolError):
        text = text.partition("): ")[2] or text  # without the connection or pool object in front
    return printable(text[:500])
