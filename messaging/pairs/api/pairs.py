"""Pairs and their verbs: representation, bodies, operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from drf_spectacular.utils import OpenApiExample, OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from messaging import keyset
from messaging.api.authentication import actor_of
from messaging.api.conditional import IF_MATCH, expected_version, item
from messaging.api.endpoint import Endpoint, operation
from messaging.api.fields import IdOut, ReasonBody, RowSerializer, Text, Whole, page_of, validated
from messaging.api.named import PartyRef
from messaging.api.pagination import PAGING, listing, read_list, sort_parameter
from messaging.api.reading import Param, read_parameters
from messaging.choices import Direction
from messaging.models import IncomingStream, Message, Pair
from messaging.overview.serializers import CauseSerializer
from messaging.pairs.resource import VERBS as PAIR_VERBS
from messaging.pairs.resource import PairVerb
from messaging.pairs.selectors import pairs
from messaging.pairs.selectors.diagnosis_parts import Diagnosis
from messaging.pairs.selectors.screens import diagnoses, diagnosis_of, terms_of
from messaging.pairs.selectors.sequence import stream_state
from messaging.pairs.selectors.verbs import verb_states
from messaging.pairs.services.operating import MODES
from messaging.pairs.services.silence import LONGEST, RUNBOOK_MOST, pair_update
from messaging.protocol.envelope import MAX_SEQUENCE_NUMBER
from rmhub import clock


class ResumeBody(ReasonBody):
    """How a pair is resumed, and why."""

    mode = serializers.ChoiceField(
        choices=MODES,
        required=False,
        default="all",
        help_text="probe: one message first, without retries; its first failure suspends the pair again.",
    )


class PairSettingsBody(ReasonBody):
    """What is changed of a pair's settings; what is left out stays."""

    expected_every = Whole(min_value=0, max_value=LONGEST, required=False, help_text="Seconds; 0 = no rhythm is known.")
    silence_grace = Whole(min_value=0, max_value=LONGEST, required=False, help_text="Seconds.")
    runbook = Text(
        max_length=RUNBOOK_MOST,
        required=False,
        allow_blank=True,
        trim_whitespace=False,
        help_text="Markdown; shown when the pair has a problem.",
    )


class ExpectSequenceBody(ReasonBody):
    """Which sequence number is taken as next."""

    expected = Whole(min_value=1, max_value=MAX_SEQUENCE_NUMBER)


class DiagnosisSerializer(serializers.Serializer):
    """Why the pair is as it is, and what happens next."""

    sentence = serializers.CharField(help_text="All of it, for a person.")
    headline = serializers.CharField()
    why = serializers.CharField()
    outlook = serializers.CharField(help_text="What the hub does next by itself.")
    advice = serializers.CharField(help_text="What a person can do.")
    cause = CauseSerializer(allow_null=True)
    since = serializers.DateTimeField(allow_null=True)
    next_attempt_at = serializers.DateTimeField(allow_null=True, source="next_at")
    attempt = serializers.IntegerField()
    max_attempts = serializers.IntegerField(help_text="1 send and the Retries of the agreement.")
    blocked = serializers.IntegerField(help_text="Documents that cannot go, the one in flight included.")


class HeadSerializer(RowSerializer):
    """The message in flight: everything else of the pair waits behind it."""

    id = IdOut("msg")

    class Meta:
        model = Message
        fields = ("id", "message_id", "state", "sequence_number", "attempts")


class PairSerializer(RowSerializer):
    """A Sender-Receiver pair of messaging service URIs."""

    id = IdOut("pair")
    own_party = PartyRef()
    partner = PartyRef()
    state = serializers.ChoiceField(choices=pairs.STATE_NAMES, help_text="Flow and gate in one word.")
    diagnosis = DiagnosisSerializer()
    head = HeadSerializer(allow_null=True, source="in_flight")
    allowed_actions = serializers.ListField(child=serializers.ChoiceField(choices=tuple(PAIR_VERBS)))

    class Meta:
        model = Pair
        fields: tuple[str, ...] = (
            *("id", "code", "direction", "sender_uri", "receiver_uri", "own_party", "partner", "state", "flow", "gate"),
            *("cause", "cause_detail", "diagnosis", "head", "queued", "out_now", "last_sequence", "done"),
            *("duplicates", "rejected", "changed_at", "last_success_at", "created_at", "probing", "expected_every"),
            *("silence_grace", "silent_since", "resync_since", "resync_from", "takes_any_number", "version"),
            "allowed_actions",
        )


class OutgoingStreamSerializer(serializers.Serializer):
    """The stream that an outbound pair sends under."""

    guid = serializers.CharField(source="stream.source", help_text="Ours, in streamId.")
    tx_sequence_id = serializers.CharField(help_text="OutgoingTxSequenceID: an unsigned 64-bit number in decimal.")
    next_number = serializers.IntegerField(source="stream.next_number", help_text="OutgoingTxSequenceNumber.")
    acked_number = serializers.IntegerField(
        source="stream.acked_number", help_text="Covered by order acknowledgements."
    )
    in_flight = serializers.IntegerField(help_text="Sent and not acknowledged.")
    window = serializers.IntegerField(help_text="How many may be.")
    concurrency = serializers.IntegerField(help_text="How many requests of it may be on the wire at once.")
    confirming = serializers.IntegerField(help_text="Acknowledged, and waiting for their final receipts.")
    resend_index = serializers.IntegerField(
        source="stream.resend_index", help_text="How often all unacknowledged went out again without progress."
    )
    next_resend_at = serializers.DateTimeField(allow_null=True, help_text="Null when nothing is unacknowledged.")
    started_at = serializers.DateTimeField(source="stream.started_at")


class IncomingStreamSerializer(RowSerializer):
    """How far one sender of an inbound pair is."""

    guid = serializers.CharField(source="source", help_text="The sender's, in streamId.")
    tx_sequence_id = serializers.CharField(help_text="IncomingTxSequenceID, in decimal; 0 before the first.")

    class Meta:
        model = IncomingStream
        fields = (
            *("guid", "tx_sequence_id", "number", "reject_count", "last_access_at", "last_order_ack_at"),
            *("order_ack_due_at", "receipts_to"),
        )


class StreamStateSerializer(serializers.Serializer):
    """Transactional streams of a pair (spec 3)."""

    outgoing = OutgoingStreamSerializer(allow_null=True, help_text="Null before the first message.")
    incoming = IncomingStreamSerializer(many=True, help_text="The sender that sent last first; 50 at most.")


class PairDetailSerializer(PairSerializer):
    """A pair with its streams and its run-book."""

    stream = StreamStateSerializer(allow_null=True, help_text="Null for pairs of other profiles.")

    class Meta(PairSerializer.Meta):
        fields = (*PairSerializer.Meta.fields, "runbook", "stream")


def represent(found: Sequence[Pair], now: datetime) -> list[dict[str, Any]]:
    """Pairs that `selectors.pairs` read, as PairSerializer shows them. One query at most."""
    said = diagnoses(found, now)
    return [_represented(pair, said[pair.pk]) for pair in found]


def _represented(pair: Pair, diagnosis: Diagnosis) -> dict[str, Any]:
    terms = terms_of(pair)
    pair.diagnosis = diagnosis  # type: ignore[attr-defined]
    pair.allowed_actions = [verb.slug for verb in verb_states(pair, terms) if verb.enabled]  # type: ignore[attr-defined]
    data: dict[str, Any] = dict(PairSerializer(pair).data)
    return data


def represent_one(pair: Pair, now: datetime) -> dict[str, Any]:
    """One of them with its streams, as PairDetailSerializer shows it, and all that its page says of it."""
    terms = terms_of(pair)
    state = stream_state(pair, terms)
    for row in state.incoming:
        row.tx_sequence_id = int(row.tx_sequence_id)  # written as an integer, whatever the database makes of it
    shown = StreamStateSerializer(state).data if state.applies else None
    return {**_represented(pair, diagnosis_of(pair, terms, now)), "runbook": pair.runbook, "stream": shown}


PATH = {"pair": "Id of the pair (`pair_...`), or its code."}
FILTERS = (
    Param("state", "States, comma separated.", "choices", choices=pairs.STATE_NAMES),
    Param("direction", "out or in.", "choice", choices=tuple(Direction.values)),
    Param("partner", "Id, name or identifier of a party.", "party"),
    Param("resync", "true: those that need resync after a loss of memory, in whatever state.", "flag"),
    Param("q", "Part of the code, of a URI or of the partner's name."),
    sort_parameter(*pairs.ORDERS),
)
_ETAG = OpenApiParameter("ETag", str, OpenApiParameter.HEADER, response=[200], description="For If-Match.")
_REASON = OpenApiExample("With a reason", value={"reason": "New certificate installed by GLOBEX"}, request_only=True)


class Pairs(Endpoint):
    """/pairs"""

    @operation(
        id="pairs_list",
        tag="pairs",
        scope="pairs:read",
        summary="List pairs",
        parameters=(*FILTERS, *PAGING),
        responses={200: page_of(PairSerializer)},
        problems=("invalid_cursor", "cursor_mismatch"),
    )
    def get(self, request: Request) -> Response:
        values, limit, place = read_list(request, FILTERS)
        found = pairs.pairs(
            states=values["state"] or (),
            direction=values["direction"] or "",
            partner_id=values["partner"],
            search=values["q"] or "",
            resync=values["resync"],
        )
        page = keyset.page(found, order=pairs.ORDERS[values["sort"]], limit=limit, place=place)
        now = clock.now()
        return listing(request, values, page, lambda rows: represent(rows, now))


class OnePair(Endpoint):
    """/pairs/{pair}"""

    @operation(
        id="pairs_read",
        tag="pairs",
        scope="pairs:read",
        summary="One pair, and its diagnosis",
        description="The part of the ETag before the dot counts what people do to the pair: it is what the verbs' "
        "If-Match compares, so that traffic does not refuse an action.",
        path=PATH,
        responses={200: PairDetailSerializer},
        headers=(_ETAG,),
    )
    def get(self, request: Request, pair: str) -> Response:
        read_parameters(request, ())
        return _answer(request, pairs.pair(pair))

    @operation(
        id="pairs_update",
        tag="pairs",
        scope="pairs:operate",
        summary="Change a pair's rhythm, grace and run-book",
        description="A new rhythm counts from now. What is left out stays as it is.",
        path=PATH,
        request=PairSettingsBody,
        responses={200: PairDetailSerializer},
        problems=("stale", "precondition_required", "invalid_header"),
        headers=(IF_MATCH, _ETAG),
    )
    def patch(self, request: Request, pair: str) -> Response:
        return _do(request, pair, pair_update, PairSettingsBody)


def _do(request: Request, pair: str, service: Callable[..., Pair], body: type) -> Response:
    read_parameters(request, ())
    expected = expected_version(request)
    values = validated(body, request.data)
    service(pair_id=pairs.pair(pair).pk, actor=actor_of(request), expected_version=expected, **values)
    return _answer(request, pairs.pair(pair))


def _answer(request: Request, pair: Pair) -> Response:
    data = represent_one(pair, clock.now())
    lasting = {name: value for name, value in data.items() if name != "diagnosis"}  # its sentences count the minutes
    return item(request, data, revision=pair.version, digest_of=lasting)


def _verb(verb: PairVerb, body: type = ReasonBody) -> type[Endpoint]:
    """The view of one verb."""

    class Verb(Endpoint):
        """/pairs/{pair}/<verb>"""

        def allowed_now(self, **kwargs: Any) -> list[str]:
            allowed: list[str] = represent_one(pairs.pair(kwargs["pair"]), clock.now())["allowed_actions"]
            return allowed

        @operation(
            id=f"pairs_{verb.slug.replace('-', '_')}",
            tag="pairs",
            scope=verb.scope,
            summary=verb.summary,
            description="Returns the pair in its new state, with its new ETag.",
            path=PATH,
            request=body,
            responses={200: PairDetailSerializer},
            problems=("wrong_state", "agreement_missing", "stale", "precondition_required", "invalid_header"),
            headers=(IF_MATCH, _ETAG),
            examples=(_REASON,) if body is ReasonBody else (),
        )
        def post(self, request: Request, pair: str) -> Response:
            return _do(request, pair, verb.service, body)

    return Verb


_BODIES: dict[str, type] = {"resume": ResumeBody, "expect-sequence": ExpectSequenceBody}
VERBS = {slug: _verb(verb, _BODIES.get(slug, ReasonBody)) for slug, verb in PAIR_VERBS.items()}
