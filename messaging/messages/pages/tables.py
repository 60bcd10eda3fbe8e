"""Tables of a message's page: the columns of its header, its parts, its events, its acknowledgements."""

from __future__ import annotations

from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from messaging.choices import Direction
from messaging.console.resource import Column
from messaging.messages.selectors.wire_parts import HeaderField, WirePart
from messaging.models import Event, Signal
from messaging.templatetags.hub import ago, clock_time, icon, middle, octets, state, words


def _element(field: HeaderField) -> SafeString:
    return format_html('<span title="{}">{}</span>', field.namespace, field.path)


def _part(part: WirePart) -> SafeString:
    return format_html(
        "{}{}{}",
        format_html("{} ", icon("chevron-right", "dir")) if part.depth else "",
        part.content_type or "no content type",
        format_html(' <span class="text-faint">payload {}</span>', part.payload.number) if part.payload else "",
    )


def _says(event: Event) -> SafeString:
    facts = ((words(name), value) for name, value in event.data.items() if value and name != "message_id")
    return format_html_join(" ", '<span class="fact"><span class="text-faint">{}</span> {}</span>', facts)


def _signal(signal: Signal) -> SafeString:
    partners = signal.direction == Direction.IN
    return format_html(
        '<a href="{}">{}: {}{}</a>',
        reverse("console:signal", args=[signal.public_id]),
        format_html("{} from the partner", icon("arrow-down-left", "dir"))
        if partners
        else format_html("{} ours", icon("arrow-up-right", "dir")),
        signal.get_kind_display().lower(),
        f" {signal.error_code}" if signal.error_code else "",
    )


def _signal_state(signal: Signal) -> SafeString:
    note = format_html('<div class="text-faint">{}</div>', signal.note) if signal.note else ""
    return format_html("{}{}", state("signal", signal.state), note)


REQUEST_HEADERS = (
    Column("Header", lambda header: header[0], "mono"),
    Column("Value", lambda header: header[1], "mono wrap"),
)
FIELDS = (
    Column("Element", _element, "mono wrap"),
    Column("Value", lambda field: field.value or "—", "mono wrap"),
)
PARTS = (
    Column("Part", _part, "mono wrap"),
    Column("Content-ID", lambda part: part.content_id or "—", "mono wrap"),
    Column("Size", lambda part: "—" if part.size is None else octets(part.size), "num nowrap"),
)
EVENTS = (
    Column("Time", lambda event: clock_time(event.at), "nowrap mono", zoned=True),
    Column("Event", lambda event: event.type, "mono"),
    Column("What it says", _says, "wrap"),
)
SIGNALS = (
    Column("Made", lambda signal: ago(signal.created_at), "nowrap", zoned=True),
    Column("What", _signal),
    Column("State", _signal_state, "nowrap"),
    Column(
        "MessageId",
        lambda signal: format_html('<span title="{}">{}</span>', signal.message_id, middle(signal.message_id, 26)),
        "mono",
    ),
    Column("Sent", lambda signal: signal.sends if signal.direction == Direction.OUT else "—", "num"),
)
