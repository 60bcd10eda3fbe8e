"""A claimed transmission and the parcel that goes with it: what all kinds of claims hand to the engine."""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from messaging.models import Event, Transmission
from messaging.transports import Parcel
from messaging.transports.base import Login
from partners import registry
from partners.choices import CredentialKind, Transport
from partners.secrets import SecretUnreadable
from partners.terms import Terms

log = logging.getLogger(__name__)


class JobKind(StrEnum):
    PAIR = "pair"
    UNRELIABLE = "unreliable"
    SIGNAL = "signal"
    REPEATABLE = "repeatable"
    STREAM = "stream"
    NOTIFICATION = "notification"  # a message of an atomic transaction


@dataclass(frozen=True, slots=True)
class Job:
    """One transmission that is claimed: what to send, and what its outcome belongs to."""

    kind: JobKind
    transmission_id: uuid.UUID
    transport: str
    parcel: Parcel
    version_id: uuid.UUID
    pair_id: uuid.UUID | None = None
    message_id: uuid.UUID | None = None
    signal_id: uuid.UUID | None = None
    number: int = 0  # of the attempt; tells for all but PAIR and UNRELIABLE which claim an outcome belongs to
    last: bool = False  # if it fails, its pair gives up: it goes out even to a server that is left alone


@dataclass(slots=True)
class Claim:
    """One claiming transaction as it fills up. `limit`: how many of each kind at most. `passed_over`: pairs for
    which nothing is claimed now.
    """

    now: datetime
    limit: int
    passed_over: list[uuid.UUID] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    transmissions: list[Transmission] = field(default_factory=list)
    written: list[Event] = field(default_factory=list)
    silent: list[uuid.UUID] = field(default_factory=list)  # messages of transactions that go unanswered too long
    held: list[uuid.UUID] = field(default_factory=list)  # those that wait too long behind a pair that is shut

    def but(self, column: str) -> str:
        """What to add to the condition of a query by pairs, so that it leaves out what is passed over."""
        return f" AND {column} <> ALL(%s)" if self.passed_over else ""

    @property
    def parameters(self) -> list[object]:
        """Of a query with a time, `but` and a limit."""
        return [self.now, *([self.passed_over] if self.passed_over else []), self.limit]


def parcel(terms: Terms, address: str, content_type: str, body: bytes, now: datetime, **more: Any) -> Parcel:
    """Bytes with the partner's address and our credential for it; `more` are further fields of the Parcel."""
    try:
        authorization, login = _credentials(terms, now)
        certificate = _certificate(terms, now)
    except SecretUnreadable:
        # Sent without it the partner refuses, which a person sees; not sent at all the whole batch would stand still.
        log.exception("credential unreadable", extra={"action": "credential_unreadable", "partner": terms.partner_name})
        authorization, login, certificate = "", None, ""
    fields = {
        "authorization": authorization,
        "login": login,
        "origin": terms.own_uri,
        "target": terms.partner_uri,
        "server": terms.server,
        "host_key": terms.host_key,
        "trusted_certificates": terms.trusted_certificates,
        "client_certificate": certificate,
        "connect_timeout": terms.connect_timeout,
        "read_timeout": terms.read_timeout,
        **more,
    }
    return Parcel(address=address, content_type=content_type, body=body, **fields)


def _credentials(terms: Terms, now: datetime) -> tuple[str, Login | None]:
    """The Authorization header, or the log-in for the server of mail or files. Raises SecretUnreadable."""
    known = registry.current()
    if terms.transport == Transport.HTTP:
        return known.outbound_authorization(terms.hop_party_id, now), None
    if terms.transport == Transport.SMTP:
        # The hub's own relay has a log-in of its own (RMHUB_SMTP_RELAY); the partner's goes to nobody else.
        found = known.outbound_login(terms.hop_party_id, now, CredentialKind.BASIC) if terms.server else None
    else:
        found = known.outbound_login(terms.hop_party_id, now, CredentialKind.BASIC, CredentialKind.SSH_KEY)
    return "", Login(*found) if found else None


def _certificate(terms: Terms, now: datetime) -> str:
    """Our certificate with its key, for servers that ask for one. Raises SecretUnreadable."""
    if terms.transport != Transport.HTTP:
        return ""
    return registry.current().outbound_certificate(terms.hop_party_id, now)
