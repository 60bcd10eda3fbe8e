"""What housekeeping notices about triggers: silence, documents begun and never finished, joins out of time."""

from __future__ import annotations

import pytest

from messaging.choices import IncidentState, TriggerState
from messaging.deliveries.services import monitoring, pulling, triggering
from messaging.journal import incidents
from messaging.models import DocumentStarted, Event, Incident, Trigger
from messaging.overview.services import housekeeping
from rmhub.clock import FrozenClock
from tests.messaging.deliveries.documents import documents_from, make_queue
from tests.messaging.deliveries.stage import PERSON
from tests.messaging.factories import PartnerSide, partner_side

pytestmark = pytest.mark.django_db

DAY = 86_400


@pytest.fixture
def partner(time: FrozenClock) -> PartnerSide:
    return partner_side()


def unresolved(trigger: Trigger) -> list[str]:
    found = Incident.objects.filter(trigger=trigger).exclude(state=IncidentState.RESOLVED)
    return list(found.order_by("number").values_list("cause", flat=True))


def take(trigger: Trigger) -> pulling.Leased:
    (leased,) = pulling.lease(trigger.pk, limit=1, consumer="erp")
    return leased


def test_a_silent_trigger_is_an_incident_until_a_document_comes(time: FrozenClock, partner: PartnerSide) -> None:
    trigger = make_queue(silent_after=3600)
    indifferent = make_queue()
    time.move(3599)
    monitoring.watch()
    assert unresolved(trigger) == []
    time.move(1)
    monitoring.watch()
    assert unresolved(trigger) == ["trigger_silent"]
    for _ in range(3):  # one incident, however long it lasts
        time.move(DAY)
        monitoring.watch()
    incident = Incident.objects.get()
    assert incident.occurrences == 1
    documents_from(partner, "NewOrder")
    monitoring.watch()
    assert unresolved(trigger) == ["trigger_silent"], "it waits in the queue, and nobody takes it"
    take(trigger)
    monitoring.watch()
    assert unresolved(trigger) == []
    incident.refresh_from_db()
    assert incident.resolved_by == "system"
    assert list(Event.objects.filter(type__startswith="incident").values_list("type", flat=True).order_by("id")) == [
        "incident.opened",
        "incident.resolved",
    ]
    assert unresolved(indifferent) == []
    time.move(3600)
    monitoring.watch()
    assert unresolved(trigger) == ["trigger_silent"]


def test_a_silence_that_a_person_has_seen_is_told_again_after_as_long_again(time: FrozenClock) -> None:
    trigger = make_queue(silent_after=3600)
    time.move(3600)
    monitoring.watch()
    incidents.incident_resolve(incident_id=Incident.objects.get().pk, actor=PERSON, reason="it is Sunday")
    time.move(3599)
    monitoring.watch()
    assert unresolved(trigger) == []
    time.move(1)
    monitoring.watch()
    assert unresolved(trigger) == ["trigger_silent"]


def test_a_trigger_that_is_held_is_not_silent(time: FrozenClock) -> None:
    trigger = make_queue(silent_after=3600)
    time.move(3600)
    monitoring.watch()
    triggering.trigger_suspend(trigger_id=trigger.pk, actor=PERSON, reason="stocktaking")
    monitoring.watch()
    assert unresolved(trigger) == []
    time.move(DAY)
    monitoring.watch()
    assert unresolved(trigger) == []
    triggering.trigger_resume(trigger_id=trigger.pk, actor=PERSON, reason="done")
    monitoring.watch()
    assert unresolved(trigger) == [], "its time starts anew"
    time.move(3600)
    monitoring.watch()
    assert unresolved(trigger) == ["trigger_silent"]


def test_w17_what_was_begun_and_never_finished_is_kept_and_raises_an_alert(
    time: FrozenClock, partner: PartnerSide
) -> None:
    trigger = make_queue(history_ttl=DAY, lease_seconds=60)
    documents_from(partner, "NewOrder")
    take(trigger)  # and the consumer dies
    time.move(DAY - 1)
    monitoring.watch()
    assert unresolved(trigger) == []
    time.move(1)
    monitoring.watch()
    assert unresolved(trigger) == ["started_too_old"]
    for _ in range(40):
        time.move(DAY)
        housekeeping.run()
    assert DocumentStarted.objects.filter(trigger=trigger).count() == 1
    assert "started_too_old" in unresolved(trigger)
    assert Incident.objects.get(cause="started_too_old").occurrences == 1
    # The copy that comes after all this time is in doubt, not new.
    assert pulling.lease(trigger.pk, limit=1, consumer="erp") == []
    assert Trigger.objects.get(pk=trigger.pk).deliveries.get().state == "in_doubt"


def test_a_document_that_is_still_in_work_is_not_too_old(time: FrozenClock, partner: PartnerSide) -> None:
    trigger = make_queue(history_ttl=60, lease_seconds=300)
    documents_from(partner, "NewOrder")
    leased = take(trigger)
    time.move(299)
    monitoring.watch()
    assert unresolved(trigger) == []
    time.move(1)
    monitoring.watch()
    assert unresolved(trigger) == ["started_too_old"]
    pulling.complete(leased.delivery.pk, leased.claim)
    monitoring.watch()
    assert unresolved(trigger) == []


def test_an_old_beginning_that_a_person_has_seen_is_told_again_for_another_one_only(
    time: FrozenClock, partner: PartnerSide
) -> None:
    trigger = make_queue(history_ttl=DAY, lease_seconds=60, concurrency=9, ordered=False)
    documents_from(partner, "NewOrder")
    take(trigger)
    time.move(DAY)
    monitoring.watch()
    incidents.incident_resolve(incident_id=Incident.objects.get().pk, actor=PERSON, reason="I know of it")
    time.move(DAY)
    monitoring.watch()
    assert unresolved(trigger) == []
    documents_from(partner, "NewOrder")
    assert len(pulling.lease(trigger.pk, limit=9, consumer="erp")) == 1
    time.move(DAY)
    monitoring.watch()
    assert "started_too_old" in unresolved(trigger)


def test_a_round_while_nothing_is_wrong_writes_nothing(time: FrozenClock, partner: PartnerSide) -> None:
    trigger = make_queue(silent_after=3600)
    documents_from(partner, "NewOrder")
    leased = take(trigger)
    pulling.complete(leased.delivery.pk, leased.claim)
    before = Event.objects.count()
    assert monitoring.watch() == "silent triggers 0, begun too long ago 0, joins out of time 0"
    assert Event.objects.count() == before
    assert Trigger.objects.get().state == TriggerState.ACTIVE
