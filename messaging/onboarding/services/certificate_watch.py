"""Certificates and credentials that end soon: an incident of the partner's pair, and an event, 30 and 7 days before and
when it is over.

Part of housekeeping; safe at any time and in several workers at once. The incident resolves itself when nothing ends
soon any more. One that a person resolves opens again only for something else, or for the next of these days.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q

from messaging.choices import IncidentState
from messaging.engine import pairs
from messaging.journal import events, incidents
from messaging.journal.incident_roots import CERTIFICATE_ENDED
from messaging.models import Event, Incident, Pair
from partners import certificates, registry
from partners.models import Credential
from partners.terms import Terms
from rmhub import clock

CAUSE = "certificate_expiring"
_CAUSES = (CAUSE, CERTIFICATE_ENDED)
DAYS = (0, 7, 30)


@dataclass(frozen=True, slots=True)
class Ending:
    """One thing that ends soon. `within`: the smallest of `DAYS` that its end lies in; 0 = it is over."""

    title: str
    use: str
    ends_at: datetime
    within: int

    @property
    def sentence(self) -> str:
        when = "expired" if self.within == 0 else f"expires within {self.within} days,"
        return f"{self.title} ({self.use}) {when} on {self.ends_at:%Y-%m-%d}"


def watch() -> int:
    """One round; returns for how many partners something ends soon."""
    now = clock.now()
    found: dict[uuid.UUID, list[Ending]] = {}
    by_party: dict[uuid.UUID, list[Terms]] = {}
    for terms in registry.current().active():
        by_party.setdefault(terms.hop_party_id, []).append(terms)
    shown = _credentials(by_party, now)
    for party_id, agreed in by_party.items():
        ending = [*_trusted(agreed, now), *shown.get(party_id, ())]
        if ending:
            found[pairs.outbound_pair_id(agreed[0])] = sorted(set(ending), key=lambda one: (one.ends_at, one.title))
    unresolved = Incident.objects.filter(cause__in=_CAUSES).exclude(state=IncidentState.RESOLVED)
    known = dict(unresolved.values_list("pair_id", "detail"))
    for pair_id, ending in found.items():
        if known.get(pair_id) != _detail(ending):
            _open(pair_id, ending, now)
    for pair_id in known.keys() - found.keys():
        if pair_id is not None:
            _resolve(pair_id, now)
    return len(found)


def _within(ends_at: datetime, now: datetime) -> int | None:
    return next((days for days in DAYS if ends_at <= now + timedelta(days=days)), None)


def _trusted(agreed: Iterable[Terms], now: datetime) -> list[Ending]:
    """What partners' servers may show. While one of an endpoint's certificates lasts, it can be reached."""
    found = []
    for terms in agreed:
        try:
            facts = certificates.read(terms.trusted_certificates)
        except ValueError:  # written by a newer hub, or by hand
            continue
        last = max(facts, key=lambda one: one.not_after, default=None)
        if last is not None and (within := _within(last.not_after, now)) is not None:
            found.append(Ending(last.title, f"server of {terms.hop_party_name}", last.not_after, within))
    return found


def _credentials(parties: Iterable[uuid.UUID], now: datetime) -> dict[uuid.UUID, list[Ending]]:
    """What ends of what callers authenticate with, by party, unless another one of its kind is there to go on with."""
    edge = now + timedelta(days=max(DAYS))
    rows = Credential.objects.filter(party__in=list(parties), revoked_at__isnull=True).select_related("party")
    alive = rows.filter(Q(valid_until__isnull=True) | Q(valid_until__gt=edge)).values_list(
        "party_id", "direction", "kind"
    )
    going_on = set(alive)
    found: dict[uuid.UUID, list[Ending]] = {}
    # What ended long ago was taken out of use without being revoked, and is no news.
    for row in rows.filter(valid_until__lte=edge, valid_until__gt=now - timedelta(days=max(DAYS))):
        if (row.party_id, row.direction, row.kind) in going_on or row.valid_until is None:
            continue
        within = _within(row.valid_until, now)
        if within is not None:
            use = f"credential of {row.party}" if row.direction == "inbound" else f"our credential for {row.party}"
            found.setdefault(row.party_id, []).append(
                Ending(row.label or row.username or row.get_kind_display(), use, row.valid_until, within)
            )
    return found


def _detail(ending: list[Ending]) -> str:
    return ("; ".join(one.sentence for one in ending) + ".")[:1000]


def _open(pair_id: uuid.UUID, ending: list[Ending], now: datetime) -> None:
    detail = _detail(ending)
    with transaction.atomic():
        pair = Pair.locked([pair_id]).get(pair_id)
        if pair is None:
            return
        cause = CERTIFICATE_ENDED if any(one.within == 0 for one in ending) else CAUSE
        last = Incident.objects.filter(cause__in=_CAUSES, pair=pair).select_related("pair").order_by("-number").first()
        if last is not None and last.detail == detail:
            return  # another worker's round was faster, or a person knows of it
        written: list[Event] = []
        if last is not None and last.state != IncidentState.RESOLVED:
            incidents.incident_becomes(last, cause, detail, now)
        else:
            _, written = incidents.incident_open(pair=pair, cause=cause, now=now, detail=detail)
        for one in ending:
            data: dict[str, object] = {
                "title": one.title,
                "use": one.use,
                "ends_at": one.ends_at.isoformat(),
                "within_days": one.within,
            }
            written.append(events.event("certificate.expiring", now, pair=pair, data=data))
        events.write(written)


def _resolve(pair_id: uuid.UUID, now: datetime) -> None:
    with transaction.atomic():
        pair = Pair.locked([pair_id]).get(pair_id)
        if pair is None:
            return
        said = "Nothing of this partner expires soon any more."
        events.write(
            incidents.incidents_resolve_for_pair(pair=pair, now=now, by="system", resolution=said, causes=_CAUSES)
        )
