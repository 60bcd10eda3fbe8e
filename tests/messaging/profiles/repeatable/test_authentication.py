"""Who may come in, and what is refused before anything is looked at; cleaning up; batches.

What identifies a request: the pair of headers, their aliases, or an Idempotency-Key.
"""

from __future__ import annotations

import json
from unittest import mock

import pytest
from django.db import OperationalError
from django.test import Client

from messaging.engine import forgetting
from messaging.entrance import reading
from messaging.models import Message, Pair, Rejection, RememberedRequest
from messaging.overview.services import housekeeping
from partners import registry, services
from partners.choices import ExchangeIdentity, Semantics
from partners.models import AgreementVersion
from tests.messaging.factories import partner_side
from tests.messaging.profiles.repeatable.callers import (
    HOUR,
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

ACCEPTED = (202, "accepted", "")


def test_g25_a_stranger_learns_nothing_about_an_id(partner: Caller) -> None:
    known = new_id()
    partner.post(known)
    answers = [partner.post(request_id, authorization="Basic bm86bm8=") for request_id in (known, new_id())]
    assert [brief(answer) for answer in answers] == [(401, "rejected", "unauthenticated")] * 2
    assert answers[0].content == answers[1].content
    assert answers[0]["WWW-Authenticate"].startswith("Basic ")
    assert brief(partner.post(known, authorization="")) == (401, "rejected", "unauthenticated")
    assert Message.objects.count() == 1
    assert refusals() == [("unauthenticated", 401)]
    assert set(Rejection.objects.values_list("message_id", flat=True)) == {""}


def test_whoever_guesses_is_slowed_down_and_leaves_no_more_rows(partner: Caller) -> None:
    assert brief(partner.post("order-1")) == ACCEPTED
    answers = [partner.post("order-2", authorization="Basic bm86bm8=") for _ in range(12)]
    assert [answer.status_code for answer in answers] == [401] * 10 + [429] * 2
    assert (code(answers[-1]), answers[-1]["Retry-After"]) == ("too-many-attempts", "60")
    assert Rejection.objects.get().times == 10
    assert brief(partner.post("order-2")) == ACCEPTED, "a partner behind the same address goes on"


def test_another_partners_agreement_is_answered_like_one_that_does_not_exist(partner: Caller) -> None:
    other = caller()
    foreign = other.post("order-1", path=partner.path)
    unknown = other.post("order-1", path=partner.path.replace(partner.terms.tpa_id, "tpa:nobody"))
    assert brief(foreign) == brief(unknown) == (404, "rejected", "unknown-agreement")
    assert foreign.content.replace(partner.terms.tpa_id.encode(), b"tpa:nobody") == unknown.content
    assert not Message.objects.exists()
    assert refusals() == [("unknown_agreement", 404)] * 2
    assert [
        f"not the partner of agreement {partner.terms.tpa_id}" in row.detail for row in Rejection.objects.order_by("id")
    ] == [True, False]


def test_an_agreement_that_is_disabled_meanwhile_is_refused_by_name(partner: Caller) -> None:
    assert brief(partner.post("order-1")) == ACCEPTED
    services.agreement_disable(agreement=AgreementVersion.objects.get(pk=partner.terms.version_id).agreement)
    registry.reset()
    answer = partner.post("order-1")
    assert brief(answer) == (403, "rejected", "agreement-not-in-force")
    assert partner.terms.tpa_id in json.loads(answer.content)["detail"]


@pytest.mark.parametrize(
    "path", ["nothing/", "nothing/at/all", "%00/", "%FF/", "$batch", "a/$batch", "  /", "a//", "/"]
)
def test_a_path_that_names_no_agreement_is_not_found(partner: Caller, path: str) -> None:
    assert brief(partner.post("order-1", path=f"/exchange/{path}")) == (404, "rejected", "unknown-agreement")


def test_an_agreement_of_the_other_profile_says_where_to_send(partner: Caller) -> None:
    ebxml = partner_side()
    sender = Caller(ebxml.terms, ebxml.presented.authorization)
    answer = sender.post("order-1")
    assert brief(answer) == (404, "rejected", "unknown-agreement")
    assert ebxml.terms.own_uri in json.loads(answer.content)["detail"]


def test_the_slash_at_the_end_of_the_path_may_be_missing(partner: Caller) -> None:
    assert brief(partner.post("order-1", path=partner.path.rstrip("/"))) == ACCEPTED


def test_a_body_that_is_too_large_is_refused(partner: Caller, settings) -> None:
    AgreementVersion.objects.filter(pk=partner.terms.version_id).update(max_message_bytes=2000)
    registry.reset()
    settings.RMHUB_MAX_MESSAGE_BYTES = 10_000
    assert brief(partner.post("a", body=b"x" * 2000)) == ACCEPTED
    agreed = partner.post("b", body=b"x" * 2001)
    assert brief(agreed) == (413, "rejected", "message-too-large")
    assert "2001 bytes" in json.loads(agreed.content)["detail"]
    assert brief(partner.post("c", body=b"x" * 10_001)) == (413, "rejected", "body-too-large")
    assert refusals() == [("message_too_large", 413), ("body_too_large", 413)]


@pytest.mark.parametrize("where", ["partners.registry.current", "messaging.profiles.repeatable.admitting._write"])
def test_without_its_database_the_hub_says_later_and_means_it(partner: Caller, where: str) -> None:
    before = stored()
    with mock.patch(where, side_effect=OperationalError("server closed the connection unexpectedly")):
        answer = partner.post("order-1")
    assert (brief(answer), answer["Retry-After"]) == ((503, "rejected", "unavailable"), str(reading.SOON))
    assert stored() == before
    assert brief(partner.post("order-1")) == ACCEPTED


def test_a_full_disk_is_no_acceptance(partner: Caller, settings) -> None:
    settings.RMHUB_INLINE_PAYLOAD_BYTES = 0
    with mock.patch("os.fsync", side_effect=OSError(28, "No space left on device")):
        assert brief(partner.post("order-1")) == (503, "rejected", "unavailable")
    assert not Message.objects.exists()
    assert brief(partner.post("order-1")) == ACCEPTED


def test_pairs_of_this_profile_show_from_the_start(partner: Caller) -> None:
    housekeeping.run()
    assert Pair.objects.filter(partner=partner.terms.partner_id).count() == 2


# --- cleaning up ---


def test_g28_a_request_that_is_cleaned_up_is_never_executed_again(partner: Caller) -> None:
    request_id = new_id()
    partner.post(request_id)
    for _ in range(2):
        answer = partner.delete(f"$RepeatableRequestWithRequestID/{request_id.upper()}")
        assert (answer.status_code, answer.content) == (204, b"")
    assert partner.delete("$RepeatableRequestWithRequestID/never-seen").status_code == 204
    again = partner.post(request_id)
    assert brief(again) == (412, "rejected", "forgotten-by-request")
    assert again["Repeatability-Window"] == "7200"
    assert Message.objects.count() == 1
    row = RememberedRequest.objects.get()
    assert (row.state, row.status, row.headers, row.body) == ("forgotten", None, None, None)


def test_a_cleaned_up_id_goes_when_every_id_of_its_day_goes(partner: Caller, now) -> None:
    partner.post("order-1")
    partner.delete("$RepeatableRequestWithRequestID/order-1")
    now.move(15 * 3600)
    forgetting.drop_due(T + 15 * HOUR)
    assert not RememberedRequest.objects.exists()


@pytest.mark.parametrize("name", ["$RepeatableRequestWithClientID", "$RepeatableRequestsWithClientID"])
def test_g28_all_requests_of_a_client_are_cleaned_up_at_once(partner: Caller, name: str) -> None:
    for number in range(3):
        partner.post(f"order-{number}", headers={"Repeatability-Client-ID": "till 7" if number else "till 8"})
    assert partner.delete(f"{name}/till%207").status_code == 204
    assert [partner.post(f"order-{number}").status_code for number in range(3)] == [202, 412, 412]


def test_nobody_cleans_up_for_others(partner: Caller) -> None:
    partner.post("order-1")
    caller().delete("$RepeatableRequestWithRequestID/order-1")
    assert brief(partner.post("order-1")) == ACCEPTED
    answer = Client().delete("/exchange/$RepeatableRequestWithRequestID/order-1")
    assert (answer.status_code, result(answer)) == (401, "rejected")
    assert brief(partner.post("order-1")) == ACCEPTED


def test_what_is_in_work_or_in_doubt_is_not_cleaned_up(partner: Caller) -> None:
    for number, state in enumerate(("running", "in_doubt")):
        partner.post(f"order-{number}")
        RememberedRequest.objects.filter(request_id=f"order-{number}").update(state=state)
        assert partner.delete(f"$RepeatableRequestWithRequestID/order-{number}").status_code == 204
    assert set(RememberedRequest.objects.values_list("state", flat=True)) == {"running", "in_doubt"}


@pytest.mark.parametrize("value", ["%00", "%FF", "a%0Ab", "x" * 5000, "%E2%82%AC"])
def test_cleaning_up_what_cannot_be_an_id_is_as_good_as_cleaning_up_nothing(partner: Caller, value: str) -> None:
    assert partner.delete(f"$RepeatableRequestWithRequestID/{value}").status_code == 204


def test_cleaning_up_is_a_delete_below_the_agreement_too(partner: Caller) -> None:
    partner.post("order-1")
    answer = partner.get("GET", "/exchange/$RepeatableRequestWithRequestID/order-1")
    assert (answer.status_code, answer["Allow"]) == (405, "DELETE")
    assert partner.delete(f"{partner.terms.tpa_id}/$RepeatableRequestWithRequestID/order-1").status_code == 204
    assert partner.post("order-1").status_code == 412


# --- batches ---


def test_g37_headers_on_a_batch_are_refused_and_nothing_in_it_is_executed(partner: Caller) -> None:
    path = partner.path + "$batch"
    body = b'{"requests":[{"id":"1","method":"POST","url":"x"}]}'
    for kept in ({}, {"request_id": None}, {"first_sent": None}):
        answer = partner.post(
            **{"request_id": "order-1", **kept}, body=body, path=path, content_type="application/json"
        )
        assert (answer.status_code, result(answer)) == (400, "rejected")
    assert brief(partner.post("order-1", path=path)) == (400, "rejected", "batch-not-repeatable")
    assert brief(partner.post(None, None, path=path)) == (501, "rejected", "not-repeatable")
    assert not Message.objects.exists()
    assert not RememberedRequest.objects.exists()


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
