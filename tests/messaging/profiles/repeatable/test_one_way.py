"""One-way requests: stored and acknowledged once, however often they come.

What a partner, or anybody, may ask: window, memory start, repeat interval; and what the problems mean.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from django.test import Client

from messaging import dispatch
from messaging.engine import subscriptions
from messaging.engine.preparing import stored_body
from messaging.models import Delivery, Event, MemoryEpoch, Message, Payload, RememberedRequest, Trigger
from messaging.profiles.repeatable import exchanging
from messaging.profiles.repeatable import problems as exchange_problems
from messaging.profiles.repeatable.problems import PROBLEMS
from partners.models import AgreementVersion
from tests import ROOT
from tests.messaging.profiles.repeatable.callers import (
    BODY,
    HOUR,
    MINUTE,
    NEW_ORDER,
    ORDERS,
    Caller,
    T,
    brief,
    caller,
    code,
    new_id,
    refusals,
    remembering_since,
    result,
    stored,
)
from tests.partners.factories import make_agreement, make_endpoint

ACCEPTED = (202, "accepted", "")


def test_g01_a_request_is_stored_and_acknowledged(partner: Caller, woken: list[str]) -> None:
    Trigger.objects.create(name="orders", kind="pull")
    subscriptions.current.forget()
    answer = partner.post("order-1", T - MINUTE)
    assert brief(answer) == ACCEPTED
    assert json.loads(answer.content) == {
        "message_id": "order-1",
        "status": "stored",
        "received_at": "2026-03-10T12:00:00Z",
    }
    message = Message.objects.get()
    assert (message.message_id, message.service, message.action) == ("order-1", ORDERS, NEW_ORDER)
    assert (message.state, message.first_sent_at, message.conversation_id) == ("received", T - MINUTE, "order-1")
    assert stored_body(message, list(message.payloads.all())) == BODY
    assert Payload.objects.get().content_type == "application/xml"
    assert Delivery.objects.get().document_id == "order-1"
    assert list(Event.objects.values_list("type", flat=True)) == ["message.received"]
    assert (partner.pair.done, partner.pair.next_position) == (1, 2)
    assert woken == [dispatch.DELIVER]


def test_g30_every_copy_gets_the_same_acknowledgement_and_no_answer_is_stored(partner: Caller, now) -> None:
    first = partner.post("order-1")
    now.move(60)
    for _ in range(3):
        answer = partner.post("order-1")
        assert (answer.status_code, answer.content, result(answer)) == (202, first.content, "accepted")
    assert Message.objects.get().copies == 3
    assert partner.pair.duplicates == 3
    request = RememberedRequest.objects.get()
    assert (request.state, request.status, request.headers, request.body) == ("accepted", None, None, None)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"body": b"<Order number='2'/>"}, id="G13"),
        pytest.param({"first_sent": T - MINUTE}, id="G14"),
        pytest.param({"path": "?really=yes"}, id="G15-uri"),
        pytest.param({"method": "PUT"}, id="G15-verb"),
        pytest.param({"content_type": "text/xml"}, id="content type"),
        pytest.param({"headers": {"RM-Conversation-ID": "other"}}, id="conversation"),
    ],
)
def test_g13_g14_g15_the_same_id_for_something_else_is_refused(partner: Caller, change: dict) -> None:
    answer = partner.post("order-1")
    before = stored()
    if "path" in change:
        change = {**change, "path": partner.path + change["path"]}
    refused = partner.post("order-1", **change)
    expected = "first-sent-differs" if "first_sent" in change else "content-differs"
    assert brief(refused) == (400, "rejected", expected)
    assert stored() == before
    assert refusals() == [(expected.replace("-", "_"), 400)]
    assert partner.post("order-1").content == answer.content, "what was stored is untouched"


def test_g16_ids_belong_to_their_sender(partner: Caller) -> None:
    other = caller()
    assert brief(partner.post("order-1")) == ACCEPTED
    assert brief(other.post("order-1", body=b"<Other/>")) == ACCEPTED
    assert Message.objects.count() == 2


def test_an_id_is_the_same_under_another_agreement_of_the_same_sender(partner: Caller) -> None:
    """And means the other path there: whoever confuses agreements is not executed twice."""
    first = AgreementVersion.objects.get(pk=partner.terms.version_id).agreement
    second = make_agreement(
        own_endpoint=make_endpoint(first.own_party, "https://us.example/exchange/second/"),
        partner_endpoint=make_endpoint(first.partner, "https://them.example/exchange/second/"),
        profile="repeatable",
        allowed=((ORDERS, NEW_ORDER, "both"),),
    )
    assert brief(partner.post("order-1")) == ACCEPTED
    other = Caller(caller(second).terms, partner.authorization)
    assert brief(other.post("order-1")) == (400, "rejected", "content-differs")
    assert Message.objects.count() == 1


def test_g17_a_uuid_is_the_same_in_upper_and_lower_case(partner: Caller) -> None:
    request_id = new_id()
    assert brief(partner.post(request_id.upper())) == ACCEPTED
    assert brief(partner.post(request_id.lower())) == ACCEPTED
    assert Message.objects.get().message_id == request_id.lower()
    assert brief(partner.post("Not-A-UUID")) == brief(partner.post("not-a-uuid")) == ACCEPTED
    assert Message.objects.count() == 3, "other ids are what they are"


def test_a_trigger_gets_one_delivery_however_often_the_request_comes(partner: Caller) -> None:
    for name in ("one", "two"):
        Trigger.objects.create(name=name, kind="pull")
    subscriptions.current.forget()
    for _ in range(3):
        partner.post("order-1")
    assert Delivery.objects.count() == 2


def test_an_empty_body_and_any_content_type_are_taken(partner: Caller) -> None:
    assert brief(partner.post("a", body=b"", content_type="")) == ACCEPTED
    assert brief(partner.post("b", body=b"\x00\xff", content_type="application/x-whatever; a=b")) == ACCEPTED
    assert list(Payload.objects.order_by("pk").values_list("size", "content_type")) == [
        (0, "application/octet-stream"),
        (2, "application/x-whatever; a=b"),
    ]


def test_put_is_as_good_as_post(partner: Caller) -> None:
    assert brief(partner.post("order-1", method="PUT")) == ACCEPTED


def test_service_action_conversation_and_reference_come_in_headers(now, db) -> None:
    remembering_since(T.replace(month=1))
    partner = caller(allowed=(("urn:orders", "*", "receive"), ("urn:bills", "Bill", "receive"), ("urn:x", "Y", "send")))
    answer = partner.post(
        "order-1",
        headers={
            "RM-Service": "urn:orders",
            "RM-Action": "K%C3%BCndigung",
            "RM-Conversation-ID": "case-7",
            "RM-Ref-To-Message-ID": "quote-3",
        },
    )
    assert brief(answer) == ACCEPTED
    message = Message.objects.get()
    assert (message.service, message.action) == ("urn:orders", "Kündigung")
    assert (message.conversation_id, message.ref_to_message_id) == ("case-7", "quote-3")
    assert brief(partner.post("bill", headers={"RM-Service": "urn:bills"})) == ACCEPTED
    assert brief(partner.post("bill-2", headers={"RM-Action": "Bill", "RM-Service": "urn:bills"})) == ACCEPTED


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, "service-not-named"),
        ({"RM-Action": "Bill"}, "service-not-named"),  # orders take any action
        ({"RM-Service": "urn:orders"}, "service-not-named"),
        ({"RM-Service": "urn:x", "RM-Action": "Y"}, "outside-agreement"),
        ({"RM-Service": "urn:bills", "RM-Action": "Order"}, "outside-agreement"),
        ({"RM-Service": "urn:nothing"}, "outside-agreement"),
        ({"RM-Service": "%FF"}, "malformed-header"),
        ({"RM-Service": "a%00b"}, "malformed-header"),
        ({"RM-Conversation-ID": "c" * 513}, "malformed-header"),
    ],
)
def test_a_service_that_is_not_clear_is_refused_and_the_possible_ones_are_listed(now, db, headers, expected) -> None:
    partner = caller(allowed=(("urn:orders", "*", "receive"), ("urn:bills", "Bill", "receive"), ("urn:x", "Y", "send")))
    answer = partner.post("order-1", headers=headers)
    assert (answer.status_code, result(answer), code(answer)) == (400, "rejected", expected)
    if expected != "malformed-header":
        assert "urn:bills / Bill; urn:orders / *." in json.loads(answer.content)["detail"]
    assert not Message.objects.exists()
    assert refusals() == [(expected.replace("-", "_"), 400)]


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
