"""Pairs: the list, the page, the dialogs."""

from __future__ import annotations

import pytest
from django.db import transaction
from django.test import Client
from lxml import html

from messaging.choices import MessageState
from messaging.journal.incidents import incident_open
from messaging.models import AuditEntry, Incident, Message, Pair
from messaging.pairs.services import operating
from messaging.protocol.errors import ErrorCode
from messaging.transports import Receipt
from rmhub import clock
from rmhub.clock import FrozenClock
from rmhub.roles import Role
from tests.messaging.console.scenes import ANA, browser, delivered, refused, suspended
from tests.messaging.factories import decoded, link, partner_side, submit, work

pytestmark = pytest.mark.django_db


def _text(client: Client, url: str) -> str:
    """The page's words, each run of blanks as one."""
    page = html.fromstring(client.get(url).content)
    return " ".join(page.get_element_by_id("main").text_content().split())


def _url(pair: Pair, verb: str = "") -> str:
    code = pair.code.replace(">", "%3E")
    return f"/pairs/{code}/actions/{verb}/" if verb else f"/pairs/{code}/"


def _post(client: Client, pair: Pair, verb: str, **fields: object) -> int:
    given = {"version": Pair.objects.get(pk=pair.pk).version, "reason": "Partner fixed their firewall", **fields}
    return client.post(_url(pair, verb), given).status_code


def test_the_list_begins_with_what_needs_somebody_and_says_why(time: FrozenClock) -> None:
    delivered(partner_side())
    stuck = suspended(time).outbound
    page = html.fromstring(browser().get("/pairs/").content)
    first = page.xpath("//tr[@data-testid='pair-row']")[0]
    assert first.get("data-state") == "suspended"
    words = " ".join(first.text_content().split())
    assert stuck.code in words
    assert "Partner certificate expired" in words and "cert_expired" in words
    assert "3 #1 NewOrder 1 of 1" in words  # queue, first in line, retries


def test_the_queue_of_a_pair_is_one_number_on_all_pages(time: FrozenClock) -> None:
    """The one that is first in line and the two behind it."""
    stuck = suspended(time).outbound
    stuck.refresh_from_db()
    assert (stuck.queued, stuck.in_queue) == (2, 3)
    client = browser()

    def numbers(url: str, path: str) -> list[str]:
        return [" ".join(one.text_content().split()) for one in html.fromstring(client.get(url).content).xpath(path)]

    cell = "//td[@data-label='Queue']"
    assert numbers("/", cell) == numbers("/incidents/", cell) == ["3"]
    assert numbers("/pairs/?state=suspended", cell) == ["3"]
    assert numbers("/", "//*[@data-testid='blocked']") == ["3"], "the sum over those that are held up"
    assert numbers(_url(stuck), "//*[@data-testid='queue']") == ["3 2 behind it"]
    assert numbers(_url(stuck), "//*[@data-testid='tab-queue']") == ["Queue 3"]
    assert "3: #1 in front, 2 behind it" in _text(client, f"{_url(stuck)}?tab=queue")
    lines = b"".join(client.get("/pairs/?format=csv&state=suspended").streaming_content).decode().splitlines()
    assert dict(zip(lines[0].split(","), lines[1].split(","), strict=True))["queue"] == "3"


def test_the_incident_of_a_row_is_the_one_about_its_trouble(time: FrozenClock) -> None:
    """A newer one about something else is not what is acknowledged with one press."""
    stuck = suspended(time).outbound
    about = Incident.objects.get(pair=stuck)
    with transaction.atomic():
        newer, _ = incident_open(pair=stuck, cause="certificate_expiring", now=clock.now())
    assert newer.number > about.number
    operator = browser(Role.OPERATOR, "olga")
    (button,) = html.fromstring(operator.get("/pairs/").content).xpath("//button[@data-testid='acknowledge']")
    (back,) = button.getparent().xpath("./input[@name='next']/@value")
    answer = operator.post(button.getparent().get("action"), {"next": back})
    assert (answer.status_code, answer["Location"]) == (303, "/pairs/")
    about.refresh_from_db()
    newer.refresh_from_db()
    assert (about.owner, newer.owner) == ("olga", "")
    assert f">{about}</a>" in operator.get(_url(stuck, "resume")).content.decode()
    viewer = html.fromstring(browser(Role.VIEWER).get("/pairs/").content)
    assert not viewer.xpath("//button[@data-testid='acknowledge']")


def test_the_menu_of_a_row_has_what_can_be_done_now_and_leads_back_to_the_list(time: FrozenClock) -> None:
    stuck = suspended(time).outbound
    here = "/pairs/?state=suspended"

    def menu(client: Client) -> list[str]:
        page = html.fromstring(client.get(here).content)
        (found,) = page.xpath("//*[@data-testid='row-menu']")
        return list(found.xpath(".//*[starts-with(@data-testid, 'row-')]/@data-testid"))

    everywhere = ["row-messages", "row-settings"]
    operator = browser(Role.OPERATOR, "olga")
    verbs = ["row-resume", "row-skip-head", "row-restart-sequence", "row-pause", "row-ping"]
    assert menu(operator) == ["row-menu-open", *verbs, "row-assign", *everywhere]
    assert menu(browser(Role.VIEWER)) == ["row-menu-open", *verbs, *everywhere]
    page = html.fromstring(operator.get(here).content)
    (resume,) = page.xpath("//*[@data-testid='row-resume']")
    (skip,) = page.xpath("//*[@data-testid='row-skip-head']")
    assert "href" not in skip.attrib and "Needs the role admin." in skip.text_content()
    dialog = html.fromstring(operator.get(resume.get("href")).content)
    assert dialog.xpath("//form[@data-testid='verb-form']/input[@name='next']/@value") == [here]
    fields = {"version": Pair.objects.get(pk=stuck.pk).version, "reason": "their firewall is fixed", "next": here}
    again = html.fromstring(operator.post(_url(stuck, "resume"), {**fields, "reason": ""}).content)
    assert again.xpath("//form[@data-testid='verb-form']/input[@name='next']/@value") == [here], "not lost on the way"
    answer = operator.post(_url(stuck, "resume"), fields)
    assert (answer.status_code, answer["Location"]) == (303, here)


def test_tabs_count_pairs_by_state_and_narrow_the_list(time: FrozenClock) -> None:
    stuck = suspended(time).outbound
    partner_side().inbound  # noqa: B018  (makes a pair that is at rest)
    held = partner_side().outbound
    operating.pair_pause(pair_id=held.pk, actor=ANA, reason="maintenance")
    page = html.fromstring(browser().get("/pairs/?state=paused").content)
    counts = {
        name: page.xpath(f"//*[@data-testid='count-{name}']/span")[0].text for name in ("suspended", "paused", "active")
    }
    assert counts == {"suspended": "1", "paused": "1", "active": "1"}
    rows = page.xpath("//tr[@data-testid='pair-row']//a[starts-with(@id, 'pair-')]/text()")
    assert rows == [held.code]
    assert stuck.code not in rows


def test_the_list_is_narrowed_to_one_partner(time: FrozenClock) -> None:
    ours, other = partner_side(), partner_side()
    codes = {side.outbound.code for side in (ours, other)}
    wanted, party = ours.outbound.code, ours.outbound.partner
    client = browser()
    page = html.fromstring(client.get(f"/pairs/?partner={party.public_id}").content)
    shown = page.xpath("//tr[@data-testid='pair-row']//a[starts-with(@id, 'pair-')]/text()")
    assert wanted in shown and not (codes - {wanted}) & set(shown)
    assert page.get_element_by_id("filter-partner").value == party.name
    assert f"partner={party.public_id}" in page.get_element_by_id("api-call").text_content()
    assert f"partner={party.public_id}" in page.xpath("//form[@id='bulk']/input[@name='filter']/@value")[0]
    lines = b"".join(client.get(f"/pairs/?partner={party.public_id}&format=csv").streaming_content).decode()
    assert wanted in lines and (codes - {wanted}).pop() not in lines
    for strange in ("Globex", f"par_{'0' * 32}"):
        page = html.fromstring(client.get("/pairs/", {"partner": strange}).content)
        assert not page.xpath("//tr[@data-testid='pair-row']")
        (note,) = page.xpath("//div[contains(@class, 'alert-warning')]")
        assert f"No partner is called {strange}." in note.text_content()
    page = html.fromstring(client.get("/pairs/", {"partner": party.name.lower()}).content)
    assert page.xpath("//tr[@data-testid='pair-row']//a[starts-with(@id, 'pair-')]/text()") == shown
    page = html.fromstring(client.get("/pairs/", {"partner": f"{party.name}x", "direction": "out"}).content)
    hints = {link.text: link.get("href") for link in page.xpath("//*[@data-testid='instead']/a")}
    assert hints[party.name] == f"?partner={party.name.replace(' ', '+')}&direction=out"


def test_the_list_goes_on_by_key(time: FrozenClock) -> None:
    party = partner_side()
    template = party.outbound
    for number in range(60):
        Pair.objects.create(
            direction="out",
            sender_uri=f"http://a{number}.example",
            receiver_uri="http://b.example",
            own_party=template.own_party,
            partner=template.partner,
            code=f"MANY>{number:02d}",
        )
    client = browser()
    seen: list[str] = []
    url = "/pairs/?q=MANY"
    while url:
        page = html.fromstring(client.get(url).content)
        seen += page.xpath("//tr[@data-testid='pair-row']//a[starts-with(@id, 'pair-')]/text()")
        following = page.xpath("//a[@rel='next']/@href")
        url = f"/pairs/{following[0]}" if following else ""
        assert not url or "q=MANY" in url
    assert seen == [f"MANY>{number:02d}" for number in range(60)]


def test_a_cursor_of_another_list_starts_at_the_top(time: FrozenClock) -> None:
    partner_side().outbound  # noqa: B018  (makes the pair)
    assert browser().get("/pairs/?cursor=made-up&q=x").status_code == 200


def test_a_suspended_pairs_page_says_why_what_waits_and_what_to_do(time: FrozenClock) -> None:
    pair = suspended(time, waiting=3).outbound
    time.move(3600)
    words = _text(browser(), _url(pair))
    assert "Suspended for 1 h" in words
    assert "Message #1 (NewOrder) was tried 2 times." in words
    assert "The partner's server shows a certificate that is past its date." in words
    assert "certificate has expired" in words
    assert "3 documents wait behind it. Nothing is sent until somebody resumes the pair." in words
    assert "What to do: Ask the partner to renew it." in words
    assert str(Incident.objects.get(pair=pair)) in words


def test_buttons_that_cannot_be_used_say_why(time: FrozenClock) -> None:
    pair = suspended(time).outbound
    page = html.fromstring(browser(Role.OPERATOR).get(_url(pair)).content)
    for verb, why in (("retry-now", "The pair is suspended; resume it."), ("skip-head", "Needs the role admin.")):
        button = page.get_element_by_id(f"verb-{verb}")
        assert button.tag == "button" and button.get("aria-disabled") == "true"
        assert page.get_element_by_id(button.get("aria-describedby")).text == why
    assert page.get_element_by_id("verb-resume").get("href") == _url(pair, "resume")


def test_resume_sends_the_same_octets_and_leaves_an_audit_entry(time: FrozenClock) -> None:
    partner = suspended(time)
    pair = partner.outbound
    message = Message.objects.get(pk=pair.in_flight_id)
    client = browser(Role.OPERATOR, "olivia")
    answer = client.post(
        _url(pair, "resume"), {"version": pair.version, "reason": "Certificate replaced"}, REMOTE_ADDR="10.0.0.9"
    )
    assert answer.status_code == 303
    assert answer["Location"] == _url(pair)
    assert "is resumed." in _text(client, answer["Location"])
    with link() as wire:
        work()
    assert decoded(wire.last).message_id == message.message_id
    assert decoded(wire.last).hop.sequence_number == message.sequence_number
    entry = AuditEntry.objects.get(verb="pair.resume")
    assert (entry.actor, entry.interface, entry.address, entry.reason) == (
        "olivia",
        "console",
        "10.0.0.9",
        "Certificate replaced",
    )
    assert entry.request_id.startswith("req_")
    assert Incident.objects.get(pair=pair).resolution == "Certificate replaced"


def test_the_second_of_two_people_is_told_who_was_faster(time: FrozenClock) -> None:
    pair = suspended(time).outbound
    slow = browser(Role.OPERATOR)
    form = html.fromstring(slow.get(_url(pair, "resume")).content)
    version = form.xpath("//input[@name='version']/@value")[0]
    assert _post(browser(Role.OPERATOR, "ana"), pair, "resume", reason="I was first") == 303
    time.move(12)
    answer = slow.post(_url(pair, "resume"), {"version": version, "reason": "Me too"})
    assert answer.status_code == 409
    assert "ana was faster: resume, 12 s ago: I was first" in answer.content.decode()
    assert AuditEntry.objects.filter(verb="pair.resume").count() == 1


def test_a_verb_that_the_state_refuses_changes_nothing(time: FrozenClock) -> None:
    pair = suspended(time).outbound
    before = Pair.objects.filter(pk=pair.pk).values().get()
    assert _post(browser(), pair, "release") == 409
    assert _post(browser(), pair, "retry-now") == 409
    assert Pair.objects.filter(pk=pair.pk).values().get() == before


@pytest.mark.parametrize("fields", [{"reason": ""}, {"reason": "  x "}, {"version": "old"}, {"version": ""}])
def test_a_form_that_is_not_complete_is_shown_again(time: FrozenClock, fields: dict[str, str]) -> None:
    pair = suspended(time).outbound
    assert _post(browser(), pair, "resume", **fields) == 422
    assert Pair.objects.get(pk=pair.pk).flow == "suspended"


def test_what_was_typed_is_still_there_when_the_form_comes_again(time: FrozenClock) -> None:
    pair = suspended(time).outbound
    answer = browser().post(
        _url(pair, "skip-head"), {"version": pair.version, "reason": "Sent by <mail>", "confirm": "no"}
    )
    page = html.fromstring(answer.content)
    assert page.get_element_by_id("field-reason").get("value") == "Sent by <mail>"
    assert page.xpath("//*[@id='form-errors']//a/@href") == ["#field-confirm"]


def test_skipping_needs_the_pairs_code_and_restarts_the_sequence(time: FrozenClock) -> None:
    partner = suspended(time, waiting=1)
    pair = partner.outbound
    assert _post(browser(), pair, "skip-head", confirm="another") == 422
    assert _post(browser(), pair, "skip-head", confirm=pair.code.lower()) == 303
    with link() as wire:
        work()
    assert decoded(wire.last).hop.sequence_number == 1
    assert Message.objects.filter(state=MessageState.SKIPPED).count() == 1


def test_the_dialog_says_what_will_be_sent_in_which_order_and_what_is_final(time: FrozenClock) -> None:
    pair = suspended(time, waiting=7).outbound
    words = _text(browser(), _url(pair, "resume"))
    message = Message.objects.get(pk=pair.in_flight_id)
    assert "Sends message #1 (NewOrder) again at once: the same MessageId, the same sequence number" in words
    assert message.digest[:12] in words
    assert "Then the 7 that wait, one at a time, in the order in which they were submitted." in words
    assert "The retry counter starts at zero: 2 attempts within 2 m, then it suspends again." in words
    assert "What has been sent cannot be unsent." in words
    first = Message.objects.filter(state="queued").order_by("position")[0]
    assert first.message_id[:10] in words
    words = _text(browser(), _url(pair, "skip-head"))
    assert "it is never sent again on this pair" in words
    assert "the next message goes out as number 1" in words


def test_restart_sends_the_refused_message_as_number_one(time: FrozenClock) -> None:
    partner = partner_side()
    delivered(partner, 3)
    refused(partner)
    pair = partner.outbound
    message = Message.objects.get(pk=pair.in_flight_id)
    assert message.sequence_number == 4
    words = _text(browser(), _url(pair))
    assert "The partner refuses the sequence number" in words
    assert "last accepted 7 <b>so there</b>" in words
    assert _post(browser(), pair, "restart-sequence", confirm=pair.code) == 303
    with link() as wire:
        work()
    assert (decoded(wire.last).message_id, decoded(wire.last).hop.sequence_number) == (message.message_id, 1)


def test_pause_holds_and_release_lets_go(time: FrozenClock) -> None:
    partner = partner_side()
    pair = partner.outbound
    client = browser(Role.OPERATOR, "ana")
    assert _post(client, pair, "pause", reason="Maintenance until two") == 303
    submit(partner)
    with link() as wire:
        work()
        assert wire.parcels == []
        time.move(600)
        words = _text(client, _url(pair))
        assert "Paused by ana for 10 m." in words
        assert "“Maintenance until two”" in words
        assert "1 document waits." in words
        assert _post(client, pair, "release") == 303
        work()
    assert len(wire.parcels) == 1


def test_an_inbound_pair_can_be_told_which_number_to_expect(time: FrozenClock) -> None:
    partner = partner_side()
    partner.send(partner.message(1))
    pair = partner.inbound
    assert "Number 2 is expected next" in _text(browser(), _url(pair))
    for number in ("", "0", "1000000000", "two", "-1", "٣"):
        assert _post(browser(), pair, "expect-sequence", expected=number, confirm=pair.code) == 422, number
    assert _post(browser(), pair, "expect-sequence", expected="41", confirm=pair.code) == 303
    partner.send(partner.message(41))
    assert partner.inbound.last_sequence == 41


@pytest.mark.parametrize("verb", ["resume", "pause", "expect-sequence", "nonsense"])
def test_a_verb_of_the_other_direction_or_none_at_all_is_not_found(time: FrozenClock, verb: str) -> None:
    partner = partner_side()
    pair = partner.outbound if verb == "expect-sequence" else partner.inbound
    assert browser().get(_url(pair, verb)).status_code == 404
    assert _post(browser(), pair, verb) == 404


def test_a_pair_that_is_not_there_is_not_found() -> None:
    for code in ("NOPE", "A%00B", "pair_00", "x" * 300):
        assert browser().get(f"/pairs/{code}/").status_code == 404


def test_the_attempts_show_their_answers(time: FrozenClock) -> None:
    pair = suspended(time, receipt=Receipt(ok=False, status=503, cause="http_5xx", detail="HTTP 503")).outbound
    page = html.fromstring(browser().get(_url(pair)).content)
    rows = page.xpath("//h2[@id='attempts']/ancestor::section//tbody/tr")
    assert len(rows) == 2
    assert "HTTP 503 Partner's server failed" in " ".join(rows[0].text_content().split())


def test_every_error_code_of_a_partner_has_words(time: FrozenClock) -> None:
    for code in ErrorCode:
        if code in (ErrorCode.TRANSIENT_ERROR,):
            continue
        words = _text(browser(), _url(refused(partner_side(), code).outbound))
        assert "What to do:" in words
        assert f"{code}: last accepted" in words
