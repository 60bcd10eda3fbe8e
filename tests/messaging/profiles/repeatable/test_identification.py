"""What identifies a request: the pair of headers, their aliases, or an Idempotency-Key."""

from __future__ import annotations

import json

import pytest

from messaging.models import Message, RememberedRequest
from partners.choices import ExchangeIdentity, Semantics
from tests.messaging.profiles.repeatable.callers import (
    HOUR,
    Caller,
    T,
    brief,
    caller,
    code,
    refusals,
    remembering_since,
    result,
    stored,
)

ACCEPTED = (202, "accepted", "")


@pytest.fixture
def keyed(db, now) -> Caller:
    """The partner of an agreement that identifies requests by Idempotency-Key."""
    remembering_since(T.replace(month=1))
    return caller(exchange_identity=ExchangeIdentity.KEY)


@pytest.fixture
def forgetful(db, now) -> Caller:
    """The partner of an agreement whose requests are not remembered."""
    remembering_since(T.replace(month=1))
    return caller(semantics=Semantics.BEST_EFFORT, allowed=[("urn:orders", "NewOrder", "receive")])


@pytest.mark.parametrize(("request_id", "first_sent"), [("order-1", None), (None, T)])
def test_g03_one_header_without_the_other_is_refused(partner: Caller, request_id, first_sent) -> None:
    answer = partner.post(request_id, first_sent)
    assert brief(answer) == (400, "rejected", "header-missing")
    assert not Message.objects.exists()
    assert refusals() == [("header_missing", 400)]


@pytest.mark.parametrize(
    "first_sent",
    [
        "2026-03-10T12:00:00Z",
        "Tuesday, 10-Mar-26 12:00:00 GMT",
        "Tue Mar 10 12:00:00 2026",
        "Tue, 31 Feb 2026 12:00:00 GMT",
        "Mon, 10 Mar 2026 12:00:00 GMT",
        "Tue, 10 Mar 2026 12:00:00 +0000",
        "",
    ],
)
def test_g04_only_an_imf_fixdate_is_a_time(partner: Caller, first_sent: str) -> None:
    answer = partner.post("order-1", first_sent)
    assert brief(answer) == (400, "rejected", "malformed-date")
    assert not Message.objects.exists()


@pytest.mark.parametrize("name", ["Message-ID", "MID"])
def test_the_names_of_soa_rity_are_understood(partner: Caller, name: str) -> None:
    headers = {name: "order-1", "MsgCreate": "Tue, 10 Mar 2026 12:00:00 GMT"}
    assert brief(partner.post(None, None, headers=headers)) == ACCEPTED
    assert brief(partner.post("order-1", T)) == ACCEPTED, "and are the same request"
    assert Message.objects.count() == 1


@pytest.mark.parametrize("size", [97, 4096])
def test_g36_an_id_that_is_too_long_is_refused(partner: Caller, size: int) -> None:
    assert brief(partner.post("x" * 96)) == ACCEPTED
    assert brief(partner.post("x" * size)) == (400, "rejected", "malformed-id")
    assert brief(partner.post("")) == (400, "rejected", "malformed-id")
    assert Message.objects.count() == 1


def test_an_id_that_is_not_printable_ascii_is_refused(partner: Caller) -> None:
    assert brief(partner.post("Bestellung-ü".encode().decode("latin-1"))) == (400, "rejected", "malformed-id")


def test_g34_a_request_without_headers_is_refused_with_a_link_to_what_they_are(partner: Caller, keyed: Caller) -> None:
    for sender, wanted in (
        (partner, "Repeatability-Request-ID and Repeatability-First-Sent"),
        (keyed, "Idempotency-Key"),
    ):
        answer = sender.post(None, None)
        assert brief(answer) == (400, "rejected", "header-missing")
        assert wanted in json.loads(answer.content)["detail"]
        link = answer["Link"].partition(";")[0].strip("<>")
        assert sender.get(path=link).json()["title"] == "Request not identified"
    assert not Message.objects.exists()
    assert refusals() == [("header_missing", 400)] * 2


def test_a_request_by_key_is_stored_once_and_replayed(keyed: Caller, now) -> None:
    first = keyed.post(None, None, headers={"Idempotency-Key": '"order 1"'})
    assert brief(first) == ACCEPTED
    now.move(3600)
    again = keyed.post(None, None, headers={"Idempotency-Key": '"order 1"'})
    assert (brief(again), again.content) == (ACCEPTED, first.content)
    assert Message.objects.get().message_id == "order 1"
    assert brief(keyed.post(None, None, headers={"Idempotency-Key": '"Order 1"'})) == ACCEPTED
    assert Message.objects.count() == 2, "a key is what it is"


def test_g13_the_same_key_with_another_body_is_unprocessable(keyed: Caller) -> None:
    headers = {"Idempotency-Key": '"order-1"'}
    keyed.post(None, None, headers=headers)
    before = stored()
    assert brief(keyed.post(None, None, body=b"<Other/>", headers=headers)) == (422, "rejected", "content-differs")
    assert stored() == before


@pytest.mark.parametrize(
    "value", ["abc", '"abc', 'abc"', '"a", "b"', '"a"; p=1', "'abc'", '""', '"ü"', '"' + "x" * 97 + '"']
)
def test_g33_a_key_that_is_not_one_quoted_string_is_refused(keyed: Caller, value: str) -> None:
    answer = keyed.post(None, None, headers={"Idempotency-Key": value})
    assert brief(answer) == (400, "rejected", "malformed-idempotency-key")
    assert not Message.objects.exists()


def test_a_key_is_replayed_for_as_long_as_it_is_there(keyed: Caller, now) -> None:
    """No first-instance time protects it; what is remembered longer than promised is on the safe side."""
    headers = {"Idempotency-Key": '"order-1"'}
    keyed.post(None, None, headers=headers)
    now.move(26 * 3600)
    assert brief(keyed.post(None, None, headers=headers)) == ACCEPTED
    assert Message.objects.count() == 1
    assert RememberedRequest.objects.count() == 1


def test_each_agreement_takes_its_own_kind_of_identification(partner: Caller, keyed: Caller) -> None:
    assert brief(partner.post(None, None, headers={"Idempotency-Key": '"a"'})) == (400, "rejected", "header-missing")
    assert brief(keyed.post("order-1", T)) == (501, "rejected", "not-repeatable")
    both = partner.post("order-1", T, headers={"Idempotency-Key": '"a"'})
    assert brief(both) == (400, "rejected", "repeated-header")
    assert not Message.objects.exists()


@pytest.mark.parametrize("method", ["PATCH", "DELETE", "MOVE"])
def test_g23_an_operation_that_is_not_repeatable_is_not_executed(partner: Caller, method: str) -> None:
    assert brief(partner.post("order-1", method=method)) == (501, "rejected", "not-repeatable")
    plain = partner.post(None, None, method=method)
    assert (plain.status_code, plain["Allow"], code(plain)) == (
        405,
        "GET, HEAD, OPTIONS, POST, PUT",
        "method-not-allowed",
    )
    assert not Message.objects.exists()


def test_g23_where_nothing_is_remembered_a_request_that_relies_on_it_is_not_executed(forgetful: Caller) -> None:
    assert brief(forgetful.post("order-1")) == (501, "rejected", "not-repeatable")
    assert brief(forgetful.post(None, None, headers={"Idempotency-Key": '"a"'})) == (501, "rejected", "not-repeatable")
    assert not Message.objects.exists()


def test_where_nothing_is_remembered_a_plain_request_is_executed_each_time(forgetful: Caller) -> None:
    answers = [forgetful.post(None, None) for _ in range(2)]
    assert [(answer.status_code, result(answer)) for answer in answers] == [(202, None)] * 2
    assert Message.objects.count() == 2
    assert not RememberedRequest.objects.exists()
    ids = set(Message.objects.values_list("message_id", flat=True))
    assert {json.loads(answer.content)["message_id"] for answer in answers} == ids


def test_a_key_says_nothing_of_time(keyed: Caller) -> None:
    headers = {"Idempotency-Key": '"order-1"', "Date": "Mon, 01 Jan 2001 00:00:00 GMT"}
    assert brief(keyed.post(None, None, headers=headers)) == ACCEPTED
    assert RememberedRequest.objects.get().first_sent == T
    assert Message.objects.get().first_sent_at > T - HOUR
