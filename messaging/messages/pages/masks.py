"""Rules that cover parts of payloads for people below a role: the list, the form, and deleting one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import messages as notices
from django.http import HttpRequest, HttpResponse

from messaging.access.selectors.reach import read_id
from messaging.choices import MaskKind
from messaging.console.access import actor, requires
from messaging.console.rendering import keyset_page, page, problems, see_other
from messaging.exceptions import InvalidSubmission, Stale
from messaging.messages.selectors import masks as selectors
from messaging.messages.services import masks as services
from messaging.models import PayloadMask
from partners import selectors as partners
from rmhub.ids import BadPublicId, public_id

SCOPE = "masks:manage"
_TEXTS = ("name", "kind", "path", "service", "visible_to")


@requires(SCOPE)
def mask_list(request: HttpRequest) -> HttpResponse:
    """All rules, by name."""
    context = keyset_page(request, "console.masks", selectors.masks(), order=("name",), filters={})
    return page(request, "console/messages/masks.html", context)


@requires(SCOPE, methods=("GET", "POST"))
def mask_new(request: HttpRequest) -> HttpResponse:
    """The form; POST makes the rule."""
    if request.method != "POST":
        return _form(request, None, {"visible_to": "admin", "enabled": "on"})
    try:
        made = services.mask_create(actor=actor(request), reason=_reason(request), **_values(request))
    except InvalidSubmission as error:
        return _form(request, None, request.POST.dict(), problems(error), status=422)
    notices.success(request, f"{made.name} covers what it names from now on.")
    return see_other("console:masks")


@requires(SCOPE, methods=("GET", "POST"))
def mask_edit(request: HttpRequest, reference: str) -> HttpResponse:
    """The same form for a rule that there is."""
    rule = selectors.mask(read_id("mask", reference))
    if request.method != "POST":
        return _form(request, rule, _given(rule))
    try:
        services.mask_update(
            mask_id=rule.pk,
            actor=actor(request),
            reason=_reason(request),
            expected_version=_version(request),
            **_values(request),
        )
    except Stale as error:
        return _form(request, rule, request.POST.dict(), problems(error), status=409)
    except InvalidSubmission as error:
        return _form(request, rule, request.POST.dict(), problems(error), status=422)
    notices.success(request, f"{rule.name} is changed.")
    return see_other("console:masks")


@requires(SCOPE, methods=("GET", "POST"))
def mask_delete(request: HttpRequest, reference: str) -> HttpResponse:
    """The dialog, and deleting the rule."""
    rule = selectors.mask(read_id("mask", reference))
    errors: list[tuple[str, str]] = []
    status = 200
    if request.method == "POST":
        try:
            services.mask_delete(
                mask_id=rule.pk, actor=actor(request), reason=_reason(request), expected_version=_version(request)
            )
        except Stale as error:
            errors, status = problems(error), 409
        except InvalidSubmission as error:
            errors, status = problems(error), 422
        else:
            notices.success(request, f"{rule.name} is deleted: what it covered is shown again.")
            return see_other("console:masks")
    context = {"rule": rule, "errors": errors, "given": request.POST, "version": services.revision(rule)}
    return page(
        request,
        "console/messages/mask_delete.html",
        context,
        fragments={"dialog": "console/messages/mask_delete_form.html"},
        status=status,
    )


def _form(
    request: HttpRequest,
    rule: PayloadMask | None,
    given: Mapping[str, Any],
    errors: list[tuple[str, str]] | None = None,
    *,
    status: int = 200,
) -> HttpResponse:
    context = {
        "rule": rule,
        "given": given,
        "errors": errors or [],
        "wrong": dict(errors or []),
        "version": services.revision(rule) if rule else "",
        "kinds": MaskKind.choices,
        "roles": services.VISIBLE_TO,
        "partners": partners.parties(is_own=False)[:500],
    }
    return page(request, "console/messages/mask.html", context, status=status)


def _given(rule: PayloadMask) -> dict[str, str]:
    found = {name: str(getattr(rule, name)) for name in _TEXTS}
    found["partner"] = public_id("par", rule.partner_id) if rule.partner_id else ""
    return {**found, "enabled": "on" if rule.enabled else ""}


def _values(request: HttpRequest) -> dict[str, Any]:
    """Raises InvalidSubmission for a partner that is none; everything else is the service's to judge."""
    values: dict[str, Any] = {name: request.POST.get(name, "").replace("\x00", "") for name in _TEXTS}
    chosen = request.POST.get("partner", "")
    try:
        values["partner_id"] = read_id("par", chosen) if chosen else None
    except BadPublicId as error:
        raise InvalidSubmission({"partner": ["Choose one of the list."]}) from error
    return {**values, "enabled": request.POST.get("enabled") == "on"}


def _reason(request: HttpRequest) -> str:
    return request.POST.get("reason", "").strip().replace("\x00", "")


def _version(request: HttpRequest) -> int:
    text = request.POST.get("version", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1
