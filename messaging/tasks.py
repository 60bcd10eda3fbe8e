"""Celery tasks: thin, without arguments, safe to run twice and at any moment. Each calls one service.

Whoever has something for them wakes them through the broker. Each worker looks once a second which of them have
something to do (`engine.looking`), and runs those (`engine.sweeping`); beat wakes them all now and then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

from celery import shared_task
from celery.signals import worker_init, worker_ready, worker_shutting_down
from django.conf import settings

from messaging import dispatch
from messaging.access.services import audit_chain, password_resets
from messaging.bulk.services import jobs
from messaging.deliveries.services import monitoring
from messaging.engine import kinds as engine
from messaging.engine.looking import AT_MOST_EVERY, look
from messaging.engine.sweeping import Sweeper
from messaging.notifications.services import notifying, webhooks
from messaging.overview.services import housekeeping, traffic_hours
from messaging.profiles.wsat import due
from messaging.reports.services import runs as pipeline_runs
from rmhub import memory, metrics, traces
from rmhub.postgresql.base import give_back

Work = Callable[[], str]
_WORK: dict[str, Work] = {}
_sweeper: Sweeper | None = None


def _task(name: str) -> Callable[[Work], Work]:
    """Declares a task: what the broker wakes, and what the worker runs when it does not."""

    def declare(work: Work) -> Work:
        @wraps(work)
        def run() -> str:
            try:
                return work()
            finally:
                give_back()

        @wraps(work)
        def woken() -> str:
            if _sweeper is not None:
                _sweeper.woken(name)
            return run()

        _WORK[name] = run
        return shared_task(name=name)(woken)  # type: ignore[no-any-return]

    return declare


@_task(dispatch.SEND)
def send_due() -> str:
    """Transmits what is due: woken by submissions and answers."""
    return f"started {engine.sender().run()}"


@_task(dispatch.DELIVER)
def deliver_due() -> str:
    """Hands documents to applications: woken by what comes in."""
    return f"started {engine.deliverer().run()}"


@_task(dispatch.WEBHOOKS)
def webhooks_due() -> str:
    """Posts webhook deliveries that are due."""
    return f"posted {webhooks.deliver_due()}"


@_task(dispatch.JOBS)
def jobs_due() -> str:
    """Works on bulk jobs."""
    return f"done {jobs.run_due()}"


@_task(dispatch.POLLERS)
def pollers_due() -> str:
    """Looks into the mailboxes and folders whose time has come; threads of their own do it."""
    return f"started {engine.collector().run()}"


@_task(dispatch.TRANSACTIONS)
def transactions_due() -> str:
    """Decides transactions whose votes are in, and ends those whose time is over."""
    return f"moved {due.run_due()}"


@_task(dispatch.MONITORS)
def monitors_due() -> str:
    """Asks the resource monitors of suspended triggers."""
    return f"resumed {monitoring.check_due()}"


@_task("messaging.pipeline_due")
def pipeline_due() -> str:
    """Queues the runs of the data pipeline that the schedule asks for; the pipeline's own process works on them."""
    return f"queued {len(pipeline_runs.schedule_due())}"


@_task(dispatch.NOTIFICATIONS)
def notifications_due() -> str:
    """Tells people of what has happened, as the notification rules say; mails links to those who forgot a password."""
    made, tried = notifying.notify_due()
    return f"made {made}, tried {tried}, password resets {password_resets.send_due()}"


@_task(dispatch.SEAL)
def audit_seal() -> str:
    """Seals new entries of the audit log."""
    return f"sealed {audit_chain.seal_due()}"


@_task(dispatch.TRAFFIC)
def traffic_due() -> str:
    """Counts what happened since the last look, by pair and hour."""
    return f"counted {traffic_hours.count_due()}"


@_task("messaging.housekeeping")
def tidy() -> str:
    """Makes pairs of new agreements, closes old rejections, writes leftovers to the log."""
    return housekeeping.run()


def _first() -> None:
    """A suspension is temporary: a restart ends those that nothing else would end (protocols 4.5)."""
    monitoring.resume_after_restart()


@worker_init.connect
def _begin(**kwargs: object) -> None:
    """Before the broker is asked: a worker works without one."""
    global _sweeper
    schedule: Iterable[dict[str, Any]] = settings.CELERY_BEAT_SCHEDULE.values()
    tasks = {entry["task"]: (float(entry["schedule"]), _WORK[entry["task"]]) for entry in schedule}
    _sweeper = Sweeper(
        tasks,
        presence=engine.presence,
        first=_first,
        look=lambda: look(engine.presence.number, ahead=settings.RMHUB_SWEEP_SECONDS),
        every=settings.RMHUB_SWEEP_SECONDS,
        at_most_every=AT_MOST_EVERY,
    )
    _sweeper.start()


@worker_ready.connect
def _settle(**kwargs: object) -> None:
    engine.receive()
    if settings.RMHUB_METRICS_LISTEN is not None:
        metrics.serve(settings.RMHUB_METRICS_LISTEN)
    traces.active()  # now, and not with the first message
    memory.settle()


@worker_shutting_down.connect
def _finish(**kwargs: object) -> None:
    engine.stop()
    if _sweeper is not None:
        _sweeper.stop()
    engine.close()
    traces.close()
