"""Acceptance of ebXML 2.0 messages: once, in time, and in the order of their conversation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messaging.protocol.ebms.acceptance import (
    MAX_HELD,
    RULES,
    Conversation,
    Decision,
    Received,
    Verdict,
    decide,
    released,
)
from messaging.protocol.envelope import ErrorInfo, MessageOrder
from messaging.protocol.errors import ErrorCode, Severity

FAULT = ErrorInfo(ErrorCode.OTHER_XML, Severity.ERROR, "Something is missing.")
NEW = Conversation()


def received(number: int | None = None, *, reset: bool = False, **more: Any) -> Received:
    order = MessageOrder(number, reset=reset) if number is not None else None
    return Received(**{"acknowledge": True, "once": True, "order": order, **more})


@pytest.mark.parametrize(
    ("known", "came", "rule", "verdict"),
    [
        (NEW, received(defect=FAULT, known=True), "defect", Verdict.REJECT),
        (NEW, received(known=True, expired=True), "known-id", Verdict.DUPLICATE),
        (NEW, received(0, known=True), "known-id", Verdict.DUPLICATE),
        (NEW, received(known=True, once=False), "without-order", Verdict.ACCEPT),
        (NEW, received(expired=True), "expired", Verdict.REJECT),
        (NEW, received(), "without-order", Verdict.ACCEPT),
        (NEW, received(100_000_000), "out-of-range", Verdict.REJECT),
        (NEW, received(1, reset=True), "reset-not-zero", Verdict.REJECT),
        (NEW, received(0, reset=True), "reset", Verdict.ACCEPT),
        (Conversation(7), received(0, reset=True), "reset", Verdict.ACCEPT),
        (NEW, received(0), "next", Verdict.ACCEPT),
        (Conversation(7), received(8), "next", Verdict.ACCEPT),
        (Conversation(7, any_number=True), received(40), "next", Verdict.ACCEPT),
        (Conversation(7), received(7), "passed", Verdict.REJECT),
        (Conversation(7), received(0), "passed", Verdict.REJECT),
        (Conversation(7, frozenset({9})), received(9), "waits-already", Verdict.REJECT),
        (Conversation(0, frozenset(range(2, 2 + MAX_HELD))), received(5000), "too-many", Verdict.REJECT),
        (NEW, received(1), "early", Verdict.HOLD),
        (Conversation(7), received(9), "early", Verdict.HOLD),
    ],
)
def test_the_first_rule_that_applies_decides(known: Conversation, came: Received, rule: str, verdict: Verdict) -> None:
    decision = decide(known, came)
    assert (decision.rule, decision.verdict) == (rule, verdict)
    assert next(row.verdict for row in RULES if row.name == rule) is verdict


def test_each_rule_is_named_once_and_has_its_section() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
    assert all(rule.source for rule in RULES)


@pytest.mark.parametrize("came", [received(), received(known=True), received(0), received(5)])
def test_an_acknowledgement_is_owed_to_who_asks_for_it_and_to_nobody_else(came: Received) -> None:
    assert decide(NEW, came).acknowledge
    assert not decide(NEW, replace(came, acknowledge=False)).acknowledge


@pytest.mark.parametrize("came", [received(defect=FAULT), received(expired=True), received(1, reset=True)])
def test_what_is_refused_moves_nothing_and_says_why(came: Received) -> None:
    decision = decide(Conversation(3, frozenset({5})), came)
    assert decision.error is not None
    assert (decision.acknowledge, decision.conversation) == (False, Conversation(3, frozenset({5})))


def test_a_copy_with_other_content_is_told_to_a_person() -> None:
    assert decide(NEW, received(known=True, same_content=False)).warning == "same_id_other_content"


def test_a_reset_gives_up_what_waits() -> None:
    decision = decide(Conversation(3, frozenset({9, 5})), received(0, reset=True))
    assert (decision.given_up, decision.incident) == ((5, 9), "order_given_up")
    assert decision.conversation == Conversation(0)


def test_the_beginning_of_a_conversation_may_be_overtaken() -> None:
    decision = decide(Conversation(None, frozenset({2, 3})), received(0, reset=True))
    assert (decision.given_up, decision.conversation) == ((), Conversation(0, frozenset({2, 3})))


def test_where_any_number_is_the_next_what_waits_below_it_is_handed_on_first() -> None:
    decision = decide(Conversation(2, frozenset({8, 4, 6}), any_number=True), received(7))
    assert (decision.given_up, decision.incident) == ((4, 6), "")
    assert released(decision.conversation) == (Conversation(8), (8,))


def _handed_on(known: Conversation, decision: Decision, number: int) -> tuple[Conversation, list[int]]:
    """What is handed on by one decision, in this order."""
    first = [*decision.given_up, *([number] if decision.verdict is Verdict.ACCEPT else [])]
    moved, turn = released(decision.conversation)
    return moved, [*first, *turn]


@given(st.permutations(range(12)), st.lists(st.integers(0, 11), max_size=30))
def test_whatever_order_they_come_in_each_is_handed_on_once_and_in_its_order(
    arrivals: list[int], copies: list[int]
) -> None:
    known, handed_on, seen = NEW, [], set()
    for number in [*arrivals[:6], *copies, *arrivals[6:], *copies]:
        came = received(number, reset=number == 0, known=number in seen)
        decision = decide(known, came)
        known, more = _handed_on(known, decision, number)
        handed_on += more
        if decision.verdict in (Verdict.ACCEPT, Verdict.HOLD):
            seen.add(number)
        assert decision.verdict is not Verdict.REJECT
    missing = set(range(12)) - seen
    assert handed_on == list(range(min(missing, default=12)))
    assert not known.held or missing


@given(st.lists(st.tuples(st.integers(0, 6), st.booleans()), max_size=40))
def test_numbers_between_two_resets_only_rise(arrivals: list[tuple[int, bool]]) -> None:
    known = NEW
    last = -1
    for number, wants_reset in arrivals:
        reset = wants_reset and number == 0
        decision = decide(known, received(number, reset=reset))
        known, handed_on = _handed_on(known, decision, number)
        if decision.rule == "reset":
            assert [one for one in decision.given_up if one <= last] == []
            last = -1
            handed_on = handed_on[len(decision.given_up) :]
        assert handed_on == list(range(last + 1, last + 1 + len(handed_on)))
        last += len(handed_on)
