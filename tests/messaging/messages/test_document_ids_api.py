"""Document ids in the API: given, refused, found, changed by a resubmission; and the command that takes one."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from messaging.models import Delivery, Message
from tests.messaging.api.client import Answer, Api, submission
from tests.messaging.deliveries.stage import Application, application, make_trigger, work
from tests.messaging.factories import PartnerSide, submit

pytestmark = pytest.mark.django_db
WHY = "the partner asks for it"


def headed(admin: Api, partner: PartnerSide, header: str, key: str = "h", **fields: str) -> Answer:
    return admin.post("/messages", submission(partner, **fields), Idempotency_Key=key, RM_Document_ID=header)


def test_w44_an_application_gives_it_as_a_field_or_a_header(admin: Api, partner: PartnerSide) -> None:
    first = admin.submit(submission(partner, document_id="order 1"))
    second = headed(admin, partner, "100%25")
    both = headed(admin, partner, "order-3", "h3", document_id="order-3")
    none = admin.submit(submission(partner))
    assert [one.json["document_id"] for one in (first, second, both)] == ["order 1", "100%", "order-3"]
    assert none.json["document_id"] == none.json["message_id"]
    stored = list(Message.objects.order_by("id").values_list("document_id", flat=True))
    assert stored == ["order 1", "100%", "order-3", ""]
    shown = admin.get(f"/messages/{first.json['id']}").json
    assert shown["document_id"] == "order 1"


def test_w44_what_is_none_is_refused(admin: Api, partner: PartnerSide) -> None:
    for bad in (" x", "a\tb", "é"):
        answer = admin.submit(submission(partner, document_id=bad))
        assert (answer.status, answer.json["errors"][0]["pointer"]) == (422, "#/document_id"), bad
        assert "printable ASCII" in answer.json["errors"][0]["detail"]
    assert admin.submit(submission(partner, document_id="x" * 97)).status == 422
    answer = headed(admin, partner, "x" * 97)
    assert (answer.status, answer.code) == (400, "invalid_header")
    answer = headed(admin, partner, "b", document_id="a")
    assert (answer.status, answer.code) == (400, "invalid_header")
    assert not Message.objects.exists()


def test_w44_the_same_key_with_another_document_id_is_another_submission(admin: Api, partner: PartnerSide) -> None:
    body = submission(partner, document_id="order-1")
    assert admin.submit(body, key="k").status == 202
    assert admin.submit(body, key="k").headers["idempotent-replayed"] == "true"
    assert admin.submit({**body, "document_id": "order-2"}, key="k").code == "idempotency_key_reused"


@pytest.fixture
def twice(partner: PartnerSide) -> list[Delivery]:
    """A document that came with two messages, another one, and one that says itself what it is."""
    app: Application
    with application() as app:
        make_trigger(app, document_id_path="//ID")
        for number, (message_id, document_id, content) in enumerate(
            (("m1", "order-1", b"<O/>"), ("m2", "order-1", b"<O/>"), ("m3", "", b"<O/>"), ("m4", "", b"<ID>in-4</ID>")),
            start=1,
        ):
            assert partner.send(partner.message(number, message_id, document_id=document_id, content=content)) == 204
        work()
    return list(Delivery.objects.order_by("position"))


@pytest.mark.parametrize(
    ("document", "expected"),
    [("order-1", ["m2", "m1"]), ("m3", ["m3"]), ("m1", []), ("in-4", ["m4"]), ("m4", ["m4"]), ("nothing", [])],
)
def test_w44_messages_are_found_by_it(admin: Api, twice: list[Delivery], document: str, expected: list[str]) -> None:
    found = admin.get("/messages", {"document": document}).json["data"]
    assert [row["message_id"] for row in found] == expected
    by_term = admin.get("/messages", {"q": f"document:{document}"}).json["data"]
    assert [row["message_id"] for row in by_term] == expected


def test_w44_deliveries_are_found_by_it_and_lead_to_the_first(admin: Api, twice: list[Delivery]) -> None:
    first, second, _, inside = twice
    found = admin.get("/deliveries", {"document": "order-1"}).json["data"]
    assert [(row["id"], row["state"], row["document_id_from"]) for row in found] == [
        (second.public_id, "duplicate", "sender"),
        (first.public_id, "completed", "sender"),
    ]
    assert admin.get(f"/deliveries/{second.public_id}").json["first_delivery"] == first.public_id
    assert admin.get(f"/deliveries/{first.public_id}").json["first_delivery"] is None
    (one,) = admin.get("/deliveries", {"document": "in-4"}).json["data"]
    assert (one["id"], one["document_id_from"]) == (inside.public_id, "document")
    assert [row["id"] for row in admin.get("/deliveries", {"q": "in-4"}).json["data"]] == [inside.public_id]
    assert [row["id"] for row in admin.get("/deliveries", {"q": "m4"}).json["data"]] == [inside.public_id]


def test_w45_a_resubmission_keeps_it_unless_another_is_given(admin: Api, partner: PartnerSide) -> None:
    done = submit(partner, document_id="order-1")
    Message.objects.filter(pk=done.pk).update(state="delivered", due_at=None)
    path = f"/messages/{done.public_id}/resubmit"
    kept = admin.post(path, {"reason": WHY}, Idempotency_Key="a")
    other = admin.post(path, {"reason": WHY, "document_id": "order-1b"}, Idempotency_Key="b")
    bad = admin.post(path, {"reason": WHY, "document_id": " "}, Idempotency_Key="c")
    assert [kept.json["document_id"], other.json["document_id"]] == ["order-1", "order-1b"]
    assert (bad.status, bad.json["errors"][0]["pointer"]) == (422, "#/document_id")


def test_w44_the_command_takes_it(partner: PartnerSide, tmp_path: Path) -> None:
    order = tmp_path / "order.xml"
    order.write_bytes(b"<Order/>")
    common = {"agreement": partner.terms.tpa_id, "service": "urn:orders", "action": "New"}
    call_command("send", str(order), **common, document_id="order-1", stdout=StringIO())
    assert Message.objects.get().document_id == "order-1"
    with pytest.raises(CommandError, match="document_id: It has to be 1 to 96 printable ASCII") as caught:
        call_command("send", str(order), **common, document_id="x" * 97, stdout=StringIO())
    assert caught.value.returncode == 2
