"""Who may come in, and what is refused before anything is looked at; cleaning up; batches."""

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
