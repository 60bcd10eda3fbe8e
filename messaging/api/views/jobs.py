"""Bulk jobs: one decision over many documents, with progress and a result for each."""

from __future__ import annotations

import uuid
from typing import Any

from drf_spectacular.utils import OpenApiExample, OpenApiParameter
from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from messaging.api.authentication import actor_of
from messaging.api.conditional import item
from messaging.api.endpoint import Endpoint, operation
from messaging.api.pagination import PAGING, listing, read_list
from messaging.api.reading import Param, read_parameters
from messaging.api.serializers import jobs as shapes
from messaging.api.serializers.fields import ReasonBody, page_of, validated
from messaging.api.views.references import id_of
from messaging.choices import ItemState, JobState
from messaging.models import BulkJob
from messaging.selectors import jobs, keyset
from messaging.services.jobs import job_cancel, job_create
from rmhub.ids import BadPublicId, read_public_id

_PATH = {"job": "Id of the job (`job_...`)."}
_LIST = ("invalid_cursor", "cursor_mismatch")
FILTERS = (Param("state", "States, comma separated.", "choices", choices=tuple(JobState.values)),)
ITEM_FILTERS = (Param("state", "States, comma separated.", "choices", choices=tuple(ItemState.values)),)
_LOCATION = OpenApiParameter("Location", str, OpenApiParameter.HEADER, response=[202], description="The job.")
_EXAMPLE = OpenApiExample(
    "All documents of one evidence group",
    value={
        "action": "settle_deliveries",
        "decision": "duplicate",
        "filter": {"trigger": "trg_0192f3f2f3e47a5fb0c1d2e3f4a5b6c7", "doubt": "started_not_completed"},
        "expected": 38,
        "reason": "The ERP's journal has all of them",
    },
    request_only=True,
)


class Jobs(Endpoint):
    """/bulk-jobs"""

    @operation(
        id="jobs_list",
        tag="in-doubt",
        scope="deliveries:read",
        summary="List bulk jobs, newest first",
        parameters=(*FILTERS, *PAGING),
        responses={200: page_of(shapes.JobSerializer)},
        problems=_LIST,
    )
    def get(self, request: Request) -> Response:
        values, limit, place = read_list(request, FILTERS)
        page = keyset.page(jobs.jobs(states=values["state"] or ()), order=("-id",), limit=limit, place=place)
        return listing(request, values, page, shapes.JobSerializer)

    @operation(
        id="jobs_create",
        tag="in-doubt",
        scope="indoubt:resolve",
        summary="Decide over many documents or messages at once",
        description=(
            "Give either `ids` or a `filter`; all must be of one evidence group: trigger and `doubt` of deliveries, "
            "trigger of failed ones, pair and `cause` of messages. What is meant is fixed at once; 202 says that the "
            "job is stored and will be done, each document by the same rules as when it is settled alone. With "
            "`expected`, a group that has grown or shrunk since you looked is refused (412)."
        ),
        request=shapes.JobBody,
        responses={202: shapes.JobSerializer},
        problems=("stale",),
        headers=(_LOCATION,),
        examples=(_EXAMPLE,),
    )
    def post(self, request: Request) -> Response:
        read_parameters(request, ())
        values = validated(shapes.JobBody, request.data)
        ids = values.pop("ids", None)
        parameters: dict[str, Any] = {name: values.pop(name) for name in ("decision", "remind_in") if name in values}
        made = job_create(
            parameters=parameters,
            ids=_ids(shapes.PREFIXES[values["action"]], ids) if ids is not None else None,
            actor=actor_of(request),
            **values,
        )
        headers = {"Location": f"/api/v1/bulk-jobs/{made.public_id}"}
        return item(request, shapes.JobSerializer(made).data, status=202, **headers)


class OneJob(Endpoint):
    """/bulk-jobs/{job}"""

    @operation(
        id="jobs_read",
        tag="in-doubt",
        scope="deliveries:read",
        summary="One bulk job and how far it is",
        path=_PATH,
        responses={200: shapes.JobSerializer},
    )
    def get(self, request: Request, job: str) -> Response:
        read_parameters(request, ())
        return _answer(request, jobs.job(id_of("job", job)))


class JobItems(Endpoint):
    """/bulk-jobs/{job}/items"""

    @operation(
        id="jobs_items",
        tag="in-doubt",
        scope="deliveries:read",
        summary="What came of each document of a bulk job",
        path=_PATH,
        parameters=(*ITEM_FILTERS, *PAGING),
        responses={200: page_of(shapes.JobItemSerializer)},
        problems=_LIST,
    )
    def get(self, request: Request, job: str) -> Response:
        values, limit, place = read_list(request, ITEM_FILTERS)
        found = jobs.job(id_of("job", job))
        items = jobs.items(found.pk, states=values["state"] or ())
        page = keyset.page(items, order=("id",), limit=limit, place=place)
        return listing(request, values, page, lambda rows: [shapes.represent_item(row, found) for row in rows])


class CancelJob(Endpoint):
    """/bulk-jobs/{job}/cancel"""

    @operation(
        id="jobs_cancel",
        tag="in-doubt",
        scope="indoubt:resolve",
        summary="End a bulk job: what is done stays done",
        path=_PATH,
        request=ReasonBody,
        responses={200: shapes.JobSerializer},
        problems=("wrong_state",),
    )
    def post(self, request: Request, job: str) -> Response:
        read_parameters(request, ())
        values = validated(ReasonBody, request.data)
        found = job_cancel(job_id=id_of("job", job), actor=actor_of(request), **values)
        return _answer(request, jobs.job(found.pk))


def _answer(request: Request, job: BulkJob) -> Response:
    return item(request, shapes.JobSerializer(job).data)


def _ids(prefix: str, texts: list[str]) -> list[uuid.UUID]:
    """Raises ValidationError with each text that is no such id."""
    found: list[uuid.UUID] = []
    errors: dict[str, Any] = {}
    for position, text in enumerate(texts):
        try:
            found.append(read_public_id(prefix, text))
        except BadPublicId:
            sentence = f"An id of the form {prefix}_<32 hexadecimal digits>."
            errors[str(position)] = [ErrorDetail(sentence, code="invalid")]
    if errors:
        raise ValidationError({"ids": errors})
    return found
