"""A soak of five minutes, judged by what became of the documents and by what the archive took, not by seconds."""

from __future__ import annotations

import pytest

from tests.soak import report
from tests.soak.run import FAILING, LASTING, Plan, Sample, Soak, soak

pytestmark = pytest.mark.acceptance


def test_documents_are_applied_once_while_processes_end_and_the_store_is_emptied() -> None:
    found = soak(Plan(seconds=270, rate=4, fault_every=10, idle=3), print)
    assert found.broken == []
    assert found.handed_over > 0
    assert found.faults["killed"] and found.faults["restarted"]
    assert found.archived and found.forgotten
    assert max(max(one.connections.values()) for one in found.samples) <= report.CONNECTIONS
    assert not {*FAILING} & {*LASTING}
    text, chart = report.text(found), report.svg(found.samples)
    assert "Every document was applied once" in text
    assert chart.count("<polyline") == len(LASTING) + 5


def _samples(memory: list[float], store: list[float], connections: int = 10) -> list[Sample]:
    return [
        Sample(at * 30.0, dict.fromkeys(LASTING, mib), {"a": connections, "b": 4}, size, 100, at * 10, at * 10, at)
        for at, (mib, size) in enumerate(zip(memory, store, strict=True), start=1)
    ]


def test_what_grows_is_named() -> None:
    flat = [100.0] * 9
    assert report.grown(_samples(flat, flat)) == []
    leak = [100.0, 120, 140, 160, 180, 200, 220, 240, 260]
    assert len(report.grown(_samples(leak, flat))) == len(LASTING)
    assert report.grown(_samples(flat, leak)) == ["store grew from 180 to 240 MiB"]
    assert report.grown(_samples(flat, flat, connections=25)) == [
        f"a hub had 25 connections; at most {report.CONNECTIONS} are allowed"
    ]
    # The first third may fill caches.
    assert report.grown(_samples([10.0, 40, 80, *[100.0] * 6], flat)) == []


def test_a_broken_promise_and_what_grew_are_in_the_text() -> None:
    leak = [100.0, 120, 140, 160, 180, 200, 220, 240, 260]
    found = Soak(270, 5.0, samples=_samples(leak, [100.0] * 9), broken=["2 documents were applied twice, m1 for one"])
    text = report.text(found)
    assert "- BROKEN: 2 documents were applied twice, m1 for one" in text
    assert "- GREW: a-web grew from 180 to 240 MiB" in text
    assert "Nothing grew" not in text
