"""The demo's receiving application, a process of its own: it checks signatures, and has an effect as often as asked."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import urllib3

from messaging.demo.application import SECRETS
from messaging.notifications.services.webhooks import sign
from rmhub.hubs import free_ports, listens
from tests import ROOT

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_c2VjcmV0LW9mLWFub3RoZXItaHViLXRyaWdnZXI="


class Running:
    """The application under test, its file and a client that syntax."""

    def __init__(self, path: Path, *arguments: str, environment: dict[str, str] | None = None) -> None:
        self.path = path
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "messaging.demo.application", "--port", str(port), "--database", path, *arguments],
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
        )
        check = listens(port)
        until = time.monotonic() + 120
        while True:
            try:
                check()
                break
            except OSError:
                assert self.process.poll() is None and time.monotonic() < until
                threading.Event().wait(0.02)
        self.pool = urllib3.PoolManager(retries=False, timeout=120)

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        code = self.process.wait(120)
        self.pool.clear()
        return code

    def post(
        self, path: str, body: bytes, *, secret: str = SECRET, at: float | None = None, **headers: str
    ) -> urllib3.BaseHTTPResponse:
        stamp = str(int(time.time() if at is None else at))
        return self.pool.request(
            "POST",
            self.url + path,
            body=body,
            headers={
                "webhook-id": "del_1",
                "webhook-timestamp": stamp,
                "webhook-signature": f"v1a,c29tZXRoaW5n {sign(secret, 'del_1', stamp, body)}",
                **{name.replace("_", "-"): value for name, value in headers.items()},
            },
        )

    def document(self, document_id: str, body: bytes = b"<Order/>", **more: str) -> urllib3.BaseHTTPResponse:
        return self.post("/documents", body, RM_Document_ID=document_id, RM_Trigger="all", **more)

    def resolve(self, document_id: str) -> tuple[int, str]:
        answer = self.post("/resolve", json.dumps({"uuid": document_id, "redeliveryCount": 1}).encode())
        return answer.status, answer.json().get("status", "")

    def effects(self) -> list[tuple[str, str]]:
        with closing(sqlite3.connect(self.path)) as file:
            return file.execute("SELECT document_id, sha256 FROM effect ORDER BY number").fetchall()


@pytest.fixture
def application(tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path / "effects.sqlite3", "--secret", SECRET)
    yield running
    running.end()


def test_every_call_is_an_effect_of_its_own_and_the_resolver_knows_it(application: Running) -> None:
    assert application.resolve("order-1@a") == (200, "NEW")
    assert [application.document("order-1%40a").status for _ in range(2)] == [200, 200]
    assert application.effects() == [("order-1@a", hashlib.sha256(b"<Order/>").hexdigest())] * 2
    assert application.resolve("order-1@a") == (200, "DUPLICATE")
    assert application.resolve("order-2@a") == (200, "NEW")


def test_it_takes_no_document_that_the_hub_has_not_signed(application: Running) -> None:
    now = time.time()
    refused = [
        application.post("/documents", b"x", secret=OTHER, RM_Document_ID="d"),
        application.post("/documents", b"x", at=now - 1000, RM_Document_ID="d"),
        application.post("/documents", b"x", at=now + 1000, RM_Document_ID="d"),
        application.post("/documents", b"x", webhook_id="del_2", RM_Document_ID="d"),
        application.post("/resolve", b'{"uuid": "d"}', secret=OTHER),
        application.pool.request("POST", f"{application.url}/documents", body=b"x"),
    ]
    assert [answer.status for answer in refused] == [401] * 6
    assert application.effects() == []


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        ("/documents", b"x", {}, 400),
        ("/documents", b"x", {"RM_Document_ID": "d", "RM_Redelivery_Count": "two"}, 400),
        ("/resolve", b"not JSON", {}, 400),
        ("/resolve", b"[]", {}, 400),
        ("/resolve", b'{"uuid": 5}', {}, 400),
        ("/elsewhere", b"x", {}, 404),
    ],
)
def test_bad_requests_get_an_answer_that_says_so(
    application: Running, path: str, body: bytes, headers: dict[str, str], status: int
) -> None:
    answer = application.post(path, body, **headers)
    assert (answer.status, set(answer.json())) == (status, {"error"})
    assert application.effects() == []


def test_it_says_that_it_is_there_and_ends_when_it_is_asked_to(tmp_path: Path) -> None:
    running = Running(tmp_path / "effects.sqlite3", environment={SECRETS: f"{OTHER} {SECRET}"})
    assert running.pool.request("GET", f"{running.url}/health").json() == {"isAvailable": True}
    assert running.document("d").status == 200  # the secret of either hub does
    assert running.end() == 0


def test_the_resolver_waits_for_a_call_that_is_in_work(tmp_path: Path) -> None:
    """Otherwise it would say NEW of a document whose first call is about to have its effect."""
    running = Running(tmp_path / "effects.sqlite3", "--secret", SECRET, "--work-ms", "3000")
    first = threading.Thread(target=running.document, args=("d",))
    first.start()
    said, waited = "NEW", 0.0
    while said == "NEW":  # until the call has begun
        begun = time.monotonic()
        said = running.resolve("d")[1]
        waited = time.monotonic() - begun
    first.join()
    running.end()
    assert (said, len(running.effects())) == ("DUPLICATE", 1)
    assert waited > 0.3, "it did not wait: it said NEW until the effect was there"


def test_what_it_has_answered_for_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "effects.sqlite3"
    running = Running(path, "--secret", SECRET)
    assert running.document("d").status == 200
    running.end(signal.SIGKILL)
    again = Running(path, "--secret", SECRET)
    assert again.resolve("d") == (200, "DUPLICATE")
    assert again.document("e").json()["effect"] == 2
    again.end()


def test_it_does_not_start_without_a_secret(tmp_path: Path) -> None:
    for arguments, sentence in (([], "is needed"), (["--secret", "whsec_no"], "base64")):
        run = subprocess.run(
            [
                sys.executable,
                "-m",
                "messaging.demo.application",
                "--port",
                "1",
                "--database",
                tmp_path / "e",
                *arguments,
            ],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (run.returncode, sentence in run.stderr) == (2, True)
