"""The partners' entrances for messages, one of each profile: bytes in, one service call, its answer out.

What comes before the message is looked at is the same for all: who sends it, how often they may, how large it is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

from django.conf import settings
from django.db import DatabaseError, InterfaceError
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt

from messaging.engine import memory as hub_memory
from messaging.entrance import reading, refusals
from messaging.entrance.authentication import Entered
from messaging.entrance.refusals import Answer, Arrival
from messaging.profiles.ebms2.receiving import receive as receive_ebms2
from messaging.profiles.ebxml.receiving import receive as receive_ebxml
from messaging.profiles.repeatable import answers, exchanging
from messaging.profiles.repeatable.answers import problem, told
from messaging.profiles.repeatable.problems import PROBLEMS
from messaging.profiles.repeatable.reading import Request
from messaging.profiles.stream.receiving import receive as receive_stream
from messaging.profiles.wsat.receiving import receive as receive_coordination
from messaging.protocol.codecs.mime import MustBeHeld
from messaging.protocol.envelope import Limits
from partners.terms import Principal
from rmhub import clock

log = logging.getLogger(__name__)
A = TypeVar("A", bound=Arrival)
R = TypeVar("R")


def _entered(
    request: HttpRequest,
    arrival: A,
    *,
    limit: int,
    take: Callable[[A, Principal], R],
    turn_away: Callable[[A, Entered], R],
    refuse_body: Callable[[A, int, Principal], R],
    later: Callable[[], R],
    action: str,
) -> R:
    """What comes of a message: `take` answers it when its sender is a partner who may send now, and it is no larger
    than `limit`. `later`: nothing can be stored now, which the log says under `action`.
    """
    try:
        entered = reading.entered(request, arrival)
        if entered.principal is None:
            return turn_away(replace(arrival, body=reading.at_hand(request)), entered)
        body = reading.body(request, limit)
        if body is None:
            return refuse_body(arrival, limit, entered.principal)
        return take(replace(arrival, body=body), entered.principal)
    except MustBeHeld:
        reading.held(request)
    except (DatabaseError, InterfaceError, OSError, hub_memory.MemoryChanged):
        # Nothing was stored, or what was stored will be found by the next copy; the partner sends it again.
        log.exception("cannot store now", extra={"action": action})
        return later()


def _messages(
    request: HttpRequest, limit: int, realm: str, take: Callable[[Arrival, Principal], Answer]
) -> HttpResponse:
    """The entrance of a profile whose answers are a status, and a body only where `take` has one."""
    if request.method != "POST":
        answer = Answer(405)
    else:
        answer = _entered(
            request,
            Arrival(**reading.head(request)),
            limit=limit,
            take=take,
            turn_away=refusals.turn_away,
            refuse_body=refusals.refuse_body,
            later=partial(Answer, 503, reading.SOON),
            action="receive_failed",
        )
    status = answer.status
    if status == 204 and request.META.get("SERVER_PROTOCOL") == "HTTP/1.0":
        status = 200  # with a length of zero (wire-ebxml 1.10)
    response = HttpResponse(answer.body, content_type=answer.content_type or None, status=status)
    if not answer.content_type:
        del response["Content-Type"]
    if status != 204:
        response["Content-Length"] = str(len(answer.body))
    for name, value in answer.headers:
        response[name] = value
    if answer.retry_after is not None:
        response["Retry-After"] = str(answer.retry_after)
    if status == 401:
        response["WWW-Authenticate"] = f'Basic realm="{realm}", charset="UTF-8"'
    if status == 405:
        response["Allow"] = "POST"
    return response


@csrf_exempt
def ebxml(request: HttpRequest) -> HttpResponse:
    """POST one message. 204, or 400, 401, 403, 405, 413, 429, 503 (cannot store now); never a body (spec 1, 2.5.1)."""

    def take(arrival: Arrival, principal: Principal) -> Answer:
        hub_memory.look()
        return Answer(receive_ebxml(arrival, limits=Limits(body=limit), principal=principal))

    limit = settings.RMHUB_MAX_MESSAGE_BYTES
    return _messages(request, limit, "ebXML messaging service", take)


@csrf_exempt
def ebms2(request: HttpRequest) -> HttpResponse:
    """POST one message or signal (ebXML Messaging 2.0). 200 with a signal where its sender asks for that, 204, or 400,
    401, 403, 405, 413, 429, 503.
    """

    def take(arrival: Arrival, principal: Principal) -> Answer:
        hub_memory.look()
        return receive_ebms2(arrival, limits=Limits(body=limit), principal=principal)

    limit = settings.RMHUB_MAX_MESSAGE_BYTES
    return _messages(request, limit, "ebXML messaging service", take)


@csrf_exempt
def stream(request: HttpRequest, path: str) -> HttpResponse:
    """POST one message or receipt of a stream (spec 3). 202, or 400, 401, 403, 404, 405, 413, 429, 503; never a body.

    `path` is for people: which stream URI is meant, the message itself says.
    """

    def take(arrival: Arrival, principal: Principal) -> Answer:
        hub_memory.look()
        return receive_stream(arrival, limits=Limits(body=limit), principal=principal)

    limit = settings.RMHUB_MAX_MESSAGE_BYTES
    return _messages(request, limit, "Transactional streams", take)


@csrf_exempt
def coordination(request: HttpRequest, service: str) -> HttpResponse:
    """POST one SOAP message to a service (spec 5). 202, or 400, 401, 403, 404, 405, 413, 415, 429, 503; never a body.

    Replies, faults and notifications go out over connections of their own.
    """

    def take(arrival: Arrival, principal: Principal) -> Answer:
        hub_memory.look()
        return receive_coordination(arrival, service=service, soap_action=soap_action, principal=principal)

    soap_action = request.META.get("HTTP_SOAPACTION", "")[:1000]
    return _messages(request, settings.RMHUB_TRANSACTION_MESSAGE_BYTES, "Atomic transactions", take)


@csrf_exempt
def exchange(request: HttpRequest, path: str) -> HttpResponse:
    """Any method (spec 2). Statuses as in OASIS Repeatable Requests, errors as problem details:
    docs/repeatable-requests.md.
    """
    arrival = Request(
        **reading.head(request),
        method=(request.method or "")[:20],
        path=path,
        target=request.get_full_path(),
        headers=reading.headers(request),
    )
    response = _entered(
        request,
        arrival,
        limit=settings.RMHUB_MAX_MESSAGE_BYTES,
        take=exchanging.exchange,
        turn_away=exchanging.turn_away,
        refuse_body=exchanging.refuse_body,
        later=partial(problem, "unavailable", retry_after=reading.SOON),
        action="exchange_failed",
    )
    return respond(request, response)


@csrf_exempt
def well_known(request: HttpRequest) -> HttpResponse:
    """`/.well-known/reliable-messaging`: how long ids are remembered here. Told to everybody, the same to everybody."""
    if request.method not in ("GET", "HEAD", "OPTIONS"):
        return _only_asked(request)
    now = clock.now()
    try:
        known = answers.of_hub(hub_memory.ready(now), now)
    except (DatabaseError, InterfaceError, OSError, hub_memory.MemoryChanged):
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
        return _only_asked(request)
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


def _only_asked(request: HttpRequest) -> HttpResponse:
    return respond(request, problem("method-not-allowed", result="", headers={"Allow": "GET, HEAD, OPTIONS"}))


def respond(request: HttpRequest, answer: answers.Answer) -> HttpResponse:
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
