"""The broker may be emptied at any moment: nothing is lost, and the sweep finds what nobody was woken for."""

from __future__ import annotations

from contextlib import closing

import psycopg
import pytest
import redis

from messaging.demo import exchange
from messaging.demo.stage import Stage
from rmhub.supervisor import Supervisor
from tests.rmhub.conditions import eventually

MESSAGES = 40

pytestmark = pytest.mark.acceptance


def test_emptying_the_broker_loses_nothing(hubs: tuple[Stage, Supervisor]) -> None:
    stage, _ = hubs
    brokers = [redis.Redis.from_url(hub.redis_url) for hub in (stage.buyer, stage.seller)]
    document = exchange.documents()[0]
    ids: list[str] = []
    with (
        psycopg.connect(stage.buyer.database_url, autocommit=True) as buyer,
        closing(stage.client(stage.buyer)) as client,
    ):
        for number in range(MESSAGES):
            ids.append(exchange.hand_over(client, "tpa:demo:2", document))
            if number % 8 == 0:
                for broker in brokers:  # in mid-run: queues, wake-ups on their way, flags and bindings are gone
                    broker.flushall()
        # Without the sweep it would be for ever.
        eventually(lambda: delivered(buyer, ids) == MESSAGES)
    for broker in brokers:
        broker.close()


def delivered(connection: psycopg.Connection, ids: list[str]) -> int:
    """How many of these messages are acknowledged."""
    row = connection.execute(
        "SELECT count(*) FROM messaging_message WHERE state = 'delivered' AND message_id = ANY(%s)", [ids]
    ).fetchone()
    assert row is not None
    return int(row[0])
