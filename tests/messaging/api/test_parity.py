"""What the console can do, the API can do, for the same people."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from messaging.console.access import SIGNED_IN
from messaging.deliveries.pages import decisions
from messaging.deliveries.resource import TRIGGERS
from messaging.onboarding.pages import parties
from messaging.pairs import resource as verbs
from messaging.pollers.resource import POLLERS
from messaging.urls import console as urls
from rmhub.roles import VIEWER_SCOPES, role_for
from tests.messaging.access.test_access_api import SCOPES

# Every page of the console that changes something, and the operations that do the same. A new page belongs here too.
SAME: Mapping[str, tuple[str, ...]] = {
    "preferences": ("PATCH preferences",),
    "columns": ("PATCH preferences",),
    "zone": ("PATCH preferences",),
    "saved-views": ("POST saved-views",),
    "saved-view-edit": ("PATCH saved-views/{}",),
    "saved-view-delete": ("DELETE saved-views/{}",),
    "pair-ping": ("POST pairs/{}/ping",),
    "pair-settings": ("PATCH pairs/{}",),
    "pair-verb": tuple(f"POST pairs/{{}}/{verb}" for verb in verbs.VERBS),
    "message-cancel": ("POST messages/{}/cancel",),
    "message-new": ("POST messages",),
    "message-edit": ("POST messages",),
    "message-resubmit": ("POST messages/{}/resubmit",),
    "message-redeliver": ("POST messages/{}/redeliver",),
    "offer-accept": ("POST offered-certificates/{}/accept",),
    "offer-decline": ("POST offered-certificates/{}/decline",),
    "attribute-new": ("POST attributes",),
    "attribute": ("PATCH attributes/{}",),
    "attribute-delete": ("DELETE attributes/{}",),
    "schema-new": ("POST schemas",),
    "schema-edit": ("PATCH schemas/{}",),
    "schema-verb": ("DELETE schemas/{}",),
    "mask-new": ("POST masks",),
    "mask": ("PATCH masks/{}",),
    "mask-delete": ("DELETE masks/{}",),
    "message-settle": ("POST messages/{}/settle",),
    "incident-acknowledge": ("POST incidents/{}/acknowledge",),
    "incident-assign": ("POST incidents/{}/assign",),
    "incident-snooze": ("POST incidents/{}/snooze",),
    "incident-resolve": ("POST incidents/{}/resolve",),
    "incident-comment": ("POST incidents/{}/comments",),
    "notification-rule-new": ("POST notification-rules",),
    "notification-rule-edit": ("PATCH notification-rules/{}",),
    "notification-rule-test": ("POST notification-rules/{}/test",),
    "notification-rule-delete": ("DELETE notification-rules/{}",),
    "circuit-try": ("POST circuits/{}/reset",),
    "doubt-settle": ("POST bulk-operations",),
    "doubt-outbound-settle": ("POST bulk-operations",),
    "trigger-failed": ("POST bulk-operations",),
    "doubt-answer-settle": ("POST bulk-operations",),
    "in-doubt-ask": ("POST bulk-operations",),
    "message-ask": ("POST messages/{}/query-partner",),
    "job-plan": ("POST bulk-operations",),
    "job-execute": ("POST bulk-operations/{}/execute",),
    "job-discard": ("DELETE bulk-operations/{}",),
    "job-cancel": ("POST bulk-operations/{}/cancel",),
    "job-retry": ("POST bulk-operations/{}/retry",),
    "trigger-new": ("POST triggers",),
    "trigger-edit": ("PATCH triggers/{}",),
    "trigger-secret": ("POST triggers/{}/rotate-secret",),
    "trigger-verb": tuple(f"POST triggers/{{}}/{verb.slug}" for verb in TRIGGERS.verbs),
    "delivery-settle": ("POST deliveries/{}/settle",),
    "transaction-verb": ("POST transactions/{}/commit", "POST transactions/{}/rollback"),
    "enlistment-settle": ("POST transactions/{}/participants/{}/settle",),
    "poller-new": ("POST pollers",),
    "poller-edit": ("PATCH pollers/{}",),
    "poller-verb": (*(f"POST pollers/{{}}/{verb.slug}" for verb in POLLERS.verbs if verb.summary),),
    "webhook": ("PATCH webhook-endpoints/{}",),
    "webhook-new": ("POST webhook-endpoints",),
    "webhook-edit": ("PATCH webhook-endpoints/{}",),
    "webhook-test": ("POST webhook-endpoints/{}/test",),
    "webhook-secret": ("POST webhook-endpoints/{}/rotate-secret",),
    "webhook-replay": ("POST webhook-endpoints/{}/replay",),
    "webhook-delete": ("DELETE webhook-endpoints/{}",),
    "webhook-delivery": ("POST webhook-endpoints/{}/deliveries/{}/redeliver",),
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
    "party-new": ("POST parties",),
    "party-edit": ("PATCH parties/{}",),
    "party-verb": tuple(f"POST parties/{{}}/{verb}" for verb in parties.VERBS),
    "endpoint-new": ("POST endpoints",),
    "endpoint-edit": ("PATCH endpoints/{}",),
    "endpoint-certificates": ("POST endpoints/{}/certificates",),
    "credential-new": ("POST credentials",),
    "credential-revoke": ("POST credentials/{}/revoke",),
    "agreement-new": ("POST agreements",),
    "agreement-verb": (
        *("POST agreements/{}/versions", "POST agreements/{}/disable", "POST agreements/{}/enable"),
        "PATCH agreements/{}",
    ),
    "version-edit": ("PATCH agreements/{}/versions/{}",),
    "version-verb": ("POST agreements/{}/versions/{}/activate", "DELETE agreements/{}/versions/{}"),
    "bench-run": ("POST agreements/{}/versions/{}/test",),
    "onboarding-new": ("POST onboarding-drafts",),
    "onboarding-step": (
        *("PATCH onboarding-drafts/{}", "POST onboarding-drafts/{}/test"),
        "POST onboarding-drafts/{}/activate",
    ),
    "onboarding-discard": ("DELETE onboarding-drafts/{}",),
    "bundle": ("POST bundle",),
    "cpa": ("POST cpa",),
    "user-new": ("POST users",),
    "user-edit": ("PATCH users/{}",),
    "user-invite": ("POST users/{}/invite",),
    "user-verb": ("PATCH users/{}", "POST users/{}/reset-second-factor", "POST users/{}/end-sessions"),
    "user-session-end": ("DELETE sessions/{}",),
    "group-new": ("POST partner-groups",),
    "group-edit": ("PATCH partner-groups/{}",),
    "group-delete": ("DELETE partner-groups/{}",),
    "token-new": ("POST tokens",),
    "token-revoke": ("POST tokens/{}/revoke",),
}
# A person's own session; a token has none.
OWN = {
    *("login", "login-code", "logout", "invitation", "password", "password-reset", "theme"),
    *("portal-certificates", "portal-logs"),  # a partner's people have no tokens
    *("second-factor", "second-factor-codes", "second-factor-remove", "own-session-end", "own-sessions-end"),
}


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
        verb = "delete" if operation.startswith("DELETE") else operation.rpartition("/")[2]
        wanted = scope if isinstance(scope, str) else scope({"verb": verb})
        if wanted == SIGNED_IN:
            assert SCOPES[operation] in VIEWER_SCOPES, operation
        else:
            assert SCOPES[operation] == wanted, (operation, role_for(wanted))


def test_the_same_decisions() -> None:
    from messaging.bulk.serializers import PlanBody
    from messaging.deliveries.serializers import SettleBody
    from messaging.messages.api.verbs import MessageSettleBody

    def choices(body: type, field: str) -> set[str]:
        return set(body().fields[field].choices)

    assert choices(SettleBody, "decision") == set(decisions.DELIVERY)
    assert choices(MessageSettleBody, "decision") == set(decisions.MESSAGE)
    assert choices(PlanBody, "decision") == set(decisions.DELIVERY) | set(decisions.MESSAGE)


def test_the_same_settings_and_verbs_of_routes() -> None:
    from messaging.routing.api import ROUTES, RouteBody
    from messaging.routing.pages import RouteForm
    from messaging.routing.services.routes import RouteFields

    settings = set(RouteFields.__annotations__)
    shown = {name for group in RouteForm.groups for name in group.fields}
    assert shown == set(RouteForm.Meta.fields) == set(ROUTES.changes().fields) - {"reason"} == settings
    assert set(RouteBody().fields) - {"reason"} == settings | {"enabled"}


def test_the_same_settings_of_triggers() -> None:
    from messaging.deliveries.api.triggers import TriggerBody, TriggerChanges
    from messaging.deliveries.services.trigger_rules import SETTINGS

    for body in (TriggerBody, TriggerChanges):
        assert {field.source for field in body().fields.values()} == {"reason", *SETTINGS}
