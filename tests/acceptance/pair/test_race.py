"""The same message twice at the same moment, through the real web server: delivered once, acknowledged twice."""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import psycopg
import pytest
import urllib3

from messaging.demo.seeding import BUYER, ORDERS, SELLER, tpa_id
from messaging.demo.stage import Stage
from messaging.protocol.codecs import ebxml
from messaging.protocol.envelope import Envelope, MessageType, PartyId, PayloadPart, RoutingHeader, Semantics
from rmhub.supervisor import Supervisor
from tests.partners.factories import basic
from tests.sizes import ALL

TRIALS = 1000 if ALL else 200

pytestmark = pytest.mark.acceptance


def message(stage: Stage, number: int) -> tuple[str, str, bytes]:
    """MessageId, content type and body of the number-th reliable message from the buyer to the seller."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    message_id = f"race-{number}@{stage.buyer.port}.buyer.example"
    envelope = Envelope(
        message_type=MessageType.NORMAL,
        message_id=message_id,
        timestamp=now,
        from_parties=(PartyId(BUYER.identifier[1], BUYER.identifier[0]),),
        to_parties=(PartyId(SELLER.identifier[1], SELLER.identifier[0]),),
        agreement_id=tpa_id(1),
        conversation_id="race",
        service=ORDERS,
        action="Order",
        semantics=Semantics.ONCE_AND_ONLY_ONCE,
        routing=(
            RoutingHeader(
                f"{BUYER.uri}/ebxml/msh/1",
                f"{SELLER.uri}/ebxml/msh/1",
                f"{BUYER.uri}/ebxml/errors/1",
                now,
                number,
            ),
        ),
        payloads=(PayloadPart("order@buyer.example", "application/xml", b"<Order/>" * 250),),
    )
    wire = ebxml.encode(envelope)
    return message_id, wire.content_type, wire.join([part.content for part in envelope.payloads])


def test_two_copies_at_once_are_one_delivery_and_two_acknowledgements(hubs: tuple[Stage, Supervisor]) -> None:
    stage, _ = hubs
    pool = urllib3.PoolManager(maxsize=2, retries=False)
    headers = {"Authorization": basic("partner", stage.secrets["a_to_b"])}
    barrier = threading.Barrier(2)

    def post(content_type: str, body: bytes) -> int:
        barrier.wait()
        answer = pool.request(
            "POST",
            f"{stage.seller.url}/ebxml/msh/1",
            body=body,
            headers={**headers, "Content-Type": content_type},
            timeout=300,
        )
        assert answer.data == b""
        return answer.status

    sent = []
    with ThreadPoolExecutor(2) as threads:
        for number in range(1, TRIALS + 1):
            message_id, content_type, body = message(stage, number)
            sent.append(message_id)
            both = [threads.submit(post, content_type, body) for _ in range(2)]
            assert [copy.result() for copy in both] == [204, 204]

    with psycopg.connect(stage.seller.database_url) as seller:
        stored = Counter(
            row[0]
            for row in seller.execute("SELECT message_id FROM messaging_message WHERE direction = 'in'").fetchall()
        )
    assert {message_id: stored[message_id] for message_id in sent} == dict.fromkeys(sent, 1)
    assert acknowledgements(stage, set(sent)) == dict.fromkeys(sent, 2)


def acknowledgements(stage: Stage, wanted: set[str], within: float = 180) -> dict[str, int]:
    """How many acknowledgements the buyer's hub has received for each MessageId; waits until there are two each."""
    until = time.monotonic() + within
    with psycopg.connect(stage.buyer.database_url, autocommit=True) as buyer:
        while True:
            rows = buyer.execute(
                "SELECT ref_to_message_id, count(*) FROM messaging_signal WHERE kind = 'ack' AND direction = 'in'"
                " AND ref_to_message_id = ANY(%s) GROUP BY 1",
                [list(wanted)],
            ).fetchall()
            if sum(row[1] for row in rows) >= 2 * len(wanted) or time.monotonic() > until:
                return {row[0]: row[1] for row in rows}
            threading.Event().wait(0.2)
