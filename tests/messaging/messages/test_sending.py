"""Documents that people send by hand: new ones, corrected ones, tests; checked before they go."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote_plus

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from lxml import html

from messaging.messages.services.submitting import NewPayload, message_submit
from messaging.models import AuditEntry, Message, Payload
from rmhub.roles import Role
from tests.messaging.api.client import Api, make_token, make_user, submission
from tests.messaging.console.scenes import browser, iban_mask, invoice_attribute
from tests.messaging.factories import ACTION, SERVICE, PartnerSide, link, partner_side, work
from tests.partners.factories import make_agreement

pytestmark = pytest.mark.django_db

ORDER = "<Order>\n<Number>1</Number>\n<IBAN>DE02</IBAN>\n</Order>"


def fields(**changes: str) -> dict[str, Any]:
    given = {"service": SERVICE, "action": ACTION, "text": ORDER, "reason": "They asked for it.", "once": "a"}
    return {**given, **changes}


def address(partner: PartnerSide) -> str:
    return f"/messages/new/?agreement={partner.terms.tpa_id}"


def said(page: Any) -> str:
    return " ".join(html.fromstring(page.content).xpath("//*[@id='form-errors']")[0].text_content().split())


def ended(partner: PartnerSide, content: str = ORDER, **values: Any) -> Message:
    payloads = [NewPayload(content.encode(), "application/xml", "order.xml")]
    made = message_submit(
        agreement=partner.terms.tpa_id,
        service=SERVICE,
        action=ACTION,
        payloads=payloads,
        semantics="BestEffort",
        **values,
    ).message
    with link():
        work()
    return Message.objects.get(pk=made.pk)


def test_a_person_chooses_the_agreement_and_sends_a_text() -> None:
    partner = partner_side()
    person = browser(Role.OPERATOR)
    offered = html.fromstring(person.get("/messages/new/").content).xpath("//a[@data-testid='offered']/text()")
    assert partner.terms.tpa_id in offered
    answer = person.post(address(partner), fields(document_id="order-1"))
    assert answer.status_code == 303, said(answer)
    message = Message.objects.get()
    assert answer["Location"] == f"/messages/{message.public_id}/"
    assert (message.state, message.identifies) == ("queued", "order-1")
    assert (message.service, message.action) == (SERVICE, ACTION)
    payload = Payload.objects.get()
    assert (bytes(payload.content or b""), payload.content_type) == (ORDER.encode(), "application/xml")
    entry = AuditEntry.objects.get(verb="message.send")
    assert (entry.reason, entry.after["message_id"]) == ("They asked for it.", message.message_id)


def test_a_partner_is_named_instead_of_its_agreement() -> None:
    partner = partner_side()
    person, party = browser(Role.OPERATOR), partner.outbound.partner
    page = html.fromstring(person.get(f"/partners/{party.public_id}/").content)
    (sends,) = page.xpath("//a[@data-testid='send']/@href")
    (tests,) = page.xpath("//a[@data-testid='send-test']/@href")
    assert person.get(sends)["Location"] == f"?agreement={quote_plus(partner.terms.tpa_id)}"
    assert "test=1" in person.get(tests)["Location"]
    assert person.get("/messages/new/", {"agreement": party.name.upper()}).status_code == 302
    second = make_agreement(partner=party, tpa_id="tpa:second")
    several = html.fromstring(person.get(tests).content).xpath("//a[@data-testid='offered']")
    assert {one.text for one in several} == {partner.terms.tpa_id, second.agreement.tpa_id}
    assert all("test=1" in one.get("href") for one in several)


def test_nobody_of_that_name_has_an_agreement() -> None:
    partner = partner_side()
    answer = browser(Role.OPERATOR).get("/messages/new/", {"agreement": partner.outbound.partner.name[:4]})
    assert answer.status_code == 422
    (said,) = html.fromstring(answer.content).xpath("//*[@data-testid='missing']")
    assert "no agreement is in force" in said.text_content()
    assert said.xpath(".//a")[0].text == partner.outbound.partner.name


def test_who_may_not_send_is_offered_nothing_on_the_page_of_a_partner() -> None:
    party = partner_side().outbound.partner
    page = html.fromstring(browser(Role.VIEWER).get(f"/partners/{party.public_id}/").content)
    assert not page.xpath("//a[@data-testid='send'] | //a[@data-testid='send-test']")


def test_two_presses_of_one_form_send_one_document() -> None:
    partner = partner_side()
    person = browser(Role.OPERATOR)
    first, second = (person.post(address(partner), fields())["Location"] for _ in range(2))
    assert first == second and Message.objects.count() == 1


def test_it_is_checked_before_it_goes_and_a_file_need_not_be_chosen_again() -> None:
    invoice_attribute(service="", path="//Number")
    partner = partner_side()
    person = browser(Role.OPERATOR)
    file = SimpleUploadedFile("order.xml", ORDER.encode(), "application/xml")
    page = html.fromstring(person.post(address(partner), fields(text="", step="check") | {"file": file}).content)
    assert not Message.objects.exists()
    assert page.xpath("//*[@data-testid='checked-invoice']/text()") == ["1"]
    kept = {name: page.xpath(f"//input[@name='{name}']/@value")[0] for name in ("kept", "kept_name", "once")}
    assert person.post(address(partner), fields(text="", step="send", **kept)).status_code == 303
    payload = Payload.objects.get()
    assert (bytes(payload.content or b""), payload.filename) == (ORDER.encode(), "order.xml")
    broken = html.fromstring(person.post(address(partner), fields(text="<Order>", step="check")).content)
    assert "not well-formed" in broken.xpath("//*[@data-testid='checked']")[0].text_content()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"text": ""}, "Give the document"),
        ({"reason": ""}, "say why"),
        ({"service": "urn:other"}, "not one of the available choices"),
        ({"message_id": "a b"}, "Printable ASCII"),
        ({"document_id": "ä"}, "It has to be"),
        ({"content_type": "nonsense"}, "is not a content type"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_lost(changes: dict[str, str], sentence: str) -> None:
    partner = partner_side()
    answer = browser(Role.OPERATOR).post(address(partner), fields(**changes))
    assert answer.status_code == 422
    assert sentence.lower() in said(answer).lower()
    assert not Message.objects.exists()
    if changes.get("text") != "":
        (area,) = html.fromstring(answer.content).xpath("//textarea[@name='text']")
        assert area.text_content().strip() == ORDER


def test_a_test_document_says_so() -> None:
    partner = partner_side()
    page = html.fromstring(browser(Role.OPERATOR).get(f"{address(partner)}&test=1").content)
    assert "This is a test document" in page.xpath("//textarea[@name='text']")[0].text_content()
    assert page.xpath("//input[@name='document_id']/@value")[0].startswith("test-")


def test_who_may_not_write_sends_nothing() -> None:
    partner = partner_side()
    person = browser(Role.VIEWER)
    assert person.post(address(partner), fields()).status_code == 403
    assert b'data-testid="send"' not in person.get("/messages/").content
    assert browser(Role.OPERATOR).get("/messages/new/?agreement=tpa:none").status_code == 422


# --- corrected ---


def test_a_document_is_corrected_and_goes_out_as_a_new_message() -> None:
    partner = partner_side()
    first = ended(partner, document_id="order-1", attributes={"customer": "Globex"})
    person = browser(Role.OPERATOR)
    page = html.fromstring(person.get(f"/messages/{first.public_id}/edit/").content)
    text = page.xpath("//textarea[@name='text']")[0].text_content().strip()
    assert text == ORDER
    assert page.xpath("//input[@name='document_id']/@value") == ["order-1"]
    changed = fields(text=text.replace(">1<", ">2<"), document_id="order-1b", content_type="application/xml")
    answer = person.post(f"/messages/{first.public_id}/edit/", changed)
    assert answer.status_code == 303, said(answer)
    second = Message.objects.exclude(pk=first.pk).get()
    assert (second.resubmitted_from_id, second.identifies) == (first.pk, "order-1b")
    entry = AuditEntry.objects.get(verb="message.resubmit")
    assert entry.after["resubmitted_as"] == second.public_id
    shown = html.fromstring(person.get(f"/messages/{second.public_id}/difference/").content)
    assert shown.xpath("//*[@class='line-removed']/text()") == ["-<Number>1</Number>"]
    assert shown.xpath("//*[@class='line-added']/text()") == ["+<Number>2</Number>"]
    related = person.get(f"/messages/{second.public_id}/?tab=related").content.decode()
    assert f"/messages/{second.public_id}/difference/" in related
    assert AuditEntry.objects.filter(verb="payload.read").count() == 3


def test_the_difference_covers_what_is_covered() -> None:
    partner = partner_side()
    first = ended(partner)
    api = Api(make_token(make_user(Role.OPERATOR)))
    made = api.submit(submission(partner, resubmitted_from=first.public_id))
    assert made.status == 202, made.json
    iban_mask(service="")
    person = browser(Role.OPERATOR)
    assert b"DE02" not in person.get(f"/messages/{made.json['id']}/difference/").content
    assert person.get(f"/messages/{first.public_id}/edit/").status_code == 303, "what is covered is not edited"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_document_that_is_edited_keeps_the_ends_of_its_lines(end: str) -> None:
    first = ended(partner_side(), ORDER.replace("\n", end))
    person = browser(Role.OPERATOR)
    path = f"/messages/{first.public_id}/edit/"
    page = html.fromstring(person.get(path).content)
    crlf = dict.fromkeys(page.xpath("//input[@name='crlf']/@name"), "on")
    # As a browser sends it.
    changed = fields(text=ORDER.replace(">1<", ">2<").replace("\n", "\r\n"), **crlf)
    assert person.post(path, changed).status_code == 303
    payload = Payload.objects.get(message__resubmitted_from=first)
    assert bytes(payload.content or b"") == ORDER.replace(">1<", ">2<").replace("\n", end).encode()


def test_a_document_that_is_not_utf_8_is_not_edited() -> None:
    partner = partner_side()
    payloads = [
        NewPayload("<?xml version='1.0' encoding='ISO-8859-1'?><N>M\u00fcller</N>".encode("latin-1"), "application/xml")
    ]
    given: dict[str, Any] = {"agreement": partner.terms.tpa_id, "service": SERVICE, "action": ACTION}
    made = message_submit(**given, payloads=payloads, semantics="BestEffort").message
    with link():
        work()
    answer = browser(Role.OPERATOR).get(f"/messages/{made.public_id}/edit/", follow=True)
    assert "It is not text in UTF-8" in answer.content.decode()


@pytest.mark.parametrize("why", ["not done", "binary", "large", "viewer"])
def test_what_cannot_be_edited_says_why(why: str) -> None:
    partner = partner_side()
    person: Client = browser(Role.OPERATOR)
    content = {"binary": "\x00\x01" * 50, "large": "x" * 300_000}.get(why, ORDER)
    if why == "not done":
        api = Api(make_token(make_user(Role.OPERATOR)))
        reference = api.submit(submission(partner)).json["id"]
    else:
        reference = ended(partner, content).public_id
    if why == "viewer":
        assert browser(Role.VIEWER).get(f"/messages/{reference}/edit/").status_code == 403
        return
    answer = person.get(f"/messages/{reference}/edit/", follow=True)
    assert "It cannot be edited." in answer.content.decode()
    assert Message.objects.count() == 1


def test_the_api_corrects_what_is_done_only() -> None:
    partner = partner_side()
    api = Api(make_token(make_user(Role.OPERATOR)))
    waiting = api.submit(submission(partner)).json["id"]
    refused = api.submit(submission(partner, resubmitted_from=waiting))
    assert (refused.status, refused.code) == (409, "wrong_state")
    missing = api.submit(submission(partner, resubmitted_from="msg_" + "0" * 32))
    assert missing.status == 404
