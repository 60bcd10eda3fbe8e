"""The broker may be emptied at any moment: nothing is lost, and nothing is due longer than the sweep (2 s at most)."""

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
    client = stage.client(stage.buyer)
    document = exchange.documents()[0]
    ids: list[str] = []
    longest = 0.0
    with (
        psycopg.connect(stage.buyer.database_url, autocommit=True) as buyer,
        psycopg.connect(stage.seller.database_url, autocommit=True) as seller,
    ):
        for number in range(MESSAGES):
            answer = client.submit(
                key=str(uuid.uuid4()),
                agreement="tpa:demo:2",
                service=document.service,
                action=document.action,
                name=document.name,
                content=document.content,
            )
            ids.append(answer["message_id"])
            if number % 8 == 0:
                for broker in brokers:  # in mid-run: queues, wake-ups on their way, flags and bindings are gone
                    broker.flushall()
        until = time.monotonic() + 120
        while delivered(buyer, ids) < MESSAGES:
            assert time.monotonic() < until, "lost: not delivered after two minutes"
            longest = max(longest, overdue(buyer), overdue(seller))
            threading.Event().wait(0.05)
    for broker in brokers:
        broker.close()
    # Ten times the bound, because a test machine may have other work: without the sweep it would be for ever.
    assert longest <= 10 * SWEEP, f"something was due for {longest:.2f} s"


def delivered(connection: psycopg.Connection, ids: list[str]) -> int:
    """How many of these messages are acknowledged."""
    row = connection.execute(
        "SELECT count(*) FROM messaging_message WHERE state = 'delivered' AND message_id = ANY(%s)", [ids]
    ).fetchone()
    assert row is not None
    return int(row[0])


def overdue(connection: psycopg.Connection) -> float:
    """Seconds for which the oldest due pair or signal has been waiting for a worker."""
    row = connection.execute(
        "SELECT coalesce(max(extract(epoch FROM clock_timestamp() - due_at)), 0) FROM ("
        " SELECT due_at FROM messaging_pair WHERE due_at <= clock_timestamp() AND gate = 'open'"
        " UNION ALL SELECT due_at FROM messaging_signal WHERE due_at <= clock_timestamp()) AS due"
    ).fetchone()
    assert row is not None
    return float(row[0])
