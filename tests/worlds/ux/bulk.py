"""Ninety days of traffic, written by the database itself: a hundred thousand rows a second where the disk allows it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.db import connection, transaction

from tests.worlds.ux.directory import Lane
from tests.worlds.ux.plan import ACTIONS, HISTORY, ORDERS, Plan

CHUNK = 200_000
# Within a day more happens by day than by night; the sine's amplitude keeps time going forward.
_AT = (
    "to_timestamp(({begin} + d.day * 86400000 + (d.part - 0.13 * sin(2 * pi() * (d.part + 0.08)))"
    " * 86400000)::bigint / 1000.0)"
)
_MESSAGES = """
INSERT INTO messaging_message (id, direction, state, pair_id, agreement_version_id, semantics, message_id,
    conversation_id, ref_to_message_id, service, action, sequence_number, position, content_type, digest, size,
    attempts, cause, cause_detail, copies, created_at, first_sent_at, completed_at, submitted_by, idempotency_key,
    idempotency_fingerprint, document_id, attributes)
SELECT (lpad(to_hex((extract(epoch FROM m.at) * 1000)::bigint), 12, '0') || '7' || substr(m.hash, 1, 3) || '9'
        || substr(m.hash, 4, 15))::uuid,
    m.direction, m.state, m.pair_id, m.version_id, 'OnceAndOnlyOnce', m.name,
    'conv-' || (m.n / 3) || '@' || m.slug, '', %(service)s, (%(actions)s::text[])[1 + m.n %% 4], m.number, m.number,
    '', '', 400 + ('x' || substr(m.hash, 24, 3))::bit(12)::int * 3,
    CASE WHEN m.direction = 'in' THEN 0 WHEN m.chance < 2000 THEN 2 + m.n %% 3 ELSE 1 END,
    CASE m.state WHEN 'failed' THEN (ARRAY['connect_timeout', 'http_5xx', 'ack_timeout'])[1 + m.n %% 3] ELSE '' END,
    '', CASE WHEN m.direction = 'in' AND m.chance < 300 THEN 1 ELSE 0 END, m.at,
    CASE WHEN m.direction = 'out' THEN m.at + interval '20 ms' END,
    CASE WHEN m.direction = 'out' THEN m.at + m.took * interval '1 ms' ELSE m.at END,
    CASE WHEN m.direction = 'out' THEN 'erp' ELSE '' END, '', '', '',
    CASE WHEN (%(actions)s::text[])[1 + m.n %% 4] = 'Invoice' THEN jsonb_build_object('invoice', (4711 + m.n / 4)::text,
        'customer', 'C-' || (m.n / 4) %% 1000, 'currency', (ARRAY['EUR', 'NOK', 'SEK'])[1 + (m.n / 4) %% 3]) END
FROM (
    SELECT n, s.*, h.hash, t.at, (n / %(slots)s) * s.share + s.rank + 1 AS number,
        n || '.' || substr(h.hash, 1, 8) || '@' || s.slug AS name,
        ('x' || substr(h.hash, 20, 4))::bit(16)::int AS chance,
        60 + ('x' || substr(h.hash, 27, 3))::bit(12)::int
            * CASE WHEN ('x' || substr(h.hash, 20, 4))::bit(16)::int < 2000 THEN 40 ELSE 1 END / 3 AS took,
        CASE WHEN s.direction = 'in' THEN 'received'
            WHEN ('x' || substr(h.hash, 20, 4))::bit(16)::int < 40 THEN 'failed'
            WHEN ('x' || substr(h.hash, 20, 4))::bit(16)::int < 60 THEN 'skipped' ELSE 'delivered' END AS state
    FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS n
    JOIN ux_slot s ON s.slot = n %% %(slots)s
    CROSS JOIN LATERAL (SELECT md5(n::text) AS hash) h
    CROSS JOIN LATERAL (SELECT n::float8 / %(total)s * %(span)s / 86400000 AS days) e
    CROSS JOIN LATERAL (SELECT floor(e.days)::bigint AS day, e.days - floor(e.days) AS part) d
    CROSS JOIN LATERAL (SELECT AT_MOMENT AS at) t
    WHERE t.at < s.stop_at
) m
"""
_PAIRS = """
UPDATE messaging_pair p SET next_position = f.number + 1, last_sequence = f.number, done = f.number,
    last_success_at = f.at, changed_at = f.at
FROM (SELECT pair_id, max(sequence_number) AS number, max(completed_at) AS at FROM messaging_message
      WHERE id > %(recent)s AND state IN ('delivered', 'received') GROUP BY pair_id) f
WHERE f.pair_id = p.id AND f.number >= p.done
"""
_TRANSMISSIONS = """
INSERT INTO messaging_transmission (id, pair_id, message_id, number, address, outcome, http_status, cause, detail,
    response, worker, started_at, finished_at)
SELECT overlay(m.id::text PLACING lpad(to_hex(a), 2, '0') FROM 35)::uuid, m.pair_id, m.id, a,
    'http://127.0.0.1/ok/', CASE WHEN a < m.attempts OR m.state = 'failed' THEN 'failed' ELSE 'sent' END,
    CASE WHEN a < m.attempts OR m.state = 'failed' THEN 503 ELSE 204 END,
    CASE WHEN a < m.attempts OR m.state = 'failed' THEN 'http_5xx' ELSE '' END, '',
    convert_to(CASE WHEN a < m.attempts OR m.state = 'failed' THEN E'HTTP 503 Service Unavailable\\r\\n\\r\\nbusy'
        ELSE E'HTTP 204 No Content\\r\\n\\r\\n' END, 'UTF8'),
    0, m.first_sent_at + (a - 1) * interval '20 ms', m.first_sent_at + (a - 1) * interval '20 ms' + interval '14 ms'
FROM messaging_message m CROSS JOIN LATERAL generate_series(1, m.attempts) a
WHERE m.id >= %(from)s AND m.direction = 'out' AND m.pair_id IN (SELECT pair_id FROM ux_slot)
"""
_PAYLOADS = """
INSERT INTO messaging_payload (message_id, number, content_id, content_type, filename, label, size, sha256, content,
    stored_as, in_frame)
SELECT m.id, 1, 'p1.' || m.message_id, 'application/xml', lower(m.action) || '.xml', m.action, length(c.body),
    encode(sha256(c.body), 'hex'), c.body, '', false
FROM messaging_message m
CROSS JOIN LATERAL (SELECT convert_to('<?xml version="1.0"?><' || m.action || '><ID>'
    || coalesce(m.attributes->>'invoice', m.message_id) || '</ID><IssueDate>' || to_char(m.created_at, 'YYYY-MM-DD')
    || '</IssueDate>'
    || coalesce('<DocumentCurrencyCode>' || (m.attributes->>'currency') || '</DocumentCurrencyCode><CustomerID>'
        || (m.attributes->>'customer') || '</CustomerID>', '') || '<Lines>' || m.size || '</Lines></'
    || m.action || '>', 'UTF8') AS body) c
WHERE m.id >= %(from)s AND m.pair_id IN (SELECT pair_id FROM ux_slot)
"""
_IDENTITIES = """
INSERT INTO messaging_messageidentity (scope_id, direction, message_id, stored_id, digest, sequence_number, created_at)
SELECT CASE WHEN m.direction = 'out' THEN p.own_party_id ELSE p.partner_id END, m.direction, m.message_id, m.id, '',
    m.sequence_number, m.created_at
FROM messaging_message m JOIN messaging_pair p ON p.id = m.pair_id
WHERE m.id >= %(from)s AND m.pair_id IN (SELECT pair_id FROM ux_slot)
"""
_HOURS = """
INSERT INTO messaging_traffichour (pair_id, hour, accepted, delivered, received, failed, duplicates, latencies)
SELECT f.pair_id, f.hour, f.accepted, f.delivered, f.received, f.failed, f.duplicates,
    ARRAY[f.delivered / 10, f.delivered / 10, f.delivered / 5, f.delivered / 4,
        f.delivered - f.delivered / 10 * 2 - f.delivered / 5 - f.delivered / 4, 0, 0, 0, 0, 0, 0, 0, 0]
FROM (SELECT pair_id, date_trunc('hour', created_at, 'UTC') AS hour,
        count(*) FILTER (WHERE direction = 'out')::int AS accepted,
        count(*) FILTER (WHERE state = 'delivered')::int AS delivered,
        count(*) FILTER (WHERE state = 'received')::int AS received,
        count(*) FILTER (WHERE state = 'failed')::int AS failed, sum(copies)::int AS duplicates
      FROM messaging_message WHERE id >= %(from)s GROUP BY 1, 2) f
ON CONFLICT DO NOTHING
"""


def floor_id(at: datetime) -> str:
    """The smallest id of a message made at that time or later."""
    return f"{int(at.timestamp() * 1000):012x}" + "0" * 20


def write(plan: Plan, lanes: list[Lane], say: Callable[[str], None]) -> None:
    """Messages of the past, the counters of their pairs, and the details of the newest. Progress goes to `say`."""
    begin = plan.now - HISTORY
    span = int(HISTORY.total_seconds() * 1000) - 120_000  # the last two minutes are left to what happens now
    slots = _slots(plan, lanes)
    sql = _MESSAGES.replace("AT_MOMENT", _AT.format(begin=int(begin.timestamp() * 1000)))
    for first in range(0, plan.messages, CHUNK):
        last = min(first + CHUNK, plan.messages) - 1
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL synchronous_commit = off")
            cursor.execute(
                sql,
                {
                    "first": first, "last": last, "slots": slots, "total": plan.messages, "span": span,
                    "service": ORDERS, "actions": list(ACTIONS),
                },
            )  # fmt: skip
        if first // CHUNK % 5 == 4 or last == plan.messages - 1:
            say(f"{last + 1:,} of {plan.messages:,} messages")
    recent = plan.now - HISTORY * min(1.0, max(plan.detailed, 40 * slots) / plan.messages)
    week = floor_id(plan.now - HISTORY * min(1.0, 8 / HISTORY.days))
    for what, statement, since in (
        (
            "counters",
            _PAIRS,
            {"recent": floor_id(begin)} if plan.messages < 1_000_000 else {"recent": floor_id(recent)},
        ),
        ("attempts", _TRANSMISSIONS, {"from": _newest(plan)}),
        ("payloads", _PAYLOADS, {"from": _newest(plan)}),
        ("identities", _IDENTITIES, {"from": _newest(plan)}),
        ("hours", _HOURS, {"from": week}),
    ):
        say(what)
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement, since)
    say("statistics")
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE messaging_message, messaging_transmission, messaging_payload, messaging_pair")


def _newest(plan: Plan) -> str:
    return floor_id(plan.now - HISTORY * min(1.0, plan.detailed / plan.messages))


def _slots(plan: Plan, lanes: list[Lane]) -> int:
    """A table of turns: every pair comes once to twelve times in a round, so that some are busier than others."""
    rows: list[tuple[Any, ...]] = []
    for n, lane in enumerate(lanes):
        share = (12, 5, 3, 2, 1)[n % 5] if lane.trouble is None else 2
        stop = plan.now if lane.trouble is None else plan.now - lane.trouble.since
        if lane.trouble is not None and lane.trouble.profile != "ebxml":
            continue
        for pair, stopped in ((lane.outbound, stop), (lane.inbound, stop if _silent(lane) else plan.now)):
            rows += [
                (pair.pk, lane.version_id, pair.direction, lane.slug, share, rank, stopped) for rank in range(share)
            ]
    # Spread out: the turns of a busy pair do not follow each other.
    count = len(rows)
    step = next(k for k in (7919, 104_729, 1_299_709) if count % k)
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS ux_slot")
        cursor.execute(
            "CREATE TEMPORARY TABLE ux_slot (slot bigint PRIMARY KEY, pair_id uuid, version_id uuid, direction text,"
            " slug text, share bigint, rank bigint, stop_at timestamptz)"
        )
        cursor.executemany(
            "INSERT INTO ux_slot VALUES (%s, %s, %s, %s, %s, %s, %s, %s)",
            _ranked([(number * step % count, *row) for number, row in enumerate(rows)]),
        )
        cursor.execute("ANALYZE ux_slot")
    return count


def _ranked(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """With each pair's ranks in the order of its turns: numbers then follow time."""
    seen: dict[Any, int] = {}
    ranked: list[tuple[Any, ...]] = []
    for slot, pair, version, direction, slug, share, _, stop in sorted(rows, key=lambda row: row[0]):
        rank = seen.get(pair, 0)
        seen[pair] = rank + 1
        ranked.append((slot, pair, version, direction, slug, share, rank, stop))
    return ranked


def _silent(lane: Lane) -> bool:
    return lane.trouble is not None and lane.slug == "solberg"
