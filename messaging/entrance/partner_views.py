"""What partners may ask beside the messages themselves, JSON out (docs/partner-services.md).

GET /partner/status says what became of a message of theirs; /partner/echo is a mirror: GET says who they are taken for,
POST what was understood of a message, of which nothing is stored. A partner hears about messages that it has sent us,
and of nobody else's: those are as unknown as ones that never were. The words are those of ebXML Message Service 2.0,
7.1; our own questions are in `messages.services.inquiries`.
"""

from __future__ import annotations

import hashlib
import logging
import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import DatabaseError, InterfaceError
from django.db.models import Q
from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from messaging import profile
from messaging.bench import Agreements, Headers, Understood
from messaging.choices import DeliveryState, Direction, PartnerAnswer, RequestState
from messaging.entrance import authentication, reading
from messaging.entrance.refusals import Arrival
from messaging.models import ArchivedMessage, Delivery, Message, MessageIdentity, RememberedRequest
from partners import registry
from partners.choices import Profile
from partners.models import AgreementVersion
from partners.terms import Principal, Terms
from rmhub import clock

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
        if not message_id or len(message_id) > MAX_ID or "\x00" in message_id:
            raise _Refused(400, f"A MessageId has 1 to {MAX_ID} characters.")
        found = status_of(message_id, principal)
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
            return _json(greeting(principal))
        body = reading.body(request, MAX_ECHO)
        if body is None:
            raise _Refused(413, f"A test message has at most {MAX_ECHO} bytes.")
        found = understand(
            content_type=request.META.get("CONTENT_TYPE", "")[:1000],
            headers=reading.headers(request),
            body=body[:],
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


MAX_ECHO = 1024 * 1024
_MOST_PROBLEMS = 20


def greeting(principal: Principal) -> dict[str, Any]:
    """Whom the caller is taken for, and what may be posted."""
    return {"partner": principal.party_name, "at": clock.now().isoformat(), "profiles": list(Profile.values)}


def understand(*, content_type: str, headers: Headers, body: bytes, principal: Principal) -> dict[str, Any]:
    """What the hub reads in a message of any profile, and what would be wrong with it. Never raises for bad input.

    Agreements of this partner count whatever their state is, drafts too; those of others are unknown.
    """
    understood = _read(content_type, headers, body, lambda: _terms_of(principal))
    return {
        **greeting(principal),
        "profile": understood.profile,
        "bytes": len(body),
        "sha256": hashlib.sha256(body).hexdigest(),
        "message": understood.message,
        "payloads": understood.payloads,
        "problems": understood.problems[:_MOST_PROBLEMS],
    }


def _read(content_type: str, headers: Headers, body: bytes, agreements: Agreements) -> Understood:
    """Has the profiles read the message, until one can."""
    unread = Understood()
    # Requests first: a header says that it is one, whatever its body could be read as.
    for speaks in sorted(map(profile.named, Profile.values), key=lambda one: not one.answered_at_once):
        found = speaks.bench.understand(content_type, headers, body, agreements)
        if found.profile:
            return found
        unread.problems += found.problems
    return unread


def _terms_of(principal: Principal) -> list[Terms]:
    """The newest version of each agreement that this partner's endpoints are the next hop of."""
    rows = AgreementVersion.objects.filter(partner_endpoint__party=principal.party_id).order_by("agreement", "-number")
    newest = {row.agreement_id: row.pk for row in reversed(rows)}
    in_force = {terms.agreement_id: terms for terms in registry.current().by_hop(principal.party_id)}
    return [in_force.get(key) or registry.current().version(version) for key, version in newest.items()]


MAX_ID = 512  # characters of a MessageId
_DONE = (DeliveryState.COMPLETED, DeliveryState.DUPLICATE, DeliveryState.DISCARDED, DeliveryState.SETTLED)


@dataclass(frozen=True, slots=True)
class Status:
    """The answer, and since when we have the message (None = we do not know it, or no longer when it came)."""

    answer: PartnerAnswer
    received_at: datetime | None = None


def status_of(message_id: str, principal: Principal) -> Status:
    """What has become of the newest message that this partner sent us under this MessageId.

    `processed`: every application that wanted it has taken it. `received`: stored, and not yet processed, or its
    processing failed or is in doubt. `forwarded`: passed on to the next hop. `not_recognized`: we have no such message
    of theirs, neither stored nor archived nor among the ids that are remembered.
    """
    party = principal.party_id
    theirs = Q(pair__partner=party) | Q(agreement_version__partner_endpoint__party=party)
    stored = Message.objects.filter(theirs, message_id=message_id, direction=Direction.IN)
    message = stored.order_by("-id").values_list("pk", "created_at").first()
    if message is not None:
        return Status(_of_stored(message[0]), message[1])
    archived = ArchivedMessage.objects.filter(message_id=message_id, direction=Direction.IN, pair__partner=party)
    if (came := archived.order_by("-id").values_list("created_at", flat=True).first()) is not None:
        return Status(PartnerAnswer.PROCESSED, came)  # only what is finished leaves the store
    identity = MessageIdentity.objects.filter(scope=party, direction=Direction.IN, message_id=message_id)
    if (came := identity.values_list("created_at", flat=True).first()) is not None:
        return Status(PartnerAnswer.RECEIVED, came)
    remembered = RememberedRequest.objects.filter(sender=party, request_id=message_id)
    state = remembered.exclude(state=RequestState.FORGOTTEN).values_list("state", flat=True).first()
    if state is not None:
        return Status(PartnerAnswer.PROCESSED if state == RequestState.ANSWERED else PartnerAnswer.RECEIVED)
    return Status(PartnerAnswer.NOT_RECOGNIZED)


def _of_stored(message_id: uuid.UUID) -> PartnerAnswer:
    if Message.objects.filter(forwarded_from=message_id).exists():
        return PartnerAnswer.FORWARDED
    deliveries = list(Delivery.objects.filter(message=message_id).values_list("state", flat=True))
    done = bool(deliveries) and all(state in _DONE for state in deliveries)
    return PartnerAnswer.PROCESSED if done else PartnerAnswer.RECEIVED
