"""The partners' entrance for repeatable requests (spec 2): bytes in, one service call, its answer out."""

from __future__ import annotations

import logging
from dataclasses import replace

from django.conf import settings
from django.db import DatabaseError, InterfaceError
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt

from messaging.engine.memory import MemoryChanged, ready
from messaging.entrance import reading
from messaging.profiles.repeatable import memory_status as telling
from messaging.profiles.repeatable.answers import Answer, problem, told
from messaging.profiles.repeatable.exchanging import exchange as answer
from messaging.profiles.repeatable.exchanging import refuse_body, turn_away
from messaging.profiles.repeatable.problems import PROBLEMS
from messaging.profiles.repeatable.reading import Request
from rmhub import clock

log = logging.getLogger(__name__)


@csrf_exempt
def exchange(request: HttpRequest, path: str) -> HttpResponse:
    """Any method. Statuses as in OASIS Repeatable Requests, errors as problem details: docs/repeatable-requests.md."""
    arrival = Request(
        method=(request.method or "")[:20],
        path=path,
        target=request.get_full_path(),
        headers=_headers(request),
        content_type=request.META.get("CONTENT_TYPE", "")[:1000],
        body=b"",
        presented=reading.presented(request),
        remote_address=reading.address(request),
    )
    try:
        entered = reading.entered(request)
        if entered.principal is None:
            return respond(request, turn_away(replace(arrival, body=reading.at_hand(request)), entered))
        body = reading.body(request, settings.RMHUB_MAX_MESSAGE_BYTES)
        if body is None:
            return respond(request, refuse_body(arrival, settings.RMHUB_MAX_MESSAGE_BYTES, entered.principal))
        return respond(request, answer(replace(arrival, body=body), entered.principal))
    except (DatabaseError, InterfaceError, OSError, MemoryChanged):
        # Nothing was stored, or what was stored will be found by the next copy; the partner sends it again.
        log.exception("cannot store now", extra={"action": "exchange_failed"})
        return respond(request, problem("unavailable", retry_after=reading.SOON))


@csrf_exempt
def well_known(request: HttpRequest) -> HttpResponse:
    """`/.well-known/reliable-messaging`: how long ids are remembered here. Told to everybody, the same to everybody."""
    if request.method not in ("GET", "HEAD", "OPTIONS"):
        headers = {"Allow": "GET, HEAD, OPTIONS"}
        return respond(request, problem("method-not-allowed", result="", headers=headers))
    now = clock.now()
    try:
        known = telling.of_hub(ready(now), now)
    except (DatabaseError, InterfaceError, OSError, MemoryChanged):
        log.exception("cannot read now", extra={"action": "exchange_failed"})
        return respond(request, problem("unavailable", result="", retry_after=reading.SOON))
    if known is None:
        detail = "No agreement for repeatable requests is in force."
        return respond(request, problem("unknown-agreement", detail, result=""))
    return respond(request, told(known))


@csrf_exempt
def problems(request: HttpRequest, code: str = "") -> HttpResponse:
    """What the `type` of a problem leads to: the table of all, or one row of it."""
    if request.method not in ("GET", "HEAD", "OPTIONS"):
        headers = {"Allow": "GET, HEAD, OPTIONS"}
        return respond(request, problem("method-not-allowed", result="", headers=headers))
    rows = [
        {
            "type": kind.type,
            "status": kind.status,
            "title": kind.title,
            "meaning": kind.meaning,
            "retryable": kind.retryable,
        }
        for kind in PROBLEMS.values()
        if code in ("", kind.code)
    ]
    if code and not rows:
        return respond(request, problem("unknown-problem", result=""))
    return respond(request, told(rows[0] if code else {"problems": rows}))


def _headers(request: HttpRequest) -> dict[str, list[str]]:
    return {name.lower(): [value] for name, value in request.headers.items()}


def respond(request: HttpRequest, answer: Answer) -> HttpResponse:
    """An answer of the service as one of HTTP."""
    bodyless = request.method == "HEAD" or answer.status in (204, 304)
    response = HttpResponse(b"" if bodyless else answer.body, status=answer.status)
    del response["Content-Type"]  # an answer without a body has none; every other says its own
    for name, value in answer.headers:
        # A name that comes twice is one header with two values (RFC 9110, 5.3); Set-Cookie, which is not, never comes.
        response[name] = f"{response[name]}, {value}" if name in response else value
    if not bodyless:
        response["Content-Length"] = str(len(answer.body))
    return response
