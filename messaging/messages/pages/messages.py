"""One message: its page with its tabs, and what can be done with it: taking it back, sending it anew, redelivering."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.contrib import messages as notices
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.http import urlencode

from messaging.access.selectors.reach import read_id
from messaging.archive import selectors as archive
from messaging.choices import Direction, MessageState
from messaging.console.access import Person, actor, person, requires
from messaging.console.rendering import page, problems, see_other
from messaging.deliveries.pages.doubts import evidence_of, message_buttons
from messaging.deliveries.selectors import deliveries
from messaging.engine import preparing
from messaging.exceptions import ApplicationError, InvalidSubmission, NotFound, Stale, WrongState
from messaging.messages.pages import diagram, viewer
from messaging.messages.selectors import diagram as diagrams
from messaging.messages.selectors import messages, relatives, settled, timeline, wire_parts
from messaging.messages.selectors.messages import AmbiguousId
from messaging.messages.services import resubmitting
from messaging.models import CoordinationMessage, Message
from messaging.notifications import selectors as events
from messaging.pairs.services import operating
from messaging.profile import in_stream
from messaging.profiles.wsat import outgoing
from messaging.protocol.errors import IllegalTransition
from messaging.protocol.messages import Happened, move, move_repeatable, move_stream
from messaging.transactions.selectors import coordinations
from partners import registry
from partners.choices import Profile
from rmhub.ids import uuid7

TABS = (
    ("timeline", "Timeline"),
    ("headers", "Headers"),
    ("payloads", "Payloads"),
    ("wire", "Wire"),
    ("related", "Related"),
    ("history", "History"),
)


@requires("messages:read")
def message_page(request: HttpRequest, reference: str) -> HttpResponse:
    """One message. `?tab=`: its life, its header, documents, what went over the wire, relatives, who did what."""
    try:
        try:
            message = messages.message_by_reference(reference)
        except NotFound:
            # It may have left the store: links to it lead to where it lies now.
            return see_other("console:archived", archive.archived_by_reference(reference).public_id)
    except AmbiguousId:
        return see_other(f"{reverse('console:messages')}?{urlencode({'q': reference})}")
    if reference != message.public_id:
        return see_other("console:message", message.public_id)
    tab = request.GET.get("tab", "")
    tab = tab if tab in dict(TABS) else TABS[0][0]
    who = person(request)
    screen = timeline.message_screen(message)
    previous, following = relatives.neighbours(message)
    context = {
        "settled": settled.of_message(message),
        "tab": tab,
        "tabs": TABS,
        "screen": screen,
        "message": message,
        "previous": previous,
        "following": following,
        "can_cancel": _cancel_state(message, who.lacks("messages:cancel")),
        "cannot_resubmit": _resubmit_state(message, who),
        "cannot_redeliver": _redeliver_state(message, who),
        "buttons": message_buttons(message, who),
        "coordinating": _coordinating(message),
        **evidence_of(message, who, tab),
        **_TAB_CONTEXT.get(tab, _nothing)(request, message, screen),
    }
    return page(
        request,
        "console/messages/message.html",
        context,
        fragments={"live-message": "console/messages/message_live.html"},
    )


def _coordinating(message: Message) -> CoordinationMessage | None:
    """What it is to a transaction; looked up for messages about transactions only."""
    about = message.agreement_version.profile == Profile.WSAT
    return coordinations.of_message(message.pk) if about else None


def _nothing(request: HttpRequest, message: Message, screen: timeline.MessageScreen) -> dict[str, Any]:
    return {}


def _timeline(request: HttpRequest, message: Message, screen: timeline.MessageScreen) -> dict[str, Any]:
    steps = diagrams.diagram_of_message(message, failed_only=diagram.wants_failed(request.GET))
    return {"drawing": diagram.draw(steps, request.GET)}


def _wire(request: HttpRequest, message: Message, screen: timeline.MessageScreen) -> dict[str, Any]:
    shape = wire_parts.shape(message, screen.payloads)
    document = viewer.view(shape.document, "application/xml", request.GET.get("mode", "")) if shape.document else None
    found: dict[str, Any] = {"shape": shape, "document": document}
    if message.agreement_version.profile == Profile.REPEATABLE and message.first_sent_at is not None:
        found["headers"] = preparing.request_headers(message, registry.current().version(message.agreement_version_id))
    return found


def _related(request: HttpRequest, message: Message, screen: timeline.MessageScreen) -> dict[str, Any]:
    return {"related": relatives.of_message(message)}


def _history(request: HttpRequest, message: Message, screen: timeline.MessageScreen) -> dict[str, Any]:
    return {"events": list(events.of_message(message.pk).order_by("-id")[:200])}


_TAB_CONTEXT: Mapping[str, Callable[[HttpRequest, Message, timeline.MessageScreen], dict[str, Any]]] = {
    "timeline": _timeline,
    "headers": _wire,
    "wire": _wire,
    "related": _related,
    "history": _history,
}


@requires("messages:cancel", methods=("GET", "POST"))
def message_cancel(request: HttpRequest, reference: str) -> HttpResponse:
    """The dialog, and taking an outbound message back."""
    message = messages.message(read_id("msg", reference))
    errors: list[tuple[str, str]] = []
    status = 200
    if request.method == "POST":
        try:
            _take_back(request, message)
        except (Stale, WrongState) as error:
            errors, status = problems(error), 409
            message = messages.message(message.pk)
        except InvalidSubmission as error:
            errors, status = problems(error), 422
        else:
            notices.success(request, "The message is cancelled.")
            return see_other("console:message", message.public_id)
    why_not = _cancel_state(message, "")
    context = {
        "message": message,
        "errors": errors,
        "given": request.POST,
        "possible": not why_not,
        "why_not": why_not,
        "warning": outgoing.cancel_warning(message),
        "waits": operating.waits(message),
    }
    return page(
        request,
        "console/messages/cancel.html",
        context,
        fragments={"dialog": "console/messages/cancel_form.html"},
        status=status,
    )


def _take_back(request: HttpRequest, message: Message) -> None:
    """What the form says, which asks for the pair's code, like a skip, unless the message waited when it was opened.

    Raises InvalidSubmission and what the service raises.
    """
    common: dict[str, Any] = {"message_id": message.pk, "actor": actor(request), "reason": _reason(request)}
    version = request.POST.get("version", "")
    if not version:
        operating.message_cancel(**common, only_waiting=True)
        return
    code = message.pair.code
    errors: dict[str, list[str]] = {}
    if not (version.isascii() and version.isdigit() and len(version) < 19):
        errors[""] = ["This form is not complete: open it again from the message's page."]
    if request.POST.get("confirm", "").strip().upper() != code.upper():
        errors["confirm"] = [f"Type {code} to show that you mean this pair."]
    if errors:
        raise InvalidSubmission(errors)
    operating.message_cancel(**common, expected_version=int(version))


def _other_document(request: HttpRequest, message: Message) -> str:
    """The document id of the form, where it was changed."""
    given = request.POST.get("document_id", "").strip()
    return "" if given == message.identifies else given


@requires("messages:write", methods=("GET", "POST"))
def message_resubmit(request: HttpRequest, reference: str) -> HttpResponse:
    """The dialog, and sending the documents as a new message."""
    message = messages.message(read_id("msg", reference))
    errors: list[tuple[str, str]] = []
    status = 200
    if request.method == "POST":
        try:
            # Two presses of one form make one message.
            made = resubmitting.message_resubmit(
                message_id=message.pk,
                actor=actor(request),
                reason=_reason(request),
                idempotency_key=f"resubmit-{message.pk.hex}-{request.POST.get('once', '')[:64]}",
                document_id=_other_document(request, message),
            ).message
        except InvalidSubmission as error:
            errors, status = problems(error), 422
        except ApplicationError as error:
            errors, status = problems(error), 409
        else:
            notices.success(request, f"Resubmitted: this is the new message, with the MessageId {made.message_id}.")
            return see_other("console:message", made.public_id)
    why_not = resubmitting.why_not_resubmit(message)
    context = {
        "message": message,
        "errors": errors,
        "given": request.POST,
        "possible": not why_not,
        "why_not": why_not,
        "once": request.POST.get("once") or uuid7().hex,
        "presets": ("The partner lost it", "The partner asked for it again", "Sent before a fix was in place"),
    }
    fragments = {"dialog": "console/messages/resubmit_form.html"}
    return page(request, "console/messages/resubmit.html", context, fragments=fragments, status=status)


@requires("indoubt:resolve", methods=("GET", "POST"))
def message_redeliver(request: HttpRequest, reference: str) -> HttpResponse:
    """The dialog, and handing a received message to the triggers that have not processed it."""
    message = messages.message(read_id("msg", reference))
    errors: list[tuple[str, str]] = []
    status = 200
    if request.method == "POST":
        try:
            done = resubmitting.message_redeliver(message_id=message.pk, actor=actor(request), reason=_reason(request))
        except InvalidSubmission as error:
            errors, status = problems(error), 422
        except ApplicationError as error:
            errors, status = problems(error), 409
        else:
            count = len(done.made)
            notices.success(request, f"Handed to {count} trigger{'' if count == 1 else 's'} again.")
            return see_other("console:message", message.public_id)
    why_not = resubmitting.why_not_redeliver(message)
    context = {
        "message": message,
        "errors": errors,
        "given": request.POST,
        "possible": not why_not,
        "why_not": why_not,
        "deliveries": deliveries.of_message(message.pk),
        "presets": ("The trigger was made later", "The application was repaired"),
    }
    fragments = {"dialog": "console/messages/redeliver_form.html"}
    return page(request, "console/messages/redeliver.html", context, fragments=fragments, status=status)


def _reason(request: HttpRequest) -> str:
    return request.POST.get("reason", "").strip().replace("\x00", "")


def _resubmit_state(message: Message, who: Person) -> str:
    if missing := who.lacks("messages:write"):
        return f"Needs the role {missing}."
    return resubmitting.why_not_resubmit(message)


def _redeliver_state(message: Message, who: Person) -> str:
    if missing := who.lacks("indoubt:resolve"):
        return f"Needs the role {missing}."
    return resubmitting.why_not_redeliver(message)


def _cancel_state(message: Message, missing_role: str) -> str:
    """Why this message cannot be cancelled; "" when it can."""
    if message.direction != Direction.OUT:
        return "It came from the partner."
    if missing_role:
        return f"Needs the role {missing_role}."
    in_flight = message.pair.in_flight_id == message.pk
    try:
        if message.agreement_version.profile == Profile.WSAT:
            if message.state not in outgoing.CANCELLABLE:
                raise IllegalTransition(message.state, Happened.CANCELLED, "")
        elif message.agreement_version.profile == Profile.REPEATABLE:
            move_repeatable(message.state, Happened.CANCELLED)
        elif in_stream(message):
            move_stream(message.state, Happened.CANCELLED)
        else:
            move(message.state, Happened.CANCELLED, reliable=in_flight or message.due_at is None)
    except IllegalTransition:
        if message.state == MessageState.IN_DOUBT:
            return "It is in doubt: find out whether the partner has it, then settle it."
        if message.state == MessageState.CONFIRMING:
            return "The partner's queue has it; its application is to say whether it took it."
        return "It is on the wire; wait for its outcome." if message.state == MessageState.SENDING else "It is done."
    return ""
