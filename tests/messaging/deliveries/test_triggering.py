"""Triggers as people make, change and hold them: what is refused and why, and what is left in the records."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import transaction

from messaging import applications
from messaging.applications import Document
from messaging.choices import IncidentState, TriggerState
from messaging.deliveries.services import triggering
from messaging.engine import subscriptions
from messaging.exceptions import InvalidSubmission, NotFound, Stale, WrongState
from messaging.journal import events, incidents
from messaging.journal.audit import Actor
from messaging.models import AuditEntry, Delivery, Event, Incident, Join, Trigger
from partners.secrets import decrypt
from rmhub import clock
from rmhub.clock import FrozenClock
from rmhub.ids import uuid7
from tests.messaging.deliveries.documents import documents_from
from tests.messaging.factories import partner_side

pytestmark = pytest.mark.django_db

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
ANN = Actor("ann", "console", "192.0.2.9", "req-1")
WHY = "go-live of the ERP"
NOBODY = uuid.UUID(int=7)  # of nothing that is stored
HTTP: dict[str, Any] = {"kind": "http", "url": "http://erp.internal:8080/documents"}
_count = itertools.count(1)


@pytest.fixture(autouse=True)
def time() -> Iterator[FrozenClock]:
    with clock.frozen(AT) as frozen:
        yield frozen


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    def service(document: Document) -> None: ...

    monkeypatch.setitem(applications.SERVICES, "orders.import", service)
    monkeypatch.setitem(applications.RESOLVERS, "orders.known", lambda document: "NEW")
    monkeypatch.setitem(applications.MONITORS, "orders.up", lambda: True)


def create(**values: Any) -> Trigger:
    made, _ = triggering.trigger_create(
        actor=ANN, reason=WHY, **{"name": f"orders {next(_count)}", "kind": "pull", **values}
    )
    return made


def refused(**values: Any) -> dict[str, list[str]]:
    with pytest.raises(InvalidSubmission) as caught:
        create(**values)
    return caught.value.errors


def suspend(trigger: Trigger, cause: str = "service_unreachable", detail: str = "Connection refused.") -> list[Event]:
    """As the engine does it."""
    with transaction.atomic():
        locked = Trigger.objects.select_for_update().get(pk=trigger.pk)
        written = triggering.suspend_now(locked, cause, detail, clock.now())
        events.write(written)
    trigger.refresh_from_db()
    return written


def unresolved(trigger: Trigger) -> list[str]:
    found = Incident.objects.filter(trigger=trigger).exclude(state=IncidentState.RESOLVED)
    return list(found.order_by("number").values_list("cause", flat=True))


# --- making one ---


def test_a_trigger_is_active_audited_and_shows_its_secret_once() -> None:
    trigger, secret = triggering.trigger_create(name=" ERP orders ", actor=ANN, reason=WHY, **HTTP)
    stored = Trigger.objects.get()
    assert (stored.name, stored.state, stored.changed_at) == ("ERP orders", TriggerState.ACTIVE, AT)
    assert secret.startswith("whsec_")
    assert len(secret) > 40
    assert decrypt(bytes(stored.secret_encrypted)) == secret
    entry = AuditEntry.objects.get()
    assert (entry.verb, entry.actor, entry.reason) == ("trigger.create", "ann", WHY)
    assert (entry.object_type, entry.object_id) == ("trigger", trigger.public_id)
    assert entry.after["url"] == HTTP["url"]
    assert secret not in str(entry.after)
    assert "secret" not in str(entry.after)


@pytest.mark.parametrize(
    ("values", "field", "says"),
    [
        ({"kind": "http"}, "url", "Enter the address"),
        ({"kind": "http", "url": "ftp://erp/"}, "url", "http:// or https://"),
        ({"kind": "http", "url": "http://u:p@erp/"}, "url", "user name"),
        ({"kind": "http", "url": "http://"}, "url", "no host"),
        ({"kind": "callable"}, "callable_name", "Registered: orders.import"),
        ({"kind": "callable", "callable_name": "nobody"}, "callable_name", "'nobody'"),
        ({"kind": "carrier pigeon"}, "kind", "carrier pigeon"),
        ({"kind": "pull", "url": "http://erp/"}, "url", "“pull” is chosen"),
        ({**HTTP, "callable_name": "orders.import"}, "callable_name", "leave it empty"),
        ({"resolver": "http"}, "resolver_url", "Enter the address"),
        ({"resolver": "callable", "resolver_callable": "x"}, "resolver_callable", "Registered: orders.known"),
        ({"resolver_url": "http://erp/"}, "resolver_url", "leave it empty"),
        ({"monitor": "http"}, "monitor_url", "Enter the address"),
        ({"monitor": "callable", "monitor_callable": "x"}, "monitor_callable", "Registered: orders.up"),
        ({"name": ""}, "name", ""),
        ({"name": "x" * 81}, "name", "80"),
        ({"name": "a\x00b"}, "name", "control character"),
        ({"concurrency": 0}, "concurrency", "1"),
        ({"concurrency": 65}, "concurrency", "64"),
        ({"max_retries": -1}, "max_retries", "0"),
        ({"max_retries": "many"}, "max_retries", "integer"),
        ({"retry_interval": 2**40}, "retry_interval", ""),
        ({"history_ttl": 59}, "history_ttl", "60"),
        ({"lease_seconds": 4}, "lease_seconds", "5"),
        ({"timeout": None}, "timeout", ""),
        ({"retry_statuses": [200]}, "retry_statuses", "400 to 599"),
        ({"retry_statuses": "503"}, "retry_statuses", "400 to 599"),
        ({"documents": "urn:orders"}, "documents", "list"),
        ({"documents": [{"service": "urn:orders"}]}, "documents", "Entry 1"),
        ({"documents": [{"service": " ", "action": "*"}]}, "documents", "name the service"),
        ({"documents": [{"service": "a\x00", "action": "*"}]}, "documents", "control characters"),
        ({"documents": [{"service": "a", "action": "b"}] * 2}, "documents", "there already"),
        ({"documents": [{"service": f"s{n}", "action": "*"} for n in range(101)]}, "documents", "At most 100"),
        ({"join_type": "all"}, "documents", "at least two"),
        ({"join_type": "only_one", "documents": [{"service": "a", "action": "*"}]}, "documents", "at least two"),
        ({"answers": True}, "answers", "pull queue"),
        ({**HTTP, "answers": True, "join_type": "any"}, "answers", "join"),
        ({"party_id": NOBODY}, "party", "no such party"),
        ({"agreement_id": NOBODY}, "agreement", "no such agreement"),
        ({"party_id": "nonsense"}, "party", "no such party"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_beside_its_field(values: dict[str, Any], field: str, says: str) -> None:
    errors = refused(**values)
    assert list(errors) == [field], errors
    assert says in " ".join(errors[field])
    assert not Trigger.objects.exists()


def test_names_are_used_once_and_reasons_are_needed() -> None:
    create(name="orders")
    assert list(refused(name="orders")) == ["name"]
    with pytest.raises(InvalidSubmission, match="reason"):
        triggering.trigger_create(name="x", kind="pull", actor=ANN, reason=" ")


def test_w34_suspend_on_error_is_refused_for_a_concurrent_trigger() -> None:
    errors = refused(ordered=False, suspend_on_error=True)
    assert "processes in order" in errors["suspend_on_error"][0]
    trigger = create(ordered=True, suspend_on_error=True)
    with pytest.raises(InvalidSubmission) as caught:
        triggering.trigger_update(trigger_id=trigger.pk, ordered=False, actor=ANN, reason=WHY)
    assert list(caught.value.errors) == ["suspend_on_error"]
    assert Trigger.objects.get(pk=trigger.pk).ordered is True


def test_party_and_agreement_have_to_belong_together() -> None:
    one, other = partner_side(), partner_side()
    errors = refused(party_id=one.terms.partner_id, agreement_id=other.terms.agreement_id)
    assert list(errors) == ["agreement"]
    assert list(refused(party_id=one.terms.own_party_id)) == ["party"]
    made = create(party_id=one.terms.partner_id, agreement_id=one.terms.agreement_id)
    assert made.agreement is not None
    assert made.agreement.partner_id == made.party_id


def test_numbers_and_switches_come_as_text_too() -> None:
    made = create(concurrency="8", ordered="False", retry_interval="0")
    stored = Trigger.objects.get(pk=made.pk)
    assert (stored.concurrency, stored.ordered, stored.retry_interval) == (8, False, 0)


# --- changing one ---


def test_a_change_is_audited_with_before_and_after_and_counts_the_version() -> None:
    trigger = create(max_retries=5)
    changed = triggering.trigger_update(
        trigger_id=trigger.pk, max_retries=7, retry_interval=10, actor=ANN, reason=WHY, expected_version=1
    )
    assert (changed.max_retries, changed.version) == (7, 2)
    entry = AuditEntry.objects.get(verb="trigger.update")
    assert (entry.before, entry.after) == ({"max_retries": 5}, {"max_retries": 7})
    with pytest.raises(Stale):
        triggering.trigger_update(trigger_id=trigger.pk, max_retries=9, actor=ANN, reason=WHY, expected_version=1)
    triggering.trigger_update(trigger_id=trigger.pk, max_retries=7, actor=ANN, reason=WHY)
    assert Trigger.objects.get(pk=trigger.pk).version == 2, "nothing changed"
    with pytest.raises(NotFound):
        triggering.trigger_update(trigger_id=uuid7(), max_retries=7, actor=ANN, reason=WHY)


def test_a_change_of_the_kind_empties_what_belonged_to_the_other() -> None:
    trigger = create(**HTTP)
    changed = triggering.trigger_update(
        trigger_id=trigger.pk, kind="callable", callable_name="orders.import", actor=ANN, reason=WHY
    )
    assert (changed.url, changed.callable_name) == ("", "orders.import")


def test_a_join_is_not_changed_under_documents_that_wait_in_it() -> None:
    partner = partner_side()
    types = [{"service": "urn:orders", "action": action} for action in ("Head", "Lines")]
    trigger = create(join_type="all", documents=types)
    (message,) = documents_from(partner, "Head")
    join = Join.objects.create(trigger=trigger, activation="c1", expires_at=AT + timedelta(days=1), created_at=AT)
    Delivery.objects.filter(message=message).update(state="joined", part_of=join, due_at=None)
    with pytest.raises(InvalidSubmission) as caught:
        triggering.trigger_update(trigger_id=trigger.pk, join_type="any", actor=ANN, reason=WHY)
    assert list(caught.value.errors) == ["join_type"]
    triggering.trigger_update(trigger_id=trigger.pk, join_timeout=60, actor=ANN, reason=WHY)


def test_a_new_secret_replaces_the_old_one() -> None:
    trigger, first = triggering.trigger_create(name="x", kind="pull", actor=ANN, reason=WHY)
    changed, second = triggering.trigger_rotate_secret(trigger_id=trigger.pk, actor=ANN, reason=WHY)
    assert second != first
    stored = Trigger.objects.get()
    assert decrypt(bytes(stored.secret_encrypted)) == second
    assert stored.version == changed.version == 2
    assert second not in str(list(AuditEntry.objects.values()))


# --- suspending and resuming ---


def test_the_engine_suspends_with_an_incident_and_resumes_with_its_end(woken: list[str]) -> None:
    trigger = create(monitor="callable", monitor_callable="orders.up", monitor_interval=90)
    suspend(trigger)
    assert (trigger.state, trigger.cause, trigger.cause_detail) == (
        "suspended",
        "service_unreachable",
        "Connection refused.",
    )
    assert trigger.monitor_due_at == AT + timedelta(seconds=90)
    assert unresolved(trigger) == ["service_unreachable"]
    assert suspend(trigger, "service_not_now") == [], "it keeps its first cause"
    assert trigger.cause == "service_unreachable"
    with transaction.atomic():
        events.write(triggering.resume_locked(trigger, AT, "system", "its monitor says yes"))
    trigger.refresh_from_db()
    assert (trigger.state, trigger.cause, trigger.monitor_due_at) == ("active", "", None)
    assert unresolved(trigger) == []
    assert Incident.objects.get().resolution == "its monitor says yes"
    assert triggering.resume_locked(trigger, AT, "system", "again") == []
    told = list(Event.objects.order_by("id").values_list("type", flat=True))
    assert told == ["trigger.suspended", "incident.opened", "trigger.resumed", "incident.resolved"]


def test_a_resumption_leaves_incidents_about_documents_alone() -> None:
    trigger = create()
    suspend(trigger)
    incidents.incident_open(pair=None, trigger=trigger, cause="documents_in_doubt", now=AT)
    triggering.trigger_resume(trigger_id=trigger.pk, actor=ANN, reason="it is up again")
    assert unresolved(trigger) == ["documents_in_doubt"]


def test_a_person_suspends_without_an_incident_and_no_monitor_ends_it(woken: list[str]) -> None:
    trigger = create(monitor="callable", monitor_callable="orders.up")
    held = triggering.trigger_suspend(trigger_id=trigger.pk, actor=ANN, reason="stocktaking", expected_version=1)
    assert (held.state, held.cause, held.cause_detail) == ("suspended", triggering.BY_USER, "stocktaking")
    assert held.monitor_due_at is None
    assert not Incident.objects.exists()
    with pytest.raises(WrongState) as caught:
        triggering.trigger_suspend(trigger_id=trigger.pk, actor=ANN, reason="stocktaking")
    assert caught.value.allowed == ("resume", "disable")
    resumed = triggering.trigger_resume(trigger_id=trigger.pk, actor=ANN, reason="counted", expected_version=2)
    assert resumed.state == "active"
    verbs = AuditEntry.objects.order_by("id").values_list("verb", "reason")
    assert list(verbs)[1:] == [("trigger.suspend", "stocktaking"), ("trigger.resume", "counted")]


def test_a_person_can_hold_what_trouble_has_suspended() -> None:
    trigger = create(monitor="callable", monitor_callable="orders.up")
    suspend(trigger)
    held = triggering.trigger_suspend(trigger_id=trigger.pk, actor=ANN, reason="I am mending it")
    assert (held.cause, held.monitor_due_at) == (triggering.BY_USER, None)
    assert unresolved(trigger) == []
    assert triggering.allowed_verbs(held) == ("resume", "disable")


def test_an_error_of_the_service_waits_for_a_person_and_not_for_the_monitor() -> None:
    trigger = create(monitor="callable", monitor_callable="orders.up", suspend_on_error=True)
    suspend(trigger, "service_error")
    assert trigger.monitor_due_at is None


def test_a_disabled_trigger_takes_nothing_until_it_is_enabled() -> None:
    partner = partner_side()
    trigger = create()
    suspend(trigger)
    documents_from(partner, "NewOrder")
    triggering.trigger_disable(trigger_id=trigger.pk, actor=ANN, reason="not used any more")
    assert unresolved(trigger) == []
    subscriptions.current.forget()
    documents_from(partner, "NewOrder")
    assert Delivery.objects.filter(trigger=trigger).count() == 1, "the second came while it was disabled"
    for verb in ("suspend", "resume", "disable"):
        with pytest.raises(WrongState) as caught:
            triggering.VERBS[verb](trigger_id=trigger.pk, actor=ANN, reason=WHY)
        assert caught.value.allowed == ("enable",)
    trigger.refresh_from_db()
    assert suspend(trigger) == [], "the engine has no say over a disabled one"
    assert triggering.trigger_enable(trigger_id=trigger.pk, actor=ANN, reason="used again").state == "active"
    subscriptions.current.forget()
    documents_from(partner, "NewOrder")
    assert Delivery.objects.filter(trigger=trigger).count() == 2


def test_a_change_of_the_monitor_moves_the_next_look(time: FrozenClock) -> None:
    trigger = create()
    suspend(trigger)
    change = {"trigger_id": trigger.pk, "actor": ANN, "reason": WHY}
    changed = triggering.trigger_update(
        monitor="callable", monitor_callable="orders.up", monitor_interval=600, **change
    )
    assert changed.monitor_due_at == AT + timedelta(seconds=600)
    time.move(30)
    assert triggering.trigger_update(monitor_interval=60, **change).monitor_due_at == AT + timedelta(seconds=90)
    assert triggering.trigger_update(monitor="none", **change).monitor_due_at is None


def test_whoever_acts_on_an_old_page_is_told_so() -> None:
    trigger = create()
    triggering.trigger_suspend(trigger_id=trigger.pk, actor=ANN, reason=WHY)
    for verb in triggering.VERBS.values():
        with pytest.raises(Stale) as caught:
            verb(trigger_id=trigger.pk, actor=ANN, reason=WHY, expected_version=1)
        assert caught.value.version == 2


def test_trouble_that_comes_and_goes_is_one_incident(time: FrozenClock) -> None:
    trigger = Trigger.objects.create(name="ERP", kind="pull")

    def suspend_and_resume(by: str) -> None:
        with transaction.atomic():
            locked = Trigger.objects.select_for_update().get(pk=trigger.pk)
            events.write(triggering.suspend_now(locked, "service_unreachable", "refused", clock.now()))
            events.write(triggering.resume_locked(locked, clock.now(), by, "the monitor says it is up"))

    for _ in range(3):
        suspend_and_resume("system")
        time.move(60)
    incident = Incident.objects.get()
    assert (incident.occurrences, incident.state) == (3, IncidentState.RESOLVED)
    time.move(3600)
    suspend_and_resume("ann")
    suspend_and_resume("system")
    assert Incident.objects.count() == 3, "an hour later, and what a person closed, is another one"
