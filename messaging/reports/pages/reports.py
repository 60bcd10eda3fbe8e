"""Reports: the list, a page each, and their tables as files."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import reverse
from django.utils.http import content_disposition_header

from messaging.console.access import requires
from messaging.console.rendering import keyset_page, page
from messaging.exceptions import InvalidSubmission
from messaging.models import PipelineRun
from messaging.report_choices import Grain, PipelineJob
from messaging.reports.catalogue import Table
from messaging.reports.pages.bodies import BODIES, headline
from messaging.reports.pages.lineage import lineage
from messaging.reports.pages.tables import Sheet, sheet
from messaging.reports.selectors import pipeline, reports
from messaging.reports.selectors.reports import Shown
from rmhub import clock

SCOPE = "reports:read"
_OLD = timedelta(days=2)
_PIECE = 256 * 1024
# Filters that a page's own form has; a table's form offers the others.
_OF_PAGE = {PipelineJob.LEVELS: ("partner", "direction")}
# The table that is shown unless another is asked for, where it is not the first.
_FIRST = {PipelineJob.RECONCILE: "findings"}


@requires(SCOPE, whole_hub=True)
def report_list(request: HttpRequest) -> HttpResponse:
    """What can be asked, when it was answered last, and the answer in a few words."""
    cards = [(one, headline(one)) for one in reports.overview()]
    context = {"cards": cards, "lake": pipeline.lake(), "ever": any(one.run for one, _ in cards)}
    return page(request, "console/reports/reports.html", context)


@requires(SCOPE, whole_hub=True)
def report_page(request: HttpRequest, job: str) -> HttpResponse:
    """One report as its published run left it; `?run=` shows an earlier one, `?table=` chooses the table below."""
    scope = request.GET.get("scope", "")[:80].replace("\x00", "")
    of = reports.report(job)
    if of.job == PipelineJob.RECONCILE and not scope:
        return _reconciliations(request)
    shown = reports.shown(job, scope=scope, run=request.GET.get("run", ""))
    context: dict[str, Any] = {
        "shown": shown,
        "report": shown.report,
        "run": shown.run,
        "job": job,
        "old": shown.run is not None and _is_old(shown.run),
        "startable": of.job in pipeline.STARTABLE,
        "here": _here(shown),
        "lineage": lineage(shown.run) if shown.run else None,
    }
    if shown.run is not None:
        context |= BODIES[job](request, shown)
        context |= _tables(request, shown, context.get("fixed", {}))
    # Days of reports are days in UTC, so their times are too.
    return page(request, f"console/reports/report_{job}.html", context, zone=UTC)


@requires(SCOPE, whole_hub=True)
def report_download(request: HttpRequest, job: str, table: str, form: str) -> StreamingHttpResponse:
    """A table as CSV (the same filters and order as on the page), or the Parquet file that the run wrote."""
    shown = reports.shown(job, scope=request.GET.get("scope", "")[:80], run=request.GET.get("run", ""))
    of = reports.table(shown.report, table)
    if shown.run is None:
        raise Http404("This report has never been made.")
    if form == "parquet":
        return _attached(shown.run, f"{of.name}.parquet", f"{_file_name(shown, of)}.parquet")
    if form != "csv":
        raise Http404(f"There is no {form}; there are csv and parquet.")
    filters: dict[str, object] = {name: request.GET[name] for name in of.filters if name in request.GET}
    flags = [one.name for one in reports.columns(of) if one.kind == "boolean"]
    filters |= {name: request.GET[name] == "true" for name in flags if request.GET.get(name) in ("true", "false")}
    try:
        lines = reports.csv_lines(shown.run.pk, of, filters, request.GET.get("sort", ""))
    except InvalidSubmission as error:
        raise Http404(str(error)) from error
    answer = StreamingHttpResponse(lines, content_type="text/csv; charset=utf-8; header=present")
    answer["Content-Disposition"] = f'attachment; filename="{_file_name(shown, of)}.csv"'
    answer["X-Content-Type-Options"] = "nosniff"
    return answer


def artifact(request: HttpRequest, run: PipelineRun, name: str) -> StreamingHttpResponse:
    """A file that a run wrote, as an attachment. Raises NotFound."""
    return _attached(run, name, name)


def _attached(run: PipelineRun, name: str, shown_as: str) -> StreamingHttpResponse:
    path = pipeline.artifact(run, name)
    kind = "text/csv; charset=utf-8" if name.endswith(".csv") else "application/octet-stream"
    answer = StreamingHttpResponse(_pieces(path), content_type=kind)
    answer["Content-Length"] = str(path.stat().st_size)
    answer["Content-Disposition"] = content_disposition_header(True, shown_as) or "attachment"
    answer["X-Content-Type-Options"] = "nosniff"
    return answer


def _pieces(path: Path) -> Iterator[bytes]:
    # Opened when the first piece is asked for: an answer to HEAD, or one that nobody reads, leaves no open file.
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            yield piece


def _file_name(shown: Shown, of: Table) -> str:
    assert shown.run is not None
    day = shown.run.data_as_of or shown.run.created_at
    return f"{shown.report.job.value}-{of.name}-{day:%Y%m%d-%H%M}"


def _reconciliations(request: HttpRequest) -> HttpResponse:
    """The partners' logs that were compared, the newest comparison first."""
    found = reports.published_of(PipelineJob.RECONCILE)
    context = keyset_page(request, "console.reconciliations", found, order=("-id",), filters={})
    context |= {"report": reports.report(PipelineJob.RECONCILE), "logs": reverse("console:partner-logs")}
    return page(request, "console/reports/report_reconcile_list.html", context)


def _tables(request: HttpRequest, shown: Shown, fixed: dict[str, object]) -> dict[str, Any]:
    """The table below, and tabs for the others."""
    of = shown.report
    names = [one.name for one in of.tables]
    name = request.GET.get("table", "")
    chosen = of.table(name if name in names else _FIRST.get(of.job, names[0]))
    given = {one: request.GET.get(one, "").strip()[:512].replace("\x00", "") for one in chosen.filters}
    mine = tuple(one for one in chosen.filters if one not in _OF_PAGE.get(of.job, ()))
    preset: dict[str, object] = dict(fixed) if chosen.name == "findings" and of.job == PipelineJob.AUDIT else {}
    if of.job == PipelineJob.LEVELS:
        if chosen.name == "levels":
            given["grain"] = given["grain"] or Grain.TOTAL.value
        elif not given["partner"]:
            preset["partner"] = ""
    filters = {one: value for one, value in given.items() if value}
    without: tuple[str, ...] = ()
    if chosen.name == "levels":
        without = ("grain", "at") if given["grain"] == Grain.TOTAL else ("grain",)
    found: Sheet = sheet(request, shown, chosen, filters=filters, fixed=preset, fields=mine, without=without)
    kept = {
        one: request.GET[one] for one in ("scope", "partner", "direction", "by", "from", "to") if request.GET.get(one)
    }
    assert shown.run is not None
    tabs = [
        (one.title, f"?{urlencode({**kept, 'run': shown.run.public_id, 'table': one.name})}#rows", one is chosen)
        for one in of.tables
    ]
    return {"sheet": found, "tabs": tabs}


def _here(shown: Shown) -> str:
    """The report's address without anything chosen."""
    address = reverse("console:report", args=[shown.report.job.value])
    return f"{address}?{urlencode({'scope': shown.scope})}" if shown.scope else address


def _is_old(run: PipelineRun) -> bool:
    return run.data_as_of is not None and clock.now() - run.data_as_of > _OLD
