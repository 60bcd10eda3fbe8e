"""Exactly-once processing of documents by the services of triggers: spec 4.

Two pure decisions about whether a document is NEW, a DUPLICATE or IN DOUBT: `decide`, and `conclude` with a resolver's
answer. Each is a table, and each row names its source. What a service's end leads to is in `service_ends`, the life of
a delivery in `delivery_moves`.

The life of a delivery: one document on its way to one trigger. `MOVES` is every move that exists.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from messaging.protocol.errors import IllegalTransition

MAX_DOCUMENT_ID = 96  # characters (protocols 4.2)
_UNWRITABLE = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


class Status(StrEnum):
    """What is known of a document (spec 4)."""

    NEW = "new"
    DUPLICATE = "duplicate"
    IN_DOUBT = "in_doubt"
    UNCHECKED = "unchecked"  # no duplicate detection: executed, whatever was executed before


class Entry(StrEnum):
    """What the document history says of (trigger, sender, document id)."""

    ABSENT = "absent"
    STARTED = "started"
    COMPLETED = "completed"
    UNUSABLE_ID = "unusable_id"  # `document_id` found none
    UNREACHABLE = "unreachable"


class Answer(StrEnum):
    """How a resolver ended."""

    NEW = "new"
    DUPLICATE = "duplicate"
    IN_DOUBT = "in_doubt"
    TRANSIENT = "transient"  # could not say now
    FAILED = "failed"  # ended with any other error
    NONSENSE = "nonsense"  # said something that is none of the three


class Doubt(StrEnum):
    """Why a document is in doubt: what those that are settled together have in common (`Decision.group`)."""

    REDELIVERED = "redelivered_without_memory"
    STARTED = "started_not_completed"
    UNUSABLE_ID = "unusable_id"
    HISTORY_UNREACHABLE = "history_unreachable"
    MEMORY_LOST = "memory_lost"
    RESOLVER_IN_DOUBT = "resolver_in_doubt"
    RESOLVER_FAILED = "resolver_failed"
    RESOLVER_NONSENSE = "resolver_nonsense"
    MISFIT = "does_not_fit_schema"


@dataclass(frozen=True, slots=True)
class Properties:
    """Exactly-once properties of a trigger (protocols 4.1).

    `resolver_failure_suspends`: a resolver or a history that cannot answer now suspends the trigger
    (suspendAndRetryOnError). `retry_suspends`: on retry failure, suspend and retry later, which does the same.
    """

    detect_duplicates: bool = True
    use_history: bool = True
    has_resolver: bool = False
    resolver_failure_suspends: bool = True
    retry_suspends: bool = False


@dataclass(frozen=True, slots=True)
class Evidence:
    """One step of the decision, as people read it and as it is stored (`dataclasses.asdict`).

    `step`: redelivery, history, memory, schema, resolver or operator. `finding`: what it found: first, redelivered,
    undefined, not_looked_at; misfit; an `Entry`; lost; an `Answer`; resubmitted. `verdict`: the `Status` that this step
    settled, "suspend" when it could not be taken now, or "" when the next step had to be asked.
    """

    step: str
    finding: str
    verdict: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be done with a document, and why.

    `status` is None while it is open: then either the resolver has to be asked (`ask_resolver`, and `conclude` goes
    on with its answer) or the trigger is suspended and the document decided again later (`suspend`).
    `group`: a `Doubt` when it is in doubt, else "".
    """

    status: Status | None
    ask_resolver: bool
    suspend: bool
    evidence: tuple[Evidence, ...]
    group: str = ""


SUSPEND = "suspend"


@dataclass(frozen=True, slots=True)
class Asked:
    """What `decide` was asked. `entry` is None when the history was not looked at. `memory_lost`: the document may have
    been processed in a time that the database knows nothing of. `held`: it does not fit its schema, and
    waits for a person.
    """

    guaranteed: bool
    redelivery_count: int
    entry: Entry | None
    operator_override: bool
    memory_lost: bool = False
    held: bool = False


Applies = Callable[[Properties, Asked], bool]
Decide = Callable[[Properties, Asked], Decision]


@dataclass(frozen=True, slots=True)
class Rule:
    """One row: its name, where it comes from, when it applies and what it decides."""

    name: str
    source: str
    applies: Applies
    decide: Decide


def _redelivery(asked: Asked) -> Evidence:
    count = asked.redelivery_count
    if count == 0:
        return Evidence("redelivery", "first", detail="Handed over for the first time.")
    if count > 0:
        return Evidence(
            "redelivery", "redelivered", detail=f"Handed over {count} {'time' if count == 1 else 'times'} before."
        )
    return Evidence("redelivery", "undefined", detail="Nobody counts how often it was handed over.")


_HISTORY = {
    Entry.ABSENT: "This trigger has not begun with it.",
    Entry.STARTED: "This trigger began with it, and no end was recorded.",
    Entry.COMPLETED: "This trigger has processed it.",
    Entry.UNUSABLE_ID: f"It has no id of 1 to {MAX_DOCUMENT_ID} characters, so the history cannot know it.",
    Entry.UNREACHABLE: "The document history could not be read.",
}


_LOST = "The hub's database was restored, and does not know what was processed before that: it may have been."


def _found(asked: Asked) -> tuple[Evidence, ...]:
    """The evidence so far: the redelivery count, and the history's entry when it was looked at."""
    found = [_redelivery(asked)]
    if asked.entry is not None:
        found.append(Evidence("history", asked.entry.value, detail=_HISTORY[asked.entry]))
    if asked.memory_lost:
        found.append(Evidence("memory", "lost", detail=_LOST))
    return tuple(found)


def _settled(status: Status, evidence: tuple[Evidence, ...], group: str = "") -> Decision:
    """The last step of `evidence` settles it."""
    last = replace(evidence[-1], verdict=status.value)
    return Decision(status, ask_resolver=False, suspend=False, evidence=(*evidence[:-1], last), group=group)


def _suspended(evidence: tuple[Evidence, ...]) -> Decision:
    last = replace(evidence[-1], verdict=SUSPEND)
    return Decision(None, ask_resolver=False, suspend=True, evidence=(*evidence[:-1], last))


def _is(status: Status, group: str = "") -> Decide:
    return lambda properties, asked: _settled(status, _found(asked), group)


def _ask(properties: Properties, asked: Asked) -> Decision:
    return Decision(None, ask_resolver=True, suspend=False, evidence=_found(asked))


def _later(properties: Properties, asked: Asked) -> Decision:
    return _suspended(_found(asked))


def _override(properties: Properties, asked: Asked) -> Decision:
    return _settled(Status.NEW, (Evidence("operator", "resubmitted", detail="Resubmitted by a person."),))


def _unchecked(properties: Properties, asked: Asked) -> Decision:
    why = "The document is not guaranteed." if asked.guaranteed is False else "The trigger does not detect duplicates."
    return _settled(Status.UNCHECKED, (Evidence("redelivery", "not_looked_at", detail=why),))


def _held(properties: Properties, asked: Asked) -> Decision:
    why = "It does not fit the schema of its service and action, which holds such documents."
    return _settled(Status.IN_DOUBT, (Evidence("schema", "misfit", detail=why),), Doubt.MISFIT)


def _waits_for_resources(properties: Properties) -> bool:
    return properties.resolver_failure_suspends or properties.retry_suspends


RULES: tuple[Rule, ...] = (
    Rule("resubmitted", "spec 4, step 3, note", lambda p, a: a.operator_override, _override),
    # What was processed is a duplicate, whatever it looks like.
    Rule("held", "docs/console.md, Schemas", lambda p, a: a.held and a.entry is not Entry.COMPLETED, _held),
    # A volatile document is asked about all the same where its sender's repeats are discarded: they may be forgotten.
    Rule(
        "not-checked",
        "spec 4, note",
        lambda p, a: not p.detect_duplicates or not (a.guaranteed or a.memory_lost),
        _unchecked,
    ),
    Rule(
        "not-in-history",
        "spec 4, step 2",
        lambda p, a: a.entry is Entry.ABSENT and not a.memory_lost,
        _is(Status.NEW),
    ),
    Rule("completed", "spec 4, step 2", lambda p, a: a.entry is Entry.COMPLETED, _is(Status.DUPLICATE)),
    Rule(
        "history-suspends",
        "protocols 4.5",
        lambda p, a: a.entry is Entry.UNREACHABLE and _waits_for_resources(p),
        _later,
    ),
    Rule(
        "no-history",
        "protocols 4.5",
        lambda p, a: a.entry is Entry.UNREACHABLE,
        _is(Status.IN_DOUBT, Doubt.HISTORY_UNREACHABLE),
    ),
    Rule("ask-about-entry", "spec 4, step 3", lambda p, a: a.entry is not None and p.has_resolver, _ask),
    Rule("ask-about-lost-memory", "spec 4, step 3; X22", lambda p, a: a.memory_lost and p.has_resolver, _ask),
    Rule(
        "memory-lost",
        "spec 2, memory start, for spec 4; X22",
        lambda p, a: a.memory_lost,
        _is(Status.IN_DOUBT, Doubt.MEMORY_LOST),
    ),
    Rule("started", "spec 4, step 2", lambda p, a: a.entry is Entry.STARTED, _is(Status.IN_DOUBT, Doubt.STARTED)),
    Rule(
        "unusable-id",
        "protocols 4.2",
        lambda p, a: a.entry is Entry.UNUSABLE_ID,
        _is(Status.IN_DOUBT, Doubt.UNUSABLE_ID),
    ),
    # From here on without history.
    Rule("first-delivery", "spec 4, step 1, 0", lambda p, a: a.redelivery_count == 0, _is(Status.NEW)),
    Rule("ask-about-redelivery", "spec 4, step 3", lambda p, a: p.has_resolver, _ask),
    Rule(
        "redelivered",
        "spec 4, step 1, > 0",
        lambda p, a: a.redelivery_count > 0,
        _is(Status.IN_DOUBT, Doubt.REDELIVERED),
    ),
    Rule("undefined", "spec 4, step 1, -1", lambda p, a: True, _is(Status.NEW)),
)


def decide(
    properties: Properties,
    *,
    guaranteed: bool,
    redelivery_count: int,
    entry: Entry | None,
    operator_override: bool = False,
    memory_lost: bool = False,
    held: bool = False,
) -> Decision:
    """Redelivery count, then document history: the first rule of `RULES` that applies decides.

    `redelivery_count`: how often the document was handed over before, below 0 = undefined. `entry`: what the history
    says; it counts only for triggers that use it. `operator_override`: a person resubmitted the document.
    `memory_lost`: it may have been processed before in a time that a restored database has forgotten. `held`: it does
    not fit its schema, so that a person decides.
    Raises ValueError when the trigger uses its history and nobody looked: no rule may guess then.
    """
    checked = properties.detect_duplicates and guaranteed and not operator_override
    if not (checked and properties.use_history):
        entry = None
    elif entry is None:
        raise ValueError("the trigger uses the document history: look into it before deciding")
    asked = Asked(guaranteed, redelivery_count, entry, operator_override, memory_lost, held)
    for rule in RULES:
        if rule.applies(properties, asked):
            return rule.decide(properties, asked)
    raise AssertionError("the last rule always applies")


def redelivered(count: int) -> int:
    """The redelivery count after this hub handed the document over once more. What was undefined no longer is."""
    return max(count, 0) + 1


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What an answer of the resolver means, and where that is said. `waits`: unless the trigger is to be suspended."""

    status: Status
    source: str
    group: str = ""
    waits: bool = False


CONCLUSIONS: Mapping[Answer, Conclusion] = {
    Answer.NEW: Conclusion(Status.NEW, "spec 4, step 3"),
    Answer.DUPLICATE: Conclusion(Status.DUPLICATE, "spec 4, step 3"),
    Answer.IN_DOUBT: Conclusion(Status.IN_DOUBT, "spec 4, step 3", Doubt.RESOLVER_IN_DOUBT),
    Answer.TRANSIENT: Conclusion(Status.IN_DOUBT, "protocols 4.4; W22, W23", Doubt.RESOLVER_FAILED, waits=True),
    Answer.FAILED: Conclusion(Status.IN_DOUBT, "protocols 4.4; W24", Doubt.RESOLVER_FAILED),
    Answer.NONSENSE: Conclusion(Status.IN_DOUBT, "protocols 4.4; W25", Doubt.RESOLVER_NONSENSE),
}


def conclude(properties: Properties, decision: Decision, answer: Answer, detail: str = "") -> Decision:
    """The decision with the resolver's answer. Only the answer NEW makes a document new.

    `detail`: the resolver's message, or what went wrong. Raises ValueError for a decision that asks no resolver.
    """
    if not decision.ask_resolver:
        raise ValueError("this decision does not wait for a resolver")
    evidence = (*decision.evidence, Evidence("resolver", answer.value, detail=detail))
    conclusion = CONCLUSIONS[answer]
    if conclusion.waits and _waits_for_resources(properties):
        return _suspended(evidence)
    return _settled(conclusion.status, evidence, conclusion.group)


_WORDS: Mapping[str, Answer] = {
    "new": Answer.NEW,
    "duplicate": Answer.DUPLICATE,
    "in doubt": Answer.IN_DOUBT,
    "in_doubt": Answer.IN_DOUBT,
}


def read_answer(text: object) -> Answer:
    """The status that a resolver gave: NEW, DUPLICATE, IN DOUBT or IN_DOUBT in any case; all else is NONSENSE."""
    return _WORDS.get(text.strip().lower(), Answer.NONSENSE) if isinstance(text, str) else Answer.NONSENSE


def document_id(*candidates: str) -> str | None:
    """The id under which the history knows a document: the first that is not empty; None when that is too long.

    One that is too long, or that no table takes, is not replaced by the next (W19): two copies have to get the same id,
    or none.
    """
    for candidate in candidates:
        stripped = candidate.strip()
        if stripped:
            return stripped if len(stripped) <= MAX_DOCUMENT_ID and not _UNWRITABLE.search(stripped) else None
    return None


class DeliveryState(StrEnum):
    """Where one document on its way to one trigger stands."""

    WAITING = "waiting"
    RUNNING = "running"
    JOINED = "joined"
    COMPLETED = "completed"
    FAILED = "failed"
    DUPLICATE = "duplicate"
    IN_DOUBT = "in_doubt"
    DISCARDED = "discarded"
    SETTLED = "settled"


_D = DeliveryState

MOVES: Mapping[DeliveryState, frozenset[DeliveryState]] = {
    _D.WAITING: frozenset({_D.RUNNING, _D.DUPLICATE, _D.IN_DOUBT, _D.JOINED, _D.DISCARDED, _D.FAILED}),
    _D.RUNNING: frozenset({_D.WAITING, _D.COMPLETED, _D.FAILED, _D.DUPLICATE, _D.IN_DOUBT, _D.JOINED, _D.DISCARDED}),
    _D.JOINED: frozenset({_D.COMPLETED, _D.DISCARDED}),
    # Final for the machine: a person settles it, or has the resolver asked again.
    _D.IN_DOUBT: frozenset({_D.SETTLED, _D.WAITING}),
    _D.FAILED: frozenset({_D.SETTLED}),
    _D.COMPLETED: frozenset(),
    _D.DUPLICATE: frozenset(),  # "Duplicate documents cannot be resubmitted" (spec 4)
    _D.DISCARDED: frozenset(),
    _D.SETTLED: frozenset(),
}
FINAL: frozenset[DeliveryState] = frozenset(state for state, targets in MOVES.items() if not targets)


def move(state: str, target: str) -> DeliveryState:
    """`target`, when a delivery that is `state` may become it. Raises IllegalTransition for a move not in `MOVES`."""
    goal = DeliveryState(target)
    if goal not in MOVES[DeliveryState(state)]:
        raise IllegalTransition(str(state), str(target), f"A delivery that is {state} cannot become {target}.")
    return goal
