"""The three kinds of work of a worker, each in its three steps, and this process's engine for each.

Jobs that are claimed and wait for a thread: their leases are renewed, and a worker that stops gives them back.

Whoever holds a row at that moment (an acknowledgement, a person) is passed over: such a job is looked at again.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection, transaction

from messaging import dispatch, servers, tracing, transports
from messaging.choices import Outcome
from messaging.claim import Job, JobKind
from messaging.deliveries.services import claiming, talking
from messaging.deliveries.services import job as deliveries
from messaging.engine import circuits, handover, leases
from messaging.engine import memory as hub_memory
from messaging.engine.claiming import claim_due
from messaging.engine.loop import Ahead, Crowded, Engine, Work
from messaging.engine.missing import missing
from messaging.engine.recording import record
from messaging.models import Delivery, Message, Pair, Transmission
from messaging.pollers.services import collecting, pollers
from messaging.pollers.services.collecting import Found
from messaging.read_ahead import Reader
from messaging.transports import Receipt
from rmhub import clock
from rmhub.ids import public_id

log = logging.getLogger(__name__)

# Sets the timers of what is still claimed by these transmissions; `due`: one time for each.
_PAIRS = """
WITH held AS (
    SELECT p.id, u.due FROM unnest(%s::uuid[], %s::timestamptz[]) AS u(id, due)
    JOIN messaging_transmission t ON t.id = u.id JOIN messaging_pair p ON p.id = t.pair_id
    WHERE p.transmission_id = u.id AND p.flow = 'sending' ORDER BY p.id FOR UPDATE OF p SKIP LOCKED
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
    ran out: the same octets, at once, and no retry is used.
    """
    if not jobs:
        return
    now = clock.now()
    with transaction.atomic(durable=True):
        once = [job for job in jobs if job.kind is JobKind.UNRELIABLE]
        uncounted = _MESSAGES.format(more=", attempts_before = m.attempts_before + 1")
        _set_timers([job for job in jobs if job not in once], lambda job: now, uncounted)
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


def _claim_sends(limit: int, worker: int, crowded: Crowded[Job]) -> list[Job]:
    waiting_pairs = {job.pair_id for job in crowded.jobs if job.pair_id}
    passed_over = waiting_pairs.union(servers.pairs_at(crowded.bulkheads))
    hub_memory.look()
    return claim_due(limit=limit, worker=worker, passed_over=passed_over, reader=_reader)


def talk(job: Job) -> Receipt:
    """The second step: bytes on the wire, with no transaction open (invariant 6)."""
    if connection.in_atomic_block:
        raise RuntimeError("a transmission inside a transaction would hold its locks for as long as the partner likes")
    with tracing.sending(job) as span:
        receipt = circuits.admit(job) or transports.send(job.transport, job.parcel)
        if span is not None:
            tracing.sent(span, job, receipt)
        log.log(
            logging.DEBUG if receipt.ok else logging.WARNING,
            "transmitted" if receipt.ok else "transmission failed",
            extra={
                "action": "transmitted" if receipt.ok else "transmission_failed",
                "kind": job.kind,
                "address": job.parcel.address,
                "status": receipt.status,
                "cause": receipt.cause,
            },
        )
    return receipt


_PREFIXES = {"message": Message.PREFIX, "pair": Pair.PREFIX, "delivery": Delivery.PREFIX, "poller": "poll"}


def _named(**keys: uuid.UUID | None) -> dict[str, str]:
    """Public ids of what there is, as lines in the log have them."""
    return {f"{name}_id": public_id(_PREFIXES[name], key) for name, key in keys.items() if key is not None}


def _record_sends(outcomes: list[tuple[Job, Receipt]], more: bool) -> list[Job | None]:
    record(outcomes)
    return [None] * len(outcomes)


SENDS = Work(
    task=dispatch.SEND,
    claim=_claim_sends,
    talk=talk,
    record=_record_sends,
    release_dead=lambda now: leases.release_dead(now),
    keeps=lambda job: not renew([job]),
    about=lambda job: _named(message=job.message_id or job.about_id, pair=job.pair_id),
    ahead=Ahead(
        bulkhead=circuits.server_of_job,
        refuse=circuits.refuse,
        reached=circuits.reached,
        renew=renew,
        give_back=give_back,
        key=lambda job: job.transmission_id,
        refresh=circuits.refresh,
        missing=missing,
        # What may be sent once is not sent again; what failed moves timers and circuits before the next is begun.
        urgent=lambda job, receipt: not receipt.ok or job.kind not in (JobKind.PAIR, JobKind.SIGNAL),
    ),
)


def _claim_deliveries(limit: int, worker: int, crowded: Crowded[deliveries.Job]) -> list[deliveries.Job]:
    hub_memory.look()
    return claiming.claim_due(limit=limit, worker=worker, share=claiming.share())


DELIVERIES = Work(
    task=dispatch.DELIVER,
    claim=_claim_deliveries,
    talk=talking.talk,
    record=lambda outcomes, more: talking.record(outcomes, more=more),
    release_dead=claiming.release_dead,
    keeps=claiming.keeps,
    about=lambda job: _named(message=job.delivery.message_id, delivery=job.delivery.pk),
)


def _claim_pollers(limit: int, worker: int, crowded: Crowded[pollers.Job]) -> list[pollers.Job]:
    hub_memory.look()
    return pollers.claim_due(limit)


POLLERS = Work(
    task=dispatch.POLLERS,
    claim=_claim_pollers,
    talk=pollers.look,
    record=lambda outcomes, more: pollers.record(outcomes),
    release_dead=lambda now: 0,  # a look's lease is short, and nobody waits for it
    keeps=lambda job: True,  # two looks at once do no harm
    about=lambda job: _named(poller=job.poller_id),
)

# What this process reads of the store for its claims.
_reader = Reader(done=lambda: dispatch.wake(dispatch.SEND))
# The presence of this process, which its engines share.
presence = leases.WorkerLock()

_sender: Engine[Job, Receipt] | None = None
_deliverer: Engine[deliveries.Job, deliveries.Outcome] | None = None
_collector: Engine[pollers.Job, Found] | None = None
_mailbox: handover.Mailbox | None = None
_engine_lock = threading.Lock()


def sender() -> Engine[Job, Receipt]:
    """This process's engine for sends, made at first use (after any fork)."""
    global _sender
    with _engine_lock:
        if _sender is None:
            _sender = Engine(
                SENDS, threads=settings.RMHUB_SEND_THREADS, batch=settings.RMHUB_SEND_BATCH, worker=presence
            )
        return _sender


def deliverer() -> Engine[deliveries.Job, deliveries.Outcome]:
    """This process's engine for deliveries, made at first use (after any fork)."""
    global _deliverer
    with _engine_lock:
        if _deliverer is None:
            threads = settings.RMHUB_DELIVER_THREADS
            _deliverer = Engine(DELIVERIES, threads=threads, batch=threads, worker=presence)
        return _deliverer


def collector() -> Engine[pollers.Job, Found]:
    """This process's engine for looks into mailboxes and folders, made at first use (after any fork)."""
    global _collector
    with _engine_lock:
        if _collector is None:
            threads = settings.RMHUB_POLLER_THREADS
            _collector = Engine(POLLERS, threads=threads, batch=threads, worker=presence)
        return _collector


def receive() -> None:
    """Takes what is handed over to this process from now on."""
    global _mailbox
    _mailbox = handover.Mailbox(presence.number, state=_sender_state, take=sender().take)
    _mailbox.start()


def _sender_state() -> tuple[int, frozenset[str]] | None:
    try:
        hub_memory.look()  # says which hub this is
        circuits.refresh()
    except (DatabaseError, InterfaceError, OSError):
        return None  # nothing is taken before the memory was looked at
    state = sender().state()
    return None if state is None else (state[0], state[1] | circuits.left_alone())


def stop() -> None:
    """Starts nothing new in this process's engines."""
    global _mailbox
    if _mailbox is not None:
        _mailbox.stop()
        _mailbox = None
    collecting.ending.set()
    for made in (sender(), deliverer(), collector()):
        made.stop()


def close() -> None:
    """Closes this process's engines: nothing new is started, and what is under way is finished."""
    stop()
    for made in (sender(), deliverer(), collector()):
        made.close()
    _reader.close()
    presence.release()
    collecting.ending.clear()
