"""The partners' entrance for transactional streams (spec 3, in the form of [MC-MQSRM]): bytes in, one service call."""

from __future__ import annotations

import logging
from dataclasses import replace

from django.conf import settings
from django.db import DatabaseError, InterfaceError
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt

from messaging.engine import memory as epoch
from messaging.entrance import reading
from messaging.profiles.ebxml.receiving import Arrival, refuse
from messaging.profiles.stream.receiving import Answer, receive, turn_away
from messaging.protocol.limits import Limits
from rmhub import clock

log = logging.getLogger(__name__)


@csrf_exempt
def stream(request: HttpRequest, path: str) -> HttpResponse:
    """POST one message or receipt. 202, or 400, 401, 403, 404, 405, 413, 429, 503; never a body.

    `path` is for people: which stream URI is meant, the message itself says.
    """
    if request.method != "POST":
        answer = HttpResponse(status=405)
        answer["Allow"] = "POST"
        return _bodyless(answer)
    arrival = Arrival(
        content_type=request.META.get("CONTENT_TYPE", "")[:1000],
        body=b"",
        presented=reading.presented(request),
        remote_address=reading.address(request),
    )
    try:
        entered = reading.entered(request)
        if entered.principal is None:
            return _answer(turn_away(replace(arrival, body=reading.at_hand(request)), entered))
        body = reading.body(request, settings.RMHUB_MAX_MESSAGE_BYTES)
        if body is None:
            limit = f"More than {settings.RMHUB_MAX_MESSAGE_BYTES} bytes."
            refused = refuse(arrival, 413, "body_too_large", limit, clock.now(), principal=entered.principal)
            return _answer(Answer(refused))
        limits = Limits(body=settings.RMHUB_MAX_MESSAGE_BYTES)
        epoch.look()
        return _answer(receive(replace(arrival, body=body), limits=limits, principal=entered.principal))
    except (DatabaseError, InterfaceError, OSError):
        # Nothing was stored; the partner keeps its copy and sends it again.
        log.exception("cannot store now", extra={"action": "receive_failed"})
        return _answer(Answer(503, retry_after=reading.SOON))


def _answer(answer: Answer) -> HttpResponse:
    response = HttpResponse(status=answer.status)
    if answer.retry_after is not None:
        response["Retry-After"] = str(answer.retry_after)
    if answer.status == 401:
        response["WWW-Authenticate"] = 'Basic realm="Transactional streams", charset="UTF-8"'
    return _bodyless(response)


def _bodyless(response: HttpResponse) -> HttpResponse:
    del response["Content-Type"]
    response["Content-Length"] = "0"
    return response
