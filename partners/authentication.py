"""Who calls: HTTP Basic, bearer tokens and client certificates against one snapshot's credentials.

Password hashes are slow on purpose, and partners show the same password with
every message. So a check that succeeded is remembered in the process, under a
keyed hash of credential and secret: neither is kept, and a memory dump of one
process says nothing to another. Failures are not remembered; they cost the same
time whether the user name or token id is known or not.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import threading
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache

from django.contrib.auth.hashers import check_password, make_password

from partners.addresses import normalise_fingerprint
from partners.choices import CredentialKind
from partners.terms import Presented, Principal

MAX_HEADER = 8192  # characters; web servers stop near this too
MAX_REMEMBERED = 20_000  # checks; some 100 bytes each

_key = os.urandom(32)
_remembered: dict[bytes, None] = {}
_remembering = threading.Lock()
# Many connections with one password that was not checked yet: one of them runs the slow hash, the others wait for it.
_checking = tuple(threading.Lock() for _ in range(64))


@dataclass(frozen=True, slots=True)
class Held:
    """A credential as a snapshot holds it: a row without its model, because there may be tens of thousands."""

    id: uuid.UUID
    party_id: uuid.UUID
    party_name: str
    direction: str
    kind: str
    username: str
    fingerprint: str
    valid_from: datetime | None
    valid_until: datetime | None
    revoked_at: datetime | None
    secret_hash: str = field(repr=False)
    secret_encrypted: bytes = field(repr=False)
    certificate: str = field(default="", repr=False)  # PEM; only of what signs

    def valid(self, now: datetime) -> bool:
        """Whether it counts at `now`: from `valid_from` on, up to and without `valid_until`, not once revoked."""
        return (
            (self.revoked_at is None or now < self.revoked_at)
            and (self.valid_from is None or self.valid_from <= now)
            and (self.valid_until is None or now < self.valid_until)
        )


class Credentials:
    """The inbound credentials of one snapshot, by what a caller names. Unchanging."""

    __slots__ = ("_by_fingerprint", "_by_id", "_by_username", "_rounds")

    def __init__(self, credentials: Iterable[Held]) -> None:
        self._by_username: dict[str, tuple[Held, ...]] = {}
        self._by_id: dict[str, tuple[Held, ...]] = {}
        self._by_fingerprint: dict[str, tuple[Held, ...]] = {}
        for credential in credentials:
            if credential.kind == CredentialKind.BASIC:
                index, name = self._by_username, credential.username
            elif credential.kind == CredentialKind.BEARER:
                index, name = self._by_id, credential.id.hex
            elif credential.kind == CredentialKind.CERTIFICATE:
                index, name = self._by_fingerprint, credential.fingerprint
            else:
                continue  # with what signs messages nobody is let in
            index[name] = (*index.get(name, ()), credential)
        # A wrong password costs this many hashes for every user name, so that time does not tell which ones exist.
        self._rounds = max(map(len, self._by_username.values()), default=1)

    def authenticate(self, presented: Presented, now: datetime, *, thorough: bool = True) -> Principal | None:
        """The partner that this is, or None. Never raises.

        With an Authorization header, the header decides, and a certificate of another partner refutes it.
        Not `thorough`: only what was checked before counts, and no slow hash is computed.
        """
        by_certificate = self._certificate(presented.fingerprint, now) if presented.fingerprint else None
        if not presented.authorization:
            return by_certificate
        by_header = self._header(presented.authorization, now, thorough)
        if by_header and by_certificate and by_header.party_id != by_certificate.party_id:
            return None
        return by_header

    def _header(self, header: str, now: datetime, thorough: bool) -> Principal | None:
        if len(header) > MAX_HEADER:
            return None
        scheme, _, value = header.strip().partition(" ")
        match scheme.lower():
            case "basic":
                username, colon, secret = _decoded(value.strip()).partition(":")
                rounds = self._rounds if thorough else 0
                return _prove(self._by_username.get(username, ()), secret, now, rounds) if colon else None
            case "bearer":
                identity, dot, secret = value.strip().partition(".")
                if not dot or not secret.isascii():
                    return None
                return _prove(self._by_id.get(identity, ()), secret, now, 1 if thorough else 0)
        return None

    def _certificate(self, fingerprint: str, now: datetime) -> Principal | None:
        known = self._by_fingerprint.get(normalise_fingerprint(fingerprint) or "", ())
        return next((_principal(held) for held in known if held.valid(now)), None)


def forget() -> None:
    """Forgets every remembered check (tests)."""
    with _remembering:
        _remembered.clear()
    _nobodys_hash.cache_clear()


def _prove(known: Sequence[Held], secret: str, now: datetime, rounds: int) -> Principal | None:
    """`rounds`: how many slow hashes a failure costs; 0 allows none at all."""
    candidates = [held for held in known if held.valid(now)]
    tags = [_tag(held, secret) for held in candidates]
    # All of them first: while a password is being replaced, the old one must not pay for the new one's slow hash.
    for held, tag in zip(candidates, tags, strict=True):
        if tag in _remembered:
            return _principal(held)
    if tags and rounds:
        with _checking[tags[0][0] % len(_checking)]:
            for held, tag in zip(candidates, tags, strict=True):
                if tag in _remembered or check_password(secret, held.secret_hash):
                    _remember(tag)
                    return _principal(held)
    for _ in range(rounds - len(candidates)):
        check_password(secret, _nobodys_hash())
    return None


def _remember(tag: bytes) -> None:
    with _remembering:
        while len(_remembered) >= MAX_REMEMBERED and tag not in _remembered:
            del _remembered[next(iter(_remembered))]  # the oldest
        _remembered[tag] = None


def _principal(held: Held) -> Principal:
    return Principal(held.party_id, held.party_name, held.id)


def _tag(held: Held, secret: str) -> bytes:
    # With the hash in it, a check is forgotten when the credential's secret changes.
    known = held.id.bytes + held.secret_hash.encode() + b"\0"
    return hmac.digest(_key, known + secret.encode(), "sha256")


def _decoded(value: str) -> str:
    """`user:password`, or '' when it is malformed. UTF-8, or else Latin-1, which old clients send (RFC 7617, B)."""
    try:
        raw = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return ""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


@lru_cache(maxsize=1)
def _nobodys_hash() -> str:
    """A hash that no secret has, as slow as the others."""
    return make_password(uuid.uuid4().hex + uuid.uuid4().hex)
