"""One message: its page with its tabs, and what can be done with it: taking it back, sending it anew, redelivering."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import messages as notices
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.http import url_has_allowed_host_and_scheme, urlencode

from messaging import profile
from messaging.access.selectors.reach import read_id
from messaging.archive import selectors as archive
from messaging.bulk.services import jobs
from messaging.choices import DeliveryState, MessageState, PartnerAnswer
from messaging.console.access import actor, person, requires
from messaging.console.rendering import dialog, page, posted, problems, see_other
from messaging.console.resource import table
from messaging.deliveries.pages.in_doubt import evidence_of, message_buttons
from messaging.deliveries.selectors import deliveries
from messaging.engine import attributes
from messaging.exceptions import ApplicationError, InvalidSubmission, NotFound, WrongState
from messaging.messages.pages import diagram, octets, tables, viewer
from messaging.messages.pages.schemas import faults_of
from messaging.messages.selectors import messages, relatives, timeline, wire_parts
from messaging.messages.selectors.messages import AmbiguousId
from messaging.messages.services import cancelling, inquiries, resubmitting
from messaging.messages.services.cancelling import waits, why_not_cancel
from messaging.models import Message
from messaging.notifications import selectors as events
from messaging.profiles.wsat import outgoing
from messaging.resource import number
from messaging.templatetags.hub import middle, state
from messaging.templatetags.hub import octets as size
from messaging.transactions.selectors import coordinations
from rmhub.ids import uuid7

SETTLES = "indoubt:resolve"
EVIDENCE = "Evidence for what is in doubt"  # why partners are asked
_FILTERS = ("pair", "cause", "answer")
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
    evidence = evidence_of(message, who, tab)

    def why_not(scope: str, reason: str) -> str:
        missing = who.lacks(scope)
        return f"Needs the role {missing}." if missing else reason

    context = {
        "settled": relatives.settled(message),
        "tab": tab,
        "tabs": TABS,
        "screen": screen,
        "message": message,
        "attributes": attributes.shown(message.attributes),
        "misfit": faults_of(message),
        "previous": previous,
        "following": following,
        "can_cancel": why_not("messages:cancel", why_not_cancel(message)),
        "cannot_resubmit": why_not("messages:write", resubmitting.why_not_resubmit(message)),
        "cannot_redeliver": why_not(SETTLES, resubmitting.why_not_redeliver(message)),
        "buttons": message_buttons(message, who),
        "coordinating": None if profile.of_message(message).carries_documents else coordinations.of_message(message.pk),
        **evidence,
        **tables.of_message(message, screen, evidence["evidence"].inquiries if evidence else (), who),
        **_of_tab(request, message, screen, tab),
    }
    return page(request, "console/messages/message.html", context, live="live-message")


def _of_tab(request: HttpRequest, message: Message, screen: timeline.MessageScreen, tab: str) -> dict[str, Any]:
    if tab == "timeline":
        found = timeline.diagram_of_message(message, failed_only=diagram.wants_failed(request.GET))
        return diagram.shown(found, request.GET)
    if tab in ("headers", "wire"):
        shape, mode = wire_parts.shape(message, screen.payloads), request.GET.get("mode", "")
        document = viewer.view(shape.document, "application/xml", mode) if shape.document else None
        headers = octets.request_headers(message) if message.first_sent_at is not None else ()
        return {
            "shape": shape,
            "document": document,
            "headers": table("HTTP headers that are part of the request", tables.REQUEST_HEADERS, headers),
            "fields": table("Values of the message's header, in its order", tables.FIELDS, shape.fields),
            "parts": table("MIME parts of this message", tables.PARTS, shape.parts),
        }
    if tab == "related":
        related = relatives.of_message(message)
        same = "Other messages of the same conversation"
        return {
            "related": related,
            "refers_to": tables.messages("The messages that this one refers to", related.refers_to, short=True),
            "answers": tables.messages("The messages that refer to this one", related.answers, short=True),
            "conversation": tables.messages(same, related.conversation, short=True),
        }
    if tab == "history":
        newest = events.of_message(message.pk).order_by("-id")[:200]
        return {"events": table("Events of this message, newest first", tables.EVENTS, newest)}
    return {}


def _dialog(
    request: HttpRequest,
    reference: str,
    shown: Callable[[HttpRequest, Message], dict[str, Any]],
    do: Callable[[HttpRequest, Message], Message],
) -> HttpResponse:
    """The dialog of a verb; `do` says what was done, and returns the message that is shown then."""
    message = messages.message(read_id("msg", reference))
    crumbs = (
        (reverse("console:messages"), "Messages"),
        (reverse("console:message", args=[message.public_id]), middle(message.message_id, 40)),
    )

    def context() -> dict[str, Any]:
        now = messages.message(message.pk) if request.method == "POST" else message
        return {"message": now, "crumbs": crumbs, **shown(request, now)}

    def answer() -> HttpResponse:
        return see_other("console:message", do(request, message).public_id)

    return dialog(request, "console/messages/verb_form.html", context, answer)


@requires("messages:cancel", methods=("GET", "POST"))
def message_cancel(request: HttpRequest, reference: str) -> HttpResponse:
    """The dialog, and taking an outbound message back."""
    return _dialog(request, reference, _cancelling, _take_back)


def _cancelling(request: HttpRequest, message: Message) -> dict[str, Any]:
    code, why_not, waiting = message.pair.code, why_not_cancel(message), waits(message)
    warning = outgoing.cancel_warning(message)
    given_up = "The message is given up: it is never sent again. The partner may have"
    if warning:
        effects = [warning]
    elif message.pair.in_flight_id == message.pk:
        effects = [
            f"{given_up} it already; nobody can know.",
            f"The sequence of {code} restarts: the next message goes out as number 1.",
        ]
    elif not waiting:
        effects = [f"{given_up} executed it already; nobody can know."]
    else:
        numbered = not profile.of_message(message).answered_at_once
        others = "It has no number yet, so the others are not touched." if numbered else ""
        effects = [f"The message leaves the queue of {code} and is never sent. {others}"]
    if not warning:
        effects.append("Its application is notified by an event.")
    anew = "" if warning else "; it can only be submitted again"
    return {
        "title": "Cancel message",
        "impossible": f"It cannot be cancelled. {why_not}" if why_not else "",
        "effects": effects,
        "forever": f"A cancelled message cannot be brought back{anew}.",
        "long": True,
        "hidden": [] if why_not or waiting else [("version", message.pair.version)],
        "confirm": "" if waiting else code,
        "leave": "Keep the message",
        "button": "Cancel this message",
        "testid": "cancel-do",
        "sign": "ban",
        "colour": "danger",
    }


def _take_back(request: HttpRequest, message: Message) -> Message:
    """What the form says, which asks for the pair's code, like a skip, unless the message waited when it was opened."""
    common: dict[str, Any] = {"message_id": message.pk, "actor": actor(request), "reason": posted(request, "reason")}
    version = request.POST.get("version", "")
    if version:
        code = message.pair.code
        errors: dict[str, list[str]] = {}
        if number(version) < 0:
            errors[""] = ["This form is not complete: open it again from the message's page."]
        if posted(request, "confirm").upper() != code.upper():
            errors["confirm"] = [f"Type {code} to show that you mean this pair."]
        if errors:
            raise InvalidSubmission(errors)
        cancelling.message_cancel(**common, expected_version=int(version))
    else:
        cancelling.message_cancel(**common, only_waiting=True)
    notices.success(request, "The message is cancelled.")
    return message


@requires("messages:write", methods=("GET", "POST"))
def message_resubmit(request: HttpRequest, reference: str) -> HttpResponse:
    """The dialog, and sending the documents as a new message."""
    return _dialog(request, reference, _resubmitting, _resubmit)


def _resubmitting(request: HttpRequest, message: Message) -> dict[str, Any]:
    why_not = resubmitting.why_not_resubmit(message)
    documents = f"documents ({size(message.size)})" if message.size else "documents"
    perhaps = {MessageState.DELIVERED: "", MessageState.SENT: "perhaps "}.get(MessageState(message.state))
    return {
        "title": "Resubmit message",
        "impossible": f"It cannot be resubmitted. {why_not}" if why_not else "",
        "effects": [
            f"The same {documents} go out as a new message with a MessageId of its own, behind all that waits on "
            f"{message.pair.code}.",
            "The document keeps its id, so that a receiver that uses it and has processed the document does not "
            "process it again. Under another id it is another document.",
            *(
                [
                    f"The partner has this message {perhaps}already. A receiver that knows nothing of document ids "
                    "processes the new one too."
                ]
                if perhaps is not None
                else []
            ),
            "This message stays as it is; each of the two links to the other.",
        ],
        "forever": "What is sent cannot be unsent; while the new message waits, it can be cancelled.",
        "hidden": [("once", request.POST.get("once") or uuid7().hex)],
        "document_id": request.POST.get("document_id") or message.identifies,
        "presets": ("The partner lost it", "The partner asked for it again", "Sent before a fix was in place"),
        "button": "Resubmit as new message",
        "sign": "send",
    }


def _resubmit(request: HttpRequest, message: Message) -> Message:
    given = request.POST.get("document_id", "").strip()
    try:
        made = resubmitting.message_resubmit(
            message_id=message.pk,
            actor=actor(request),
            reason=posted(request, "reason"),
            # Two presses of one form make one message.
            idempotency_key=f"resubmit-{message.pk.hex}-{request.POST.get('once', '')[:64]}",
            document_id="" if given == message.identifies else given,
        ).message
    except InvalidSubmission:
        raise
    except ApplicationError as error:  # the agreement, the queue or the store takes nothing
        raise WrongState(error.detail, state=message.state) from error
    notices.success(request, f"Resubmitted: this is the new message, with the MessageId {made.message_id}.")
    return made


@requires(SETTLES, methods=("GET", "POST"))
def message_redeliver(request: HttpRequest, reference: str) -> HttpResponse:
    """The dialog, and handing a received message to the triggers that have not processed it."""
    return _dialog(request, reference, _redelivering, _redeliver)


def _redelivering(request: HttpRequest, message: Message) -> dict[str, Any]:
    why_not = resubmitting.why_not_redeliver(message)
    again = (DeliveryState.FAILED, DeliveryState.IN_DOUBT)
    had: list[str] = [
        format_html(
            "{}: {} {}.",
            one.trigger.name,
            state("delivery", one.state),
            "it gets the document again" if one.state in again else "stays as it is",
        )
        for one in deliveries.of_message(message.pk)
    ]
    return {
        "title": "Redeliver message",
        "impossible": f"It cannot be redelivered. {why_not}" if why_not else "",
        "effects": [
            "The same document is handed to each trigger that wants it and has not processed it.",
            *(had or ["No trigger has had it yet; those that want it now get it."]),
        ],
        "presets": ("The trigger was created later", "The application was repaired"),
        "button": "Redeliver",
        "sign": "bolt",
    }


def _redeliver(request: HttpRequest, message: Message) -> Message:
    done = resubmitting.message_redeliver(message_id=message.pk, actor=actor(request), reason=posted(request, "reason"))
    count = len(done.made)
    notices.success(request, f"Handed to {count} trigger{'' if count == 1 else 's'} again.")
    return message


@requires(SETTLES, methods=("POST",))
def message_ask(request: HttpRequest, reference: str) -> HttpResponse:
    """Asks the partner about one message, and comes back with what it said."""
    message = messages.message(read_id("msg", reference))
    try:
        said = inquiries.ask(message_id=message.pk, actor=actor(request), reason=EVIDENCE)
    except ApplicationError as error:
        notices.error(request, error.detail)
    else:
        words = said.get_answer_display()
        if said.answer == PartnerAnswer.NO_ANSWER:
            notices.warning(request, f"{message.pair.partner} gave no answer. {said.detail}".strip())
        else:
            notices.success(request, f"{message.pair.partner} says: {words.lower()}.")
    return _back(request) or see_other("console:message", message.public_id)


@requires(SETTLES, methods=("POST",))
def ask_about_all(request: HttpRequest) -> HttpResponse:
    """Asks about all outbound messages in doubt, or those of one pair, cause or answer: a job, for it may take long."""
    given = {name: request.POST[name][:80] for name in _FILTERS if name in request.POST}
    try:
        made = jobs.job_create(
            action="ask_partner",
            parameters={},
            filter=given,
            what="Messages in doubt" if not given else "",
            actor=actor(request),
            reason=EVIDENCE,
        )
    except InvalidSubmission as error:
        notices.error(request, " ".join(text for _, text in problems(error)))
    else:
        notices.success(request, f"Partners are asked about {made.total:,} messages.")
    return _back(request) or see_other("console:in-doubt")


def _back(request: HttpRequest) -> HttpResponse | None:
    path = request.POST.get("next", "")[:2000]
    ours = path.startswith("/") and url_has_allowed_host_and_scheme(path, allowed_hosts={request.get_host()})
    return see_other(path) if ours else None
