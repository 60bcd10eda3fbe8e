"""The hub about itself: health, problems and causes, how far back it remembers, the OpenAPI document and its page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views import defaults
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from messaging.api.catalogue import CODES
from messaging.api.endpoint import AnyOctets, Endpoint, operation
from messaging.api.fields import IdOut
from messaging.api.handlers import shown
from messaging.api.named import AgreementNamed, PartyRef
from messaging.api.permissions import PUBLIC
from messaging.api.problems import Problem, django_problem
from messaging.api.reading import Param, read_parameters
from messaging.causes import CAUSES
from messaging.overview.selectors.health import health
from messaging.overview.selectors.memory import Window, recollection
from messaging.overview.selectors.metrics import PAIRS_AT_MOST, registry_of
from messaging.overview.serializers import CauseSerializer
from partners.choices import ExchangeIdentity
from rmhub import clock, metrics
from rmhub.ids import public_id

Row = TypeVar("Row")
PAIRS = (Param("pair", f"Codes of up to {PAIRS_AT_MOST} pairs, comma separated, to be told one by one."),)


class ChecksSerializer(serializers.Serializer):
    """What /health looked at."""

    database = serializers.BooleanField()
    broker = serializers.BooleanField()
    oldest_due_at = serializers.DateTimeField(allow_null=True, help_text="The oldest work whose time has come.")
    overdue_seconds = serializers.IntegerField()
    circuits_open = serializers.IntegerField(
        help_text="Partners' servers to which sending is stopped for a while: see /circuits."
    )
    store = serializers.BooleanField(help_text="Whether the payload store takes a document now.")
    store_free = serializers.IntegerField(
        allow_null=True, help_text="Octets that are free where the payload store lies; null: not known."
    )


class PartSerializer(serializers.Serializer):
    """How one part of the hub is."""

    name = serializers.CharField(help_text="database, store, broker, workers.")
    state = serializers.ChoiceField(choices=["ok", "degraded", "down"])
    detail = serializers.CharField(allow_blank=True, help_text="What is wrong, and what to do; empty for `ok`.")
    since = serializers.DateTimeField(
        allow_null=True, help_text="Since when that is known; of what no row tells, to this web server."
    )


class HealthSerializer(serializers.Serializer):
    """This web server can take and answer requests; the parts say how the rest of the hub is."""

    status = serializers.ChoiceField(
        choices=["ok", "degraded"], help_text="`degraded`: a part does not do its work as it should."
    )
    ready = serializers.BooleanField(help_text="Always true here; with 503 it is not ready.")
    name = serializers.CharField()
    environment = serializers.CharField()
    checks = ChecksSerializer()
    parts = PartSerializer(many=True)


class CatalogueEntrySerializer(serializers.Serializer):
    """One kind of problem."""

    type = serializers.CharField()
    code = serializers.CharField()
    status = serializers.IntegerField()
    title = serializers.CharField()
    meaning = serializers.CharField()
    retryable = serializers.BooleanField()


class CatalogueSerializer(serializers.Serializer):
    """All kinds of problems."""

    data = CatalogueEntrySerializer(many=True)  # type: ignore[assignment]


class CausesSerializer(serializers.Serializer):
    """All causes."""

    data = CauseSerializer(many=True)  # type: ignore[assignment]


class EpochSerializer(serializers.Serializer):
    """Since when ids are remembered without a gap."""

    id = IdOut("mem", source="epoch", help_text="Another one: memory was lost and started again.")
    memory_start = serializers.DateTimeField(help_text="Requests with an earlier first-instance time are refused.")
    forgotten_through = serializers.DateTimeField(help_text="Ids of requests before it were forgotten on purpose.")
    heartbeat = serializers.DateTimeField(help_text="The latest time that this memory has seen.")
    reason = serializers.CharField(help_text="Why it started again.")


class WindowSerializer(serializers.Serializer):
    """What one agreement in force promises."""

    agreement = serializers.SerializerMethodField()
    partner = serializers.SerializerMethodField()
    identity = serializers.ChoiceField(
        choices=ExchangeIdentity.choices,
        source="terms.exchange_identity",
        help_text="`key`: requests carry an Idempotency-Key and no first-instance time, so no window protects them.",
    )
    window_seconds = serializers.IntegerField(source="terms.memory_window")
    clock_skew_seconds = serializers.IntegerField(source="terms.clock_skew")
    repeat_interval_seconds = serializers.IntegerField(source="terms.repeat_interval")
    earliest_accepted_first_sent = serializers.DateTimeField(source="earliest")
    latest_accepted_first_sent = serializers.DateTimeField(source="latest")

    @extend_schema_field(AgreementNamed)
    def get_agreement(self, window: Window) -> dict[str, str]:
        return {"id": public_id("agr", window.terms.agreement_id), "tpa_id": window.terms.tpa_id}

    @extend_schema_field(PartyRef)
    def get_partner(self, window: Window) -> dict[str, str]:
        return {"id": public_id("par", window.terms.partner_id), "name": window.terms.partner_name}


class MemorySerializer(serializers.Serializer):
    """How far back the ids of repeatable requests are remembered."""

    server_time = serializers.DateTimeField(source="now")
    epoch = EpochSerializer(allow_null=True, help_text="null before the hub first ran.")
    windows = WindowSerializer(many=True, help_text="Of the repeatable agreements in force, by TPAId.")


class Public(Endpoint):
    """A view for everybody: no look at tokens, so that it answers without a database."""

    authentication_classes = ()


class Health(Public):
    """/health"""

    @operation(
        id="health",
        tag="hub",
        scope=PUBLIC,
        summary="Whether this web server can take requests, and how each part of the hub is",
        description="For a balancer the status is enough. 503: the database does not answer or the payload store "
        "cannot take a document (a small file is written to see that), so that this web server can take nothing. 200 "
        "otherwise: `status` is `degraded` when a part does not do its work as it should, such as a broker that is "
        "away or workers that are late; `parts` says which, and since when. What is submitted meanwhile is kept, and "
        "goes out later.",
        responses={200: HealthSerializer},
        problems=("unhealthy",),
    )
    def get(self, request: Request) -> Response:
        read_parameters(request, ())
        found = health()
        checks = dict(ChecksSerializer(found).data)
        parts = [dict(one) for one in PartSerializer(found.parts, many=True).data]
        if not found.ready:
            raise Problem("unhealthy", checks=checks, parts=parts)
        body = {
            "status": "ok" if found.ok else "degraded",
            "ready": True,
            "name": settings.RMHUB_NAME,
            "environment": settings.RMHUB_ENVIRONMENT,
        }
        return Response({**body, "checks": checks, "parts": parts})


def _known(known: Mapping[str, Row], code: str, what: str) -> Row:
    if code not in known:
        raise Problem("not_found", f"There is no such {what}.")
    return known[code]


class Problems(Public):
    """/problems"""

    get = shown(
        lambda: {"data": CODES.values()},
        CatalogueSerializer,
        etag=False,
        id="problems_list",
        tag="hub",
        scope=PUBLIC,
        summary="All kinds of problems that this API answers",
    )


class OneProblem(Public):
    """/problems/{code}"""

    get = shown(
        lambda code: _known(CODES, code.replace("-", "_"), "code"),
        CatalogueEntrySerializer,
        etag=False,
        id="problems_read",
        tag="hub",
        scope=PUBLIC,
        summary="One kind of problem: what `type` of a problem refers to",
        path={"code": "The code, with - for _."},
    )


class Causes(Endpoint):
    """/causes"""

    get = shown(
        lambda: {"data": CAUSES.values()},
        CausesSerializer,
        etag=False,
        id="causes_list",
        tag="hub",
        scope="pairs:read",
        summary="All causes: why something went wrong, and what to do",
        description="The closed list behind every `cause` and `doubt`. It is the same until the hub is updated.",
    )


class OneCause(Endpoint):
    """/causes/{code}"""

    get = shown(
        lambda code: _known(CAUSES, code, "cause"),
        CauseSerializer,
        etag=False,
        id="causes_read",
        tag="hub",
        scope="pairs:read",
        summary="One cause: what a code means",
        path={"code": "The code, such as `ack_timeout`."},
    )


class Memory(Endpoint):
    """/memory"""

    get = shown(
        lambda: recollection(clock.now()),
        MemorySerializer,
        etag=False,
        id="memory_read",
        scope="agreements:read",
        summary="How far back the ids of repeatable requests are remembered",
        description="A request whose first-instance time lies before `earliest_accepted_first_sent` is refused, for "
        "nobody could tell whether it was executed.",
    )


class OpenApi(Public):
    """/openapi.json"""

    @operation(
        id="openapi",
        tag="hub",
        scope=PUBLIC,
        summary="This document",
        responses={200: OpenApiTypes.OBJECT},
    )
    def get(self, request: Request) -> HttpResponse:
        from messaging.api.openapi import document_json  # it imports the views

        read_parameters(request, ())
        return HttpResponse(document_json(), content_type="application/vnd.oai.openapi+json;version=3.1")


class Docs(Public):
    """/docs"""

    content_negotiation_class = AnyOctets

    @operation(
        id="docs",
        tag="hub",
        scope=PUBLIC,
        summary="This document as a page",
        responses={(200, "text/html"): OpenApiTypes.STR},
    )
    def get(self, request: Request) -> HttpResponse:
        read_parameters(request, ())
        return render(request._request, "api/docs.html", {"hub": settings.RMHUB_NAME})


class Metrics(Endpoint):
    """/metrics, also at the root, where Prometheus looks by itself."""

    content_negotiation_class = AnyOctets

    @operation(
        id="metrics",
        tag="hub",
        scope="pairs:read",
        whole_hub=True,
        summary="The hub in numbers, in the OpenMetrics format",
        description="For Prometheus and what reads the same, with a token as `authorization`. `rmhub_http_`, "
        "`rmhub_group_`, `rmhub_database_` and `process_` are of the web server that answers; all else is of the hub, "
        "and every web server says the same. Workers answer for themselves at `RMHUB_METRICS_LISTEN`.",
        parameters=PAIRS,
        responses={(200, metrics.CONTENT_TYPE): OpenApiTypes.STR},
    )
    def get(self, request: Request) -> HttpResponse:
        given = read_parameters(request, PAIRS)
        codes = [code.strip() for code in (given.get("pair") or "").split(",") if code.strip()]
        if len(codes) > PAIRS_AT_MOST:
            raise Problem("invalid_parameter", f"At most {PAIRS_AT_MOST} pairs in one question.")
        answer = metrics.exposition(registry_of(codes))
        return HttpResponse(answer, content_type=metrics.CONTENT_TYPE)


def not_found(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
    """Whatever is under /api/ and is no path."""
    return django_problem(request, "not_found")


def handler400(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's: what is refused before it reaches a view, e.g. for its Host header."""
    return django_problem(request, "bad_request") if _is_ours(request) else defaults.bad_request(request, exception)


def handler500(request: HttpRequest) -> HttpResponse:
    """Django's: what fails outside of the views, e.g. in middleware."""
    return django_problem(request, "internal_error") if _is_ours(request) else defaults.server_error(request)


def _is_ours(request: HttpRequest) -> bool:
    return request.path.startswith("/api/")
