"""Which processes a hub is made of."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from messaging.pipeline.runner import _environment
from rmhub.hubs import Hub


@pytest.mark.parametrize(
    ("pipeline", "live", "names"),
    [
        (False, "1", ["web", "worker", "beat"]),  # the demo and the benchmark
        (True, "", ["web", "worker", "beat", "pipeline"]),
        (True, "1", ["web", "worker", "beat", "pipeline", "live"]),
    ],
)
def test_the_live_watch_runs_where_it_is_switched_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pipeline: bool, live: str, names: list[str]
) -> None:
    monkeypatch.setenv("RMHUB_PIPELINE_LIVE", live)
    hub = Hub("one", "postgresql://127.0.0.1/one", "redis://127.0.0.1/0", tmp_path, 8000)
    processes = hub.processes(pipeline=pipeline)
    assert [process.name for process in processes] == names
    if names[-1] == "live":
        assert processes[-1].argv[-2:] == ["pipeline", "live"]


def test_the_mail_entrance_runs_where_the_operated_hub_has_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMHUB_SMTP_LISTEN", "0.0.0.0:2525")
    monkeypatch.delenv("RMHUB_PIPELINE_LIVE", raising=False)
    hub = Hub("one", "postgresql://127.0.0.1/one", "redis://127.0.0.1/0", tmp_path, 8000)
    operated = hub.processes(pipeline=True)
    assert [process.name for process in operated] == ["web", "worker", "beat", "mail", "pipeline"]
    assert operated[3].argv[-1] == "mail"
    # Two hubs of a demo could not listen on one port.
    assert "mail" not in [process.name for process in hub.processes()]
    named = Hub(
        "two",
        "postgresql://127.0.0.1/two",
        "redis://127.0.0.1/0",
        tmp_path,
        8001,
        settings={"RMHUB_SMTP_LISTEN": "127.0.0.1:2526"},
    )
    assert [process.name for process in named.processes(prefix="b-")][-1] == "b-mail"


def _bound(environment: dict[str, str]) -> int:
    """How many connections a process with this environment allows itself."""
    program = "from django.conf import settings; print(settings.DATABASES['default']['OPTIONS']['connections'])"
    told = subprocess.run([sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True)
    return int(told.stdout)


@pytest.mark.parametrize(("named", "most"), [("", 12), ("6", 16)])
def test_a_hub_has_twelve_connections_unless_somebody_wants_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str, most: int
) -> None:
    """The pipeline's process has one thread, and the run that it works on has a process of its own; beat asks nothing.

    That they do not have more is what tests/acceptance/test_connections.py counts.
    """
    monkeypatch.delenv("RMHUB_PIPELINE_LIVE", raising=False)
    monkeypatch.delenv("RMHUB_SMTP_LISTEN", raising=False)
    monkeypatch.delenv("RMHUB_DB_CONNECTIONS", raising=False)
    if named:
        monkeypatch.setenv("RMHUB_DB_CONNECTIONS", named)
    hub = Hub("one", "postgresql://127.0.0.1/one", "redis://127.0.0.1/0", tmp_path, 8000)
    processes = {process.name: process.env for process in hub.processes(pipeline=True)}
    counted = {"beat": 0, "pipeline": 1}
    assert (
        sum(counted[name] if name in counted else _bound(dict(env)) for name, env in processes.items())
        + _bound({**processes["pipeline"], "RMHUB_DB_CONNECTIONS": _environment()["RMHUB_DB_CONNECTIONS"]})
        == most
    )
