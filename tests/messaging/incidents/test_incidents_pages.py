"""Incidents: taken, closed, and found again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from lxml import html

from messaging.journal import incidents
from messaging.journal.audit import Actor
from messaging.models import AuditEntry, Incident, Pair
from rmhub import clock
from rmhub.clock import FrozenClock
from rmhub.roles import Role
from tests.messaging.console.scenes import browser, suspended, told_rule, user
from tests.messaging.factories import PartnerSide, partner_side
from tests.staged import staged

pytestmark = pytest.mark.django_db


@dataclass(frozen=True)
class Trouble:
    """A pair that stopped, with its incident, of which somebody was told; and a partner whose pairs flow."""

    pair: Pair
    incident: Incident
    flowing: PartnerSide


@pytest.fixture
def scene(db: None, time: FrozenClock) -> Trouble:
    return staged(_trouble, time)


def _trouble(time: FrozenClock) -> Trouble:
    stuck = suspended(time)
    incident = Incident.objects.get(pair=stuck.outbound)
    told_rule(incident)
    return Trouble(stuck.outbound, incident, partner_side())


def test_unresolved_ones_are_listed_with_their_cause_in_words(scene: Trouble) -> None:
    page = html.fromstring(browser(Role.VIEWER).get("/incidents/").content)
    words = " ".join(page.get_element_by_id("live-incidents").text_content().split())
    assert str(scene.incident) in words
    assert "Partner certificate expired" in words
    assert "nobody yet" in words


def test_whoever_acknowledges_owns_it(scene: Trouble) -> None:
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


def test_resolving_needs_words_and_keeps_them(scene: Trouble) -> None:
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


def test_resolving_says_that_the_pair_stays_suspended(scene: Trouble) -> None:
    text = browser().get(f"/incidents/{scene.incident}/resolve/").content.decode()
    assert f"{scene.pair.code.replace('>', '&gt;')} stays suspended" in text


def test_the_tabs_show_the_others(scene: Trouble) -> None:
    Incident.objects.filter(pk=scene.incident.pk).update(state="resolved")
    client = browser()
    for show, there in (("open", False), ("resolved", True), ("all", True), ("nonsense", False)):
        page = html.fromstring(client.get(f"/incidents/?show={show}").content)
        assert bool(page.xpath(f"//a[@id='open-{scene.incident}']")) is there, show


def test_an_incident_has_one_address(scene: Trouble) -> None:
    for text in (str(scene.incident.number), f"inc-{scene.incident.number}", scene.incident.public_id):
        assert browser().get(f"/incidents/{text}/")["Location"] == f"/incidents/{scene.incident}/"
    for text in ("INC-999999", "inc_00", "%00", "INC-99999999999"):
        assert browser().get(f"/incidents/{text}/").status_code == 404


def test_it_is_assigned_in_the_dialog_and_to_oneself_by_one_button(scene: Trouble) -> None:
    client, olga = browser(Role.OPERATOR, "petra"), user(Role.OPERATOR, "olga")
    url = f"/incidents/{scene.incident}/assign/"
    page = html.fromstring(client.get(url).content)
    assert {"olga", "petra"} <= set(page.xpath("//select[@name='owner']/option/@value"))
    assert page.xpath("//option[@selected]/@value") == ["petra"]
    (mine,) = page.xpath("//button[@data-testid='assign-me']")
    assert mine.get("formaction") == f"/incidents/{scene.incident}/acknowledge/"
    version = page.xpath("//input[@name='version']/@value")[0]
    assert client.post(url, {"owner": "olga", "version": version}).status_code == 303
    scene.incident.refresh_from_db()
    assert (scene.incident.owner, scene.incident.state) == (olga.username, "acknowledged")
    faster = client.post(url, {"owner": "petra", "version": version, "reason": "mine"})
    assert faster.status_code == 409
    assert "petra was faster: assign" in html.fromstring(faster.content).text_content()
    late = client.post(f"/incidents/{scene.incident}/acknowledge/", {"version": version}, follow=True)
    assert "petra was faster: assign" in late.content.decode()
    scene.incident.refresh_from_db()
    assert scene.incident.owner == "olga"


def test_it_is_put_off_for_a_while_or_until_a_time(scene: Trouble, time: FrozenClock) -> None:
    client = browser(Role.OPERATOR, "olga")
    url = f"/incidents/{scene.incident}/snooze/"
    for given in ({"for": "240"}, {"for": "until", "until": "soon", "reason": "maintenance"}, {"reason": "later"}):
        assert client.post(url, given).status_code == 422
    assert client.post(url, {"for": "240", "reason": "maintenance"}).status_code == 303
    scene.incident.refresh_from_db()
    assert scene.incident.snoozed_until == clock.now() + timedelta(hours=4)
    shown = lambda tab: f"open-{scene.incident}" in client.get(f"/incidents/?show={tab}").content.decode()  # noqa: E731
    assert (shown("open"), shown("snoozed"), shown("all")) == (False, True, True)
    assert client.post(url, {"for": "until", "until": "2026-03-05T08:00", "reason": "maintenance"}).status_code == 303
    scene.incident.refresh_from_db()
    assert scene.incident.snoozed_until == datetime(2026, 3, 5, 8, tzinfo=UTC)
    assert client.post(url, {"for": "now", "reason": "it is over"}).status_code == 303
    assert shown("open")


def test_the_page_tells_the_story(scene: Trouble) -> None:
    client = browser(Role.OPERATOR, "olga")
    assert client.post(f"/incidents/{scene.incident}/comment/", {"text": "  "}).status_code == 422
    assert client.post(f"/incidents/{scene.incident}/comment/", {"text": "Called <b>them</b>"}).status_code == 303
    page = html.fromstring(client.get(f"/incidents/{scene.incident}/").content)
    rows = {row.get("data-kind"): " ".join(row.text_content().split()) for row in page.xpath("//tbody/tr[@data-kind]")}
    assert {"attempts", "event", "comment", "notification"} <= set(rows)
    assert rows["comment"].endswith("olgaCommentCalled <b>them</b>")
    assert "On call could not be notified" in page.text_content()
    (diagram,) = page.xpath("//a[@data-testid='diagram']/@href")
    assert diagram == f"/pairs/{scene.pair.code.replace('>', '%3E')}/?tab=overview#diagram"
    assert page.xpath("//a[@data-testid='attempts']/@href") == [f"/messages/{scene.incident.message.public_id}/"]


def test_the_page_is_live_but_for_what_is_typed(scene: Trouble) -> None:
    client, url = browser(Role.OPERATOR, "olga"), f"/incidents/{scene.incident}/"
    page = html.fromstring(client.get(url).content)
    assert page.get_element_by_id("live-sign") is not None
    region = page.get_element_by_id("live-incident")
    assert (region.get("hx-get"), region.get("data-live-region")) == (url, "")
    assert not region.xpath(".//form"), "what is typed is not swapped away"
    assert page.xpath("//textarea[@name='text']")
    wrong = html.fromstring(client.post(f"{url}comment/", {"text": ""}).content)
    assert wrong.get_element_by_id("live-incident").get("hx-get") == url, "that address takes no GET"
    incidents.incident_acknowledge(incident_id=scene.incident.pk, actor=Actor("petra"))
    fragment = client.get(url, headers={"HX-Request": "true", "HX-Target": "live-incident"})
    part = html.fragment_fromstring(fragment.content.decode(), create_parent="div")
    assert "petra looks after it." in part.xpath(".//*[@data-announce]")[0].text_content()


def test_what_solved_it_before_is_shown(scene: Trouble) -> None:
    client = browser(Role.OPERATOR, "olga")
    given = {"found": "Expired", "reason": "They renewed it"}
    assert client.post(f"/incidents/{scene.incident}/resolve/", given).status_code == 303
    again, _ = incidents.incident_open(pair=scene.pair, cause=scene.incident.cause, now=clock.now())
    words = html.fromstring(client.get(f"/incidents/{again}/").content).xpath("//section[@aria-labelledby='similar']")
    assert "Expired → They renewed it" in words[0].text_content()
    assert "same pair" in words[0].text_content()


def test_the_form_that_closes_it_says_what_the_hub_knows(scene: Trouble, time: FrozenClock) -> None:
    page = html.fromstring(browser().get(f"/incidents/{scene.incident}/resolve/").content)
    assert page.xpath("//input[@name='found']/@value") == ["Partner certificate expired"]
    assert page.xpath("//textarea[@name='reason']")[0].text_content().strip() == ""
    later = scene.incident.last_seen_at + timedelta(seconds=5)
    time.move(10)
    Pair.objects.filter(pk=scene.pair.pk).update(flow="idle", last_success_at=later, in_flight=None)
    incident = html.fromstring(browser().get(f"/incidents/{scene.incident}/").content)
    assert "It seems to be over." in incident.xpath("//*[@data-testid='recovered']")[0].text_content()
    page = html.fromstring(browser().get(f"/incidents/{scene.incident}/resolve/").content)
    assert "acknowledged by the partner again" in page.xpath("//textarea[@name='reason']")[0].text_content()


def test_texts_to_take_along(scene: Trouble) -> None:
    client = browser(Role.VIEWER)
    note = html.fromstring(client.get(f"/incidents/{scene.incident}/note/").content)
    assert (
        "Your server shows a certificate that is past its date." in note.get_element_by_id("note-text").text_content()
    )
    file = client.get(f"/incidents/{scene.incident}/post-mortem.md")
    assert file["Content-Disposition"] == f'attachment; filename="{scene.incident}.md"'
    assert file.content.decode().startswith(f"# {scene.incident}: ")
    hub, _ = incidents.incident_open(pair=None, cause="internal_error", now=clock.now())
    assert client.get(f"/incidents/{hub}/note/").status_code == 404


def test_the_list_is_narrowed(scene: Trouble) -> None:
    client = browser(Role.OPERATOR, "olga")
    incidents.incident_acknowledge(incident_id=scene.incident.pk, actor=Actor("olga"))
    elsewhere, _ = incidents.incident_open(pair=scene.flowing.inbound, cause="ack_timeout", now=clock.now())

    def found(query: str) -> set[str]:
        page = html.fromstring(client.get(f"/incidents/?{query}").content)
        return {key.removeprefix("open-") for key in page.xpath("//a[starts-with(@id, 'open-')]/@id")}

    mine, other = str(scene.incident), str(elsewhere)
    assert {mine, other} <= found("")
    assert found("owner=olga") == {mine}
    assert mine not in found("owner=nobody") and other in found("owner=nobody")
    assert found(f"pair={scene.pair.code}") == {mine}
    assert found("cause=ack_timeout") == {other}
    assert mine in found(f"partner={scene.pair.partner.public_id}")
    for wrong in ("pair=NOPE", "partner=par_x", "trigger=none"):
        assert found(wrong) == set()
    rows = b"".join(client.get("/incidents/?owner=olga&format=csv")).decode().splitlines()
    assert rows[0].startswith("incident,state,what,cause")
    assert len(rows) == 2 and mine in rows[1]


def test_an_incident_is_taken_in_the_list(scene: Trouble) -> None:
    client = browser(Role.OPERATOR, "olga")
    page = html.fromstring(client.get("/incidents/").content)
    (row,) = page.xpath(f"//tr[@id='row-{scene.incident.public_id}']")
    (button,) = row.xpath(".//button[@data-key='e']")
    form = button.getparent()
    assert client.post(form.get("action"), dict(form.fields)).status_code == 303
    scene.incident.refresh_from_db()
    assert scene.incident.owner == "olga"
