"""Which received messages are new: spec 1, section 5.2, with the MessageId check of section 5.1 (9).

A pure function of (what the pair last accepted, what was received, what is remembered).
`RULES` is the whole policy: one row a rule, tried in this order, the first that applies decides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from messaging.protocol.envelope import MAX_SEQUENCE_NUMBER, Envelope, ErrorInfo, Semantics
from messaging.protocol.errors import ErrorCode, Severity


class Verdict(StrEnum):
    """What becomes of a received message."""

    ACCEPT = "accept"
    DUPLICATE = "duplicate"
    REJECT = "reject"


@dataclass(frozen=True, slots=True)
class InboundState:
    """The last reliable message that was accepted from this Sender; None and "" before the first.

    `any_number`: that memory was lost, and more may have been accepted since: the next message says where the Sender
    is.
    """

    last_sequence: int | None = None
    last_message_id: str = ""
    any_number: bool = False


@dataclass(frozen=True, slots=True)
class Received:
    """What acceptance needs to know of one message.

    `known`: this MessageId is already stored from this authenticated sender.
    `same_octets`: the stored copy had the same bytes; `known_number`: the number that it came under (when known).
    `by_other_road`: the stored copy came by another profile, which has no numbers.
    """

    message_id: str
    semantics: Semantics
    sequence: int | None
    known: bool
    same_octets: bool = True
    defect: ErrorInfo | None = None
    known_number: int | None = None
    by_other_road: bool = False


@dataclass(frozen=True, slots=True)
class AcceptancePolicy:
    """Switches of the agreement (docs/decisions.md: ruling C7; conformance E11, E12)."""

    strict_sequence: bool = False
    detect_repeats: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """The verdict and all that follows from it.

    `acknowledge`: an Acknowledgement is owed (every reliable message that is stored, repeats too: 2.1.3 (4)).
    `error`: the Error message that is owed. `incident`/`warning`: cause codes for people.
    """

    verdict: Verdict
    rule: str
    state: InboundState
    acknowledge: bool = False
    error: ErrorInfo | None = None
    incident: str = ""
    warning: str = ""


Applies = Callable[[InboundState, Received, AcceptancePolicy], bool]
Decide = Callable[[InboundState, Received], Decision]


@dataclass(frozen=True, slots=True)
class Rule:
    """One row: its name, where it comes from, when it applies and what it decides."""

    name: str
    source: str
    applies: Applies
    decide: Decide


def _accept(rule: str) -> Decide:
    def decide(state: InboundState, received: Received) -> Decision:
        moved = InboundState(received.sequence, received.message_id)
        return Decision(Verdict.ACCEPT, rule, moved, acknowledge=True)

    return decide


def _accept_unreliable(state: InboundState, received: Received) -> Decision:
    return Decision(Verdict.ACCEPT, "unreliable", state)


def _repeat_unreliable(state: InboundState, received: Received) -> Decision:
    return Decision(Verdict.DUPLICATE, "unreliable-repeat", state)


def _repeat(rule: str) -> Decide:
    def decide(state: InboundState, received: Received) -> Decision:
        warning = "" if received.same_octets else "same_id_other_content"
        return Decision(Verdict.DUPLICATE, rule, state, acknowledge=True, warning=warning)

    return decide


def _repeat_after_restart(state: InboundState, received: Received) -> Decision:
    # The octets differ, for the number does; the sender counts on from 1, so number 2 has to be the next here too.
    moved = InboundState(received.sequence, received.message_id)
    return Decision(Verdict.DUPLICATE, "restarted", moved, acknowledge=True)


def _repeat_by_other_road(state: InboundState, received: Received) -> Decision:
    # It is stored and takes its place in the sequence now, or everything that follows it here would be out of order.
    moved = InboundState(received.sequence, received.message_id)
    warning = "" if received.same_octets else "same_id_other_content"
    return Decision(Verdict.DUPLICATE, "by-other-road", moved, acknowledge=True, warning=warning)


def _refuse_defect(state: InboundState, received: Received) -> Decision:
    return Decision(Verdict.REJECT, "defect", state, error=received.defect)


def _refuse_other_id(state: InboundState, received: Received) -> Decision:
    # Section 5.2 (2) is not normative and would acknowledge; but an Ack says "stored" (2.1.3), and this is not.
    error = ErrorInfo(
        code=ErrorCode.INCONSISTENT,
        severity=Severity.ERROR,
        description=(
            f"SequenceNumber {received.sequence} was already taken by message {state.last_message_id}; "
            f"{received.message_id} is another message"
        ),
        location="/ebXMLHeader/RoutingHeader[last()]/SequenceNumber",
    )
    return Decision(
        Verdict.REJECT, "number-taken-by-other-id", state, error=error, incident="sequence_taken_by_other_message"
    )


def _refuse_number(state: InboundState, received: Received) -> Decision:
    last = state.last_sequence
    if received.sequence is None:
        expected = "a number from 1 to 999999999 is required for OnceAndOnlyOnce"
    elif last is None:
        expected = "nothing accepted yet, so 1 expected"
    else:
        following = 1 if last == MAX_SEQUENCE_NUMBER else last + 1
        expected = f"last accepted {last}, so {following} (next), {last} (repeat) or 1 (reset) expected"
    error = ErrorInfo(
        code=ErrorCode.INVALID_SEQUENCE_NUMBER,
        severity=Severity.ERROR,
        description=f"SequenceNumber {received.sequence} received; {expected}",
        location="/ebXMLHeader/RoutingHeader[last()]/SequenceNumber",
    )
    return Decision(Verdict.REJECT, "invalid-number", state, error=error, incident="out_of_sequence")


def _unreliable(received: Received) -> bool:
    return received.semantics is not Semantics.ONCE_AND_ONLY_ONCE


def _literal_case_4(state: InboundState, received: Received) -> bool:
    """Section 5.2 case (4): neither next, nor repeat, nor 1."""
    last = state.last_sequence
    return received.sequence not in ({1} if last is None else {1, last, last + 1})


RULES: tuple[Rule, ...] = (
    Rule("defect", "wire-ebxml 1.9", lambda s, r, p: r.defect is not None, _refuse_defect),
    Rule(
        "unreliable-repeat",
        "spec 1, 3.1.2 and 3.1.3; ruling C7",
        lambda s, r, p: _unreliable(r) and r.known and (p.detect_repeats or r.semantics is Semantics.AT_MOST_ONCE),
        _repeat_unreliable,
    ),
    Rule("unreliable", "spec 1, 2.2.1", lambda s, r, p: _unreliable(r), _accept_unreliable),
    Rule(
        "out-of-range",
        "spec 1, 2.2.2",
        lambda s, r, p: r.sequence is None or not 1 <= r.sequence <= MAX_SEQUENCE_NUMBER,
        _refuse_number,
    ),
    Rule(
        "strict-old-number",
        "spec 1, 5.2 (4), literally",
        lambda s, r, p: p.strict_sequence and not s.any_number and _literal_case_4(s, r),
        _refuse_number,
    ),
    # A stored message that comes again under another number, as number 1 or as the next: its sender restarted the
    # sequence (2.2.2 c), because our acknowledgement or error was lost, or its memory of what it had sent since a
    # backup. A stray copy of an old number 1 is not meant.
    Rule(
        "restarted",
        "spec 1, 2.2.2 c with 5.1 (9)",
        lambda s, r, p: (
            r.known and r.known_number not in (None, r.sequence) and r.sequence in (1, (s.last_sequence or 0) + 1)
        ),
        _repeat_after_restart,
    ),
    Rule(
        "by-other-road",
        "conformance X01 with spec 1, 5.2 (1) and (3)",
        lambda s, r, p: r.known and r.by_other_road and r.sequence in (1, (s.last_sequence or 0) + 1),
        _repeat_by_other_road,
    ),
    # Before the numbers: a late copy of an old message is a repeat, whatever its number (closes the hole of (3)).
    Rule("known-id", "spec 1, 5.1 (9) and 5.2", lambda s, r, p: r.known, _repeat("known-id")),
    # Without the last number none of the cases of 5.2 can be told apart. What is not known by its id is taken, for a
    # message that is waited for would be refused for ever otherwise; whoever gets it learns that it may be a repeat.
    Rule("numbers-lost", "spec 1, 5.1 (9); conformance X22", lambda s, r, p: s.any_number, _accept("numbers-lost")),
    Rule(
        "next",
        "spec 1, 5.2 (1)",
        lambda s, r, p: s.last_sequence is not None and r.sequence == s.last_sequence + 1,
        _accept("next"),
    ),
    Rule(
        "repeat",
        "spec 1, 5.2 (2)",
        lambda s, r, p: r.sequence == s.last_sequence and r.message_id == s.last_message_id,
        _repeat("repeat"),
    ),
    Rule(
        "both-one",
        "spec 1, 5.2 (2), both numbers 1",
        lambda s, r, p: r.sequence == s.last_sequence == 1,
        _accept("both-one"),
    ),
    Rule(
        "number-taken-by-other-id",
        "spec 1, 2.1.3 over 5.2 (2); conformance E13",
        lambda s, r, p: r.sequence == s.last_sequence,
        _refuse_other_id,
    ),
    Rule("first", "spec 1, 5.2 (3)", lambda s, r, p: r.sequence == 1, _accept("first")),
    Rule("invalid-number", "spec 1, 5.2 (4)", lambda s, r, p: True, _refuse_number),
)


def decide(state: InboundState, received: Received, policy: AcceptancePolicy) -> Decision:
    """The first rule that applies decides. Never raises.

    The state moves when a reliable message is accepted, and when its sender restarts the sequence with a known one.
    """
    for rule in RULES:
        if rule.applies(state, received, policy):
            return replace(rule.decide(state, received), rule=rule.name)
    raise AssertionError("the last rule always applies")


def received_from(
    envelope: Envelope,
    *,
    known: bool,
    same_octets: bool = True,
    known_number: int | None = None,
    by_other_road: bool = False,
    at_most_once: bool = False,
) -> Received:
    """What acceptance needs of a decoded Normal message. `at_most_once`: the agreement says so (no wire value)."""
    semantics = envelope.semantics
    if at_most_once and semantics is Semantics.BEST_EFFORT:
        semantics = Semantics.AT_MOST_ONCE
    defect = None
    if fault := envelope.fault:
        defect = ErrorInfo(fault.code, fault.severity, fault.description, fault.location)
    return Received(
        message_id=envelope.message_id,
        semantics=semantics,
        sequence=envelope.hop.sequence_number,
        known=known,
        same_octets=same_octets,
        defect=defect,
        known_number=known_number,
        by_other_road=by_other_road,
    )
