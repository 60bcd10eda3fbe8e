"""The demo's second judge sees whatever a broken hub would do to the receiving application."""

from __future__ import annotations

import dataclasses

import pytest

from messaging.demo.effects import Effects, Stored, verdict


def stored(*states: str, pair: str = "a b") -> list[Stored]:
    """Documents d1, d2 ... of one pair in these delivery states; the octets of dn have the digest n."""
    return [Stored(f"d{number}", pair, state, str(number)) for number, state in enumerate(states, 1)]


def effects(*documents: str) -> list[tuple[str, str]]:
    return [(document, document.removeprefix("d")) for document in documents]


def counts(found: Effects) -> dict[str, int]:
    return {name: count for name, count in dataclasses.asdict(found).items() if count}


def test_each_once_is_a_promise_kept() -> None:
    found = verdict(stored("completed", "duplicate"), effects("d1", "d2"))
    assert counts(found) == {"documents": 2, "effects_once": 2}
    assert found.promises_kept


def test_a_document_in_doubt_has_had_its_effect_or_has_not() -> None:
    found = verdict(stored("in_doubt", "in_doubt"), effects("d1"))
    assert counts(found) == {"documents": 2, "effects_once": 1, "in_doubt": 2, "in_doubt_with_effect": 1}
    assert found.promises_kept


@pytest.mark.parametrize("state", ["waiting", "running", "joined"])
def test_what_is_under_way_is_not_missing_yet(state: str) -> None:
    found = verdict(stored(state), [])
    assert counts(found) == {"documents": 1, "unsettled": 1}
    assert found.promises_kept


@pytest.mark.parametrize(
    ("states", "done", "broken"),
    [
        (("completed",), ("d1", "d1"), "effects_twice"),
        (("in_doubt",), ("d1", "d1"), "effects_twice"),
        (("running",), ("d1", "d1"), "effects_twice"),
        (("completed",), (), "effects_missing"),
        (("duplicate",), (), "effects_missing"),
        (("failed",), (), "effects_missing"),
        (("",), (), "effects_missing"),  # no delivery was ever made
        (("completed",), ("d1", "d2"), "effects_strange"),
        (("completed", "completed"), ("d2", "d1"), "effects_out_of_order"),
    ],
)
def test_a_broken_promise_is_seen(states: tuple[str, ...], done: tuple[str, ...], broken: str) -> None:
    found = verdict(stored(*states), effects(*done))
    assert (dataclasses.asdict(found)[broken], found.promises_kept) == (1, False)


def test_other_octets_than_those_received_are_seen() -> None:
    assert verdict(stored("completed"), [("d1", "other")]).effects_altered == 1
    assert not verdict(stored("completed"), [("d1", "other")]).promises_kept
    several = [dataclasses.replace(stored("completed")[0], sha256="")]  # a multipart of several payloads
    assert verdict(several, [("d1", "other")]).promises_kept


def test_order_is_that_of_each_pair() -> None:
    other = [dataclasses.replace(document, document_id="e1") for document in stored("completed", pair="c d")]
    found = verdict([*stored("completed", "completed"), *other], [*effects("d1"), ("e1", "1"), *effects("d2")])
    assert found.promises_kept
