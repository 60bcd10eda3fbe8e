"""The tutorial, done as it is written: its shell commands and its receiver, against a real hub."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from messaging.demo.stage import Stage
from rmhub.hubs import free_ports
from rmhub.supervisor import Supervisor
from tests import ROOT
from tests.rmhub.conditions import eventually

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed"),
]

TUTORIAL = ROOT / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WAIT = 600


def blocks(language: str) -> list[str]:
    return [text for name, text in BLOCK.findall(TUTORIAL.read_text()) if name == language]


# What the tutorial has people do in the console; prints the token, and the endpoint's secret.
IN_THE_CONSOLE = """
from django.contrib.auth.models import User
from messaging.access.services import tokens
from messaging.journal.audit import Actor
from messaging.notifications.services import webhooks
from rmhub.roles import scopes_of

admin = User.objects.get(username="admin")
print(tokens.token_create(
    owner=admin, name="tutorial", scopes=["messages:write", "messages:read", "events:read"],
    actor=Actor("admin"), granted_by=scopes_of(admin),
)[1])
print(webhooks.endpoint_create(url="URL", name="tutorial", types=[], actor=Actor("admin"))[1])
"""


@contextmanager
def receiving(folder: Path, port: int, secret: str) -> Iterator[Path]:
    """The tutorial's receiver; what it prints."""
    program, _ = blocks("python")
    (folder / "receiver.py").write_text(program)
    printed = folder / "printed.txt"
    with printed.open("w") as output:
        running = subprocess.Popen(
            [sys.executable, "receiver.py"],
            cwd=folder,
            env={**os.environ, "SECRET": secret, "PORT": str(port)},
            stdout=output,
        )
        try:
            yield printed
        finally:
            running.terminate()
            running.wait()


def run(block: str, folder: Path, **environment: str) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=WAIT,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def answered(text: str) -> tuple[int, dict[str, str], dict[str, object]]:
    head, _, body = text.replace("\r\n", "\n").partition("\n\n")
    status, *lines = head.split("\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return int(status.split()[1]), headers, json.loads(body)


def test_the_tutorial_works_as_it_stands(hubs: tuple[Stage, Supervisor], tmp_path: Path) -> None:
    buyer = hubs[0].buyer
    [port] = free_ports(1)
    made = subprocess.run(
        buyer.manage("shell", "-v", "0", "-c", IN_THE_CONSOLE.replace("URL", f"http://127.0.0.1:{port}/")),
        env=buyer.environment(),
        capture_output=True,
        text=True,
        timeout=WAIT,
    )
    assert made.returncode == 0, made.stderr
    token, secret = made.stdout.split()
    setting, submit, again, refused, second = blocks("sh")
    assert re.findall(r"export (\w+)=", setting) == ["HUB", "TOKEN"]
    environment = {"HUB": buyer.url, "TOKEN": token}

    with receiving(tmp_path, port, secret) as printed:
        status, headers, first = answered(run(submit, tmp_path, **environment))
        assert status == 202
        assert headers["location"] == f"/api/v1/messages/{first['id']}"
        status, headers, repeated = answered(run(again, tmp_path, **environment))
        assert (status, headers["idempotent-replayed"], repeated["id"]) == (202, "true", first["id"])
        status, _, problem = answered(run(refused, tmp_path, **environment))
        assert (status, problem["required_scope"]) == (403, "pairs:operate")
        status, _, other = answered(run(second, tmp_path, **environment))
        assert status == 202 and other["id"] != first["id"]

        (tmp_path / "invoice.py").write_text(blocks("python")[1])
        calls = [run(f"{sys.executable} invoice.py", tmp_path, PYTHONPATH=str(ROOT), **environment) for _ in range(2)]
        (made, stored), (same, replayed) = (text.split() for text in calls)
        assert (made, stored, replayed) == (same, "stored", "replayed")

        wanted = {f"{kind} {other['id']}" for kind in ("message.accepted", "message.delivered")}
        eventually(lambda: wanted <= set(printed.read_text().splitlines()))
