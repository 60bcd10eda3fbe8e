"""Incidents: opened by the engine, folded while open, closed by people (or by the success that disproves them)."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from datetime import datetime, timedelta

from django.db import connection, transaction
from django.db.models import Max

from messaging.causes_reports import FINDINGS
from messaging.choices import IncidentState
from messaging.exceptions import NotFound, WrongState
from messaging.models import Event, Incident, Pair, Trigger
from messaging.services import audit, events
from messaging.services.audit import SYSTEM, Actor
from rmhub import clock
from rmhub.ids import public_id

# Trouble of a trigger that is back so soon after the hub saw it go is the same incident.
REOPENED_WITHIN = timedelta(minutes=30)
_NUMBERS = 0x524D4855  # key of the advisory lock that makes incident numbers gapless


def incident_open(
    *,
    pair: Pair | None,
    cause: str,
    now: datetime,
    detail: str = "",
    message_pk: uuid.UUID | None = None,
    trigger: Trigger | None = None,
) -> tuple[Incident, list[Event]]:
    """Opens an incident, or counts one more occurrence of the unresolved one for (pair, trigger, cause).

    Call inside a transaction; with a pair or a trigger, hold its lock. Returns the events to write.
    """
    # Locked, or the occurrence would be counted on one that a person closes in this very moment.
    unresolved = Incident.objects.filter(pair=pair, trigger=trigger, cause=cause).exclude(state=IncidentState.RESOLVED)
    known = unresolved.select_for_update(of=("self",)).first()
    if known is not None:
        known.occurrences += 1
        known.last_seen_at = now
        known.detail = detail or known.detail
        known.message_id = message_pk or known.message_id
        known.save(update_fields=["occurrences", "last_seen_at", "detail", "message"])
        return known, []
    if trigger is not None and (ended := _just_ended(trigger, cause, now)) is not None:
        return ended, [_opened_event(ended, now, trigger)]
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_NUMBERS])
    number = (Incident.objects.aggregate(last=Max("number"))["last"] or 0) + 1
    incident = Incident.objects.create(
        number=number,
        cause=cause,
        detail=detail,
        pair=pair,
        trigger=trigger,
        message_id=message_pk,
        opened_at=now,
        last_seen_at=now,
    )
    return incident, [_opened_event(incident, now, trigger)]


def _just_ended(trigger: Trigger, cause: str, now: datetime) -> Incident | None:
    """The incident that the hub itself closed a moment ago, open again: trouble that comes and goes is one trouble."""
    recent = Incident.objects.filter(
        trigger=trigger,
        cause=cause,
        state=IncidentState.RESOLVED,
        resolved_by=SYSTEM.name,
        resolved_at__gt=now - REOPENED_WITHIN,
    )
    incident = recent.order_by("-number").select_for_update(of=("self",)).first()
    if incident is None:
        return None
    incident.state = IncidentState.ACKNOWLEDGED if incident.owner else IncidentState.OPEN
    incident.occurrences += 1
    incident.last_seen_at = now
    incident.resolved_at, incident.resolved_by, incident.resolution = None, "", ""
    incident.save(update_fields=["state", "occurrences", "last_seen_at", "resolved_at", "resolved_by", "resolution"])
    return incident


def _opened_event(incident: Incident, now: datetime, trigger: Trigger | None) -> Event:
    data: dict[str, object] = {
        "incident": incident.public_id,
        "number": incident.number,
        "cause": incident.cause,
        "detail": incident.detail,
    }
    if trigger is not None:
        data["trigger"] = trigger.public_id
    return events.event("incident.opened", now, pair=incident.pair_id, data=data)


def incidents_resolve_for_pair(
    *, pair: Pair, now: datetime, by: str, resolution: str, causes: Collection[str] | None = None
) -> list[Event]:
    """Resolves what is unresolved for a pair (of these causes only); call with its lock held. Returns the events.

    What a report found stays: no later success disproves it, so that a person closes it.
    """
    written = []
    unresolved = Incident.objects.filter(pair=pair).exclude(state=IncidentState.RESOLVED).exclude(cause__in=FINDINGS)
    if causes is not None:
        unresolved = unresolved.filter(cause__in=causes)
    for incident in unresolved.order_by("number").select_for_update(of=("self",)):
        _resolve(incident, now, by, resolution)
        written.append(_resolved_event(incident, now))
    return written


def incidents_resolve_for_trigger(
    *, trigger: Trigger, now: datetime, by: str, resolution: str, causes: Collection[str] | None = None
) -> list[Event]:
    """Resolves what is unresolved for a trigger (of these causes only); call with its lock held. Returns the events."""
    written = []
    unresolved = Incident.objects.filter(trigger=trigger).exclude(state=IncidentState.RESOLVED)
    if causes is not None:
        unresolved = unresolved.filter(cause__in=causes)
    for incident in unresolved.order_by("number").select_for_update(of=("self",)):
        _resolve(incident, now, by, resolution)
        written.append(_resolved_event(incident, now))
    return written


def incidents_resolve_of_hub(*, cause: str, now: datetime, by: str, resolution: str) -> list[Event]:
    """Resolves what is unresolved for the hub as a whole, of this cause, in the caller's transaction.

    Returns the events to write.
    """
    written = []
    unresolved = Incident.objects.filter(pair=None, trigger=None, cause=cause).exclude(state=IncidentState.RESOLVED)
    for incident in unresolved.order_by("number").select_for_update(of=("self",)):
        _resolve(incident, now, by, resolution)
        written.append(_resolved_event(incident, now))
    return written


def incident_acknowledge(*, incident_id: uuid.UUID, actor: Actor, reason: str = "") -> Incident:
    """A person takes it: they become its owner. Raises NotFound, and WrongState when it is resolved."""
    with transaction.atomic():
        incident = _locked(incident_id)
        if incident.state == IncidentState.RESOLVED:
            raise WrongState(f"{incident} is resolved already.", state=incident.state)
        before = {"state": incident.state, "owner": incident.owner}
        now = clock.now()
        incident.state = IncidentState.ACKNOWLEDGED
        incident.owner = actor.name
        incident.acknowledged_at = incident.acknowledged_at or now
        incident.save(update_fields=["state", "owner", "acknowledged_at"])
        after = {"state": incident.state, "owner": incident.owner}
        audit.record(actor, "incident.acknowledge", incident, reason=reason, before=before, after=after)
        data = {"incident": incident.public_id, "number": incident.number, "owner": incident.owner}
        events.write([events.event("incident.acknowledged", now, pair=incident.pair_id, data=data)])
        return incident


def incident_resolve(*, incident_id: uuid.UUID, actor: Actor, reason: str) -> Incident:
    """A person closes it. Raises InvalidSubmission without a reason, NotFound, WrongState when it is resolved."""
    audit.require_reason(reason)
    with transaction.atomic():
        incident = _locked(incident_id)
        if incident.state == IncidentState.RESOLVED:
            raise WrongState(f"{incident} is resolved already.", state=incident.state)
        before = {"state": incident.state}
        now = clock.now()
        _resolve(incident, now, actor.name, reason)
        audit.record(actor, "incident.resolve", incident, reason=reason, before=before, after={"state": incident.state})
        events.write([_resolved_event(incident, now)])
        return incident


def _locked(incident_id: uuid.UUID) -> Incident:
    incident = Incident.objects.select_for_update(of=("self",)).filter(pk=incident_id).first()
    if incident is None:
        raise NotFound(f"There is no incident {public_id('inc', incident_id)}.")
    return incident


def _resolve(incident: Incident, now: datetime, by: str, resolution: str) -> None:
    incident.state = IncidentState.RESOLVED
    incident.resolved_at = now
    incident.resolved_by = by
    incident.resolution = resolution
    incident.save(update_fields=["state", "resolved_at", "resolved_by", "resolution"])


def _resolved_event(incident: Incident, now: datetime) -> Event:
    data = {"incident": incident.public_id, "number": incident.number, "cause": incident.cause}
    return events.event("incident.resolved", now, pair=incident.pair_id, data=data)
