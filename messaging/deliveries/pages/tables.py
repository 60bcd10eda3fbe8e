"""Tables of deliveries, of what is in doubt by groups, and of triggers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.template.loader import render_to_string
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst

from messaging.choices import DeliveryState
from messaging.console import cells
from messaging.console.resource import STACK, Column, table
from messaging.deliveries.selectors import in_doubt
from messaging.models import Delivery, Trigger
from messaging.templatetags.hub import ago, middle, select, select_all, state, until

# --- deliveries ---


def _select(one: Delivery) -> SafeString | str:
    open_question = one.state in (DeliveryState.IN_DOUBT, DeliveryState.FAILED)
    return select(one.public_id, one.message.message_id) if open_question else ""


def _state(one: Delivery) -> SafeString:
    said = cells.joined(state("delivery", one.state), cells.hidden(f": delivery of {one.message.message_id}"))
    return cells.link(cells.to("delivery", one.public_id), said, "plain", data_open=True, id=f"open-{one.public_id}")


def _trigger(trigger: Trigger) -> SafeString:
    return cells.link(cells.to("trigger", trigger.public_id), trigger.name)


def _document(one: Delivery) -> SafeString:
    return cells.joined(
        format_html('<span class="strong">{}</span> ', one.message.action),
        cells.message(one.message, 26),
        format_html(' <span class="chip">{}</span>', "resubmitted") if one.resubmission_of_id else "",
        format_html(' <span class="chip">{}</span>', "join") if one.join_id else "",
    )


def _known(one: Delivery, *, why: bool = True) -> object:
    """`why`: whether the reason of a doubt is said; not where all rows have the same."""
    if one.doubt and one.state == DeliveryState.IN_DOUBT:
        said: object = ""
        if why:
            said = in_doubt.reason(one.doubt).label
        elif one.redelivery_count > 0:
            said = f"handed over {one.redelivery_count} time{'s' if one.redelivery_count != 1 else ''} before"
        elif not one.remind_at:
            said = cells.NONE
        later = format_html("put off, shown again {}", until(one.remind_at)) if one.remind_at else ""
        return cells.joined(said, cells.below(later))
    if one.cause:
        status = (
            format_html(' <span class="mono text-faint">HTTP {}</span>', one.http_status) if one.http_status else ""
        )
        return cells.joined(cells.cause(one.cause), status)
    if one.state == DeliveryState.SETTLED:
        return f"{one.decided_by}: {'resubmitted' if one.decision == 'resubmit' else 'processed already'}"
    if one.state == DeliveryState.RUNNING and one.taken_by:
        return f"taken by {one.taken_by}"
    if one.state == DeliveryState.WAITING and one.retries:
        return format_html("next {}, retry {}", until(one.due_at), one.retries)
    return cells.NONE


SELECT = Column("Select", _select, "cell-select", quiet=True, head=select_all())
STORED = Column("Stored", lambda one: ago(one.created_at), "nowrap", zoned=True)
STATE = Column("State", _state, "nowrap")
TRIGGER = Column("Trigger", lambda one: _trigger(one.trigger))
DOCUMENT = Column("Document", _document)
PAIR = Column("Pair", lambda one: cells.pair(one.message.pair), "nowrap")
KNOWN = Column("What is known", _known, narrow="Known")
RUNS = Column(
    "Runs",
    lambda one: one.executions,
    "num",
    head=format_html('<abbr title="How often the service was called">{}</abbr>', "Runs"),
)
OF_TRIGGER = (STORED, STATE, DOCUMENT, PAIR, KNOWN, RUNS)
OF_DOUBT = (*OF_TRIGGER[:4], Column("What is known", lambda one: _known(one, why=False), narrow="Known"), RUNS)


def deliveries(
    caption: str, rows: Iterable[Delivery], columns: Iterable[Column] = (STORED, STATE, TRIGGER, *OF_TRIGGER[2:])
) -> dict[str, Any]:
    """Return the table of some deliveries."""
    css = f"{STACK} table-messages table-deliveries"
    return table(caption, tuple(columns), rows, about=cells.state_row, css=css, keys=True)


# --- what is in doubt, by groups ---


def _why(group: Any) -> SafeString:
    return format_html(
        '<span class="strong">{}</span><div class="text-soft">{}</div>', group.reason.label, group.reason.sentence
    )


def _count(group: Any, href: str, whose: object, **attributes: object) -> SafeString:
    about = f" in doubt: {group.reason.label}{f', {whose}' if whose else ''}"
    said = cells.joined(cells.number(group.count), cells.hidden(about))
    return cells.link(href, said, "strong big-number", **attributes)


def _later(group: Any) -> SafeString | str:
    return cells.below(f"{group.later:,} put off" if group.later else "")


def _documents(row: Any) -> SafeString:
    group, trigger = row[0], row[0].trigger
    href = cells.to("doubt", trigger.public_id, group.doubt or "-")
    key = f"group-{trigger.public_id}-{group.doubt}"
    return cells.joined(_count(group, href, trigger.name, id=key), _later(group))


def _of_trigger(row: Any) -> SafeString:
    trigger = row[0].trigger
    stopped = format_html("<div>{}</div>", state("trigger", trigger.state)) if trigger.state != "active" else ""
    return cells.joined(_trigger(trigger), stopped)


def _messages(row: Any) -> SafeString:
    group, pair = row[0], row[0].pair
    href = cells.to("doubt-outbound", pair.code, group.cause or "-")
    key = f"group-{pair.public_id}-{group.cause}"
    return cells.joined(_count(group, href, pair.code, id=key), _later(group))


def _of_pair(row: Any) -> SafeString:
    pair = row[0].pair
    queue = f", {pair.in_queue:,} in its queue" if pair.in_queue else ""
    return cells.joined(cells.pair(pair), cells.below(f"{pair.partner}{queue}"))


def _suggestion(row: Any) -> object:
    group = row[0]
    if group.mixed:
        return "Decide by the partner’s answer"
    said = {"delivered": "Mark as delivered", "resubmit": "Send as new"}.get(group.suggestion)
    return cells.span("strong", said) if said else group.reason.advice


def _chips(row: Any) -> str:
    return render_to_string("console/deliveries/answer_chips.html", {"asked": row[0].asked})


def _partner(row: Any) -> SafeString:
    partner = row["group"].partner
    return cells.link(cells.to("partner", partner.public_id), partner) if partner else cells.NONE


def _transaction(row: Any) -> SafeString:
    one = row["transaction"]
    href = cells.to("transaction", one.public_id)
    return format_html(
        "{}<div>{}</div>", cells.link(href, middle(one.identifier, 30), "strong mono"), state("phase", one.phase)
    )


def _settle(row: Any) -> SafeString:
    drawn = [
        format_html("{} ", render_to_string(_BUTTON, {"button": button, "small": True, "about": name}))
        for name, button in row["settle"]
    ]
    return cells.joined(*drawn) if drawn else cells.NONE


_BUTTON = "console/parts/transaction_button.html"
BY_TRIGGER = (
    Column("Documents", _documents, "num"),
    Column("Trigger", _of_trigger),
    Column("Why they are in doubt", lambda row: _why(row[0]), narrow="Why"),
    Column("How to find out", lambda row: row[0].reason.advice, narrow="How"),
    Column("Oldest", lambda row: cells.aged(row[1], ago(row[0].oldest_at)), "nowrap"),
)
BY_PAIR = (
    Column("Messages", _messages, "num"),
    Column("Pair", _of_pair, "nowrap"),
    Column("Why they are in doubt", lambda row: _why(row[0]), narrow="Why"),
    Column("What the partner says", _chips, narrow="Partner says"),
    Column("Suggestion", _suggestion),
    Column("Oldest", lambda row: cells.aged(row[1], ago(row[0].oldest_at)), "nowrap"),
)
BY_PARTNER = (
    Column("Transactions", lambda row: _count(row["group"], row["href"], row["group"].partner), "num"),
    Column("Partner", _partner),
    Column("Why they are in doubt", lambda row: _why(row["group"]), narrow="Why"),
    Column("How to find out", lambda row: row["group"].reason.advice, narrow="How"),
    Column("Oldest", lambda row: cells.aged(row["level"], ago(row["group"].oldest_at)), "nowrap"),
)
TRANSACTIONS = (
    Column("Transaction", _transaction),
    Column("About", lambda row: ", ".join(row["names"]) or "—"),
    Column(
        "Why it is in doubt",
        lambda row: cells.joined(
            cells.span("strong", row["diagnosis"].headline),
            format_html('<div class="text-soft">{}</div>', row["diagnosis"].why),
        ),
        narrow="Why",
    ),
    Column("What to do", lambda row: row["diagnosis"].action),
    Column("Settle", _settle),
    Column("Since", lambda row: cells.aged(row["level"], ago(row["transaction"].doubtful_since)), "nowrap"),
)


def _group(row: object) -> dict[str, str]:
    return {"data-testid": "doubt-group"}


def groups(caption: str, columns: tuple[Column, ...], rows: Iterable[Any]) -> dict[str, Any]:
    """Return the table of groups in doubt, the oldest first."""
    return table(caption, columns, rows, about=_group)


# --- triggers ---


def _since(row: Any) -> SafeString:
    trigger = row.trigger
    changed = cells.below(ago(trigger.changed_at)) if trigger.changed_at and trigger.state != "active" else ""
    return cells.joined(state("trigger", trigger.state), changed)


def _matter(row: Any) -> SafeString:
    if not row.diagnosis.cause:
        return cells.span("text-soft", capfirst(row.diagnosis.short))
    asked = format_html("monitor asked {}", until(row.diagnosis.next_at)) if row.diagnosis.next_at else ""
    return cells.joined(cells.span("strong", row.diagnosis.cause.label), cells.below(asked))


def _name(row: dict[str, Any]) -> SafeString:
    trigger = row["row"].trigger
    href = cells.to("trigger", trigger.public_id)
    return cells.joined(
        cells.link(href, trigger.name, "strong", id=f"trigger-{trigger.public_id}"),
        format_html('<div class="text-faint wrap">{}</div>', row["subscription"]),
    )


TRIGGERS = (
    Column("State", lambda row: _since(row["row"]), "nowrap"),
    Column("Trigger", _name),
    Column("Problem", lambda row: _matter(row["row"]), narrow="Problem"),
    Column("Waiting", lambda row: cells.number(row["row"].backlog.waiting), "num"),
    Column("In progress", lambda row: cells.number(row["row"].backlog.running), "num"),
    Column("In doubt", lambda row: cells.bad(row["row"].backlog.in_doubt), "num"),
    Column("Failed", lambda row: cells.bad(row["row"].backlog.failed), "num"),
    Column("Last success", lambda row: ago(row["row"].trigger.last_success_at, "never"), "nowrap"),
)
