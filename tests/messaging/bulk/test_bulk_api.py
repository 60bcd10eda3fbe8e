"""Bulk operations: planned, executed, followed, discarded; and partners that are asked about messages."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from messaging.bulk.services import jobs
from messaging.models import AuditEntry, BulkJob, Incident, Message, Pair, StatusInquiry
from rmhub import clock
from rmhub.clock import FrozenClock
from rmhub.roles import Role
from tests.messaging.api.client import REASON, Api, make_token, make_user
from tests.messaging.console.scenes import delivered, suspended
from tests.messaging.factories import partner_side, submit
from tests.messaging.status_service import messages_in_doubt, status_service

pytestmark = pytest.mark.django_db

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def time() -> Iterator[FrozenClock]:
    with clock.frozen(AT) as frozen:
        yield frozen


def test_a_plan_is_shown_then_executed_then_followed(operator: Api, viewer: Api, time: FrozenClock) -> None:
    pairs = [suspended(time).outbound for _ in range(2)]
    body = {"action": "pairs_resume", "filter": {"state": "suspended"}, "mode": "all"}
    made = operator.post("/bulk-operations", body)
    assert (made.status, made.json["state"], made.json["matched"], made.json["reason"]) == (201, "planned", 2, "")
    assert made.json["parameters"] == {"mode": "all", "stagger": 0}
    assert made.json["groups"] == [{"values": {"cause": "cert_expired"}, "count": 2}]
    assert made.json["sample"] == sorted(pair.public_id for pair in pairs)
    assert made.json["allowed_actions"] == ["execute", "discard"]
    path = made.headers["location"].removeprefix("/api/v1")
    assert jobs.run_due() == 0
    stale = operator.post(f"{path}/execute", {"expect_count": 3, **REASON})
    assert (stale.status, stale.code) == (412, "stale")
    assert operator.post(f"{path}/execute", REASON).json["errors"][0]["pointer"] == "#/expect_count"
    begun = operator.post(f"{path}/execute", {"expect_count": 2, **REASON})
    assert (begun.status, begun.json["state"], begun.json["expires_at"]) == (202, "queued", None)
    again = operator.post(f"{path}/execute", {"expect_count": 2, **REASON})
    assert (again.status, again.json["current_state"]) == (409, "queued")
    jobs.run_due()
    done = viewer.get(path).json
    assert (done["state"], done["done"], done["allowed_actions"]) == ("finished", 2, [])
    assert {Pair.objects.get(pk=pair.pk).flow for pair in pairs} != {"suspended"}
    lines = viewer.get(f"{path}/items.csv")
    assert lines.status == 200 and lines.headers["content-type"] == "text/csv; charset=utf-8"


def test_a_plan_is_discarded(operator: Api, viewer: Api) -> None:
    pair = partner_side().outbound
    path = operator.post("/bulk-operations", {"action": "pairs_pause", "ids": [pair.public_id]}).headers["location"]
    path = path.removeprefix("/api/v1")
    assert viewer.delete(path).status == 403
    wrong = operator.post(f"{path}/cancel", REASON)
    assert (wrong.code, wrong.json["allowed_actions"]) == ("wrong_state", ["execute", "discard"])
    assert operator.delete(path).status == 204
    assert operator.get(path).status == 404
    begun = operator.post("/bulk-operations", {"action": "pairs_pause", "ids": [pair.public_id], **REASON})
    assert begun.status == 202
    kept = operator.delete(f"/bulk-operations/{begun.json['id']}")
    assert (kept.status, kept.json["allowed_actions"]) == (409, ["cancel"])


def test_each_action_needs_its_own_scope() -> None:
    user = make_user(Role.ADMIN)
    pair, message = partner_side().outbound, submit(partner_side())
    only_pairs = Api(make_token(user, scopes=["pairs:operate", "deliveries:read"]))
    ids = {"action": "pairs_pause", "ids": [pair.public_id]}
    assert only_pairs.post("/bulk-operations", ids).status == 201
    refused = only_pairs.post("/bulk-operations", {"action": "messages_cancel", "ids": [message.public_id]})
    assert (refused.status, refused.json["required_scope"]) == (403, "messages:cancel")
    without = Api(make_token(user, scopes=["pairs:read"]))
    assert without.post("/bulk-operations", ids).json["required_scope"] == "indoubt:resolve"
    admin = Api(make_token(user))
    path = admin.post("/bulk-operations", {"action": "messages_cancel", "ids": [message.public_id]}).headers["location"]
    body = {"expect_count": 1, "reason": "submitted by mistake"}
    assert only_pairs.post(f"{path.removeprefix('/api/v1')}/execute", body).json["required_scope"] == "messages:cancel"


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"action": "pairs_pause"}, "#/filter"),
        ({"action": "pairs_pause", "filter": {}}, "#/filter"),
        ({"action": "pairs_pause", "filter": {"state": "odd"}}, "#/filter"),
        ({"action": "pairs_pause", "filter": {"state": "active"}, "ids": ["pair_1"]}, "#/filter"),
        ({"action": "pairs_pause", "ids": ["pair_1"]}, "#/ids/0"),
        ({"action": "pairs_pause", "ids": []}, "#/ids"),
        ({"action": "pairs_pause", "filter": {"state": "active"}, "mode": "all"}, "#/mode"),
        ({"action": "pairs_resume", "filter": {"state": "suspended"}, "stagger": 4000}, "#/stagger"),
        ({"action": "incidents_assign", "filter": {"show": "all"}, "owner": "nobody"}, "#/owner"),
        ({"action": "pairs_pause", "filter": {"state": "active"}, "expected": 3}, "#/expected"),
        ({"action": "settle_messages", "decision": "delivered", "filter": {"answer": "odd"}}, "#/filter"),
        ({"action": "settle_messages", "decision": "delivered", "filter": {"answer": "processed"}}, "#/filter"),
    ],
)
def test_what_cannot_be_planned_says_why(operator: Api, body: dict[str, object], pointer: str) -> None:
    answer = operator.post("/bulk-operations", body)
    assert (answer.status, answer.code) == (422, "invalid_submission")
    assert pointer in {error["pointer"] for error in answer.json["errors"]}, answer.json
    assert not BulkJob.objects.exists()


def test_a_filter_of_messages_means_the_newest_day_unless_it_says_more(operator: Api) -> None:
    partner = partner_side()
    (old,) = delivered(partner)
    Message.objects.filter(pk=old.pk).update(created_at=AT - timedelta(days=2))
    delivered(partner)
    body = {"action": "messages_resubmit", "filter": {"state": "delivered"}}
    made = operator.post("/bulk-operations", body)
    assert (made.status, made.json["matched"], made.json["what"]) == (201, 1, "state: delivered, window: 24h")
    for more in ({"window": "all"}, {"window": "7d"}, {"created_gte": "2026-02-01T00:00:00Z"}):
        made = operator.post("/bulk-operations", {**body, "filter": {"state": "delivered", **more}})
        assert (made.status, made.json["matched"]) == (201, 2), more
    narrow = operator.post("/bulk-operations", {**body, "filter": {"pair": partner.outbound.code}})
    assert (narrow.json["matched"], narrow.json["what"]) == (2, f"pair: {partner.outbound.code}")
    for begin, end in (("created_gte", "created_lt"), ("since", "before")):
        times = {begin: "2026-03-01T00:00:00Z", end: "2026-02-28T00:00:00Z"}
        turned = operator.post("/bulk-operations", {**body, "filter": {"state": "delivered", **times}})
        assert (turned.status, turned.json["errors"][0]["pointer"]) == (422, "#/filter")
        said = f"{end} must be later than {begin}: the time range runs backwards."
        assert turned.json["errors"][0]["detail"] == said
    wrong = operator.post("/bulk-operations", {**body, "filter": {"state": "delivered", "window": "1y"}})
    assert (wrong.status, wrong.json["errors"][0]["pointer"]) == (422, "#/filter")
    assert "24h, 7d, 30d, all" in wrong.json["errors"][0]["detail"]


def test_a_filter_of_incidents_means_what_the_list_of_incidents_has(operator: Api, time: FrozenClock) -> None:
    for _ in range(2):
        suspended(time)
    first = Incident.objects.earliest("number")
    body = {"until": "2026-03-02T00:00:00Z", "reason": "not before tomorrow"}
    assert operator.post(f"/incidents/{first}/snooze", body).status == 200
    cause = {"cause": first.cause}
    assert len(operator.get("/incidents", cause).json["data"]) == 2
    for filter, number in (
        (cause, 2),
        ({**cause, "snoozed": "false"}, 1),
        ({**cause, "snoozed": "true"}, 1),
        ({**cause, "show": "open"}, 1),
    ):
        made = operator.post("/bulk-operations", {"action": "incidents_resolve", "filter": filter})
        assert (made.status, made.json["matched"]) == (201, number), filter


def test_refused_ones_are_retried_and_an_export_has_documents(operator: Api, viewer: Api) -> None:
    pair = partner_side().outbound
    made = operator.post("/bulk-operations", {"action": "pairs_pause", "ids": [pair.public_id], **REASON})
    path = f"/bulk-operations/{made.json['id']}"
    Pair.objects.filter(pk=pair.pk).update(gate="disabled")
    assert operator.post(f"{path}/retry").code == "wrong_state"
    jobs.run_due()
    assert operator.get(path).json["allowed_actions"] == ["retry"]
    Pair.objects.filter(pk=pair.pk).update(gate="open")
    again = operator.post(f"{path}/retry")
    assert (again.status, again.json["state"], again.json["matched"]) == (201, "planned", 1)
    (message,) = delivered(partner_side())
    body = {"action": "messages_export", "ids": [message.public_id], **REASON}
    export = f"/bulk-operations/{operator.post('/bulk-operations', body).json['id']}/documents"
    assert operator.get(export).code == "wrong_state"
    jobs.run_due()
    assert operator.get(export).status == 200
    assert viewer.get(export).json["required_scope"] == "payloads:read"


def test_the_partner_is_asked_about_a_message(operator: Api, viewer: Api) -> None:
    far = partner_side(profile="repeatable")
    (message,) = messages_in_doubt(far)
    path = f"/messages/{message.public_id}"
    refused = operator.post(f"{path}/query-partner")
    assert (refused.status, refused.code) == (409, "wrong_state")
    assert viewer.post(f"{path}/query-partner").json["required_scope"] == "indoubt:resolve"
    with status_service(far, default="processed"):
        said = operator.post(f"{path}/query-partner", {"reason": "is it there?"})
    assert (said.status, said.json["answer"], said.json["message"]) == (201, "processed", message.public_id)
    assert viewer.get(f"{path}/inquiries").json["data"] == [said.json]
    answer = viewer.get(f"/inquiries/{said.json['id']}/response")
    assert answer.status == 200 and b'"processed"' in answer.content
    assert AuditEntry.objects.get(verb="message.ask_partner").reason == "is it there?"
    (group,) = viewer.get("/in-doubt").json["answers"]
    assert (group["answer"], group["count"], group["suggestion"]) == ("processed", 1, "delivered")
    assert viewer.get("/in-doubt").json["messages"][0]["answers"] == {"processed": 1}
    body = {"action": "settle_messages", "decision": "delivered", "filter": group["filter"], **REASON}
    assert operator.post("/bulk-operations", body).status == 202
    assert StatusInquiry.objects.count() == 1
