"""Middleware of the whole site."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse

from rmhub import ids
from rmhub.front.environ import REQUEST_ID

_POLICY = ", ".join(
    f"{feature}=()"
    for feature in (
        # Those that browsers know for good: of any other each page would be logged as an error.
        *("accelerometer", "autoplay", "camera", "display-capture", "encrypted-media", "fullscreen", "geolocation"),
        *("gyroscope", "hid", "magnetometer", "microphone", "midi", "payment", "picture-in-picture"),
        *("screen-wake-lock", "serial", "usb", "xr-spatial-tracking"),
    )
)
FORM_BYTES = 16 * 1024 * 1024  # a bundle, twice
STRANGERS_BYTES = 64 * 1024
_WITHOUT_FORM = ("GET", "HEAD", "OPTIONS", "TRACE")
_PLAIN = "text/plain; charset=utf-8"


def request_id(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Says the request's id in the answer. The front has given it one."""

    def middleware(request: HttpRequest) -> HttpResponse:
        known = request.META.get(REQUEST_ID) or ids.request_id(request.headers.get("X-Request-Id", ""))
        request.request_id = known  # type: ignore[attr-defined]
        response = get_response(request)
        response["X-Request-Id"] = known
        return response

    return middleware


class BoundedForms:
    """Refuses a form by its declared length before a byte of it is read: looking for its CSRF token would read it all.

    Strangers send what fits into a log-in. Views that look for no token, or look for it by themselves (the roads of
    machines, partners' logs), bound their bodies by themselves.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self._get_response(request)

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: Any) -> HttpResponse | None:
        """The refusal, or None."""
        if request.method in _WITHOUT_FORM or getattr(view, "csrf_exempt", False):
            return None
        declared = request.META.get("CONTENT_LENGTH") or ""
        if not declared and "HTTP_TRANSFER_ENCODING" in request.META:
            return HttpResponse("Say how long the form is (Content-Length).\n", status=411, content_type=_PLAIN)
        limit = FORM_BYTES
        if declared.isdigit() and int(declared[:20]) > STRANGERS_BYTES and "_auth_user_id" not in request.session:
            limit = STRANGERS_BYTES
        if declared.isdigit() and int(declared[:20]) > limit:
            text = f"The form has {declared[:20]} bytes; this page takes {limit}.\n"
            return HttpResponse(text, status=413, content_type=_PLAIN)
        return None


def permissions_policy(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Says to browsers that no page of this site, and nothing in one, uses sensors, cameras, payment and the like."""

    def middleware(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        response.headers.setdefault("Permissions-Policy", _POLICY)
        return response

    return middleware
