"""How partners' requests are read: bounded, and with what they show at the door."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest

from partners.terms import Presented

_CHUNK = 256 * 1024
_LONGEST_LENGTH = 15  # digits of a Content-Length; more would be petabytes


def body(request: HttpRequest, limit: int) -> bytes | None:
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


def presented(request: HttpRequest) -> Presented:
    """What the caller shows at the door."""
    fingerprint = ""
    if settings.RMHUB_FINGERPRINT_HEADER:
        fingerprint = request.headers.get(settings.RMHUB_FINGERPRINT_HEADER, "")
    return Presented(authorization=request.headers.get("Authorization", ""), fingerprint=fingerprint)
