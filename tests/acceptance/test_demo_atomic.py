"""All or nothing in three applications, whatever is killed: `manage.py demo --atomic`."""

from __future__ import annotations

import pytest
from django.core.management import CommandError, call_command

from tests.acceptance.test_demo import demo

pytestmark = pytest.mark.acceptance


@pytest.mark.long
def test_whatever_is_killed_a_document_is_processed_everywhere_or_nowhere() -> None:
    code, result = demo("--atomic", "--transactions", "12", "--kill", "--seed", "3")
    promised = {
        "documents": 12,
        "committed_in_part": 0,
        "in_doubt": 0,
        "documents_in_part": 0,
        "documents_in_doubt": 0,
        "documents_open": 0,
    }
    assert {name: result[name] for name in promised} == promised
    assert result["documents_completed"] + result["documents_failed"] == 12
    assert result["committed"] + result["aborted"] == result["transactions"]
    assert result["aborted"] > 0, "nobody voted no: the run shows too little"
    assert {"hub-worker", "hub-web"} <= set(result["killed"])
    assert code == 0


@pytest.mark.parametrize(
    "arguments",
    [("--atomic", "--drop", "0.1"), ("--atomic", "--hops", "2"), ("--transactions", "5"), ("--no-share", "0.5")],
    ids=lambda words: " ".join(words),
)
def test_options_that_would_do_nothing_are_refused(arguments: tuple[str, ...]) -> None:
    with pytest.raises(CommandError, match="--atomic") as refused:
        call_command("demo", *arguments)
    assert refused.value.returncode == 2
