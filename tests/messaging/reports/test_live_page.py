"""The live page: what the watch counted in the last hour, what is unusual, and whether the counts are current."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from lxml import html

from messaging import anomalies
from messaging.models import LiveMinute, LiveState, Pair
from messaging.reports.pages.pipeline import bars, line
from messaging.reports.services import live_watch
from messaging.reports.services.live_watch import Memory
from rmhub import clock
from rmhub.ids import uuid7
from rmhub.roles import Role
from tests.messaging.console.scenes import browser
from tests.messaging.factories import partner_side

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def counted(as_of: datetime) -> None:
    LiveState.objects.create(query="live 1/1", epoch=uuid7(), batch=3, through=100, applied_at=as_of)


def main(at: datetime = NOON) -> html.HtmlElement:
    with clock.frozen(at):
        return html.fromstring(browser(Role.VIEWER).get("/live/").content).get_element_by_id("main")


def said(page: html.HtmlElement) -> tuple[str, str]:
    banner = page.xpath(".//*[@data-testid='watch']")[0]
    return banner.get("data-state"), " ".join(banner.text_content().split())


@pytest.mark.parametrize(
    ("switched_on", "minutes_ago", "state", "words"),
    [
        (False, None, "off", "The live watch is off, so nobody looks for anomalies."),
        (False, 60, "off", "Data as of 2026-11-20 11:00:00 UTC"),
        (False, 1, "live", "Every event is counted within seconds."),  # started by hand
        (True, None, "stale", "has counted nothing yet"),
        (True, 0, "live", "Data as of 2026-11-20 12:00:00 UTC"),
        (True, 30, "stale", "30 m behind"),
    ],
)
def test_it_says_whether_the_counts_are_current(
    settings: Any, switched_on: bool, minutes_ago: int | None, state: str, words: str
) -> None:
    settings.RMHUB_PIPELINE_LIVE = switched_on
    if minutes_ago is not None:
        counted(NOON - timedelta(minutes=minutes_ago))
    found, text = said(main())
    assert found == state
    assert words in text


def test_the_last_hour_by_pair_the_unusual_ones_first() -> None:
    one, two = partner_side(), partner_side()
    calm, slow = sorted((one.outbound, two.outbound), key=lambda pair: pair.code)
    at = NOON + anomalies.WINDOW
    counted(at)
    for number in range(24):
        start = NOON - anomalies.WINDOW * (number + 1)
        LiveMinute.objects.create(pair=slow, minute=start, delivered=10, acks=10, ack_seconds=5.0, ack_longest=0.9)
    LiveMinute.objects.create(pair=slow, minute=NOON, delivered=10, acks=10, ack_seconds=50.0, ack_longest=8.0)
    LiveMinute.objects.create(pair=calm, minute=NOON, delivered=7, retried=2)
    LiveMinute.objects.create(pair=one.inbound, minute=NOON - timedelta(hours=2), received=7)  # not in the hour
    (incident,) = live_watch.judge(at, Memory())
    rows = main(at).xpath(".//tr[@data-testid='live-row']")
    words = [" ".join(row.text_content().split()) for row in rows]
    assert [row.xpath(".//a/text()")[0] for row in rows] == [slow.code, calm.code]
    # Ten windows of the past are in the hour that ends with 12:05, and the slow one: (10 * 5 + 50) / 110.
    assert f"INC-{incident.number}" in words[0] and "909 ms" in words[0] and "usual 500 ms" in words[0]
    assert "7 — 2" in words[1] and "Too little is known" in words[1]
    assert len(rows[0].xpath(".//*[name()='svg'][@role='img']/@aria-label")) == 3


def test_sparklines_are_drawn_to_scale() -> None:
    drawn = html.fromstring(bars([0, 2, 4], "Messages"))
    assert drawn.get("aria-label") == "Messages"
    assert drawn.xpath(".//*[name()='path']/@d") == ["M2 26v-12.0h1.5v12.0zM4 26v-24.0h1.5v24.0z"]
    latency, limit = html.fromstring(line([1.0, None, 2.0, 2.0], 4.0, "Latency")).xpath(".//*[name()='path']/@d")
    assert latency.count("M") == 2 and latency.count("L") == 1  # nothing is drawn where nothing is known
    assert limit == "M0 3.1H120"


def test_pages_of_pairs_go_on_where_the_last_ended() -> None:
    counted(NOON)
    side = partner_side()
    for number in range(30):
        pair = Pair.objects.get(pk=side.outbound.pk)
        pair.pk, pair.code, pair.sender_uri = uuid7(), f"P-{number:02}", f"http://example.org/{number}"
        pair._state.adding = True
        pair.save()
        LiveMinute.objects.create(pair=pair, minute=NOON, delivered=1)
    first = main()
    assert len(first.xpath(".//tr[@data-testid='live-row']")) == 25
    (following,) = first.xpath(".//a[@rel='next']/@href")
    with clock.frozen(NOON):
        second = html.fromstring(browser(Role.VIEWER).get(f"/live/{following}").content)
    codes = [text.strip() for text in second.xpath("//tr[@data-testid='live-row']//a[@class='strong']/text()")]
    assert codes == [f"P-{number}" for number in range(25, 30)]
