"""Bulk operations: one action over many objects, planned, then executed, with progress and a result for each."""

from __future__ import annotations

import uuid
from typing import Any

from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter
from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from messaging import keyset
from messaging.access.selectors.reach import read_id
from messaging.api.authentication import Access, access_of, actor_of
from messaging.api.conditional import item
from messaging.api.endpoint import OCTETS, AnyOctets, Endpoint, operation
from messaging.api.fields import ReasonBody, page_of, validated
from messaging.api.handlers import listed, shown
from messaging.api.pagination import PAGING, listing, read_list
from messaging.api.permissions import HasScope
from messaging.api.problems import Problem
from messaging.api.reading import Param, read_parameters
from messaging.api.references import id_of
from messaging.bulk import selectors as jobs
from messaging.bulk import serializers as shapes
from messaging.bulk.services.export import job_export
from messaging.bulk.services.jobs import (
    ACTIONS,
    Action,
    job_cancel,
    job_create,
    job_discard,
    job_execute,
    job_plan,
    job_retry,
)
from messaging.choices import ItemState, JobState
from messaging.exceptions import WrongState
from messaging.journal import audit
from messaging.models import BulkJob
from rmhub.ids import BadPublicId
from rmhub.roles import role_of

_PATH = {"job": "Id of the bulk operation (`job_...`)."}
_ACTIONS = frozenset(action.scope for action in ACTIONS.values())
_READS: dict[str, Any] = {"tag": "bulk-operations", "scope": "deliveries:read"}
# Whoever has one of the actions' scopes gets to the view, which asks for that of the action.
_ACTS: dict[str, Any] = {"tag": "bulk-operations", "scope": "indoubt:resolve"}
ITEM_FILTERS = (Param("state", "States, comma separated.", "choices", choices=tuple(ItemState.values)),)
_LOCATION = OpenApiParameter("Location", str, OpenApiParameter.HEADER, response=[201, 202], description="Where it is.")
_SCOPES = "Each action needs its own scope, as the same verb does for one object: " + ", ".join(
    f"`{name}` {action.scope}" for name, action in sorted(ACTIONS.items())
)
_EXAMPLES = (
    OpenApiExample(
        "A plan over one evidence group",
        value={
            "action": "settle_messages",
            "decision": "delivered",
            "filter": {"answer": "processed"},
        },
        request_only=True,
    ),
    OpenApiExample(
        "Executed at once",
        value={
            "action": "settle_deliveries",
            "decision": "duplicate",
            "filter": {"trigger": "trg_0192f3f2f3e47a5fb0c1d2e3f4a5b6c7", "doubt": "started_not_completed"},
            "expected": 38,
            "reason": "The ERP's journal has all of them",
        },
        request_only=True,
    ),
)


class _HasScopeOfAction(HasScope):
    def has_permission(self, request: Request, view: APIView) -> bool:
        if request.method in ("POST", "DELETE") and isinstance(request.auth, Access):
            return bool(_ACTIONS & request.auth.scopes) or super().has_permission(request, view)
        return super().has_permission(request, view)


class _Jobs(Endpoint):
    permission_classes = (_HasScopeOfAction,)


class Jobs(_Jobs):
    """/bulk-operations"""

    get = listed(
        lambda state=(), action="": jobs.jobs(states=tuple(state), action=action),
        shapes.JobSerializer,
        order=("-id",),
        filters=(
            Param("state", "States, comma separated.", "choices", choices=tuple(JobState.values)),
            Param("action", "Exact name.", "choice", choices=tuple(sorted(ACTIONS))),
        ),
        id="bulk_operations_list",
        **_READS,
        summary="List bulk operations, newest first",
    )

    @operation(
        id="bulk_operations_plan",
        **_ACTS,
        summary="Plan one action over many objects",
        description=(
            "Give either `ids` or a `filter`. What is meant is fixed at once and nothing is done: 201 with `matched`, "
            "`groups`, a `sample` and `expires_at`. With a `reason` it is executed at once, as POST .../execute does: "
            "202 says that it is stored and will be done; with `expected`, a group that has grown or shrunk since you "
            "looked is refused (412). Decisions about what is in doubt are about one evidence group: trigger and "
            "`doubt` of deliveries, pair and `cause` of messages, or one `answer` of the partners. " + _SCOPES
        ),
        request=shapes.PlanBody,
        responses={201: shapes.JobSerializer, 202: shapes.JobSerializer},
        problems=("stale",),
        headers=(_LOCATION,),
        examples=_EXAMPLES,
    )
    def post(self, request: Request) -> Response:
        read_parameters(request, ())
        named = request.data.get("action") if isinstance(request.data, dict) else None
        if isinstance(named, str) and named in ACTIONS:
            _require(request, named)
        values = validated(shapes.PlanBody, request.data)
        kind = ACTIONS[values["action"]]
        wanted = _wanted(kind, values)
        common = {
            "action": values["action"],
            "parameters": {name: values[name] for name in shapes.PARAMETERS if name in values},
            "actor": actor_of(request),
            **wanted,
        }
        if "reason" in values:
            made = job_create(**common, reason=values["reason"], expected=values.get("expected"))
            return _answer(request, made, 202)
        if "expected" in values:
            raise ValidationError({"expected": [ErrorDetail("Give it with a reason, or to execute.", code="invalid")]})
        return _answer(request, job_plan(**common), 201)


class OneJob(_Jobs):
    """/bulk-operations/{job}"""

    get = shown(
        lambda job: jobs.job(id_of("job", job)),
        shapes.JobSerializer,
        id="bulk_operations_read",
        **_READS,
        summary="One bulk operation and how far it is",
        path=_PATH,
    )

    @operation(
        id="bulk_operations_discard",
        **_ACTS,
        summary="Throw a plan away",
        description="Of what is planned only, and nothing was done yet; what has begun is cancelled. " + _SCOPES,
        path=_PATH,
        responses={204: None},
        problems=("wrong_state",),
    )
    def delete(self, request: Request, job: str) -> Response:
        read_parameters(request, ())
        found = _job(request, job)
        job_discard(job_id=found.pk)
        return Response(status=204)


class ExecuteJob(_Jobs):
    """/bulk-operations/{job}/execute"""

    @operation(
        id="bulk_operations_execute",
        **_ACTS,
        summary="Begin a planned bulk operation",
        description=(
            "`expect_count` is the plan's `matched`; another number is refused (412). A plan is begun once: again is "
            "409. " + _SCOPES
        ),
        path=_PATH,
        request=shapes.ExecuteBody,
        responses={202: shapes.JobSerializer},
        problems=("wrong_state", "stale"),
        headers=(_LOCATION,),
    )
    def post(self, request: Request, job: str) -> Response:
        read_parameters(request, ())
        found = _job(request, job)
        values = validated(shapes.ExecuteBody, request.data)
        begun = job_execute(
            job_id=found.pk,
            expect_count=values["expect_count"],
            actor=actor_of(request),
            reason=values["reason"],
            parameters={name: values[name] for name in shapes.PARAMETERS if name in values},
        )
        return _answer(request, begun, 202)


class RetryJob(_Jobs):
    """/bulk-operations/{job}/retry"""

    @operation(
        id="bulk_operations_retry",
        **_ACTS,
        summary="Plan the same for what was refused",
        description="Of a bulk operation that has ended; the new plan is executed like any other. " + _SCOPES,
        path=_PATH,
        request=shapes.RetryBody,
        responses={201: shapes.JobSerializer},
        problems=("wrong_state",),
        headers=(_LOCATION,),
    )
    def post(self, request: Request, job: str) -> Response:
        read_parameters(request, ())
        found = _job(request, job)
        values = validated(shapes.RetryBody, request.data)
        return _answer(request, job_retry(job_id=found.pk, actor=actor_of(request), parameters=values), 201)


class CancelJob(_Jobs):
    """/bulk-operations/{job}/cancel"""

    @operation(
        id="bulk_operations_cancel",
        **_ACTS,
        summary="End a bulk operation: what is done stays done",
        description=_SCOPES,
        path=_PATH,
        request=ReasonBody,
        responses={200: shapes.JobSerializer},
        problems=("wrong_state",),
    )
    def post(self, request: Request, job: str) -> Response:
        read_parameters(request, ())
        known = _job(request, job)
        values = validated(ReasonBody, request.data)
        found = job_cancel(job_id=known.pk, actor=actor_of(request), **values)
        return _answer(request, jobs.job(found.pk))


class JobItems(Endpoint):
    """/bulk-operations/{job}/items"""

    @operation(
        id="bulk_operations_items",
        **_READS,
        summary="The result for each object of a bulk operation",
        path=_PATH,
        parameters=(*ITEM_FILTERS, *PAGING),
        responses={200: page_of(shapes.JobItemSerializer)},
        problems=("invalid_cursor", "cursor_mismatch"),
    )
    def get(self, request: Request, job: str) -> Response:
        values, limit, place = read_list(request, ITEM_FILTERS)
        found = jobs.job(id_of("job", job))
        items = jobs.items(found.pk, states=values["state"] or ())
        page = keyset.page(items, order=("id",), limit=limit, place=place)
        return listing(request, values, page, lambda rows: [shapes.represent_item(row, found) for row in rows])


class JobResults(Endpoint):
    """/bulk-operations/{job}/items.csv"""

    content_negotiation_class = AnyOctets

    @operation(
        id="bulk_operations_results",
        **_READS,
        summary="The result for each object, as a CSV file",
        path=_PATH,
        responses={(200, "text/csv"): OpenApiTypes.STR},
    )
    def get(self, request: Request, job: str) -> StreamingHttpResponse:
        read_parameters(request, ())
        found = jobs.job(id_of("job", job))
        return _file(jobs.csv_lines(found), "text/csv; charset=utf-8", f"{found.public_id}.csv")


class JobDocuments(Endpoint):
    """/bulk-operations/{job}/documents"""

    content_negotiation_class = AnyOctets

    @operation(
        id="bulk_operations_documents",
        tag="bulk-operations",
        scope="payloads:read",
        summary="The documents of an export, as a ZIP file",
        description=(
            "Of `messages_export`, once it is finished; with `index.csv` at its end. Parts that masks cover for your "
            "role are covered. Each reading is in the audit log."
        ),
        path=_PATH,
        responses=OCTETS,
        problems=("wrong_state",),
    )
    def get(self, request: Request, job: str) -> StreamingHttpResponse:
        read_parameters(request, ())
        found = jobs.job(id_of("job", job))
        if found.action != "messages_export" or found.state != JobState.FINISHED:
            raise WrongState("Only an export that is finished has documents.", state=found.state)
        stream = job_export(job=found, actor=actor_of(request), role=role_of(request.user))
        return _file(stream, "application/zip", f"{found.public_id}.zip")


def _answer(request: Request, job: BulkJob, status: int = 200) -> Response:
    headers = {"Location": f"/api/v1/bulk-operations/{job.public_id}"} if status != 200 else {}
    return item(request, shapes.JobSerializer(job).data, status=status, **headers)


def _job(request: Request, reference: str) -> BulkJob:
    """A job on which the caller wants to act, and may."""
    found = jobs.job(id_of("job", reference))
    _require(request, found.action)
    return found


def _require(request: Request, name: str) -> None:
    kind = ACTIONS[name]
    if kind.scope not in access_of(request).scopes:
        audit.denied(actor_of(request), "job.act", object_type="action", object_id=name, required=kind.scope)
        raise Problem("missing_scope", f"This needs the scope {kind.scope}.", required_scope=kind.scope)


def _wanted(kind: Action, values: dict[str, Any]) -> dict[str, Any]:
    """What is meant, as the service takes it: ids, a filter of its own, or rows of a list. Raises ValidationError."""
    ids, given = values.get("ids"), values.get("filter")
    if ids is not None and given is not None:
        raise ValidationError({"filter": [ErrorDetail("Give either ids or a filter.", code="invalid")]})
    if ids is not None:
        return {"ids": _ids(kind.prefix, ids)}
    if given is None or kind.find is not None:
        return {"filter": given}
    if not given:
        raise ValidationError({"filter": [ErrorDetail("Name what is meant: it would be all.", code="invalid")]})
    # A page of the console means the unresolved incidents when nothing says more; GET /incidents means all.
    whole = {"show": "all", **given} if kind.prefix == "inc" else given
    return {"rows": jobs.matching(kind.prefix, whole), "chosen": jobs.described(kind.prefix, given)}


def _ids(prefix: str, texts: list[str]) -> list[uuid.UUID]:
    """Raises ValidationError with each text that is no such id."""
    found: list[uuid.UUID] = []
    errors: dict[str, Any] = {}
    for position, text in enumerate(texts):
        try:
            found.append(read_id(prefix, text))
        except BadPublicId:
            sentence = f"An id of the form {prefix}_<32 hexadecimal digits>."
            errors[str(position)] = [ErrorDetail(sentence, code="invalid")]
    if errors:
        raise ValidationError({"ids": errors})
    return found


def _file(stream: Any, content_type: str, name: str) -> StreamingHttpResponse:
    response = StreamingHttpResponse(stream, content_type=content_type)
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    response["X-Content-Type-Options"] = "nosniff"
    return response
