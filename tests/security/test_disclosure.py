"""Masks hold for every way on which people and their scripts read documents, and fail closed."""

from __future__ import annotations

import pytest

from messaging.entrance.refusals import Arrival
from messaging.journal.audit import Actor
from messaging.messages import masks
from messaging.models import AuditEntry, Delivery, Message, Rejection, Transmission
from messaging.protocol import masking, selecting
from messaging.protocol.masking import COVER
from messaging.protocol.selecting import Unreadable
from messaging.transports import Receipt
from partners.models import Agreement, Party
from rmhub.roles import Role
from tests.messaging.api.client import Api, make_token, make_user
from tests.messaging.console.scenes import browser, documents, iban_mask, passed_on, trigger_for
from tests.messaging.factories import link, partner_side, submit, work
from tests.messaging.messages.test_masks import ORDER, order

pytestmark = pytest.mark.django_db
_ADA = Actor("ada", "console")
SECRET = b"DE0212"


def _look(message: Message) -> bytes:
    return browser(Role.OPERATOR).get(f"/messages/{message.public_id}/payloads/1/").content


@pytest.mark.parametrize(
    ("content", "content_type"),
    [
        (b" " * 201 + ORDER, "text/plain"),
        (b"\n\v\f" * 5000 + ORDER, "application/octet-stream"),
        (b"Here it is:\n" + ORDER, "text/plain"),
        (ORDER.decode().encode("utf-16"), "text/plain"),
        (b"\x00" * 300 + ORDER, "application/octet-stream"),
        (b"\x1f\x8b\x08\x00" + bytes(range(32)) * 20, "application/gzip"),
    ],
    ids=["blanks", "more blanks", "words before", "wide", "zeros", "packed"],
)
def test_a_document_whose_kind_is_hidden_is_not_shown_uncovered(content: bytes, content_type: str) -> None:
    iban_mask(service="")
    one = order(partner_side(), content, content_type)
    page = browser(Role.OPERATOR).get(f"/messages/{one.public_id}/payloads/1/")
    assert SECRET not in page.content and SECRET.decode().encode("utf-16-le") not in page.content
    assert page.status_code in (200, 403)
    for path in ("payloads/1/download/", "documents.zip", "wire/download/"):
        assert browser(Role.OPERATOR).get(f"/messages/{one.public_id}/{path}").status_code == 403, path


def test_a_text_that_cannot_hold_what_rules_cover_is_shown() -> None:
    iban_mask(service="")
    one = order(partner_side(), b"order;4711;7.00", "text/csv")
    assert b"order;4711;7.00" in _look(one)


def _covered(text: str, kind: str, *paths: str) -> str:
    return masking.cover(text.encode(), kind, paths, text=text)[0].decode()


def test_both_of_two_attributes_with_one_name_are_covered() -> None:
    document = '<a xmlns:x="urn:x" card="4711" x:card="4712"/>'
    made = _covered(document, "xml", "//@card")
    assert made.count(COVER) == 2 and "471" not in made
    with pytest.raises(Unreadable, match="two attributes of one name"):
        _covered(document, "xml", "//a[@card='4711']")


def test_comments_and_instructions_within_what_is_covered_are_covered() -> None:
    made = _covered("<a><IBAN><!-- DE0212 --><?pay DE0212?></IBAN></a>", "xml", "//IBAN")
    assert "DE0212" not in made


@pytest.mark.parametrize(
    "text",
    [
        "UNB+UNOA:1'NAD:1+BY+DE0212'",
        "UNB+UNOA:1'\r\n NAD+BY+DE0212'\r\n",
        "UNH+1+ORDERS'NAD+BY+DE0212'UNT+2+1'",
        "UNG+ORDERS'NAD+BY+DE0212'",
    ],
    ids=["nested tag", "lines", "without an interchange", "a group"],
)
def test_segments_are_covered_however_they_are_written(text: str) -> None:
    assert selecting.kind_of(text.encode(), "text/plain") == "edi"
    made = _covered(text, "edi", "NAD+2")
    assert COVER in made and "DE0212" not in made


@pytest.mark.parametrize(
    "text",
    [
        "UNB+UNOA:1'UNZ+1'UNA*+,! ~NAD+BY+DE0212~",
        "UNB+UNOA:1'nad+BY+DE0212'",
        "UNB|UNOA~NAD|BY|DE0212~",
        "UNA",
    ],
    ids=["other separators behind", "small letters", "no separators", "cut off"],
)
def test_segments_that_cannot_be_told_apart_are_not_shown(text: str) -> None:
    with pytest.raises(Unreadable):
        _covered(text, "edi", "NAD+2")


def test_a_rule_of_a_partner_holds_for_copies_that_were_passed_on_and_the_other_way() -> None:
    origin, onward = partner_side(), partner_side()
    origin.send(origin.message(1, content=ORDER))
    came = Message.objects.get(pair=origin.inbound)
    went = passed_on(onward, came)
    for rule_of, other in ((origin, went), (onward, came)):
        rule = iban_mask(service="", partner_id=rule_of.terms.partner_id)
        refused = browser(Role.OPERATOR).get(f"/messages/{other.public_id}/payloads/1/download/")
        assert refused.status_code == 403
        masks.mask_delete(mask_id=rule.pk, actor=_ADA, reason="the next one")


def test_a_rule_of_a_partner_holds_for_what_goes_to_it_through_a_router() -> None:
    side = partner_side()
    one = order(side)
    behind = Party.objects.create(name="Behind A Router")
    Agreement.objects.filter(pk=one.agreement_version.agreement_id).update(partner=behind)
    iban_mask(service="", partner_id=behind.pk)
    assert SECRET not in _look(one)


def test_samples_of_rejections_are_not_shown_uncovered() -> None:
    side = partner_side()
    side.send(Arrival("text/xml", ORDER, side.presented))
    made = Rejection.objects.get()
    assert made.party_name == side.terms.partner_name and bytes(made.sample) == ORDER
    operator = Api(make_token(make_user(Role.OPERATOR)))
    assert operator.get(f"/rejections/{made.public_id}/sample").content == ORDER
    partner = side.terms.partner_id
    for values in ({"service": ""}, {"service": "", "partner_id": partner}, {"kind": "json", "path": "$.a"}):
        rule = iban_mask(**values)
        read = AuditEntry.objects.filter(verb="rejection.read").count()
        refused = operator.get(f"/rejections/{made.public_id}/sample")
        assert (refused.status, refused.code) == (403, "payload_masked")
        page = browser(Role.OPERATOR).get(f"/rejections/{made.public_id}/sample/")
        assert (page.status_code, SECRET in page.content) == (403, False)
        assert AuditEntry.objects.filter(verb="rejection.read").count() == read
        admin = Api(make_token(make_user(Role.ADMIN)))
        assert admin.get(f"/rejections/{made.public_id}/sample").content == ORDER
        masks.mask_delete(mask_id=rule.pk, actor=_ADA, reason="the next one")


def test_a_pull_queue_hands_out_no_covered_document_to_a_role_below() -> None:
    side = partner_side()
    trigger = trigger_for(side, "Orders")
    (delivery,) = documents(side, "order-1")
    iban_mask(service="")
    take = {"limit": 1, "seconds": 60, "consumer": "erp"}
    operator = Api(make_token(make_user(Role.OPERATOR)))
    taken = operator.call("POST", f"/triggers/{trigger.public_id}/lease", take, query={"include": "payloads"})
    (held,) = taken.json["data"]
    assert held["delivery"] == delivery.public_id
    assert [one.get("content_base64") for one in held["document"]["payloads"]] == [None]
    assert operator.post(f"/deliveries/{delivery.public_id}/release", {"claim": held["claim"]}).status == 200
    admin = Api(make_token(make_user(Role.ADMIN)))
    taken = admin.call("POST", f"/triggers/{trigger.public_id}/lease", take, query={"include": "payloads"})
    assert taken.json["data"][0]["document"]["payloads"][0]["content_base64"]


# --- answers of synchronous requests ---


@pytest.fixture
def answered() -> Transmission:
    """The attempt of a request that the partner answered with a document."""
    far = partner_side(profile="repeatable", exchange_mode="synchronous", partner_window=3600)
    submit(far)
    body = b"HTTP 200 OK\r\nContent-Type: application/xml\r\n\r\n" + ORDER
    with link(Receipt(ok=True, status=200, response=body)):
        work()
    attempt = Transmission.objects.get(message__pair=far.outbound)
    Transmission.objects.filter(pk=attempt.pk).update(response=body)
    return Transmission.objects.get(pk=attempt.pk)


def test_a_viewer_does_not_read_documents_in_answers(answered: Transmission) -> None:
    viewer = Api(make_token(make_user(Role.VIEWER)))
    refused = viewer.get(f"/transmissions/{answered.public_id}/response")
    assert (refused.status, refused.code, refused.json["required_scope"]) == (403, "missing_scope", "payloads:read")
    page = browser(Role.VIEWER).get(f"/transmissions/{answered.public_id}/")
    assert page.status_code == 200 and SECRET not in page.content and b"answer-closed" in page.content
    assert not AuditEntry.objects.filter(verb="payload.read").exists()


def test_reading_an_answer_is_audited_and_masked_like_a_payload(answered: Transmission) -> None:
    operator = Api(make_token(make_user(Role.OPERATOR)))
    assert SECRET in operator.get(f"/transmissions/{answered.public_id}/response").content
    assert SECRET in browser(Role.OPERATOR).get(f"/transmissions/{answered.public_id}/").content
    entries = AuditEntry.objects.filter(verb="payload.read")
    assert [one.after["transmission"] for one in entries] == [answered.public_id] * 2
    iban_mask(service="")
    seen = operator.get(f"/transmissions/{answered.public_id}/response")
    assert seen.content.startswith(b"HTTP 200 OK") and SECRET not in seen.content
    page = browser(Role.OPERATOR).get(f"/transmissions/{answered.public_id}/")
    assert SECRET not in page.content and b"answer-covered" in page.content
    admin = Api(make_token(make_user(Role.ADMIN)))
    assert SECRET in admin.get(f"/transmissions/{answered.public_id}/response").content


def test_answers_that_are_no_documents_are_for_viewers_too() -> None:
    side = partner_side()
    submit(side)
    with link(Receipt(ok=False, cause="http_error", status=503, response=b"HTTP 503\r\n\r\nbusy")):
        work()
    attempt = Transmission.objects.get(message__pair=side.outbound)
    viewer = Api(make_token(make_user(Role.VIEWER)))
    assert viewer.get(f"/transmissions/{attempt.public_id}/response").content.endswith(b"busy")


# --- answers of applications: in a synchronous exchange they are the document that goes to the partner ---


@pytest.fixture
def processed() -> Delivery:
    """A delivery whose service answered with a document."""
    side = partner_side()
    trigger_for(side, "Orders")
    (delivery,) = documents(side, "order-1")
    Delivery.objects.filter(pk=delivery.pk).update(answer=ORDER, http_status=200)
    return delivery


def test_reading_what_an_application_answered_is_audited_once_a_look(processed: Delivery) -> None:
    address = f"/deliveries/{processed.public_id}"
    viewer = Api(make_token(make_user(Role.VIEWER)))
    assert viewer.get(f"{address}/answer").code == "missing_scope"
    page = browser(Role.VIEWER).get(f"{address}/")
    assert page.status_code == 200 and SECRET not in page.content and b"answer-closed" in page.content
    assert not AuditEntry.objects.filter(verb="payload.read").exists()
    assert Api(make_token(make_user(Role.OPERATOR))).get(f"{address}/answer").content == ORDER
    looking = browser(Role.OPERATOR)
    assert SECRET in looking.get(f"{address}/").content
    live = looking.get(f"{address}/", headers={"HX-Request": "true", "HX-Target": "live-delivery"})
    assert live.status_code == 200 and SECRET not in live.content
    entries = AuditEntry.objects.filter(verb="payload.read")
    assert [one.after["delivery"] for one in entries] == [processed.public_id] * 2


def test_masks_hold_for_what_an_application_answered(processed: Delivery) -> None:
    address = f"/deliveries/{processed.public_id}"
    rule = iban_mask(service="")
    refused = Api(make_token(make_user(Role.OPERATOR))).get(f"{address}/answer")
    assert (refused.status, refused.code) == (403, "payload_masked") and rule.name in refused.json["detail"]
    page = browser(Role.OPERATOR).get(f"{address}/")
    assert SECRET not in page.content and b"answer-covered" in page.content
    entry = AuditEntry.objects.filter(verb="payload.read").latest("id")
    assert entry.after["covered_by"] == [rule.name]
    assert Api(make_token(make_user(Role.ADMIN))).get(f"{address}/answer").content == ORDER
    assert SECRET in browser(Role.ADMIN).get(f"{address}/").content
