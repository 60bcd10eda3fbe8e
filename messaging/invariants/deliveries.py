"""Documents on their way to applications, the document history, and people's decisions."""

from __future__ import annotations

from messaging.invariants.rule import Rule, named

_HISTORY_SAID_ABSENT = """'[{"step": "history", "finding": "absent"}]'"""

RULES = (
    Rule(
        "processed-once",
        "A document that the history did not know is processed by a trigger once",
        "D 4; I1; spec 4, step 2",
        f"""
WITH done AS (
    SELECT id, trigger_id, sender_id, document_id, started_at, completed_at, evidence,
        lag(id) OVER w AS id_before, lag(completed_at) OVER w AS completed_before
    FROM messaging_delivery WHERE state = 'completed' AND verdict = 'new' AND document_id <> ''
    AND resubmission_of_id IS NULL
    WINDOW w AS (PARTITION BY trigger_id, sender_id, document_id ORDER BY completed_at)
)
SELECT trigger_id, sender_id, document_id, id, started_at, id_before, completed_before FROM done
WHERE id_before IS NOT NULL AND evidence @> {_HISTORY_SAID_ABSENT}
AND NOT evidence @> '[{{"step": "resolver"}}]' AND NOT evidence @> '[{{"step": "operator"}}]'
AND started_at BETWEEN completed_before AND completed_before + interval '1 day'
""",
    ),
    Rule(
        "processed-is-known",
        "What a trigger has processed is in its history, so that a copy is a duplicate",
        "D 4; I5; spec 4, step 2",
        f"""
SELECT d.trigger_id, d.id AS delivery_id, d.sender_id, d.document_id, d.completed_at
FROM messaging_delivery d JOIN messaging_trigger t ON t.id = d.trigger_id
WHERE d.state = 'completed' AND d.verdict = 'new' AND d.document_id <> '' AND t.use_history AND t.detect_duplicates
AND d.evidence @> {_HISTORY_SAID_ABSENT} AND d.completed_at > now() - interval '1 day'
AND NOT EXISTS (SELECT FROM messaging_documentcompleted c WHERE c.trigger_id = d.trigger_id
    AND c.sender_id = d.sender_id AND c.document_id = d.document_id)
""",
    ),
    Rule(
        "begun-or-done",
        "No document is both started and completed by the same delivery",
        "I5; spec 4, step 2",
        """
SELECT s.trigger_id, s.sender_id, s.document_id, s.delivery_id FROM messaging_documentstarted s
JOIN messaging_documentcompleted c USING (trigger_id, sender_id, document_id) WHERE c.delivery_id = s.delivery_id
""",
    ),
    Rule(
        "begun-by-somebody",
        "A started document belongs to a delivery that is under way, in doubt, or resubmitted",
        "I5; spec 4, step 2",
        """
SELECT s.trigger_id, s.sender_id, s.document_id, s.delivery_id, d.state
FROM messaging_documentstarted s JOIN messaging_trigger t ON t.id = s.trigger_id
LEFT JOIN messaging_delivery d ON d.id = s.delivery_id
WHERE t.use_history AND t.detect_duplicates AND (d.id IS NULL OR NOT (d.state IN ('waiting', 'running', 'in_doubt')
    OR d.state = 'settled' AND EXISTS (SELECT FROM messaging_delivery n WHERE n.resubmission_of_id = d.id
        AND n.state IN ('waiting', 'running', 'in_doubt'))))
""",
    ),
    Rule(
        "delivery-state",
        "A delivery under way has a due time; one that has ended has an end time",
        "D 7; I10, I11",
        """
SELECT d.trigger_id, d.id AS delivery_id, d.state, d.due_at, d.claim, d.completed_at, d.doubt
FROM messaging_delivery d JOIN messaging_trigger t ON t.id = d.trigger_id
WHERE d.state = 'waiting' AND (d.due_at IS NULL OR d.claim IS NOT NULL)
OR d.state = 'running' AND (d.claim IS NULL OR d.started_at IS NULL OR d.due_at IS NULL AND t.kind <> 'atomic')
OR d.state IN ('completed', 'failed', 'duplicate', 'discarded', 'settled', 'in_doubt')
    AND (d.completed_at IS NULL OR d.due_at IS NOT NULL)
OR d.state = 'in_doubt' AND d.doubt = ''
OR d.state = 'settled' AND (d.decision = '' OR d.decided_by = '' OR d.decided_at IS NULL)
OR d.state = 'joined' AND d.part_of_id IS NULL
""",
    ),
    Rule(
        "delivered-what-was-received",
        "A delivery belongs to a message that was received on its pair and exists",
        "D 4; I11",
        """
SELECT d.trigger_id, d.id AS delivery_id, d.message_id, m.direction, d.pair_id, m.pair_id AS received_on
FROM messaging_delivery d LEFT JOIN messaging_message m ON m.id = d.message_id
WHERE m.id IS NULL OR m.direction <> 'in' OR m.pair_id <> d.pair_id
""",
    ),
    Rule(
        "delivery-belongs",
        "The trigger of a delivery exists, and of what is begun; so do its join and the delivery that it repeats",
        "I11",
        """
SELECT 'delivery' AS what, d.id, d.trigger_id, d.join_id, d.part_of_id, d.resubmission_of_id FROM messaging_delivery d
WHERE NOT EXISTS (SELECT FROM messaging_trigger t WHERE t.id = d.trigger_id)
OR d.join_id IS NOT NULL AND NOT EXISTS (SELECT FROM messaging_join j WHERE j.id = d.join_id)
OR d.part_of_id IS NOT NULL AND NOT EXISTS (SELECT FROM messaging_join j WHERE j.id = d.part_of_id)
OR d.resubmission_of_id IS NOT NULL
    AND NOT EXISTS (SELECT FROM messaging_delivery o WHERE o.id = d.resubmission_of_id)
UNION ALL
SELECT 'begun', s.delivery_id, s.trigger_id, NULL, NULL, NULL FROM messaging_documentstarted s
WHERE NOT EXISTS (SELECT FROM messaging_trigger t WHERE t.id = s.trigger_id)
""",
    ),
    Rule(
        "webhook-belongs",
        "What is owed to a webhook endpoint went with the endpoint",
        "I11",
        """
SELECT d.id AS webhook_delivery_id, d.endpoint_id, d.state FROM messaging_webhookdelivery d
WHERE NOT EXISTS (SELECT FROM messaging_webhookendpoint e WHERE e.id = d.endpoint_id)
""",
    ),
    Rule(
        "once-per-document",
        "A document goes to a trigger in one delivery; only a person's resubmission makes another",
        "D 4; I1, I6",
        """
-- Two that are no resubmissions cannot be: a constraint holds that.
SELECT r.trigger_id, r.message_id, r.id AS delivery_id, o.id AS resubmission_of, o.state, o.decision
FROM messaging_delivery r
JOIN messaging_delivery o ON o.id = r.resubmission_of_id WHERE o.state <> 'settled' OR o.decision <> 'resubmit'
""",
    ),
    Rule(
        "joins",
        "Documents wait in a join while it is open, and one that fired has its firing",
        "spec 4; protocols 4.6",
        """
SELECT j.trigger_id, j.id AS join_id, j.state, j.activation, d.id AS delivery_id
FROM messaging_delivery d JOIN messaging_join j ON j.id = d.part_of_id WHERE d.state = 'joined' AND j.state <> 'open'
UNION ALL
SELECT j.trigger_id, j.id, j.state, j.activation, NULL FROM messaging_join j
WHERE j.state = 'fired' AND NOT EXISTS (SELECT FROM messaging_delivery d WHERE d.join_id = j.id)
AND EXISTS (SELECT FROM messaging_delivery d WHERE d.part_of_id = j.id)
""",
    ),
    Rule(
        "settled-by-somebody",
        "What a person decided is in the audit log",
        "D 10",
        f"""
WITH kept AS (SELECT min(at) AS since FROM messaging_auditentry)
SELECT 'delivery' AS what, d.id, d.decision, d.decided_by, d.decided_at FROM messaging_delivery d, kept
WHERE d.state = 'settled' AND d.decided_at >= coalesce(kept.since, '-infinity')
AND NOT EXISTS (SELECT FROM messaging_auditentry a WHERE a.object_type = 'delivery'
    AND a.object_id = {named("del", "d.id")} AND a.actor = d.decided_by)
UNION ALL
SELECT 'enlistment', e.id, e.settled_as, e.settled_by, e.settled_at FROM messaging_enlistment e, kept
WHERE e.settled_as <> '' AND e.settled_at >= coalesce(kept.since, '-infinity')
AND NOT EXISTS (SELECT FROM messaging_auditentry a WHERE a.object_type = 'coordination'
    AND a.object_id = {named("txn", "e.coordination_id")} AND a.actor = e.settled_by)
UNION ALL
-- Messages of transactions (spec 5) are also taken back by the hub, when nobody needs them any more.
SELECT 'message', m.id, m.state, NULL, m.completed_at
FROM messaging_message m JOIN partners_agreementversion v ON v.id = m.agreement_version_id, kept
WHERE m.direction = 'out' AND m.state IN ('skipped', 'cancelled') AND v.profile <> 'wsat'
AND m.completed_at >= coalesce(kept.since, '-infinity')
AND NOT EXISTS (SELECT FROM messaging_auditentry a WHERE a.object_type = 'message'
    AND a.object_id = {named("msg", "m.id")} AND a.verb IN ('message.cancel', 'message.settle_resubmit'))
AND NOT EXISTS (SELECT FROM messaging_auditentry a WHERE a.object_type = 'pair'
    AND a.object_id = {named("pair", "m.pair_id")} AND a.verb IN ('message.cancel', 'pair.skip_head')
    AND (a.before->>'message' = {named("msg", "m.id")} OR a.before->>'message_id' = m.message_id))
UNION ALL
SELECT 'pair', p.id, p.gate, NULL, p.changed_at FROM messaging_pair p, kept
WHERE p.gate = 'paused' AND p.created_at >= coalesce(kept.since, '-infinity')
AND NOT EXISTS (SELECT FROM messaging_auditentry a WHERE a.object_type = 'pair'
    AND a.object_id = {named("pair", "p.id")} AND a.verb = 'pair.pause')
""",
    ),
    Rule(
        "doubts-audited",
        "Everything in doubt is in the audit log, with the reason, from the moment it became so",
        "D 10; spec 4",
        f"""
SELECT 'delivery' AS what, d.id, d.trigger_id AS belongs_to, d.doubt AS cause FROM messaging_delivery d
WHERE d.state = 'in_doubt' AND NOT EXISTS (SELECT FROM messaging_auditentry a WHERE a.object_type = 'delivery'
    AND a.object_id = {named("del", "d.id")} AND a.verb = 'delivery.in_doubt')
UNION ALL
SELECT 'message', m.id, m.pair_id, m.cause FROM messaging_message m
WHERE m.state = 'in_doubt' AND NOT EXISTS (SELECT FROM messaging_auditentry a WHERE a.object_type = 'message'
    AND a.object_id = {named("msg", "m.id")} AND a.verb = 'message.in_doubt')
UNION ALL
SELECT 'coordination', e.id, e.coordination_id, e.doubt FROM messaging_enlistment e
WHERE e.doubt <> '' AND NOT EXISTS (SELECT FROM messaging_auditentry a WHERE a.object_type = 'coordination'
    AND a.object_id = {named("txn", "e.coordination_id")} AND a.verb = 'coordination.in_doubt')
""",
    ),
    Rule(
        "audit-numbers",
        "Entries of the audit log are numbered without gaps, and sealed ones have a digest (`audit verify` proves it)",
        "D 10",
        """
WITH sealed AS (
    SELECT id, number, digest, lag(number) OVER (ORDER BY number) AS number_before FROM messaging_auditentry
    WHERE number IS NOT NULL
)
SELECT id, number, number_before, digest FROM sealed WHERE number <> number_before + 1 OR length(digest) <> 64
UNION ALL
SELECT id, number, NULL, digest FROM messaging_auditentry WHERE number IS NULL AND digest <> ''
""",
    ),
)
