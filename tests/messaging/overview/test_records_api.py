"""Incidents, rejections, the audit log, tokens, webhook endpoints."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from messaging.access.services import tokens
from messaging.models import ApiToken, AuditEntry, Event, Incident, Rejection, WebhookDelivery, WebhookEndpoint
from rmhub import clock
from rmhub.roles import ADMIN_SCOPES, OPERATOR_SCOPES, Role
from tests.messaging.api.client import REASON, Api, make_incident, make_token, make_user, suspended
from tests.messaging.factories import PartnerSide, submit

pytestmark = pytest.mark.django_db

SOON = datetime.now(UTC) + timedelta(days=30)


# ---- incidents


def test_an_incident_is_taken_and_closed(operator: Api, partner: PartnerSide) -> None:
    pair = suspended(partner)
    (found,) = operator.get("/incidents", {"state": "open", "pair": pair.code}).json["data"]
    assert found["pair"] == {"id": pair.public_id, "code": pair.code}
    assert found["message"]["id"] == f"msg_{pair.in_flight_id.hex}"  # type: ignore[union-attr]
    path = f"/incidents/{found['id']}"
    read = operator.get(path)
    assert read.json == found == operator.get(f"/incidents/INC-{found['number']}").json
    taken = operator.post(f"{path}/acknowledge", {"reason": "mine"}, If_Match=read.etag)
    assert (taken.status, taken.json["state"]) == (200, "acknowledged")
    assert taken.json["owner"].startswith("operator")
    assert operator.post(f"{path}/resolve", REASON, If_Match=read.etag).code == "stale"
    closed = operator.post(f"{path}/resolve", REASON)
    assert (closed.status, closed.json["state"], closed.json["resolution"]) == (200, "resolved", REASON["reason"])
    for verb in ("acknowledge", "resolve"):
        again = operator.post(f"{path}/{verb}", REASON)
        assert (again.status, again.code, again.json["current_state"]) == (409, "wrong_state", "resolved")
    assert [entry.verb for entry in AuditEntry.objects.filter(object_type="incident").order_by("id")] == [
        "incident.acknowledge",
        "incident.resolve",
    ]


def test_closing_needs_a_reason_and_taking_does_not(operator: Api) -> None:
    incident = make_incident()
    path = f"/incidents/{incident.public_id}"
    for body in ({}, {"reason": "x"}, {"reason": 1}, {**REASON, "owner": "me"}):
        assert operator.post(f"{path}/resolve", body).status == 422
    assert operator.post(f"{path}/acknowledge").status == 200
    assert Incident.objects.get().state == "acknowledged"


@pytest.mark.parametrize("reference", [f"inc_{'0' * 32}", "INC-99", "0", "x", "%00", "9" * 40])
def test_incidents_that_are_not_there(operator: Api, reference: str) -> None:
    assert operator.get(f"/incidents/{reference}").code == "not_found"
    for verb in ("acknowledge", "resolve"):
        assert operator.post(f"/incidents/{reference}/{verb}", REASON).code == "not_found"


def test_incidents_are_filtered(viewer: Api, partner: PartnerSide) -> None:
    pair = suspended(partner)
    make_incident(cause="other")
    numbers = lambda **query: [row["number"] for row in viewer.get("/incidents", query).json["data"]]  # noqa: E731
    assert numbers() == [2, 1]
    assert numbers(cause="other") == [2]
    assert numbers(partner=f"par_{pair.partner_id.hex}") == [1]
    assert numbers(state="resolved") == []


# ---- rejections and the audit log


def test_rejections(operator: Api, viewer: Api) -> None:
    rows = [
        Rejection.objects.create(
            at=clock.now(), reason=reason, detail="No.", http_status=401, party_name="Globex", sample=b"\x00\xffx"
        )
        for reason in ("unauthenticated", "not_mime")
    ]
    assert [row["reason"] for row in viewer.get("/rejections").json["data"]] == ["not_mime", "unauthenticated"]
    assert [row["id"] for row in viewer.get("/rejections", {"reason": "not_mime"}).json["data"]] == [rows[1].public_id]
    assert viewer.get("/rejections", {"party": "Initech"}).json["data"] == []
    assert viewer.get("/rejections", {"created_lt": "2020-01-01T00:00:00Z"}).json["data"] == []
    assert len(viewer.get("/rejections", {"created_gte": "2020-01-01T00:00:00Z"}).json["data"]) == 2
    path = f"/rejections/{rows[0].public_id}"
    assert viewer.get(path).json["detail"] == "No."
    assert viewer.get(f"{path}/sample").json["required_scope"] == "payloads:read"
    sample = operator.get(f"{path}/sample")
    assert (sample.content, sample.headers["content-type"]) == (b"\x00\xffx", "application/octet-stream")
    assert AuditEntry.objects.get(verb="rejection.read").object_id == rows[0].public_id
    for below in ("", "/sample"):
        assert operator.get(f"/rejections/rej_{'0' * 32}{below}").code == "not_found"


def test_the_audit_log_tells_who_did_what_and_why(admin: Api, partner: PartnerSide) -> None:
    pair = suspended(partner)
    admin.post(f"/pairs/{pair.public_id}/resume", REASON, If_Match="*", X_Request_Id="my-request-7")
    (entry,) = admin.get("/audit-log", {"object": pair.public_id}).json["data"]
    assert (entry["verb"], entry["reason"], entry["request_id"]) == ("pair.resume", REASON["reason"], "my-request-7")
    assert (entry["before"]["flow"], entry["after"]["flow"]) == ("suspended", "resend_wait")
    count = lambda **query: len(admin.get("/audit-log", query).json["data"])  # noqa: E731
    assert count(verb="pair.resume") == count(object_type="pair") == count(actor=entry["actor"]) == 1
    assert count(actor="nobody") == count(created_lt="2020-01-01T00:00:00Z") == 0


# ---- tokens


def test_a_token_is_made_used_and_revoked(admin: Api) -> None:
    bob = make_user(Role.OPERATOR, "bob")
    body = {
        "name": "ERP",
        "scopes": ["pairs:read"],
        "owner": "bob",
        "reason": "go-live",
        "expires_at": SOON.isoformat(),
    }
    made = admin.post("/tokens", body)
    assert made.status == 201 and made.headers["cache-control"] == "no-store"
    assert (made.json["owner"], made.json["scopes"]) == ("bob", ["pairs:read"])
    secret = made.json["secret"]
    api = Api(secret)
    assert api.get("/pairs").status == 200
    assert api.get("/messages").json["required_scope"] == "messages:read"
    path = made.headers["location"].removeprefix("/api/v1")
    for answer in (
        admin.get(path),
        admin.get("/tokens"),
        admin.get("/tokens", {"owner": "bob"}),
        admin.get("/audit-log"),
    ):
        assert secret.encode() not in answer.content and b'"secret"' not in answer.content
    assert admin.get(path).json["last_used_at"]
    assert admin.post(f"{path}/revoke", {}).status == 422
    assert admin.post(f"{path}/revoke", REASON).json["revoked_at"]
    tokens.reset()  # as the commit does
    assert api.get("/pairs").code == "token_revoked"
    assert admin.post(f"{path}/revoke", REASON).code == "wrong_state"
    assert [entry.verb for entry in AuditEntry.objects.filter(object_id=made.json["id"]).order_by("id")] == [
        "token.create",
        "token.revoke",
        "token.use",  # refused
    ]
    assert bob.api_tokens.count() == 1


def test_a_token_ends_after_90_days_unless_told(admin: Api) -> None:
    # No token outlives the one by which it is made.
    ApiToken.objects.update(expires_at=clock.now() + timedelta(days=200))
    tokens.reset()
    made = admin.post("/tokens", {"name": "ERP", "scopes": ["pairs:read"]})
    row = ApiToken.objects.get(name="ERP")
    assert (row.expires_at - row.created_at).days == 90
    assert made.json["owner"] == row.owner.username


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"name": ""}, "#/name"),
        ({"name": "x" * 81}, "#/name"),
        ({"scopes": []}, "#/scopes"),
        ({"scopes": ["everything"]}, "#/scopes/0"),
        ({"scopes": "pairs:read"}, "#/scopes"),
        ({"owner": "nobody"}, "#/owner"),
        ({"owner": "vera", "scopes": ["pairs:operate"]}, "#/scopes"),
        ({"expires_at": "2020-01-01T00:00:00Z"}, "#/expires_at"),
        ({"expires_at": "2999-01-01T00:00:00Z"}, "#/expires_at"),
        ({"expires_at": "tomorrow"}, "#/expires_at"),
        ({"secret": "rmh_live_mine"}, "#/secret"),
    ],
)
def test_tokens_that_cannot_be(admin: Api, changes: dict[str, Any], pointer: str) -> None:
    make_user(Role.VIEWER, "vera")
    answer = admin.post("/tokens", {"name": "ERP", "scopes": ["pairs:read"], **changes})
    assert answer.status == 422
    assert pointer in {error["pointer"] for error in answer.json["errors"]}
    assert not ApiToken.objects.filter(name="ERP").exists()


def test_nobody_gives_away_more_than_they_have() -> None:
    api = Api(make_token(make_user(Role.ADMIN), {"tokens:manage", "pairs:read"}))
    answer = api.post("/tokens", {"name": "ERP", "scopes": ["pairs:read", "partners:write"]})
    assert "partners:write" in answer.json["errors"][0]["detail"]
    assert answer.json["errors"][0]["pointer"] == "#/scopes"
    assert api.post("/tokens", {"name": "ERP", "scopes": ["pairs:read"]}).status == 201
    assert {"tokens:manage"} <= ADMIN_SCOPES - OPERATOR_SCOPES


# ---- webhook endpoints


def test_a_webhook_endpoint_from_beginning_to_end(admin: Api, partner: PartnerSide) -> None:
    body = {"url": "http://127.0.0.1:9/hook", "name": "ERP", "types": ["message.accepted"], "reason": "go-live"}
    made = admin.post("/webhook-endpoints", body)
    assert made.status == 201 and made.json["secret"].startswith("whsec_")
    path = made.headers["location"].removeprefix("/api/v1")
    message = submit(partner)
    (delivery,) = admin.get(f"{path}/deliveries", {"state": "pending"}).json["data"]
    assert (delivery["type"], delivery["attempts"]) == ("message.accepted", 0)
    assert WebhookDelivery.objects.get().body["data"]["message"] == message.public_id
    assert admin.get(f"{path}/deliveries", {"state": "failed"}).json["data"] == []
    read = admin.get(path)
    assert "secret" not in read.json
    off = admin.patch(path, {"enabled": False, "reason": "moving"}, If_Match=read.etag)
    assert (off.status, off.json["enabled"], off.json["disabled_reason"]) == (200, False, "moving")
    assert admin.patch(path, {"enabled": True}, If_Match=read.etag).code == "stale"
    changed = admin.patch(path, {"url": "http://127.0.0.1:9/other", "types": [], "enabled": True}, If_Match=off.etag)
    assert (changed.json["url"], changed.json["types"], changed.json["name"]) == ("http://127.0.0.1:9/other", [], "ERP")
    assert admin.get("/webhook-endpoints").json["data"] == [changed.json]
    gone = admin.delete(path, {"reason": "not needed"})
    assert (gone.status, gone.content) == (204, b"")
    assert not WebhookEndpoint.objects.exists() and not WebhookDelivery.objects.exists()
    for answer in (admin.get(path), admin.delete(path), admin.get(f"{path}/deliveries")):
        assert answer.code == "not_found"
    assert admin.patch(path, {}, If_Match="*").code == "not_found"
    verbs = AuditEntry.objects.filter(object_type="webhookendpoint").order_by("id").values_list("verb", "reason")
    assert list(verbs) == [
        ("webhook.create", "go-live"),
        ("webhook.update", "moving"),
        ("webhook.update", ""),
        ("webhook.delete", "not needed"),
    ]
    assert Event.objects.count() == 1


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "#/url"),
        ({"url": "ftp://x.example"}, "#/url"),
        ({"url": "http://user:pw@x.example"}, "#/url"),
        ({"url": "http://["}, "#/url"),
        ({"url": "http://h:99999999"}, "#/url"),
        ({"url": "x" * 501}, "#/url"),
        ({"url": "http://x.example", "types": ["message.lost"]}, "#/types/0"),
        ({"url": "http://x.example", "name": "x" * 81}, "#/name"),
        ({"url": "http://x.example", "secret": "mine"}, "#/secret"),
    ],
)
def test_webhook_endpoints_that_cannot_be(admin: Api, body: dict[str, Any], pointer: str) -> None:
    answer = admin.post("/webhook-endpoints", body)
    assert answer.status == 422
    assert pointer in {error["pointer"] for error in answer.json["errors"]}
    made = admin.post("/webhook-endpoints", {"url": "http://127.0.0.1:9/"})
    path = made.headers["location"].removeprefix("/api/v1")
    assert admin.patch(path, {"enabled": False}).code == "precondition_required"
    if body:
        assert admin.patch(path, body, If_Match="*").status == 422


def test_private_addresses_are_refused_unless_allowed(admin: Api, settings: Any) -> None:
    settings.RMHUB_WEBHOOK_ALLOW_PRIVATE = False
    for url in ("http://hooks.example/", "https://127.0.0.1/", "https://169.254.169.254/latest", "https://[::1]/"):
        answer = admin.post("/webhook-endpoints", {"url": url})
        assert (answer.status, answer.json["errors"][0]["pointer"]) == (422, "#/url"), url
