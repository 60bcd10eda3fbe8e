"""The dashboard's verdict and numbers, and the jump to an id."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from lxml import html

from messaging.models import Pair
from messaging.overview.selectors import health, overview
from messaging.pairs.services import operating
from rmhub import clock
from rmhub.clock import FrozenClock
from rmhub.roles import Role
from tests.messaging.console.pages import PAGES
from tests.messaging.console.scenes import ANA, World, browser, delivered, suspended
from tests.messaging.factories import REFUSED, link, partner_side, submit, work

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def broker_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_broker_answers", lambda: True)


def _verdict(client: Client) -> tuple[str, str]:
    page = html.fromstring(client.get("/").content)
    line = page.xpath("//*[@data-testid='verdict']")[0]
    return line.get("data-state"), line.text_content().strip()


def _numbers(client: Client) -> dict[str, str]:
    page = html.fromstring(client.get("/").content)
    return {
        name: page.xpath(f"//*[@data-testid='{name}']")[0].text
        for name in ("waiting", "blocked", "delivered", "received", "duplicates", "rejected")
    }


def test_an_empty_hub_says_what_comes_first() -> None:
    assert _verdict(browser()) == ("good", "No pair yet: pairs appear when an agreement is active.")


def test_when_all_is_well_it_says_so(time: FrozenClock) -> None:
    delivered(partner_side())
    assert _verdict(browser()) == ("good", "The one pair flows; 0 documents on the way.")


def test_a_suspended_pair_is_the_first_thing_to_be_read(time: FrozenClock) -> None:
    suspended(time, waiting=4)
    time.move(3600 * 3 + 12 * 60 - 61)
    level, sentence = _verdict(browser())
    assert level == "bad"
    assert sentence == "1 pair suspended, the longest for 3 h 12 m; 5 documents held up."


def test_trouble_that_mends_itself_is_told_apart(time: FrozenClock) -> None:
    partner = partner_side()
    submit(partner)
    with link(REFUSED):
        work()
    level, sentence = _verdict(browser())
    assert (level, sentence) == ("watch", "No pair is suspended; 1 retrying. 1 document to go.")


def test_a_paused_pair_waits_for_a_person(time: FrozenClock) -> None:
    partner = partner_side()
    operating.pair_pause(pair_id=partner.outbound.pk, actor=ANA, reason="maintenance")
    submit(partner)
    client = browser()
    assert _verdict(client)[0] == "watch"
    row = html.fromstring(client.get("/").content).xpath("//h2[@id='needs-you']/ancestor::section//tbody/tr")[0]
    assert row.get("data-state") == "paused"


def test_workers_that_do_nothing_are_the_worst_news(time: FrozenClock) -> None:
    submit(partner_side())
    time.move(health.OVERDUE_SECONDS + 30)
    level, sentence = _verdict(browser())
    assert level == "bad"
    assert sentence == "The hub is behind: something was due 1 m 30 s ago. Check workers and beat."


def test_a_broker_that_does_not_answer_is_said(time: FrozenClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_broker_answers", lambda: False)
    assert "The broker does not answer" in _verdict(browser())[1]
    found = overview.overview(clock.now()).health
    assert (found.database, found.broker, found.ready, found.ok) == (True, False, True, False)


def test_the_numbers_are_those_of_the_pairs(scene: World) -> None:
    assert _numbers(browser()) == {
        "waiting": "6",  # and the first in line of the suspended pair, which has failed
        "blocked": "3",
        "delivered": "1",
        "received": "6",
        "duplicates": "1",
        "rejected": "1",
    }


def test_numbers_are_not_counted_from_the_store(scene: World) -> None:
    Pair.objects.filter(pk=scene.pair.pk).update(queued=1_234_566)
    assert _numbers(browser())["blocked"] == "1,234,567"


@pytest.mark.parametrize("field", ["outbound", "inbound", "queued"])
def test_an_exact_id_jumps_to_its_page(scene: World, field: str) -> None:
    message = getattr(scene, field)
    for text in (message.public_id, message.message_id, f"  {message.message_id} "):
        answer = browser().get("/go", {"q": text})
        assert answer.status_code == 303
        assert answer["Location"] == f"/messages/{message.public_id}/"


def test_ids_of_every_kind_jump(scene: World) -> None:
    agreement = scene.outbound.agreement_version.agreement
    identifier = scene.partner.identifiers.get()
    wanted = {
        scene.pair.code: "pairs/",
        scene.pair.code.lower(): "pairs/",
        scene.pair.public_id: "pairs/",
        str(scene.incident): f"incidents/{scene.incident}/",
        str(scene.incident).lower(): f"incidents/{scene.incident}/",
        scene.incident.public_id: "incidents/",
        scene.transmission.public_id: f"transmissions/{scene.transmission.public_id}/",
        scene.signal.public_id: f"signals/{scene.signal.public_id}/",
        scene.rejection.public_id: f"rejections/{scene.rejection.public_id}/",
        scene.partner.public_id: f"partners/{scene.partner.public_id}/",
        identifier.value: f"partners/{scene.partner.public_id}/",
        f"{identifier.context}:{identifier.value}": f"partners/{scene.partner.public_id}/",
        agreement.tpa_id: f"agreements/{agreement.public_id}/",
        agreement.public_id: f"agreements/{agreement.public_id}/",
        scene.outbound.conversation_id: f"messages/{scene.outbound.public_id}/",
    }
    client = browser()
    for text, where in wanted.items():
        answer = client.get("/go", {"q": text})
        assert answer.status_code == 303, text
        assert answer["Location"].startswith(f"/{where}"), text


# Rows of lists and dialogs, not things with a page of their own.
_NO_PAGE = ("ses", "cir", "tok", "view", "ofc")


def test_every_id_in_the_address_of_a_page_jumps_where_one_may_go(scene: World) -> None:
    texts = {str(argument) for page in PAGES for argument in page.arguments(scene)}
    ids = sorted(text for text in texts if re.fullmatch(r"[a-z]+_[0-9a-f]{32}", text))
    named = [text for text in ids if text.partition("_")[0] not in _NO_PAGE]
    assert {text.partition("_")[0] for text in named} >= {
        *("end", "cred", "whe", "dlv", "poll", "plog", "rule", "mask", "grp", "inq", "tst", "drf")
    }
    admin, viewer = browser(Role.ADMIN), browser(Role.VIEWER, "vera")
    for text in named:
        answer = admin.get("/go", {"q": text})
        assert answer.status_code == 303, text
        assert admin.get(answer["Location"]).status_code == 200, text
        seen = viewer.get("/go", {"q": text})
        allowed = seen.status_code == 303
        assert viewer.get(answer["Location"]).status_code == (200 if allowed else 403), text
        if not allowed:
            assert "Nothing has this id" in seen.content.decode()
            assert answer["Location"].encode() not in viewer.get("/palette/", {"q": text}).content
        assert admin.get("/go", {"q": f"{text[:-6]}000000"}).status_code == 200, text


def test_several_hits_are_listed_and_none_is_said(scene: World) -> None:
    client = browser()
    page = html.fromstring(client.get("/go", {"q": scene.partner.name[:3]}).content)
    assert page.xpath(f"//a[@href='/partners/{scene.partner.public_id}/']")
    for text in ("zzz-nothing", "msg_00", "msg_" + "0" * 32, "INC-999999", "%", "_", "x" * 600, ""):
        assert client.get("/go", {"q": text}).status_code == 200, text


def test_a_conversation_of_many_leads_to_the_list(time: FrozenClock) -> None:
    partner = partner_side()
    for _ in range(12):
        submit(partner, conversation_id="big")
    page = html.fromstring(browser().get("/go?q=big").content)
    assert page.xpath("//a[@href='/messages/?q=big']")
