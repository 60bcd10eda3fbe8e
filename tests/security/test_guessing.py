"""Wrong credentials at the partners' entrance: bounded, told, and nobody else's problem (X27)."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import urllib3
from django.db import connection
from django.test import Client

from messaging.entrance import authentication as entrance
from messaging.entrance import refusals, throttling
from messaging.entrance.refusals import Arrival
from messaging.models import Event, Incident, Rejection
from messaging.overview.services import housekeeping
from partners import authentication, registry
from partners.terms import Presented
from tests.messaging.factories import PartnerSide, partner_side
from tests.messaging.profiles.repeatable.hubs import hubs
from tests.messaging.wire import post
from tests.partners.factories import basic

pytestmark = pytest.mark.django_db

PROXY = "10.0.0.1"


def guess(partner: PartnerSide, name: str = "nobody", address: str = PROXY) -> int:
    wrong = replace(partner.message(1), presented=Presented(authorization=basic(name, "wrong")))
    return post(wrong, REMOTE_ADDR=address).status_code


def test_x27_ten_wrong_passwords_lock_out_nobody_else_behind_the_same_proxy() -> None:
    """Not even a partner whose password this process has never checked."""
    guesser, other = partner_side(), partner_side()
    assert [guess(guesser) for _ in range(12)] == [401] * 10 + [429] * 2
    assert post(other.message(1), REMOTE_ADDR=PROXY).status_code == 204


def test_guesses_of_one_address_have_an_end_whatever_names_they_try() -> None:
    partner = partner_side()
    found = [guess(partner, f"name{number}") for number in range(entrance.FAILURES_OF_ADDRESS + 3)]
    assert found == [401] * entrance.FAILURES_OF_ADDRESS + [429] * 3
    assert guess(partner, "name", "10.0.0.2") == 401


def test_whoever_is_right_is_no_guesser() -> None:
    """However often a credential has to be checked anew, as after each change of what partners show."""
    partner = partner_side()
    for _ in range(entrance.FAILURES + 3):
        registry.reset()
        assert entrance.enter(partner.presented, PROXY).principal is not None
    assert [guess(partner) for _ in range(entrance.FAILURES + 1)] == [401] * entrance.FAILURES + [429]


def test_an_ipv6_customer_is_one_guesser() -> None:
    partner = partner_side()
    found = [guess(partner, "nobody", f"2001:db8::{number:x}") for number in range(1, 13)]
    assert found == [401] * 10 + [429] * 2


def test_who_is_shut_out_is_in_the_log_and_an_incident(caplog: pytest.LogCaptureFixture) -> None:
    partner = partner_side()
    with caplog.at_level(logging.WARNING):
        for _ in range(15):
            guess(partner, "globex")
    assert len([record for record in caplog.records if getattr(record, "action", "") == "credentials_throttled"]) == 1
    incident = Incident.objects.get(cause=entrance.CAUSE)
    assert "'user globex'" in incident.detail and PROXY in incident.detail and incident.occurrences == 1
    assert Event.objects.get(type="incident.opened").data["incident"] == incident.public_id


@pytest.mark.django_db(transaction=True)
def test_parallel_guesses_are_counted_before_they_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    together = threading.Barrier(40)
    real = authentication.check_password

    def counting(secret: str, stored: str) -> bool:
        looked.append(secret)
        return bool(real(secret, stored))

    monkeypatch.setattr(authentication, "check_password", counting)
    monkeypatch.setattr(throttling, "most_checks", lambda: 1000)
    partner_side()

    def one(number: int) -> int:
        together.wait(60)
        try:
            return entrance.enter(Presented(authorization=basic("nobody", str(number))), PROXY).status
        finally:
            connection.close()

    with ThreadPoolExecutor(40) as threads:
        statuses = list(threads.map(one, range(40)))
    assert (statuses.count(401), statuses.count(429)) == (10, 30)
    assert len(set(looked)) == 10


def test_only_so_many_wait_for_a_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are told to come again: web threads are for those who are known."""
    partner = partner_side()
    assert post(partner.message(1)).status_code == 204
    monkeypatch.setattr(throttling, "most_checks", lambda: 0)
    answer = post(replace(partner.message(2), presented=Presented(authorization=basic("nobody", "wrong"))))
    assert (answer.status_code, answer["Retry-After"]) == (503, str(entrance.BUSY_SECONDS))
    assert post(partner.message(2)).status_code == 204


@pytest.mark.acceptance
@pytest.mark.django_db(transaction=True)
def test_a_burst_of_partners_after_a_start_is_not_refused(tmp_path: Path) -> None:
    """No password was checked yet, and more come at once than may wait for that with a thread in hand."""
    bursts = [(partner, partner.message(1)) for partner in (partner_side() for _ in range(12))]
    together = threading.Barrier(len(bursts))

    def send(one: tuple[PartnerSide, Arrival]) -> int:
        partner, arrival = one
        shown = {"Authorization": partner.presented.authorization, "Content-Type": arrival.content_type}
        together.wait(60)
        url = f"{hub.url}/ebxml/msh"
        return urllib3.request("POST", url, body=arrival.body, headers=shown, timeout=120, retries=False).status

    few = {"RMHUB_WEB_THREADS": "8", "RMHUB_BODY_WAIT_SECONDS": "600"}
    with hubs(tmp_path, more=few) as (hub,), ThreadPoolExecutor(len(bursts)) as threads:
        assert set(threads.map(send, bursts)) == {204}


def test_refusals_of_nobody_are_counted_and_those_of_partners_stay() -> None:
    partner = partner_side()
    assert post(replace(partner.message(1), content_type="text/plain")).status_code == 400
    for _ in range(30):
        assert Client().post("/ebxml/msh", b"x", content_type="text/xml").status_code == 401
    nobody = Rejection.objects.get(reason="unauthenticated")
    assert (nobody.times, bytes(nobody.sample)) == (30, b"x") and nobody.last_at is not None
    assert Rejection.objects.count() == 2


def test_strangers_do_not_push_out_what_partners_were_refused() -> None:
    partner = partner_side()
    assert post(replace(partner.message(1), content_type="text/plain")).status_code == 400
    kept = Rejection.objects.get()
    for number in range(20):
        refusals.refuse(Arrival("", b"", Presented(), f"192.0.2.{number}"), 401, "unauthenticated", "")
    assert housekeeping.drop_old_rejections(keep=5) == 15
    assert Rejection.objects.filter(pk=kept.pk).exists() and Rejection.objects.count() == 6


def test_a_wrong_host_is_one_line_in_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    from django.conf import settings

    handler = settings.LOGGING["handlers"]["strangers"]
    formatter = settings.LOGGING["formatters"][handler["formatter"]]
    assert settings.LOGGING["loggers"]["django.security"] == {"handlers": ["strangers"], "propagate": False}
    assert formatter == {"()": "rmhub.logs.OneLineFormatter"}
    assert Client().get("/", headers={"host": "evil.example"}).status_code == 400
