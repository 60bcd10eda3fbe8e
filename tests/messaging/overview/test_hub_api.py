"""The hub about itself, and errors: one form for all of them, wherever they come from."""

from __future__ import annotations

import base64
import errno
import os
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.contrib.staticfiles import finders
from django.db import OperationalError
from django.test import Client

from messaging import dispatch, exceptions, storage
from messaging.api.catalogue import CODES
from messaging.models import Message, Pair
from messaging.overview.selectors import health
from messaging.pairs.api import pairs as pair_views
from messaging.storage import Room
from rmhub import clock
from tests.messaging.api.client import PROBLEM, Answer, Api, submission
from tests.messaging.factories import PartnerSide, submit

pytestmark = pytest.mark.django_db


# ---- health


ROOM = Room("", False, 50_000_000_000)
FULL = Room("No space left on device", True, 4096)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """What the broker answers: change the first item."""
    answers = [True]
    monkeypatch.setattr(health, "_broker_answers", lambda: answers[0])
    monkeypatch.setattr(storage, "room", lambda: ROOM)
    health.forget()
    yield answers
    health.forget()


def parts(answer: Answer) -> dict[str, str]:
    return {part["name"]: part["state"] for part in answer.json["parts"]}


WELL = {"database": "ok", "store": "ok", "broker": "ok", "workers": "ok"}


def test_health_of_a_hub_that_works(stranger: Api, broker: list[bool], partner: PartnerSide) -> None:
    answer = stranger.get("/health")
    assert answer.status == 200
    checks = {"database": True, "broker": True, "oldest_due_at": None, "overdue_seconds": 0, "circuits_open": 0}
    checks |= {"store": True, "store_free": ROOM.free}
    assert parts(answer) == WELL
    named = {"status": "ok", "ready": True, "name": "RM Hub", "environment": "TEST"}
    assert {name: value for name, value in answer.json.items() if name != "parts"} == named | {"checks": checks}
    submit(partner)
    assert stranger.get("/health").json["checks"]["oldest_due_at"]


def test_health_without_workers(stranger: Api, broker: list[bool], partner: PartnerSide) -> None:
    """Submissions are taken all the same, so that no balancer may take this web server out."""
    submit(partner)
    due = clock.now() - timedelta(seconds=health.OVERDUE_SECONDS + 5)
    Pair.objects.update(due_at=due)
    answer = stranger.get("/health")
    assert (answer.status, answer.json["status"], answer.json["ready"]) == (200, "degraded", True)
    assert answer.json["checks"]["overdue_seconds"] >= health.OVERDUE_SECONDS
    assert parts(answer) == WELL | {"workers": "down"}
    (workers,) = [part for part in answer.json["parts"] if part["name"] == "workers"]
    assert "check that workers and beat run" in workers["detail"]
    assert datetime.fromisoformat(workers["since"]) == due
    Pair.objects.update(gate="paused")  # a person's wish is no fault
    assert stranger.get("/health").json["status"] == "ok"


def test_health_without_a_broker(stranger: Api, broker: list[bool]) -> None:
    with clock.frozen(clock.now()) as time:
        broker[0] = False
        first = clock.now()
        stranger.get("/health")
        time.move(90)
        answer = stranger.get("/health")
    assert (answer.status, answer.json["checks"]["broker"], answer.json["checks"]["database"]) == (200, False, True)
    assert parts(answer) == WELL | {"broker": "down"} and answer.json["status"] == "degraded"
    (found,) = [part for part in answer.json["parts"] if part["name"] == "broker"]
    assert datetime.fromisoformat(found["since"]) == first
    broker[0] = True
    assert stranger.get("/health").json["parts"][2] == {"name": "broker", "state": "ok", "detail": "", "since": None}


def test_health_with_a_full_store(stranger: Api, broker: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is there is sent and answered, but nothing can be taken in: no new request should come here."""
    monkeypatch.setattr(storage, "room", lambda: FULL)
    answer = stranger.get("/health")
    assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "unhealthy", "10")
    assert parts(answer) == WELL | {"store": "down"} and answer.json["checks"]["store"] is False
    assert "full" in answer.json["parts"][1]["detail"] and answer.json["parts"][1]["since"]


def test_health_with_little_room_names_it(stranger: Api, broker: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    little = Room("", False, 3 * django_settings.RMHUB_MAX_MESSAGE_BYTES)
    monkeypatch.setattr(storage, "room", lambda: little)
    answer = stranger.get("/health")
    assert (answer.status, answer.json["status"]) == (200, "degraded")
    assert parts(answer) == WELL | {"store": "degraded"}


def test_the_room_of_the_store_is_seen_by_a_write(settings: Any, tmp_path: Path) -> None:
    settings.RMHUB_STORE_DIR = tmp_path / "store"
    found = storage.room()
    assert (found.error, found.full) == ("", False) and found.free
    assert list((tmp_path / "store").iterdir()) == [], "nothing of the look stays"
    settings.RMHUB_STORE_DIR = tmp_path / "file"
    (tmp_path / "file").write_text("in the way")
    assert storage.room().error


def test_health_costs_a_write_now_and_then_only(stranger: Api, broker: list[bool], monkeypatch: Any) -> None:
    looks: list[int] = []
    monkeypatch.setattr(storage, "room", lambda: looks.append(1) or ROOM)
    for _ in range(5):
        stranger.get("/health")
    assert len(looks) == 1


@pytest.mark.parametrize(
    ("number", "status", "code"), [(errno.ENOSPC, 507, "store_full"), (errno.EROFS, 503, "unavailable")]
)
def test_a_store_that_takes_nothing_is_said_and_the_same_request_is_taken_later(
    admin: Api,
    partner: PartnerSide,
    settings: Any,
    tmp_path: Path,
    monkeypatch: Any,
    number: int,
    status: int,
    code: str,
) -> None:
    settings.RMHUB_INLINE_PAYLOAD_BYTES = 10
    written = os.fsync

    def full(handle: int) -> None:
        raise OSError(number, os.strerror(number))

    settings.RMHUB_STORE_DIR = tmp_path
    large = base64.b64encode(b"<order>a large one</order>").decode()
    body = submission(partner, payloads=[{"content_base64": large, "content_type": "application/xml"}])
    monkeypatch.setattr(os, "fsync", full)
    answer = admin.submit(body, "once")
    assert (answer.status, answer.code, answer.json["retryable"]) == (status, code, True)
    assert answer.headers["retry-after"]
    assert not Message.objects.exists(), "nothing is half there"
    assert not list(tmp_path.rglob(".incoming-*"))
    monkeypatch.setattr(os, "fsync", written)
    assert admin.submit(body, "once").status == 202
    assert Message.objects.count() == 1


def test_health_without_a_database(stranger: Api, broker: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(now: Any) -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr(health, "_oldest_due", broken)
    answer = stranger.get("/health")
    assert (answer.status, answer.code, answer.json["checks"]["database"]) == (503, "unhealthy", False)


def test_a_broker_that_is_not_there_is_found_out(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    monkeypatch.setattr(dispatch, "_client", None)
    assert health._broker_answers() is False


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
    for path in base.rglob("*.py"):
        if path.parent.name in ("pipeline", "messaging"):
            continue  # errors of its own commands; the bases of all errors
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
