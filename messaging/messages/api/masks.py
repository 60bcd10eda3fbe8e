"""Rules that cover parts of payloads."""

from __future__ import annotations

import uuid

from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from messaging.api.authentication import actor_of
from messaging.api.conditional import expected_version, item
from messaging.api.endpoint import Endpoint, operation
from messaging.api.fields import ReasonBody, page_of, validated
from messaging.api.pagination import PAGING, simple_list
from messaging.api.reading import read_parameters
from messaging.api.references import id_of
from messaging.messages.selectors import masks as selectors
from messaging.messages.serializers import masks as shapes
from messaging.messages.services import masks as services
from messaging.pairs.api.pairs import IF_MATCH

_PATH = {"mask": "Id of the mask (`mask_...`)."}
_CONDITIONAL = ("stale", "precondition_required", "invalid_header")
_LOCATION = OpenApiParameter("Location", str, OpenApiParameter.HEADER, response=[201], description="The mask.")


class Masks(Endpoint):
    """/masks"""

    @operation(
        id="masks_list",
        tag="masks",
        scope="masks:manage",
        summary="List the rules that cover parts of payloads",
        parameters=PAGING,
        responses={200: page_of(shapes.MaskSerializer)},
        problems=("invalid_cursor", "cursor_mismatch"),
    )
    def get(self, request: Request) -> Response:
        return simple_list(request, selectors.masks(), shapes.MaskSerializer, order=("name",))

    @operation(
        id="masks_create",
        tag="masks",
        scope="masks:manage",
        summary="Create a rule",
        description="It holds from the next look on, for what is stored already, too. Stored octets stay as they are.",
        request=shapes.MaskBody,
        responses={201: shapes.MaskSerializer},
        headers=(_LOCATION,),
    )
    def post(self, request: Request) -> Response:
        read_parameters(request, ())
        values = validated(shapes.MaskBody, request.data)
        return _answer(request, services.mask_create(actor=actor_of(request), **values).pk, status=201)


class OneMask(Endpoint):
    """/masks/{mask}"""

    @operation(
        id="masks_read",
        tag="masks",
        scope="masks:manage",
        summary="One rule",
        path=_PATH,
        responses={200: shapes.MaskSerializer},
    )
    def get(self, request: Request, mask: str) -> Response:
        read_parameters(request, ())
        return _answer(request, id_of("mask", mask))

    @operation(
        id="masks_change",
        tag="masks",
        scope="masks:manage",
        summary="Change a rule",
        path=_PATH,
        request=shapes.MaskChanges,
        responses={200: shapes.MaskSerializer},
        problems=_CONDITIONAL,
        headers=(IF_MATCH,),
    )
    def patch(self, request: Request, mask: str) -> Response:
        read_parameters(request, ())
        expected = expected_version(request)
        values = validated(shapes.MaskChanges, request.data)
        key = id_of("mask", mask)
        services.mask_update(mask_id=key, actor=actor_of(request), expected_version=expected, **values)
        return _answer(request, key)

    @operation(
        id="masks_delete",
        tag="masks",
        scope="masks:manage",
        summary="Delete a rule: what it covered is shown again",
        path=_PATH,
        request=ReasonBody,
        responses={204: None},
        problems=_CONDITIONAL,
        headers=(IF_MATCH,),
    )
    def delete(self, request: Request, mask: str) -> Response:
        read_parameters(request, ())
        expected = expected_version(request)
        values = validated(ReasonBody, request.data)
        key = id_of("mask", mask)
        services.mask_delete(mask_id=key, actor=actor_of(request), expected_version=expected, **values)
        return Response(status=204)


def _answer(request: Request, key: uuid.UUID, *, status: int = 200) -> Response:
    rule = selectors.mask(key)
    headers = {"Location": f"/api/v1/masks/{rule.public_id}"} if status == 201 else {}
    data = shapes.MaskSerializer(rule).data
    return item(request, data, revision=services.revision(rule), status=status, **headers)
