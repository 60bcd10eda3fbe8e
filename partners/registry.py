"""The agreements and credentials in force, in memory, for the hot paths: `registry.current()`.

A snapshot is built in a handful of queries and then read without locks. Every write
of this app bumps one number (`models.Revision`); a process looks at it at most once
a second and builds a new snapshot when it changed. So another process's write is
seen within about a second, and one's own at once, after its commit.
"""

from __future__ import annotations

import base64
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import fields
from datetime import datetime
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from django.db.models import Case, F, Q, TextField, Value, When

from partners import authentication, secrets
from partners.addresses import normalise_uri
from partners.authentication import Credentials, Held
from partners.choices import FOR_MESSAGES, CredentialDirection, CredentialKind, VersionState
from partners.models import AgreementService, AgreementVersion, Credential, PartyIdentifier, Revision
from partners.terms import Presented, Principal, Terms
from rmhub import clock, remembered

# Where those terms come from that are not fields of the version. The rest is put together in `_terms`.
_ELSEWHERE = {
    "version_id": "id",
    "tpa_id": "agreement__tpa_id",
    "transport": "partner_endpoint__transport",
    "own_party_id": "agreement__own_party_id",
    "own_party_name": "agreement__own_party__name",
    "partner_id": "agreement__partner_id",
    "partner_name": "agreement__partner__name",
    "own_uri": "own_endpoint__uri",
    "own_error_uri": "own_endpoint__error_uri",
    "hop_party_id": "partner_endpoint__party_id",
    "hop_party_name": "partner_endpoint__party__name",
    "server": "partner_endpoint__server",
    "host_key": "partner_endpoint__host_key",
    "trusted_certificates": "partner_endpoint__trusted_certificates",
    "partner_uri": "partner_endpoint__uri",
    "partner_error_uri": "partner_endpoint__error_uri",
    "partner_address": "partner_endpoint__address",
    "partner_error_address": "partner_endpoint__error_address",
    "connect_timeout": "partner_endpoint__connect_timeout",
    "read_timeout": "partner_endpoint__read_timeout",
}
_COLUMNS = {
    one.name: _ELSEWHERE.get(one.name, one.name)
    for one in fields(Terms)
    if one.name not in ("services", "own_identifiers", "partner_identifiers")
}

# The fields of Held, in their order.
_HELD = (
    "id",
    "party_id",
    "party__name",
    "direction",
    "kind",
    "username",
    "fingerprint",
    "valid_from",
    "valid_until",
    "revoked_at",
    "secret_hash",
    "secret_encrypted",
)


class Registry:
    """One snapshot. Unchanging, but for two caches that fill up: older versions, and decrypted headers."""

    __slots__ = (
        "_active",
        "_by_hop",
        "_by_tpa_id",
        "_by_uris",
        "_certificates",
        "_for_messages",
        "_headers",
        "_inbound",
        "_outbound",
        "_versions",
        "revision",
    )

    def __init__(self, *, revision: int, active: tuple[Terms, ...], credentials: Iterable[Held]) -> None:
        self.revision = revision
        self._active = active
        self._by_tpa_id = {terms.tpa_id: terms for terms in active}
        self._versions = {terms.version_id: terms for terms in active}
        self._by_hop: dict[uuid.UUID, tuple[Terms, ...]] = {}
        self._by_uris: dict[tuple[str, str], tuple[Terms, ...]] = {}
        for terms in active:
            self._by_hop[terms.hop_party_id] = (*self._by_hop.get(terms.hop_party_id, ()), terms)
            uris = normalise_uri(terms.partner_uri), normalise_uri(terms.own_uri)
            self._by_uris[uris] = (*self._by_uris.get(uris, ()), terms)
        inbound: list[Held] = []
        self._outbound: dict[uuid.UUID, list[Held]] = {}
        self._certificates: dict[uuid.UUID, list[Held]] = {}
        self._for_messages: dict[tuple[str, uuid.UUID, str], list[Held]] = {}
        for credential in credentials:
            if credential.kind in FOR_MESSAGES:
                key = credential.kind, credential.party_id, credential.direction
                self._for_messages.setdefault(key, []).append(credential)
            elif credential.direction == CredentialDirection.INBOUND:
                inbound.append(credential)
            elif credential.kind == CredentialKind.CERTIFICATE:
                self._certificates.setdefault(credential.party_id, []).append(credential)
            else:
                self._outbound.setdefault(credential.party_id, []).append(credential)
        self._inbound = Credentials(inbound)
        self._headers: dict[uuid.UUID, str] = {}

    def __repr__(self) -> str:
        return f"<Registry revision {self.revision}: {len(self._active)} agreements>"

    def active(self) -> tuple[Terms, ...]:
        """All active versions, by TPAId."""
        return self._active

    def by_tpa_id(self, tpa_id: str) -> Terms | None:
        """The active version of this agreement, or None."""
        return self._by_tpa_id.get(tpa_id)

    def by_hop(self, party_id: uuid.UUID) -> tuple[Terms, ...]:
        """The active versions of all agreements whose messages this party brings and takes, by TPAId."""
        return self._by_hop.get(party_id, ())

    def by_uri_pair(self, sender_uri: str, receiver_uri: str) -> tuple[Terms, ...]:
        """The active versions under which the partner at `sender_uri` sends to us at `receiver_uri`, by TPAId."""
        return self._by_uris.get((normalise_uri(sender_uri), normalise_uri(receiver_uri)), ())

    def version(self, version_id: uuid.UUID) -> Terms:
        """The terms of any version, whatever its state; one that is not active is loaded once. Raises KeyError."""
        known = self._versions.get(version_id)
        if known is None:
            loaded = _terms(Q(pk=version_id))
            if not loaded:
                raise KeyError(version_id)
            known = self._versions[version_id] = loaded[0]
        return known

    def read_version(self, version_id: uuid.UUID) -> Terms | None:
        """The same; None when it was not loaded yet."""
        return self._versions.get(version_id)

    def authenticate(self, presented: Presented, now: datetime, *, thorough: bool = True) -> Principal | None:
        """Who this is, or None. A slow password hash runs once per process and credential. Never raises."""
        return self._inbound.authenticate(presented, now, thorough=thorough)

    def outbound_authorization(self, partner_id: uuid.UUID, now: datetime) -> str:
        """The Authorization header to send to this partner: from the newest valid credential, or '' without one.

        Raises SecretUnreadable when that one cannot be decrypted.
        """
        for credential in self._outbound.get(partner_id, ()):
            if credential.kind != CredentialKind.SSH_KEY and credential.valid(now):
                header = self._headers.get(credential.id)
                if header is None:
                    header = self._headers[credential.id] = _header(credential)
                return header
        return ""

    def outbound_certificate(self, partner_id: uuid.UUID, now: datetime) -> str:
        """Our certificate with its private key (PEM) to show this partner's servers: the newest valid one, "" without.

        Raises SecretUnreadable when that one cannot be decrypted.
        """
        return next(self._own(self._certificates.get(partner_id, ()), now), "")

    def signing_certificate(self, partner_id: uuid.UUID, now: datetime) -> str:
        """Our certificate with its private key (PEM), with which messages to this partner are signed: the newest valid
        one, "" without. Raises SecretUnreadable when that one cannot be decrypted.
        """
        held = self._for_messages.get((CredentialKind.SIGNING, partner_id, CredentialDirection.OUTBOUND), ())
        return next(self._own(held, now), "")

    def decrypting_certificates(self, partner_id: uuid.UUID, now: datetime) -> Iterator[str]:
        """Our certificates with their private keys (PEM), for which this partner may encrypt: all that are valid, the
        newest first. Raises SecretUnreadable when one cannot be decrypted.
        """
        held = self._for_messages.get((CredentialKind.ENCRYPTION, partner_id, CredentialDirection.OUTBOUND), ())
        return self._own(held, now)

    def certificates(self, kind: CredentialKind, partner_id: uuid.UUID, now: datetime) -> list[bytes]:
        """This partner's certificates (DER) of a kind for messages: all that are valid, the newest first."""
        held = self._for_messages.get((kind, partner_id, CredentialDirection.INBOUND), ())
        return [der_of(one.certificate) for one in held if one.valid(now)]

    def _own(self, held: Iterable[Held], now: datetime) -> Iterator[str]:
        for credential in held:
            if credential.valid(now):
                pem = self._headers.get(credential.id)
                if pem is None:
                    pem = self._headers[credential.id] = secrets.decrypt(credential.secret_encrypted)
                yield pem

    def outbound_login(self, partner_id: uuid.UUID, now: datetime, *kinds: str) -> tuple[str, str, bool] | None:
        """(user name, secret, whether that is an SSH key) from the newest valid credential of these kinds, or None.

        Raises SecretUnreadable when that one cannot be decrypted.
        """
        for credential in self._outbound.get(partner_id, ()):
            if credential.kind in kinds and credential.valid(now):
                is_key = credential.kind == CredentialKind.SSH_KEY
                return credential.username, secrets.decrypt(credential.secret_encrypted), is_key
        return None


_lock = threading.Lock()
_snapshot: Registry | None = None
_looked_at = float("-inf")  # monotonic seconds


def current() -> Registry:
    """The snapshot, at most about a second old. One thread at a time reloads; others go on with the one before.

    Raises what the database raises, to the one thread that looked.
    """
    snapshot = _snapshot
    if snapshot is not None and time.monotonic() - _looked_at < remembered.SECONDS:
        return snapshot
    if snapshot is None:
        with _lock:
            return _snapshot or _refresh()
    if not _lock.acquire(blocking=False):
        return snapshot
    try:
        return _refresh()
    finally:
        _lock.release()


def known(version_id: uuid.UUID | None) -> Terms | None:
    """The terms of a version, as far as this process has read them already: for what must not wait for the database."""
    return _snapshot.read_version(version_id) if _snapshot is not None and version_id is not None else None


def recheck() -> None:
    """Makes the next `current()` look at the revision at once (after a commit in this process)."""
    global _looked_at
    _looked_at = float("-inf")


def reset() -> None:
    """Forgets the snapshot and every checked password (tests)."""
    global _snapshot
    with _lock:
        _snapshot = None
        recheck()
    authentication.forget()


def _refresh() -> Registry:
    global _snapshot, _looked_at
    # Before the query and not after it, so that a `recheck` in between is not lost.
    _looked_at = time.monotonic()
    number = _revision()
    if _snapshot is None or _snapshot.revision != number:
        _snapshot = _load(number)
    return _snapshot


def _revision() -> int:
    return Revision.objects.values_list("number", flat=True).first() or 0


def _load(number: int) -> Registry:
    # A write between these queries would mix two states. Load once more then; and if writes keep
    # coming, the number from before the queries makes the next look load again.
    for _ in range(3):
        registry = Registry(revision=number, active=_terms(Q(state=VersionState.ACTIVE)), credentials=_credentials())
        after = _revision()
        if after == number:
            break
        number = after
    return registry


def _credentials() -> list[Held]:
    """All that may be valid, newest first."""
    now = clock.now()
    rows = (
        Credential.objects.filter(
            Q(revoked_at__isnull=True) | Q(revoked_at__gt=now),
            Q(valid_until__isnull=True) | Q(valid_until__gt=now),
            party__archived_at__isnull=True,
        )
        .order_by("-created_at", "-id")
        .values_list(
            *_HELD,
            Case(When(kind__in=FOR_MESSAGES, then=F("certificate")), default=Value(""), output_field=TextField()),
        )
    )
    return [Held(*row) for row in rows]


def _terms(where: Q) -> tuple[Terms, ...]:
    """Terms of the versions that match, by TPAId, in three queries."""
    versions = AgreementVersion.objects.filter(where).order_by("agreement__tpa_id")
    rows = [dict(zip(_COLUMNS, row, strict=True)) for row in versions.values_list(*_COLUMNS.values())]
    services: dict[uuid.UUID, tuple[tuple[str, str, str], ...]] = {}
    identifiers: dict[uuid.UUID, tuple[tuple[str, str], ...]] = {}
    chosen = versions.order_by()
    for version_id, service, action, direction in AgreementService.objects.filter(
        version__in=chosen.values("id")
    ).values_list("version_id", "service", "action", "direction"):
        services[version_id] = (*services.get(version_id, ()), (service, action, direction))
    for party_id, context, value in PartyIdentifier.objects.filter(
        Q(party__in=chosen.values("agreement__own_party")) | Q(party__in=chosen.values("agreement__partner"))
    ).values_list("party_id", "context", "value"):
        identifiers[party_id] = (*identifiers.get(party_id, ()), (context, value))
    return tuple(
        Terms(
            **_with_addresses(row),
            services=services.get(row["version_id"], ()),
            own_identifiers=identifiers.get(row["own_party_id"], ()),
            partner_identifiers=identifiers.get(row["partner_id"], ()),
        )
        for row in rows
    )


def _with_addresses(row: dict[str, Any]) -> dict[str, Any]:
    """The row with its addresses filled in: where the endpoint names none, bytes go to the URI itself.

    Errors follow the messages through the same proxy when both have one URI.
    """
    row["resend_schedule"] = tuple(int(wait) for wait in row["resend_schedule"].split(","))
    row["other_servers"] = tuple(row["other_servers"].split())
    address = row["partner_address"] or row["partner_uri"]
    same = row["partner_error_uri"] == row["partner_uri"]
    row["partner_error_address"] = row["partner_error_address"] or (address if same else row["partner_error_uri"])
    row["partner_address"] = address
    return row


def der_of(pem: str) -> bytes:
    """The first certificate of a PEM text, in DER."""
    return x509.load_pem_x509_certificate(pem.encode()).public_bytes(Encoding.DER)


def _header(credential: Held) -> str:
    secret = secrets.decrypt(credential.secret_encrypted)
    if credential.kind == CredentialKind.BEARER:
        return f"Bearer {secret}"
    return "Basic " + base64.b64encode(f"{credential.username}:{secret}".encode()).decode()
