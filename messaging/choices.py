"""States as people see them: value, label, icon and colour in one place. Values are what the database holds."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import models


class Direction(models.TextChoices):
    OUT = "out", "Outbound"
    IN = "in", "Inbound"


class MessageState(models.TextChoices):
    """Life of a message; its moves are in `messaging.protocol.messages`."""

    QUEUED = "queued", "Queued"
    SENDING = "sending", "Sending"
    AWAITING_ACK = "awaiting_ack", "Awaiting acknowledgement"
    RETRYING = "retrying", "Retrying"
    FAILED = "failed", "Failed"
    SENT = "sent", "Sent"
    DELIVERED = "delivered", "Delivered"
    SKIPPED = "skipped", "Skipped"
    CANCELLED = "cancelled", "Cancelled"
    RECEIVED = "received", "Received"


class SignalKind(models.TextChoices):
    ACKNOWLEDGEMENT = "ack", "Acknowledgement"
    ERROR = "error", "Error message"


class SignalState(models.TextChoices):
    PENDING = "pending", "Waiting to be sent"
    SENDING = "sending", "Sending"
    SENT = "sent", "Sent"
    FAILED = "failed", "Could not be sent"
    MATCHED = "matched", "Taken"
    IGNORED = "ignored", "Ignored"


class Outcome(models.TextChoices):
    """How one transmission ended."""

    ON_THE_WIRE = "on_the_wire", "On the wire"
    SENT = "sent", "Handed over"
    FAILED = "failed", "Transport failure"
    LOST = "lost", "Unknown: the worker died"


class IncidentState(models.TextChoices):
    OPEN = "open", "Open"
    ACKNOWLEDGED = "acknowledged", "Acknowledged"
    RESOLVED = "resolved", "Resolved"


class WebhookState(models.TextChoices):
    PENDING = "pending", "Waiting"
    DELIVERED = "delivered", "Delivered"
    FAILED = "failed", "Given up"


class Interface(models.TextChoices):
    CONSOLE = "console", "Console"
    API = "api", "API"
    COMMAND = "command", "Command line"
    SYSTEM = "system", "The hub itself"


@dataclass(frozen=True, slots=True)
class Look:
    """How a state is shown: never by colour alone."""

    label: str
    icon: str
    colour: str


PAIR_LOOKS: dict[str, Look] = {
    "active": Look("Active", "●", "green"),
    "waiting": Look("Waiting", "◔", "azure"),
    "retrying": Look("Retrying", "↻", "yellow"),
    "holding": Look("Held by partner", "⏲", "yellow"),
    "suspended": Look("Suspended", "■", "red"),
    "paused": Look("Paused", "‖", "purple"),
    "disabled": Look("Disabled", "—", "secondary"),
}
MESSAGE_LOOKS: dict[str, Look] = {
    MessageState.QUEUED: Look("Queued", "…", "secondary"),
    MessageState.SENDING: Look("Sending", "→", "azure"),
    MessageState.AWAITING_ACK: Look("Awaiting ack", "◔", "azure"),
    MessageState.RETRYING: Look("Retrying", "↻", "yellow"),
    MessageState.FAILED: Look("Failed", "✕", "red"),
    MessageState.SENT: Look("Sent", "✓", "green"),
    MessageState.DELIVERED: Look("Delivered", "✓", "green"),
    MessageState.SKIPPED: Look("Skipped", "⤼", "purple"),
    MessageState.CANCELLED: Look("Cancelled", "⊘", "secondary"),
    MessageState.RECEIVED: Look("Received", "↓", "green"),
}
