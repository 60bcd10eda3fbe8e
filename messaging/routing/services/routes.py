"""What people decide about routes. Every change has an actor and a reason and leaves an audit entry.

A route decides about new messages only: what it has let in goes on under the terms that it was taken with.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, TypedDict, Unpack

from django.core.exceptions import ValidationError

from messaging.choices import RouteMode
from messaging.exceptions import InvalidSubmission, NotFound, Stale, WrongState
from messaging.journal import audit
from messaging.journal.audit import Actor
from messaging.models import Route
from partners.models import Agreement
from partners.services.writing import is_clean, writing
from rmhub.ids import public_id

_TEXTS = ("name", "party_context", "party_value", "service")


class RouteFields(TypedDict, total=False):
    """What can be changed of a route. `onward` is an agreement."""

    name: str
    party_context: str
    party_value: str
    service: str
    onward: uuid.UUID
    mode: str
    max_hops: int
    min_retry_secs: int


def route_create(
    *,
    name: str,
    party_context: str,
    party_value: str,
    onward: uuid.UUID,
    actor: Actor,
    reason: str,
    service: str = "",
    mode: str = RouteMode.STORE_FORWARD,
    max_hops: int = 10,
    min_retry_secs: int = 60,
    enabled: bool = True,
) -> Route:
    """A new route for messages to the party with this identifier; `service` "" is every one. Raises InvalidSubmission.

    `onward`: the agreement with the next hop. Its state does not matter here (`selectors.warnings`).
    """
    audit.require_reason(reason)
    route = Route(enabled=enabled)
    fields: RouteFields = {
        "name": name,
        "party_context": party_context,
        "party_value": party_value,
        "service": service,
        "onward": onward,
        "mode": mode,
        "max_hops": max_hops,
        "min_retry_secs": min_retry_secs,
    }
    with writing():
        _apply(route, fields)
        route.save(force_insert=True)
        audit.record(actor, "route.create", route, reason=reason, after=_described(route))
    return route


def route_update(
    *,
    route_id: uuid.UUID,
    actor: Actor,
    reason: str,
    expected_version: int | None = None,
    **changes: Unpack[RouteFields],
) -> Route:
    """Changes what is given. Raises NotFound, InvalidSubmission, and Stale when it is not at `expected_version`."""
    audit.require_reason(reason)
    with writing():
        route = _locked(route_id, expected_version)
        before = _described(route)
        _apply(route, changes)
        _save(route)
        audit.record(actor, "route.update", route, reason=reason, before=before, after=_described(route))
    return route


def route_enable(*, route_id: uuid.UUID, actor: Actor, reason: str, expected_version: int | None = None) -> Route:
    """Lets messages go by the route again. Raises NotFound, Stale, and WrongState when it is enabled."""
    return _switch(route_id, True, "route.enable", actor, reason, expected_version)


def route_disable(*, route_id: uuid.UUID, actor: Actor, reason: str, expected_version: int | None = None) -> Route:
    """New messages go by the route no more: a less specific one takes them, or they are refused.

    Raises NotFound, Stale, and WrongState when it is disabled.
    """
    return _switch(route_id, False, "route.disable", actor, reason, expected_version)


def route_delete(*, route_id: uuid.UUID, actor: Actor, reason: str, expected_version: int | None = None) -> None:
    """As `route_disable`, for good. Raises NotFound, Stale."""
    audit.require_reason(reason)
    with writing():
        route = _locked(route_id, expected_version)
        audit.record(actor, "route.delete", route, reason=reason, before=_described(route))
        route.delete()


def _switch(
    route_id: uuid.UUID, enabled: bool, verb: str, actor: Actor, reason: str, expected_version: int | None
) -> Route:
    audit.require_reason(reason)
    with writing():
        route = _locked(route_id, expected_version)
        if route.enabled == enabled:
            state = "enabled" if enabled else "disabled"
            possible = "disable" if enabled else "enable"
            raise WrongState(f"Route {route.name} is {state} already.", state=state, allowed=(possible,))
        before = _described(route)
        route.enabled = enabled
        _save(route)
        audit.record(actor, verb, route, reason=reason, before=before, after=_described(route))
    return route


def _apply(route: Route, fields: RouteFields) -> None:
    """Sets and checks the fields. Raises InvalidSubmission."""
    errors: dict[str, list[str]] = {}
    given: Mapping[str, Any] = fields
    for field, value in given.items():
        if field == "onward":
            route.onward_id = value
        else:
            setattr(route, field, value.strip() if field in _TEXTS else value)
    for field in _TEXTS:
        if not is_clean(getattr(route, field)):
            errors[field] = ["There is a control character in this text: take it out."]
    if not Agreement.objects.filter(pk=route.onward_id).exists():
        errors["onward"] = [f"There is no agreement {public_id('agr', route.onward_id)}."]
    if not errors:
        try:
            route.full_clean(exclude=["onward"], validate_unique=False, validate_constraints=False)
        except ValidationError as error:
            errors.update(error.message_dict)
    if not errors:
        _check_unique(route, errors)
    if errors:
        raise InvalidSubmission(errors)


def _check_unique(route: Route, errors: dict[str, list[str]]) -> None:
    others = Route.objects.exclude(pk=route.pk)
    if others.filter(name=route.name).exists():
        errors["name"] = [f"There is a route {route.name} already: choose another name."]
    same = others.filter(
        party_context=route.party_context, party_value=route.party_value, service=route.service
    ).first()
    if same is not None:
        what = f"service {route.service}" if route.service else "every service"
        errors["party_value"] = [f"Route {same.name} is for this party and {what} already: change that one."]


def _save(route: Route) -> None:
    route.version += 1
    route.save()


def _locked(route_id: uuid.UUID, expected_version: int | None) -> Route:
    route = Route.objects.select_related("onward").select_for_update(of=("self",)).filter(pk=route_id).first()
    if route is None:
        raise NotFound(f"There is no route {public_id('rt', route_id)}.")
    if expected_version is not None and route.version != expected_version:
        raise Stale(
            f"Route {route.name} changed since you looked at it: look again before you change it.",
            version=route.version,
        )
    return route


def _described(route: Route) -> dict[str, object]:
    return {
        "name": route.name,
        "party_context": route.party_context,
        "party_value": route.party_value,
        "service": route.service,
        "onward": Agreement.objects.values_list("tpa_id", flat=True).get(pk=route.onward_id),
        "mode": route.mode,
        "max_hops": route.max_hops,
        "min_retry_secs": route.min_retry_secs,
        "enabled": route.enabled,
    }
