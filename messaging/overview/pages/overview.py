"""The dashboard, and the jump to whatever an id names."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.functional import SimpleLazyObject
from django.utils.safestring import SafeString

from messaging.console.access import person, requires
from messaging.console.rendering import page, see_other
from messaging.messages.pages.tables import messages
from messaging.overview.selectors import finding
from messaging.overview.selectors.overview import ON_THE_WAY, Overview, overview
from messaging.overview.selectors.traffic import HOURS, PartnerHours, Traffic
from messaging.reports.pages.pipeline import bars, line
from messaging.templatetags.hub import took
from rmhub import clock

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
        "recent": messages("The newest messages of both directions", found.recent, short=True),
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
            "Delivered a minute",
            f"{rate:,.1f}" if rate < 10 else f"{rate:,.0f}",
            f"{found.traffic.delivered:,} in 24 h",
            _messages(state="delivered", since=since),
            bars(delivered, f"Delivered by hour, {found.traffic.delivered:,} in all", width=_SPARK),
        ),
        Tile(
            "success",
            "Success",
            "—" if success is None else f"{success:.1f} %" if success < 99.95 else "100 %",
            f"{found.traffic.failed:,} failed in 24 h",
            _messages(state="failed", since=since),
            line([hour.success for hour in hours], None, "Success by hour", width=_SPARK),
            bad=success is not None and success < 95,
        ),
        Tile(
            "p95",
            "Time to acknowledge",
            "—" if p95 is None else took(p95),
            "95 % within, in 24 h",
            _messages(state="delivered", since=since),
            line([hour.p95 for hour in hours], None, "95 % of acknowledgements within, by hour", width=_SPARK),
        ),
        Tile(
            "waiting",
            "On the way",
            f"{found.totals.moving:,}",
            f"{found.totals.blocked - found.totals.heads:,} of them held up",
            _messages(q=f"state:{','.join(ON_THE_WAY)}"),
            bars(accepted, f"Accepted by hour, {sum(hour.accepted for hour in hours):,} in all", width=_SPARK),
        ),
        Tile(
            "retrying",
            "Pairs retrying",
            f"{state.by_state['retrying']:,}",
            f"of {found.totals.pairs:,} pairs",
            f"{reverse('console:pairs')}?state=retrying",
            bars(failed, f"Failed by hour, {found.traffic.failed:,} in all", tone="bad", width=_SPARK),
        ),
        Tile(
            "in-doubt",
            "In doubt",
            f"{state.in_doubt + state.doubtful_transactions:,}",
            "a person decides",
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
