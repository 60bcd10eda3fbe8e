"""The list of messages: what the box means, the windows of time, the file, the short look; and a message's tabs."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils.http import urlencode
from lxml import html

from messaging.messages.selectors import finding, searching
from messaging.messages.services.submitting import NewPayload, message_submit
from messaging.models import AuditEntry, BulkJob, Message, SavedView, Transmission
from messaging.transports import Receipt
from rmhub.clock import FrozenClock
from rmhub.ids import uuid7
from rmhub.roles import Role
from tests.messaging.console.scenes import World, browser, delivered, refused, suspended
from tests.messaging.factories import ACTION, SERVICE, PartnerSide, link, partner_side, submit, work

pytestmark = pytest.mark.django_db


def _page(client: Client, **query: str) -> Any:
    answer = client.get(f"/messages/?{urlencode(query)}")
    assert answer.status_code == 200
    return html.fromstring(answer.content)


def _ids(page: Any) -> list[str]:
    return [text.removeprefix("open-") for text in page.xpath("//a[@data-open]/@id")]


def _aged(message: Message, age: timedelta) -> Message:
    """The same message as if it had been submitted so long ago, its id with it."""
    at = message.created_at - age
    key = uuid.UUID(int=(int(at.timestamp() * 1000) << 80) | (uuid7().int & ((1 << 80) - 1)))
    Message.objects.filter(pk=message.pk).delete()
    message.pk, message.created_at = key, at
    message.save(force_insert=True)
    return message


def _several() -> tuple[PartnerSide, Message, Message, Message]:
    """One of two minutes ago, one of two days, one of forty."""
    partner = partner_side()
    new, older, old = (delivered(partner)[0] for _ in range(3))
    return partner, _aged(new, timedelta(minutes=2)), _aged(older, timedelta(days=2)), _aged(old, timedelta(days=40))


def test_the_newest_day_is_shown_and_more_is_one_press_away(db: None) -> None:
    _, new, older, old = _several()
    client = browser(Role.VIEWER)
    page = _page(client)
    assert _ids(page) == [new.public_id]
    assert page.xpath("//a[@data-testid='window-24h']/@aria-current") == ["true"]
    for window, expected in (("7d", [new, older]), ("all", [new, older, old])):
        href = page.xpath(f"//a[@data-testid='window-{window}']/@href")[0]
        assert _ids(html.fromstring(client.get(f"/messages/{href}").content)) == [one.public_id for one in expected]


def test_ids_pairs_and_what_an_index_leads_to_need_no_window(db: None) -> None:
    partner, new, older, old = _several()
    Message.objects.filter(pk=old.pk).update(state="failed", cause="ack_timeout")
    client = browser(Role.VIEWER)
    assert _ids(_page(client, q=old.message_id)) == [old.public_id]
    assert _ids(_page(client, q=old.message_id[:-1])) == [old.public_id]
    assert _ids(_page(client, q="state:failed")) == [old.public_id]
    assert _ids(_page(client, q="error:ack_timeout")) == [old.public_id]
    assert len(_ids(_page(client, pair=partner.outbound.code))) == 3
    assert _ids(_page(client, q=f"pair:{partner.outbound.code} action:{ACTION}")) == [new.public_id]
    assert _ids(_page(client, q=f"action:{ACTION}", window="all")) == [one.public_id for one in (new, older, old)]


def test_failures_of_an_hour_for_one_partner_are_saved_for_the_team(db: None) -> None:
    partner, _, older, _ = _several()
    Message.objects.filter(pk=older.pk).update(state="failed")
    begin = older.created_at - timedelta(minutes=30)
    query = {
        "q": f'partner:"{partner.terms.partner_name}" state:failed',
        "since": f"{begin:%Y-%m-%dT%H:%M}",
        "before": f"{begin + timedelta(hours=1):%Y-%m-%dT%H:%M}",
    }
    client = browser(Role.OPERATOR)
    page = _page(client, **query)
    assert _ids(page) == [older.public_id]
    chips = [" ".join(chip.text_content().split()) for chip in page.xpath("//ul[@class='chips']/li")]
    assert any("partner:" in chip for chip in chips) and any("state:failed" in chip for chip in chips)
    form = page.xpath("//form[@class='view-form']")[0]
    fields = {one.get("name"): one.get("value") for one in form.xpath(".//input[@type='hidden']")}
    answer = client.post(form.get("action"), {**fields, "name": "Globex, yesterday", "shared": "1"})
    assert answer.status_code in (302, 303)
    view = SavedView.objects.get()
    assert _ids(_page(browser(Role.VIEWER), view=view.public_id, **query)) == [older.public_id]
    assert view.shared


def test_a_filter_is_taken_away_by_its_chip(db: None) -> None:
    _several()
    page = _page(browser(), q="state:delivered size>1k inv-1", direction="out", window="all")
    links = {
        chip.text_content().split()[0]: chip.xpath("./a/@href")[0] for chip in page.xpath("//ul[@class='chips']/li")
    }
    assert set(links) == {"state:delivered", "size>1k", "id:", "dir:"}
    assert "q=size%3E1k+inv-1" in links["state:delivered"]
    assert "q=state%3Adelivered+size%3E1k&" in links["id:"]
    assert "direction" not in links["dir:"]


def test_what_has_no_index_is_searched_further_on_request(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "SCANNED", 2)
    partner = partner_side()
    wanted = submit(partner, content=b"x" * 2000)
    for _ in range(4):
        submit(partner)
    client = browser()
    page = _page(client, q="size>1k")
    assert _ids(page) == []
    assert "Searched back to" in page.xpath("//p[@data-testid='looked-back']")[0].text_content()
    further = page.xpath("//p[@data-testid='looked-back']/a/@href")[0]
    found = []
    for _ in range(4):
        page = html.fromstring(client.get(f"/messages/{further}").content)
        found += _ids(page)
        links = page.xpath("//p[@data-testid='looked-back']/a/@href")
        if not links:
            break
        further = links[0]
    assert found == [wanted.public_id]
    lines = b"".join(client.get("/messages/?q=size%3E1k&format=csv").streaming_content).decode().splitlines()
    assert len(lines) == 2 and wanted.message_id in lines[1]


def test_jumping_to_a_time_shows_what_was_then_and_the_way_back(db: None) -> None:
    _, _, older, old = _several()
    at = f"{older.created_at + timedelta(hours=1):%Y-%m-%dT%H:%M}"
    page = _page(browser(), at=at, window="all")
    assert _ids(page) == [older.public_id, old.public_id]
    assert page.xpath("//a[@rel='prev']")


def test_jumping_needs_no_window_and_file_and_jobs_mean_the_same(db: None) -> None:
    from messaging.bulk import selectors as bulk

    _, new, older, old = _several()
    client = browser(Role.ADMIN)
    at = f"{older.created_at + timedelta(hours=1):%Y-%m-%dT%H:%M}"
    page = _page(client, at=at)
    assert _ids(page) == [older.public_id, old.public_id]
    assert page.xpath("//a[@data-testid='window-all']/@aria-current") == ["true"]
    (href,) = set(page.xpath("//a[@rel='prev']/@href"))
    back = html.fromstring(client.get(f"/messages/{href}").content)
    assert _ids(back) == [new.public_id]
    query = page.xpath("//form[@id='bulk']/input[@name='filter']/@value")[0]
    assert query == "window=all"
    meant = bulk.matching("msg", {"at": at, "window": "all"})
    assert set(meant.values_list("pk", flat=True)) == {new.pk, older.pk, old.pk}
    planned = client.post("/jobs/plan/", {"action": "messages_export", "all": "1", "filter": f"{query}&at={at}"})
    assert planned.status_code == 303, planned.content.decode()
    assert BulkJob.objects.get().total == 3
    lines = b"".join(client.get("/messages/", {"at": at, "format": "csv"}).streaming_content).decode().splitlines()
    assert len(lines) == 4


def test_a_time_without_messages_says_so_and_leads_on(db: None) -> None:
    _, _, _, old = _several()
    before = f"{old.created_at - timedelta(hours=1):%Y-%m-%dT%H:%M}"
    nothing = _page(browser(), at=before).get_element_by_id("live-messages")
    assert "No message before that time." in nothing.text_content()
    at = f"{old.created_at + timedelta(hours=1):%Y-%m-%dT%H:%M}"
    client = browser()
    narrow = _page(client, at=at, window="7d").get_element_by_id("live-messages")
    assert "in this window" in narrow.text_content()
    href = narrow.xpath(".//a[text()='All time']/@href")[0]
    assert _ids(html.fromstring(client.get(f"/messages/{href}").content)) == [old.public_id]


def test_a_view_that_is_saved_after_a_jump_keeps_no_place(db: None) -> None:
    from messaging.access.services.preferences import canonical

    assert canonical("at=2026-01-01T00:00&state=failed&cursor=x") == "state=failed"


def test_a_term_that_there_is_not_is_said_beside_the_search(db: None) -> None:
    _several()
    page = _page(browser(), q="tag:x", window="all")
    assert _ids(page) == []
    (note,) = page.xpath("//div[contains(@class, 'alert-warning')]")
    assert "tag is not a term" in note.text_content() and "state, partner" in note.text_content()
    quoted = _page(browser(), q='"tag:x"', window="all")
    assert not quoted.xpath("//div[contains(@class, 'alert-warning')]")
    one = submit(partner_side(), message_id="tag:order-1")
    found = _page(browser(), q="tag:order-1")
    assert _ids(found) == [one.public_id]
    assert not found.xpath("//div[contains(@class, 'alert-warning')]")
    assert "q=%22tag%3Aorder-1%22" in found.get_element_by_id("api-call").text_content()


def test_a_plan_names_the_day_that_a_list_means_without_a_word_about_time(db: None) -> None:
    _several()
    client = browser(Role.ADMIN)
    client.post("/jobs/plan/", {"action": "messages_export", "all": "1", "filter": "q=state:delivered"})
    job = BulkJob.objects.get()
    assert (job.total, job.what) == (1, "q: state:delivered, window: 24h")


def test_the_columns_say_how_long_the_acknowledgement_took(time: FrozenClock) -> None:
    partner = partner_side()
    one = submit(partner)
    with link() as wire:
        work()
        time.move(2)
        partner.send(partner.acknowledgement(wire.last))
    page = _page(browser())
    row = page.get_element_by_id(f"row-{one.public_id}")
    assert row.xpath("./td[@data-label='Acknowledged after']")[0].text_content() == "2.00 s"
    assert not row.xpath("./td[@data-label='Conversation']")
    assert row.xpath(f".//button[@data-copy='#id-{one.public_id}']")


def test_a_short_look_is_a_page_and_a_dialog(scene: World) -> None:
    url = f"/messages/{scene.outbound.public_id}/peek/"
    client = browser(Role.VIEWER)
    assert scene.outbound.message_id in client.get(url).content.decode()
    fragment = client.get(url, headers={"HX-Request": "true", "HX-Target": "dialog"}).content.decode()
    assert 'id="dialog-title"' in fragment and "<html" not in fragment


def test_bulk_verbs_say_which_role_they_need(scene: World) -> None:
    page = _page(browser(Role.VIEWER))
    assert page.xpath("//button[@data-testid='bulk-messages_resubmit']/@aria-disabled") == ["true"]
    assert _page(browser(Role.ADMIN)).xpath("//button[@data-testid='bulk-messages_cancel']/@value") == [
        "messages_cancel"
    ]


def test_jobs_about_all_that_match_mean_what_the_list_shows(db: None) -> None:
    from messaging.bulk import selectors as bulk

    _, new, older, old = _several()
    for given, expected in (
        ({}, {new.pk}),
        ({"q": "state:delivered"}, {new.pk}),
        ({"window": "all"}, {new.pk, older.pk, old.pk}),
        ({"since": "2020-01-01", "before": f"{older.created_at:%Y-%m-%dT%H:%M}"}, {old.pk}),
    ):
        found = searching.of_list(given, now=datetime.now(UTC), zone=UTC)
        assert not found.problems
        assert set(bulk.matching("msg", given).values_list("pk", flat=True)) == expected, given


TABS = {
    "timeline": "timeline",
    "headers": "headers",
    "payloads": "payloads",
    "wire": "wire-parts",
    "related": "conversation",
    "history": "events",
}


@pytest.mark.parametrize("tab", TABS)
def test_every_tab_has_its_part_and_the_url_says_which(time: FrozenClock, tab: str) -> None:
    partner = partner_side()
    one, _ = delivered(partner, 2)
    submit(partner, conversation_id=one.conversation_id)
    page = html.fromstring(browser().get(f"/messages/{one.public_id}/?tab={tab}").content)
    assert page.xpath(f"//h2[@id='{TABS[tab]}']")
    assert page.xpath("//nav[@aria-label='Parts of this message']//a[@aria-current='page']/text()") == [
        tab.capitalize()
    ]


def test_the_header_is_shown_value_by_value_and_raw(scene: World) -> None:
    client = browser(Role.VIEWER)
    page = html.fromstring(client.get(f"/messages/{scene.outbound.public_id}/?tab=headers").content)
    values = {
        row.xpath("./td[1]")[0].text_content().rpartition("/")[2]: row.xpath("./td[2]")[0].text_content()
        for row in page.xpath("//h2[@id='headers']/ancestor::section//tbody/tr")
    }
    assert values["MessageId"] == scene.outbound.message_id
    assert values["Action"] == ACTION
    raw = html.fromstring(client.get(f"/messages/{scene.outbound.public_id}/?tab=headers&mode=raw").content)
    assert "<MessageId>" in raw.xpath("//div[@class='code']/pre")[0].text_content()
    assert not AuditEntry.objects.filter(verb__in=("payload.read", "message.read_wire")).exists()


def test_the_parts_are_listed_without_opening_a_document(scene: World) -> None:
    page = html.fromstring(browser(Role.VIEWER).get(f"/messages/{scene.outbound.public_id}/?tab=wire").content)
    rows = [" ".join(row.text_content().split()) for row in page.xpath("//h2[@id='wire-parts']/../..//tbody/tr")]
    assert len(rows) == 3
    assert rows[0].startswith("multipart/related") and "payload 1" in rows[2] and rows[2].endswith("8 B")
    assert not AuditEntry.objects.filter(verb__in=("payload.read", "message.read_wire")).exists()


def test_attempt_three_is_two_presses_from_the_id(time: FrozenClock) -> None:
    partner = partner_side(retries=3, timeout=60, retry_interval=60)
    one = submit(partner)
    answers = [b"HTTP 500 A\r\nDate: 1\r\n\r\nx", b"HTTP 500 A\r\nDate: 2\r\n\r\nx", b"HTTP 500 A\r\nDate: 3\r\n\r\nyy"]
    for number, response in enumerate(answers, start=1):
        with link(Receipt(ok=False, status=500, cause="http_5xx", detail="HTTP 500", response=response)):
            while Transmission.objects.filter(message=one).count() < number:
                work()
                time.move(61)
    client = browser(Role.OPERATOR)
    landing = client.get("/go", {"q": one.message_id})
    assert landing.status_code in (302, 303)
    page = html.fromstring(client.get(landing["Location"]).content)
    seen = []
    for number in (2, 3):
        href = page.xpath(f"//a[@data-testid='attempt-{number}']/@href")[0]
        attempt = html.fromstring(client.get(href).content)
        assert attempt.xpath("//section[@data-testid='attempt-answer']/@data-state") == ["failed"]
        seen.append(attempt.xpath("//p[@data-testid='compared']/text()")[0])
        curl = attempt.get_element_by_id("curl").text_content()
        assert partner.terms.partner_address in curl and "$PARTNER_AUTHORIZATION" in curl
    assert seen == ["As to attempt 1; only date differ.", "Its content differs from that to attempt 2."]


def test_neighbours_in_the_pair_are_one_press_away(db: None) -> None:
    first, second, third = delivered(partner_side(), 3)
    page = html.fromstring(browser().get(f"/messages/{second.public_id}/").content)
    assert page.xpath("//a[@data-testid='previous']/@href") == [f"/messages/{first.public_id}/?tab=timeline"]
    assert page.xpath("//a[@data-testid='next']/@href") == [f"/messages/{third.public_id}/?tab=timeline"]


def test_a_message_is_resubmitted_from_its_page_once(db: None) -> None:
    old = delivered(partner_side())[0]
    client = browser(Role.OPERATOR, "olga")
    url = f"/messages/{old.public_id}/resubmit/"
    once = html.fromstring(client.get(url).content).xpath("//input[@name='once']/@value")[0]
    assert client.post(url, {"reason": "", "once": once}).status_code == 422
    answers = [client.post(url, {"reason": "The partner lost it", "once": once}) for _ in range(2)]
    made = Message.objects.get(resubmitted_from=old)
    assert [answer["Location"] for answer in answers] == [f"/messages/{made.public_id}/"] * 2
    related = client.get(f"/messages/{made.public_id}/?tab=related").content.decode()
    assert f"/messages/{old.public_id}/" in related
    waiting = client.get(f"/messages/{made.public_id}/resubmit/").content.decode()
    assert "waits in the queue" in waiting


def test_a_received_message_is_redelivered_from_its_page(db: None) -> None:
    partner = partner_side()
    partner.send(partner.message(1))
    one = Message.objects.filter(direction="in").latest("id")
    client = browser(Role.OPERATOR)
    answer = client.post(f"/messages/{one.public_id}/redeliver/", {"reason": "made the trigger late"})
    assert answer.status_code == 409
    assert "No trigger wants this document" in answer.content.decode()


def test_large_payloads_are_read_in_parts_and_searched(db: None) -> None:
    partner = partner_side()
    content = b"<a>" + b"abc\n" * 100_000 + b"needle</a>"
    one = message_submit(
        agreement=partner.terms.tpa_id, service=SERVICE, action=ACTION, payloads=[NewPayload(content, "text/plain")]
    ).message
    client = browser(Role.OPERATOR)
    page = html.fromstring(client.get(f"/messages/{one.public_id}/payloads/1/?find=needle").content)
    assert "256.00 of 390.64 KiB" in page.xpath("//*[@data-testid='part']")[0].text_content()
    found = page.xpath("//p[@data-testid='found']")[0]
    assert "1 place with" in found.text_content()
    there = client.get(f"/messages/{one.public_id}/payloads/1/{found.xpath('./a/@href')[0]}")
    assert html.fromstring(there.content).xpath("//span[@class='t-found']/text()") == ["needle"]
    following = page.xpath("//a[@rel='next']/@href")[0]
    assert "offset=262144" in following


def test_what_a_partner_says_stays_text_in_every_tab(time: FrozenClock) -> None:
    partner = refused(partner_side())
    one = Message.objects.get(pk=partner.outbound.in_flight_id)
    for tab in TABS:
        assert "<b>so there" not in browser().get(f"/messages/{one.public_id}/?tab={tab}").content.decode(), tab


def test_a_message_that_waits_has_no_header_and_says_so(time: FrozenClock) -> None:
    suspended(time)
    one = Message.objects.filter(state="queued").first()
    assert one is not None
    for tab in ("headers", "wire"):
        assert "not sent yet" in browser().get(f"/messages/{one.public_id}/?tab={tab}").content.decode()


def test_the_beginning_of_an_id_is_enough_for_the_search_at_the_top(db: None) -> None:
    one = submit(partner_side(), message_id="invoice-2026-0001@acme")
    text = browser(Role.VIEWER).get("/go", {"q": "invoice-2026"}).content.decode()
    assert f"/messages/{one.public_id}/" in text


def test_statistics_that_are_too_old_do_not_count_less_than_is_shown(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("messaging.messages.pages.listing.PAGE", 2)
    monkeypatch.setattr("messaging.messages.pages.listing.finding.planned", lambda filters: 1)
    _several()
    words = _page(browser(Role.VIEWER), range="all", window="all").text_content()
    assert "more than 2" in words and "about 1" not in words
