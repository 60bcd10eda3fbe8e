"""The pages of a kind of object that people set up: its list, one, its form, and the dialogs of its verbs."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.contrib import messages as notices
from django.forms.utils import flatatt
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern, path, reverse
from django.utils.functional import SimpleLazyObject
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables

from messaging.access.selectors.reach import read_id
from messaging.console.access import actor, person, requires
from messaging.console.filters import Filter, Partner, address, bar, partner_of
from messaging.console.forms import SettingsForm
from messaging.console.rendering import dialog, keyset_page, page, posted, see_other
from messaging.exceptions import InvalidSubmission, Stale
from messaging.resource import Resource, Verb
from rmhub.language import gettext_lazy

STACK = "table-vcenter card-table stack"
INCOMPLETE = gettext_lazy("This form is not complete: open it again from the page that led here.")


@dataclass(frozen=True, slots=True)
class Sort:
    """The order of a list by one of its columns. `aria`: "ascending", "descending", or "" while it has another."""

    href: str
    aria: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its heading, what stands in the cell of a row, and the classes of the cell.

    `zoned`: times, whose heading names the zone. `head`: stands in the heading instead of the label. `narrow`: the
    label beside the cell on a narrow screen, where it is another. `quiet`: nobody but a screen reader needs a label.
    `title`: what the pointer shows about a cell. `order`: the order of the list that this column stands for, as the
    list's `orders` name it without a sign; `sort`: the link by which the list is in that order.
    """

    label: str
    cell: Callable[[Any], object]
    css: str = ""
    zoned: bool = False
    head: str = ""
    narrow: str = ""
    quiet: bool = False
    title: Callable[[Any], str] | None = None
    order: str = ""
    sort: Sort | None = None

    def told(self, row: Any) -> SafeString:
        """Return the attributes of the cell of a row."""
        said = {} if self.quiet or "cell-end" in self.css else {"data-label": self.narrow or self.label}
        given = {**said, "class": self.css, "title": self.title(row) if self.title is not None else ""}
        return flatatt({name: text for name, text in given.items() if text})


Orders = Mapping[str, tuple[str, ...]]  # of a list: name, "-" in front where it is the other way round -> columns


def order_of(request: HttpRequest, orders: Orders, usual: str = "") -> tuple[str, tuple[str, ...]]:
    """Return (name, columns) of the order that the URL asks for; `usual` or the first for one that there is not."""
    wanted = request.GET.get("sort", "")
    name = wanted if wanted in orders else usual or next(iter(orders))
    return name, orders[name]


def sort_of(request: HttpRequest, orders: Orders, wanted: str, usual: str = "") -> Sort | None:
    """Return the link of a column with this order: the other way round when the list is in it. None without one."""
    ways = [name for name in orders if wanted and name.lstrip("-") == wanted]
    if not ways:
        return None
    now, default = order_of(request, orders, usual)[0], usual or next(iter(orders))
    following = next((name for name in ways if name != now), now) if now in ways else ways[0]
    aria = ("descending" if now.startswith("-") else "ascending") if now in ways else ""
    return Sort(address(request, sort="" if following == default else following), aria)


def sorting(request: HttpRequest, columns: Sequence[Column], orders: Orders) -> list[Column]:
    """Return the columns with the links by which they sort."""
    return [replace(one, sort=sort_of(request, orders, one.order)) for one in columns]


def table(
    caption: str,
    columns: Sequence[Column],
    rows: Iterable[Any],
    *,
    about: Callable[[Any], Mapping[str, object]] | None = None,
    css: str = STACK,
    name: str = "",
    keys: bool = False,
) -> dict[str, Any]:
    """Return what `console/parts/table.html` shows: `{% include "console/parts/table.html" with table=... %}`.

    `css`: classes of the table; `name`: its id, for links and scripts. `about(row)`: attributes of the row. `keys`: its
    rows are walked through by keys. Cells are made when it is drawn: only then the zone of its times is known.
    """

    def drawn() -> list[tuple[str, list[tuple[SafeString, object]]]]:
        return [
            (
                flatatt({name: str(value) for name, value in about(row).items()}) if about is not None else "",
                [(column.told(row), column.cell(row)) for column in columns],
            )
            for row in rows
        ]

    return {
        "caption": caption,
        "columns": columns,
        "cells": SimpleLazyObject(drawn),
        "css": css,
        "name": name,
        "keys": keys,
    }


@dataclass(frozen=True, slots=True)
class ListPage:
    """A list as a page: its columns and filters, and what stands there when it is empty.

    `row`: what the cells are made from, for each row that was read. `orders`: those that its columns name, the usual
    one first; without any it is in the resource's.
    """

    lead: str
    caption: str
    columns: tuple[Column, ...]
    filters: tuple[Filter, ...]
    icon: str
    none_yet: str
    what_then: str
    row: Callable[[Any], Any] = lambda row: row
    orders: Orders = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pages:
    """The console's pages of a resource.

    `form`: None for what people do not make here. `made`: ends the sentence "<object> ..." of a new one. `template`: of
    an object's page, which extends `console/parts/object.html`, with `shown` as context; without one, an object's page
    is its form. `now(row)`: a few words about an object, in its dialogs; `asking`: how these name verb and object.
    """

    resource: Resource
    listing: ListPage
    form: type[SettingsForm] | None = None
    made: str = ""
    template: str = ""
    shown: Callable[[Any], dict[str, Any]] = lambda row: {}
    now: Callable[[Any], str] = str
    asking: str = "{}: {}"

    def urls(self) -> list[URLPattern]:
        """Addresses of all pages, under the resource's plural."""
        r = self.resource
        look, change = requires(r.reads), requires(r.changes, methods=("GET", "POST"))
        do = requires(lambda named: r.scope_of(named["verb"]), methods=("GET", "POST"))
        one, verb = f"{r.plural}/<str:reference>/", do(self._verb)
        verbs = [path(f"{one}{v.slug}/", verb, {"verb": v.slug}, name=f"{r.name}-{v.slug}") for v in r.verbs]
        everything = path(f"{r.plural}/", look(self._list), name=r.plural)
        if self.form is None:
            return [everything, *verbs]
        quiet = sensitive_post_parameters(*self.form.secrets)  # without names it hides all of them
        shared = [everything, path(f"{r.plural}/new/", quiet(change(self._new)), name=f"{r.name}-new")]
        edit = quiet(change(self._edit))
        if not self.template:
            return [*shared, path(one, edit, name=r.name), *verbs]
        return [
            *shared,
            path(one, look(self._page), name=r.name),
            path(f"{one}edit/", edit, name=f"{r.name}-edit"),
            path(f"{one}actions/<slug:verb>/", verb, name=f"{r.name}-verb"),
        ]

    def _list(self, request: HttpRequest) -> HttpResponse:
        given = {one.name: one.read(request) for one in self.listing.filters}
        wanted = {one.keyword: one.meaning.get(given[one.name], given[one.name]) for one in self.listing.filters}
        partner = Partner()
        for one in self.listing.filters:
            if one.kind == "partner":
                partner = partner_of(request, one.name)
                wanted[one.keyword] = partner.party.pk if partner.party is not None else ""
        wanted = {key: value for key, value in wanted.items() if value != ""}
        r = self.resource
        rows = r.rows(**wanted).none() if partner.missing else r.rows(**wanted)
        orders = self.listing.orders or {"": r.order}
        order = order_of(request, orders)[1]
        context = keyset_page(request, f"console.{r.plural}", rows, order=order, filters=given)
        context |= {
            "page": self.listing,
            "made_elsewhere": self.form is None,
            "bar": bar(request, r.title, self.listing.filters, given, partner=partner)
            if self.listing.filters
            else None,
            "filtered": any(given.values()),
            "none_match": _("Nothing matches."),
            "show_all": _("Show all"),
            "pages": _("Pages"),
            "table": table(
                self.listing.caption,
                sorting(request, self.listing.columns, self.listing.orders),
                map(self.listing.row, context["rows"]),
                about=lambda row: {"data-testid": f"{r.name}-row"},
            ),
        }
        return self._answer(request, "console/parts/list.html", context, live=f"live-{r.plural}")

    def _page(self, request: HttpRequest, reference: str) -> HttpResponse:
        row = self._one(reference)
        r = self.resource
        context = {
            "state": r.state(row),
            "verbs": [
                (self._called(row, verb), _("Needs the role {role}.").format(role=missing) if missing else "")
                for verb in r.verbs
                if verb.slug in r.possible(row)
                for missing in [person(request).lacks(r.scope_of(verb.slug))]
            ],
            **self.shown(row),
        }
        return self._answer(request, self.template, context, row, live=f"live-{r.name}")

    @sensitive_variables()
    def _new(self, request: HttpRequest) -> HttpResponse:
        r, mark = self.resource, f"{self.resource.name}_form"
        create = r.create
        assert self.form is not None and create is not None
        form = self.form(request.POST, request.FILES) if request.method == "POST" else self._blank(request)
        if request.method == "POST":
            if request.POST.get("once", "-") != request.session.get(mark):
                notices.error(request, _("This form was already submitted: see whether it is in the list."))
                return see_other(f"console:{r.plural}")
            made = self._done(form, lambda: create(**self._why(request, form), **form.settings))
            if made is not None:
                del request.session[mark]
                return self._made(request, made)
        # A reload that posts the form again must not make another.
        request.session[mark] = secrets.token_urlsafe(16)
        return self._form(request, form, None, once=request.session[mark])

    @sensitive_variables()
    def _edit(self, request: HttpRequest, reference: str) -> HttpResponse:
        row = self._one(reference)
        r = self.resource
        update = r.update
        assert self.form is not None and update is not None
        given = (request.POST, request.FILES) if request.method == "POST" else ()
        form = self.form(*given, instance=row)
        if request.method == "POST":
            expected = r.read_revision(request.POST.get("version", ""))
            if expected in ("", -1):
                form.add_error(None, INCOMPLETE)
            try:
                seen = {**r.key(row.pk), "expected_version": expected}
                changed = self._done(form, lambda: update(**seen, **self._why(request, form), **form.settings))
            except Stale as error:
                form.add_error(None, error.detail)
                return self._form(request, form, r.one(row.pk), status=409)
            if changed is not None:
                notices.success(request, _("{name} is changed.").format(name=changed))
                return self._back(changed)
        return self._form(request, form, row)

    def _verb(self, request: HttpRequest, reference: str, verb: str) -> HttpResponse:
        row = self._one(reference)
        r = self.resource
        chosen = r.verb(verb)
        if chosen is None:
            raise Http404(f"There is no verb {verb} for {r.plural}.")

        def do() -> HttpResponse:
            expected = r.read_revision(posted(request, "version"))
            if expected in ("", -1):
                raise InvalidSubmission({"": [INCOMPLETE]})
            why = {"actor": actor(request), "reason": posted(request, "reason"), "expected_version": expected}
            left = chosen.service(**r.key(row.pk), **why)
            notices.success(request, f"{row} {chosen.done}.")
            return see_other(f"console:{r.plural}") if left is None else self._back(row)

        def shown() -> dict[str, Any]:
            now = row if request.method == "GET" else r.one(row.pk)
            called, possible = self._called(now, chosen), verb in r.possible(now)
            shared = self._shared(request, now)
            return {
                **shared,
                "title": f"{called.label}: {now}",
                "heading": self.asking.format(called.label, now),
                "crumbs": [(shared["list_href"], capfirst(r.title)), (shared["href"], str(now))],
                "version": shared["revision"],
                "verb": called,
                "noun": r.name,
                "state": r.state(now),
                "now": self.now(now),
                "possible": possible,
                "why_not": "" if possible else r.why_not(now),
                "effects": [*chosen.effects, *r.said(now, chosen)],
            }

        return dialog(request, "console/parts/verb_form.html", shown, do)

    # --- what another kind of page may do otherwise ---

    def _blank(self, request: HttpRequest) -> SettingsForm:
        """Return the form of a new object."""
        assert self.form is not None
        return self.form()

    def _made(self, request: HttpRequest, made: Any) -> HttpResponse:
        """Answer what `create` returned."""
        notices.success(request, f"{made} {self.made}")
        return self._back(made)

    # --- what they share ---

    def _called(self, row: Any, verb: Verb) -> Verb:
        return replace(verb, label=self.resource.called(row, verb))

    def _one(self, reference: str) -> Any:
        r = self.resource
        return r.one(reference if r.by_name else read_id(r.prefix, reference))

    def _back(self, row: Any) -> HttpResponse:
        r = self.resource
        return see_other(f"console:{r.name}", row.public_id) if self.template else see_other(f"console:{r.plural}")

    def _why(self, request: HttpRequest, form: SettingsForm) -> dict[str, Any]:
        return {"actor": actor(request), "reason": form.cleaned_data["reason"]}

    def _done(self, form: SettingsForm, service: Callable[[], Any]) -> Any:
        """Return what the service returns, None when the form or the service refuses."""
        if not form.is_valid():
            return None
        try:
            return service()
        except InvalidSubmission as error:
            form.refuse(error.errors)
            return None

    def _form(
        self, request: HttpRequest, form: SettingsForm, row: Any, *, status: int = 0, once: str = ""
    ) -> HttpResponse:
        wrong = form.wrong() if form.is_bound else []
        context = {"form": form, "errors": wrong, "given": request.POST, "once": once}
        status = status or (422 if wrong else 200)
        return self._answer(request, "console/parts/object_form.html", context, row, status=status)

    def _answer(
        self,
        request: HttpRequest,
        template: str,
        context: Mapping[str, Any],
        row: Any = None,
        *,
        live: str = "",
        status: int = 200,
    ) -> HttpResponse:
        return page(request, template, {**self._shared(request, row), **context}, live=live, status=status)

    def _shared(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        r = self.resource
        list_href = reverse(f"console:{r.plural}")
        missing = person(request).lacks(r.changes)
        return {
            "resource": r,
            "object": row,
            r.name: row,
            "revision": r.revision(row) if row is not None else "",
            "list_href": list_href,
            "href": reverse(f"console:{r.name}", args=[row.public_id])
            if row is not None and self.template
            else list_href,
            "why_not": _("Needs the role {role}.").format(role=missing) if missing else "",
        }
