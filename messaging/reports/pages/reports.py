"""Reports: the list, a page each, their tables as files, where the numbers come from, and a draft of advised times."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages as notices
from django.contrib.humanize.templatetags.humanize import intcomma
from django.core.exceptions import ObjectDoesNotExist
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.http import content_disposition_header
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from messaging.access.selectors.reach import read_id
from messaging.console.access import actor, requires
from messaging.console.rendering import dialog, keyset_page, page, see_other
from messaging.console.resource import Column, table
from messaging.exceptions import InvalidSubmission, WrongState
from messaging.models import PipelineRun, PublishedReport, TimingAdvice
from messaging.report_choices import Grain, PipelineJob, TimingOption
from messaging.reports.catalogue import Table
from messaging.reports.pages.bodies import BODIES, headline
from messaging.reports.pages.tables import sheet
from messaging.reports.selectors import pipeline, reports
from messaging.reports.selectors.reports import Shown
from messaging.reports.services import actions
from messaging.templatetags.hub import ago, middle, run_range
from partners import selectors as partners
from partners.exceptions import InvalidInput
from partners.exceptions import WrongState as PartnersWrongState
from partners.models import Agreement
from rmhub import clock
from rmhub.language import gettext_lazy

SCOPE = "reports:read"
_OLD = timedelta(days=2)
_PIECE = 256 * 1024
# Facts that have a place of their own on the page.
_TOLD = frozenset({"entities", "seconds", "code", "worker", "spark", "generation", "through_xid", "as_of"})
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
    as_of = shown.run.data_as_of if shown.run is not None else None
    context: dict[str, Any] = {
        "shown": shown,
        "report": shown.report,
        "run": shown.run,
        "job": job,
        "old": as_of is not None and clock.now() - as_of > _OLD,
        "startable": of.job in pipeline.STARTABLE,
        "here": _here(shown),
        "lineage": lineage(shown.run) if shown.run else None,
    }
    if shown.run is not None:
        context |= BODIES[job](request, shown) if job in BODIES else {}
        context |= _tables(request, shown, context.get("fixed", {}))
    # Days of reports are days in UTC, so their times are too.
    template = f"report_{job}" if job in BODIES else "report_frame"
    return page(request, f"console/reports/{template}.html", context, zone=UTC)


@requires(SCOPE, whole_hub=True)
def report_download(request: HttpRequest, job: str, table: str, form: str) -> StreamingHttpResponse:
    """A table as CSV (the same filters and order as on the page), or the Parquet file that the run wrote."""
    shown = reports.shown(job, scope=request.GET.get("scope", "")[:80], run=request.GET.get("run", ""))
    of = reports.table(shown.report, table)
    if shown.run is None:
        raise Http404(_("This report has never been run."))
    if form == "parquet":
        return attached(shown.run, f"{of.name}.parquet", f"{_file_name(shown, of)}.parquet")
    if form != "csv":
        raise Http404(_("There is no {name}; there are csv and parquet.").format(name=form))
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


@requires("agreements:write", methods=("GET", "POST"))
def timing_draft(request: HttpRequest, reference: str) -> HttpResponse:
    """The dialog, and a draft of the agreement's next version with the times that the advice proposes."""
    agreement = agreement_of(reference)

    def draft() -> HttpResponse:
        try:
            made = actions.timing_draft(
                agreement_id=agreement.pk,
                actor=actor(request),
                reason=request.POST.get("reason", "").strip()[:2000].replace("\x00", ""),
                run=actions.run_id_of(request.POST.get("run", "").strip()[:2000].replace("\x00", "")),
            )
        except InvalidInput as error:
            raise WrongState(str(error), state="") from error
        except PartnersWrongState as error:
            raise WrongState(error.why, state="") from error
        said = _("Version {version} of {agreement} is a draft: activate it to put it in force.")
        notices.success(request, said.format(version=made.number, agreement=agreement))
        return see_other("console:agreement-version", agreement.public_id, made.number)

    def shown() -> dict[str, Any]:
        run = reports.shown(PipelineJob.TIMING).run
        advice: dict[str, TimingAdvice] = {}
        if run is not None:
            found = reports.rows(run.pk, reports.report(PipelineJob.TIMING).table("advice"))
            advice = {one.option: one for one in found.filter(agreement_id=agreement.pk)}
        href = reverse("console:agreement", args=[agreement.public_id])
        return {
            "title": _("Draft of advised times"),
            "crumbs": ((reverse("console:agreements"), _("Agreements")), (href, agreement.tpa_id)),
            "href": href,
            "agreement": agreement,
            "run": run,
            "in_force": advice.get(TimingOption.IN_FORCE),
            "proposed": advice.get(TimingOption.PROPOSED),
            "draft": next((one for one in agreement.versions.all() if one.state == "draft"), None),
        }

    return dialog(request, "console/reports/timing_draft_form.html", shown, draft)


def agreement_of(reference: str) -> Agreement:
    """One agreement, by its public id. Raises Http404."""
    try:
        return partners.agreement(read_id("agr", reference))
    except ObjectDoesNotExist as error:
        raise Http404(_("There is no agreement {agreement}.").format(agreement=reference)) from error


def attached(run: PipelineRun, name: str, shown_as: str) -> StreamingHttpResponse:
    """A file that a run wrote, as an attachment. Raises NotFound."""
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


def _scope(one: PublishedReport) -> SafeString:
    return format_html('<a class="mono" href="?{}">{}</a>', urlencode({"scope": one.scope}), middle(one.scope, 30))


_COMPARISONS = (
    Column(gettext_lazy("Compared"), lambda one: ago(one.published_at), "nowrap", zoned=True),
    Column(gettext_lazy("Log"), _scope),
    Column(gettext_lazy("Range"), lambda one: run_range(one.run)),
    Column(gettext_lazy("Rows"), lambda one: intcomma(one.run.rows), "num"),
)


def _reconciliations(request: HttpRequest) -> HttpResponse:
    """The partners' logs that were compared, the newest comparison first."""
    found = reports.published_of(PipelineJob.RECONCILE)
    context = keyset_page(request, "console.reconciliations", found, order=("-id",), filters={})
    context |= {
        "report": reports.report(PipelineJob.RECONCILE),
        "logs": reverse("console:partner-logs"),
        "table": table(_("Comparisons, the newest first"), _COMPARISONS, context["rows"]),
    }
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
    found = sheet(request, shown, chosen, filters=filters, fixed=preset, fields=mine, without=without)
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


def lineage(run: PipelineRun) -> dict[str, Any]:
    """What `facts` say of the run's inputs, code and steps; the rest as it is.

    Of an extract, `entities` are the rows that it took up, of a report the files and rows that it read.
    """
    facts = run.facts
    entities = {
        name: one if isinstance(one, dict) else {"rows": one} for name, one in (facts.get("entities") or {}).items()
    }
    return {
        "entities": sorted(entities.items()),
        "files": sum(one.get("files") or 0 for one in entities.values()),
        "rows": sum(one.get("rows") or 0 for one in entities.values()),
        "seconds": sorted((facts.get("seconds") or {}).items(), key=lambda step: -step[1]),
        **{name: facts.get(name) for name in ("code", "worker", "spark", "generation", "through_xid")},
        "others": {name: value for name, value in facts.items() if name not in _TOLD and value not in (None, "", [])},
    }
