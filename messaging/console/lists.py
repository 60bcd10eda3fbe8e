"""What every list of the console offers: saved views, a choice of columns, a CSV file, itself as a call of the API.

A list declares its columns once, as a `ListPage`. Its view asks `opened` first, answers `csv` when `csv_wanted`, and
adds `tools` to its context; its template includes `console/parts/list_tools.html` and leaves out the columns in `hide`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qsl, urlencode

from django.conf import settings
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _

from messaging.access.selectors import people
from messaging.access.services.preferences import MOST, SHARE, canonical
from messaging.console.access import person
from messaging.console.preferences import preferences
from messaging.console.rendering import see_other
from messaging.console.resource import Column as TableColumn
from messaging.console.resource import Sort, order_of, sort_of
from messaging.exceptions import InvalidSubmission
from messaging.keyset import Page, Place
from messaging.models import SavedView
from messaging.spreadsheet import line
from partners import visibility
from rmhub import clock
from rmhub.language import number

CSV_ROWS = 100_000
_CSV_PAGE = 1_000
_ALL = "all"

Fetch = Callable[[Place | None, int], Page[Any]]


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `value`: row -> what the CSV file says. `shown`: the column of the page.

    `fixed`: cannot be hidden. `hidden`: not shown until somebody asks for it. `only_csv`: in the file alone. `sort`:
    the order of the list that this column stands for, as `ListPage.orders` names it without a sign.
    """

    name: str
    label: str
    value: Callable[[Any], object]
    shown: TableColumn | None = None
    fixed: bool = False
    hidden: bool = False
    only_csv: bool = False
    sort: str = ""


@dataclass(frozen=True, slots=True)
class ListPage:
    """A list. `api` and `api_query`: the same list in the API; `api_query` turns the filters into its parameters.

    `orders`: those that an index serves, by the values of the API's `sort`, whose default is the first; `usual`: the
    page's, where it is another one.
    """

    name: str
    view: str
    columns: tuple[Column, ...]
    api: str = ""
    api_query: Callable[[Mapping[str, str]], Mapping[str, object]] = dict
    orders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    usual: str = ""

    @property
    def choice(self) -> tuple[Column, ...]:
        """The columns that can be hidden."""
        return tuple(column for column in self.columns if not column.fixed and not column.only_csv)

    @property
    def default(self) -> str:
        """Name of the order that the page has when the URL says nothing."""
        return self.usual or next(iter(self.orders), "")

    def shown(self, hide: Container[str], sorts: Mapping[str, Sort]) -> list[TableColumn]:
        """Columns of the page with their links, without those that a person hides."""
        return [
            replace(column.shown, sort=sorts.get(column.name))
            for column in self.columns
            if column.shown is not None and column.name not in hide
        ]


@dataclass(frozen=True, slots=True)
class BulkAction:
    """A button of `console/parts/bulk_bar.html`. `why_not`: what keeps the person from it, "" for nothing."""

    action: str
    label: str
    icon: str
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class ViewLink:
    """A saved view as a link of its list."""

    view: SavedView
    href: str
    current: bool
    mine: bool


@dataclass(frozen=True, slots=True)
class Tools:
    """What `console/parts/list_tools.html` shows. `query`: filters of the list; `changed`: other than the view.s."""

    page: ListPage
    query: str
    here: str
    views: list[ViewLink]
    shown: ViewLink | None
    changed: bool
    may_share: bool
    columns: list[tuple[Column, bool]]
    hidden: int
    csv_href: str
    call: str


def order(request: HttpRequest, page: ListPage) -> tuple[str, tuple[str, ...]]:
    """(name, columns) of the order that the URL asks for; the page's own for one that it does not have."""
    return order_of(request, page.orders, page.default)


def _sorts(request: HttpRequest, page: ListPage) -> dict[str, Sort]:
    """A link for each column that has an order: the other way round for the one that the list is in."""
    links = {column.name: sort_of(request, page.orders, column.sort, page.default) for column in page.columns}
    return {name: link for name, link in links.items() if link is not None}


def opened(request: HttpRequest, page: ListPage) -> HttpResponse | None:
    """The way to the person's default view, when they open the list without saying what of it; else None."""
    if request.GET or request.headers.get("HX-Request") == "true":
        return None
    default = next((view for view in _views(request, page) if view.is_default and _mine(request, view)), None)
    return see_other(_href(page, default)) if default is not None else None


def tools(
    request: HttpRequest,
    page: ListPage,
    given: Mapping[str, str],
    meant: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Context of a list: `tools`, `hide` (column -> True) and `clear_href` (the list without any filter).

    `given`: the filters as the view understood them, for the API's call. `meant`: those of the list's parameters that
    the URL leaves open and the view has settled: file, views and jobs about all that match are about the same rows.
    """
    asked = request.GET.copy()
    for name, value in meant.items():
        asked[name] = value
    query = _canonical(asked.urlencode())
    views = [
        ViewLink(view, _href(page, view), view.public_id == request.GET.get("view"), _mine(request, view))
        for view in _views(request, page)
    ]
    shown = next((link for link in views if link.current), None)
    hide = _hidden(request, page)
    return {
        "tools": Tools(
            page=page,
            query=query,
            here=request.get_full_path(),
            views=views,
            shown=shown,
            changed=shown is not None and shown.view.query != query,
            may_share=SHARE in person(request).scopes,
            columns=[(column, column.name not in hide) for column in page.choice],
            hidden=len(hide),
            csv_href=f"?{urlencode([*_pairs(query), ('format', 'csv')])}",
            call=api_call(page, given, order(request, page)[0] if page.orders else ""),
        ),
        "hide": dict.fromkeys(hide, True),
        "sorts": _sorts(request, page),
        "resorted": bool(page.orders) and order(request, page)[0] != page.default,
        "clear_href": f"?view={_ALL}",
    }


def api_call(page: ListPage, given: Mapping[str, str], sort: str = "") -> str:
    """The list as a command line; "" when the API has no such list."""
    if not page.api:
        return ""
    wanted = [(name, value) for name, value in page.api_query(given).items() if value not in ("", None)]
    if sort != next(iter(page.orders), ""):
        wanted.append(("sort", sort))
    query = urlencode([(name, _api_value(value)) for name, value in wanted])
    url = f"{settings.RMHUB_PUBLIC_URL}{page.api}{'?' if query else ''}{query}"
    return f'curl -H "Authorization: Bearer $RMHUB_TOKEN" {shlex.quote(url)}'


def csv_wanted(request: HttpRequest) -> bool:
    """Whether the list is asked for as a file."""
    return request.GET.get("format") == "csv"


def csv(request: HttpRequest, page: ListPage, fetch: Fetch) -> StreamingHttpResponse:
    """The list as a CSV file (RFC 4180, UTF-8, times in UTC): all its columns, also those that are hidden on the page.

    `fetch(place, limit)` reads one page of it. The rows are read as the file is sent, so that it costs no memory.
    """
    # Whose data may be shown is known while the view runs; the rows are read after it.
    lines = _lines(page, fetch, visibility.visible())
    response = StreamingHttpResponse(lines, content_type="text/csv; charset=utf-8")
    name = f"{page.name}-{clock.now():%Y%m%d-%H%M%S}.csv"
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    response["X-Content-Type-Options"] = "nosniff"
    return response


def _lines(page: ListPage, fetch: Fetch, allowed: Any) -> Iterator[str]:
    yield line(column.name for column in page.columns)
    place, count = None, 0
    while True:
        with visibility.only(allowed):
            found = fetch(place, min(_CSV_PAGE, CSV_ROWS - count))
        yield "".join(line(column.value(row) for column in page.columns) for row in found.rows)
        count += len(found.rows)
        if found.following is None or not found.rows:
            return
        if count >= CSV_ROWS:
            yield line(
                [_("Cut after {count} rows: narrow the filters, or export as a job.").format(count=number(CSV_ROWS))]
            )
            return
        place = found.following


def _views(request: HttpRequest, page: ListPage) -> list[SavedView]:
    """One's own and the team's of this list, looked up once a request."""
    known: dict[str, list[SavedView]] = request.__dict__.setdefault("_saved_views", {})
    if page.name not in known:
        found = people.saved_views(request.user.pk or 0, page=page.name).order_by("name", "id")
        known[page.name] = list(found[:MOST])
    return known[page.name]


def _mine(request: HttpRequest, view: SavedView) -> bool:
    return bool(view.owner_id == request.user.pk)


def _href(page: ListPage, view: SavedView) -> str:
    return f"{reverse(page.view)}?{urlencode([*_pairs(view.query), ('view', view.public_id)])}"


def _pairs(query: str) -> list[tuple[str, str]]:
    return parse_qsl(query)


def _canonical(query: str) -> str:
    try:
        return canonical(query)
    except ValueError:
        return ""  # more parameters than any list has


def _hidden(request: HttpRequest, page: ListPage) -> list[str]:
    wished = preferences(request).columns.get(page.name)
    if wished is None:
        return [column.name for column in page.choice if column.hidden]
    return [column.name for column in page.choice if column.name in wished]


def hidden_of(shown: Sequence[str], offered: Sequence[str]) -> list[str]:
    """The columns to hide, from a form: what it offered less what was ticked. Raises InvalidSubmission for neither."""
    if not offered:
        raise InvalidSubmission({"columns": [_("This form is not complete: open it again from the list.")]})
    return [name for name in offered if name not in set(shown)]


def _api_value(value: object) -> str:
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    return str(value)
