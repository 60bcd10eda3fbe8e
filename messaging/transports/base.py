"""What every transport answers: bytes went out, or why not. Transports know nothing of the meaning."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Parcel:
    """Bytes for an address. `authorization` is a whole header value, never logged (repr hides it)."""

    address: str
    content_type: str
    body: bytes
    authorization: str = ""
    connect_timeout: float = 10
    read_timeout: float = 30

    def __repr__(self) -> str:
        return f"Parcel({self.address!r}, {len(self.body)} bytes)"


@dataclass(frozen=True, slots=True)
class Receipt:
    """The outcome of one transmission.

    `ok`: the other side took the bytes. `cause`: stable code when not (docs/causes.md). `permanent`: another try is
    not likely to help, so a person should see it at once. `response`: head and body of the answer, cut.
    """

    ok: bool
    status: int | None = None
    cause: str = ""
    detail: str = ""
    permanent: bool = False
    response: bytes = b""
    retry_after: int | None = None


def printable(text: str) -> str:
    """What a stranger's server said, in a form that can be stored and shown: one line without control characters."""
    return "".join(sign if sign.isprintable() else " " for sign in text)
