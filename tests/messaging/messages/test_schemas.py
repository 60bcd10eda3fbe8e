"""Schemas that documents have to fit: what is submitted, what comes in, what is held; set up, tried, found."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import reverse
from lxml import html

from messaging.engine import schemas as engine
from messaging.exceptions import DoesNotFit, InvalidSubmission, Stale
from messaging.journal.audit import Actor
from messaging.messages import schemas
from messaging.messages.selectors import searching
from messaging.messages.selectors.finding import MessageFilters, message_page
from messaging.messages.services.submitting import NewPayload, Submission, message_submit
from messaging.models import AuditEntry, Delivery, DocumentSchema, Event, Message
from messaging.protocol import selecting
from messaging.protocol.envelope import DocumentReference, PayloadPart
from rmhub import clock
from rmhub.ids import uuid7
from rmhub.roles import Role
from tests.messaging.api.client import Api, make_token, make_user, submission
from tests.messaging.console.scenes import browser
from tests.messaging.deliveries.stage import make_trigger
from tests.messaging.factories import ACTION, SERVICE, PartnerSide, partner_side

pytestmark = pytest.mark.django_db

ADA = Actor("ada", "console")
FILES = [("order.json", '{"type": "object", "required": ["number"], "properties": {"number": {"type": "string"}}}')]
LATER = [("order.json", '{"type": "object", "required": ["buyer"]}')]
GOOD, BAD = b'{"number": "4711"}', b'{\n "number": 4711}'
SENTENCE = 'line 2, column 12, $.number: Its value is not of type "string".'


def make_schema(**values: Any) -> DocumentSchema:
    settings = {"name": "Orders", "kind": "json", "files": FILES, **values}
    return schemas.schema_create(actor=ADA, reason="agreed with the partners", **settings)


def hand_in(partner: PartnerSide, content: bytes = BAD, content_type: str = "application/json") -> Submission:
    payloads = [NewPayload(content, content_type, "order")]
    return message_submit(agreement=partner.terms.tpa_id, service=SERVICE, action=ACTION, payloads=payloads)


def come_in(partner: PartnerSide, *contents: bytes, content_type: str = "application/json", number: int = 1) -> Message:
    payloads = tuple(
        PayloadPart(f"p{at}@partner.example", content_type, content) for at, content in enumerate(contents)
    )
    manifest = tuple(DocumentReference("Order", f"cid:p{at}@partner.example") for at in range(len(contents)))
    assert partner.send(partner.message(number, payloads=payloads, manifest=manifest)) == 204
    return Message.objects.filter(direction="in").latest("id")


# --- what is submitted ---


def test_what_does_not_fit_is_refused_and_nothing_is_stored() -> None:
    make_schema()
    partner = partner_side()
    with pytest.raises(DoesNotFit) as refused:
        hand_in(partner)
    assert refused.value.errors == {"payloads": [f"It does not fit schema Orders, version 1: {SENTENCE}"]}
    assert not Message.objects.exists()
    hand_in(partner, GOOD)
    assert Message.objects.get().schema_faults is None


def test_what_is_only_flagged_is_accepted_with_a_warning() -> None:
    made = make_schema(on_submission="flag")
    found = hand_in(partner_side())
    kept = {"schema": made.public_id, "name": "Orders", "version": 1, "held": False}
    fault = [2, 12, "$.number", 'Its value is not of type "string".']
    assert Message.objects.get().schema_faults == {**kept, "faults": [fault]}
    assert found.warnings == (("schema_misfit", f"Accepted. It does not fit schema Orders, version 1: {SENTENCE}"),)
    assert Event.objects.get(type="message.accepted").data["schema_faults"]["name"] == "Orders"


@pytest.mark.parametrize(
    ("values", "checked"),
    [
        ({}, True),
        ({"service": SERVICE, "action": ACTION}, True),
        ({"service": "urn:other"}, False),
        ({"action": "Other"}, False),
        ({"enabled": False}, False),
        ({"on_submission": "off"}, False),
    ],
)
def test_which_documents_a_schema_is_about(values: dict[str, Any], checked: bool) -> None:
    make_schema(**values)
    partner = partner_side()
    if checked:
        with pytest.raises(DoesNotFit):
            hand_in(partner)
    else:
        assert hand_in(partner).message.schema_faults is None


def test_the_most_particular_of_several_counts() -> None:
    partner, other = partner_side(), partner_side()
    make_schema()
    make_schema(name="Of one action", action=ACTION, files=[("a.json", "{}")])
    hand_in(partner)
    make_schema(name="Of one partner", partner=other.terms.partner_id)
    hand_in(partner)
    with pytest.raises(DoesNotFit, match="Of one partner"):
        hand_in(other)


def test_documents_of_other_kinds_may_be_there_but_one_of_its_kind_has_to_be() -> None:
    make_schema()
    partner = partner_side()
    with pytest.raises(DoesNotFit, match="It needs a JSON document and has none"):
        hand_in(partner, b"<order/>", "application/xml")
    message_submit(
        agreement=partner.terms.tpa_id,
        service=SERVICE,
        action=ACTION,
        payloads=[NewPayload(b"%PDF", "application/pdf"), NewPayload(GOOD, "application/json")],
    )


# --- what comes in ---


def test_what_comes_in_is_flagged_and_delivered_all_the_same() -> None:
    make_schema()
    make_trigger(kind="pull")
    message = come_in(partner_side(), BAD)
    assert message.schema_faults is not None and not message.schema_faults["held"]
    assert Delivery.objects.get().state == "waiting"
    event = Event.objects.get(type="message.received")
    assert event.data["schema_faults"]["faults"][0][:2] == [2, 12]


def test_what_is_too_large_to_be_looked_into_is_not_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    make_schema()
    monkeypatch.setattr(selecting, "MAX_BYTES", len(BAD) - 1)
    assert come_in(partner_side(), BAD).schema_faults is None


# --- set up ---


def test_new_files_make_a_version_and_an_older_one_can_be_used_again() -> None:
    made = make_schema()
    partner = partner_side()
    changed = schemas.schema_update(schema_id=made.pk, actor=ADA, reason="the partner's new release", files=LATER)
    assert (changed.number, [one.number for one in schemas.versions(made)]) == (2, [2, 1])
    hand_in(partner, b'{"buyer": 1}')
    with pytest.raises(DoesNotFit, match="version 2"):
        hand_in(partner, GOOD)
    schemas.schema_update(schema_id=made.pk, actor=ADA, reason="not yet agreed", number=1)
    hand_in(partner, GOOD)
    with pytest.raises(InvalidSubmission, match="There is no version 3"):
        schemas.schema_update(schema_id=made.pk, actor=ADA, reason="a slip", number=3)
    with pytest.raises(Stale):
        schemas.schema_update(schema_id=made.pk, actor=ADA, reason="too late", expected_version=made.version, name="x")
    assert [one.verb for one in AuditEntry.objects.order_by("id")] == [
        "schema.create",
        "schema.update",
        "schema.update",
    ]
    schemas.schema_delete(schema_id=made.pk, actor=ADA, reason="not needed")
    hand_in(partner)


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"files": []}, "files"),
        ({"files": [("a.json", "{")]}, "files"),
        ({"files": [("a.json", "{}"), ("a.json", "{}")]}, "files"),
        ({"kind": "xml"}, "files"),
        ({"name": ""}, "name"),
        ({"on_submission": "hold"}, "on_submission"),
        ({"on_receipt": "refuse"}, "on_receipt"),
    ],
)
def test_what_is_no_schema_is_refused_beside_its_field(values: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidSubmission) as refused:
        make_schema(**values)
    assert list(refused.value.errors) == [field]
    assert not DocumentSchema.objects.exists()


def test_a_kind_changes_with_files_of_that_kind_only() -> None:
    made = make_schema()
    with pytest.raises(InvalidSubmission, match="well-formed"):
        schemas.schema_update(schema_id=made.pk, actor=ADA, reason="a slip", kind="xml")
    schemas.schema_update(schema_id=made.pk, actor=ADA, reason="EDI now", kind="edi", files=[("orders.txt", "*")])


# --- found and tried ---


def test_messages_are_found_by_what_they_do_not_fit() -> None:
    make_schema(on_submission="flag")
    partner = partner_side()
    bad, _ = hand_in(partner).message, hand_in(partner, GOOD)
    for text, expected in (("schema:misfit", [bad]), ("schema:Orders", [bad]), ("schema:Other", [])):
        found = searching.read(text, MessageFilters(), now=clock.now())
        assert list(message_page(found.filters).rows) == expected


def test_a_schema_is_tried_on_a_stored_message() -> None:
    partner = partner_side()
    message = message_submit(
        agreement=partner.terms.tpa_id,
        service=SERVICE,
        action=ACTION,
        payloads=[NewPayload(b"%PDF", "application/pdf"), NewPayload(BAD, "application/json")],
    ).message
    made = make_schema(service="urn:other")
    pdf, order = schemas.tried(made, message)
    assert (pdf.kind, pdf.faults) == ("", [])
    assert (order.kind, [str(fault) for fault in order.faults]) == ("json", [SENTENCE])


# --- the API ---


def test_the_api_sets_up_a_schema_and_tries_it() -> None:
    api = Api(make_token(make_user(Role.ADMIN)))
    files = [{"name": name, "text": text} for name, text in FILES]
    body = {"name": "Orders", "kind": "json", "files": files, "reason": "agreed with the partners"}
    made = api.post("/schemas", body).json
    assert (made["number"], made["files"], made["versions"][0]["number"]) == (1, files, 1)
    partner = partner_side()
    payloads = [{"content_base64": b64encode(BAD).decode(), "content_type": "application/json"}]
    refused = api.submit(submission(partner, payloads=payloads))
    assert refused.status == 422
    [error] = refused.json["errors"]
    assert error["pointer"] == "#/payloads"
    assert "line 2, column 12" in error["detail"]
    message = come_in(partner, BAD)
    shown = api.get(f"/messages/{message.public_id}").json["schema_faults"]
    fault = {"line": 2, "column": 12, "path": "$.number", "text": 'Its value is not of type "string".'}
    assert (shown["schema"], shown["faults"]) == (made["id"], [fault])
    assert [one["id"] for one in api.get("/messages?schema=misfit").json["data"]] == [message.public_id]
    tried = api.post(f"/schemas/{made['id']}/trial", {"message": message.public_id}).json
    assert (tried["version"], tried["documents"][0]["checked"], tried["documents"][0]["faults"]) == (1, True, [fault])
    later = [{"name": name, "text": text} for name, text in LATER]
    path = f"/schemas/{made['id']}"
    seen = api.get(path).headers["etag"]
    changed = api.patch(path, {"files": later, "reason": "a new release of theirs"}, If_Match=seen).json
    assert (changed["number"], len(changed["versions"])) == (2, 2)
    files = [{"name": "a.json", "text": "{"}]
    bad = api.patch(path, {"files": files, "reason": "a slip of the pen"}, If_Match=api.get(path).headers["etag"])
    assert (bad.status, bad.json["errors"][0]["pointer"]) == (422, "#/files")


# --- the console ---


def test_the_form_takes_files_and_says_which_is_the_first() -> None:
    page = browser(Role.ADMIN)
    once = html.fromstring(page.get("/schemas/new/").content).xpath("//input[@name='once']/@value")[0]
    given = {
        "once": once,
        "name": "Orders",
        "kind": "json",
        "on_submission": "refuse",
        "on_receipt": "flag",
        "enabled": "on",
        "reason": "agreed with the partners",
    }

    def files() -> list[SimpleUploadedFile]:
        order = b'{"properties": {"lines": {"$ref": "a-lines.json"}}}'
        return [SimpleUploadedFile("a-lines.json", b'{"type": "array"}'), SimpleUploadedFile("order.json", order)]

    answer = page.post("/schemas/new/", {**given, "upload": files()})
    assert answer.status_code == 422
    assert "Name the file that documents are checked against." in answer.content.decode()
    once = html.fromstring(answer.content).xpath("//input[@name='once']/@value")[0]
    answer = page.post("/schemas/new/", {**given, "once": once, "upload": files(), "main": "order.json"})
    made = DocumentSchema.objects.get()
    assert answer["Location"] == f"/schemas/{made.public_id}/"
    assert [name for name, _ in schemas.files_of(made)] == ["order.json", "a-lines.json"]
    shown = page.get(answer["Location"]).content.decode()
    assert "a-lines.json" in shown
    assert "in use" in shown
    given |= {"version": str(made.version), "number": "1", "on_receipt": "hold"}
    assert page.post(f"/schemas/{made.public_id}/edit/", given).status_code == 303
    made.refresh_from_db()
    assert (made.number, made.on_receipt) == (1, "hold")
    wrong = page.post(f"/schemas/{made.public_id}/edit/", {**given, "version": str(made.version), "text": "{"})
    beside = html.fromstring(wrong.content).xpath("//*[@id='field-text_error']")[0].text_content()
    assert "schema.json is not valid JSON" in beside


def test_pages_say_what_does_not_fit() -> None:
    made = make_schema(on_submission="flag", on_receipt="hold")
    came = come_in(partner_side(), BAD)
    page = browser(Role.ADMIN)
    shown = html.fromstring(page.get(f"/messages/{came.public_id}/").content)
    panel = " ".join(shown.xpath("//*[@data-testid='misfit']")[0].text_content().split())
    assert "Orders, version 1" in panel
    assert "$.number" in panel
    assert "when a person says so" in panel
    assert "$.number" in page.get(f"/schemas/{made.public_id}/trial/", {"message": came.public_id}).content.decode()
    missing = page.get(f"/schemas/{made.public_id}/trial/", {"message": "no-such"}).content.decode()
    assert 'data-testid="trouble"' in missing


def test_the_form_for_a_document_says_beforehand_whether_it_fits() -> None:
    make_schema()
    partner = partner_side()
    page = browser(Role.OPERATOR)
    address = f"{reverse('console:message-new')}?agreement={partner.terms.tpa_id}"
    given = {"service": SERVICE, "action": ACTION, "text": BAD.decode(), "reason": "asked for by them", "once": "1"}
    checked = " ".join(html.fromstring(page.post(address, {**given, "step": "check"}).content).text_content().split())
    assert "It does not fit Orders, version 1, and would be refused." in checked
    assert "$.number" in checked
    refused = page.post(address, {**given, "step": "send"})
    assert refused.status_code == 422
    assert "line 2, column 12" in refused.content.decode()


def test_without_schemas_nobody_looks_into_documents() -> None:
    def documents() -> Any:
        pytest.fail("nobody needs them")

    where = {"partner_id": uuid7(), "service": SERVICE, "action": ACTION, "direction": "out"}
    assert engine.misfit(documents, **where) is None
