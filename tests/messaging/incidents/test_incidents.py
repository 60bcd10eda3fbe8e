"""Incidents: one for each pair and cause while it is unresolved, with numbers that have no gaps."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection, transaction

from messaging.exceptions import InvalidSubmission, NotFound, WrongState
from messaging.journal import incidents
from messaging.journal.audit import Actor
from messaging.models import AuditEntry, Event, Incident, Pair
from rmhub.clock import frozen
from rmhub.ids import uuid7
from tests.messaging.factories import partner_side
from tests.rmhub.conditions import eventually

pytestmark = pytest.mark.django_db

AT = datetime(2026, 5, 1, 12, tzinfo=UTC)
LATER = AT + timedelta(hours=1)
ANN, BOB = Actor("ann"), Actor("bob")
WAIT = 120.0


def opened(pair: Pair, cause: str = "ack_timeout", **fields: object) -> Incident:
    incident, _ = incidents.incident_open(pair=pair, cause=cause, now=AT, **fields)  # type: ignore[arg-type]
    return incident


def test_the_first_occurrence_opens_it_and_says_so() -> None:
    pair, message = partner_side().outbound, uuid7()
    incident, written = incidents.incident_open(pair=pair, cause="x", now=AT, detail="because", message_pk=message)
    assert (incident.number, incident.state, incident.occurrences) == (1, "open", 1)
    assert (incident.opened_at, incident.detail, incident.message_id) == (AT, "because", message)
    [event] = written
    assert (event.type, event.pair_id, event.data["number"]) == ("incident.opened", pair.pk, 1)
    assert event.data["incident"] == incident.public_id


def test_further_occurrences_are_counted_and_not_announced() -> None:
    pair = partner_side().outbound
    first = opened(pair, detail="first")
    message = uuid7()
    again, written = incidents.incident_open(pair=pair, cause="ack_timeout", now=LATER, message_pk=message)
    assert (again.pk, again.occurrences, again.last_seen_at, written) == (first.pk, 2, LATER, [])
    again.refresh_from_db()
    assert (again.detail, again.message_id, again.opened_at) == ("first", message, AT)


def test_another_cause_another_pair_and_no_pair_are_incidents_of_their_own() -> None:
    first, second = partner_side().outbound, partner_side().outbound
    made = [opened(first, "a"), opened(first, "b"), opened(second, "a")]
    hub, _ = incidents.incident_open(pair=None, cause="a", now=AT)
    folded, _ = incidents.incident_open(pair=None, cause="a", now=AT)
    assert [incident.number for incident in [*made, hub]] == [1, 2, 3, 4]
    assert (folded.pk, folded.occurrences) == (hub.pk, 2)


def test_after_it_was_resolved_the_next_occurrence_opens_another() -> None:
    pair = partner_side().outbound
    first = opened(pair)
    incidents.incident_resolve(incident_id=first.pk, actor=ANN, reason="seen")
    assert opened(pair).number == 2


def test_a_person_takes_it() -> None:
    incident = opened(partner_side().outbound)
    with frozen(LATER):
        taken = incidents.incident_acknowledge(incident_id=incident.pk, actor=ANN, reason="mine")
    assert (taken.state, taken.owner, taken.acknowledged_at) == ("acknowledged", "ann", LATER)
    entry = AuditEntry.objects.get()
    assert (entry.actor, entry.verb, entry.reason, entry.object_id) == (
        "ann", "incident.acknowledge", "mine", incident.public_id,
    )  # fmt: skip
    assert (entry.before, entry.after) == (
        {"state": "open", "owner": ""},
        {"state": "acknowledged", "owner": "ann"},
    )
    assert Event.objects.get().type == "incident.acknowledged"
    incidents.incident_acknowledge(incident_id=incident.pk, actor=BOB)
    incident.refresh_from_db()
    assert (incident.owner, incident.acknowledged_at) == ("bob", LATER), "handed over; first taken when it was"


def test_a_person_closes_it() -> None:
    incident = opened(partner_side().outbound)
    with frozen(LATER):
        incidents.incident_resolve(incident_id=incident.pk, actor=ANN, reason="firewall opened")
    incident.refresh_from_db()
    assert (incident.state, incident.resolved_by, incident.resolution, incident.resolved_at) == (
        "resolved", "ann", "firewall opened", LATER,
    )  # fmt: skip
    entry = AuditEntry.objects.get()
    assert (entry.verb, entry.reason, entry.before, entry.after) == (
        "incident.resolve", "firewall opened", {"state": "open", "owner": ""}, {"state": "resolved", "owner": ""},
    )  # fmt: skip
    assert Event.objects.get().type == "incident.resolved"


def test_what_is_resolved_stays_so() -> None:
    incident = opened(partner_side().outbound)
    incidents.incident_resolve(incident_id=incident.pk, actor=ANN, reason="done")
    for call in (incidents.incident_acknowledge, incidents.incident_resolve):
        with pytest.raises(WrongState, match="INC-1 is resolved already"):
            call(incident_id=incident.pk, actor=BOB, reason="again")
    assert AuditEntry.objects.count() == 1


@pytest.mark.parametrize("reason", ["", "  ", "ok"])
def test_it_is_not_closed_without_a_reason(reason: str) -> None:
    incident = opened(partner_side().outbound)
    with pytest.raises(InvalidSubmission, match="reason"):
        incidents.incident_resolve(incident_id=incident.pk, actor=ANN, reason=reason)
    incident.refresh_from_db()
    assert incident.state == "open"


@pytest.mark.parametrize("call", [incidents.incident_acknowledge, incidents.incident_resolve])
def test_one_that_does_not_exist_is_not_found(call) -> None:
    with pytest.raises(NotFound, match="inc_"):
        call(incident_id=uuid7(), actor=ANN, reason="why not")


def test_success_resolves_all_of_a_pair_and_nothing_else() -> None:
    pair, other = partner_side().outbound, partner_side().outbound
    for cause in ("a", "b"):
        opened(pair, cause)
    elsewhere = opened(other, "a")
    written = incidents.incidents_resolve_for_pair(pair=pair, now=LATER, by="system", resolution="acknowledged")
    assert [event.type for event in written] == ["incident.resolved"] * 2
    assert set(Incident.objects.filter(pair=pair).values_list("state", "resolved_by")) == {("resolved", "system")}
    elsewhere.refresh_from_db()
    assert elsewhere.state == "open"


@pytest.mark.django_db(transaction=True)
def test_incidents_of_many_pairs_at_once_have_numbers_without_gaps() -> None:
    pairs = [partner_side().outbound for _ in range(8)]
    start = threading.Barrier(8)

    def run(pair: Pair) -> None:
        try:
            start.wait(WAIT)
            for cause in ("a", "b", "a"):
                with transaction.atomic():
                    incidents.incident_open(pair=Pair.objects.select_for_update().get(pk=pair.pk), cause=cause, now=AT)
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(pair,)) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
        assert not thread.is_alive()
    assert sorted(Incident.objects.values_list("number", flat=True)) == list(range(1, 17))
    assert set(Incident.objects.values_list("cause", "occurrences")) == {("a", 2), ("b", 1)}


@pytest.mark.django_db(transaction=True)
def test_an_occurrence_while_a_person_closes_it_is_not_lost() -> None:
    """It must not be counted on an incident that is closed in the same moment: the pair would be suspended unseen."""
    pair = partner_side().outbound
    with transaction.atomic():
        first = opened(pair)
    closing, results = threading.Event(), []

    def occurs() -> None:
        try:
            closing.wait(WAIT)
            with transaction.atomic():
                results.append(incidents.incident_open(pair=pair, cause="ack_timeout", now=LATER)[0])
        finally:
            connection.close()

    thread = threading.Thread(target=occurs)
    thread.start()
    with transaction.atomic():
        incidents.incident_resolve(incident_id=first.pk, actor=ANN, reason="closing")
        closing.set()
        eventually(lambda: _somebody_waits() or not thread.is_alive())
    thread.join(WAIT)
    assert not thread.is_alive()
    [incident] = results
    assert (incident.pk != first.pk, incident.state) == (True, "open")
    assert Incident.objects.exclude(state="resolved").count() == 1


def _somebody_waits() -> bool:
    """Whether another session of this database waits for a lock."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid IN"
            " (SELECT l.pid FROM pg_locks l JOIN pg_database d ON d.oid = l.database"
            " WHERE d.datname = current_database())"
        )
        return cursor.fetchone()[0] > 0
