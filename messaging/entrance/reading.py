"""How partners' requests are read: who sends them, before their body is; and a bounded body."""

from __future__ import annotations

import time
from typing import Any

from django.conf import settings
from django.http import HttpRequest

from messaging.entrance import authentication
from messaging.entrance.refusals import Arrival
from partners.terms import Presented
from rmhub import traces
from rmhub.front.bodies import SMALL, Later, Unfetched
from rmhub.front.environ import CALLER, LIMIT, PATIENCE, TOO_LARGE, TRUSTED

# Seconds after which to come again while the hub can store nothing: when it can, all goes on within a few seconds.
SOON = 2
_CHUNK = 256 * 1024
_LONGEST_LENGTH = 15  # digits of a Content-Length; more would be petabytes
_ENTERED = "rmhub.entered"


def head(request: HttpRequest) -> dict[str, Any]:
    """The fields of an `Arrival`, before the body is read.

    A certificate's fingerprint counts from a trusted proxy only. The address is the client's; behind trusted proxies
    the one that they name (`rmhub.front.environ`).
    """
    fingerprint = ""
    if settings.RMHUB_FINGERPRINT_HEADER and request.META.get(TRUSTED):
        fingerprint = request.headers.get(settings.RMHUB_FINGERPRINT_HEADER, "")
    return {
        "content_type": request.META.get("CONTENT_TYPE", "")[:1000],
        "body": b"",
        "presented": Presented(authorization=request.headers.get("Authorization", ""), fingerprint=fingerprint),
        "remote_address": str(request.META.get("REMOTE_ADDR", "")),
        "traceparent": traces.given(request.META),
    }


def headers(request: HttpRequest) -> dict[str, list[str]]:
    """All headers by their name in lower case."""
    return {name.lower(): [value] for name, value in request.headers.items()}


def entered(request: HttpRequest, arrival: Arrival) -> authentication.Entered:
    """Who sends this request, from its headers alone. Asked once, also where the body is fetched only then.

    A partner whose credential was not checked yet comes again by itself where too many of them have come at once.
    """
    known = request.META.get(_ENTERED)
    if known is None:
        known = authentication.enter(arrival.presented, arrival.remote_address)
        if known is authentication.BUSY and time.monotonic() < request.META.get(PATIENCE, 0.0):
            raise Later
        request.META[_ENTERED] = known
        if known.principal is not None:
            request.META[CALLER] = known.principal.party_name
    assert isinstance(known, authentication.Entered)
    return known


def body(request: HttpRequest, limit: int) -> bytes | None:
    """The body, or None when it is larger than `limit`: a declared length is refused before a byte is read."""
    declared = request.META.get("CONTENT_LENGTH") or ""
    if declared.isascii() and declared.isdigit():
        if len(declared) > _LONGEST_LENGTH or int(declared) > limit:
            return None
        return bytes(request.read(int(declared)))
    request.META[LIMIT] = limit
    if request.META.get(TOO_LARGE):
        return None
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


def at_hand(request: HttpRequest) -> bytes:
    """The body where it was fetched already, else nothing: as a sample of what is refused for its headers."""
    declared = request.META.get("CONTENT_LENGTH") or ""
    if isinstance(request.META["wsgi.input"], Unfetched) or not (declared.isascii() and declared.isdigit()):
        return b""
    return (body(request, SMALL) or b"") if len(declared) < _LONGEST_LENGTH else b""
