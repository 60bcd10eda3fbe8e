"""The audit log: who, when, what, why, before and after; in the transaction of the action."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.db import transaction

from messaging.choices import Interface
from messaging.models import AuditEntry
from messaging.services import audit
from messaging.services.audit import Actor
from rmhub.clock import frozen
from tests.messaging.factories import partner_side

pytestmark = pytest.mark.django_db

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
ANN = Actor("ann", Interface.API, "192.0.2.9", "req-1")


def test_an_entry_says_who_when_what_why_and_what_changed() -> None:
    pair = partner_side().outbound
    with frozen(AT):
        audit.record(ANN, "pair.pause", pair, reason="Audit", before={"gate": "open"}, after={"gate": "paused"})
    entry = AuditEntry.objects.get()
    assert (entry.at, entry.actor, entry.interface, entry.address, entry.request_id) == (
        AT, "ann", "api", "192.0.2.9", "req-1",
    )  # fmt: skip
    assert (entry.verb, entry.reason, entry.before, entry.after) == (
        "pair.pause", "Audit", {"gate": "open"}, {"gate": "paused"},
    )  # fmt: skip
    assert (entry.object_type, entry.object_id, entry.object_name) == ("pair", pair.public_id, pair.code)


def test_an_action_that_is_rolled_back_leaves_no_entry() -> None:
    pair = partner_side().outbound
    with pytest.raises(RuntimeError), transaction.atomic():
        audit.record(ANN, "pair.pause", pair)
        raise RuntimeError
    assert not AuditEntry.objects.exists()


def test_names_that_are_too_long_are_cut_and_not_a_reason_to_fail() -> None:
    pair = partner_side().outbound
    audit.record(Actor("a" * 500, Interface.CONSOLE, "f" * 500, "r" * 500), "x", pair, reason="w" * 5000)
    entry = AuditEntry.objects.get()
    assert (len(entry.actor), len(entry.address), len(entry.request_id)) == (150, 64, 80)
    assert entry.reason == "w" * 5000


def test_the_hub_itself_is_an_actor_too() -> None:
    entry = audit.record(audit.SYSTEM, "x", partner_side().outbound)
    assert (entry.actor, entry.interface, entry.before, entry.after) == ("system", "system", {}, {})
