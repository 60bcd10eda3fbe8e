"""The three kinds of work of a worker, each in its three steps, and this process's engine for each."""

from __future__ import annotations

import logging
import threading

from django.conf import settings
from django.db import connection

from messaging import dispatch, servers, transports
from messaging.deliveries.services import claiming, talking
from messaging.deliveries.services import job as deliveries
from messaging.deliveries.services import recording as delivering_recording
from messaging.engine import circuits, leases, waiting
from messaging.engine import memory as epoch
from messaging.engine.claiming import Job, claim_due
from messaging.engine.loop import Ahead, Crowded, Engine, Work
from messaging.engine.recording import record
from messaging.pollers.services import collecting, pickups
from messaging.pollers.services.collecting import Found
from messaging.transports import Receipt

log = logging.getLogger(__name__)


def _claim_sends(limit: int, worker: int, crowded: Crowded[Job]) -> list[Job]:
    waiting_pairs = {job.pair_id for job in crowded.jobs if job.pair_id}
    passed_over = waiting_pairs.union(servers.pairs_at(crowded.lanes))
    epoch.look()
    return claim_due(limit=limit, worker=worker, passed_over=passed_over)


def talk(job: Job) -> Receipt:
    """The second step: bytes on the wire, with no transaction open (invariant 6)."""
    if connection.in_atomic_block:
        raise RuntimeError("a transmission inside a transaction would hold its locks for as long as the partner likes")
    receipt = circuits.admit(job) or transports.send(job.transport, job.parcel)
    log.log(
        logging.DEBUG if receipt.ok else logging.WARNING,
        "transmitted" if receipt.ok else "transmission failed",
        extra={
            "action": "transmitted" if receipt.ok else "transmission_failed",
            "kind": job.kind,
            "address": job.parcel.address,
            "status": receipt.status,
            "cause": receipt.cause,
            "message_id": job.message_id,
        },
    )
    return receipt


def _record_sends(outcomes: list[tuple[Job, Receipt]]) -> list[Job | None]:
    record(outcomes)
    return [None] * len(outcomes)


SENDS = Work(
    task=dispatch.SEND,
    claim=_claim_sends,
    talk=talk,
    record=_record_sends,
    release_dead=lambda now: leases.release_dead(now),
    keeps=lambda job: not waiting.renew([job]),
    ahead=Ahead(
        lane=circuits.server_of_job,
        refuse=circuits.refuse,
        reached=circuits.reached,
        renew=waiting.renew,
        give_back=waiting.give_back,
        key=lambda job: job.transmission_id,
        refresh=circuits.refresh,
    ),
)


def _claim_deliveries(limit: int, worker: int, crowded: Crowded[deliveries.Job]) -> list[deliveries.Job]:
    epoch.look()
    # One thread is always left for the other triggers.
    return claiming.claim_due(limit=limit, worker=worker, share=max(1, settings.RMHUB_DELIVER_THREADS - 1))


DELIVERIES = Work(
    task=dispatch.DELIVER,
    claim=_claim_deliveries,
    talk=talking.talk,
    record=delivering_recording.record,
    release_dead=claiming.release_dead,
    keeps=claiming.keeps,
)


def _claim_pickups(limit: int, worker: int, crowded: Crowded[pickups.Job]) -> list[pickups.Job]:
    epoch.look()
    return pickups.claim_due(limit, worker)


PICKUPS = Work(
    task=dispatch.PICKUPS,
    claim=_claim_pickups,
    talk=pickups.look,
    record=pickups.record,
    release_dead=lambda now: 0,  # a look's lease is short, and nobody waits for it
    keeps=lambda job: True,  # two looks at once do no harm
)

# The presence of this process, which its engines share.
presence = leases.WorkerLock()

_sender: Engine[Job, Receipt] | None = None
_deliverer: Engine[deliveries.Job, deliveries.Outcome] | None = None
_collector: Engine[pickups.Job, Found] | None = None
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


def collector() -> Engine[pickups.Job, Found]:
    """This process's engine for looks into mailboxes and folders, made at first use (after any fork)."""
    global _collector
    with _engine_lock:
        if _collector is None:
            threads = settings.RMHUB_PICKUP_THREADS
            _collector = Engine(PICKUPS, threads=threads, batch=threads, worker=presence)
        return _collector


def stop() -> None:
    """Starts nothing new in this process's engines."""
    collecting.ending.set()
    for made in (sender(), deliverer(), collector()):
        made.stop()


def close() -> None:
    """Closes this process's engines: nothing new is started, and what is under way is finished."""
    stop()
    for made in (sender(), deliverer(), collector()):
        made.close()
    presence.release()
    collecting.ending.clear()
