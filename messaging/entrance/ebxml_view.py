"""The partners' HTTP entrance: bytes in, one service call, a bodyless answer (spec 1, 2.5.1)."""

from __future__ import annotations

import logging
from dataclasses import replace

from django.conf import settings
from django.db import DatabaseError, InterfaceError
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt

from messaging.engine import memory as epoch
from messaging.entrance import reading
from messaging.profiles.ebxml.receiving import Arrival, receive, refuse, turn_away
from messaging.protocol.limits import Limits
from rmhub import clock

log = logging.getLogger(__name__)


@csrf_exempt
def ebxml(request: HttpRequest) -> HttpResponse:
    """POST one message. 204, or 400, 401, 403, 405, 413, 429, 503 (cannot store now); never a body."""
    if request.method != "POST":
        answer = HttpResponse(status=405)
        answer["Allow"] = "POST"
        return answer
    arrival = Arrival(
        content_type=request.META.get("CONTENT_TYPE", "")[:1000],
        body=b"",
        presented=reading.presented(request),
        remote_address=reading.address(request),
    )
    try:
        entered = reading.entered(request)
        if entered.principal is None:
            turned = turn_away(replace(arrival, body=reading.at_hand(request)), entered)
            return _answer(request, turned, entered.wait)
        body = reading.body(request, settings.RMHUB_MAX_MESSAGE_BYTES)
        if body is None:
            limit = f"More than {settings.RMHUB_MAX_MESSAGE_BYTES} bytes."
            status = refuse(arrival, 413, "body_too_large", limit, clock.now(), principal=entered.principal)
            return _answer(request, status)
        limits = Limits(body=settings.RMHUB_MAX_MESSAGE_BYTES)
        epoch.look()
        return _answer(request, receive(replace(arrival, body=body), limits=limits, principal=entered.principal))
    except (DatabaseError, InterfaceError, OSError):
        # Nothing was stored; the partner keeps its copy and sends it again.
        log.exception("cannot store now", extra={"action": "receive_failed"})
        answer = HttpResponse(status=503)
        answer["Retry-After"] = str(reading.SOON)
        return answer


def _answer(request: HttpRequest, status: int, wait: int = 0) -> HttpResponse:
    """HTTP/1.0 peers get 200 with a length of zero instead of 204 (wire-ebxml 1.10)."""
    if status == 204 and request.META.get("SERVER_PROTOCOL") == "HTTP/1.0":
        status = 200
    answer = HttpResponse(status=status)
    if status != 204:
        answer["Content-Length"] = "0"
    if wait:
        answer["Retry-After"] = str(wait)
    if status == 401:
        answer["WWW-Authenticate"] = 'Basic realm="ebXML messaging service", charset="UTF-8"'
    return answer
