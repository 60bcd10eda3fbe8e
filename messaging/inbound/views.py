"""The partners' HTTP entrance: bytes in, one service call, a bodyless answer (spec 1, 2.5.1)."""

from __future__ import annotations

import logging

from django.conf import settings
from django.db import DatabaseError, InterfaceError
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt

from messaging.protocol.limits import Limits
from messaging.services.receiving import Arrival, receive, refuse
from partners.terms import Presented
from rmhub import clock

log = logging.getLogger(__name__)

_CHUNK = 256 * 1024
_LONGEST_LENGTH = 15  # digits of a Content-Length; more would be petabytes


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
        presented=_presented(request),
        remote_address=request.META.get("REMOTE_ADDR", ""),
    )
    try:
        body = _read(request, settings.RMHUB_MAX_MESSAGE_BYTES)
        if body is None:
            limit = f"More than {settings.RMHUB_MAX_MESSAGE_BYTES} bytes."
            status = refuse(arrival, 413, "body_too_large", limit, clock.now())
            return _answer(request, status)
        limits = Limits(body=settings.RMHUB_MAX_MESSAGE_BYTES)
        arrival = Arrival(arrival.content_type, body, arrival.presented, arrival.remote_address)
        return _answer(request, receive(arrival, limits=limits))
    except (DatabaseError, InterfaceError, OSError):
        # Nothing was stored; the partner keeps its copy and sends it again.
        log.exception("cannot store now", extra={"action": "receive_failed"})
        answer = HttpResponse(status=503)
        answer["Retry-After"] = "5"
        return answer


def _read(request: HttpRequest, limit: int) -> bytes | None:
    """The body, or None when it is larger than `limit`: a declared length is refused before a byte is read."""
    declared = request.META.get("CONTENT_LENGTH") or ""
    if declared.isascii() and declared.isdigit():
        if len(declared) > _LONGEST_LENGTH or int(declared) > limit:
            return None
        return bytes(request.read(int(declared)))
    # A chunked body has no length, and without one Django reads nothing. Only where the server ends the input itself
    # (wsgi.input_terminated) may it be read to its end.
    stream = request.META["wsgi.input"] if request.META.get("wsgi.input_terminated") else request
    pieces, size = [], 0
    while piece := stream.read(_CHUNK):
        size += len(piece)
        if size > limit:
            return None
        pieces.append(piece)
    return b"".join(pieces)


def _presented(request: HttpRequest) -> Presented:
    fingerprint = ""
    if settings.RMHUB_FINGERPRINT_HEADER:
        fingerprint = request.headers.get(settings.RMHUB_FINGERPRINT_HEADER, "")
    return Presented(authorization=request.headers.get("Authorization", ""), fingerprint=fingerprint)


def _answer(request: HttpRequest, status: int) -> HttpResponse:
    """HTTP/1.0 peers get 200 with a length of zero instead of 204 (wire-ebxml 1.10)."""
    if status == 204 and request.META.get("SERVER_PROTOCOL") == "HTTP/1.0":
        status = 200
    answer = HttpResponse(status=status)
    if status != 204:
        answer["Content-Length"] = "0"
    if status == 429:
        answer["Retry-After"] = "60"
    if status == 401:
        answer["WWW-Authenticate"] = 'Basic realm="ebXML messaging service", charset="UTF-8"'
    return answer
