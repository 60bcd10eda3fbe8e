"""Servers that do not answer, as people see them: on the overview, on their page, and the way to try one now."""

from __future__ import annotations

import pytest
from django.test import Client

from messaging.models import AuditEntry, Circuit
from rmhub.clock import FrozenClock
from rmhub.roles import Role
from tests.messaging.console.scenes import browser, left_alone
from tests.messaging.factories import PartnerSide, link, partner_side, submit, work

pytestmark = pytest.mark.django_db


@pytest.fixture
def dead(time: FrozenClock) -> PartnerSide:
    partner = partner_side()
    left_alone(partner)
    return partner


def text(client: Client, url: str, status: int = 200) -> str:
    answer = client.get(url)
    assert answer.status_code == status
    return answer.content.decode()


def test_the_overview_names_them(dead: PartnerSide) -> None:
    said = text(browser(), "/")
    assert "Servers that do not answer" in said
    assert Circuit.objects.get().address in said
    assert dead.terms.partner_name in said
    assert "No connection in time" in said
    assert "Try now" in said
    assert "Try now" not in text(browser(Role.VIEWER), "/")
    Circuit.objects.all().delete()
    assert "Servers that do not answer" not in text(browser(), "/")


def test_the_page_says_what_since_when_and_until_when(dead: PartnerSide) -> None:
    said = text(browser(), "/servers/")
    assert "Circuit open" in said
    assert "timed out &lt;b&gt;after 10 s&lt;/b&gt;" in said
    assert "in 40 s" in said
    assert 'data-state="open"' in said
    Circuit.objects.all().delete()
    assert "Every server answers." in text(browser(), "/servers/")


def test_it_is_tried_now(dead: PartnerSide, time: FrozenClock) -> None:
    row, client = Circuit.objects.get(), browser(Role.OPERATOR)
    url = f"/servers/{row.public_id}/try/"
    assert "The next attempt to this server is let through" in text(client, url)
    assert client.post(url, {"reason": ""}).status_code == 422
    answer = client.post(url, {"reason": "they say that it is up"})
    assert (answer.status_code, answer["Location"]) == (303, "/servers/")
    entry = AuditEntry.objects.get(verb="circuit.reset")
    assert (entry.object_name, entry.reason, entry.interface) == (row.address, "they say that it is up", "console")
    row.refresh_from_db()
    assert row.opened_times == 0


def test_failures_that_are_counted_are_forgotten(time: FrozenClock) -> None:
    partner = partner_side()
    row = left_alone(partner)
    Circuit.objects.update(state="closed", opened_at=None, retry_at=None)
    client = browser(Role.OPERATOR)
    url = f"/servers/{row.public_id}/try/"
    assert "The 7 failures counted so far are forgotten" in text(client, url)
    client.post(url, {"reason": "firewall corrected"})
    assert not Circuit.objects.exists()
    text(client, url, 404)


def test_a_pair_page_tells_why_nothing_went_out(dead: PartnerSide) -> None:
    from messaging.engine import circuits
    from messaging.engine.claiming import claim_due
    from messaging.engine.recording import record

    circuits.refresh(at_once=True)
    submit(dead)
    [job] = claim_due(limit=1)
    refused = circuits.refuse(job)
    assert refused is not None
    record([(job, refused)])
    said = text(browser(), f"/pairs/{dead.outbound.code}/")
    assert "Circuit open" in said
    assert "sending to it was stopped at 2026-" in said


def test_nothing_is_shown_of_servers_that_answer(time: FrozenClock) -> None:
    partner = partner_side()
    submit(partner)
    with link():
        work()
    assert "Every server answers." in text(browser(), "/servers/")
