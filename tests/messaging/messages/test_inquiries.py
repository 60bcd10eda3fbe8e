"""Asking partners what became of a message, and answering theirs."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from messaging.bulk.services import jobs
from messaging.deliveries.selectors import in_doubt
from messaging.deliveries.services import settling
from messaging.entrance import authentication
from messaging.exceptions import NotFound, WrongState
from messaging.journal.audit import Actor
from messaging.messages.selectors import evidence
from messaging.messages.services import inquiries
from messaging.models import AuditEntry, Delivery, Message, StatusInquiry, Transmission
from messaging.models.traffic import partner_said
from partners.models import AgreementVersion, Endpoint
from rmhub import clock
from rmhub.clock import FrozenClock, frozen
from rmhub.ids import uuid7
from tests.messaging.deliveries.documents import make_queue
from tests.messaging.factories import PartnerSide, partner_side, submit
from tests.messaging.status_service import messages_in_doubt, status_service, told
from tests.partners.factories import make_outbound_credential

pytestmark = pytest.mark.django_db

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
ANN = Actor("ann", "console", "192.0.2.9", "req-1")


@pytest.fixture(autouse=True)
def time() -> Iterator[FrozenClock]:
    with clock.frozen(AT) as frozen:
        yield frozen
    authentication.reset()


@pytest.fixture
def far() -> PartnerSide:
    return partner_side(profile="repeatable")


def answer_now(message: Message) -> str:
    return str(Message.objects.annotate(answer=partner_said()).get(pk=message.pk).answer)


# --- asking ---


def test_the_partner_is_asked_with_our_credential_and_the_answer_is_kept(far: PartnerSide) -> None:
    make_outbound_credential(Endpoint.objects.get(uri=far.terms.partner_uri).party, username="us", secret="our secret")
    (message,) = messages_in_doubt(far)
    with status_service(far, {message.message_id: "processed"}) as service:
        said = inquiries.ask(message_id=message.pk, actor=ANN, reason="is it there?")
    assert (said.answer, said.http_status, said.actor, said.cause) == ("processed", 200, "ann", "")
    assert said.asked_at == AT and said.answered_at == AT
    assert bytes(said.response or b"").startswith(b"HTTP 200 OK\r\n")
    (head,) = service.heads
    assert head.startswith("GET /partner/status?message-id=")
    assert "authorization: basic " in head.lower()
    entry = AuditEntry.objects.get(verb="message.ask_partner")
    assert (entry.object_id, entry.reason, entry.after) == (
        message.public_id,
        "is it there?",
        {"inquiry": said.public_id, "answer": "processed"},
    )
    message.refresh_from_db()
    assert message.state == "in_doubt", "an answer decides nothing"


@pytest.mark.parametrize(
    ("octets", "answer", "cause"),
    [
        (told(b'{"status": "NotRecognized"}'), "not_recognized", ""),
        (told(b'{"status": "Received", "detail": "in <b>"}'), "received", ""),
        (told(b'{"status": "forwarded"}'), "forwarded", ""),
        (told(b'{"status": "unauthorized"}', "401 Unauthorized"), "unauthorized", ""),
        (told(b"", "403 Forbidden"), "unauthorized", ""),
        (told(b"no", "404 Not Found"), "no_answer", "http_404"),
        (told(b"", "302 Found"), "no_answer", "http_3xx"),
        (told(b"", "503 Service Unavailable"), "no_answer", "http_5xx"),
        (told(b"<html>"), "no_answer", "answer_unreadable"),
        (told(b"[1]"), "no_answer", "answer_unreadable"),
        (told(b"[" * 5000), "no_answer", "answer_unreadable"),
        (told(b'{"status": 3}'), "no_answer", "answer_unreadable"),
        (told(b'{"status": "maybe"}'), "no_answer", "answer_unreadable"),
        (told(b'{"status": "processed", "message_id": "another"}'), "no_answer", "answer_unreadable"),
        (told(b'{"status": "processed"}' + b" " * 20_000), "no_answer", "answer_unreadable"),
        (b"", "no_answer", "connection_reset"),
    ],
)
def test_whatever_comes_is_an_answer(far: PartnerSide, octets: bytes, answer: str, cause: str) -> None:
    (message,) = messages_in_doubt(far)
    with status_service(far, default=octets):
        said = inquiries.ask(message_id=message.pk, actor=ANN)
    assert (said.answer, said.cause) == (answer, cause)
    assert len(bytes(said.response or b"")) <= 8192
    assert StatusInquiry.objects.get().pk == said.pk


def test_a_server_that_is_not_there_is_no_answer(far: PartnerSide) -> None:
    (message,) = messages_in_doubt(far)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    Endpoint.objects.filter(uri=far.terms.partner_uri).update(service_address=f"http://127.0.0.1:{port}/partner/")
    said = inquiries.ask(message_id=message.pk, actor=ANN)
    assert (said.answer, said.cause, said.answered_at, said.response) == ("no_answer", "connect_refused", None, None)


def test_what_cannot_be_asked_says_why(far: PartnerSide) -> None:
    (message,) = messages_in_doubt(far)
    with pytest.raises(WrongState, match="no status service"):
        inquiries.ask(message_id=message.pk, actor=ANN)
    waiting = submit(far)
    with status_service(far) as service, pytest.raises(WrongState, match="never sent"):
        inquiries.ask(message_id=waiting.pk, actor=ANN)
    with pytest.raises(NotFound):
        inquiries.ask(message_id=uuid7(), actor=ANN)
    assert not service.heads and not StatusInquiry.objects.exists()


# --- what an answer is worth ---


def test_that_a_partner_has_it_stays_true_and_that_it_does_not_know_it_must_be_newer_than_the_attempt(
    far: PartnerSide, time: FrozenClock
) -> None:
    (message,) = messages_in_doubt(far)
    assert answer_now(message) == ""
    with status_service(far, default="not_recognized"):
        inquiries.ask(message_id=message.pk, actor=ANN)
    assert answer_now(message) == "not_recognized"
    time.move(60)
    Transmission.objects.create(
        pair=message.pair, message=message, number=2, address="x", started_at=clock.now(), outcome="lost"
    )
    assert answer_now(message) == "", "it may have arrived since"
    with status_service(far, default="processed"):
        inquiries.ask(message_id=message.pk, actor=ANN)
    with status_service(far, default=told(b"", "500 X")):
        inquiries.ask(message_id=message.pk, actor=ANN)
    assert answer_now(message) == "processed"


def test_the_evidence_of_a_message_and_what_it_speaks_for(far: PartnerSide, time: FrozenClock) -> None:
    (message,) = messages_in_doubt(far)

    def look() -> evidence.Evidence:
        return evidence.of_message(Message.objects.get(pk=message.pk), clock.now())

    before = look()
    assert [rung.step for rung in before.rungs] == ["attempts", "window", "acknowledgement", "partner", "reply"]
    assert (before.suggestion, before.because) == ("", "")
    with status_service(far, default="not_recognized"):
        inquiries.ask(message_id=message.pk, actor=ANN)
    asked = look()
    assert (asked.suggestion, asked.rungs[3].sign, asked.rungs[3].by) == ("resubmit", "no", "ann")
    assert asked.warning == ""
    Message.objects.filter(pk=message.pk).update(expires_at=AT - timedelta(seconds=1))
    assert "forgotten" in look().warning
    with status_service(far, default="received"):
        inquiries.ask(message_id=message.pk, actor=ANN)
    assert (look().suggestion, look().rungs[3].sign) == ("delivered", "yes")


def test_a_decision_keeps_the_evidence_of_its_moment(far: PartnerSide) -> None:
    (message,) = messages_in_doubt(far)
    with status_service(far, default="processed"):
        said = inquiries.ask(message_id=message.pk, actor=ANN)
    settling.message_settle(message_id=message.pk, decision="delivered", actor=ANN, reason="the partner says so")
    entry = AuditEntry.objects.get(verb="message.settle_delivered")
    assert entry.before["evidence"] == [
        {"inquiry": said.public_id, "answer": "processed", "at": AT.isoformat(), "by": "ann"}
    ]


# --- all of them ---


def test_forty_four_in_doubt_are_asked_about_and_settled_by_what_the_partner_says(far: PartnerSide) -> None:
    messages = messages_in_doubt(far, 44)
    answers: dict[str, str | bytes] = {one.message_id: "processed" for one in messages[:38]}
    answers |= {one.message_id: told(b"", "500 X") for one in messages[42:]}
    with status_service(far, answers, default="not_recognized"):
        asking = jobs.job_create(action="ask_partner", parameters={}, filter={}, actor=ANN, reason="evidence")
        assert jobs.run_due() == 44
    asking.refresh_from_db()
    assert (asking.state, asking.done, asking.refused) == ("finished", 44, 0)
    groups = in_doubt.by_answer(in_doubt.outbound_groups(clock.now()))
    assert [(one.answer, one.count, one.suggestion) for one in groups] == [
        ("processed", 38, "delivered"),
        ("not_recognized", 4, "resubmit"),
        ("no_answer", 2, ""),
    ]
    for answer, decision in (("processed", "delivered"), ("not_recognized", "resubmit")):
        made = jobs.job_create(
            action="settle_messages",
            parameters={"decision": decision},
            filter={"answer": answer},
            actor=ANN,
            reason="their hub says so",
        )
        jobs.run_due()
        made.refresh_from_db()
        assert (made.state, made.refused) == ("finished", 0)
    states = [Message.objects.get(pk=one.pk).state for one in messages]
    assert states == ["delivered"] * 38 + ["skipped"] * 4 + ["in_doubt"] * 2
    anew = Message.objects.exclude(pk__in=[one.pk for one in messages])
    assert {one.resubmitted_from_id for one in anew} == {one.pk for one in messages[38:42]}


# --- answering ---


def ask_us(partner: PartnerSide, query: str = "", **headers: str) -> tuple[int, dict[str, str]]:
    shown = {"Authorization": partner.presented.authorization, **headers}
    answer = Client(headers=shown).get(f"/partner/status{query}")
    return answer.status_code, answer.json()


def status_of(partner: PartnerSide, message_id: str) -> str:
    code, told_us = ask_us(partner, f"?message-id={message_id}")
    assert (code, told_us["message_id"]) == (200, message_id)
    return told_us["status"]


def test_a_partner_hears_what_became_of_its_messages() -> None:
    near = partner_side()
    trigger = make_queue(party_id=near.terms.partner_id)
    assert near.send(near.message(1, "a@them")) == 204
    assert status_of(near, "a@them") == "received"
    Delivery.objects.filter(trigger=trigger).update(state="in_doubt", doubt="x", due_at=None)
    assert status_of(near, "a@them") == "received"
    Delivery.objects.filter(trigger=trigger).update(state="completed", doubt="")
    assert status_of(near, "a@them") == "processed"
    assert status_of(near, "never@them") == "not_recognized"
    ours = submit(near)
    assert status_of(near, ours.message_id) == "not_recognized", "what we send is not theirs to ask about"


def test_what_was_passed_on_is_forwarded_and_what_left_the_store_is_processed() -> None:
    near = partner_side()
    near.send(near.message(1, "a@them"))
    came = Message.objects.get(message_id="a@them")
    onward = submit(partner_side())
    Message.objects.filter(pk=onward.pk).update(forwarded_from=came.pk)
    assert status_of(near, "a@them") == "forwarded"
    from tests.messaging.archive.archive_scenes import archived

    gone = archived(near.inbound, "old@them")
    type(gone).objects.filter(pk=gone.pk).update(direction="in")
    assert status_of(near, "old@them") == "processed"


def test_nobody_hears_of_the_messages_of_others() -> None:
    near, other = partner_side(), partner_side()
    near.send(near.message(1, "a@them"))
    assert status_of(other, "a@them") == "not_recognized"
    code, said = ask_us(near, "?message-id=a@them", Authorization="Basic bm9ib2R5Ong=")
    assert (code, said["status"]) == (401, "unauthorized")
    answer = Client().get("/partner/status?message-id=a@them")
    assert answer.status_code == 401 and answer["WWW-Authenticate"].startswith("Basic ")


def test_guessing_is_slowed_down() -> None:
    near = partner_side()
    wrong = {"Authorization": "Basic bm9ib2R5Ong="}
    for _ in range(authentication.FAILURES):
        assert Client(headers=wrong).get("/partner/status?message-id=x").status_code == 401
    late = Client(headers=wrong).get("/partner/status?message-id=x")
    assert late.status_code == 429 and late["Retry-After"]
    assert AgreementVersion.objects.filter(pk=near.terms.version_id).exists()


def test_questions_count_for_the_limit_of_a_partner(settings: Any) -> None:
    settings.RMHUB_RATE_PARTNER = 2
    near, other = partner_side(), partner_side()
    with frozen(clock.now().replace(second=1, microsecond=0)):
        assert [ask_us(near, "?message-id=a@them")[0] for _ in range(3)] == [200, 200, 429]
        late = Client(headers={"Authorization": near.presented.authorization}).get("/partner/status?message-id=a@them")
        assert 50 < int(late["Retry-After"]) <= 60 and "Too many requests" in late.json()["detail"]
        assert near.send(near.message(1)) == 429, "one count for all entrances"
        assert ask_us(other, "?message-id=a@them")[0] == 200
    assert not Message.objects.exists()


@pytest.mark.parametrize("query", ["", "?message-id=", "?message-id=a&message-id=b", "?message-id=a&x=1", "?id=a"])
def test_a_question_that_is_none_is_told_so(query: str) -> None:
    code, said = ask_us(partner_side(), query)
    assert code == 400 and "message" in said["detail"].lower()


def test_odd_ids_and_methods_are_refused() -> None:
    near = partner_side()
    assert ask_us(near, "?message-id=" + "x" * 513)[0] == 400
    assert ask_us(near, "?message-id=a%00b")[0] == 400
    answer = Client(headers={"Authorization": near.presented.authorization}).post("/partner/status?message-id=x")
    assert (answer.status_code, answer["Allow"]) == (405, "GET, HEAD")
