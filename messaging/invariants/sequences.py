"""Numbers of both directions: without gaps, in the order of the queue, and where the pair says that they are.

Every message of a pair has the next `position`. Where positions are missing, messages have left (purged, or released
as if they had never come), and as many numbers may have left with them.
"""

from __future__ import annotations

from messaging.invariants.rule import NEAR, Rule, named

LAST = 999_999_999


def _placed(direction: str) -> str:
    """All messages of the pairs, with how many of them are stored, and how many were sent, up to each."""
    return f"""
placed AS (
    SELECT id, pair_id, message_id, position, sequence_number AS number, tx_sequence_id AS stream, previous_number,
        created_at, state, row_number() OVER w AS place, count(*) FILTER (WHERE attempts > 0) OVER w AS sent
    FROM messaging_message WHERE direction = '{direction}' AND position > 0
    WINDOW w AS (PARTITION BY pair_id ORDER BY position)
)"""


_EBXML = """
numbered AS (
    SELECT p.*, lag(number) OVER w AS number_before, lag(message_id) OVER w AS message_before,
        lag(created_at) OVER w AS created_before,
        position - lag(position) OVER w - (place - lag(place) OVER w) AS gone
    FROM placed p WHERE number IS NOT NULL AND stream IS NULL
    WINDOW w AS (PARTITION BY pair_id ORDER BY position)
)"""
# Whatever lets the numbers of an inbound pair go on elsewhere than behind its newest message.
_MOVED = f"""
moved AS (
    SELECT pair_id, at, data->>'rule' AS why FROM messaging_event
    WHERE type = 'message.duplicate' AND data->>'rule' IN ('restarted', 'by-other-road')
    UNION ALL
    SELECT p.id, a.at, 'expected'
    FROM messaging_auditentry a JOIN messaging_pair p ON a.object_id = {named("pair", "p.id")}
    WHERE a.verb = 'pair.expect_sequence' AND a.result = 'done'
    UNION ALL
    -- What came after the backup is forgotten: the next message is taken whatever its number is.
    SELECT pair_id, at, 'forgotten' FROM messaging_event WHERE type = 'pair.needs_resync'
)"""
_STREAMS = """
numbered AS (
    SELECT p.*, lag(number) OVER w AS number_before, lag(message_id) OVER w AS message_before,
        lag(created_at) OVER w AS created_before,
        position - lag(position) OVER w - (place - lag(place) OVER w) AS gone,
        sent - lag(sent) OVER w - 1 AS sent_between
    FROM placed p WHERE number IS NOT NULL AND stream IS NOT NULL
    WINDOW w AS (PARTITION BY pair_id, stream ORDER BY position)
)"""

RULES = (
    Rule(
        "numbers-out",
        "What an ebXML pair sends is numbered in the order of submission, without gaps; a restart begins at 1",
        "D 3, 9; I3; spec 1, 2.2.2",
        f"""
WITH {_placed("out")}, {_EBXML}
SELECT pair_id, id, message_id, number, message_before, number_before, gone AS positions_gone FROM numbered
WHERE number_before IS NOT NULL AND number NOT IN (1, number_before + 1)
AND NOT (gone > 0 AND (number - number_before - 1 BETWEEN 0 AND gone OR number - 1 BETWEEN 0 AND gone))
""",
    ),
    Rule(
        "last-number-out",
        "An ebXML pair continues after the last number that it assigned, or restarts at 1",
        "D 3; spec 1, 2.2.2",
        """
SELECT p.id AS pair_id, p.last_sequence, m.id, m.message_id, m.sequence_number AS number_given_last
FROM messaging_pair p JOIN (
    SELECT DISTINCT ON (pair_id) pair_id, id, message_id, sequence_number FROM messaging_message
    WHERE direction = 'out' AND sequence_number IS NOT NULL AND tx_sequence_id IS NULL ORDER BY pair_id, position DESC
) m ON m.pair_id = p.id
WHERE p.direction = 'out' AND p.last_sequence NOT IN (0, m.sequence_number)
AND NOT EXISTS (SELECT FROM messaging_archivedmessage a WHERE a.pair_id = p.id AND a.state = 'archived'
    AND a.sequence_number = p.last_sequence)
""",
    ),
    Rule(
        "restarted-by-somebody",
        "An ebXML pair that restarted at 1 has an audit entry of a person, or had lost its memory",
        "D 9, 10; spec 1, 2.2.2 c",
        f"""
WITH kept AS (SELECT min(at) AS since FROM messaging_auditentry), {_placed("out")}, {_EBXML}
SELECT n.pair_id, n.id, n.message_id, n.message_before, n.number_before FROM numbered n, kept
WHERE n.number = 1 AND n.number_before < {LAST} AND n.created_before >= coalesce(kept.since, '-infinity')
AND NOT EXISTS (SELECT FROM messaging_auditentry a WHERE a.object_type = 'pair'
    AND a.object_id = {named("pair", "n.pair_id")} AND a.at >= n.created_before - {NEAR}
    AND a.verb IN ('pair.restart_sequence', 'pair.skip_head', 'message.cancel'))
AND NOT EXISTS (SELECT FROM messaging_event e WHERE e.pair_id = n.pair_id AND e.type = 'pair.needs_resync'
    AND e.at >= n.created_before - {NEAR})
""",
    ),
    Rule(
        "numbers-in",
        "What was accepted on an ebXML pair has numbers without gaps; a reset begins at 1",
        "D 4; I3; spec 1, 5.2",
        f"""
WITH {_placed("in")}, {_EBXML}, odd AS (
    SELECT * FROM numbered WHERE number_before IS NOT NULL AND number NOT IN (1, number_before + 1)
), {_MOVED}, judged AS (
    SELECT odd.*, (SELECT count(*) FROM moved m WHERE m.pair_id = odd.pair_id
            AND m.at BETWEEN created_before - {NEAR} AND created_at + {NEAR}) AS moves,
        EXISTS (SELECT FROM moved m WHERE m.pair_id = odd.pair_id AND m.why IN ('expected', 'forgotten')
            AND m.at BETWEEN created_before - {NEAR} AND created_at + {NEAR}) AS anywhere
    FROM odd
)
SELECT pair_id, id, message_id, number, message_before, number_before, gone AS positions_gone FROM judged
WHERE NOT anywhere
AND NOT (number - number_before - 1 BETWEEN 0 AND gone + moves OR number - 1 BETWEEN 0 AND gone + moves)
""",
    ),
    Rule(
        "last-number-in",
        "An ebXML pair expects what follows the message that it accepted last",
        "I3; spec 1, 5.2",
        f"""
WITH {_MOVED}
SELECT p.id AS pair_id, p.last_sequence, p.last_message_id, m.id, m.message_id, m.sequence_number AS accepted_last
FROM messaging_pair p JOIN (
    SELECT DISTINCT ON (pair_id) pair_id, id, message_id, sequence_number, created_at FROM messaging_message
    WHERE direction = 'in' AND sequence_number IS NOT NULL AND tx_sequence_id IS NULL ORDER BY pair_id, position DESC
) m ON m.pair_id = p.id
WHERE p.direction = 'in' AND (p.last_sequence <> m.sequence_number OR p.last_message_id <> m.message_id)
AND NOT EXISTS (SELECT FROM moved WHERE moved.pair_id = p.id AND moved.at >= m.created_at - {NEAR}
    AND moved.why <> 'forgotten')
AND NOT EXISTS (SELECT FROM messaging_archivedmessage a WHERE a.pair_id = p.id AND a.state = 'archived'
    AND a.message_id = p.last_message_id)
""",
    ),
    Rule(
        "numbers-stream-out",
        "What goes out in one stream is numbered in the order of submission, without gaps",
        "D 3; I3; spec 3",
        f"""
WITH {_placed("out")}, {_STREAMS}
SELECT pair_id, stream, id, message_id, number, message_before, number_before FROM numbered
WHERE number_before IS NOT NULL
AND (number <= number_before OR number - number_before - 1 > gone + greatest(sent_between, 0))
""",
    ),
    Rule(
        "stream-out",
        "Messages in flight on a stream have numbers of this stream, after those acknowledged and before the next",
        "I3; spec 3, 3.4",
        """
SELECT m.pair_id, m.id, m.message_id, m.tx_sequence_id AS stream, m.sequence_number AS number,
    s.tx_sequence_id AS pair_sends_under, s.acked_number, s.next_number
FROM messaging_message m LEFT JOIN messaging_outgoingstream s ON s.pair_id = m.pair_id
WHERE m.direction = 'out' AND m.state IN ('sending', 'awaiting_ack', 'retrying') AND m.tx_sequence_id IS NOT NULL
AND (s.pair_id IS NULL OR m.tx_sequence_id <> s.tx_sequence_id
    OR m.sequence_number <= s.acked_number OR m.sequence_number >= s.next_number)
UNION ALL
SELECT s.pair_id, NULL, NULL, s.tx_sequence_id, NULL, s.tx_sequence_id, s.acked_number, s.next_number
FROM messaging_outgoingstream s WHERE s.acked_number >= s.next_number
""",
    ),
    Rule(
        "stream-in",
        "What was accepted in a stream is not newer than the stream says",
        "I3; spec 3, 3.1.5.8.6",
        """
SELECT m.pair_id, m.stream, m.number FROM (
    SELECT DISTINCT ON (pair_id) pair_id, tx_sequence_id AS stream, sequence_number AS number
    FROM messaging_message WHERE direction = 'in' AND tx_sequence_id IS NOT NULL
    ORDER BY pair_id, tx_sequence_id DESC, sequence_number DESC
) m
WHERE NOT EXISTS (SELECT FROM messaging_incomingstream s WHERE s.pair_id = m.pair_id
    AND (s.tx_sequence_id, s.number) >= (m.stream, m.number))
""",
    ),
    Rule(
        "numbers-stream-in",
        "What was accepted in one stream follows what its sender had sent before it: nothing was left out",
        "D 4; I3; spec 3, 3.1.5.8.6",
        f"""
WITH alone AS (
    SELECT pair_id FROM messaging_incomingstream GROUP BY pair_id HAVING count(*) = 1
), {_placed("in")}, {_STREAMS}, odd AS (
    SELECT numbered.* FROM numbered JOIN alone USING (pair_id)
    WHERE previous_number >= number OR number_before IS NOT NULL
        AND (number <= number_before OR previous_number > number_before AND gone = 0)
)
SELECT pair_id, stream, id, message_id, number, previous_number, message_before, number_before FROM odd
WHERE number <= number_before OR previous_number >= number OR NOT EXISTS (
    -- A copy that took a number of its own advanced the stream without a message.
    SELECT FROM messaging_event e WHERE e.type = 'message.duplicate' AND e.pair_id = odd.pair_id
    AND e.at BETWEEN created_before - {NEAR} AND created_at + {NEAR})
""",
    ),
    Rule(
        "positions",
        "Every message has its own position in its pair, below the pair's next one",
        "I11",
        """
SELECT p.id AS pair_id, p.next_position, m.last_position, m.messages, m.places
FROM messaging_pair p JOIN (
    SELECT pair_id, max(position) AS last_position, count(*) AS messages, count(DISTINCT position) AS places
    FROM messaging_message WHERE position > 0 GROUP BY pair_id
) m ON m.pair_id = p.id
WHERE m.last_position >= p.next_position OR m.places < m.messages
""",
    ),
    Rule(
        "order-of-conversations",
        "What a conversation with an order hands on follows what was handed on before it; a reset begins at 0",
        "I3; ebXML Messaging 2.0, 9.1",
        """
WITH turns AS (
    SELECT m.pair_id, m.id, m.message_id, m.conversation_id, m.order_number AS number, m.position,
        lag(m.order_number) OVER w AS number_before, lag(m.message_id) OVER w AS message_before
    FROM messaging_message m WHERE m.order_number IS NOT NULL AND m.direction = 'in' AND m.state = 'received'
    WINDOW w AS (PARTITION BY m.pair_id, m.conversation_id ORDER BY m.position)
)
SELECT pair_id, conversation_id, id, message_id, number, message_before, number_before FROM turns t
WHERE number_before IS NOT NULL AND number NOT IN (0, number_before + 1)
AND NOT EXISTS (SELECT FROM messaging_incident i WHERE i.pair_id = t.pair_id
    AND i.cause IN ('order_given_up', 'needs_resync'))
AND NOT EXISTS (SELECT FROM messaging_archivedmessage a WHERE a.pair_id = t.pair_id)
""",
    ),
)
