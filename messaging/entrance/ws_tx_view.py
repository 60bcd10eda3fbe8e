"""The partners' entrance for atomic transactions (spec 5): one SOAP message in, one service call, no body out."""

from __future__ import annotations

import logging
from dataclasses import replace

from django.conf import settings
from django.db import DatabaseError, InterfaceError
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt

from messaging.engine import memory as epoch
from messaging.entrance import reading
from messaging.profiles.ebxml.receiving import Arrival
from messaging.profiles.wsat.receiving import Answer, receive, refuse, turn_away
from rmhub import clock

log = logging.getLogger(__name__)


@csrf_exempt
def coordination(request: HttpRequest, service: str) -> HttpResponse:
    """POST one message to a service. 202, or 400, 401, 403, 404, 405, 413, 415, 429, 503; never a body.

    Replies, faults and notifications go out over connections of their own (spec 5).
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
        body = reading.body(request, settings.RMHUB_TRANSACTION_MESSAGE_BYTES)
        if body is None:
            limit = f"More than {settings.RMHUB_TRANSACTION_MESSAGE_BYTES} bytes."
            refused = refuse(arrival, 413, "body_too_large", limit, clock.now(), principal=entered.principal)
            return _answer(refused)
        soap_action = request.META.get("HTTP_SOAPACTION", "")[:1000]
        epoch.look()
        arrival = replace(arrival, body=body)
        return _answer(receive(arrival, service=service, soap_action=soap_action, principal=entered.principal))
    except (DatabaseError, InterfaceError, OSError):
        # Nothing was stored; the peer keeps its copy and sends it again.
        log.exception("cannot store now", extra={"action": "receive_failed"})
        return _answer(Answer(503, retry_after=reading.SOON))


def _answer(answer: Answer) -> HttpResponse:
    response = HttpResponse(status=answer.status)
    if answer.retry_after is not None:
        response["Retry-After"] = str(answer.retry_after)
    if answer.status == 401:
        response["WWW-Authenticate"] = 'Basic realm="Atomic transactions", charset="UTF-8"'
    return _bodyless(response)


def _bodyless(response: HttpResponse) -> HttpResponse:
    del response["Content-Type"]
    response["Content-Length"] = "0"
    return response
