"""Looks into mailboxes and folders when their time has come: claim, look, record (spec 1, 2.5.2 and 2.5.3).

A look is claimed with a lease, so that one worker at a time is at a poller; a lease that ran out is taken over. Two
looks at once would do no harm (`collecting`), they would only do the work twice.
"""

from __future__ import annotations

import logging
import time
import uuid
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.db import connection, transaction
from django.db.models import Q

from messaging.journal import events, incidents
from messaging.models import Event, PollerState
from messaging.pollers.services import collecting_mail
from messaging.pollers.services.collecting import LOOK_SECONDS, Collector, Found, Look
from messaging.transports.base import Login, printable
from partners import secrets
from partners.choices import CredentialKind, PollerKind
from partners.models import Poller
from partners.secrets import SecretUnreadable
from partners.terms import Principal
from rmhub import clock
from rmhub.postgresql.base import give_back

log = logging.getLogger(__name__)

LEASE = timedelta(seconds=180)  # longer than a look and its last item
FAILURES = 5  # in a row: then a person should know
LONGEST_BACK_OFF = timedelta(minutes=15)
INCIDENT = "poller_failing"
_LOCK = 0x524D4850


def _folder(look: Look) -> Found:
    # Loaded by whoever needs it: SSH costs 24 MB and a third of a second.
    from messaging.pollers.services import collecting_files

    return collecting_files.collect(look)


COLLECTORS: dict[str, Collector] = {PollerKind.SFTP: _folder, PollerKind.IMAP: collecting_mail.collect}


@dataclass(frozen=True, slots=True)
class Job:
    """One look that is claimed. `leased_until` names the claim; `due_at`: what stood there, to notice a "look now"."""

    poller_id: uuid.UUID
    leased_until: datetime
    due_at: datetime | None
    look: Look | None  # None: what is stored for the poller cannot be read

    def __str__(self) -> str:
        return str(self.poller_id)


def claim_due(limit: int) -> list[Job]:
    """Claims up to `limit` pollers whose time has come, and commits."""
    _ensure_states()
    now = clock.now()
    with transaction.atomic(durable=True):
        due = PollerState.objects.filter(
            Q(due_at__isnull=True) | Q(due_at__lte=now),
            Q(leased_until__isnull=True) | Q(leased_until__lte=now),
            poller__enabled=True,
        )
        rows = list(
            due.select_related("poller__endpoint", "poller__partner")
            .order_by("due_at", "pk")
            .select_for_update(skip_locked=True, of=("self",))[:limit]
        )
        for row in rows:
            row.leased_until = now + LEASE
            row.last_looked_at = now
        PollerState.objects.bulk_update(rows, ["leased_until", "last_looked_at"])
    return [Job(row.pk, row.leased_until, row.due_at, _look_of(row)) for row in rows if row.leased_until]


def _ensure_states() -> None:
    missing = Poller.objects.filter(enabled=True, progress__isnull=True).values_list("pk", flat=True)
    PollerState.objects.bulk_create([PollerState(poller_id=pk) for pk in missing], ignore_conflicts=True)


def _look_of(row: PollerState) -> Look | None:
    poller = row.poller
    try:
        login = _login(poller)
    except SecretUnreadable:
        log.exception("secret unreadable", extra={"action": "secret_unreadable", "poller": poller.name})
        return None
    partner = poller.partner
    return Look(
        poller_id=poller.pk,
        name=poller.name,
        kind=poller.kind,
        url=poller.url,
        login=login,
        host_key=poller.host_key,
        trusted_checker=poller.trusted_checker,
        partner=Principal(partner.pk, partner.name, credential_id=poller.pk) if partner else None,
        position=row.position,
        connect_timeout=poller.endpoint.connect_timeout,
        read_timeout=poller.endpoint.read_timeout,
        until=0.0,
    )


def _login(poller: Poller) -> Login | None:
    if not poller.username:
        return None
    secret = secrets.decrypt(poller.secret_encrypted) if poller.secret_encrypted else ""
    return Login(poller.username, secret, is_key=poller.secret_kind == CredentialKind.SSH_KEY)


def look(job: Job) -> Found:
    """The second step: network, and one commit for each item; no transaction is open around it. Never raises."""
    if connection.in_atomic_block:
        raise RuntimeError("a look inside a transaction would hold its locks for as long as the server likes")
    if job.look is None:
        return Found(cause="encryption_key_missing", detail="The stored secret cannot be decrypted.", permanent=True)
    try:
        return COLLECTORS[job.look.kind](replace(job.look, until=time.monotonic() + LOOK_SECONDS))
    except Exception as error:
        log.exception("look failed", extra={"action": "look_failed", "poller": job.look.name})
        return Found(cause="internal_error", detail=type(error).__name__)
    finally:
        give_back()


def record(outcomes: list[tuple[Job, Found]]) -> list[Job | None]:
    """The third step, committed. What a look found whose lease was taken over is dropped: the other one tells."""
    now = clock.now()
    written: list[Event] = []
    with transaction.atomic(durable=True):
        rows = {
            row.pk: row
            for row in PollerState.objects.filter(pk__in=[job.poller_id for job, _ in outcomes])
            .select_related("poller")
            .order_by("pk")
            .select_for_update(of=("self",))
        }
        serious: list[str] = []
        fixed = False
        for job, found in outcomes:
            row = rows.get(job.poller_id)
            if row is None or row.leased_until != job.leased_until:
                log.warning("lease lost", extra={"action": "lease_lost", "poller": str(job.poller_id)})
                continue
            fixed = fixed or (not found.cause and row.failures > 0)
            if _apply(row, job, found, now):
                serious.append(f"{row.poller.name}: {row.cause}, {row.detail}")
            row.save()
        if serious or fixed:
            written = _tell(serious, now)
        events.write(written)
    return [None] * len(outcomes)


def _apply(row: PollerState, job: Job, found: Found, now: datetime) -> bool:
    """What a look came to, into its row. Returns whether a person should know."""
    interval = timedelta(seconds=row.poller.interval)
    row.leased_until = None
    row.taken += found.taken
    row.detail = printable(found.detail)[:500]
    row.cause = found.cause[:60]
    if found.position is not None:
        row.position = found.position[:120]
    if found.cause:
        row.failures += 1
        wait = max(interval, min(interval * 2 ** min(row.failures - 1, 10), LONGEST_BACK_OFF))
    else:
        row.failures = 0
        row.last_success_at = now
        wait = timedelta(0) if found.more else interval
    if row.due_at == job.due_at:  # else somebody asked for a look meanwhile
        row.due_at = now + wait
    return bool(found.cause) and (found.permanent or row.failures >= FAILURES)


def _tell(serious: list[str], now: datetime) -> list[Event]:
    """Opens the incident, or closes it when no poller fails any more. One for all: it names those that fail now."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
    if serious:
        _, opened = incidents.incident_open(pair=None, cause=INCIDENT, now=now, detail="; ".join(serious)[:2000])
        return opened
    return close_incident(now)


def close_incident(now: datetime, by: str = "system") -> list[Event]:
    """Resolves the incident unless some poller still fails; call inside a transaction. Returns the events to write."""
    if PollerState.objects.filter(poller__enabled=True, failures__gt=0).exists():
        return []
    return incidents.incidents_resolve_of_hub(
        cause=INCIDENT, now=now, by=by, resolution="Every mailbox and folder that is polled can be read."
    )
