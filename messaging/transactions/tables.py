"""Columns of the list of transactions, and of the messages of one."""

from __future__ import annotations

from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from messaging.console import cells
from messaging.console.resource import Column, table
from messaging.messages.pages import diagram
from messaging.templatetags.hub import ago, clock_time, icon, middle, state, until
from rmhub.language import gettext_lazy

Row = dict[str, Any]


def _phase(row: Row) -> SafeString:
    one = row["transaction"]
    said = cells.joined(state("phase", one.phase), cells.hidden(_(": transaction {id}").format(id=one.identifier)))
    return cells.joined(
        cells.link(cells.to("transaction", one.public_id), said, "plain", data_open=True, id=f"open-{one.public_id}"),
        format_html("<div>{}</div>", state("delivery", "in_doubt")) if one.doubtful_since else "",
    )


def _identifier(row: Row) -> SafeString:
    one = row["transaction"]
    href = cells.to("transaction", one.public_id)
    return cells.joined(
        cells.link(href, middle(one.identifier, 30), "mono", title=one.identifier),
        format_html(' <span class="chip">{}</span>', _("participant")) if one.subordinate else "",
    )


def _beginner(row: Row) -> SafeString:
    if not row["delivery"]:
        return cells.joined(row["beginner"])
    href = cells.to("delivery", row["delivery"].public_id)
    return format_html("{} {}", row["beginner"], cells.link(href, cells.joined(icon("package"), _("delivery")), "chip"))


def _participants(row: Row) -> object:
    names = row["names"]
    more = " …" if len(names) > 3 else ""
    if not names:
        return cells.span("text-faint", _("nobody"))
    return format_html('{}: <span translate="no">{}</span>{}', len(names), ", ".join(names[:3]), more)


def _known(row: Row) -> object:
    one = row["transaction"]
    if one.doubtful_since:
        return format_html(_("in doubt since {time}"), time=ago(one.doubtful_since))
    return row["cause"].label if row["cause"] else cells.NONE


def _left(row: Row) -> SafeString:
    one = row["transaction"]
    if one.ended_at:
        return cells.span("text-faint", _("took {time}").format(time=cells.duration(one.created_at, one.ended_at)))
    decided = one.decided_at or one.phase == "aborting"
    return cells.span("text-faint", _("decided")) if decided else until(one.expires_at)


BEGUN = Column(gettext_lazy("Begun"), lambda row: ago(row["transaction"].created_at), "nowrap", zoned=True)
PHASE = Column(gettext_lazy("State"), _phase, "nowrap")
IDENTIFIER = Column(gettext_lazy("Transaction"), _identifier)
BEGINNER = Column(gettext_lazy("Begun by"), _beginner)
PARTICIPANTS = Column(gettext_lazy("Participants"), _participants)
KNOWN = Column(gettext_lazy("What is known"), _known, narrow=gettext_lazy("Known"))
LEFT = Column(gettext_lazy("Time left"), _left, "nowrap")


def _ends(shape: Any) -> SafeString | str:
    return format_html("<span>{}</span> → <span>{}</span>", shape.source, shape.target) if shape.step.is_arrow else "—"


def _message(shape: Any) -> SafeString:
    step = shape.step
    if shape.href:
        return cells.link(shape.href, step.label, translate="no")
    by = format_html(' <span class="text-faint">{}</span>', _("by {name}").format(name=step.by)) if step.by else ""
    return cells.joined(cells.span("strong", step.label), by)


_OUTCOMES = {
    "lost": gettext_lazy("not taken"),
    "unsent": gettext_lazy("not sent"),
    "open": gettext_lazy("under way"),
}


def _outcome(shape: Any) -> SafeString:
    step = shape.step
    result = format_html(' <span class="text-soft wrap">{}</span>', step.result) if step.result else ""
    return cells.joined(_OUTCOMES.get(step.outcome, _("arrived")) if step.is_arrow else "", result)


_SEQUENCE = (
    Column(gettext_lazy("Time"), lambda shape: clock_time(shape.step.at), "nowrap", zoned=True),
    Column(gettext_lazy("From, to"), _ends),
    Column(gettext_lazy("Message"), _message),
    Column(gettext_lazy("Outcome"), _outcome),
    Column(
        gettext_lazy("Attempts"),
        lambda one: one.step.repeated if one.step.is_arrow and one.step.repeated else "—",
        "num",
    ),
)


def sequence(drawing: diagram.Drawing) -> dict[str, Any]:
    """Return the drawing of a transaction's messages as a table."""
    said = _("Messages of the transaction in the order of time")
    return table(said, _SEQUENCE, drawing.shapes, about=diagram.about, name="sequence-table")
