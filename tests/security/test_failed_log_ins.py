"""Log-ins and API tokens that are wrong: noted without the secret, and slowed down for whoever guesses."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.db import close_old_connections
from django.test import Client

from messaging.access.services import tokens
from messaging.entrance import throttling
from messaging.models import ApiToken, AuditEntry, LoginThrottle
from rmhub import clock
from rmhub.clock import FrozenClock
from rmhub.roles import Role
from tests.messaging.api.client import make_token, make_user
from tests.messaging.console.scenes import PASSWORD, user

pytestmark = pytest.mark.django_db
SECRET = "S3cret-that-was-typed"


def log_in(name: str, password: str = SECRET, address: str = "192.0.2.9") -> int:
    return Client(REMOTE_ADDR=address).post("/login/", {"username": name, "password": password}).status_code


def test_a_wrong_password_is_in_the_log_and_once_a_minute_in_the_audit_trail(
    time: FrozenClock, caplog: pytest.LogCaptureFixture
) -> None:
    made = user(Role.VIEWER, "ana")
    with caplog.at_level(logging.WARNING, logger="messaging"):
        assert [log_in("ana") for _ in range(3)] == [422] * 3
    entry = AuditEntry.objects.get(verb="user.login", result="denied")
    assert (entry.actor, entry.object_id, entry.address) == ("ana", str(made.pk), "192.0.2.9")
    lines = [record.__dict__ for record in caplog.records if record.__dict__.get("action") == "login_refused"]
    assert [(line["user"], line["remote"]) for line in lines] == [("ana", "192.0.2.9")] * 3
    assert SECRET not in caplog.text + str(lines) + str(entry.__dict__)


def test_a_password_that_was_typed_as_the_name_is_nowhere(time: FrozenClock, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="messaging"):
        assert log_in(SECRET, "ana") == 422
    entry = AuditEntry.objects.get(verb="user.login", result="denied")
    assert (entry.actor, entry.object_name) == ("unknown", "")
    lines = [record.__dict__ for record in caplog.records]
    assert SECRET not in caplog.text + str(lines) + str(entry.__dict__)


def test_a_wrong_code_is_noted_too(time: FrozenClock) -> None:
    from messaging.access.services import sessions
    from messaging.journal.audit import Actor

    user(Role.VIEWER, "ana")
    sessions.login_refused(name="ana", actor=Actor("", "console", "192.0.2.9"), what="code")
    assert AuditEntry.objects.get(result="denied").after == {"required": "the right code"}


def test_name_after_name_from_one_address_waits_and_the_rightful_user_elsewhere_does_not(time: FrozenClock) -> None:
    user(Role.VIEWER, "ana")
    user(Role.VIEWER, "bob")
    assert log_in("bob", PASSWORD, "192.0.2.9") == 303
    for number in range(throttling.FREE_NAMES):
        assert throttling.attempt(f"guess{number}", "192.0.2.9") == 0
    assert log_in("ana", PASSWORD) == 429, "the address waits, whatever the name"
    assert log_in("ana", PASSWORD, "198.51.100.1") == 303
    assert log_in("bob", PASSWORD) == 303, "who is known there goes on behind the same proxy"


def test_one_has_a_whole_network_of_ipv6(time: FrozenClock) -> None:
    for number in range(throttling.FREE):
        assert throttling.attempt("ana", f"2001:db8:0:7::{number:x}") == 0
    assert throttling.attempt("ana", "2001:db8:0:7:ffff::1") > 0
    assert throttling.attempt("ana", "2001:db8:0:8::1") == 0


def test_right_log_ins_are_not_counted(time: FrozenClock) -> None:
    user(Role.VIEWER, "ana")
    assert [log_in("ana", PASSWORD) for _ in range(throttling.FREE_NAMES + 5)] == [303] * (throttling.FREE_NAMES + 5)
    assert set(LoginThrottle.objects.values_list("misses", flat=True)) == {0}


@pytest.mark.django_db(transaction=True)
def test_guesses_at_the_same_moment_get_no_further_than_one_after_the_other() -> None:
    def one(_: int) -> int:
        try:
            return throttling.attempt("ana", "192.0.2.9")
        finally:
            close_old_connections()

    with ThreadPoolExecutor(16) as pool:
        waits = list(pool.map(one, range(16)))
    assert waits.count(0) == throttling.FREE


def test_who_comes_when_too_many_passwords_are_checked_is_told_to_come_again(
    time: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    user(Role.VIEWER, "ana")
    monkeypatch.setattr(throttling, "most_checks", lambda: 0)
    answer = Client().post("/login/", {"username": "ana", "password": PASSWORD})
    assert (answer.status_code, answer["Retry-After"]) == (429, "2")
    assert "Too many people are logging in" in answer.content.decode()
    assert not LoginThrottle.objects.exists(), "it was no try"


def call(secret: str) -> tuple[int, str]:
    answer = Client().get("/api/v1/pairs", HTTP_AUTHORIZATION=f"Bearer {secret}")
    return answer.status_code, answer.json()["code"]


def test_a_known_token_that_may_not_be_used_is_in_log_and_audit_trail_without_its_secret(
    time: FrozenClock, caplog: pytest.LogCaptureFixture
) -> None:
    secret = make_token(make_user(Role.OPERATOR))
    ApiToken.objects.update(expires_at=clock.now() - timedelta(days=1))
    tokens.reset()
    with caplog.at_level(logging.WARNING, logger="messaging"):
        assert [call(secret) for _ in range(2)] == [(401, "token_expired")] * 2
        assert call("rmh_live_nothing") == (401, "invalid_token")
    entry = AuditEntry.objects.get(verb="token.use")
    assert (entry.result, entry.after) == ("denied", {"required": "token_expired"})
    lines = [record.__dict__ for record in caplog.records if record.__dict__.get("action") == "token_refused"]
    assert [line["reason"] for line in lines] == ["token_expired"] * 2 + ["invalid_token"]
    assert secret not in caplog.text + str(lines) + str(entry.__dict__)


def test_an_address_that_shows_wrong_tokens_waits_and_right_ones_from_there_are_taken(time: FrozenClock) -> None:
    secret = make_token(make_user(Role.OPERATOR))
    assert [call("rmh_live_x") for _ in range(tokens.GUESSES)] == [(401, "invalid_token")] * tokens.GUESSES
    assert call("rmh_live_x") == (429, "too_many_requests")
    assert Client().get("/api/v1/pairs", HTTP_AUTHORIZATION=f"Bearer {secret}").status_code == 200
