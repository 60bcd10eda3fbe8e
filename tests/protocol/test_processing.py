"""Exactly-once processing, spec 4: the decision about a document, what a service's end leads to, a delivery's moves."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from messaging.protocol.errors import IllegalTransition
from messaging.protocol.processing import (
    CONCLUSIONS,
    FINAL,
    MOVES,
    RULES,
    Answer,
    Asked,
    Decision,
    DeliveryState,
    Doubt,
    Entry,
    Evidence,
    Properties,
    Status,
    conclude,
    decide,
    document_id,
    move,
    read_answer,
    redelivered,
)
from messaging.protocol.service_ends import (
    AFTER,
    DEFAULT_RETRY_STATUSES,
    NOTHING_SENT,
    Next,
    Ran,
    RetryPolicy,
    after,
    from_http,
)
from tests.fixtures.acceptance_model import wm
from tests.protocol.tables import reachable

bounded = settings(max_examples=300)
NEW, DUPLICATE, IN_DOUBT, UNCHECKED = Status.NEW, Status.DUPLICATE, Status.IN_DOUBT, Status.UNCHECKED
ABSENT, STARTED, COMPLETED = Entry.ABSENT, Entry.STARTED, Entry.COMPLETED
UNUSABLE, UNREACHABLE = Entry.UNUSABLE_ID, Entry.UNREACHABLE

# The properties by the letters of the conformance list: D detect duplicates, H use history, V a resolver.
D = Properties(use_history=False)
DV = Properties(use_history=False, has_resolver=True)
DH = Properties()
DHV = Properties(has_resolver=True)


def decided(
    properties: Properties, count: int = 0, entry: Entry | None = None, answer: Answer | None = None, **more: bool
) -> Decision:
    """The decision; where it asks the resolver, with `answer`. An answer that nobody asked for is an error."""
    arguments = {"guaranteed": True, **more}
    decision = decide(properties, redelivery_count=count, entry=entry, **arguments)
    assert decision.ask_resolver is (answer is not None), "the resolver is asked exactly where the case says so"
    return conclude(properties, decision, answer) if answer is not None else decision


# --- the cases of the conformance list ---


@pytest.mark.parametrize(
    ("properties", "counts", "entry", "answer", "status", "group"),
    [
        pytest.param(D, (0,), None, None, NEW, "", id="W01"),
        pytest.param(D, (2,), None, None, IN_DOUBT, Doubt.REDELIVERED, id="W02"),
        pytest.param(D, (-1,), None, None, NEW, "", id="W03"),
        pytest.param(DV, (0,), None, None, NEW, "", id="W04"),
        pytest.param(DV, (1,), None, Answer.DUPLICATE, DUPLICATE, "", id="W05"),
        pytest.param(DV, (-1,), None, Answer.NEW, NEW, "", id="W06-new"),
        pytest.param(DV, (-1,), None, Answer.IN_DOUBT, IN_DOUBT, Doubt.RESOLVER_IN_DOUBT, id="W06-in-doubt"),
        pytest.param(DH, (0, 5, -1), ABSENT, None, NEW, "", id="W07"),
        pytest.param(DHV, (0, 5, -1), ABSENT, None, NEW, "", id="W07-resolver-not-called"),
        pytest.param(DH, (0, 5, -1), COMPLETED, None, DUPLICATE, "", id="W08"),
        pytest.param(DHV, (0, 5, -1), COMPLETED, None, DUPLICATE, "", id="W08-resolver-not-called"),
        pytest.param(DH, (0, 5, -1), STARTED, None, IN_DOUBT, Doubt.STARTED, id="W09"),
        pytest.param(DHV, (0, 5, -1), STARTED, Answer.NEW, NEW, "", id="W10-new"),
        pytest.param(DHV, (0, 5, -1), STARTED, Answer.DUPLICATE, DUPLICATE, "", id="W10-duplicate"),
        pytest.param(DHV, (0, 5, -1), STARTED, Answer.IN_DOUBT, IN_DOUBT, Doubt.RESOLVER_IN_DOUBT, id="W10-in-doubt"),
        pytest.param(DH, (0, 5, -1), UNUSABLE, None, IN_DOUBT, Doubt.UNUSABLE_ID, id="W19"),
        pytest.param(DHV, (0, 5, -1), UNUSABLE, Answer.DUPLICATE, DUPLICATE, "", id="W19-resolver"),
        pytest.param(DHV, (0, 5, -1), STARTED, Answer.FAILED, IN_DOUBT, Doubt.RESOLVER_FAILED, id="W24"),
        pytest.param(DHV, (0, 5, -1), STARTED, Answer.NONSENSE, IN_DOUBT, Doubt.RESOLVER_NONSENSE, id="W25"),
    ],
)
def test_the_status_of_a_document(
    properties: Properties,
    counts: tuple[int, ...],
    entry: Entry | None,
    answer: Answer | None,
    status: Status,
    group: str,
) -> None:
    for count in counts:
        decision = decided(properties, count, entry, answer)
        assert (decision.status, decision.group, decision.suspend) == (status, group, False)
        assert decision.evidence[-1].verdict == status


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        pytest.param(("doc-1", "t1"), "doc-1", id="W18-own"),
        pytest.param(("", "t1", "e1"), "t1", id="W18-track-id"),
        pytest.param((" \t", "", " e1\n"), "e1", id="W18-event-id"),
        pytest.param(("", " "), None, id="W18-none"),
        pytest.param(("x" * 96,), "x" * 96, id="W19-96"),
        pytest.param(("x" * 97,), None, id="W19-97"),
        pytest.param(("x" * 97, "t1"), None, id="W19-97-is-not-replaced"),
        pytest.param((" " + "x" * 96 + " ",), "x" * 96, id="W19-blanks-do-not-count"),
    ],
)
def test_the_id_of_a_document(ids: tuple[str, ...], expected: str | None) -> None:
    assert document_id(*ids) == expected


@pytest.mark.parametrize(
    ("properties", "guaranteed"),
    [
        pytest.param(DHV, False, id="W20"),
        pytest.param(Properties(detect_duplicates=False, has_resolver=True), True, id="W21"),
    ],
)
@pytest.mark.parametrize("entry", [None, *Entry])
@pytest.mark.parametrize("count", [-1, 0, 7])
def test_what_is_not_checked_is_executed(
    properties: Properties, guaranteed: bool, entry: Entry | None, count: int
) -> None:
    decision = decided(properties, count, entry, guaranteed=guaranteed)
    assert (decision.status, decision.group) == (UNCHECKED, "")
    assert [(e.step, e.finding, e.verdict) for e in decision.evidence] == [("redelivery", "not_looked_at", "unchecked")]


_WAITS = [(True, False), (False, True), (True, True)]


@pytest.mark.parametrize(("resolver", "retry"), _WAITS)
def test_w22_a_resolver_that_cannot_answer_now_suspends_the_trigger(resolver: bool, retry: bool) -> None:
    properties = Properties(has_resolver=True, resolver_failure_suspends=resolver, retry_suspends=retry)
    decision = conclude(
        properties, decide(properties, guaranteed=True, redelivery_count=1, entry=STARTED), Answer.TRANSIENT, "503"
    )
    assert (decision.status, decision.suspend, decision.ask_resolver, decision.group) == (None, True, False, "")
    assert decision.evidence[-1] == Evidence("resolver", "transient", "suspend", "503")


def test_w23_or_leaves_the_document_in_doubt() -> None:
    properties = Properties(has_resolver=True, resolver_failure_suspends=False)
    decision = decided(properties, 1, STARTED, Answer.TRANSIENT)
    assert (decision.status, decision.suspend, decision.group) == (IN_DOUBT, False, Doubt.RESOLVER_FAILED)


@pytest.mark.parametrize("has_resolver", [False, True])
@pytest.mark.parametrize(("resolver", "retry"), [*_WAITS, (False, False)])
def test_w26_without_its_history_a_trigger_waits_or_doubts_and_asks_no_resolver(
    has_resolver: bool, resolver: bool, retry: bool
) -> None:
    properties = Properties(has_resolver=has_resolver, resolver_failure_suspends=resolver, retry_suspends=retry)
    decision = decided(properties, 0, UNREACHABLE)
    if resolver or retry:
        assert (decision.status, decision.suspend, decision.group) == (None, True, "")
        assert decision.evidence[-1].verdict == "suspend"
    else:
        assert (decision.status, decision.suspend) == (IN_DOUBT, False)
        assert decision.group == Doubt.HISTORY_UNREACHABLE


@pytest.mark.parametrize("entry", [None, *Entry])
def test_w36_what_a_person_resubmits_is_new_whatever_is_remembered(entry: Entry | None) -> None:
    for properties, count in product((D, DV, DH, DHV), (-1, 0, 3)):
        decision = decided(properties, count, entry, operator_override=True)
        assert decision.status is NEW
        assert [(e.step, e.verdict) for e in decision.evidence] == [("operator", "new")]


# --- every combination ---

_SAYS = {"NEW": Answer.NEW, "DUPLICATE": Answer.DUPLICATE, "IN_DOUBT": Answer.IN_DOUBT}
_BOOL = (False, True)
_MODEL_ENTRIES = {None: ABSENT, "started": STARTED, "completed": COMPLETED}


def _word(decision: Decision) -> str:
    """The decision in the words of the model."""
    if decision.suspend:
        return "TRANSIENT"
    assert decision.status is not None
    return {"unchecked": "EXECUTE(no detection)"}.get(decision.status, decision.status.upper())


@pytest.mark.parametrize("use_history", _BOOL)
def test_x15_every_combination_is_decided_as_the_model_says(use_history: bool) -> None:
    for detect, entry, says, count, guaranteed, id_ok, up in product(
        _BOOL, _MODEL_ENTRIES, (None, *_SAYS), (-1, 0, 1, 5), _BOOL, _BOOL, _BOOL
    ):
        properties = Properties(detect, use_history, says is not None)
        found = UNUSABLE if not id_ok else UNREACHABLE if not up else _MODEL_ENTRIES[entry]
        decision = decide(
            properties, guaranteed=guaranteed, redelivery_count=count, entry=found if use_history else None
        )
        if decision.ask_resolver:
            decision = conclude(properties, decision, _SAYS[says])
        said = wm(detect, use_history, entry, says, count, guaranteed, id_ok, up)
        assert _word(decision) == said, (detect, entry, says, count, guaranteed, id_ok, up)


_PROPERTIES = st.builds(Properties, *[st.booleans()] * 5)


@bounded
@given(_PROPERTIES, st.booleans(), st.integers(-3, 9), st.sampled_from(Entry), st.booleans(), st.sampled_from(Answer))
def test_whatever_comes_gets_a_decision_that_agrees_with_itself(
    properties: Properties, guaranteed: bool, count: int, entry: Entry, override: bool, answer: Answer
) -> None:
    def checked(decision: Decision) -> Decision:
        assert (decision.status is not None) + decision.ask_resolver + decision.suspend == 1
        assert bool(decision.group) is (decision.status is IN_DOUBT)
        assert decision.group in ("", *Doubt)
        assert len(decision.group) <= 40
        *before, last = [evidence.verdict for evidence in decision.evidence]
        assert not any(before), "only the last step settles"
        assert last == (decision.status or ("suspend" if decision.suspend else ""))
        return decision

    arguments = {"guaranteed": guaranteed, "redelivery_count": count, "entry": entry, "operator_override": override}
    decision = checked(decide(properties, **arguments))
    assert decision == decide(properties, **arguments)
    if decision.ask_resolver:
        assert properties.has_resolver
        concluded = checked(conclude(properties, decision, answer, "why"))
        assert not concluded.ask_resolver
        assert (concluded.status is NEW) is (answer is Answer.NEW), "only the resolver's own word makes it new"
        assert concluded.evidence[:-1] == decision.evidence
        assert concluded.evidence[-1].detail == "why"
    else:
        with pytest.raises(ValueError, match="does not wait"):
            conclude(properties, decision, answer)


def test_a_history_that_nobody_looked_at_is_not_an_empty_one() -> None:
    with pytest.raises(ValueError, match="look into it"):
        decide(DH, guaranteed=True, redelivery_count=0, entry=None)


def test_an_entry_does_not_count_for_a_trigger_without_history() -> None:
    assert decide(D, guaranteed=True, redelivery_count=0, entry=COMPLETED) == decided(D)


def test_the_evidence_is_one_ladder_and_can_be_stored() -> None:
    properties = DHV
    decision = conclude(
        properties, decide(properties, guaranteed=True, redelivery_count=1, entry=STARTED), Answer.DUPLICATE, "booked"
    )
    assert [asdict(evidence) for evidence in decision.evidence] == [
        {
            "step": "redelivery",
            "finding": "redelivered",
            "verdict": "",
            "detail": "Handed over 1 time before.",
        },
        {
            "step": "history",
            "finding": "started",
            "verdict": "",
            "detail": "This trigger began with it, and no end was recorded.",
        },
        {"step": "resolver", "finding": "duplicate", "verdict": "duplicate", "detail": "booked"},
    ]


# For each rule, in the order of the table, something that it decides.
DECIDED_BY: dict[str, tuple[Properties, Asked]] = {
    "resubmitted": (DH, Asked(False, 1, COMPLETED, True)),
    "held": (DHV, Asked(True, 0, STARTED, False, held=True)),
    "not-checked": (DH, Asked(False, 1, COMPLETED, False)),
    "not-in-history": (DHV, Asked(True, 1, ABSENT, False)),
    "completed": (DHV, Asked(True, 1, COMPLETED, False)),
    "history-suspends": (DHV, Asked(True, 1, UNREACHABLE, False)),
    "no-history": (Properties(resolver_failure_suspends=False), Asked(True, 1, UNREACHABLE, False)),
    "ask-about-entry": (DHV, Asked(True, 0, STARTED, False)),
    "ask-about-lost-memory": (DV, Asked(False, 0, None, False, memory_lost=True)),
    "memory-lost": (DH, Asked(True, 0, ABSENT, False, memory_lost=True)),
    "started": (DH, Asked(True, 0, STARTED, False)),
    "unusable-id": (DH, Asked(True, 0, UNUSABLE, False)),
    "first-delivery": (DV, Asked(True, 0, None, False)),
    "ask-about-redelivery": (DV, Asked(True, 1, None, False)),
    "redelivered": (D, Asked(True, 1, None, False)),
    "undefined": (D, Asked(True, -1, None, False)),
}


def test_every_rule_decides_something() -> None:
    assert list(DECIDED_BY) == [rule.name for rule in RULES]
    for name, (properties, asked) in DECIDED_BY.items():
        assert next(rule.name for rule in RULES if rule.applies(properties, asked)) == name
    assert all(rule.source for rule in RULES)
    assert set(CONCLUSIONS) == set(Answer) and all(row.source for row in CONCLUSIONS.values())


# --- a trigger's history over time, against the model ---


@dataclass
class Trigger:
    """What one trigger remembers of its documents, as rows of its history."""

    rows: dict[str, str] = field(default_factory=dict)
    runs: list[str] = field(default_factory=list)


@bounded
@given(
    use_history=st.booleans(),
    resolves=st.sampled_from((None, *_SAYS)),
    arrivals=st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(-1, 2), st.sampled_from(("completed", "died", "rolled back"))),
        max_size=30,
    ),
)
def test_x15_any_trace_of_documents_is_judged_as_the_model_says(
    use_history: bool, resolves: str | None, arrivals: list[tuple[str, int, str]]
) -> None:
    trigger, properties = Trigger(), Properties(use_history=use_history, has_resolver=resolves is not None)
    for document, count, end in arrivals:
        row = trigger.rows.get(document)
        entry = _MODEL_ENTRIES[row] if use_history else None
        decision = decide(properties, guaranteed=True, redelivery_count=count, entry=entry)
        if decision.ask_resolver:
            assert resolves is not None
            decision = conclude(properties, decision, _SAYS[resolves])
        assert _word(decision) == wm(True, use_history, row, resolves, count)
        if decision.status is NEW:
            trigger.runs.append(document)
            if end == "rolled back":
                trigger.rows.pop(document, None)
                trigger.runs.remove(document)
            else:
                trigger.rows[document] = "completed" if end == "completed" else "started"
    if use_history and resolves != "NEW":
        assert len(trigger.runs) == len(set(trigger.runs)), "nothing is run twice unless the resolver says new"


@pytest.mark.parametrize(("before", "then"), [(0, 1), (1, 2), (-1, 1), (-2, 1)])
def test_what_this_hub_hands_over_again_is_counted_also_where_nobody_counted_before(before: int, then: int) -> None:
    assert redelivered(before) == then


# --- what a resolver says ---


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("NEW", Answer.NEW),
        ("new", Answer.NEW),
        (" New\n", Answer.NEW),
        ("DUPLICATE", Answer.DUPLICATE),
        ("duplicate", Answer.DUPLICATE),
        ("IN DOUBT", Answer.IN_DOUBT),
        ("IN_DOUBT", Answer.IN_DOUBT),
        ("in_doubt", Answer.IN_DOUBT),
        *[
            pytest.param(said, Answer.NONSENSE, id=f"W25-{said!r}")
            for said in ("maybe", None, 5, True, "", "newer", "not new", "transient", "failed", ["NEW"], b"NEW")
        ],
    ],
)
def test_what_a_resolver_says_is_one_of_three_words(said: object, answer: Answer) -> None:
    assert read_answer(said) is answer


@bounded
@given(st.text() | st.integers() | st.none() | st.lists(st.text()))
def test_nothing_else_that_a_resolver_says_makes_a_document_new(said: object) -> None:
    if not (isinstance(said, str) and said.strip().lower() == "new"):
        assert read_answer(said) is not Answer.NEW
    assert read_answer(said) not in (Answer.TRANSIENT, Answer.FAILED), "those are no words of a resolver"


# --- the outcome of a service ---


@pytest.mark.parametrize(
    ("status", "cause", "ran"),
    [
        *[(status, "", Ran.OK) for status in (200, 201, 202, 204, 299)],
        *[(status, "", Ran.TRANSIENT) for status in sorted(DEFAULT_RETRY_STATUSES)],
        *[(status, "", Ran.UNKNOWN) for status in (502, 504)],
        *[(status, "", Ran.ERROR) for status in (301, 304, 400, 401, 404, 409, 422, 500, 501, 505, 599)],
        *[(None, cause, Ran.TRANSIENT) for cause in sorted(NOTHING_SENT)],
        *[(None, cause, Ran.UNKNOWN) for cause in ("read_timeout", "connection_reset", "worker_lost", "", "new one")],
    ],
)
def test_how_a_service_called_by_http_ended(status: int | None, cause: str, ran: Ran) -> None:
    assert from_http(status, cause, DEFAULT_RETRY_STATUSES) is ran


def test_the_service_has_the_word_on_which_statuses_mean_later() -> None:
    assert from_http(500, "", frozenset({500})) is Ran.TRANSIENT
    assert from_http(502, "", frozenset({502})) is Ran.TRANSIENT
    assert from_http(503, "", frozenset()) is Ran.ERROR
    assert from_http(200, "", frozenset({200})) is Ran.OK


def _policy(*, until: bool = False, retries: int = 3, suspends: bool = False, on_error: bool = False) -> RetryPolicy:
    return RetryPolicy(until, retries, 10, suspends, on_error)


@pytest.mark.parametrize(
    ("ran", "used", "policy", "leads_to"),
    [
        (Ran.OK, 0, _policy(), Next.COMPLETE),
        (Ran.OK, 3, _policy(suspends=True, on_error=True), Next.COMPLETE),
        pytest.param(Ran.TRANSIENT, 0, _policy(), Next.RETRY, id="W27-first"),
        pytest.param(Ran.TRANSIENT, 2, _policy(), Next.RETRY, id="W27-last-retry"),
        pytest.param(Ran.TRANSIENT, 3, _policy(), Next.FAIL, id="W27-used-up"),
        pytest.param(Ran.TRANSIENT, 3, _policy(suspends=True), Next.SUSPEND, id="W28"),
        pytest.param(Ran.TRANSIENT, 0, _policy(retries=0), Next.FAIL, id="no-retries"),
        pytest.param(Ran.TRANSIENT, 0, _policy(retries=0, suspends=True), Next.SUSPEND, id="no-retries-suspend"),
        pytest.param(Ran.ERROR, 0, _policy(), Next.FAIL, id="W33"),
        pytest.param(Ran.ERROR, 0, _policy(until=True, suspends=True), Next.FAIL, id="W33-whatever-the-policy"),
        pytest.param(Ran.ERROR, 0, _policy(on_error=True), Next.FAIL_AND_SUSPEND, id="W34"),
        pytest.param(Ran.TRANSIENT, 3, _policy(on_error=True), Next.FAIL_AND_SUSPEND, id="W34-used-up"),
        pytest.param(Ran.TRANSIENT, 3, _policy(on_error=True, suspends=True), Next.SUSPEND, id="W34-suspends-anyway"),
        pytest.param(Ran.TRANSIENT, 10_000, _policy(until=True, retries=0), Next.RETRY, id="W35"),
    ],
)
@pytest.mark.parametrize("detects", [False, True])
def test_what_the_end_of_a_service_leads_to(
    ran: Ran, used: int, policy: RetryPolicy, leads_to: Next, detects: bool
) -> None:
    assert after(ran, retries_used=used, detect_duplicates=detects, policy=policy) is leads_to


@bounded
@given(
    st.builds(RetryPolicy, st.booleans(), st.integers(0, 5), st.just(10.0), st.booleans(), st.booleans()),
    st.integers(0, 6),
)
def test_an_unknown_outcome_is_looked_into_and_never_just_run_again(policy: RetryPolicy, used: int) -> None:
    unknown = after(Ran.UNKNOWN, retries_used=used, detect_duplicates=True, policy=policy)
    assert unknown is Next.REDELIVER
    # Who detects no duplicates has said that a second execution does no harm.
    careless = after(Ran.UNKNOWN, retries_used=used, detect_duplicates=False, policy=policy)
    assert careless is after(Ran.TRANSIENT, retries_used=used, detect_duplicates=False, policy=policy)


def test_w27_three_retries_are_four_executions() -> None:
    used, executions = 0, 0
    while True:
        executions += 1
        if after(Ran.TRANSIENT, retries_used=used, detect_duplicates=True, policy=_policy()) is not Next.RETRY:
            break
        used += 1
    assert executions == 4


def test_every_row_of_the_outcomes_leads_somewhere() -> None:
    reached = {
        after(ran, retries_used=used, detect_duplicates=detects, policy=_policy(suspends=s, on_error=e))
        for ran, used, detects, s, e in product(Ran, (0, 3), _BOOL, _BOOL, _BOOL)
    }
    assert reached == set(Next) == {row.leads_to for row in AFTER}
    assert all(row.source for row in AFTER)


# --- the life of a delivery ---


def test_the_table_of_moves_is_whole() -> None:
    assert set(MOVES) == set(DeliveryState)
    assert reachable(DeliveryState.WAITING, MOVES) == set(DeliveryState)
    assert {"completed", "duplicate", "discarded", "settled"} == FINAL


@pytest.mark.parametrize("state", DeliveryState)
@pytest.mark.parametrize("target", DeliveryState)
def test_a_delivery_makes_the_moves_of_the_table_only(state: DeliveryState, target: DeliveryState) -> None:
    if target in MOVES[state]:
        assert move(state.value, target.value) is target
    else:
        with pytest.raises(IllegalTransition, match=f"is {state} cannot become {target}"):
            move(state.value, target.value)


def test_the_machine_never_runs_what_has_ended_or_is_in_doubt() -> None:
    S = DeliveryState
    ended = {S.COMPLETED, S.FAILED, S.DUPLICATE, S.IN_DOUBT, S.DISCARDED, S.SETTLED, S.JOINED}
    assert not any(S.RUNNING in MOVES[state] for state in ended)
    # The one way back is a person who has the resolver asked again.
    assert [state for state in ended if S.WAITING in MOVES[state]] == [S.IN_DOUBT]


def test_w37_a_duplicate_cannot_be_settled() -> None:
    with pytest.raises(IllegalTransition):
        move("duplicate", "settled")
