"""The list of messages: search box, windows of time, saved views, file, and the panel that shows one in short."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from messaging import keyset
from messaging.access.selectors.reach import read_id
from messaging.archive import selectors as archive
from messaging.bulk.pages import buttons as bulk
from messaging.choices import MESSAGE_LOOKS, Direction, MessageState
from messaging.console import cells, filters, lists, zones
from messaging.console.access import requires
from messaging.console.filters import Filter
from messaging.console.lists import Column, ListPage
from messaging.console.rendering import PAGE, as_context, page, read_place
from messaging.console.resource import STACK, table
from messaging.console.resource import Column as Shown
from messaging.engine import attributes
from messaging.keyset import Page, Place
from messaging.messages.pages import tables
from messaging.messages.selectors import finding, messages, relatives, search_terms, searching
from messaging.messages.selectors.messages import TooBroad
from messaging.messages.selectors.searching import Found
from messaging.models import Message
from messaging.templatetags.hub import ago, icon, middle, select, select_all, took
from rmhub import clock, language
from rmhub.language import gettext_lazy, pgettext_lazy

# One page of a file may go through so many portions of the store without finding anything.
_PORTIONS = 200
_ROUND = ((1_000_000, "M"), (1_000, "k"))


def _latency(message: Message) -> float | None:
    """Seconds from the first send to the acknowledgement; what a person settled keeps its cause, and had none."""
    if message.direction != Direction.OUT or message.first_sent_at is None or message.completed_at is None:
        return None
    if message.state != MessageState.DELIVERED or message.cause:
        return None
    return (message.completed_at - message.first_sent_at).total_seconds()


def _select(message: Message) -> SafeString:
    return select(message.public_id, message.message_id)


def _partner(message: Message) -> SafeString:
    return cells.link(cells.to("partner", message.pair.partner.public_id), message.pair.partner)


def _id(message: Message) -> SafeString:
    key, name = message.public_id, message.message_id
    return cells.joined(
        cells.message(message, 22, data_open=True, id=f"open-{key}"),
        format_html('<span class="visually-hidden" id="id-{}">{}</span>', key, name),
        tables.copies(message),
        format_html(
            '<button type="button" class="btn btn-icon btn-sm btn-ghost" data-copy="#id-{}" aria-label="{}" hidden>{}'
            "</button>",
            key,
            _("Copy the MessageId {name}").format(name=middle(name, 28)),
            icon("copy"),
        ),
    )


def _look(message: Message) -> SafeString:
    said = _("Look at {name} in short").format(name=middle(message.message_id, 28))
    href, css = cells.to("message-peek", message.public_id), "btn btn-icon btn-sm btn-ghost"
    return cells.link(href, icon("eye"), css, data_peek=True, data_dialog=True, aria_label=said)


def _took(message: Message) -> str:
    seconds = _latency(message)
    return "—" if seconds is None else took(seconds)


def _attributes(message: Message) -> str:
    return "; ".join(f"{name}: {value}" for name, value in attributes.shown(message.attributes).items())


_ACK_AFTER = tables.abbreviation(gettext_lazy("Ack after"), gettext_lazy("From the first send to the acknowledgement"))
MESSAGES = ListPage(
    name="messages",
    view="console:messages",
    columns=(
        Column(
            "created_at", gettext_lazy("Time"), lambda row: row.created_at, tables.TIME, fixed=True, sort="created_at"
        ),
        Column("state", gettext_lazy("State"), lambda row: row.state, tables.STATE, fixed=True),
        Column("direction", "Direction", lambda row: row.direction, only_csv=True),
        Column("pair", gettext_lazy("Pair"), lambda row: row.pair.code, tables.PAIR),
        Column(
            "partner",
            gettext_lazy("Partner"),
            lambda row: row.pair.partner.name,
            Shown(gettext_lazy("Partner"), _partner),
            hidden=True,
        ),
        Column(
            "agreement",
            gettext_lazy("Agreement"),
            lambda row: row.agreement_version.agreement.tpa_id,
            Shown(gettext_lazy("Agreement"), lambda row: row.agreement_version.agreement.tpa_id),
            hidden=True,
        ),
        Column("service", "Service", lambda row: row.service, only_csv=True),
        Column("action", gettext_lazy("Service, action"), lambda row: row.action, tables.ACTION),
        Column("message_id", "MessageId", lambda row: row.message_id, Shown("MessageId", _id, "nowrap"), fixed=True),
        Column(
            "conversation_id",
            gettext_lazy("Conversation"),
            lambda row: row.conversation_id,
            Shown(
                gettext_lazy("Conversation"),
                lambda row: middle(row.conversation_id, 22),
                "mono",
                title=lambda row: row.conversation_id,
            ),
            hidden=True,
        ),
        Column(
            "document_id",
            gettext_lazy("Document id"),
            lambda row: row.identifies,
            Shown(
                gettext_lazy("Document id"),
                lambda row: middle(row.identifies, 22),
                "mono",
                title=lambda row: row.identifies,
            ),
            hidden=True,
        ),
        Column(
            "attributes",
            gettext_lazy("Attributes"),
            _attributes,
            Shown(gettext_lazy("Attributes"), _attributes, "wrap"),
            hidden=True,
        ),
        Column("ref_to_message_id", "RefToMessageId", lambda row: row.ref_to_message_id, only_csv=True),
        Column("sequence_number", gettext_lazy("Seq"), lambda row: row.sequence_number, tables.SEQUENCE),
        Column("attempts", gettext_lazy("Attempts"), lambda row: row.attempts, tables.ATTEMPTS),
        Column(
            "latency",
            gettext_lazy("Acknowledged after"),
            _latency,
            Shown(gettext_lazy("Acknowledged after"), _took, "num nowrap", head=_ACK_AFTER),
        ),
        Column("size", gettext_lazy("Size"), lambda row: row.size, tables.SIZE),
        Column(
            "cause",
            gettext_lazy("Cause"),
            lambda row: row.cause,
            Shown(gettext_lazy("Cause"), lambda row: cells.cause(row.cause) or "—"),
            hidden=True,
        ),
        Column(
            "completed_at",
            gettext_lazy("Done"),
            lambda row: row.completed_at,
            Shown(gettext_lazy("Done"), lambda row: ago(row.completed_at), "nowrap", zoned=True),
            hidden=True,
        ),
        Column("sha256", "SHA-256", lambda row: row.digest, only_csv=True),
        Column("id", "Id", lambda row: row.public_id, only_csv=True),
    ),
    api="/api/v1/messages",
    orders=finding.ORDERS,
)
FILTERS = (
    Filter(
        "q",
        gettext_lazy("Search messages"),
        kind="search",
        hint=gettext_lazy("An id, or state:failed partner:Globex after:yesterday"),
        most=searching.MOST,
    ),
    Filter(
        "state", gettext_lazy("State"), choices=[(value, MESSAGE_LOOKS[value].label) for value in MessageState.values]
    ),
    Filter("partner", gettext_lazy("Partner"), kind="partner"),
    Filter("pair", gettext_lazy("Pair"), hint="ACME>GLOBEX", mono=True, most=130),
    Filter("action", gettext_lazy("Action"), most=255),
    Filter("direction", gettext_lazy("Direction"), choices=Direction.choices),
    Filter("since", gettext_lazy("From"), kind="time"),
    Filter("before", pgettext_lazy("time", "Before"), kind="time"),
    *(Filter(name, name, kind="link") for name in ("agreement", "service", "conversation", "document", "ref", "error")),
)


@requires("messages:read")
def message_list_page(request: HttpRequest) -> HttpResponseBase:
    """Newest first; the URL holds every filter. The first page is live."""
    if (other := lists.opened(request, MESSAGES)) is not None:
        return other
    zone = zones.zone_of(request)
    given = {name: request.GET.get(name, "").strip()[: searching.MOST] for name in searching.PARAMETERS}
    at, moment = _jump(request)
    meant = {"window": "all"} if moment is not None and given["window"] not in searching.WINDOWS else {}
    given |= meant
    found = searching.of_list(given, now=clock.now(), zone=zone)
    __, (order,) = lists.order(request, MESSAGES)
    oldest_first = order == "id"
    if lists.csv_wanted(request) and not found.nothing:
        return lists.csv(request, MESSAGES, lambda place, limit: _portion(found, oldest_first, place, limit))
    mark = keyset.fingerprint("console.messages", {**given, "window": found.window}, order)
    notes, partner = list(found.problems), filters.named(given["partner"])
    place = _place(request, mark, moment)
    context: dict[str, Any] = {"rows": [], "next_cursor": "", "previous_cursor": "", "broad": ""}
    if not found.nothing:
        try:
            shown = finding.message_page(found.filters, oldest_first=oldest_first, limit=PAGE, place=place)
            context |= as_context(shown, mark)
            context |= {"looked_back": finding.looked_back_to(shown, PAGE), "about": _about(found, shown, place)}
        except TooBroad as error:
            context["broad"] = error.detail
    api = searching.api_parameters(found)
    context |= lists.tools(request, MESSAGES, api, meant)
    context["table"] = table(
        _("Messages, oldest first") if oldest_first else _("Messages, newest first"),
        (
            Shown(_("Select"), _select, "cell-select", quiet=True, head=select_all()),
            *MESSAGES.shown(context["hide"], context["sorts"]),
            Shown(_("Look"), _look, head=cells.hidden(_("Look")), narrow=" "),
        ),
        context["rows"],
        about=lambda row: {"id": f"row-{row.public_id}", "data-state": row.state},
        css=f"{STACK} table-messages",
        keys=True,
    )
    archived = archive.left(
        found.filters.document or found.filters.q or found.filters.conversation, attributes=found.filters.attributes
    )
    context |= {
        "given": given,
        "found": found,
        "notes": notes,
        "instead": [(who, filters.address(request, **{name: text})) for name, text, who in found.instead],
        "archived": archived,
        "in_archive": tables.archived(_("Messages that have left the store"), archived),
        "filtered": any(value for name, value in given.items() if name != "window"),
        "keys": {"invoice": search_terms.ATTRIBUTE, **search_terms.KEYS},
        "windows": [
            (name, label, filters.address(request, window=name)) for name, (label, __) in searching.WINDOWS.items()
        ],
        "bar": filters.bar(
            request,
            "messages",
            FILTERS,
            given,
            partner=partner,
            chips=_chips(request, found, partner.party.name if partner.party is not None else ""),
            wrong={"before": _("It must be later than “From”.")} if found.filters.backwards else {},
        ),
        "jumped": at,
        "all_time": filters.address(request, window="all", at=at),
        "first_page": place is None,
        "bulk_actions": bulk.actions(
            request, "messages_resubmit", "messages_cancel", "messages_export", "messages_attributes"
        ),
    }
    return page(request, "console/messages/messages.html", context, live="live-messages")


@requires("messages:read")
def message_peek(request: HttpRequest, reference: str) -> HttpResponse:
    """One message in short, beside the list."""
    message = messages.message(read_id("msg", reference))
    context = {
        "message": message,
        "payloads": list(messages.payloads(message.pk)),
        "attempts": list(messages.transmissions(message.pk).order_by("-id")[:5]),
        "latency": _latency(message),
        "settled": relatives.settled(message),
    }
    return page(
        request,
        "console/messages/message_peek.html",
        context,
        fragments={"dialog": "console/messages/message_peek_body.html"},
    )


def _portion(found: Found, oldest_first: bool, place: Place | None, limit: int) -> Page[Message]:
    """The next rows of the file: what no index serves is looked for in portions, of which some have nothing."""
    for __ in range(_PORTIONS):
        shown = finding.message_page(found.filters, oldest_first=oldest_first, limit=limit, place=place)
        if shown.rows or shown.following is None:
            return shown
        place = shown.following
    return Page([], None, None)


def _jump(request: HttpRequest) -> tuple[str, datetime | None]:
    """The time that somebody jumped to, as it was typed and as it is meant; ("", None) for none.

    It may lie anywhere: the window that a list has without a word about time would only hide what was there then.
    """
    at = request.GET.get("at", "").strip()[:40]
    moment = zones.read_local(at, zones.zone_of(request)) if at else None
    return (at, moment) if moment is not None else ("", None)


def _place(request: HttpRequest, mark: str, moment: datetime | None) -> Place | None:
    """Where the page begins: at the cursor, or at a time that somebody jumped to."""
    if moment is not None and not request.GET.get("cursor"):
        return Place((keyset.floor_id(moment),))
    return read_place(request, mark)


def _about(found: Found, shown: Page[Message], place: Place | None) -> str:
    """How many there are: counted when they are all on the page, else about."""
    if place is None and shown.following is None:
        count = len(shown.rows)
        return ngettext("{count} message", "{count} messages", count).format(count=language.number(count))
    number = finding.estimate(found.filters)
    if number <= len(shown.rows):
        # There is another page: what the statistics say is too old.
        return _("more than {count}").format(count=language.number(len(shown.rows)))
    for unit, sign in _ROUND:
        if number >= unit:
            return _("about {count}").format(count=f"{language.number(round(number / unit, 1), 1)} {sign}")
    return _("about {count}").format(count=language.number(number))


def _chips(request: HttpRequest, found: Found, partner: str) -> list[tuple[str, str]]:
    """(words, address without it) of each filter: the box's terms, and the fields'."""
    chips = [(str(term), filters.address(request, q=found.search.without(term))) for term in found.search.terms]
    if found.search.text:
        chips.append(
            (
                _("id: {text}").format(text=found.search.text),
                filters.address(request, q=search_terms.write(found.search.terms)),
            )
        )
    for name, key in searching.NAMES.items():
        if text := request.GET.get(name, "").strip():
            shown = partner if key == "partner" and partner else text[:60]
            chips.append((f"{key}: {shown}", filters.address(request, **{name: ""})))
    return chips
