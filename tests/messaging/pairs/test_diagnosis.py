"""The diagnosis of a pair: one sentence for every state of the machine, and the verbs that go with it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from messaging import causes
from messaging.choices import PAIR_LOOKS, Direction
from messaging.journal.wording import span
from messaging.models import Message, Pair
from messaging.pairs.resource import VERBS
from messaging.pairs.selectors.diagnosis import diagnose
from messaging.pairs.selectors.verbs import verb_states
from messaging.pairs.services import operating
from messaging.protocol.pair_state import Flow, Gate
from partners.terms import Terms
from tests.messaging.conftest import NOON
from tests.messaging.factories import partner_side


@pytest.fixture
def terms(db: None) -> Terms:
    return partner_side(timeout=60, retries=3, retry_interval=120, transport_retries=2).terms


HEAD = Message(action="Invoice", sequence_number=18, attempts=4, first_sent_at=NOON - timedelta(minutes=5))


def _pair(flow: Flow, *, gate: Gate = Gate.OPEN, **fields: object) -> Pair:
    pair = Pair(direction=Direction.OUT, code="A>B", flow=flow.value, gate=gate.value, **fields)
    if flow not in (Flow.IDLE, Flow.SUSPENDED):
        pair.in_flight_id = HEAD.pk
    return pair


def _in(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


CASES: list[tuple[str, Pair, str, str]] = [
    ("nothing yet", _pair(Flow.IDLE), "active", "Nothing was sent yet."),
    (
        "at rest",
        _pair(Flow.IDLE, last_success_at=_in(-75)),
        "active",
        "Everything that was submitted is delivered. The last acknowledgement came 1 m 15 s ago.",
    ),
    (
        "just submitted",
        _pair(Flow.IDLE, queued=2, due_at=_in(0)),
        "active",
        "2 documents to send; the next goes out at once.",
    ),
    (
        "nobody works",
        _pair(Flow.IDLE, queued=1, due_at=_in(-90)),
        "active",
        "1 document to send, and nothing happens. "
        "This was due 1 m 30 s ago: the hub's workers are not doing their work.",
    ),
    (
        "on the wire",
        _pair(Flow.SENDING, queued=1, due_at=_in(50)),
        "active",
        "Message #18 (Invoice) is on the wire (first send). 1 document waits behind it.",
    ),
    (
        "waiting",
        _pair(Flow.AWAITING_ACK, due_at=_in(42)),
        "waiting",
        "Message #18 (Invoice) was handed over (first send); the acknowledgement is awaited. "
        "If none comes, it goes out again in 42 s.",
    ),
    (
        "last retry",
        _pair(Flow.AWAITING_ACK, retries=3, due_at=_in(42), queued=1200),
        "retrying",
        "Message #18 (Invoice) was handed over (retry 3 of 3); the acknowledgement is awaited. "
        "If none comes, the pair is suspended in 42 s. 1,200 documents wait behind it.",
    ),
    (
        "transport recovery",
        _pair(Flow.RESEND_WAIT, transport_attempts=1, due_at=_in(9), cause="connect_refused"),
        "retrying",
        "Message #18 (Invoice) goes out again in 9 s (transport recovery 1 of 2). "
        "The partner's server refused the connection: nothing listens at that address and port.",
    ),
    (
        "could not be handed over",
        _pair(Flow.AWAITING_ACK, retries=1, due_at=_in(60), cause="dns_error"),
        "retrying",
        "Message #18 (Invoice) could not be handed over (retry 1 of 3). "
        "The partner's host name could not be resolved. It goes out again in 1 m.",
    ),
    (
        "the partner asks for a pause",
        _pair(Flow.HOLDING, holding_since=_in(-600), due_at=_in(120), cause="transient_error", queued=3),
        "holding",
        "The partner asked for a pause for 10 m. The partner cannot take messages right now and asked us to wait. "
        "Message #18 (Invoice) goes out again in 2 m. 3 documents wait behind it.",
    ),
    (
        "paused",
        _pair(Flow.IDLE, gate=Gate.PAUSED, queued=7, changed_at=_in(-3600)),
        "paused",
        "Paused by a person for 1 h. Nothing is sent; submissions and the partner's answers are still taken. "
        "7 documents wait.",
    ),
    (
        "disabled",
        _pair(Flow.IDLE, gate=Gate.DISABLED, changed_at=_in(-60)),
        "disabled",
        "Disabled for 1 m. Nothing is sent; submissions and the partner's answers are still taken. Nothing waits.",
    ),
]


@pytest.mark.parametrize(("pair", "state", "sentence"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_each_state_has_its_sentence(terms: Terms, pair: Pair, state: str, sentence: str) -> None:
    found = diagnose(pair, HEAD, terms, NOON)
    assert (found.state, found.sentence) == (state, sentence)


def test_a_suspended_pair_names_message_cause_queue_and_what_to_do(terms: Terms) -> None:
    pair = _pair(Flow.SUSPENDED, cause="ack_timeout", queued=311, changed_at=_in(-11_520))
    pair.in_flight_id = HEAD.pk
    found = diagnose(pair, HEAD, terms, NOON)
    assert found.sentence == (
        "Suspended for 3 h 12 m. Message #18 (Invoice) was tried 4 times. The message was handed over, but no "
        "acknowledgement came, although it was repeated as often as agreed. 311 documents wait behind it. "
        "Nothing is sent until somebody resumes the pair."
    )
    assert found.blocked == 312
    assert found.short == "No acknowledgement"
    assert found.advice.startswith("Ask the partner")


def test_a_pair_that_could_not_even_prepare_names_the_first_in_the_queue(terms: Terms) -> None:
    pair = _pair(Flow.SUSPENDED, cause="payload_missing", queued=3, changed_at=NOON)
    found = diagnose(pair, Message(action="Order"), terms, NOON)
    assert "The message (Order) never went out. The payload's file is not in the store folder" in found.why
    assert found.outlook.startswith("2 documents wait behind it.")
    assert found.blocked == 3


def test_suspended_and_paused_says_both(terms: Terms) -> None:
    pair = _pair(Flow.SUSPENDED, gate=Gate.PAUSED, changed_at=NOON, cause="ack_timeout")
    assert "It is paused as well" in diagnose(pair, None, terms, NOON).outlook


def test_an_inbound_pair_says_what_it_expects(terms: Terms) -> None:
    pair = Pair(direction=Direction.IN, last_sequence=999_999_999, last_success_at=_in(-60))
    assert diagnose(pair, None, terms, NOON).sentence == (
        "The last message was taken 1 m ago. Its sequence number was 999999999. "
        "Number 1 is expected next; a restart at 1 is taken too."
    )


def test_nothing_breaks_without_terms_or_head() -> None:
    for flow in Flow:
        for gate in Gate:
            for head in (None, HEAD):
                pair = _pair(flow, gate=gate, cause="brand_new_cause", queued=1, due_at=NOON)
                pair.in_flight_id = HEAD.pk if head else None
                found = diagnose(pair, head, None, NOON)
                assert found.state in PAIR_LOOKS
                assert found.headline


def test_verbs_are_enabled_exactly_when_the_service_would_take_them(terms: Terms) -> None:
    for flow in Flow:
        for gate in Gate:
            for flying in (True, False):
                pair = _pair(flow, gate=gate)
                pair.in_flight_id = HEAD.pk if flying else None
                enabled = {state.slug for state in verb_states(pair, terms) if state.enabled}
                assert enabled == set(operating.allowed_verbs(pair)), (flow, gate, flying)
                for state in verb_states(pair, terms):
                    assert state.enabled != bool(state.why_not)


def test_retry_now_says_when_the_budget_is_used(terms: Terms) -> None:
    pair = _pair(Flow.AWAITING_ACK, retries=3)
    states = {state.slug: state for state in verb_states(pair, terms)}
    assert states["retry-now"].why_not.startswith("All retries are used")
    states = {state.slug: state for state in verb_states(pair, replace(terms, retries=4))}
    assert states["retry-now"].enabled


def test_the_console_has_every_verb_of_the_service() -> None:
    assert set(VERBS) == {*operating.VERBS, "expect-sequence"}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0 s"),
        (0.9, "0 s"),
        (45, "45 s"),
        (60, "1 m"),
        (61, "1 m 1 s"),
        (3600, "1 h"),
        (3601, "1 h"),
        (11_520, "3 h 12 m"),
        (2 * 86_400 + 4 * 3600 + 59, "2 d 4 h"),
    ],
)
def test_spans_have_two_units(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_causes_are_known_by_their_code_or_make_do() -> None:
    assert all(code == cause.code for code, cause in causes.CAUSES.items())
    odd = causes.lookup("ebms_error_brand_new")
    assert (odd.label, odd.sentence) == ("Ebms error brand new", "Ebms error brand new.")
    assert causes.lookup("").label == "No cause recorded"


# --- transactional streams


@pytest.fixture
def stream_terms(db: None) -> Terms:
    return partner_side(profile="stream", retries=3, max_in_flight=64, resend_schedule="30,60").terms


STREAM_CASES: list[tuple[str, Pair, str, str]] = [
    ("nothing yet", _pair(Flow.IDLE), "active", "Nothing was sent yet."),
    (
        "at rest",
        _pair(Flow.IDLE, last_success_at=_in(-75)),
        "active",
        "Nothing is in flight. The last order acknowledgement came 1 m 15 s ago.",
    ),
    (
        "just submitted",
        _pair(Flow.IDLE, queued=2, due_at=_in(0)),
        "active",
        "2 documents to send; the next go out at once.",
    ),
    (
        "nobody works",
        _pair(Flow.IDLE, queued=1, out_now=3, due_at=_in(-90)),
        "active",
        "3 documents in flight of at most 64; an order acknowledgement is awaited. "
        "This was due 1 m 30 s ago: the hub's workers are not doing their work.",
    ),
    (
        "window full",
        _pair(Flow.IDLE, queued=5, out_now=64, due_at=_in(20)),
        "active",
        "64 documents in flight, and the window is full; an order acknowledgement is awaited. "
        "If none comes, all go out again in 20 s.",
    ),
    (
        "sent again",
        _pair(Flow.IDLE, queued=5, out_now=2, retries=2, cause="connect_refused", due_at=_in(45)),
        "retrying",
        "2 documents in flight of at most 64: sent again 2 times of 3, without an order acknowledgement. "
        "The partner's server refused the connection: nothing listens at that address and port. "
        "If none comes, all go out again in 45 s.",
    ),
    (
        "last resend",
        _pair(Flow.IDLE, out_now=1, retries=3, due_at=_in(45)),
        "retrying",
        "1 document in flight of at most 64: sent again 3 times of 3, without an order acknowledgement. "
        "If none comes, the pair is suspended in 45 s.",
    ),
    (
        "suspended",
        _pair(Flow.SUSPENDED, queued=1, out_now=2, cause="stream_unacknowledged", changed_at=_in(-60)),
        "suspended",
        "Suspended for 1 m. The messages were handed over, but no order acknowledgement came, although all were sent "
        "again as often as agreed. 2 documents are not acknowledged; an acknowledgement that still comes counts. "
        "1 document waits behind it. Nothing is sent until somebody resumes the pair.",
    ),
]


@pytest.mark.parametrize(
    ("pair", "state", "sentence"), [case[1:] for case in STREAM_CASES], ids=[c[0] for c in STREAM_CASES]
)
def test_the_sentence_of_a_pair_with_a_stream(pair: Pair, state: str, sentence: str, stream_terms: Terms) -> None:
    found = diagnose(pair, None, stream_terms, NOON)
    assert found.state == state
    assert found.sentence.startswith(sentence)


@pytest.mark.parametrize(
    ("pair", "possible"),
    [
        (_pair(Flow.IDLE), {"restart-sequence", "pause"}),
        (_pair(Flow.IDLE, out_now=2), {"retry-now", "skip-head", "pause"}),
        (_pair(Flow.SUSPENDED, out_now=2), {"resume", "skip-head", "restart-sequence", "pause"}),
        (_pair(Flow.SUSPENDED), {"resume", "restart-sequence", "pause"}),
        (_pair(Flow.IDLE, gate=Gate.PAUSED), {"restart-sequence", "release"}),
    ],
)
def test_the_verbs_of_a_pair_with_a_stream(pair: Pair, possible: set[str], stream_terms: Terms) -> None:
    states = verb_states(pair, stream_terms)
    assert {state.slug for state in states if state.enabled} == possible
    assert all(state.why_not for state in states if not state.enabled)
