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
