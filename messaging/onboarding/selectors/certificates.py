"""The certificates that the hub knows, and what else ends: what servers may show, and what is shown at doors."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

from django.db.models import Q, QuerySet

from partners import certificates as reading
from partners import visibility
from partners.certificates import CertificateFacts
from partners.models import Credential, Endpoint, Party
from rmhub import clock

SOON = 30  # days
MOST = 2000


@dataclass(frozen=True, slots=True)
class Held:
    """One certificate, or a credential without one that ends. `kind`: trusted (of a server) or credential."""

    kind: str
    title: str
    party: Party
    endpoint: Endpoint | None
    credential: Credential | None
    facts: CertificateFacts | None
    ends_at: datetime
    days_left: int

    @property
    def state(self) -> str:
        """expired, ending (within 30 days) or valid."""
        if self.days_left < 0:
            return "expired"
        return "ending" if self.days_left < SOON else "valid"


def certificates(*, within_days: int | None = None, party_id: uuid.UUID | None = None) -> list[Held]:
    """All of them, those that end first in front; `within_days` leaves out what lasts longer.

    Of parties that are in use and may be seen. Reads every endpoint that has certificates: there are as many as
    partners. At most `MOST` of each kind.
    """
    now = clock.now()
    edge = now + timedelta(days=within_days) if within_days is not None else None
    found = [*_of_endpoints(now, party_id), *_of_credentials(now, edge, party_id)]
    if edge is not None:
        found = [one for one in found if one.ends_at <= edge]
    return sorted(found, key=lambda one: (one.ends_at, one.title))


def _of_endpoints(now: datetime, party_id: uuid.UUID | None) -> list[Held]:
    rows: QuerySet[Endpoint] = (
        visibility.limit(Endpoint.objects.all(), "party")
        .filter(party__archived_at__isnull=True)
        .exclude(trusted_certificates="")
        .select_related("party")
        .order_by("id")
    )
    if party_id is not None:
        rows = rows.filter(party=party_id)
    found = []
    for endpoint in rows[:MOST]:
        for facts in _facts(endpoint.trusted_certificates):
            found.append(
                Held(
                    "trusted",
                    facts.title,
                    endpoint.party,
                    endpoint,
                    None,
                    facts,
                    facts.not_after,
                    facts.days_left(now),
                )
            )
    return found


def _of_credentials(now: datetime, edge: datetime | None, party_id: uuid.UUID | None) -> list[Held]:
    rows = (
        visibility.limit(Credential.objects.all(), "party")
        .filter(Q(revoked_at__isnull=True), valid_until__isnull=False, party__archived_at__isnull=True)
        .select_related("party")
        .defer("secret_hash", "secret_encrypted")
        .order_by("valid_until", "id")
    )
    if edge is not None:
        rows = rows.filter(valid_until__lte=edge)
    if party_id is not None:
        rows = rows.filter(party=party_id)
    found = []
    for credential in rows[:MOST]:
        assert credential.valid_until is not None
        facts = next(iter(_facts(credential.certificate)), None)
        title = credential.label or (facts.title if facts else "") or credential.username
        found.append(
            Held(
                "credential",
                title or credential.get_kind_display(),
                credential.party,
                None,
                credential,
                facts,
                credential.valid_until,
                (credential.valid_until - now).days,
            )
        )
    return found


@lru_cache(maxsize=4096)
def _facts(pem: str) -> list[CertificateFacts]:
    try:
        return reading.read(pem)
    except ValueError:  # written by a newer hub, or by hand
        return []
