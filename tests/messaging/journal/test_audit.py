"""The audit log: who, when, what, why, before and after; in the transaction of the action."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.db import transaction

from messaging.choices import Interface
from messaging.journal import audit
from messaging.journal.audit import Actor
from messaging.models import AuditEntry
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


def test_an_entry_says_how_the_actor_was_known() -> None:
    pair = partner_side().outbound
    audit.record(Actor("ann", Interface.CONSOLE, authentication="totp"), "x", pair)
    audit.record(Actor("command:root", Interface.COMMAND), "x", pair)
    audit.record(audit.SYSTEM, "x", pair)
    assert list(AuditEntry.objects.order_by("id").values_list("authentication", "result")) == [
        ("totp", "done"),
        ("shell", "done"),
        ("", "done"),
    ]


def test_a_refusal_is_written_once_in_a_minute() -> None:
    pair = partner_side().outbound
    arguments = {"code": pair.code, "verb": "skip-head"}
    with frozen(AT) as time:
        for _ in range(3):
            audit.refused(ANN, "pair-verb", arguments, method="POST", required="pairs:skip")
        time.move(61)
        audit.refused(ANN, "pair-verb", arguments, method="POST", required="pairs:skip")
        audit.refused(ANN, "tokens", {}, method="POST", required="tokens:manage")
    first, _, tokens = AuditEntry.objects.order_by("id")
    assert (first.verb, first.object_type, first.object_id, first.object_name) == (
        "pair.skip_head", "pair", pair.public_id, pair.code,
    )  # fmt: skip
    assert (first.result, first.after, first.actor) == ("denied", {"required": "pairs:skip"}, "ann")
    assert (tokens.verb, tokens.object_id) == ("tokens.post", "")


def test_many_refused_requests_do_not_fill_the_log() -> None:
    with frozen(AT) as time:
        for number in range(50):
            audit.denied(ANN, "x.y", object_type="x", object_id=str(number), required="z")
        audit.denied(Actor("bob"), "x.y", object_type="x", object_id="1", required="z")
        assert AuditEntry.objects.filter(actor="ann").count() == audit.DENIED_MOST
        assert AuditEntry.objects.filter(actor="bob").count() == 1
        time.move(61)
        assert audit.denied(ANN, "x.y", object_type="x", object_id="99", required="z") is not None
