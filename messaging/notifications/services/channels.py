"""How alerting services want to be told: Slack and its like, Microsoft Teams, PagerDuty, Opsgenie. Pure functions.

They get one alert for an incident, however often it is told: it has a name of its own there, is acknowledged with the
incident, and is closed with it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from django.conf import settings
from django.utils import translation
from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from messaging.choices import NotificationChannel, Severity

PAGERDUTY = "https://events.pagerduty.com/v2/enqueue"
OPSGENIE = "https://api.opsgenie.com"
# What can be said of an alert: the events that a rule of these services may report.
ALERTS = {"incident.opened": "trigger", "incident.acknowledged": "acknowledge", "incident.resolved": "resolve"}
ALERTING = (NotificationChannel.PAGERDUTY, NotificationChannel.OPSGENIE)
_MOST = 2_800  # characters of a text: Slack cuts a section at 3,000
_PRIORITIES = {Severity.CRITICAL: "P1", Severity.ERROR: "P2", Severity.WARNING: "P3", Severity.INFO: "P5"}


@dataclass(frozen=True, slots=True)
class Message:
    """What is told. `alert`: the name of the trouble; `event`: the type of the event; `link`: its page."""

    subject: str
    body: str
    link: str
    alert: str
    event: str
    severity: str
    source: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Request:
    """What is posted."""

    url: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


def request(channel: str, message: Message, *, secret: str, address: str) -> Request:
    """What this channel is posted. `secret`: the webhook's address, or the key; `address`: "" for the usual one."""
    with translation.override(settings.RMHUB_LANGUAGE):
        return _BY_CHANNEL[NotificationChannel(channel)](message, secret, address)


def _slack(message: Message, secret: str, address: str) -> Request:
    text = f"*{_escaped(message.subject)}*\n{_escaped(message.body[:_MOST])}"
    return Request(secret, _json({"text": text}))


def _escaped(text: str) -> str:
    """What these characters mean to Slack is not what partners' servers may say."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _teams(message: Message, secret: str, address: str) -> Request:
    """An adaptive card, as a workflow "When a Teams webhook request is received" takes it."""
    looks = {"wrap": True, "type": "TextBlock"}
    colour = "attention" if message.severity in (Severity.CRITICAL, Severity.ERROR) else "default"
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [
            {**looks, "text": message.subject, "weight": "bolder", "color": colour},
            {**looks, "text": message.body[:_MOST].replace("\n", "\n\n")},
        ],
        "actions": [{"type": "Action.OpenUrl", "title": pgettext("verb", "Open"), "url": message.link}],
    }
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    return Request(secret, _json({"type": "message", "attachments": [attachment]}))


def _pagerduty(message: Message, secret: str, address: str) -> Request:
    """An event of the Events API v2."""
    told = {
        "routing_key": secret,
        "event_action": ALERTS.get(message.event, "trigger"),
        "dedup_key": message.alert,
        "client": message.source,
        "client_url": message.link,
        "links": [{"href": message.link, "text": _("Open in the console")}],
        "payload": {
            "summary": message.subject[:1024],
            "source": message.source,
            "severity": message.severity,
            "custom_details": {"text": message.body[:_MOST], **message.data},
        },
    }
    return Request(address or PAGERDUTY, _json(told))


def _opsgenie(message: Message, secret: str, address: str) -> Request:
    """A request of the Alert API: an alert is made, acknowledged or closed by its alias."""
    alerts = f"{(address or OPSGENIE).rstrip('/')}/v2/alerts"
    headers = {"Authorization": f"GenieKey {secret}"}
    action = {"acknowledge": "acknowledge", "resolve": "close"}.get(ALERTS.get(message.event, ""))
    if action is not None:
        url = f"{alerts}/{quote(message.alert, safe='')}/{action}?identifierType=alias"
        return Request(url, _json({"source": message.source, "note": message.subject}), headers)
    made = {
        "message": message.subject[:130],
        "alias": message.alert,
        "description": message.body[:_MOST],
        "source": message.source,
        "priority": _PRIORITIES[Severity(message.severity)],
        "details": {"link": message.link, **{name: str(value) for name, value in message.data.items()}},
    }
    return Request(alerts, _json(made), headers)


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


_BY_CHANNEL: Mapping[NotificationChannel, Callable[[Message, str, str], Request]] = {
    NotificationChannel.SLACK: _slack,
    NotificationChannel.TEAMS: _teams,
    NotificationChannel.PAGERDUTY: _pagerduty,
    NotificationChannel.OPSGENIE: _opsgenie,
}
