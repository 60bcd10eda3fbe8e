"""Incidents of targets: before the month is lost, when it is lost, and how they end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from messaging.journal import incidents
from messaging.journal.audit import Actor
from messaging.models import Event, Incident, Notification, Pair, SlaMonth, SlaSpan, TrafficCursor
from messaging.notifications.services import notifying
from messaging.overview.services import housekeeping
from messaging.sla.services import watching
from messaging.sla.services.counting import month_of, span_of
from partners.models import AgreementVersion
from rmhub import clock
from rmhub.clock import FrozenClock
from tests.messaging.factories import PartnerSide, link, partner_side, submit, work
from tests.messaging.notifications.test_notifying import happen, rule

pytestmark = pytest.mark.django_db

ANN = Actor("ann")
TARGET = {"acknowledged_within": 900, "acknowledged_percent": 99}


def documents(partner: PartnerSide, due: int, met: int, *, ago: int = 10, target: str = "acknowledged") -> None:
    """So many had a limit that ended so many minutes ago."""
    at = span_of(clock.now() - timedelta(minutes=ago))
    place = {"agreement_id": partner.terms.agreement_id, "target": target}
    span, _ = SlaSpan.objects.get_or_create(**place, at=at)
    month, _ = SlaMonth.objects.get_or_create(**place, month=month_of(at), defaults={"percent": 99})
    for row in (span, month):
        row.due, row.met = row.due + due, row.met + met
        row.save()


def watch() -> int:
    TrafficCursor.objects.update_or_create(pk=1, defaults={"through": clock.now()})
    return watching.watch(clock.now())


def unresolved() -> list[tuple[str, str]]:
    found = Incident.objects.exclude(state="resolved").order_by("number")
    return [(one.cause, one.agreement.tpa_id if one.agreement else "") for one in found]


def months_before(partner: PartnerSide, *, due: int) -> None:
    SlaMonth.objects.create(
        agreement_id=partner.terms.agreement_id,
        target="acknowledged",
        month=datetime(2026, 2, 1, tzinfo=UTC),
        due=due,
        met=due,
        percent=99,
    )


def test_a_burn_is_told_before_the_month_is_lost_and_ends_by_itself(time: FrozenClock) -> None:
    partner = partner_side(**TARGET)
    months_before(partner, due=10_000)  # a budget of 100
    documents(partner, 40, 20)
    assert watch() == 1
    incident = Incident.objects.get()
    assert (incident.cause, incident.pair) == ("sla_acknowledged_at_risk", partner.outbound)
    assert incident.agreement is not None and incident.agreement.tpa_id == partner.terms.tpa_id
    assert incident.detail == (
        "Acknowledged within 15 m, 99 % of March 2026: 20 of 40 documents missed it in the last hour, 50 times as many "
        "as it allows. 80 of 100 misses are left; at this pace the budget is used up on 2026-03-10 at 16:03 UTC."
    )
    opened = Event.objects.get(type="incident.opened")
    assert (opened.data["agreement"], opened.data["cause"]) == (partner.terms.tpa_id, incident.cause)

    time.move(300)
    documents(partner, 30, 20, ago=5)
    assert watch() == 1  # the same one, with other numbers, and nobody is told again
    incident.refresh_from_db()
    assert "30 of 70 documents" in incident.detail and incident.occurrences == 1
    assert Event.objects.filter(type="incident.opened").count() == 1

    for _ in range(8):
        time.move(300)
        documents(partner, 20, 20, ago=5)
        watch()
    assert unresolved() == []
    incident.refresh_from_db()
    assert (incident.resolved_by, incident.resolution) == ("system", "Enough documents were in time again.")


def test_one_late_document_of_two_tells_nobody(time: FrozenClock) -> None:
    partner = partner_side(**TARGET)
    documents(partner, 2, 1)
    assert watch() == 0
    documents(partner, 7, 0)
    assert watch() == 0 and unresolved() == []


def test_a_budget_that_is_used_up_is_an_incident_of_its_own(time: FrozenClock) -> None:
    partner = partner_side(**TARGET)
    months_before(partner, due=1000)  # a budget of 10
    documents(partner, 40, 32)
    watch()
    documents(partner, 20, 15)
    watch()
    assert unresolved() == [("sla_acknowledged_missed", partner.terms.tpa_id)]
    first, second = Incident.objects.order_by("number")
    assert (first.state, first.resolution) == ("resolved", "The error budget is used up.")
    assert "13 of 60 documents missed it, and 10 were allowed" in second.detail
    watch()
    assert Incident.objects.count() == 2

    time.move((datetime(2026, 4, 1, tzinfo=UTC) - clock.now()).total_seconds())
    watch()
    second.refresh_from_db()
    assert (second.state, second.resolution) == ("resolved", "March 2026 is over.")


def test_the_next_month_that_is_lost_has_an_incident_of_its_own(time: FrozenClock) -> None:
    """Also where nobody watched in between."""
    partner = partner_side(**TARGET)
    documents(partner, 40, 20)
    watch()
    time.move((datetime(2026, 4, 10, tzinfo=UTC) - clock.now()).total_seconds())
    documents(partner, 50, 20)
    watch()
    first, second = Incident.objects.order_by("number")
    assert (first.resolution, first.cause, second.cause) == ("March 2026 is over.", second.cause, first.cause)
    assert second.state == "open" and "April 2026" in second.detail


def test_more_documents_in_time_give_the_target_back(time: FrozenClock) -> None:
    partner = partner_side(**TARGET)
    documents(partner, 100, 97, ago=600)
    watch()
    assert unresolved() == [("sla_acknowledged_missed", partner.terms.tpa_id)]
    documents(partner, 300, 300, ago=600)
    watch()
    assert unresolved() == []


def test_each_agreement_and_target_has_its_own(time: FrozenClock) -> None:
    one = partner_side(**TARGET, processed_within=60)
    other = partner_side(**TARGET)
    for side in (one, other):
        documents(side, 40, 20)
    documents(one, 40, 20, target="processed")
    assert watch() == 3
    assert sorted(unresolved()) == sorted(
        [
            ("sla_acknowledged_missed", one.terms.tpa_id),
            ("sla_acknowledged_missed", other.terms.tpa_id),
            ("sla_processed_missed", one.terms.tpa_id),
        ]
    )
    assert Incident.objects.get(cause="sla_processed_missed").pair == one.inbound


def test_an_acknowledgement_does_not_close_it(time: FrozenClock) -> None:
    partner = partner_side(**TARGET)
    documents(partner, 40, 20)
    watch()
    with link() as wire:
        submit(partner)
        work()
        Pair.objects.filter(pk=partner.outbound.pk).update(cause="read_timeout")
        partner.send(partner.acknowledgement(wire.last))
    assert len(unresolved()) == 1


def test_what_a_person_closed_stays_closed_for_the_month(time: FrozenClock) -> None:
    partner = partner_side(**TARGET)
    documents(partner, 40, 20)
    watch()
    incidents.incident_resolve(incident_id=Incident.objects.get().pk, actor=ANN, reason="the partner was told")
    assert watch() == 1 and unresolved() == []


def test_a_target_that_is_taken_out_ends_its_incident(time: FrozenClock) -> None:
    partner = partner_side(**TARGET)
    documents(partner, 40, 20)
    watch()
    AgreementVersion.objects.update(acknowledged_within=0)
    watch()
    assert Incident.objects.get().resolution == "The agreement has no such target in force any more."


def test_rules_send_it_by_severity(time: FrozenClock) -> None:
    partner = partner_side(**TARGET)
    months_before(partner, due=1000)
    rule(events=["incident.opened"], least="error")
    documents(partner, 40, 32)
    watch()
    happen([])
    assert notifying.read_feed() == 0  # at risk is a warning
    documents(partner, 20, 15)
    watch()
    happen([])
    assert notifying.read_feed() == 1
    assert "Acknowledgement target missed" in Notification.objects.get().subject


def test_housekeeping_watches_and_an_idle_hub_asks_little(time: FrozenClock) -> None:
    partner = partner_side(**TARGET)
    documents(partner, 40, 20)
    TrafficCursor.objects.update_or_create(pk=1, defaults={"through": clock.now()})
    assert "targets at risk or missed 1" in housekeeping.run()
    more = [partner_side(**TARGET) for _ in range(3)]
    watch()
    with CaptureQueriesContext(connection) as before:
        watch()
    for side in more:
        documents(side, 40, 40)
    with CaptureQueriesContext(connection) as after:
        watch()
    assert len(after) == len(before)
