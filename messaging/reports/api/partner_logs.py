"""Logs of partners: taken in, compared with ours, and what becomes of the findings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

from django.conf import settings
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from messaging import keyset
from messaging.api.authentication import actor_of
from messaging.api.conditional import item
from messaging.api.endpoint import Endpoint, operation
from messaging.api.fields import (
    Flag,
    IdIn,
    IdOut,
    Instant,
    OptionalReasonBody,
    ReasonBody,
    RowSerializer,
    Text,
    page_of,
    validated,
)
from messaging.api.handlers import done
from messaging.api.named import AgreementNamed, PartyRef
from messaging.api.pagination import PAGING, listing, read_list
from messaging.api.reading import Param, StrictJson, read_parameters
from messaging.api.references import agreement_id_of, id_of
from messaging.models import PartnerLog
from messaging.onboarding.serializers.agreements import LogColumnsBody, LogColumnsSerializer
from messaging.report_choices import LogState, Verdict
from messaging.reports.api.pipeline import RunDetailSerializer, RunSerializer
from messaging.reports.api.reports import SEEN, OpenedSerializer
from messaging.reports.selectors import pipeline as partner_logs
from messaging.reports.selectors.pipeline import LogRow
from messaging.reports.services import actions as report_actions
from messaging.reports.services import partner_logs as services
from messaging.reports.services.actions import VERDICTS

_operation = partial(operation, tag="reports")
_COVERS = PartnerLog._meta.get_field("range_from").help_text
_PATH = {"log": "Id of the partner's log (`plog_...`)."}
# The text fields of the form, and what stands between the parts.
_OVERHEAD = 1024 * 1024
FILTERS = (
    Param("party", "Id, name or identifier of a party.", "party"),
    Param("agreement", "Id or TPAId of an agreement."),
    Param("state", "States, comma separated.", "choices", choices=tuple(LogState.values)),
)
_LOCATION = OpenApiParameter("Location", str, OpenApiParameter.HEADER, response=[201], description="The log.")
_RUN = OpenApiParameter("Location", str, OpenApiParameter.HEADER, response=[202], description="The run.")
_EXAMPLE = OpenApiExample(
    "A partner's own names",
    value={
        "columns": {
            "message_id": "MsgId",
            "direction": "Way",
            "at": "LoggedAt",
            "digest": "PayloadHash",
            "digest_of": "payload",
            "sent_values": ["TX"],
            "received_values": ["RX"],
        },
        "range_from": "2026-10-01T00:00:00Z",
        "range_to": "2026-11-01T00:00:00Z",
        "reason": "October",
    },
    request_only=True,
)


class LogForm(OptionalReasonBody):
    """A partner's log as a form: the part `file` is the log, CSV (UTF-8) or Parquet."""

    party = IdIn("par", help_text="Whose log it is.")
    agreement = IdIn("agr", required=False, help_text="The agreement that it is about; all with the partner if absent.")
    file = serializers.FileField(max_length=1000, allow_empty_file=True)
    columns = Text(
        max_length=20_000,
        required=False,
        help_text="The mapping of the columns as JSON, see LogColumnsBody; that of the agreement if absent.",
    )
    range_from = Instant(required=False, help_text=_COVERS)
    range_to = Instant(required=False, help_text="Exclusive.")


class ReconcileBody(OptionalReasonBody):
    """How a log is compared; what is given is kept with the log."""

    columns = LogColumnsBody(required=False)
    range_from = Instant(required=False, allow_null=True, help_text=_COVERS)
    range_to = Instant(required=False, allow_null=True, help_text="Exclusive.")
    skip_unreadable = Flag(
        required=False,
        default=False,
        help_text="Compare without the rows that cannot be read. Otherwise one of them fails the run: its message "
        "would count as lost.",
    )


class LogIncidentsBody(ReasonBody):
    """Which findings of a comparison incidents are made of."""

    verdicts = serializers.ListField(
        child=serializers.ChoiceField(choices=VERDICTS), required=False, help_text="Only of these; all if absent."
    )
    run = IdIn("run", required=False, help_text=SEEN)


class PartnerLogSerializer(RowSerializer):
    """A log that a partner sent."""

    id = IdOut("plog")
    party = PartyRef()
    agreement = AgreementNamed(allow_null=True)
    columns = LogColumnsSerializer()
    verdicts = serializers.SerializerMethodField(help_text="How many messages have which verdict.")
    run = serializers.SerializerMethodField(help_text="The newest comparison; null before the first.")
    report = serializers.SerializerMethodField(help_text="Where the findings are; null before the first.")

    class Meta:
        model = PartnerLog
        fields: tuple[str, ...] = (
            *("id", "party", "agreement", "state", "error", "source", "filename", "format", "size", "sha256"),
            *("columns", "range_from", "range_to", "rows", "uploaded_by", "created_at", "verdicts", "run", "report"),
        )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.row: LogRow | None = kwargs.pop("row", None)
        super().__init__(*args, **kwargs)

    @extend_schema_field(serializers.DictField(child=serializers.IntegerField()))
    def get_verdicts(self, log: PartnerLog) -> dict[str, int]:
        known = self.row.verdicts if self.row else {}
        return {verdict: known[verdict] for verdict in Verdict.values if verdict in known}

    @extend_schema_field(RunSerializer(allow_null=True))
    def get_run(self, log: PartnerLog) -> dict[str, Any] | None:
        run = self.row.latest if self.row else None
        return dict(RunSerializer(run).data) if run is not None else None

    @extend_schema_field(serializers.CharField(allow_null=True))
    def get_report(self, log: PartnerLog) -> str | None:
        has = self.row is not None and self.row.published is not None
        return f"/api/v1/reports/reconcile?scope={log.public_id}" if has else None


class PartnerLogDetailSerializer(PartnerLogSerializer):
    """A log that a partner sent, and what keeps it from being compared."""

    problems = serializers.SerializerMethodField(help_text="What to map; empty when it can be compared.")

    class Meta(PartnerLogSerializer.Meta):
        fields = (*PartnerLogSerializer.Meta.fields, "problems")

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_problems(self, log: PartnerLog) -> list[str]:
        return list(services.fit(log))


class PartnerLogs(Endpoint):
    """/partner-logs"""

    parser_classes = (StrictJson, MultiPartParser)

    def body_limit(self) -> int:
        if (self.request.content_type or "").startswith("multipart/"):
            return int(settings.RMHUB_PARTNER_LOG_MAX_BYTES) + _OVERHEAD
        return self.max_body

    @_operation(
        id="partner_logs_list",
        scope="reports:read",
        summary="List partners' logs, newest first",
        parameters=(*FILTERS, *PAGING),
        responses={200: page_of(PartnerLogSerializer)},
        problems=("invalid_cursor", "cursor_mismatch"),
    )
    def get(self, request: Request) -> Response:
        values, limit, place = read_list(request, FILTERS)
        found = partner_logs.logs(
            party_id=values["party"],
            agreement_id=agreement_id_of(values["agreement"]),
            states=values["state"] or (),
        )
        page = keyset.page(found, order=("-id",), limit=limit, place=place)

        def represent(rows: Sequence[PartnerLog]) -> list[dict[str, Any]]:
            return [dict(PartnerLogSerializer(row.log, row=row).data) for row in partner_logs.log_rows(rows)]

        return listing(request, values, page, represent)

    @_operation(
        id="partner_logs_create",
        scope="pipeline:run",
        summary="Submit a partner's log",
        description=(
            "CSV in UTF-8 with a header (delimiter , ; tab or |), or Parquet. The same octets of the same partner are "
            "one log: a repeat answers 200 and the log that is there. Compare it with POST "
            "/partner-logs/{log}/reconcile."
        ),
        request={"multipart/form-data": LogForm},
        responses={200: PartnerLogDetailSerializer, 201: PartnerLogDetailSerializer},
        problems=("length_required",),
        headers=(_LOCATION,),
    )
    def post(self, request: Request) -> Response:
        read_parameters(request, ())
        values = validated(LogForm, request.data)
        file = values["file"]
        received = services.log_receive(
            party_id=values["party"],
            agreement_id=values.get("agreement"),
            chunks=file.chunks(1024 * 1024),
            filename=file.name or "log",
            columns=_columns(values["columns"]) if "columns" in values else None,
            range_from=values.get("range_from"),
            range_to=values.get("range_to"),
            actor=actor_of(request),
            reason=values["reason"],
        )
        headers = {"Location": f"/api/v1/partner-logs/{received.log.public_id}"}
        return _answer(request, received.log.public_id, status=201 if received.created else 200, **headers)


class OnePartnerLog(Endpoint):
    """/partner-logs/{log}"""

    @_operation(
        id="partner_logs_read",
        scope="reports:read",
        summary="One log of a partner, and what its comparison found",
        path=_PATH,
        responses={200: PartnerLogDetailSerializer},
    )
    def get(self, request: Request, log: str) -> Response:
        read_parameters(request, ())
        return _answer(request, log)


class ReconcileLog(Endpoint):
    """/partner-logs/{log}/reconcile"""

    @_operation(
        id="partner_logs_reconcile",
        scope="pipeline:run",
        summary="Compare a partner's log with ours",
        description="202 says that the run is queued. Its findings are the report `reconcile` with the log as `scope`.",
        path=_PATH,
        request=ReconcileBody,
        responses={202: RunDetailSerializer},
        problems=("wrong_state",),
        headers=(_RUN,),
        examples=(_EXAMPLE,),
    )
    def post(self, request: Request, log: str) -> Response:
        read_parameters(request, ())
        values = validated(ReconcileBody, request.data)
        covers = {name: values.pop(name) for name in ("range_from", "range_to") if name in values}
        run = services.log_reconcile(
            log_id=id_of("plog", log),
            actor=actor_of(request),
            covers=(covers.get("range_from"), covers.get("range_to")) if covers else None,
            **values,
        )
        headers = {"Location": f"/api/v1/pipeline-runs/{run.public_id}"}
        return item(request, RunDetailSerializer(run).data, status=202, **headers)


class LogIncidents(Endpoint):
    """/partner-logs/{log}/incidents"""

    post = done(
        lambda log, **given: report_actions.log_incidents(log_id=id_of("plog", log), **given),
        LogIncidentsBody,
        OpenedSerializer,
        etag=False,
        id="partner_logs_incidents",
        tag="reports",
        scope="pipeline:run",
        summary="Create incidents from what the comparison found",
        description="One for each pair and verdict, with MessageIds as evidence. Asked again about the same run, it "
        "returns the incidents that are already open.",
        path=_PATH,
        problems=("wrong_state",),
    )


def _columns(text: str) -> dict[str, Any]:
    """The mapping in a field of a form. Raises ValidationError."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValidationError({"columns": [ErrorDetail(f"This is not JSON: {error}", code="invalid")]}) from error
    if not isinstance(given, dict):
        raise ValidationError({"columns": [ErrorDetail("An object, please.", code="invalid")]})
    try:
        return validated(LogColumnsBody, given)
    except ValidationError as error:
        raise ValidationError({"columns": error.detail}) from error


def _answer(request: Request, log: str, *, status: int = 200, **headers: str) -> Response:
    found = partner_logs.log(id_of("plog", log))
    (row,) = partner_logs.log_rows([found])
    return item(request, dict(PartnerLogDetailSerializer(row.log, row=row).data), status=status, **headers)
