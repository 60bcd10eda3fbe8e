"""Document ids on the pages of messages and deliveries, in the lists, the search, and the dialog that sends anew."""

from __future__ import annotations

import pytest
from django.test import Client
from lxml import html

from messaging.models import Delivery, Message
from rmhub.clock import FrozenClock
from tests.messaging.console.scenes import browser
from tests.messaging.deliveries.stage import application, make_trigger, work
from tests.messaging.factories import PartnerSide, partner_side, submit

pytestmark = pytest.mark.django_db


@pytest.fixture
def partner(time: FrozenClock) -> PartnerSide:
    return partner_side()


@pytest.fixture
def twice(partner: PartnerSide) -> tuple[Delivery, Delivery]:
    """A document that came with two messages: processed, and a duplicate."""
    with application() as app:
        make_trigger(app)
        for number in (1, 2):
            assert partner.send(partner.message(number, f"m{number}@partner", document_id="order-1")) == 204
        work()
    first, second = Delivery.objects.order_by("position")
    return first, second


def _page(client: Client, url: str) -> html.HtmlElement:
    answer = client.get(url)
    assert answer.status_code == 200, url
    return html.fromstring(answer.content)


def _words(found: list[html.HtmlElement]) -> str:
    return " ".join(" ".join(one.text_content().split()) for one in found)


def test_w44_a_duplicate_is_shown_at_its_message_with_a_way_to_the_first(
    twice: tuple[Delivery, Delivery],
) -> None:
    first, second = twice
    page = _page(browser(), f"/messages/{second.message.public_id}/")
    assert _words(page.xpath("//*[@data-testid='document-id']")) == "order-1"
    (link,) = page.xpath("//a[@data-testid='first-message']")
    assert link.get("href") == f"/messages/{first.message.public_id}/"
    page = _page(browser(), f"/deliveries/{second.public_id}/")
    (fact,) = page.xpath("//*[@data-testid='first-delivery']")
    assert f"/deliveries/{first.public_id}/" in fact.xpath(".//a/@href")
    assert "nothing begun" not in _words(page.xpath("//dl")), "the history has the document"
    assert not _page(browser(), f"/deliveries/{first.public_id}/").xpath("//*[@data-testid='first-delivery']")


def test_w44_the_lists_find_and_hold_it(twice: tuple[Delivery, Delivery], partner: PartnerSide) -> None:
    submit(partner, document_id="another")
    client = browser()
    for url in ("/messages/?q=document:order-1", "/messages/?document=order-1", "/messages/?q=order-1"):
        ids = _page(client, url).xpath("//tr[@data-state]/@id")
        assert set(ids) == {f"row-{one.message.public_id}" for one in twice}, url
    lines = b"".join(client.get("/messages/?document=order-1&format=csv").streaming_content).decode()
    assert lines.splitlines()[0].split(",").count("document_id") == 1
    assert lines.count("order-1") == 2
    lines = b"".join(client.get("/deliveries/?q=order-1&format=csv").streaming_content).decode()
    assert lines.count("order-1") == 2


def test_w45_the_dialog_keeps_the_id_or_takes_another(partner: PartnerSide) -> None:
    client = browser()
    done = submit(partner, document_id="order-1")
    Message.objects.filter(pk=done.pk).update(state="delivered", due_at=None)
    url = f"/messages/{done.public_id}/resubmit/"
    (field,) = _page(client, url).xpath("//input[@name='document_id']")
    assert field.get("value") == "order-1"
    assert client.post(url, {"reason": "they lost it", "document_id": "order-1", "once": "1"}).status_code == 303
    assert client.post(url, {"reason": "once more", "document_id": "order-1b", "once": "2"}).status_code == 303
    made = Message.objects.filter(resubmitted_from=done.pk).order_by("id")
    assert [message.document_id for message in made] == ["order-1", "order-1b"]
    answer = client.post(url, {"reason": "once more", "document_id": "é", "once": "3"})
    assert answer.status_code == 422
    assert "printable ASCII" in answer.content.decode()


def test_w18_a_trigger_says_where_documents_hold_their_id(partner: PartnerSide) -> None:
    trigger = make_trigger(name="Orders", kind="pull", document_id_path="//Order/ID")
    page = _page(browser(), f"/triggers/{trigger.public_id}/")
    assert "//Order/ID" in page.text_content()
    (field,) = _page(browser(), f"/triggers/{trigger.public_id}/edit/").xpath("//input[@name='document_id_path']")
    assert field.get("value") == "//Order/ID"
