"""What a notification says: a subject of one line, a text for people, and the same as JSON."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.conf import settings

from messaging import causes
from messaging.choices import Severity
from messaging.journal import events
from messaging.models import Event, Incident, Notification, NotificationRule, Pair

_WORDS: dict[str, str] = {
    "incident.opened": "opened",
    "incident.acknowledged": "acknowledged",
    "incident.assigned": "assigned",
    "incident.snoozed": "snoozed",
    "incident.resolved": "resolved",
    "pair.suspended": "Pair suspended",
    "pair.resumed": "Pair resumed",
    "pair.paused": "Pair paused",
    "pair.released": "Pair released",
    "pair.silent": "Pair silent",
    "pair.heard": "Pair heard again",
    "pair.retry_budget": "Retry budget being used up",
    "pair.needs_resync": "Pair needs resync",
    "pair.resynced": "Pair in sync again",
    "trigger.suspended": "Trigger suspended",
    "trigger.resumed": "Trigger resumed",
    "circuit.opened": "Sending to a partner's server stopped",
    "circuit.closed": "Partner's server answers again",
    "message.failed": "Message failed",
    "message.in_doubt": "Message in doubt",
    "message.bounced": "Mail bounced",
    "delivery.failed": "Delivery failed",
    "delivery.in_doubt": "Delivery in doubt",
    "agreement.activated": "Agreement activated",
    "agreement.disabled": "Agreement disabled",
    "certificate.expiring": "Certificate expires",
    "webhook_endpoint.disabled": "Webhook endpoint switched off",
    "bulk_operation.finished": "Bulk job finished",
}
# What of an event's data a person wants to read, in this order.
_FACTS: tuple[tuple[str, str], ...] = (
    ("name", "Name"),
    ("trigger", "Trigger"),
    ("agreement", "Agreement"),
    ("message_id", "Message"),
    ("owner", "Owner"),
    ("until", "Until"),
    ("by", "By"),
    ("queued", "Documents that wait"),
    ("percent", "Per cent of the retries used"),
    ("title", "What expires"),
    ("ends_at", "Ends"),
    ("address", "Server"),
    ("actor", "By"),
    ("action", "Action"),
    ("total", "In all"),
    ("done", "Done"),
    ("refused", "Refused"),
    ("reason", "Reason"),
    ("detail", "Details"),
)


@dataclass(frozen=True, slots=True)
class Happening:
    """An event with what it is about, looked up. `cause`: the event's own, else its incident's; "" for none."""

    event: Event
    pair: Pair | None
    incident: Incident | None
    cause: str

    @property
    def severity(self) -> str:
        """How bad its cause is; what has none is for information."""
        return causes.lookup(self.cause).severity if self.cause else Severity.INFO.value

    @property
    def key(self) -> str:
        """What is the same trouble: type, what it is about, cause."""
        data = self.event.data
        about = data.get("trigger") or data.get("job") or data.get("agreement") or data.get("endpoint")
        if self.event.pair_id is not None:
            about = self.event.pair_id.hex
        # A next step of the same (90 % after 70 %, 7 days after 30) is something new.
        names = ("percent", "within_days", "title", *(("agreement",) if "incident" in data else ()))
        step = "|".join(str(data[name]) for name in names if name in data)
        return f"{self.event.type}|{about or data.get('address') or 'hub'}|{self.cause}|{step}"[:200]


def of(happening: Happening, rule: NotificationRule, *, folded_before: int) -> dict[str, Any]:
    """What is told: subject, body and data. `folded_before`: how often the same happened since it was last told."""
    event, incident, pair = happening.event, happening.incident, happening.pair
    known = causes.lookup(happening.cause) if happening.cause else None
    what = _WORDS.get(event.type, event.type)
    named = (event.data.get(name) for name in ("name", "trigger", "agreement"))
    where = pair.code if pair is not None else str(next(filter(None, named), ""))
    if incident is not None and event.type.startswith("incident."):
        title = f"{incident} {what}: {causes.lookup(incident.cause).label}"
        where = where or (incident.trigger.name if incident.trigger is not None else "")
    else:
        title = f"{what}: {known.label}" if known is not None else what
    subject = line(f"[{settings.RMHUB_ENVIRONMENT}] {title}{f', {where}' if where else ''}", 200)
    told = events.body(event)
    data = told["data"]
    assert isinstance(data, dict)
    # The event as webhooks show it, with what the notification adds.
    link = settings.RMHUB_PUBLIC_URL + _path(happening)
    more = _told(rule, subject, happening.severity, link) | {"folded": folded_before}
    told = {**told, "data": {**data, "notification": more}}
    return {"subject": subject, "body": _body(happening, rule, title, folded_before), "data": told}


def of_escalation(rule: NotificationRule, first: Notification) -> dict[str, Any]:
    """What is told when nobody has taken an incident that `first` reported. `rule`: the one that is escalated to."""
    incident = first.incident
    assert incident is not None
    minutes = first.rule.escalate_after // 60
    waited = f"{minutes} min" if minutes else f"{first.rule.escalate_after} s"
    known = causes.lookup(incident.cause)
    where = incident.pair.code if incident.pair is not None else ""
    title = f"{incident} not acknowledged for {waited}: {known.label}{f', {where}' if where else ''}"
    subject = line(f"[{settings.RMHUB_ENVIRONMENT}] {title}", 200)
    before = first.data["data"]["notification"]
    more = _told(rule, subject, known.severity, before["link"]) | {"escalated": True}
    data = {**first.data, "data": {**first.data["data"], "notification": more}}
    reported = f"The rule {first.rule.name} reported it, and nobody has acknowledged it."
    body = f"{line(title, 300)}\n\n{reported}\n\n{first.body}"
    return {"subject": subject, "body": body, "data": data}


def of_test(rule: NotificationRule, by: str, now: datetime) -> dict[str, Any]:
    """What a test says."""
    subject = line(f"[{settings.RMHUB_ENVIRONMENT}] Test of the notification rule {rule.name}", 200)
    body = (
        f"{by} tests the notification rule {rule.name} of {settings.RMHUB_NAME}.\n"
        f"It reports: {', '.join(rule.events)}.\n\nNothing has happened, and nothing is to be done.\n"
    )
    link = f"{settings.RMHUB_PUBLIC_URL}/notifications/{rule.public_id}/"
    data = {"by": by, "notification": _told(rule, subject, Severity.INFO, link)}
    told = {"type": "webhook_endpoint.test", "data": data, "timestamp": now.isoformat()}
    return {"subject": subject, "body": body, "data": told}


def line(text: str, most: int) -> str:
    """One printable line: what partners' servers say must not write headers or move a cursor."""
    clean = "".join(" " if unicodedata.category(character)[0] == "C" else character for character in text)
    flat = " ".join(clean.split())
    return flat if len(flat) <= most else f"{flat[: most - 1]}…"


def _body(happening: Happening, rule: NotificationRule, title: str, folded_before: int) -> str:
    event, incident, pair = happening.event, happening.incident, happening.pair
    lines = [line(title, 300), ""]
    if happening.cause:
        known = causes.lookup(happening.cause)
        lines += [known.sentence, f"What to do: {known.action}", ""]
    facts: list[tuple[str, object]] = [("When", f"{event.at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC")]
    if pair is not None:
        facts += [("Pair", pair.code), ("Partner", pair.partner.name)]
    if incident is not None:
        facts.append(("Incident", f"{incident}, {incident.get_state_display()}"))
    if happening.cause:
        facts.append(("Cause", happening.cause))
    facts += [(label, event.data[name]) for name, label in _FACTS if event.data.get(name) not in (None, "")]
    lines += [f"{label}: {line(str(value), 500)}" for label, value in facts]
    if folded_before:
        lines += ["", f"Since the last notification it happened {folded_before:,} times more."]
    lines += ["", settings.RMHUB_PUBLIC_URL + _path(happening)]
    lines += ["", f"Sent by the rule {rule.name} of {settings.RMHUB_NAME} ({settings.RMHUB_ENVIRONMENT})."]
    return "\n".join(lines) + "\n"


def _path(happening: Happening) -> str:
    """The page to look at."""
    if happening.incident is not None:
        return f"/incidents/{happening.incident}/"
    if happening.pair is not None:
        return f"/pairs/{happening.pair.code.replace('>', '%3E')}/"
    for name, page in (("job", "jobs"), ("agreement_id", "agreements")):
        if found := happening.event.data.get(name):
            return f"/{page}/{found}/"
    return "/"


def _told(rule: NotificationRule, subject: str, severity: str, link: str) -> dict[str, Any]:
    named = {"rule": rule.public_id, "name": rule.name, "subject": subject, "folded": 0}
    return {**named, "severity": str(severity), "link": link}
