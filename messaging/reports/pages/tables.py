"""Rows of a report table as the console writes them: headings that sort, cells with links, filters, pages, files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _

from messaging import causes, keyset
from messaging.choices import MESSAGE_LOOKS
from messaging.console.rendering import PAGE, read_place
from messaging.exceptions import InvalidSubmission
from messaging.models import DoubtOutcome, ServiceError, ServiceLevel
from messaging.report_choices import NOTICES, AuditKind, Verdict, WindowBasis
from messaging.reports.catalogue import Table
from messaging.reports.pages import chart_scales as scales
from messaging.reports.selectors import reports
from messaging.reports.selectors.reports import Column, Shown
from messaging.templatetags import hub
from rmhub.ids import public_id
from rmhub.language import gettext_lazy, inside, number

_NOTHING = mark_safe('<span class="text-faint">—</span>')
# Columns that lead to another one, and are not shown themselves.
_HIDDEN = frozenset({"pair_id", "agreement_id", "violation", "last_number", "detail"})
_TITLES = {"first_number": gettext_lazy("Numbers")}
# Words and colours of values, by column. The long form of a word is what a pointer shows.
_LOOKS: dict[str, dict[str, tuple[str, str]]] = {
    "kind": {kind.value: (kind.label, "secondary" if kind in NOTICES else "red") for kind in AuditKind},
    "verdict": {
        Verdict.AGREED.value: (gettext_lazy("Agreed"), "green"),
        Verdict.LOST.value: (gettext_lazy("Lost"), "red"),
        Verdict.UNKNOWN_HERE.value: (gettext_lazy("Unknown here"), "orange"),
        Verdict.DOUBLED.value: (gettext_lazy("Doubled"), "purple"),
        Verdict.DIFFERS.value: (gettext_lazy("Digests differ"), "red"),
        Verdict.IN_DOUBT.value: (gettext_lazy("In doubt"), "yellow"),
        Verdict.IN_DOUBT_ARRIVED.value: (gettext_lazy("In doubt, arrived"), "azure"),
    },
    "basis": {
        WindowBasis.MEASURED.value: (gettext_lazy("Measured"), "green"),
        WindowBasis.EXTRAPOLATED.value: (gettext_lazy("Extrapolated"), "azure"),
        WindowBasis.AGREED.value: (gettext_lazy("Agreed retry time"), "secondary"),
    },
}
# Codes of columns that have no choices, in words.
_CODES: dict[str, dict[str, str]] = {
    "kind": {
        "attempt": gettext_lazy("attempt"),
        "message": gettext_lazy("message"),
        "rejection": gettext_lazy("rejection"),
        "delivery": gettext_lazy("delivery"),
    },
    "what": {"delivery": gettext_lazy("delivery"), "message": gettext_lazy("message")},
}
# Tables that have rows of all partners together.
_OF_ALL = (DoubtOutcome, ServiceError, ServiceLevel)
# What became of a doubt: words, and the tone of its part in a bar.
_OUTCOMES = {
    "open": (gettext_lazy("Open"), "tone-watch"),
    "duplicate": (gettext_lazy("Marked as processed"), "tone-purple"),
    "resubmit": (gettext_lazy("Resubmitted"), "tone-azure"),
    "delivered": (gettext_lazy("Marked as delivered"), "tone-good"),
    "answered": (gettext_lazy("Answered after all"), "tone-good"),
    "asked_completed": (gettext_lazy("Asked: then completed"), "tone-good"),
    "asked_duplicate": (gettext_lazy("Asked: a duplicate"), "tone-purple"),
    "asked_failed": (gettext_lazy("Asked: then failed"), "tone-bad"),
    "asked_in_doubt": (gettext_lazy("Asked: still in doubt"), "tone-orange"),
}


def sheet(
    request: HttpRequest,
    shown: Shown,
    of: Table,
    *,
    filters: Mapping[str, str],
    fixed: Mapping[str, object] | None = None,
    fields: Sequence[str] = (),
    without: Sequence[str] = (),
    limit: int = PAGE,
    sortable: bool = True,
) -> dict[str, Any]:
    """A page of a table at the URL's cursor and sort (`sortable`). `filters` come from the URL, `fixed` from the page.

    `fields` are the filters that the table's own form offers, `without` the columns that the page says otherwise.
    """
    assert shown.run is not None
    run = shown.run.pk
    sort = request.GET.get("sort", "") if sortable and request.GET.get("table", of.name) == of.name else ""
    try:
        reports.order_of(of, sort)
    except InvalidSubmission:
        sort = ""
    wanted = {**filters, **(fixed or {})}
    mark = reports.mark(run, of, wanted, sort)
    found = reports.row_page(reports.rows(run, of, wanted), of, sort=sort, limit=limit, place=read_place(request, mark))
    shown_columns = [
        replace(one, title=_TITLES.get(one.name, one.title))
        for one in reports.columns(of)
        if one.name not in _HIDDEN and one.name not in without
    ]
    base = {name: request.GET[name] for name in request.GET if name not in ("cursor", "sort", "table", "run")}
    base |= {"run": shown.run.public_id, "table": of.name}
    sorted_by = base | ({"sort": sort} if sort else {})
    files = {"run": shown.run.public_id, **({"scope": shown.scope} if shown.scope else {})}

    def cursor_to(place: keyset.Place | None) -> str:
        return _to({**sorted_by, "cursor": keyset.write_cursor(place, mark)}) if place else ""

    return {
        "table": of,
        "of": inside(str(of.title)),
        "headings": [_heading(one, sort, base) for one in shown_columns],
        "rows": [[(one, cell(one, row)) for one in shown_columns] for row in found.rows],
        "fields": [_field(run, of, name, filters.get(name, "")) for name in fields],
        "kept": [(name, value) for name, value in sorted_by.items() if name not in fields],
        "filtered": any(filters.get(name) for name in fields if name != "grain"),
        "previous": cursor_to(found.previous),
        "following": cursor_to(found.following),
        "first": _to(sorted_by) if request.GET.get("cursor") else "",
        "clear": _to({name: value for name, value in sorted_by.items() if name not in fields}),
        "csv": _file(shown, of, "csv", {**files, **_as_text(wanted), **({"sort": sort} if sort else {})}),
        "parquet": _file(shown, of, "parquet", files),
    }


def cell(column: Column, row: Any) -> SafeString:
    """One value as people read it, with its link."""
    value = getattr(row, column.name)
    if value is None or value == []:
        return _NOTHING
    if column.name in _CELLS:
        return _CELLS[column.name](column, row, value)
    if column.name == "kind" and column.choices:
        detail = getattr(row, "detail", "")
        return format_html("{}{}", _worded(column, value), format_html("<div>{}</div>", detail) if detail else "")
    if column.kind == "time":
        return hub.ago(value)
    if column.kind == "boolean":
        return format_html("{}", _("yes") if value else _("no"))
    if column.numeric:
        return format_html("{}", scales.amount(value, column.unit))
    if column.choices:
        return _worded(column, value)
    return format_html("{}", code_word(column.name, value))


def code_word(column: str, value: str) -> str:
    """The word for a code of a column that has no choices; any other value as it is."""
    return _CODES.get(column, {}).get(value, value)


def word(column: str, value: str) -> tuple[str, str]:
    """The short word for a value, and its colour ("" = none)."""
    return _LOOKS.get(column, {}).get(value, ("", ""))


def _worded(column: Column, value: str) -> SafeString:
    words = column.choices.get(value, value)
    short, tone = word(column.name, value)
    if tone:
        return format_html('<span class="state state-{}" title="{}">{}</span>', tone, words, short)
    return format_html("{}", words)


def cause_label(kind: str, cause: str) -> str:
    """The words for an error's cause; a rejection's is the code that the partner was told."""
    return causes.refusal_label(cause) if kind == "rejection" else causes.lookup(cause).label


def outcome_look(outcome: str) -> tuple[str, str]:
    """The words for what became of a doubt, and the tone of its part in a bar."""
    return _OUTCOMES.get(outcome) or (hub.words(outcome).capitalize(), "tone-before")


def _state(value: str) -> str:
    """The word for a message's state, as it stands in a row."""
    look = MESSAGE_LOOKS.get(value)
    return inside(str(look.label)) if look is not None else value


def _cause(column: Column, row: Any, value: str) -> SafeString:
    label = cause_label(getattr(row, "kind", ""), value)
    return format_html('{} <span class="mono text-faint">{}</span>', label, value)


def _pair(column: Column, row: Any, value: str) -> SafeString:
    if not value:
        return _NOTHING
    try:
        href = reverse("console:pair", args=[value])
    except NoReverseMatch:  # the report's text is no code that a page could have
        return format_html("{}", value)
    return format_html('<a class="nowrap" href="{}">{}</a>', href, value)


def _partner(column: Column, row: Any, value: str) -> SafeString:
    if value:
        return format_html("{}", value)
    empty = _("All partners") if isinstance(row, _OF_ALL) else "—"
    return format_html('<span class="text-soft">{}</span>', empty)


def _message(column: Column, row: Any, value: str) -> SafeString:
    search = f"{reverse('console:go')}?{urlencode({'q': value})}"
    return format_html('<a class="mono" href="{}" title="{}">{}</a>', search, value, hub.middle(value, 40))


def _messages(column: Column, row: Any, value: list[str]) -> SafeString:
    links = format_html_join(" ", "<li>{}</li>", ((_message(column, row, one),) for one in value))
    if len(value) <= 2:
        return format_html('<ul class="proof">{}</ul>', links)
    what = _("{count} MessageIds").format(count=number(len(value)))
    return format_html('<details><summary>{}</summary><ul class="proof">{}</ul></details>', what, links)


def _digest(column: Column, row: Any, value: str) -> SafeString:
    if not value:
        return _NOTHING
    return format_html('<span class="mono nowrap" title="{}">{}</span>', value, hub.middle(value, 9))


def _suffices(column: Column, row: Any, value: bool) -> SafeString:
    if value:
        return format_html(
            '<span class="state state-green">{}<span>{}</span></span>', hub.icon("check", "state-icon"), _("Suffices")
        )
    return format_html(
        '<span class="state state-red">{}<span>{}</span></span>', hub.icon("x", "state-icon"), _("Too short")
    )


def _agreement(column: Column, row: Any, value: str) -> SafeString:
    href = reverse("console:agreement", args=[public_id("agr", row.agreement_id)])
    return format_html('<a href="{}">{}</a>', href, value)


def _number(column: Column, row: Any, value: int) -> SafeString:
    # A sequence number is a name, not an amount.
    return format_html('<span class="mono">{}</span>', value)


def _number_range(column: Column, row: Any, value: int) -> SafeString:
    last = row.last_number
    if last is None or last == value:
        return _number(column, row, value)
    return format_html('<span class="mono nowrap">{} … {}</span>', value, last)


def _bucket(column: Column, row: Any, value: Any) -> SafeString:
    grain = getattr(row, "grain", "")
    if not grain:
        return hub.ago(value)
    return format_html('<span class="nowrap">{}</span>', scales.instant(value, hourly=grain == "hour"))


_CELLS: dict[str, Callable[[Column, Any, Any], SafeString]] = {
    "cause": _cause,
    "pair": _pair,
    "partner": _partner,
    "message_id": _message,
    "message_ids": _messages,
    "our_digest": _digest,
    "their_digest": _digest,
    "one_in": lambda column, row, value: format_html(
        '<span class="nowrap">{}</span>', _("1 in {count}").format(count=number(value))
    ),
    "suffices": _suffices,
    "agreement": _agreement,
    "first_number": _number_range,
    "sequence_number": _number,
    "cost": lambda column, row, value: format_html(
        "{}", scales.decimals(value, 2) if value >= 0.01 or not value else scales.pointed("< 0.01")
    ),
    "upper": lambda column, row, value: format_html("{}", _("below {limit}").format(limit=scales.amount(value, "s"))),
    "our_state": lambda column, row, value: format_html("{}", _state(value)),
    "at": _bucket,
    "month": lambda column, row, value: format_html('<span class="nowrap">{}</span>', f"{value:%Y-%m}"),
    "doubt": lambda column, row, value: format_html("{}", hub.doubt(value)),
    "outcome": lambda column, row, value: format_html("{}", outcome_look(value)[0]),
}


def _heading(column: Column, sort: str, base: Mapping[str, str]) -> dict[str, Any]:
    """A column's head: where it sorts by it, and how it is sorted now (ascending, descending or not)."""
    down = f"-{column.name}"
    # Numbers are looked at from the greatest, texts from A.
    first, second = (down, column.name) if column.numeric else (column.name, down)
    following = second if sort == first else first
    state = "ascending" if sort == column.name else "descending" if sort == down else ""
    href = _to({**base, "sort": following}) if column.sortable else ""
    return {"column": column, "href": href, "sorted": state}


def _field(run: Any, of: Table, name: str, value: str) -> dict[str, Any]:
    """A filter: a select when it has options, else a text."""
    column = next(one for one in reports.columns(of) if one.name == name)
    options: list[tuple[str, str]] = []
    if column.choices:
        options = [(key, word(name, key)[0] or words) for key, words in column.choices.items()]
    elif name not in ("pair", "message_id"):
        options = [(one, code_word(name, one)) for one in reports.values_of(run, of, name) if one]
    return {"name": name, "label": column.title, "value": value, "options": options}


def _to(parameters: Mapping[str, str]) -> str:
    return f"?{urlencode(parameters)}#rows"


def _as_text(filters: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in filters.items()}


def _file(shown: Shown, of: Table, form: str, parameters: Mapping[str, str]) -> str:
    address = reverse("console:report-download", args=[shown.report.job.value, of.name, form])
    return f"{address}?{urlencode(parameters)}"
