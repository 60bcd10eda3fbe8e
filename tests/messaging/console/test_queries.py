"""A list costs the same queries however long it is, and none of them counts or skips over the message store."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from messaging.bulk.services import jobs
from messaging.journal import incidents
from messaging.models import Pair
from partners import registry
from rmhub import clock
from rmhub.clock import FrozenClock
from tests.messaging.console.scenes import (
    ANA,
    World,
    browser,
    delivered,
    doubtful,
    lost,
    stop,
    suspended,
    trigger_for,
)
from tests.messaging.factories import link, partner_side, submit, work

pytestmark = pytest.mark.django_db
LISTS = (
    "/",
    "/pairs/",
    "/messages/",
    "/in-doubt/",
    "/in-doubt/?tab=outbound",
    "/incidents/",
    "/servers/",
    "/triggers/",
    "/deliveries/",
    "/transactions/",
    "/in-doubt/?tab=transactions",
    "/jobs/",
    "/live/",
    "/partners/",
    "/agreements/",
    "/reports/",
    "/pipeline/",
    "/reconciliation/",
    "/archive/",
    "/holds/",
    "/retention/",
    "/rejections/",
    "/audit/",
    "/tokens/",
)


def _queries(client: Client, url: str) -> list[str]:
    client.get(url)  # fills what processes remember
    with CaptureQueriesContext(connection) as captured:
        assert client.get(url).status_code == 200
    return [query["sql"] for query in captured.captured_queries]


def _grow(time: FrozenClock) -> None:
    for _ in range(3):
        partner = suspended(time)
        delivered(partner_side())
        submit(partner)
        partner.send(partner.message(1))
        partner.send(partner.message(7))
        with link():
            work()
        incidents.incident_open(pair=partner.inbound, cause="out_of_sequence", now=clock.now())
        _grow_applications(time)
    registry.reset()


def _grow_applications(time: FrozenClock) -> None:
    (message,) = lost(time)
    apps = partner_side()
    queue = trigger_for(apps, f"queue {apps.terms.tpa_id}", ordered=False)
    stop(trigger_for(apps, f"stopped {apps.terms.tpa_id}"))
    found = doubtful(queue, apps, f"{message.message_id}.1", f"{message.message_id}.2")
    jobs.job_create(
        action="settle_deliveries",
        parameters={"decision": "duplicate"},
        ids=[one.pk for one in found],
        actor=ANA,
        reason="look at the list",
    )


def test_a_list_costs_the_same_however_long_it_is(scene: World, time: FrozenClock) -> None:
    client = browser()
    before = {url: len(_queries(client, url)) for url in LISTS}
    _grow(time)
    assert {url: len(_queries(client, url)) for url in LISTS} == before
    assert {url for url, count in before.items() if count > 31} == {"/"} and before["/"] <= 45


def test_detail_pages_cost_the_same_however_much_happened(scene: World, time: FrozenClock) -> None:
    client = browser()
    urls = [f"/pairs/{scene.pair.code}/", f"/messages/{scene.outbound.public_id}/", f"/incidents/{scene.incident}/"]
    before = [len(_queries(client, url)) for url in urls]
    for _ in range(5):
        submit(scene.suspended)
        submit(scene.flowing, conversation_id=scene.outbound.conversation_id)
    assert [len(_queries(client, url)) for url in urls] == before
    assert max(before) <= 36


def test_no_page_counts_the_store_or_pages_by_offset(scene: World) -> None:
    client = browser()
    for url in (*LISTS, f"/pairs/{scene.pair.code}/", f"/messages/{scene.outbound.public_id}/", "/go?q=x"):
        for sql in _queries(client, url):
            assert "OFFSET" not in sql, url
            # What is in doubt has an index of its own and is little.
            if "COUNT(" in sql and "'in_doubt'" not in sql:
                assert "messaging_message" not in sql or "messaging_pair" in sql, (url, sql)
                assert "messaging_delivery" not in sql, (url, sql)


def test_a_live_fragment_costs_no_more_than_its_page(scene: World) -> None:
    client = browser()
    whole = len(_queries(client, "/pairs/"))
    client.get("/pairs/")
    with CaptureQueriesContext(connection) as captured:
        client.get("/pairs/", headers={"HX-Request": "true", "HX-Target": "live-pairs"})
    assert len(captured) <= whole


def test_rows_of_pairs_cost_no_query_each(scene: World) -> None:
    assert Pair.objects.count() >= 3
    assert sum("messaging_agreementversion" in sql for sql in _queries(browser(), "/pairs/")) <= 1
