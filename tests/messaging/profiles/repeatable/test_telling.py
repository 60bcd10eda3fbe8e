"""What a partner, or anybody, may ask: window, memory start, repeat interval; and what the problems mean."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.test import Client

from messaging.models import MemoryEpoch
from messaging.profiles.repeatable import exchanging
from messaging.profiles.repeatable import problems as exchange_problems
from messaging.profiles.repeatable.problems import PROBLEMS
from tests import ROOT
from tests.messaging.profiles.repeatable.callers import HOUR, MINUTE, Caller, T, caller, code, new_id, result

TOLD = {
    "window_seconds": 7200,
    "memory_start": "2026-01-10T12:00:00Z",
    "earliest_accepted_first_sent": "2026-03-10T10:00:00Z",
    "now": "2026-03-10T12:00:00Z",
    "max_skew_seconds": 300,
    "suggested_retry": {"initial": 20, "factor": 2, "max": 600},
}
WELL_KNOWN = "/.well-known/reliable-messaging"


def test_g29_the_window_is_told_to_everybody(partner: Caller) -> None:
    answer = Client().get(WELL_KNOWN)
    assert (answer.status_code, answer.json()) == (200, TOLD)
    assert answer["Cache-Control"] == "no-store"
    MemoryEpoch.objects.update(memory_start=T - HOUR)
    assert Client().get(WELL_KNOWN).json()["earliest_accepted_first_sent"] == "2026-03-10T11:00:00Z"


def test_what_is_told_to_everybody_holds_for_every_agreement(partner: Caller) -> None:
    caller(memory_window=3600, clock_skew=60, repeat_interval=30, repeat_interval_max=900)
    told = Client().get(WELL_KNOWN).json()
    assert (told["window_seconds"], told["max_skew_seconds"]) == (3600, 60)
    assert told["suggested_retry"] == {"initial": 30, "factor": 2, "max": 900}
    assert not any(partner.terms.tpa_id in str(value) for value in told.values()), "partners are nobody's business"


def test_without_agreements_there_is_nothing_to_tell(now, db) -> None:
    answer = Client().get(WELL_KNOWN)
    assert (answer.status_code, code(answer)) == (404, "unknown-agreement")


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_g24_asking_is_answered_as_always_whatever_headers_come_with_it(partner: Caller, method: str) -> None:
    known = new_id()
    partner.post(known)
    headers = {"Repeatability_Request_ID": known, "Repeatability_First_Sent": "Tue, 10 Mar 2026 08:00:00 GMT"}
    for answer in (partner.get(method), partner.get(method, **headers), partner.get(method, Idempotency_Key="x")):
        assert (answer.status_code, result(answer)) == (200, None)
        if method == "HEAD":
            assert answer.content == b""
            continue
        assert answer.json() == {
            "agreement": partner.terms.tpa_id,
            **TOLD,
            "exchange": "one_way",
            "identity": "first_sent",
            "max_message_bytes": 20 * 1024 * 1024,
            "services": [{"service": "urn:orders", "action": "NewOrder"}],
        }
    if method == "OPTIONS":
        assert partner.get("OPTIONS")["Allow"] == "GET, HEAD, OPTIONS, POST, PUT"


def test_only_the_partner_is_told_about_its_agreement(partner: Caller) -> None:
    assert Client().get(partner.path).status_code == 401
    answer = caller().get(path=partner.path)
    assert (answer.status_code, code(answer), result(answer)) == (404, "unknown-agreement", None), (
        "like one that does not exist"
    )


def test_memory_that_started_in_this_minute_is_told_as_it_is(partner: Caller) -> None:
    MemoryEpoch.objects.update(memory_start=T + 5 * MINUTE)
    told = partner.get().json()
    assert told["earliest_accepted_first_sent"] == told["memory_start"] == "2026-03-10T12:05:00Z"


def test_every_problem_is_explained_where_its_type_leads(client: Client) -> None:
    listed = client.get("/problems/").json()["problems"]
    assert [row["type"] for row in listed] == [kind.type for kind in PROBLEMS.values()]
    for row in listed:
        assert client.get(row["type"]).json() == row
    missing = client.get("/problems/no-such")
    assert (missing.status_code, code(missing)) == (404, "unknown-problem")
    assert client.post("/problems/").status_code == client.post(WELL_KNOWN).status_code == 405


def test_every_problem_in_the_code_is_in_the_list() -> None:
    root = Path(exchanging.__file__).parents[2]
    sources = [root / "entrance/views.py", *(root / "profiles/repeatable").glob("*.py")]
    written: set[str] = set()
    for path in (*sources, root / "protocol/memory.py", root / "protocol/codecs/repeatable.py"):
        text = path.read_text()
        written |= set(re.findall(r'(?:Refused|problem|HeaderProblem)\(\s*"([a-z-]+)"', text))
        written |= set(re.findall(r'Verdict.REFUSE, (?:code=)?"([a-z-]+)"', text))
        written |= set(re.findall(r'code(?:: str)? = "([a-z-]+-[a-z-]+)"', text))
    assert {"header-missing", "malformed-date", "in-doubt", "content-differs", "unavailable"} <= written
    assert written <= set(PROBLEMS), written - set(PROBLEMS)


def test_the_documentation_lists_every_problem() -> None:
    page = ROOT / "docs/repeatable-requests.md"
    assert exchange_problems.markdown() in page.read_text()
