"""Sends documents through a chain of hubs, kills routers meanwhile, and judges what became of them."""

from __future__ import annotations

import random
import time
from collections import Counter
from contextlib import closing
from dataclasses import asdict
from typing import Any

import psycopg

from messaging.choices import RouteMode
from messaging.demo import verdict
from messaging.demo.databases import Log
from messaging.demo.exchange import documents, hand_over
from rmhub.supervisor import Supervisor
from tests.worlds.chain import Chain
from tests.worlds.chain_seeding import TPA_ID


def run(
    chain: Chain,
    supervisor: Supervisor,
    *,
    messages: int,
    mode: str,
    kill: bool,
    seed: int,
    patience: float,
    log: Log = lambda line: None,
) -> dict[str, Any]:
    """The result, as `manage.py demo --hops` prints it. `patience`: seconds after which it gives up waiting.

    With `kill`, all processes of a router are killed at once when the first document has arrived and others are on
    their way; the rest is handed over while it is down.
    """
    chance = random.Random(seed)
    victims = [chance.choice(chain.routers)] if kill else []
    killed: Counter[str] = Counter()
    begun = time.monotonic()
    until = begun + patience
    submitted: set[str] = set()
    portions = _portions(messages, len(victims) + 1)
    for number, portion in enumerate(portions):
        log(f"submitting {portion} documents to {chain.sender.title}")
        before = len(submitted)
        submitted |= _submit(chain, portion, before)
        if number < len(victims):
            while _judge(chain, submitted).delivered <= before and time.monotonic() < until:
                time.sleep(0.05)
            victim = victims[number]
            killed.update(chain.kill(supervisor, victim))
            log(f"killed all processes of {victim.title}")
    while True:
        found = _judge(chain, submitted)
        passed_on = {hub.title: _passed_on(hub.database_url) for hub in chain.routers}
        if min(found.completed, found.delivered, *passed_on.values()) >= messages or time.monotonic() > until:
            break
        log(f"{found.delivered} of {messages} have arrived, {found.completed} are acknowledged to the sender")
        time.sleep(0.5)
    early = _acknowledged_before_arrival(chain.sender.database_url, chain.receiver.database_url)
    seconds = time.monotonic() - begun
    kept = found.promises_kept and found.completed == found.delivered == len(submitted) == messages
    kept = kept and all(count == messages for count in passed_on.values())
    if mode == RouteMode.CONFIRM_THROUGH:
        kept = kept and early == 0
    return {
        "hops": len(chain.hubs) - 1,
        "mode": mode,
        "submitted": len(submitted),
        **asdict(found),
        "acknowledged_before_arrival": early,
        "passed_on": passed_on,
        "killed": dict(killed),
        "seconds": round(seconds, 1),
        "promises_kept": kept,
    }


def _judge(chain: Chain, submitted: set[str]) -> verdict.Verdict:
    return verdict.judge([(chain.sender.database_url, chain.receiver.database_url, submitted)])


def _portions(total: int, count: int) -> list[int]:
    """`total` in `count` parts that differ by one at most; none is empty if there is enough."""
    return [total // count + (1 if number < total % count else 0) for number in range(count)]


def _submit(chain: Chain, count: int, first: int) -> set[str]:
    known = documents()
    with closing(chain.client()) as client:
        return {hand_over(client, TPA_ID, known[number % len(known)]) for number in range(first, first + count)}


def _acknowledged_before_arrival(sender_url: str, receiver_url: str) -> int:
    """How many messages the sender holds for delivered that the receiver had not stored by then, or has not at all.

    Both databases have their times from the same clock.
    """
    with psycopg.connect(sender_url) as sender, psycopg.connect(receiver_url) as receiver:
        done = sender.execute(
            "SELECT message_id, completed_at FROM messaging_message WHERE direction = 'out' AND state = 'delivered'"
        ).fetchall()
        received = receiver.execute("SELECT message_id, created_at FROM messaging_message WHERE direction = 'in'")
        stored = {row[0]: row[1] for row in received.fetchall()}
    return len([message_id for message_id, at in done if message_id not in stored or at < stored[message_id]])


def _passed_on(router_url: str) -> int:
    """How many of the messages that came to a router its next hop has acknowledged, each counted once."""
    with psycopg.connect(router_url) as router:
        (count,) = router.execute(
            "SELECT count(DISTINCT came.message_id) FROM messaging_message came"
            " JOIN messaging_message went ON went.forwarded_from_id = came.id AND went.message_id = came.message_id"
            " WHERE came.direction = 'in' AND went.direction = 'out' AND went.state = 'delivered'"
        ).fetchone() or (0,)
    return int(count)
