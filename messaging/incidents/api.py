"""Incidents, and what people do with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from messaging import keyset
from messaging.api.authentication import access_of, actor_of
from messaging.api.conditional import expected_version, item
from messaging.api.endpoint import AnyOctets, Endpoint, operation
from messaging.api.fields import OptionalReasonBody, page_of, validated
from messaging.api.pagination import PAGING, listing, read_list
from messaging.api.problems import Problem
from messaging.api.reading import Param, read_parameters
from messaging.api.references import pair_id_of, trigger_id_of
from messaging.choices import IncidentState
from messaging.incidents import serializers as shapes
from messaging.incidents.selectors import texts as incident_texts
from messaging.incidents.selectors import timeline as incident_timeline
from messaging.journal import incidents as services
from messaging.models import Incident
from messaging.overview.selectors import records

_PATH = {"incident": "Id of the incident (`inc_...`), or its number (`INC-42`)."}
_CONDITIONAL = ("wrong_state", "stale", "invalid_header")
_OPTIONAL = "If-Match is not required; when it is given, the incident must be as it was then."
IF_MATCH = OpenApiParameter("If-Match", str, OpenApiParameter.HEADER, description="ETag of what you decided upon.")
NOBODY = "nobody"
FILTERS = (
    Param("state", "States, comma separated.", "choices", choices=tuple(IncidentState.values)),
    Param("pair", "Id or code of a pair."),
    Param("partner", "Id of a party.", "id", prefix="par"),
    Param("trigger", "Id or name of a trigger."),
    Param("cause", "Exact code."),
    Param("owner", f"A user name; `{NOBODY}`: those that nobody has taken."),
    Param("snoozed", "Only those that are put off, or only the others.", "flag"),
)
_RESOLVE = OpenApiExample(
    "What it was, and what was done",
    value={"found": "Their certificate had expired", "reason": "GLOBEX installed the new one at 13:05"},
    request_only=True,
)
_SNOOZE = OpenApiExample(
    "Until the partner's maintenance is over",
    value={"until": "2026-11-22T06:00:00Z", "reason": "GLOBEX moves its data centre this night"},
    request_only=True,
)


class Incidents(Endpoint):
    """/incidents"""

    @operation(
        id="incidents_list",
        tag="incidents",
        scope="incidents:read",
        summary="List incidents, newest first",
        parameters=(*FILTERS, *PAGING),
        responses={200: page_of(shapes.IncidentSerializer)},
        problems=("invalid_cursor", "cursor_mismatch"),
    )
    def get(self, request: Request) -> Response:
        values, limit, place = read_list(request, FILTERS)
        owner = values["owner"]
        found = records.incidents(
            states=values["state"] or (),
            pair_id=pair_id_of(values["pair"]),
            partner_id=values["partner"],
            trigger_id=trigger_id_of(values["trigger"]),
            cause=values["cause"] or "",
            owner="" if owner == NOBODY else owner,
            snoozed=values["snoozed"],
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
        return _answer(request, records.incident(incident))


def _answer(request: Request, incident: Incident) -> Response:
    return item(request, dict(shapes.IncidentSerializer(incident).data), revision=incident.version)


def _verb(
    name: str,
    summary: str,
    body: type[serializers.Serializer],
    service: Callable[..., Incident],
    *,
    description: str = "",
    more: Callable[[Request], dict[str, Any]] = lambda request: {},
    examples: tuple[OpenApiExample, ...] = (),
) -> type[Endpoint]:
    """The view of one verb."""

    class Verb(Endpoint):
        """/incidents/{incident}/<verb>"""

        @operation(
            id=f"incidents_{name}",
            tag="incidents",
            scope="incidents:write",
            summary=summary,
            description=f"{description} {_OPTIONAL}".strip(),
            path=_PATH,
            request=body,
            responses={200: shapes.IncidentSerializer},
            problems=_CONDITIONAL,
            headers=(IF_MATCH,),
            examples=examples,
        )
        def post(self, request: Request, incident: str) -> Response:
            read_parameters(request, ())
            version = expected_version(request) if request.headers.get("If-Match", "").strip() else None
            values = validated(body, request.data)
            found = records.incident(incident)
            service(incident_id=found.pk, actor=actor_of(request), expected_version=version, **values, **more(request))
            return _answer(request, records.incident(found.pk))

    return Verb


VERBS: dict[str, type[Endpoint]] = {
    "acknowledge": _verb(
        "acknowledge",
        "Take an incident: its owner is whoever calls",
        OptionalReasonBody,
        services.incident_acknowledge,
        more=lambda request: {"owner": access_of(request).owner},
    ),
    "assign": _verb("assign", "Give an incident to somebody", shapes.AssignBody, services.incident_assign),
    "snooze": _verb(
        "snooze",
        "Put an incident off",
        shapes.SnoozeBody,
        services.incident_snooze,
        description="It needs nobody until then, and nobody is told of it; then it is back by itself.",
        examples=(_SNOOZE,),
    ),
    "resolve": _verb(
        "resolve", "Close an incident", shapes.ResolveBody, services.incident_resolve, examples=(_RESOLVE,)
    ),
}


class IncidentComments(Endpoint):
    """/incidents/{incident}/comments"""

    @operation(
        id="incidents_comments",
        tag="incidents",
        scope="incidents:read",
        summary="What people wrote to an incident, oldest first",
        path=_PATH,
        parameters=PAGING,
        responses={200: page_of(shapes.CommentSerializer)},
        problems=("invalid_cursor", "cursor_mismatch"),
    )
    def get(self, request: Request, incident: str) -> Response:
        values, limit, place = read_list(request, ())
        found = incident_timeline.comments(records.incident(incident))
        return listing(
            request, values, keyset.page(found, order=("id",), limit=limit, place=place), shapes.CommentSerializer
        )

    @operation(
        id="incidents_comment",
        tag="incidents",
        scope="incidents:write",
        summary="Write something to an incident, open or not",
        path=_PATH,
        request=shapes.CommentBody,
        responses={201: shapes.CommentSerializer},
    )
    def post(self, request: Request, incident: str) -> Response:
        read_parameters(request, ())
        values = validated(shapes.CommentBody, request.data)
        found = records.incident(incident)
        note = services.incident_comment(incident_id=found.pk, actor=actor_of(request), **values)
        return Response(dict(shapes.CommentSerializer(note).data), status=201)


class IncidentTimeline(Endpoint):
    """/incidents/{incident}/timeline"""

    @operation(
        id="incidents_timeline",
        tag="incidents",
        scope="incidents:read",
        summary="All that happened around an incident, and what helped before",
        description="Attempts with the same outcome are folded into one row; each source is cut at its newest hundred.",
        path=_PATH,
        responses={200: shapes.IncidentStorySerializer},
    )
    def get(self, request: Request, incident: str) -> Response:
        read_parameters(request, ())
        story = incident_timeline.story(records.incident(incident))
        return item(request, dict(shapes.IncidentStorySerializer(story).data))


class IncidentNote(Endpoint):
    """/incidents/{incident}/partner-note"""

    @operation(
        id="incidents_partner_note",
        tag="incidents",
        scope="incidents:read",
        summary="The beginning of a letter to the partner",
        description="404 for an incident that is about no partner.",
        path=_PATH,
        responses={200: shapes.PartnerNoteSerializer},
    )
    def get(self, request: Request, incident: str) -> Response:
        read_parameters(request, ())
        found = records.incident(incident)
        note = incident_texts.partner_note(found)
        if note is None:
            raise Problem("not_found", f"{found} is about no partner.")
        return item(request, dict(shapes.PartnerNoteSerializer(note).data))


class IncidentPostMortem(Endpoint):
    """/incidents/{incident}/post-mortem"""

    content_negotiation_class = AnyOctets

    @operation(
        id="incidents_post_mortem",
        tag="incidents",
        scope="incidents:read",
        summary="All that is known of an incident, as Markdown",
        path=_PATH,
        responses={(200, "text/markdown"): OpenApiTypes.STR},
    )
    def get(self, request: Request, incident: str) -> HttpResponse:
        read_parameters(request, ())
        text = incident_texts.post_mortem(records.incident(incident))
        return HttpResponse(text, content_type="text/markdown; charset=utf-8")
