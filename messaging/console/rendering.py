"""How console views answer: whole pages, the live fragments of the same pages, and redirects after a POST."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import tzinfo
from typing import Any, TypeVar

from django.conf import settings
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render, resolve_url
from django.utils import timezone
from django.utils.cache import patch_vary_headers
from django.utils.http import url_has_allowed_host_and_scheme

from messaging import keyset
from messaging.console import zones
from messaging.exceptions import ApplicationError, InvalidSubmission, Stale, WrongState

Row = TypeVar("Row", bound=Model)
PAGE = 50
DIGEST = "X-Fragment"
# What any page says while it stays open: each gives (id, text, address) of what happened lately; an id is shown once.
TOASTS: list[Callable[[HttpRequest], list[tuple[str, str, str]]]] = []
# What differs between two renderings of the same: the browser runs the texts of times itself, and the rest is not seen.
_PASSING = re.compile(
    r'(<time\b[^>]*\bdata-live=[^>]*>)[^<]*|(<template data-now=")[^"]*|(name="csrfmiddlewaretoken" value=")[^"]*'
)


class SeeOther(HttpResponseRedirect):
    """303: the POST is done, GET that page."""

    status_code = 303


def see_other(to: Any, *args: Any, **kwargs: Any) -> SeeOther:
    """To a URL, a view's name with its arguments, or an object."""
    return SeeOther(resolve_url(to, *args, **kwargs))


def after(request: HttpRequest) -> str:
    """Where a form's `next` leads: a page of this site, whatever it says; else the dashboard."""
    wished = request.POST.get("next") or request.GET.get("next") or ""
    here = url_has_allowed_host_and_scheme(
        wished, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    # A path, for a bare word would be taken for the name of a view.
    return wished if here and wished.startswith("/") else resolve_url(settings.LOGIN_REDIRECT_URL)


def page(
    request: HttpRequest,
    template: str,
    context: dict[str, Any],
    *,
    live: str = "",
    fragments: Mapping[str, str] | None = None,
    status: int = 200,
    zone: tzinfo | None = None,
) -> HttpResponse:
    """The page; or, for htmx, the part of it whose element asks.

    `live`: id of the element around the page's `{% block live %}`; such a page extends `layout`. `fragments`: element
    id -> the page's own include. A fragment that says what the browser shows already (it sends the digest of that) is
    answered 204. `zone`: of a page whose times are not the viewer's to choose, such as days of reports.
    """
    asking = request.headers.get("HX-Target", "") if request.headers.get("HX-Request") == "true" else ""
    included = (fragments or {}).get(asking)
    partial = included is not None or bool(asking and asking == live)
    layout = "console/parts/live.html" if partial else "console/base.html"
    chosen, zone = layout if included is not None else template, zone or zones.zone_of(request)
    context = {**context, "layout": layout, "fragment": included, "zone": zone, "offered_zone": _offered(context)}
    with timezone.override(zone):
        response = render(request, chosen, context, status=status)
    patch_vary_headers(response, ("HX-Request", "HX-Target"))
    if partial and status == 200:
        digest = _digest(response.content)
        if request.headers.get(DIGEST) == digest:
            response = HttpResponse(status=204)
        response[DIGEST] = digest
    return response


def posted(request: HttpRequest, name: str) -> str:
    """Return what stands in a field of the form, without blanks around it."""
    return request.POST.get(name, "").strip().replace("\x00", "")


def dialog(
    request: HttpRequest,
    form: str,
    shown: Callable[[], dict[str, Any]],
    do: Callable[[], HttpResponse],
    *,
    faster: Callable[[ApplicationError], str] = lambda error: "",
) -> HttpResponse:
    """A form that stands in a frame of the page where it was asked for, or on a page of its own; a POST does it.

    `form` is its template, which extends `console/parts/dialog_form.html`. `shown()` is its context, with `title` and
    `crumbs` ((address, name) each), and perhaps a `heading` that is other than the title; it is asked for again when
    `do()` is refused, and the form says why: also, by `faster(error)`, who has acted since the form was opened.
    """
    errors, status, meanwhile = [], 200, ""
    if request.method == "POST":
        try:
            return do()
        except (InvalidSubmission, Stale, WrongState) as error:
            errors, status = problems(error), 422 if isinstance(error, InvalidSubmission) else 409
            meanwhile = faster(error)
    context = {"form": form, "given": request.POST, **shown(), "errors": errors, "faster": meanwhile}
    return page(request, "console/parts/dialog.html", context, fragments={"dialog": form}, status=status)


def _digest(content: bytes) -> str:
    lasting = _PASSING.sub(lambda found: found[1] or found[2] or found[3], content.decode())
    return hashlib.sha256(lasting.encode()).hexdigest()[:20]


def _offered(context: Mapping[str, Any]) -> str:
    """The zone of the partner whom the page is about, "" without one."""
    for holder in (context.get("partner"), context.get("party"), getattr(context.get("pair"), "partner", None)):
        name = getattr(holder, "time_zone", "")
        if name:
            return str(name)
    return ""


def keyset_page(
    request: HttpRequest, resource: str, queryset: QuerySet[Row], *, order: Sequence[str], filters: Mapping[str, object]
) -> dict[str, Any]:
    """One page of a list at the URL's `cursor`, as template context: rows, next_cursor, previous_cursor."""
    mark = keyset.fingerprint(resource, filters, ",".join(order))
    found = keyset.page(queryset, order=order, limit=PAGE, place=read_place(request, mark))
    return as_context(found, mark)


def read_place(request: HttpRequest, mark: str) -> keyset.Place | None:
    """The URL's cursor; one of another list (a filter was changed by hand) starts again at the top."""
    cursor = request.GET.get("cursor", "")
    if not cursor:
        return None
    try:
        return keyset.read_cursor(cursor, mark)
    except (keyset.BadCursor, keyset.CursorMismatch):
        return None


def as_context(found: keyset.Page[Row], mark: str) -> dict[str, Any]:
    """A keyset page for the template `console/parts/pager.html`."""
    return {
        "rows": found.rows,
        "next_cursor": keyset.write_cursor(found.following, mark) if found.following else "",
        "previous_cursor": keyset.write_cursor(found.previous, mark) if found.previous else "",
    }


def problems(error: ApplicationError) -> list[tuple[str, str]]:
    """(field or "", sentence) of what a service refused, for a form's summary."""
    if isinstance(error, InvalidSubmission):
        return [(field, text) for field, texts in error.errors.items() for text in texts]
    return [("", error.detail)]
