"""Atomic transactions (spec 5): what is told follows from the commit record, and nothing else."""

from __future__ import annotations

from messaging.invariants.rule import Rule

RULES = (
    Rule(
        "commit-record",
        "A transaction commits exactly when its commit record exists",
        "I8; spec 5, WS-AT",
        """
SELECT c.id AS coordination_id, c.identifier, c.phase, c.decided_at FROM messaging_coordination c
WHERE c.decided_at IS NOT NULL AND c.phase NOT IN ('committing', 'committed')
-- Where nobody has anything to commit, there is nothing to record.
OR c.decided_at IS NULL AND c.phase IN ('committing', 'committed') AND (c.delivery_id IS NOT NULL OR EXISTS (
    SELECT FROM messaging_enlistment e WHERE e.coordination_id = c.id AND NOT e.superior AND e.vote = 'prepared'))
""",
    ),
    Rule(
        "told-what-was-decided",
        "Participants are sent Commit with a commit record, and Rollback without one",
        "I8; spec 5, WS-AT",
        """
SELECT c.id AS coordination_id, c.phase, c.decided_at, m.kind, m.message_id, m.enlistment_id
FROM messaging_coordinationmessage m JOIN messaging_message s ON s.id = m.message_id AND s.direction = 'out'
JOIN messaging_coordination c ON c.id = m.coordination_id JOIN messaging_enlistment e ON e.id = m.enlistment_id
WHERE NOT e.superior AND (m.kind = 'Commit' AND c.decided_at IS NULL
    OR m.kind = 'Rollback' AND c.decided_at IS NOT NULL AND e.vote = 'prepared')
""",
    ),
    Rule(
        "participants-remembered",
        "A durable participant that voted Prepared is remembered until the transaction tells it the outcome",
        "I8; spec 5, WS-AT",
        """
SELECT c.id AS coordination_id, c.phase, e.id AS enlistment_id, e.seat, e.vote, c.ended_at
FROM messaging_coordination c JOIN messaging_enlistment e ON e.coordination_id = c.id
WHERE NOT e.superior AND (c.phase IN ('committed', 'aborted') AND e.seat <> 'none'
    OR c.phase IN ('preparing_v', 'preparing', 'deciding', 'prepared') AND e.protocol = 'Durable2PC'
        AND e.seat = 'none' AND e.vote = 'prepared' AND e.settled_as = '')
UNION ALL
SELECT id, phase, NULL, NULL, NULL, ended_at FROM messaging_coordination
WHERE (phase IN ('committed', 'aborted')) <> (ended_at IS NOT NULL)
""",
    ),
    Rule(
        "transaction-timer",
        "A transaction that only expiry can end has an expiry time, unless it needs a person",
        "D 7; I10",
        """
SELECT id AS coordination_id, phase, expires_at, due_at FROM messaging_coordination
WHERE phase IN ('active', 'preparing_v', 'preparing', 'deciding') AND due_at IS NULL AND doubtful_since IS NULL
""",
    ),
    Rule(
        "delivered-with-commit",
        "An atomic delivery is completed by one commit record, and by nothing else",
        "D 4; I8; spec 5",
        """
SELECT d.trigger_id, d.id AS delivery_id, d.state, count(c.id) AS commit_records
FROM messaging_delivery d JOIN messaging_trigger t ON t.id = d.trigger_id
JOIN messaging_coordination c ON c.delivery_id = d.id AND c.decided_at IS NOT NULL
WHERE t.kind = 'atomic' GROUP BY d.trigger_id, d.id, d.state
HAVING count(c.id) > 1 OR d.state NOT IN ('completed', 'settled')
""",
    ),
    Rule(
        "transaction-message-belongs",
        "A message of a transaction is in the store, and so are the transaction and the participant that it names",
        "I11",
        """
SELECT m.message_id, m.kind, m.coordination_id, m.enlistment_id FROM messaging_coordinationmessage m
WHERE NOT EXISTS (SELECT FROM messaging_message s WHERE s.id = m.message_id)
OR m.coordination_id IS NOT NULL AND NOT EXISTS (SELECT FROM messaging_coordination c WHERE c.id = m.coordination_id)
OR m.enlistment_id IS NOT NULL AND NOT EXISTS (SELECT FROM messaging_enlistment e WHERE e.id = m.enlistment_id)
""",
    ),
)
