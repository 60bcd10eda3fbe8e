"""Messages: the list and its filters, the page, and taking one back."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from django.utils.http import urlencode
from lxml import html

from messaging.journal.audit import Actor
from messaging.messages.selectors import finding
from messaging.messages.selectors import messages as selectors
from messaging.models import AuditEntry, Message, Signal, Transmission
from messaging.pairs.services.operating import pair_pause
from rmhub.clock import FrozenClock
from rmhub.roles import Role
from tests.messaging.conftest import NOON
from tests.messaging.console.scenes import World, browser, delivered, refused, suspended
from tests.messaging.factories import link, partner_side, submit, work

pytestmark = pytest.mark.django_db


def _ids(client: Client, **query: str) -> list[str]:
    page = html.fromstring(client.get(f"/messages/?{urlencode(query)}").content)
    return [
        text.removeprefix("open-")
        for text in page.xpath("//section[@aria-label='Messages']//a[starts-with(@id, 'open-')]/@id")
    ]


def test_filters_narrow_the_list(scene: World) -> None:
    client = browser(Role.VIEWER)
    everything = [message.public_id for message in Message.objects.order_by("-id")]
    assert _ids(client) == everything
    inbound = [message.public_id for message in Message.objects.filter(direction="in").order_by("-id")]
    assert _ids(client, direction="in") == inbound
    assert scene.inbound.public_id in inbound
    assert _ids(client, state="delivered") == [scene.outbound.public_id]
    assert _ids(client, q=scene.outbound.message_id) == [scene.outbound.public_id]
    assert _ids(client, q=scene.outbound.conversation_id) == [scene.outbound.public_id]
    assert _ids(client, conversation=scene.outbound.conversation_id) == [scene.outbound.public_id]
    on_pair = [message.public_id for message in Message.objects.filter(pair=scene.pair).order_by("-id")]
    assert _ids(client, pair=scene.pair.code) == on_pair
    assert _ids(client, partner=scene.partner.public_id) == [scene.inbound.public_id, scene.outbound.public_id]
    assert _ids(client, action="Other") == []


def test_dates_are_utc_and_narrow_the_list(db: None) -> None:
    message = submit(partner_side())
    client = browser()
    before, after = (f"{message.created_at + timedelta(minutes=by):%Y-%m-%dT%H:%M}" for by in (-2, 2))
    assert _ids(client, since=before, before=after) == [message.public_id]
    assert _ids(client, since=after) == []
    assert _ids(client, before=before) == []


@pytest.mark.parametrize(
    "query",
    [
        {"state": "nonsense"},
        {"direction": "sideways"},
        {"since": "someday"},
        {"q": "state:nonsense"},
        {"q": "partner:Nobody"},
        {"pair": "NOPE"},
        {"partner": "par_0"},
        {"partner": "par_00000000000070008000000000000000"},
    ],
)
def test_a_filter_that_names_nothing_is_said_and_breaks_nothing(scene: World, query: dict[str, str]) -> None:
    answer = browser().get(f"/messages/?{urlencode(query)}")
    assert answer.status_code == 200
    assert html.fromstring(answer.content).xpath("//div[contains(@class, 'alert-warning')]")


def test_signs_that_a_database_refuses_are_no_error(scene: World) -> None:
    for name in ("q", "service", "action", "conversation", "ref", "pair", "partner", "state", "since", "cursor"):
        assert browser().get("/messages/", {name: "a\x00b\ud800".encode("utf-8", "replace")}).status_code == 200
    assert browser().get("/go?q=a%00b").status_code == 200
    assert browser().get("/audit/?actor=%00").status_code == 200
    assert browser().get("/rejections/?party=%00").status_code == 200


def test_the_list_goes_on_by_key_and_back(time: FrozenClock) -> None:
    partner = partner_side()
    for _ in range(120):
        submit(partner)
    client = browser()
    seen: list[str] = []
    url, last = "/messages/", ""
    while url:
        page = html.fromstring(client.get(url).content)
        seen += page.xpath("//a[starts-with(@id, 'open-')]/@id")
        last, following = url, page.xpath("//a[@rel='next']/@href")
        url = f"/messages/{following[0]}" if following else ""
    assert len(seen) == len(set(seen)) == 120
    page = html.fromstring(client.get(last).content)
    back = page.xpath("//a[@rel='prev']/@href")[0]
    again = html.fromstring(client.get(f"/messages/{back}").content).xpath("//a[starts-with(@id, 'open-')]/@id")
    assert again == seen[50:100]


def test_only_the_first_page_is_live(time: FrozenClock) -> None:
    partner = partner_side()
    for _ in range(51):
        submit(partner)
    client = browser()
    page = html.fromstring(client.get("/messages/").content)
    assert page.get_element_by_id("live-messages").get("hx-trigger") == "every 3s"
    following = page.xpath("//a[@rel='next']/@href")[0]
    page = html.fromstring(client.get(f"/messages/{following}").content)
    assert page.get_element_by_id("live-messages").get("hx-get") is None


def test_the_timeline_tells_it_in_order(time: FrozenClock) -> None:
    partner = partner_side(retries=2)
    message = submit(partner)
    with link() as wire:
        work()
        time.move(61)
        work()
        work()
        time.move(1)
        partner.send(partner.acknowledgement(wire.last))
    page = html.fromstring(browser().get(f"/messages/{message.public_id}/").content)
    title = "./td[2]//*[self::a or self::span][not(contains(@class, 'visually-hidden'))]"
    titles = [
        " ".join(row.xpath(title)[0].text_content().split())
        for row in page.xpath("//h2[@id='timeline']/ancestor::section//tbody/tr")
    ]
    assert titles == [
        "Accepted from the application",
        "Attempt 1 handed over",
        "Attempt 2 handed over",
        "Acknowledgement from the partner",
        "Delivered: acknowledged by the partner",
    ]


def test_what_the_partner_says_is_escaped(time: FrozenClock) -> None:
    partner = refused(partner_side())
    message = Message.objects.get(pk=partner.outbound.in_flight_id)
    text = browser().get(f"/messages/{message.public_id}/").content.decode()
    assert "&lt;b&gt;so there&lt;/b&gt;" in text
    assert "<b>so there" not in text


def test_relatives_are_shown(time: FrozenClock) -> None:
    partner = partner_side()
    first = submit(partner, conversation_id="c-77")
    second = submit(partner, conversation_id="c-77", ref_to_message_id=first.message_id)
    for one, other, headings in ((second, first, ("refers", "conversation")), (first, second, ("answers",))):
        page = html.fromstring(browser().get(f"/messages/{one.public_id}/?tab=related").content)
        for heading in headings:
            section = page.xpath(f"//h2[@id='{heading}']/ancestor::section")[0]
            assert section.xpath(f".//a[@href='/messages/{other.public_id}/']"), heading


def test_a_message_is_found_under_its_message_id_too(scene: World) -> None:
    answer = browser().get(f"/messages/{scene.outbound.message_id}/")
    assert answer.status_code == 303
    assert answer["Location"] == f"/messages/{scene.outbound.public_id}/"
    for wrong in ("msg_00", "msg_" + "0" * 32, "nobody@nowhere", "%00"):
        assert browser().get(f"/messages/{wrong}/").status_code == 404


def test_a_message_id_that_two_messages_have_leads_to_the_list(time: FrozenClock) -> None:
    one, other = partner_side(), partner_side()
    for partner in (one, other):
        partner.send(partner.message(1, "same@id"))
    answer = browser().get("/messages/same@id/")
    assert answer.status_code == 303
    assert answer["Location"] == "/messages/?q=same%40id"


def test_a_viewer_sees_payloads_but_cannot_open_them(scene: World) -> None:
    text = browser(Role.VIEWER).get(f"/messages/{scene.outbound.public_id}/").content.decode()
    assert "needs the role operator" in text
    assert "/payloads/1/" not in text
    assert "/payloads/1/" in browser(Role.OPERATOR).get(f"/messages/{scene.outbound.public_id}/").content.decode()


def test_a_queued_message_can_be_cancelled_with_a_reason(scene: World) -> None:
    client = browser(Role.ADMIN, "adam")
    url = f"/messages/{scene.queued.public_id}/cancel/"
    form = html.fromstring(client.get(url).content).xpath("//form[@class='dialog-form']")[0]
    assert set(form.fields) == {"csrfmiddlewaretoken", "reason"}
    assert form.inputs["reason"].get("minlength") == "10", "the browser says it before the server refuses it"
    for short in ("", "too short"):
        assert client.post(url, {"reason": short}).status_code == 422
    assert client.post(url, {"reason": "Sent by mistake"}).status_code == 303
    scene.queued.refresh_from_db()
    assert scene.queued.state == "cancelled"
    entry = AuditEntry.objects.get(verb="message.cancel")
    assert (entry.actor, entry.reason) == ("adam", "Sent by mistake")


def test_cancelling_what_is_in_flight_warns_of_the_restart(time: FrozenClock) -> None:
    partner = suspended(time)
    message = Message.objects.get(pk=partner.outbound.in_flight_id)
    text = browser().get(f"/messages/{message.public_id}/cancel/").content.decode()
    assert "the next message goes out as number 1" in text
    assert "nobody can know" in text


def test_cancelling_what_is_in_flight_takes_what_skipping_it_takes(time: FrozenClock) -> None:
    """The pair's code, typed, and the state that the person saw: the same act has no weaker door."""
    partner = suspended(time)
    message = Message.objects.get(pk=partner.outbound.in_flight_id)
    client, url = browser(Role.ADMIN, "adam"), f"/messages/{message.public_id}/cancel/"
    form = html.fromstring(client.get(url).content).xpath("//form[@class='dialog-form']")[0]
    version, reason = form.fields["version"], {"reason": "The file is of no use"}
    assert "required" in form.inputs["confirm"].attrib

    for confirm in ("", "P-9999"):
        refused = client.post(url, {**reason, "version": version, "confirm": confirm})
        assert refused.status_code == 422
        assert f"Type {partner.outbound.code} to show that" in html.fromstring(refused.content).xpath(
            "string(//*[@id='form-errors'])"
        )
    for bad in ("x", "-1", "9" * 30):
        given = {**reason, "version": bad, "confirm": partner.outbound.code}
        assert client.post(url, given).status_code in (409, 422)
    late = client.post(url, reason)  # the form was opened while it waited
    assert late.status_code == 409
    asked = html.fromstring(late.content).xpath("//form[@class='dialog-form']")[0]
    assert asked.fields["version"] == version and "confirm" in asked.fields
    assert "the partner may have it" in late.content.decode()
    pair_pause(pair_id=partner.outbound.pk, actor=Actor("olga"), reason="while they fix it")
    stale = client.post(url, {**reason, "version": version, "confirm": partner.outbound.code})
    assert stale.status_code == 409 and "changed since you looked" in stale.content.decode()
    assert Message.objects.get(pk=message.pk).state == "failed" and partner.outbound.in_flight_id == message.pk

    given = {**reason, "version": str(partner.outbound.version), "confirm": partner.outbound.code.lower()}
    assert client.post(url, given).status_code == 303
    assert Message.objects.get(pk=message.pk).state == "cancelled"
    assert AuditEntry.objects.get(verb="message.cancel").actor == "adam"


def test_what_is_done_cannot_be_cancelled(scene: World) -> None:
    client = browser()
    for message, why in ((scene.outbound, "It is done."), (scene.inbound, "It came from the partner.")):
        url = f"/messages/{message.public_id}/cancel/"
        assert why in client.get(url).content.decode()
        assert client.post(url, {"reason": "not wanted any more"}).status_code in (404, 409)
        message.refresh_from_db()
        assert message.state in ("delivered", "received")


def test_a_search_that_takes_too_long_says_so(scene: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*args: object, **kwargs: object) -> None:
        raise selectors.TooBroad("too slow")

    monkeypatch.setattr(finding, "message_page", slow)
    answer = browser().get("/messages/?service=x")
    assert answer.status_code == 200
    assert "took too long" in answer.content.decode()


def test_a_message_with_a_long_history_stays_bounded(time: FrozenClock) -> None:
    partner = partner_side()
    message = delivered(partner)[0]
    Transmission.objects.bulk_create(
        Transmission(pair=partner.outbound, message=message, number=n, address="http://x", started_at=NOON)
        for n in range(2, 260)
    )
    page = html.fromstring(browser().get(f"/messages/{message.public_id}/").content)
    assert len(page.xpath("//h2[@id='timeline']/ancestor::section//tbody/tr")) < 210
    assert "the newest 200 rows" in page.text_content()


def test_of_very_many_answers_of_the_partner_the_newest_are_there(time: FrozenClock) -> None:
    partner = partner_side()
    message = delivered(partner)[0]
    Signal.objects.bulk_create(
        Signal(direction="in", kind="error", state="matched", pair=partner.outbound, about=message,
               error_description=f"copy {number}", body=b"", created_at=NOON)
        for number in range(205)
    )  # fmt: skip
    page = html.fromstring(browser().get(f"/messages/{message.public_id}/").content)
    told = page.xpath("string(//h2[@id='timeline']/ancestor::section)")
    assert "copy 204" in told and "copy 3 " not in told.replace("\n", " ")
    assert "the newest 200 rows" in page.text_content()
