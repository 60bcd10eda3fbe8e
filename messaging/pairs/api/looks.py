"""Looks at a pair: timeline, queue, sequence, diagnosis, probes of its partner; and a message's timeline."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.http import StreamingHttpResponse
from django.http.response import HttpResponseBase
from rest_framework.request import Request
from rest_framework.response import Response

from messaging import keyset
from messaging.access.selectors.reach import read_id
from messaging.api.authentication import actor_of
from messaging.api.endpoint import OCTETS, AnyOctets, Endpoint, operation
from messaging.api.fields import page_of
from messaging.api.pagination import PAGING, listing, read_list
from messaging.api.reading import Param, read_parameters
from messaging.messages.api.messages import PATH as MESSAGE_PATH
from messaging.messages.selectors import messages
from messaging.messages.selectors.diagram import SCOPES, diagram_of_message, diagram_of_pair
from messaging.pairs.selectors import changes, pairs, probes, screens, sequence
from messaging.pairs.selectors.streams import stream_state
from messaging.pairs.serializers.looks import (
    PairDiagnosisSerializer,
    ProbeSerializer,
    QueuedSerializer,
    SequenceSerializer,
    TimelineSerializer,
    probe,
    timeline,
)
from messaging.pairs.serializers.pairs import DiagnosisSerializer
from messaging.pairs.services import exporting, probing
from rmhub import clock
from rmhub.roles import role_of

_PATH = {"pair": "Id of the pair (`pair_...`), or its code."}
_FAILED = Param("failed", "true: only what failed.", "flag", default=False)
_SCOPE = Param(
    "scope", "The message that is first in line, or all of the last hour or day.", "choice", choices=tuple(SCOPES),
    default="document",
)  # fmt: skip


class PairTimeline(Endpoint):
    """/pairs/{pair}/timeline"""

    @operation(
        id="pairs_timeline",
        tag="pairs",
        scope="pairs:read",
        summary="What went between application, hub and partner",
        description="The rows of the pair's sequence diagram. More than 100 that go over the wire are folded where "
        "they say the same.",
        path=_PATH,
        parameters=(_SCOPE, _FAILED),
        responses={200: TimelineSerializer},
    )
    def get(self, request: Request, pair: str) -> Response:
        values = read_parameters(request, (_SCOPE, _FAILED))
        found = diagram_of_pair(
            pairs.pair(pair), now=clock.now(), scope=values["scope"], failed_only=bool(values["failed"])
        )
        return Response(timeline(found))


class MessageTimeline(Endpoint):
    """/messages/{message_id}/timeline"""

    @operation(
        id="messages_timeline",
        tag="messages",
        scope="messages:read",
        summary="The life of a message between application, hub and partner",
        path=MESSAGE_PATH,
        parameters=(_FAILED,),
        responses={200: TimelineSerializer},
        problems=("ambiguous_message_id",),
    )
    def get(self, request: Request, message_id: str) -> Response:
        values = read_parameters(request, (_FAILED,))
        message = messages.message_by_reference(message_id)
        return Response(timeline(diagram_of_message(message, failed_only=bool(values["failed"]))))


class PairQueue(Endpoint):
    """/pairs/{pair}/queue"""

    @operation(
        id="pairs_queue",
        tag="pairs",
        scope="messages:read",
        summary="What waits on a pair, in the order in which it is sent",
        path=_PATH,
        parameters=PAGING,
        responses={200: page_of(QueuedSerializer)},
        problems=("invalid_cursor", "cursor_mismatch"),
    )
    def get(self, request: Request, pair: str) -> Response:
        values, limit, place = read_list(request, ())
        found = pairs.queue(pairs.pair(pair).pk)
        return listing(
            request, values, keyset.page(found, order=("position",), limit=limit, place=place), QueuedSerializer
        )


class PairSequence(Endpoint):
    """/pairs/{pair}/sequence"""

    @operation(
        id="pairs_sequence",
        tag="pairs",
        scope="pairs:read",
        summary="The sequence numbers around the message that is first in line",
        path=_PATH,
        responses={200: SequenceSerializer},
    )
    def get(self, request: Request, pair: str) -> Response:
        read_parameters(request, ())
        found = pairs.pair(pair)
        terms = screens.terms_of(found)
        strip = sequence.sequence(found, terms, stream_state(found, terms))
        shown: dict[str, Any] = {
            "gaps": [{"first": first, "last": last} for first, last in strip.gaps],
            "cells": strip.cells,
            "applies": strip.applies,
            "next_number": strip.next_number,
            "acknowledged": strip.acknowledged,
            "waiting": strip.waiting,
            "duplicates": strip.duplicates,
            "refused": strip.refused,
        }
        return Response(SequenceSerializer(shown).data)


class PairDiagnosis(Endpoint):
    """/pairs/{pair}/diagnosis"""

    @operation(
        id="pairs_diagnosis",
        tag="pairs",
        scope="pairs:read",
        summary="Why a pair is as it is, and what changed since it last worked",
        path=_PATH,
        responses={200: PairDiagnosisSerializer},
    )
    def get(self, request: Request, pair: str) -> Response:
        read_parameters(request, ())
        found = pairs.pair(pair)
        terms = screens.terms_of(found)
        diagnosis = screens.diagnosis_of(found, terms, clock.now())
        changed = [asdict(change) for change in changes.since_last_success(found, terms)]
        shown = {**DiagnosisSerializer(diagnosis).data, "state": diagnosis.state, "changed_since_last_success": changed}
        return Response(shown)


class PairPing(Endpoint):
    """/pairs/{pair}/ping"""

    @operation(
        id="pairs_ping",
        tag="pairs",
        scope="pairs:operate",
        summary="Look at the partner's endpoint step by step: name, connection, TLS, certificate, HTTP, echo",
        description="Takes up to 20 s. Nothing of a message is sent. What is found is kept: see /probes.",
        path=_PATH,
        responses={200: ProbeSerializer},
        problems=("agreement_missing",),
    )
    def post(self, request: Request, pair: str) -> Response:
        read_parameters(request, ())
        return Response(probe(probing.ping(pair_id=pairs.pair(pair).pk, actor=actor_of(request))))


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
        path=_PATH,
        parameters=(
            Param("which", "head: only what is first in line.", "choice", choices=("queue", "head"), default="queue"),
        ),
        responses={(200, "application/zip"): OCTETS[(200, "*/*")]},
        problems=("wrong_state",),
    )
    def get(self, request: Request, pair: str) -> HttpResponseBase:
        which = Param("which", "", "choice", choices=("queue", "head"), default="queue")
        values = read_parameters(request, (which,))
        export = exporting.pair_export(
            pair_id=pairs.pair(pair).pk,
            actor=actor_of(request),
            role=role_of(request.user),
            which=str(values["which"]),
        )
        return StreamingHttpResponse(
            export.chunks,
            content_type="application/zip",
            headers={
                "Content-Disposition": f'attachment; filename="{export.filename}"',
                "X-Content-Type-Options": "nosniff",
            },
        )


_PROBES = (
    Param("pair", "Id of a pair.", "id", prefix="pair"),
    Param("endpoint", "Id of an endpoint.", "id", prefix="end"),
)


class Probes(Endpoint):
    """/probes"""

    @operation(
        id="probes_list",
        tag="pairs",
        scope="pairs:read",
        summary="What looks at partners' endpoints found, newest first",
        parameters=(*_PROBES, *PAGING),
        responses={200: page_of(ProbeSerializer)},
        problems=("invalid_cursor", "cursor_mismatch"),
    )
    def get(self, request: Request) -> Response:
        values, limit, place = read_list(request, _PROBES)
        found = probes.probes(endpoint_id=values["endpoint"], pair_id=values["pair"])
        return listing(request, values, keyset.page(found, order=("-id",), limit=limit, place=place), ProbeSerializer)


class OneProbe(Endpoint):
    """/probes/{probe}"""

    @operation(
        id="probes_read",
        tag="pairs",
        scope="pairs:read",
        summary="One look at an endpoint",
        path={"probe": "Id of the report (`prb_...`)."},
        responses={200: ProbeSerializer},
    )
    def get(self, request: Request, probe: str) -> Response:
        read_parameters(request, ())
        return Response(ProbeSerializer(probes.probe(read_id("prb", probe))).data)
