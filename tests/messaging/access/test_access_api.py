"""Who may call what: tokens, sessions, and one declared scope for every operation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern, get_resolver
from rest_framework.views import APIView

from messaging.access.services import tokens
from messaging.api.permissions import PUBLIC, scope_of
from messaging.models import ApiToken, AuditEntry
from rmhub import clock
from rmhub.roles import ADMIN_SCOPES, Role
from tests.messaging.api.client import REASON, Api, make_token, make_user, suspended
from tests.messaging.factories import PartnerSide

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")

# Every operation of the API and the scope that it needs. A new one belongs here too.
SCOPES = {
    "GET messages": "messages:read",
    "POST messages": "messages:write",
    "GET uploads": "messages:write",
    "POST uploads": "messages:write",
    "GET uploads/{}": "messages:write",
    "PATCH uploads/{}": "messages:write",
    "DELETE uploads/{}": "messages:write",
    "GET messages/{}": "messages:read",
    "POST messages/{}/cancel": "messages:cancel",
    "POST messages/{}/settle": "indoubt:resolve",
    "POST messages/{}/resubmit": "messages:write",
    "POST messages/{}/redeliver": "indoubt:resolve",
    "GET messages/{}/related": "messages:read",
    "GET messages/{}/documents": "payloads:read",
    "GET messages/{}/payloads/{}": "payloads:read",
    "GET messages/{}/wire": "payloads:read",
    "GET messages/{}/transmissions": "messages:read",
    "GET messages/{}/signals": "messages:read",
    "GET messages/{}/events": "messages:read",
    "GET transmissions/{}": "messages:read",
    "GET transmissions/{}/response": "messages:read",
    "GET signals/{}/wire": "messages:read",
    "GET pairs": "pairs:read",
    "GET pairs/{}": "pairs:read",
    "PATCH pairs/{}": "pairs:operate",
    "GET pairs/{}/timeline": "pairs:read",
    "GET pairs/{}/queue": "messages:read",
    "GET pairs/{}/sequence": "pairs:read",
    "GET pairs/{}/diagnosis": "pairs:read",
    "GET pairs/{}/waiting.zip": "payloads:read",
    "POST pairs/{}/ping": "pairs:operate",
    "GET probes": "pairs:read",
    "GET probes/{}": "pairs:read",
    "GET messages/{}/timeline": "messages:read",
    "GET messages/{}/signatures": "messages:read",
    "POST pairs/{}/resume": "pairs:operate",
    "POST pairs/{}/retry-now": "pairs:operate",
    "POST pairs/{}/skip-head": "pairs:skip",
    "POST pairs/{}/restart-sequence": "pairs:skip",
    "POST pairs/{}/pause": "pairs:operate",
    "POST pairs/{}/release": "pairs:operate",
    "POST pairs/{}/expect-sequence": "pairs:skip",
    "POST pairs/{}/hand-on": "pairs:skip",
    "POST pairs/{}/clear-resync": "pairs:skip",
    "GET offered-certificates": "partners:read",
    "GET offered-certificates/{}": "partners:read",
    "POST offered-certificates/{}/accept": "partners:write",
    "POST offered-certificates/{}/decline": "partners:write",
    "GET attributes": "attributes:manage",
    "POST attributes": "attributes:manage",
    "GET attributes/{}": "attributes:manage",
    "PATCH attributes/{}": "attributes:manage",
    "DELETE attributes/{}": "attributes:manage",
    "GET schemas": "schemas:manage",
    "POST schemas": "schemas:manage",
    "GET schemas/{}": "schemas:manage",
    "PATCH schemas/{}": "schemas:manage",
    "DELETE schemas/{}": "schemas:manage",
    "POST schemas/{}/trial": "schemas:manage",
    "GET masks": "masks:manage",
    "POST masks": "masks:manage",
    "GET masks/{}": "masks:manage",
    "PATCH masks/{}": "masks:manage",
    "DELETE masks/{}": "masks:manage",
    "GET causes": "pairs:read",
    "GET causes/{}": "pairs:read",
    "GET circuits": "pairs:read",
    "GET circuits/{}": "pairs:read",
    "POST circuits/{}/reset": "pairs:operate",
    "GET triggers": "triggers:read",
    "POST triggers": "triggers:write",
    "GET triggers/{}": "triggers:read",
    "PATCH triggers/{}": "triggers:write",
    "POST triggers/{}/suspend": "triggers:operate",
    "POST triggers/{}/resume": "triggers:operate",
    "POST triggers/{}/disable": "triggers:write",
    "POST triggers/{}/enable": "triggers:write",
    "POST triggers/{}/leave": "triggers:write",
    "POST triggers/{}/rotate-secret": "triggers:write",
    "POST triggers/{}/lease": "deliveries:take",
    "GET triggers/{}/leases": "deliveries:take",
    "GET deliveries": "deliveries:read",
    "GET deliveries/{}": "deliveries:read",
    "GET deliveries/{}/answer": "payloads:read",
    "POST deliveries/{}/settle": "indoubt:resolve",
    "POST deliveries/{}/complete": "deliveries:take",
    "POST deliveries/{}/fail": "deliveries:take",
    "POST deliveries/{}/release": "deliveries:take",
    "POST deliveries/{}/extend": "deliveries:take",
    "GET transactions": "messages:read",
    "POST transactions": "transactions:write",
    "GET transactions/{}": "messages:read",
    "GET transactions/{}/context": "transactions:write",
    "GET transactions/{}/messages": "messages:read",
    "GET transactions/{}/participants": "messages:read",
    "POST transactions/{}/participants": "transactions:write",
    "POST transactions/{}/commit": "transactions:write",
    "POST transactions/{}/rollback": "transactions:write",
    "POST transactions/{}/participants/{}/settle": "indoubt:resolve",
    "GET in-doubt": "deliveries:read",
    "GET bulk-operations": "deliveries:read",
    # Or the scope of the action, which the view asks for in any case.
    "POST bulk-operations": "indoubt:resolve",
    "GET bulk-operations/{}": "deliveries:read",
    "DELETE bulk-operations/{}": "indoubt:resolve",
    "POST bulk-operations/{}/execute": "indoubt:resolve",
    "POST bulk-operations/{}/cancel": "indoubt:resolve",
    "POST bulk-operations/{}/retry": "indoubt:resolve",
    "GET bulk-operations/{}/items": "deliveries:read",
    "GET bulk-operations/{}/items.csv": "deliveries:read",
    "GET bulk-operations/{}/documents": "payloads:read",
    "POST messages/{}/query-partner": "indoubt:resolve",
    "GET messages/{}/inquiries": "messages:read",
    "GET inquiries/{}/response": "messages:read",
    "GET memory": "agreements:read",
    "GET parties": "partners:read",
    "POST parties": "partners:write",
    "GET parties/{}": "partners:read",
    "PATCH parties/{}": "partners:write",
    "GET endpoints": "partners:read",
    "POST endpoints": "partners:write",
    "GET endpoints/{}": "partners:read",
    "PATCH endpoints/{}": "partners:write",
    "GET agreements": "agreements:read",
    "POST agreements": "agreements:write",
    "GET agreements/{}": "agreements:read",
    "GET agreements/{}/service-levels": "agreements:read",
    "PATCH agreements/{}": "agreements:write",
    "POST agreements/{}/disable": "agreements:write",
    "POST agreements/{}/enable": "agreements:write",
    "POST agreements/{}/versions": "agreements:write",
    "GET agreements/{}/versions/{}": "agreements:read",
    "PATCH agreements/{}/versions/{}": "agreements:write",
    "DELETE agreements/{}/versions/{}": "agreements:write",
    "POST agreements/{}/versions/{}/activate": "agreements:write",
    "GET routes": "agreements:read",
    "POST routes": "agreements:write",
    "GET routes/{}": "agreements:read",
    "PATCH routes/{}": "agreements:write",
    "DELETE routes/{}": "agreements:write",
    "POST routes/{}/enable": "agreements:write",
    "POST routes/{}/disable": "agreements:write",
    "GET pollers": "partners:read",
    "POST pollers": "partners:write",
    "GET pollers/{}": "partners:read",
    "PATCH pollers/{}": "partners:write",
    "DELETE pollers/{}": "partners:write",
    "POST pollers/{}/look": "pairs:operate",
    "POST pollers/{}/enable": "partners:write",
    "POST pollers/{}/disable": "partners:write",
    "GET credentials": "partners:read",
    "POST credentials": "partners:write",
    "GET credentials/{}": "partners:read",
    "POST credentials/{}/revoke": "partners:write",
    "GET events": "events:read",
    "GET incidents": "incidents:read",
    "GET incidents/{}": "incidents:read",
    "POST incidents/{}/acknowledge": "incidents:write",
    "POST incidents/{}/assign": "incidents:write",
    "POST incidents/{}/snooze": "incidents:write",
    "POST incidents/{}/resolve": "incidents:write",
    "GET incidents/{}/comments": "incidents:read",
    "POST incidents/{}/comments": "incidents:write",
    "GET incidents/{}/timeline": "incidents:read",
    "GET incidents/{}/partner-note": "incidents:read",
    "GET incidents/{}/post-mortem": "incidents:read",
    "GET notification-rules": "notifications:manage",
    "POST notification-rules": "notifications:manage",
    "GET notification-rules/{}": "notifications:manage",
    "PATCH notification-rules/{}": "notifications:manage",
    "DELETE notification-rules/{}": "notifications:manage",
    "POST notification-rules/{}/test": "notifications:manage",
    "GET notifications": "notifications:manage",
    "GET rejections": "incidents:read",
    "GET rejections/{}": "incidents:read",
    "GET rejections/{}/sample": "payloads:read",
    "GET webhook-endpoints": "webhooks:manage",
    "POST webhook-endpoints": "webhooks:manage",
    "GET webhook-endpoints/{}": "webhooks:manage",
    "PATCH webhook-endpoints/{}": "webhooks:manage",
    "DELETE webhook-endpoints/{}": "webhooks:manage",
    "GET webhook-endpoints/{}/deliveries": "webhooks:manage",
    "GET webhook-endpoints/{}/deliveries/{}": "webhooks:manage",
    "POST webhook-endpoints/{}/deliveries/{}/redeliver": "webhooks:manage",
    "POST webhook-endpoints/{}/test": "webhooks:manage",
    "POST webhook-endpoints/{}/rotate-secret": "webhooks:manage",
    "POST webhook-endpoints/{}/replay": "webhooks:manage",
    "GET audit-log": "audit:read",
    "GET audit-log/chain": "audit:read",
    "GET live": "reports:read",
    "GET reports": "reports:read",
    "GET reports/{}": "reports:read",
    "GET reports/{}/{}": "reports:read",
    "POST reports/audit/incidents": "pipeline:run",
    "POST agreements/{}/timing-draft": "agreements:write",
    "GET pipeline-runs": "reports:read",
    "POST pipeline-runs": "pipeline:run",
    "GET pipeline-runs/{}": "reports:read",
    "POST pipeline-runs/{}/cancel": "pipeline:run",
    "GET pipeline-runs/{}/artifacts/{}": "reports:read",
    "GET partner-logs": "reports:read",
    "POST partner-logs": "pipeline:run",
    "GET partner-logs/{}": "reports:read",
    "POST partner-logs/{}/reconcile": "pipeline:run",
    "POST partner-logs/{}/incidents": "pipeline:run",
    "GET archive/messages": "archive:read",
    "GET archive/messages/{}": "archive:read",
    "POST archive/restore": "archive:restore",
    "GET legal-holds": "archive:read",
    "POST legal-holds": "retention:write",
    "GET legal-holds/{}": "archive:read",
    "POST legal-holds/{}/release": "retention:write",
    "GET retention": "archive:read",
    "PATCH retention": "retention:write",
    "GET parties/{}/health": "partners:read",
    "POST parties/{}/archive": "partners:write",
    "POST parties/{}/restore": "partners:write",
    "GET endpoints/{}/certificates": "partners:read",
    "POST endpoints/{}/certificates": "partners:write",
    "GET certificates": "partners:read",
    "GET onboarding-drafts": "partners:write",
    "POST onboarding-drafts": "partners:write",
    "GET onboarding-drafts/{}": "partners:write",
    "PATCH onboarding-drafts/{}": "partners:write",
    "DELETE onboarding-drafts/{}": "partners:write",
    "POST onboarding-drafts/{}/test": "partners:write",
    "POST onboarding-drafts/{}/activate": "partners:write",
    "GET bundle": "agreements:read",
    "POST bundle": "agreements:write",
    "POST cpa": "agreements:write",
    "GET agreements/{}/versions/{}/cpa": "agreements:read",
    "GET test-reports": "agreements:read",
    "GET test-reports/{}": "agreements:read",
    "POST agreements/{}/versions/{}/test": "agreements:write",
    "GET users": "users:manage",
    "POST users": "users:manage",
    "GET users/{}": "users:manage",
    "PATCH users/{}": "users:manage",
    "POST users/{}/invite": "users:manage",
    "POST users/{}/reset-second-factor": "users:manage",
    "POST users/{}/end-sessions": "users:manage",
    "GET sessions": "users:manage",
    "DELETE sessions/{}": "users:manage",
    "GET partner-groups": "users:manage",
    "POST partner-groups": "users:manage",
    "GET partner-groups/{}": "users:manage",
    "PATCH partner-groups/{}": "users:manage",
    "DELETE partner-groups/{}": "users:manage",
    "GET tokens": "tokens:manage",
    "POST tokens": "tokens:manage",
    "GET tokens/{}": "tokens:manage",
    "POST tokens/{}/revoke": "tokens:manage",
    "GET metrics": "pairs:read",
    "GET status": "pairs:read",
    "GET traffic": "pairs:read",
    "GET pairs/{}/badge": "pairs:read",
    "GET pairs/{}/badge.svg": "pairs:read",
    "GET preferences": "views:write",
    "PATCH preferences": "views:write",
    "GET saved-views": "views:write",
    "POST saved-views": "views:write",
    "GET saved-views/{}": "views:write",
    "PATCH saved-views/{}": "views:write",
    "DELETE saved-views/{}": "views:write",
    "GET health": PUBLIC,
    "GET problems": PUBLIC,
    "GET problems/{}": PUBLIC,
    "GET openapi.json": PUBLIC,
    "GET docs": PUBLIC,
}
GUARDED = sorted(name for name, scope in SCOPES.items() if scope != PUBLIC)
ANY_ID = "0192f3f2f3e47a5fb0c1d2e3f4a5b6c7"


def patterns() -> Iterator[URLPattern]:
    import messaging.urls.api

    yield from (pattern for pattern in messaging.urls.api.urlpatterns if pattern.name != "not-found")


def operations() -> dict[str, str | None]:
    """`POST pairs/{}/resume` -> the declared scope, for every handler that the URLconf leads to."""
    found = {}
    for pattern in patterns():
        view = pattern.callback.cls()
        assert isinstance(view, APIView), f"{pattern} is not a view of the API"
        path = re.sub(r"<[^>]+>", "{}", str(pattern.pattern))
        for method in METHODS:
            if method in view.allowed_methods:
                found[f"{method} {path}"] = scope_of(view, method)
    return found


def concrete(operation: str) -> tuple[str, str]:
    method, _, path = operation.partition(" ")
    return method, "/" + path.replace("{}", ANY_ID)


def test_every_operation_declares_the_scope_that_the_table_says() -> None:
    assert operations() == SCOPES
    assert set(SCOPES.values()) - {PUBLIC} <= ADMIN_SCOPES


def test_nothing_else_hangs_below_the_api() -> None:
    """Whoever adds a path outside of messaging.urls.api must declare a scope as well."""
    roots = [str(pattern.pattern) for pattern in get_resolver().url_patterns]
    assert [root for root in roots if "api" in root] == ["api/v1/", "^api/"]


# Opened by the scope of any bulk action, and then by that of the very action only.
OR_OF_THE_ACTION = {
    operation
    for operation in SCOPES
    if operation.partition(" ")[0] in ("POST", "DELETE") and "bulk-operations" in operation
}


@pytest.mark.django_db
def test_without_a_token_nothing_is_answered(stranger: Api) -> None:
    for operation in GUARDED:
        method, path = concrete(operation)
        answer = stranger.call(method, path, {} if method != "GET" else None)
        assert (answer.status, answer.code) == (401, "not_authenticated"), operation
        assert answer.headers["www-authenticate"] == 'Bearer realm="RM Hub"', operation


@pytest.mark.django_db
def test_without_the_scope_the_answer_names_it() -> None:
    """But for those that any scope of an action opens; test_bulk_operations shows what they then ask for."""
    admin = make_user(Role.ADMIN)
    for wanted in sorted(set(SCOPES.values())):
        caller = Api(make_token(admin, ADMIN_SCOPES - {wanted}))
        for operation in GUARDED:
            if SCOPES[operation] == wanted and operation not in OR_OF_THE_ACTION:
                method, path = concrete(operation)
                answer = caller.call(method, path, {} if method != "GET" else None)
                assert (answer.status, answer.code) == (403, "missing_scope"), operation
                assert answer.json["required_scope"] == wanted, operation


@pytest.mark.django_db
def test_a_token_with_the_scope_alone_is_enough(partner: PartnerSide) -> None:
    pair = suspended(partner)
    caller = Api(make_token(make_user(Role.ADMIN), {"pairs:operate"}))
    assert caller.get(f"/pairs/{pair.public_id}").code == "missing_scope"
    answer = caller.post(f"/pairs/{pair.public_id}/resume", REASON, If_Match=f'"{pair.version}"')
    assert (answer.status, answer.json["flow"]) == (200, "resend_wait")


@pytest.mark.django_db
def test_wrong_methods_name_the_right_ones(admin: Api) -> None:
    paths = {operation.partition(" ")[2] for operation in SCOPES}
    for path in sorted(paths):
        right = {operation.partition(" ")[0] for operation in SCOPES if operation.partition(" ")[2] == path}
        for method in (*METHODS, "OPTIONS", "TRACE"):
            if method in right:
                continue
            answer = admin.call(method, "/" + path.replace("{}", ANY_ID))
            assert (answer.status, answer.code) == (405, "method_not_allowed"), (method, path)
            assert {name.strip() for name in answer.headers["allow"].split(",")} - {"HEAD"} == right


@pytest.mark.django_db
@pytest.mark.parametrize(
    "token",
    ["", "x", "rmh_live_", "rmh_live_" + "A" * 38, "ü" * 47, "rmh_test_" + "A" * 38, "A" * 5000, "rmh_live_\x00"],
)
def test_what_is_no_token_is_refused(token: str) -> None:
    answer = Api(token).get("/pairs")
    assert (answer.status, answer.code) == (401, "invalid_token")
    assert answer.headers["www-authenticate"] == 'Bearer realm="RM Hub", error="invalid_token"'


@pytest.mark.django_db
def test_a_typing_error_is_found_without_the_database(django_assert_num_queries: Any) -> None:
    secret = make_token(make_user(Role.VIEWER))
    last = "A" if secret[-1] != "A" else "B"
    with django_assert_num_queries(0):
        assert Api(secret[:-1] + last).get("/pairs").code == "invalid_token"


@pytest.mark.django_db
def test_another_scheme_is_no_token() -> None:
    answer = Api().get("/pairs", Authorization="Basic YWxpY2U6c2VjcmV0")
    assert (answer.status, answer.code) == (401, "not_authenticated")


@pytest.mark.django_db
def test_expired_and_revoked_tokens_say_so() -> None:
    user = make_user(Role.ADMIN)
    started = datetime(2026, 1, 1, tzinfo=UTC)
    with clock.frozen(started) as now:
        api = Api(make_token(user))
        now.move(89 * 86_400)
        assert api.get("/pairs").status == 200
        now.move(86_400)
        assert api.get("/pairs").code == "token_expired"
    api = Api(make_token(user))
    assert api.get("/pairs").status == 200
    tokens.token_revoke(token_id=ApiToken.objects.latest("id").pk, actor=tokens.Actor("test"), reason="leaked")
    tokens.reset()
    assert api.get("/pairs").code == "token_revoked"


@pytest.mark.django_db
def test_the_secret_is_not_kept() -> None:
    secret = make_token(make_user(Role.ADMIN))
    token = ApiToken.objects.get()
    assert re.fullmatch(r"rmh_live_[0-9A-Za-z]{38}", secret)
    assert secret not in str(vars(token)) + str(list(AuditEntry.objects.values()))


@pytest.mark.django_db
def test_a_token_never_has_more_than_its_owner() -> None:
    user = make_user(Role.ADMIN)
    api = Api(make_token(user, {"pairs:read", "audit:read", "tokens:manage"}))
    assert api.get("/tokens").status == 200
    user.groups.clear()
    user.groups.add(make_user(Role.VIEWER).groups.get())
    tokens.reset()
    assert api.get("/tokens").code == "missing_scope"
    assert api.get("/pairs").status == 200
    user.is_active = False
    user.save()
    tokens.reset()
    assert api.get("/pairs").code == "invalid_token"


@pytest.mark.django_db
def test_use_is_noted_once_a_minute() -> None:
    with clock.frozen(datetime(2026, 1, 1, 12, 0, tzinfo=UTC)) as now:
        api = Api(make_token(make_user(Role.VIEWER)))
        seen = []
        for seconds in (0, 30, 29, 2):
            now.move(seconds)
            api.get("/pairs")
            seen.append(ApiToken.objects.get().last_used_at)
    first = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
    assert seen == [first, first, first, first + timedelta(seconds=61)]


@pytest.mark.django_db
def test_a_token_is_looked_up_once_a_second(monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any) -> None:
    instants = [100.0]
    monkeypatch.setattr(tokens.time, "monotonic", lambda: instants[0])
    monkeypatch.setattr(tokens, "SEEN_SECONDS", 1.0)
    user = make_user(Role.VIEWER)
    secret = make_token(user)
    with django_assert_num_queries(3):  # token with owner, roles, and the note of its use
        tokens.authenticate(secret)
    instants[0] += 0.9
    with django_assert_num_queries(0):
        assert "pairs:read" in tokens.authenticate(secret).scopes
    user.groups.clear()
    instants[0] += 0.2
    with django_assert_num_queries(2):
        assert tokens.authenticate(secret).scopes == frozenset()


@pytest.mark.django_db
def test_the_process_that_revokes_forgets_at_once(django_capture_on_commit_callbacks: Any) -> None:
    secret = make_token(make_user(Role.VIEWER))
    tokens.authenticate(secret)
    with django_capture_on_commit_callbacks(execute=True):
        tokens.token_revoke(token_id=ApiToken.objects.get().pk, actor=tokens.Actor("test"), reason="leaked")
    with pytest.raises(tokens.BadToken) as refused:
        tokens.authenticate(secret)
    assert refused.value.code == "token_revoked"


@pytest.mark.django_db
def test_a_console_session_needs_the_csrf_token_to_change_something(partner: PartnerSide) -> None:
    pair = suspended(partner)
    client = Client(enforce_csrf_checks=True)
    client.force_login(make_user(Role.OPERATOR, "olga"))
    path = f"/api/v1/pairs/{pair.public_id}"
    read = client.get(path)
    assert read.status_code == 200
    send = {"data": REASON, "content_type": "application/json"}
    refused = client.post(f"{path}/resume", headers={"If-Match": read["ETag"]}, **send)  # type: ignore[arg-type]
    assert (refused.status_code, refused.json()["code"]) == (403, "csrf_failed")
    assert refused["Content-Type"] == "application/problem+json"
    client.get("/api/v1/docs")
    headers = {"If-Match": read["ETag"], "X-CSRFToken": client.cookies["csrftoken"].value}
    done = client.post(f"{path}/resume", headers=headers, **send)  # type: ignore[arg-type]
    assert done.status_code == 200
    entry = AuditEntry.objects.get(verb="pair.resume")
    assert (entry.actor, entry.interface, entry.reason) == ("olga", "api", REASON["reason"])
    assert entry.request_id == done["X-Request-Id"]
    # An operator's session has an operator's scopes.
    assert client.get("/api/v1/tokens").json()["required_scope"] == "tokens:manage"


@pytest.mark.django_db
def test_a_user_without_a_role_may_do_nothing() -> None:
    client = Client()
    client.force_login(make_user(None))
    assert client.get("/api/v1/pairs").json()["code"] == "missing_scope"
