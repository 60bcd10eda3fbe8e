"""What is newer than a cause: a cause says what was so when it was noted, and its reader wants to know what is so.

Everything that says something about the way to a partner is a `Sign` with its time: attempts, pings, answers to
questions, acknowledgements, changes of what we have entered. The newest that can disprove the cause decides
(`Cause.disproved_by`); sentences about pairs and incidents are made from that, and not from the cause alone.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from itertools import pairwise
from typing import Any

from django.db import connection
from django.db.models import Max
from django.utils.translation import gettext as _

from messaging import causes
from messaging.causes import Evidence
from messaging.choices import Direction
from messaging.journal.wording import span
from messaging.keyset import floor_id
from messaging.models import AuditEntry, Pair, ProbeReport, StatusInquiry
from messaging.pairs.selectors.diagnosis_parts import Diagnosis
from messaging.protocol.circuit import SILENT, Seen, seen
from messaging.protocol.pair_state import Flow
from partners.choices import CredentialDirection
from partners.models import AgreementVersion, Credential, Endpoint
from partners.terms import Terms
from rmhub import clock
from rmhub.language import gettext_lazy, inside


class Tells(StrEnum):
    """What a sign says of the way to the partner."""

    WORKS = "works"
    FAILS = "fails"
    CHANGED = "changed"  # something was fixed, perhaps; nobody has tried since


@dataclass(frozen=True, slots=True)
class Sign:
    """One thing that is known, and since when. `cause`: of what fails."""

    at: datetime
    evidence: Evidence
    tells: Tells
    cause: str = ""

    def sentence(self, now: datetime) -> str:
        """`Ping 8 s ago succeeded.`"""
        ago = span((now - self.at).total_seconds())
        if self.tells is Tells.FAILS:
            failure = inside(causes.lookup(self.cause).label)
            failed = _FAILED.get(self.evidence, _FAILED[Evidence.ATTEMPT])
            return failed.format(ago=ago, failure=failure)
        return _WORKED[self.evidence].format(ago=ago)


_WORKED: Mapping[Evidence, str] = {
    Evidence.PING: gettext_lazy("Ping {ago} ago succeeded."),
    Evidence.ANSWER: gettext_lazy("The partner answered a question about a message {ago} ago."),
    Evidence.ATTEMPT: gettext_lazy("The attempt {ago} ago was taken."),
    Evidence.SUCCESS: gettext_lazy("The last acknowledgement or answer came {ago} ago."),
    Evidence.CHANGE: gettext_lazy("Its endpoint or credential was changed {ago} ago, and nobody has tried since."),
}
_FAILED: Mapping[Evidence, str] = {
    Evidence.PING: gettext_lazy("Ping {ago} ago failed: {failure}."),
    Evidence.ATTEMPT: gettext_lazy("The attempt {ago} ago failed: {failure}."),
}
# The newest attempt of each pair that says something about the partner's server: one index probe a pair.
_ATTEMPTS = """
SELECT p.id, t.outcome, t.http_status, t.cause, coalesce(t.finished_at, t.started_at)
FROM unnest(%s::uuid[]) AS p(id) CROSS JOIN LATERAL (
    SELECT * FROM messaging_transmission
    WHERE pair_id = p.id AND message_id IS NOT NULL AND outcome IN ('sent', 'failed') AND cause <> ALL(%s)
    ORDER BY id DESC LIMIT 1) AS t
"""


def signs(chosen: Iterable[tuple[Pair, Terms | None]], now: datetime) -> dict[uuid.UUID, list[Sign]]:
    """What is known about the way to the partner of each outbound pair that has a cause. At most five queries."""
    wanted = [(pair, terms) for pair, terms in chosen if pair.cause and pair.direction == Direction.OUT]
    if not wanted:
        return {}
    found: dict[uuid.UUID, list[Sign]] = {pair.pk: [] for pair, __ in wanted}
    for pair, __ in wanted:
        if pair.last_success_at is not None:
            found[pair.pk].append(Sign(pair.last_success_at, Evidence.SUCCESS, Tells.WORKS))
    for key, sign in _of_attempts(list(found)):
        found[key].append(sign)
    heads = {pair.in_flight_id: pair.pk for pair, __ in wanted if pair.in_flight_id is not None}
    # When the partner last answered a question about each of these messages.
    answers = StatusInquiry.objects.filter(message__in=list(heads), http_status__isnull=False).order_by()
    for message_id, at in answers.values_list("message").annotate(at=Max("answered_at")):
        found[heads[message_id]].append(Sign(at, Evidence.ANSWER, Tells.WORKS))
    by_version = {terms.version_id: terms for __, terms in wanted if terms is not None}
    endpoints = _endpoints(by_version)
    pings = _pings({endpoint for endpoint, __ in endpoints.values()})
    # When what we show each of these parties was entered last.
    ours = Credential.objects.filter(
        party__in={terms.hop_party_id for terms in by_version.values()}, direction=CredentialDirection.OUTBOUND
    )
    shown = dict(ours.order_by().values_list("party_id").annotate(at=Max("created_at")))
    for pair, terms in wanted:
        if terms is None or terms.version_id not in endpoints:
            continue
        endpoint, changed_at = endpoints[terms.version_id]
        entered = max(filter(None, (changed_at, shown.get(terms.hop_party_id))))
        found[pair.pk].append(Sign(entered, Evidence.CHANGE, Tells.CHANGED))
        if endpoint in pings:
            found[pair.pk].append(pings[endpoint])
    # What is said to come is no evidence: another machine's clock goes ahead of ours.
    return {key: [sign for sign in known if sign.at <= now] for key, known in found.items()}


def known_at(pair: Pair, found: Collection[Sign]) -> datetime | None:
    """When the pair's cause was last seen to be so: when it gave up, or at the last attempt that failed."""
    failed = max((sign.at for sign in found if sign.evidence is Evidence.ATTEMPT), default=None)
    if pair.flow != Flow.SUSPENDED:
        return failed or pair.changed_at
    return pair.changed_at or failed


def newest(cause: str, since: datetime | None, found: Iterable[Sign]) -> Sign | None:
    """The newest sign after `since` that says something about this cause; None when nothing is newer."""
    telling = causes.lookup(cause).disproved_by
    after = [sign for sign in found if sign.evidence in telling and (since is None or sign.at > since)]
    return max(after, key=lambda sign: sign.at, default=None)


def applied(found: Diagnosis, pair: Pair, known: Collection[Sign], now: datetime) -> Diagnosis:
    """The diagnosis with what is newer than its cause in front of what is not so any more."""
    if found.cause is None or found.cause.code != pair.cause:
        return found
    sign = newest(pair.cause, known_at(pair, known), known)
    if sign is None:
        return found
    suspended = pair.flow == Flow.SUSPENDED
    said = sign.sentence(now)
    before = _("It was suspended for “{cause}”.") if suspended else _("Before that an attempt failed for “{cause}”.")
    before = before.format(cause=found.cause.label)
    if sign.tells is Tells.FAILS:
        cause = causes.lookup(sign.cause)
        why, advice = f"{said} {cause.sentence}", str(cause.action)
        short = found.short
    elif sign.tells is Tells.CHANGED:
        why = f"{said} {before}"
        advice = (
            _("Ping the partner to see whether it works now; then resume.")
            if suspended
            else _("Ping the partner to see whether it works now; then retry now.")
        )
        short = _("Changed since: ping")
    else:
        why = f"{said} {before}"
        advice = (
            _("Resume now.") if suspended else _("Nothing: it goes out again by itself. “Retry now” does not wait.")
        )
        short = _("Works again: resume") if suspended else _("Works again")
    return replace(found, why=found.why.replace(str(found.cause.sentence), why), advice=advice, short=short, newer=sign)


def of_incident(pair: Pair, terms: Terms | None, cause: str, since: datetime, now: datetime) -> Sign | None:
    """What is newer than an incident of a pair. For one of another cause than the pair has now: its successes."""
    if pair.cause:
        return newest(cause, since, signs([(pair, terms)], now).get(pair.pk, ()))
    if pair.last_success_at is None:
        return None
    return newest(cause, since, [Sign(pair.last_success_at, Evidence.SUCCESS, Tells.WORKS)])


def _of_attempts(pairs: list[uuid.UUID]) -> list[tuple[uuid.UUID, Sign]]:
    with connection.cursor() as cursor:
        cursor.execute(_ATTEMPTS, [pairs, list(SILENT)])
        rows = cursor.fetchall()
    made = []
    for key, outcome, status, cause, at in rows:
        reached = seen(ok=outcome == "sent", status=status, cause=cause) is Seen.REACHED and not cause
        made.append((key, Sign(at, Evidence.ATTEMPT, Tells.WORKS if reached else Tells.FAILS, cause)))
    return made


def _endpoints(versions: Collection[uuid.UUID]) -> dict[uuid.UUID, tuple[uuid.UUID, datetime]]:
    """Of each version of an agreement the partner's endpoint, and when that was changed last."""
    rows = AgreementVersion.objects.filter(pk__in=list(versions)).values_list(
        "pk", "partner_endpoint_id", "partner_endpoint__updated_at"
    )
    return {version: (endpoint, at) for version, endpoint, at in rows}


def _pings(endpoints: Collection[uuid.UUID]) -> dict[uuid.UUID, Sign]:
    rows = ProbeReport.objects.filter(endpoint__in=list(endpoints)).order_by("endpoint_id", "-id")
    return {
        endpoint: Sign(at, Evidence.PING, Tells.WORKS if ok else Tells.FAILS, cause)
        for endpoint, ok, cause, at in rows.distinct("endpoint_id").values_list("endpoint_id", "ok", "cause", "at")
    }


# --- what changed at a pair's ends since its last success: certificates, endpoint, agreement, credentials ---

_MOST = 10
_KINDS = {
    "endpoint": "endpoint",
    "credential": "credential",
    "agreementversion": "agreement",
    "agreement": "agreement",
}
_VERBS = {
    "activate": gettext_lazy("activate"),
    "create": gettext_lazy("create"),
    "disable": gettext_lazy("disable"),
    "discard": gettext_lazy("discard"),
    "edit": gettext_lazy("edit"),
    "enable": gettext_lazy("enable"),
    "issue": gettext_lazy("issue"),
    "new version": gettext_lazy("new version"),
    "revoke": gettext_lazy("revoke"),
    "store": gettext_lazy("store"),
    "test": gettext_lazy("test"),
    "update": gettext_lazy("update"),
}


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
        [*_by_people(terms, endpoints, since), *_certificate(endpoints[:1], since)],
        key=lambda change: change.at,
        reverse=True,
    )[:_MOST]


def _by_people(terms: Terms, endpoints: list[uuid.UUID], since: datetime) -> list[Change]:
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
    return _KINDS[entry.object_type]


def _words(entry: AuditEntry) -> str:
    """`Endpoint main: address, read timeout`."""
    changed = [name for name, value in entry.after.items() if entry.before.get(name) != value]
    verb = entry.verb.rpartition(".")[2].replace("_", " ")
    verb = str(_VERBS.get(verb, verb))
    named = ", ".join(name.replace("_", " ") for name in changed[:4])
    said = {
        "endpoint": _("Endpoint {name}: {what}"),
        "credential": _("Credential {name}: {what}"),
        "agreement": _("Agreement {name}: {what}"),
    }[_KINDS[entry.object_type]]
    return said.format(name=entry.object_name, what=named if entry.before and named else verb)


def _certificate(endpoints: list[uuid.UUID], since: datetime) -> list[Change]:
    """Another certificate than the one that the server showed at the last look before."""
    shown: list[tuple[datetime, dict[str, Any]]] = []
    for report in ProbeReport.objects.filter(endpoint__in=endpoints).order_by("-id")[:20]:
        facts = next((step.get("facts") or {} for step in report.steps if step.get("name") == "certificate"), {})
        if facts.get("sha256"):
            shown.append((report.at, facts))
    found = []
    for (at, new), (__, old) in pairwise(shown):
        if at > since and new["sha256"] != old["sha256"]:
            ends = str(new.get("not_after", ""))[:10]
            said = _("The server shows another certificate, valid until {day}").format(day=ends)
            found.append(Change(at, "certificate", said))
    for __, facts in shown[:1]:
        # Also when the last look was before that: nobody has to look again to learn it.
        ended = datetime.fromisoformat(str(facts["not_after"])) if facts.get("not_after") else None
        if ended is not None and since < ended <= clock.now():
            found.append(Change(ended, "certificate", _("The certificate that the server showed last has run out")))
    return found
