"""Through routers, with real processes of every hub: `manage.py demo --hops`."""

from __future__ import annotations

import pytest
from django.core.management import CommandError, call_command

from tests.acceptance.test_demo import demo

pytestmark = pytest.mark.acceptance


@pytest.mark.long
def test_a_killed_router_loses_nothing_and_nothing_is_acknowledged_before_the_receiver_has_it() -> None:
    """Sender, two routers, receiver; everything of one router is killed while documents are on their way."""
    code, result = demo("--hops", "3", "--mode", "confirm_through", "--messages", "16", "--kill", "--drop", "0.05")
    promised = {
        "submitted": 16,
        "delivered": 16,
        "completed": 16,
        "delivered_twice": 0,
        "lost": 0,
        "out_of_order": 0,
        "suspended": 0,
        "acknowledged_before_arrival": 0,
    }
    assert {name: result[name] for name in promised} == promised
    assert list(result["passed_on"].values()) == [16, 16]
    assert {name.partition("-")[2] for name in result["killed"]} == {"web", "worker", "beat"}
    assert code == 0


@pytest.mark.parametrize(
    "arguments",
    [("--hops", "3", "--trigger", "http"), ("--hops", "2", "--profile", "stream"), ("--mode", "confirm_through")],
    ids=lambda words: " ".join(words),
)
def test_options_that_do_not_go_together_are_refused(arguments: tuple[str, ...]) -> None:
    with pytest.raises(CommandError, match="--hops") as refused:
        call_command("demo", *arguments)
    assert refused.value.returncode == 2
