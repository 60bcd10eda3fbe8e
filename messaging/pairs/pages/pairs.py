"""Pairs: the list, and a pair's page with its tabs. What can be done to one is in `pair_actions`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import reverse

from messaging import keyset
from messaging.access.selectors.reach import read_id
from messaging.bulk.pages import buttons as bulk
from messaging.choices import Direction
from messaging.console import lists
from messaging.console.access import person, requires
from messaging.console.lists import Column, ListPage
from messaging.console.rendering import keyset_page, page
from messaging.keyset import Page, Place
from messaging.messages.pages import diagram
from messaging.messages.selectors.diagram import SCOPES, diagram_of_pair
from messaging.notifications import selectors as events
from messaging.overview.selectors import records
from messaging.pairs.pages.runbooks import rendered
from messaging.pairs.pages.settings import settings_fields
from messaging.pairs.pages.verbs import buttons, offered
from messaging.pairs.selectors import changes, pairs, probes, screens, sequence
from messaging.pairs.selectors.screens import TROUBLED, PairRow, PairScreen
from messaging.pairs.services import probing
from partners.models import Party
from rmhub import clock
from rmhub.ids import BadPublicId, public_id

_ORDER = ("severity", "code")
_MOST_PARTNERS = 500  # in the field that narrows the list to one
TABS = (
    ("overview", "Overview"),
    ("queue", "Queue"),
    ("attempts", "Attempts"),
    ("incidents", "Incidents"),
    ("agreement", "Agreement"),
    ("audit", "Audit"),
    ("settings", "Settings"),
)
PAIRS = ListPage(
    name="pairs",
    view="console:pairs",
    columns=(
        Column("state", "State", lambda row: row.diagnosis.state, fixed=True),
        Column("code", "Pair", lambda row: row.pair.code, fixed=True),
        Column("partner", "Partner", lambda row: row.pair.partner.name, only_csv=True),
        Column("direction", "Direction", lambda row: row.pair.direction, only_csv=True),
        Column("sender", "Sender URI", lambda row: row.pair.sender_uri, only_csv=True),
        Column("receiver", "Receiver URI", lambda row: row.pair.receiver_uri, only_csv=True),
        Column("agreement", "Agreement", lambda row: row.terms.tpa_id if row.terms is not None else "", hidden=True),
        Column("reason", "Reason", lambda row: row.diagnosis.cause.code if row.diagnosis.cause else ""),
        Column("since", "Since", lambda row: row.diagnosis.since, only_csv=True),
        Column("queue", "Queue", lambda row: row.pair.in_queue),
        Column("head", "First in line", lambda row: row.head.message_id if row.head is not None else ""),
        Column("retry", "Retry", lambda row: row.diagnosis.retry if row.head is not None else ""),
        Column("next", "Next", lambda row: row.diagnosis.next_at),
        Column("success", "Last success", lambda row: row.pair.last_success_at),
        Column("owner", "Owner", lambda row: row.incident.owner if row.incident is not None else ""),
        Column(
            "incident", "Incident", lambda row: str(row.incident) if row.incident is not None else "", only_csv=True
        ),
    ),
    api="/api/v1/pairs",
    api_query=lambda given: {
        "state": given["state"],
        "direction": given["direction"],
        "partner": given["partner"],
        "resync": given["resync"],
        "q": given["q"],
        "sort": "severity",
    },
)


_BULK = (
    "pairs_pause",
    "pairs_resume",
    "pairs_release",
    "pairs_clear_resync",
    "incidents_acknowledge",
    "incidents_assign",
)
_BULK_LABELS = {"incidents_acknowledge": "Acknowledge incidents", "incidents_assign": "Assign incidents"}


@requires("pairs:read")
def pair_list(request: HttpRequest) -> HttpResponseBase:
    """All pairs, the ones that need somebody first."""
    if (other := lists.opened(request, PAIRS)) is not None:
        return other
    filters = {
        "state": _known(request.GET.get("state", ""), pairs.STATE_NAMES),
        "direction": _known(request.GET.get("direction", ""), Direction.values),
        "partner": request.GET.get("partner", "").strip()[:40].replace("\x00", ""),
        "resync": _known(request.GET.get("resync", ""), ("true", "false")),
        "q": request.GET.get("q", "").strip()[:120].replace("\x00", ""),
    }
    partner = _partner(filters["partner"]) if filters["partner"] else None
    found = pairs.pairs(
        states=(filters["state"],) if filters["state"] else (),
        direction=filters["direction"],
        partner_id=partner.pk if partner is not None else None,
        search=filters["q"],
        resync=filters["resync"] == "true" if filters["resync"] else None,
    )
    if filters["partner"] and partner is None:
        found = found.none()
    if lists.csv_wanted(request):

        def fetch(place: Place | None, limit: int) -> Page[PairRow]:
            rows = keyset.page(found, order=_ORDER, limit=limit, place=place)
            return Page(screens.pair_rows(rows.rows, clock.now()), rows.following, rows.previous)

        return lists.csv(request, PAIRS, fetch)
    context = keyset_page(request, "console.pairs", found, order=_ORDER, filters=filters)
    me = person(request)
    context["rows"] = [
        (row, offered(row.pair, row.terms, me)) for row in screens.pair_rows(context["rows"], clock.now())
    ]
    counts = screens.counts_by_state()
    context |= {"filters": filters, "counts": counts, "total": sum(counts.values()), "directions": Direction.choices}
    context |= {"partner": partner, "partners": pairs.partners_of_pairs()[: _MOST_PARTNERS + 1]}
    context["most_partners"] = _MOST_PARTNERS
    context |= lists.tools(request, PAIRS, filters)
    context["new_partner"] = reverse("console:onboarding-new") if "partners:write" in me.scopes else ""
    context["lacks_ping"] = me.lacks("pairs:operate")
    context["bulk_actions"] = bulk.actions(request, *_BULK, labels=_BULK_LABELS)
    return page(request, "console/pairs/pairs.html", context, fragments={"live-pairs": "console/pairs/pairs_live.html"})


@requires("pairs:read")
def pair_page(request: HttpRequest, code: str) -> HttpResponse:
    """One pair: what is the matter, what can be done, and what was done. The URL's `tab` says which part is shown."""
    screen = screens.pair_screen(pairs.pair(code), clock.now())
    tab = _known(request.GET.get("tab", ""), [name for name, _ in TABS]) or "overview"
    context = {"screen": screen, "pair": screen.pair, "tab": tab, "tabs": _tabs(screen)}
    context |= _head(request, screen)
    context |= _CONTENTS[tab](request, screen)
    return page(request, "console/pairs/pair.html", context, fragments={"live-pair": "console/pairs/pair_live.html"})


def _partner(reference: str) -> Party | None:
    """The partner that the list is narrowed to; None when there is none of this id with a pair."""
    try:
        return pairs.partners_of_pairs().filter(pk=read_id("par", reference)).first()
    except BadPublicId:
        return None


def _tabs(screen: PairScreen) -> list[tuple[str, str, int]]:
    """(name, label, count) of each; a count of what is there to look at."""
    open_incidents = sum(incident.state != "resolved" for incident in screen.incidents)
    counts = {"queue": screen.pair.in_queue, "incidents": open_incidents}
    return [(name, label, counts.get(name, 0)) for name, label in TABS]


def _head(request: HttpRequest, screen: PairScreen) -> dict[str, Any]:
    """What stands above the tabs."""
    pair, me = screen.pair, person(request)
    troubled = screen.diagnosis.state in (*TROUBLED, "disabled")
    report = probes.newest_of_pair(pair.pk) if pair.direction == Direction.OUT else None
    pinged = request.GET.get("pinged", "")
    cancellable = screen.head is not None and screen.head.state not in ("sending", "delivered")
    return {
        "buttons": buttons(screen, me),
        "troubled": troubled,
        "changed": changes.since_last_success(pair, screen.terms) if troubled else [],
        "runbook": rendered(pair.runbook) if pair.runbook and troubled else "",
        "report": report if report is not None and (troubled or report.public_id == pinged) else None,
        "certificate_of": _endpoint(screen) if screen.diagnosis.cause is not None else "",
        "lacks_ping": me.lacks("pairs:operate"),
        "lacks_cancel": me.lacks("messages:cancel"),
        "cancellable": screen.head if cancellable and pair.direction == Direction.OUT else None,
    }


# What a new certificate in the endpoint's trust may mend.
_CERTIFICATES = ("cert_expired", "cert_untrusted", "tls_handshake")


def _endpoint(screen: PairScreen) -> str:
    """The endpoint whose certificates somebody should look at; "" when the trouble is another one."""
    cause = screen.diagnosis.cause
    if cause is None or cause.code not in _CERTIFICATES or screen.pair.direction != Direction.OUT:
        return ""
    return public_id("end", probing.endpoint_of(screen.pair)) if screen.terms is not None else ""


def _overview(request: HttpRequest, screen: PairScreen) -> dict[str, Any]:
    scope = _known(request.GET.get("scope", ""), SCOPES) or "document"
    failed = diagram.wants_failed(request.GET)
    steps = diagram_of_pair(screen.pair, now=clock.now(), scope=scope, failed_only=failed)
    return {
        "sequence": sequence.sequence(screen.pair, screen.terms, screen.streams),
        "drawing": diagram.draw(steps, request.GET),
    }


def _queue(request: HttpRequest, screen: PairScreen) -> dict[str, Any]:
    found = pairs.queue(screen.pair.pk)
    return keyset_page(request, "console.pair.queue", found, order=("position",), filters={"pair": screen.pair.code})


def _attempts(request: HttpRequest, screen: PairScreen) -> dict[str, Any]:
    found = pairs.transmissions(screen.pair.pk)
    return keyset_page(request, "console.pair.attempts", found, order=("-id",), filters={"pair": screen.pair.code})


def _incidents(request: HttpRequest, screen: PairScreen) -> dict[str, Any]:
    found = records.incidents(pair_id=screen.pair.pk)
    return keyset_page(request, "console.pair.incidents", found, order=("-number",), filters={"pair": screen.pair.code})


def _agreement(request: HttpRequest, screen: PairScreen) -> dict[str, Any]:
    return {"events": list(events.of_pair(screen.pair.pk)[:15])}


def _audit(request: HttpRequest, screen: PairScreen) -> dict[str, Any]:
    found = records.audit_entries(object_type="pair", object_id=screen.pair.public_id)
    return keyset_page(request, "console.pair.audit", found, order=("-id",), filters={"pair": screen.pair.code})


def _settings(request: HttpRequest, screen: PairScreen) -> dict[str, Any]:
    return {
        "fields": settings_fields(screen.pair),
        "lacks_settings": person(request).lacks("pairs:operate"),
        "runbook_shown": rendered(screen.pair.runbook) if screen.pair.runbook else "",
    }


_CONTENTS: dict[str, Callable[[HttpRequest, PairScreen], dict[str, Any]]] = {
    "overview": _overview,
    "queue": _queue,
    "attempts": _attempts,
    "incidents": _incidents,
    "agreement": _agreement,
    "audit": _audit,
    "settings": _settings,
}


def _known(text: str, allowed: Any) -> str:
    return text if text in allowed else ""
