"""Incidents, and what people do with them: representations, bodies, operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from messaging.api.authentication import access_of, actor_of
from messaging.api.conditional import expected_version, item
from messaging.api.endpoint import AnyOctets, Endpoint, operation
from messaging.api.fields import IdOut, Instant, OptionalReasonBody, ReasonBody, StrictBody, Text, validated
from messaging.api.handlers import listed, shown
from messaging.api.named import MessageRef, PairRef, TriggerRef
from messaging.api.problems import Problem
from messaging.api.reading import Param, read_parameters
from messaging.api.references import pair_id_of, trigger_id_of
from messaging.choices import IncidentState, NoteKind
from messaging.incidents import selectors as timeline
from messaging.incidents.selectors import PartnerNote
from messaging.journal import incidents as services
from messaging.journal.incidents import COMMENT_MOST
from messaging.models import Incident
from messaging.overview.selectors import records
from messaging.overview.serializers import CauseDocumentation


class IncidentSerializer(serializers.Serializer):
    """Something that a person must look at."""

    id = IdOut("inc")
    number = serializers.IntegerField(help_text="INC-<number>")
    state = serializers.ChoiceField(choices=IncidentState.choices)
    cause = serializers.CharField()
    cause_documentation = CauseDocumentation()
    detail = serializers.CharField()
    pair = PairRef(allow_null=True)
    trigger = TriggerRef(allow_null=True)
    message = MessageRef(allow_null=True)
    agreement = IdOut("agr", source="agreement_id", allow_null=True, help_text="Whose target it is about, if any.")
    transaction = IdOut("txn", source="coordination_id", allow_null=True, help_text="Atomic transaction, if any.")
    part_of = IdOut(
        "inc",
        source="part_of_id",
        allow_null=True,
        help_text="The incident about the same problem that was there first, and with which this one closes.",
    )
    occurrences = serializers.IntegerField()
    opened_at = serializers.DateTimeField()
    last_seen_at = serializers.DateTimeField()
    acknowledged_at = serializers.DateTimeField(allow_null=True)
    owner = serializers.CharField(help_text="A user name; empty = nobody yet.")
    snoozed_until = serializers.DateTimeField(allow_null=True, help_text="Snoozed: it needs nobody before then.")
    resolved_at = serializers.DateTimeField(allow_null=True)
    resolved_by = serializers.CharField()
    resolution = serializers.CharField()
    version = serializers.IntegerField(help_text="Counts the actions of people: what If-Match compares.")


class AssignBody(OptionalReasonBody):
    """Whom it is given to."""

    owner = Text(max_length=150, help_text="Name of an active user whose role is operator or admin.")


class SnoozeBody(ReasonBody):
    """Until when it is put off."""

    until = Instant(allow_null=True, help_text="At most 30 days away; null: end the snooze.")


class ResolveBody(ReasonBody):
    """What was done, and what it was."""

    found = Text(max_length=500, required=False, allow_blank=True, default="", help_text="What it was.")


class CommentBody(StrictBody):
    """Something to remember."""

    text = Text(max_length=COMMENT_MOST)


class CommentSerializer(serializers.Serializer):
    """What a person wrote to an incident, or did with it."""

    kind = serializers.ChoiceField(choices=NoteKind.choices)
    author = serializers.CharField()
    text = serializers.CharField()
    at = serializers.DateTimeField()


class IncidentMomentSerializer(serializers.Serializer):
    """One row of an incident's life."""

    at = serializers.DateTimeField()
    kind = serializers.ChoiceField(choices=["event", "attempts", "comment", "person", "notification"])
    title = serializers.CharField()
    detail = serializers.CharField()
    by = serializers.CharField(help_text="Empty = the hub.")
    tone = serializers.ChoiceField(choices=["good", "watch", "bad", "plain"])


class PastIncidentSerializer(serializers.Serializer):
    """A resolved incident of the same cause."""

    nearness = serializers.CharField(help_text="same pair, same partner, same trigger, or empty.")
    incident = IncidentSerializer()


class RecoverySerializer(serializers.Serializer):
    """Why it seems to be over."""

    since = serializers.DateTimeField()
    sentence = serializers.CharField()


class IncidentStorySerializer(serializers.Serializer):
    """All that happened around an incident, oldest first, and what helped before."""

    moments = IncidentMomentSerializer(many=True)
    similar = PastIncidentSerializer(many=True)
    recovery = RecoverySerializer(allow_null=True, help_text="null: nothing says that it is over.")


class PartnerNoteSerializer(serializers.Serializer):
    """A draft of a letter to the partner."""

    subject = serializers.CharField()
    text = serializers.CharField()
    contact = serializers.CharField(help_text="Whom we know there.")


_PATH = {"incident": "Id of the incident (`inc_...`), or its number (`INC-42`)."}
_CONDITIONAL = ("wrong_state", "stale", "invalid_header")
_OPTIONAL = "If-Match is not required; when it is given, the incident must be as it was then."
IF_MATCH = OpenApiParameter("If-Match", str, OpenApiParameter.HEADER, description="ETag of what you decided upon.")
NOBODY = "nobody"
FILTERS = (
    Param("state", "States, comma separated.", "choices", choices=tuple(IncidentState.values)),
    Param("pair", "Id or code of a pair."),
    Param("partner", "Id, name or identifier of a party.", "party"),
    Param("trigger", "Id or name of a trigger."),
    Param("cause", "Exact code."),
    Param("owner", f"A user name; `{NOBODY}`: those that nobody has taken."),
    Param("snoozed", "Only snoozed ones, or only the others.", "flag"),
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


def _incidents(
    pair: str | None = None, partner: Any = None, trigger: str | None = None, owner: str | None = None, **given: Any
) -> Any:
    return records.incidents(
        states=given.pop("state", ()),
        pair_id=pair_id_of(pair),
        partner_id=partner,
        trigger_id=trigger_id_of(trigger),
        owner="" if owner == NOBODY else owner,
        **given,
    )


class Incidents(Endpoint):
    """/incidents"""

    get = listed(
        _incidents,
        IncidentSerializer,
        id="incidents_list",
        scope="incidents:read",
        summary="List incidents, newest first unless `sort` says otherwise",
        order=records.INCIDENT_ORDERS,
        filters=FILTERS,
    )


class OneIncident(Endpoint):
    """/incidents/{incident}"""

    @operation(
        id="incidents_read",
        tag="incidents",
        scope="incidents:read",
        summary="One incident",
        path=_PATH,
        responses={200: IncidentSerializer},
    )
    def get(self, request: Request, incident: str) -> Response:
        read_parameters(request, ())
        return _answer(request, records.incident(incident))


def _answer(request: Request, incident: Incident) -> Response:
    return item(request, dict(IncidentSerializer(incident).data), revision=incident.version)


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
            responses={200: IncidentSerializer},
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
        "Take an incident: the caller becomes its owner",
        OptionalReasonBody,
        services.incident_acknowledge,
        more=lambda request: {"owner": access_of(request).owner},
    ),
    "assign": _verb("assign", "Give an incident to somebody", AssignBody, services.incident_assign),
    "snooze": _verb(
        "snooze",
        "Snooze an incident",
        SnoozeBody,
        services.incident_snooze,
        description="It needs nobody until then, and nobody is notified of it; then it is back by itself.",
        examples=(_SNOOZE,),
    ),
    "resolve": _verb("resolve", "Close an incident", ResolveBody, services.incident_resolve, examples=(_RESOLVE,)),
}


class IncidentComments(Endpoint):
    """/incidents/{incident}/comments"""

    get = listed(
        lambda incident: timeline.comments(records.incident(incident)),
        CommentSerializer,
        id="incidents_comments",
        scope="incidents:read",
        summary="What people wrote to an incident, oldest first",
        order=("id",),
        path=_PATH,
    )

    @operation(
        id="incidents_comment",
        tag="incidents",
        scope="incidents:write",
        summary="Write something to an incident, open or not",
        path=_PATH,
        request=CommentBody,
        responses={201: CommentSerializer},
    )
    def post(self, request: Request, incident: str) -> Response:
        read_parameters(request, ())
        values = validated(CommentBody, request.data)
        found = records.incident(incident)
        note = services.incident_comment(incident_id=found.pk, actor=actor_of(request), **values)
        return Response(dict(CommentSerializer(note).data), status=201)


class IncidentTimeline(Endpoint):
    """/incidents/{incident}/timeline"""

    get = shown(
        lambda incident: timeline.story(records.incident(incident)),
        IncidentStorySerializer,
        id="incidents_timeline",
        scope="incidents:read",
        summary="All that happened around an incident, and what helped before",
        path=_PATH,
        description="Attempts with the same outcome are folded into one row; each source is cut at its newest hundred.",
    )


def _note(incident: str) -> PartnerNote:
    found = records.incident(incident)
    note = timeline.partner_note(found)
    if note is None:
        raise Problem("not_found", f"{found} is about no partner.")
    return note


class IncidentNote(Endpoint):
    """/incidents/{incident}/partner-note"""

    get = shown(
        _note,
        PartnerNoteSerializer,
        id="incidents_partner_note",
        scope="incidents:read",
        summary="A draft of a letter to the partner",
        path=_PATH,
        description="404 for an incident that is about no partner.",
    )


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
        text = timeline.post_mortem(records.incident(incident))
        return HttpResponse(text, content_type="text/markdown; charset=utf-8")
