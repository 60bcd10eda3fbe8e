"""Lists: {data, next_cursor, prev_cursor, has_more}, and the same neighbours in the Link header."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from django.db.models import Model, QuerySet
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer

from messaging import keyset
from messaging.api.reading import Param, read_parameters
from messaging.keyset import Page, Place

Row = TypeVar("Row", bound=Model)
MAX_LIMIT = 200
DEFAULT_LIMIT = 50
LIMIT = Param(
    "limit", f"Rows a page, at most {MAX_LIMIT}.", "number", minimum=1, maximum=MAX_LIMIT, default=DEFAULT_LIMIT
)
CURSOR = Param("cursor", "Where the page begins: next_cursor or prev_cursor of another page of the same list.")
COUNT = Param(
    "count",
    "estimate: the answer says in `estimated_count` about how many rows there are, by the database's statistics.",
    "choice",
    choices=("estimate",),
)
PAGING = (LIMIT, CURSOR, COUNT)


def sort_parameter(*choices: str) -> Param:
    """The whitelist of sorts; the first is the default."""
    return Param("sort", "The order; with - in front, descending.", "choice", choices=choices, default=choices[0])


def read_list(request: Request, known: Sequence[Param]) -> tuple[dict[str, Any], int, Place | None]:
    """(filters and sort, limit, place) of a list's query. Raises Problem, BadCursor, CursorMismatch."""
    values = read_parameters(request, (*known, *PAGING))
    limit, cursor, _ = values.pop("limit"), values.pop("cursor"), values.pop("count")
    place = keyset.read_cursor(cursor, _fingerprint(request, values)) if cursor else None
    return values, limit, place


def listing(
    request: Request,
    values: Mapping[str, Any],
    page: Page[Row],
    serializer: type[BaseSerializer] | Callable[[list[Row]], list[Any]],
    *,
    estimate: Callable[[], int] | None = None,
) -> Response:
    """One page as an answer. `values` are those that `read_list` gave; `estimate` says how many rows the list has, if
    that is not what the database thinks of the page's queryset.
    """
    data = serializer(page.rows, many=True).data if isinstance(serializer, type) else serializer(page.rows)
    fingerprint = _fingerprint(request, values)
    following = keyset.write_cursor(page.following, fingerprint) if page.following else None
    previous = keyset.write_cursor(page.previous, fingerprint) if page.previous else None
    body = {"data": data, "next_cursor": following, "prev_cursor": previous, "has_more": following is not None}
    if request.query_params.get("count") == "estimate":
        body["estimated_count"] = estimate() if estimate is not None else _estimate(page)
    links = [
        f'<{quote(request.path)}?{_query(request, cursor)}>; rel="{relation}"'
        for cursor, relation in ((following, "next"), (previous, "prev"))
        if cursor
    ]
    return Response(body, headers={"Link": ", ".join(links)} if links else None)


def simple_list(
    request: Request, queryset: QuerySet[Row], serializer: type[BaseSerializer], *, order: Sequence[str]
) -> Response:
    """A list without filters of its own."""
    values, limit, place = read_list(request, ())
    return listing(request, values, keyset.page(queryset, order=order, limit=limit, place=place), serializer)


def _estimate(page: Page[Row]) -> int:
    if page.whole is None or (page.following is None and page.previous is None):
        return len(page.rows)  # nothing before, nothing behind: these are all
    return keyset.estimate(page.whole)


def _fingerprint(request: Request, values: Mapping[str, Any]) -> str:
    return keyset.fingerprint(request.path, values, "")


def _query(request: Request, cursor: str) -> str:
    kept = [(name, value) for name, value in request.query_params.items() if name != "cursor"]
    return urlencode([*kept, ("cursor", cursor)])
