"""What messages are found by: taken from documents by rules, or given by applications; searched, shown, taken again."""

from __future__ import annotations

from typing import Any

import pytest
from lxml import html

from messaging.bulk.services import jobs
from messaging.exceptions import IdempotencyMismatch, InvalidSubmission
from messaging.journal.audit import Actor
from messaging.messages import attributes
from messaging.messages.selectors import searching
from messaging.messages.selectors.finding import MessageFilters, message_page
from messaging.messages.services.resubmitting import message_resubmit
from messaging.messages.services.submitting import NewPayload, message_submit
from messaging.models import AttributeRule, Event, Message, Pair
from messaging.overview.selectors import finding
from messaging.protocol.envelope import DocumentReference, PayloadPart
from partners import visibility
from rmhub import clock
from rmhub.roles import Role
from tests.messaging.api.client import Api, make_token, make_user, submission
from tests.messaging.console.scenes import browser
from tests.messaging.factories import ACTION, SERVICE, PartnerSide, link, partner_side, submit, work
from tests.messaging.profiles.stream.partner import stream_side

pytestmark = pytest.mark.django_db

ADA = Actor("ada", "console")
XML = b'<o:Order xmlns:o="urn:o"><o:Number> 4711 </o:Number><Buyer id="B-9"/><Empty/></o:Order>'
DOCUMENTS: dict[str, tuple[bytes, str, str]] = {
    "xml": (XML, "application/xml", "//Order/Number"),
    "json": (b'{"order": {"number": 4711}}', "application/json", "$.order.number"),
    "edi": (
        b"UNB+UNOC:3+A+B+261127:1000+1'UNH+1+ORDERS'BGM+220+4711+9'UNT+3+1'UNZ+1+1'",
        "application/edifact",
        "BGM+2",
    ),
    "csv": (b"Line;Order number;Item\r\n1;;x\r\n2;4711;y\r\n", "text/csv", "order NUMBER"),
}


def make_rule(path: str = "//Order/Number", **values: Any) -> AttributeRule:
    settings = {"name": "order", "kind": "xml", "path": path, **values}
    return attributes.rule_create(actor=ADA, reason="people ask for it", **settings)


def hand_in(partner: PartnerSide, content: bytes = XML, content_type: str = "application/xml", **more: Any) -> Message:
    payloads = [NewPayload(content, content_type, "order")]
    return message_submit(
        agreement=partner.terms.tpa_id, service=SERVICE, action=ACTION, payloads=payloads, **more
    ).message


def stored(message: Message) -> dict[str, str] | None:
    return Message.objects.get(pk=message.pk).attributes


def found(text: str) -> list[Message]:
    searched = searching.read(text, MessageFilters(), now=clock.now())
    assert searched.problems == []
    return list(message_page(searched.filters).rows)


def test_the_box_at_the_top_finds_them_with_their_name_and_without() -> None:
    partner, page = partner_side(), browser(Role.VIEWER)
    message = hand_in(partner, attributes={"invoice": "4711-X"})
    for text in ("invoice:4711-X", "4711-X"):
        assert page.get("/go", {"q": text}, follow=True).redirect_chain[-1][0] == f"/messages/{message.public_id}/"
    assert "Nothing has this id." in page.get("/go", {"q": "order:4711-X"}).content.decode()
    hand_in(partner, attributes={"invoice": "4711-X"})
    listed = page.get("/go", {"q": "4711-X"}).content.decode()
    assert "2 hits for" in listed
    with visibility.only(frozenset(), "nobody"):
        assert finding.find("4711-X").hits == []


# --- taken ---


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_a_rule_takes_the_value_from_documents_of_its_kind(kind: str) -> None:
    content, content_type, _ = DOCUMENTS[kind]
    for number, (other, (_, _, elsewhere)) in enumerate(DOCUMENTS.items()):
        make_rule(elsewhere, name="order" if other == kind else f"other{number}", kind=other)
    partner = partner_side()
    assert stored(hand_in(partner, content, content_type)) == {"order": "4711"}
    payloads = (PayloadPart("p1@partner.example", content_type, content),)
    partner.send(
        partner.message(1, payloads=payloads, manifest=(DocumentReference("Order", "cid:p1@partner.example"),))
    )
    received = Message.objects.get(direction="in")
    assert received.attributes == {"order": "4711"}
    assert found("order:4711") == [received, Message.objects.get(direction="out")]


def test_what_comes_by_other_profiles_is_found_too() -> None:
    make_rule()
    side = stream_side()
    side.send(side.message(1, content=XML))
    assert Message.objects.get(direction="in").attributes == {"order": "4711"}


@pytest.mark.parametrize(
    ("values", "taken"),
    [
        ({}, True),
        ({"service": SERVICE, "action": ACTION}, True),
        ({"service": "urn:other"}, False),
        ({"action": "Other"}, False),
        ({"enabled": False}, False),
        ({"kind": "json", "path": "$.number"}, False),
        ({"path": "//Nothing"}, False),
        ({"path": "//Empty"}, False),
    ],
)
def test_a_rule_is_about_what_it_says(values: dict[str, Any], taken: bool) -> None:
    make_rule(**values)
    assert stored(hand_in(partner_side())) == ({"order": "4711"} if taken else None)


def test_a_rule_of_one_partner_takes_nothing_from_another() -> None:
    one, other = partner_side(), partner_side()
    make_rule(partner=one.terms.partner_id)
    assert stored(hand_in(one)) == {"order": "4711"}
    assert stored(hand_in(other)) is None


def test_of_several_rules_for_one_attribute_the_first_that_finds_something_counts() -> None:
    make_rule("//Missing")
    make_rule("//Order/Number")
    make_rule("//Buyer/@id", name="buyer")
    assert stored(hand_in(partner_side())) == {"order": "4711", "buyer": "B-9"}


@pytest.mark.parametrize("content", [b"<Order", b"<!DOCTYPE x><Order><Number>1</Number></Order>", b"\xff\xfe\x00"])
def test_a_document_that_cannot_be_read_is_taken_all_the_same(content: bytes) -> None:
    make_rule()
    partner = partner_side()
    assert partner.send(partner.message(1, content=content)) == 204
    assert Message.objects.get().attributes is None


def test_a_long_value_is_cut_and_blanks_are_one() -> None:
    make_rule()
    body = b"<Order><Number>a\n  b" + b"c" * 500 + b"</Number></Order>"
    taken = stored(hand_in(partner_side(), body))
    assert taken is not None and taken["order"].startswith("a bcc") and len(taken["order"]) == 200


# --- given ---


def test_what_the_document_says_counts_before_what_its_application_said() -> None:
    make_rule()
    given = {"order": "4712", "customer": "Globex Ltd"}
    assert stored(hand_in(partner_side(), attributes=given)) == {"order": "4711", "customer": "Globex Ltd"}


@pytest.mark.parametrize(
    "given",
    [
        {"Order": "1"},
        {"1st": "1"},
        {"a b": "1"},
        {"order": ""},
        {"order": "x" * 201},
        {"order": "a\nb"},
        {f"a{n}": "1" for n in range(21)},
    ],
)
def test_attributes_that_cannot_be_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(InvalidSubmission) as refused:
        hand_in(partner_side(), attributes=given)
    assert [*refused.value.errors] == ["attributes"]
    assert not Message.objects.exists()


def test_a_submission_with_other_attributes_is_another_submission() -> None:
    partner = partner_side()
    first = hand_in(partner, attributes={"a": "1"}, idempotency_key="k", submitted_by="app")
    assert hand_in(partner, attributes={"a": "1"}, idempotency_key="k", submitted_by="app").pk == first.pk
    with pytest.raises(IdempotencyMismatch):
        hand_in(partner, attributes={"a": "2"}, idempotency_key="k", submitted_by="app")


def test_a_resubmission_is_found_by_the_same() -> None:
    partner = partner_side()
    message = hand_in(partner, attributes={"customer": "Globex"}, semantics="BestEffort")
    with link():
        work()
    again = message_resubmit(message_id=message.pk, actor=ADA, reason="They lost it.").message
    assert again.pk != message.pk and stored(again) == {"customer": "Globex"}


def test_the_api_takes_and_shows_them() -> None:
    partner = partner_side()
    api = Api(make_token(make_user(Role.OPERATOR)))
    answer = api.submit(submission(partner, attributes={"customer": "Globex Ltd"}))
    assert answer.status == 202, answer.json
    shown = api.get(f"/messages/{answer.json['id']}").json
    assert shown["attributes"] == {"customer": "Globex Ltd"}
    make_rule("//x", name="customer")
    listed = api.get("/messages", {"q": 'customer:"Globex Ltd"'}).json["data"]
    assert [one["id"] for one in listed] == [shown["id"]]
    assert Event.objects.get(type="message.accepted").data["attributes"] == {"customer": "Globex Ltd"}
    refused = api.submit(submission(partner, attributes={"A": "1"}))
    assert (refused.status, refused.code) == (422, "invalid_submission")
    assert refused.json["errors"][0]["pointer"] == "#/attributes"


def test_a_form_has_them_one_by_one() -> None:
    partner = partner_side()
    api = Api(make_token(make_user(Role.OPERATOR)))
    fields = [("agreement", partner.terms.tpa_id), ("service", SERVICE), ("action", ACTION)]
    fields += [("attribute", "customer:Globex: Ltd"), ("attribute", "po:7"), ('payload"; filename="a', "<Order/>")]
    part = '--x\r\nContent-Disposition: form-data; name="{}"\r\n\r\n{}\r\n'
    body = "".join(part.format(*one) for one in fields) + "--x--\r\n"
    kind = {"Content-Type": "multipart/form-data; boundary=x", "Idempotency-Key": "k"}
    answer = api.call("POST", "/messages", body.encode(), **kind)
    assert answer.status == 202, answer.json
    assert Message.objects.get().attributes == {"customer": "Globex: Ltd", "po": "7"}


# --- searched ---


def test_search_terms_and_plain_words() -> None:
    make_rule()
    make_rule("//Buyer/@id", name="buyer")
    partner = partner_side()
    message = hand_in(partner)
    other = hand_in(partner, XML.replace(b"4711", b"4712"))
    assert found("order:4711") == [message]
    assert found("ORDER:4711") == [message]
    assert found("4711") == [message]
    assert found("B-9") == [other, message]
    assert found("buyer:B-9 order:4712") == [other]
    assert found("order:4711 state:failed") == []
    assert found("order:471") == []


def test_a_value_with_blanks_is_quoted_and_one_without_a_rule_is_found_by_its_name() -> None:
    make_rule("//Buyer/@name", name="buyer")
    body = b'<Order><Buyer name="Globex Ltd"/></Order>'
    message = hand_in(partner_side(), body, attributes={"cost-centre": "77"})
    assert found('buyer:"Globex Ltd"') == found('"Globex Ltd"') == found("cost-centre:77") == [message]
    searched = searching.read("cost-centre:78", MessageFilters(), now=clock.now())
    assert "cost-centre is not a term" in searched.problems[0]


def test_who_sees_one_partner_finds_nothing_of_another() -> None:
    make_rule()
    one, other = partner_side(), partner_side()
    hand_in(one, attributes={"project": "x"})
    with visibility.only(frozenset({other.terms.partner_id})):
        assert found("order:4711") == found("4711") == []
        assert searching.given_attribute("project:x") is None


def test_ids_are_found_as_before_although_attributes_look_like_them() -> None:
    partner = partner_side()
    message = submit(partner, message_id="order:4711")
    make_rule("//x", name="invoice")
    assert found('"order:4711"') == found("order:4711") == [message]


# --- shown ---


def test_a_value_that_is_not_shown_is_found_and_shown_nowhere() -> None:
    make_rule(name="iban", shown=False)
    make_rule("//Buyer/@id", name="buyer")
    message = hand_in(partner_side(), XML.replace(b"4711", b"DE0212"))
    assert stored(message) == {"iban": "DE0212", "buyer": "B-9"}
    assert found("iban:DE0212") == [message]
    api = Api(make_token(make_user(Role.ADMIN)))
    for path in (f"/messages/{message.public_id}", "/messages", "/events", f"/messages/{message.public_id}/events"):
        assert b"DE0212" not in api.get(path).content, path
    page = browser(Role.ADMIN)
    for path in (f"/messages/{message.public_id}/", "/messages/?window=all", "/messages/?window=all&format=csv"):
        content = page.get(path).getvalue()
        assert b"DE0212" not in content and (b"B-9" in content or "csv" not in path), path


def test_the_page_of_a_message_leads_to_others_with_the_same() -> None:
    make_rule()
    partner = partner_side()
    message = hand_in(partner)
    hand_in(partner)
    page = html.fromstring(browser(Role.VIEWER).get(f"/messages/{message.public_id}/").content)
    (link_,) = page.xpath("//*[@data-testid='attribute-order']/a")
    assert link_.text == "4711"
    listed = html.fromstring(browser(Role.VIEWER).get(link_.get("href")).content)
    assert len(listed.xpath("//tr[starts-with(@id, 'row-msg_')]")) == 2


# --- rules ---


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"name": "Order"}, "name"),
        ({"name": "state"}, "name"),
        ({"name": "order number"}, "name"),
        ({"path": "//["}, "path"),
        ({"kind": "json", "path": "//Order"}, "path"),
        ({"kind": "csv", "path": "0"}, "path"),
        ({"kind": "edi", "path": "BGM"}, "path"),
    ],
)
def test_a_rule_that_cannot_be_is_refused(values: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidSubmission) as refused:
        make_rule(**values)
    assert [*refused.value.errors] == [field]


def test_a_rule_that_is_gone_leaves_what_it_has_taken() -> None:
    rule = make_rule()
    partner = partner_side()
    message = hand_in(partner)
    attributes.rule_delete(attribute_id=rule.pk, actor=ADA, reason="No longer needed.")
    assert stored(hand_in(partner)) is None
    assert found("order:4711") == [message]


def test_stored_messages_are_taken_again_as_a_job() -> None:
    partner = partner_side()
    messages = [hand_in(partner), hand_in(partner, attributes={"order": "old", "customer": "Globex"})]
    no_document = hand_in(partner, b"plain", "text/plain")
    make_rule()
    planned = jobs.job_plan(
        action="messages_attributes", parameters={}, ids=[one.pk for one in (*messages, no_document)], actor=ADA
    )
    jobs.job_execute(job_id=planned.pk, actor=ADA, reason="A new rule.", expect_count=3)
    jobs.run_due()
    planned.refresh_from_db()
    assert (planned.state, planned.done) == ("finished", 3)
    assert [stored(one) for one in messages] == [{"order": "4711"}, {"order": "4711", "customer": "Globex"}]
    assert stored(no_document) is None
    pair = Pair.objects.get(pk=partner.outbound.pk)
    assert pair.queued == 3, "nothing else of the messages has changed"
