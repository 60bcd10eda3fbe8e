"""Bytes to look at: payloads, whole messages on the wire, attempts with the partner's answer, acknowledgements.

Opening a payload, or wire bytes that hold one, is written to the audit log by the service that hands them out.
"""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from messaging.console.access import actor, requires
from messaging.console.rendering import page
from messaging.console.viewer import MODES, view
from messaging.exceptions import NotFound
from messaging.selectors import messages, records
from messaging.services import disclosing
from messaging.services.disclosing import NotPrepared, Octets, PayloadLost
from rmhub.ids import read_public_id


@requires("payloads:read")
def payload(request: HttpRequest, reference: str, number: int) -> HttpResponse:
    """One payload: pretty, raw or hex (`?mode=`)."""
    message = messages.message(read_public_id("msg", reference))
    row = next((row for row in messages.payloads(message.pk) if row.number == number), None)
    if row is None:
        raise NotFound(f"{message.public_id} has no payload {number}.")
    context = {"message": message, "payload": row, "modes": MODES}
    try:
        opened = disclosing.payload_open(message_id=message.pk, number=number, actor=actor(request))
    except PayloadLost as error:
        return page(request, "console/payload.html", {**context, "problem": error.detail}, status=404)
    context["view"] = view(opened.content, opened.content_type, request.GET.get("mode", ""))
    return page(request, "console/payload.html", context)


@requires("payloads:read")
def payload_download(request: HttpRequest, reference: str, number: int) -> HttpResponse:
    """The payload's exact bytes, as an attachment that no browser runs."""
    key = read_public_id("msg", reference)
    try:
        return _attachment(disclosing.payload_open(message_id=key, number=number, actor=actor(request)))
    except PayloadLost as error:
        return page(request, "console/gone.html", {"problem": error.detail}, status=404)


@requires("payloads:read")
def wire(request: HttpRequest, reference: str) -> HttpResponse:
    """The message's exact octets."""
    message = messages.message(read_public_id("msg", reference))
    context = {"message": message, "modes": MODES[1:]}
    try:
        opened = disclosing.wire_open(message_id=message.pk, actor=actor(request))
    except (NotPrepared, PayloadLost) as error:
        return page(request, "console/wire.html", {**context, "problem": error.detail}, status=404)
    context["view"] = view(opened.content, opened.content_type, request.GET.get("mode", "") or "raw")
    return page(request, "console/wire.html", context)


@requires("payloads:read")
def wire_download(request: HttpRequest, reference: str) -> HttpResponse:
    """The same as a file."""
    try:
        return _attachment(disclosing.wire_open(message_id=read_public_id("msg", reference), actor=actor(request)))
    except (NotPrepared, PayloadLost) as error:
        return page(request, "console/gone.html", {"problem": error.detail}, status=404)


@requires("messages:read")
def transmission(request: HttpRequest, reference: str) -> HttpResponse:
    """One attempt: where it went, how it ended, and the HTTP answer to it."""
    attempt = messages.transmission(read_public_id("att", reference))
    message = messages.in_store(attempt.message_id)
    signal = messages.signal(attempt.signal_id) if attempt.signal_id else None
    answer = view(bytes(attempt.response), "text/plain", "raw") if attempt.response else None
    context = {"attempt": attempt, "message": message, "signal": signal, "answer": answer}
    return page(request, "console/transmission.html", context)


@requires("messages:read")
def signal(request: HttpRequest, reference: str) -> HttpResponse:
    """One acknowledgement or error message with its exact octets; it holds no payload."""
    row = messages.signal(read_public_id("sig", reference))
    about = messages.in_store(row.about_id)
    shown = view(bytes(row.body), row.content_type, request.GET.get("mode", "") or "raw")
    context = {"signal": row, "about": about, "view": shown, "modes": MODES[1:]}
    return page(request, "console/signal.html", context)


@requires("messages:read")
def signal_download(request: HttpRequest, reference: str) -> HttpResponse:
    """The signal's exact octets as a file."""
    row = messages.signal(read_public_id("sig", reference))
    return _attachment(Octets(bytes(row.body), row.content_type, f"{row.public_id}.mime", ""))


@requires("payloads:read")
def rejection_sample(request: HttpRequest, reference: str) -> HttpResponse:
    """The first bytes of something that was refused."""
    row = records.rejection(read_public_id("rej", reference))
    opened = disclosing.rejection_open(rejection_id=row.pk, actor=actor(request))
    shown = view(opened.content, opened.content_type, request.GET.get("mode", "") or "raw")
    return page(request, "console/rejection_sample.html", {"rejection": row, "view": shown, "modes": MODES[1:]})


def _attachment(octets: Octets) -> HttpResponse:
    # Never the partner's content type: a browser must not take the bytes for a page of this site.
    response = HttpResponse(octets.content, content_type="application/octet-stream")
    name = "".join(sign if sign.isascii() and (sign.isalnum() or sign in "._-") else "_" for sign in octets.filename)
    response["Content-Disposition"] = f'attachment; filename="{name[:150] or "payload"}"'
    response["X-Content-Type-Options"] = "nosniff"
    response["Content-Security-Policy"] = "sandbox; default-src 'none'"
    if octets.sha256:
        response["X-Content-SHA256"] = octets.sha256
    return response
