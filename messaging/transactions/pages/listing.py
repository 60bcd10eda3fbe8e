"""The list of atomic transactions: its filters, its columns, its pages."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from messaging import keyset
from messaging.access.selectors.reach import read_id
from messaging.choices import PHASE_LOOKS
from messaging.console import lists
from messaging.console.access import requires
from messaging.console.lists import Column, ListPage
from messaging.console.rendering import PAGE, as_context, page, read_place
from messaging.messages.selectors.messages import TooBroad
from messaging.models import Coordination
from messaging.transactions.selectors import coordinations
from partners import selectors as partners
from rmhub.ids import BadPublicId

_FILTERS = ("phase", "doubtful", "doubt", "party", "role", "q", "from", "to")
TRANSACTIONS = ListPage(
    name="transactions",
    view="console:transactions",
    columns=(
        Column("id", "Id", lambda row: row.public_id, only_csv=True),
        Column("begun", "Begun", lambda row: row.created_at),
        Column("phase", "State", lambda row: row.phase, fixed=True),
        Column("identifier", "Transaction", lambda row: row.identifier, fixed=True),
        Column("beginner", "Begun by", coordinations.beginner),
        Column("participants", "Participants", lambda row: ", ".join(_names(row))),
        Column("role", "Role", lambda row: "participant" if row.subordinate else "coordinator", only_csv=True),
        Column("cause", "What is known", lambda row: row.cause),
        Column("doubtful_since", "In doubt since", lambda row: row.doubtful_since, only_csv=True),
        Column("expires", "Time left", lambda row: row.expires_at),
        Column("decided", "Decided", lambda row: row.decided_at, only_csv=True),
        Column("ended", "Ended", lambda row: row.ended_at, only_csv=True),
    ),
    api="/api/v1/transactions",
    api_query=lambda given: _api_query(given),
)


@requires("messages:read")
def transaction_list(request: HttpRequest) -> HttpResponseBase:
    """Newest first, by state, doubt, partner, role, time and exact id. The first page is live; its rows do not move."""
    if (other := lists.opened(request, TRANSACTIONS)) is not None:
        return other
    given, notes = _given(request), []
    begin, end = _or_none(given["from"]), _or_none(given["to"])
    backwards = begin is not None and end is not None and end <= begin
    if backwards:
        notes.append("The time range runs backwards: “before” must be later than “begun from”.")
    try:
        found = coordinations.coordinations().none() if backwards else _found(given)
    except (BadPublicId, ValueError) as error:
        notes.append(str(error))
        found = coordinations.coordinations().none()
    if lists.csv_wanted(request):
        return lists.csv(
            request, TRANSACTIONS, lambda place, limit: coordinations.coordination_page(found, limit=limit, place=place)
        )
    mark = keyset.fingerprint("console.transactions", given, "-id")
    context: dict[str, Any] = {"rows": [], "next_cursor": "", "previous_cursor": ""}
    try:
        context = as_context(coordinations.coordination_page(found, limit=PAGE, place=read_place(request, mark)), mark)
    except TooBroad:
        notes.append("This search took too long and was stopped. Narrow it by time or state.")
    context["rows"] = [_row(one) for one in context["rows"]]
    context |= {
        "given": given,
        "notes": notes,
        "backwards": backwards,
        "phases": [(name, look.label) for name, look in PHASE_LOOKS.items()],
        "roles": coordinations.ROLES,
        "doubtful": coordinations.doubtful_count(),
        "open": sum(coordinations.counts_by_phase().values()),
        "party_name": _party_name(given["party"]),
        "why": coordinations.cause_named(given["doubt"]),
        "filtered": any(given.values()),
        "first_page": not request.GET.get("cursor"),
        **lists.tools(request, TRANSACTIONS, given),
    }
    fragments = {"live-transactions": "console/transactions/transactions_live.html"}
    return page(request, "console/transactions/transactions.html", context, fragments=fragments)


def _given(request: HttpRequest) -> dict[str, str]:
    given = {name: request.GET.get(name, "").strip()[:512].replace("\x00", "") for name in _FILTERS}
    known = {"phase": set(PHASE_LOOKS), "role": set(coordinations.ROLES), "doubtful": {"yes", "no"}}
    for name, values in known.items():
        if given[name] not in values:
            given[name] = ""
    return given


def _found(given: Mapping[str, str]) -> Any:
    """The transactions of the list's filters. Raises BadPublicId, ValueError."""
    return coordinations.coordinations(
        phases=(given["phase"],) if given["phase"] else (),
        doubtful={"yes": True, "no": False}.get(given["doubtful"]),
        doubt=given["doubt"],
        party_id=read_id("par", given["party"]) if given["party"] else None,
        role=given["role"],
        q=given["q"],
        begun_gte=_instant(given["from"]),
        begun_lt=_instant(given["to"]),
    )


def _instant(text: str) -> datetime | None:
    """A field of the form, in the zone of the page unless it says one."""
    if not text:
        return None
    try:
        at = parse_datetime(text)
    except ValueError:
        at = None
    if at is None:
        raise ValueError(f"{text} is no time: write it as 2026-01-31T14:00.")
    return at if at.tzinfo is not None else timezone.make_aware(at)


def _api_query(given: Mapping[str, str]) -> dict[str, object]:
    doubtful = {"yes": "true", "no": "false"}.get(given["doubtful"], "")
    asked = {name: given[name] for name in ("phase", "doubt", "party", "role", "q")}
    return {**asked, "doubtful": doubtful, "begun_gte": _or_none(given["from"]), "begun_lt": _or_none(given["to"])}


def _or_none(text: str) -> datetime | None:
    try:
        return _instant(text)
    except ValueError:
        return None


def _party_name(reference: str) -> str:
    try:
        found = partners.parties().filter(pk=read_id("par", reference)).first() if reference else None
    except BadPublicId:
        return ""
    return found.name if found is not None else ""


def _names(one: Coordination) -> list[str]:
    """Who takes part, each once; those who only ask for the outcome are left out."""
    voting = [taker for taker in coordinations.taking_part(one) if taker.protocol != "Completion"]
    return list(dict.fromkeys(coordinations.name_of(taker) for taker in voting))


def _row(one: Coordination) -> dict[str, Any]:
    return {
        "transaction": one,
        "beginner": coordinations.beginner(one),
        "names": _names(one),
        "cause": coordinations.cause_of(one),
        "doubts": coordinations.doubts_of(one),
        "delivery": coordinations.delivery_of(one),
    }
