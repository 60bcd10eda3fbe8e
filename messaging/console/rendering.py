"""How console views answer: whole pages, the live fragments of the same pages, and redirects after a POST."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render, resolve_url
from django.utils.cache import patch_vary_headers

from messaging.exceptions import ApplicationError, InvalidSubmission
from messaging.selectors import keyset

Row = TypeVar("Row", bound=Model)
PAGE = 50


class SeeOther(HttpResponseRedirect):
    """303: the POST is done, GET that page."""

    status_code = 303


def see_other(to: Any, *args: Any, **kwargs: Any) -> SeeOther:
    """To a URL, a view's name with its arguments, or an object."""
    return SeeOther(resolve_url(to, *args, **kwargs))


def page(
    request: HttpRequest,
    template: str,
    context: dict[str, Any],
    *,
    fragments: Mapping[str, str] | None = None,
    status: int = 200,
) -> HttpResponse:
    """The page; or, for htmx, the fragment whose element asks (`fragments`: element id -> the page's own include)."""
    chosen = template
    if request.headers.get("HX-Request") == "true" and fragments:
        wanted = fragments.get(request.headers.get("HX-Target", ""))
        if wanted is not None:
            chosen = "console/live.html"
            context = {**context, "fragment": wanted}
    response = render(request, chosen, context, status=status)
    patch_vary_headers(response, ("HX-Request", "HX-Target"))
    return response


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
    """A keyset page for the template `console/pager.html`."""
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
