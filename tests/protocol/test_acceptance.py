"""The acceptance rules of spec 1, 5.2: the cases E01 to E16 and E29, and the table as a whole."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from messaging.protocol.acceptance import (
    RULES,
    AcceptancePolicy,
    Decision,
    InboundState,
    Received,
    Rule,
    Verdict,
    decide,
    received_from,
)
from messaging.protocol.codecs.ebxml import decode
from messaging.protocol.envelope import MAX_SEQUENCE_NUMBER, ErrorInfo, Semantics
from messaging.protocol.errors import Defect, ErrorCode, Severity
from tests.protocol.codecs.samples import ORDER, document_of, enclose

RELIABLE, AT_MOST, BEST = Semantics.ONCE_AND_ONLY_ONCE, Semantics.AT_MOST_ONCE, Semantics.BEST_EFFORT
LENIENT, STRICT = AcceptancePolicy(), AcceptancePolicy(strict_sequence=True)
NEW, DUPLICATE, REFUSED = Verdict.ACCEPT, Verdict.DUPLICATE, Verdict.REJECT
NOTHING = InboundState()
bounded = settings(max_examples=300)
DEFECT = ErrorInfo(ErrorCode.MIME_PROBLEM, Severity.ERROR, "a part is missing")


def reliable(number: int | None, message_id: str, *, known: bool = False, **fields: object) -> Received:
    return replace(Received(message_id, RELIABLE, number, known), **fields)


@dataclass
class Receiver:
    """One pair as the store keeps it: the state, and the ids that were stored."""

    state: InboundState = NOTHING
    stored: tuple[str, ...] = ()
    policy: AcceptancePolicy = LENIENT

    def receive(self, number: int | None, message_id: str) -> Decision:
        decision = decide(self.state, reliable(number, message_id, known=message_id in self.stored), self.policy)
        if decision.verdict is NEW:
            self.stored += (message_id,)
        self.state = decision.state
        return decision


def after(last: int, last_id: str, *others: str) -> Receiver:
    """A receiver that accepted `last_id` with number `last`, and `others` before."""
    return Receiver(InboundState(last, last_id), (last_id, *others))


# --- the cases of the conformance list ---


@pytest.mark.parametrize(
    ("receiver", "number", "message_id", "verdict", "state"),
    [
        pytest.param(Receiver(), 1, "a", NEW, InboundState(1, "a"), id="E01"),
        pytest.param(Receiver(), 7, "a", REFUSED, NOTHING, id="E02"),
        pytest.param(after(22, "x"), 23, "y", NEW, InboundState(23, "y"), id="E03"),
        pytest.param(after(1, "a"), 1, "a", DUPLICATE, InboundState(1, "a"), id="E05"),
        pytest.param(after(1, "a"), 1, "b", NEW, InboundState(1, "b"), id="E06"),
        pytest.param(after(999_999_999, "q"), 1, "r", NEW, InboundState(1, "r"), id="E08"),
        pytest.param(after(999_999_999, "q"), 1_000_000_000, "r", REFUSED, InboundState(999_999_999, "q"), id="E09"),
        pytest.param(after(23, "y", "a"), 1, "a", DUPLICATE, InboundState(23, "y"), id="E10"),
        pytest.param(after(23, "y", "x"), 22, "x", DUPLICATE, InboundState(23, "y"), id="E12"),
    ],
)
def test_acceptance(receiver: Receiver, number: int, message_id: str, verdict: Verdict, state: InboundState) -> None:
    decision = receiver.receive(number, message_id)
    assert (decision.verdict, decision.state) == (verdict, state)
    assert decision.acknowledge is (verdict is not REFUSED)
    assert (decision.error is not None) is (verdict is REFUSED)
    if decision.error:
        assert (decision.error.code, decision.error.severity) == (ErrorCode.INVALID_SEQUENCE_NUMBER, Severity.ERROR)
        assert decision.error.location.endswith("/SequenceNumber")


def test_e04_each_copy_is_acknowledged() -> None:
    receiver = after(23, "y")
    decisions = [receiver.receive(23, "y") for _ in range(3)]
    assert [(d.verdict, d.acknowledge) for d in decisions] == [(DUPLICATE, True)] * 3
    assert receiver.state == InboundState(23, "y")


def test_e07_a_gap_is_refused_and_the_next_number_still_taken() -> None:
    receiver = after(23, "y")
    refused = receiver.receive(25, "z")
    assert (refused.verdict, refused.state, refused.acknowledge) == (REFUSED, InboundState(23, "y"), False)
    assert refused.incident == "out_of_sequence"
    assert refused.error is not None
    assert "25 received; last accepted 23, so 24 (next), 23 (repeat) or 1 (reset)" in refused.error.description
    assert receiver.receive(24, "w").verdict is NEW


def test_e11_without_memory_and_by_the_letter_an_old_number_one_is_new() -> None:
    """What the MessageId check is for: this is a second delivery."""
    forgetful = Receiver(InboundState(23, "y"), (), STRICT)
    assert forgetful.receive(1, "a").verdict is NEW


def test_e12_by_the_letter_an_old_number_is_an_error() -> None:
    strict = replace(after(23, "y", "x"), policy=STRICT)
    decision = strict.receive(22, "x")
    assert (decision.verdict, decision.rule, decision.acknowledge) == (REFUSED, "strict-old-number", False)
    assert decision.state == InboundState(23, "y")


def test_e13_another_message_with_the_last_number_is_never_acknowledged_away() -> None:
    receiver = after(23, "y")
    decision = receiver.receive(23, "z")
    assert (decision.verdict, decision.acknowledge, decision.state) == (REFUSED, False, InboundState(23, "y"))
    assert decision.error is not None
    assert decision.error.code == ErrorCode.INCONSISTENT
    assert "23" in decision.error.description and "y" in decision.error.description
    assert decision.incident == "sequence_taken_by_other_message"
    assert "z" not in receiver.stored


def _with_number(text: str) -> Received:
    document = document_of(ORDER)
    assert ">000000023<" in document
    envelope = decode(*enclose(document.replace(">000000023<", f">{text}<"), PART))
    return received_from(envelope, known=False)


PART = b"Content-ID: <po-4711@msh.buyer.example>\r\nContent-Type: application/xml\r\n\r\n<PurchaseOrder/>"


@pytest.mark.parametrize("text", ["000000023", "23", "\n    000000023\n  ", "\t023 "])
def test_e14_the_number_of_the_sample_is_next_after_22(text: str) -> None:
    assert decide(InboundState(22, "x"), _with_number(text), LENIENT).state == InboundState(23, ORDER.message_id)


@pytest.mark.parametrize("text", ["0", "-1", "1.0", "abc", "", "1000000000", "0000000001", "+1", "\u0661"])
@pytest.mark.parametrize("state", [NOTHING, InboundState(1, "a"), InboundState(MAX_SEQUENCE_NUMBER, "q")])
def test_e15_what_is_no_number_is_refused_and_nothing_moves(text: str, state: InboundState) -> None:
    decision = decide(state, _with_number(text), LENIENT)
    assert (decision.verdict, decision.state, decision.acknowledge) == (REFUSED, state, False)
    assert decision.error is not None
    assert decision.error.code == ErrorCode.INVALID_SEQUENCE_NUMBER


@pytest.mark.parametrize("number", [None, 0, -1, MAX_SEQUENCE_NUMBER + 1])
@pytest.mark.parametrize("known", [False, True])
def test_e15_the_rules_alone_refuse_it_too(number: int | None, known: bool) -> None:
    decision = decide(InboundState(23, "y"), reliable(number, "a", known=known), LENIENT)
    assert (decision.verdict, decision.rule, decision.acknowledge) == (REFUSED, "out-of-range", False)


@pytest.mark.parametrize("number", [None, 7])
def test_e16_best_effort_is_delivered_and_not_acknowledged(number: int | None) -> None:
    decision = decide(InboundState(23, "y"), Received("a", BEST, number, known=False), LENIENT)
    assert decision == Decision(NEW, "unreliable", InboundState(23, "y"))


def test_e29_two_senders_do_not_know_of_each_other() -> None:
    one, other = Receiver(), after(5, "e")
    for number, message_id in [(1, "a"), (2, "b"), (3, "c")]:
        assert one.receive(number, message_id).verdict is NEW
    assert other.receive(6, "a").verdict is NEW, "the same MessageId from another sender is another message"
    assert other.receive(3, "f").verdict is REFUSED
    assert (one.state, other.state) == (InboundState(3, "c"), InboundState(6, "a"))


# --- unreliable messages ---


@pytest.mark.parametrize(
    ("semantics", "policy", "verdict"),
    [
        (BEST, LENIENT, NEW),  # duplicates might be delivered (2.2.1)
        (BEST, AcceptancePolicy(detect_repeats=True), DUPLICATE),  # ... or not, as the partners like (ruling C7)
        (AT_MOST, LENIENT, DUPLICATE),  # no more than once (3.1.2)
    ],
)
def test_a_repeat_of_an_unreliable_message(semantics: Semantics, policy: AcceptancePolicy, verdict: Verdict) -> None:
    decision = decide(NOTHING, Received("a", semantics, None, known=True), policy)
    assert (decision.verdict, decision.acknowledge, decision.state) == (verdict, False, NOTHING)


def test_at_most_once_is_a_word_of_the_agreement_and_not_of_the_wire() -> None:
    envelope = replace(ORDER, semantics=BEST)
    assert received_from(envelope, known=False, at_most_once=True).semantics is AT_MOST
    assert received_from(envelope, known=False).semantics is BEST
    assert received_from(ORDER, known=False, at_most_once=True).semantics is RELIABLE


# --- what else a decision says ---


def test_the_first_defect_is_what_the_sender_is_told() -> None:
    defects = (Defect(ErrorCode.MIME_PROBLEM, "first", "/a"), Defect(ErrorCode.NOT_SUPPORTED, "second"))
    decision = decide(NOTHING, received_from(replace(ORDER, defects=defects), known=True), LENIENT)
    assert (decision.verdict, decision.acknowledge, decision.incident) == (REFUSED, False, "")
    assert decision.error == ErrorInfo(ErrorCode.MIME_PROBLEM, Severity.ERROR, "first", "/a")


def test_a_known_id_with_other_content_is_acknowledged_and_people_are_warned() -> None:
    decision = decide(InboundState(23, "y"), reliable(23, "y", known=True, same_octets=False), LENIENT)
    assert (decision.verdict, decision.acknowledge, decision.warning) == (DUPLICATE, True, "same_id_other_content")


def test_a_repeat_is_recognised_by_its_number_when_its_id_was_forgotten() -> None:
    decision = decide(InboundState(23, "y"), reliable(23, "y", known=False), LENIENT)
    assert (decision.verdict, decision.rule, decision.acknowledge) == (DUPLICATE, "repeat", True)


@pytest.mark.parametrize(
    ("last", "words"),
    [
        (None, "nothing accepted yet, so 1 expected"),
        (20, "last accepted 20, so 21 (next), 20 (repeat) or 1 (reset) expected"),
        (MAX_SEQUENCE_NUMBER, "last accepted 999999999, so 1 (next), 999999999 (repeat) or 1 (reset) expected"),
    ],
)
def test_a_refusal_says_what_would_have_been_right(last: int | None, words: str) -> None:
    decision = decide(InboundState(last, "x" if last else ""), reliable(500, "a"), LENIENT)
    assert decision.error is not None
    assert decision.error.description == f"SequenceNumber 500 received; {words}"


def test_a_known_message_as_number_1_restarts_the_sequence_and_is_a_repeat() -> None:
    decision = decide(InboundState(23, "y"), reliable(1, "y", known=True, known_number=23, same_octets=False), LENIENT)
    assert (decision.verdict, decision.acknowledge, decision.warning) == (Verdict.DUPLICATE, True, "")
    assert decision.state == InboundState(1, "y")
    assert decide(decision.state, reliable(2, "z"), LENIENT).verdict is Verdict.ACCEPT


def test_a_stray_copy_of_an_old_number_1_restarts_nothing() -> None:
    decision = decide(InboundState(23, "y"), reliable(1, "a", known=True, known_number=1), LENIENT)
    assert (decision.verdict, decision.state) == (Verdict.DUPLICATE, InboundState(23, "y"))


@pytest.mark.parametrize(("last", "number"), [(None, 1), (23, 24), (23, 1)])
def test_x01_what_came_by_another_profile_takes_its_place_in_the_sequence(last: int | None, number: int) -> None:
    """Stored already, so it is a repeat; but the next message is the one after it."""
    state = InboundState(last, "y") if last else NOTHING
    decision = decide(state, reliable(number, "x", known=True, by_other_road=True), LENIENT)
    assert (decision.verdict, decision.acknowledge) == (Verdict.DUPLICATE, True)
    assert decision.state == InboundState(number, "x")


@pytest.mark.parametrize("number", [23, 25, 22])
def test_x01_a_number_that_it_cannot_have_moves_nothing(number: int) -> None:
    decision = decide(InboundState(23, "y"), reliable(number, "x", known=True, by_other_road=True), LENIENT)
    assert (decision.verdict, decision.state) == (Verdict.DUPLICATE, InboundState(23, "y"))


# --- the table ---

# For each rule, in the order of the table, something that it decides.
DECIDED_BY: dict[str, tuple[InboundState, Received, AcceptancePolicy]] = {
    "defect": (NOTHING, reliable(1, "a", defect=DEFECT), LENIENT),
    "unreliable-repeat": (NOTHING, Received("a", AT_MOST, None, known=True), LENIENT),
    "unreliable": (NOTHING, Received("a", BEST, None, known=True), LENIENT),
    "out-of-range": (NOTHING, reliable(0, "a"), LENIENT),
    "strict-old-number": (InboundState(23, "y"), reliable(22, "x", known=True), STRICT),
    "restarted": (InboundState(23, "y"), reliable(1, "y", known=True, known_number=23), LENIENT),
    "by-other-road": (InboundState(23, "y"), reliable(24, "x", known=True, by_other_road=True), LENIENT),
    "known-id": (InboundState(23, "y"), reliable(22, "x", known=True), LENIENT),
    "numbers-lost": (InboundState(23, "y", any_number=True), reliable(30, "z"), LENIENT),
    "next": (InboundState(23, "y"), reliable(24, "z"), LENIENT),
    "repeat": (InboundState(23, "y"), reliable(23, "y"), LENIENT),
    "both-one": (InboundState(1, "a"), reliable(1, "b"), LENIENT),
    "number-taken-by-other-id": (InboundState(23, "y"), reliable(23, "z"), LENIENT),
    "first": (InboundState(23, "y"), reliable(1, "z"), LENIENT),
    "invalid-number": (InboundState(23, "y"), reliable(25, "z"), LENIENT),
}


def test_every_rule_decides_something() -> None:
    assert list(DECIDED_BY) == [rule.name for rule in RULES]
    assert {name: decide(*case).rule for name, case in DECIDED_BY.items()} == {name: name for name in DECIDED_BY}
    assert all(rule.source for rule in RULES)


@pytest.mark.parametrize(
    ("before", "behind", "state", "received", "policy"),
    [
        ("defect", "unreliable", NOTHING, Received("a", BEST, None, False, defect=DEFECT), LENIENT),
        ("defect", "known-id", NOTHING, reliable(1, "a", known=True, defect=DEFECT), LENIENT),
        ("defect", "first", NOTHING, reliable(1, "a", defect=DEFECT), LENIENT),
        ("unreliable-repeat", "unreliable", NOTHING, Received("a", AT_MOST, None, True), LENIENT),
        ("unreliable", "out-of-range", NOTHING, Received("a", BEST, None, False), LENIENT),
        ("unreliable", "known-id", NOTHING, Received("a", BEST, None, True), LENIENT),
        ("out-of-range", "known-id", InboundState(23, "y"), reliable(0, "x", known=True), LENIENT),
        ("out-of-range", "next", InboundState(MAX_SEQUENCE_NUMBER, "q"), reliable(10**9, "r"), LENIENT),
        ("strict-old-number", "known-id", InboundState(23, "y"), reliable(22, "x", known=True), STRICT),
        ("by-other-road", "known-id", NOTHING, reliable(1, "x", known=True, by_other_road=True), LENIENT),
        ("known-id", "next", InboundState(23, "y"), reliable(24, "x", known=True), LENIENT),
        ("known-id", "both-one", InboundState(1, "b"), reliable(1, "a", known=True), LENIENT),
        ("known-id", "number-taken-by-other-id", InboundState(23, "y"), reliable(23, "x", known=True), LENIENT),
        ("known-id", "first", InboundState(23, "y"), reliable(1, "a", known=True), LENIENT),
        ("known-id", "invalid-number", InboundState(23, "y"), reliable(22, "x", known=True), LENIENT),
        ("restarted", "known-id", InboundState(1, "y"), reliable(2, "x", known=True, known_number=25), LENIENT),
        ("known-id", "next", InboundState(1, "y"), reliable(2, "x", known=True, known_number=2), LENIENT),
        ("known-id", "invalid-number", InboundState(4, "y"), reliable(3, "x", known=True, known_number=25), LENIENT),
        ("known-id", "numbers-lost", InboundState(23, "y", any_number=True), reliable(30, "x", known=True), LENIENT),
        ("numbers-lost", "repeat", InboundState(23, "y", any_number=True), reliable(23, "y"), LENIENT),
        ("next", "invalid-number", InboundState(23, "y"), reliable(24, "z"), LENIENT),
        ("repeat", "both-one", InboundState(1, "a"), reliable(1, "a"), LENIENT),
        ("repeat", "number-taken-by-other-id", InboundState(23, "y"), reliable(23, "y"), LENIENT),
        ("repeat", "first", InboundState(1, "a"), reliable(1, "a"), LENIENT),
        ("both-one", "number-taken-by-other-id", InboundState(1, "a"), reliable(1, "b"), LENIENT),
        ("number-taken-by-other-id", "invalid-number", InboundState(23, "y"), reliable(23, "z"), LENIENT),
        ("first", "invalid-number", InboundState(23, "y"), reliable(1, "z"), LENIENT),
    ],
)
def test_the_order_of_these_two_rules_matters(
    before: str, behind: str, state: InboundState, received: Received, policy: AcceptancePolicy
) -> None:
    by_name = {rule.name: rule for rule in RULES}
    first, second = by_name[before], by_name[behind]
    assert first.applies(state, received, policy) and second.applies(state, received, policy)
    assert decide(state, received, policy).rule == before
    assert _follows(first, state, received) != _follows(second, state, received), "then their order says nothing"


def _follows(rule: Rule, state: InboundState, received: Received) -> tuple[object, ...]:
    decision = rule.decide(state, received)
    return (
        decision.verdict,
        decision.acknowledge,
        decision.error and decision.error.code,
        decision.incident,
        decision.state,
    )


# --- against an independent statement of the rules ---


def spoken(last: int | None, last_id: str, number: int | None, message_id: str, remembered: bool) -> str:
    """Section 5.2 and 5.1 (9) said once more, case by case, without a table. `last`: None before the first message."""
    if number is None or number < 1 or number > 999_999_999:
        return "refuse"
    if remembered:
        return "again"
    expected = 1 if last is None else last + 1
    if number == expected:
        return "take"
    if number == last:
        if message_id == last_id:
            return "again"
        return "take" if number == 1 else "again, says 5.2; refuse, says E13"
    return "take" if number == 1 else "refuse"


_VERDICTS = {"take": NEW, "again": DUPLICATE, "refuse": REFUSED, "again, says 5.2; refuse, says E13": REFUSED}
_NUMBERS = st.one_of(st.integers(0, 6), st.integers(MAX_SEQUENCE_NUMBER - 2, MAX_SEQUENCE_NUMBER + 1), st.none())
_STATES = st.one_of(
    st.just(NOTHING),
    st.builds(InboundState, st.integers(1, 5) | st.just(MAX_SEQUENCE_NUMBER), st.sampled_from("abcdef")),
)
_ARRIVALS = st.lists(st.tuples(_NUMBERS, st.sampled_from("abcdefgh")), max_size=25)


@bounded
@given(_STATES, _ARRIVALS, st.booleans())
@example(InboundState(23, "y"), [(23, "z"), (24, "z"), (1, "y")], False)
def test_any_trace_is_judged_as_the_specification_says(
    start: InboundState, arrivals: list[tuple[int | None, str]], remembers: bool
) -> None:
    receiver = Receiver(start, (start.last_message_id,) if start.last_sequence else ())
    for number, message_id in arrivals:
        if not remembers:
            receiver.stored = ()
        before = receiver.state
        said = spoken(before.last_sequence, before.last_message_id, number, message_id, message_id in receiver.stored)
        decision = receiver.receive(number, message_id)
        assert decision.verdict is _VERDICTS[said], said
        assert decision.state == (InboundState(number, message_id) if said == "take" else before)
        assert decision.acknowledge is (said in ("take", "again"))


@bounded
@given(_STATES, _ARRIVALS)
def test_by_the_letter_only_the_three_numbers_of_the_specification_pass(
    start: InboundState, arrivals: list[tuple[int | None, str]]
) -> None:
    strict = Receiver(start, (start.last_message_id,) if start.last_sequence else (), STRICT)
    for number, message_id in arrivals:
        before = strict.state
        known = message_id in strict.stored
        letter = spoken(before.last_sequence, before.last_message_id, number, message_id, remembered=False)
        said = spoken(before.last_sequence, before.last_message_id, number, message_id, known)
        verdict = strict.receive(number, message_id).verdict
        assert verdict is (REFUSED if letter == "refuse" else _VERDICTS[said])


@bounded
@given(
    _STATES,
    st.builds(
        Received,
        message_id=st.sampled_from("abcd"),
        semantics=st.sampled_from(Semantics),
        sequence=_NUMBERS,
        known=st.booleans(),
        same_octets=st.booleans(),
        defect=st.none() | st.just(DEFECT),
    ),
    st.builds(AcceptancePolicy, st.booleans(), st.booleans()),
)
def test_whatever_comes_gets_a_decision_that_agrees_with_itself(
    state: InboundState, received: Received, policy: AcceptancePolicy
) -> None:
    decision = decide(state, received, policy)
    is_reliable = received.semantics is RELIABLE
    assert (decision.error is not None) is (decision.verdict is REFUSED)
    assert decision.acknowledge is (is_reliable and decision.verdict is not REFUSED)
    moved = is_reliable and decision.verdict is NEW
    assert decision.state == (InboundState(received.sequence, received.message_id) if moved else state)
    assert decision == decide(state, received, policy)
