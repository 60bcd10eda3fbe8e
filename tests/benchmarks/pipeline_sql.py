"""The audit and the reconciliation as plain SQL, as somebody would write them who has one large database.

The same text runs on DuckDB and PostgreSQL, over tables called as the lake's entities; tests compare what the jobs find
with what it finds. One row a finding: kind, pair_id, first and last number (of a repeat: of one number), count, and a
MessageId that proves it. `TRICK` is the jobs' own way of counting, where an engine profits from it as well.
"""

from __future__ import annotations

LAST, NEAR = 999_999_999, 1_000_000

SEQUENCES = f"""
WITH numbered AS (
    SELECT pair_id, position, message_id, sequence_number AS n, previous_number,
           lag(sequence_number) OVER w AS before, lead(sequence_number) OVER w AS following
    FROM messages WHERE sequence_number IS NOT NULL
    WINDOW w AS (PARTITION BY pair_id ORDER BY position)
), marked AS (
    SELECT *,
           CASE WHEN n = 1 AND before IS NOT NULL AND NOT (n < before AND n - before + {LAST} <= {NEAR})
                     AND NOT coalesce(following = before + 1 AND before > 1, false) THEN 1 ELSE 0 END AS reset,
           CASE WHEN n < before AND n - before + {LAST} <= {NEAR} THEN 1
                WHEN n > before AND before - n + {LAST} <= {NEAR} THEN -1 ELSE 0 END AS lap
    FROM numbered
), counted AS (
    SELECT *, sum(reset) OVER w AS epoch, cast(n + {LAST} * sum(lap) OVER w AS bigint) AS ext
    FROM marked WINDOW w AS (PARTITION BY pair_id ORDER BY position)
), sorted AS (
    SELECT *, lag(ext) OVER (PARTITION BY pair_id, epoch ORDER BY ext, position) AS top FROM counted
), gaps AS (
    SELECT pair_id, message_id, top + 1 AS first, ext - 1 AS last,
           CASE WHEN previous_number IS NULL THEN 0
                ELSE least(ext - top - 1, (n - 1 - previous_number + 2 * {LAST}) % {LAST}) END AS bridged
    FROM sorted WHERE ext > top + 1
)
SELECT 'gap' AS kind, pair_id, cast((first - 1 + {LAST}) % {LAST} + 1 AS bigint) AS first_number,
       cast((last - bridged - 1 + {LAST}) % {LAST} + 1 AS bigint) AS last_number,
       cast(last - bridged - first + 1 AS bigint) AS count, message_id
FROM gaps WHERE last - bridged >= first
UNION ALL
SELECT 'bridge', pair_id, cast((last - bridged + {LAST}) % {LAST} + 1 AS bigint),
       cast((last - 1 + {LAST}) % {LAST} + 1 AS bigint), cast(bridged AS bigint), message_id
FROM gaps WHERE bridged > 0
UNION ALL
SELECT 'repeat', pair_id, n, n, 1, message_id FROM sorted WHERE ext = top
UNION ALL
SELECT 'reset', pair_id, before, n, 1, message_id FROM sorted WHERE reset = 1
UNION ALL
SELECT 'wrap', pair_id, cast((top - 1 + {LAST}) % {LAST} + 1 AS bigint), n, 1, message_id
FROM sorted WHERE floor((ext - 1) / {LAST}.0) > floor((top - 1) / {LAST}.0)
"""

TWICE = """
SELECT 'delivered_twice' AS kind, d.pair_id, cast(NULL AS bigint) AS first_number, cast(NULL AS bigint) AS last_number,
       count(*) AS count, max(m.message_id) AS message_id
FROM (
    SELECT pair_id, trigger_id, message_pk, count(*) AS often FROM deliveries
    WHERE state = 'completed' AND resubmission_of IS NULL AND join_id IS NULL
    GROUP BY pair_id, trigger_id, message_pk HAVING count(*) > 1
) twice
JOIN deliveries d ON d.message_pk = twice.message_pk AND d.trigger_id = twice.trigger_id AND d.state = 'completed'
LEFT JOIN messages m ON m.id = d.message_pk
GROUP BY d.pair_id, d.trigger_id, d.message_pk
"""

# History is kept for longer than the log is.
SAME_DOCUMENT = """
SELECT 'document_twice' AS kind, max(pair_id) AS pair_id, cast(NULL AS bigint) AS first_number,
       cast(NULL AS bigint) AS last_number, count(*) AS count, max(first_id) AS message_id
FROM (
    SELECT d.pair_id, d.trigger_id, d.sender_id, d.document_id, d.message_pk, first_value(m.message_id) OVER (
        PARTITION BY d.trigger_id, d.sender_id, d.document_id ORDER BY d.completed_at, d.id) AS first_id
    FROM deliveries d LEFT JOIN messages m ON m.id = d.message_pk
    WHERE d.state = 'completed' AND d.verdict = 'new' AND d.document_id <> ''
      AND d.resubmission_of IS NULL AND d.join_id IS NULL
) same
GROUP BY trigger_id, sender_id, document_id HAVING count(DISTINCT message_pk) > 1
"""

WITHOUT_ACCEPTANCE = """
SELECT 'delivery_without_acceptance' AS kind, lost.pair_id, cast(NULL AS bigint) AS first_number,
       cast(NULL AS bigint) AS last_number, lost.often AS count, coalesce(e.message_id, lost.message_pk) AS message_id
FROM (
    SELECT d.pair_id, d.message_pk, count(*) AS often
    FROM deliveries d LEFT JOIN messages m ON m.id = d.message_pk AND m.direction = 'in'
    WHERE m.id IS NULL AND d.resubmission_of IS NULL AND d.join_id IS NULL AND d.state NOT IN ('waiting', 'running')
    GROUP BY d.pair_id, d.message_pk
) lost LEFT JOIN events e ON e.message_pk = lost.message_pk AND e.type = 'message.received'
"""

WITHOUT_DELIVERY = """
WITH flagged AS (
    SELECT m.id, m.pair_id, m.service, m.action, m.position, m.message_id,
           CASE WHEN d.message_pk IS NULL THEN 0 ELSE 1 END AS given
    FROM messages m LEFT JOIN (
        SELECT DISTINCT message_pk FROM deliveries WHERE resubmission_of IS NULL AND join_id IS NULL
    ) d ON d.message_pk = m.id
    WHERE m.direction = 'in'
), counted AS (
    SELECT *, sum(given) OVER (PARTITION BY pair_id, service, action ORDER BY position) AS so_far,
           sum(given) OVER (PARTITION BY pair_id, service, action) AS in_all
    FROM flagged
)
SELECT 'acceptance_without_delivery' AS kind, c.pair_id, cast(NULL AS bigint) AS first_number,
       cast(NULL AS bigint) AS last_number, count(*) AS count, min(c.message_id) AS message_id
FROM counted c JOIN events e ON e.message_pk = c.id AND e.type = 'message.received'
WHERE c.given = 0 AND c.so_far > 0 AND c.so_far < c.in_all
GROUP BY c.pair_id, c.service, c.action, c.so_far
"""

WITHOUT_STORAGE = """
SELECT 'ack_without_storage' AS kind, s.pair_id, cast(NULL AS bigint) AS first_number,
       cast(NULL AS bigint) AS last_number, count(*) AS count, max(s.ref_to_message_id) AS message_id
FROM signals s LEFT JOIN messages m ON m.id = s.about_pk
WHERE m.id IS NULL AND s.kind = 'ack' AND s.about_pk IS NOT NULL AND (s.direction = 'out' OR s.state = 'matched')
GROUP BY s.pair_id, s.about_pk
"""

SAME_IDS = """
SELECT 'duplicate_id' AS kind, (array_agg(m.pair_id ORDER BY m.created_at DESC))[1] AS pair_id,
       cast(NULL AS bigint) AS first_number,
       cast(NULL AS bigint) AS last_number, count(*) AS count, m.message_id
FROM messages m JOIN pairs p ON p.id = m.pair_id
WHERE m.direction = 'in' AND m.sequence_number IS NOT NULL
GROUP BY p.partner_id, m.message_id HAVING count(*) > 1
"""

AUDIT = (SEQUENCES, TWICE, SAME_DOCUMENT, WITHOUT_ACCEPTANCE, WITHOUT_DELIVERY, WITHOUT_STORAGE, SAME_IDS)

# The parameters are the beginning and the end of the log, an hour of margin off at both.
_RECONCILE = """
WITH ours AS (
    SELECT direction, message_id, count(*) AS copies, min(digest) AS low, max(digest) AS high, min(state) AS state,
           min(coalesce(first_sent_at, created_at)) AS began,
           max(coalesce(completed_at, first_sent_at, created_at)) AS ended
    FROM messages GROUP BY direction, message_id
), theirs AS (
    SELECT direction, message_id, count(*) AS copies, min(digest) AS low, max(digest) AS high
    FROM log GROUP BY direction, message_id
), judged AS (
    SELECT coalesce(o.direction, t.direction) AS direction, coalesce(o.message_id, t.message_id) AS message_id,
           coalesce(o.copies, 0) AS our_copies, coalesce(t.copies, 0) AS their_copies,
           CASE WHEN o.copies IS NULL THEN 'unknown_here'
                WHEN t.copies IS NULL AND o.began >= {begin} AND o.ended <= {end}
                     AND o.state IN ('delivered', 'sent', 'received') THEN 'lost'
                WHEN t.copies IS NULL AND o.began >= {begin} AND o.ended <= {end}
                     AND o.state IN ('failed', 'in_doubt') THEN 'in_doubt'
                WHEN t.copies IS NULL THEN NULL
                WHEN o.state IN ('failed', 'in_doubt', 'skipped', 'cancelled') THEN 'in_doubt_arrived'
                WHEN o.copies <> t.copies THEN 'doubled'
                WHEN o.low <> t.low OR o.high <> t.high THEN 'differs' ELSE 'agreed' END AS verdict
    FROM ours o FULL JOIN theirs t ON t.direction = o.direction AND t.message_id = o.message_id
)
"""
DIFFERENCES = (
    _RECONCILE
    + "SELECT direction, verdict, message_id, our_copies, their_copies FROM judged "
    + "WHERE verdict IS NOT NULL AND verdict <> 'agreed'"
)
SUMMARY = (
    _RECONCILE
    + "SELECT direction, verdict, cast(sum(CASE WHEN verdict = 'agreed' THEN our_copies ELSE 1 END) AS bigint) "
    + "AS messages FROM judged WHERE verdict IS NOT NULL GROUP BY direction, verdict"
)

# Both tables of the reconciliation in one statement: the agreed ones are counted.
BOTH = (
    _RECONCILE
    + """
SELECT direction, verdict, message_id, our_copies, their_copies FROM judged
WHERE verdict IS NOT NULL AND verdict <> 'agreed'
UNION ALL
SELECT direction, 'agreed', NULL, cast(sum(our_copies) AS bigint), 0 FROM judged WHERE verdict = 'agreed'
GROUP BY direction
"""
)

# The same with the jobs' fingerprints, for DuckDB: which buckets differ, and then BOTH over these alone.
BUCKETS = 1 << 18
FINGERPRINTS = f"""
CREATE TEMP TABLE buckets AS
SELECT bucket, sum(side) <> 0 OR bit_xor(mixed) <> 0 OR sum(side * (second & 4294967295)::bigint) <> 0
       OR sum(side * (second >> 32)::bigint) <> 0 OR sum(undecided) > 0 AS odd,
       sum(ours) FILTER (direction = 'in') AS in_agreed, sum(ours) FILTER (direction = 'out') AS out_agreed
FROM (
    SELECT hash(message_id) % {BUCKETS} AS bucket, 1 AS side, direction, hash(direction, message_id, digest) AS mixed,
           hash('second', direction, message_id, digest) AS second,
           (state IN ('failed', 'in_doubt'))::int AS undecided,
           (state IN ('delivered', 'sent', 'received'))::int AS ours
    FROM messages WHERE state IN ('delivered', 'sent', 'received', 'failed', 'in_doubt')
    UNION ALL
    SELECT hash(message_id) % {BUCKETS}, -1, direction, hash(direction, message_id, digest),
           hash('second', direction, message_id, digest), 0, 0
    FROM log
) sides GROUP BY bucket
"""
FEW = (
    BOTH.replace("FROM messages GROUP", "FROM messages WHERE {odd} GROUP").replace(
        "FROM log GROUP", "FROM log WHERE {odd} GROUP"
    )
    + """
UNION ALL SELECT 'in', 'agreed', NULL, sum(in_agreed), 0 FROM buckets WHERE NOT odd
UNION ALL SELECT 'out', 'agreed', NULL, sum(out_agreed), 0 FROM buckets WHERE NOT odd
"""
)
ODD = f"hash(message_id) % {BUCKETS} IN (SELECT bucket FROM buckets WHERE odd)"
