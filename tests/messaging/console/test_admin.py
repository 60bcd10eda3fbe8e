"""API tokens and webhook endpoints."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from lxml import html

from messaging.models import ApiToken, AuditEntry, WebhookDelivery
from messaging.services import tokens
from rmhub.clock import FrozenClock
from rmhub.roles import Role
from tests.messaging.console.conftest import NOON
from tests.messaging.console.scenes import World, browser

pytestmark = pytest.mark.django_db


def _form(client: Client, **fields: object) -> dict[str, object]:
    page = html.fromstring(client.get("/tokens/new/").content)
    once = page.xpath("//input[@name='once']/@value")[0]
    return {"once": once, "name": "ERP", "owner": "", "scopes": ["messages:read"], "days": "30", **fields}


def test_a_token_is_made_and_its_secret_is_shown_once(time: FrozenClock) -> None:
    client = browser(Role.ADMIN, "adam")
    form = _form(client, scopes=["messages:read", "messages:write"])
    answer = client.post("/tokens/new/", form)
    secret = html.fromstring(answer.content).get_element_by_id("secret").text
    assert "no-store" in answer["Cache-Control"]
    bearer = tokens.authenticate(secret)
    assert (bearer.token.name, bearer.owner.get_username()) == ("ERP", "adam")
    assert bearer.scopes == {"messages:read", "messages:write"}
    assert bearer.token.expires_at == NOON + timedelta(days=30)
    assert secret.encode() not in client.get("/tokens/").content
    assert AuditEntry.objects.get(verb="token.create").actor == "adam"
    # The browser's reload sends the form again.
    again = client.post("/tokens/new/", form)
    assert again.status_code == 303
    assert ApiToken.objects.count() == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"name": ""},
        {"name": "x" * 81},
        {"owner": "nobody-here"},
        {"scopes": []},
        {"scopes": ["everything"]},
        {"name": "a\x00"},
    ],
)
def test_what_cannot_be_is_said_beside_what_was_typed(time: FrozenClock, fields: dict[str, object]) -> None:
    client = browser()
    answer = client.post("/tokens/new/", _form(client, **fields))
    if fields == {"name": "a\x00"}:
        assert answer.status_code == 200
        return
    assert answer.status_code == 422
    page = html.fromstring(answer.content)
    assert page.get_element_by_id("form-errors").xpath(".//li")
    assert page.get_element_by_id("field-name").get("value") == str(fields.get("name", "ERP"))
    assert ApiToken.objects.count() == 0


def test_no_token_has_more_than_its_owner(time: FrozenClock) -> None:
    browser(Role.VIEWER, "vera")
    client = browser()
    answer = client.post("/tokens/new/", _form(client, owner="vera", scopes=["pairs:operate"]))
    assert answer.status_code == 422
    assert "role does not have pairs:operate" in answer.content.decode()


def test_days_that_are_not_offered_are_ninety(time: FrozenClock) -> None:
    client = browser()
    client.post("/tokens/new/", _form(client, days="99999999"))
    assert ApiToken.objects.get().expires_at == NOON + timedelta(days=90)


def test_a_token_is_revoked_with_a_reason(scene: World) -> None:
    client = browser(Role.ADMIN, "adam")
    url = f"/tokens/{scene.token.public_id}/revoke/"
    assert client.post(url, {"reason": ""}).status_code == 422
    assert client.post(url, {"reason": "Lost laptop"}).status_code == 303
    scene.token.refresh_from_db()
    assert scene.token.revoked_at is not None
    assert AuditEntry.objects.get(verb="token.revoke").reason == "Lost laptop"
    assert client.post(url, {"reason": "again"}).status_code == 422
    page = html.fromstring(client.get("/tokens/").content)
    assert "Revoked" in page.text_content()


def test_a_webhook_endpoint_shows_its_deliveries_and_can_be_switched(scene: World) -> None:
    client = browser(Role.ADMIN, "adam")
    url = f"/webhooks/{scene.webhook.public_id}/"
    page = html.fromstring(client.get(url).content)
    deliveries = page.xpath("//h2[@id='deliveries']/ancestor::section//tbody/tr")
    assert len(deliveries) == WebhookDelivery.objects.filter(endpoint=scene.webhook).count() > 0
    assert client.post(url, {"enabled": "0", "reason": ""}).status_code == 422
    assert client.post(url, {"enabled": "0", "reason": "ERP moves house"}).status_code == 303
    scene.webhook.refresh_from_db()
    assert (scene.webhook.enabled, scene.webhook.disabled_reason) == (False, "ERP moves house")
    assert "ERP moves house" in client.get("/webhooks/").content.decode()
    assert client.post(url, {"enabled": "1", "reason": "ERP is back"}).status_code == 303
    scene.webhook.refresh_from_db()
    assert scene.webhook.enabled


def test_no_secret_is_on_any_admin_page(scene: World) -> None:
    from partners.secrets import decrypt

    client = browser()
    secret = decrypt(bytes(scene.webhook.secret_encrypted))
    for url in ("/webhooks/", f"/webhooks/{scene.webhook.public_id}/", "/tokens/", "/audit/"):
        text = client.get(url).content.decode()
        assert secret not in text
        assert scene.token.secret_sha256 not in text
