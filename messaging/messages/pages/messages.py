"""One message: its page with its tabs, and what can be done with it: taking it back, sending it anew, redelivering."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import messages as notices
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.http import url_has_allowed_host_and_scheme, urlencode
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

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
from partners.choices import Signatures
from rmhub import language
from rmhub.ids import uuid7
from rmhub.language import gettext_lazy, inside

SETTLES = "indoubt:resolve"
EVIDENCE = "Evidence for what is in doubt"  # why partners are asked
_FILTERS = ("pair", "cause", "answer")
TABS = (
    ("timeline", gettext_lazy("Timeline")),
    ("headers", gettext_lazy("Headers")),
    ("payloads", gettext_lazy("Payloads")),
    ("wire", gettext_lazy("Wire")),
    ("related", gettext_lazy("Related")),
    ("history", gettext_lazy("History")),
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
        return _("Needs the role {role}.").format(role=missing) if missing else reason

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
        proofs = profile.of_message(message).proofs(message) if "verify" in request.GET else None
        return {
            "signs": message.agreement_version.signatures != Signatures.NONE,
            "proofs": None if proofs is None else table(_("Signatures, verified now"), tables.PROOFS, proofs),
            "shape": shape,
            "document": document,
            "headers": table(_("HTTP headers that are part of the request"), tables.REQUEST_HEADERS, headers),
            "fields": table(_("Values of the message's header, in its order"), tables.FIELDS, shape.fields),
            "parts": table(_("MIME parts of this message"), tables.PARTS, shape.parts),
        }
    if tab == "related":
        related = relatives.of_message(message)
        same = _("Other messages of the same conversation")
        return {
            "related": related,
            "refers_to": tables.messages(_("The messages that this one refers to"), related.refers_to, short=True),
            "answers": tables.messages(_("The messages that refer to this one"), related.answers, short=True),
            "conversation": tables.messages(same, related.conversation, short=True),
        }
    if tab == "history":
        newest = events.of_message(message.pk).order_by("-id")[:200]
        return {"events": table(_("Events of this message, newest first"), tables.EVENTS, newest)}
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
        (reverse("console:messages"), _("Messages")),
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
    if warning:
        effects = [warning]
    elif message.pair.in_flight_id == message.pk:
        effects = [
            _("The message is given up: it is never sent again. The partner may have it already; nobody can know."),
            _("The sequence of {code} restarts: the next message goes out as number 1.").format(code=code),
        ]
    elif not waiting:
        effects = [
            _(
                "The message is given up: it is never sent again. The partner may have executed it already; nobody "
                "can know."
            )
        ]
    else:
        numbered = not profile.of_message(message).one_by_one
        leaves = (
            _(
                "The message leaves the queue of {code} and is never sent. It has no number yet, so the others are not "
                "touched."
            )
            if numbered
            else _("The message leaves the queue of {code} and is never sent.")
        )
        effects = [leaves.format(code=code)]
    if not warning:
        effects.append(_("Its application is notified by an event."))
    return {
        "title": _("Cancel message"),
        "impossible": _("It cannot be cancelled. {why_not}").format(why_not=why_not) if why_not else "",
        "effects": effects,
        "forever": _("A cancelled message cannot be brought back.")
        if warning
        else _("A cancelled message cannot be brought back; it can only be submitted again."),
        "long": True,
        "hidden": [] if why_not or waiting else [("version", message.pair.version)],
        "confirm": "" if waiting else code,
        "leave": _("Keep the message"),
        "button": _("Cancel this message"),
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
            errors[""] = [_("This form is not complete: open it again from the message's page.")]
        if posted(request, "confirm").upper() != code.upper():
            errors["confirm"] = [_("Type {code} to show that you mean this pair.").format(code=code)]
        if errors:
            raise InvalidSubmission(errors)
        cancelling.message_cancel(**common, expected_version=int(version))
    else:
        cancelling.message_cancel(**common, only_waiting=True)
    notices.success(request, _("The message is cancelled."))
    return message


@requires("messages:write", methods=("GET", "POST"))
def message_resubmit(request: HttpRequest, reference: str) -> HttpResponse:
    """The dialog, and sending the documents as a new message."""
    return _dialog(request, reference, _resubmitting, _resubmit)


def _resubmitting(request: HttpRequest, message: Message) -> dict[str, Any]:
    why_not = resubmitting.why_not_resubmit(message)
    goes_out = (
        _(
            "The same documents ({size}) go out as a new message with a MessageId of its own, behind all that waits on "
            "{code}."
        ).format(size=size(message.size), code=message.pair.code)
        if message.size
        else _(
            "The same documents go out as a new message with a MessageId of its own, behind all that waits on {code}."
        ).format(code=message.pair.code)
    )
    has_it = {
        MessageState.DELIVERED: _(
            "The partner has this message already. A receiver that knows nothing of document ids processes the new one "
            "too."
        ),
        MessageState.SENT: _(
            "The partner may have this message already. A receiver that knows nothing of document ids processes the "
            "new one too."
        ),
    }.get(MessageState(message.state))
    return {
        "title": _("Resubmit message"),
        "impossible": _("It cannot be resubmitted. {why_not}").format(why_not=why_not) if why_not else "",
        "effects": [
            goes_out,
            _(
                "The document keeps its id, so that a receiver that uses it and has processed the document does not "
                "process it again. Under another id it is another document."
            ),
            *([has_it] if has_it is not None else []),
            _("This message stays as it is; each of the two links to the other."),
        ],
        "forever": _("What is sent cannot be unsent; while the new message waits, it can be cancelled."),
        "hidden": [("once", request.POST.get("once") or uuid7().hex)],
        "document_id": request.POST.get("document_id") or message.identifies,
        "presets": (
            _("The partner lost it"),
            _("The partner asked for it again"),
            _("Sent before a fix was in place"),
        ),
        "button": _("Resubmit as new message"),
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
    notices.success(
        request,
        _("Resubmitted: this is the new message, with the MessageId {message_id}.").format(message_id=made.message_id),
    )
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
            _("{name}: {state} it gets the document again.")
            if one.state in again
            else _("{name}: {state} stays as it is."),
            name=one.trigger.name,
            state=state("delivery", one.state),
        )
        for one in deliveries.of_message(message.pk)
    ]
    return {
        "title": _("Redeliver message"),
        "impossible": _("It cannot be redelivered. {why_not}").format(why_not=why_not) if why_not else "",
        "effects": [
            _("The same document is handed to each trigger that wants it and has not processed it."),
            *(had or [_("No trigger has had it yet; those that want it now get it.")]),
        ],
        "presets": (_("The trigger was created later"), _("The application was repaired")),
        "button": _("Redeliver"),
        "sign": "bolt",
    }


def _redeliver(request: HttpRequest, message: Message) -> Message:
    done = resubmitting.message_redeliver(message_id=message.pk, actor=actor(request), reason=posted(request, "reason"))
    count = len(done.made)
    said = ngettext("Handed to {count} trigger again.", "Handed to {count} triggers again.", count)
    notices.success(request, said.format(count=language.number(count)))
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
        partner, answer = message.pair.partner, inside(said.get_answer_display())
        if said.answer == PartnerAnswer.NO_ANSWER:
            none = _("{partner} gave no answer.").format(partner=partner)
            notices.warning(request, f"{none} {said.detail}".strip())
        else:
            notices.success(request, _("{partner} says: {answer}.").format(partner=partner, answer=answer))
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
        notices.error(request, " ".join(text for __, text in problems(error)))
    else:
        asked = ngettext(
            "Partners are asked about {count} message.", "Partners are asked about {count} messages.", made.total
        )
        notices.success(request, asked.format(count=language.number(made.total)))
    return _back(request) or see_other("console:in-doubt")


def _back(request: HttpRequest) -> HttpResponse | None:
    path = request.POST.get("next", "")[:2000]
    ours = path.startswith("/") and url_has_allowed_host_and_scheme(path, allowed_hosts={request.get_host()})
    return see_other(path) if ours else None
