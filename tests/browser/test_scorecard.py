"""The scorecard's tasks in a small world. `make scorecard` plays them in a world of 10 M messages."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.scorecard.__main__ import TASKS, play
from tests.scorecard.stage import running

pytestmark = pytest.mark.acceptance


@pytest.mark.long
def test_an_operator_does_all_of_it(chromium: Browser, tmp_path: Path) -> None:
    assert len(TASKS) == 21
    with running(20_000, tmp_path, print, pairs=60) as world:
        results = [play(chromium, world, task, tmp_path) for task in TASKS]
    assert {one.task.name: one.problem for one in results if one.problem} == {}
    # Seconds are `make scorecard`'s to judge, on a machine that does nothing else.
    assert {one.task.name: one.presses for one in results if one.presses > 2 * max(1, one.task.presses)} == {}
