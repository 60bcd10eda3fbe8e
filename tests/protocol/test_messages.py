"""The life of a message: two tables, both complete."""

from __future__ import annotations

import pytest

from messaging.protocol.errors import IllegalTransition
from messaging.protocol.messages import (
    RELIABLE,
    RELIABLE_FINAL,
    UNRELIABLE,
    UNRELIABLE_FINAL,
    Happened,
    State,
    move,
)
from tests.protocol.tables import reachable

TABLES = pytest.mark.parametrize(
    ("table", "final", "reliable"),
    [(RELIABLE, RELIABLE_FINAL, True), (UNRELIABLE, UNRELIABLE_FINAL, False)],
    ids=["reliable", "unreliable"],
)


@TABLES
@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("happened", Happened)
def test_each_cell_moves_or_is_refused(table, final, reliable: bool, state: State, happened: Happened) -> None:
    """Of states that the table does not have, too: a finished best-effort message is asked about like any other."""
    target = table.get(state, {}).get(happened)
    if target is None:
        with pytest.raises(IllegalTransition) as caught:
            move(state, happened, reliable=reliable)
        assert (caught.value.state, caught.value.event) == (state, happened)
    else:
        assert move(state, happened, reliable=reliable) is target


@TABLES
def test_each_state_is_reached_and_each_open_one_can_end(table, final, reliable: bool) -> None:
    ways = {state: set(row.values()) for state, row in table.items()}
    assert reachable(State.QUEUED, ways) == set(table)
    assert {state for state, row in table.items() if not row} == final
    assert all(reachable(state, ways) & final for state in table)


def test_the_tables_together_have_every_state_and_every_happening() -> None:
    assert set(RELIABLE) | set(UNRELIABLE) == set(State)
    rows = [*RELIABLE.values(), *UNRELIABLE.values()]
    assert {happened for row in rows for happened in row} == set(Happened)


def test_only_a_person_ends_a_reliable_message_without_delivery() -> None:
    ends = {
        (happened, target) for row in RELIABLE.values() for happened, target in row.items() if target in RELIABLE_FINAL
    }
    assert ends == {
        (Happened.ACKNOWLEDGED, State.DELIVERED),
        (Happened.SKIPPED, State.SKIPPED),
        (Happened.CANCELLED, State.CANCELLED),
    }


def test_an_unreliable_message_goes_out_once() -> None:
    sent = [state for state, row in UNRELIABLE.items() if Happened.TRANSMITTED in row]
    assert sent == [State.QUEUED]
    assert State.QUEUED not in {target for row in UNRELIABLE.values() for target in row.values()}


def test_a_state_that_is_none_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="received"):
        move("received", Happened.CANCELLED, reliable=True)
