"""The examples of the OpenAPI document: of each body, of what is read most, of each event; all of them true."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import jsonschema
import pytest
from rest_framework.serializers import Serializer

from messaging import transports
from messaging.api import examples
from messaging.api.examples.events import FACTS
from messaging.api.openapi import document
from messaging.bulk.services import jobs
from messaging.deliveries.services import triggering
from messaging.engine import circuits
from messaging.engine.claiming import claim_due
from messaging.engine.recording import record
from messaging.journal import events
from messaging.journal.audit import Actor
from messaging.journal.events import TYPES
from messaging.models import Delivery, Event, Incident, Message
from messaging.onboarding.services import certificate_watch
from messaging.pairs.services import silence
from partners import registry, services
from partners.models import Endpoint
from rmhub import clock
from rmhub.ids import read_public_id
from tests.messaging.api.client import Api, suspended
from tests.messaging.deliveries.documents import documents_from, make_queue
from tests.messaging.factories import LOST, PartnerSide, link, partner_side, submit, work
from tests.messaging.onboarding.authority import Authority
from tests.messaging.profiles.wsat import scenes

# What is read most: one of each, and the lists that people page through.
MAIN = {
    *("pairs_read", "messages_read", "deliveries_read", "incidents_read", "agreements_read", "parties_read"),
    *("transactions_read", "bulk_operations_read", "triggers_read", "webhook_endpoints_read", "transmissions_read"),
    *("pairs_list", "messages_list", "deliveries_list", "incidents_list"),
}
WHY = "because the test says so"
ANA = Actor("ana")


@pytest.fixture(scope="module")
def api_document() -> dict[str, Any]:
    made: dict[str, Any] = json.loads(json.dumps(document(), default=str))
    return made


def operations(api_document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for methods in api_document["paths"].values():
        yield from methods.values()


def check(api_document: dict[str, Any], schema: dict[str, Any], value: Any) -> None:
    jsonschema.validate(
        value,
        {**schema, "components": api_document["components"]},
        cls=jsonschema.Draft202012Validator,
        format_checker=jsonschema.FormatChecker(),
    )


def unknown(api_document: dict[str, Any], schema: dict[str, Any], value: Any, place: str = "") -> list[str]:
    """Members, at any depth, that the schema does not name."""
    if "$ref" in schema:
        return unknown(
            api_document, api_document["components"]["schemas"][schema["$ref"].rpartition("/")[2]], value, place
        )
    for branch in (*schema.get("oneOf", ()), *schema.get("allOf", ()), *schema.get("anyOf", ())):
        if branch.get("type") != "null" and value is not None:
            return unknown(api_document, branch, value, place)
    if isinstance(value, list):
        below = schema.get("items", {})
        return [
            name for number, row in enumerate(value) for name in unknown(api_document, below, row, f"{place}/{number}")
        ]
    if not isinstance(value, dict) or "properties" not in schema:
        return []
    found = [f"{place}/{name}" for name in value if name not in schema["properties"]]
    for name, below in schema["properties"].items():
        if name in value:
            found += unknown(api_document, below, value[name], f"{place}/{name}")
    return found


def serializers() -> dict[str, type[Serializer]]:
    """Name of a body in the document -> what reads it."""
    found: dict[str, type[Serializer]] = {}
    waiting: list[type[Serializer]] = [Serializer]
    while waiting:
        for one in waiting.pop().__subclasses__():
            found[f"{one.__name__.removesuffix('Serializer')}Request"] = one
            waiting.append(one)
    return found


def test_every_body_has_an_example_that_is_one(api_document: dict[str, Any]) -> None:
    readers = serializers()
    without, checked = [], 0
    for operation in operations(api_document):
        for kind, media in operation.get("requestBody", {}).get("content", {}).items():
            found = media.get("examples", {})
            if not found:
                without.append(operation["operationId"])
            for example in found.values():
                check(api_document, media["schema"], example["value"])
                if kind == "application/json":
                    reader = readers[media["schema"]["$ref"].rpartition("/")[2]](data=example["value"])
                    assert reader.is_valid(), (operation["operationId"], reader.errors)
                    checked += 1
    assert not without
    assert checked > 100


def test_what_is_read_most_has_an_example_with_all_of_its_members_and_no_other(api_document: dict[str, Any]) -> None:
    shown = set()
    for operation in operations(api_document):
        for media in operation["responses"].get("200", {}).get("content", {}).values():
            for example in media.get("examples", {}).values():
                check(api_document, media["schema"], example["value"])
                assert unknown(api_document, media["schema"], example["value"]) == [], operation["operationId"]
                if operation["operationId"].endswith("_list"):
                    assert example["value"]["data"]
                shown.add(operation["operationId"])
    assert shown >= MAIN


def test_no_example_is_of_an_operation_that_is_not_there(api_document: dict[str, Any]) -> None:
    there = {operation["operationId"] for operation in operations(api_document)}
    assert not examples.NAMES - there


def test_every_type_of_event_has_an_example_with_facts(api_document: dict[str, Any]) -> None:
    assert set(FACTS) == set(TYPES) == set(api_document["webhooks"])
    for kind, item in api_document["webhooks"].items():
        media = item["post"]["requestBody"]["content"]["application/json"]
        ((_, example),) = media["examples"].items()
        check(api_document, media["schema"], example["value"])
        assert example["value"]["type"] == kind and example["value"]["data"]


# --- what events carry is what their examples carry ---


def happens(*kinds: str) -> None:
    """Each of these has happened at least once, with just the members that its example has."""
    for kind in kinds:
        told = [set(events.body(event)["data"]) for event in Event.objects.filter(type=kind)]  # type: ignore[call-overload]
        assert told, kind
        assert set(FACTS[kind]) in told, (kind, told)


def did(admin: Api, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    answer = admin.post(path, {"reason": WHY, **(body or {})}, If_Match="*")
    assert answer.status in (200, 201, 202), (path, answer.json)
    return answer.json or {}


def attempt(count: int) -> None:
    """What a worker does with what is due."""
    record([(job, circuits.admit(job) or transports.send(job.transport, job.parcel)) for job in claim_due(limit=count)])
    circuits.refresh(at_once=True)


@pytest.mark.django_db
def test_events_of_pairs_messages_and_incidents(admin: Api, partner: PartnerSide) -> None:
    pair = f"/pairs/{suspended(partner).public_id}"
    incident = f"/incidents/{Incident.objects.get().public_id}"
    did(admin, f"{incident}/acknowledge")
    did(admin, f"{incident}/assign", {"owner": admin.get("/users").json["data"][0]["username"]})
    did(admin, f"{incident}/snooze", {"until": (clock.now() + timedelta(hours=2)).isoformat()})
    did(admin, f"{incident}/resolve")
    waiting = submit(partner, document_id="order-1")
    for verb in ("skip-head", "pause", "release"):
        did(admin, f"{pair}/{verb}")
    did(admin, f"/messages/{waiting.public_id}/cancel")
    with link() as wire:
        submit(partner)
        work()
        partner.send(partner.acknowledgement(wire.last))
    suspended(partner)
    did(admin, f"{pair}/resume")
    partner.send(partner.message(1, document_id="order-2"))
    partner.send(partner.message(9))
    plain = submit(partner, semantics="BestEffort")
    with link():
        work()
    assert Message.objects.get(pk=plain.pk).state == "sent"
    doubtful = submit(partner_side(profile="repeatable"))
    Message.objects.filter(pk=doubtful.pk).update(state="in_doubt", cause="outcome_unknown")
    did(admin, f"/messages/{doubtful.public_id}/settle", {"decision": "delivered"})
    happens(*(f"incident.{verb}" for verb in ("opened", "acknowledged", "assigned", "snoozed", "resolved")))
    happens(*(f"pair.{verb}" for verb in ("suspended", "paused", "released", "resumed")))
    happens(*(f"message.{end}" for end in ("accepted", "failed", "skipped", "cancelled", "delivered", "received")))
    happens("message.rejected", "message.sent", "message.settled")


@pytest.mark.django_db
def test_events_of_repeats_and_silence(admin: Api, partner: PartnerSide) -> None:
    first = partner.message(1)
    partner.send(first)
    partner.send(first)
    submit(partner)
    now = clock.now()
    with link():
        for turn in range(4):
            with clock.frozen(now + timedelta(minutes=20 * turn)):
                work()  # sends
            with clock.frozen(now + timedelta(minutes=20 * turn + 2)):
                work()  # finds that nobody has acknowledged
    inbound = partner.inbound
    answer = admin.patch(f"/pairs/{inbound.public_id}", {"expected_every": 3600, "reason": WHY}, If_Match="*")
    assert answer.status == 200, answer.json
    assert silence.look(now + timedelta(hours=9)) == 1
    partner.send(partner.message(2))
    with clock.frozen(clock.now() + timedelta(minutes=1)):
        assert silence.look(clock.now()) == 1
    happens("message.duplicate", "message.retrying", "pair.retry_budget", "pair.silent", "pair.heard")


@pytest.mark.django_db
def test_events_of_deliveries_triggers_and_bulk_operations(admin: Api, partner: PartnerSide) -> None:
    trigger = make_queue()
    documents_from(partner, "NewOrder", "NewOrder", "NewOrder")
    (failing,) = admin.post(f"/triggers/{trigger.public_id}/lease", {"limit": 1}).json["data"]
    admin.post(f"/deliveries/{failing['delivery']}/fail", {"claim": failing["claim"], "detail": "No."})
    (leased,) = admin.post(f"/triggers/{trigger.public_id}/lease", {"limit": 1}).json["data"]
    admin.post(f"/deliveries/{leased['delivery']}/complete", {"claim": leased["claim"]})
    other = Delivery.objects.exclude(pk__in=[read_public_id("del", one["delivery"]) for one in (failing, leased)]).get()
    Delivery.objects.filter(pk=other.pk).update(state="in_doubt", doubt="started_not_completed", due_at=None)
    did(admin, "/bulk-operations", {"action": "settle_deliveries", "decision": "duplicate", "ids": [other.public_id]})
    assert jobs.run_due() == 1
    events.write(triggering.suspend_now(trigger, "service_error", "HTTP 503.", clock.now()))
    did(admin, f"/triggers/{trigger.public_id}/resume")
    hook = admin.post("/webhook-endpoints", {"url": "http://127.0.0.1:9/", "types": ["message.sent"]}).json["id"]
    did(admin, f"/webhook-endpoints/{hook}/test")
    happens("delivery.completed", "delivery.settled", "trigger.suspended", "trigger.resumed", "bulk_operation.finished")
    happens("webhook_endpoint.test", "delivery.failed")


@pytest.mark.django_db
def test_events_of_agreements(admin: Api, partner: PartnerSide) -> None:
    agreement = f"/agreements/agr_{partner.terms.agreement_id.hex}"
    did(admin, f"{agreement}/disable")
    (told,) = Event.objects.filter(type="agreement.disabled")
    assert told.data == {
        "agreement": partner.terms.tpa_id,
        "agreement_id": agreement.rpartition("/")[2],
        "version": 1,
        "reason": WHY,
        "actor": told.data["actor"],
    }
    assert told.data["actor"].startswith("admin")
    did(admin, f"{agreement}/enable")
    did(admin, f"{agreement}/versions")
    did(admin, f"{agreement}/versions/2/activate")
    activated = Event.objects.filter(type="agreement.activated").order_by("id")
    assert [event.data["version"] for event in activated] == [1, 2]
    happens("agreement.activated", "agreement.disabled")


@pytest.mark.django_db
def test_events_of_certificates_and_servers(partner: PartnerSide) -> None:
    endpoint = Endpoint.objects.get(party=partner.outbound.partner)
    for _ in range(3):
        submit(partner, semantics="BestEffort")
    now = datetime.now(UTC)
    with clock.frozen(now), link(LOST):
        attempt(3)
    submit(partner, semantics="BestEffort")
    with clock.frozen(now + timedelta(minutes=5)), link():
        attempt(1)
    services.endpoint_update(endpoint=endpoint, trusted_certificates=Authority().issue("globex", days=20).certificate)
    registry.reset()
    assert certificate_watch.watch() == 1
    happens("certificate.expiring", "circuit.opened", "circuit.closed")


@pytest.mark.django_db
def test_events_of_transactions(admin: Api) -> None:
    transaction, taker = scenes.doubtful("Stock")
    did(admin, f"/transactions/{transaction.public_id}/participants/{taker.public_id}/settle", {"outcome": "forget"})
    scenes.voted_no("Freight")
    happens(*(f"transaction.{end}" for end in ("begun", "committed", "in_doubt", "settled", "aborted")))
