"""Exactly once in an application that protects itself from nothing, whatever is killed: `manage.py demo --trigger`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from tests.acceptance.test_demo import demo

pytestmark = pytest.mark.acceptance

BAD_LINK = ("--drop", "0.2", "--duplicate", "0.2")
KEPT = {
    "delivered_twice": 0,
    "lost": 0,
    "out_of_order": 0,
    "messages_in_doubt": 0,
    "effects_twice": 0,
    "effects_missing": 0,
    "effects_altered": 0,
    "effects_strange": 0,
    "effects_out_of_order": 0,
    "failed": 0,
    "unsettled": 0,
}


def of(result: Mapping[str, Any], names: Mapping[str, Any]) -> dict[str, Any]:
    return {name: result[name] for name in names}


def killed(result: Mapping[str, Any]) -> set[str]:
    """Which kinds of processes were killed."""
    return {name.removeprefix("a-").removeprefix("b-") for name in result["killed"]}


@pytest.mark.long
def test_every_document_has_its_effect_once() -> None:
    """Nothing was killed, so that nothing is in doubt, even without a resolver; here from a pull queue."""
    profile = ("--profile", "repeatable", "--ordered")
    code, result = demo("--messages", "40", "--trigger", "pull", "--work-ms", "20", *profile, *BAD_LINK)
    promised = {**KEPT, "submitted": 40, "delivered": 40, "effects_once": 40, "in_doubt": 0, "killed": {}}
    assert of(result, promised) == promised
    assert code == 0


@pytest.mark.long
def test_whatever_is_killed_each_effect_is_there_once_or_the_document_is_in_doubt() -> None:
    """W43: without a resolver nobody can know of a call that was cut off, and nobody guesses."""
    code, result = demo("--messages", "48", "--trigger", "http", "--kill", "--work-ms", "1500", *BAD_LINK)
    promised = {**KEPT, "submitted": 48, "delivered": 48, "documents": 48}
    assert of(result, promised) == promised
    assert result["effects_once"] == 48 - result["in_doubt"] + result["in_doubt_with_effect"]
    assert killed(result) >= {"worker", "app"}
    assert result["in_doubt"] > 0, "the kills hit nothing: the run shows too little"
    assert code == 0


@pytest.mark.long
def test_with_a_resolver_nothing_is_in_doubt_either() -> None:
    """Over the other profile, whose promise rests on memory and not on sequence numbers."""
    code, result = demo(
        *("--messages", "48", "--trigger", "http", "--resolver", "--kill", "--work-ms", "1500"),
        *("--profile", "repeatable", *BAD_LINK),
    )
    promised = {**KEPT, "submitted": 48, "delivered": 48, "effects_once": 48, "in_doubt": 0}
    assert of(result, promised) == promised
    assert killed(result) >= {"worker", "app"}
    assert code == 0


@pytest.mark.parametrize("arguments", [("--ordered",), ("--resolver",), ("--work-ms", "5")], ids=lambda words: words[0])
def test_options_that_would_do_nothing_are_refused(arguments: tuple[str, ...]) -> None:
    with pytest.raises(CommandError, match="belong") as refused:
        call_command("demo", *arguments)
    assert refused.value.returncode == 2
