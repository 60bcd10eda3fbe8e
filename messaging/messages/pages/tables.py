"""Tables of a message's page: the columns of its header, its parts, its events, its acknowledgements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.urls import reverse
from django.utils.functional import lazy
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from messaging.choices import Direction, SignalState
from messaging.console import cells
from messaging.console.access import Person
from messaging.console.resource import STACK, Column, table
from messaging.messages.selectors.history import Step
from messaging.messages.selectors.timeline import MessageScreen
from messaging.messages.selectors.wire_parts import HeaderField, WirePart
from messaging.models import ArchivedMessage, Event, Message, Payload, Signal, StatusInquiry, Transmission
from messaging.profile import Proof
from messaging.templatetags.hub import ago, at, clock_time, icon, middle, octets, state, took, words
from rmhub.language import gettext_lazy, inside


def _abbreviation(text: str, full: str) -> SafeString:
    return format_html('<abbr title="{}">{}</abbr>', full, text)


# A heading that is made when it is shown.
abbreviation = lazy(_abbreviation, SafeString)


def _element(field: HeaderField) -> SafeString:
    return format_html('<span title="{}">{}</span>', field.namespace, field.path)


def _part(part: WirePart) -> SafeString:
    return format_html(
        "{}{}{}",
        format_html("{} ", icon("chevron-right", "dir")) if part.depth else "",
        part.content_type or _("no content type"),
        format_html(' <span class="text-faint">{}</span>', _("payload {number}").format(number=part.payload.number))
        if part.payload
        else "",
    )


def _says(event: Event) -> SafeString:
    facts = ((words(name), value) for name, value in event.data.items() if value and name != "message_id")
    return format_html_join(" ", '<span class="fact"><span class="text-faint">{}</span> {}</span>', facts)


def _signal(signal: Signal) -> SafeString:
    what = f"{inside(signal.get_kind_display())} {signal.error_code}".rstrip()
    sign, said = (
        (icon("arrow-down-left", "dir"), _("from the partner: {what}"))
        if signal.direction == Direction.IN
        else (icon("arrow-up-right", "dir"), _("ours: {what}"))
    )
    href = reverse("console:signal", args=[signal.public_id])
    return format_html('<a href="{}">{} {}</a>', href, sign, said.format(what=what))


def _signal_state(signal: Signal) -> SafeString:
    note = format_html('<div class="text-faint">{}</div>', signal.note) if signal.note else ""
    if signal.signed_by and signal.state == SignalState.MATCHED:
        note = format_html('<div class="text-faint">{}</div>', _("signed: proof of receipt"))
    return format_html("{}{}", state("signal", signal.state), note)


def _proof_of(proof: Proof) -> str:
    if proof.signal is None:
        return _("the message")
    return _("the partner's acknowledgement") if proof.theirs else _("our acknowledgement")


def _held(proof: Proof) -> SafeString:
    if proof.refused:
        return format_html("{} {}", icon("x"), proof.refused)
    later = format_html(" ({} {})", _("revoked since:"), at(proof.revoked_at)) if proof.revoked_at else ""
    return format_html("{} {}{}", icon("check"), _("valid"), later)


def _answer(inquiry: StatusInquiry) -> SafeString:
    return cells.link(cells.to("inquiry", inquiry.public_id), inquiry.get_answer_display())


def _outcome(attempt: Transmission) -> SafeString:
    return cells.joined(state("outcome", attempt.outcome), cells.below(cells.cause(attempt.cause)))


def _attempt(attempt: Transmission) -> SafeString:
    href = cells.to("transmission", attempt.public_id)
    return cells.link(href, attempt.number, data_open=True, data_testid=f"attempt-{attempt.number}")


def _moment(moment: Step) -> SafeString:
    signs = {
        "out": cells.joined(icon("arrow-right", "dir"), cells.hidden(_("to the partner:"))),
        "in": cells.joined(icon("arrow-back-up", "dir"), cells.hidden(_("from the partner:"))),
    }
    way = "out" if moment.target == "partner" else "in" if moment.source == "partner" else ""
    sign = signs.get(way) or icon("circle-filled", "dir dot")
    if moment.delivery:
        title = cells.link(cells.to("delivery", moment.delivery), moment.title)
    elif moment.transmission:
        mark = "" if moment.signal else f"attempt-{moment.number}"
        title = cells.link(cells.to("transmission", moment.transmission), moment.title, data_testid=mark)
    elif moment.signal:
        title = cells.link(cells.to("signal", moment.signal), moment.title)
    else:
        title = format_html("<span>{}</span>", moment.title)
    return format_html("{} {} {}", sign, title, cells.below(moment.detail, "text-soft moment-detail"))


# --- lists of messages, here and on the pages of others ---


def _pair_of(message: Any) -> SafeString:
    return format_html("{} {}", cells.arrow(message.direction), cells.pair(message.pair))


def _action(message: Any, length: int = 30) -> SafeString:
    said = '<span class="strong">{}</span> <span class="text-faint clip" title="{}">{}</span>'
    return format_html(said, message.action, message.service, middle(message.service, length))


def copies(message: Message) -> SafeString | str:
    """Return how often a message came again, "" for never."""
    if not message.copies:
        return ""
    said = ' <span class="text-faint" title="{}">+{}</span>'
    return format_html(said, _("Repeats that were discarded"), message.copies)


def _id(message: Message, length: int) -> SafeString:
    return cells.joined(cells.message(message, length, id=f"open-{message.public_id}"), copies(message))


def _archived(row: ArchivedMessage) -> SafeString:
    href = cells.to("archived", row.public_id)
    return cells.link(href, middle(row.message_id, 28), "mono", title=row.message_id)


PAIR = Column(gettext_lazy("Pair"), _pair_of, "pair-cell")
SEQUENCE = Column(
    gettext_lazy("Sequence"),
    lambda row: "—" if row.sequence_number is None else row.sequence_number,
    "num",
    head=abbreviation(gettext_lazy("Seq"), gettext_lazy("Sequence number")),
)
ATTEMPTS = Column(gettext_lazy("Attempts"), lambda row: row.attempts if row.direction == Direction.OUT else "—", "num")
SIZE = Column(gettext_lazy("Size"), lambda row: octets(row.size), "num nowrap")
TIME = Column(gettext_lazy("Time"), lambda row: ago(row.created_at), "nowrap", zoned=True)
STATE = Column(gettext_lazy("State"), lambda row: state("message", row.state), "nowrap")
_SHORT = (
    Column(gettext_lazy("Action"), lambda row: format_html('<span class="strong">{}</span> ', row.action)),
    Column("MessageId", lambda row: _id(row, 22)),
)
_LONG = (
    Column(gettext_lazy("Service, action"), _action, narrow=gettext_lazy("Action")),
    Column("MessageId", lambda row: _id(row, 28)),
    *(SEQUENCE, ATTEMPTS, SIZE),
)
ACTION = Column(gettext_lazy("Service, action"), lambda row: _action(row, 22), narrow=gettext_lazy("Action"))
_ARCHIVED = (
    Column(gettext_lazy("Entered"), lambda row: at(row.created_at), "nowrap", zoned=True),
    Column(gettext_lazy("Where it is"), lambda row: row.get_state_display(), "nowrap", narrow=gettext_lazy("Where")),
    PAIR,
    Column(gettext_lazy("Service, action"), _action, narrow=gettext_lazy("Action")),
    Column("MessageId", _archived),
    *(SEQUENCE, SIZE),
)


def messages(caption: str, rows: Iterable[Message], *, short: bool = False, pair: bool = True) -> dict[str, Any]:
    """Return the table of a few messages. `pair`: whether it says whose they are."""
    columns = (TIME, STATE, *((PAIR,) if pair else ()), *(_SHORT if short else _LONG))
    return table(caption, columns, rows, about=cells.state_row, css=f"{STACK} table-messages")


def archived(caption: str, rows: Iterable[ArchivedMessage]) -> dict[str, Any]:
    """Return the table of messages that have left the store."""
    return table(caption, _ARCHIVED, rows, about=cells.row_id, css=f"{STACK} table-messages")


# --- one message ---


def _payloads(message_id: str, *, opened: bool) -> tuple[Column, ...]:
    """Return the columns of a message's documents. `opened`: whether the person may see what is in them."""

    def name(payload: Payload) -> SafeString:
        called = payload.filename or payload.label or _("Document")
        href = cells.to("payload", message_id, payload.number)
        shown = cells.link(href, called, "strong", data_testid="payload") if opened else cells.span("strong", called)
        return cells.joined(
            shown, format_html('<div class="text-faint mono wrap">{}</div>', middle(payload.content_id, 40))
        )

    def download(payload: Payload) -> SafeString:
        if not opened:
            return format_html('<span class="text-faint">{} {}</span>', icon("lock"), _("needs the role operator"))
        which = cells.hidden(f" {_('payload {number}').format(number=payload.number)}")
        said = cells.joined(icon("download"), _("Download"), which)
        return cells.link(cells.to("payload-download", message_id, payload.number), said, "btn btn-sm")

    return (
        Column(_("Name"), name),
        Column(_("Content type"), lambda payload: payload.content_type, "mono", narrow=_("Type")),
        Column(_("Size"), lambda payload: octets(payload.size), "num nowrap"),
        Column("SHA-256", lambda one: f"{one.sha256[:12]}…", "mono", title=lambda payload: payload.sha256),
        Column(pgettext("verb", "Open"), download, "nowrap cell-end"),
    )


def of_message(
    message: Message, screen: MessageScreen, inquiries: Sequence[StatusInquiry], who: Person
) -> dict[str, Any]:
    """Return the tables of a message's page, by their names in its template."""
    documents = _payloads(message.public_id, opened="payloads:read" in who.scopes)
    return {
        "signals": table(_("Acknowledgements and error messages about this message"), SIGNALS, screen.signals),
        "payloads": table(_("Documents in this message"), documents, screen.payloads),
        "moments": table(
            _("What happened to this message, oldest first"),
            MOMENTS,
            screen.moments,
            about=lambda moment: {"class": f"tone-{moment.tone}"},
            css=f"{STACK} timeline",
        ),
        "transmissions": table(
            _("Transmissions of this message, the oldest first"),
            TRANSMISSIONS,
            screen.transmissions,
            about=lambda attempt: {"id": f"row-{attempt.public_id}", "data-state": attempt.outcome},
            keys=True,
        ),
        "inquiries": table(
            _("Status inquiries to the partner about this message, the newest first"),
            INQUIRIES,
            inquiries,
            about=lambda inquiry: {"data-state": inquiry.answer, "data-testid": "inquiry"},
        ),
    }


INQUIRIES = (
    Column(gettext_lazy("Asked"), lambda inquiry: ago(inquiry.asked_at), "nowrap", zoned=True),
    Column(gettext_lazy("Answer"), _answer),
    Column(gettext_lazy("Detail"), lambda one: f"{cells.cause(one.cause)}. {one.detail}" if one.cause else one.detail),
    Column("HTTP", lambda inquiry: "—" if inquiry.http_status is None else inquiry.http_status, "num"),
    Column(gettext_lazy("By"), lambda inquiry: inquiry.actor),
)
TRANSMISSIONS = (
    Column(gettext_lazy("No."), _attempt, "num"),
    Column(gettext_lazy("Started"), lambda attempt: clock_time(attempt.started_at), "nowrap mono", zoned=True),
    Column(gettext_lazy("Outcome"), _outcome),
    Column(gettext_lazy("To"), lambda attempt: attempt.address, "mono wrap"),
    Column(
        gettext_lazy("Answer"), lambda attempt: f"HTTP {attempt.http_status}" if attempt.http_status else "—", "mono"
    ),
    Column(gettext_lazy("Took"), lambda attempt: cells.duration(attempt.started_at, attempt.finished_at), "num nowrap"),
)
MOMENTS = (
    Column(gettext_lazy("Time"), lambda moment: clock_time(moment.at), "nowrap mono"),
    Column(gettext_lazy("What happened"), _moment, narrow=gettext_lazy("What")),
    Column(gettext_lazy("Took"), lambda moment: took(moment.seconds) if moment.transmission else "", "num nowrap"),
)
REQUEST_HEADERS = (
    Column(gettext_lazy("Header"), lambda header: header[0], "mono"),
    Column(gettext_lazy("Value"), lambda header: header[1], "mono wrap"),
)
FIELDS = (
    Column(gettext_lazy("Element"), _element, "mono wrap"),
    Column(gettext_lazy("Value"), lambda field: field.value or "—", "mono wrap"),
)
PARTS = (
    Column(gettext_lazy("Part"), _part, "mono wrap"),
    Column("Content-ID", lambda part: part.content_id or "—", "mono wrap"),
    Column(gettext_lazy("Size"), lambda part: "—" if part.size is None else octets(part.size), "num nowrap"),
)
EVENTS = (
    Column(gettext_lazy("Time"), lambda event: clock_time(event.at), "nowrap mono", zoned=True),
    Column(gettext_lazy("Event"), lambda event: event.type, "mono"),
    Column(gettext_lazy("What it says"), _says, "wrap"),
)
PROOFS = (
    Column(gettext_lazy("Signature of"), _proof_of),
    Column(gettext_lazy("Verified"), _held, "wrap"),
    Column(gettext_lazy("Signed by"), lambda proof: proof.signer or "—", "wrap"),
    Column(
        gettext_lazy("Certificate (SHA-256)"),
        lambda proof: format_html('<span title="{}">{}</span>', proof.fingerprint, middle(proof.fingerprint, 20)),
        "mono",
    ),
    Column(gettext_lazy("Time"), lambda proof: at(proof.at), "nowrap", zoned=True),
)
SIGNALS = (
    Column(gettext_lazy("Created"), lambda signal: ago(signal.created_at), "nowrap", zoned=True),
    Column(gettext_lazy("What"), _signal),
    Column(gettext_lazy("State"), _signal_state, "nowrap"),
    Column(
        "MessageId",
        lambda signal: format_html('<span title="{}">{}</span>', signal.message_id, middle(signal.message_id, 26)),
        "mono",
    ),
    Column(gettext_lazy("Sent"), lambda signal: signal.sends if signal.direction == Direction.OUT else "—", "num"),
)
