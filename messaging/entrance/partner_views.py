"""What partners may ask beside the messages themselves, JSON out (docs/partner-services.md).

GET /partner/status says what became of a message of theirs; /partner/echo is a mirror: GET says who they are taken for,
POST what was understood of a message.
"""

from __future__ import annotations

import logging
from typing import Any

from django.db import DatabaseError, InterfaceError
from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from messaging.choices import PartnerAnswer
from messaging.entrance import authentication, partner_echo, partner_status, reading
from messaging.entrance.refusals import Arrival
from partners.terms import Principal

log = logging.getLogger(__name__)


class _Refused(Exception):
    """Why nothing is said; the answer of it."""

    def __init__(
        self, status: int, detail: str, headers: dict[str, str] | None = None, members: dict[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.answer = _json({**(members or {}), "detail": detail}, status, headers)


@csrf_exempt
def status(request: HttpRequest) -> JsonResponse:
    """GET with `message-id`: {"message_id", "status", "received_at"?}. 400, 401, 405, 429, 503 with a `detail`."""
    try:
        if request.method not in ("GET", "HEAD"):
            raise _Refused(405, "Ask with GET.", {"Allow": "GET, HEAD"})
        principal = _principal(request, {"status": PartnerAnswer.UNAUTHORIZED.value})
        message_id = request.GET.get("message-id", "")
        if set(request.GET) - {"message-id"} or len(request.GET.getlist("message-id")) != 1:
            raise _Refused(400, "Give one parameter, message-id: the MessageId of a message that you have sent us.")
        if not message_id or len(message_id) > partner_status.MAX_ID or "\x00" in message_id:
            raise _Refused(400, f"A MessageId has 1 to {partner_status.MAX_ID} characters.")
        found = partner_status.status_of(message_id, principal)
    except _Refused as refused:
        return refused.answer
    except (DatabaseError, InterfaceError):
        log.exception("cannot read now", extra={"action": "status_failed"})
        return _json({"detail": "The hub cannot look it up now: ask again."}, 503, {"Retry-After": str(reading.SOON)})
    answer = {"message_id": message_id, "status": found.answer.value}
    if found.received_at is not None:
        answer["received_at"] = found.received_at.isoformat()
    return _json(answer)


@csrf_exempt
def echo(request: HttpRequest) -> JsonResponse:
    """200 with JSON; 401, 405, 413, 429 and 503 as {"detail"}. Nothing that comes here is stored or acknowledged."""
    try:
        if request.method not in ("GET", "HEAD", "POST"):
            what = "GET asks who you are; POST a message to see how this hub reads it."
            raise _Refused(405, what, {"Allow": "GET, HEAD, POST"})
        principal = _principal(request)
        if request.method != "POST":
            return _json(partner_echo.greeting(principal))
        body = reading.body(request, partner_echo.MAX_BYTES)
        if body is None:
            raise _Refused(413, f"A test message has at most {partner_echo.MAX_BYTES} bytes.")
        found = partner_echo.understand(
            content_type=request.META.get("CONTENT_TYPE", "")[:1000],
            headers=reading.headers(request),
            body=body,
            principal=principal,
        )
    except _Refused as refused:
        return refused.answer
    except (DatabaseError, InterfaceError):
        log.exception("cannot read now", extra={"action": "echo_failed"})
        return _json({"detail": "The hub cannot answer now: ask again."}, 503, {"Retry-After": str(reading.SOON)})
    return _json(found)


def _principal(request: HttpRequest, unauthorized: dict[str, str] | None = None) -> Principal:
    """The partner who calls. Raises _Refused for whoever is none. Guessing is slowed down as for messages."""
    entered = reading.entered(request, Arrival(**reading.head(request)))
    if entered.principal is not None:
        return entered.principal
    if entered.status != 401:
        raise _Refused(entered.status, authentication.SENTENCES[entered.reason], {"Retry-After": str(entered.wait)})
    challenge = 'Basic realm="Partner services", charset="UTF-8"'
    raise _Refused(401, "No credential of a partner was shown.", {"WWW-Authenticate": challenge}, unauthorized)


def _json(data: dict[str, Any], status: int = 200, headers: dict[str, str] | None = None) -> JsonResponse:
    return JsonResponse(data, status=status, headers={"Cache-Control": "no-store", **(headers or {})})
