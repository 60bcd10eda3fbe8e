"""The archive, legal holds and the retention policy by the API."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from messaging.models import AuditEntry, LegalHold, Message, PipelineRun, RetentionPolicy
from rmhub.ids import uuid7
from rmhub.roles import Role
from tests.messaging.api.client import Api
from tests.messaging.archive import archive_scenes
from tests.messaging.console.scenes import browser
from tests.messaging.factories import PartnerSide, link, submit, work

pytestmark = pytest.mark.django_db


@pytest.fixture
def row(partner: PartnerSide) -> Any:
    message = submit(partner)
    with link() as wire:
        work()
        partner.send(partner.acknowledgement(wire.last))
    message.refresh_from_db()
    return archive_scenes.left(message)


def test_archived_messages_are_listed_and_narrowed(viewer: Api, row: Any) -> None:
    other = archive_scenes.archived(row.pair, "other@us", state="restored")
    listed = viewer.get("/archive/messages").json
    assert [one["id"] for one in listed["data"]] == [other.public_id, row.public_id]
    first = listed["data"][1]
    assert (first["state"], first["message_id"], first["pair"]["code"]) == ("archived", row.message_id, row.pair.code)
    assert (first["payload_digests"], first["file"]["sha256"], first["row"]) == (row.contents, row.file.sha256, 0)
    for query, expected in (
        ({"state": "archived"}, row),
        ({"q": row.message_id}, row),
        ({"q": other.public_id}, other),
        ({"conversation": row.conversation_id}, row),
        ({"created_gte": "2000-01-01T00:00:00Z", "state": "restored", "pair": row.pair.code}, other),
    ):
        assert [one["id"] for one in viewer.get("/archive/messages", query).json["data"]] == [expected.public_id]
    page = viewer.get("/archive/messages", {"limit": "1"}).json
    behind = viewer.get("/archive/messages", {"limit": "1", "cursor": page["next_cursor"]}).json
    assert [one["id"] for one in behind["data"]] == [row.public_id]
    assert viewer.get("/archive/messages", {"state": "gone"}).status == 400


def test_a_document_id_is_found_after_its_message_has_left(viewer: Api, partner: PartnerSide) -> None:
    for document_id, count in (("order-1", 2), ("", 1)):
        for _ in range(count):
            submit(partner, document_id=document_id)
    with link() as wire:
        while work():
            partner.send(partner.acknowledgement(wire.last))
    first, again, plain = [archive_scenes.left(one) for one in Message.objects.order_by("id")]
    for query in ({"document": "order-1"}, {"q": "order-1"}):
        listed = viewer.get("/archive/messages", query).json["data"]
        assert [one["id"] for one in listed] == [again.public_id, first.public_id]
        assert [one["document_id"] for one in listed] == ["order-1"] * 2
    (known,) = viewer.get("/archive/messages", {"document": plain.message_id}).json["data"]
    assert (known["id"], known["document_id"]) == (plain.public_id, plain.message_id)
    assert viewer.get("/archive/messages", {"document": first.message_id}).json["data"] == []
    looking = browser(Role.OPERATOR)
    page = looking.get("/messages/", {"q": "document:order-1"}).content.decode()
    assert first.public_id in page and again.public_id in page
    shown = looking.get("/archive/", {"q": "order-1"}).content.decode()
    assert first.public_id in shown and plain.public_id not in shown
    assert "order-1" in looking.get(f"/archive/{first.public_id}/").content.decode()


def test_an_attribute_is_found_after_its_message_has_left(viewer: Api, partner: PartnerSide) -> None:
    submit(partner, attributes={"invoice": "4711", "customer": "Globex Ltd"})
    submit(partner, attributes={"invoice": "4712"})
    with link() as wire:
        while work():
            partner.send(partner.acknowledgement(wire.last))
    row, other = [archive_scenes.left(one) for one in Message.objects.order_by("id")]
    for q in ("4711", "invoice:4711", "Globex Ltd", 'customer:"Globex Ltd"'):
        (found,) = viewer.get("/archive/messages", {"q": q}).json["data"]
        assert (found["id"], found["attributes"]) == (row.public_id, {"invoice": "4711", "customer": "Globex Ltd"})
    assert viewer.get("/archive/messages", {"q": "order:4711"}).json["data"] == []
    looking = browser(Role.OPERATOR)
    for path, q in (("/messages/", "invoice:4711"), ("/messages/", "4711"), ("/archive/", "invoice:4711")):
        page = looking.get(path, {"q": q}).content.decode()
        assert row.public_id in page and other.public_id not in page, (path, q)
    assert "Globex Ltd" in looking.get(f"/archive/{row.public_id}/").content.decode()


def test_one_is_read_by_id_and_by_message_id(viewer: Api, row: Any) -> None:
    for reference in (row.public_id, row.message_id):
        assert viewer.get(f"/archive/messages/{reference}").json["id"] == row.public_id
    archive_scenes.archived(row.pair, row.message_id)
    assert viewer.get(f"/archive/messages/{row.message_id}").json["code"] == "ambiguous_message_id"
    assert viewer.get("/archive/messages/nobody").status == 404


def test_a_message_that_has_left_says_where_it_is(viewer: Api, row: Any) -> None:
    for reference in (row.public_id, row.message_id):
        answer = viewer.get(f"/messages/{reference}")
        assert (answer.status, answer.code) == (410, "gone")
        assert answer.json["existing"] == {"id": row.public_id, "href": f"/api/v1/archive/messages/{row.public_id}"}
    assert "archive" not in viewer.get("/messages/nobody").json["detail"]
    assert viewer.get(f"/messages/{row.public_id}/events").status == 404


@pytest.mark.django_db(transaction=True)  # the feed shows what is committed
def test_what_names_a_message_that_has_left_is_read_as_ever(admin: Api, row: Any) -> None:
    from messaging.models import Event, Incident

    now = datetime.now(UTC)
    incident = Incident.objects.create(
        number=1, cause="late_ack", pair=row.pair, message_id=row.pk, opened_at=now, last_seen_at=now
    )
    Event.objects.create(at=now, type="message.duplicate", pair=row.pair, message_id=row.pk)
    assert admin.get("/incidents").json["data"][0]["message"] is None
    assert admin.get(f"/incidents/{incident.public_id}").status == 200
    assert admin.get("/events").json["data"][-1]["data"]["message"] == row.public_id
    assert admin.get(f"/pairs/{row.pair.code}").status == 200


def test_restoring_is_a_run(operator: Api, viewer: Api, row: Any) -> None:
    body = {"message": row.public_id, "reason": "the auditor asks"}
    assert viewer.post("/archive/restore", body).status == 403
    answer = operator.post("/archive/restore", body)
    run = PipelineRun.objects.get()
    assert (answer.status, answer.headers["location"]) == (202, f"/api/v1/pipeline-runs/{run.public_id}")
    assert (run.job, run.parameters) == ("restore", {"message": row.public_id})
    assert operator.post("/archive/restore", body).json["code"] == "wrong_state"
    by_conversation = {"conversation_id": row.conversation_id, "reason": "all of it"}
    assert operator.post("/archive/restore", by_conversation).status == 202
    for wrong, status in (
        ({"reason": "the auditor asks"}, 422),
        ({**body, "conversation_id": "c"}, 422),
        ({**body, "reason": ""}, 422),
        ({**body, "message": "msg_1"}, 422),
        ({**body, "message": f"msg_{uuid7().hex}"}, 404),
    ):
        assert operator.post("/archive/restore", wrong).status == status, wrong


def test_holds_are_placed_listed_and_released(admin: Api, operator: Api, row: Any) -> None:
    body = {
        "name": "Case 7",
        "pair": row.pair.code,
        "range_from": "2026-01-01T00:00:00Z",
        "range_to": "2026-02-01T00:00:00+01:00",
        "reason": "the court asks",
    }
    assert operator.post("/legal-holds", body).status == 403
    answer = admin.post("/legal-holds", body)
    assert answer.status == 201
    hold = LegalHold.objects.get()
    assert answer.headers["location"] == f"/api/v1/legal-holds/{hold.public_id}"
    assert hold.range_to - hold.range_from == timedelta(days=31) - timedelta(hours=1)
    shown = operator.get(f"/legal-holds/{hold.public_id}").json
    assert (shown["name"], shown["pair"]["code"], shown["party"], shown["released_at"]) == (
        "Case 7",
        row.pair.code,
        None,
        None,
    )
    assert len(operator.get("/legal-holds", {"in_force": "true"}).json["data"]) == 1
    path = f"/legal-holds/{hold.public_id}/release"
    assert admin.post(path, {"reason": "closed"}).json["release_reason"] == "closed"
    assert admin.post(path, {"reason": "closed"}).json["code"] == "wrong_state"
    assert operator.get("/legal-holds", {"in_force": "true"}).json["data"] == []
    assert len(operator.get("/legal-holds", {"in_force": "false"}).json["data"]) == 1
    verbs = AuditEntry.objects.filter(object_type="legalhold").order_by("id").values_list("verb", "interface")
    assert list(verbs) == [("hold.place", "api"), ("hold.release", "api")]


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"message_id": ""}, "#/message_id"),
        ({"pair": "NO>BODY"}, "#/pair"),
        ({"party": f"par_{uuid7().hex}"}, "#/party"),
        ({}, "#/party"),
        ({"range_from": "2026-02-01T00:00:00Z", "range_to": "2026-01-01T00:00:00Z"}, "#/range_to"),
    ],
)
def test_a_hold_that_cannot_be_is_refused(admin: Api, changes: dict[str, Any], pointer: str) -> None:
    answer = admin.post("/legal-holds", {"name": "Case 7", "reason": "the court asks", **changes})
    assert answer.status == 422
    assert [error["pointer"] for error in answer.json["errors"]] == [pointer]
    assert not LegalHold.objects.exists()


def test_the_policy_is_read_and_changed(admin: Api, viewer: Api, row: Any) -> None:
    read = viewer.get("/retention")
    assert read.json == {
        "enabled": False,
        "archive_after": 30,
        "purge_after": 90,
        "keep_archive": 0,
        "changed_by": "",
        "changed_at": None,
        "archived_messages": 1,
        "archive_files": 1,
        "archive_bytes": 4_000,
        "legal_holds": 0,
    }
    tag = {"If_Match": read.etag}
    body = {"enabled": True, "purge_after": 60, "reason": "new rules"}
    assert admin.patch("/retention", body).status == 428
    assert viewer.patch("/retention", body, **tag).status == 403
    changed = admin.patch("/retention", body, **tag)
    assert (changed.json["enabled"], changed.json["purge_after"], changed.json["archive_after"]) == (True, 60, 30)
    assert admin.patch("/retention", body, **tag).status == 412
    tag = {"If_Match": changed.etag}
    for wrong in ({"purge_after": 10}, {"archive_after": 0}, {"keep_archive": 5}, {"unknown": 1}, {"enabled": "yes"}):
        answer = admin.patch("/retention", {**wrong, "reason": "new rules"}, **tag)
        assert answer.status == 422, wrong
    assert RetentionPolicy.objects.get().purge_after == 60
