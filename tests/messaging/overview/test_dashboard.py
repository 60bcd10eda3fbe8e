"""The dashboard beyond its sentence: who is first in line for a person, figures with links, hours, the hub itself."""

from __future__ import annotations

from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from django.core.cache import cache
from django.test import Client
from lxml import html

from messaging.models import Incident, Pair, TrafficCursor, TrafficHour
from messaging.overview.selectors import health
from rmhub import clock
from rmhub.clock import FrozenClock
from rmhub.roles import Role
from tests.messaging.console.scenes import browser, suspended
from tests.messaging.factories import REFUSED, link, partner_side, submit, work

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def broker_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_broker_answers", lambda: True)
    cache.clear()


def _page(client: Client, url: str = "/") -> html.HtmlElement:
    return html.fromstring(client.get(url).content)


def _text(page: html.HtmlElement, name: str) -> str:
    return str(page.xpath(f"//*[@data-testid='{name}']")[0].text_content()).strip()


def test_two_numbers_can_be_read_at_a_glance(time: FrozenClock) -> None:
    suspended(time, waiting=4)
    suspended(time, waiting=1)
    page = _page(browser(Role.VIEWER))
    assert (_text(page, "broken-pairs"), _text(page, "blocked-documents")) == ("2", "7")
    assert _text(page, "oldest").endswith("s") or _text(page, "oldest").endswith("m")


def test_the_numbers_are_said_also_when_the_hub_itself_is_behind(time: FrozenClock) -> None:
    suspended(time, waiting=1)
    submit(partner_side())
    time.move(health.OVERDUE_SECONDS + 30)
    page = _page(browser(Role.VIEWER))
    assert _text(page, "verdict").startswith("The hub is behind")
    assert (_text(page, "broken-pairs"), _text(page, "blocked-documents")) == ("1", "2")
    assert page.xpath("//*[@data-testid='hub-health']/@data-state") == ["bad"]


def test_whoever_holds_up_most_for_longest_is_first(time: FrozenClock) -> None:
    few, many, fixes = suspended(time, waiting=1), suspended(time, waiting=3), partner_side()
    submit(fixes)
    with link(REFUSED):
        work()
    Pair.objects.filter(pk=fixes.outbound.pk).update(queued=10_000)
    time.move(3600)

    def order() -> list[str]:
        rows = _page(browser(Role.VIEWER)).xpath("//tr[@data-testid='needs-you']")
        return [row.xpath(".//a[@data-testid='open']")[0].text_content() for row in rows]

    assert order() == [many.outbound.code, few.outbound.code, fixes.outbound.code], "what fixes itself comes last"
    Pair.objects.filter(pk=few.outbound.pk).update(changed_at=clock.now() - timedelta(days=3))
    assert order()[:2] == [few.outbound.code, many.outbound.code]


def test_an_incident_is_taken_in_one_press(time: FrozenClock) -> None:
    partner = suspended(time)
    operator = browser(Role.OPERATOR, "olga")
    (button,) = _page(operator).xpath("//button[@data-testid='acknowledge']")
    assert button.get("data-key") == "e"
    (back,) = button.getparent().xpath("./input[@name='next']/@value")
    answer = operator.post(button.getparent().get("action"), {"next": back})
    assert (answer.status_code, answer["Location"]) == (303, "/")
    assert Incident.objects.get(pair=partner.outbound).owner == "olga"
    page = _page(operator)
    assert not page.xpath("//button[@data-testid='acknowledge']")
    assert "olga" in page.xpath("//tr[@data-testid='needs-you']")[0].text_content()
    assert not _page(browser(Role.VIEWER)).xpath("//button[@data-testid='acknowledge']")


def test_figures_lead_to_what_they_count(time: FrozenClock) -> None:
    partner = partner_side()
    last = clock.now().replace(minute=0, second=0, microsecond=0)
    TrafficHour.objects.create(pair=partner.outbound, hour=last, delivered=30, failed=10, latencies=[0, 30, *[0] * 11])
    time.move(30 * 60)
    page = _page(browser(Role.VIEWER))
    assert _text(page, "success") == "75.0 %"
    assert _text(page, "rate") == "0.3", "30 in 90 minutes"
    assert _text(page, "p95") == "195 ms"
    for name in ("rate", "success", "p95", "waiting", "retrying"):
        tile = page.get_element_by_id(f"tile-{name}")
        assert tile.xpath(".//*[local-name()='svg']/@aria-label"), name
    failures = urlsplit(page.get_element_by_id("tile-success").get("href"))
    assert failures.path == "/messages/"
    assert parse_qs(failures.query)["state"] == ["failed"]
    for href in page.xpath("//a[contains(@class, 'tile')]/@href"):
        assert browser(Role.VIEWER).get(href).status_code == 200, href


def test_what_is_on_the_way_is_what_the_link_shows(time: FrozenClock) -> None:
    suspended(time, waiting=4)  # the first has failed; four wait behind it
    retrying = partner_side()
    with link(REFUSED):
        for _ in range(2):
            submit(retrying)
        work()
    page = _page(browser(Role.VIEWER))
    tile = page.get_element_by_id("tile-waiting")
    assert _text(page, "waiting") == "6"
    assert "4 of them held up" in tile.text_content()
    listed = _page(browser(Role.VIEWER), tile.get("href"))
    states = listed.xpath("//*[@id='live-messages']//tbody/tr//*[@data-state]/@data-state")
    assert sorted(states) == ["queued"] * 5 + ["retrying"]


def test_an_hour_of_a_partner_leads_to_its_messages(time: FrozenClock) -> None:
    partner = partner_side()
    last = clock.now().replace(minute=0, second=0, microsecond=0)
    TrafficHour.objects.create(pair=partner.outbound, hour=last, delivered=1200, failed=1)
    TrafficHour.objects.create(pair=partner.inbound, hour=last, received=34)
    client = browser(Role.VIEWER)
    (row,) = _page(client).xpath("//table[contains(@class, 'heat')]/tbody/tr")
    cells = row.xpath("./td")
    assert len(cells) == 24
    assert cells[-1].text_content().startswith("1.2k")
    assert "shade-bad" in cells[-1].get("class")
    assert not cells[0].xpath("./a")
    href = cells[-1].xpath("./a/@href")[0]
    asked = parse_qs(urlsplit(href).query)
    assert (asked["since"], asked["before"]) == (["2026-03-01T12:00Z"], ["2026-03-01T13:00Z"])
    shown = html.fromstring(client.get(href).content).xpath("//code[@id='api-call']")[0].text_content()
    assert "created_gte=2026-03-01T12%3A00%3A00Z" in shown, "the list has understood it"


def test_the_hub_says_when_its_scheduler_was_heard(time: FrozenClock) -> None:
    assert "not yet" in _page(browser(Role.VIEWER)).xpath("//*[@data-testid='hub-health']")[0].text_content()
    TrafficCursor.objects.create(id=1, counted_at=clock.now() - timedelta(seconds=7))
    cache.clear()
    assert "7 s ago" in _page(browser(Role.VIEWER)).xpath("//*[@data-testid='hub-health']")[0].text_content()


def test_a_wall_has_no_use_for_menus(time: FrozenClock) -> None:
    page = _page(browser(Role.VIEWER), "/?kiosk=1")
    assert "kiosk" in page.find("body").get("class")
    assert page.get_element_by_id("live-dashboard").get("hx-get") == "/?kiosk=1"


def test_the_hours_are_refreshed_apart_and_the_rest_does_not_carry_them(time: FrozenClock) -> None:
    client = browser(Role.VIEWER)
    part = client.get("/", headers={"HX-Request": "true", "HX-Target": "live-dashboard"}).content.decode()
    assert "Busiest partners" not in part
    heat = client.get("/", headers={"HX-Request": "true", "HX-Target": "live-heat"}).content.decode()
    assert "Busiest partners" in heat
    assert "verdict" not in heat
