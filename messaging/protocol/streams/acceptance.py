"""Which messages of a transactional stream are new: spec 3 (3.1.5.8.6), its two rules and nothing else.

A pure function of (what was last accepted from this sender, what arrived). `RULES` is the whole policy: one row a rule,
tried in this order, the first that applies decides. Only two rows accept; the others say why not, because what is
merely early is held back for a moment before it is judged, and the rest is not.

Spec 3's last paragraph sets the incoming state after every message. Read so, a repeat of message 3 would make message 4
acceptable a second time; "exactly once" stands in the same section, so the state moves on acceptance only (M13).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from messaging.protocol.streams.envelope import FIRST_NUMBER, LAST_ID, LAST_NUMBER, NO_PREVIOUS


class Verdict(StrEnum):
    """What becomes of a message."""

    ACCEPT = "accept"
    DUPLICATE = "duplicate"  # its number was accepted, or passed over for good
    GAP = "gap"  # what it follows is not there (yet)
    OLD = "old"  # of a stream that its sender has ended
    MALFORMED = "malformed"


@dataclass(frozen=True, slots=True)
class Incoming:
    """What one sender has got accepted: IncomingTxSequenceID and IncomingTxSequenceNumber, 0 before the first.

    `reject_count` counts what was not accepted since the last acceptance; `last_access_at` is the last arrival.
    """

    tx_sequence_id: int = 0
    number: int = 0
    reject_count: int = 0
    last_access_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Arrival:
    """The numbers of one message: TxSequenceID, TxSequenceNumber, PreviousTxSequenceNumber (0 = none)."""

    tx_sequence_id: int
    number: int
    previous: int


@dataclass(frozen=True, slots=True)
class Decision:
    """The verdict and the state to keep, whatever the verdict is: also what is refused is counted."""

    verdict: Verdict
    rule: str
    state: Incoming

    @property
    def accepted(self) -> bool:
        return self.verdict is Verdict.ACCEPT


@dataclass(frozen=True, slots=True)
class Rule:
    """One row: its name, where it comes from, when it applies and what it decides."""

    name: str
    source: str
    applies: Callable[[Incoming, Arrival], bool]
    verdict: Verdict


def _malformed(state: Incoming, arrival: Arrival) -> bool:
    return not (
        1 <= arrival.tx_sequence_id <= LAST_ID
        and FIRST_NUMBER <= arrival.number <= LAST_NUMBER
        and NO_PREVIOUS <= arrival.previous < arrival.number
    )


RULES: tuple[Rule, ...] = (
    Rule("malformed", "[MS-MQMQ] 2.2.20.5; M17", _malformed, Verdict.MALFORMED),
    Rule(
        "same-stream",
        "spec 3, first condition",
        lambda s, a: a.tx_sequence_id == s.tx_sequence_id and a.number > s.number and a.previous <= s.number,
        Verdict.ACCEPT,
    ),
    Rule(
        "new-stream",
        "spec 3, second condition",
        lambda s, a: a.tx_sequence_id > s.tx_sequence_id and a.previous == NO_PREVIOUS,
        Verdict.ACCEPT,
    ),
    # Not accepted (spec 3: neither condition is true). From here on the rows only tell the reasons apart.
    Rule("older-stream", "protocols 3.3; M11", lambda s, a: a.tx_sequence_id < s.tx_sequence_id, Verdict.OLD),
    Rule("head-missing", "protocols 3.3; M10, M16", lambda s, a: a.tx_sequence_id > s.tx_sequence_id, Verdict.GAP),
    Rule("number-passed", "protocols 3.3; M03, M04, M07", lambda s, a: a.number <= s.number, Verdict.DUPLICATE),
    Rule("previous-missing", "protocols 3.3; M05", lambda s, a: True, Verdict.GAP),
)


def _rule(state: Incoming, arrival: Arrival) -> Rule:
    for rule in RULES:
        if rule.applies(state, arrival):
            return rule
    raise AssertionError("the last rule always applies")


def decide(state: Incoming, arrival: Arrival, now: datetime) -> Decision:
    """The first rule that applies decides. Never raises.

    TxMessageRejectCount is zero after an acceptance and one more after anything else; LastAccessTime is `now` (M18).
    """
    rule = _rule(state, arrival)
    if rule.verdict is Verdict.ACCEPT:
        return Decision(rule.verdict, rule.name, Incoming(arrival.tx_sequence_id, arrival.number, 0, now))
    counted = replace(state, reject_count=state.reject_count + 1, last_access_at=now)
    return Decision(rule.verdict, rule.name, counted)


def may_follow(state: Incoming, arrival: Arrival) -> bool:
    """Whether it only came early: what it follows may still arrive. Counts nothing."""
    return _rule(state, arrival).verdict is Verdict.GAP
