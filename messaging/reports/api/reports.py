"""Reports: which there are, and their tables as pages or files."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime
from typing import Any

from django.http import FileResponse, StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from messaging import keyset
from messaging.api.authentication import actor_of
from messaging.api.conditional import item
from messaging.api.endpoint import AnyJson, AnyOctets, Endpoint, operation
from messaging.api.fields import IdIn, IdOut, OptionalReasonBody, ReasonBody, RowSerializer, validated
from messaging.api.handlers import done, shown
from messaging.api.pagination import PAGING, listing
from messaging.api.problems import Problem
from messaging.api.reading import Param, read_parameters
from messaging.api.references import id_of
from messaging.models import Incident
from messaging.onboarding.serializers import agreements
from messaging.onboarding.services import changing as onboarding_content
from messaging.report_choices import PipelineJob
from messaging.reports.api.pipeline import RunSerializer, file_of
from messaging.reports.catalogue import REPORTS, Table
from messaging.reports.selectors import reports
from messaging.reports.selectors.reports import Shown
from messaging.reports.services import actions as report_actions
from messaging.reports.services.actions import AUDIT_KINDS

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
SEEN = "The run that you looked at: refused when another is shown by now."
_ALL = "*"


def _documented() -> tuple[Param, ...]:
    """Every filter that some table has; one that a table does not have is refused there."""
    names = dict.fromkeys(name for report in REPORTS.values() for table in report.tables for name in _filters(table))
    return tuple(Param(name, f"Exact, in tables that have the column {name}.") for name in names)


def _filters(table: Table) -> tuple[str, ...]:
    flags = [column.name for column in reports.columns(table) if column.kind == "boolean"]
    return (*table.filters, *flags)


class ColumnSerializer(serializers.Serializer):
    """A column of a report's table."""

    name = serializers.CharField()
    title = serializers.CharField()
    kind = serializers.ChoiceField(
        choices=["text", "integer", "number", "time", "date", "boolean", "ids", "uuid"],
        help_text="`ids`: a list of MessageIds.",
    )
    unit = serializers.CharField(help_text="s, bytes, share (0 to 1), or nothing.")
    description = serializers.CharField()
    nullable = serializers.BooleanField()
    choices = serializers.DictField(child=serializers.CharField(), help_text="Value -> words.")


class ReportTableSerializer(serializers.Serializer):
    """A table of a report."""

    name = serializers.CharField()
    title = serializers.CharField()
    filters = serializers.ListField(child=serializers.CharField(), help_text="Columns that can be filtered by.")
    columns = ColumnSerializer(many=True)
    href = serializers.CharField()


class ReportSerializer(serializers.Serializer):
    """A report: what it answers, and the run whose results are shown."""

    job = serializers.ChoiceField(choices=PipelineJob.choices)
    title = serializers.CharField()
    question = serializers.CharField()
    scope = serializers.CharField()
    run = RunSerializer(allow_null=True, help_text="Whose results are shown; null before the first.")
    failed = RunSerializer(allow_null=True, help_text="The newest run that failed after it.")
    active = RunSerializer(allow_null=True, help_text="One that waits or works now.")
    tables = ReportTableSerializer(many=True)


class ReportDetailSerializer(ReportSerializer):
    """A report, with the runs whose results can still be looked at."""

    earlier = RunSerializer(many=True, help_text="Newest first: `run=` chooses one of them.")


class ReportsSerializer(serializers.Serializer):
    """All reports."""

    data = ReportSerializer(many=True)  # type: ignore[assignment]


class ReportRowsSerializer(serializers.Serializer):
    """A page of a report's table. Rows have the members that the table's `columns` name."""

    run = RunSerializer(help_text="Whose results these are.")
    data = serializers.ListField(child=serializers.DictField())  # type: ignore[assignment]
    next_cursor = serializers.CharField(allow_null=True, help_text="Send it as `cursor` for the page behind.")
    prev_cursor = serializers.CharField(allow_null=True, help_text="Send it as `cursor` for the page before.")
    has_more = serializers.BooleanField(help_text="Whether there is a page behind this one.")


class IncidentMade(RowSerializer):
    """An incident, by id and number."""

    id = IdOut("inc")
    pair = serializers.CharField(source="pair.code", allow_null=True)

    class Meta:
        model = Incident
        fields = ("id", "number", "cause", "pair", "detail")


class OpenedSerializer(serializers.Serializer):
    """Incidents of a report's findings: one for each pair and cause."""

    run = serializers.CharField(source="run.public_id", help_text="Whose findings they are about.")
    known = serializers.IntegerField(help_text="How many of them were open before, from the same run.")
    incidents = IncidentMade(many=True)


class AuditIncidentsBody(ReasonBody):
    """Which findings of the audit incidents are made of."""

    kinds = serializers.ListField(
        child=serializers.ChoiceField(choices=AUDIT_KINDS), required=False, help_text="Only of these; all if absent."
    )
    run = IdIn("run", required=False, help_text=SEEN)


class TimingDraftBody(OptionalReasonBody):
    """A draft of what the timing advice proposes."""

    run = IdIn("run", required=False, help_text=SEEN)


class Reports(Endpoint):
    """/reports"""

    get = shown(
        lambda: {"data": [described(one) for one in reports.overview()]},
        ReportsSerializer,
        id="reports_list",
        scope="reports:read",
        summary="All reports, and the runs whose results are shown",
        description="Of reconciliations the newest; GET /partner-logs has all of them.",
        whole_hub=True,
    )


class OneReport(Endpoint):
    """/reports/{job}"""

    get = shown(
        lambda job, scope, run: described(_shown(job, scope, run)),
        ReportDetailSerializer,
        id="reports_read",
        scope="reports:read",
        summary="One report: its run, its tables and their columns",
        path=_JOB,
        parameters=CHOICE,
        whole_hub=True,
    )


class ReportTable(Endpoint):
    """/reports/{job}/{table}"""

    content_negotiation_class = AnyOctets

    @operation(
        id="reports_rows",
        tag="reports",
        scope="reports:read",
        whole_hub=True,
        summary="Rows of a report, as pages of JSON or in one file",
        description=(
            "Pages are of one run: when another one is published in between, a cursor is refused; `run` keeps to one. "
            "CSV has the filters and the order that are asked for; Parquet is the file that the run wrote, without "
            "them. In CSV a text that a spreadsheet would take for a formula has an apostrophe in front."
        ),
        path={**_JOB, "table": "Name of the table, as the report has it."},
        parameters=(*CHOICE, *_documented(), SORT, FORMAT, *PAGING),
        responses={
            200: ReportRowsSerializer,
            (200, "text/csv"): OpenApiTypes.STR,
            (200, "application/vnd.apache.parquet"): OpenApiTypes.BINARY,
        },
        problems=("invalid_cursor", "cursor_mismatch", "not_acceptable"),
    )
    def get(self, request: Request, job: str, table: str) -> Response | StreamingHttpResponse | FileResponse:
        of = reports.table(reports.report(job), table)
        values = read_parameters(request, (*CHOICE, *_parameters(of), FORMAT, *PAGING))
        shown = _shown(job, values["scope"], values["run"])
        if shown.run is None:
            raise Problem("not_found", "This report has never been run: start a run of it first.")
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

    post = done(
        report_actions.audit_incidents,
        AuditIncidentsBody,
        OpenedSerializer,
        etag=False,
        id="reports_audit_incidents",
        scope="pipeline:run",
        summary="Create incidents from what the exactly-once audit found",
        description="One for each pair and kind of broken promise; findings that explain themselves make none. Asked "
        "again about the same run, it returns the incidents that are already open.",
        problems=("wrong_state",),
    )


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
        request=TimingDraftBody,
        responses={201: agreements.VersionDetailSerializer},
        problems=("wrong_state",),
    )
    def post(self, request: Request, agreement_id: str) -> Response:
        read_parameters(request, ())
        values = validated(TimingDraftBody, request.data)
        version = report_actions.timing_draft(
            agreement_id=id_of("agr", agreement_id),
            actor=actor_of(request),
            **values,
        )
        path = f"/api/v1/agreements/{version.agreement.public_id}/versions/{version.number}"
        data = agreements.version_detail(version)
        return item(request, data, revision=onboarding_content.revision(version), status=201, Location=path)


def _shown(job: str, scope: str | None, run: uuid.UUID | None) -> Shown:
    """Raises NotFound; Problem where a reconciliation is not named."""
    if job == PipelineJob.RECONCILE and not scope:
        errors = [{"parameter": "scope", "code": "required", "detail": "Say which partner's log: plog_..."}]
        raise Problem("invalid_parameter", "scope: say which partner's log (plog_...).", errors=errors)
    return reports.shown(job, scope=scope or "", run=f"run_{run.hex}" if run else "")


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
    answer = listing(
        request, values, page, lambda rows: [{name: _value(getattr(row, name)) for name in names} for row in rows]
    )
    answer.data = {"run": RunSerializer(shown.run).data, **answer.data}
    return answer


def _value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return str(value) if isinstance(value, date | uuid.UUID) else value


def described(shown: Shown) -> dict[str, Any]:
    """What ReportDetailSerializer shows of a report, and ReportSerializer in part."""
    job = shown.report.job.value
    query = f"?scope={shown.scope}" if shown.scope else ""
    return {
        "job": job,
        "title": shown.report.title,
        "question": shown.report.question,
        "scope": shown.scope,
        "run": shown.run,
        "failed": shown.failed,
        "active": shown.active,
        "tables": [
            {
                "name": table.name,
                "title": table.title,
                "filters": table.filters,
                "columns": reports.columns(table),
                "href": f"/api/v1/reports/{job}/{table.name}{query}",
            }
            for table in shown.report.tables
        ],
        "earlier": shown.earlier,
    }
