"""Messages: the list, the page, and taking one back."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

from django.contrib import messages as notices
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.http import urlencode

from messaging.choices import Direction, MessageState
from messaging.console.access import actor, person, requires
from messaging.console.doubts import message_buttons
from messaging.console.rendering import PAGE, as_context, page, problems, read_place, see_other
from messaging.exceptions import InvalidSubmission, NotFound, WrongState
from messaging.models import Message, Pair
from messaging.profiles import in_stream
from messaging.protocol.errors import IllegalTransition
from messaging.protocol.messages import Happened, move, move_repeatable, move_stream
from messaging.selectors import archive, keyset, messages, pairs, timeline
from messaging.selectors.messages import AmbiguousId, MessageFilters, TooBroad
from messaging.services import operating
from partners import selectors as partners
from partners.choices import Profile
from partners.models import Party
from rmhub.ids import BadPublicId, read_public_id

_TEXTS = ("q", "service", "action", "conversation", "ref")


@requires("messages:read")
def message_list(request: HttpRequest) -> HttpResponse:
    """Newest first; the URL holds every filter. The first page is live."""
    given, notes = _given(request)
    filters, pair, partner, missing = _filters(given, notes)
    mark = keyset.fingerprint("console.messages", given, "-id")
    context: dict[str, Any] = {"rows": [], "next_cursor": "", "previous_cursor": ""}
    if not missing:
        try:
            place = read_place(request, mark)
            context = as_context(messages.message_page(filters, limit=PAGE, place=place), mark)
        except TooBroad:
            notes.append("This search took too long and was stopped. Narrow it by pair, partner or dates.")
    context |= {
        "given": given,
        "notes": notes,
        "pair": pair,
        "partner": partner,
        "archived": archive.left(given["q"] or given["conversation"]),
        "filtered": any(given.values()),
        "kept": [(name, given[name]) for name in ("service", "conversation", "ref", "partner") if given[name]],
        "states": MessageState.choices,
        "directions": Direction.choices,
        "first_page": not request.GET.get("cursor"),
    }
    return page(request, "console/messages.html", context, fragments={"live-messages": "console/messages_live.html"})


@requires("messages:read")
def message_page(request: HttpRequest, reference: str) -> HttpResponse:
    """One message: state, life, payloads, wire, relatives."""
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
    screen = timeline.message_screen(message)
    context = {
        "screen": screen,
        "message": message,
        "can_cancel": _cancel_state(message, person(request).lacks("messages:cancel")),
        "buttons": message_buttons(message, person(request)),
    }
    return page(request, "console/message.html", context, fragments={"live-message": "console/message_live.html"})


@requires("messages:cancel", methods=("GET", "POST"))
def message_cancel(request: HttpRequest, reference: str) -> HttpResponse:
    """The dialog, and taking an outbound message back."""
    message = messages.message(read_public_id("msg", reference))
    errors: list[tuple[str, str]] = []
    status = 200
    if request.method == "POST":
        try:
            reason = request.POST.get("reason", "").strip().replace("\x00", "")
            operating.message_cancel(message_id=message.pk, actor=actor(request), reason=reason)
        except WrongState as error:
            errors, status = problems(error), 409
            message = messages.message(message.pk)
        except InvalidSubmission as error:
            errors, status = problems(error), 422
        else:
            notices.success(request, "The message is cancelled.")
            return see_other("console:message", message.public_id)
    why_not = _cancel_state(message, "")
    context = {"message": message, "errors": errors, "given": request.POST, "possible": not why_not, "why_not": why_not}
    return page(
        request, "console/cancel.html", context, fragments={"dialog": "console/cancel_form.html"}, status=status
    )


def _cancel_state(message: Message, missing_role: str) -> str:
    """Why this message cannot be cancelled; "" when it can."""
    if message.direction != Direction.OUT:
        return "It came from the partner."
    if missing_role:
        return f"Needs the role {missing_role}."
    in_flight = message.pair.in_flight_id == message.pk
    try:
        if message.agreement_version.profile == Profile.REPEATABLE:
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


def _given(request: HttpRequest) -> tuple[dict[str, str], list[str]]:
    """The filters as the URL has them, cleaned of what cannot be; and a sentence about each that was."""
    notes: list[str] = []
    given = {name: request.GET.get(name, "").strip()[:512].replace("\x00", "") for name in _TEXTS}
    for name, allowed in (("state", MessageState.values), ("direction", Direction.values)):
        text = request.GET.get(name, "")
        given[name] = text if text in allowed else ""
        if text and not given[name]:
            notes.append(f"“{text[:40]}” is no {name}; it was left out.")
    for name in ("pair", "partner"):
        given[name] = request.GET.get(name, "").strip()[:130].replace("\x00", "")
    for name in ("since", "before"):
        given[name] = request.GET.get(name, "").strip()[:25]
        if given[name] and _instant(given[name]) is None:
            notes.append(f"“{given[name]}” is no date; it was left out.")
            given[name] = ""
    return given, notes


def _filters(given: dict[str, str], notes: list[str]) -> tuple[MessageFilters, Pair | None, Party | None, bool]:
    """The selector's filters; and whether one names something that is not there, so that nothing can match."""
    pair, partner, missing = None, None, False
    if given["pair"]:
        try:
            pair = pairs.pair(given["pair"])
        except NotFound as error:
            notes.append(error.detail)
            missing = True
    if given["partner"]:
        try:
            partner = partners.party(read_public_id("par", given["partner"]))
        except (BadPublicId, Party.DoesNotExist):
            notes.append(f"There is no partner {given['partner']}.")
            missing = True
    filters = MessageFilters(
        states=(given["state"],) if given["state"] else (),
        direction=given["direction"],
        pair_id=pair.pk if pair else None,
        partner_id=_key(partner),
        created_gte=_instant(given["since"]),
        created_lt=_instant(given["before"]),
        q=given["q"],
        service=given["service"],
        action=given["action"],
        conversation=given["conversation"],
        ref=given["ref"],
    )
    return filters, pair, partner, missing


def _key(party: Party | None) -> uuid.UUID | None:
    return party.pk if party else None


def _instant(text: str) -> datetime | None:
    """`2026-11-20`, `2026-11-20T14:00`: UTC unless it says otherwise."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
