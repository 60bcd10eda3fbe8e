"""Deliveries: what applications take from pull queues, and what they say became of it."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from messaging.deliveries.services import triggering
from messaging.journal.audit import Actor
from messaging.models import AuditEntry, Delivery, DocumentCompleted, DocumentStarted, Payload, Trigger
from messaging.protocol.envelope import DocumentReference, PayloadPart
from rmhub import clock
from rmhub.clock import FrozenClock
from rmhub.roles import Role
from tests.messaging.api.client import REASON, Api, make_token, make_user
from tests.messaging.deliveries.documents import documents_from, make_queue
from tests.messaging.factories import ORDER, PartnerSide

pytestmark = pytest.mark.django_db

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
VERBS = ("complete", "fail", "release", "extend")


@pytest.fixture(autouse=True)
def time() -> Iterator[FrozenClock]:
    with clock.frozen(AT) as frozen:
        yield frozen


@pytest.fixture
def taker(db: None, time: FrozenClock) -> Api:
    """An application: it takes documents and reads their payloads, and nothing else."""
    return Api(make_token(make_user(Role.OPERATOR, "erp"), {"deliveries:take", "payloads:read"}))


def lease(api: Api, trigger: Trigger, query: str = "", **body: Any) -> list[dict[str, Any]]:
    answer = api.post(f"/triggers/{trigger.public_id}/lease{query}", body)
    assert answer.status == 200, answer.json
    found: list[dict[str, Any]] = answer.json["data"]
    return found


def body_for(verb: str, claim: str) -> dict[str, Any]:
    more: dict[str, dict[str, Any]] = {"fail": {"detail": "No such article."}, "extend": {"seconds": 600}}
    return {"claim": claim, **more.get(verb, {})}


def test_a_document_is_taken_with_what_its_message_says(taker: Api, viewer: Api, partner: PartnerSide) -> None:
    trigger = make_queue(name="Queue", lease_seconds=120)
    (message,) = documents_from(partner, "NewOrder")
    (taken,) = lease(taker, trigger)
    delivery = Delivery.objects.get()
    assert taken == {
        "delivery": delivery.public_id,
        "claim": f"clm_{delivery.claim.hex}",  # type: ignore[union-attr]
        "lease_until": "2026-03-01T12:02:00Z",
        "trigger": {"id": trigger.public_id, "name": "Queue"},
        "document_id": message.message_id,
        "redelivery_count": 0,
        "document": {
            "message": message.public_id,
            "message_id": message.message_id,
            "document_id": message.message_id,
            "conversation_id": message.conversation_id,
            "ref_to_message_id": "",
            "agreement": {
                "id": f"agr_{partner.terms.agreement_id.hex}",
                "tpa_id": partner.terms.tpa_id,
                "version": partner.terms.number,
            },
            "sender": {"id": f"par_{partner.terms.partner_id.hex}", "name": partner.terms.partner_name},
            "profile": "ebxml",
            "service": "urn:orders",
            "action": "NewOrder",
            "received_at": "2026-03-01T12:00:00Z",
            "payloads": [
                {
                    "number": 1,
                    "content_id": Payload.objects.get().content_id,
                    "content_type": "application/xml",
                    "filename": "",
                    "label": Payload.objects.get().label,
                    "size": len(ORDER),
                    "sha256": Payload.objects.get().sha256,
                    "href": f"/api/v1/messages/{message.public_id}/payloads/1",
                }
            ],
        },
        "others": [],
    }
    href = taken["document"]["payloads"][0]["href"].removeprefix("/api/v1")
    assert taker.get(href).content == ORDER
    found = viewer.get(f"/deliveries/{taken['delivery']}").json
    assert (found["state"], found["verdict"], found["executions"]) == ("running", "new", 1)
    assert found["taken_by"] == "erp (token test)"
    assert [step["step"] for step in found["evidence"]] == ["redelivery", "history"]
    assert DocumentStarted.objects.get().document_id == message.message_id
    assert "claim" not in found  # whoever may look at it may not end it
    assert lease(taker, trigger) == []


def test_octets_come_with_it_when_they_are_small_and_asked_for(taker: Api, partner: PartnerSide) -> None:
    trigger = make_queue()
    small, large = b"<Small/>", b"x" * 65_537
    parts = tuple(
        PayloadPart(f"p{number}@partner.example", "application/xml", content)
        for number, content in enumerate((small, large, b""))
    )
    references = tuple(DocumentReference("Order", f"cid:{part.content_id}") for part in parts)
    documents_from(partner, "NewOrder", payloads=parts, manifest=references)
    (taken,) = lease(taker, trigger, "?include=payloads")
    payloads = taken["document"]["payloads"]
    assert base64.b64decode(payloads[0]["content_base64"]) == small
    assert "content_base64" not in payloads[1] and payloads[1]["size"] == len(large)
    assert payloads[2]["content_base64"] == ""
    assert taker.get(payloads[1]["href"].removeprefix("/api/v1")).content == large
    entry = AuditEntry.objects.filter(verb="payload.read").earliest("id")
    assert (entry.object_id, entry.actor) == (taken["document"]["message"], "erp (token test)")
    assert entry.after == {"payloads": [1, 3]}


def test_octets_need_their_own_scope_and_nothing_is_taken_without_it(partner: PartnerSide) -> None:
    trigger = make_queue()
    documents_from(partner, "NewOrder")
    api = Api(make_token(make_user(Role.OPERATOR), {"deliveries:take"}))
    for answer in (
        api.post(f"/triggers/{trigger.public_id}/lease?include=payloads", {}),
        api.get(f"/triggers/{trigger.public_id}/leases?include=payloads"),
    ):
        assert (answer.status, answer.json["required_scope"]) == (403, "payloads:read")
    assert Delivery.objects.get().state == "waiting"
    assert len(lease(api, trigger)) == 1


def test_a_file_that_is_missing_does_not_lose_the_lease(taker: Api, partner: PartnerSide) -> None:
    trigger = make_queue()
    documents_from(partner, "NewOrder")
    Payload.objects.update(content=None, stored_as="00/nowhere")
    (taken,) = lease(taker, trigger, "?include=payloads")
    (payload,) = taken["document"]["payloads"]
    assert "content_base64" not in payload
    assert taker.get(payload["href"].removeprefix("/api/v1")).code == "payload_missing"


def test_completed_once_however_often_it_is_said(taker: Api, partner: PartnerSide) -> None:
    trigger = make_queue()
    documents_from(partner, "NewOrder")
    (taken,) = lease(taker, trigger)
    path = f"/deliveries/{taken['delivery']}/complete"
    first = taker.post(path, {"claim": taken["claim"]})
    assert (first.status, first.json["state"]) == (200, "completed")
    again = taker.post(path, {"claim": taken["claim"]})
    assert (again.status, again.json) == (200, first.json)
    assert DocumentCompleted.objects.get().outcome == "success" and not DocumentStarted.objects.exists()
    refused = taker.post(f"/deliveries/{taken['delivery']}/fail", body_for("fail", taken["claim"]))
    assert (refused.status, refused.code, refused.json["current_state"]) == (409, "lease_over", "completed")


def test_failed_counts_as_processed(taker: Api, viewer: Api, partner: PartnerSide) -> None:
    trigger = make_queue()
    documents_from(partner, "NewOrder")
    (taken,) = lease(taker, trigger)
    path = f"/deliveries/{taken['delivery']}/fail"
    for body in ({"claim": taken["claim"]}, {"claim": taken["claim"], "detail": "  "}):
        assert taker.post(path, body).json["errors"][0]["pointer"] == "#/detail"
    answers = [taker.post(path, body_for("fail", taken["claim"])) for _ in range(2)]
    assert [(answer.status, answer.json["state"]) for answer in answers] == [(200, "failed")] * 2
    assert answers[0].json["cause_detail"] == "No such article."
    assert answers[0].json["allowed_decisions"] == ["duplicate", "resubmit", "later"]
    assert DocumentCompleted.objects.get().outcome == "error"
    (incident,) = viewer.get("/incidents", {"trigger": trigger.public_id}).json["data"]
    assert (incident["cause"], incident["occurrences"]) == ("documents_failed", 1)


def test_given_back_it_is_new_again_after_the_delay(taker: Api, partner: PartnerSide, time: FrozenClock) -> None:
    trigger = make_queue()
    documents_from(partner, "NewOrder")
    (taken,) = lease(taker, trigger)
    path = f"/deliveries/{taken['delivery']}/release"
    given = taker.post(path, {"claim": taken["claim"], "delay": 30})
    assert (given.status, given.json["state"], given.json["due_at"]) == (200, "waiting", "2026-03-01T12:00:30Z")
    assert not DocumentStarted.objects.exists()
    assert taker.post(path, {"claim": taken["claim"]}).code == "lease_over"
    assert lease(taker, trigger) == []
    time.move(30)
    (again,) = lease(taker, trigger)
    assert (again["redelivery_count"], again["claim"] != taken["claim"]) == (0, True)
    assert Delivery.objects.get().verdict == "new"


def test_a_lease_is_extended_in_time(taker: Api, partner: PartnerSide, time: FrozenClock) -> None:
    trigger = make_queue(lease_seconds=60)
    documents_from(partner, "NewOrder")
    (taken,) = lease(taker, trigger, seconds=90)
    assert taken["lease_until"] == "2026-03-01T12:01:30Z"
    time.move(80)
    path = f"/deliveries/{taken['delivery']}/extend"
    longer = taker.post(path, {"claim": taken["claim"], "seconds": 600})
    assert (longer.status, longer.json["due_at"]) == (200, "2026-03-01T12:11:20Z")
    time.move(500)
    assert lease(taker, trigger) == []
    assert taker.post(f"/deliveries/{taken['delivery']}/complete", {"claim": taken["claim"]}).status == 200
    assert taker.post(path, {"claim": taken["claim"], "seconds": 600}).code == "lease_over"


def test_a_claim_ends_with_its_lease(taker: Api, partner: PartnerSide, time: FrozenClock) -> None:
    trigger = make_queue(use_history=False, lease_seconds=60)
    trigger = Trigger.objects.get(pk=trigger.pk)
    documents_from(partner, "NewOrder")
    (taken,) = lease(taker, trigger)
    time.move(61)
    lease(taker, trigger)  # it was handed over before, and there is no history: in doubt
    assert Delivery.objects.get().state == "in_doubt"
    for verb in VERBS:
        answer = taker.post(f"/deliveries/{taken['delivery']}/{verb}", body_for(verb, taken["claim"]))
        assert (answer.status, answer.code, answer.json["current_state"]) == (409, "lease_over", "in_doubt"), verb


def test_what_was_taken_by_an_answer_that_was_lost_is_found_again(taker: Api, partner: PartnerSide) -> None:
    trigger = make_queue()
    documents_from(partner, "NewOrder", "NewOrder", "NewOrder", conversation="c-1")
    other = make_queue(ordered=False)
    documents_from(partner, "NewOrder", "NewOrder")
    assert len(lease(taker, other, limit=2, consumer="import-1")) == 2
    lost = lease(taker, trigger, limit=1, consumer="import-1")
    path = f"/triggers/{trigger.public_id}/leases"
    assert taker.get(path, {"consumer": "import-1"}).json["data"] == lost
    assert taker.get(path, {"consumer": "import-2"}).json["data"] == []
    assert taker.get(path).json["data"] == []
    assert Delivery.objects.get(trigger=trigger, state="running").taken_by == "erp (token test): import-1"
    stranger = Api(make_token(make_user(Role.OPERATOR, "other"), {"deliveries:take"}))
    assert stranger.get(path, {"consumer": "import-1"}).json["data"] == []
    taker.post(f"/deliveries/{lost[0]['delivery']}/complete", {"claim": lost[0]["claim"]})
    assert taker.get(path, {"consumer": "import-1"}).json["data"] == []


def test_looking_at_leases_costs_the_same_for_any_number(
    taker: Api, partner: PartnerSide, django_assert_num_queries: Any
) -> None:
    trigger = make_queue(ordered=False, concurrency=8)
    documents_from(partner, *["NewOrder"] * 5)
    assert len(lease(taker, trigger, limit=5)) == 5
    with django_assert_num_queries(5):  # the trigger, its members, the leases, their documents, the payloads
        assert len(taker.get(f"/triggers/{trigger.public_id}/leases").json["data"]) == 5


def test_order_and_concurrency_are_the_triggers(taker: Api, partner: PartnerSide) -> None:
    ordered, free = make_queue(), make_queue(ordered=False, concurrency=2)
    messages = documents_from(partner, "A", "B", "C")
    assert [one["document"]["message"] for one in lease(taker, ordered, limit=64)] == [messages[0].public_id]
    assert len(lease(taker, free, limit=64)) == 2
    assert lease(taker, free, limit=64) == []


def test_a_join_comes_with_all_its_documents(taker: Api, viewer: Api, partner: PartnerSide) -> None:
    documents = [{"service": "urn:orders", "action": action} for action in ("A", "B")]
    trigger = make_queue(join_type="all", documents=documents)
    first, second = documents_from(partner, "A", "B", conversation="c-1")
    (taken,) = lease(taker, trigger, "?include=payloads", limit=10) or lease(taker, trigger, "?include=payloads")
    assert taken["document"]["message"] == second.public_id
    (other,) = taken["others"]
    assert (other["message"], other["action"]) == (first.public_id, "A")
    assert base64.b64decode(other["payloads"][0]["content_base64"]) == ORDER
    rows = {row["id"]: row for row in viewer.get("/deliveries", {"trigger": trigger.name}).json["data"]}
    firing = rows.pop(taken["delivery"])
    assert firing["join"]["activation"] == "c-1"
    assert {row["part_of"]["id"] for row in rows.values()} == {firing["join"]["id"]}


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"limit": 0}, "#/limit"),
        ({"limit": 65}, "#/limit"),
        ({"limit": "1"}, "#/limit"),
        ({"seconds": 4}, "#/seconds"),
        ({"seconds": 86_401}, "#/seconds"),
        ({"consumer": "x" * 41}, "#/consumer"),
        ({"consumer": "a b"}, "#/consumer"),
        ({"consumer": "a\u0000"}, "#/consumer"),
        ({"wait": 5}, "#/wait"),
    ],
)
def test_leases_that_cannot_be(taker: Api, body: dict[str, Any], pointer: str) -> None:
    answer = taker.post(f"/triggers/{make_queue().public_id}/lease", body)
    assert (answer.status, answer.json["errors"][0]["pointer"]) == (422, pointer)


@pytest.mark.parametrize("verb", VERBS)
def test_claims_that_cannot_be(taker: Api, partner: PartnerSide, verb: str) -> None:
    trigger = make_queue()
    documents_from(partner, "NewOrder")
    (taken,) = lease(taker, trigger)
    path = f"/deliveries/{taken['delivery']}/{verb}"
    bare = taken["claim"].removeprefix("clm_")
    for claim in (None, 7, "", "x", bare[1:], f"del_{bare}", ["x"]):
        answer = taker.post(path, {**body_for(verb, ""), "claim": claim})
        assert (answer.status, answer.json["errors"][0]["pointer"]) == (422, "#/claim"), claim
    answer = taker.post(path, body_for(verb, f"clm_{uuid.uuid4().hex}"))
    assert (answer.status, answer.code, answer.json["current_state"]) == (409, "lease_over", "running")
    assert taker.post(path, {**body_for(verb, taken["claim"]), "x": 1}).json["errors"][0]["pointer"] == "#/x"
    assert taker.post(f"/deliveries/del_{'0' * 32}/{verb}", body_for(verb, taken["claim"])).code == "not_found"
    assert Delivery.objects.get().state == "running"


def test_only_pull_queues_are_taken_from(taker: Api, partner: PartnerSide) -> None:
    trigger = make_queue(kind="http", url="http://erp.internal:8080/")
    documents_from(partner, "NewOrder")
    delivery = Delivery.objects.get()
    answers = [taker.post(f"/triggers/{trigger.public_id}/lease", {})]
    answers += [
        taker.post(f"/deliveries/{delivery.public_id}/{verb}", body_for(verb, f"clm_{uuid.uuid4().hex}"))
        for verb in VERBS
    ]
    assert [(answer.status, answer.code) for answer in answers] == [(409, "not_a_pull_queue")] * 5


def test_a_queue_that_is_held_hands_out_nothing(taker: Api, partner: PartnerSide) -> None:
    trigger = make_queue()
    documents_from(partner, "NewOrder")
    triggering.trigger_suspend(trigger_id=trigger.pk, actor=Actor("olga"), reason="by hand")
    answer = taker.post(f"/triggers/{trigger.public_id}/lease", {})
    assert (answer.status, answer.code, answer.json["current_state"]) == (409, "wrong_state", "suspended")


# ---- reading


def test_the_list_is_filtered_and_costs_the_same_for_any_number(
    viewer: Api, taker: Api, partner: PartnerSide, django_assert_num_queries: Any
) -> None:
    trigger, other = make_queue(), make_queue(ordered=False)
    messages = documents_from(partner, "A", "B", "C")
    (taken,) = lease(taker, trigger)
    ids = lambda **query: [row["id"] for row in viewer.get("/deliveries", query).json["data"]]  # noqa: E731
    assert len(ids()) == 6 and ids() == sorted(ids(), reverse=True)
    assert len(ids(trigger=trigger.name)) == len(ids(trigger=other.public_id)) == 3
    assert ids(state="running") == [taken["delivery"]]
    assert len(ids(state="running,waiting")) == 6
    assert len(ids(message=messages[1].public_id)) == len(ids(q=messages[1].message_id)) == 2
    assert ids(q=taken["delivery"]) == [taken["delivery"]]
    assert ids(doubt="started_not_completed") == []
    assert viewer.get("/deliveries", {"trigger": "nobody"}).code == "invalid_parameter"
    assert viewer.get("/deliveries", {"state": "lost"}).code == "invalid_parameter"
    page = viewer.get("/deliveries", {"limit": "4"}).json
    following = viewer.get("/deliveries", {"limit": "4", "cursor": page["next_cursor"]}).json
    assert [row["id"] for row in page["data"] + following["data"]] == ids()
    with django_assert_num_queries(4):  # a savepoint and a time limit around it
        viewer.get("/deliveries")


def test_a_message_leads_to_its_deliveries(viewer: Api, partner: PartnerSide) -> None:
    make_queue()
    (message,) = documents_from(partner, "A")
    href = viewer.get(f"/messages/{message.public_id}").json["deliveries"]
    (found,) = viewer.get(href.removeprefix("/api/v1")).json["data"]
    assert found["message"] == {"id": message.public_id, "message_id": message.message_id}


def test_what_the_service_answered(operator: Api, viewer: Api, partner: PartnerSide) -> None:
    make_queue(kind="http", url="http://erp.internal:8080/")
    documents_from(partner, "A")
    Delivery.objects.update(answer=b"HTTP 500\r\n\r\n\x00\xff", http_status=500)
    path = f"/deliveries/{Delivery.objects.get().public_id}"
    assert viewer.get(f"{path}/answer").json["required_scope"] == "payloads:read"
    answer = operator.get(f"{path}/answer")
    assert (answer.content, answer.headers["content-type"]) == (b"HTTP 500\r\n\r\n\x00\xff", "application/octet-stream")
    Delivery.objects.update(answer=None)
    assert operator.get(f"{path}/answer").content == b""
    assert operator.get(f"/deliveries/del_{'0' * 32}/answer").code == "not_found"


def test_an_unchanged_delivery_is_not_sent_again(viewer: Api, partner: PartnerSide) -> None:
    make_queue()
    documents_from(partner, "A")
    path = f"/deliveries/{Delivery.objects.get().public_id}"
    read = viewer.get(path)
    assert viewer.get(path, If_None_Match=read.etag).status == 304
    Delivery.objects.update(state="completed")
    assert viewer.get(path, If_None_Match=read.etag).status == 200


@pytest.mark.parametrize("reference", [f"del_{'0' * 32}", "x", "%00", "del_", "del_" + "z" * 32])
def test_deliveries_that_are_not_there(admin: Api, reference: str) -> None:
    assert admin.get(f"/deliveries/{reference}").code == "not_found"
    for verb in VERBS:
        body = body_for(verb, f"clm_{uuid.uuid4().hex}")
        assert admin.post(f"/deliveries/{reference}/{verb}", body).code == "not_found"
    body = {**REASON, "decision": "resubmit"}
    assert admin.post(f"/deliveries/{reference}/settle", body, If_Match="*").code == "not_found"
