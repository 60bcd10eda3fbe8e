"""Bytes to look at: payloads, whole messages on the wire, attempts with the partner's answer, acknowledgements.

Opening a payload, or wire bytes that hold one, is written to the audit log by the service that hands them out.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import Any

from django.http import FileResponse, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.translation import gettext as _

from messaging import profile
from messaging.access.selectors.reach import read_id
from messaging.console.access import actor, person, requires
from messaging.console.rendering import page
from messaging.exceptions import ApplicationError, NotFound
from messaging.messages.pages.viewer import MODES, View, view
from messaging.messages.selectors import messages, relatives, wire_parts
from messaging.messages.services import disclosing
from messaging.messages.services.disclosing import Masked, NotPrepared, Octets, PayloadLost
from messaging.models import Message, Signal, Transmission
from messaging.overview.selectors import records
from partners import registry


@requires("payloads:read")
def payload(request: HttpRequest, reference: str, number: int) -> HttpResponse:
    """One payload: pretty, raw or hex (`?mode=`), large ones in parts (`?offset=`), with what is sought (`?find=`)."""
    message = messages.message(read_id("msg", reference))
    rows = list(messages.payloads(message.pk))
    row = next((row for row in rows if row.number == number), None)
    if row is None:
        raise NotFound(_("{message} has no payload {number}.").format(message=message.public_id, number=number))
    context: dict[str, Any] = {"message": message, "payload": row, "payloads": rows, "modes": MODES, "findable": True}
    role = person(request).role
    try:
        look = disclosing.payload_look(message_id=message.pk, number=number, actor=actor(request), role=role)
    except PayloadLost as error:
        return page(request, "console/messages/payload.html", {**context, "problem": error.detail}, status=404)
    context["look"] = look
    if look.hidden:
        return page(request, "console/messages/payload.html", context, status=403)
    mode = request.GET.get("mode", "")
    if look.rules:
        # What is covered is not in these octets; but they are not the document's own, so that they are set out only.
        context["modes"], mode = MODES[:1], "pretty"
    context["view"] = _view(request, look.octets, mode)
    return page(request, "console/messages/payload.html", context)


@requires("payloads:read")
def payload_download(request: HttpRequest, reference: str, number: int) -> HttpResponseBase:
    """The payload's exact bytes, as an attachment that no browser runs."""
    return _download(request, reference, disclosing.payload_open, number=number, as_file=True)


@requires("payloads:read")
def documents(request: HttpRequest, reference: str) -> HttpResponseBase:
    """All payloads of a message as a ZIP file."""
    return _download(request, reference, disclosing.documents_open)


@requires("payloads:read")
def wire_download(request: HttpRequest, reference: str) -> HttpResponseBase:
    """The message's exact octets as a file."""
    return _download(request, reference, disclosing.wire_open, as_file=True)


def _download(request: HttpRequest, reference: str, opened: Callable[..., Octets], **which: int) -> HttpResponseBase:
    message = messages.message(read_id("msg", reference))
    try:
        octets = opened(message_id=message.pk, actor=actor(request), role=person(request).role, **which)
    except (NotPrepared, PayloadLost, Masked) as error:
        return _gone(request, error)
    return _attachment(octets)


@requires("payloads:read")
def wire(request: HttpRequest, reference: str) -> HttpResponse:
    """The message's exact octets."""
    message = messages.message(read_id("msg", reference))
    context = {"message": message, "modes": MODES[1:], "findable": True}
    try:
        opened = disclosing.wire_open(message_id=message.pk, actor=actor(request), role=person(request).role)
    except (NotPrepared, PayloadLost, Masked) as error:
        status = 403 if isinstance(error, Masked) else 404
        return page(request, "console/messages/wire.html", {**context, "problem": error.detail}, status=status)
    context["view"] = _view(request, opened, request.GET.get("mode", "") or "raw")
    return page(request, "console/messages/wire.html", context)


@requires("messages:read")
def transmission(request: HttpRequest, reference: str) -> HttpResponse:
    """One attempt: where it went, what was sent, how it ended, and the answer to it; against the attempt before it."""
    attempt = messages.transmission(read_id("att", reference))
    message = messages.in_store(attempt.message_id)
    signal = messages.signal(attempt.signal_id) if attempt.signal_id else None
    is_closed = disclosing.answer_holds_document(attempt) and "payloads:read" not in person(request).scopes
    shown = None
    if attempt.response and not is_closed:
        shown = disclosing.answer_open(attempt=attempt, actor=actor(request), role=person(request).role)
    payloads = list(messages.payloads(message.pk)) if message else []
    context = {
        "attempt": attempt,
        "message": message,
        "signal": signal,
        "answer": view(shown.octets.content, "text/plain", "raw") if shown else None,
        "covered": shown,
        "is_closed": is_closed,
        "shape": wire_parts.shape(message, payloads) if message else None,
        "compared": wire_parts.compare_answers(attempt, wire_parts.previous_attempt(attempt)),
        "curl": _curl(attempt, message or signal, request_headers(message) if message else ()),
        "attempts": list(messages.transmissions(message.pk).order_by("-id")[:50])[::-1] if message else [],
    }
    return page(request, "console/messages/transmission.html", context)


def request_headers(message: Message) -> tuple[tuple[str, str], ...]:
    """The headers of a message's HTTP request that its profile gives it."""
    terms = registry.current().version(message.agreement_version_id)
    headers: tuple[tuple[str, str], ...] = profile.of(terms).fields(message, terms).get("headers", ())
    return headers


def _curl(attempt: Transmission, what: Message | Signal | None, headers: Sequence[tuple[str, str]]) -> str:
    """A command line that makes the same request, "" for what did not go over HTTP. Secrets are named, never written.

    The octets are to be downloaded first.
    """
    if what is None or not attempt.address.startswith(("http://", "https://")):
        return ""
    lines = [f"curl -X POST {shlex.quote(attempt.address)}"]
    lines.append(f"-H {shlex.quote(f'Content-Type: {what.content_type}')}")
    lines += [f"-H {shlex.quote(f'{name}: {value}')}" for name, value in headers]
    lines.append('-H "Authorization: $PARTNER_AUTHORIZATION"')
    lines.append(f"--data-binary @{shlex.quote(f'{what.public_id}.mime')}")
    return " \\\n  ".join(lines)


@requires("messages:read")
def signal(request: HttpRequest, reference: str) -> HttpResponse:
    """One acknowledgement or error message with its exact octets; it holds no payload."""
    row = messages.signal(read_id("sig", reference))
    about = messages.in_store(row.about_id)
    shown = view(bytes(row.body), row.content_type, request.GET.get("mode", "") or "raw")
    context = {"signal": row, "about": about, "view": shown, "modes": MODES[1:]}
    return page(request, "console/messages/signal.html", context)


@requires("messages:read")
def signal_download(request: HttpRequest, reference: str) -> HttpResponseBase:
    """The signal's exact octets as a file."""
    row = messages.signal(read_id("sig", reference))
    return _attachment(Octets(bytes(row.body), row.content_type, f"{row.public_id}.mime", ""))


@requires("messages:read")
def inquiry_page(request: HttpRequest, reference: str) -> HttpResponse:
    """One question: what was asked, and the answer as it came."""
    found = relatives.inquiry(read_id("inq", reference))
    answer = bytes(found.response or b"").decode("utf-8", "replace")
    return page(
        request, "console/messages/inquiry.html", {"inquiry": found, "message": found.message, "answer": answer}
    )


@requires("payloads:read")
def rejection_sample(request: HttpRequest, reference: str) -> HttpResponse:
    """The first bytes of something that was refused."""
    row = records.rejection(read_id("rej", reference))
    try:
        opened = disclosing.rejection_open(rejection_id=row.pk, actor=actor(request), role=person(request).role)
    except Masked as error:
        return _gone(request, error)
    shown = view(opened.content, opened.content_type, request.GET.get("mode", "") or "raw")
    return page(
        request, "console/messages/rejection_sample.html", {"rejection": row, "view": shown, "modes": MODES[1:]}
    )


def _view(request: HttpRequest, octets: Octets, mode: str) -> View:
    offset = request.GET.get("offset", "")
    at = int(offset) if offset.isascii() and offset.isdigit() and len(offset) < 13 else 0
    sought = request.GET.get("find", "").replace("\x00", "")[:200]
    return view(octets.content, octets.content_type, mode, offset=at, sought=sought)


def _gone(request: HttpRequest, error: ApplicationError) -> HttpResponse:
    status = 403 if isinstance(error, Masked) else 404
    return page(request, "console/messages/gone.html", {"problem": error.detail}, status=status)


def _attachment(octets: Octets) -> HttpResponseBase:
    # Never the partner's content type: a browser must not take the bytes for a page of this site.
    kind = "application/octet-stream"
    response: HttpResponseBase
    if octets.large is None:
        response = HttpResponse(octets.content, content_type=kind)
    else:
        response = FileResponse(octets.large.opened(), content_type=kind)
        response["Content-Length"] = str(len(octets.large))
    name = "".join(
        character if character.isascii() and (character.isalnum() or character in "._-") else "_"
        for character in octets.filename
    )
    response["Content-Disposition"] = f'attachment; filename="{name[:150] or "payload"}"'
    response["X-Content-Type-Options"] = "nosniff"
    response["Content-Security-Policy"] = "sandbox; default-src 'none'"
    if octets.sha256:
        response["X-Content-SHA256"] = octets.sha256
    return response
