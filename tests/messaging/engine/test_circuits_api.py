"""Circuits by the API: the list, one of them, and having a server tried now."""

from __future__ import annotations

from datetime import timedelta

import pytest

from messaging.engine import circuits
from messaging.models import AuditEntry, Circuit, Message, Pair, Signal
from messaging.overview.selectors import health
from messaging.transports.base import server_of
from rmhub import clock
from tests.messaging.api.client import REASON, Api
from tests.messaging.factories import PartnerSide, partner_side, submit

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers, whatever runs beside the test."""
    monkeypatch.setattr(health, "_broker_answers", lambda: True)


def failing(partner: PartnerSide, **values: object) -> Circuit:
    now = clock.now()
    defaults = {"state": "closed", "failures": 2, "cause": "read_timeout", "updated_at": now, **values}
    return Circuit.objects.create(address=server_of(partner.terms.partner_address), **defaults)


def left_alone(partner: PartnerSide) -> Circuit:
    now = clock.now()
    return failing(partner, state="open", failures=9, opened_at=now, retry_at="2099-01-01T00:00:00Z", opened_times=5)


def test_the_list_and_its_states(viewer: Api, partner: PartnerSide) -> None:
    other = partner_side()
    assert viewer.get("/circuits").json["data"] == []
    dead, bad = left_alone(partner), failing(other)
    found = {item["server"]: item for item in viewer.get("/circuits").json["data"]}
    assert set(found) == {dead.address, bad.address}
    item = found[dead.address]
    assert (item["id"], item["state"], item["failures"], item["cause"]) == (dead.public_id, "open", 9, "read_timeout")
    assert (item["retry_at"], item["partners"]) == ("2099-01-01T00:00:00Z", [partner.terms.partner_name])
    assert [item["server"] for item in viewer.get("/circuits?state=open").json["data"]] == [dead.address]
    page = viewer.get("/circuits?limit=1").json
    assert len(page["data"]) == 1 and page["has_more"]


def test_one_of_them(viewer: Api, partner: PartnerSide) -> None:
    row = left_alone(partner)
    assert viewer.get(f"/circuits/{row.public_id}").json["server"] == row.address
    assert viewer.get("/circuits/cir_0192f3f2f3e47a5fb0c1d2e3f4a5b6c7").code == "not_found"
    assert viewer.get("/circuits/junk").code == "not_found"


def test_a_server_is_tried_now(operator: Api, partner: PartnerSide) -> None:
    row = left_alone(partner)
    answer = operator.post(f"/circuits/{row.public_id}/reset", REASON)
    assert (answer.status, answer.json["state"]) == (200, "open")
    row.refresh_from_db()
    assert row.retry_at is not None and row.retry_at <= clock.now()
    assert AuditEntry.objects.get(verb="circuit.reset").interface == "api"
    Circuit.objects.update(state="closed", opened_at=None, retry_at=None)
    answer = operator.post(f"/circuits/{row.public_id}/reset", REASON)
    assert (answer.status, answer.json["state"], answer.json["failures"]) == (200, "closed", 0)
    assert operator.post(f"/circuits/{row.public_id}/reset", REASON).code == "not_found"


def test_a_reset_needs_a_reason_and_the_scope(operator: Api, viewer: Api, partner: PartnerSide) -> None:
    row = left_alone(partner)
    assert operator.post(f"/circuits/{row.public_id}/reset", {}).code == "invalid_submission"
    assert viewer.post(f"/circuits/{row.public_id}/reset", REASON).code == "missing_scope"


def test_health_says_how_many_servers_are_left_alone(stranger: Api, partner: PartnerSide) -> None:
    """Their trouble is not ours: the hub is well."""
    left_alone(partner)
    failing(partner_side())
    answer = stranger.get("/health")
    assert (answer.status, answer.json["checks"]["circuits_open"]) == (200, 1)


def test_what_waits_for_a_server_that_does_not_answer_is_not_the_hubs_delay(
    stranger: Api, partner: PartnerSide
) -> None:
    for semantics in ("BestEffort", "OnceAndOnlyOnce"):
        submit(partner, semantics=semantics)
    partner.send(partner.message(1))
    for model in (Pair, Message, Signal):
        model.objects.filter(due_at__isnull=False).update(due_at=clock.now() - timedelta(minutes=5))
    assert stranger.get("/health").json["checks"]["overdue_seconds"] >= 300
    failing(partner)
    assert stranger.get("/health").json["checks"]["overdue_seconds"] < 300
    other = partner_side()
    submit(other)
    Pair.objects.filter(pk=other.outbound.pk).update(due_at=clock.now() - timedelta(minutes=5))
    assert stranger.get("/health").json["checks"]["overdue_seconds"] >= 300


def test_the_id_of_a_server_never_changes(partner: PartnerSide) -> None:
    row = failing(partner)
    again = Circuit(address=row.address)
    assert row.public_id == again.public_id != Circuit(address=row.address + "1").public_id
    assert circuits.find(row.public_id).address == row.address
