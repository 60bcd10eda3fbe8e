"""Metrics: what they say is what the rows say, each event once, and what dashboard and alerts ask for exists."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.request import urlopen

import pytest
import yaml
from django.core.cache import cache
from django.test import Client
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from messaging import storage
from messaging.models import EventTotal
from messaging.overview.selectors import health
from messaging.overview.services import traffic_hours
from messaging.storage import Room
from rmhub import clock, metrics
from rmhub.clock import FrozenClock
from rmhub.hubs import BASE, free_ports
from tests.messaging.api.client import Api
from tests.messaging.factories import PartnerSide, link, partner_side, submit, work

pytestmark = pytest.mark.django_db
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def time() -> Iterator[FrozenClock]:
    with clock.frozen(datetime(2026, 3, 1, 12, 10, tzinfo=UTC)) as frozen:
        yield frozen


@pytest.fixture(autouse=True)
def as_committed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test writes is of a transaction that is still open; and a broker that answers."""
    cache.clear()
    monkeypatch.setattr("messaging.models.feed.horizon", lambda: 1 << 40)
    monkeypatch.setattr("messaging.models.feed.is_ahead", lambda place: False)
    monkeypatch.setattr(health, "_broker_answers", lambda: True)
    monkeypatch.setattr(storage, "room", lambda: Room("", False, 50_000_000_000))
    health.forget()
    yield
    health.forget()


def scraped(api: Api, query: str = "") -> Samples:
    answer = api.get(f"/metrics{query}")
    assert answer.status == 200, answer.content
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    families = text_string_to_metric_families(answer.content.decode())
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def of(samples: Samples, name: str, **labels: str) -> float:
    return samples[(name, frozenset(labels.items()))]


def test_pairs_queues_and_ages(viewer: Api, partner: PartnerSide, time: FrozenClock) -> None:
    submit(partner)
    submit(partner)
    time.move(90)
    found = scraped(viewer)
    kind = {"direction": "out", "state": "active", "profile": "ebxml"}
    assert of(found, "rmhub_waiting_messages", **kind) == 2
    assert of(found, "rmhub_oldest_message_seconds", **kind) == 90
    assert of(found, "rmhub_part_up", part="database") == 1
    assert not any(name.startswith("rmhub_pair_") for name, _ in found)  # a pair is a label only on request
    one = scraped(viewer, f"?pair={partner.outbound.code.replace('>', '%3E')}")
    assert of(one, "rmhub_pair_waiting_messages", pair=partner.outbound.code) == 2
    assert of(one, "rmhub_pair_oldest_message_seconds", pair=partner.outbound.code) == 90
    assert viewer.get("/metrics?pair=NOBODY").status == 404


def test_each_event_counts_once_and_deliveries_have_their_time(viewer: Api, time: FrozenClock) -> None:
    partner = partner_side()
    traffic_hours.count_due()
    for seconds in (0.3, 7):
        with link() as wire:
            submit(partner)
            work()
            time.move(seconds)
            partner.send(partner.acknowledgement(wire.last))
    traffic_hours.count_due()
    traffic_hours.count_due()
    found = scraped(viewer)
    assert of(found, "rmhub_events_total", type="message.accepted", profile="ebxml") == 2
    assert of(found, "rmhub_events_total", type="message.delivered", profile="ebxml") == 2
    assert of(found, "rmhub_delivery_seconds_bucket", profile="ebxml", le="0.5") == 1
    assert of(found, "rmhub_delivery_seconds_bucket", profile="ebxml", le="10") == 2
    assert of(found, "rmhub_delivery_seconds_count", profile="ebxml") == 2
    assert of(found, "rmhub_delivery_seconds_sum", profile="ebxml") == pytest.approx(7.3)


def test_totals_outlive_the_hours_that_they_came_from(viewer: Api, partner: PartnerSide, time: FrozenClock) -> None:
    traffic_hours.count_due()
    submit(partner)
    traffic_hours.count_due()
    before = EventTotal.objects.get(type="message.accepted").number
    time.move(timedelta(days=20).total_seconds())
    submit(partner)
    traffic_hours.count_due()
    assert EventTotal.objects.get(type="message.accepted").number == before + 1


def test_a_database_that_is_away_is_said(viewer: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "messaging.overview.selectors.metrics.health",
        lambda: health.Health(False, True, None, 0, parts=(health.Part("database", health.PartState.DOWN),)),
    )
    found = scraped(viewer)
    assert of(found, "rmhub_part_up", part="database") == 0
    assert not any(name == "rmhub_pairs" for name, _ in found)


def test_who_may_ask(stranger: Api, client: Client) -> None:
    assert stranger.get("/metrics").status == 401
    assert client.get("/metrics").status_code == 401


def test_a_worker_answers_at_an_address_of_its_own(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begun = []
    start = metrics.start_http_server
    monkeypatch.setattr(metrics, "start_http_server", lambda *args, **more: begun.append(start(*args, **more)))
    (port,) = free_ports(1)
    metrics.serve(("127.0.0.1", port))
    ((server, thread),) = begun
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            said = answer.read().decode()
        metrics.serve(("127.0.0.1", port))
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert "rmhub_talk_seconds" in said and "rmhub_pairs" not in said
    assert "metrics are not served" in caplog.text  # the port was taken


def _asked_for() -> dict[str, set[str]]:
    """What dashboard and alerts name, by file."""
    rules = yaml.safe_load((BASE / "deploy/prometheus/rmhub.rules.yml").read_text())
    board = json.loads((BASE / "deploy/grafana/rmhub.json").read_text())
    expressions = {
        "rules": [rule["expr"] for group in rules["groups"] for rule in group["rules"]],
        "dashboard": [target["expr"] for panel in board["panels"] for target in panel["targets"]],
    }
    return {name: set(re.findall(r"\b(?:rmhub|process)_\w+", " ".join(texts))) for name, texts in expressions.items()}


def test_what_dashboard_and_alerts_ask_for_exists(viewer: Api, partner: PartnerSide, time: FrozenClock) -> None:
    test_each_event_counts_once_and_deliveries_have_their_time(viewer, time)
    submit(partner)
    # What has labels is there once something was counted; these are counted where requests and other threads pass.
    metrics.REQUESTS.labels("api", "2xx").observe(0.1)
    metrics.TALKS.labels("messaging.send_due").observe(0.1)
    exists = {name for name, _ in scraped(viewer)}
    for where, names in _asked_for().items():
        assert names, where
        assert names <= exists, where


def test_alerts_are_whole() -> None:
    rules: dict[str, Any] = yaml.safe_load((BASE / "deploy/prometheus/rmhub.rules.yml").read_text())
    seen = [rule for group in rules["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in seen}) == len(seen)
    for rule in seen:
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert set(rule["annotations"]) == {"summary", "description"}
        assert rule["expr"].count("(") == rule["expr"].count(")")
