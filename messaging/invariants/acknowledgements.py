"""What was received is acknowledged, and what counts as delivered was acknowledged. Ids are remembered."""

from __future__ import annotations

from messaging.invariants.rule import Rule, named

RULES = (
    Rule(
        "acknowledged",
        "Every reliable ebXML message that is stored, of either version, has an acknowledgement of ours",
        "D 1, 5; I2; spec 1, 2.1.3 (4)",
        """
SELECT m.pair_id, m.id, m.message_id, m.sequence_number FROM messaging_message m
JOIN partners_agreementversion v ON v.id = m.agreement_version_id
WHERE m.direction = 'in' AND (m.sequence_number IS NOT NULL AND m.tx_sequence_id IS NULL AND v.profile = 'ebxml'
    OR v.profile = 'ebms2' AND m.semantics = 'OnceAndOnlyOnce')
AND NOT EXISTS (SELECT FROM messaging_signal s WHERE s.about_id = m.id AND s.direction = 'out' AND s.kind = 'ack')
""",
    ),
    Rule(
        "every-receipt",
        "Every receipt of a reliable message is acknowledged, copies too",
        "D 5; spec 1, 2.1.3 (4)",
        """
SELECT m.pair_id, m.id, m.message_id, 1 + came.copies AS receipts, s.sends, s.owed, s.state
FROM messaging_message m JOIN messaging_signal s ON s.about_id = m.id AND s.direction = 'out' AND s.kind = 'ack'
CROSS JOIN LATERAL (
    -- Copies by another road, or of an unreliable message, earn no acknowledgement of this kind.
    SELECT count(*) AS copies FROM messaging_event e WHERE e.message_id = m.id AND e.type = 'message.duplicate'
    AND e.data->>'rule' IN ('known-id', 'restarted', 'by-other-road', 'repeat')
) came
WHERE m.direction = 'in' AND m.sequence_number IS NOT NULL AND m.tx_sequence_id IS NULL AND m.copies > 0
AND s.state IN ('pending', 'sending', 'sent') AND s.sends + s.owed < 1 + m.copies AND s.sends + s.owed < 1 + came.copies
AND NOT EXISTS (SELECT FROM messaging_signal e WHERE e.about_id = m.id AND e.direction = 'out' AND e.kind = 'error')
AND NOT EXISTS (SELECT FROM messaging_transmission t WHERE t.signal_id = s.id AND t.outcome = 'failed')
""",
    ),
    Rule(
        "stream-acknowledged",
        "A stream that has accepted something has acknowledged it, or has a time at which it will",
        "D 5, 7; spec 3, 3.1.5.8.6",
        """
SELECT pair_id, source, tx_sequence_id, number FROM messaging_incomingstream
WHERE number > 0 AND last_order_ack_at IS NULL AND order_ack_due_at IS NULL
""",
    ),
    Rule(
        "no-acknowledgement-without-message",
        "An acknowledgement of ours is about a message that was received and stored",
        "D 1, 5; I2",
        """
SELECT s.pair_id, s.id AS signal_id, s.message_id, s.ref_to_message_id, s.about_id, m.direction
FROM messaging_signal s LEFT JOIN messaging_message m ON m.id = s.about_id
WHERE s.direction = 'out' AND s.kind IN ('ack', 'final') AND s.about_id IS NOT NULL
AND (m.direction = 'out' OR m.id IS NULL
    AND NOT EXISTS (SELECT FROM messaging_archivedmessage a WHERE a.id = s.about_id)
    AND NOT EXISTS (SELECT FROM messaging_messageidentity i WHERE i.stored_id = s.about_id))
""",
    ),
    Rule(
        "delivered-by-acknowledgement",
        "An ebXML message counts as delivered only when its receiver has acknowledged it",
        "D 1; I2; spec 1, 2.1.3 (5)",
        f"""
SELECT m.pair_id, m.id, m.message_id, m.completed_at FROM messaging_message m
JOIN partners_agreementversion v ON v.id = m.agreement_version_id
WHERE m.direction = 'out' AND m.state = 'delivered' AND v.profile IN ('ebxml', 'ebms2')
AND NOT EXISTS (SELECT FROM messaging_signal s WHERE s.about_id = m.id AND s.direction = 'in' AND s.kind = 'ack'
    AND s.state = 'matched')
AND NOT EXISTS (SELECT FROM messaging_auditentry a WHERE a.object_type = 'message'
    AND a.object_id = {named("msg", "m.id")} AND a.verb = 'message.settle_delivered')
""",
    ),
    Rule(
        "delivered-by-answer",
        "A request counts as delivered only when it was answered, or a person said so",
        "D 1; I2; spec 2",
        f"""
SELECT m.pair_id, m.id, m.message_id, m.completed_at FROM messaging_message m
JOIN partners_agreementversion v ON v.id = m.agreement_version_id
WHERE m.direction = 'out' AND m.state = 'delivered' AND v.profile = 'repeatable'
AND NOT EXISTS (SELECT FROM messaging_transmission t WHERE t.message_id = m.id AND t.outcome = 'sent')
AND NOT EXISTS (SELECT FROM messaging_auditentry a WHERE a.object_type = 'message'
    AND a.object_id = {named("msg", "m.id")} AND a.verb = 'message.settle_delivered')
""",
    ),
    Rule(
        "delivered-by-order-acknowledgement",
        "A message of a stream counts as delivered only when an order acknowledgement or final receipt covers it",
        "D 1; I2; spec 3, 3.1.5.8.6",
        f"""
SELECT m.pair_id, m.id, m.message_id, m.tx_sequence_id AS stream, m.sequence_number AS number, m.completed_at
FROM messaging_message m JOIN partners_agreementversion v ON v.id = m.agreement_version_id
WHERE m.direction = 'out' AND m.state = 'delivered' AND v.profile = 'stream'
AND NOT EXISTS (SELECT FROM messaging_outgoingstream s WHERE s.pair_id = m.pair_id
    AND (s.tx_sequence_id, s.acked_number) >= (m.tx_sequence_id, m.sequence_number))
AND NOT EXISTS (SELECT FROM messaging_signal f WHERE f.about_id = m.id AND f.direction = 'in' AND f.kind = 'final'
    AND f.state = 'matched')
-- Whose time was over before it was acknowledged is in doubt, and in flight no more.
AND NOT (EXISTS (SELECT FROM messaging_event e WHERE e.message_id = m.id AND e.type = 'message.in_doubt')
    AND EXISTS (SELECT FROM messaging_signal a WHERE a.pair_id = m.pair_id AND a.direction = 'in' AND a.kind = 'ack'
        AND a.state = 'matched' AND a.created_at = m.completed_at))
AND NOT EXISTS (SELECT FROM messaging_auditentry a WHERE a.object_type = 'message'
    AND a.object_id = {named("msg", "m.id")} AND a.verb = 'message.settle_delivered')
""",
    ),
    Rule(
        "kept-back",
        "An acknowledgement is held only while its message has not reached the next hop",
        "D 5; spec 1, 4.1.2",
        """
SELECT s.pair_id, s.id AS signal_id, s.ref_to_message_id, onward.id AS onward_id, onward.state
FROM messaging_signal s JOIN messaging_message onward
    ON onward.forwarded_from_id = s.about_id AND onward.direction = 'out' AND onward.state IN ('delivered', 'sent')
WHERE s.direction = 'out' AND s.state = 'held' AND s.kind = 'ack'
""",
    ),
    Rule(
        "signal-timer",
        "An acknowledgement or error that is to be sent has a due time; one that was sent has none",
        "D 5, 7; I10",
        """
SELECT pair_id, id AS signal_id, kind, state, owed, due_at FROM messaging_signal WHERE direction = 'out' AND (
    state IN ('pending', 'sending') AND (due_at IS NULL OR kind = 'ack' AND about_id IS NOT NULL AND owed = 0)
    OR state IN ('sent', 'failed', 'held') AND due_at IS NOT NULL)
""",
    ),
    Rule(
        "stored-once",
        "One MessageId of a sender is stored once for as long as it is remembered",
        "D 4, 8; I1",
        """
WITH twice AS (
    SELECT p.partner_id, m.message_id FROM messaging_message m JOIN messaging_pair p ON p.id = m.pair_id
    JOIN partners_agreementversion v ON v.id = m.agreement_version_id
    WHERE m.direction = 'in' AND v.profile <> 'wsat' AND m.semantics = 'OnceAndOnlyOnce'
    GROUP BY 1, 2 HAVING count(*) > 1
), copies AS (
    SELECT t.partner_id, t.message_id, m.id, m.created_at, v.memory_window AS remembered,
        v.profile = 'repeatable' AS windowed,
        lag(m.id) OVER w AS id_before, lag(m.created_at) OVER w AS created_before,
        lag(v.memory_window) OVER w AS remembered_before
    FROM twice t JOIN messaging_message m ON m.message_id = t.message_id AND m.direction = 'in'
    JOIN messaging_pair p ON p.id = m.pair_id AND p.partner_id = t.partner_id
    JOIN partners_agreementversion v ON v.id = m.agreement_version_id
    WHERE m.semantics = 'OnceAndOnlyOnce' AND v.profile <> 'wsat'
    WINDOW w AS (PARTITION BY t.partner_id, t.message_id ORDER BY m.created_at)
)
SELECT partner_id, message_id, id, id_before, created_at, created_before FROM copies
WHERE id_before IS NOT NULL
AND (NOT windowed OR created_at - created_before <= make_interval(secs => least(remembered, remembered_before)))
""",
    ),
    Rule(
        "sent-once",
        "Each of our MessageIds belongs to one message",
        "D 3; I9",
        """
SELECT p.own_party_id, m.message_id, count(*) AS messages, array_agg(m.id ORDER BY m.id) AS ids
FROM messaging_message m JOIN messaging_pair p ON p.id = m.pair_id
JOIN partners_agreementversion v ON v.id = m.agreement_version_id
WHERE m.direction = 'out' AND v.profile <> 'wsat' AND m.semantics = 'OnceAndOnlyOnce'
GROUP BY 1, 2 HAVING count(*) > 1
""",
    ),
    Rule(
        "remembered",
        "The id of a reliable message that was accepted is remembered",
        "D 4, 8; I4; spec 1, 5.1 (9)",
        """
SELECT m.pair_id, m.id, m.message_id, m.created_at FROM messaging_message m JOIN messaging_pair p ON p.id = m.pair_id
JOIN partners_agreementversion v ON v.id = m.agreement_version_id
WHERE m.direction = 'in' AND m.sequence_number IS NOT NULL
AND NOT EXISTS (SELECT FROM messaging_messageidentity i
    WHERE i.scope_id = p.partner_id AND i.direction = 'in' AND i.message_id = m.message_id)
""",
    ),
    Rule(
        "identity",
        "A remembered id is the id of the message that it names",
        "D 4; I1",
        """
SELECT i.scope_id, i.direction, i.message_id, i.stored_id, m.message_id AS stored_message_id
FROM messaging_messageidentity i JOIN messaging_message m ON m.id = i.stored_id
WHERE m.message_id <> i.message_id OR m.direction <> i.direction
""",
    ),
    Rule(
        "requests-remembered",
        "A request that was taken is remembered, unless its day is forgotten",
        "D 8; I4; spec 2",
        """
SELECT m.pair_id, m.id, m.message_id, m.first_sent_at, r.message_id AS remembered_for, r.state
FROM messaging_message m JOIN messaging_pair p ON p.id = m.pair_id
JOIN partners_agreementversion v ON v.id = m.agreement_version_id
JOIN messaging_memoryepoch e ON m.first_sent_at >= e.forgotten_through
LEFT JOIN messaging_rememberedrequest r ON r.sender_id = p.partner_id AND r.request_id = m.message_id
    AND r.day = (m.first_sent_at AT TIME ZONE 'UTC')::date
WHERE m.direction = 'in' AND v.profile = 'repeatable' AND v.memory_window > 0 AND r.message_id IS DISTINCT FROM m.id
""",
    ),
    Rule(
        "requests",
        "What is remembered of a request fits together, and with the delivery that answers it",
        "I4, I6; spec 2",
        """
SELECT r.sender_id, r.request_id, r.day, r.state, r.status, r.message_id, r.delivery_id, d.state AS delivery_state
FROM messaging_rememberedrequest r LEFT JOIN messaging_delivery d ON d.id = r.delivery_id
LEFT JOIN messaging_message m ON m.id = r.message_id
WHERE r.day <> (r.first_sent AT TIME ZONE 'UTC')::date
OR r.state = 'answered' AND r.status IS NULL
OR r.state = 'forgotten' AND num_nonnulls(r.status, r.headers, r.body) > 0
OR r.state IN ('running', 'in_doubt') AND (m.id IS NULL OR r.delivery_id IS NOT NULL
    AND (d.id IS NULL OR d.state IN ('completed', 'failed', 'duplicate', 'discarded')))
""",
    ),
)
