"""What people decide about routes, what is wrong with one, and that it is seen."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from messaging.engine import pairs
from messaging.exceptions import InvalidSubmission, NotFound, Stale, WrongState
from messaging.journal.audit import Actor
from messaging.models import AuditEntry, Message, Pair, Route
from messaging.routing import selectors
from messaging.routing.services import routes, routing
from partners import registry, services
from tests.partners.factories import make_agreement, make_party

pytestmark = pytest.mark.django_db
ANA = Actor("ana", "console")
WHY = "A new branch of theirs."
TO = ("DUNS", "987654321")


def make_route(**fields: Any) -> Route:
    given = {"name": "to Seller", "party_context": TO[0], "party_value": TO[1], "actor": ANA, "reason": WHY, **fields}
    if "onward" not in given:
        given["onward"] = make_agreement().agreement_id
    try:
        return routes.route_create(**given)
    finally:
        registry.reset()


def codes(route: Route) -> list[str]:
    registry.reset()
    return [warning.code for warning in selectors.warnings(selectors.route(route.pk))]


def test_every_change_is_seen_at_once_and_written_down() -> None:
    route = make_route(service=" urn:orders ")
    assert routing.entry_for([TO], "urn:orders") is not None
    assert routing.entry_for([TO], "urn:bills") is None
    changed = routes.route_update(route_id=route.pk, actor=ANA, reason=WHY, expected_version=1, service="", max_hops=3)
    registry.reset()
    entry = routing.entry_for([TO], "urn:bills")
    assert entry is not None and (entry.max_hops, changed.version) == (3, 2)
    routes.route_disable(route_id=route.pk, actor=ANA, reason=WHY)
    registry.reset()
    assert routing.entry_for([TO], "urn:bills") is None
    routes.route_enable(route_id=route.pk, actor=ANA, reason=WHY, expected_version=3)
    routes.route_delete(route_id=route.pk, actor=ANA, reason=WHY, expected_version=4)
    verbs = list(AuditEntry.objects.order_by("id").values_list("verb", "actor", "reason"))
    assert verbs == [(f"route.{verb}", "ana", WHY) for verb in ("create", "update", "disable", "enable", "delete")]
    update = AuditEntry.objects.get(verb="route.update")
    assert (update.before["max_hops"], update.after["max_hops"]) == (10, 3)
    assert "onward" not in update.before, "only what is other than before"


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"name": ""}, "name"),
        ({"party_value": " "}, "party_value"),
        ({"party_context": "DU\x00NS"}, "party_context"),
        ({"mode": "somehow"}, "mode"),
        ({"max_hops": 0}, "max_hops"),
        ({"max_hops": 11}, "max_hops"),
        ({"min_retry_secs": 0}, "min_retry_secs"),
        ({"onward": uuid.uuid4()}, "onward"),
        ({"reason": "?"}, "reason"),
    ],
)
def test_what_a_route_cannot_be(fields: dict[str, Any], where: str) -> None:
    with pytest.raises(InvalidSubmission) as caught:
        make_route(**fields)
    assert list(caught.value.errors) == [where]
    assert not Route.objects.exists() and not AuditEntry.objects.filter(verb="route.create").exists()


def test_one_route_for_each_party_and_service() -> None:
    first = make_route()
    other = make_route(name="orders to Seller", service="urn:orders")
    with pytest.raises(InvalidSubmission) as caught:
        make_route(name="again")
    assert caught.value.errors == {
        "party_value": ["Route to Seller is for this party and every service already: change that one."]
    }
    with pytest.raises(InvalidSubmission) as caught:
        routes.route_update(route_id=other.pk, actor=ANA, reason=WHY, name=first.name)
    assert list(caught.value.errors) == ["name"]


def test_who_was_slower_is_told_and_changes_nothing() -> None:
    route = make_route()
    routes.route_update(route_id=route.pk, actor=ANA, reason=WHY, max_hops=4)
    with pytest.raises(Stale) as caught:
        routes.route_update(route_id=route.pk, actor=ANA, reason=WHY, expected_version=1, max_hops=5)
    assert caught.value.version == 2
    with pytest.raises(WrongState):
        routes.route_enable(route_id=route.pk, actor=ANA, reason=WHY)
    with pytest.raises(NotFound):
        routes.route_delete(route_id=uuid.uuid4(), actor=ANA, reason=WHY)
    with pytest.raises(NotFound):
        selectors.route(uuid.uuid4())
    assert Route.objects.get().max_hops == 4


def test_routes_are_found_by_what_stands_in_them() -> None:
    first = make_route()
    make_route(name="bills", party_value="1", service="urn:bills", enabled=False)
    assert [route.name for route in selectors.routes()] == ["bills", "to Seller"]
    assert [route.name for route in selectors.routes(enabled=False)] == ["bills"]
    for words in ("SELLER", "98765", first.onward.tpa_id):
        assert [route.name for route in selectors.routes(q=words)] == ["to Seller"]


def test_a_route_looks_up_its_terms_without_a_query_for_each_message(django_assert_num_queries: Any) -> None:
    make_route()
    routing.table()
    with django_assert_num_queries(0):
        for _ in range(10):
            assert routing.entry_for([TO], "urn:orders") is not None


def test_a_route_that_is_right_has_no_warnings() -> None:
    onward = make_agreement(timeout=10, retries=1, retry_interval=10)
    make_agreement(timeout=21, retries=1, retry_interval=60)
    assert codes(make_route(onward=onward.agreement_id, mode="confirm_through")) == []


def test_confirm_through_needs_a_longer_timeout_before_than_all_attempts_after() -> None:
    onward = make_agreement(timeout=10, retries=1, retry_interval=10)
    before = make_agreement(timeout=20, retries=1, retry_interval=60)
    route = make_route(onward=onward.agreement_id, mode="confirm_through")
    [warning] = selectors.warnings(selectors.route(route.pk))
    assert (warning.field, warning.code) == ("mode", "confirm_through_too_slow")
    assert "gives up after 20 s only" in warning.sentence and before.agreement.tpa_id in warning.sentence
    make_agreement(profile="stream")
    assert codes(route) == ["confirm_through_too_slow", "confirm_through_ebxml_only"]


def test_what_keeps_a_route_from_working_is_told() -> None:
    onward = make_agreement(profile="repeatable")
    ours = make_party(own=True, identifiers=[TO])
    route = make_route(onward=onward.agreement_id)
    assert codes(route) == ["party_is_ours", "one_payload_only"]
    ours.identifiers.all().delete()
    Pair.objects.filter(pk=pairs.outbound_pair_id(registry.current().version(onward.pk))).update(gate="paused")
    assert codes(route) == ["onward_pair_blocked", "one_payload_only"]
    services.agreement_disable(agreement=onward.agreement)
    assert codes(route) == ["onward_not_in_force"]
    assert selectors.waiting(route) == 0


def test_what_waits_at_a_router_is_counted() -> None:
    onward = make_agreement()
    route = make_route(onward=onward.agreement_id)
    pair = Pair.objects.get(pk=pairs.outbound_pair_id(registry.current().version(onward.pk)))
    for number, state in enumerate(("queued", "failed", "delivered", "skipped", "queued")):
        Message.objects.create(
            direction="out",
            state=state,
            pair=pair,
            agreement_version=onward,
            semantics="OnceAndOnlyOnce",
            message_id=f"m{number}",
            conversation_id="c",
            service="s",
            action="a",
            position=number,
            forwarded_from_id=None if number == 4 else uuid.uuid4(),
            created_at=onward.created_at,
        )
    assert selectors.waiting(route) == 2
