"""Which processes a hub is made of."""

from __future__ import annotations

from pathlib import Path

import pytest

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
