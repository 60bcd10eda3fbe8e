"""Warns while a month can still be saved, and says when it is lost: incidents of an agreement's targets.

Part of housekeeping; safe at any time and in several workers at once. For each agreement and target there is one
unresolved incident at most: at risk while the error budget burns too fast, missed when it is used up.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction

from messaging.causes.levels import OF_LEVELS
from messaging.choices import IncidentState, SlaTarget
from messaging.engine import pairs
from messaging.journal import events, incidents
from messaging.journal.audit import SYSTEM
from messaging.models import Event, Incident, Pair
from messaging.sla import selectors
from messaging.sla.budget import FEWEST, WINDOWS, Burn, Tally, burning, used_up_at
from messaging.sla.selectors import Attainment
from messaging.sla.services.counting import month_of
from partners import registry
from partners.fields import duration
from partners.models import AgreementVersion

_LONGEST = max(window.long for window in WINDOWS)
_USED_UP = "The error budget is used up."
_CALM = "Enough documents were in time again."
_TAKEN_OUT = "The agreement has no such target in force any more."


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with one target now."""

    cause: str
    detail: str


def watch(now: datetime) -> int:
    """One round; returns how many targets are at risk or missed."""
    versions = list(selectors.in_force().prefetch_related("agreement__versions"))
    unresolved = list(
        Incident.objects.filter(cause__in=OF_LEVELS).exclude(state=IncidentState.RESOLVED).select_related("pair")
    )
    through = selectors.counted_through() if versions or unresolved else None
    if through is None:
        return 0
    known = {(one.agreement_id, _target_of(one.cause)): one for one in unresolved if one.agreement_id is not None}
    agreements = {version.agreement_id: version.agreement for version in versions}
    months = selectors.attainments(list(agreements.values()), through)
    by_place = {(one.agreement.pk, one.target): one for one in months}
    spans = selectors.tallies(through, _LONGEST)
    found: dict[tuple[uuid.UUID, SlaTarget], Finding] = {}
    for version in versions:
        for target in selectors.targets(version):
            place = (version.agreement_id, target)
            finding = _finding(by_place[place], spans.get(place, ()), through, known.get(place))
            if finding is None:
                continue
            found[place] = finding
            incident = known.get(place)
            if incident is None or (incident.cause, incident.detail) != (finding.cause, finding.detail):
                _tell(version, target, finding, through, now)
    for place, incident in known.items():
        if place not in found:
            _resolve(incident, by_place.get(place), through, now)
    return len(found)


def _finding(
    one: Attainment, spans: Sequence[tuple[datetime, Tally]], through: datetime, known: Incident | None
) -> Finding | None:
    limit = f"{one.target.label} within {duration(one.within)}, {one.percent:g} % of {one.month:%B %Y}"
    if one.left < 0 and one.decided >= FEWEST:
        said = f"{one.missed:,} of {one.decided:,} documents missed it, and {one.allowed:,} were allowed"
        return Finding(f"sla_{one.target}_missed", f"{limit}: {said}.")

    def within(length: timedelta) -> Tally:
        chosen = [tally for at, tally in spans if at >= through - length]
        return Tally(sum(tally.decided for tally in chosen), sum(tally.missed for tally in chosen))

    burn = burning(one.percent, within, since=known is not None)
    return Finding(f"sla_{one.target}_at_risk", f"{limit}: {_pace(one, burn, through)}") if burn is not None else None


def _pace(one: Attainment, burn: Burn, through: datetime) -> str:
    hours = int(burn.window.long.total_seconds()) // 3600
    length = "hour" if hours == 1 else f"{hours} hours"
    said = (
        f"{burn.tally.missed:,} of {burn.tally.decided:,} documents missed it in the last {length}, {burn.rate:.0f} "
        f"times as many as it allows. {max(0, one.left):,} of {one.allowed:,} misses are left"
    )
    ends = used_up_at(through, max(0, one.left), burn)
    if month_of(ends) == one.month:
        return f"{said}; at this pace the budget is used up on {ends:%Y-%m-%d} at {ends:%H:%M} UTC."
    return f"{said}."


def _tell(version: AgreementVersion, target: SlaTarget, finding: Finding, through: datetime, now: datetime) -> None:
    pair_id = _pair_of(version, target)
    with transaction.atomic():
        pair = Pair.locked([pair_id]).get(pair_id)
        if pair is None:
            return
        incident = _unresolved(version.agreement_id, target)
        if incident is not None and incident.cause == finding.cause and not _is_over(incident, through):
            incidents.incident_goes_on(incident, finding.detail, now)
            return
        written: list[Event] = []
        if incident is not None:
            used_up = finding.cause.endswith("missed") and incident.cause != finding.cause
            written += _closed(incident, _USED_UP if used_up else _why_over(incident, through), now)
        if not _settled_by_person(version.agreement_id, finding.cause, now):
            _, opened = incidents.incident_open(
                pair=pair, agreement=version.agreement, cause=finding.cause, now=now, detail=finding.detail
            )
            written += opened
        events.write(written)


def _resolve(incident: Incident, one: Attainment | None, through: datetime, now: datetime) -> None:
    if incident.pair_id is None:
        return
    with transaction.atomic():
        Pair.locked([incident.pair_id])
        current = _unresolved(incident.agreement_id, _target_of(incident.cause))
        if current is None or current.pk != incident.pk:
            return
        said = _why_over(incident, through) if one is not None else _TAKEN_OUT
        events.write(_closed(current, said, now))


def _is_over(incident: Incident, through: datetime) -> bool:
    """Whether it is about a month that is over."""
    return incident.cause.endswith("missed") and month_of(incident.opened_at) < month_of(through)


def _why_over(incident: Incident, through: datetime) -> str:
    return f"{incident.opened_at:%B %Y} is over." if _is_over(incident, through) else _CALM


def _closed(incident: Incident, said: str, now: datetime) -> list[Event]:
    return incidents.incidents_resolve_for_agreement(
        agreement_id=incident.agreement_id, causes=(incident.cause,), now=now, by=SYSTEM.name, resolution=said
    )


def _unresolved(agreement_id: uuid.UUID | None, target: SlaTarget) -> Incident | None:
    found = Incident.objects.filter(agreement=agreement_id, cause__in=_causes(target))
    return found.exclude(state=IncidentState.RESOLVED).order_by("number").first()


def _settled_by_person(agreement_id: uuid.UUID, cause: str, now: datetime) -> bool:
    """Whether a person knows already, and closed it: of a lost month nothing is said twice, of a burn for six hours."""
    last = Incident.objects.filter(agreement=agreement_id, cause=cause).order_by("-number").first()
    if last is None or last.resolved_at is None or last.resolved_by == SYSTEM.name:
        return False
    if cause.endswith("missed"):
        return month_of(last.opened_at) == month_of(now)
    return last.resolved_at > now - _LONGEST


def _causes(target: SlaTarget) -> tuple[str, str]:
    return f"sla_{target}_at_risk", f"sla_{target}_missed"


def _target_of(cause: str) -> SlaTarget:
    return next(target for target in SlaTarget if cause in _causes(target))


def _pair_of(version: AgreementVersion, target: SlaTarget) -> uuid.UUID:
    terms = registry.current().version(version.pk)
    sends = target == SlaTarget.ACKNOWLEDGED or selectors.measures_sending(version)
    return pairs.outbound_pair_id(terms) if sends else pairs.inbound_pair_id(terms)
