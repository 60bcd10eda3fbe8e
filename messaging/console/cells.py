"""What stands in the cells of many tables. What is a subject's own stands beside its table."""

from __future__ import annotations

from django.forms.utils import flatatt
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from messaging import causes
from messaging.choices import Direction
from messaging.models import Message, Pair
from messaging.templatetags.hub import icon, middle, took
from rmhub import language


def to(view: str, *args: object) -> str:
    """Return the address of a page of the console."""
    return reverse(f"console:{view}", args=args)


def link(href: str, text: object, css: str = "", **attributes: object) -> SafeString:
    """Return a link. `data_open=True`: the one that a key opens (attribute `data-open`)."""
    given = {"class": css, **{name.replace("_", "-"): value for name, value in attributes.items()}}
    return format_html(
        "<a{}>{}</a>", flatatt({"href": href, **{name: value for name, value in given.items() if value}}), text
    )


def joined(*parts: object, by: str = "") -> SafeString:
    """Return the parts, those that are not empty, as one cell."""
    return format_html_join(by, "{}", ((part,) for part in parts if part not in ("", None)))


def span(css: str, text: object) -> SafeString:
    return format_html('<span class="{}">{}</span>', css, text)


def below(text: object, css: str = "text-faint") -> SafeString | str:
    """Return a second line of the cell; "" for none."""
    return format_html('<div class="{}">{}</div>', css, text) if text else ""


def hidden(text: object) -> SafeString:
    """Return what only a screen reader says."""
    return span("visually-hidden", text)


NONE = span("text-faint", "—")


def aged(level: str, since: object) -> SafeString:
    """Return how long something waits, in the colour of its age."""
    return span(f"age age-{level}", since)


def number(count: int | None) -> str:
    return "—" if count is None else language.number(count)


def bad(count: int) -> SafeString | str:
    """Return a count of what should not be."""
    return span("text-bad", number(count)) if count else "0"


def cause(code: str) -> str:
    """Return the words for a cause code, "" for none."""
    known = causes.lookup(code) if code else None
    return known.label if known is not None else ""


def duration(begin: object, end: object) -> str:
    """Return how long it took; a dash for what has not ended."""
    return took((end - begin).total_seconds()) if end else "—"  # type: ignore[operator]


def arrow(direction: str, *, spoken: bool = True) -> SafeString:
    """Return the sign of a direction."""
    out = direction == Direction.OUT
    sign = icon("arrow-up-right" if out else "arrow-down-left", "dir")
    return joined(sign, hidden(_("outbound") if out else _("inbound"))) if spoken else sign


def pair(one: Pair, css: str = "") -> SafeString:
    """Return the link to a pair."""
    return link(to("pair", one.code), one.code, css)


def message(one: Message, length: int, **attributes: object) -> SafeString:
    """Return the link to a message, by the ends of its MessageId."""
    href = to("message", one.public_id)
    return link(href, middle(one.message_id, length), "mono", title=one.message_id, **attributes)


def state_row(one: object) -> dict[str, str]:
    """Return the attributes of a row that has an id and a state."""
    return {"id": f"row-{one.public_id}", "data-state": one.state}  # type: ignore[attr-defined]


def row_id(one: object) -> dict[str, str]:
    return {"id": f"row-{one.public_id}"}  # type: ignore[attr-defined]
