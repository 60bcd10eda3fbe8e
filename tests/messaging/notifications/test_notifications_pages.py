"""Notification rules in the console."""

from __future__ import annotations

from typing import Any

import pytest
from django.core import mail
from django.test import Client
from lxml import html

from messaging.journal import incidents
from messaging.journal.audit import Actor
from messaging.models import NotificationRule, WebhookEndpoint
from messaging.notifications.services import rules as notification_rules
from partners.models import PartnerGroup
from rmhub import clock
from rmhub.roles import Role
from tests.messaging.console.scenes import browser, told_rule

pytestmark = pytest.mark.django_db
ANA = Actor("ana", "console")


def form(client: Client, url: str) -> dict[str, Any]:
    """What a browser would post of a page's form."""
    page = html.fromstring(client.get(url).content)
    (found,) = page.xpath("//form[contains(@class, 'trigger-form')]")
    values: dict[str, Any] = {name: value for name, value in found.form_values() if name != "events"}
    return values | {"events": [value for name, value in found.form_values() if name == "events"]}


def make(**fields: Any) -> NotificationRule:
    wanted = {"name": "On call", "events": ["incident.opened"], "channel": "mail", "recipients": ["a@hub.test"]}
    return notification_rules.rule_create(actor=ANA, **{**wanted, **fields})


def test_a_rule_is_made_in_the_form() -> None:
    client = browser(Role.ADMIN)
    group = PartnerGroup.objects.create(name="North")
    given = form(client, "/notifications/new/")
    assert given["events"] == ["incident.opened", "incident.resolved"]
    given |= {"name": "Night", "recipients": "a@hub.test\nb@hub.test", "causes": "cert_expired", "window": "30 m"}
    answer = client.post("/notifications/new/", given | {"group": group.public_id})
    assert answer.status_code == 303
    made = NotificationRule.objects.get()
    assert (made.name, made.recipients, made.causes, made.window, made.group, made.enabled) == (
        "Night", ["a@hub.test", "b@hub.test"], ["cert_expired"], 1800, group, True,
    )  # fmt: skip
    assert b"Night" in client.get("/notifications/").content
    assert client.post("/notifications/new/", given).status_code == 303, "a form that was used already"
    assert NotificationRule.objects.count() == 1


def test_what_is_wrong_is_said_and_nothing_is_lost() -> None:
    client = browser(Role.ADMIN)
    given = form(client, "/notifications/new/") | {"name": "Night", "recipients": "nobody", "window": "soon"}
    answer = client.post("/notifications/new/", given)
    assert answer.status_code == 422
    page = html.fromstring(answer.content)
    assert page.xpath("//a[@href='#field-window']")
    given = form(client, "/notifications/new/") | {"name": "Night", "recipients": "nobody"}
    page = html.fromstring(client.post("/notifications/new/", given).content)
    assert page.xpath("//a[@href='#field-recipients']")
    assert page.xpath("//input[@name='name']/@value") == ["Night"]
    assert page.xpath("//textarea[@name='recipients']")[0].text_content().strip() == "nobody"


def test_a_rule_is_changed_and_a_stale_form_is_told() -> None:
    made, client = make(), browser(Role.ADMIN)
    url = f"/notifications/{made.public_id}/edit/"
    given = form(client, url)
    endpoint = WebhookEndpoint.objects.create(
        url="https://pager.test/", name="Pager", secret_encrypted=b"", created_at=clock.now()
    )
    given |= {"channel": "webhook", "endpoint": endpoint.public_id, "window": "0"}
    given.pop("enabled")
    assert client.post(url, given).status_code == 303
    made.refresh_from_db()
    assert (made.channel, made.endpoint, made.window, made.enabled) == ("webhook", endpoint, 0, False)
    assert client.post(url, given | {"name": "Late"}).status_code == 409
    assert b"Pager" in client.get(f"/notifications/{made.public_id}/").content


def test_a_test_is_sent_and_its_end_is_told(settings: Any) -> None:
    made, client = make(), browser(Role.ADMIN)
    url = f"/notifications/{made.public_id}/test/"
    settings.RMHUB_MAIL_SERVER = "smtp://mail.hub.test"
    assert "The test was taken by the mail server." in client.post(url, follow=True).content.decode()
    assert len(mail.outbox) == 1
    settings.RMHUB_MAIL_SERVER = settings.RMHUB_SMTP_RELAY = ""
    said = client.post(url, follow=True).content.decode()
    assert "The test could not be sent: No mail server is set up" in said
    assert "No mail server is set up, so mails wait" in said


def test_a_rule_is_removed() -> None:
    client = browser(Role.ADMIN)
    url = f"/notifications/{make().public_id}/delete/"
    page = html.fromstring(client.get(url).content)
    revision = page.xpath("//input[@name='revision']/@value")[0]
    assert client.post(url, {"revision": "another"}).status_code == 409
    assert client.post(url, {"revision": revision}).status_code == 303
    assert not NotificationRule.objects.exists()


def test_what_was_told_is_listed() -> None:
    client = browser(Role.ADMIN)
    told_rule(incidents.incident_open(pair=None, cause="internal_error", now=clock.now())[0])
    page = html.fromstring(client.get("/notifications/sent/").content)
    assert len(page.xpath("//tr[@data-testid='notification']")) == 2
    failed = html.fromstring(client.get("/notifications/sent/?state=failed").content)
    assert len(failed.xpath("//tr[@data-testid='notification']")) == 1
    assert client.get("/notifications/sent/?state=nonsense").status_code == 200
    for wrong in ("rule_x", "rule_" + "0" * 32):
        assert client.get(f"/notifications/{wrong}/").status_code == 404
