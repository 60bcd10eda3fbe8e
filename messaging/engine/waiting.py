"""Jobs that are claimed and wait for a thread: their leases are renewed, and a worker that stops gives them back.

Whoever holds a row at that moment (an acknowledgement, a person) is passed over: such a job is looked at again.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from django.db import connection, transaction

from messaging.choices import Outcome
from messaging.engine.parcels import Job, JobKind
from messaging.models import Transmission
from rmhub import clock

# Sets the timers of what is still claimed by these transmissions; `due`: one time for each.
_PAIRS = """
WITH held AS (
    SELECT p.id, u.due FROM messaging_pair p JOIN unnest(%s::uuid[], %s::timestamptz[]) AS u(id, due)
    ON p.transmission_id = u.id WHERE p.flow = 'sending' ORDER BY p.id FOR UPDATE OF p SKIP LOCKED
)
UPDATE messaging_pair p SET due_at = held.due FROM held WHERE p.id = held.id
"""
_SIGNALS = """
WITH held AS (
    SELECT s.id, u.due FROM messaging_signal s JOIN messaging_transmission t ON t.signal_id = s.id
    JOIN unnest(%s::uuid[], %s::timestamptz[]) AS u(id, due) ON t.id = u.id
    WHERE s.state = 'sending' AND t.outcome = 'on_the_wire' ORDER BY s.id FOR UPDATE OF s SKIP LOCKED
)
UPDATE messaging_signal s SET due_at = held.due FROM held WHERE s.id = held.id
"""
_MESSAGES = """
WITH held AS (
    SELECT m.id, u.due FROM messaging_message m JOIN messaging_transmission t ON t.message_id = m.id
    JOIN unnest(%s::uuid[], %s::timestamptz[]) AS u(id, due) ON t.id = u.id
    WHERE m.state = 'sending' AND m.due_at IS NOT NULL AND t.outcome = 'on_the_wire'
    ORDER BY m.id FOR UPDATE OF m SKIP LOCKED
)
UPDATE messaging_message m SET due_at = held.due{more} FROM held WHERE m.id = held.id
"""


def renew(jobs: Sequence[Job]) -> set[uuid.UUID]:
    """Leases anew, from now on. Returns the transmissions that somebody else has taken over: they are not sent."""
    now = clock.now()
    with transaction.atomic(durable=True):
        _set_timers(jobs, lambda job: now + timedelta(seconds=lease_of(job)), _MESSAGES.format(more=""))
        wanted = [job.transmission_id for job in jobs]
        taken = Transmission.objects.filter(pk__in=wanted).exclude(outcome=Outcome.ON_THE_WIRE)
        return set(taken.values_list("pk", flat=True))


def give_back(jobs: Sequence[Job]) -> None:
    """The worker stops before these are begun: they are due at once, for whoever comes next.

    A message that may be sent only once is queued again, for it was not sent. All others take the way of a lease that
    ran out: the same octets, at once.
    """
    if not jobs:
        return
    now = clock.now()
    with transaction.atomic(durable=True):
        once = [job for job in jobs if job.kind is JobKind.UNRELIABLE]
        _set_timers([job for job in jobs if job not in once], lambda job: now, _MESSAGES.format(more=""))
        _set_timers(once, lambda job: now, _MESSAGES.format(more=", state = 'queued'"))
        begun = Transmission.objects.filter(pk__in=[job.transmission_id for job in jobs], outcome=Outcome.ON_THE_WIRE)
        begun.update(
            outcome=Outcome.FAILED,
            cause="not_begun",
            detail="The hub's worker stopped before this attempt was begun.",
            finished_at=now,
        )


def lease_of(job: Job) -> float:
    """Seconds; outlasts every time limit of the transport."""
    return job.parcel.connect_timeout + job.parcel.read_timeout + 15


def _set_timers(jobs: Sequence[Job], due: Callable[[Job], datetime], messages: str) -> None:
    with connection.cursor() as cursor:
        for sql, kinds in (
            (_PAIRS, (JobKind.PAIR,)),
            (_SIGNALS, (JobKind.SIGNAL,)),
            (messages, tuple(kind for kind in JobKind if kind not in (JobKind.PAIR, JobKind.SIGNAL))),
        ):
            some = [job for job in jobs if job.kind in kinds]
            if some:
                cursor.execute(sql, [[job.transmission_id for job in some], [due(job) for job in some]])
