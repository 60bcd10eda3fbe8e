"""Incidents: opened by the engine, folded while open; taken, put off, talked about and closed by people (or closed by
the success that disproves them).
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models import Max, Q, QuerySet
from django.utils.translation import gettext as _

from messaging.causes.levels import OF_LEVELS
from messaging.causes.reports import FINDINGS
from messaging.choices import IncidentState, NoteKind
from messaging.exceptions import InvalidSubmission, Stale, WrongState
from messaging.journal import audit, events
from messaging.journal.audit import SYSTEM, Actor
from messaging.journal.incident_roots import CERTIFICATE_ENDED, root_of, stays_open
from messaging.models import Coordination, Event, Incident, IncidentNote, Pair, Trigger
from messaging.models.base import existing
from partners.models import Agreement
from rmhub import clock
from rmhub.ids import public_id
from rmhub.language import number
from rmhub.roles import ORDER, SCOPES

# Trouble of a trigger that is back so soon after the hub saw it go is the same incident.
REOPENED_WITHIN = timedelta(minutes=30)
SNOOZED_MOST = timedelta(days=30)
COMMENT_MOST = 5000
DONE_MARK = "→"  # in a resolution, between what was found and what was done
_LASTING = (
    *("silent", "certificate_expiring", CERTIFICATE_ENDED, "certificate_offered"),
    *("needs_resync", "transaction_lost", *OF_LEVELS),
)
_NUMBERS = 0x524D4855  # key of the advisory lock that makes incident numbers gapless


def incident_open(
    *,
    pair: Pair | None,
    cause: str,
    now: datetime,
    detail: str = "",
    message_pk: uuid.UUID | None = None,
    trigger: Trigger | None = None,
    coordination: Coordination | None = None,
    agreement: Agreement | None = None,
) -> tuple[Incident, list[Event]]:
    """Opens an incident, or counts one more occurrence of the unresolved one for (pair, trigger, coordination,
    agreement, cause).

    Call inside a transaction; with a pair or a trigger, hold its lock. Returns the events to write.
    """
    # Locked, or the occurrence would be counted on one that a person closes in this very moment.
    same = Incident.objects.filter(
        pair=pair, trigger=trigger, coordination=coordination, agreement=agreement, cause=cause
    )
    unresolved = same.exclude(state=IncidentState.RESOLVED)
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
        coordination=coordination,
        agreement=agreement,
        part_of=root_of(pair, cause) if pair is not None else None,
        message_id=message_pk,
        opened_at=now,
        last_seen_at=now,
    )
    return incident, [_opened_event(incident, now, trigger)]


def incident_becomes(incident: Incident, cause: str, detail: str, now: datetime) -> None:
    """An unresolved incident has got further: it says so, and hangs on what shows the same already.

    Call with the lock of its pair held.
    """
    incident.cause, incident.detail, incident.last_seen_at = cause, detail, now
    incident.occurrences += 1
    if incident.pair is not None and incident.part_of_id is None and not incident.parts.exists():
        incident.part_of = root_of(incident.pair, cause)
    incident.save(update_fields=["cause", "detail", "last_seen_at", "occurrences", "part_of"])


def incident_goes_on(incident: Incident, detail: str, now: datetime) -> None:
    """An unresolved incident is as it was, with other numbers: no occurrence, and nobody is told."""
    Incident.objects.filter(pk=incident.pk).update(detail=detail, last_seen_at=now)


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
    if incident.part_of is not None:
        data["part_of"] = incident.part_of.public_id
    if incident.agreement is not None:
        data["agreement"] = incident.agreement.tpa_id
    if incident.coordination is not None:
        data["transaction"] = incident.coordination.public_id
    return events.event("incident.opened", now, pair=incident.pair_id, data=data)


def incidents_resolve_for_pair(
    *, pair: Pair, now: datetime, by: str, resolution: str, causes: Collection[str] | None = None
) -> list[Event]:
    """Resolves what is unresolved for a pair (of these causes only); call with its lock held. Returns the events.

    What a report found stays: no later success disproves it, so that a person closes it. A pair that is silent is so
    until its next document comes, whatever else is fixed (`pairs.services.silence`), what ends soon does so although
    the partner is reached today (`onboarding.services.certificate_watch`), a memory that was lost is compared by a
    person (`pairs.services.resync`), and one document in time gives no budget back (`sla.services.watching`).
    """
    unresolved = Incident.objects.filter(pair=pair).exclude(state=IncidentState.RESOLVED).exclude(cause__in=FINDINGS)
    unresolved = unresolved.exclude(cause__in=_LASTING) if causes is None else unresolved.filter(cause__in=causes)
    return _resolve_all(unresolved, now, by, resolution)


def incidents_resolve_for_trigger(
    *, trigger: Trigger, now: datetime, by: str, resolution: str, causes: Collection[str] | None = None
) -> list[Event]:
    """Resolves what is unresolved for a trigger (of these causes only); call with its lock held. Returns the events."""
    unresolved = Incident.objects.filter(trigger=trigger).exclude(state=IncidentState.RESOLVED)
    if causes is not None:
        unresolved = unresolved.filter(cause__in=causes)
    return _resolve_all(unresolved, now, by, resolution)


def incidents_resolve_for_agreement(
    *, agreement_id: uuid.UUID | None, now: datetime, by: str, resolution: str, causes: Collection[str]
) -> list[Event]:
    """Resolves what is unresolved for an agreement, of these causes; call with the lock of its pair held. Returns the
    events.
    """
    unresolved = Incident.objects.filter(agreement=agreement_id, cause__in=causes)
    return _resolve_all(unresolved.exclude(state=IncidentState.RESOLVED), now, by, resolution)


def incidents_resolve_for_coordination(
    *,
    coordination_id: uuid.UUID | None,
    now: datetime,
    by: str,
    resolution: str,
    pair_id: uuid.UUID | None = None,
    causes: Collection[str] | None = None,
) -> list[Event]:
    """Resolves what is unresolved for an atomic transaction (with this pair, of these causes only). Call with its lock
    held. Returns the events.
    """
    unresolved = Incident.objects.filter(coordination=coordination_id).exclude(state=IncidentState.RESOLVED)
    if pair_id is not None:
        unresolved = unresolved.filter(pair_id=pair_id)
    if causes is not None:
        unresolved = unresolved.filter(cause__in=causes)
    return _resolve_all(unresolved, now, by, resolution)


def _resolve_all(unresolved: QuerySet[Incident], now: datetime, by: str, resolution: str) -> list[Event]:
    """In the order of their numbers, in which everybody locks them."""
    written = []
    for incident in unresolved.order_by("number").select_for_update(of=("self",)):
        written += _resolve(incident, now, by, resolution)
    return written


def incidents_resolve_of_hub(*, cause: str, now: datetime, by: str, resolution: str) -> list[Event]:
    """Resolves what is unresolved for the hub as a whole, of this cause, in the caller's transaction.

    Returns the events to write.
    """
    unresolved = Incident.objects.filter(pair=None, trigger=None, cause=cause).exclude(state=IncidentState.RESOLVED)
    return _resolve_all(unresolved, now, by, resolution)


def incident_acknowledge(
    *,
    incident_id: uuid.UUID,
    actor: Actor,
    reason: str = "",
    owner: str = "",
    expected_version: int | None = None,
) -> Incident:
    """A person takes it: they become its owner (`owner`: their user name, when the actor's name says more than that).

    Raises NotFound, WrongState when it is resolved, Stale when somebody acted since `expected_version`.
    """
    with transaction.atomic():
        incident = _unresolved(incident_id, expected_version)
        now = clock.now()
        before = _described(incident)
        incident.state = IncidentState.ACKNOWLEDGED
        incident.owner = (owner or actor.name)[:150]
        incident.acknowledged_at = incident.acknowledged_at or now
        _acted(incident, "state", "owner", "acknowledged_at")
        audit.record(actor, "incident.acknowledge", incident, reason=reason, before=before, after=_described(incident))
        events.write([_event("incident.acknowledged", incident, now, owner=incident.owner)])
        return incident


def incident_assign(
    *,
    incident_id: uuid.UUID,
    owner: str,
    actor: Actor,
    reason: str = "",
    expected_version: int | None = None,
) -> Incident:
    """Gives it to a person (a user name), who owns it from now on; it counts as acknowledged.

    Raises InvalidSubmission for somebody who may not work on incidents, and what `incident_acknowledge` raises.
    """
    if owner not in may_own():
        said = _("{name} is not an active user with the role operator: choose one of those.").format(name=owner)
        if not owner:
            said = _("Choose an active user with the role operator.")
        raise InvalidSubmission({"owner": [said]})
    with transaction.atomic():
        incident = _unresolved(incident_id, expected_version)
        now = clock.now()
        before = _described(incident)
        incident.state = IncidentState.ACKNOWLEDGED
        incident.owner = owner
        incident.acknowledged_at = incident.acknowledged_at or now
        _acted(incident, "state", "owner", "acknowledged_at")
        _note(incident, NoteKind.OWNER, actor, f"Given to {owner}. {reason}".strip(), now)
        audit.record(actor, "incident.assign", incident, reason=reason, before=before, after=_described(incident))
        events.write([_event("incident.assigned", incident, now, owner=owner)])
        return incident


def incident_snooze(
    *,
    incident_id: uuid.UUID,
    until: datetime | None,
    actor: Actor,
    reason: str,
    expected_version: int | None = None,
) -> Incident:
    """Puts it off until an instant; None ends that now. It needs nobody meanwhile, and comes back by itself.

    Raises InvalidSubmission without a reason, and for an end that is past or more than 30 days away; NotFound,
    WrongState when it is resolved, Stale.
    """
    audit.require_reason(reason)
    now = clock.now()
    if until is not None and not now < until <= now + SNOOZED_MOST:
        said = _("A time from now on, at most {count} days away.").format(count=SNOOZED_MOST.days)
        raise InvalidSubmission({"until": [said]})
    with transaction.atomic():
        incident = _unresolved(incident_id, expected_version)
        before = _described(incident)
        incident.snoozed_until = until
        _acted(incident, "snoozed_until")
        said = f"Until {until:%Y-%m-%d %H:%M} UTC. {reason}" if until is not None else f"No longer. {reason}"
        _note(incident, NoteKind.SNOOZE, actor, said, now)
        audit.record(actor, "incident.snooze", incident, reason=reason, before=before, after=_described(incident))
        ends = until.isoformat() if until is not None else None
        events.write([_event("incident.snoozed", incident, now, until=ends, reason=reason)])
        return incident


def incident_comment(*, incident_id: uuid.UUID, text: str, actor: Actor) -> IncidentNote:
    """Writes something to an incident, resolved or not. Raises InvalidSubmission without a text, NotFound."""
    text = text.strip()
    if not text or len(text) > COMMENT_MOST:
        said = _("Write something, at most {count} characters.").format(count=number(COMMENT_MOST))
        raise InvalidSubmission({"text": [said]})
    with transaction.atomic():
        incident = _locked(incident_id)
        note = _note(incident, NoteKind.COMMENT, actor, text, clock.now())
        audit.record(actor, "incident.comment", incident, after={"text": text})
        return note


def incident_resolve(
    *,
    incident_id: uuid.UUID,
    actor: Actor,
    reason: str,
    found: str = "",
    expected_version: int | None = None,
) -> Incident:
    """A person closes it. `found`: what it was; `reason`: what was done about it.

    Raises InvalidSubmission without a reason, NotFound, WrongState when it is resolved, Stale.
    """
    audit.require_reason(reason)
    found = found.strip()
    with transaction.atomic():
        incident = _unresolved(incident_id, expected_version)
        before = _described(incident)
        now = clock.now()
        incident.version += 1
        said = f"{found} {DONE_MARK} {reason}" if found else reason
        closed = _resolve(incident, now, actor.name, said, more={"by": actor.name})
        after = {**_described(incident), **({"found": found} if found else {})}
        audit.record(actor, "incident.resolve", incident, reason=reason, before=before, after=after)
        events.write(closed)
        return incident


def may_own() -> list[str]:
    """The names of the active users whose role works on incidents, in order."""
    roles = [role.value for role in ORDER if "incidents:write" in SCOPES[role]]
    found = User.objects.filter(is_active=True).filter(Q(groups__name__in=roles) | Q(is_superuser=True))
    return sorted(set(found.values_list("username", flat=True)))


def _locked(incident_id: uuid.UUID) -> Incident:
    return existing(Incident.objects.select_for_update(of=("self",)), incident_id)


def _unresolved(incident_id: uuid.UUID, expected_version: int | None) -> Incident:
    """Locked, for an action of a person."""
    incident = _locked(incident_id)
    if incident.state == IncidentState.RESOLVED:
        said = _("{incident} is resolved already.").format(incident=incident)
        raise WrongState(said, state=incident.state, allowed=("comments",))
    if expected_version is not None and incident.version != expected_version:
        said = _("Somebody acted on {incident} since you looked at it: look again.").format(incident=incident)
        raise Stale(said, version=incident.version)
    return incident


def _acted(incident: Incident, *fields: str) -> None:
    incident.version += 1
    incident.save(update_fields=[*fields, "version"])


def _described(incident: Incident) -> dict[str, object]:
    until = incident.snoozed_until
    more = {"snoozed_until": until.isoformat()} if until is not None else {}
    return {"state": str(incident.state), "owner": incident.owner, **more}


def _note(incident: Incident, kind: NoteKind, actor: Actor, text: str, now: datetime) -> IncidentNote:
    return IncidentNote.objects.create(incident=incident, kind=kind, author=actor.name[:150], text=text, at=now)


def _resolve(
    incident: Incident, now: datetime, by: str, resolution: str, *, more: dict[str, str] | None = None
) -> list[Event]:
    """Closes it with all that hangs on it and is over with it; the rest stands for itself from now on.

    Returns the events to write.
    """
    _close(incident, now, by, resolution)
    written = [_event("incident.resolved", incident, now, **(more or {}))]
    parts = Incident.objects.filter(part_of=incident).exclude(state=IncidentState.RESOLVED).select_related("pair")
    heir: Incident | None = None
    for part in parts.order_by("number").select_for_update(of=("self",)):
        if stays_open(part):
            part.part_of, heir = heir, heir or part
            part.save(update_fields=["part_of"])
        else:
            _close(part, now, by, f"Closed with {incident}. {resolution}")
            written.append(_event("incident.resolved", part, now, part_of=incident.public_id, **(more or {})))
    return written


def _close(incident: Incident, now: datetime, by: str, resolution: str) -> None:
    incident.state = IncidentState.RESOLVED
    incident.resolved_at = now
    incident.resolved_by = by[:150]
    incident.resolution = resolution
    incident.snoozed_until = None
    incident.save(update_fields=["state", "resolved_at", "resolved_by", "resolution", "snoozed_until", "version"])


def _event(kind: str, incident: Incident, now: datetime, **more: object) -> Event:
    data = {"incident": incident.public_id, "number": incident.number, "cause": incident.cause, **more}
    if incident.trigger_id is not None:
        data["trigger"] = public_id("trg", incident.trigger_id)
    if incident.agreement is not None:
        data["agreement"] = incident.agreement.tpa_id
    return events.event(kind, now, pair=incident.pair_id, data=data)
