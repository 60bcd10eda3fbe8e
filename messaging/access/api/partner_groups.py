"""Groups of partners, which people, tokens and notification rules can be limited to."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from messaging.access.selectors import people
from messaging.access.serializers.people import (
    PartnerGroupBody,
    PartnerGroupChangeBody,
    PartnerGroupDetailSerializer,
    PartnerGroupSerializer,
)
from messaging.access.services import partner_groups
from messaging.api.authentication import actor_of
from messaging.api.conditional import check_unchanged, item
from messaging.api.endpoint import Endpoint, operation
from messaging.api.fields import ReasonBody, page_of, validated
from messaging.api.pagination import PAGING, simple_list
from messaging.api.reading import read_parameters
from messaging.api.references import id_of

_PATH = {"group": "Id of the group (`grp_...`)."}
_LOCATION = OpenApiParameter("Location", str, OpenApiParameter.HEADER, response=[201], description="The group.")


class PartnerGroups(Endpoint):
    """/partner-groups"""

    @operation(
        id="partner_groups_list",
        tag="users",
        scope="users:manage",
        summary="List partner groups, by name",
        parameters=PAGING,
        responses={200: page_of(PartnerGroupSerializer)},
        problems=("invalid_cursor", "cursor_mismatch"),
    )
    def get(self, request: Request) -> Response:
        return simple_list(request, people.groups(), PartnerGroupSerializer, order=("name",))

    @operation(
        id="partner_groups_create",
        tag="users",
        scope="users:manage",
        summary="Create a partner group",
        request=PartnerGroupBody,
        responses={201: PartnerGroupDetailSerializer},
        headers=(_LOCATION,),
    )
    def post(self, request: Request) -> Response:
        read_parameters(request, ())
        values = validated(PartnerGroupBody, request.data)
        made = partner_groups.group_create(actor=actor_of(request), **values)
        data = PartnerGroupDetailSerializer(people.group(made.pk)).data
        return item(request, data, status=201, Location=f"/api/v1/partner-groups/{made.public_id}")


class OnePartnerGroup(Endpoint):
    """/partner-groups/{group}"""

    @operation(
        id="partner_groups_read",
        tag="users",
        scope="users:manage",
        summary="One partner group with its partners",
        path=_PATH,
        responses={200: PartnerGroupDetailSerializer},
    )
    def get(self, request: Request, group: str) -> Response:
        read_parameters(request, ())
        return item(request, PartnerGroupDetailSerializer(people.group(id_of("grp", group))).data)

    @operation(
        id="partner_groups_change",
        tag="users",
        scope="users:manage",
        summary="Change a partner group",
        description="If-Match is not required; it is honoured when given.",
        path=_PATH,
        request=PartnerGroupChangeBody,
        responses={200: PartnerGroupDetailSerializer},
        problems=("stale",),
    )
    def patch(self, request: Request, group: str) -> Response:
        read_parameters(request, ())
        values = validated(PartnerGroupChangeBody, request.data)
        found = people.group(id_of("grp", group))
        check_unchanged(request, PartnerGroupDetailSerializer(found).data)
        partner_groups.group_change(group_id=found.pk, actor=actor_of(request), **values)
        return item(request, PartnerGroupDetailSerializer(people.group(found.pk)).data)

    @operation(
        id="partner_groups_delete",
        tag="users",
        scope="users:manage",
        summary="Delete a partner group that nobody is limited to",
        path=_PATH,
        request=ReasonBody,
        responses={204: None},
        problems=("wrong_state",),
    )
    def delete(self, request: Request, group: str) -> Response:
        read_parameters(request, ())
        values = validated(ReasonBody, request.data)
        partner_groups.group_delete(group_id=id_of("grp", group), actor=actor_of(request), **values)
        return Response(status=204)
