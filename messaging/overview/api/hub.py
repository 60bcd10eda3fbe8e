"""The hub about itself: health, the catalogue of problems, the OpenAPI document and its page."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views import defaults
from drf_spectacular.types import OpenApiTypes
from rest_framework.request import Request
from rest_framework.response import Response

from messaging.api.catalogue import CODES, Code
from messaging.api.endpoint import AnyOctets, Endpoint, operation
from messaging.api.permissions import PUBLIC
from messaging.api.problems import Problem, django_problem
from messaging.api.reading import read_parameters
from messaging.overview.selectors.health import health
from messaging.overview.serializers import records as shapes


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
        responses={200: shapes.HealthSerializer},
        problems=("unhealthy",),
    )
    def get(self, request: Request) -> Response:
        read_parameters(request, ())
        found = health()
        checks = dict(shapes.ChecksSerializer(found).data)
        parts = [dict(one) for one in shapes.PartSerializer(found.parts, many=True).data]
        if not found.ready:
            raise Problem("unhealthy", checks=checks, parts=parts)
        body = {
            "status": "ok" if found.ok else "degraded",
            "ready": True,
            "name": settings.RMHUB_NAME,
            "environment": settings.RMHUB_ENVIRONMENT,
        }
        return Response({**body, "checks": checks, "parts": parts})


class Problems(Public):
    """/problems"""

    @operation(
        id="problems_list",
        tag="hub",
        scope=PUBLIC,
        summary="All kinds of problems that this API answers",
        responses={200: shapes.CatalogueSerializer},
    )
    def get(self, request: Request) -> Response:
        read_parameters(request, ())
        return Response({"data": [_entry(code) for code in CODES.values()]})


class OneProblem(Public):
    """/problems/{code}"""

    @operation(
        id="problems_read",
        tag="hub",
        scope=PUBLIC,
        summary="One kind of problem: what `type` of a problem refers to",
        path={"code": "The code, with - for _."},
        responses={200: shapes.CatalogueEntrySerializer},
    )
    def get(self, request: Request, code: str) -> Response:
        read_parameters(request, ())
        known = CODES.get(code.replace("-", "_"))
        if known is None:
            raise Problem("not_found", "There is no such code.")
        return Response(_entry(known))


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


def _entry(code: Code) -> dict[str, object]:
    return {**asdict(code), "type": code.type}
