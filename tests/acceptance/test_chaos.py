"""The faults of `make chaos` that fit into a minute, judged by what became of the documents and not by seconds."""

from __future__ import annotations

import pytest

from tests.chaos.faults import SHORT
from tests.chaos.run import run

pytestmark = [pytest.mark.acceptance, pytest.mark.long]


def test_x23_x24_x26_nothing_is_lost_doubled_or_falsely_in_doubt_whatever_is_away_or_killed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One database for two web servers, two workers and two beats; an application that takes 4 s for a document."""
    rows = run(("ebxml", "stream", "repeatable"), SHORT, log=print)
    assert [row.fault.name for row in rows if not row.kept] == []
    assert all(row.recovery is not None for row in rows)
    assert sum(row.documents for row in rows) > 0
