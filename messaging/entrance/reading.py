"""How partners' requests are read: who sends them, before their body is; and a bounded body, in memory or as a file."""

from __future__ import annotations

import io
import os
import time
from typing import Any, NoReturn

from django.conf import settings
from django.http import HttpRequest

from messaging.entrance import authentication
from messaging.entrance.refusals import Arrival
from messaging.storage import Large
from partners.terms import Presented
from rmhub import traces
from rmhub.front.bodies import SMALL, Later, Unfetched, Wanted
from rmhub.front.environ import CALLER, IN_MEMORY, LIMIT, PATIENCE, TOO_LARGE, TRUSTED

# Seconds after which to come again while the hub can store nothing: when it can, all goes on within a few seconds.
SOON = 2
# Bytes of a body that are held. A larger one stays the file that it came as, and its documents are read from there.
HELD = 8 * 1024 * 1024
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


def body(request: HttpRequest, limit: int) -> bytes | Large | None:
    """The body, or None when it is larger than `limit`: a declared length is refused before a byte is read."""
    declared = request.META.get("CONTENT_LENGTH") or ""
    is_declared = declared.isascii() and declared.isdigit()
    if is_declared and (len(declared) > _LONGEST_LENGTH or int(declared) > limit):
        return None
    request.META.setdefault(IN_MEMORY, HELD)
    stream = request.META["wsgi.input"]
    if request.META[IN_MEMORY] == HELD and _size(stream) > HELD:
        return Large(os.fdopen(os.dup(stream.fileno()), "rb"))
    if is_declared:
        return bytes(request.read(int(declared)))
    request.META[LIMIT] = limit
    if request.META.get(TOO_LARGE):
        return None
    # A chunked body has no length, and without one Django reads nothing. Only where the server ends the input itself
    # (wsgi.input_terminated) may it be read to its end.
    if not request.META.get("wsgi.input_terminated"):
        stream = request
    pieces, size = [], 0
    while piece := stream.read(_CHUNK):
        size += len(piece)
        if size > limit:
            return None
        pieces.append(piece)
    return b"".join(pieces)


def held(request: HttpRequest) -> NoReturn:
    """Has the request run once more, with all of its body in memory, when there is room for it. Raises Wanted."""
    request.META[IN_MEMORY] = _size(request.META["wsgi.input"])
    raise Wanted


def _size(stream: Any) -> int:
    """Bytes of a body that was fetched into a file, 0 of any other."""
    return os.fstat(stream.fileno()).st_size if isinstance(stream, io.BufferedRandom) else 0


def at_hand(request: HttpRequest) -> bytes:
    """The body where it was fetched already, else nothing: as a sample of what is refused for its headers."""
    declared = request.META.get("CONTENT_LENGTH") or ""
    if isinstance(request.META["wsgi.input"], Unfetched) or not (declared.isascii() and declared.isdigit()):
        return b""
    return (body(request, SMALL) or b"")[:] if len(declared) < _LONGEST_LENGTH else b""
