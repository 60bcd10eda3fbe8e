"""The page of service levels: a stretch of time beside the one before it, in charts, figures and tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Any

from django.http import HttpRequest

from messaging.choices import Direction
from messaging.report_choices import Grain
from messaging.reports.pages import chart_scales as scales
from messaging.reports.pages import charts
from messaging.reports.pages.tables import cause_label, outcome_look
from messaging.reports.selectors import figures, reports
from messaging.reports.selectors.figures import Bucket, Stretch
from messaging.reports.selectors.reports import Shown
from messaging.templatetags import hub

DAY = timedelta(days=1)
_LONGEST = {Grain.HOUR.value: 31, Grain.DAY.value: 366}
# Days that are shown unless others are asked for: as many as fit in twice, so that there is something to compare with;
# whole weeks, so that the comparison is a fair one.
_USUAL = {Grain.HOUR.value: (7, 1), Grain.DAY.value: (28, 14, 7)}
_HEAT = {"messages": "Messages", "failed_share": "Share that failed", "ack_p95": "p95 to acknowledge"}
_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@dataclass(frozen=True, slots=True)
class Figure:
    """A key figure with what it was before. `worse`: the change is for the worse."""

    label: str
    text: str
    note: str
    worse: bool = False


def levels(request: HttpRequest, shown: Shown) -> dict[str, Any]:
    """The chosen partner, direction, grain (`by`) and stretch (`from`, `to`: days, both included)."""
    assert shown.run is not None
    extent = figures.extent(shown.run)
    if extent is None:
        return {"nothing": True}
    partners = figures.partners(shown.run.pk)
    chosen = _chosen(request, partners)
    backwards = _backwards(request)
    begin, end = _stretch({} if backwards else request.GET, extent, chosen["grain"])
    now, before = figures.stretches(
        shown.run.pk,
        grain=chosen["grain"],
        partner=chosen["partner"],
        direction=chosen["direction"],
        begin=begin,
        end=end,
    )
    whole = None
    if begin <= extent[0] and end >= extent[1]:
        whole = figures.whole(shown.run.pk, partner=chosen["partner"], direction=chosen["direction"])
    earlier, against = _earlier(shown, chosen, before, extent, whole)
    heat = request.GET.get("heat", "messages")
    heat = heat if heat in _HEAT else "messages"
    times = [one.at for one in now.buckets if one.at is not None]
    return {
        **chosen,
        "partners": partners,
        "directions": Direction.choices,
        "backwards": backwards,
        "begin": begin,
        "last_day": end - DAY,
        "extent": (extent[0], extent[1] - DAY),
        "figures": _figures(now, earlier, whole, chosen["grain"]),
        "against": against,
        "charts": [_volume(now, times), _latency(now, before, times, against), _heat(shown, chosen, now, heat)],
        "heats": _HEAT.items(),
        "heat": heat,
        "pareto": _pareto(shown, chosen["partner"]),
        "doubts": _doubts(shown, chosen["partner"]),
    }


def _chosen(request: HttpRequest, partners: list[str]) -> dict[str, str]:
    partner = request.GET.get("partner", "")
    direction = request.GET.get("direction", "")
    grain = request.GET.get("by", "")
    return {
        "partner": partner if partner in partners else "",
        "direction": direction if direction in Direction.values else "",
        "grain": grain if grain in figures.STEP else Grain.DAY.value,
    }


def _backwards(request: HttpRequest) -> bool:
    first, last = _day(request.GET.get("from", "")), _day(request.GET.get("to", ""))
    return first is not None and last is not None and last < first


def _stretch(given: Mapping[str, str], extent: tuple[datetime, datetime], grain: str) -> tuple[datetime, datetime]:
    """The days that the URL asks for, kept within what the run has and a chart can show."""
    last = _day(given.get("to", ""))
    end = min(last + DAY if last else extent[1], extent[1])
    first = _day(given.get("from", ""))
    begin = max(first or _usual(extent[0], end, grain), extent[0], end - DAY * _LONGEST[grain])
    return (begin, end) if begin < end else (_usual(*extent, grain), extent[1])


def _usual(begin: datetime, end: datetime, grain: str) -> datetime:
    known = (end - begin).days
    return end - DAY * next((days for days in _USUAL[grain] if known >= 2 * days), max(1, min(known, 30)))


def _day(text: str) -> datetime | None:
    try:
        return datetime.combine(datetime.strptime(text, "%Y-%m-%d").date(), time(), UTC)
    except ValueError:
        return None


def _earlier(
    shown: Shown, chosen: dict[str, str], before: Stretch, extent: tuple[datetime, datetime], whole: Bucket | None
) -> tuple[Bucket | None, str]:
    """What the stretch is compared with, and its name: the equally long one before it if this run has all of it, or
    the kept run of the range right before this one's. Nothing else would be a fair comparison."""
    if before.begin >= extent[0]:
        return before.total, f"{scales.day(before.begin)} to {scales.day(before.end - DAY)}"
    assert shown.run is not None
    other = reports.previous(shown.run, shown.earlier) if whole is not None else None
    if other is None:
        return None, ""
    total = figures.whole(other.pk, partner=chosen["partner"], direction=chosen["direction"])
    return total, f"the run of the range before ({other.public_id[-6:]})"


def _figures(now: Stretch, earlier: Bucket | None, whole: Bucket | None, grain: str) -> list[Figure]:
    total = now.total
    slowest = max(
        (one for one in now.buckets if one.ack_p95 is not None), key=lambda one: one.ack_p95 or 0, default=None
    )
    if whole is not None:
        p95 = Figure("p95 to acknowledge", scales.seconds(whole.ack_p95), f"p50 {scales.seconds(whole.ack_p50)}")
    else:
        when = scales.instant(slowest.at, hourly=grain == "hour") if slowest and slowest.at else ""
        p95 = Figure(f"p95, slowest {grain}", scales.seconds(slowest.ack_p95 if slowest else None), when)
    resumed = f"resumed after {scales.seconds(total.mean_to_resume)}" if total.resumed else "none resumed"
    return [
        Figure(
            "Messages", scales.number(total.messages), _change(total.messages, earlier.messages if earlier else None)
        ),
        Figure(
            "Succeeded",
            scales.share(total.success),
            f"before {scales.share(earlier.success)}" if earlier else f"of {total.ended:,} that ended",
            worse=bool(earlier and earlier.success and total.success and total.success < earlier.success - 0.001),
        ),
        _count("Failed", total.failed, earlier.failed if earlier else None),
        _count("In doubt", total.in_doubt, earlier.in_doubt if earlier else None),
        p95,
        Figure("Suspensions", scales.number(total.suspensions), resumed if total.suspensions else "none"),
        Figure(
            "Copies discarded",
            scales.number(total.duplicates),
            _change(total.duplicates, earlier.duplicates if earlier else None),
        ),
        Figure("Volume", hub.octets(total.bytes), f"{scales.number(total.attempts)} attempts"),
    ]


def _count(label: str, count: int, before: int | None) -> Figure:
    worse = before is not None and count - before >= max(3, before // 10)
    return Figure(label, scales.number(count), _change(count, before), worse=worse)


def _change(now: int, before: int | None) -> str:
    if before is None:
        return ""
    if before == now:
        return "as before"
    if not before:
        return "before 0"
    percent = 100 * (now - before) / before
    return f"{percent:+,.1f} %, before {before:,}".replace("-", "−")


def _volume(now: Stretch, times: list[datetime]) -> charts.Chart:
    parts = (
        ("Succeeded", "tone-good", "succeeded"),
        ("Under way", "tone-azure", "under_way"),
        ("In doubt", "tone-watch", "in_doubt"),
        ("Failed", "tone-bad", "failed"),
    )
    series = [charts.Series(label, tone, [getattr(one, name) for one in now.buckets]) for label, tone, name in parts]
    return charts.columns("volume", "Messages by outcome", times, series)


def _latency(now: Stretch, before: Stretch, times: list[datetime], against: str) -> charts.Chart:
    series = [
        charts.Series("p50", "tone-p50", [one.ack_p50 for one in now.buckets]),
        charts.Series("p95", "tone-p95", [one.ack_p95 for one in now.buckets]),
        charts.Series("p99", "tone-p99", [one.ack_p99 for one in now.buckets]),
    ]
    if against and any(one.ack_p95 is not None for one in before.buckets):
        series.append(charts.Series("p95 before", "tone-previous", [one.ack_p95 for one in before.buckets]))
    return charts.lines("latency", "Time to acknowledge", times, series, unit="s")


def _heat(shown: Shown, chosen: dict[str, str], now: Stretch, what: str) -> charts.Chart:
    """Hours of the days; of a stretch of more than two weeks hours of the week, where figures can be added up."""
    assert shown.run is not None
    hours = now
    if chosen["grain"] != Grain.HOUR:
        begin = max(now.begin, now.end - DAY * _LONGEST[Grain.HOUR])
        hours, _ = figures.stretches(
            shown.run.pk,
            grain=Grain.HOUR.value,
            partner=chosen["partner"],
            direction=chosen["direction"],
            begin=begin,
            end=now.end,
        )
    unit = {"failed_share": "share", "ack_p95": "s"}.get(what, "")
    days = (hours.end - hours.begin).days
    title = f"{_HEAT[what]} by hour (UTC)"
    if days > 14 and what != "ack_p95":
        week = figures.by_weekday(hours.buckets)
        rows = [(name, [_value(one, what) for one in week[index]]) for index, name in enumerate(_WEEKDAYS)]
        return charts.heat_map("heat", f"{title} of the week, {days} days", rows, unit=unit, what="Weekday")
    rows = [
        (scales.day(hours.begin + DAY * day), [_value(one, what) for one in hours.buckets[24 * day : 24 * day + 24]])
        for day in range(days)
    ]
    return charts.heat_map("heat", title, rows, unit=unit)


def _value(one: Bucket, what: str) -> float | None:
    return one.messages if what == "messages" else getattr(one, what)


def _pareto(shown: Shown, partner: str) -> charts.Chart | None:
    assert shown.run is not None
    found = [
        (f"{cause_label(one.kind, one.cause)} ({one.kind})", one.count, one.cumulative)
        for one in figures.causes(shown.run.pk, partner)
    ]
    return charts.pareto("pareto", "The most frequent errors", found, counted="Errors") if found else None


def _doubts(shown: Shown, partner: str) -> charts.Chart | None:
    assert shown.run is not None
    rows: dict[str, list[tuple[str, str, float, str]]] = {}
    for one in figures.doubts(shown.run.pk, partner):
        label, tone = outcome_look(one.outcome)
        part = (label, tone, float(one.count), f"{one.count:,}")
        rows.setdefault(hub.doubt(one.doubt), []).append(part)
    bars = [charts.Bar(name, parts) for name, parts in rows.items()]
    return charts.bars("doubts", "Outcomes of doubts", bars) if bars else None
