"""API tokens and webhook endpoints."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from lxml import html

from messaging.access.pages.tokens import PRESETS
from messaging.access.services import tokens
from messaging.models import ApiToken, AuditEntry, WebhookDelivery, WebhookEndpoint
from partners.models import PartnerGroup
from partners.secrets import decrypt
from rmhub import clock
from rmhub.clock import FrozenClock
from rmhub.roles import ABOUT, ADMIN_SCOPES, Role
from tests.messaging.conftest import NOON
from tests.messaging.console.scenes import World, browser
from tests.messaging.http_server import serving
from tests.messaging.notifications.test_webhooks import Taking

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
    client = browser()
    secret = decrypt(bytes(scene.webhook.secret_encrypted))
    for url in ("/webhooks/", f"/webhooks/{scene.webhook.public_id}/", "/tokens/", "/audit/"):
        text = client.get(url).content.decode()
        assert secret not in text
        assert scene.token.secret_sha256 not in text


# ---- webhook endpoints: made, changed, tried ----


def _webhook_form(client: Client, path: str = "/webhooks/new/", **fields: object) -> dict[str, object]:
    page = html.fromstring(client.get(path).content)
    once = page.xpath("//input[@name='once']/@value")
    revision = page.xpath("//input[@name='revision']/@value")
    return {**({"once": once[0]} if once else {}), **({"revision": revision[0]} if revision else {}), **fields}


def test_an_endpoint_is_made_and_its_secret_is_shown_once(time: FrozenClock) -> None:
    client = browser(Role.ADMIN, "adam")
    form = _webhook_form(client, url="http://127.0.0.1:9/hook", name="ERP", types=["message.delivered"])
    answer = client.post("/webhooks/new/", form)
    assert "no-store" in answer["Cache-Control"]
    secret = html.fromstring(answer.content).get_element_by_id("secret").text
    endpoint = WebhookEndpoint.objects.get()
    assert decrypt(bytes(endpoint.secret_encrypted)) == secret
    assert (endpoint.name, endpoint.types) == ("ERP", ["message.delivered"])
    assert client.post("/webhooks/new/", form).status_code == 303, "a reload makes no second one"
    assert WebhookEndpoint.objects.count() == 1
    refused = client.post("/webhooks/new/", _webhook_form(client, url="ftp://x/", name="CRM"))
    assert refused.status_code == 422
    assert html.fromstring(refused.content).get_element_by_id("field-url").get("value") == "ftp://x/"


def test_an_endpoint_is_changed_unless_somebody_was_faster(scene: World) -> None:
    client = browser()
    path = f"/webhooks/{scene.webhook.public_id}/edit/"
    form = _webhook_form(client, path, url=scene.webhook.url, name="ERP 2", types=["pair.suspended"], reason="less")
    assert client.post(path, form).status_code == 303
    scene.webhook.refresh_from_db()
    assert (scene.webhook.name, scene.webhook.types) == ("ERP 2", ["pair.suspended"])
    late = client.post(path, {**form, "name": "ERP 3"})
    assert late.status_code == 409
    assert "changed since you looked" in late.content.decode()


def test_a_test_says_what_came_back(scene: World) -> None:
    client = browser()
    with serving(Taking()) as server:
        WebhookEndpoint.objects.filter(pk=scene.webhook.pk).update(url=server.url)
        answer = client.post(f"/webhooks/{scene.webhook.public_id}/test/", follow=True)
    assert "The test arrived" in answer.content.decode() and "HTTP 204" in answer.content.decode()
    WebhookEndpoint.objects.filter(pk=scene.webhook.pk).update(url="http://127.0.0.1:1/")
    answer = client.post(f"/webhooks/{scene.webhook.public_id}/test/", follow=True)
    assert "The test did not arrive" in answer.content.decode()


def test_a_new_secret_needs_a_reason_and_is_shown_once(scene: World) -> None:
    client = browser()
    path = f"/webhooks/{scene.webhook.public_id}/secret/"
    old = decrypt(bytes(scene.webhook.secret_encrypted))
    assert client.post(path, _webhook_form(client, path, reason="")).status_code == 422
    form = _webhook_form(client, path, reason="yearly", overlap_hours="72")
    shown = html.fromstring(client.post(path, form).content).get_element_by_id("secret").text
    assert shown != old
    scene.webhook.refresh_from_db()
    assert scene.webhook.previous_until == clock.now() + timedelta(hours=72)
    assert client.post(path, form).status_code == 303
    page = client.get(f"/webhooks/{scene.webhook.public_id}/").content.decode()
    assert "the old one signs too" in page and shown not in page


def test_what_was_given_up_is_replayed_or_delivered_one_by_one(scene: World) -> None:
    client = browser()
    path = f"/webhooks/{scene.webhook.public_id}/"
    given_up = WebhookDelivery.objects.filter(endpoint=scene.webhook)
    count = given_up.update(state="failed", due_at=None, created_at=NOON)
    one = given_up.first()
    assert one is not None
    page = html.fromstring(client.get(f"{path}deliveries/{one.public_id}/").content)
    assert one.body["type"] in page.find(".//pre").text_content()
    assert client.post(f"{path}deliveries/{one.public_id}/").status_code == 303
    one.refresh_from_db()
    assert one.state == "pending"
    assert client.post(f"{path}replay/", {"since": "day", "what": "failed", "reason": ""}).status_code == 422
    answer = client.post(f"{path}replay/", {"since": "day", "what": "failed", "reason": "outage"}, follow=True)
    assert f"{count - 1} deliveries go out now" in answer.content.decode()
    failed = client.post(f"{path}replay/", {"since": "time", "since_time": "nonsense", "reason": "outage"})
    assert failed.status_code == 422


def test_an_endpoint_is_deleted_with_a_reason(scene: World) -> None:
    client = browser()
    path = f"/webhooks/{scene.webhook.public_id}/delete/"
    assert client.post(path, {"reason": ""}).status_code == 422
    assert client.post(path, {"reason": "not used any more"}).status_code == 303
    assert not WebhookEndpoint.objects.exists()
    assert client.get(path).status_code == 404


def test_deliveries_are_filtered_by_state(scene: World) -> None:
    client = browser()
    page = html.fromstring(client.get(f"/webhooks/{scene.webhook.public_id}/?state=delivered").content)
    assert "No delivery in this state" in page.text_content()
    assert page.xpath("//select[@name='state']/option[@selected]/@value") == ["delivered"]


def test_a_token_for_a_network_and_a_group(time: FrozenClock) -> None:
    client = browser()
    group = PartnerGroup.objects.create(name="North")
    form = _form(client, networks="10.1.0.0/16, 192.0.2.7", groups=[group.public_id])
    assert client.post("/tokens/new/", form).status_code == 200
    token = ApiToken.objects.get()
    assert (token.networks, list(token.groups.all())) == (["10.1.0.0/16", "192.0.2.7/32"], [group])
    page = html.fromstring(client.get("/tokens/").content).text_content()
    assert "only partners of North" in page and "10.1.0.0/16" in page
    assert client.post("/tokens/new/", _form(client, networks="home")).status_code == 422
    assert client.post("/tokens/new/", _form(client, groups=["grp_x"])).status_code == 422
    time.move(20 * 86_400)
    assert "Expires soon" in html.fromstring(client.get("/tokens/").content).text_content()


@pytest.mark.parametrize("preset", [*PRESETS, "", "nonsense"])
def test_what_applications_usually_need_is_one_press(preset: str) -> None:
    page = html.fromstring(browser(Role.ADMIN).get(f"/tokens/new/?preset={preset}").content)
    ticked = set(page.xpath("//input[@name='scopes'][@checked]/@value"))
    assert ticked == (PRESETS[preset][1] if preset in PRESETS else set())
    assert page.xpath("//nav[@aria-label='Usual scopes']//a[@aria-current]/text()") == [
        label for name, (label, _) in PRESETS.items() if name == preset
    ]
    assert not page.xpath("//*[@data-testid='preset']"), "they are no reasons"


def test_each_scope_says_what_it_allows() -> None:
    assert ABOUT.keys() == ADMIN_SCOPES
    page = html.fromstring(browser(Role.ADMIN).get("/tokens/new/").content)
    shown = page.xpath("//input[@name='scopes']/following-sibling::span/span[2]/text()")
    assert sorted(shown) == sorted(ABOUT.values())
