"""Celery tasks: thin, without arguments, safe to run twice and at any moment. Each calls one service."""

from __future__ import annotations

from celery import shared_task
from celery.signals import worker_ready, worker_shutting_down
from django.db import close_old_connections

from messaging import engine
from messaging.services import (
    audit_chain,
    housekeeping,
    jobs,
    monitoring,
    notifying,
    pipeline_runs,
    traffic_hours,
    webhooks,
)
from messaging.services.atomic import due
from rmhub import memory


@shared_task(name="messaging.send_due")
def send_due() -> str:
    """Transmits what is due: woken by submissions and answers, swept by beat."""
    close_old_connections()
    return f"started {engine.sender().run()}"


@shared_task(name="messaging.deliver_due")
def deliver_due() -> str:
    """Hands documents to applications: woken by what comes in, swept by beat."""
    close_old_connections()
    return f"started {engine.deliverer().run()}"


@shared_task(name="messaging.webhooks_due")
def webhooks_due() -> str:
    """Posts webhook deliveries that are due."""
    close_old_connections()
    return f"posted {webhooks.deliver_due()}"


@shared_task(name="messaging.jobs_due")
def jobs_due() -> str:
    """Works on bulk jobs."""
    close_old_connections()
    return f"done {jobs.run_due()}"


@shared_task(name="messaging.pickups_due")
def pickups_due() -> str:
    """Looks into the mailboxes and folders whose time has come; threads of their own do it."""
    close_old_connections()
    return f"started {engine.collector().run()}"


@shared_task(name="messaging.transactions_due")
def transactions_due() -> str:
    """Decides transactions whose votes are in, and ends those whose time is over."""
    close_old_connections()
    return f"moved {due.run_due()}"


@shared_task(name="messaging.monitors_due")
def monitors_due() -> str:
    """Asks the resource monitors of suspended triggers."""
    close_old_connections()
    return f"resumed {monitoring.check_due()}"


@shared_task(name="messaging.pipeline_due")
def pipeline_due() -> str:
    """Queues the runs of the data pipeline that the schedule asks for; the pipeline's own process works on them."""
    close_old_connections()
    return f"queued {len(pipeline_runs.schedule_due())}"


@shared_task(name="messaging.notifications_due")
def notifications_due() -> str:
    """Tells people of what has happened, as the notification rules say."""
    close_old_connections()
    made, tried = notifying.notify_due()
    return f"made {made}, tried {tried}"


@shared_task(name="messaging.audit_seal")
def audit_seal() -> str:
    """Seals new entries of the audit log."""
    close_old_connections()
    return f"sealed {audit_chain.seal_due()}"


@shared_task(name="messaging.traffic_due")
def traffic_due() -> str:
    """Counts what happened since the last look, by pair and hour."""
    close_old_connections()
    return f"counted {traffic_hours.count_due()}"


@shared_task(name="messaging.housekeeping")
def tidy() -> str:
    """Makes pairs of new agreements, closes old rejections, writes leftovers to the log."""
    close_old_connections()
    return housekeeping.run()


@worker_ready.connect
def _settle(**kwargs: object) -> None:
    memory.settle()


@worker_ready.connect
def _resume(**kwargs: object) -> None:
    """A suspension is temporary: a restart ends those that nothing else would end (protocols 4.5)."""
    close_old_connections()
    monitoring.resume_after_restart()


@worker_shutting_down.connect
def _finish(**kwargs: object) -> None:
    engine.close()
