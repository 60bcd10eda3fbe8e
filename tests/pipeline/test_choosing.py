"""How timing parameters are proposed: from what was measured, and never at the price of more messages given up."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from messaging.pipeline.jobs.timing import FEWEST, LONGEST, Choice, Score, choices, chosen

NOW = Choice(60, 5, 300)


def measured(now: Choice = NOW, *, answered: int = 1000, **seconds: float) -> dict[str, Any]:
    speeds = {"p99": 2.0, "p999": 4.0, "longest": 5.0, "longest_outage": 0.0, **seconds}
    return {**now._asdict(), "answered": answered, **speeds}


def score(choice: Choice, *, attempts: int = 1000, needless: int = 0, given_up: int = 0, mean: float = 1e6) -> Score:
    return Score(choice, attempts, needless, given_up, mean)


def proposed(*others: Score, now: Score | None = None) -> Choice:
    found = chosen(measured(), [now or score(NOW), *others])
    assert [option for _, option, _ in found] == ["in_force", "proposed"]
    assert found[0][0] == NOW
    return found[1][0]


def test_with_too_few_answers_nothing_is_proposed() -> None:
    few = measured(answered=FEWEST - 1)
    assert choices(few) == {NOW}
    assert [option for _, option, _ in chosen(few, [score(NOW)])] == ["in_force"]
    assert len(choices(measured(answered=FEWEST))) > 1


def test_what_is_in_force_stays_where_nothing_is_better() -> None:
    assert Choice(10, 5, 310).gives_up_after == NOW.gives_up_after
    assert proposed(score(Choice(10, 5, 310)), score(Choice(6, 10, 156))) == NOW


def test_a_choice_that_gives_up_more_is_never_proposed() -> None:
    better_but = score(Choice(6, 1, 10), given_up=1, needless=0, mean=1.0)
    assert proposed(better_but, now=score(NOW, needless=7)) == NOW
    assert proposed(better_but, now=score(NOW, needless=7, given_up=1)) == better_but.choice


def test_needless_repeats_weigh_more_than_time_and_time_more_than_attempts() -> None:
    calm, quick, thrifty = Choice(90, 5, 300), Choice(6, 10, 156), Choice(90, 3, 500)
    assert (
        proposed(score(calm, needless=1, mean=9e6), score(quick, needless=2, mean=1.0), now=score(NOW, needless=5))
        == calm
    )
    assert proposed(score(calm, mean=3e5), score(quick, mean=2e5, attempts=5000)) == quick
    assert proposed(score(calm, mean=2e5), score(thrifty, mean=2e5, attempts=900)) == thrifty


def test_the_timeouts_follow_the_latencies() -> None:
    timeouts = {choice.timeout for choice in choices(measured(p99=20.0, p999=31.0, longest=70.2))}
    assert timeouts == {60, 40, 47, 88}


def test_an_outage_that_outlasted_the_agreed_silence_is_covered_by_some_choice() -> None:
    covering = {choice for choice in choices(measured(longest_outage=9000.0)) if choice.gives_up_after >= 11_250}
    assert covering and all(choice.retries <= 10 for choice in covering)


seconds = st.floats(0, 10**6, allow_nan=False)


@given(
    st.builds(Choice, st.integers(0, 10**5), st.integers(0, 50), st.integers(0, 10**5)),
    seconds, seconds, seconds, seconds,
)  # fmt: skip
def test_no_choice_gives_up_sooner_than_agreed_nor_repeats_before_the_answer_is_due(
    now: Choice, p99: float, p999: float, longest: float, outage: float
) -> None:
    offered = choices(measured(now, p99=p99, p999=p999, longest=longest, longest_outage=outage))
    assert now in offered
    for choice in offered - {now}:
        assert choice.gives_up_after >= now.gives_up_after
        assert choice.retry_interval >= choice.timeout
        assert choice.retries <= max(10, now.retries)
        assert choice.retry_interval <= max(LONGEST, now.retry_interval)
    assert len(offered) <= 4 * 4 * 7 + 1, "the replay has to stay affordable"
