"""The page of service levels: a stretch of time beside the one before it, in charts, figures and tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Any

from django.http import HttpRequest
from django.utils.dates import WEEKDAYS_ABBR
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from messaging.choices import Direction
from messaging.console.filters import named
from messaging.console.naming import with_alike
from messaging.models import PipelineRun
from messaging.report_choices import Grain
from messaging.reports.pages import chart_scales as scales
from messaging.reports.pages import charts
from messaging.reports.pages.tables import cause_label, code_word, outcome_look
from messaging.reports.selectors import figures, reports
from messaging.reports.selectors.figures import Bucket, Stretch
from messaging.reports.selectors.reports import Shown
from messaging.templatetags import hub
from partners import selectors as partners
from rmhub.language import gettext_lazy

DAY = timedelta(days=1)
_LONGEST = {Grain.HOUR.value: 31, Grain.DAY.value: 366}
# Days that are shown unless others are asked for: as many as fit in twice, so that there is something to compare with;
# whole weeks, so that the comparison is a fair one.
_USUAL = {Grain.HOUR.value: (7, 1), Grain.DAY.value: (28, 14, 7)}
_HEAT = {
    "messages": gettext_lazy("Messages"),
    "failed_share": gettext_lazy("Share that failed"),
    "ack_p95": gettext_lazy("p95 to acknowledge"),
}


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
    chosen, missing = _chosen(request, shown.run)
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
        "missing": missing,
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


def _chosen(request: HttpRequest, run: PipelineRun) -> tuple[dict[str, str], str]:
    """What is shown, and what is said of a partner whom the run does not know: it is about all of them then."""
    wanted = named(request.GET.get("partner", ""))
    partner, missing = wanted.party.name if wanted.party is not None else wanted.text, ""
    if partner and not figures.has_partner(run.pk, partner):
        missing = _("This run has no message of {name}.").format(name=partner)
        if wanted.party is None:
            missing = with_alike(*partners.nobody(partner))
        partner = ""
    direction = request.GET.get("direction", "")
    grain = request.GET.get("by", "")
    return {
        "partner": partner,
        "direction": direction if direction in Direction.values else "",
        "grain": grain if grain in figures.STEP else Grain.DAY.value,
    }, missing


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
        first, last = scales.day(before.begin), scales.day(before.end - DAY)
        return before.total, _("{first} to {last}").format(first=first, last=last)
    assert shown.run is not None
    other = reports.previous(shown.run, shown.earlier) if whole is not None else None
    if other is None:
        return None, ""
    total = figures.whole(other.pk, partner=chosen["partner"], direction=chosen["direction"])
    return total, _("the run of the range before ({run})").format(run=other.public_id[-6:])


def _figures(now: Stretch, earlier: Bucket | None, whole: Bucket | None, grain: str) -> list[Figure]:
    total = now.total
    slowest = max(
        (one for one in now.buckets if one.ack_p95 is not None), key=lambda one: one.ack_p95 or 0, default=None
    )
    if whole is not None:
        p95 = Figure(_("p95 to acknowledge"), scales.seconds(whole.ack_p95), f"p50 {scales.seconds(whole.ack_p50)}")
    else:
        when = scales.instant(slowest.at, hourly=grain == "hour") if slowest and slowest.at else ""
        label = _("p95, slowest hour") if grain == "hour" else _("p95, slowest day")
        p95 = Figure(label, scales.seconds(slowest.ack_p95 if slowest else None), when)
    resumed = _("none resumed")
    if total.resumed:
        resumed = _("resumed after {time}").format(time=scales.seconds(total.mean_to_resume))
    ended = ngettext("of {count} that ended", "of {count} that ended", total.ended)
    attempts = ngettext("{count} attempt", "{count} attempts", total.attempts)
    return [
        Figure(
            _("Messages"), scales.number(total.messages), _change(total.messages, earlier.messages if earlier else None)
        ),
        Figure(
            _("Succeeded"),
            scales.share(total.success),
            _("before {count}").format(count=scales.share(earlier.success))
            if earlier
            else ended.format(count=scales.number(total.ended)),
            worse=bool(earlier and earlier.success and total.success and total.success < earlier.success - 0.001),
        ),
        _count(_("Failed"), total.failed, earlier.failed if earlier else None),
        _count(_("In doubt"), total.in_doubt, earlier.in_doubt if earlier else None),
        p95,
        Figure(_("Suspensions"), scales.number(total.suspensions), resumed if total.suspensions else _("none")),
        Figure(
            _("Copies discarded"),
            scales.number(total.duplicates),
            _change(total.duplicates, earlier.duplicates if earlier else None),
        ),
        Figure(_("Volume"), hub.octets(total.bytes), attempts.format(count=scales.number(total.attempts))),
    ]


def _count(label: str, count: int, before: int | None) -> Figure:
    worse = before is not None and count - before >= max(3, before // 10)
    return Figure(label, scales.number(count), _change(count, before), worse=worse)


def _change(now: int, before: int | None) -> str:
    if before is None:
        return ""
    if before == now:
        return _("as before")
    if not before:
        return _("before {count}").format(count=0)
    percent = 100 * (now - before) / before
    change = f"{'+' if percent > 0 else '−'}{scales.decimals(abs(percent), 1)} %"
    return _("{change}, before {count}").format(change=change, count=scales.number(before))


def _volume(now: Stretch, times: list[datetime]) -> charts.Chart:
    parts = (
        (_("Succeeded"), "tone-good", "succeeded"),
        (_("Under way"), "tone-azure", "under_way"),
        (_("In doubt"), "tone-watch", "in_doubt"),
        (_("Failed"), "tone-bad", "failed"),
    )
    series = [charts.Series(label, tone, [getattr(one, name) for one in now.buckets]) for label, tone, name in parts]
    return charts.columns("volume", _("Messages by outcome"), times, series)


def _latency(now: Stretch, before: Stretch, times: list[datetime], against: str) -> charts.Chart:
    series = [
        charts.Series("p50", "tone-p50", [one.ack_p50 for one in now.buckets]),
        charts.Series("p95", "tone-p95", [one.ack_p95 for one in now.buckets]),
        charts.Series("p99", "tone-p99", [one.ack_p99 for one in now.buckets]),
    ]
    if against and any(one.ack_p95 is not None for one in before.buckets):
        series.append(charts.Series(_("p95 before"), "tone-previous", [one.ack_p95 for one in before.buckets]))
    return charts.lines("latency", _("Time to acknowledge (logarithmic scale)"), times, series)


def _heat(shown: Shown, chosen: dict[str, str], now: Stretch, what: str) -> charts.Chart:
    """Hours of the days; of a stretch of more than two weeks hours of the week, where figures can be added up."""
    assert shown.run is not None
    hours = now
    if chosen["grain"] != Grain.HOUR:
        begin = max(now.begin, now.end - DAY * _LONGEST[Grain.HOUR])
        hours, _before = figures.stretches(
            shown.run.pk,
            grain=Grain.HOUR.value,
            partner=chosen["partner"],
            direction=chosen["direction"],
            begin=begin,
            end=now.end,
        )
    unit = {"failed_share": "share", "ack_p95": "s"}.get(what, "")
    days = (hours.end - hours.begin).days
    title = _("{what} by hour (UTC)").format(what=_HEAT[what])
    if days > 14 and what != "ack_p95":
        week = figures.by_weekday(hours.buckets)
        rows = [(str(WEEKDAYS_ABBR[index]), [_value(one, what) for one in week[index]]) for index in range(7)]
        title = _("{what} by hour (UTC) of the week, {days} days").format(what=_HEAT[what], days=days)
        return charts.heat_map("heat", title, rows, unit=unit, what=_("Weekday"))
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
        (f"{cause_label(one.kind, one.cause)} ({code_word('kind', one.kind)})", one.count, one.cumulative)
        for one in figures.causes(shown.run.pk, partner)
    ]
    return charts.pareto("pareto", _("The most frequent errors"), found, counted=_("Errors")) if found else None


def _doubts(shown: Shown, partner: str) -> charts.Chart | None:
    assert shown.run is not None
    rows: dict[str, list[tuple[str, str, float, str]]] = {}
    for one in figures.doubts(shown.run.pk, partner):
        label, tone = outcome_look(one.outcome)
        part = (label, tone, float(one.count), scales.number(one.count))
        rows.setdefault(hub.doubt(one.doubt), []).append(part)
    bars = [charts.Bar(name, parts) for name, parts in rows.items()]
    return charts.bars("doubts", _("Outcomes of documents in doubt"), bars) if bars else None
