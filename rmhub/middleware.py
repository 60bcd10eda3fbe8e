"""Middleware of the whole site."""

from __future__ import annotations

import re
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from rmhub.ids import public_id, uuid7

_ACCEPTABLE = re.compile(r"[A-Za-z0-9._:-]{1,80}")


def request_id(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Gives each request an id (the caller's own if it is sane) and says it in the answer."""

    def middleware(request: HttpRequest) -> HttpResponse:
        given = request.headers.get("X-Request-Id", "")
        request.request_id = given if _ACCEPTABLE.fullmatch(given) else public_id("req", uuid7())  # type: ignore[attr-defined]
        response = get_response(request)
        response["X-Request-Id"] = request.request_id  # type: ignore[attr-defined]
        return response

    return middleware
