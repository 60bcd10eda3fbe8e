"""Limits of a caller: what is left is said in each answer, beyond it is 429, and without Valkey everybody passes."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
import redis
from django.test import Client

from messaging import dispatch
from messaging.entrance import rate_limits
from messaging.entrance.rate_limits import Bucket
from rmhub.clock import FrozenClock, frozen
from rmhub.roles import Role
from tests.messaging.api.client import Api, make_incident, make_token, make_user, submission
from tests.messaging.factories import PartnerSide

pytestmark = pytest.mark.django_db


@pytest.fixture
def time(settings) -> Iterator[FrozenClock]:
    """The beginning of a minute that no other run counts in, and small limits."""
    settings.RMHUB_RATE_READ, settings.RMHUB_RATE_SUBMIT, settings.RMHUB_RATE_OPERATE = 3, 2, 1
    minute = datetime.fromtimestamp(uuid.uuid4().int % 20_000_000 * 60, UTC)
    with frozen(minute.replace(year=minute.year + 10)) as clock:
        yield clock


def test_every_answer_says_what_is_left_and_the_next_is_refused(time: FrozenClock) -> None:
    api = Api(make_token(make_user()))
    other = Api(make_token(make_user()))
    time.move(15)
    for left in (2, 1, 0):
        answer = api.get("/pairs")
        assert answer.status == 200
        assert answer.headers["ratelimit-policy"] == '"read";q=3;w=60'
        assert answer.headers["ratelimit"] == f'"read";r={left};t=45'
    refused = api.get("/pairs")
    assert (refused.status, refused.code) == (429, "too_many_requests")
    assert refused.headers["retry-after"] == "45"
    assert refused.headers["ratelimit"] == '"read";r=0;t=45'
    assert refused.json["retryable"] is True
    assert other.get("/pairs").status == 200, "others are counted apart"
    time.move(45)
    assert api.get("/pairs").status == 200, "a new minute"


def test_reading_submitting_and_operating_are_counted_apart(time: FrozenClock, partner: PartnerSide) -> None:
    api = Api(make_token(make_user()))
    for _ in range(4):
        api.get("/pairs")
    assert api.get("/pairs").status == 429
    for left in (1, 0):
        answer = api.submit(submission(partner))
        assert (answer.status, answer.headers["ratelimit"].partition(";t")[0]) == (202, f'"submit";r={left}')
    assert api.submit(submission(partner)).status == 429
    incident = make_incident()
    done = api.post(f"/incidents/{incident.public_id}/acknowledge", {"reason": "me"}, If_Match="*")
    assert (done.status, done.headers["ratelimit"].partition(";t")[0]) == (200, '"operate";r=0')


def test_a_person_is_counted_over_all_their_sessions(time: FrozenClock) -> None:
    user = make_user(Role.VIEWER)
    counted = []
    for _ in range(4):
        browser = Client()
        browser.force_login(user)
        counted.append(browser.get("/api/v1/pairs").status_code)
    assert counted == [200, 200, 200, 429]


def test_who_is_nobody_is_not_counted(time: FrozenClock) -> None:
    answer = Api().get("/problems")
    assert answer.status == 200 and "ratelimit" not in answer.headers
    assert "ratelimit" not in Api("rmh_live_wrong").get("/pairs").headers


def test_without_valkey_everybody_passes(time: FrozenClock, monkeypatch: pytest.MonkeyPatch) -> None:
    def down() -> redis.Redis:
        raise redis.ConnectionError("gone")

    monkeypatch.setattr(dispatch, "valkey", down)
    monkeypatch.setattr(dispatch, "_down_until", 0.0)
    api = Api(make_token(make_user()))
    answers = [api.get("/pairs") for _ in range(5)]
    assert {answer.status for answer in answers} == {200}
    assert "ratelimit" not in answers[0].headers


def test_no_limit_counts_nothing(settings) -> None:
    settings.RMHUB_RATE_READ = 0
    assert rate_limits.take(Bucket.READ, uuid.uuid4().hex) is None


def test_the_header_is_a_structured_field(time: FrozenClock) -> None:
    answer = Api(make_token(make_user())).get("/pairs")
    assert re.fullmatch(r'"[a-z]+";q=\d+;w=\d+', answer.headers["ratelimit-policy"])
    assert re.fullmatch(r'"[a-z]+";r=\d+;t=\d+', answer.headers["ratelimit"])


def test_a_partner_beyond_its_limit_keeps_its_message(time: FrozenClock, settings, partner: PartnerSide) -> None:
    settings.RMHUB_RATE_PARTNER = 1
    assert partner.send(partner.message(1)) == 204
    second = partner.message(2)
    assert partner.send(second) == 429
    time.move(60)
    assert partner.send(second) == 204, "nothing was stored, nothing is lost"
