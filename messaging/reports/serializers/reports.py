"""Reports and runs of the data pipeline: representations and bodies."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from messaging.api.fields import IdIn, IdOut, Instant, OptionalReasonBody, ReasonBody, Text
from messaging.choices import Interface
from messaging.models import Incident, PipelineRun
from messaging.report_choices import PipelineJob, RunState
from messaging.reports.selectors import pipeline
from messaging.reports.selectors.reports import Column, Shown, columns
from messaging.reports.services.actions import AUDIT_KINDS, Opened
from rmhub import clock

ALL = "all"
STARTABLE = (ALL, *(job.value for job in pipeline.STARTABLE), PipelineJob.EXPORT.value)


class ArtifactSerializer(serializers.Serializer):
    """A file that a run wrote."""

    name = serializers.CharField()
    rows = serializers.IntegerField(allow_null=True)
    bytes = serializers.IntegerField()
    sha256 = serializers.CharField()
    href = serializers.CharField(help_text="Where it is downloaded.")


class RunSerializer(serializers.Serializer):
    """One run of one job."""

    id = IdOut("run")
    job = serializers.ChoiceField(choices=PipelineJob.choices)
    scope = serializers.CharField(help_text="What tells runs of one job apart: the partner's log, or the partner.")
    state = serializers.ChoiceField(choices=RunState.choices)
    parameters = serializers.DictField()
    requested_by = serializers.CharField()
    interface = serializers.ChoiceField(choices=Interface.choices)
    reason = serializers.CharField()
    range_from = serializers.DateTimeField(allow_null=True, help_text="Inclusive; null = from the beginning.")
    range_to = serializers.DateTimeField(allow_null=True, help_text="Exclusive; null = to the newest.")
    data_as_of = serializers.DateTimeField(
        allow_null=True, help_text="Everything committed before this is in the result."
    )
    cancel_requested = serializers.BooleanField()
    step = serializers.CharField(help_text="What it is doing, for people.")
    done = serializers.IntegerField(help_text="Of `total`, in the unit of the step.")
    total = serializers.IntegerField(help_text="0 = not known.")
    rows = serializers.IntegerField(allow_null=True, help_text="Rows published.")
    facts = serializers.DictField(help_text="Lineage: what was read, with which code, seconds by step.")
    artifacts = serializers.SerializerMethodField()
    error = serializers.CharField(help_text="One sentence; empty for a run that did not fail.")
    created_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)

    @extend_schema_field(ArtifactSerializer(many=True))
    def get_artifacts(self, run: PipelineRun) -> list[dict[str, Any]]:
        found = []
        for one in run.artifacts:
            href = f"/api/v1/pipeline-runs/{run.public_id}/artifacts/{one['name']}"
            kept = {name: one.get(name) for name in ("name", "rows", "bytes", "sha256")}
            found.append({**kept, "href": href})
        return found


class RunDetailSerializer(RunSerializer):
    """One run of one job, and how far it is."""

    error_detail = serializers.CharField(help_text="What was behind the error, for whoever repairs it.")
    percent = serializers.SerializerMethodField(help_text="Of the present step; null when that cannot be told.")
    seconds = serializers.SerializerMethodField(help_text="Since it began; null when it has not.")
    unclaimed = serializers.SerializerMethodField(
        help_text="It is due, nothing else runs, and no pipeline process takes it."
    )

    @extend_schema_field(serializers.IntegerField(allow_null=True))
    def get_percent(self, run: PipelineRun) -> int | None:
        return pipeline.progress(run, clock.now()).percent

    @extend_schema_field(serializers.FloatField(allow_null=True))
    def get_seconds(self, run: PipelineRun) -> float | None:
        return pipeline.progress(run, clock.now()).seconds

    def get_unclaimed(self, run: PipelineRun) -> bool:
        return pipeline.progress(run, clock.now(), busy=pipeline.busy()).unclaimed


class RunBody(OptionalReasonBody):
    """What is to be run. `all` = the extract, and every report after it."""

    job = serializers.ChoiceField(choices=STARTABLE)
    range_from = Instant(required=False, allow_null=True, help_text="Inclusive; reports and export only.")
    range_to = Instant(required=False, allow_null=True, help_text="Exclusive.")
    extract = serializers.BooleanField(
        required=False, help_text="A report: whether the lake is brought up to date first. True unless told."
    )
    party = IdIn("par", required=False, help_text="Export: the partner whose messages it is about.")
    agreement = IdIn("agr", required=False, help_text="Export: only those under this agreement.")


class RunsStartedSerializer(serializers.Serializer):
    """Runs that were queued, in the order in which they will be done."""

    data = RunSerializer(many=True)  # type: ignore[assignment]


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


class IncidentMade(serializers.Serializer):
    """An incident, by id and number."""

    id = IdOut("inc")
    number = serializers.IntegerField()
    cause = serializers.CharField()
    pair = serializers.SerializerMethodField()
    detail = serializers.CharField()

    @extend_schema_field(serializers.CharField(allow_null=True))
    def get_pair(self, incident: Incident) -> str | None:
        return incident.pair.code if incident.pair is not None else None


class OpenedSerializer(serializers.Serializer):
    """Incidents of a report's findings: one for each pair and cause."""

    run = serializers.CharField(help_text="Whose findings they are about.")
    known = serializers.IntegerField(help_text="How many of them were open before, from the same run.")
    incidents = IncidentMade(many=True)


class AuditIncidentsBody(ReasonBody):
    """Which findings of the audit incidents are made of."""

    kinds = serializers.ListField(
        child=serializers.ChoiceField(choices=AUDIT_KINDS), required=False, help_text="Only of these; all unless told."
    )
    run = IdIn("run", required=False, help_text="The run that you looked at: refused when another is shown by now.")


class TimingDraftBody(OptionalReasonBody):
    """A draft of what the timing advice proposes."""

    run = IdIn("run", required=False, help_text="The run that you looked at: refused when another is shown by now.")
    reason = Text(max_length=2000, required=False, allow_blank=True, default="", help_text="Why, for the audit log.")


def represent(shown: Shown) -> dict[str, Any]:
    """A report as ReportSerializer shows it."""
    job = shown.report.job.value
    query = f"?scope={shown.scope}" if shown.scope else ""
    return {
        "job": job,
        "title": shown.report.title,
        "question": shown.report.question,
        "scope": shown.scope,
        "run": _run(shown.run),
        "failed": _run(shown.failed),
        "active": _run(shown.active),
        "tables": [
            {
                "name": table.name,
                "title": table.title,
                "filters": list(table.filters),
                "columns": [_column(column) for column in columns(table)],
                "href": f"/api/v1/reports/{job}/{table.name}{query}",
            }
            for table in shown.report.tables
        ],
    }


def represent_one(shown: Shown) -> dict[str, Any]:
    """A report as ReportDetailSerializer shows it."""
    return {**represent(shown), "earlier": [_run(run) for run in shown.earlier]}


def represent_opened(opened: Opened) -> dict[str, Any]:
    """Incidents as OpenedSerializer shows them."""
    made = IncidentMade(opened.incidents, many=True).data
    return {"run": opened.run.public_id, "known": opened.known, "incidents": made}


def _run(run: PipelineRun | None) -> dict[str, Any] | None:
    return dict(RunSerializer(run).data) if run is not None else None


def _column(column: Column) -> dict[str, Any]:
    return dict(ColumnSerializer(column).data)
