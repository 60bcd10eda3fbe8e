"""Whatever comes to be in doubt is in the audit log at that moment, by the hub itself, with reason and evidence."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from messaging.choices import DeliveryState
from messaging.deliveries.services import pulling
from messaging.engine import memory as hub_memory
from messaging.models import AuditEntry, Coordination, Delivery, Enlistment, Message
from messaging.profiles.wsat import due
from messaging.protocol.atomic.words import Note, Protocol
from rmhub import clock
from rmhub.clock import FrozenClock
from tests.messaging.deliveries.stage import arrive, make_trigger
from tests.messaging.factories import LOST, TAKEN, link, partner_side, submit, work
from tests.messaging.profiles.stream.partner import stream_side
from tests.messaging.profiles.wsat.kit import peer

pytestmark = pytest.mark.django_db


@pytest.fixture
def time() -> Any:
    with clock.frozen(datetime(2026, 3, 1, 12, tzinfo=UTC)) as frozen:
        yield frozen


def _told(kind: str) -> dict[str, AuditEntry]:
    """The entries of this kind by object, all by the hub itself and of this very moment."""
    found = {entry.object_id: entry for entry in AuditEntry.objects.filter(verb=f"{kind}.in_doubt")}
    assert {(one.actor, one.interface, one.object_type, one.at) for one in found.values()} <= {
        ("system", "system", kind, clock.now())
    }
    return found


def test_w46_a_request_that_was_never_answered(time: FrozenClock) -> None:
    side = partner_side(profile="repeatable", partner_window=3600)
    message = submit(side)
    with link(LOST):
        while Message.objects.get(pk=message.pk).state != "in_doubt":
            assert not AuditEntry.objects.exists()
            time.move(120)
            work()
    entry = _told("message")[message.public_id]
    assert "the time for repeats ended at 2026-03-01 13:0" in entry.reason
    assert (entry.object_name, entry.after["state"]) == (message.message_id, "in_doubt")
    assert (entry.after["cause"], entry.after["attempts"]) == ("outcome_unknown", Message.objects.get().attempts)


def test_w46_messages_of_a_stream_whose_life_ended(time: FrozenClock) -> None:
    side = stream_side()
    messages = [submit(side, time_to_live=10) for _ in range(3)]  # type: ignore[arg-type]
    with link(TAKEN):
        work()
        time.move(10)
        work()
    found = _told("message")
    assert set(found) == {message.public_id for message in messages}
    assert {entry.after["cause"] for entry in found.values()} == {"expired_unconfirmed"}
    assert all("under number" in entry.reason for entry in found.values())


def test_w46_deliveries_of_one_claim_are_written_in_one_statement(time: FrozenClock) -> None:
    trigger = make_trigger(kind="pull", lease_seconds=30)
    side = partner_side()
    arrive(side, *(f"d{number}@x" for number in range(5)))
    Delivery.objects.update(redelivery_count=2, pair=side.inbound)
    Delivery.objects.update(document_id="")
    with CaptureQueriesContext(
        connection,
    ) as queries:
        assert pulling.lease(trigger.pk, limit=5, consumer="erp") == []
    doubtful = Delivery.objects.filter(state=DeliveryState.IN_DOUBT)
    found = _told("delivery")
    assert set(found) == {delivery.public_id for delivery in doubtful} and len(found) == 5
    first = doubtful.get(message__message_id="d0@x")
    entry = found[first.public_id]
    assert entry.reason == first.evidence[-1]["detail"]
    assert (entry.after["doubt"], entry.after["evidence"]) == (first.doubt, first.evidence)
    assert (entry.after["trigger"], entry.after["message_id"]) == (trigger.public_id, "d0@x")
    # An ordered queue settles the head of its pair and looks again: a statement a round, not one a row of a round.
    assert len([one for one in queries if 'INSERT INTO "messaging_auditentry"' in one["sql"]]) <= 5


def test_w46_what_a_restore_leaves_in_doubt(time: FrozenClock) -> None:
    trigger = make_trigger(kind="pull", lease_seconds=30)
    arrive(partner_side(), "order-1")
    hub_memory.lost(clock.now(), reason="a test", actor=hub_memory.SYSTEM)
    assert pulling.lease(trigger.pk, limit=1, consumer="erp") == []
    (entry,) = _told("delivery").values()
    assert entry.after["doubt"] == "memory_lost"


def test_w46_a_transaction_and_each_participant_once(time: FrozenClock) -> None:
    app, shop, store = peer(), peer(), peer()
    begun = app.create()
    initiator = app.register(begun, Protocol.COMPLETION)
    shop.register(begun, Protocol.DURABLE)
    store.register(begun, Protocol.DURABLE)
    initiator.say(Note.COMMIT)
    assert due.restored(clock.now()) == 1
    coordination = Coordination.objects.get()
    entries = AuditEntry.objects.filter(verb="coordination.in_doubt", object_id=coordination.public_id)
    members = Enlistment.objects.filter(protocol=Protocol.DURABLE)
    assert {entry.after["participant"] for entry in entries} == {member.public_id for member in members}
    assert {(entry.actor, entry.after["cause"]) for entry in entries} == {("system", "transaction_in_doubt")}
    assert all("may have been told so" in entry.reason for entry in entries)
    due.restored(clock.now())
    assert entries.count() == 2, "it has been in doubt for that reason since then"
