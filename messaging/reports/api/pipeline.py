"""Runs of the data pipeline, the files that they wrote, and the last hour as the live watch counted it."""

from __future__ import annotations

from typing import Any

from django.http import FileResponse
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from messaging import keyset
from messaging.api.authentication import actor_of
from messaging.api.endpoint import OCTETS, AnyOctets, Endpoint, operation
from messaging.api.fields import IdIn, IdOut, Instant, OptionalReasonBody, RowSerializer, validated
from messaging.api.handlers import done, listed, shown
from messaging.api.pagination import PAGING, listing, read_list
from messaging.api.reading import Param, read_parameters
from messaging.api.references import id_of
from messaging.choices import Direction
from messaging.exceptions import InvalidSubmission
from messaging.models import Incident, PipelineRun
from messaging.report_choices import PipelineJob, RunState
from messaging.reports.selectors import pipeline
from messaging.reports.selectors.pipeline import PairHour, WatchState
from messaging.reports.services import partner_logs
from messaging.reports.services import runs as pipeline_runs
from rmhub import clock

ALL = "all"
STARTABLE = (ALL, *(job.value for job in pipeline.STARTABLE), PipelineJob.EXPORT.value)
_PATH = {"run": "Id of the run (`run_...`)."}
FILTERS = (
    Param("job", "Jobs, comma separated.", "choices", choices=tuple(PipelineJob.values)),
    Param("state", "States, comma separated.", "choices", choices=tuple(RunState.values)),
    Param("scope", "Exact: the partner's log of a reconciliation."),
)
_LOCATION = OpenApiParameter("Location", str, OpenApiParameter.HEADER, response=[202], description="The first run.")
_EXAMPLES = (
    OpenApiExample("All reports", value={"job": "all", "reason": "month's end"}, request_only=True),
    OpenApiExample(
        "Our log for a partner",
        value={
            "job": "export",
            "party": "par_0192f3f2f3e47a5fb0c1d2e3f4a5b6c7",
            "range_from": "2026-10-01T00:00:00Z",
            "range_to": "2026-11-01T00:00:00Z",
        },
        request_only=True,
    ),
)


class ArtifactSerializer(serializers.Serializer):
    """A file that a run wrote."""

    name = serializers.CharField()
    rows = serializers.IntegerField(allow_null=True)
    bytes = serializers.IntegerField()
    sha256 = serializers.CharField()
    href = serializers.CharField(help_text="Where it is downloaded.")


class RunSerializer(RowSerializer):
    """One run of one job."""

    id = IdOut("run")
    parameters = serializers.DictField()
    facts = serializers.DictField(help_text=PipelineRun._meta.get_field("facts").help_text)
    artifacts = serializers.SerializerMethodField()

    class Meta:
        model = PipelineRun
        fields: tuple[str, ...] = (
            *("id", "job", "scope", "state", "parameters", "requested_by", "interface", "reason", "range_from"),
            *("range_to", "data_as_of", "cancel_requested", "step", "done", "total", "rows", "facts", "artifacts"),
            *("error", "created_at", "started_at", "finished_at"),
        )

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

    percent = serializers.SerializerMethodField(help_text="Of the present step; null when that cannot be told.")
    seconds = serializers.SerializerMethodField(help_text="Since it began; null when it has not.")
    unclaimed = serializers.SerializerMethodField(
        help_text="It is due, nothing else runs, and no pipeline process takes it."
    )

    class Meta(RunSerializer.Meta):
        fields = (*RunSerializer.Meta.fields, "error_detail", "percent", "seconds", "unclaimed")

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
        required=False, help_text="A report: whether the lake is brought up to date first. True if absent."
    )
    party = IdIn("par", required=False, help_text="Export: the partner whose messages it is about.")
    agreement = IdIn("agr", required=False, help_text="Export: only those under this agreement.")


class RunsStartedSerializer(serializers.Serializer):
    """Runs that were queued, in the order in which they will be done."""

    data = RunSerializer(many=True)  # type: ignore[assignment]


class PipelineRuns(Endpoint):
    """/pipeline-runs"""

    get = listed(
        lambda job=(), state=(), scope=None: pipeline.runs(jobs=job, states=state, scope=scope),
        RunSerializer,
        order=("-id",),
        filters=FILTERS,
        id="pipeline_runs_list",
        tag="pipeline",
        scope="reports:read",
        summary="List runs, newest first",
        whole_hub=True,
    )

    @operation(
        id="pipeline_runs_start",
        tag="pipeline",
        scope="pipeline:run",
        summary="Ask for a run, or for all",
        description=(
            "202 says that the runs are queued; a pipeline process does them one after the other. What waits or runs "
            "already is not queued twice. A partner's log is compared by POST /partner-logs/{log}/reconcile."
        ),
        request=RunBody,
        responses={202: RunsStartedSerializer},
        problems=("wrong_state",),
        headers=(_LOCATION,),
        examples=_EXAMPLES,
    )
    def post(self, request: Request) -> Response:
        read_parameters(request, ())
        runs = _started(request, validated(RunBody, request.data))
        headers = {"Location": f"/api/v1/pipeline-runs/{runs[0].public_id}"}
        return Response({"data": RunSerializer(runs, many=True).data}, status=202, headers=headers)


class OnePipelineRun(Endpoint):
    """/pipeline-runs/{run}"""

    get = shown(
        lambda run: pipeline.run(id_of("run", run)),
        RunDetailSerializer,
        id="pipeline_runs_read",
        tag="pipeline",
        scope="reports:read",
        summary="One run: how far it is, or where its results come from",
        path=_PATH,
        whole_hub=True,
    )


class CancelPipelineRun(Endpoint):
    """/pipeline-runs/{run}/cancel"""

    post = done(
        lambda run, **given: pipeline_runs.run_cancel(run_id=id_of("run", run), **given),
        OptionalReasonBody,
        RunDetailSerializer,
        id="pipeline_runs_cancel",
        tag="pipeline",
        scope="pipeline:run",
        summary="Cancel a run: it publishes nothing, and what was shown before stays",
        path=_PATH,
        problems=("wrong_state",),
    )


class PipelineArtifact(Endpoint):
    """/pipeline-runs/{run}/artifacts/{name}"""

    content_negotiation_class = AnyOctets

    @operation(
        id="pipeline_runs_artifact",
        tag="pipeline",
        scope="reports:read",
        whole_hub=True,
        summary="Download a file that a run wrote",
        path={**_PATH, "name": "Name of the file, as `artifacts` of the run has it."},
        responses={(200, "*/*"): OCTETS[(200, "*/*")]},
    )
    def get(self, request: Request, run: str, name: str) -> FileResponse:
        read_parameters(request, ())
        return file_of(pipeline.run(id_of("run", run)), name)


def file_of(run: PipelineRun, name: str, *, shown_as: str = "") -> FileResponse:
    """A file that a run wrote, as an attachment that no browser interprets. Raises NotFound."""
    path = pipeline.artifact(run, name)
    entry = next(one for one in run.artifacts if one["name"] == name)
    answer = FileResponse(path.open("rb"), as_attachment=True, filename=shown_as or name)
    answer["Content-Type"] = "text/csv; charset=utf-8" if name.endswith(".csv") else "application/vnd.apache.parquet"
    answer["ETag"] = f'"{str(entry["sha256"])[:32]}"'
    answer["Cache-Control"] = "private, no-cache"
    answer["X-Content-Type-Options"] = "nosniff"
    answer["Content-Security-Policy"] = "default-src 'none'; sandbox"
    return answer


def _started(request: Request, values: dict[str, Any]) -> list[PipelineRun]:
    """Raises InvalidSubmission for members that the job does not take."""
    job, actor = values["job"], actor_of(request)
    asked = {"actor": actor, "reason": values["reason"]}
    asked |= {name: values[name] for name in ("range_from", "range_to") if name in values}
    of_export = [name for name in ("party", "agreement") if name in values]
    if job == PipelineJob.EXPORT:
        if "extract" in values:
            raise InvalidSubmission({"extract": ["An export always brings the lake up to date first: leave it out."]})
        if "party" not in values:
            raise InvalidSubmission({"party": ["Say whose messages the export is about."]})
        return [partner_logs.export_request(party_id=values["party"], agreement_id=values.get("agreement"), **asked)]
    if of_export:
        raise InvalidSubmission({name: ["Only the job `export` takes it: leave it out."] for name in of_export})
    if job == ALL:
        if "extract" in values:
            raise InvalidSubmission({"extract": ["`all` begins with the extract: leave it out."]})
        return pipeline_runs.run_all_request(**asked)
    parameters = {"extract": values["extract"]} if "extract" in values else {}
    return [pipeline_runs.run_request(job=job, parameters=parameters, **asked)]


class LiveRangeSerializer(serializers.Serializer):
    """What is usual by the pair's own past, and the limit above which an incident is opened."""

    usual = serializers.FloatField(source="middle")
    limit = serializers.FloatField()


class LiveMinuteSerializer(serializers.Serializer):
    """One minute of a pair."""

    at = serializers.DateTimeField()
    volume = serializers.IntegerField(help_text="Messages that were delivered (outbound), or that came (inbound).")
    failures = serializers.IntegerField(help_text="Attempts that failed, messages given up, messages refused.")
    acknowledgements = serializers.IntegerField(source="acks")
    seconds_to_acknowledge = serializers.FloatField(source="latency", allow_null=True, help_text="Mean.")


class LiveIncidentRef(RowSerializer):
    """An anomaly that is not resolved."""

    id = IdOut("inc")

    class Meta:
        model = Incident
        fields = ("id", "number", "cause", "detail", "opened_at")


class LivePairSerializer(serializers.Serializer):
    """The last hour of one pair."""

    pair = IdOut("pair", source="pair.pk")
    code = serializers.CharField(source="pair.code")
    direction = serializers.ChoiceField(choices=Direction.choices, source="pair.direction")
    partner = serializers.CharField(source="pair.partner.name")
    accepted = serializers.IntegerField(help_text="Submitted by our applications.")
    volume = serializers.IntegerField(help_text="Messages that were delivered (outbound), or that came (inbound).")
    failures = serializers.IntegerField()
    failure_rate = serializers.FloatField(allow_null=True)
    seconds_to_acknowledge = serializers.FloatField(source="latency", allow_null=True, help_text="Mean.")
    longest_to_acknowledge = serializers.FloatField(source="longest", allow_null=True)
    usual_seconds_to_acknowledge = LiveRangeSerializer(source="usual.latency", allow_null=True)
    usual_failure_rate = LiveRangeSerializer(source="usual.failure_rate", allow_null=True)
    silent_after_seconds = serializers.SerializerMethodField(
        help_text="How long an inbound pair may be silent before an incident is opened; null: no rhythm is known."
    )
    anomalies = LiveIncidentRef(many=True, source="incidents")
    minutes = LiveMinuteSerializer(many=True)

    @extend_schema_field(serializers.FloatField(allow_null=True))
    def get_silent_after_seconds(self, hour: PairHour) -> float | None:
        limit = hour.usual.silence_limit
        return None if limit is None else limit.total_seconds()


class LiveSerializer(serializers.Serializer):
    """A page of pairs with traffic in the last hour, and whether the counts are current."""

    state = serializers.ChoiceField(choices=[state.value for state in WatchState])
    sentence = serializers.CharField(help_text="What the state means, for a person.")
    data_as_of = serializers.DateTimeField(allow_null=True, help_text="All that was committed before is counted.")
    begin = serializers.DateTimeField(help_text="Of the hour that is shown.")
    end = serializers.DateTimeField()
    data = LivePairSerializer(many=True)  # type: ignore[assignment]
    next_cursor = serializers.CharField(allow_null=True)
    prev_cursor = serializers.CharField(allow_null=True)
    has_more = serializers.BooleanField()


class Live(Endpoint):
    """/live"""

    @operation(
        id="live_read",
        tag="live",
        scope="reports:read",
        summary="The last hour by pair, beside what is usual",
        description="Pairs with traffic in the hour before `data_as_of`, those with anomalies first. While `state` is "
        "not `live`, the counts are old and no anomaly is raised.",
        parameters=PAGING,
        responses={200: LiveSerializer},
        problems=("invalid_cursor", "cursor_mismatch"),
    )
    def get(self, request: Request) -> Response:
        values, limit, place = read_list(request, ())
        shown = pipeline.live_watch(clock.now())
        page = keyset.page(pipeline.watched_pairs(shown), order=("calm", "code"), limit=limit, place=place)
        answer = listing(
            request,
            values,
            page,
            lambda rows: list(LivePairSerializer(pipeline.last_hours(rows, shown), many=True).data),
        )
        answer.data = {
            "state": shown.state.value,
            "sentence": shown.sentence,
            "data_as_of": shown.as_of,
            "begin": shown.begin,
            "end": shown.end,
            **answer.data,
        }
        return answer
