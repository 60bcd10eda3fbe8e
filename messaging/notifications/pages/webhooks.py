"""Webhook endpoints: made, changed, tried, and what became of what was sent to them."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

from django.contrib import messages as notices
from django.http import HttpRequest, HttpResponse
from django.views.decorators.debug import sensitive_variables

from messaging.access.selectors.reach import read_id
from messaging.choices import WebhookState
from messaging.console import zones
from messaging.console.access import actor, requires
from messaging.console.rendering import keyset_page, page, problems, see_other
from messaging.deliveries.pages.triggers import once, used_already
from messaging.exceptions import ApplicationError, Stale, WrongState
from messaging.journal import audit
from messaging.journal.events import TYPES
from messaging.models import WebhookEndpoint
from messaging.notifications.services import webhook_deliveries, webhooks
from messaging.overview.selectors import records
from rmhub import clock

_ONCE_NEW, _ONCE_SECRET = "webhook_form", "webhook_secret_form"
_SINCE = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7), "month": timedelta(days=30)}
_OVERLAPS = (0, 1, 24, 72, 168)
Errors = list[tuple[str, str]]


@requires("webhooks:manage")
def webhook_list(request: HttpRequest) -> HttpResponse:
    """Who is told of events, and whether it works."""
    context = keyset_page(request, "console.webhooks", records.webhook_endpoints(), order=("id",), filters={})
    return page(request, "console/notifications/webhooks.html", context)


@sensitive_variables("secret")
@requires("webhooks:manage", methods=("GET", "POST"))
def webhook_new(request: HttpRequest) -> HttpResponse:
    """The form; POST makes the endpoint and shows its secret this once, on a page that no cache keeps."""
    errors: Errors = []
    if request.method == "POST":
        if used_already(request, _ONCE_NEW):
            notices.error(request, "This form was used already. A secret is shown once; make a new one if it is lost.")
            return see_other("console:webhooks")
        try:
            endpoint, secret = webhooks.endpoint_create(
                url=_text(request, "url"),
                name=_text(request, "name"),
                types=request.POST.getlist("types"),
                actor=actor(request),
                reason=_text(request, "reason"),
            )
        except ApplicationError as error:
            errors = problems(error)
        else:
            del request.session[_ONCE_NEW]
            return page(
                request,
                "console/notifications/webhook_secret_made.html",
                {"endpoint": endpoint, "secret": secret, "made": True},
            )
    context = {
        "errors": errors,
        "given": request.POST,
        "chosen": request.POST.getlist("types"),
        "groups": _type_groups(),
        "once": once(request, _ONCE_NEW),
    }
    return page(request, "console/notifications/webhook_form.html", context, status=422 if errors else 200)


@requires("webhooks:manage", methods=("GET", "POST"))
def webhook_page(request: HttpRequest, reference: str) -> HttpResponse:
    """One endpoint with its deliveries; POST switches it on or off."""
    endpoint = _found(reference)
    errors: Errors = []
    if request.method == "POST":
        enabled = request.POST.get("enabled") == "1"
        try:
            audit.require_reason(_text(request, "reason"))
            webhooks.endpoint_update(
                endpoint_id=endpoint.pk, enabled=enabled, actor=actor(request), reason=_text(request, "reason")
            )
        except ApplicationError as error:
            errors = problems(error)
        else:
            notices.success(request, f"{endpoint} is {'on' if enabled else 'off'}.")
            return see_other("console:webhook", reference)
    state = request.GET.get("state", "")
    states = (state,) if state in WebhookState.values else ()
    found = records.webhook_deliveries(endpoint.pk, states=states)
    context = keyset_page(
        request, f"console.webhook.{endpoint.pk}", found, order=("-id",), filters={"state": list(states)}
    )
    context |= {
        "endpoint": endpoint,
        "errors": errors,
        "given": request.POST,
        "state": state if states else "",
        "states": WebhookState.choices,
        "first_page": not request.GET.get("cursor"),
        "old_secret_works": endpoint.previous_until is not None and endpoint.previous_until > clock.now(),
    }
    fragments = {"live-webhook": "console/notifications/webhook_live.html"}
    return page(
        request, "console/notifications/webhook.html", context, fragments=fragments, status=422 if errors else 200
    )


@requires("webhooks:manage", methods=("GET", "POST"))
def webhook_edit(request: HttpRequest, reference: str) -> HttpResponse:
    """Name, address and types of an endpoint."""
    endpoint = _found(reference)
    errors: Errors = []
    status = 422
    if request.method == "POST":
        try:
            webhooks.endpoint_update(
                endpoint_id=endpoint.pk,
                # What did not change is not looked up again.
                url=_text(request, "url") if _text(request, "url") != endpoint.url else None,
                name=_text(request, "name"),
                types=request.POST.getlist("types"),
                expected=_text(request, "revision"),
                actor=actor(request),
                reason=_text(request, "reason"),
            )
        except ApplicationError as error:
            errors, status = problems(error), 409 if isinstance(error, Stale) else 422
        else:
            notices.success(request, f"{_found(reference)} is changed.")
            return see_other("console:webhook", reference)
    posted = request.method == "POST"
    context = {
        "endpoint": endpoint,
        "errors": errors,
        "given": request.POST if posted else {"name": endpoint.name, "url": endpoint.url},
        "chosen": request.POST.getlist("types") if posted else endpoint.types,
        "groups": _type_groups(),
        "revision": webhooks.revision(endpoint),
    }
    return page(request, "console/notifications/webhook_form.html", context, status=status if errors else 200)


@requires("webhooks:manage", methods=("POST",))
def webhook_test(request: HttpRequest, reference: str) -> HttpResponse:
    """Posts a test event now, and says what came back."""
    endpoint = _found(reference)
    done = webhook_deliveries.endpoint_test(endpoint_id=endpoint.pk, actor=actor(request))
    answer = f"HTTP {done.last_status}" if done.last_status else done.last_error
    if done.state == WebhookState.DELIVERED:
        notices.success(request, f"The test arrived: {endpoint} answered {answer}.")
    else:
        notices.error(request, f"The test did not arrive: {answer}.")
    return see_other("console:webhook", reference)


@sensitive_variables("secret")
@requires("webhooks:manage", methods=("GET", "POST"))
def webhook_secret(request: HttpRequest, reference: str) -> HttpResponse:
    """The dialog, and the new secret, shown this once."""
    endpoint = _found(reference)
    errors: Errors = []
    if request.method == "POST":
        if used_already(request, _ONCE_SECRET):
            notices.error(request, "This form was used already. Make another secret if the new one is lost.")
            return see_other("console:webhook", reference)
        hours = _text(request, "overlap_hours")
        try:
            audit.require_reason(_text(request, "reason"))
            changed, secret = webhooks.endpoint_rotate_secret(
                endpoint_id=endpoint.pk,
                actor=actor(request),
                reason=_text(request, "reason"),
                overlap_hours=int(hours) if hours in map(str, _OVERLAPS) else webhooks.OVERLAP_HOURS,
            )
        except ApplicationError as error:
            errors = problems(error)
        else:
            del request.session[_ONCE_SECRET]
            return page(
                request, "console/notifications/webhook_secret_made.html", {"endpoint": changed, "secret": secret}
            )
    context = {"endpoint": endpoint, "once": once(request, _ONCE_SECRET), "overlaps": _OVERLAPS}
    return _dialog(request, "webhook_secret", context, errors)


@requires("webhooks:manage", methods=("GET", "POST"))
def webhook_replay(request: HttpRequest, reference: str) -> HttpResponse:
    """The dialog, and the delivery of what was missed."""
    endpoint = _found(reference)
    errors: Errors = []
    status = 422
    if request.method == "POST":
        since = _since(request, _text(request, "since"))
        try:
            audit.require_reason(_text(request, "reason"))
            done = webhook_deliveries.replay(
                endpoint_id=endpoint.pk,
                actor=actor(request),
                since=since,
                everything=request.POST.get("what") == "all",
                reason=_text(request, "reason"),
            )
        except ApplicationError as error:
            errors, status = problems(error), 409 if isinstance(error, WrongState) else 422
        else:
            more = f" There was more: replay again from {done.until:%Y-%m-%d %H:%M:%SZ}." if done.until else ""
            notices.success(request, f"{done.queued:,} deliveries go out now.{more}")
            return see_other("console:webhook", reference)
    context = {"endpoint": endpoint, "possible": endpoint.enabled, "days": webhook_deliveries.REPLAY_DAYS}
    return _dialog(request, "webhook_replay", context, errors, status)


@requires("webhooks:manage", methods=("GET", "POST"))
def webhook_delete(request: HttpRequest, reference: str) -> HttpResponse:
    """The dialog, and the end of an endpoint."""
    endpoint = _found(reference)
    errors: Errors = []
    if request.method == "POST":
        try:
            audit.require_reason(_text(request, "reason"))
            webhooks.endpoint_delete(endpoint_id=endpoint.pk, actor=actor(request), reason=_text(request, "reason"))
        except ApplicationError as error:
            errors = problems(error)
        else:
            notices.success(request, f"{endpoint} is deleted.")
            return see_other("console:webhooks")
    return _dialog(request, "webhook_delete", {"endpoint": endpoint}, errors)


@requires("webhooks:manage", methods=("GET", "POST"))
def webhook_delivery(request: HttpRequest, reference: str, delivery: str) -> HttpResponse:
    """One delivery: what is posted, and what came back; POST delivers it once more."""
    endpoint = _found(reference)
    found = records.webhook_delivery(endpoint.pk, read_id("dlv", delivery))
    errors: Errors = []
    if request.method == "POST":
        try:
            webhook_deliveries.redeliver(delivery_id=found.pk, actor=actor(request), reason=_text(request, "reason"))
        except ApplicationError as error:
            errors = problems(error)
        else:
            notices.success(request, "It goes out once more now, under the same webhook-id.")
            return see_other("console:webhook-delivery", reference, delivery)
    context = {
        "endpoint": endpoint,
        "delivery": found,
        "errors": errors,
        "body": json.dumps(found.body, indent=2, ensure_ascii=False),
    }
    return page(request, "console/notifications/webhook_delivery.html", context, status=409 if errors else 200)


def _dialog(
    request: HttpRequest, name: str, context: dict[str, object], errors: Errors, status: int = 422
) -> HttpResponse:
    context |= {"errors": errors, "given": request.POST}
    fragments = {"dialog": f"console/notifications/{name}_form.html"}
    return page(
        request, f"console/notifications/{name}.html", context, fragments=fragments, status=status if errors else 200
    )


def _found(reference: str) -> WebhookEndpoint:
    return records.webhook_endpoint(read_id("whe", reference))


def _text(request: HttpRequest, name: str) -> str:
    return request.POST.get(name, "").strip().replace("\x00", "")


def _since(request: HttpRequest, span: str) -> datetime:
    """The start of a replay; a time that cannot be read is one that the service refuses."""
    if span in _SINCE:
        return clock.now() - _SINCE[span] + timedelta(seconds=1)
    at = zones.read_local(_text(request, "since_time"), zones.zone_of(request))
    return at or clock.now() + timedelta(days=1)


def _type_groups() -> list[tuple[str, list[str]]]:
    """Types of events by what they are about; the test is no subscription."""
    groups: dict[str, list[str]] = {}
    for kind in TYPES:
        if kind != webhook_deliveries.TEST:
            groups.setdefault(kind.partition(".")[0].replace("_", " "), []).append(kind)
    return list(groups.items())
