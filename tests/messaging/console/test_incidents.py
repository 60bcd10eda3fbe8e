"""Incidents: taken, closed, and found again."""

from __future__ import annotations

import pytest
from lxml import html

from messaging.models import AuditEntry, Incident
from rmhub.roles import Role
from tests.messaging.console.scenes import World, browser

pytestmark = pytest.mark.django_db


def test_unresolved_ones_are_listed_with_their_cause_in_words(scene: World) -> None:
    page = html.fromstring(browser(Role.VIEWER).get("/incidents/").content)
    words = " ".join(page.get_element_by_id("live-incidents").text_content().split())
    assert str(scene.incident) in words
    assert "Partner certificate expired" in words
    assert "nobody yet" in words


def test_whoever_acknowledges_owns_it(scene: World) -> None:
    client = browser(Role.OPERATOR, "olga")
    answer = client.post(f"/incidents/{scene.incident}/acknowledge/")
    assert answer.status_code == 303
    scene.incident.refresh_from_db()
    assert (scene.incident.state, scene.incident.owner) == ("acknowledged", "olga")
    page = html.fromstring(client.get(answer["Location"]).content)
    assert "olga looks after it." in page.text_content()
    assert not page.xpath("//*[@data-testid='acknowledge']")
    other = html.fromstring(browser(Role.OPERATOR).get(answer["Location"]).content)
    assert other.xpath("//*[@data-testid='acknowledge']")[0].text_content().strip() == "Take over"


def test_resolving_needs_words_and_keeps_them(scene: World) -> None:
    client = browser(Role.OPERATOR, "olga")
    url = f"/incidents/{scene.incident}/resolve/"
    for reason in ("", "  ", "ok"):
        assert client.post(url, {"reason": reason}).status_code == 422
    assert client.post(url, {"reason": "Their certificate was renewed"}).status_code == 303
    scene.incident.refresh_from_db()
    assert (scene.incident.state, scene.incident.resolved_by) == ("resolved", "olga")
    assert AuditEntry.objects.get(verb="incident.resolve").reason == "Their certificate was renewed"
    assert client.post(url, {"reason": "once more"}).status_code == 409
    assert client.post(f"/incidents/{scene.incident}/acknowledge/").status_code == 303
    scene.incident.refresh_from_db()
    assert scene.incident.state == "resolved"


def test_resolving_says_that_the_pair_stays_suspended(scene: World) -> None:
    text = browser().get(f"/incidents/{scene.incident}/resolve/").content.decode()
    assert f"{scene.pair.code.replace('>', '&gt;')} stays suspended" in text


def test_the_tabs_show_the_others(scene: World) -> None:
    Incident.objects.filter(pk=scene.incident.pk).update(state="resolved")
    client = browser()
    for show, there in (("open", False), ("resolved", True), ("all", True), ("nonsense", False)):
        page = html.fromstring(client.get(f"/incidents/?show={show}").content)
        assert bool(page.xpath(f"//a[@id='open-{scene.incident}']")) is there, show


def test_an_incident_has_one_address(scene: World) -> None:
    for text in (str(scene.incident.number), f"inc-{scene.incident.number}", scene.incident.public_id):
        assert browser().get(f"/incidents/{text}/")["Location"] == f"/incidents/{scene.incident}/"
    for text in ("INC-999999", "inc_00", "%00", "INC-99999999999"):
        assert browser().get(f"/incidents/{text}/").status_code == 404
