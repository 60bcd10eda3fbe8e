"""What a search for messages means: the box's terms and the parameters of the list, as filters; the same for the
console's list, the API, saved views, and jobs about everything that matches.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from django.core.exceptions import ObjectDoesNotExist
from django.utils.translation import gettext as _

from messaging.archive import selectors as archive
from messaging.choices import Direction, MessageState
from messaging.engine import attributes
from messaging.exceptions import NotFound
from messaging.messages.selectors import messages, search_terms
from messaging.messages.selectors.finding import OPEN_STATES, MessageFilters
from messaging.messages.selectors.search_terms import Search, Term
from messaging.pairs.selectors import pairs
from partners import selectors as partners
from rmhub.ids import BadPublicId, public_id, read_public_id
from rmhub.language import gettext_lazy

# Windows of time that one press chooses; the first is what a search has that says nothing about time.
WINDOWS: dict[str, tuple[str, timedelta | None]] = {
    "24h": (gettext_lazy("Last 24 hours"), timedelta(hours=24)),
    "7d": (gettext_lazy("7 days"), timedelta(days=7)),
    "30d": (gettext_lazy("30 days"), timedelta(days=30)),
    "all": (gettext_lazy("All time"), None),
}
# Parameters of the list -> keys of the box's grammar. The API's names for the same things are taken as well.
NAMES: Mapping[str, str] = {
    "state": "state",
    "direction": "dir",
    "pair": "pair",
    "partner": "partner",
    "agreement": "agreement",
    "service": "service",
    "action": "action",
    "conversation": "conv",
    "document": "document",
    "ref": "ref",
    "error": "error",
    "schema": "schema",
    "since": "after",
    "created_gte": "after",
    "before": "before",
    "created_lt": "before",
}
PARAMETERS = ("q", *NAMES, "window")
MOST = 512
_DIRECTIONS = {"in": "in", "inbound": "in", "out": "out", "outbound": "out"}
_MOST_PARTNERS = 20
_CODE = re.compile(r"[a-z0-9_]{1,60}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Found:
    """`filters` of a search. `problems`: what was left out, and why; `nothing`: it names something that is not there.

    `instead`: (parameter, its text, name) of partners that may be meant by names that are nobody's.
    `window`: which of `WINDOWS` limits it, "" when the search itself says from when or until when, or names an id.
    """

    filters: MessageFilters
    search: Search
    problems: list[str] = field(default_factory=list)
    nothing: bool = False
    window: str = ""
    instead: list[tuple[str, str, str]] = field(default_factory=list)


class Wrong(ValueError):
    """The value cannot be what its key is about. `missing`: it can, but there is no such thing."""

    def __init__(self, detail: str, *, missing: bool = False, alike: Sequence[str] = ()) -> None:
        super().__init__(detail)
        self.missing = missing
        self.alike = alike


def read(text: str, filters: MessageFilters, *, now: datetime, zone: tzinfo = UTC) -> Found:
    """A search in the box's grammar, on top of `filters` that are given already.

    A term that comes twice: the last one counts, but all attributes do. A word that looks like a term and is none is
    looked for as an id, and is a problem when there is no such id.
    """
    search = search_terms.read(text, attributes.known().names)
    problems, nothing = list(search.problems), False
    instead: list[tuple[str, str, str]] = []
    for term in search.terms:
        if term.key not in search_terms.KEYS:
            filters = replace(filters, attributes=(*filters.attributes, (term.key, term.value)))
            continue
        try:
            filters = replace(filters, **values(term, now, zone))
        except Wrong as wrong:
            nothing = nothing or wrong.missing
            instead += [("q", search.other(term, name), name) for name in wrong.alike]
            said = _("“{term}”: {why}") if wrong.missing else _("“{term}” was left out: {why}")
            problems.append(said.format(term=term, why=wrong))
    if search.text:
        filters = replace(filters, q=search.text)
    given = given_attribute(search.text) if search.doubtful == (search.text,) else None
    if given is not None and not messages.has_id(search.text):
        return Found(replace(filters, q="", attributes=(*filters.attributes, given)), search, problems, nothing)
    if search.doubtful and not (messages.has_id(search.text) or archive.left(search.text, limit=1)):
        problems += [_no_term(word) for word in search.doubtful]
    return Found(filters, search, problems, nothing, instead=instead)


def given_attribute(text: str) -> tuple[str, str] | None:
    """The attribute that the text names, which no rule takes but an application gave. None: no message has it, and none
    of the archive.
    """
    name, colon, value = text.partition(":")
    if not (colon and value and attributes.NAME.fullmatch(name)):
        return None
    with messages.planned_for_values():
        had = messages.with_attribute(name, value, most=1) or archive.left("", attributes=((name, value),), limit=1)
    return (name, value) if had else None


def of_list(given: Mapping[str, str], *, now: datetime, zone: tzinfo) -> Found:
    """What the list shows for these parameters; names that are none of `PARAMETERS` are left alone.

    Without a word about time, and without an id, the newest 24 hours are meant, unless an index leads to just what is
    searched. What cannot be read is left out and said in `problems`.
    """
    filters, problems, nothing = MessageFilters(), [], False
    instead: list[tuple[str, str, str]] = []
    for name, key in NAMES.items():
        text = given.get(name, "").strip()[:MOST].replace("\x00", "")
        if not text:
            continue
        try:
            filters = replace(filters, **values(Term(key, ":", text), now, zone))
        except Wrong as wrong:
            nothing = nothing or wrong.missing
            instead += [(name, one, one) for one in wrong.alike]
            problems.append(_("“{text}” as {name}: {why}").format(text=text[:60], name=name, why=wrong))
    text = given.get("q", "").strip()[:MOST].replace("\x00", "")
    found = read(text, filters, now=now, zone=zone)
    filters, window = found.filters, given.get("window", "")
    if filters.backwards:
        problems.append(_("The time range runs backwards: its end must be later than its beginning."))
        nothing = True
    if filters.by_id or filters.created_gte is not None or filters.created_lt is not None:
        window = ""
    elif window not in WINDOWS:
        window = "all" if _is_narrow(filters) else next(iter(WINDOWS))
    span = WINDOWS[window][1] if window else None
    if span is not None:
        filters = replace(filters, created_gte=now - span)
    problems += found.problems
    return Found(filters, found.search, problems, nothing or found.nothing, window, instead + found.instead)


def _is_narrow(filters: MessageFilters) -> bool:
    """Whether an index leads to just what is searched, so that a window of time would only hide some of it."""
    few = bool(filters.states) and OPEN_STATES.issuperset(filters.states)
    named = filters.pair_id is not None or filters.partner_id is not None or bool(filters.partner_ids)
    return not filters.unindexed and (few or named or bool(filters.cause))


def api_parameters(found: Found) -> dict[str, str]:
    """The same search as parameters of GET /messages."""
    filters = found.filters
    partners_named = [str(term) for term in found.search.terms if term.key == "partner"]
    attributes_named = [str(Term(name, ":", value)) for name, value in filters.attributes]
    quoted = search_terms.exactly(filters.q)
    parameters = {
        "state": ",".join(filters.states),
        "direction": filters.direction,
        "pair": public_id("pair", filters.pair_id) if filters.pair_id else "",
        "partner": public_id("par", filters.partner_id) if filters.partner_id else "",
        "agreement": public_id("agr", filters.agreement_id) if filters.agreement_id else "",
        "service": filters.service,
        "action": filters.action,
        "conversation": filters.conversation,
        "document": filters.document,
        "ref": filters.ref,
        "error": filters.cause,
        "schema": filters.schema,
        "q": " ".join([*partners_named[-1:], *attributes_named, *([quoted] if quoted else [])]),
        "created_gte": _moment(filters.created_gte),
        "created_lt": _moment(filters.created_lt),
    }
    for name in ("size_gt", "size_lt", "attempts_gt", "attempts_lt"):
        number = getattr(filters, name)
        parameters[name] = "" if number is None else str(number)
    return {name: value for name, value in parameters.items() if value}


def _no_term(word: str) -> str:
    key = re.split("[:<>]", word, maxsplit=1)[0]
    known = ", ".join(search_terms.KEYS)
    return _(
        "“{word}” was looked for as an id, and nothing has it: {key} is not a term. Terms are {known}; an id that "
        "looks like one must be in quotes."
    ).format(word=word[:60], key=key, known=known)


def _moment(at: datetime | None) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z") if at else ""


def values(term: Term, now: datetime, zone: tzinfo) -> Mapping[str, Any]:
    """The fields of MessageFilters that a term sets. Raises Wrong."""
    try:
        if term.key in ("after", "before"):
            name = "created_gte" if term.key == "after" else "created_lt"
            return {name: search_terms.read_time(term.value, zone, now)}
        if term.key in ("size", "attempts"):
            number = (search_terms.read_size if term.key == "size" else search_terms.read_number)(term.value)
            return {f"{term.key}_{name}": bound for name, bound in search_terms.above(term.sign, number).items()}
    except (ValueError, OverflowError) as error:
        raise Wrong(f"{error}.") from error
    return _BY_KEY[term.key](term.value)


def _states(text: str) -> Mapping[str, Any]:
    found = tuple(dict.fromkeys(word.strip().lower().replace("-", "_") for word in text.split(",") if word.strip()))
    if strange := [word for word in found if word not in MessageState.values]:
        known = ", ".join(MessageState.values)
        raise Wrong(_("{state} is not a state; they are {known}.").format(state=strange[0], known=known))
    return {"states": found}


def _direction(text: str) -> Mapping[str, Any]:
    if text.lower() not in _DIRECTIONS:
        raise Wrong(_("a direction is in or out."))
    return {"direction": Direction(_DIRECTIONS[text.lower()]).value}


def _pair(text: str) -> Mapping[str, Any]:
    try:
        return {"pair_id": pairs.pair(text).pk}
    except NotFound:
        raise Wrong(_("There is no such pair."), missing=True) from None


def _partner(text: str) -> Mapping[str, Any]:
    """By id, exact name, identifier (`DUNS:123456789` or its value), else all whose names contain it."""
    chosen = partners.named(text)
    if not chosen.exists():
        chosen = partners.parties().filter(name__icontains=text)
    found = list(chosen.values_list("pk", flat=True)[: _MOST_PARTNERS + 1])
    if not found:
        said, alike = partners.nobody(text)
        raise Wrong(said, missing=True, alike=alike)
    if len(found) > _MOST_PARTNERS:
        raise Wrong(_("more than {most} partners have that in their names.").format(most=_MOST_PARTNERS))
    return {"partner_ids": tuple(found), "partner_id": None}


def _agreement(text: str) -> Mapping[str, Any]:
    try:
        return {"agreement_id": partners.agreement(read_public_id("agr", text)).pk}
    except (BadPublicId, ObjectDoesNotExist):
        found = partners.agreements().filter(tpa_id=text).first()
    if found is None:
        raise Wrong(_("There is no such agreement."), missing=True)
    return {"agreement_id": found.pk}


def _cause(text: str) -> Mapping[str, Any]:
    if not _CODE.fullmatch(text.lower()):
        raise Wrong(_("a cause has a code such as ack_timeout; a message's page says its own."))
    return {"cause": text.lower()}


def _text(name: str) -> Callable[[str], Mapping[str, Any]]:
    return lambda text: {name: text}


_BY_KEY: Mapping[str, Callable[[str], Mapping[str, Any]]] = {
    "state": _states,
    "partner": _partner,
    "dir": _direction,
    "pair": _pair,
    "agreement": _agreement,
    "service": _text("service"),
    "action": _text("action"),
    "conv": _text("conversation"),
    "document": _text("document"),
    "ref": _text("ref"),
    "schema": _text("schema"),
    "error": _cause,
}
