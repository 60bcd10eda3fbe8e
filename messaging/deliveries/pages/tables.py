"""Tables of deliveries, of what is in doubt by groups, and of triggers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from django.template.loader import render_to_string
from django.utils.functional import lazy
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from messaging.choices import DeliveryState
from messaging.console import cells
from messaging.console.resource import STACK, Column, table
from messaging.deliveries.selectors import in_doubt
from messaging.models import Delivery, Trigger
from messaging.templatetags.hub import ago, middle, select, select_all, state, until
from rmhub.language import gettext_lazy, number


def _drawn(make: Any, *given: object) -> str:
    """Return a column's head, which is made whenever it is shown."""
    return cast(str, lazy(make, str)(*given))


# --- deliveries ---


def _select(one: Delivery) -> SafeString | str:
    open_question = one.state in (DeliveryState.IN_DOUBT, DeliveryState.FAILED)
    return select(one.public_id, one.message.message_id) if open_question else ""


def _state(one: Delivery) -> SafeString:
    of = _(": delivery of {message}").format(message=one.message.message_id)
    said = cells.joined(state("delivery", one.state), cells.hidden(of))
    return cells.link(cells.to("delivery", one.public_id), said, "plain", data_open=True, id=f"open-{one.public_id}")


def _trigger(trigger: Trigger) -> SafeString:
    return cells.link(cells.to("trigger", trigger.public_id), trigger.name)


def _document(one: Delivery) -> SafeString:
    return cells.joined(
        format_html('<span class="strong">{}</span> ', one.message.action),
        cells.message(one.message, 26),
        format_html(' <span class="chip">{}</span>', _("resubmitted")) if one.resubmission_of_id else "",
        format_html(' <span class="chip">{}</span>', _("join")) if one.join_id else "",
    )


def _known(one: Delivery, *, why: bool = True) -> object:
    """`why`: whether the reason of a doubt is said; not where all rows have the same."""
    if one.doubt and one.state == DeliveryState.IN_DOUBT:
        said: object = ""
        if why:
            said = in_doubt.reason(one.doubt).label
        elif one.redelivery_count > 0:
            times = ngettext(
                "handed over {count} time before", "handed over {count} times before", one.redelivery_count
            )
            said = times.format(count=number(one.redelivery_count))
        elif not one.remind_at:
            said = cells.NONE
        later = format_html(_("put off, shown again {when}"), when=until(one.remind_at)) if one.remind_at else ""
        return cells.joined(said, cells.below(later))
    if one.cause:
        status = (
            format_html(' <span class="mono text-faint">HTTP {}</span>', one.http_status) if one.http_status else ""
        )
        return cells.joined(cells.cause(one.cause), status)
    if one.state == DeliveryState.SETTLED:
        how = _("{who}: resubmitted") if one.decision == "resubmit" else _("{who}: processed already")
        return how.format(who=one.decided_by)
    if one.state == DeliveryState.RUNNING and one.taken_by:
        return _("taken by {who}").format(who=one.taken_by)
    if one.state == DeliveryState.WAITING and one.retries:
        return format_html(_("next {when}, retry {count}"), when=until(one.due_at), count=one.retries)
    return cells.NONE


SELECT = Column(gettext_lazy("Select"), _select, "cell-select", quiet=True, head=_drawn(select_all))
STORED = Column(gettext_lazy("Stored"), lambda one: ago(one.created_at), "nowrap", zoned=True)
STATE = Column(gettext_lazy("State"), _state, "nowrap")
TRIGGER = Column(gettext_lazy("Trigger"), lambda one: _trigger(one.trigger))
DOCUMENT = Column(gettext_lazy("Document"), _document)
PAIR = Column(gettext_lazy("Pair"), lambda one: cells.pair(one.message.pair), "nowrap")
KNOWN = Column(gettext_lazy("What is known"), _known, narrow=gettext_lazy("Known"))
RUNS = Column(
    gettext_lazy("Runs"),
    lambda one: one.executions,
    "num",
    head=_drawn(
        format_html,
        '<abbr title="{}">{}</abbr>',
        gettext_lazy("How often the service was called"),
        gettext_lazy("Runs"),
    ),
)
OF_TRIGGER = (STORED, STATE, DOCUMENT, PAIR, KNOWN, RUNS)
OF_DOUBT = (
    *OF_TRIGGER[:4],
    Column(gettext_lazy("What is known"), lambda one: _known(one, why=False), narrow=gettext_lazy("Known")),
    RUNS,
)


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
    about = _("in doubt: {reason}, {whose}") if whose else _("in doubt: {reason}")
    about = about.format(reason=group.reason.label, whose=whose)
    said = cells.joined(cells.number(group.count), cells.hidden(f" {about}"))
    return cells.link(href, said, "strong big-number", **attributes)


def _later(group: Any) -> SafeString | str:
    return cells.below(_("{count} put off").format(count=number(group.later)) if group.later else "")


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
    partner = str(pair.partner)
    if pair.in_queue:
        partner = _("{partner}, {count} in its queue").format(partner=partner, count=number(pair.in_queue))
    return cells.joined(cells.pair(pair), cells.below(partner))


def _suggestion(row: Any) -> object:
    group = row[0]
    if group.mixed:
        return _("Decide by the partner’s answer")
    said = {"delivered": _("Mark as delivered"), "resubmit": _("Send as new")}.get(group.suggestion)
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
    Column(gettext_lazy("Documents"), _documents, "num"),
    Column(gettext_lazy("Trigger"), _of_trigger),
    Column(gettext_lazy("Why they are in doubt"), lambda row: _why(row[0]), narrow=gettext_lazy("Why")),
    Column(gettext_lazy("How to find out"), lambda row: row[0].reason.advice, narrow=gettext_lazy("How")),
    Column(gettext_lazy("Oldest"), lambda row: cells.aged(row[1], ago(row[0].oldest_at)), "nowrap"),
)
BY_PAIR = (
    Column(gettext_lazy("Messages"), _messages, "num"),
    Column(gettext_lazy("Pair"), _of_pair, "nowrap"),
    Column(gettext_lazy("Why they are in doubt"), lambda row: _why(row[0]), narrow=gettext_lazy("Why")),
    Column(gettext_lazy("What the partner says"), _chips, narrow=gettext_lazy("Partner says")),
    Column(gettext_lazy("Suggestion"), _suggestion),
    Column(gettext_lazy("Oldest"), lambda row: cells.aged(row[1], ago(row[0].oldest_at)), "nowrap"),
)
BY_PARTNER = (
    Column(gettext_lazy("Transactions"), lambda row: _count(row["group"], row["href"], row["group"].partner), "num"),
    Column(gettext_lazy("Partner"), _partner),
    Column(gettext_lazy("Why they are in doubt"), lambda row: _why(row["group"]), narrow=gettext_lazy("Why")),
    Column(gettext_lazy("How to find out"), lambda row: row["group"].reason.advice, narrow=gettext_lazy("How")),
    Column(gettext_lazy("Oldest"), lambda row: cells.aged(row["level"], ago(row["group"].oldest_at)), "nowrap"),
)
TRANSACTIONS = (
    Column(gettext_lazy("Transaction"), _transaction),
    Column(gettext_lazy("About"), lambda row: ", ".join(map(str, row["names"])) or "—"),
    Column(
        gettext_lazy("Why it is in doubt"),
        lambda row: cells.joined(
            cells.span("strong", row["diagnosis"].headline),
            format_html('<div class="text-soft">{}</div>', row["diagnosis"].why),
        ),
        narrow=gettext_lazy("Why"),
    ),
    Column(gettext_lazy("What to do"), lambda row: row["diagnosis"].action),
    Column(gettext_lazy("Settle"), _settle),
    Column(
        gettext_lazy("Since"), lambda row: cells.aged(row["level"], ago(row["transaction"].doubtful_since)), "nowrap"
    ),
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
    asked = (
        format_html(_("monitor is asked {when}"), when=until(row.diagnosis.next_at)) if row.diagnosis.next_at else ""
    )
    return cells.joined(cells.span("strong", row.diagnosis.cause.label), cells.below(asked))


def _name(row: dict[str, Any]) -> SafeString:
    trigger = row["row"].trigger
    href = cells.to("trigger", trigger.public_id)
    return cells.joined(
        cells.link(href, trigger.name, "strong", id=f"trigger-{trigger.public_id}"),
        format_html('<div class="text-faint wrap">{}</div>', row["subscription"]),
    )


TRIGGERS = (
    Column(gettext_lazy("State"), lambda row: _since(row["row"]), "nowrap", order="state"),
    Column(gettext_lazy("Trigger"), _name, order="name"),
    Column(gettext_lazy("Problem"), lambda row: _matter(row["row"]), narrow=gettext_lazy("Problem")),
    Column(gettext_lazy("Waiting"), lambda row: cells.number(row["row"].backlog.waiting), "num"),
    Column(gettext_lazy("In progress"), lambda row: cells.number(row["row"].backlog.running), "num"),
    Column(gettext_lazy("In doubt"), lambda row: cells.bad(row["row"].backlog.in_doubt), "num"),
    Column(gettext_lazy("Failed"), lambda row: cells.bad(row["row"].backlog.failed), "num"),
    Column(
        gettext_lazy("Last success"),
        lambda row: ago(row["row"].trigger.last_success_at, _("never")),
        "nowrap",
        order="last_success",
    ),
)
