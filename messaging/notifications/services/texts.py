"""What a notification says: a subject of one line, a text for people, and the same as JSON."""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ParamSpec, TypeVar

from django.conf import settings
from django.utils import translation
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from messaging import causes
from messaging.choices import Severity
from messaging.journal import events
from messaging.models import Event, Incident, Notification, NotificationRule, Pair
from rmhub.language import gettext_lazy, number

P = ParamSpec("P")
R = TypeVar("R")

_INCIDENTS: dict[str, str] = {
    "incident.opened": gettext_lazy("{incident} opened: {cause}"),
    "incident.acknowledged": gettext_lazy("{incident} acknowledged: {cause}"),
    "incident.assigned": gettext_lazy("{incident} assigned: {cause}"),
    "incident.snoozed": gettext_lazy("{incident} snoozed: {cause}"),
    "incident.resolved": gettext_lazy("{incident} resolved: {cause}"),
}
_WORDS: dict[str, str] = {
    "incident.opened": gettext_lazy("Incident opened"),
    "incident.acknowledged": gettext_lazy("Incident acknowledged"),
    "incident.assigned": gettext_lazy("Incident assigned"),
    "incident.snoozed": gettext_lazy("Incident snoozed"),
    "incident.resolved": gettext_lazy("Incident resolved"),
    "pair.suspended": gettext_lazy("Pair suspended"),
    "pair.resumed": gettext_lazy("Pair resumed"),
    "pair.paused": gettext_lazy("Pair paused"),
    "pair.released": gettext_lazy("Pair released"),
    "pair.silent": gettext_lazy("Pair silent"),
    "pair.heard": gettext_lazy("Pair receives again"),
    "pair.retry_budget": gettext_lazy("Retry budget being used up"),
    "pair.needs_resync": gettext_lazy("Pair needs resync"),
    "pair.resynced": gettext_lazy("Pair in sync again"),
    "trigger.suspended": gettext_lazy("Trigger suspended"),
    "trigger.resumed": gettext_lazy("Trigger resumed"),
    "circuit.opened": gettext_lazy("Sending to a partner's server stopped"),
    "circuit.closed": gettext_lazy("Partner's server answers again"),
    "message.failed": gettext_lazy("Message failed"),
    "message.in_doubt": gettext_lazy("Message in doubt"),
    "message.bounced": gettext_lazy("Mail bounced"),
    "delivery.failed": gettext_lazy("Delivery failed"),
    "delivery.in_doubt": gettext_lazy("Delivery in doubt"),
    "agreement.activated": gettext_lazy("Agreement activated"),
    "agreement.disabled": gettext_lazy("Agreement disabled"),
    "certificate.expiring": gettext_lazy("Certificate expires"),
    "webhook_endpoint.disabled": gettext_lazy("Webhook endpoint switched off"),
    "bulk_operation.finished": gettext_lazy("Bulk job finished"),
}
# What of an event's data a person wants to read, in this order.
_FACTS: tuple[tuple[str, str], ...] = (
    ("name", gettext_lazy("Name")),
    ("trigger", gettext_lazy("Trigger")),
    ("agreement", gettext_lazy("Agreement")),
    ("message_id", gettext_lazy("Message")),
    ("owner", gettext_lazy("Owner")),
    ("until", gettext_lazy("Until")),
    ("by", gettext_lazy("By")),
    ("queued", gettext_lazy("Documents that wait")),
    ("percent", gettext_lazy("Per cent of the retries used")),
    ("title", gettext_lazy("What expires")),
    ("ends_at", gettext_lazy("Ends")),
    ("address", gettext_lazy("Server")),
    ("actor", gettext_lazy("By")),
    ("action", gettext_lazy("Action")),
    ("total", gettext_lazy("In all")),
    ("done", gettext_lazy("Done")),
    ("refused", gettext_lazy("Refused")),
    ("reason", gettext_lazy("Reason")),
    ("detail", gettext_lazy("Details")),
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


def event_name(kind: str) -> str:
    """Return what a type of event says, as people read it; the type itself where nobody is notified of it."""
    return str(_WORDS.get(kind, kind))


def _spoken(make: Callable[P, R]) -> Callable[P, R]:
    """In the language of the hub's mails, whoever makes it."""

    @functools.wraps(make)
    def made(*args: P.args, **named: P.kwargs) -> R:
        with translation.override(settings.RMHUB_LANGUAGE):
            return make(*args, **named)

    return made


@_spoken
def of(happening: Happening, rule: NotificationRule, *, folded_before: int) -> dict[str, Any]:
    """What is told: subject, body and data. `folded_before`: how often the same happened since it was last told."""
    event, incident, pair = happening.event, happening.incident, happening.pair
    known = causes.lookup(happening.cause) if happening.cause else None
    named = (event.data.get(name) for name in ("name", "trigger", "agreement"))
    where = pair.code if pair is not None else str(next(filter(None, named), ""))
    if incident is not None and event.type in _INCIDENTS:
        title = _INCIDENTS[event.type].format(incident=incident, cause=causes.lookup(incident.cause).label)
        where = where or (incident.trigger.name if incident.trigger is not None else "")
    else:
        title = event_name(event.type)
        title = _("{what}: {cause}").format(what=title, cause=known.label) if known is not None else title
    subject = line(f"[{settings.RMHUB_ENVIRONMENT}] {title}{f', {where}' if where else ''}", 200)
    told = events.body(event)
    data = told["data"]
    assert isinstance(data, dict)
    # The event as webhooks show it, with what the notification adds.
    link = settings.RMHUB_PUBLIC_URL + _path(happening)
    more = _told(rule, subject, happening.severity, link) | {"folded": folded_before}
    told = {**told, "data": {**data, "notification": more}}
    return {"subject": subject, "body": _body(happening, rule, title, folded_before), "data": told}


@_spoken
def of_escalation(rule: NotificationRule, first: Notification) -> dict[str, Any]:
    """What is told when nobody has taken an incident that `first` reported. `rule`: the one that is escalated to."""
    incident = first.incident
    assert incident is not None
    minutes = first.rule.escalate_after // 60
    waited = f"{minutes} min" if minutes else f"{first.rule.escalate_after} s"
    known = causes.lookup(incident.cause)
    where = incident.pair.code if incident.pair is not None else ""
    title = _("{incident} not acknowledged for {time}: {cause}").format(
        incident=incident, time=waited, cause=known.label
    )
    title = f"{title}, {where}" if where else title
    subject = line(f"[{settings.RMHUB_ENVIRONMENT}] {title}", 200)
    before = first.data["data"]["notification"]
    more = _told(rule, subject, known.severity, before["link"]) | {"escalated": True}
    data = {**first.data, "data": {**first.data["data"], "notification": more}}
    reported = _("The rule {rule} reported it, and nobody has acknowledged it.").format(rule=first.rule.name)
    body = f"{line(title, 300)}\n\n{reported}\n\n{first.body}"
    return {"subject": subject, "body": body, "data": data}


@_spoken
def of_test(rule: NotificationRule, by: str, now: datetime) -> dict[str, Any]:
    """What a test says."""
    title = _("Test of the notification rule {rule}").format(rule=rule.name)
    subject = line(f"[{settings.RMHUB_ENVIRONMENT}] {title}", 200)
    lines = (
        _("{name} tests the notification rule {rule} of {hub}.").format(
            name=by, rule=rule.name, hub=settings.RMHUB_NAME
        ),
        _("It reports: {events}.").format(events=", ".join(rule.events)),
        "",
        _("Nothing has happened, and nothing is to be done."),
        "",
    )
    body = "\n".join(lines)
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
        lines += [str(known.sentence), _("What to do: {action}").format(action=known.action), ""]
    facts: list[tuple[str, object]] = [(_("When"), f"{event.at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC")]
    if pair is not None:
        facts += [(_("Pair"), pair.code), (_("Partner"), pair.partner.name)]
    if incident is not None:
        facts.append((_("Incident"), f"{incident}, {incident.get_state_display()}"))
    if happening.cause:
        facts.append((_("Cause"), happening.cause))
    facts += [(label, event.data[name]) for name, label in _FACTS if event.data.get(name) not in (None, "")]
    lines += [_("{label}: {value}").format(label=label, value=line(str(value), 500)) for label, value in facts]
    if folded_before:
        said = ngettext(
            "Since the last notification it happened {count} time more.",
            "Since the last notification it happened {count} times more.",
            folded_before,
        )
        lines += ["", said.format(count=number(folded_before))]
    lines += ["", settings.RMHUB_PUBLIC_URL + _path(happening)]
    sent = _("Sent by the rule {rule} of {hub} ({environment}).")
    lines += ["", sent.format(rule=rule.name, hub=settings.RMHUB_NAME, environment=settings.RMHUB_ENVIRONMENT)]
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
