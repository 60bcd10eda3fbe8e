"""The broker may be emptied at any moment: nothing is lost, and nothing waits longer than the sweep (2 s at most)."""

from __future__ import annotations

import threading
import time
import uuid

import psycopg
import pytest
import redis

from messaging.demo import exchange
from messaging.demo.stage import Stage
from rmhub.supervisor import Supervisor

MESSAGES = 40
SWEEP = 2.0

pytestmark = pytest.mark.acceptance


def test_emptying_the_broker_loses_nothing_and_delays_nothing_longer_than_the_sweep(
    hubs: tuple[Stage, Supervisor],
) -> None:
    stage, _ = hubs
    brokers = [redis.Redis.from_url(hub.redis_url) for hub in (stage.buyer, stage.seller)]
    stop = threading.Event()

    def empty() -> None:
        # In step with nothing: wake-ups, their flags and the sweep's own tasks are hit at every phase.
        while not stop.wait(0.37):
            for broker in brokers:
                broker.flushdb()

    vandal = threading.Thread(target=empty)
    vandal.start()
    try:
        client = stage.client(stage.buyer)
        document = exchange.documents()[0]
        ids = [
            client.submit(
                key=str(uuid.uuid4()),
                agreement="tpa:demo:2",
                service=document.service,
                action=document.action,
                name=document.name,
                content=document.content,
            )["message_id"]
            for _ in range(MESSAGES)
        ]
        # Each message takes two wake-ups at most that can be lost: its own and its acknowledgement's.
        longest = wait_until_delivered(stage, ids, within=MESSAGES * 2 * SWEEP)
    finally:
        stop.set()
        vandal.join()
        for broker in brokers:
            broker.close()
    assert longest <= 2 * SWEEP, f"{longest:.2f} s from the first transmission to the acknowledgement"


def wait_until_delivered(stage: Stage, ids: list[str], *, within: float) -> float:
    """Seconds from first transmission to acknowledgement of the slowest; fails when some are not delivered in time."""
    until = time.monotonic() + within
    with psycopg.connect(stage.buyer.database_url, autocommit=True) as buyer:
        while True:
            row = buyer.execute(
                "SELECT count(*), coalesce(max(extract(epoch FROM completed_at - first_sent_at)), 0)"
                " FROM messaging_message WHERE state = 'delivered' AND message_id = ANY(%s)",
                [ids],
            ).fetchone()
            assert row is not None
            if row[0] == len(ids):
                return float(row[1])
            assert time.monotonic() < until, f"{row[0]} of {len(ids)} delivered after {within} s"
            threading.Event().wait(0.1)
