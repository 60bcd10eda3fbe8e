"""Looks at a pair: timeline, queue, sequence, diagnosis, probes of its partner; a message's timeline; and servers that
could not be reached lately.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from django.http import StreamingHttpResponse
from django.http.response import HttpResponseBase
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from messaging.access.selectors.reach import read_id
from messaging.api.authentication import actor_of
from messaging.api.endpoint import OCTETS, AnyOctets, Endpoint, operation
from messaging.api.fields import IdOut, ReasonBody, RowSerializer, validated
from messaging.api.handlers import listed, shown
from messaging.api.reading import Param, read_parameters
from messaging.choices import CircuitState
from messaging.engine.circuits import circuit_reset
from messaging.messages.api.messages import PATH as MESSAGE_PATH
from messaging.messages.selectors import messages
from messaging.messages.selectors.timeline import SCOPES, diagram_of_message, diagram_of_pair
from messaging.models import Circuit, Message, ProbeReport
from messaging.overview.serializers import CauseDocumentation
from messaging.pairs.api.pairs import PATH, DiagnosisSerializer
from messaging.pairs.selectors import circuits, newer, pairs, screens, sequence
from messaging.pairs.selectors.sequence import WORDS, stream_state
from messaging.pairs.services import exporting, probing
from messaging.transports.probe import STEPS
from rmhub import clock
from rmhub.roles import role_of

_KINDS = ("message", "answer", "probe", "wait", "mark")
_OUTCOMES = ("arrived", "lost", "refused", "open", "unknown", "")


class TimelineStepSerializer(serializers.Serializer):
    """One row of a timeline."""

    at = serializers.DateTimeField()
    kind = serializers.ChoiceField(
        choices=_KINDS, help_text="message, answer and probe go from source to target; wait and mark stand at the hub."
    )
    source = serializers.ChoiceField(choices=("app", "hub", "partner"))  # type: ignore[assignment]
    target = serializers.ChoiceField(choices=("app", "hub", "partner"))
    outcome = serializers.ChoiceField(choices=_OUTCOMES, allow_blank=True, help_text="Of what goes over the wire.")
    label = serializers.CharField(allow_blank=True)  # type: ignore[assignment]
    result = serializers.CharField(allow_blank=True, help_text="What came of it, in words.")
    by = serializers.CharField(allow_blank=True, help_text="Who did it, of what people do.")
    attempt = serializers.IntegerField(source="number", help_text="0 for what is no attempt.")
    max_attempts = serializers.IntegerField(source="most", help_text="0 when there is no such number.")
    http_status = serializers.IntegerField(allow_null=True)
    seconds = serializers.FloatField(allow_null=True, help_text="How long it took, or the wait lasted.")
    size = serializers.IntegerField(allow_null=True, help_text="Bytes of the payloads.")
    message = serializers.CharField(allow_blank=True, help_text="Id of the message.")
    transmission = serializers.CharField(allow_blank=True, help_text="Id of the attempt.")
    signal = serializers.CharField(allow_blank=True, help_text="Id of the acknowledgement or error message.")
    delivery = serializers.CharField(allow_blank=True)
    probe = serializers.CharField(allow_blank=True)
    repeated = serializers.IntegerField(help_text="How many alike this row stands for.")
    until = serializers.DateTimeField(allow_null=True, help_text="When the last of them was, or the wait ended.")


class TimelineSerializer(serializers.Serializer):
    """What happened between application, hub and partner, in the order of time."""

    scope = serializers.ChoiceField(choices=tuple(SCOPES))
    about = serializers.CharField(
        source="about.public_id", allow_null=True, help_text="Id of the message, when it is about one."
    )
    failed_only = serializers.BooleanField()
    cut = serializers.BooleanField(help_text="There was more.")
    folded = serializers.BooleanField(help_text="Similar rows are folded into one.")
    steps = TimelineStepSerializer(many=True)


class CellSerializer(serializers.Serializer):
    """One message by its number."""

    number = serializers.IntegerField(help_text="Of one that waits: the number that it will get.")
    state = serializers.ChoiceField(choices=tuple(WORDS), source="what")
    message = serializers.CharField(allow_blank=True)
    action = serializers.CharField(source="name", allow_blank=True)


class GapSerializer(serializers.Serializer):
    """Numbers that no message has."""

    first = serializers.IntegerField()
    last = serializers.IntegerField()


class SequenceSerializer(serializers.Serializer):
    """The numbers of a pair around the message that goes first."""

    applies = serializers.BooleanField(help_text="False for repeatable requests, which have no numbers.")
    next_number = serializers.IntegerField(help_text="Given, or expected, next.")
    acknowledged = serializers.IntegerField(help_text="Known to have arrived, up to this number; 0 = none.")
    waiting = serializers.IntegerField()
    duplicates = serializers.IntegerField(help_text="Copies that were dropped.")
    refused = serializers.IntegerField()
    gaps = GapSerializer(many=True)
    messages = CellSerializer(many=True, source="cells")


class PairChangeSerializer(serializers.Serializer):
    """Something at a pair's ends that is not as it was at the last success."""

    at = serializers.DateTimeField()
    kind = serializers.ChoiceField(choices=("certificate", "endpoint", "agreement", "credential"))
    what = serializers.CharField()
    by = serializers.CharField(allow_blank=True, help_text="Empty when nobody here did it.")
    reason = serializers.CharField(allow_blank=True)


class PairDiagnosisSerializer(DiagnosisSerializer):
    """Why the pair is as it is, and what changed since it last worked."""

    state = serializers.CharField()
    changed_since_last_success = PairChangeSerializer(many=True)


class ProbeStepSerializer(serializers.Serializer):
    """One rung of a look at an endpoint."""

    name = serializers.CharField(help_text=f"{', '.join(STEPS)}.")
    verdict = serializers.ChoiceField(choices=("ok", "warning", "failed", "skipped"))
    detail = serializers.CharField(allow_blank=True)
    cause = serializers.CharField(allow_blank=True, required=False, help_text="Code of docs/causes.md.")
    seconds = serializers.FloatField()
    facts = serializers.DictField(help_text="What was seen: addresses, TLS version, the certificate's dates.")


class ProbeSerializer(RowSerializer):
    """What a look at an endpoint found."""

    id = IdOut("prb")
    endpoint = IdOut("end", source="endpoint_id")
    pair = IdOut("pair", source="pair_id", allow_null=True)
    steps = ProbeStepSerializer(many=True)

    class Meta:
        model = ProbeReport
        fields = ("id", "endpoint", "pair", "address", "ok", "cause", "steps", "actor", "at")


class QueuedSerializer(RowSerializer):
    """A message that waits on a pair."""

    id = IdOut("msg")

    class Meta:
        model = Message
        fields = ("id", "message_id", "conversation_id", "service", "action", "size", "position", "created_at")


_FAILED = Param("failed", "true: only what failed.", "flag", default=False)
_SCOPE = Param(
    "scope", "The message that is first in line, or all of the last hour or day.", "choice", choices=tuple(SCOPES),
    default="document",
)  # fmt: skip
_WHICH = Param("which", "head: only what is first in line.", "choice", choices=("queue", "head"), default="queue")


class PairTimeline(Endpoint):
    """/pairs/{pair}/timeline"""

    get = shown(
        lambda pair, scope, failed: diagram_of_pair(
            pairs.pair(pair), now=clock.now(), scope=scope, failed_only=bool(failed)
        ),
        TimelineSerializer,
        id="pairs_timeline",
        scope="pairs:read",
        summary="What went between application, hub and partner",
        path=PATH,
        parameters=(_SCOPE, _FAILED),
        description="The rows of the pair's sequence diagram. More than 100 that go over the wire are folded where "
        "they say the same.",
        etag=False,
    )


class MessageTimeline(Endpoint):
    """/messages/{message_id}/timeline"""

    get = shown(
        lambda message_id, failed: diagram_of_message(
            messages.message_by_reference(message_id), failed_only=bool(failed)
        ),
        TimelineSerializer,
        id="messages_timeline",
        scope="messages:read",
        summary="The life of a message between application, hub and partner",
        path=MESSAGE_PATH,
        parameters=(_FAILED,),
        problems=("ambiguous_message_id",),
        etag=False,
    )


class PairQueue(Endpoint):
    """/pairs/{pair}/queue"""

    get = listed(
        lambda pair: pairs.queue(pairs.pair(pair).pk),
        QueuedSerializer,
        id="pairs_queue",
        scope="messages:read",
        summary="What waits on a pair, in the order in which it is sent",
        order=("position",),
        path=PATH,
    )


def _sequence(pair: str) -> sequence.Sequence:
    found = pairs.pair(pair)
    terms = screens.terms_of(found)
    return sequence.sequence(found, terms, stream_state(found, terms))


class PairSequence(Endpoint):
    """/pairs/{pair}/sequence"""

    get = shown(
        _sequence,
        SequenceSerializer,
        id="pairs_sequence",
        scope="pairs:read",
        summary="The sequence numbers around the message that is first in line",
        path=PATH,
        etag=False,
    )


def _diagnosis(pair: str) -> dict[str, Any]:
    found = pairs.pair(pair)
    terms = screens.terms_of(found)
    diagnosis = screens.diagnosis_of(found, terms, clock.now())
    said = {field.name: getattr(diagnosis, field.name) for field in fields(diagnosis)}
    changed = newer.since_last_success(found, terms)
    return {**said, "sentence": diagnosis.sentence, "changed_since_last_success": changed}


class PairDiagnosis(Endpoint):
    """/pairs/{pair}/diagnosis"""

    get = shown(
        _diagnosis,
        PairDiagnosisSerializer,
        id="pairs_diagnosis",
        scope="pairs:read",
        summary="Why a pair is as it is, and what changed since it last worked",
        path=PATH,
        etag=False,
    )


class PairPing(Endpoint):
    """/pairs/{pair}/ping"""

    @operation(
        id="pairs_ping",
        tag="pairs",
        scope="pairs:operate",
        summary="Look at the partner's endpoint step by step: name, connection, TLS, certificate, HTTP, echo",
        description="Takes up to 20 s. Nothing of a message is sent. What is found is kept: see /probes.",
        path=PATH,
        responses={200: ProbeSerializer},
        problems=("agreement_missing",),
    )
    def post(self, request: Request, pair: str) -> Response:
        read_parameters(request, ())
        return Response(ProbeSerializer(probing.ping(pair_id=pairs.pair(pair).pk, actor=actor_of(request))).data)


class PairExport(Endpoint):
    """/pairs/{pair}/waiting.zip"""

    content_negotiation_class = AnyOctets

    @operation(
        id="pairs_export",
        tag="pairs",
        scope="payloads:read",
        summary="The documents that wait on a pair, as a ZIP file with index.csv",
        description="What is in flight first, then what waits, in the order in which it is sent; 10,000 messages at "
        "most. The audit log names who took them.",
        path=PATH,
        parameters=(_WHICH,),
        responses={(200, "application/zip"): OCTETS[(200, "*/*")]},
        problems=("wrong_state",),
    )
    def get(self, request: Request, pair: str) -> HttpResponseBase:
        which = str(read_parameters(request, (_WHICH,))["which"])
        key = pairs.pair(pair).pk
        export = exporting.pair_export(pair_id=key, actor=actor_of(request), role=role_of(request.user), which=which)
        return StreamingHttpResponse(export.chunks, content_type="application/zip", headers=export.headers)


_PROBES = (
    Param("pair", "Id of a pair.", "id", prefix="pair"),
    Param("endpoint", "Id of an endpoint.", "id", prefix="end"),
)


class Probes(Endpoint):
    """/probes"""

    get = listed(
        lambda endpoint=None, pair=None: circuits.probes(endpoint_id=endpoint, pair_id=pair),
        ProbeSerializer,
        id="probes_list",
        scope="pairs:read",
        summary="What pings of partners' endpoints found, newest first",
        order=("-id",),
        filters=_PROBES,
        tag="pairs",
    )


class OneProbe(Endpoint):
    """/probes/{probe}"""

    get = shown(
        lambda probe: circuits.probe(read_id("prb", probe)),
        ProbeSerializer,
        id="probes_read",
        scope="pairs:read",
        summary="One ping of an endpoint",
        path={"probe": "Id of the report (`prb_...`)."},
        tag="pairs",
        etag=False,
    )


class CircuitSerializer(RowSerializer):
    """A server that could not be reached lately. When it answers, its circuit is gone."""

    id = serializers.CharField(source="public_id", help_text="cir_...: always the same for the same server.")
    server = serializers.CharField(source="address", help_text="scheme://host:port; all its URIs share the circuit.")
    cause_documentation = CauseDocumentation()
    partners = serializers.SerializerMethodField(
        help_text="Names of the partners that are reached by this server by agreements in force; else of the one for "
        "whom it was tried last."
    )

    class Meta:
        model = Circuit
        fields = (
            *(
                "id",
                "server",
                "state",
                "failures",
                "silent_since",
                "cause",
                "cause_documentation",
                "detail",
                "opened_at",
            ),
            *("retry_at", "partners", "updated_at"),
        )

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_partners(self, circuit: Circuit) -> list[str]:
        return list(circuits.partners_at(circuit))


_CIRCUIT = {"circuit": "Id of the circuit (`cir_...`)."}
_STATES = (Param("state", "States, comma separated.", "choices", choices=tuple(CircuitState.values)),)


class Circuits(Endpoint):
    """/circuits"""

    get = listed(
        lambda state=(): circuits.circuits(states=state),
        CircuitSerializer,
        id="circuits_list",
        scope="pairs:read",
        summary="List servers that could not be reached lately",
        order=("address",),
        filters=_STATES,
        description="A server that answers is not in the list. `state=open`: those to which sending is stopped now.",
    )


class OneCircuit(Endpoint):
    """/circuits/{circuit}"""

    get = shown(
        lambda circuit: circuits.circuit(circuit),
        CircuitSerializer,
        id="circuits_read",
        scope="pairs:read",
        summary="One server that could not be reached lately",
        path=_CIRCUIT,
    )


class ResetCircuit(Endpoint):
    """/circuits/{circuit}/reset"""

    @operation(
        id="circuits_reset",
        tag="circuits",
        scope="pairs:operate",
        summary="Have a server tried now",
        description="The next attempt is let through, and the waits start again from the shortest. Failures that "
        "were only counted are forgotten; then the answer has the state `closed`, and the circuit is gone.",
        path=_CIRCUIT,
        request=ReasonBody,
        responses={200: CircuitSerializer},
    )
    def post(self, request: Request, circuit: str) -> Response:
        read_parameters(request, ())
        values = validated(ReasonBody, request.data)
        known = circuits.circuit(circuit)
        row = circuit_reset(circuit_id=known.public_id, actor=actor_of(request), reason=values["reason"])
        return Response(CircuitSerializer(row).data)
