"""What people decide about routes. Every change has an actor and a reason and leaves an audit entry.

A route decides about new messages only: what it has let in goes on under the terms that it was taken with.
"""

from __future__ import annotations

import uuid
from typing import Any, TypedDict, Unpack

from django.db.models import QuerySet
from django.utils.translation import gettext as _

from messaging.exceptions import WrongState
from messaging.journal import changing
from messaging.journal.audit import Actor
from messaging.models import Route

SETTINGS = ("name", "party_context", "party_value", "service", "onward", "mode", "max_hops", "min_retry_secs")
_KEPT = (*SETTINGS, "enabled")


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


def route_create(*, actor: Actor, reason: str, enabled: bool = True, **values: Unpack[RouteFields]) -> Route:
    """Make a route for messages to the party with this identifier; `service` "" is every one. Raises InvalidSubmission.

    `onward`: the agreement with the next hop. Its state does not matter here (`selectors.warnings`).
    """
    return changing.made("route.create", Route(enabled=enabled), values, _KEPT, _taken, actor, reason)


def route_update(
    *,
    route_id: uuid.UUID,
    actor: Actor,
    reason: str,
    expected_version: int | None = None,
    **changes: Unpack[RouteFields],
) -> Route:
    """Change what is given. Raises NotFound, InvalidSubmission, and Stale when it is not at `expected_version`."""
    return changing.changed(
        "route.update", _rows(), route_id, changes, _KEPT, actor, reason, expected_version, check=_taken
    )


def route_enable(*, route_id: uuid.UUID, actor: Actor, reason: str, expected_version: int | None = None) -> Route:
    """Let messages go by the route again. Raises NotFound, Stale, and WrongState when it is enabled."""
    return _switch("route.enable", route_id, True, actor, reason, expected_version)


def route_disable(*, route_id: uuid.UUID, actor: Actor, reason: str, expected_version: int | None = None) -> Route:
    """New messages go by the route no more: a less specific one takes them, or they are refused.

    Raises NotFound, Stale, and WrongState when it is disabled.
    """
    return _switch("route.disable", route_id, False, actor, reason, expected_version)


def route_delete(*, route_id: uuid.UUID, actor: Actor, reason: str, expected_version: int | None = None) -> None:
    """As `route_disable`, for good. Raises NotFound, Stale."""
    changing.deleted("route.delete", _rows(), route_id, _KEPT, actor, reason, expected_version)


def _rows() -> QuerySet[Route]:
    return Route.objects.select_related("onward")


def _switch(
    verb: str, route_id: uuid.UUID, enabled: bool, actor: Actor, reason: str, expected_version: int | None
) -> Route:
    state, possible = ("enabled", "disable") if enabled else ("disabled", "enable")

    def may(route: Route) -> None:
        if route.enabled == enabled:
            said = _("Route {name} is enabled already.") if enabled else _("Route {name} is disabled already.")
            raise WrongState(said.format(name=route.name), state=state, allowed=(possible,))

    values: dict[str, Any] = {"enabled": enabled}
    return changing.changed(verb, _rows(), route_id, values, _KEPT, actor, reason, expected_version, may=may)


def _taken(route: Route) -> dict[str, list[str]]:
    """What another route has already."""
    others = Route.objects.exclude(pk=route.pk)
    if others.filter(name=route.name).exists():
        return {"name": [_("There is a route {name} already: choose another name.").format(name=route.name)]}
    target = {name: getattr(route, name) for name in ("party_context", "party_value", "service")}
    same = others.filter(**target).first()
    if same is None:
        return {}
    said = _("Route {name} is for this party and every service already: change that one.")
    if route.service:
        said = _("Route {name} is for this party and service {service} already: change that one.")
    return {"party_value": [said.format(name=same.name, service=route.service)]}
