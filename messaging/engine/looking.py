"""One look for all kinds of work: a single statement that says which tasks have something to do, and when.

Each worker asks it once every `RMHUB_SWEEP_SECONDS`, so that a hub that has nothing to do does next to nothing. It may
say too much (what a task then passes over costs one look), never too little: each condition is that of a task's own
claim, by the same partial index. Timers of messages are seen ahead, until the next look: a repeat that is agreed for
one second goes out after one second, and not after up to two.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from django.db import connection

from messaging import dispatch
from messaging.deliveries.services.claiming import DUE_TRIGGERS
from messaging.engine.missing import MISSING_AFTER
from rmhub import clock

# Readers of what others write, which almost always is a little ahead of them: at most so often, seconds.
AT_MOST_EVERY = {dispatch.TRAFFIC: 5.0, dispatch.NOTIFICATIONS: 5.0, dispatch.SEAL: 5.0}

_DEAD = "NOT EXISTS (SELECT FROM messaging_worker w WHERE w.number = {})"
_BEHIND = "SELECT FROM {} c WHERE EXISTS (SELECT FROM messaging_event e WHERE (e.xid, e.id) > (c.xid, c.event_id))"

# Task -> what is due for it, of the parameters now, worker, missing (handed over before then, and not in hand).
CONDITIONS = {
    dispatch.SEND: f"""
        EXISTS (SELECT FROM messaging_pair WHERE due_at <= %(now)s AND gate = 'open' AND direction = 'out')
        OR EXISTS (SELECT FROM messaging_signal WHERE due_at <= %(now)s)
        OR EXISTS (SELECT FROM messaging_message WHERE due_at <= %(now)s)
        OR EXISTS (SELECT FROM messaging_incomingstream WHERE order_ack_due_at <= %(now)s)
        OR EXISTS (
            SELECT FROM messaging_transmission t WHERE t.outcome = 'on_the_wire'
            AND (t.worker = %(worker)s AND t.started_at < %(missing)s OR {_DEAD.format("t.worker")})
        )""",  # noqa: S608  (our own words only)
    dispatch.DELIVER: f"""
        EXISTS ({DUE_TRIGGERS})
        OR EXISTS (
            SELECT FROM messaging_delivery d WHERE d.state = 'running' AND d.worker <> 0 AND {_DEAD.format("d.worker")}
        )""",
    dispatch.WEBHOOKS: """
        EXISTS (
            SELECT FROM messaging_webhookdelivery d JOIN messaging_webhookendpoint e ON e.id = d.endpoint_id
            WHERE d.due_at <= %(now)s AND e.enabled
        )""",
    dispatch.JOBS: "EXISTS (SELECT FROM messaging_bulkjob WHERE due_at <= %(now)s)",
    dispatch.POLLERS: """
        EXISTS (
            SELECT FROM partners_poller p LEFT JOIN messaging_pollerstate s ON s.poller_id = p.id
            WHERE p.enabled AND (s.due_at IS NULL OR s.due_at <= %(now)s)
            AND (s.leased_until IS NULL OR s.leased_until <= %(now)s)
        )""",
    dispatch.TRANSACTIONS: "EXISTS (SELECT FROM messaging_coordination WHERE due_at <= %(now)s)",
    dispatch.MONITORS: """
        EXISTS (
            SELECT FROM messaging_trigger
            WHERE state = 'suspended' AND monitor <> 'none' AND monitor_due_at <= %(now)s
        )""",
    dispatch.TRAFFIC: f"""
        NOT EXISTS (SELECT FROM messaging_trafficcursor)
        OR EXISTS ({_BEHIND.format("messaging_trafficcursor")})""",
    dispatch.NOTIFICATIONS: f"""
        NOT EXISTS (SELECT FROM messaging_notificationcursor)
        OR EXISTS ({_BEHIND.format("messaging_notificationcursor")})
        OR EXISTS (SELECT FROM messaging_notification WHERE due_at <= %(now)s)
        OR EXISTS (SELECT FROM messaging_notification WHERE escalates_at <= %(now)s)
        OR EXISTS (SELECT FROM messaging_passwordreset WHERE due_at <= %(now)s)""",  # noqa: S608
    dispatch.SEAL: "EXISTS (SELECT FROM messaging_auditentry WHERE number IS NULL)",
}

# Task -> the columns that say when it has something to do, with the condition of the rows that count.
_TIMERS = {
    dispatch.SEND: (
        ("messaging_pair", "due_at", "gate = 'open' AND direction = 'out'"),
        ("messaging_signal", "due_at", "true"),
        ("messaging_message", "due_at", "true"),
        ("messaging_incomingstream", "order_ack_due_at", "true"),
    )
}


def _timer(table: str, column: str, rows: str) -> str:
    return f"(SELECT min({column}) FROM {table} WHERE {rows} AND {column} > %(now)s AND {column} <= %(until)s)"  # noqa: S608


def _when(task: str) -> str:
    timers = ", ".join(_timer(*timer) for timer in _TIMERS.get(task, ()))
    later = f"ELSE LEAST({timers})" if timers else ""
    return f"CASE WHEN {CONDITIONS[task]} THEN %(now)s::timestamptz {later} END"


_LOOK = "SELECT " + ", ".join(map(_when, CONDITIONS))


def look(worker: int, *, ahead: float = 0.0) -> Mapping[str, float]:
    """The tasks that have something to do within the next `ahead` seconds, as seen by this worker, and in how many.

    Raises django.db.Error.
    """
    now = clock.now()
    times = {"now": now, "until": now + timedelta(seconds=ahead), "missing": now - MISSING_AFTER}
    with connection.cursor() as cursor:
        cursor.execute(_LOOK, {"worker": worker, **times})
        found = cursor.fetchone()
    return {task: (at - now).total_seconds() for task, at in zip(CONDITIONS, found, strict=True) if at is not None}
