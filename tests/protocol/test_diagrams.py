"""docs/state-machines.md shows the tables as they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from messaging.management.commands import diagrams
from messaging.protocol.acceptance import RULES
from messaging.protocol.atomic import participant, phases, seats
from messaging.protocol.messages import RELIABLE
from messaging.protocol.pair_state import Flow, Kind
from messaging.protocol.sender import TABLE


def test_the_committed_file_is_what_the_command_writes() -> None:
    """No database is at hand here, and none is needed. If this fails: manage.py diagrams."""
    call_command("diagrams", check=True)


def test_every_move_is_in_the_picture_or_in_the_table() -> None:
    text = diagrams.document()
    for flow, row in TABLE.items():
        for kind, move in row.items():
            for target in move.targets - {flow}:
                assert any(
                    line.startswith(f"    {flow} --> {target} : ") and kind in line.split(" : ")[1].split(", ")
                    for line in text.splitlines()
                ), (flow, kind, target)
    for state, row in RELIABLE.items():
        for happened, target in row.items():
            assert f"    {state} --> {target} : {happened}\n" in text
    for number, rule in enumerate(RULES, start=1):
        assert f"| {number} | {rule.name} | " in text
        assert rule.source in text


def test_every_move_of_an_atomic_transaction_is_in_the_picture() -> None:
    text = diagrams.document()
    for what, row in seats.TABLE.items():
        for seat, cell in row.items():
            assert seats.after(cell) is seat or _arrow(text, seat, seats.after(cell), what)
    for kind, moves in phases.TABLE.items():
        for phase, move in moves.items():
            assert all(target is phase or _arrow(text, phase, target, kind) for target in move.targets)
    for phase, turns in phases.TURNS.items():
        for turn, targets in turns.items():
            assert all(_arrow(text, phase, target, turn) for target in targets)
    for what, cells in participant.TABLE.items():
        assert all(own.to is seat or _arrow(text, seat, own.to, what) for seat, own in cells.items())


def _arrow(text: str, source: str, target: str, event: str) -> bool:
    begin = f"    {source} --> {target} : "
    return any(line.startswith(begin) and event in line.removeprefix(begin).split(", ") for line in text.splitlines())


def test_check_fails_and_writes_nothing_when_a_table_has_changed(
    tmp_path: Path, settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.BASE_DIR = tmp_path
    with pytest.raises(CommandError, match=r"run manage\.py diagrams"):
        call_command("diagrams", check=True)
    call_command("diagrams", verbosity=0)
    written = (tmp_path / diagrams.PATH).read_text(encoding="utf-8")
    call_command("diagrams", check=True)
    row = {kind: move for kind, move in TABLE[Flow.HOLDING].items() if kind is not Kind.RETRY_NOW}
    monkeypatch.setattr(diagrams, "TABLE", {**TABLE, Flow.HOLDING: row})
    with pytest.raises(CommandError):
        call_command("diagrams", check=True)
    assert (tmp_path / diagrams.PATH).read_text(encoding="utf-8") == written
