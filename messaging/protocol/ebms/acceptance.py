"""Which received messages are new, and whose turn they are: ebXML Messaging 2.0, sections 6 and 9.

A pure function of (where the conversation is, what was received, what is remembered). `RULES` is the whole policy: one
row a rule, tried in this order, the first that applies decides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from messaging.protocol.codecs.ebms2_lexical import MAX_ORDER
from messaging.protocol.envelope import ErrorInfo, MessageOrder
from messaging.protocol.errors import ErrorCode, Severity

MAX_HELD = 1000  # messages of one conversation that wait for one before them


class Verdict(StrEnum):
    """What becomes of a received message."""

    ACCEPT = "accept"
    HOLD = "hold"  # stored and acknowledged; handed on when what comes before it is here
    DUPLICATE = "duplicate"
    REJECT = "reject"


@dataclass(frozen=True, slots=True)
class Conversation:
    """What has been handed on of one conversation that has an order.

    `last`: the number that was handed on last, None before the first. `held`: the numbers that wait.
    `any_number`: that memory was lost, so the next number says where its sender is.
    """

    last: int | None = None
    held: frozenset[int] = frozenset()
    any_number: bool = False


@dataclass(frozen=True, slots=True)
class Received:
    """What acceptance needs to know of one message.

    `acknowledge`: it asks for an acknowledgement. `once`: copies are recognised by their MessageId, because the message
    or its agreement says so. `known`: this MessageId is stored already from this authenticated sender; `same_content`:
    with the same content. `expired`: its TimeToLive is over. `defect`: the first thing in it that is wrong.
    `order`: None where its conversation has none.
    """

    acknowledge: bool
    once: bool
    known: bool = False
    same_content: bool = True
    expired: bool = False
    defect: ErrorInfo | None = None
    order: MessageOrder | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The verdict and all that follows from it.

    `acknowledge`: an acknowledgement is owed. `error`: the error that is owed. `given_up`: the held messages, by their
    numbers, whose turn will not come any more: they are handed on before this one.
    `incident`, `warning`: cause codes for people.
    """

    verdict: Verdict
    conversation: Conversation
    rule: str = ""
    acknowledge: bool = False
    error: ErrorInfo | None = None
    given_up: tuple[int, ...] = ()
    incident: str = ""
    warning: str = ""


Applies = Callable[[Conversation, Received], bool]
Decide = Callable[[Conversation, Received], Decision]


@dataclass(frozen=True, slots=True)
class Rule:
    """One row: its name, where it comes from, when it applies and what it decides; `verdict` says it in a word."""

    name: str
    source: str
    verdict: Verdict
    applies: Applies
    decide: Decide = field(repr=False)


def _reject(code: ErrorCode, description: str, location: str, incident: str = "") -> Decide:
    def decide(known: Conversation, received: Received) -> Decision:
        number = received.order.sequence_number if received.order is not None else ""
        said = description.format(number=number, last=known.last, held=len(known.held))
        error = ErrorInfo(code, Severity.ERROR, said, location)
        return Decision(Verdict.REJECT, known, error=error, incident=incident)

    return decide


def _refuse_defect(known: Conversation, received: Received) -> Decision:
    return Decision(Verdict.REJECT, known, error=received.defect)


def _repeat(known: Conversation, received: Received) -> Decision:
    warning = "" if received.same_content else "same_id_other_content"
    return Decision(Verdict.DUPLICATE, known, acknowledge=received.acknowledge, warning=warning)


def _accept(known: Conversation, received: Received) -> Decision:
    return Decision(Verdict.ACCEPT, known, acknowledge=received.acknowledge)


def _reset(known: Conversation, received: Received) -> Decision:
    if known.last is None:
        return _next(known, received)  # what waits has overtaken the beginning
    # What waits belongs to the numbers before, of which none comes any more.
    moved = Conversation(_number(received))
    incident = "order_given_up" if known.held else ""
    return Decision(
        Verdict.ACCEPT,
        moved,
        acknowledge=received.acknowledge,
        given_up=tuple(sorted(known.held)),
        incident=incident,
    )


def _next(known: Conversation, received: Received) -> Decision:
    number = _number(received)
    # Where any number is the next, its sender is past what waits below it. That it was handed on is forgotten, like all
    # else of that time, of which people are told.
    passed = tuple(sorted(held for held in known.held if held <= number))
    moved = Conversation(number, known.held.difference(passed))
    return Decision(Verdict.ACCEPT, moved, acknowledge=received.acknowledge, given_up=passed)


def _hold(known: Conversation, received: Received) -> Decision:
    moved = replace(known, held=known.held | {_number(received)})
    return Decision(Verdict.HOLD, moved, acknowledge=received.acknowledge)


def _number(received: Received) -> int:
    assert received.order is not None, "the rules before take what has no order"
    return received.order.sequence_number


def _is_next(known: Conversation, received: Received) -> bool:
    expected = 0 if known.last is None else known.last + 1
    return known.any_number or _number(received) == expected


_ORDER = "/Envelope/Header/MessageOrder/SequenceNumber"
_TIME_TO_LIVE = "/Envelope/Header/MessageHeader/MessageData/TimeToLive"

_V = Verdict
RULES: tuple[Rule, ...] = (
    Rule("defect", "4.2", _V.REJECT, lambda c, r: r.defect is not None, _refuse_defect),
    # Before its time and its turn are looked at: it came in time, and its sender only wants to know so again.
    Rule("known-id", "6.4.1, 6.5.3", _V.DUPLICATE, lambda c, r: r.known and r.once, _repeat),
    Rule(
        "expired",
        "3.1.6.4",
        _V.REJECT,
        lambda c, r: r.expired,
        _reject(ErrorCode.TIME_TO_LIVE_EXPIRED, "The message came after the end of its TimeToLive.", _TIME_TO_LIVE),
    ),
    Rule("without-order", "6", _V.ACCEPT, lambda c, r: r.order is None, _accept),
    Rule(
        "out-of-range",
        "9.1",
        _V.REJECT,
        lambda c, r: not 0 <= _number(r) <= MAX_ORDER,
        _reject(ErrorCode.INCONSISTENT, "SequenceNumber {number} is not from 0 to 99999999.", _ORDER),
    ),
    Rule(
        "reset-not-zero",
        "9.1",
        _V.REJECT,
        lambda c, r: r.order is not None and r.order.reset and _number(r) != 0,
        _reject(ErrorCode.INCONSISTENT, "SequenceNumber {number} with status Reset; a reset has number 0.", _ORDER),
    ),
    Rule("reset", "9.1", _V.ACCEPT, lambda c, r: r.order is not None and r.order.reset, _reset),
    Rule("next", "9.1.1", _V.ACCEPT, _is_next, _next),
    Rule(
        "passed",
        "9.1.1",
        _V.REJECT,
        lambda c, r: c.last is not None and _number(r) <= c.last,
        _reject(
            ErrorCode.INCONSISTENT,
            "SequenceNumber {number} has had its turn: {last} was the last one that was handed on.",
            _ORDER,
            "order_number_taken",
        ),
    ),
    Rule(
        "waits-already",
        "9.1.1",
        _V.REJECT,
        lambda c, r: _number(r) in c.held,
        _reject(
            ErrorCode.INCONSISTENT,
            "SequenceNumber {number} was taken before, as another message, which waits for its turn.",
            _ORDER,
            "order_number_taken",
        ),
    ),
    Rule(
        "too-many",
        "9.1.1",
        _V.REJECT,
        lambda c, r: len(c.held) >= MAX_HELD,
        _reject(
            ErrorCode.DELIVERY_FAILURE,
            "{held} messages of the conversation wait for what comes before them, and no more may.",
            _ORDER,
            "order_gap",
        ),
    ),
    Rule("early", "9.1.1", _V.HOLD, lambda c, r: True, _hold),
)


def decide(known: Conversation, received: Received) -> Decision:
    """The first rule that applies decides. Never raises."""
    for rule in RULES:
        if rule.applies(known, received):
            return replace(rule.decide(known, received), rule=rule.name)
    raise AssertionError("the last rule always applies")


def released(known: Conversation) -> tuple[Conversation, tuple[int, ...]]:
    """The conversation after all that can be handed on now is, and the numbers of that, in their order."""
    last, turn = known.last, []
    while last is not None and last + 1 in known.held:
        last += 1
        turn.append(last)
    return replace(known, last=last, held=known.held.difference(turn)), tuple(turn)
