"""Sessions of people: they end when nobody is there, are new at each log-in, and lead nowhere else."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.sessions.backends.db import SessionStore
from django.test import Client

from rmhub.clock import FrozenClock
from rmhub.roles import Role
from tests.messaging.console.scenes import PASSWORD, browser, user

pytestmark = pytest.mark.django_db
LIVE = {"HX-Request": "true", "HX-Target": "live-pairs"}


def _log_in(client: Client, name: str, **more: str) -> Any:
    return client.post("/login/", {"username": name, "password": PASSWORD, **more})


def test_a_session_that_nobody_uses_ends(time: FrozenClock, settings: Any) -> None:
    settings.RMHUB_SESSION_IDLE = 600
    client = browser(Role.VIEWER)
    for _ in range(4):
        assert client.get("/pairs/").status_code == 200
        time.move(500)
    assert client.get("/pairs/").status_code == 200
    time.move(601)
    answer = client.get("/pairs/")
    assert answer.status_code == 302 and answer["Location"].startswith("/login/?next=")
    assert "sessionid" not in {name: one.value for name, one in client.cookies.items() if one.value}
    assert client.get("/pairs/").status_code == 302


def test_regions_that_renew_themselves_keep_no_session_alive(time: FrozenClock, settings: Any) -> None:
    settings.RMHUB_SESSION_IDLE = 600
    client = browser(Role.VIEWER)
    client.get("/pairs/")
    for _ in range(6):
        assert client.get("/pairs/", headers=LIVE).status_code == 200
        assert client.get("/toasts/").status_code == 200
        time.move(100)
    time.move(1)
    answer = client.get("/pairs/", headers=LIVE)
    assert (answer.status_code, answer["HX-Redirect"]) == (401, "/login/")


def test_the_api_takes_no_session_that_nobody_uses(time: FrozenClock, settings: Any) -> None:
    settings.RMHUB_SESSION_IDLE = 600
    client = browser(Role.VIEWER)
    assert client.get("/api/v1/pairs").status_code == 200
    time.move(601)
    assert client.get("/api/v1/pairs").status_code == 401


def test_whoever_logs_in_again_after_the_time_out_is_in(time: FrozenClock, settings: Any) -> None:
    settings.RMHUB_SESSION_IDLE = 600
    user(Role.VIEWER, "vera")
    client = Client()
    _log_in(client, "vera")
    assert client.get("/pairs/").status_code == 200
    time.move(700)
    _log_in(client, "vera")
    assert client.get("/pairs/").status_code == 200


def test_without_the_setting_a_session_lasts(time: FrozenClock, settings: Any) -> None:
    settings.RMHUB_SESSION_IDLE = 0
    client = browser(Role.VIEWER)
    client.get("/pairs/")
    time.move(11 * 3600)
    assert client.get("/pairs/").status_code == 200


def test_a_session_has_a_new_key_at_the_log_in() -> None:
    user(Role.VIEWER, "vera")
    planted = SessionStore()
    planted.create()
    key = planted.session_key
    assert key is not None and planted.exists(key)
    client = Client()
    client.cookies["sessionid"] = key
    _log_in(client, "vera")
    assert client.cookies["sessionid"].value != key
    assert client.get("/pairs/").status_code == 200
    assert not planted.exists(key), "whoever planted it is not in"


def test_cookies_are_out_of_reach_of_scripts_and_other_sites() -> None:
    user(Role.VIEWER, "vera")
    client = Client()
    _log_in(client, "vera")
    session = client.cookies["sessionid"]
    assert session["httponly"] and session["samesite"] == "Lax" and not session["domain"]


@pytest.mark.parametrize(
    "wished",
    [
        *("https://evil.example/", "//evil.example/", "/\\evil.example", "\\\\evil.example", "javascript:alert(1)"),
        *("http:evil.example", "///evil.example", "/%09/evil.example".replace("%09", "\t"), " //evil.example"),
    ],
)
def test_the_log_in_leads_to_no_other_site(wished: str) -> None:
    user(Role.VIEWER, "vera")
    answer = _log_in(Client(), "vera", next=wished)
    assert answer.status_code in (302, 303)
    assert answer["Location"].startswith("/") and "evil" not in answer["Location"]
    assert not answer["Location"].startswith(("//", "/\\"))


@pytest.mark.parametrize("path", ["/login/", "/api/v1/health", "/nowhere/"])
def test_every_answer_names_what_browsers_may_do(path: str) -> None:
    answer = Client().get(path)
    policy = answer["Permissions-Policy"].split(", ")
    assert {"camera=()", "microphone=()", "geolocation=()", "payment=()", "usb=()"} <= set(policy)
    assert answer["X-Content-Type-Options"] == "nosniff" and answer["X-Frame-Options"] == "DENY"
