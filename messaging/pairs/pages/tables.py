"""Tables of a pair's page, and of partners' servers that could not be reached."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.template.defaultfilters import floatformat
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from messaging import causes
from messaging.console import cells
from messaging.console.resource import Column, table
from messaging.models import Incident, Message, ProbeReport, Transmission
from messaging.pairs.selectors import pairs
from messaging.pairs.selectors.circuits import CircuitRow
from messaging.pairs.selectors.screens import PairScreen
from messaging.templatetags.hub import ago, icon, middle, octets, probe_word, state, took, until
from rmhub.language import gettext_lazy, number, pgettext_lazy

# --- what waits, and what is on the way ---


def _action(message: Message) -> SafeString:
    said = '<span class="strong">{}</span> <span class="text-faint">{}</span>'
    return format_html(said, message.action, middle(message.service, 30))


def queue(rows: Iterable[Message], *, whole: bool = False) -> dict[str, Any]:
    """Return the table of what waits. `whole`: on a tab of its own, where keys go through it."""
    columns = (
        Column(_("Submitted"), lambda message: ago(message.created_at), "nowrap", zoned=True),
        Column(_("Service, action"), _action, narrow=_("Action")),
        Column("MessageId", lambda one: cells.message(one, 40, data_open=True) if whole else cells.message(one, 28)),
        Column(_("Size"), lambda message: octets(message.size), "num nowrap"),
    )
    said = _("Messages that wait on this pair, next one first")
    if not whole:
        return table(said, columns, rows)
    return table(said, columns, rows, about=lambda one: {**cells.row_id(one), "data-testid": "queued-row"}, keys=True)


def _flying(message: Message) -> SafeString:
    why = cells.below(cells.cause(message.cause))
    return format_html('{} <span class="text-soft">{}</span>{}', cells.message(message, 20), message.action, why)


def _of_transaction(message: Message) -> SafeString:
    href, said = cells.to("message", message.public_id), '{} <span class="text-faint mono">{}</span>{}'
    called = cells.link(href, message.action, "strong", title=message.message_id)
    return format_html(said, called, middle(message.conversation_id, 24), cells.below(cells.cause(message.cause)))


def _next_repeat(message: Message) -> str:
    at = pairs.repeat_at(message)
    return until(at) if at is not None else "—"


_STATE = Column(gettext_lazy("State"), lambda message: state("message", message.state), "nowrap")
_ATTEMPTS = Column(gettext_lazy("Attempts"), lambda message: message.attempts, "num")
_SENT = Column(gettext_lazy("First sent"), lambda message: ago(message.first_sent_at), "nowrap", zoned=True)
_OF_STREAM = (
    Column(gettext_lazy("Number"), lambda message: message.sequence_number, "num mono"),
    Column(
        gettext_lazy("Previous"),
        lambda message: "—" if message.previous_number is None else message.previous_number,
        "num mono",
    ),
    Column(gettext_lazy("Message"), _flying),
    *(_STATE, _ATTEMPTS, _SENT),
    Column(
        gettext_lazy("Expires"),
        lambda message: until(message.expires_at) if message.expires_at else _("never"),
        "nowrap",
    ),
)
_OF_TRANSACTIONS = (
    Column(gettext_lazy("Message"), _of_transaction),
    *(_STATE, _ATTEMPTS),
    Column(gettext_lazy("First sent"), lambda message: ago(message.first_sent_at, _("not yet")), "nowrap", zoned=True),
    Column(
        gettext_lazy("Goes out again"),
        lambda message: "—" if message.state == "sending" else until(message.due_at),
        "nowrap",
    ),
)
_OF_PAIR = (
    Column(gettext_lazy("Message"), _flying),
    *(_STATE, _ATTEMPTS, _SENT),
    Column(gettext_lazy("Next repeat"), _next_repeat, "nowrap"),
    Column(gettext_lazy("Repeated until"), lambda message: until(message.expires_at), "nowrap"),
)


def flying(screen: PairScreen) -> dict[str, Any]:
    """Return the table of what has no answer yet."""
    said = _("Messages of this pair that have no answer yet, the first submitted one first")
    columns: Sequence[Column] = _OF_PAIR
    if screen.streams.applies:
        said = _("Messages of the stream that are not acknowledged, in the order of their numbers")
        columns = _OF_STREAM
    elif screen.transactions:
        said = _("Messages of transactions that are not taken or not answered, the next one to go out first")
        columns = _OF_TRANSACTIONS
    return table(said, columns, screen.flying, about=lambda message: {"data-testid": "flying"})


# --- attempts, streams, incidents ---


def _message(attempt: Transmission) -> SafeString:
    one = attempt.message
    assert one is not None
    called = f"#{one.sequence_number}" if one.sequence_number else middle(one.message_id, 16)
    href = cells.to("message", one.public_id)
    link = cells.link(href, called, "mono", title=one.message_id)
    return format_html('{} <span class="text-soft">{}</span>', link, one.action)


def _outcome(attempt: Transmission) -> SafeString:
    key = attempt.public_id
    href = cells.to("transmission", key)
    return cells.link(href, state("outcome", attempt.outcome), "plain", data_open=True, id=f"open-{key}")


def _answer(attempt: Transmission) -> SafeString:
    status = format_html('<span class="mono">HTTP {}</span> ', attempt.http_status) if attempt.http_status else ""
    return cells.joined(status, cells.cause(attempt.cause)) or cells.NONE


_ATTEMPT = (
    Column(gettext_lazy("Started"), lambda attempt: ago(attempt.started_at), "nowrap", zoned=True),
    Column(gettext_lazy("Message"), _message, "nowrap"),
    Column(gettext_lazy("Attempt"), lambda attempt: attempt.number, "num"),
    Column(gettext_lazy("Outcome"), _outcome, "nowrap"),
    Column(gettext_lazy("What came back"), _answer, narrow=gettext_lazy("Answer")),
    Column(gettext_lazy("Took"), lambda attempt: cells.duration(attempt.started_at, attempt.finished_at), "num nowrap"),
)


def attempts(rows: Iterable[Transmission]) -> dict[str, Any]:
    """Return the table of transmissions."""
    return table(
        _("The newest transmissions of this pair"),
        _ATTEMPT,
        rows,
        about=lambda attempt: {**cells.row_id(attempt), "data-state": attempt.outcome},
        keys=True,
    )


def _sender(stream: Any) -> SafeString:
    return cells.joined(stream.source, cells.below(floatformat(stream.tx_sequence_id, "0")))


STREAM = (
    Column(gettext_lazy("Sender, TxSequenceID"), _sender, "mono wrap", narrow=gettext_lazy("Sender")),
    Column(gettext_lazy("Accepted up to"), lambda stream: stream.number, "num mono", narrow=gettext_lazy("Accepted")),
    Column(
        gettext_lazy("Refused since"),
        lambda stream: cells.number(stream.reject_count),
        "num",
        narrow=gettext_lazy("Refused"),
    ),
    Column(
        gettext_lazy("Last message"), lambda stream: ago(stream.last_access_at, _("none yet")), "nowrap", zoned=True
    ),
    Column(
        gettext_lazy("Last order acknowledgement"),
        lambda stream: ago(stream.last_order_ack_at, _("none yet")),
        "nowrap",
        narrow=gettext_lazy("Acknowledgement"),
    ),
    Column(
        pgettext_lazy("attempt", "Next"),
        lambda one: until(one.order_ack_due_at) if one.order_ack_due_at else "—",
        "nowrap",
    ),
)


def _cause(incident: Incident) -> SafeString:
    times = (
        format_html(' <span class="text-faint">×{}</span>', incident.occurrences) if incident.occurrences > 1 else ""
    )
    return cells.joined(cells.cause(incident.cause), times)


def _end(incident: Incident) -> object:
    if not incident.resolved_at:
        return "—"
    said = _('{resolution} <span class="text-faint">by {name}, {when}</span>')
    when = ago(incident.resolved_at)
    return format_html(said, resolution=incident.resolution, name=incident.resolved_by, when=when)


_INCIDENT = (
    Column(
        gettext_lazy("Incident"),
        lambda incident: cells.link(cells.to("incident", incident), incident, "strong", data_open=True),
        "nowrap",
    ),
    Column(gettext_lazy("State"), lambda incident: state("incident", incident.state), "nowrap"),
    Column(gettext_lazy("Cause"), _cause),
    Column(gettext_lazy("Opened"), lambda incident: ago(incident.opened_at), "nowrap", zoned=True),
    Column(gettext_lazy("Owner"), lambda incident: incident.owner or "—"),
    Column(gettext_lazy("How it ended"), _end),
)


def incidents(rows: Iterable[Incident]) -> dict[str, Any]:
    """Return the table of a pair's incidents."""
    return table(_("Incidents of this pair"), _INCIDENT, rows, about=cells.state_row, keys=True)


# --- the partner's endpoint ---


def _finding(step: dict[str, Any]) -> SafeString:
    facts = step.get("facts") or {}
    known = causes.lookup(step["cause"]) if step["verdict"] == "failed" and step.get("cause") else None
    certificate = (
        format_html(
            _('Valid {begin} to {end} · issuer {issuer} · SHA-256 <span class="mono">{digest}</span>'),
            begin=facts["not_before"][:10],
            end=facts["not_after"][:10],
            issuer=middle(facts.get("issuer", ""), 60),
            digest=middle(facts.get("sha256", ""), 20),
        )
        if facts.get("not_after")
        else ""
    )
    return cells.joined(
        step["detail"], cells.below(certificate), cells.below(known.action if known else "", "text-soft")
    )


_STEP = (
    Column(gettext_lazy("Step"), lambda step: probe_word(step["name"]), "strong nowrap"),
    Column(gettext_lazy("Verdict"), lambda step: state("verdict", step["verdict"]), "nowrap"),
    Column(gettext_lazy("What it says"), _finding),
    Column(gettext_lazy("Took"), lambda step: took(step.get("seconds")), "num nowrap"),
)


def probe(report: ProbeReport) -> dict[str, Any]:
    """Return the table of the steps of a look at an endpoint."""
    return table(
        _("What the ping of the partner's endpoint found, step by step"),
        _STEP,
        report.steps,
        about=lambda step: {"data-testid": f"probe-{step['name']}", "data-state": step["verdict"]},
    )


_NAMED = 5  # partners of a server that are named; of many more it is said that there are


def _server(row: CircuitRow) -> SafeString:
    circuit, users = row.circuit, ", ".join(row.partners[:_NAMED])
    if others := row.partners[_NAMED:]:
        more = ngettext("and {count} more", "and {count} more", len(others)).format(count=number(len(others)))
        folded = "{} <details><summary>{}</summary>{}</details>"
        users = format_html(folded, users, more, ", ".join(others))
    if not users and circuit.pair:
        said = _("tried for {pair}, under terms that are no longer in force")
        users = said.format(pair=circuit.pair.code)
    said = '<span class="strong mono wrap">{}</span><div class="text-soft">{}</div>'
    return format_html(said, circuit.address, users or _("no agreement in force uses it"))


def _trouble(row: CircuitRow) -> SafeString:
    detail = cells.below(row.circuit.detail, "text-soft wrap")
    return cells.joined(cells.span("strong", cells.cause(row.circuit.cause)), detail)


def _try(row: CircuitRow) -> SafeString:
    key, what = row.circuit.public_id, _("Try now…") if row.is_open else _("Forget…")
    said = cells.joined(icon("refresh" if row.is_open else "x"), what, cells.hidden(f" {row.circuit.address}"))
    marks = {"id": f"try-{key}", "data_testid": "circuit-try", "data_dialog": True}
    return cells.link(cells.to("circuit-try", key), said, "btn btn-sm", **marks)


def circuits(rows: Iterable[CircuitRow], *, operates: bool) -> dict[str, Any]:
    """Return the table of servers. `operates`: whether the person may let an attempt through."""
    columns = (
        Column(_("Server"), _server),
        Column(_("State"), lambda row: state("circuit", row.circuit.state), "nowrap"),
        Column(_("What"), _trouble),
        Column(
            _("Since"),
            lambda row: ago(row.circuit.silent_since or row.circuit.updated_at),
            "nowrap",
            zoned=True,
        ),
        Column(_("In a row"), lambda row: cells.number(row.circuit.failures), "num"),
        Column(
            _("Next attempt"),
            lambda row: until(row.circuit.retry_at) if row.is_open else cells.span("text-soft", _("as usual")),
            "nowrap",
        ),
        Column(_("Actions"), lambda row: _try(row) if operates else "", "nowrap", quiet=True),
    )
    return table(
        _("Servers that could not be reached, those with an open circuit first"),
        columns,
        rows,
        about=lambda row: {"data-state": row.circuit.state, "data-testid": "circuit"},
    )
