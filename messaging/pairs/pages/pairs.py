"""Pairs: the list, and a pair's page with its tabs. What can be done to one is in `actions`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache, partial
from typing import Any
from urllib.parse import quote

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _
from markdown_it import MarkdownIt
from markdown_it.token import Token

from messaging import keyset
from messaging.bulk.pages import buttons as bulk
from messaging.choices import Direction
from messaging.console import filters, lists
from messaging.console.access import Person, person, requires
from messaging.console.filters import Filter
from messaging.console.lists import Column, ListPage
from messaging.console.rendering import keyset_page, page
from messaging.console.resource import table
from messaging.keyset import Page, Place
from messaging.messages.pages import diagram
from messaging.messages.pages import tables as message_tables
from messaging.messages.selectors.timeline import SCOPES, diagram_of_pair
from messaging.models import Pair
from messaging.overview.selectors import records
from messaging.pairs.pages import tables
from messaging.pairs.pages.actions import UNITS, settings_fields
from messaging.pairs.resource import VERBS, PairVerb
from messaging.pairs.selectors import circuits, newer, pairs, screens, sequence
from messaging.pairs.selectors.screens import TROUBLED, PairRow, PairScreen
from messaging.pairs.selectors.verbs import VerbState, verb_states
from messaging.pairs.services import probing
from rmhub import clock
from rmhub.ids import public_id
from rmhub.language import gettext_lazy, pgettext_lazy

Content = Callable[[HttpRequest, PairScreen], dict[str, Any]]  # what a tab shows
TABS = (
    ("overview", gettext_lazy("Overview")),
    ("queue", gettext_lazy("Queue")),
    ("attempts", gettext_lazy("Attempts")),
    ("incidents", gettext_lazy("Incidents")),
    ("agreement", gettext_lazy("Agreement")),
    ("audit", gettext_lazy("Audit")),
    ("settings", gettext_lazy("Settings")),
)
PAIRS = ListPage(
    name="pairs",
    view="console:pairs",
    columns=(
        Column("state", gettext_lazy("State"), lambda row: row.diagnosis.state, fixed=True, sort="severity"),
        Column("code", gettext_lazy("Pair"), lambda row: row.pair.code, fixed=True, sort="code"),
        Column("partner", "Partner", lambda row: row.pair.partner.name, only_csv=True),
        Column("direction", "Direction", lambda row: row.pair.direction, only_csv=True),
        Column("sender", "Sender URI", lambda row: row.pair.sender_uri, only_csv=True),
        Column("receiver", "Receiver URI", lambda row: row.pair.receiver_uri, only_csv=True),
        Column(
            "agreement",
            gettext_lazy("Agreement"),
            lambda row: row.terms.tpa_id if row.terms is not None else "",
            hidden=True,
        ),
        Column("reason", gettext_lazy("Reason"), lambda row: row.diagnosis.cause.code if row.diagnosis.cause else ""),
        Column("since", "Since", lambda row: row.diagnosis.since, only_csv=True),
        Column("queue", gettext_lazy("Queue"), lambda row: row.pair.in_queue),
        Column("head", gettext_lazy("First in line"), lambda row: row.head.message_id if row.head is not None else ""),
        Column("retry", gettext_lazy("Retry"), lambda row: row.diagnosis.retry if row.head is not None else ""),
        Column("next", pgettext_lazy("attempt", "Next"), lambda row: row.diagnosis.next_at),
        Column("success", gettext_lazy("Last success"), lambda row: row.pair.last_success_at),
        Column("owner", gettext_lazy("Owner"), lambda row: row.incident.owner if row.incident is not None else ""),
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
    },
    orders=pairs.ORDERS,
    usual="severity",
)
FILTERS = (
    Filter("q", gettext_lazy("Code, URI or partner contains"), kind="search"),
    Filter("state", gettext_lazy("State"), kind="tab"),
    Filter("partner", gettext_lazy("Partner"), kind="partner"),
    Filter("direction", gettext_lazy("Direction"), choices=Direction.choices),
    Filter(
        "resync", gettext_lazy("Needs resync"), choices=(("true", gettext_lazy("Yes")), ("false", gettext_lazy("No")))
    ),
)


_BULK = (
    "pairs_pause",
    "pairs_resume",
    "pairs_release",
    "pairs_clear_resync",
    "incidents_acknowledge",
    "incidents_assign",
)
_BULK_LABELS = {
    "incidents_acknowledge": gettext_lazy("Acknowledge incidents"),
    "incidents_assign": gettext_lazy("Assign incidents"),
}


@requires("pairs:read")
def pair_list(request: HttpRequest) -> HttpResponseBase:
    """All pairs, the ones that need somebody first."""
    if (other := lists.opened(request, PAIRS)) is not None:
        return other
    given = {
        "state": _known(request.GET.get("state", ""), pairs.STATE_NAMES),
        "direction": _known(request.GET.get("direction", ""), Direction.values),
        "resync": _known(request.GET.get("resync", ""), ("true", "false")),
        "q": request.GET.get("q", "").strip()[:120].replace("\x00", ""),
    }
    partner = filters.partner_of(request)
    given["partner"] = partner.reference
    __, order = lists.order(request, PAIRS)
    found = pairs.pairs(
        states=(given["state"],) if given["state"] else (),
        direction=given["direction"],
        partner_id=partner.key,
        search=given["q"],
        resync=given["resync"] == "true" if given["resync"] else None,
    )
    if partner.missing:
        found = found.none()
    if lists.csv_wanted(request):

        def fetch(place: Place | None, limit: int) -> Page[PairRow]:
            rows = keyset.page(found, order=order, limit=limit, place=place)
            return Page(screens.pair_rows(rows.rows, clock.now()), rows.following, rows.previous)

        return lists.csv(request, PAIRS, fetch)
    context = keyset_page(request, "console.pairs", found, order=order, filters=given)
    me = person(request)
    context["rows"] = [
        (row, _buttons((state for state in verb_states(row.pair, row.terms) if state.enabled), me))
        for row in screens.pair_rows(context["rows"], clock.now())
    ]
    counts = screens.counts_by_state()
    context |= {"given": given, "counts": counts, "total": sum(counts.values()), "filtered": any(given.values())}
    context["bar"] = filters.bar(request, "pairs", FILTERS, given, partner=partner)
    context |= lists.tools(request, PAIRS, given, partner.meant())
    context["new_partner"] = reverse("console:onboarding-new") if "partners:write" in me.scopes else ""
    context["lacks_ping"] = me.lacks("pairs:operate")
    context["bulk_actions"] = bulk.actions(request, *_BULK, labels=_BULK_LABELS)
    return page(request, "console/pairs/pairs.html", context, live="live-pairs")


@requires("pairs:read")
def pair_page(request: HttpRequest, code: str) -> HttpResponse:
    """One pair: what is the matter, what can be done, and what was done. The URL's `tab` says which part is shown."""
    screen = screens.pair_screen(pairs.pair(code), clock.now())
    tab = _known(request.GET.get("tab", ""), [name for name, __ in TABS]) or "overview"
    context = {"screen": screen, "pair": screen.pair, "tab": tab, "tabs": _tabs(screen)}
    context |= _head(request, screen)
    context |= _CONTENTS[tab](request, screen)
    return page(request, "console/pairs/pair.html", context, live="live-pair")


def _buttons(states: Iterable[VerbState], me: Person) -> list[tuple[PairVerb, str, datetime | None]]:
    """Each verb, what is in its way (the role, or the state; "" when it can be used), and until when."""
    found = []
    for state in states:
        verb = VERBS[state.slug]
        missing = me.lacks(verb.scope)
        found.append((verb, _needs(missing), None) if missing else (verb, state.why_not, state.until))
    return found


def _needs(role: str) -> str:
    return _("Needs the role {role}.").format(role=role) if role else ""


@dataclass(frozen=True, slots=True)
class Action:
    """What a pair's page offers. `post`: done by a press, without a question; `why_not`: what is in the way.

    `first`: it is what helps now; `danger`: it cannot be taken back, and stands apart; `keyed`: the key R presses it.
    """

    name: str
    label: str
    icon: str
    href: str
    why_not: str = ""
    until: datetime | None = None
    first: bool = False
    danger: bool = False
    dialog: bool = True
    post: bool = False
    keyed: bool = False


def _actions(screen: PairScreen, me: Person) -> tuple[Action | None, list[Action]]:
    """What helps most, and the others: what can be done first, what cannot be taken back last."""
    pair, diagnosis = screen.pair, screen.diagnosis
    out = pair.direction == Direction.OUT
    found = []
    if diagnosis.cause is not None and diagnosis.cause.code == "outcome_unknown" and diagnosis.state == "active":
        href = f"{reverse('console:in-doubt')}?tab=outbound"
        found.append(Action("decide", _("Decide about them"), "help-circle", href, first=True, dialog=False))
    for verb, why_not, until in _buttons(screen.verbs, me):
        found.append(
            Action(
                f"verb-{verb.slug}",
                verb.label,
                verb.icon,
                reverse("console:pair-verb", args=[pair.code, verb.slug]),
                why_not,
                until,
                first=verb.colour == "primary",
                danger=verb.colour == "danger",
                keyed=verb.slug in ("resume", "retry-now"),
            )
        )
    if (endpoint := _endpoint(screen)) and "partners:write" in me.scopes:
        href = reverse("console:endpoint-certificates", args=[endpoint])
        href = f"{href}?next={quote(reverse('console:pair', args=[pair.code]))}"
        found.append(Action("replace-certificate", _("Replace certificate"), "shield-check", href))
    if out:
        why_not = _needs(me.lacks("pairs:operate"))
        href = reverse("console:pair-ping", args=[pair.code])
        found.append(Action("ping", _("Ping partner"), "activity", href, why_not, first=True, post=True))
    head = screen.head
    if out and head is not None and head.state not in ("sending", "delivered"):
        why_not = _needs(me.lacks("messages:cancel"))
        label = _("Cancel message")
        if head.sequence_number:
            label = _("Cancel #{number}").format(number=head.sequence_number)
        href = reverse("console:message-cancel", args=[head.public_id])
        found.append(Action("verb-cancel", label, "ban", href, why_not, danger=True))
    primary = next((one for one in found if one.first and not one.why_not), None)
    others = [one for one in found if one is not primary]
    return primary, sorted(others, key=lambda one: (one.danger, bool(one.why_not)))


def _tabs(screen: PairScreen) -> list[tuple[str, str, int]]:
    """(name, label, count) of each; a count of what is there to look at."""
    open_incidents = sum(incident.state != "resolved" for incident in screen.incidents)
    counts = {"queue": screen.pair.in_queue, "incidents": open_incidents}
    return [(name, label, counts.get(name, 0)) for name, label in TABS]


def _head(request: HttpRequest, screen: PairScreen) -> dict[str, Any]:
    """What stands above the tabs."""
    pair, me = screen.pair, person(request)
    troubled = screen.diagnosis.state in (*TROUBLED, "disabled")
    report = circuits.newest_of_pair(pair.pk) if pair.direction == Direction.OUT else None
    pinged = request.GET.get("pinged", "")
    primary, others = _actions(screen, me)
    return {
        "primary": primary,
        "more": [one for one in others if not one.danger],
        "final": [one for one in others if one.danger],
        "troubled": troubled,
        "changed": newer.since_last_success(pair, screen.terms) if troubled else [],
        "runbook": rendered(pair.runbook) if pair.runbook and troubled else "",
        "report": report if report is not None and (troubled or report.public_id == pinged) else None,
        "steps": tables.probe(report) if report is not None else None,
    }


# What a new certificate in the endpoint's trust may fix.
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
    found = diagram_of_pair(screen.pair, now=clock.now(), scope=scope, failed_only=failed)
    return {
        "sequence": sequence.sequence(screen.pair, screen.terms, screen.streams),
        **diagram.shown(found, request.GET),
        "flying": tables.flying(screen),
        "attempts": tables.attempts(screen.attempts),
        "waiting": tables.queue(screen.queue),
        "incoming": table(
            _("How far each sender of this pair is"),
            tables.STREAM,
            screen.streams.incoming,
            about=lambda stream: {"data-testid": "stream-in"},
        ),
        "recent": message_tables.messages(_("The newest messages of this pair"), screen.recent, pair=False),
    }


def _rows(
    name: str,
    order: tuple[str, ...],
    rows: Callable[[Pair], QuerySet[Any]],
    tabled: Callable[[Any], dict[str, Any]] | None = None,
) -> Content:
    """A tab that is a list."""

    def content(request: HttpRequest, screen: PairScreen) -> dict[str, Any]:
        filters = {"pair": screen.pair.code}
        context = keyset_page(request, f"console.pair.{name}", rows(screen.pair), order=order, filters=filters)
        return context | ({"table": tabled(context["rows"])} if tabled is not None else {})

    return content


def _settings(request: HttpRequest, screen: PairScreen) -> dict[str, Any]:
    return {
        "fields": settings_fields(screen.pair),
        "units": UNITS,
        "lacks_settings": person(request).lacks("pairs:operate"),
        "runbook_shown": rendered(screen.pair.runbook) if screen.pair.runbook else "",
    }


_CONTENTS: dict[str, Content] = {
    "overview": _overview,
    "queue": _rows("queue", ("position",), lambda pair: pairs.queue(pair.pk), partial(tables.queue, whole=True)),
    "attempts": _rows("attempts", ("-id",), lambda pair: pairs.transmissions(pair.pk), tables.attempts),
    "incidents": _rows("incidents", ("-number",), lambda pair: records.incidents(pair_id=pair.pk), tables.incidents),
    "agreement": lambda request, screen: {},
    "audit": _rows("audit", ("-id",), lambda pair: records.audit_entries(object_type="pair", object_id=pair.public_id)),
    "settings": _settings,
}


def _known(text: str, allowed: Any) -> str:
    return text if text in allowed else ""


# --- run-books: Markdown that people write, as HTML that cannot do harm ---


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    made = MarkdownIt("commonmark", {"html": False, "linkify": False})
    made.enable("table")
    # Pictures would be fetched from wherever the text says.
    made.disable("image")
    return made


def rendered(text: str) -> SafeString:
    """The HTML of a run-book. Links go to http, https and mailto addresses only, and say nothing of this page."""
    parser = _parser()
    tokens = parser.parse(text)
    _tame(tokens)
    # Everything that came from the text was escaped by the renderer; raw HTML is switched off.
    text = str(parser.renderer.render(tokens, parser.options, {}))
    return mark_safe(text)  # noqa: S308


def _tame(tokens: list[Token]) -> None:
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = "h3"  # below the page's own headings, whatever level was written
        for key in [key for key in token.attrs if key == "style"]:
            del token.attrs[key]  # of table cells; the page's policy takes no style attributes
        if token.type == "link_open":
            href = str(token.attrs.get("href", ""))
            if not href.lower().startswith(("http://", "https://", "mailto:", "/")) or href.startswith("//"):
                token.attrs["href"] = "#"
            token.attrs["rel"] = "noopener noreferrer"
        _tame(token.children or [])
