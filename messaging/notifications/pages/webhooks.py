"""Webhook endpoints: made, changed, tried, and what became of what was sent to them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

from django.contrib import messages as notices
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, pgettext
from django.views.decorators.debug import sensitive_variables

from messaging.access.selectors.reach import read_id
from messaging.choices import WebhookState
from messaging.console import cells, zones
from messaging.console.access import actor, requires
from messaging.console.rendering import dialog, keyset_page, page, posted, problems, see_other
from messaging.console.resource import Column, table
from messaging.deliveries.pages.triggers import once, used_already
from messaging.exceptions import ApplicationError, Stale
from messaging.journal import audit
from messaging.journal.events import TYPES
from messaging.models import WebhookDelivery, WebhookEndpoint
from messaging.notifications import selectors
from messaging.notifications.services import webhook_deliveries, webhooks
from messaging.templatetags.hub import ago, middle, until
from messaging.templatetags.hub import state as state_of
from rmhub import clock
from rmhub.language import gettext_lazy, number

SCOPE = "webhooks:manage"
_ONCE_NEW, _ONCE_SECRET = "webhook_form", "webhook_secret_form"
_SINCE = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7), "month": timedelta(days=30)}
_FORMS = "console/notifications"
_OVERLAPS = (0, 1, 24, 72, 168)
Errors = list[tuple[str, str]]


def _address(endpoint: WebhookEndpoint) -> SafeString:
    href = reverse("console:webhook", args=[endpoint.public_id])
    said = '<a class="strong" href="{}">{}</a><div class="mono text-faint wrap">{}</div>'
    return format_html(said, href, endpoint.name or _("Endpoint"), endpoint.url)


_COLUMNS = (
    Column(gettext_lazy("Endpoint"), _address),
    Column(
        gettext_lazy("State"),
        lambda one: render_to_string("console/notifications/webhook_state.html", {"endpoint": one}),
    ),
    Column(gettext_lazy("Events"), lambda one: ", ".join(one.types) or _("every event")),
    Column(gettext_lazy("Created"), lambda one: ago(one.created_at), "nowrap"),
)


@requires(SCOPE)
def webhook_list(request: HttpRequest) -> HttpResponse:
    """Who is told of events, and whether it works."""
    context = keyset_page(request, "console.webhooks", selectors.webhook_endpoints(), order=("id",), filters={})
    context["table"] = table(_("Webhook endpoints"), _COLUMNS, context["rows"])
    return page(request, "console/notifications/webhooks.html", context)


def _deliveries(endpoint: WebhookEndpoint, rows: Iterable[WebhookDelivery]) -> dict[str, Any]:
    def event(one: WebhookDelivery) -> SafeString:
        href = cells.to("webhook-delivery", endpoint.public_id, one.public_id)
        link = cells.link(href, one.body["type"], "strong", data_open=True)
        return format_html('{}<div class="mono text-faint">{}</div>', link, middle(one.public_id, 28))

    def answer(one: WebhookDelivery) -> SafeString | str:
        status = format_html('<span class="mono">HTTP {}</span> ', one.last_status) if one.last_status else ""
        return cells.joined(status, one.last_error) or "—"

    columns = (
        Column(_("Created"), lambda one: ago(one.created_at), "nowrap", zoned=True),
        Column(_("Event"), event),
        Column(_("State"), lambda one: state_of("webhook", one.state), "nowrap"),
        Column(_("Attempts"), lambda one: one.attempts, "num"),
        Column(_("Last answer"), answer, narrow=_("Answer")),
        Column(
            pgettext("attempt", "Next"),
            lambda one: until(one.due_at) if one.state == WebhookState.PENDING else "—",
            "nowrap",
        ),
    )
    return table(_("Deliveries, newest first"), columns, rows, about=cells.state_row, keys=True)


@sensitive_variables("secret")
@requires(SCOPE, methods=("GET", "POST"))
def webhook_new(request: HttpRequest) -> HttpResponse:
    """The form; POST makes the endpoint and shows its secret this once, on a page that no cache keeps."""
    errors: Errors = []
    if request.method == "POST":
        if used_already(request, _ONCE_NEW):
            notices.error(
                request,
                _("This form was already submitted. A secret is shown only once; create a new one if it is lost."),
            )
            return see_other("console:webhooks")
        try:
            endpoint, secret = webhooks.endpoint_create(
                url=posted(request, "url"), types=request.POST.getlist("types"), **_named(request)
            )
        except ApplicationError as error:
            errors = problems(error)
        else:
            del request.session[_ONCE_NEW]
            return _secret_made(request, endpoint, secret, made=True)
    context = {"given": request.POST, "chosen": request.POST.getlist("types"), "once": once(request, _ONCE_NEW)}
    return _form(request, context, errors, 422)


@requires(SCOPE, methods=("GET", "POST"))
def webhook_page(request: HttpRequest, reference: str) -> HttpResponse:
    """One endpoint with its deliveries; POST switches it on or off."""
    endpoint = _found(reference)
    errors: Errors = []
    if request.method == "POST":
        enabled = request.POST.get("enabled") == "1"
        try:
            webhooks.endpoint_update(endpoint_id=endpoint.pk, enabled=enabled, **_with_reason(request))
        except ApplicationError as error:
            errors = problems(error)
        else:
            notices.success(
                request, (_("{endpoint} is on.") if enabled else _("{endpoint} is off.")).format(endpoint=endpoint)
            )
            return see_other("console:webhook", reference)
    state = request.GET.get("state", "")
    states = (state,) if state in WebhookState.values else ()
    found = selectors.webhook_deliveries(endpoint.pk, states=states)
    context = keyset_page(
        request, f"console.webhook.{endpoint.pk}", found, order=("-id",), filters={"state": list(states)}
    )
    context |= {
        "table": _deliveries(endpoint, context["rows"]),
        "endpoint": endpoint,
        "errors": errors,
        "given": request.POST,
        "state": state if states else "",
        "states": WebhookState.choices,
        "first_page": not request.GET.get("cursor"),
        "old_secret_works": endpoint.previous_until is not None and endpoint.previous_until > clock.now(),
    }
    return page(
        request, "console/notifications/webhook.html", context, live="live-webhook", status=422 if errors else 200
    )


@requires(SCOPE, methods=("GET", "POST"))
def webhook_edit(request: HttpRequest, reference: str) -> HttpResponse:
    """Name, address and types of an endpoint."""
    endpoint = _found(reference)
    errors: Errors = []
    status = 422
    given: Any = {"name": endpoint.name, "url": endpoint.url}
    chosen = endpoint.types
    if request.method == "POST":
        given, chosen = request.POST, request.POST.getlist("types")
        url = posted(request, "url")
        try:
            webhooks.endpoint_update(
                endpoint_id=endpoint.pk,
                url=url if url != endpoint.url else None,  # what did not change is not looked up again
                types=chosen,
                expected=posted(request, "revision"),
                **_named(request),
            )
        except ApplicationError as error:
            errors, status = problems(error), 409 if isinstance(error, Stale) else 422
        else:
            notices.success(request, _("{name} is changed.").format(name=_found(reference)))
            return see_other("console:webhook", reference)
    context = {"endpoint": endpoint, "given": given, "chosen": chosen, "revision": webhooks.revision(endpoint)}
    return _form(request, context, errors, status)


@requires(SCOPE, methods=("POST",))
def webhook_test(request: HttpRequest, reference: str) -> HttpResponse:
    """Posts a test event now, and says what came back."""
    endpoint = _found(reference)
    done = webhook_deliveries.endpoint_test(endpoint_id=endpoint.pk, actor=actor(request))
    answer = f"HTTP {done.last_status}" if done.last_status else done.last_error
    if done.state == WebhookState.DELIVERED:
        notices.success(
            request, _("The test arrived: {endpoint} answered {answer}.").format(endpoint=endpoint, answer=answer)
        )
    else:
        notices.error(request, _("The test did not arrive: {answer}.").format(answer=answer))
    return see_other("console:webhook", reference)


@requires(SCOPE, methods=("GET", "POST"))
def webhook_secret(request: HttpRequest, reference: str) -> HttpResponse:
    """The dialog, and the new secret, shown this once."""
    endpoint = _found(reference)

    @sensitive_variables("secret")
    def rotate() -> HttpResponse:
        if used_already(request, _ONCE_SECRET):
            notices.error(request, _("This form was already submitted. Create another secret if the new one is lost."))
            return see_other("console:webhook", reference)
        hours = posted(request, "overlap_hours")
        overlap = int(hours) if hours in map(str, _OVERLAPS) else webhooks.OVERLAP_HOURS
        changed, secret = webhooks.endpoint_rotate_secret(
            endpoint_id=endpoint.pk, overlap_hours=overlap, **_with_reason(request)
        )
        del request.session[_ONCE_SECRET]
        return _secret_made(request, changed, secret)

    def shown() -> dict[str, Any]:
        return {"once": once(request, _ONCE_SECRET), "overlaps": _OVERLAPS}

    return _dialog(
        request,
        endpoint,
        f"{_FORMS}/webhook_secret_form.html",
        _("New secret for {endpoint}").format(endpoint=endpoint),
        rotate,
        shown,
    )


@requires(SCOPE, methods=("GET", "POST"))
def webhook_replay(request: HttpRequest, reference: str) -> HttpResponse:
    """The dialog, and the delivery of what was missed."""
    endpoint = _found(reference)

    def replay() -> HttpResponse:
        done = webhook_deliveries.replay(
            endpoint_id=endpoint.pk,
            since=_since(request, posted(request, "since")),
            everything=request.POST.get("what") == "all",
            **_with_reason(request),
        )
        said = ngettext("{count} delivery goes out now.", "{count} deliveries go out now.", done.queued)
        said = said.format(count=number(done.queued))
        if done.until:
            more = _("There was more: replay again from {at}.").format(at=f"{done.until:%Y-%m-%d %H:%M:%SZ}")
            said = f"{said} {more}"
        notices.success(request, said)
        return see_other("console:webhook", reference)

    def shown() -> dict[str, Any]:
        most = webhook_deliveries.REPLAY_AT_MOST
        return {"possible": endpoint.enabled, "days": webhook_deliveries.REPLAY_DAYS, "most": most}

    return _dialog(
        request,
        endpoint,
        f"{_FORMS}/webhook_replay_form.html",
        _("Replay to {endpoint}").format(endpoint=endpoint),
        replay,
        shown,
    )


@requires(SCOPE, methods=("GET", "POST"))
def webhook_delete(request: HttpRequest, reference: str) -> HttpResponse:
    """The dialog, and the end of an endpoint."""
    endpoint = _found(reference)

    def delete() -> HttpResponse:
        webhooks.endpoint_delete(endpoint_id=endpoint.pk, **_with_reason(request))
        notices.success(request, _("{endpoint} is deleted.").format(endpoint=endpoint))
        return see_other("console:webhooks")

    title = _("Delete {name}").format(name=endpoint)
    asked = {
        "effects": (
            _("It gets no more events, and what waits for it is dropped."),
            _("The list of its deliveries goes too; the events stay in the feed."),
        ),
        "forever": _("A new endpoint with the same address has another secret."),
        "sign": "x",
        "button": title,
    }
    return _dialog(request, endpoint, "console/parts/question.html", title, delete, lambda: asked)


@requires(SCOPE, methods=("GET", "POST"))
def webhook_delivery(request: HttpRequest, reference: str, delivery: str) -> HttpResponse:
    """One delivery: what is posted, and what came back; POST delivers it once more."""
    endpoint = _found(reference)
    found = selectors.webhook_delivery(endpoint.pk, read_id("dlv", delivery))
    errors: Errors = []
    if request.method == "POST":
        try:
            webhook_deliveries.redeliver(delivery_id=found.pk, actor=actor(request), reason=posted(request, "reason"))
        except ApplicationError as error:
            errors = problems(error)
        else:
            notices.success(request, _("It goes out once more now, under the same webhook-id."))
            return see_other("console:webhook-delivery", reference, delivery)
    context = {
        "endpoint": endpoint,
        "delivery": found,
        "errors": errors,
        "body": json.dumps(found.body, indent=2, ensure_ascii=False),
    }
    return page(request, "console/notifications/webhook_delivery.html", context, status=409 if errors else 200)


_SUBJECTS = {
    "message": gettext_lazy("message"),
    "pair": gettext_lazy("pair"),
    "delivery": gettext_lazy("delivery"),
    "trigger": gettext_lazy("trigger"),
    "transaction": gettext_lazy("transaction"),
    "circuit": gettext_lazy("circuit"),
    "incident": gettext_lazy("incident"),
    "agreement": gettext_lazy("agreement"),
    "certificate": gettext_lazy("certificate"),
    "webhook_endpoint": gettext_lazy("webhook endpoint"),
    "bulk_operation": gettext_lazy("bulk operation"),
}


def by_subject(kinds: Iterable[str]) -> list[tuple[str, list[str]]]:
    """Types of events by what they are about."""
    groups: dict[str, list[str]] = {}
    for kind in kinds:
        groups.setdefault(kind.partition(".")[0], []).append(kind)
    return [(_SUBJECTS.get(about, about), names) for about, names in groups.items()]


def _form(request: HttpRequest, context: dict[str, Any], errors: Errors, status: int) -> HttpResponse:
    # The test is no subscription.
    context |= {"errors": errors, "groups": by_subject(kind for kind in TYPES if kind != webhook_deliveries.TEST)}
    return page(request, "console/notifications/webhook_form.html", context, status=status if errors else 200)


@sensitive_variables("secret")
def _secret_made(request: HttpRequest, endpoint: WebhookEndpoint, secret: str, *, made: bool = False) -> HttpResponse:
    href = reverse("console:webhook", args=[endpoint.public_id])
    until = endpoint.previous_until
    context = {
        "title": _("Secret of {endpoint}").format(endpoint=endpoint),
        "crumbs": [(reverse("console:webhooks"), _("Webhooks")), (href, endpoint)],
        "heading": (_("{endpoint} is made") if made else _("{endpoint} has a new secret")).format(endpoint=endpoint),
        "href": href,
        "secret": secret,
        "until": until,
    }
    return page(request, "console/parts/secret_made.html", context)


def _dialog(
    request: HttpRequest,
    endpoint: WebhookEndpoint,
    form: str,
    title: str,
    do: Callable[[], HttpResponse],
    shown: Callable[[], dict[str, Any]] = dict,
) -> HttpResponse:
    href = reverse("console:webhook", args=[endpoint.public_id])
    crumbs = ((reverse("console:webhooks"), _("Webhooks")), (href, endpoint))
    shared = {"endpoint": endpoint, "title": title, "crumbs": crumbs, "href": href, "back": href}
    return dialog(request, form, lambda: {**shared, **shown()}, do)


def _found(reference: str) -> WebhookEndpoint:
    return selectors.webhook_endpoint(read_id("whe", reference))


def _named(request: HttpRequest) -> dict[str, Any]:
    return {"name": posted(request, "name"), "actor": actor(request), "reason": posted(request, "reason")}


def _with_reason(request: HttpRequest) -> dict[str, Any]:
    """Who does it, and why. Raises InvalidSubmission without a reason."""
    reason = posted(request, "reason")
    audit.require_reason(reason)
    return {"actor": actor(request), "reason": reason}


def _since(request: HttpRequest, span: str) -> datetime:
    """The start of a replay; a time that cannot be read is one that the service refuses."""
    if span in _SINCE:
        return clock.now() - _SINCE[span] + timedelta(seconds=1)
    at = zones.read_local(posted(request, "since_time"), zones.zone_of(request))
    return at or clock.now() + timedelta(days=1)
