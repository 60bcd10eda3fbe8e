"""The promises, kept by real processes over a bad link: `manage.py demo` as anybody would run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests import ROOT

pytestmark = pytest.mark.acceptance


def demo(*arguments: str) -> tuple[int, dict[str, Any]]:
    """With four connections to the database for each process, so that dozens of threads share them."""
    run = subprocess.run(
        [sys.executable, "manage.py", "demo", "--json", "--patience", "900", *arguments],
        cwd=ROOT,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "rmhub.settings", "RMHUB_DB_CONNECTIONS": "4"},
        capture_output=True,
        text=True,
        timeout=2000,
    )
    assert run.stdout.strip(), run.stderr[-3000:]
    print(run.stderr[-20_000:])  # what pytest shows of a run that kept no promise
    return run.returncode, json.loads(run.stdout.strip().splitlines()[-1])


def killed(count: int, *arguments: str) -> tuple[int, int, dict[str, Any]]:
    """Also the number of messages: twice as many each time, until something is killed before the machine is through."""
    while True:
        code, result = demo("--messages", str(count), "--kill", *arguments)
        if result["killed"]:
            return count, code, result
        count *= 2


@pytest.mark.long
def test_every_document_arrives_once_and_in_order_whatever_is_killed() -> None:
    count, code, result = killed(120, "--drop", "0.2", "--duplicate", "0.2")
    promised = {"submitted": count, "delivered": count, "delivered_twice": 0, "lost": 0}
    promised |= {"out_of_order": 0, "suspended": 0}
    assert {name: result[name] for name in promised} == promised
    assert code == 0


@pytest.mark.parametrize("profile", ["ebxml", "repeatable"])
def test_two_machines_of_each_hub_double_nothing_whatever_is_killed(profile: str) -> None:
    """Two web servers and two workers on one database, and what comes to the hub goes to either."""
    count, code, result = killed(60, "--machines", "2", "--duplicate", "0.2", "--profile", profile)
    promised = {"submitted": count, "delivered": count, "delivered_twice": 0, "lost": 0}
    promised |= {"suspended": 0, "contradictions": 0}
    assert {name: result[name] for name in promised} == promised
    assert code == 0


@pytest.mark.long
def test_a_stream_delivers_once_and_in_order_whatever_is_killed() -> None:
    """A window in flight over a bad link, acknowledged together, with both sides killed meanwhile."""
    count, code, result = killed(60, "--profile", "stream", "--drop", "0.1", "--duplicate", "0.2")
    promised = {"submitted": count, "delivered": count, "completed": count, "delivered_twice": 0, "lost": 0}
    promised |= {"out_of_order": 0, "suspended": 0, "messages_in_doubt": 0}
    assert {name: result[name] for name in promised} == promised
    assert code == 0


def test_signed_and_encrypted_messages_arrive_once_and_in_order_whatever_is_lost_or_killed() -> None:
    """ebXML 2.0: conversations in order, messages and acknowledgements signed, documents encrypted."""
    count, code, result = killed(60, "--profile", "ebms2", "--drop", "0.2", "--duplicate", "0.2")
    promised = {"submitted": count, "delivered": count, "completed": count, "delivered_twice": 0, "lost": 0}
    promised |= {"out_of_order": 0, "suspended": 0, "messages_in_doubt": 0, "contradictions": 0}
    assert {name: result[name] for name in promised} == promised
    assert code == 0


def test_bad_options_are_refused_in_a_line() -> None:
    run = subprocess.run(
        [sys.executable, "manage.py", "demo", "--drop", "1.5"], cwd=ROOT, capture_output=True, text=True, timeout=600
    )
    assert run.returncode == 2
    assert "a share from 0 to below 1" in run.stderr
