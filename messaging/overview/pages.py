"""The dashboard; the jump to whatever an id names; palette, sheet of keys and words; and what was refused."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import NoReverseMatch, reverse
from django.utils.functional import SimpleLazyObject
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from messaging import causes
from messaging.access.selectors.reach import read_id
from messaging.console import cells, filters
from messaging.console.access import person, requires
from messaging.console.context import NAVIGATION
from messaging.console.filters import Filter
from messaging.console.rendering import TOASTS, keyset_page, page, see_other
from messaging.console.resource import Column, table
from messaging.console.words import WORDS
from messaging.messages.pages.tables import messages
from messaging.models import Rejection
from messaging.overview.selectors import finding, records
from messaging.overview.selectors.finding import Hit
from messaging.overview.selectors.help import help_page, help_pages
from messaging.overview.selectors.overview import ON_THE_WAY, Overview, overview
from messaging.overview.selectors.traffic import HOURS, PartnerHours, Traffic
from messaging.reports.pages.pipeline import bars, line
from messaging.templatetags.hub import ago, octets, refusal, took
from rmhub import clock
from rmhub.language import gettext_lazy, number

_SPARK = HOURS * 2
_SHADES = 4


@dataclass(frozen=True, slots=True)
class Tile:
    """A number that leads to what it counts. `spark`: its last 24 hours, where they are known."""

    name: str
    label: str
    value: str
    note: str
    href: str
    spark: SafeString | str = ""
    bad: bool = False


@requires("pairs:read")
def dashboard(request: HttpRequest) -> HttpResponse:
    """Is anything broken right now, and what needs somebody? `?kiosk=1`: without what one would press, for a wall."""
    now = clock.now()
    found = overview(now)
    context = {
        "overview": found,
        "tiles": _tiles(found, now),
        "recent": messages(_("The newest messages of both directions"), found.recent, short=True),
        # The part that refreshes itself every few seconds does not show it.
        "heat": SimpleLazyObject(lambda: [(one, _cells(one, found.traffic)) for one in found.traffic.partners]),
        "heat_hours": [hour.at for hour in found.traffic.hours],
        "kiosk": request.GET.get("kiosk") == "1",
    }
    fragments = {"live-heat": "console/overview/dashboard_heat.html"}
    return page(request, "console/overview/dashboard.html", context, live="live-dashboard", fragments=fragments)


@requires("pairs:read")
def go(request: HttpRequest) -> HttpResponse:
    """`?q=`: one exact hit goes straight there, several are listed."""
    text = request.GET.get("q", "").strip()
    found = finding.find(text, person(request).scopes)
    if found.only is not None:
        return see_other(f"console:{found.only.page}", *found.only.arguments)
    return page(request, "console/overview/go.html", {"q": text, "found": found})


def _tiles(found: Overview, now: datetime) -> list[Tile]:
    """Each number leads to the list that has what it counts, with the filter that it means."""
    hours, state = found.traffic.hours, found.status
    rate, success, p95 = found.traffic.per_minute(now), found.traffic.success, found.traffic.p95
    since = _field(found.traffic.begin)
    delivered = [float(hour.delivered) for hour in hours]
    failed = [float(hour.failed) for hour in hours]
    accepted = [float(hour.accepted) for hour in hours]
    return [
        Tile(
            "rate",
            _("Delivered a minute"),
            number(rate, 1 if rate < 10 else 0),
            _("{count} in 24 h").format(count=number(found.traffic.delivered)),
            _messages(state="delivered", since=since),
            bars(
                delivered,
                _("Delivered by hour, {count} in all").format(count=number(found.traffic.delivered)),
                width=_SPARK,
            ),
        ),
        Tile(
            "success",
            _("Success"),
            "—" if success is None else f"{number(success, 1)} %" if success < 99.95 else "100 %",
            _("{count} failed in 24 h").format(count=number(found.traffic.failed)),
            _messages(state="failed", since=since),
            line([hour.success for hour in hours], None, _("Success by hour"), width=_SPARK),
            bad=success is not None and success < 95,
        ),
        Tile(
            "p95",
            _("Time to acknowledge"),
            "—" if p95 is None else took(p95),
            _("95 % within, in 24 h"),
            _messages(state="delivered", since=since),
            line([hour.p95 for hour in hours], None, _("95 % of acknowledgements within, by hour"), width=_SPARK),
        ),
        Tile(
            "waiting",
            _("On the way"),
            number(found.totals.moving),
            _("{count} of them held up").format(count=number(found.totals.blocked - found.totals.heads)),
            _messages(q=f"state:{','.join(ON_THE_WAY)}"),
            bars(
                accepted,
                _("Accepted by hour, {count} in all").format(count=number(sum(hour.accepted for hour in hours))),
                width=_SPARK,
            ),
        ),
        Tile(
            "retrying",
            _("Pairs retrying"),
            number(state.by_state["retrying"]),
            ngettext("of {count} pair", "of {count} pairs", found.totals.pairs).format(
                count=number(found.totals.pairs)
            ),
            f"{reverse('console:pairs')}?state=retrying",
            bars(
                failed,
                _("Failed by hour, {count} in all").format(count=number(found.traffic.failed)),
                tone="bad",
                width=_SPARK,
            ),
        ),
        Tile(
            "in-doubt",
            _("In doubt"),
            number(state.in_doubt + state.doubtful_transactions),
            _("a person decides"),
            reverse("console:in-doubt"),
            bad=state.in_doubt + state.doubtful_transactions > 0,
        ),
    ]


def _cells(partner: PartnerHours, found: Traffic) -> list[dict[str, object]]:
    """The hours of a partner with their shade: 0 (nothing) to 4 (the busiest)."""
    top = max((hour.volume for one in found.partners for hour in one.hours), default=0)
    cells = []
    for hour in partner.hours:
        shade = 0 if not hour.volume else 1 + min(_SHADES - 1, hour.volume * _SHADES // (top + 1))
        end = hour.at + timedelta(hours=1)
        href = _messages(partner=partner.public_id, since=_field(hour.at), before=_field(end))
        cells.append({"hour": hour, "shade": shade, "href": href})
    return cells


def _messages(**filters: str) -> str:
    return f"{reverse('console:messages')}?{urlencode(filters)}"


def _field(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M}Z"


# --- finding one's way ---

_MORE = (
    (gettext_lazy("Preferences: time zone, shortcuts, theme"), "console:preferences", "views:write"),
    (gettext_lazy("Saved views"), "console:saved-views", "views:write"),
    (gettext_lazy("Keyboard shortcuts"), "console:keys", "pairs:read"),
    (gettext_lazy("Glossary"), "console:glossary", "pairs:read"),
    (gettext_lazy("Causes"), "console:causes", "pairs:read"),
    (gettext_lazy("Change password"), "console:password", "pairs:read"),
)
# key -> what it does; in groups, as the sheet shows them. The scripts in static/console/keys.js obey them.
KEYS: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    (
        gettext_lazy("Anywhere"),
        (
            ("?", gettext_lazy("This help")),
            ("/", gettext_lazy("Search: paste any id")),
            ("Ctrl K", gettext_lazy("Palette: pages, actions, ids (Cmd K on a Mac)")),
            ("Esc", gettext_lazy("Close a dialog or menu")),
        ),
    ),
    (
        gettext_lazy("Go to"),
        (
            ("g d", gettext_lazy("Dashboard")),
            ("g p", gettext_lazy("Pairs")),
            ("g m", gettext_lazy("Messages")),
            ("g i", gettext_lazy("In doubt")),
            ("g n", gettext_lazy("Incidents")),
            ("g r", gettext_lazy("Reports")),
        ),
    ),
    (
        gettext_lazy("In a list"),
        (
            ("j", gettext_lazy("Next row")),
            ("k", gettext_lazy("Previous row")),
            ("Enter", gettext_lazy("Open the row")),
            ("x", gettext_lazy("Select the row")),
            ("Shift X", gettext_lazy("Select from the last one to here")),
            ("Space", gettext_lazy("Messages: a summary of the row's message")),
            (".", gettext_lazy("Load new rows")),
        ),
    ),
    (
        gettext_lazy("On a row or a page"),
        (
            ("e", gettext_lazy("Acknowledge, or take over")),
            ("r", gettext_lazy("Resume, or retry now")),
            ("[", gettext_lazy("Previous of the list you came from")),
            ("]", gettext_lazy("Next of the list you came from")),
        ),
    ),
    (
        gettext_lazy("On an incident"),
        (
            ("a", gettext_lazy("Assign")),
            ("z", gettext_lazy("Snooze, or end the snooze")),
            ("r", gettext_lazy("Resolve")),
            ("d", gettext_lazy("Diagram of its pair")),
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class Way:
    """One line of the palette."""

    kind: str
    name: str
    href: str
    detail: str = ""


@requires("pairs:read")
def palette(request: HttpRequest) -> HttpResponse:
    """Pages whose name has the text in it, then what has it as its id or name."""
    text = request.GET.get("q", "").strip()[:512].replace("\x00", "")
    ways = _pages(text, person(request).scopes)
    if len(text) > 1:
        found = finding.find(text, person(request).scopes)
        ways += _hits([found.only] if found.only is not None else found.hits)
    context = {"q": text, "ways": ways}
    fragments = {"palette-results": "console/overview/palette_results.html"}
    return page(request, "console/overview/palette.html", context, fragments=fragments)


@requires("pairs:read")
def keys(request: HttpRequest) -> HttpResponse:
    """All keys, as a page or as a dialog."""
    sheet = "console/overview/keys_sheet.html"
    context = {"title": _("Keyboard shortcuts"), "form": sheet, "groups": KEYS}
    return page(request, "console/parts/dialog.html", context, fragments={"dialog": sheet})


@requires("pairs:read")
def glossary(request: HttpRequest) -> HttpResponse:
    """Glossary."""
    return page(request, "console/overview/glossary.html", {"words": WORDS})


@requires("pairs:read")
def help_list(request: HttpRequest) -> HttpResponse:
    """All documents of this hub."""
    return page(request, "console/overview/help.html", {"pages": help_pages()})


@requires("pairs:read")
def help_document(request: HttpRequest, name: str) -> HttpResponse:
    """One document."""
    return page(request, "console/overview/help.html", {"help": help_page(name)})


@requires("pairs:read")
def cause_list(request: HttpRequest) -> HttpResponse:
    """Every cause code with what happened and what to do; wherever a code is shown it leads to its place here."""
    groups: dict[str, list[causes.Cause]] = {}
    for cause in causes.CAUSES.values():
        groups.setdefault(cause.group, []).append(cause)
    return page(request, "console/overview/causes.html", {"groups": list(groups.items())})


def _sender(one: Rejection) -> SafeString:
    name = one.party_name or cells.span("text-soft", _("unknown sender"))
    return format_html('{}<div class="text-faint mono">{}</div>', name, one.remote_address or "—")


def _wrong(one: Rejection) -> SafeString:
    said = Truncator(one.detail).chars(160) if causes.tells_more(one.reason, one.detail) else ""
    if not one.last_at:
        return cells.joined(said)
    again = ngettext("once, at {time}", "{count} times, last {time}", one.times)
    return cells.joined(
        said,
        format_html(' <span class="text-soft">{}</span>', format_html(again, count=one.times, time=ago(one.last_at))),
    )


_REFUSALS = (
    Column(gettext_lazy("Time"), lambda one: ago(one.at), "nowrap", zoned=True),
    Column(
        gettext_lazy("Reason"),
        lambda one: cells.link(cells.to("rejection", one.public_id), refusal(one.reason), "strong"),
    ),
    Column(gettext_lazy("From"), _sender),
    Column(gettext_lazy("What was wrong"), _wrong, "wrap", narrow=gettext_lazy("Wrong")),
    Column(gettext_lazy("HTTP"), lambda one: one.http_status, "num"),
    Column(gettext_lazy("Size"), lambda one: octets(one.size), "num nowrap"),
)


def _rejection_filters() -> tuple[Filter, ...]:
    reasons = ((code, causes.refusal_label(code)) for code in causes.REFUSALS)
    return (
        Filter("reason", _("Reason"), choices=sorted(reasons, key=lambda reason: reason[1])),
        Filter("party", _("Partner"), kind="partner"),
    )


@requires("messages:read")
def rejection_list(request: HttpRequest) -> HttpResponse:
    """Newest first, by reason and party."""
    partner = filters.named(request.GET.get("party", "").strip()[:255].replace("\x00", ""))
    given = {"reason": request.GET.get("reason", "").strip()[:255].replace("\x00", ""), "party": partner.text}
    # A party that was removed since is known by the name alone.
    party = partner.party.name if partner.party is not None else partner.text
    found = records.rejections(reason=given["reason"], party=party)
    context = keyset_page(request, "console.rejections", found, order=("-id",), filters=given)
    context |= {
        "filtered": any(given.values()),
        "bar": filters.bar(request, _("rejections"), _rejection_filters(), given, partner=partner),
    }
    context["table"] = table(_("Rejections, newest first"), _REFUSALS, context["rows"])
    return page(request, "console/overview/rejections.html", context)


@requires("messages:read")
def rejection_page(request: HttpRequest, reference: str) -> HttpResponse:
    """What is known of one refusal, without its bytes."""
    one = records.rejection(read_id("rej", reference))
    context = {"rejection": one, "detail": one.detail if causes.tells_more(one.reason, one.detail) else ""}
    return page(request, "console/overview/rejection.html", context)


@requires("pairs:read")
def toasts(request: HttpRequest) -> HttpResponse:
    """What has happened lately that concerns this person, such as a job of theirs that has ended; any page asks."""
    told = [toast for teller in TOASTS for toast in teller(request)]
    return JsonResponse({"toasts": [{"id": key, "text": text, "href": href} for key, text, href in told]})


def _pages(text: str, scopes: frozenset[str]) -> list[Way]:
    known = [(item.label, item.view, item.scope) for _group, items in NAVIGATION for item in items]
    wanted = text.casefold()
    return [
        Way(_("Page"), label, reverse(view))
        for label, view, scope in (*known, *_MORE)
        if scope in scopes and wanted in label.casefold()
    ]


def _hits(hits: list[Hit]) -> list[Way]:
    ways = []
    for hit in hits:
        try:
            href = reverse(f"console:{hit.page}", args=hit.arguments)
        except NoReverseMatch:
            continue  # a name with a slash has no page of its own
        ways.append(Way(hit.kind, hit.name, href, hit.detail))
    return ways
