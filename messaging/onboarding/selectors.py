"""Drafts of the wizard, reports of the test bench, certificates that end, and how it goes with a partner."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

from django.db.models import Count, Max, Q, QuerySet, Sum
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from messaging.choices import Direction, IncidentState
from messaging.exceptions import NotFound
from messaging.models import BenchReport, Incident, OfferedCertificate, OnboardingDraft, Pair
from messaging.models.base import existing
from messaging.pairs.selectors import pairs
from partners import certificates as reading
from partners import visibility
from partners.certificates import CertificateFacts
from partners.models import Credential, Endpoint, Party
from partners.visibility import limit
from rmhub import clock
from rmhub.ids import BadPublicId, public_id, read_public_id
from rmhub.language import gettext_lazy, number


def drafts() -> QuerySet[OnboardingDraft]:
    """Newest first (by "-updated_at", "-id"): those that somebody goes on with stand in front."""
    return OnboardingDraft.objects.select_related("agreement").order_by("-updated_at", "-id")


def draft(reference: str | uuid.UUID) -> OnboardingDraft:
    """One draft. Raises NotFound."""
    try:
        key = reference if isinstance(reference, uuid.UUID) else read_public_id("drf", reference)
    except BadPublicId as error:
        raise NotFound(_("There is no draft {reference}.").format(reference=reference)) from error
    found = drafts().filter(pk=key).first()
    if found is None:
        raise NotFound(
            _("There is no draft {reference}: it was activated or discarded.").format(reference=public_id("drf", key))
        )
    return found


def reports(*, agreement_id: uuid.UUID | None = None, draft_id: uuid.UUID | None = None) -> QuerySet[BenchReport]:
    """Reports of tests, newest first (by "-id")."""
    found = limit(BenchReport.objects.select_related("agreement__partner"), "agreement__partner").order_by("-id")
    if agreement_id is not None:
        found = found.filter(agreement=agreement_id)
    return found.filter(draft=draft_id) if draft_id is not None else found


def report(reference: str) -> BenchReport:
    """One report. Raises NotFound."""
    try:
        found = reports().filter(pk=read_public_id("tst", reference)).first()
    except BadPublicId:
        found = None
    if found is None:
        raise NotFound(_("There is no test report {reference}.").format(reference=reference))
    return found


# --- The certificates that the hub knows, and what else ends: certificates of servers, and credentials of callers.

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


def offers(*, party_id: uuid.UUID | None = None, state: str = "") -> QuerySet[OfferedCertificate]:
    """Certificates that partners offered. Not ordered; pages by ("-id",)."""
    rows = visibility.limit(OfferedCertificate.objects.select_related("party", "endpoint"), "party")
    if party_id is not None:
        rows = rows.filter(party=party_id)
    return rows.filter(state=state) if state else rows


def offer(offer_id: uuid.UUID) -> OfferedCertificate:
    """One of them. Raises NotFound."""
    return existing(offers(), offer_id)


def pinned_servers(party_id: uuid.UUID) -> QuerySet[Endpoint]:
    """The partner's endpoints whose server may show certain certificates only: others need no new one told."""
    return Endpoint.objects.filter(party=party_id).exclude(trusted_certificates="").order_by("name", "uri")


# --- How it goes with one partner, in one sentence and a few numbers: its pairs, what waits, incidents, what ends
# soon.

_TROUBLE = {
    "suspended": gettext_lazy("{count} suspended"),
    "holding": gettext_lazy("{count} on hold"),
    "retrying": gettext_lazy("{count} retrying"),
    "resync": gettext_lazy("{count} to be compared after a loss of memory"),
    "silent": gettext_lazy("{count} silent"),
    "paused": gettext_lazy("{count} paused"),
}


@dataclass(frozen=True, slots=True)
class PartnerHealth:
    """`state`: the worst state word of its pairs, "none" without any. `states`: word -> how many pairs."""

    state: str
    sentence: str
    states: dict[str, int]
    waiting: int
    last_success_at: datetime | None
    incidents: int
    ending: tuple[Held, ...]


def health_of(party_id: uuid.UUID) -> PartnerHealth:
    """Four queries, however many pairs it has."""
    rows = pairs.pairs(partner_id=party_id).order_by().values("state").annotate(count=Count("pk"))
    states = {row["state"]: row["count"] for row in rows}
    sums = Pair.objects.filter(partner=party_id).aggregate(
        last=Max("last_success_at"), queued=Sum("queued", filter=Q(direction=Direction.OUT))
    )
    waiting = sums["queued"] or 0
    incidents = Incident.objects.filter(pair__partner=party_id).exclude(state=IncidentState.RESOLVED).count()
    state = next((name for name in pairs.STATE_NAMES if name in states), "none")
    return PartnerHealth(
        state,
        _sentence(states, waiting, incidents),
        states,
        waiting,
        sums["last"],
        incidents,
        tuple(certificates(within_days=SOON, party_id=party_id)),
    )


def _sentence(states: dict[str, int], waiting: int, incidents: int) -> str:
    if not states:
        return _("No pair yet: it appears when an agreement is active.")
    total = sum(states.values())
    trouble = [text.format(count=states[name]) for name, text in _TROUBLE.items() if states.get(name)]
    if not trouble:
        if states.get("disabled") == total:
            return _("All pairs are disabled: no agreement is in force.")
        return _("All {count} pairs flow.").format(count=total) if total > 1 else _("The pair flows.")
    said = [
        ngettext("{what} of {count} pair", "{what} of {count} pairs", total).format(
            what=", ".join(trouble), count=total
        ),
        ngettext("{count} document waits", "{count} documents wait", waiting).format(count=number(waiting)),
    ]
    if incidents:
        said.append(ngettext("{count} incident", "{count} incidents", incidents).format(count=incidents))
    return f"{'; '.join(said)}."
