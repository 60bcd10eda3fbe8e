"""The filters of a list: declared once, shown as a search box, a folded form and chips that take each away again."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from urllib.parse import urlencode

from django.http import HttpRequest

from partners import selectors as partners
from partners.models import Party

_PLACE = ("cursor", "at", "view", "format", "page")  # where one is in a list, and not what is in it
_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter of a list. `meaning`: what `rows` is given under `keyword` for each choice.

    `kind`: "search" is the box that is always there; "partner" a name that completes itself; "time" and "check" are
    fields of their own; "tab" is set elsewhere on the page, and "link" only by links that lead here. Else it is a
    choice, or a text. `hint` stands in an empty field; `suggested`: texts that are offered.
    """

    name: str
    label: str
    keyword: str = ""
    meaning: Mapping[str, object] = field(default_factory=dict)
    choices: Sequence[tuple[str, str]] = ()
    kind: str = ""
    hint: str = ""
    suggested: Sequence[str] = ()
    most: int = 120
    mono: bool = False

    def read(self, request: HttpRequest) -> str:
        """Return what the URL says, "" for what it cannot be."""
        text = request.GET.get(self.name, "").strip()[:120].replace("\x00", "")
        return text if not self.choices or text in self.meaning else ""


@dataclass(frozen=True, slots=True)
class Bar:
    """What `console/parts/filters.html` shows. `fields`: (filter, text, what is wrong with it) of the folded form.

    `chips`: (words, address of the list without it); `kept`: parameters of the list that the form has no field for;
    `number` of filters that are on in the folded form; `missing`: a sentence about a partner that there is not, and
    (name, address) of those that may be meant.
    """

    what: str
    search: tuple[Filter, str] | None
    fields: Sequence[tuple[Filter, str, str]]
    chips: Sequence[tuple[str, str]]
    kept: Sequence[tuple[str, str]]
    number: int
    clear: str
    missing: str = ""
    instead: Sequence[tuple[str, str]] = ()

    @property
    def open(self) -> bool:
        """Whether something in the folded form must be seen."""
        return any(wrong for _, _, wrong in self.fields)


@dataclass(frozen=True, slots=True)
class Partner:
    """The partner that a list is narrowed to. `missing`: there is none of that name; `alike`: names that it may be."""

    text: str = ""
    party: Party | None = None
    missing: str = ""
    alike: Sequence[str] = ()

    @property
    def key(self) -> uuid.UUID | None:
        """Return the key that selectors take."""
        return self.party.pk if self.party is not None else None

    @property
    def reference(self) -> str:
        """Return the id that saved views, jobs and the API know; what was typed when it is nobody's."""
        return self.party.public_id if self.party is not None else self.text

    def meant(self, name: str = "partner") -> dict[str, str]:
        """Return the parameter of the list with that id, for what is done about all of the list."""
        return {name: self.reference} if self.text else {}


def partner_of(request: HttpRequest, name: str = "partner") -> Partner:
    """The partner whom the URL names: by id, by name or by identifier."""
    return partner_named(request.GET.get(name, ""))


def partner_named(text: str) -> Partner:
    """The partner of this id, name or identifier, or whom may be meant."""
    found = named(text)
    if found.party is not None or not found.text:
        return found
    missing, alike = partners.nobody(found.text)
    return replace(found, missing=missing, alike=alike)


def named(text: str) -> Partner:
    """The partner of this id, name or identifier, or nobody."""
    text = text.strip()[:200].replace("\x00", "")
    return Partner(text, partners.named(text).first()) if text else Partner()


def bar(
    request: HttpRequest,
    what: str,
    filters: Sequence[Filter],
    given: Mapping[str, str],
    *,
    said: Mapping[str, str] = _NOTHING,
    wrong: Mapping[str, str] = _NOTHING,
    partner: Partner | None = None,
    chips: Sequence[tuple[str, str]] | None = None,
) -> Bar:
    """The filters of a list of `what` with the values that the view understood.

    `said`: words of a value where they are not the value; `wrong`: what is wrong with one; `chips`: those of a list
    that makes them itself.
    """
    said = dict(said)
    named = next((one.name for one in filters if one.kind == "partner"), "")
    if named and partner is not None and partner.party is not None:
        given = {**given, named: partner.party.name}
    names = {one.name for one in filters}
    on = [one for one in filters if given.get(one.name) and one.kind != "tab"]
    shown = [one for one in filters if one.kind not in ("search", "tab", "link")]
    search = next(((one, given.get(one.name, "")) for one in filters if one.kind == "search"), None)
    elsewhere = [(one.name, given[one.name]) for one in filters if one.kind in ("tab", "link") and given.get(one.name)]
    elsewhere += [(key, str(text)) for key, text in request.GET.items() if text and key not in (*names, *_PLACE)]
    if chips is None:
        chips = [(_chip(one, given[one.name], said), address(request, **{one.name: ""})) for one in on]
    missing = partner is not None and bool(partner.missing)
    return Bar(
        what=what,
        search=search,
        fields=[(one, given.get(one.name, ""), wrong.get(one.name, "")) for one in shown],
        chips=chips,
        kept=elsewhere,
        number=sum(one in on for one in shown),
        clear=address(request, **{one.name: "" for one in filters if one.kind != "tab"}),
        missing=partner.missing if partner is not None else "",
        instead=[(name, address(request, **{named: name})) for name in partner.alike] if missing and partner else [],
    )


def address(request: HttpRequest, **changes: str) -> str:
    """This list's address with other filters, from its first page."""
    query = {name: value for name, value in request.GET.items() if name not in _PLACE} | changes
    return f"?{urlencode({name: value for name, value in query.items() if value}) or 'view=all'}"


def _chip(one: Filter, text: str, said: Mapping[str, str]) -> str:
    if one.kind == "search":
        return f"“{text}”"
    if one.kind == "check":
        return one.label
    return f"{one.label}: {said.get(one.name) or dict(one.choices).get(text) or text}"
