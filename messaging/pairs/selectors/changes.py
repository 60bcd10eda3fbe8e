"""What changed at a pair's ends since its last success: certificates, endpoint, agreement, credentials."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

from messaging.keyset import floor_id
from messaging.models import AuditEntry, Pair, ProbeReport
from partners.models import AgreementVersion, Credential, Endpoint
from partners.terms import Terms
from rmhub import clock

_MOST = 10
_KINDS = {"endpoint": "Endpoint", "credential": "Credential", "agreementversion": "Agreement", "agreement": "Agreement"}


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that is not as it was. `kind`: certificate, endpoint, agreement or credential; `by`: who did it, ""
    when nobody here did.
    """

    at: datetime
    kind: str
    what: str
    by: str = ""
    reason: str = ""


def since_last_success(pair: Pair, terms: Terms | None) -> list[Change]:
    """The newest first; nothing for a pair without a success. At most five queries."""
    since = pair.last_success_at
    if since is None or terms is None:
        return []
    version = AgreementVersion.objects.filter(pk=terms.version_id).values_list("partner_endpoint_id", "own_endpoint_id")
    endpoints = [key for row in version for key in row]
    return sorted(
        [*_by_people(pair, terms, endpoints, since), *_certificate(endpoints[:1], since)],
        key=lambda change: change.at,
        reverse=True,
    )[:_MOST]


def _by_people(pair: Pair, terms: Terms, endpoints: list[uuid.UUID], since: datetime) -> list[Change]:
    ids: dict[str, set[str]] = {"endpoint": {row.public_id for row in Endpoint.objects.filter(pk__in=endpoints)}}
    held = Credential.objects.filter(party=terms.hop_party_id).only("id")
    ids["credential"] = {row.public_id for row in held}
    versions = AgreementVersion.objects.filter(agreement=terms.agreement_id).select_related("agreement")
    rows = list(versions.only("id", "agreement_id", "agreement__id"))
    ids["agreementversion"] = {str(getattr(row, "public_id", row.pk)) for row in rows}
    ids["agreement"] = {row.agreement.public_id for row in rows}
    wanted = set().union(*ids.values())
    entries = AuditEntry.objects.filter(
        object_type__in=ids, object_id__in=wanted, id__gte=floor_id(since), at__gt=since
    )
    entries = entries.exclude(verb="endpoint.probe").exclude(result="denied").order_by("-id")[:_MOST]
    return [Change(entry.at, _kind(entry), _words(entry), entry.actor, entry.reason) for entry in entries]


def _kind(entry: AuditEntry) -> str:
    if entry.object_type == "endpoint" and entry.before.get("certificates") != entry.after.get("certificates"):
        return "certificate"
    return _KINDS[entry.object_type].lower()


def _words(entry: AuditEntry) -> str:
    """`Endpoint main: address, read timeout`."""
    changed = [name for name, value in entry.after.items() if entry.before.get(name) != value]
    verb = entry.verb.rpartition(".")[2].replace("_", " ")
    named = ", ".join(name.replace("_", " ") for name in changed[:4])
    what = f"{_KINDS[entry.object_type]} {entry.object_name}"
    return f"{what}: {named}" if entry.before and named else f"{what}: {verb}"


def _certificate(endpoints: list[uuid.UUID], since: datetime) -> list[Change]:
    """Another certificate than the one that the server showed at the last look before."""
    shown: list[tuple[datetime, dict[str, Any]]] = []
    for report in ProbeReport.objects.filter(endpoint__in=endpoints).order_by("-id")[:20]:
        facts = next((step.get("facts") or {} for step in report.steps if step.get("name") == "certificate"), {})
        if facts.get("sha256"):
            shown.append((report.at, facts))
    found = []
    for (at, new), (_, old) in pairwise(shown):
        if at > since and new["sha256"] != old["sha256"]:
            ends = str(new.get("not_after", ""))[:10]
            found.append(Change(at, "certificate", f"The server shows another certificate, valid until {ends}"))
    for _, facts in shown[:1]:
        # Also when the last look was before that: nobody has to look again to learn it.
        ended = datetime.fromisoformat(str(facts["not_after"])) if facts.get("not_after") else None
        if ended is not None and since < ended <= clock.now():
            found.append(Change(ended, "certificate", "The certificate that the server showed last has run out"))
    return found
