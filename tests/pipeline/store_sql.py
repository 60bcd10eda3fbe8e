"""Plain SQL over the store for every number of the reports: what the pipeline's results have to be equal to.

Each statement says the same as the docstrings of the jobs, in another language and without the lake. `begin` and `end`
(may be None) are the range; `rows` runs a statement and returns its rows by column name.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import connection

Row = dict[str, Any]

_RANGE = (
    "BETWEEN coalesce(%(begin)s::timestamptz, '-infinity')"
    " AND coalesce(%(end)s::timestamptz, 'infinity') - interval '1 microsecond'"
)


def rows(statement: str, begin: datetime | None = None, end: datetime | None = None, **more: Any) -> list[Row]:
    """The rows of one of the statements below. `more`: further parameters that it names."""
    with connection.cursor() as cursor:
        cursor.execute("SET TIME ZONE 'UTC'")
        cursor.execute(statement.replace("{range}", _RANGE), {"begin": begin, "end": end, **more})
        names = [column.name for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


# --- exactly-once audit

# A sequence begins anew where a number 1 follows another number than the last one of all.
AUDIT_PAIRS = """
WITH numbered AS (
  SELECT m.pair_id, m.position, m.sequence_number AS number, m.created_at,
    lag(m.sequence_number) OVER (PARTITION BY m.pair_id ORDER BY m.position) AS before
  FROM messaging_message m WHERE m.sequence_number IS NOT NULL AND m.created_at {range}
), epochs AS (
  SELECT numbered.*, sum(CASE WHEN number = 1 AND before <> 999999999 THEN 1 ELSE 0 END)
    OVER (PARTITION BY pair_id ORDER BY position) AS epoch FROM numbered
), counted AS (
  SELECT pair_id, epoch, max(number) - min(number) + 1 - count(DISTINCT number) AS missing,
    count(*) - count(DISTINCT number) AS repeats FROM epochs GROUP BY 1, 2
)
SELECT pair.id::text AS pair_id, pair.code AS pair, pair.direction, party.name AS partner,
  (SELECT count(*) FROM numbered n WHERE n.pair_id = pair.id) AS messages,
  (SELECT number FROM numbered n WHERE n.pair_id = pair.id ORDER BY position LIMIT 1) AS first_number,
  (SELECT number FROM numbered n WHERE n.pair_id = pair.id ORDER BY position DESC LIMIT 1) AS last_number,
  (SELECT min(created_at) FROM numbered n WHERE n.pair_id = pair.id) AS first_at,
  (SELECT max(created_at) FROM numbered n WHERE n.pair_id = pair.id) AS last_at,
  (SELECT sum(missing)::bigint FROM counted c WHERE c.pair_id = pair.id) AS missing,
  (SELECT sum(repeats)::bigint FROM counted c WHERE c.pair_id = pair.id) AS repeats,
  (SELECT max(epoch)::bigint - min(epoch)::bigint FROM counted c WHERE c.pair_id = pair.id) AS resets,
  0 AS wraps, 0 AS bridged
FROM messaging_pair pair JOIN partners_party party ON party.id = pair.partner_id
WHERE EXISTS (SELECT FROM numbered n WHERE n.pair_id = pair.id)
"""

# --- service levels

LEVELS = """
WITH mail AS (
  SELECT m.created_at, m.direction, party.name AS partner, m.state, m.size, m.copies,
    (SELECT count(*) FROM messaging_transmission t WHERE t.message_id = m.id AND t.started_at {range}) AS attempts,
    extract(epoch FROM (SELECT e.at FROM messaging_event e
      WHERE e.message_id = m.id AND e.type = 'message.delivered')
      - coalesce((SELECT min(t.started_at) FROM messaging_transmission t
          WHERE t.message_id = m.id AND t.started_at {range}), m.first_sent_at))::float8 AS latency,
    CASE WHEN m.direction = 'out' THEN m.state = 'in_doubt' ELSE EXISTS (SELECT FROM messaging_delivery d
      WHERE d.message_id = m.id AND d.state = 'in_doubt' AND d.created_at {range}) END AS doubt
  FROM messaging_message m JOIN messaging_pair pair ON pair.id = m.pair_id
  JOIN partners_party party ON party.id = pair.partner_id
  WHERE m.created_at {range}
), stop AS (
  SELECT e.at, party.name AS partner, pair.direction, ended.at AS ended
  FROM messaging_event e JOIN messaging_pair pair ON pair.id = e.pair_id
  JOIN partners_party party ON party.id = pair.partner_id
  LEFT JOIN LATERAL (SELECT n.at FROM messaging_event n WHERE n.pair_id = e.pair_id AND n.id > e.id
    AND n.type = 'pair.resumed' AND n.at {range} ORDER BY n.id LIMIT 1) AS ended ON true
  WHERE e.type = 'pair.suspended' AND e.at {range}
), place AS (
  SELECT * FROM (VALUES ('hour'), ('day'), ('total')) AS grains (grain), (VALUES (true), (false)) AS o (own)
), volume AS (
  SELECT grain, CASE WHEN grain <> 'total' THEN date_trunc(grain, created_at) END AS at,
    CASE WHEN own THEN partner ELSE '' END AS partner, direction,
    count(*) AS messages, sum(size)::bigint AS bytes,
    count(*) FILTER (WHERE state IN ('delivered', 'sent', 'received') AND NOT doubt) AS succeeded,
    count(*) FILTER (WHERE state IN ('failed', 'skipped', 'cancelled')) AS failed,
    count(*) FILTER (WHERE doubt) AS in_doubt,
    count(*) FILTER (WHERE state IN ('queued', 'sending', 'awaiting_ack', 'retrying')) AS under_way,
    sum(attempts)::bigint AS attempts,
    (sum(attempts - 1) FILTER (WHERE attempts > 0) / count(*) FILTER (WHERE attempts > 0))::float8
      AS retries_per_message,
    sum(copies)::bigint AS duplicates,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY latency) AS ack_p50,
    percentile_cont(0.95) WITHIN GROUP (ORDER BY latency) AS ack_p95,
    percentile_cont(0.99) WITHIN GROUP (ORDER BY latency) AS ack_p99
  FROM mail CROSS JOIN place GROUP BY 1, 2, 3, 4
), stops AS (
  SELECT grain, CASE WHEN grain <> 'total' THEN date_trunc(grain, at) END AS at,
    CASE WHEN own THEN partner ELSE '' END AS partner, direction,
    count(*) AS suspensions, count(ended) AS resumed,
    avg(extract(epoch FROM ended - at))::float8 AS mean_seconds_to_resume
  FROM stop CROSS JOIN place GROUP BY 1, 2, 3, 4
), cell AS (
  SELECT grain, at, partner, direction FROM volume UNION SELECT grain, at, partner, direction FROM stops
)
SELECT cell.*, coalesce(messages, 0) AS messages, coalesce(bytes, 0) AS bytes, coalesce(succeeded, 0) AS succeeded,
  coalesce(failed, 0) AS failed, coalesce(in_doubt, 0) AS in_doubt, coalesce(under_way, 0) AS under_way,
  coalesce(attempts, 0) AS attempts, retries_per_message, coalesce(duplicates, 0) AS duplicates,
  ack_p50, ack_p95, ack_p99, coalesce(suspensions, 0) AS suspensions, coalesce(resumed, 0) AS resumed,
  mean_seconds_to_resume
FROM cell
LEFT JOIN volume v ON (v.grain, v.partner, v.direction) = (cell.grain, cell.partner, cell.direction)
  AND v.at IS NOT DISTINCT FROM cell.at
LEFT JOIN stops s ON (s.grain, s.partner, s.direction) = (cell.grain, cell.partner, cell.direction)
  AND s.at IS NOT DISTINCT FROM cell.at
"""

ERRORS = """
WITH error AS (
  SELECT pair_id, 'attempt' AS kind, cause FROM messaging_transmission
  WHERE message_id IS NOT NULL AND cause <> '' AND started_at {range}
  UNION ALL
  SELECT pair_id, 'message', data ->> 'cause' FROM messaging_event WHERE type = 'message.failed' AND at {range}
  UNION ALL
  SELECT pair_id, 'rejection', data ->> 'code' FROM messaging_event WHERE type = 'message.rejected' AND at {range}
  UNION ALL
  SELECT pair_id, 'delivery', data ->> 'cause' FROM messaging_event WHERE type = 'delivery.failed' AND at {range}
), counted AS (
  SELECT CASE WHEN own THEN party.name ELSE '' END AS partner, kind,
    coalesce(nullif(left(error.cause, 60), ''), 'unknown') AS cause, count(*)
  FROM error JOIN messaging_pair pair ON pair.id = error.pair_id JOIN partners_party party ON party.id = pair.partner_id
  CROSS JOIN (VALUES (true), (false)) AS o (own) GROUP BY 1, 2, 3
)
SELECT one.*,
  one.count::float8 / (SELECT sum(count) FROM counted a WHERE a.partner = one.partner)::float8 AS share,
  (SELECT sum(count) FROM counted a WHERE a.partner = one.partner
     AND (-a.count, a.kind COLLATE "C", a.cause COLLATE "C")
       <= (-one.count, one.kind COLLATE "C", one.cause COLLATE "C"))::float8
  / (SELECT sum(count) FROM counted a WHERE a.partner = one.partner)::float8 AS cumulative
FROM counted one
"""

DOUBTS = """
WITH doubt AS (
  SELECT e.pair_id, 'delivery' AS what, e.data ->> 'doubt' AS doubt,
    coalesce((SELECT CASE n.type WHEN 'delivery.settled' THEN n.data ->> 'decision'
        ELSE 'asked_' || split_part(n.type, '.', 2) END
      FROM messaging_event n WHERE n.id > e.id AND n.type LIKE 'delivery.%%'
      AND n.data ->> 'delivery' = e.data ->> 'delivery' AND n.at {range} ORDER BY n.id LIMIT 1), 'open') AS outcome
  FROM messaging_event e WHERE e.type = 'delivery.in_doubt' AND e.at {range}
  UNION ALL
  SELECT e.pair_id, 'message', e.data ->> 'cause',
    coalesce((SELECT CASE n.type WHEN 'message.settled' THEN n.data ->> 'decision' ELSE 'answered' END
      FROM messaging_event n WHERE n.id > e.id AND n.message_id = e.message_id
      AND n.type IN ('message.settled', 'message.delivered') AND n.at {range} ORDER BY n.id LIMIT 1), 'open')
  FROM messaging_event e WHERE e.type = 'message.in_doubt' AND e.at {range}
)
SELECT CASE WHEN own THEN party.name ELSE '' END AS partner, what, doubt, outcome, count(*)
FROM doubt JOIN messaging_pair pair ON pair.id = doubt.pair_id JOIN partners_party party ON party.id = pair.partner_id
CROSS JOIN (VALUES (true), (false)) AS o (own) GROUP BY 1, 2, 3, 4
"""

# --- timing

# One row a message of the timing advice, with what its replay needs; times in microseconds.
COURSES = """
WITH attempt AS (
  SELECT t.*, count(*) FILTER (WHERE t.outcome = 'sent') OVER (PARTITION BY t.message_id ORDER BY t.started_at) AS nth,
    count(*) FILTER (WHERE t.outcome = 'sent') OVER (PARTITION BY t.message_id) AS handed,
    row_number() OVER (PARTITION BY t.message_id ORDER BY t.started_at) AS place,
    coalesce((t.finished_at - t.started_at), interval '0') AS takes
  FROM messaging_transmission t WHERE t.message_id IS NOT NULL AND t.started_at {range}
)
SELECT v.agreement_id::text, a.tpa_id AS agreement, party.name AS partner, m.id AS message_pk,
  (SELECT count(*) FROM attempt t WHERE t.message_id = m.id) AS attempts, m.state = 'delivered' AS acknowledged,
  (SELECT count(*) FROM messaging_signal s WHERE s.about_id = m.id AND s.direction = 'in' AND s.kind = 'error'
    AND s.state = 'matched' AND s.created_at {range}) AS refusals,
  (SELECT count(*) FROM attempt t WHERE t.message_id = m.id AND t.outcome = 'sent' AND t.cause = '') AS taken,
  (extract(epoch FROM answered.started_at - first.started_at) * 1000000)::bigint AS outage,
  (extract(epoch FROM m.completed_at - answered.started_at) * 1000000)::bigint AS latency,
  first.outcome <> 'sent' AS failing,
  (extract(epoch FROM first.takes) * 1000000)::bigint AS lost_takes,
  (extract(epoch FROM answered.takes) * 1000000)::bigint AS sent_takes
FROM messaging_message m JOIN partners_agreementversion v ON v.id = m.agreement_version_id
JOIN partners_agreement a ON a.id = v.agreement_id JOIN partners_party party ON party.id = a.partner_id
JOIN attempt first ON first.message_id = m.id AND first.place = 1
LEFT JOIN LATERAL (
  SELECT t.started_at, t.takes FROM attempt t
  WHERE m.state = 'delivered' AND t.message_id = m.id AND (t.started_at <= m.completed_at)
  ORDER BY t.outcome = 'sent' DESC, t.nth = greatest(1, t.handed + 1 - greatest(1, (
    SELECT count(*) FROM messaging_signal s WHERE s.about_id = m.id AND s.direction = 'in' AND s.kind = 'ack'
    AND s.created_at {range}))) DESC, t.started_at DESC LIMIT 1
) AS answered ON true
WHERE m.direction = 'out' AND v.profile = 'ebxml' AND m.semantics = 'OnceAndOnlyOnce'
  AND m.state IN ('delivered', 'failed', 'skipped', 'cancelled') AND m.created_at {range}
"""

LATENCIES = (
    """
WITH course AS ("""
    + COURSES
    + """)
SELECT agreement_id, agreement, partner, count(*) AS messages, sum(attempts)::bigint AS attempts,
  (sum(attempts) - count(*) FILTER (WHERE acknowledged))::bigint AS unanswered,
  percentile_cont(0.5) WITHIN GROUP (ORDER BY latency) / 1e6 AS p50,
  percentile_cont(0.9) WITHIN GROUP (ORDER BY latency) / 1e6 AS p90,
  percentile_cont(0.99) WITHIN GROUP (ORDER BY latency) / 1e6 AS p99,
  percentile_cont(0.999) WITHIN GROUP (ORDER BY latency) / 1e6 AS p999,
  (max(latency) / 1e6)::float8 AS longest, (max(outage) / 1e6)::float8 AS longest_outage
FROM course GROUP BY 1, 2, 3
"""
)

FAILURES = (
    """
WITH course AS ("""
    + COURSES
    + """), failure AS (
  SELECT c.agreement_id, c.agreement, c.partner, t.cause, 1 AS attempts
  FROM course c JOIN messaging_transmission t ON t.message_id = c.message_pk
  WHERE t.cause <> '' AND t.started_at {range}
  UNION ALL
  SELECT c.agreement_id, c.agreement, c.partner, CASE s.error_code WHEN 'TransientError' THEN 'transient_error'
    WHEN 'InvalidSequenceNumber' THEN 'ebms_error_invalid_sequence_number'
    WHEN 'SecurityFailure' THEN 'ebms_error_security_failure' ELSE 'ebms_error_unknown' END, 1
  FROM course c JOIN messaging_signal s ON s.about_id = c.message_pk
  WHERE s.direction = 'in' AND s.kind = 'error' AND s.state = 'matched' AND s.created_at {range}
  UNION ALL
  SELECT agreement_id, agreement, partner, 'ack_timeout',
    greatest(0, taken - refusals - CASE WHEN acknowledged AND taken > 0 THEN 1 ELSE 0 END) FROM course
), counted AS (
  SELECT agreement_id, agreement, partner, cause, sum(attempts)::bigint AS attempts FROM failure
  GROUP BY 1, 2, 3, 4 HAVING sum(attempts) > 0
)
SELECT counted.*, attempts / (sum(attempts) OVER (PARTITION BY agreement_id))::float8 AS share FROM counted
"""
)

TERMS = """
SELECT DISTINCT ON (a.id) a.id::text AS agreement_id, a.tpa_id AS agreement, v.timeout, v.retries, v.retry_interval,
  v.transport_retries, v.transport_retry_interval
FROM partners_agreementversion v JOIN partners_agreement a ON a.id = v.agreement_id WHERE v.profile = 'ebxml'
ORDER BY a.id, v.state = 'active' DESC, v.state <> 'draft' DESC, v.number DESC
"""

# --- memory window

_REPEATS = """
repeat AS (
  SELECT party.name AS partner,
    CASE WHEN e.data ->> 'rule' IN ('replay', 'busy', 'doubt') THEN 'repeatable' ELSE 'ebxml' END AS profile,
    greatest(0, extract(epoch FROM e.at - CASE WHEN e.data ->> 'rule' IN ('replay', 'busy', 'doubt')
      THEN coalesce(m.first_sent_at, m.created_at) ELSE m.created_at END))::float8 AS delay
  FROM messaging_event e JOIN messaging_message m ON m.id = e.message_id
  JOIN messaging_pair pair ON pair.id = e.pair_id JOIN partners_party party ON party.id = pair.partner_id
  WHERE e.type = 'message.duplicate' AND e.at {range}
), received AS (
  SELECT party.name AS partner, v.profile, count(*) AS messages, min(m.created_at) AS since
  FROM messaging_message m JOIN partners_agreementversion v ON v.id = m.agreement_version_id
  JOIN messaging_pair pair ON pair.id = m.pair_id JOIN partners_party party ON party.id = pair.partner_id
  WHERE m.direction = 'in' AND m.created_at {range} GROUP BY 1, 2
)
"""

DELAYS = (
    "WITH"
    + _REPEATS
    + """
SELECT partner, profile, coalesce(r.messages, 0) AS messages, coalesce(d.repeats, 0) AS repeats,
  d.p50, d.p90, d.p99, d.p999, d.longest
FROM received r FULL JOIN (
  SELECT partner, profile, count(*) AS repeats, percentile_cont(0.5) WITHIN GROUP (ORDER BY delay) AS p50,
    percentile_cont(0.9) WITHIN GROUP (ORDER BY delay) AS p90,
    percentile_cont(0.99) WITHIN GROUP (ORDER BY delay) AS p99,
    percentile_cont(0.999) WITHIN GROUP (ORDER BY delay) AS p999, max(delay) AS longest
  FROM repeat GROUP BY 1, 2
) AS d USING (partner, profile)
"""
)

HISTOGRAM = (
    "WITH"
    + _REPEATS
    + """
SELECT partner, profile, min(upper)::bigint AS upper, count(*) AS repeats
FROM repeat CROSS JOIN LATERAL (SELECT min(2 ^ n) AS upper FROM generate_series(0, 62) AS n WHERE delay < 2 ^ n) AS b
GROUP BY partner, profile, b.upper
"""
)

# `risks`: the list of one_in; `until`: the end of the time over which messages came; `price`: may be None.
WINDOWS = (
    "WITH"
    + _REPEATS
    + """, term AS (
  SELECT DISTINCT ON (a.id) party.name AS partner, v.profile, v.state = 'active' AS active, v.memory_window,
    CASE v.profile WHEN 'repeatable' THEN v.partner_window ELSE v.timeout + v.retries * v.retry_interval END
      AS repeats_for
  FROM partners_agreementversion v JOIN partners_agreement a ON a.id = v.agreement_id
  JOIN partners_party party ON party.id = a.partner_id WHERE v.state <> 'draft'
  ORDER BY a.id, v.state = 'active' DESC, v.number DESC
), wish AS (
  SELECT r.*, one_in, r.messages / one_in AS allowed,
    (SELECT count(*) FROM repeat d WHERE (d.partner, d.profile) = (r.partner, r.profile)) AS repeats,
    (SELECT coalesce(max(delay), 0) FROM repeat d WHERE (d.partner, d.profile) = (r.partner, r.profile)) AS longest
  FROM received r CROSS JOIN unnest(%(risks)s::bigint[]) AS one_in
), tail AS (
  SELECT w.*, greatest(10, w.repeats / 10) AS size FROM wish w
), measured AS (
  SELECT t.*,
    coalesce((SELECT delay FROM repeat d WHERE (d.partner, d.profile) = (t.partner, t.profile)
      ORDER BY delay DESC OFFSET t.allowed LIMIT 1), 0) AS exceeded,
    coalesce((SELECT delay FROM repeat d WHERE (d.partner, d.profile) = (t.partner, t.profile)
      ORDER BY delay DESC OFFSET t.size LIMIT 1), 0) AS threshold,
    (SELECT sum(delay) FROM (SELECT delay FROM repeat d WHERE (d.partner, d.profile) = (t.partner, t.profile)
      ORDER BY delay DESC LIMIT t.size) AS latest) / t.size AS tail_mean,
    (SELECT max(repeats_for) FROM term WHERE (term.partner, term.profile) = (t.partner, t.profile)) AS agreed,
    (SELECT min(memory_window) FILTER (WHERE active) FROM term
      WHERE (term.partner, term.profile) = (t.partner, t.profile)) AS in_force
  FROM tail t
), sized AS (
  SELECT measured.*,
    CASE WHEN repeats < 20 THEN 'agreed' WHEN allowed >= 10 THEN 'measured' ELSE 'extrapolated' END AS basis,
    ceil(CASE WHEN repeats < 20 THEN greatest(agreed, longest) WHEN allowed >= 10 THEN exceeded
      ELSE greatest(exceeded, threshold + (tail_mean - threshold)
        * greatest(0, ln(size::float8 * one_in / messages))) END)::bigint AS window,
    greatest(1, extract(epoch FROM %(until)s::timestamptz - since))::float8 AS seconds
  FROM measured
), filled AS (
  SELECT sized.*, ceil(messages * "window" / seconds)::bigint AS ids,
    CASE profile WHEN 'repeatable' THEN 288 ELSE 352 END AS per_id FROM sized
)
SELECT partner, profile, one_in, basis, "window", ids, ids * per_id AS bytes,
  ids * per_id / 1e9::float8 * %(price)s::float8 AS cost, in_force, in_force >= "window" AS suffices FROM filled
"""
)
