"""What every transport takes and answers: bytes went out, or why not; and the server that an attempt goes to.

Transports know nothing of the meaning.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from urllib.parse import urlsplit

from messaging.protocol.envelope import Pieces
from partners import transports

MAX_ANSWER = 8 * 1024  # bytes of an answer, head and body, that are kept unless a parcel wants more


@dataclass(frozen=True, slots=True)
class Login:
    """How we identify ourselves to a mail or file server. `is_key`: the secret is an SSH private key (PEM)."""

    username: str
    secret: str = field(repr=False)
    is_key: bool = False


@dataclass(frozen=True, slots=True)
class Parcel:
    """Bytes for an address. `authorization` is a whole header value, never logged (repr hides it).

    `origin`, `target`: the messaging service URIs of sender and receiver (mail: whose addresses the envelope has).
    `server`, `host_key`: the endpoint's mail or file server, and its key's fingerprint. `login`: see `Login`.
    `name`: what a file is called; the same for every copy of a message. `attempt`: which transmission it is (mail: what
    a bounce is recognised by).
    `headers`: further request headers, (name, value) each. `answer_bytes`: how much of the answer is kept.
    `not_after`: it is not sent later than that.
    `trusted_certificates`: PEM; the only ones that the server may show, "" = those that this machine trusts.
    `client_certificate`: PEM of ours with its private key, never logged.
    """

    address: str
    content_type: str
    body: bytes | Pieces
    authorization: str = ""
    connect_timeout: float = 10
    read_timeout: float = 30
    headers: tuple[tuple[str, str], ...] = ()
    answer_bytes: int = MAX_ANSWER
    not_after: datetime | None = None
    origin: str = ""
    target: str = ""
    server: str = ""
    host_key: str = ""
    login: Login | None = None
    name: str = ""
    attempt: str = ""
    trusted_certificates: str = ""
    client_certificate: str = field(default="", repr=False)

    @property
    def octets(self) -> bytes:
        """The body in memory, for transports that have to make another form of it."""
        return self.body if isinstance(self.body, bytes) else b"".join(self.body)

    def __repr__(self) -> str:
        return f"Parcel({self.address!r}, {len(self.body)} bytes)"


@dataclass(frozen=True, slots=True)
class Receipt:
    """The outcome of one transmission.

    `ok`: the other side took the bytes. `cause`: stable code when not (docs/causes.md). `permanent`: another try is
    not likely to help, so a person should see it at once. `response`: head and body of the answer, cut. `headers`:
    those of the answer, as they came. `complete`: its body did not break off. `in_response`: it went out in our answer
    to a request, so that it says nothing of the other side's server.
    """

    ok: bool
    status: int | None = None
    cause: str = ""
    detail: str = ""
    permanent: bool = False
    response: bytes = b""
    retry_after: int | None = None
    headers: tuple[tuple[str, str], ...] = ()
    complete: bool = True
    in_response: bool = False


def printable(text: str) -> str:
    """What a stranger's server said, in a form that can be stored and shown: one line without control characters."""
    return "".join(character if character.isprintable() else " " for character in text)


MAX_LENGTH = 500


def server_of(address: str, server: str = "") -> str:
    """`scheme://host:port`, in lower case, of the server that a parcel for `address` is handed to.

    `server`: the endpoint's own mail or file server. Mail without one goes to the hub's relay. Never raises.
    """
    if address[:7].lower() == "mailto:":
        return _normal(server or transports.relay())
    return _normal(server or address)


@lru_cache(maxsize=8192)
def _normal(url: str) -> str:
    """Without user name and password, which are nobody's business, and with the port that the scheme stands for."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return url.rpartition("@")[2].lower()[:MAX_LENGTH]
    scheme = parts.scheme or "http"
    named = f"[{host}]" if ":" in host else host
    return f"{scheme}://{named}:{port or transports.PORTS.get(scheme, 0)}"[:MAX_LENGTH]
