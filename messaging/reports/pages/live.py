"""The live page: the last hour of every pair, beside what is usual, as the live watch counted it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from messaging import keyset
from messaging.console.access import requires
from messaging.console.rendering import as_context, page, read_place
from messaging.reports.selectors import live
from messaging.reports.selectors.live import PairHour
from messaging.templatetags.hub import took
from rmhub import clock

_ORDER = ("calm", "code")
_PAGE = 25
_WIDTH, _HEIGHT = 120, 26  # units of a sparkline's drawing: two for each minute


@requires("reports:read")
def live_page(request: HttpRequest) -> HttpResponse:
    """Every pair with traffic in the last hour, those with anomalies first."""
    shown = live.watch(clock.now())
    mark = keyset.fingerprint("console.live", {}, ",".join(_ORDER))
    found = keyset.page(live.pairs(shown), order=_ORDER, limit=_PAGE, place=read_place(request, mark))
    context: dict[str, Any] = as_context(found, mark)
    context |= {"watch": shown, "rows": [_row(hour) for hour in live.hours(found.rows, shown)]}
    return page(request, "console/reports/live_watch.html", context, live="live-watch")


def _row(hour: PairHour) -> dict[str, Any]:
    causes = {incident.cause for incident in hour.incidents}
    usual = hour.usual
    volumes = [float(minute.volume) for minute in hour.minutes]
    failures = [float(minute.failures) for minute in hour.minutes]
    return {
        "hour": hour,
        "causes": causes,
        "volume": bars(volumes, f"Messages by minute: {hour.volume:,} in all, {max(volumes):.0f} in the busiest"),
        "failures": bars(failures, f"Failures by minute: {hour.failures:,} in all", tone="bad", least=5.0),
        "latency": line(
            [minute.latency for minute in hour.minutes],
            usual.latency.limit if usual.latency else None,
            f"Mean time to acknowledge by minute: {took(hour.latency)} over the hour"
            if hour.latency is not None
            else "No acknowledgement in this hour",
        ),
    }


def bars(
    values: Sequence[float], label: str, *, tone: str = "main", least: float = 1.0, width: int = _WIDTH
) -> SafeString:
    """A sparkline of bars, one a value; the highest reaches the top, if it is at least `least`."""
    top = max([*values, least])
    parts = []
    for number, value in enumerate(values):
        if value > 0:
            height = max(1.5, value / top * (_HEIGHT - 2))
            parts.append(f"M{number * 2} {_HEIGHT}v-{height:.1f}h1.5v{height:.1f}z")
    return _drawing(format_html('<path class="spark-bars tone-{}" d="{}"></path>', tone, "".join(parts)), label, width)


def line(values: Sequence[float | None], limit: float | None, label: str, *, width: int = _WIDTH) -> SafeString:
    """A sparkline with gaps where nothing is known, and a dashed line at the limit of what is usual."""
    known = [value for value in values if value is not None]
    top = max([*known, limit or 0.0, 1e-9]) * 1.05
    parts, pen_down = [], False
    for number, value in enumerate(values):
        if value is None:
            pen_down = False
            continue
        y = _HEIGHT - value / top * (_HEIGHT - 2)
        # A minute alone is a short stroke: a point would not be seen.
        parts.append(f"{'L' if pen_down else 'M'}{number * 2} {y:.1f}h1")
        pen_down = True
    drawn = format_html('<path class="spark-line tone-main" d="{}"></path>', "".join(parts))
    if limit is not None:
        y = _HEIGHT - limit / top * (_HEIGHT - 2)
        drawn += format_html('<path class="spark-limit tone-watch" d="M0 {}H{}"></path>', f"{y:.1f}", width)
    return _drawing(drawn, label, width)


def _drawing(content: SafeString, label: str, width: int) -> SafeString:
    return format_html(
        '<svg class="spark" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>',
        width,
        _HEIGHT,
        label,
        content,
    )
