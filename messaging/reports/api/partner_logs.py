"""Logs of partners: taken in, compared with ours, and what becomes of the findings."""

from __future__ import annotations

import json
from typing import Any

from django.conf import settings
from drf_spectacular.utils import OpenApiExample, OpenApiParameter
from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from messaging import keyset
from messaging.api.authentication import actor_of
from messaging.api.conditional import item
from messaging.api.endpoint import Endpoint, operation
from messaging.api.fields import page_of, validated
from messaging.api.pagination import PAGING, listing, read_list
from messaging.api.reading import Param, StrictJson, read_parameters
from messaging.api.references import agreement_id_of, id_of
from messaging.onboarding.serializers.agreements import LogColumnsBody
from messaging.report_choices import LogState
from messaging.reports.selectors import partner_logs
from messaging.reports.serializers import partner_logs as shapes
from messaging.reports.serializers.reports import OpenedSerializer, RunDetailSerializer, represent_opened
from messaging.reports.services import actions as report_actions
from messaging.reports.services import partner_logs as services

_PATH = {"log": "Id of the partner's log (`plog_...`)."}
# The text fields of the form, and what stands between the parts.
_OVERHEAD = 1024 * 1024
FILTERS = (
    Param("party", "Id of a party.", "id", prefix="par"),
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


class PartnerLogs(Endpoint):
    """/partner-logs"""

    parser_classes = (StrictJson, MultiPartParser)

    def body_limit(self) -> int:
        if (self.request.content_type or "").startswith("multipart/"):
            return int(settings.RMHUB_PARTNER_LOG_MAX_BYTES) + _OVERHEAD
        return self.max_body

    @operation(
        id="partner_logs_list",
        tag="reports",
        scope="reports:read",
        summary="List partners' logs, newest first",
        parameters=(*FILTERS, *PAGING),
        responses={200: page_of(shapes.PartnerLogSerializer)},
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
        return listing(request, values, page, lambda rows: shapes.represent(partner_logs.log_rows(rows)))

    @operation(
        id="partner_logs_create",
        tag="reports",
        scope="pipeline:run",
        summary="Hand in a partner's log",
        description=(
            "CSV in UTF-8 with a header (delimiter , ; tab or |), or Parquet. The same octets of the same partner are "
            "one log: a repeat answers 200 and the log that is there. Compare it with POST "
            "/partner-logs/{log}/reconcile."
        ),
        request={"multipart/form-data": shapes.LogForm},
        responses={200: shapes.PartnerLogDetailSerializer, 201: shapes.PartnerLogDetailSerializer},
        problems=("length_required",),
        headers=(_LOCATION,),
    )
    def post(self, request: Request) -> Response:
        read_parameters(request, ())
        values = validated(shapes.LogForm, request.data)
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

    @operation(
        id="partner_logs_read",
        tag="reports",
        scope="reports:read",
        summary="One log of a partner, and what its comparison found",
        path=_PATH,
        responses={200: shapes.PartnerLogDetailSerializer},
    )
    def get(self, request: Request, log: str) -> Response:
        read_parameters(request, ())
        return _answer(request, log)


class ReconcileLog(Endpoint):
    """/partner-logs/{log}/reconcile"""

    @operation(
        id="partner_logs_reconcile",
        tag="reports",
        scope="pipeline:run",
        summary="Compare a partner's log with ours",
        description="202 says that the run is queued. Its findings are the report `reconcile` with the log as `scope`.",
        path=_PATH,
        request=shapes.ReconcileBody,
        responses={202: RunDetailSerializer},
        problems=("wrong_state",),
        headers=(_RUN,),
        examples=(_EXAMPLE,),
    )
    def post(self, request: Request, log: str) -> Response:
        read_parameters(request, ())
        values = validated(shapes.ReconcileBody, request.data)
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

    @operation(
        id="partner_logs_incidents",
        tag="reports",
        scope="pipeline:run",
        summary="Make incidents of what the comparison found",
        description="One for each pair and verdict, with MessageIds as evidence. Asked again about the same run, it "
        "answers the incidents that are open already.",
        path=_PATH,
        request=shapes.LogIncidentsBody,
        responses={200: OpenedSerializer},
        problems=("wrong_state",),
    )
    def post(self, request: Request, log: str) -> Response:
        read_parameters(request, ())
        values = validated(shapes.LogIncidentsBody, request.data)
        opened = report_actions.log_incidents(
            log_id=id_of("plog", log),
            actor=actor_of(request),
            reason=values["reason"],
            verdicts=values.get("verdicts", ()),
            run_id=values.get("run"),
        )
        return Response(represent_opened(opened))


def _columns(text: str) -> dict[str, Any]:
    """The mapping in a field of a form. Raises ValidationError."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValidationError({"columns": [ErrorDetail(f"This is no JSON: {error}", code="invalid")]}) from error
    if not isinstance(given, dict):
        raise ValidationError({"columns": [ErrorDetail("An object, please.", code="invalid")]})
    try:
        return validated(LogColumnsBody, given)
    except ValidationError as error:
        raise ValidationError({"columns": error.detail}) from error


def _answer(request: Request, log: str, *, status: int = 200, **headers: str) -> Response:
    found = partner_logs.log(id_of("plog", log))
    (row,) = partner_logs.log_rows([found])
    return item(request, shapes.represent_one(row), status=status, **headers)
