"""Runs of the data pipeline (the list, one with its progress and lineage, starting, cancelling), and the live page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from django.contrib import messages as notices
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import Truncator, capfirst
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from messaging import keyset
from messaging.console import cells
from messaging.console.access import actor, requires
from messaging.console.filters import Filter, bar
from messaging.console.rendering import as_context, dialog, keyset_page, page, read_place, see_other
from messaging.console.resource import Column, table
from messaging.exceptions import InvalidSubmission
from messaging.models import PipelineRun
from messaging.pairs.selectors import screens
from messaging.report_choices import PipelineJob, RunState
from messaging.reports.catalogue import REPORTS
from messaging.reports.pages.reports import attached, lineage
from messaging.reports.selectors import pipeline
from messaging.reports.selectors.pipeline import PairHour
from messaging.reports.services import runs as pipeline_runs
from messaging.templatetags.hub import ago, middle, octets, run_range, state, took
from rmhub import clock
from rmhub.language import gettext_lazy, number

SCOPE = "pipeline:run"
ALL = "all"
_EXPLAINED = {
    ALL: gettext_lazy("The extract, then every report."),
    **{job: report.question for job, report in REPORTS.items()},
    PipelineJob.EXTRACT: gettext_lazy("Copies what is new from the message store to the lake."),
    PipelineJob.TIMING: gettext_lazy("Which Timeout, RetryInterval and Retries fit?"),
    PipelineJob.ARCHIVE: gettext_lazy("Moves finished messages to the archive, as the retention policy says."),
    PipelineJob.COMPACT: gettext_lazy("Makes few large files of many small ones in the lake."),
}
# What the lake holds, in words.
_ENTITIES = {
    "agreements": gettext_lazy("Agreements"),
    "deliveries": gettext_lazy("Deliveries"),
    "events": gettext_lazy("Events"),
    "messages": gettext_lazy("Messages"),
    "pairs": gettext_lazy("Pairs"),
    "signals": gettext_lazy("Signals"),
    "transmissions": gettext_lazy("Transmissions"),
    "triggers": gettext_lazy("Triggers"),
}


def _entity(name: str) -> str:
    return _ENTITIES.get(name) or capfirst(name)


def _job(row: Any) -> SafeString:
    run = row.run
    href = cells.to("pipeline-run", run.public_id)
    scope = format_html('<div class="mono text-faint">{}</div>', middle(run.scope, 24)) if run.scope else ""
    return cells.joined(cells.link(href, run.get_job_display(), "strong", id=f"open-{run.public_id}"), scope)


def _progress(row: Any) -> object:
    run = row.run
    if run.state == "running":
        bar = '<progress value="{}" max="100" aria-label="{}">{} %</progress> '
        percent = row.percent
        said = _("Progress of {job}").format(job=run.get_job_display())
        return cells.joined(
            format_html(bar, percent, said, percent) if percent is not None else "",
            run.step,
            format_html(' <span class="text-bad">{}</span>', _("being cancelled")) if run.cancel_requested else "",
        )
    if run.state == "failed":
        return cells.span("text-bad", Truncator(run.error).chars(160))
    if run.state == "queued" and row.unclaimed:
        return cells.span("text-bad", _("no worker takes it"))
    if run.rows is None:
        return cells.NONE
    return ngettext("{count} row", "{count} rows", run.rows).format(count=number(run.rows))


_RUNS = (
    Column(gettext_lazy("Requested"), lambda row: ago(row.run.created_at), "nowrap", zoned=True),
    Column(gettext_lazy("State"), lambda row: state("run", row.run.state), "nowrap"),
    Column(gettext_lazy("Job"), _job),
    Column(gettext_lazy("Progress, result"), _progress, narrow=gettext_lazy("Progress")),
    Column(gettext_lazy("Range"), lambda row: run_range(row.run)),
    Column(gettext_lazy("Took"), lambda row: took(row.seconds) or "—", "num nowrap"),
    Column(gettext_lazy("By"), lambda row: row.run.requested_by),
)


_LAKE = (
    Column(gettext_lazy("Rows of"), lambda one: _entity(one.entity)),
    Column(gettext_lazy("Rows"), lambda one: cells.number(one.rows), "num"),
    Column(gettext_lazy("Files"), lambda one: cells.number(one.files), "num"),
    Column(gettext_lazy("Size"), lambda one: octets(one.bytes), "num"),
    Column(
        gettext_lazy("First day"),
        lambda one: one.first_day.isoformat() if one.first_day else cells.span("text-faint", _("whole list")),
    ),
    Column(gettext_lazy("Last day"), lambda one: one.last_day.isoformat() if one.last_day else "—"),
)


_INPUTS = (
    Column(gettext_lazy("Rows of"), lambda one: _entity(one[0])),
    Column(gettext_lazy("Files"), lambda one: cells.number(one[1].get("files")), "num"),
    Column(
        gettext_lazy("Rows, all versions"),
        lambda one: cells.number(one[1].get("rows")),
        "num",
        narrow=gettext_lazy("Rows"),
    ),
    Column(gettext_lazy("Size"), lambda one: "—" if one[1].get("bytes") is None else octets(one[1]["bytes"]), "num"),
)


def _files(run: PipelineRun) -> dict[str, Any]:
    """Return the table of what a run wrote."""

    def name(one: Mapping[str, Any]) -> SafeString:
        return cells.link(cells.to("pipeline-file", run.public_id, one["name"]), one["name"], "strong")

    columns = (
        Column(_("Name"), name),
        Column(_("Rows"), lambda one: cells.number(one.get("rows")), "num"),
        Column(_("Size"), lambda one: octets(one["bytes"]), "num"),
        Column("SHA-256", lambda one: middle(one["sha256"], 17), "mono", title=lambda one: one["sha256"]),
    )
    return table(_("Files that the run wrote"), columns, run.artifacts)


FILTERS = (
    Filter("job", gettext_lazy("Job"), choices=PipelineJob.choices),
    Filter("state", gettext_lazy("State"), choices=RunState.choices),
)


@requires("reports:read", whole_hub=True)
def run_list(request: HttpRequest) -> HttpResponse:
    """Newest first, with what the lake holds. The first page is live."""
    filters = {
        "job": _one_of(request.GET.get("job", ""), PipelineJob.values),
        "state": _one_of(request.GET.get("state", ""), RunState.values),
    }
    found = pipeline.runs(
        jobs=(filters["job"],) if filters["job"] else (), states=(filters["state"],) if filters["state"] else ()
    )
    context = keyset_page(request, "console.pipeline", found, order=("-id",), filters=filters)
    now, busy, lake = clock.now(), pipeline.busy(), pipeline.lake()
    context["rows"] = [pipeline.progress(one, now, busy=busy) for one in context["rows"]]
    context |= {
        "bar": bar(request, _("runs"), FILTERS, filters),
        "filtered": any(filters.values()),
        "lake": lake,
        "in_lake": table(_("What the lake holds"), _LAKE, lake.entities),
        "table": table(
            _("Runs, newest first"),
            _RUNS,
            context["rows"],
            about=lambda row: {"data-state": row.run.state, "data-testid": "run-row"},
        ),
        "first_page": not request.GET.get("cursor"),
        "unclaimed": any(one.unclaimed for one in context["rows"]),
    }
    return page(request, "console/reports/pipeline_runs.html", context, live="live-runs")


@requires("reports:read", whole_hub=True)
def run_page(request: HttpRequest, reference: str) -> HttpResponse:
    """How far it is; when it has ended, where its numbers come from."""
    run = pipeline.run(reference)
    if reference != run.public_id:
        return see_other("console:pipeline-run", run.public_id)
    progress = pipeline.progress(run, clock.now(), busy=run.state != RunState.QUEUED or pipeline.busy())
    made_of = lineage(run)
    context = {
        "run": run,
        "progress": progress,
        "lineage": made_of,
        "inputs": table(_("Inputs of the run"), _INPUTS, made_of["entities"]),
        "files": _files(run),
        "has_report": run.job in REPORTS and run.state == RunState.SUCCEEDED,
        "audit": screens.audit_of(run),
    }
    return page(request, "console/reports/pipeline_run.html", context, live="live-run")


@requires("reports:read", whole_hub=True)
def run_file(request: HttpRequest, reference: str, name: str) -> StreamingHttpResponse:
    """A file that the run wrote."""
    return attached(pipeline.run(reference), name, name)


@requires(SCOPE, methods=("GET", "POST"))
def run_start(request: HttpRequest) -> HttpResponse:
    """The form, and the start of a run, or of all."""

    def shown() -> dict[str, Any]:
        given: Any = request.POST if request.method == "POST" else request.GET
        jobs = [(ALL, _("All reports"), _EXPLAINED[ALL])]
        jobs += [(job.value, str(job.label), _EXPLAINED[job]) for job in pipeline.STARTABLE]
        chosen = given.get("job", ALL)
        href = reverse("console:pipeline-runs")
        return {
            "title": _("Run the pipeline"),
            "crumbs": ((href, _("Pipeline")),),
            "href": href,
            "jobs": jobs,
            "job": chosen if chosen in {one[0] for one in jobs} else ALL,
            "given": {name: given.get(name, "")[:200] for name in ("from", "to", "reason")},
        }

    form = "console/reports/pipeline_start_form.html"
    return dialog(request, form, shown, lambda: see_other("console:pipeline-run", _start(request).public_id))


@requires(SCOPE, methods=("GET", "POST"))
def run_cancel(request: HttpRequest, reference: str) -> HttpResponse:
    """The dialog, and the end of a run."""

    def cancel() -> HttpResponse:
        run = pipeline.run(reference)
        reason = request.POST.get("reason", "").strip().replace("\x00", "")
        pipeline_runs.run_cancel(run_id=run.pk, actor=actor(request), reason=reason)
        notices.success(request, _("The run is cancelled: it publishes nothing, and what was shown before stays."))
        return see_other("console:pipeline-run", run.public_id)

    def shown() -> dict[str, Any]:
        run = pipeline.run(reference)
        href = reverse("console:pipeline-run", args=[run.public_id])
        return {
            "title": _("Cancel the run"),
            "crumbs": ((reverse("console:pipeline-runs"), _("Pipeline")), (href, run.get_job_display())),
            "href": href,
            "run": run,
            "progress": pipeline.progress(run, clock.now()),
        }

    return dialog(request, "console/reports/pipeline_cancel_form.html", shown, cancel)


def _start(request: HttpRequest) -> PipelineRun:
    """Raises InvalidSubmission, WrongState."""
    job = request.POST.get("job", "")
    reason = request.POST.get("reason", "").strip()[:1000].replace("\x00", "")
    if job != ALL and job not in {one.value for one in pipeline.STARTABLE}:
        raise InvalidSubmission({"job": [_("Choose what to run.")]})
    days = read_days(request.POST)
    who = actor(request)
    if job == ALL:
        runs = pipeline_runs.run_all_request(actor=who, range_from=days.begin, range_to=days.end, reason=reason)
        said = ngettext(
            "{count} run waits. This is it.", "{count} runs wait, one after the other. This is the first.", len(runs)
        )
        notices.success(request, said.format(count=number(len(runs))))
        return runs[0]
    return pipeline_runs.run_request(job=job, actor=who, range_from=days.begin, range_to=days.end, reason=reason)


def _one_of(text: str, allowed: list[str]) -> str:
    return text if text in allowed else ""


@dataclass(frozen=True, slots=True)
class Days:
    """Days of a form's range, UTC, both included; empty = open. `begin` is inclusive, `end` exclusive."""

    begin: datetime | None
    end: datetime | None

    @property
    def first(self) -> str:
        """What stands in the field of the first day."""
        return self.begin.astimezone(UTC).date().isoformat() if self.begin else ""

    @property
    def last(self) -> str:
        """What stands in the field of the last day."""
        return (self.end.astimezone(UTC) - timedelta(microseconds=1)).date().isoformat() if self.end else ""


def read_days(given: Mapping[str, str]) -> Days:
    """The fields `from` and `to`. Raises InvalidSubmission."""
    errors: dict[str, list[str]] = {}
    first, last = _day(given, "from", errors), _day(given, "to", errors)
    if not errors and first and last and last < first:
        errors["to"] = [_("It is before the first day.")]
    if errors:
        raise InvalidSubmission(errors)
    begin = datetime.combine(first, time(), UTC) if first else None
    end = datetime.combine(last, time(), UTC) + timedelta(days=1) if last else None
    return Days(begin, end)


def _day(given: Mapping[str, str], name: str, errors: dict[str, list[str]]) -> date | None:
    text = given.get(name, "").strip()
    if not text:
        return None
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = None
    if day is None or not 1900 <= day.year <= 9000:
        errors[name] = [_("Give a day as YYYY-MM-DD, or leave it empty.")]
        return None
    return day


_ORDER = ("calm", "code")
_PAGE = 25
_WIDTH, _HEIGHT = 120, 26  # units of a sparkline's drawing: two for each minute


@requires("reports:read")
def live_page(request: HttpRequest) -> HttpResponse:
    """Every pair with traffic in the last hour, those with anomalies first."""
    shown = pipeline.live_watch(clock.now())
    mark = keyset.fingerprint("console.live", {}, ",".join(_ORDER))
    found = keyset.page(pipeline.watched_pairs(shown), order=_ORDER, limit=_PAGE, place=read_place(request, mark))
    context: dict[str, Any] = as_context(found, mark)
    context |= {
        "watch": shown,
        "rows": [_row(hour) for hour in pipeline.last_hours(found.rows, shown)],
    }
    return page(request, "console/reports/live_watch.html", context, live="live-watch")


def _row(hour: PairHour) -> dict[str, Any]:
    causes = {incident.cause for incident in hour.incidents}
    usual = hour.usual
    volumes = [float(minute.volume) for minute in hour.minutes]
    failures = [float(minute.failures) for minute in hour.minutes]
    in_all = _("Messages by minute: {count} in all, {most} in the busiest")
    told = _("No acknowledgement in this hour")
    if hour.latency is not None:
        told = _("Mean time to acknowledge by minute: {time} over the hour").format(time=took(hour.latency))
    return {
        "hour": hour,
        "causes": causes,
        "volume": bars(volumes, in_all.format(count=number(hour.volume), most=number(int(max(volumes))))),
        "failures": bars(
            failures,
            _("Failures by minute: {count} in all").format(count=number(hour.failures)),
            tone="bad",
            least=5.0,
        ),
        "latency": line(
            [minute.latency for minute in hour.minutes],
            usual.latency.limit if usual.latency else None,
            told,
        ),
    }


def bars(
    values: Sequence[float], label: str, *, tone: str = "main", least: float = 1.0, width: int = _WIDTH
) -> SafeString:
    """A sparkline of bars, one a value; the highest reaches the top, if it is at least `least`."""
    top = max([*values, least])
    parts = []
    for place, value in enumerate(values):
        if value > 0:
            height = max(1.5, value / top * (_HEIGHT - 2))
            parts.append(f"M{place * 2} {_HEIGHT}v-{height:.1f}h1.5v{height:.1f}z")
    return _drawing(format_html('<path class="spark-bars tone-{}" d="{}"></path>', tone, "".join(parts)), label, width)


def line(values: Sequence[float | None], limit: float | None, label: str, *, width: int = _WIDTH) -> SafeString:
    """A sparkline with gaps where nothing is known, and a dashed line at the limit of what is usual."""
    known = [value for value in values if value is not None]
    top = max([*known, limit or 0.0, 1e-9]) * 1.05
    parts, pen_down = [], False
    for place, value in enumerate(values):
        if value is None:
            pen_down = False
            continue
        y = _HEIGHT - value / top * (_HEIGHT - 2)
        # A minute alone is a short stroke: a point would not be seen.
        parts.append(f"{'L' if pen_down else 'M'}{place * 2} {y:.1f}h1")
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
