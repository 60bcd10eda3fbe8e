"""Log-in by an OpenID provider: code flow with PKCE, against a provider on loopback."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from joserfc.jwk import ECKey

from messaging.access.services import openid, users
from messaging.journal.audit import Actor
from messaging.models import AuditEntry, OpenIdAccount, UserSession
from rmhub import clock
from rmhub.clock import frozen
from rmhub.roles import Role, role_of
from tests.messaging.access import oidc_provider
from tests.messaging.access.oidc_provider import CLIENT, Provider
from tests.messaging.console.scenes import user

pytestmark = pytest.mark.django_db
ANA = {"sub": "1f3c", "preferred_username": "ana", "email": "ana@example.org", "name": "Ana Lopez"}


@pytest.fixture
def provider(settings: Any) -> Iterator[Provider]:
    with oidc_provider.serving() as served:
        served.claims = dict(ANA)
        settings.RMHUB_OIDC_ISSUER = served.issuer
        settings.RMHUB_OIDC_CLIENT_ID, settings.RMHUB_OIDC_CLIENT_SECRET = CLIENT
        openid.reset()
        yield served
    openid.reset()


def _away(client: Client, wanted: str = "/pairs/") -> str:
    answer = client.get(f"/login/openid/?next={wanted}")
    assert answer.status_code == 302
    return str(answer["Location"])


def _log_in(provider: Provider, client: Client | None = None) -> Any:
    client = client or Client()
    back = provider.authorize(_away(client))
    return client.get("/login/openid/back/", back, follow=False)


def _said(client: Client) -> str:
    return client.get("/login/").content.decode()


def test_the_first_log_in_makes_a_user_without_a_role(provider: Provider) -> None:
    client = Client()
    answer = _log_in(provider, client)
    assert (answer.status_code, answer["Location"]) == (303, "/pairs/")
    made = User.objects.get(username="ana")
    assert (made.email, made.first_name, role_of(made)) == ("ana@example.org", "Ana Lopez", None)
    assert not made.has_usable_password()
    assert client.get("/pairs/").status_code == 403, "an admin gives the role"
    assert UserSession.objects.get(user=made).method == "openid"
    assert AuditEntry.objects.get(verb="user.login").authentication == "openid"
    provider.claims["preferred_username"] = "renamed"
    _log_in(provider)
    assert OpenIdAccount.objects.get().user == made, "people are known by issuer and subject"


def test_the_provider_says_the_role_at_every_log_in(provider: Provider, settings: Any) -> None:
    settings.RMHUB_OIDC_ROLE_CLAIM = "groups"
    settings.RMHUB_OIDC_ROLES = {"hub-admins": "admin", "hub-people": "viewer"}
    for groups, role in (
        (["hub-people", "hub-admins", "golf"], Role.ADMIN),
        ("hub-people", Role.VIEWER),
        (["golf"], None),
    ):
        provider.claims["groups"] = groups
        _log_in(provider)
        assert role_of(User.objects.get(username="ana")) == role
    assert AuditEntry.objects.filter(verb="user.change").count() == 3


def test_whoever_was_invited_under_that_name_is_linked_and_nobody_else(provider: Provider) -> None:
    users.user_create(username="ana", role="operator", actor=Actor("boss"))
    assert _log_in(provider).status_code == 303
    assert role_of(OpenIdAccount.objects.get().user) == Role.OPERATOR
    OpenIdAccount.objects.all().delete()
    User.objects.all().delete()
    user(Role.ADMIN, "ana")  # has a password: perhaps another Ana
    client = Client()
    assert _log_in(provider, client)["Location"] == "/login/"
    assert "another user ana" in _said(client)
    assert not OpenIdAccount.objects.exists()


def test_whoever_is_switched_off_here_does_not_come_in(provider: Provider) -> None:
    _log_in(provider)
    User.objects.update(is_active=False)
    client = Client()
    assert _log_in(provider, client)["Location"] == "/login/"
    assert "switched off" in _said(client)
    assert client.get("/account/").status_code == 302


@pytest.mark.parametrize(
    "lie",
    [
        {"iss": "https://evil.example"},
        {"aud": "another-app"},
        {"aud": ["hub", "another-app"], "azp": "another-app"},
        {"nonce": "of another log-in"},
        {"exp": 1_000_000_000},
        {"sub": None},
    ],
    ids=lambda lie: ",".join(lie),
)
def test_a_token_that_is_not_about_this_log_in_is_refused(provider: Provider, lie: dict[str, Any]) -> None:
    provider.spoil = lie
    client = Client()
    assert _log_in(provider, client)["Location"] == "/login/"
    assert not User.objects.exists()
    assert client.get("/account/").status_code == 302


def test_a_token_of_a_strange_key_is_refused_and_a_changed_key_is_fetched(provider: Provider) -> None:
    _log_in(provider)
    good = provider.key
    provider.key = ECKey.generate_key("P-256", {"kid": "two", "use": "sig"}, private=True)
    assert _log_in(provider)["Location"] == "/pairs/", "the provider has changed its key"
    stranger = ECKey.generate_key("P-256", {"kid": "two", "use": "sig"}, private=True)
    served = provider.answer
    provider.answer = lambda path, *rest: (  # type: ignore[method-assign]
        (200, {"keys": [good.as_dict(private=False)]}) if path == "/keys" else served(path, *rest)
    )
    provider.key = stranger
    assert _log_in(provider)["Location"] == "/login/"


def test_an_answer_belongs_to_the_browser_that_went_away_and_is_used_once(provider: Provider, monkeypatch: Any) -> None:
    victim, attacker = Client(), Client()
    back = provider.authorize(_away(attacker))
    assert victim.get("/login/openid/back/", back)["Location"] == "/login/"
    assert "begun somewhere else" in _said(victim)
    assert attacker.get("/login/openid/back/", {**back, "state": "guessed"})["Location"] == "/login/"
    assert attacker.get("/login/openid/back/", back)["Location"] == "/login/", "the state was used"
    assert not User.objects.exists()
    late = Client()
    back = provider.authorize(_away(late))
    later = time.time() + 3600
    monkeypatch.setattr(time, "time", lambda: later)
    assert late.get("/login/openid/back/", back)["Location"] == "/login/"


def test_what_the_provider_refuses_is_said(provider: Provider) -> None:
    client = Client()
    url = _away(client)
    state = provider.authorize(url)["state"]
    client.get("/login/openid/back/", {"state": state, "error": "access_denied", "error_description": "Not you <b>"})
    assert "Not you &lt;b&gt;" in _said(client)


def test_a_strangers_link_puts_no_words_on_the_log_in_page(provider: Provider) -> None:
    client = Client()
    client.get("/login/openid/back/", {"error": "access_denied", "error_description": "Call 555-0100"})
    said = _said(client)
    assert "555-0100" not in said and "begun somewhere else" in said


def test_a_provider_that_is_away_or_wrong_is_no_error_500(provider: Provider, settings: Any) -> None:
    for issuer in ("http://127.0.0.1:9", f"{provider.issuer}/", "http://idp.example"):
        settings.RMHUB_OIDC_ISSUER = issuer
        openid.reset()
        client = Client()
        assert client.get("/login/openid/")["Location"] == "/login/"
        assert "provider cannot be reached" in _said(client)


def test_a_provider_that_did_not_answer_is_left_alone_for_half_a_minute(provider: Provider) -> None:
    asked: list[str] = []
    served = provider.answer

    def down(path: str, *rest: Any) -> tuple[int, dict[str, Any]]:
        asked.append(path)
        return 503, {}

    provider.answer = down  # type: ignore[method-assign]
    with frozen(clock.now()) as time:
        first, second = Client(), Client()
        assert first.get("/login/openid/")["Location"] == "/login/"
        time.move(10)
        assert second.get("/login/openid/")["Location"] == "/login/"
        assert "a moment ago" in (said := _said(second)) and "again in 20 s" in said
        assert len(asked) == 1, "the second one waits for nobody"
        provider.answer = served  # type: ignore[method-assign]
        time.move(openid.LEFT_ALONE)
        assert _log_in(provider)["Location"] == "/pairs/"


def test_without_a_provider_there_is_no_such_way() -> None:
    assert Client().get("/login/openid/").status_code == 404
    assert Client().get("/login/openid/back/").status_code == 404
    assert b"sign-on" not in Client().get("/login/").content


def test_nobody_is_sent_to_another_site_afterwards(provider: Provider) -> None:
    client = Client()
    back = provider.authorize(_away(client, "https://evil.example/"))
    assert client.get("/login/openid/back/", back)["Location"] == "/"
    assert b"sign-on" in Client().get("/login/").content
