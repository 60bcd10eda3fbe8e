"""Incidents, rejections and the audit log."""

from __future__ import annotations

from django.http import HttpResponse
from rest_framework.request import Request
from rest_framework.response import Response

from messaging.api.authentication import actor_of
from messaging.api.conditional import check_unchanged, item
from messaging.api.endpoint import OCTETS, AnyOctets, Endpoint, operation
from messaging.api.octets import attachment
from messaging.api.pagination import PAGING, listing, read_list
from messaging.api.reading import Param, read_parameters
from messaging.api.serializers import records as shapes
from messaging.api.serializers.fields import OptionalReasonBody, ReasonBody, page_of, validated
from messaging.api.views.references import id_of, pair_id_of, trigger_id_of
from messaging.choices import IncidentState
from messaging.models import Incident
from messaging.selectors import keyset, records
from messaging.services.disclosing import rejection_open
from messaging.services.incidents import incident_acknowledge, incident_resolve

_PATH = {"incident": "Id of the incident (`inc_...`), or its number (`INC-42`)."}
_LIST = ("invalid_cursor", "cursor_mismatch")
_TIMES = (
    Param("created_gte", "Not before this time.", "instant"),
    Param("created_lt", "Before this time.", "instant"),
)
INCIDENT_FILTERS = (
    Param("state", "States, comma separated.", "choices", choices=tuple(IncidentState.values)),
    Param("pair", "Id or code of a pair."),
    Param("partner", "Id of a party.", "id", prefix="par"),
    Param("trigger", "Id or name of a trigger."),
    Param("cause", "Exact code."),
)
REJECTION_FILTERS = (Param("reason", "Exact code."), Param("party", "Exact name of the partner."), *_TIMES)
AUDIT_FILTERS = (
    Param("object", "Public id of an object, such as pair_..."),
    Param("object_type", "Exact, such as pair."),
    Param("actor", "Exact."),
    Param("verb", "Exact, such as pair.resume."),
    *_TIMES,
)


class Incidents(Endpoint):
    """/incidents"""

    @operation(
        id="incidents_list",
        tag="incidents",
        scope="incidents:read",
        summary="List incidents, newest first",
        parameters=(*INCIDENT_FILTERS, *PAGING),
        responses={200: page_of(shapes.IncidentSerializer)},
        problems=_LIST,
    )
    def get(self, request: Request) -> Response:
        values, limit, place = read_list(request, INCIDENT_FILTERS)
        found = records.incidents(
            states=values["state"] or (),
            pair_id=pair_id_of(values["pair"]),
            partner_id=values["partner"],
            trigger_id=trigger_id_of(values["trigger"]),
            cause=values["cause"] or "",
        )
        page = keyset.page(found, order=("-number",), limit=limit, place=place)
        return listing(request, values, page, shapes.IncidentSerializer)


class OneIncident(Endpoint):
    """/incidents/{incident}"""

    @operation(
        id="incidents_read",
        tag="incidents",
        scope="incidents:read",
        summary="One incident",
        path=_PATH,
        responses={200: shapes.IncidentSerializer},
    )
    def get(self, request: Request, incident: str) -> Response:
        read_parameters(request, ())
        return item(request, _represent(records.incident(incident)))


class AcknowledgeIncident(Endpoint):
    """/incidents/{incident}/acknowledge"""

    @operation(
        id="incidents_acknowledge",
        tag="incidents",
        scope="incidents:write",
        summary="Take an incident: its owner is whoever calls",
        description="If-Match is not required; it is honoured when given.",
        path=_PATH,
        request=OptionalReasonBody,
        responses={200: shapes.IncidentSerializer},
        problems=("wrong_state", "stale"),
    )
    def post(self, request: Request, incident: str) -> Response:
        read_parameters(request, ())
        values = validated(OptionalReasonBody, request.data)
        found = records.incident(incident)
        check_unchanged(request, _represent(found))
        incident_acknowledge(incident_id=found.pk, actor=actor_of(request), reason=values["reason"])
        return item(request, _represent(records.incident(found.pk)))


class ResolveIncident(Endpoint):
    """/incidents/{incident}/resolve"""

    @operation(
        id="incidents_resolve",
        tag="incidents",
        scope="incidents:write",
        summary="Close an incident",
        description="If-Match is not required; it is honoured when given.",
        path=_PATH,
        request=ReasonBody,
        responses={200: shapes.IncidentSerializer},
        problems=("wrong_state", "stale"),
    )
    def post(self, request: Request, incident: str) -> Response:
        read_parameters(request, ())
        values = validated(ReasonBody, request.data)
        found = records.incident(incident)
        check_unchanged(request, _represent(found))
        incident_resolve(incident_id=found.pk, actor=actor_of(request), reason=values["reason"])
        return item(request, _represent(records.incident(found.pk)))


def _represent(incident: Incident) -> dict[str, object]:
    return dict(shapes.IncidentSerializer(incident).data)


class Rejections(Endpoint):
    """/rejections"""

    @operation(
        id="rejections_list",
        tag="incidents",
        scope="incidents:read",
        summary="What came in and was refused, newest first",
        description="The newest 20,000 are kept.",
        parameters=(*REJECTION_FILTERS, *PAGING),
        responses={200: page_of(shapes.RejectionSerializer)},
        problems=_LIST,
    )
    def get(self, request: Request) -> Response:
        values, limit, place = read_list(request, REJECTION_FILTERS)
        found = records.rejections(
            reason=values["reason"] or "",
            party=values["party"] or "",
            created_gte=values["created_gte"],
            created_lt=values["created_lt"],
        )
        page = keyset.page(found, order=("-id",), limit=limit, place=place)
        return listing(request, values, page, shapes.RejectionSerializer)


class OneRejection(Endpoint):
    """/rejections/{rejection_id}"""

    @operation(
        id="rejections_read",
        tag="incidents",
        scope="incidents:read",
        summary="One rejection",
        path={"rejection_id": "Id of the rejection (`rej_...`)."},
        responses={200: shapes.RejectionSerializer},
    )
    def get(self, request: Request, rejection_id: str) -> Response:
        read_parameters(request, ())
        found = records.rejection(id_of("rej", rejection_id))
        return item(request, dict(shapes.RejectionSerializer(found).data))


class RejectionSample(Endpoint):
    """/rejections/{rejection_id}/sample"""

    content_negotiation_class = AnyOctets

    @operation(
        id="rejections_sample",
        tag="incidents",
        scope="payloads:read",
        summary="The first 4 KiB of what was refused",
        description="Reading it is written to the audit log.",
        path={"rejection_id": "Id of the rejection (`rej_...`)."},
        responses=OCTETS,
        problems=("range_not_satisfiable",),
    )
    def get(self, request: Request, rejection_id: str) -> HttpResponse:
        read_parameters(request, ())
        octets = rejection_open(rejection_id=id_of("rej", rejection_id), actor=actor_of(request))
        return attachment(request, octets)


class AuditLog(Endpoint):
    """/audit-log"""

    @operation(
        id="audit_log",
        tag="audit",
        scope="audit:read",
        summary="Actions of people and tokens, newest first",
        parameters=(*AUDIT_FILTERS, *PAGING),
        responses={200: page_of(shapes.AuditEntrySerializer)},
        problems=_LIST,
    )
    def get(self, request: Request) -> Response:
        values, limit, place = read_list(request, AUDIT_FILTERS)
        found = records.audit_entries(
            object_id=values["object"] or "",
            object_type=values["object_type"] or "",
            actor=values["actor"] or "",
            verb=values["verb"] or "",
            created_gte=values["created_gte"],
            created_lt=values["created_lt"],
        )
        page = keyset.page(found, order=("-id",), limit=limit, place=place)
        return listing(request, values, page, shapes.AuditEntrySerializer)
