"""X15 for spec 1: on any trace the acceptance rules and the executable model give the same verdict.

Two rulings differ from the model on purpose (docs/decisions.md, Acceptance), and are asserted where they occur: E13
(the last number under another id is refused and not acknowledged away), and a known message that comes again under
another number, as number 1 or as the next, which is a repeat for both but begins the sequence anew here.
"""

from __future__ import annotations

from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from messaging.protocol.acceptance import AcceptancePolicy, InboundState, Received, Verdict, decide
from messaging.protocol.envelope import MAX_SEQUENCE_NUMBER, Semantics
from tests.fixtures.acceptance_model import ebxml

_VERDICTS = {"NEW": Verdict.ACCEPT, "DUP": Verdict.DUPLICATE, "ERR": Verdict.REJECT}
_NUMBERS = st.integers(-1, 6) | st.integers(MAX_SEQUENCE_NUMBER - 2, MAX_SEQUENCE_NUMBER + 1) | st.none()
# "next" and "last" are what a sender would number now and numbered before; all else is what goes wrong.
_WISHES = st.sampled_from(["next", "next", "last", 1]) | _NUMBERS
_TRACES = st.lists(st.tuples(_WISHES, st.sampled_from("abcdefgh")), max_size=40)
_START = st.none() | st.integers(1, 5) | st.integers(MAX_SEQUENCE_NUMBER - 2, MAX_SEQUENCE_NUMBER)


@settings(max_examples=500)
@given(_START, _TRACES)
@example(None, [(1, "a"), (2, "b"), (1, "a"), (2, "b"), (3, "c"), (1, "b"), (2, "d")])
@example(5, [(5, "a"), (5, "start"), (6, "b"), (1, "c"), (1, "d")])
def test_x15_acceptance_judges_any_trace_as_the_model_does(
    last: int | None, arrivals: list[tuple[int | str | None, str]]
) -> None:
    state = InboundState(last, "start" if last else "")
    numbers: dict[str, int | None] = {"start": last} if last else {}
    for wish, message_id in arrivals:
        expected_next = (state.last_sequence or 0) % MAX_SEQUENCE_NUMBER + 1
        number = {"next": expected_next, "last": state.last_sequence}.get(wish, wish)
        said = ebxml(state.last_sequence, state.last_message_id, number, message_id, numbers)
        received = Received(
            message_id,
            Semantics.ONCE_AND_ONLY_ONCE,
            number,
            known=message_id in numbers,
            known_number=numbers.get(message_id),
        )
        decision = decide(state, received, AcceptancePolicy())
        event(decision.rule)
        expected, moved = _VERDICTS[said], state
        if said == "NEW":
            moved = InboundState(number, message_id)
        elif said == "DUP" and message_id in numbers:
            following = (1, (state.last_sequence or 0) + 1)
            if numbers[message_id] not in (None, number) and number in following:  # restarted
                moved = InboundState(number, message_id)
                numbers[message_id] = number
        elif said == "DUP" and message_id != state.last_message_id:  # E13
            expected = Verdict.REJECT
        assert (decision.verdict, decision.state) == (expected, moved), decision.rule
        assert decision.acknowledge is (expected is not Verdict.REJECT)
        if decision.verdict is Verdict.ACCEPT:
            numbers[message_id] = number
        state = decision.state
