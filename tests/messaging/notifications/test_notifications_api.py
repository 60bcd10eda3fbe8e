"""Notification rules by the API."""

from __future__ import annotations

from typing import Any

import pytest
from django.core import mail

from messaging.models import AuditEntry, Notification, NotificationRule, WebhookEndpoint
from messaging.notifications.services import rules as notification_rules
from partners.models import PartnerGroup
from rmhub import clock
from tests.messaging.api.client import Api, make_incident

pytestmark = pytest.mark.django_db
RULE: dict[str, Any] = {
    "name": "On call",
    "events": ["incident.opened", "incident.resolved"],
    "channel": "mail",
    "recipients": ["oncall@hub.test"],
}


def test_a_rule_is_made_read_changed_and_removed(admin: Api) -> None:
    group = PartnerGroup.objects.create(name="North")
    made = admin.post("/notification-rules", {**RULE, "group": group.public_id, "causes": ["cert_expired"]})
    assert made.status == 201
    path = made.headers["location"].removeprefix("/api/v1")
    read = admin.get(path)
    assert (read.json, read.etag) == (made.json, made.etag)
    assert read.json["group"] == {"id": group.public_id, "name": "North"}
    assert (read.json["window"], read.json["enabled"], read.json["endpoint"]) == (3600, True, None)
    assert [row["id"] for row in admin.get("/notification-rules").json["data"]] == [read.json["id"]]
    assert admin.patch(path, {"window": 60}).code == "precondition_required"
    changed = admin.patch(path, {"window": 60, "group": None, "reason": "too late"}, If_Match=read.etag)
    assert (changed.json["window"], changed.json["group"]) == (60, None)
    assert admin.patch(path, {"window": 61}, If_Match=read.etag).code == "stale"
    assert admin.delete(path, {}, If_Match=read.etag).code == "stale"
    assert admin.delete(path, {"reason": "nobody reads it"}, If_Match=changed.etag).status == 204
    assert admin.get(path).code == "not_found"
    verbs = ["notification_rule.create", "notification_rule.update", "notification_rule.delete"]
    assert list(AuditEntry.objects.order_by("id").values_list("verb", flat=True))[-3:] == verbs


@pytest.mark.parametrize(
    "body",
    [
        {},
        {**RULE, "name": ""},
        {**RULE, "events": []},
        {**RULE, "events": ["message.accepted"]},
        {**RULE, "channel": "pigeon"},
        {**RULE, "recipients": ["nobody"]},
        {**RULE, "channel": "webhook"},
        {**RULE, "endpoint": "whe_x"},
        {**RULE, "window": -1},
        {**RULE, "window": "60"},
        {**RULE, "unknown": 1},
    ],
)
def test_a_rule_that_cannot_work_is_refused(admin: Api, body: dict[str, Any]) -> None:
    assert admin.post("/notification-rules", body).code == "invalid_submission"
    assert not NotificationRule.objects.exists()


def test_a_webhook_rule(admin: Api) -> None:
    endpoint = WebhookEndpoint.objects.create(
        url="https://pager.test/", name="Pager", secret_encrypted=b"", created_at=clock.now()
    )
    body = {**RULE, "channel": "webhook", "endpoint": endpoint.public_id}
    made = admin.post("/notification-rules", body).json
    assert (made["endpoint"]["name"], made["recipients"]) == ("Pager", [])


def test_a_test_and_the_list_of_what_was_told(admin: Api, settings: Any) -> None:
    settings.RMHUB_MAIL_SERVER = "smtp://mail.hub.test"
    made = admin.post("/notification-rules", RULE).json
    tested = admin.post(f"/notification-rules/{made['id']}/test")
    assert (tested.status, tested.json["state"], len(mail.outbox)) == (200, "sent", 1)
    settings.RMHUB_MAIL_SERVER = settings.RMHUB_SMTP_RELAY = ""
    failed = admin.post(f"/notification-rules/{made['id']}/test").json
    assert (failed["state"], failed["due_at"]) == ("failed", None)
    assert "RMHUB_MAIL_SERVER" in failed["last_error"]
    incident = make_incident()
    Notification.objects.filter(state="sent").update(incident=incident)
    ids = lambda **query: [row["id"] for row in admin.get("/notifications", query).json["data"]]  # noqa: E731
    assert ids() == [failed["id"], tested.json["id"]]
    assert ids(state="failed") == [failed["id"]]
    assert ids(incident=incident.public_id) == [tested.json["id"]]
    assert ids(rule=made["id"], state="pending") == []
    assert admin.post(f"/notification-rules/rule_{'0' * 32}/test").code == "not_found"


def test_only_admins_see_and_make_them(operator: Api) -> None:
    assert operator.get("/notification-rules").json["required_scope"] == "notifications:manage"
    assert operator.get("/notifications").status == 403
    assert operator.post("/notification-rules", RULE).status == 403
    assert set(notification_rules.NOTIFIABLE) <= set(_types())


def _types() -> tuple[str, ...]:
    from messaging.journal.events import TYPES

    return TYPES
