"""What the console can do, the API can do, for the same people."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from messaging.console import decisions, pickups, triggers, urls, verbs
from rmhub.roles import role_for
from tests.messaging.api.test_access import SCOPES

# Every page of the console that changes something, and the operations that do the same. A new page belongs here too.
SAME: Mapping[str, tuple[str, ...]] = {
    "pair-verb": tuple(f"POST pairs/{{}}/{verb}" for verb in verbs.VERBS),
    "message-cancel": ("POST messages/{}/cancel",),
    "message-settle": ("POST messages/{}/settle",),
    "incident-acknowledge": ("POST incidents/{}/acknowledge",),
    "incident-resolve": ("POST incidents/{}/resolve",),
    "circuit-try": ("POST circuits/{}/reset",),
    "doubt-settle": ("POST bulk-jobs",),
    "doubt-outbound-settle": ("POST bulk-jobs",),
    "trigger-failed": ("POST bulk-jobs",),
    "job-cancel": ("POST bulk-jobs/{}/cancel",),
    "trigger-new": ("POST triggers",),
    "trigger-edit": ("PATCH triggers/{}",),
    "trigger-secret": ("POST triggers/{}/rotate-secret",),
    "trigger-verb": tuple(f"POST triggers/{{}}/{verb}" for verb in triggers.VERBS),
    "delivery-settle": ("POST deliveries/{}/settle",),
    "pickup-new": ("POST pickups",),
    "pickup-edit": ("PATCH pickups/{}",),
    "pickup-verb": (*(f"POST pickups/{{}}/{verb}" for verb in pickups.VERBS if verb != "delete"),),
    "webhook": ("PATCH webhook-endpoints/{}",),
    "partner-log-new": ("POST partner-logs",),
    "partner-log-reconcile": ("POST partner-logs/{}/reconcile",),
    "partner-log-incidents": ("POST partner-logs/{}/incidents",),
    "audit-incidents": ("POST reports/audit/incidents",),
    "pipeline-start": ("POST pipeline-runs",),
    "pipeline-cancel": ("POST pipeline-runs/{}/cancel",),
    "log-export": ("POST pipeline-runs",),
    "timing-draft": ("POST agreements/{}/timing-draft",),
    "agreement-log-columns": ("PATCH agreements/{}",),
    "route-new": ("POST routes",),
    "route-edit": ("PATCH routes/{}",),
    "route-verb": ("POST routes/{}/enable", "POST routes/{}/disable", "DELETE routes/{}"),
    "archive-restore": ("POST archive/restore",),
    "hold-new": ("POST legal-holds",),
    "hold-release": ("POST legal-holds/{}/release",),
    "retention-change": ("PATCH retention",),
    "token-new": ("POST tokens",),
    "token-revoke": ("POST tokens/{}/revoke",),
}
# A person's own session; a token has none.
OWN = {"login", "logout", "password", "theme"}


def changing() -> dict[str, Callable[..., Any]]:
    """The views of the console that take a POST, by the name of their path."""
    return {
        str(pattern.name): pattern.callback
        for pattern in urls.urlpatterns
        if "POST" in getattr(pattern.callback, "methods", ())
    }


def test_every_page_that_changes_something_is_an_operation_too() -> None:
    assert set(changing()) - OWN == set(SAME)
    assert {operation for same in SAME.values() for operation in same} <= set(SCOPES)


@pytest.mark.parametrize("name", SAME)
def test_and_the_same_people_may_do_it(name: str) -> None:
    scope = changing()[name].scope  # type: ignore[attr-defined]
    for operation in SAME[name]:
        wanted = scope if isinstance(scope, str) else scope({"verb": operation.rpartition("/")[2]})
        assert SCOPES[operation] == wanted, (operation, role_for(wanted))


def test_the_same_decisions() -> None:
    from messaging.api.serializers.deliveries import SettleBody
    from messaging.api.serializers.jobs import JobBody
    from messaging.api.serializers.messages import MessageSettleBody

    def choices(body: type, field: str) -> set[str]:
        return set(body().fields[field].choices)

    assert choices(SettleBody, "decision") == set(decisions.DELIVERY)
    assert choices(MessageSettleBody, "decision") == set(decisions.MESSAGE)
    assert choices(JobBody, "decision") == set(decisions.DELIVERY) | set(decisions.MESSAGE)


def test_the_same_settings_and_verbs_of_routes() -> None:
    from messaging.api.serializers.routes import RouteBody, RouteChanges
    from messaging.api.views.routes import VERBS
    from messaging.console import route_form, routes
    from messaging.services.routes import RouteFields

    settings = set(RouteFields.__annotations__)
    assert set(route_form.FIELDS) == set(RouteChanges().fields) - {"reason"} == settings
    assert set(RouteBody().fields) - {"reason"} == settings | {"enabled"}
    assert set(routes.VERBS) == {*VERBS, "delete"}


def test_the_same_settings_of_triggers() -> None:
    from messaging.api.serializers.triggers import TriggerBody, TriggerChanges, settings_of
    from messaging.services.trigger_rules import SETTINGS

    for body in (TriggerBody, TriggerChanges):
        members = set(body().fields) - {"reason"}
        assert set(settings_of(dict.fromkeys(members))) == set(SETTINGS)
