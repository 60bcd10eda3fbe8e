"""Finding one's way: the palette of pages and ids, the sheet of keys, the console's words, and what was refused."""

from __future__ import annotations

from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import Truncator

from messaging import causes
from messaging.access.selectors.reach import read_id
from messaging.console import cells
from messaging.console.access import person, requires
from messaging.console.context import NAVIGATION
from messaging.console.rendering import TOASTS, keyset_page, page
from messaging.console.resource import Column, table
from messaging.console.words import WORDS
from messaging.models import Rejection
from messaging.overview.selectors import finding, records
from messaging.overview.selectors.finding import Hit
from messaging.templatetags.hub import ago, octets, refusal

_MORE = (
    ("Preferences: time zone, shortcuts, theme", "console:preferences", "views:write"),
    ("Saved views", "console:saved-views", "views:write"),
    ("Keys", "console:keys", "pairs:read"),
    ("Glossary", "console:glossary", "pairs:read"),
    ("Causes", "console:causes", "pairs:read"),
    ("Change password", "console:password", "pairs:read"),
)
# key -> what it does; in groups, as the sheet shows them. The scripts in static/console/keys.js obey them.
KEYS: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    (
        "Anywhere",
        (
            ("?", "This help"),
            ("/", "Search: paste any id"),
            ("Ctrl K", "Palette: pages, actions, ids (Cmd K on a Mac)"),
            ("Esc", "Close a dialog or menu"),
        ),
    ),
    (
        "Go to",
        (
            ("g d", "Dashboard"),
            ("g p", "Pairs"),
            ("g m", "Messages"),
            ("g i", "In doubt"),
            ("g n", "Incidents"),
            ("g r", "Reports"),
        ),
    ),
    (
        "In a list",
        (
            ("j", "Next row"),
            ("k", "Previous row"),
            ("Enter", "Open the row"),
            ("x", "Select the row"),
            ("Shift X", "Select from the last one to here"),
            ("Space", "Messages: a summary of the row's message"),
            (".", "Load new rows"),
        ),
    ),
    (
        "On a row or a page",
        (
            ("e", "Acknowledge, or take over"),
            ("r", "Resume, or retry now"),
            ("[", "Previous of the list you came from"),
            ("]", "Next of the list you came from"),
        ),
    ),
    (
        "On an incident",
        (
            ("a", "Assign"),
            ("z", "Snooze, or end the snooze"),
            ("r", "Resolve"),
            ("d", "Diagram of its pair"),
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
    context = {"title": "Keys", "form": sheet, "groups": KEYS}
    return page(request, "console/parts/dialog.html", context, fragments={"dialog": sheet})


@requires("pairs:read")
def glossary(request: HttpRequest) -> HttpResponse:
    """Glossary."""
    return page(request, "console/overview/glossary.html", {"words": WORDS})


@requires("pairs:read")
def cause_list(request: HttpRequest) -> HttpResponse:
    """Every cause code with what happened and what to do; wherever a code is shown it leads to its place here."""
    groups: dict[str, list[causes.Cause]] = {}
    for cause in causes.CAUSES.values():
        groups.setdefault(cause.group, []).append(cause)
    return page(request, "console/overview/causes.html", {"groups": list(groups.items())})


def _sender(one: Rejection) -> SafeString:
    name = one.party_name or cells.span("text-soft", "unknown sender")
    return format_html('{}<div class="text-faint mono">{}</div>', name, one.remote_address or "—")


def _wrong(one: Rejection) -> SafeString:
    said = "" if one.detail == f"{refusal(one.reason)}." else Truncator(one.detail).chars(160)
    again = ' <span class="text-soft">{} times, last {}</span>'
    return cells.joined(said, format_html(again, one.times, ago(one.last_at)) if one.last_at else "")


_REFUSALS = (
    Column("Time", lambda one: ago(one.at), "nowrap", zoned=True),
    Column("Reason", lambda one: cells.link(cells.to("rejection", one.public_id), refusal(one.reason), "strong")),
    Column("From", _sender),
    Column("What was wrong", _wrong, "wrap", narrow="Wrong"),
    Column("HTTP", lambda one: one.http_status, "num"),
    Column("Size", lambda one: octets(one.size), "num nowrap"),
)


@requires("messages:read")
def rejection_list(request: HttpRequest) -> HttpResponse:
    """Newest first, by reason and party."""
    filters = {name: request.GET.get(name, "").strip()[:255].replace("\x00", "") for name in ("reason", "party")}
    found = records.rejections(reason=filters["reason"], party=filters["party"])
    context = keyset_page(request, "console.rejections", found, order=("-id",), filters=filters)
    context |= {
        "given": filters,
        "filtered": any(filters.values()),
        "reasons": sorted(causes.REFUSALS.items(), key=lambda r: r[1]),
    }
    context["table"] = table("Rejections, newest first", _REFUSALS, context["rows"])
    return page(request, "console/overview/rejections.html", context)


@requires("messages:read")
def rejection_page(request: HttpRequest, reference: str) -> HttpResponse:
    """What is known of one refusal, without its bytes."""
    context = {"rejection": records.rejection(read_id("rej", reference))}
    return page(request, "console/overview/rejection.html", context)


@requires("pairs:read")
def toasts(request: HttpRequest) -> HttpResponse:
    """What has happened lately that concerns this person, such as a job of theirs that has ended; any page asks."""
    told = [toast for teller in TOASTS for toast in teller(request)]
    return JsonResponse({"toasts": [{"id": key, "text": text, "href": href} for key, text, href in told]})


def _pages(text: str, scopes: frozenset[str]) -> list[Way]:
    known = [(item.label, item.view, item.scope) for _, items in NAVIGATION for item in items]
    wanted = text.casefold()
    return [
        Way("Page", label, reverse(view))
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
