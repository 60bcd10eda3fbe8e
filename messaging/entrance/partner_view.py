"""What partners may ask about their own messages: GET /partner/status, JSON out (docs/partner-services.md)."""

from __future__ import annotations

import logging

from django.db import DatabaseError, InterfaceError
from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from messaging.choices import PartnerAnswer
from messaging.entrance import authentication as door
from messaging.entrance import partner_status, reading
from partners.terms import Principal

log = logging.getLogger(__name__)


@csrf_exempt
def status(request: HttpRequest) -> JsonResponse:
    """GET with `message-id`: {"message_id", "status", "received_at"?}. 400, 401, 405, 429, 503 with a `detail`."""
    if request.method not in ("GET", "HEAD"):
        return _said(405, "Ask with GET.", Allow="GET, HEAD")
    try:
        principal = _authenticated(request)
        if isinstance(principal, JsonResponse):
            return principal
        message_id = request.GET.get("message-id", "")
        if set(request.GET) - {"message-id"} or len(request.GET.getlist("message-id")) != 1:
            return _said(400, "Give one parameter, message-id: the MessageId of a message that you have sent us.")
        if not message_id or len(message_id) > partner_status.MAX_ID or "\x00" in message_id:
            return _said(400, f"A MessageId has 1 to {partner_status.MAX_ID} characters.")
        found = partner_status.status_of(message_id, principal)
    except (DatabaseError, InterfaceError):
        log.exception("cannot read now", extra={"action": "status_failed"})
        return _said(503, "The hub cannot look it up now: ask again.", **{"Retry-After": str(reading.SOON)})
    answer = {"message_id": message_id, "status": found.answer.value}
    if found.received_at is not None:
        answer["received_at"] = found.received_at.isoformat()
    return _json(answer, 200)


def _authenticated(request: HttpRequest) -> Principal | JsonResponse:
    """The partner at the door, or the answer to whoever is none. Guessing is slowed down as for messages."""
    entered = reading.entered(request)
    if entered.principal is not None:
        return entered.principal
    if entered.status != 401:
        return _said(entered.status, door.SENTENCES[entered.reason], **{"Retry-After": str(entered.wait)})
    unauthorized = {"status": PartnerAnswer.UNAUTHORIZED.value, "detail": "No credential of a partner was shown."}
    challenge = 'Basic realm="Partner services", charset="UTF-8"'
    return _json(unauthorized, 401, **{"WWW-Authenticate": challenge})


def _said(status: int, detail: str, **headers: str) -> JsonResponse:
    return _json({"detail": detail}, status, **headers)


def _json(data: dict[str, str], status: int, **headers: str) -> JsonResponse:
    answer = JsonResponse(data, status=status)
    answer["Cache-Control"] = "no-store"
    for name, value in headers.items():
        answer[name] = value
    return answer
