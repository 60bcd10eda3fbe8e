"""The form of a route: what stands in its fields, what was posted, and what is wrong beside each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import messages as notices
from django.http import HttpRequest, HttpResponse, QueryDict

from messaging.access.selectors.reach import read_id
from messaging.choices import RouteMode
from messaging.console.access import actor, requires
from messaging.console.rendering import page, see_other
from messaging.deliveries.pages.trigger_fields import Field, Group
from messaging.deliveries.pages.trigger_form import Shown, ShownGroup, read_duration
from messaging.deliveries.pages.triggers import once, used_already
from messaging.exceptions import InvalidSubmission, Stale
from messaging.models import Route
from messaging.routing import selectors
from messaging.routing.pages.routes import SCOPE
from messaging.routing.services import routes as services
from partners import selectors as partners
from partners.choices import VersionState
from partners.validation import duration
from rmhub.ids import BadPublicId

_ONCE = "route_form"
_MOST_CHOICES = 500
GROUPS: tuple[Group, ...] = (
    Group("Route", "", (Field("name", "Name", "text", "What people call it. It stands on every page."),)),
    Group(
        "Which messages",
        "Messages for a party that is not ours, under the agreement with the hop before.",
        (
            Field("party_context", "To-party: type", "text", "The scheme of its identifier.", placeholder="DUNS"),
            Field("party_value", "To-party: identifier", "text", placeholder="123456789"),
            Field(
                "service",
                "Service",
                "text",
                "Only messages of this service; empty: of every one. The most specific route that is on applies.",
                placeholder="urn:orders",
            ),
        ),
    ),
    Group(
        "Where they go",
        "",
        (
            Field(
                "onward",
                "Agreement with the next hop",
                "select",
                "Its endpoints, transport, profile and reliability are what the message goes on under.",
                choices=(("", "Choose one"),),
            ),
            Field("mode", "Acknowledged", "choice", choices=tuple((one.value, one.label) for one in RouteMode)),
        ),
    ),
    Group(
        "Limits",
        "",
        (
            Field("max_hops", "Hops, at most", "number", "What has had as many is not passed on: 1 to 10."),
            Field(
                "min_retry_secs",
                "MinRetrySecs",
                "time",
                "What the hop before is told to wait while the next hop takes nothing.",
            ),
        ),
    ),
)
FIELDS: dict[str, Field] = {field.name: field for group in GROUPS for field in group.fields}


@requires(SCOPE, methods=("GET", "POST"))
def route_new(request: HttpRequest) -> HttpResponse:
    """The form; POST makes the route."""
    if request.method != "POST":
        return _form(request, None, _texts(Route()))
    if used_already(request, _ONCE):
        notices.error(request, "This form was used already: see whether the route is in the list.")
        return see_other("console:routes")
    values, errors = read(request.POST)
    if not errors:
        try:
            made = services.route_create(actor=actor(request), reason=_reason(request), **values)
        except InvalidSubmission as error:
            errors = error.errors
        else:
            del request.session[_ONCE]
            notices.success(request, f"{made.name} decides about messages from now on.")
            return see_other("console:route", made.public_id)
    return _form(request, None, _posted(request.POST), errors=errors)


@requires(SCOPE, methods=("GET", "POST"))
def route_edit(request: HttpRequest, reference: str) -> HttpResponse:
    """The same form for a route that there is."""
    route = selectors.route(read_id("rt", reference))
    if request.method != "POST":
        return _form(request, route, _texts(route))
    values, errors = read(request.POST)
    version = request.POST.get("version", "")
    if not (version.isascii() and version.isdigit() and len(version) < 19):
        errors = {"": ["This form is not complete: open it again from the route's page."]}
    if not errors:
        try:
            services.route_update(
                route_id=route.pk,
                actor=actor(request),
                reason=_reason(request),
                expected_version=int(version),
                **values,
            )
        except Stale as error:
            route = selectors.route(route.pk)
            return _form(request, route, _posted(request.POST), errors={"": [error.detail]}, status=409)
        except InvalidSubmission as error:
            errors = error.errors
        else:
            notices.success(request, f"{values['name']} is changed.")
            return see_other("console:route", route.public_id)
    return _form(request, route, _posted(request.POST), errors=errors)


def read(posted: QueryDict) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """The values of a posted form as the services take them, and what cannot be read, by field."""
    texts = _posted(posted)
    values: dict[str, Any] = {}
    errors: dict[str, list[str]] = {}
    for name, field in FIELDS.items():
        text = texts[name].strip()
        try:
            values[name] = _value(field, text)
        except (ValueError, BadPublicId) as error:
            errors[name] = [str(error)]
    return values, errors


def _value(field: Field, text: str) -> Any:
    if field.name == "onward":
        if not text:
            raise ValueError("Choose the agreement with the next hop.")
        return read_id("agr", text)
    if field.kind == "time":
        return read_duration(text)
    if field.kind == "number":
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise ValueError("A whole number is needed here.")
        return int(text)
    return text


def _texts(route: Route) -> dict[str, str]:
    """What stands in the fields for a route."""
    found = {name: str(getattr(route, name)) for name in FIELDS if name != "onward"}
    found["onward"] = route.onward.public_id if route.onward_id else ""
    found["min_retry_secs"] = duration(route.min_retry_secs)
    return found


def _posted(posted: QueryDict) -> dict[str, str]:
    return {name: posted.get(name, "").replace("\x00", "") for name in FIELDS}


def _reason(request: HttpRequest) -> str:
    return request.POST.get("reason", "").strip().replace("\x00", "")


def _form(
    request: HttpRequest,
    route: Route | None,
    texts: Mapping[str, str],
    *,
    errors: Mapping[str, list[str]] | None = None,
    status: int = 0,
) -> HttpResponse:
    wrong = {name: tuple(sentences) for name, sentences in (errors or {}).items()}
    onward = tuple(
        (one.public_id, f"{one.tpa_id} ({one.partner})")
        for one in partners.agreements(state=VersionState.ACTIVE)[:_MOST_CHOICES]
    )
    shown = [
        ShownGroup(
            group.title,
            group.lead,
            [_shown(field, texts[field.name], onward, wrong.get(field.name, ())) for field in group.fields],
            False,
            True,
        )
        for group in GROUPS
    ]
    listed = [
        (name if name in FIELDS or name == "reason" else "", f"{_label(name)}{sentence}")
        for name, sentences in wrong.items()
        for sentence in sentences
    ]
    context = {
        "route": route,
        "groups": shown,
        "errors": listed,
        "given": request.POST,
        "once": once(request, _ONCE) if route is None else "",
    }
    return page(request, "console/routing/route_form.html", context, status=status or (422 if errors else 200))


def _shown(field: Field, value: str, onward: tuple[tuple[str, str], ...], wrong: tuple[str, ...]) -> Shown:
    choices = (*field.choices, *onward) if field.name == "onward" else field.choices
    if field.kind == "select" and value not in {one for one, _ in choices}:
        # Whoever changes something else must not take it away unawares.
        choices = (*choices, (value, f"{value} (not in force)"))
    return Shown(field, value, choices, wrong)


def _label(name: str) -> str:
    return f"{FIELDS[name].label}: " if name in FIELDS else ""
