"""Texts that people send or keep of an incident: a note to the partner, and the post-mortem as Markdown."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from django.conf import settings

from messaging import causes
from messaging.choices import Direction
from messaging.incidents.selectors.timeline import IncidentMoment, Past, moments, recovery, similar
from messaging.journal.wording import span
from messaging.models import Incident
from rmhub import clock

# Causes that the partner's own side shows: what they may look at, said to them.
_FOR_PARTNER: dict[str, str] = {
    "dns_error": "The host name of your messaging service cannot be resolved.",
    "connect_refused": "Your server refuses our connections: nothing seems to listen at that address and port.",
    "connect_timeout": "Your server does not answer our connection attempts.",
    "tls_handshake": "The encrypted connection to your server cannot be set up.",
    "cert_expired": "Your server shows a certificate that is past its date.",
    "cert_untrusted": "Your server shows a certificate that we cannot trust.",
    "read_timeout": "Your server takes our requests and gives no answer in time.",
    "connection_reset": "Your server breaks the connection off before an answer comes.",
    "server_unreachable": "Your server cannot be reached.",
    "http_401_403": "Your server does not accept our credential (HTTP 401 or 403).",
    "http_404": "Your server does not know the address that we have of you (HTTP 404).",
    "http_413": "Your server does not take messages of this size (HTTP 413).",
    "http_429": "Your server asks us to slow down (HTTP 429).",
    "http_5xx": "Your server answers with an error of its own (HTTP 5xx).",
    "ack_timeout": "Your server takes our messages, and no acknowledgement comes back.",
    "out_of_sequence": "Your messages come with sequence numbers that we do not expect.",
    "live_partner_silent": "Nothing has come from you for longer than is usual.",
    "silent": "Nothing has come for longer than was agreed.",
}


@dataclass(frozen=True, slots=True)
class PartnerNote:
    """A letter to the partner, to be read and changed before it is sent. `contact`: whom we know there."""

    subject: str
    text: str
    contact: str


def partner_note(incident: Incident) -> PartnerNote | None:
    """None for an incident that no partner has part in."""
    pair = incident.pair
    if pair is None:
        return None
    known = causes.lookup(incident.cause)
    seen = _FOR_PARTNER.get(incident.cause, f"What our side notes: {known.label.lower()}.")
    found = recovery(incident)
    over = found.since if found is not None else incident.resolved_at
    inbound = pair.direction == Direction.IN
    facts = [
        ("From", pair.sender_uri),
        ("To", pair.receiver_uri),
        ("Since", f"{incident.opened_at:%Y-%m-%d %H:%M} UTC"),
        ("Last seen", f"{incident.last_seen_at:%Y-%m-%d %H:%M} UTC"),
        ("Times", f"{incident.occurrences:,}"),
    ]
    if incident.message is not None:
        facts.append(("First message concerned", incident.message.message_id))
    if over is not None:
        facts.append(("Seems to be over since", f"{over:%Y-%m-%d %H:%M} UTC"))
    if not inbound and pair.queued:
        facts.append(("Documents that wait", f"{pair.queued:,}"))
    lines = [
        "Hello,",
        "",
        f"there {'is' if over is None else 'was'} a problem with the messages "
        f"{'from you to us' if inbound else 'from us to you'}. {seen if over is None else f'What we saw: “{seen}”'}",
        "",
        *(f"  {name + ':':<25}{value}" for name, value in facts),
        "",
        "Please have a look at your side and tell us what you find"
        + ("." if inbound else ", and when we may send again. Nothing is lost: what waits goes out in order."),
        "",
        f"Our reference: {incident}. Please keep it in your answer.",
        "",
        str(pair.own_party.name),
    ]
    way = "from" if inbound else "to"
    subject = f"{incident}: messages {way} {pair.partner.name} since {incident.opened_at:%Y-%m-%d %H:%M} UTC"
    return PartnerNote(subject, "\n".join(lines), pair.partner.contact)


def post_mortem(incident: Incident) -> str:
    """All that is known of an incident, as Markdown: facts, timeline, what solved it, what is to be filled in."""
    known = causes.lookup(incident.cause)
    lines = [
        f"# {incident}: {known.label}",
        "",
        "| | |",
        "| --- | --- |",
        *(f"| {name} | {value} |" for name, value in _facts(incident)),
        "",
        "## What happened",
        "",
        known.sentence,
    ]
    if incident.detail:
        lines += ["", f"> {_line(incident.detail)}"]
    lines += ["", "## Resolution", "", _line(incident.resolution) or "Not resolved yet.", "", "## Timeline", ""]
    lines += ["| time (UTC) | who | what | detail |", "| --- | --- | --- | --- |"]
    lines += [_row(moment) for moment in moments(incident)]
    past = similar(incident)
    if past:
        lines += ["", "## Similar incidents before", "", *(_past(one) for one in past)]
    lines += ["", "## To be filled in", "", "- Impact:", "- Root cause:", "- What went well:", "- What is changed now:"]
    return "\n".join(lines) + "\n"


def _facts(incident: Incident) -> list[tuple[str, str]]:
    pair, trigger = incident.pair, incident.trigger
    end = incident.resolved_at or clock.now()
    where = f"pair {pair.code} ({pair.partner.name})" if pair is not None else ""
    where = where or (f"trigger {trigger.name}" if trigger is not None else "the hub")
    facts = [
        ("State", str(incident.get_state_display())),
        ("Where", _cell(where)),
        ("Cause", _code(incident.cause)),
        ("Opened", _instant(incident.opened_at)),
        ("Last seen", f"{_instant(incident.last_seen_at)}, {incident.occurrences:,} times"),
    ]
    if incident.acknowledged_at is not None:
        taken = span((incident.acknowledged_at - incident.opened_at).total_seconds())
        facts.append(("Acknowledged", f"{_instant(incident.acknowledged_at)}, after {taken}"))
    if incident.owner:
        facts.append(("Owner", _cell(incident.owner)))
    if incident.resolved_at is not None:
        facts.append(("Resolved", f"{_instant(incident.resolved_at)} by {_cell(incident.resolved_by)}"))
    facts.append(("Lasted", span((end - incident.opened_at).total_seconds())))
    if incident.message is not None:
        facts.append(("Message", _code(incident.message.message_id)))
    facts.append(("Link", f"{settings.RMHUB_PUBLIC_URL}/incidents/{incident}/"))
    return facts


def _row(moment: IncidentMoment) -> str:
    at = f"{moment.at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
    return f"| {at} | {_cell(moment.by or 'the hub')} | {_cell(moment.title)} | {_cell(moment.detail)} |"


def _past(past: Past) -> str:
    one = past.incident
    near = f", {past.nearness}" if past.nearness else ""
    return f"- {one} ({one.opened_at:%Y-%m-%d}{near}): {_line(one.resolution)} ({one.resolved_by})"


def _instant(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _line(text: str) -> str:
    """One line, in which nothing is markup: texts come from people, and from partners' servers."""
    flat = " ".join(text.split())
    return "".join(f"\\{sign}" if sign in "\\`*_[]<>#" else sign for sign in flat)


def _cell(text: str) -> str:
    return _line(text).replace("|", "\\|")


def _code(text: str) -> str:
    return "`" + " ".join(text.split()).replace("`", "'").replace("|", "\\|") + "`"
