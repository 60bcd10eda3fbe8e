"""How the console writes states, times, sizes and ids: the same on every page."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from django import template
from django.templatetags.static import static
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import Truncator
from django.utils.translation import gettext as _

from messaging import causes
from messaging.choices import DELIVERY_LOOKS, MESSAGE_LOOKS, PAIR_LOOKS, TRIGGER_LOOKS
from messaging.console import zones
from messaging.console.looks import LOOKS, OTHERS
from messaging.console.naming import Completing
from messaging.deliveries.selectors import in_doubt
from messaging.journal.wording import span as span_of
from messaging.models import PipelineRun
from partners import transports
from partners.choices import Semantics
from rmhub import clock
from rmhub.language import number

register = template.Library()

_ICONS = "vendor/tabler-icons-3.51.0/icons.svg"
_ABSOLUTE_AFTER = timedelta(hours=24)
_TICK = (
    '<label class="select-box"><input type="checkbox" class="form-check-input" {}>'
    '<span class="visually-hidden">{}</span></label>'
)


@register.simple_tag
def icon(name: str, extra: str = "") -> SafeString:
    """An icon of the sprite, invisible to screen readers: words stand beside it."""
    return format_html(
        '<svg class="icon {}" aria-hidden="true" focusable="false"><use href="{}#{}"></use></svg>',
        extra,
        static(_ICONS),
        name,
    )


@register.simple_tag
def completing(of: str, name: str, value: str = "", blank: str = "", css: str = "", **attrs: str | bool) -> SafeString:
    """A field for the name of a partner or agreement (`of`), which completes itself. `blank`: what empty means."""
    given = {f"data-{key}" if key == "testid" else key.replace("_", "-"): text for key, text in attrs.items()}
    given |= {"placeholder": blank} if blank else {}
    return Completing(of, {"class": f"form-control {css}".strip(), **given}).render(name, value, attrs=None)


@register.simple_tag
def state(kind: str, value: str, extra: str = "") -> SafeString:
    """A state as word, icon and colour, e.g. `{% state "pair" "suspended" %}`."""
    if kind in LOOKS:
        looks, icons = LOOKS[kind]
        look, sign = looks[value], icons[value]
    else:
        look, sign = OTHERS[kind][value]
    return format_html(
        '<span class="state state-{}" data-state="{}">{}<span>{}</span>{}</span>',
        look.colour,
        value,
        icon(sign, "state-icon"),
        look.label,
        f" {extra}" if extra else "",
    )


@register.simple_tag
def pair_word(value: str) -> str:
    """The word for a pair's state."""
    return PAIR_LOOKS[value].label


@register.simple_tag
def message_word(value: str) -> str:
    """The word for a message's state."""
    return MESSAGE_LOOKS[value].label


@register.simple_tag
def trigger_word(value: str) -> str:
    """The word for a trigger's state."""
    return TRIGGER_LOOKS[value].label


@register.simple_tag
def delivery_word(value: str) -> str:
    """The word for a delivery's state."""
    return DELIVERY_LOOKS[value].label


@register.simple_tag
def delivery_colour(value: str) -> str:
    """The colour that goes with a delivery's state."""
    return DELIVERY_LOOKS[value].colour


@register.simple_tag
def ago(value: datetime | None, empty: str = "—") -> SafeString:
    """How long ago, with the exact instant for pointer and screen reader; older than a day: the date."""
    if value is None:
        return format_html('<span class="text-faint">{}</span>', empty)
    age = clock.now() - value
    text = _absolute(value) if age > _ABSOLUTE_AFTER else _("{time} ago").format(time=span_of(age.total_seconds()))
    return _time(value, text, "ago" if age <= _ABSOLUTE_AFTER else "")


@register.simple_tag
def at(value: datetime | None, empty: str = "—") -> SafeString:
    """The exact instant, with how long ago beside it."""
    if value is None:
        return format_html('<span class="text-faint">{}</span>', empty)
    age = (clock.now() - value).total_seconds()
    beside = (_("{time} ago") if age >= 0 else _("in {time}")).format(time=span_of(abs(age)))
    return format_html('{} <span class="text-faint">{}</span>', _time(value, _instant(value), ""), beside)


def clock_time(value: datetime) -> SafeString:
    """Time of day to the millisecond, for rows of one message's life."""
    text = f"{timezone.localtime(value):%Y-%m-%d %H:%M:%S.%f}"[:-3]
    return _time(value, f"{text}{_season(value)}", "")


@register.simple_tag
def zone() -> SafeString:
    """The zone in which this page's times stand, for the heads of tables and the labels of fields."""
    current = timezone.get_current_timezone()
    return format_html('<abbr title="{}">{}</abbr>', zones.title(current), zones.label(current, clock.now()))


@register.simple_tag
def until(value: datetime | None, empty: str = "—") -> SafeString:
    """A countdown to what the hub does next by itself."""
    if value is None:
        return format_html('<span class="text-faint">{}</span>', empty)
    left = (value - clock.now()).total_seconds()
    return _time(value, _("in {time}").format(time=span_of(left)) if left >= 1 else _("now"), "until")


@register.simple_tag
def duration_of(begin: datetime, end: datetime) -> str:
    """How long it took."""
    return took((end - begin).total_seconds())


@register.simple_tag
def select_all() -> SafeString:
    """Return the head of a column of check boxes, which ticks all of them."""
    return format_html(_TICK, mark_safe("data-select-all hidden"), _("Select all rows of this page"))


@register.simple_tag
def select(value: str, name: object) -> SafeString:
    """Return the check box of a row, for the bar of what can be done about many."""
    ticked = format_html('name="ids" value="{}" form="bulk" data-testid="select"', value)
    return format_html(_TICK, ticked, _("Select {name}").format(name=name))


@register.filter
def middle(text: str, length: int = 32) -> str:
    """A long id with its middle left out; both ends tell ids apart."""
    if len(text) <= length:
        return text
    keep = (length - 1) // 2
    return f"{text[:keep]}…{text[-keep:]}"


# The name that a browser has for people, by the mark of its User-Agent; the first that is there counts, since each
# claims to be those after it, too (RFC 9110, 10.1.5).
_BROWSERS = (
    ("Edg", "Edge"),
    ("OPR", "Opera"),
    ("Firefox", "Firefox"),
    ("FxiOS", "Firefox"),
    ("CriOS", "Chrome"),
    ("Chrome", "Chrome"),
    ("Version", "Safari"),
)
_SYSTEMS = (
    ("Windows", "Windows"),
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Mac OS X", "macOS"),
    ("Linux", "Linux"),
)


@register.filter
def browser(agent: str) -> str:
    """Return a User-Agent as people know it, `Firefox 130, Windows`; the start of one that is none of them."""
    found = ((name, re.search(rf"{mark}\w*/(\d+)", agent)) for mark, name in _BROWSERS)
    known = next((f"{name} {version[1]}" for name, version in found if version), "")
    system = next((name for mark, name in _SYSTEMS if mark in agent), "")
    return ", ".join(filter(None, (known, system))) if known else Truncator(agent).chars(60)


@register.filter
def span(seconds: float | int | None) -> str:
    """`3 h 12 m`."""
    return "" if seconds is None else span_of(float(seconds))


@register.filter
def took(seconds: float | None) -> str:
    """How long something took, to three digits: `84 ms`, `1.24 s`."""
    if seconds is None:
        return ""
    if seconds < 1:
        return f"{round(seconds * 1000)} ms"
    return f"{number(seconds, 2)} s" if seconds < 60 else span_of(seconds)


@register.filter
def octets(size: int) -> str:
    """A size for people: `812 B`, `16.1 KiB`."""
    if size < 1024:
        return f"{size} B"
    left = float(size)
    for unit in ("KiB", "MiB", "GiB"):
        left /= 1024
        if left < 1024 or unit == "GiB":
            return f"{number(left, 1)} {unit}"
    return ""


@register.filter
def short(count: int) -> str:
    """A count for narrow places: `812`, `1.2k`, `34k`, `1.2M`."""
    if count < 1000:
        return str(count)
    for unit in ("k", "M"):
        size = count / (1000 if unit == "k" else 1_000_000)
        if size < 999.5 or unit == "M":
            return f"{number(size, 1 if size < 9.95 else 0)}{unit}"
    return ""


@register.filter
def cause(code: str) -> causes.Cause | None:
    """The entry of a cause code, None for no code."""
    return causes.lookup(code) if code else None


@register.filter
def cause_link(code: str) -> SafeString | str:
    """The code, as a link to what it means."""
    return format_html('<a class="mono" href="{}">{}</a>', causes.lookup(code).documentation, code) if code else ""


@register.filter
def semantics(value: str) -> str:
    """The words for a message's delivery semantics."""
    return Semantics(value).label


@register.filter
def refusal(reason: str) -> str:
    """The words for a refusal's reason."""
    return causes.refusal_label(reason)


def probe_word(step: str) -> str:
    """The word for a step of a look at an endpoint."""
    known = {"dns": "DNS", "tcp": "TCP", "tls": "TLS", **dict(transports.choices())}
    return known.get(step) or step.replace("_", " ").capitalize()


@register.filter
def doubt(code: str) -> str:
    """The words for why a document is in doubt."""
    return in_doubt.reason(code).label


@register.filter
def as_json(value: Any) -> str:
    """JSON to read."""
    return json.dumps(value, indent=2, sort_keys=True, default=str, ensure_ascii=False)


@register.filter
def words(code: str) -> str:
    """`pair.retry_now` as `pair retry now`."""
    return code.replace(".", " ").replace("_", " ").replace("-", " ")


def instant(at: datetime | None) -> str:
    """A time to the minute in UTC, as reports say it; "" for none."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M}" if at is not None else ""


@register.filter
def run_range(run: PipelineRun) -> str:
    """The words for the range of a run."""
    begin, end = run.range_from, run.range_to
    if begin and end:
        return _("{begin} to {end} UTC").format(begin=instant(begin), end=instant(end))
    if begin:
        return _("from {begin} UTC").format(begin=instant(begin))
    return _("before {end} UTC").format(end=instant(end)) if end else _("everything")


def _instant(value: datetime) -> str:
    """To the second, with the zone as it was or will be at that time; its offset when the name alone is not enough."""
    current = timezone.get_current_timezone()
    name = zones.label(current, value)
    wall = f"{timezone.localtime(value):%Y-%m-%d %H:%M:%S} {name}"
    twice = zones.needs_offset(value, current, value)
    return f"{wall} ({zones.offset(value, current)})" if twice else wall


def _absolute(value: datetime) -> str:
    """To the minute; the head of the table says the zone."""
    return f"{timezone.localtime(value):%Y-%m-%d %H:%M}{_season(value)}"


def _season(value: datetime) -> str:
    """The offset, where the zone that the head names would mislead."""
    current = timezone.get_current_timezone()
    return f" {zones.offset(value, current)}" if zones.needs_offset(value, current, clock.now()) else ""


def _time(value: datetime, text: str, live: str) -> SafeString:
    moment = value.astimezone(UTC)
    return format_html(
        '<time datetime="{}" title="{}"{}>{}</time>',
        f"{moment:%Y-%m-%dT%H:%M:%S.%f}Z",
        _instant(value),
        format_html(' data-live="{}"', live) if live else "",
        text,
    )
