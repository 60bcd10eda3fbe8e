"""States of pairs and messages that contradict each other, and timers that nobody would ever look at."""

from __future__ import annotations

import hashlib
import struct

from messaging import storage
from messaging.invariants.rule import Row, Rule
from messaging.octets import OctetsDamaged, unpack
from messaging.protocol.envelope import Wire

_OPEN = "('sending', 'awaiting_ack', 'retrying')"


def _other_octets(row: Row) -> Row | None:
    """The body that its frame and its payloads make, compared with its digest."""
    frame, slices = row.pop("wire_frame"), [bytes(content) for content in row.pop("slices")]
    try:
        body = Wire("", storage.unpack_frame(unpack(frame))).join(slices)
    except (OctetsDamaged, struct.error, ValueError) as error:
        return {**row, "found": str(error)}
    found = hashlib.sha256(body).hexdigest()
    return None if found == row["digest"] else {**row, "found": found}


RULES = (
    Rule(
        "one-in-flight",
        "A reliable ebXML pair has one message in flight at most: the one that its row names",
        "D 2; spec 1, 2.1.3",
        """
SELECT m.pair_id, m.id, m.message_id, m.state, p.flow, p.in_flight_id
FROM messaging_message m JOIN messaging_pair p ON p.id = m.pair_id
JOIN partners_agreementversion v ON v.id = m.agreement_version_id
WHERE m.direction = 'out' AND m.standing IN ('open', 'failed') AND m.state <> 'queued'
AND m.semantics = 'OnceAndOnlyOnce' AND v.profile = 'ebxml' AND p.in_flight_id IS DISTINCT FROM m.id
""",
    ),
    Rule(
        "in-flight-state",
        "The state of the message in flight matches the state of its pair",
        "D 2, 6; spec 1, 2.1.3",
        """
SELECT p.id AS pair_id, p.flow, p.in_flight_id, m.state, m.sequence_number
FROM messaging_pair p
LEFT JOIN messaging_message m ON m.id = p.in_flight_id AND m.pair_id = p.id AND m.direction = 'out'
WHERE p.in_flight_id IS NOT NULL AND NOT coalesce(m.sequence_number IS NOT NULL AND CASE p.flow
    WHEN 'sending' THEN m.state = 'sending'
    WHEN 'suspended' THEN m.state = 'failed'
    WHEN 'idle' THEN false
    ELSE m.state IN ('awaiting_ack', 'retrying') END, false)
""",
    ),
    Rule(
        "queued",
        "The count of what waits on a pair is the number of messages that wait",
        "D 6; I11",
        """
SELECT p.id AS pair_id, p.queued, coalesce(m.waiting, 0) AS waiting
FROM messaging_pair p LEFT JOIN (
    SELECT pair_id, count(*) AS waiting FROM messaging_message
    WHERE direction = 'out' AND standing = 'open' AND state = 'queued' AND due_at IS NULL GROUP BY pair_id
) m ON m.pair_id = p.id
WHERE p.direction = 'out' AND p.queued <> coalesce(m.waiting, 0)
""",
    ),
    Rule(
        "out-now",
        "The count of what is in flight on a pair of requests or a stream is the number of messages in flight",
        "D 6; I11",
        """
SELECT p.id AS pair_id, p.out_now, coalesce(m.flying, 0) AS flying
FROM messaging_pair p LEFT JOIN (
    SELECT pair_id, count(*) AS flying
    FROM messaging_message m JOIN partners_agreementversion v ON v.id = m.agreement_version_id
    WHERE direction = 'out' AND m.standing = 'open' AND m.state <> 'queued'
    AND (v.profile = 'repeatable' OR m.tx_sequence_id IS NOT NULL
        OR v.profile = 'ebms2' AND m.semantics = 'OnceAndOnlyOnce')
    GROUP BY pair_id
) m ON m.pair_id = p.id
WHERE p.direction = 'out' AND p.out_now <> coalesce(m.flying, 0)
""",
    ),
    Rule(
        "prepared",
        "What was sent has its octets, and a reliable message its number; what waits for its first send has none",
        "D 3; I9",
        f"""
SELECT m.pair_id, m.id, m.message_id, m.state, m.attempts, m.sequence_number, m.digest <> '' AS has_octets
FROM messaging_message m JOIN partners_agreementversion v ON v.id = m.agreement_version_id
WHERE m.direction = 'out' AND (
    m.state = 'queued' AND m.sequence_number IS NOT NULL
    OR (m.state IN {_OPEN} OR m.state IN ('delivered', 'sent', 'confirming')) AND (m.wire_frame IS NULL OR m.digest = ''
        OR m.sequence_number IS NULL AND m.semantics = 'OnceAndOnlyOnce' AND v.profile IN ('ebxml', 'stream'))
)
""",
    ),
    Rule(
        "same-octets",
        "A message that may be sent again has the octets that were sent first: they match its SHA-256",
        "D 3; I9",
        """
SELECT m.pair_id, m.id, m.message_id, m.digest, m.wire_frame, ARRAY(
    SELECT p.content FROM messaging_payload p WHERE p.message_id = m.id AND NOT p.in_frame ORDER BY p.number
) AS slices FROM messaging_message m WHERE direction = 'out' AND standing IN ('open', 'failed') AND state <> 'queued'
AND wire_frame IS NOT NULL AND digest <> '' AND attempts > 0
AND NOT EXISTS (SELECT FROM messaging_payload p WHERE p.message_id = m.id AND p.stored_as <> '')
""",
        _other_octets,
    ),
    Rule(
        "belongs",
        "A message belongs to a pair and to an agreement's version that exist, and a payload to a message",
        "I11",
        """
SELECT 'message' AS what, m.id::text, m.message_id AS name FROM messaging_message m
WHERE NOT EXISTS (SELECT FROM messaging_pair p WHERE p.id = m.pair_id)
OR NOT EXISTS (SELECT FROM partners_agreementversion v WHERE v.id = m.agreement_version_id)
UNION ALL
SELECT 'payload', p.id::text, p.content_id FROM messaging_payload p
WHERE NOT EXISTS (SELECT FROM messaging_message m WHERE m.id = p.message_id)
""",
    ),
    Rule(
        "ended",
        "A message has an end time exactly when it has ended",
        "I11",
        f"""
SELECT pair_id, id, message_id, direction, state, completed_at FROM messaging_message
WHERE state IN ('delivered', 'received', 'sent', 'skipped', 'cancelled') AND completed_at IS NULL
OR (state IN {_OPEN} OR state IN ('queued', 'in_doubt', 'held')) AND completed_at IS NOT NULL
OR (direction = 'in') <> (state IN ('received', 'held'))
""",
    ),
    Rule(
        "pair-timer",
        "A pair with work to do has a due time",
        "D 7; I10",
        """
SELECT id AS pair_id, flow, gate, queued, out_now, due_at FROM messaging_pair
WHERE direction = 'out' AND due_at IS NULL
AND (flow IN ('sending', 'awaiting_ack', 'resend_wait', 'holding') OR flow = 'idle' AND queued > 0 AND out_now = 0)
""",
    ),
    Rule(
        "message-timer",
        "A message that its pair does not schedule has a due time of its own",
        "D 7; I10",
        """
SELECT m.pair_id, m.id, m.message_id, m.state, p.flow FROM messaging_message m JOIN messaging_pair p ON p.id = m.pair_id
WHERE m.direction = 'out' AND m.due_at IS NULL AND m.standing = 'open' AND m.state <> 'queued'
AND p.in_flight_id IS DISTINCT FROM m.id
AND (m.state = 'sending' OR m.tx_sequence_id IS NULL OR p.due_at IS NULL AND p.flow <> 'suspended')
""",
    ),
    Rule(
        "told",
        "A suspended pair has an incident with its cause",
        "spec 1, 2.1.4.3",
        """
SELECT p.id AS pair_id, p.cause, p.changed_at FROM messaging_pair p
WHERE p.direction = 'out' AND p.flow = 'suspended'
AND NOT EXISTS (SELECT FROM messaging_incident i WHERE i.pair_id = p.id AND i.cause = p.cause)
""",
    ),
    Rule(
        "attempts",
        "An attempt belongs to a message or a signal that exists",
        "I2",
        """
SELECT t.id AS transmission_id, t.pair_id, t.message_id, t.signal_id FROM messaging_transmission t
WHERE num_nonnulls(t.message_id, t.signal_id) <> 1
OR NOT EXISTS (SELECT FROM messaging_message m WHERE m.id = t.message_id)
AND NOT EXISTS (SELECT FROM messaging_signal s WHERE s.id = t.signal_id)
""",
    ),
    Rule(
        "passed-on-once",
        "A received message is passed on once; only a person sends it again",
        "D 4; spec 1, 4.1",
        """
SELECT forwarded_from_id AS received_id, count(*) AS times, min(message_id) AS message_id FROM messaging_message
WHERE forwarded_from_id IS NOT NULL AND resubmitted_from_id IS NULL AND direction = 'out'
GROUP BY forwarded_from_id HAVING count(*) > 1
""",
    ),
    Rule(
        "repeats-of-requests",
        "A request, or an ebXML 2.0 message, in flight keeps the time of its first send and the end of its time",
        "I9; spec 2",
        """
SELECT m.pair_id, m.id, m.message_id, m.state, m.first_sent_at, m.expires_at, m.attempts
FROM messaging_message m JOIN partners_agreementversion v ON v.id = m.agreement_version_id
WHERE m.direction = 'out' AND (v.profile = 'repeatable' OR v.profile = 'ebms2' AND m.semantics = 'OnceAndOnlyOnce')
AND m.standing IN ('open', 'in_doubt') AND m.state <> 'queued'
AND (m.first_sent_at IS NULL OR m.expires_at IS NULL OR m.attempts = 0 OR m.expires_at < m.first_sent_at)
""",
    ),
    Rule(
        "requests-in-order",
        "Where requests go in order, one is in flight at a time",
        "I7; spec 2",
        """
SELECT m.pair_id, m.agreement_version_id, count(*) AS in_flight,
    array_agg(m.message_id ORDER BY m.position) AS message_ids
FROM messaging_message m JOIN partners_agreementversion v ON v.id = m.agreement_version_id
WHERE m.direction = 'out' AND v.profile = 'repeatable' AND v.ordered AND m.standing = 'open' AND m.state <> 'queued'
GROUP BY m.pair_id, m.agreement_version_id HAVING count(*) > 1
""",
    ),
)
