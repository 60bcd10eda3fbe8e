"""What nobody would notice by itself: triggers that are silent, documents begun and never finished, joins out of time.

Part of housekeeping; safe at any time and in several workers at once. A finding opens one incident a trigger, and the
incident resolves itself when the finding is gone. One that a person resolves opens again only for something newer.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime

from django.db import connection, transaction

from messaging.choices import IncidentState
from messaging.deliveries.services import joining
from messaging.journal import events, incidents
from messaging.models import Event, Incident, Trigger
from rmhub import clock

SILENT = "trigger_silent"
TOO_OLD = "started_too_old"
_GONE = {
    SILENT: "Documents are taken up again, or the trigger is no longer watched for silence.",
    TOO_OLD: "No document that was begun is older than the history's time to live any more.",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """What is so with one trigger right now. `news`: more than what was so when the last incident was resolved."""

    trigger_id: uuid.UUID
    detail: str
    news: bool


def watch() -> str:
    """One round; returns what it did, as a line for the log."""
    now = clock.now()
    silent = _settle(SILENT, _silent(now), now)
    too_old = _settle(TOO_OLD, _started_too_old(now), now)
    joins = joining.expire_due()
    return f"silent triggers {silent}, begun too long ago {too_old}, joins out of time {joins}"


def _silent(now: datetime) -> list[Finding]:
    """Active triggers that took no document up for longer than they say, since they last became active.

    A trigger in another state is silent because somebody or something made it so, and that has its own incident.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT s.id, s.since, s.usual, greatest(s.since, s.resolved_at) + s.usual <= %s
            FROM (
                SELECT t.id,
                       greatest(t.last_arrival_at, t.last_success_at, coalesce(t.changed_at, t.created_at)) AS since,
                       t.silent_after * interval '1 second' AS usual,
                       (SELECT max(i.resolved_at) FROM messaging_incident i
                        WHERE i.trigger_id = t.id AND i.cause = %s) AS resolved_at
                FROM messaging_trigger t WHERE t.silent_after > 0 AND t.state = 'active'
            ) s
            WHERE s.since + s.usual <= %s
            """,
            [now, SILENT, now],
        )
        return [
            Finding(key, f"No document since {since:%Y-%m-%d %H:%M:%S} UTC; it says that {usual} is usual.", news)
            for key, since, usual, news in cursor.fetchall()
        ]


def _started_too_old(now: datetime) -> list[Finding]:
    """Triggers with documents that were begun longer ago than their history's time to live, and are not in work (W17).

    The rows are kept: without them the next copy would be NEW (protocols 4.3, I5).
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT o.trigger_id, count(*), min(o.started_at), coalesce(bool_or(o.old_at > o.resolved_at), true)
            FROM (
                SELECT s.trigger_id, s.started_at, s.started_at + t.history_ttl * interval '1 second' AS old_at,
                       (SELECT max(i.resolved_at) FROM messaging_incident i
                        WHERE i.trigger_id = t.id AND i.cause = %s) AS resolved_at
                FROM messaging_documentstarted s
                JOIN messaging_trigger t ON t.id = s.trigger_id
                LEFT JOIN messaging_delivery d ON d.id = s.delivery_id
                WHERE s.started_at <= %s AND NOT coalesce(d.state = 'running' AND d.due_at > %s, false)
            ) o
            WHERE o.old_at <= %s
            GROUP BY o.trigger_id
            """,
            [TOO_OLD, now, now, now],
        )
        return [
            Finding(key, f"{count} in all; the oldest was begun at {oldest:%Y-%m-%d %H:%M:%S} UTC.", news)
            for key, count, oldest, news in cursor.fetchall()
        ]


def _settle(cause: str, findings: list[Finding], now: datetime) -> int:
    """Opens and resolves the incidents of one cause; returns how many triggers the findings are about."""
    unresolved = Incident.objects.filter(cause=cause, trigger__isnull=False).exclude(state=IncidentState.RESOLVED)
    known = set(unresolved.values_list("trigger_id", flat=True))
    found = {finding.trigger_id for finding in findings}
    for finding in findings:
        if finding.news and finding.trigger_id not in known:
            _open(cause, finding, now)
    for trigger_id in known - found:
        _resolve(cause, trigger_id, now)
    return len(findings)


def _open(cause: str, finding: Finding, now: datetime) -> None:
    with transaction.atomic():
        trigger = _locked(finding.trigger_id)
        unresolved = Incident.objects.filter(cause=cause, trigger=trigger).exclude(state=IncidentState.RESOLVED)
        if trigger is None or unresolved.exists():  # another worker's round was faster
            return
        _, opened = incidents.incident_open(pair=None, trigger=trigger, cause=cause, now=now, detail=finding.detail)
        events.write(opened)


def _resolve(cause: str, trigger_id: uuid.UUID, now: datetime) -> None:
    with transaction.atomic():
        trigger = _locked(trigger_id)
        if trigger is None:
            return
        resolved: list[Event] = incidents.incidents_resolve_for_trigger(
            trigger=trigger, now=now, by="system", resolution=_GONE[cause], causes=(cause,)
        )
        events.write(resolved)


def _locked(trigger_id: uuid.UUID) -> Trigger | None:
    return Trigger.objects.select_for_update(no_key=True, of=("self",)).filter(pk=trigger_id).first()
