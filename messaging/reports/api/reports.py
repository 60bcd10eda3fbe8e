"""Reports: which there are, and their tables as pages or files."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime
from typing import Any

from django.http import FileResponse, StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from rest_framework.request import Request
from rest_framework.response import Response

from messaging import keyset
from messaging.api.authentication import actor_of
from messaging.api.conditional import item
from messaging.api.endpoint import AnyJson, AnyOctets, Endpoint, operation
from messaging.api.fields import validated
from messaging.api.pagination import PAGING, listing
from messaging.api.problems import Problem
from messaging.api.reading import Param, read_parameters
from messaging.api.references import id_of
from messaging.onboarding.serializers import agreements
from messaging.onboarding.services import content as onboarding_content
from messaging.report_choices import PipelineJob
from messaging.reports.api.pipeline import file_of
from messaging.reports.catalogue import REPORTS, Table
from messaging.reports.selectors import reports
from messaging.reports.selectors.reports import Shown
from messaging.reports.serializers import reports as shapes
from messaging.reports.services import actions as report_actions
from partners.models import AgreementVersion

JOBS = tuple(REPORTS)
CSV, PARQUET = "csv", "parquet"
_MEDIA = {"text/csv": CSV, "application/vnd.apache.parquet": PARQUET, "application/x-parquet": PARQUET}
_JOB = {"job": f"The report: {', '.join(JOBS)}."}
CHOICE = (
    Param("scope", "Reconciliation: the id of the partner's log (`plog_...`)."),
    Param("run", "An earlier run, whose results are kept; the published one if absent.", "id", prefix="run"),
)
FORMAT = Param("format", "json, csv or parquet; or say so in Accept.", "choice", choices=("json", CSV, PARQUET))
SORT = Param("sort", "A column; with - in front, from the greatest. The table's own order if absent.")
_ALL = "*"


def _documented() -> tuple[Param, ...]:
    """Every filter that some table has; one that a table does not have is refused there."""
    names = dict.fromkeys(name for report in REPORTS.values() for table in report.tables for name in _filters(table))
    return tuple(Param(name, f"Exact, in tables that have the column {name}.") for name in names)


def _filters(table: Table) -> tuple[str, ...]:
    flags = [column.name for column in reports.columns(table) if column.kind == "boolean"]
    return (*table.filters, *flags)


class Reports(Endpoint):
    """/reports"""

    @operation(
        id="reports_list",
        whole_hub=True,
        tag="reports",
        scope="reports:read",
        summary="All reports, and the runs whose results are shown",
        description="Of reconciliations the newest; GET /partner-logs has all of them.",
        responses={200: shapes.ReportsSerializer},
    )
    def get(self, request: Request) -> Response:
        read_parameters(request, ())
        return item(request, {"data": [shapes.represent(shown) for shown in reports.overview()]})


class OneReport(Endpoint):
    """/reports/{job}"""

    @operation(
        id="reports_read",
        whole_hub=True,
        tag="reports",
        scope="reports:read",
        summary="One report: its run, its tables and their columns",
        path=_JOB,
        parameters=CHOICE,
        responses={200: shapes.ReportDetailSerializer},
    )
    def get(self, request: Request, job: str) -> Response:
        values = read_parameters(request, CHOICE)
        return item(request, shapes.represent_one(_shown(job, values)))


class ReportTable(Endpoint):
    """/reports/{job}/{table}"""

    content_negotiation_class = AnyOctets

    @operation(
        id="reports_rows",
        whole_hub=True,
        tag="reports",
        scope="reports:read",
        summary="Rows of a report, as pages of JSON or in one file",
        description=(
            "Pages are of one run: when another one is published in between, a cursor is refused; `run` keeps to one. "
            "CSV has the filters and the order that are asked for; Parquet is the file that the run wrote, without "
            "them. In CSV a text that a spreadsheet would take for a formula has an apostrophe in front."
        ),
        path={**_JOB, "table": "Name of the table, as the report has it."},
        parameters=(*CHOICE, *_documented(), SORT, FORMAT, *PAGING),
        responses={
            200: shapes.ReportRowsSerializer,
            (200, "text/csv"): OpenApiTypes.STR,
            (200, "application/vnd.apache.parquet"): OpenApiTypes.BINARY,
        },
        problems=("invalid_cursor", "cursor_mismatch", "not_acceptable"),
    )
    def get(self, request: Request, job: str, table: str) -> Response | StreamingHttpResponse | FileResponse:
        of = reports.table(reports.report(job), table)
        values = read_parameters(request, (*CHOICE, *_parameters(of), FORMAT, *PAGING))
        shown = _shown(job, values)
        if shown.run is None:
            raise Problem("not_found", "This report was never made: ask for a run of it first.")
        form = _format(request, values.pop("format"))
        filters = _given(job, of, values)
        if form == PARQUET:
            if filters or values["sort"]:
                raise Problem("invalid_parameter", "A Parquet file is the whole table: leave out filters and sort.")
            return file_of(shown.run, f"{of.name}.parquet", shown_as=f"{job}-{of.name}.parquet")
        if form == CSV:
            return _csv(shown, of, filters, values["sort"] or "")
        return _page(request, shown, of, filters, values)


class AuditIncidents(Endpoint):
    """/reports/audit/incidents"""

    @operation(
        id="reports_audit_incidents",
        tag="reports",
        scope="pipeline:run",
        summary="Make incidents of what the exactly-once audit found",
        description="One for each pair and kind of broken promise; findings that explain themselves make none. Asked "
        "again about the same run, it answers the incidents that are open already.",
        request=shapes.AuditIncidentsBody,
        responses={200: shapes.OpenedSerializer},
        problems=("wrong_state",),
    )
    def post(self, request: Request) -> Response:
        read_parameters(request, ())
        values = validated(shapes.AuditIncidentsBody, request.data)
        opened = report_actions.audit_incidents(
            actor=actor_of(request),
            reason=values["reason"],
            kinds=values.get("kinds", ()),
            run_id=values.get("run"),
        )
        return Response(shapes.represent_opened(opened))


class TimingDraft(Endpoint):
    """/agreements/{agreement_id}/timing-draft"""

    @operation(
        id="agreements_timing_draft",
        tag="agreements",
        scope="agreements:write",
        summary="Start a new version with the times that the timing advice proposes",
        description="A draft: nothing changes until it is activated. Refused when there is a draft already, when the "
        "advice proposes nothing for the agreement, or what is in force.",
        path={"agreement_id": "Id of the agreement (`agr_...`)."},
        request=shapes.TimingDraftBody,
        responses={201: agreements.VersionDetailSerializer},
        problems=("wrong_state",),
    )
    def post(self, request: Request, agreement_id: str) -> Response:
        read_parameters(request, ())
        values = validated(shapes.TimingDraftBody, request.data)
        version = report_actions.timing_draft(
            agreement_id=id_of("agr", agreement_id),
            actor=actor_of(request),
            reason=values["reason"],
            run_id=values.get("run"),
        )
        return _version(request, version)


def _version(request: Request, version: AgreementVersion) -> Response:
    path = f"/api/v1/agreements/{version.agreement.public_id}/versions/{version.number}"
    data = agreements.version_detail(version)
    return item(request, data, revision=onboarding_content.revision(version), status=201, Location=path)


def _shown(job: str, values: dict[str, Any]) -> Shown:
    """Raises NotFound; Problem where a reconciliation is not named."""
    if job == PipelineJob.RECONCILE and not values["scope"]:
        errors = [{"parameter": "scope", "code": "required", "detail": "Say which partner's log: plog_..."}]
        raise Problem("invalid_parameter", "scope: say which partner's log (plog_...).", errors=errors)
    run = f"run_{values['run'].hex}" if values["run"] else ""
    return reports.shown(job, scope=values["scope"] or "", run=run)


def _parameters(of: Table) -> tuple[Param, ...]:
    """The filters and sorts of this table; others are refused."""
    columns = {column.name: column for column in reports.columns(of)}
    found = []
    for name in _filters(of):
        column = columns[name]
        if column.kind == "boolean":
            found.append(Param(name, "", "flag"))
        elif column.choices:
            found.append(Param(name, "", "choice", choices=tuple(column.choices)))
        else:
            found.append(Param(name, ""))
    sortable = [column.name for column in columns.values() if column.sortable]
    sorts = (*sortable, *(f"-{name}" for name in sortable))
    return (*found, Param("sort", "", "choice", choices=sorts))


def _given(job: str, of: Table, values: dict[str, Any]) -> dict[str, object]:
    """The filters that were given. `*` is the row about all partners, which has no name in it."""
    found = {name: values[name] for name in _filters(of) if values[name] is not None}
    if job == PipelineJob.LEVELS and found.get("partner") == _ALL:
        found["partner"] = ""
    return found


def _format(request: Request, asked: str | None) -> str:
    """What is answered: the parameter counts before the header. Raises NotAcceptable."""
    if asked is not None:
        return asked
    accept = request.headers.get("Accept", "").lower()
    for part in accept.split(","):
        kind = part.partition(";")[0].strip()
        if kind in _MEDIA:
            return _MEDIA[kind]
    AnyJson().select_renderer(request, ())
    return "json"


def _csv(shown: Shown, of: Table, filters: dict[str, object], sort: str) -> StreamingHttpResponse:
    assert shown.run is not None
    answer = StreamingHttpResponse(
        reports.csv_lines(shown.run.pk, of, filters, sort), content_type="text/csv; charset=utf-8; header=present"
    )
    answer["Content-Disposition"] = f'attachment; filename="{shown.report.job.value}-{of.name}.csv"'
    answer["X-Content-Type-Options"] = "nosniff"
    answer["RM-Run"] = shown.run.public_id
    return answer


def _page(request: Request, shown: Shown, of: Table, filters: dict[str, object], values: dict[str, Any]) -> Response:
    assert shown.run is not None
    limit, cursor = values.pop("limit"), values.pop("cursor")
    # The published run may change between two pages; the cursor belongs to the run that it was made for.
    values["run"] = shown.run.public_id
    place = keyset.read_cursor(cursor, keyset.fingerprint(request.path, values, "")) if cursor else None
    found = reports.rows(shown.run.pk, of, filters)
    page = reports.row_page(found, of, sort=values["sort"] or "", limit=limit, place=place)
    names = [column.name for column in reports.columns(of)]
    answer = listing(request, values, page, lambda rows: [_row(row, names) for row in rows])
    answer.data = {"run": shapes.RunSerializer(shown.run).data, **answer.data}
    return answer


def _row(row: Any, names: list[str]) -> dict[str, Any]:
    return {name: _value(getattr(row, name)) for name in names}


def _value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return str(value) if isinstance(value, date | uuid.UUID) else value
