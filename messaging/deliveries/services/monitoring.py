"""What is watched: suspended triggers, by their resource monitors, and what nobody would notice by itself.

Monitors (spec 4; protocols 4.5) are asked at their interval; the trigger resumes when they say so.

Claim, talk, record like everything that leaves the database: the question is asked with no transaction open. A monitor
that several triggers share is asked once for all of them, and its yes resumes them all.
"""

from __future__ import annotations

import json
import logging
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta

import urllib3
from django.db import connection, transaction
from django.db.models import Q, QuerySet

from messaging.applications import MONITORS
from messaging.choices import Consult, IncidentState, TriggerState
from messaging.deliveries.services import handing_over, triggering
from messaging.journal import events, incidents
from messaging.models import Event, Incident, Trigger
from messaging.notifications.services.webhooks import sign
from messaging.transports.base import printable
from messaging.transports.bounded import bounded_pool, time_limit
from partners.secrets import SecretUnreadable, decrypt
from rmhub import clock
from rmhub.postgresql.base import give_back

log = logging.getLogger(__name__)

TIMEOUT = 10  # seconds, for all of one question
ASKERS = 4
MAX_ANSWER = 1024
# Nobody else asks while the answer is awaited; a worker that dies meanwhile delays the next question by so much.
_LEASE = timedelta(seconds=60)
# What a restart does not fix: somebody wanted it so, or has to look at the document first.
_STAYS_SUSPENDED = (triggering.BY_USER, "service_error")

_pool = bounded_pool(num_pools=50, maxsize=2)


@dataclass(frozen=True, slots=True)
class Monitor:
    """What is asked: kind and the URL, or the name of a callable. Triggers with equal ones share it."""

    kind: str
    target: str


@dataclass(frozen=True, slots=True)
class Question:
    """One monitor and the triggers whose time has come. What an HTTP monitor is asked is signed for the first one."""

    monitor: Monitor
    triggers: tuple[Trigger, ...]
    next_look: datetime  # what stands at the triggers while it is asked


@dataclass(frozen=True, slots=True)
class Finding:
    """What a monitor said; anything but a clear yes is a no (W31). `detail` says what came instead."""

    available: bool
    detail: str = ""


def check_due() -> int:
    """Asks each monitor whose time has come, and resumes the triggers that wait for it. Returns how many resumed."""
    questions = _claim()
    if not questions:
        return 0
    resumed = 0
    give_back()  # before anybody asks, not while
    with ThreadPoolExecutor(ASKERS, thread_name_prefix="monitor") as pool:
        # Callables use this thread's database connection; HTTP monitors need none.
        asked = {q.monitor: pool.submit(_ask_http, q) for q in questions if q.monitor.kind == Consult.HTTP}
        for question in questions:
            give_back()
            waiting = asked.get(question.monitor)
            finding = waiting.result() if waiting is not None else _ask_callable(question.monitor)
            resumed += _record(question, finding)
    return resumed


def resume_after_restart() -> int:
    """Resumes what was suspended for trouble and has no monitor: a suspension is temporary, and the hub starts anew.

    Protocols 4.5, W32. A trigger that a person suspended, or that was suspended for a document that its service failed
    on, stays as it is. Returns how many resumed.
    """
    waiting = Trigger.objects.filter(state=TriggerState.SUSPENDED, monitor=Consult.NONE).exclude(
        cause__in=_STAYS_SUSPENDED
    )
    return _resume(waiting, clock.now(), "The hub was restarted.")


def _claim() -> list[Question]:
    now = clock.now()
    next_look = now + _LEASE
    with transaction.atomic(durable=True):
        due = Trigger.objects.filter(state=TriggerState.SUSPENDED, monitor_due_at__lte=now).exclude(
            monitor=Consult.NONE
        )
        claimed = list(due.order_by("pk").select_for_update(no_key=True, skip_locked=True, of=("self",)))
        Trigger.objects.filter(pk__in=[trigger.pk for trigger in claimed]).update(monitor_due_at=next_look)
    by_monitor: dict[Monitor, list[Trigger]] = {}
    for trigger in claimed:
        by_monitor.setdefault(_monitor(trigger), []).append(trigger)
    return [Question(monitor, tuple(triggers), next_look) for monitor, triggers in by_monitor.items()]


def _monitor(trigger: Trigger) -> Monitor:
    return Monitor(
        trigger.monitor, trigger.monitor_url if trigger.monitor == Consult.HTTP else trigger.monitor_callable
    )


def _waiting_for(monitor: Monitor) -> QuerySet[Trigger]:
    """Suspended triggers that this monitor may resume; a person's suspension has no time for the next question."""
    same = Q(monitor_url=monitor.target) if monitor.kind == Consult.HTTP else Q(monitor_callable=monitor.target)
    return Trigger.objects.filter(
        same, monitor=monitor.kind, state=TriggerState.SUSPENDED, monitor_due_at__isnull=False
    )


def _ask_http(question: Question) -> Finding:
    """Signed GET; the answer is a 200 with `true` or {"isAvailable": true}. Without the database; never raises."""
    headers = {"Accept": "application/json", "User-Agent": "rmhub", **_signature(question.triggers[0])}
    try:
        with time_limit(TIMEOUT):
            answer = _pool.request(
                "GET",
                question.monitor.target,
                headers=headers,
                redirect=False,
                timeout=TIMEOUT,
                preload_content=False,
            )
            try:
                body = answer.read(MAX_ANSWER + 1, decode_content=False)
            finally:
                # What is longer is no answer to this question, so its connection is not worth keeping.
                answer.close()
                answer.release_conn()
    except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
        return Finding(False, printable(str(error))[:255])
    if answer.status != 200:
        return Finding(False, f"The monitor answered HTTP {answer.status}.")
    return _read(body)


def _signature(trigger: Trigger) -> dict[str, str]:
    """Headers of Standard Webhooks over the empty body; none when the secret cannot be decrypted."""
    try:
        secret = decrypt(bytes(trigger.secret_encrypted))
    except SecretUnreadable:
        return {}
    key, at = f"monitor_{uuid.uuid4().hex}", str(int(clock.now().timestamp()))
    return {"webhook-id": key, "webhook-timestamp": at, "webhook-signature": sign(secret, key, at, b"")}


def _read(body: bytes) -> Finding:
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        said = None
    if isinstance(said, dict):
        said = said.get("isAvailable")
    return _understand(said, repr(body[:80]))


def _ask_callable(monitor: Monitor) -> Finding:
    """Calls it in this thread, outside of any transaction. Never raises."""
    function = MONITORS.get(monitor.target)
    if function is None:
        return Finding(False, f"No installed application registers a monitor {monitor.target!r}.")
    try:
        said = function()
    except Exception as error:
        log.exception("monitor failed", extra={"action": "monitor_failed", "monitor": monitor.target})
        return Finding(False, printable(f"{type(error).__name__}: {error}")[:255])
    return _understand(said, repr(said)[:80])


def _understand(said: object, shown: str) -> Finding:
    """spec 4's `isAvailable`: true or "true"; false, "false" and whatever is none of these are a no."""
    if said is True or (isinstance(said, str) and said.strip().lower() == "true"):
        return Finding(True)
    if said is False or (isinstance(said, str) and said.strip().lower() == "false"):
        return Finding(False, "The monitor says that the resources are not available.")
    return Finding(False, f"The monitor answered neither true nor false but {printable(shown)}.")


def _record(question: Question, finding: Finding) -> int:
    now = clock.now()
    monitor = question.monitor
    if finding.available:
        return _resume(_waiting_for(monitor), now, "Its resource monitor says that the resources are there again.")
    log.warning(
        "monitor says no",
        extra={"action": "monitor_says_no", "monitor": monitor.target, "detail": finding.detail},
    )
    with transaction.atomic(durable=True):
        asked = _waiting_for(monitor).filter(
            pk__in=[trigger.pk for trigger in question.triggers], monitor_due_at=question.next_look
        )
        for trigger in asked.order_by("pk").select_for_update(no_key=True, of=("self",)):
            trigger.monitor_due_at = now + timedelta(seconds=trigger.monitor_interval)
            trigger.save(update_fields=["monitor_due_at"])
    return 0


def _resume(waiting: QuerySet[Trigger], now: datetime, reason: str) -> int:
    written: list[Event] = []
    with transaction.atomic(durable=True):
        triggers = list(waiting.order_by("pk").select_for_update(no_key=True, of=("self",)))
        for trigger in triggers:
            written += triggering.resume_locked(trigger, now, "system", reason)
        events.write(written)
    return len(triggers)


# --- What nobody would notice by itself: triggers that are silent, documents begun and never finished, joins out of
# time.
#
# Part of housekeeping; safe at any time and in several workers at once. A finding opens one incident a trigger, and
# the incident resolves itself when the finding is gone. One that a person resolves opens again only for something
# newer.

SILENT = "trigger_silent"
TOO_OLD = "started_too_old"
_GONE = {
    SILENT: "Documents are taken up again, or the trigger is no longer watched for silence.",
    TOO_OLD: "No document that was begun is older than the history's time to live any more.",
}


@dataclass(frozen=True, slots=True)
class Unnoticed:
    """What is so with one trigger right now. `news`: more than what was so when the last incident was resolved."""

    trigger_id: uuid.UUID
    detail: str
    news: bool


def watch() -> str:
    """One round; returns what it did, as a line for the log."""
    now = clock.now()
    silent = _settle(SILENT, _silent(now), now)
    too_old = _settle(TOO_OLD, _started_too_old(now), now)
    joins = handing_over.expire_due()
    return f"silent triggers {silent}, begun too long ago {too_old}, joins out of time {joins}"


def _silent(now: datetime) -> list[Unnoticed]:
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
            Unnoticed(key, f"No document since {since:%Y-%m-%d %H:%M:%S} UTC; it says that {usual} is usual.", news)
            for key, since, usual, news in cursor.fetchall()
        ]


def _started_too_old(now: datetime) -> list[Unnoticed]:
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
            Unnoticed(key, f"{count} in all; the oldest was begun at {oldest:%Y-%m-%d %H:%M:%S} UTC.", news)
            for key, count, oldest, news in cursor.fetchall()
        ]


def _settle(cause: str, findings: list[Unnoticed], now: datetime) -> int:
    """Opens and resolves the incidents of one cause; returns how many triggers the findings are about."""
    unresolved = Incident.objects.filter(cause=cause, trigger__isnull=False).exclude(state=IncidentState.RESOLVED)
    known = set(unresolved.values_list("trigger_id", flat=True))
    found = {finding.trigger_id for finding in findings}
    for finding in findings:
        if finding.news and finding.trigger_id not in known:
            _open_incident(cause, finding, now)
    for trigger_id in known - found:
        _resolve_incident(cause, trigger_id, now)
    return len(findings)


def _open_incident(cause: str, finding: Unnoticed, now: datetime) -> None:
    with transaction.atomic():
        trigger = _locked_now(finding.trigger_id)
        unresolved = Incident.objects.filter(cause=cause, trigger=trigger).exclude(state=IncidentState.RESOLVED)
        if trigger is None or unresolved.exists():  # another worker's round was faster
            return
        _, opened = incidents.incident_open(pair=None, trigger=trigger, cause=cause, now=now, detail=finding.detail)
        events.write(opened)


def _resolve_incident(cause: str, trigger_id: uuid.UUID, now: datetime) -> None:
    with transaction.atomic():
        trigger = _locked_now(trigger_id)
        if trigger is None:
            return
        resolved: list[Event] = incidents.incidents_resolve_for_trigger(
            trigger=trigger, now=now, by="system", resolution=_GONE[cause], causes=(cause,)
        )
        events.write(resolved)


def _locked_now(trigger_id: uuid.UUID) -> Trigger | None:
    return Trigger.objects.select_for_update(no_key=True, of=("self",)).filter(pk=trigger_id).first()
