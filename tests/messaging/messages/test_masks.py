"""Masks hold wherever people read documents: on the page, in files, on the wire and in the API; and only there."""

from __future__ import annotations

from typing import Any

import pytest
from lxml import html

from messaging.exceptions import InvalidSubmission, Stale
from messaging.journal.audit import Actor
from messaging.messages import masks
from messaging.messages.services import disclosing
from messaging.messages.services.submitting import NewPayload, message_submit
from messaging.models import AuditEntry, Message, PayloadMask
from messaging.protocol.masking import COVER
from rmhub.roles import Role
from tests.messaging.api.client import Api, make_token, make_user
from tests.messaging.console.scenes import browser, iban_mask
from tests.messaging.factories import ACTION, SERVICE, PartnerSide, link, partner_side, work

pytestmark = pytest.mark.django_db
ADA = Actor("ada", "console")
ORDER = b"<Order><IBAN>DE0212</IBAN><Total>7</Total></Order>"


def order(partner: PartnerSide, content: bytes = ORDER, content_type: str = "application/xml") -> Message:
    payloads = [NewPayload(content, content_type, "order.xml")]
    made = message_submit(agreement=partner.terms.tpa_id, service=SERVICE, action=ACTION, payloads=payloads).message
    with link():
        work()
    return Message.objects.get(pk=made.pk)


def api(role: Role) -> Api:
    return Api(make_token(make_user(role)))


def reads(message: Message) -> list[str]:
    return [
        f"/messages/{message.public_id}/{path}" for path in ("payloads/1/download/", "documents.zip", "wire/download/")
    ]


def test_an_operator_sees_the_document_with_the_parts_covered(db: None) -> None:
    one = order(partner_side())
    iban_mask(service="")
    page = browser(Role.OPERATOR).get(f"/messages/{one.public_id}/payloads/1/")
    assert page.status_code == 200
    assert b"DE0212" not in page.content
    shown = html.fromstring(page.content)
    assert shown.xpath("//span[@class='t-covered']/text()") == [COVER]
    assert "<Total>7</Total>" in shown.xpath("//div[@class='code']/pre")[0].text_content()
    assert (
        "1 place of this payload is covered by Bank accounts"
        in shown.xpath("//*[@data-testid='masked']")[0].text_content()
    )
    for mode in ("raw", "hex"):
        assert b"DE0212" not in browser(Role.OPERATOR).get(f"/messages/{one.public_id}/payloads/1/?mode={mode}").content
    assert AuditEntry.objects.filter(verb="payload.read").latest("id").after["covered_by"] == ["Bank accounts"]


def test_files_and_wire_bytes_need_the_role_that_sees_it(db: None) -> None:
    one = order(partner_side())
    iban_mask(service="")
    for path in reads(one):
        answer = browser(Role.OPERATOR).get(path)
        assert (answer.status_code, b"DE0212" in answer.content) == (403, False), path
        assert browser(Role.ADMIN).get(path).status_code == 200
    wire = browser(Role.OPERATOR).get(f"/messages/{one.public_id}/wire/")
    assert (wire.status_code, b"DE0212" in wire.content) == (403, False)
    assert b"DE0212" in browser(Role.ADMIN).get(f"/messages/{one.public_id}/payloads/1/").content


def test_the_api_hands_out_the_covered_form_to_whoever_asks_for_it(db: None) -> None:
    one = order(partner_side())
    iban_mask(service="")
    path = f"/messages/{one.public_id}/payloads/1"
    operator, admin = api(Role.OPERATOR), api(Role.ADMIN)
    for below in ("/payloads/1", "/documents", "/wire"):
        refused = operator.get(f"/messages/{one.public_id}{below}")
        assert (refused.status, refused.code) == (403, "payload_masked"), below
        assert "role admin" in refused.json["detail"]
    covered = operator.get(path, {"masked": "true"})
    assert covered.status == 200
    assert COVER.encode() in covered.content and b"DE0212" not in covered.content
    assert admin.get(path).content == ORDER
    assert b"DE0212" not in admin.get(path, {"masked": "true"}).content


@pytest.mark.parametrize(
    ("values", "holds"),
    [
        ({}, True),
        ({"service": SERVICE}, True),
        ({"service": "urn:other"}, False),
        ({"enabled": False}, False),
        ({"kind": "json", "path": "$..IBAN"}, False),
        ({"visible_to": "operator"}, False),
    ],
)
def test_where_a_rule_holds(db: None, values: dict[str, Any], holds: bool) -> None:
    one = order(partner_side())
    iban_mask(**{"service": "", **values})
    page = browser(Role.OPERATOR).get(f"/messages/{one.public_id}/payloads/1/")
    assert (b"DE0212" in page.content) is not holds


def test_a_rule_of_one_partner_leaves_others_alone(db: None) -> None:
    partner, other = partner_side(), partner_side()
    iban_mask(service="", partner=partner.terms.partner_id)
    client = browser(Role.OPERATOR)
    assert b"DE0212" not in client.get(f"/messages/{order(partner).public_id}/payloads/1/").content
    assert b"DE0212" in client.get(f"/messages/{order(other).public_id}/payloads/1/").content


def test_what_cannot_be_read_is_not_shown_at_all(db: None) -> None:
    one = order(partner_side(), b"<Order><IBAN>DE0212</Order>")
    iban_mask(service="")
    page = browser(Role.OPERATOR).get(f"/messages/{one.public_id}/payloads/1/")
    assert (page.status_code, b"DE0212" in page.content) == (403, False)
    assert "needs the role admin" in html.fromstring(page.content).text_content()
    assert api(Role.OPERATOR).get(f"/messages/{one.public_id}/payloads/1", {"masked": "true"}).code == "payload_masked"


def test_nothing_changes_for_the_partner_and_what_is_stored(db: None) -> None:
    iban_mask(service="")
    partner = partner_side()
    one = order(partner)
    opened = disclosing.payload_open(message_id=one.pk, number=1, actor=ADA, role=Role.ADMIN)
    assert opened.content == ORDER
    with pytest.raises(disclosing.Masked):
        disclosing.payload_open(message_id=one.pk, number=1, actor=ADA)


def test_rules_are_made_changed_and_deleted_with_reasons(db: None) -> None:
    client = browser(Role.ADMIN, "ada")
    fields = {"name": "Cards", "kind": "xml", "path": "//@card", "visible_to": "admin", "enabled": "on"}

    def post_new(**given: str) -> Any:
        form = html.fromstring(client.get("/masks/new/").content)
        (once,) = form.xpath("//input[@name='once']/@value")
        return client.post("/masks/new/", {**fields, "once": once, **given})

    assert post_new(reason="").status_code == 422
    wrong = post_new(path="//x:card", reason="card industry")
    assert (wrong.status_code, b"names without prefixes" in wrong.content) == (422, True)
    assert post_new(reason="card industry").status_code == 303
    again = post_new(reason="card industry")
    assert (again.status_code, b"a mask named Cards already" in again.content) == (422, True)
    rule = PayloadMask.objects.get()
    url = f"/masks/{rule.public_id}/"
    version = html.fromstring(client.get(url).content).xpath("//input[@name='version']/@value")[0]
    changed = {**fields, "service": "urn:pay", "version": version, "reason": "only there"}
    assert client.post(url, changed).status_code == 303
    assert client.post(url, changed).status_code == 409
    assert client.post(f"{url}delete/", {"version": "1", "reason": "no longer"}).status_code == 409
    rule.refresh_from_db()
    answer = client.post(f"{url}delete/", {"version": str(rule.version), "reason": "no longer"})
    assert (answer.status_code, PayloadMask.objects.count()) == (303, 0)
    entries = list(AuditEntry.objects.filter(object_type="payloadmask").order_by("id"))
    assert [entry.verb for entry in entries] == ["mask.create", "mask.update", "mask.delete"]
    assert (entries[1].before, entries[1].after) == ({"service": ""}, {"service": "urn:pay"})


def test_rules_in_the_api(db: None) -> None:
    admin = api(Role.ADMIN)
    body = {"name": "Cards", "kind": "json", "path": "$..card", "reason": "card industry"}
    made = admin.post("/masks", body)
    assert (made.status, made.json["visible_to"], made.json["enabled"]) == (201, "admin", True)
    path = made.headers["location"].removeprefix("/api/v1")
    assert admin.post("/masks", body).code == "invalid_submission"
    assert admin.post("/masks", {**body, "name": "x", "path": "card"}).json["errors"][0]["pointer"] == "#/path"
    assert admin.patch(path, {"enabled": False, "reason": "paused"}).status == 428
    changed = admin.patch(path, {"enabled": False, "reason": "paused"}, If_Match=made.etag)
    assert (changed.status, changed.json["enabled"]) == (200, False)
    assert admin.patch(path, {"enabled": True, "reason": "again"}, If_Match=made.etag).status == 412
    assert [row["name"] for row in admin.get("/masks").json["data"]] == ["Cards"]
    assert admin.delete(path, {"reason": "no longer"}, If_Match=changed.etag).status == 204
    assert admin.get(path).status == 404


def test_rules_that_say_nothing_are_refused(db: None) -> None:
    for values in ({"name": ""}, {"path": ""}, {"kind": "pdf"}, {"visible_to": "viewer"}, {"name": "x" * 81}):
        with pytest.raises(InvalidSubmission):
            iban_mask(**values)
    rule = iban_mask()
    with pytest.raises(Stale):
        masks.mask_update(mask_id=rule.pk, actor=ADA, reason="not any more", expected_version=1, enabled=False)
