"""The hub about itself, and errors: one form for all of them, wherever they come from."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.contrib.staticfiles import finders
from django.db import OperationalError
from django.test import Client

from messaging import exceptions
from messaging.api.catalogue import CODES
from messaging.api.views import pairs as pair_views
from messaging.models import Pair
from messaging.selectors import health
from rmhub import clock
from tests.messaging.api.client import PROBLEM, Api
from tests.messaging.factories import PartnerSide, submit

pytestmark = pytest.mark.django_db


# ---- health


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What the broker answers: change the first item."""
    answers = [True]
    monkeypatch.setattr(health, "_broker_answers", lambda: answers[0])
    return answers


def test_health_of_a_hub_that_works(stranger: Api, broker: list[bool], partner: PartnerSide) -> None:
    answer = stranger.get("/health")
    assert answer.status == 200
    checks = {"database": True, "broker": True, "oldest_due_at": None, "overdue_seconds": 0, "circuits_open": 0}
    assert answer.json == {"status": "ok", "name": "RM Hub", "environment": "TEST", "checks": checks}
    submit(partner)
    assert stranger.get("/health").json["checks"]["oldest_due_at"]


def test_health_without_workers(stranger: Api, broker: list[bool], partner: PartnerSide) -> None:
    submit(partner)
    Pair.objects.update(due_at=clock.now() - timedelta(seconds=health.OVERDUE_SECONDS + 5))
    answer = stranger.get("/health")
    assert (answer.status, answer.code) == (503, "unhealthy")
    assert answer.json["checks"]["overdue_seconds"] >= health.OVERDUE_SECONDS
    assert answer.headers["retry-after"] == "10" and answer.json["retryable"] is True
    Pair.objects.update(gate="paused")  # a person's wish is no fault
    assert stranger.get("/health").status == 200


def test_health_without_a_broker(stranger: Api, broker: list[bool]) -> None:
    broker[0] = False
    answer = stranger.get("/health")
    assert (answer.status, answer.json["checks"]["broker"], answer.json["checks"]["database"]) == (503, False, True)


def test_health_without_a_database(stranger: Api, broker: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(now: Any) -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr(health, "_oldest_due", broken)
    answer = stranger.get("/health")
    assert (answer.status, answer.code, answer.json["checks"]["database"]) == (503, "unhealthy", False)


def test_a_broker_that_is_not_there_is_found_out(settings: Any) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    health._broker.cache_clear()
    try:
        assert health._broker_answers() is False
    finally:
        health._broker.cache_clear()


# ---- problems


def test_the_catalogue_is_complete(stranger: Api) -> None:
    rows = stranger.get("/problems").json["data"]
    assert [row["code"] for row in rows] == list(CODES)
    for row in rows:
        path = row["type"].removeprefix("/api/v1")
        assert stranger.get(path).json == row
    assert stranger.get("/problems/nothing").code == "not_found"
    # Whatever a service raises has a row.
    kinds = [kind for kind in vars(exceptions).values() if isinstance(kind, type)]
    raised = {kind.code for kind in kinds if issubclass(kind, exceptions.ApplicationError)}
    assert raised - {"application_error"} <= set(CODES)


def test_every_code_that_the_code_names_has_a_row() -> None:
    base = Path(django_settings.BASE_DIR) / "messaging"
    named = set()
    for path in [*(base / "api").rglob("*.py"), *(base / "services").glob("*.py"), *(base / "selectors").glob("*.py")]:
        text = path.read_text()
        named |= set(re.findall(r'Problem\(\s*"([a-z_]+)"', text))
        named |= set(re.findall(r'^    code = "([a-z_]+)"', text, re.MULTILINE))
        named |= set(re.findall(r'raise BadToken\([^)]*code="([a-z_]+)"', text))
    assert named and named <= set(CODES), named - set(CODES)


@pytest.mark.parametrize(
    "path", ["/api/v1/nothing", "/api/v1/messages/", "/api/v1/", "/api/", "/api/v2/messages", "/api/v1/a/b/c/d"]
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_paths_that_do_not_exist_are_problems(path: str, method: str) -> None:
    answer = Client(enforce_csrf_checks=True).generic(method, path)
    assert (answer.status_code, answer["Content-Type"]) == (404, PROBLEM)
    assert answer.json()["code"] == "not_found"
    assert answer.json()["request_id"] == answer["X-Request-Id"]


def test_a_host_that_is_not_ours_is_a_problem() -> None:
    answer = Client().get("/api/v1/health", headers={"Host": "evil.example"})
    assert (answer.status_code, answer["Content-Type"], answer.json()["code"]) == (400, PROBLEM, "bad_request")


@pytest.mark.parametrize("accept", ["text/html", "application/xml", "image/png,text/plain;q=0.5"])
def test_answers_are_json(admin: Api, accept: str) -> None:
    answer = admin.get("/pairs", Accept=accept)
    assert (answer.status, answer.code) == (406, "not_acceptable")


@pytest.mark.parametrize("accept", ["", "*/*", "application/json", "application/*;q=0.8, text/html", PROBLEM])
def test_whoever_takes_json_gets_it(admin: Api, accept: str) -> None:
    answer = admin.get("/pairs", Accept=accept)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/xml", "application/x-www-form-urlencoded", "x", "multipart/form-data; boundary=x"],
)
def test_other_media_types_are_refused(admin: Api, kind: str) -> None:
    answer = admin.call("POST", "/parties", b"name=Globex", Content_Type=kind)
    assert (answer.status, answer.code) == (415, "unsupported_media_type")


def test_bodies_of_other_paths_are_small(admin: Api) -> None:
    answer = admin.post("/parties", {"name": "x" * 1_100_000})
    assert (answer.status, answer.code) == (413, "body_too_large")


def test_a_mistake_of_ours_is_a_problem_without_its_details(admin: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("password=hunter2")

    monkeypatch.setattr(pair_views.pairs, "pair", broken)
    answer = admin.get("/pairs/x")
    assert (answer.status, answer.code) == (500, "internal_error")
    assert b"hunter2" not in answer.content and b"RuntimeError" not in answer.content


def test_a_database_that_is_away_is_a_problem_that_passes(admin: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **kwargs: Any) -> None:
        raise OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(pair_views.pairs, "pair", broken)
    answer = admin.get("/pairs/x")
    assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "unavailable", "5")
    assert answer.json["retryable"] is True


def test_request_ids_are_echoed(admin: Api) -> None:
    answer = admin.get("/pairs/none", X_Request_Id="my-id-1")
    assert answer.headers["x-request-id"] == answer.json["request_id"] == "my-id-1"
    assert admin.get("/pairs/none", X_Request_Id="bad id\t").json["request_id"].startswith("req_")


def test_what_is_not_said_to_be_cacheable_is_not_stored(admin: Api, partner: PartnerSide) -> None:
    submit(partner)
    for path in ("/pairs", "/messages", "/nothing-here", "/pairs/none"):
        assert admin.get(path).headers.get("cache-control", "no-store") == "no-store"


def test_head_is_get_without_a_body(admin: Api, partner: PartnerSide) -> None:
    path = f"/messages/{submit(partner).public_id}"
    head, get = admin.call("HEAD", path), admin.get(path)
    assert (head.status, head.etag, head.content) == (200, get.etag, b"")
    assert Api().call("HEAD", path).status == 401


# ---- the document and its page


def test_the_document_is_served(stranger: Api) -> None:
    answer = stranger.get("/openapi.json")
    assert (answer.status, answer.json["openapi"]) == (200, "3.1.0")


def test_the_page_obeys_the_content_security_policy() -> None:
    answer = Client().get("/api/v1/docs", headers={"Accept": "text/html"})
    assert answer.status_code == 200
    html = answer.content.decode()
    policy = answer["Content-Security-Policy"]
    assert "script-src 'self'" in policy and "unsafe" not in policy
    # Nothing that this policy blocks: no script or style within the page, nothing from elsewhere.
    assert not re.search(r"<style|style=|\son\w+=|javascript:", html)
    assert all(" src=" in tag and not tag.partition(">")[2] for tag in re.findall(r"<script[^>]*>[^<]*", html))
    for path in re.findall(r'(?:src|href)="([^"]+)"', html):
        assert path.startswith("/")
        if path.startswith("/static/"):
            assert finders.find(path.removeprefix("/static/")), path
