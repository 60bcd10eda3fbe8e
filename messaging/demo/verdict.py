"""The demo's judge: reads both databases with plain SQL, apart from the code that it judges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import psycopg

from messaging import invariants


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of the submitted messages. `completed`: the sender has the acknowledgement. Times in milliseconds.

    `messages_in_doubt` (repeatable profile): the partner's memory was over before it answered.
    """

    delivered: int
    completed: int
    delivered_twice: int
    lost: int
    out_of_order: int
    suspended: int
    messages_in_doubt: int
    p50_ms: float
    p99_ms: float

    @property
    def promises_kept(self) -> bool:
        return not (self.delivered_twice or self.lost or self.out_of_order)


def judge(directions: list[tuple[str, str, set[str]]], *, ordered: bool = True) -> Verdict:
    """Judges (sender's database, receiver's database, MessageIds that were answered "accepted") for each direction.

    Pairs that are not `ordered` may deliver in any order.
    """
    totals: Counter[str] = Counter()
    latencies: list[float] = []
    for sender_url, receiver_url, submitted in directions:
        with psycopg.connect(sender_url) as sender, psycopg.connect(receiver_url) as receiver:
            _judge_one(sender, receiver, submitted, totals, latencies)
    latencies.sort()
    return Verdict(
        delivered=totals["delivered"],
        completed=totals["completed"],
        delivered_twice=totals["twice"],
        lost=totals["lost"],
        out_of_order=totals["order"] if ordered else 0,
        suspended=totals["suspended"],
        messages_in_doubt=totals["doubt"],
        p50_ms=_quantile(latencies, 0.5),
        p99_ms=_quantile(latencies, 0.99),
    )


def contradictions(hubs: Mapping[str, str]) -> list[str]:
    """What in these databases (hub -> URL) contradicts the invariants, a line for each violation that is shown."""
    return [
        f"{hub}: {found.rule.id}, {found.count} times: {row}"
        for hub, url in hubs.items()
        for found in invariants.check_url(url, invariants.RULES)
        for row in found.rows
    ]


def unfinished(hubs: Mapping[str, str]) -> list[str]:
    """What these databases (hub -> URL) have that is still under way, a line for each message or pair."""
    lines = []
    for hub, url in hubs.items():
        with psycopg.connect(url) as connection:
            for (row,) in connection.execute(_UNFINISHED).fetchall():
                lines.append(f"{hub}: {row}")
    return lines


_UNFINISHED = """
SELECT format('message %s, %s %s, number %s, attempts %s, due %s; pair %s %s, %s and %s, in flight %s, due %s; now %s',
    m.id, m.direction, m.state, m.sequence_number, m.attempts, m.due_at,
    p.id, p.direction, p.flow, p.gate, p.in_flight_id, p.due_at, now())
FROM messaging_message m JOIN messaging_pair p ON p.id = m.pair_id WHERE m.completed_at IS NULL AND m.direction = 'out'
ORDER BY m.id LIMIT 50
"""


def _judge_one(
    sender: psycopg.Connection[tuple[object, ...]],
    receiver: psycopg.Connection[tuple[object, ...]],
    submitted: set[str],
    totals: Counter[str],
    latencies: list[float],
) -> None:
    sent = sender.execute(
        "SELECT m.message_id, p.sender_uri || ' ' || p.receiver_uri, m.position, m.state,"
        " extract(epoch FROM m.completed_at - m.first_sent_at) * 1000"
        " FROM messaging_message m JOIN messaging_pair p ON p.id = m.pair_id WHERE m.direction = 'out'"
    ).fetchall()
    received = receiver.execute(
        "SELECT m.message_id, p.sender_uri || ' ' || p.receiver_uri, m.position"
        " FROM messaging_message m JOIN messaging_pair p ON p.id = m.pair_id WHERE m.direction = 'in'"
        " ORDER BY m.position"
    ).fetchall()
    stored = {row[0] for row in sent}
    copies = Counter(row[0] for row in received)
    totals["delivered"] += sum(1 for message_id in copies if message_id in stored)
    totals["twice"] += sum(1 for count in copies.values() if count > 1)
    # Answered "accepted" and then not in the sender's store: lost. Acknowledged, and not in the receiver's: lost too.
    totals["lost"] += len(submitted - stored)
    for message_id, _, _, state, milliseconds in sent:
        if state == "delivered":
            totals["completed"] += 1
            totals["lost"] += message_id not in copies
            latencies.append(float(str(milliseconds)))
        totals["doubt"] += state == "in_doubt"
    place = {row[0]: row[2] for row in sent}
    last: dict[object, int] = {}
    for message_id, pair, _ in received:
        position = int(str(place.get(message_id, 0)))
        totals["order"] += position < last.get(pair, 0)
        last[pair] = max(position, last.get(pair, 0))
    (suspended,) = sender.execute(
        "SELECT count(*) FROM messaging_pair WHERE direction = 'out' AND flow = 'suspended'"
    ).fetchone() or (0,)
    totals["suspended"] += int(str(suspended))


def _quantile(ordered: list[float], share: float) -> float:
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 1) if ordered else 0.0
