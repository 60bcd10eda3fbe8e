"""A mirror for partners: GET /partner/echo says who they are taken for, POST says what was understood of a message."""

from __future__ import annotations

import logging

from django.db import DatabaseError, InterfaceError
from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from messaging.entrance import authentication as door
from messaging.entrance import partner_echo, reading
from partners.terms import Principal

log = logging.getLogger(__name__)


@csrf_exempt
def echo(request: HttpRequest) -> JsonResponse:
    """200 with JSON; 401, 405, 413, 429 and 503 as {"detail"}. Nothing that comes here is stored or acknowledged."""
    if request.method not in ("GET", "HEAD", "POST"):
        return _said(405, "GET asks who you are; POST a message to be told what it says.", Allow="GET, HEAD, POST")
    try:
        principal = _authenticated(request)
        if isinstance(principal, JsonResponse):
            return principal
        if request.method != "POST":
            return _json(partner_echo.greeting(principal), 200)
        body = reading.body(request, partner_echo.MAX_BYTES)
        if body is None:
            return _said(413, f"A test message has at most {partner_echo.MAX_BYTES} bytes.")
        found = partner_echo.understand(
            content_type=request.META.get("CONTENT_TYPE", "")[:1000],
            headers={name.lower(): [value] for name, value in request.headers.items()},
            body=body,
            principal=principal,
        )
    except (DatabaseError, InterfaceError):
        log.exception("cannot read now", extra={"action": "echo_failed"})
        return _said(503, "The hub cannot answer now: ask again.", **{"Retry-After": str(reading.SOON)})
    return _json(found, 200)


def _authenticated(request: HttpRequest) -> Principal | JsonResponse:
    """The partner at the door, or the answer to whoever is none. Guessing is slowed down as for messages."""
    entered = reading.entered(request)
    if entered.principal is not None:
        return entered.principal
    if entered.status != 401:
        return _said(entered.status, door.SENTENCES[entered.reason], **{"Retry-After": str(entered.wait)})
    challenge = 'Basic realm="Partner services", charset="UTF-8"'
    return _said(401, "No credential of a partner was shown.", **{"WWW-Authenticate": challenge})


def _said(status: int, detail: str, **headers: str) -> JsonResponse:
    return _json({"detail": detail}, status, **headers)


def _json(data: dict[str, object], status: int, **headers: str) -> JsonResponse:
    answer = JsonResponse(data, status=status)
    answer["Cache-Control"] = "no-store"
    for name, value in headers.items():
        answer[name] = value
    return answer
