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
    IN_DOUBT = "in_doubt", "In doubt"
    CONFIRMING = "confirming", "Awaiting final receipt"


class SignalKind(models.TextChoices):
    ACKNOWLEDGEMENT = "ack", "Acknowledgement"
    ERROR = "error", "Error message"
    FINAL = "final", "Final receipt"


class SignalState(models.TextChoices):
    HELD = "held", "Waits for the next hop"
    PENDING = "pending", "Waiting to be sent"
    SENDING = "sending", "Sending"
    SENT = "sent", "Sent"
    FAILED = "failed", "Could not be sent"
    MATCHED = "matched", "Accepted"
    IGNORED = "ignored", "Ignored"


class Outcome(models.TextChoices):
    """How one transmission ended."""

    ON_THE_WIRE = "on_the_wire", "On the wire"
    SENT = "sent", "Handed over"
    FAILED = "failed", "Transport failure"
    LOST = "lost", "Unknown: the worker died"


class RouteMode(models.TextChoices):
    """When a router acknowledges what it passes on (spec 1, 4.1)."""

    STORE_FORWARD = "store_forward", "Store and forward: acknowledged when it is stored here"
    CONFIRM_THROUGH = "confirm_through", "Confirm through: acknowledged when the next hop has acknowledged"


class CircuitState(models.TextChoices):
    """Whether an address is tried at all (docs/operations.md)."""

    CLOSED = "closed", "Closed: it is used"
    OPEN = "open", "Open: sending to it is stopped for a while"


class IncidentState(models.TextChoices):
    OPEN = "open", "Open"
    ACKNOWLEDGED = "acknowledged", "Acknowledged"
    RESOLVED = "resolved", "Resolved"


class WebhookState(models.TextChoices):
    PENDING = "pending", "Waiting"
    DELIVERED = "delivered", "Delivered"
    FAILED = "failed", "Given up"


class ServiceKind(models.TextChoices):
    """How a trigger reaches the application."""

    HTTP = "http", "HTTP service"
    CALLABLE = "callable", "Python callable"
    PULL = "pull", "Pull queue"
    ATOMIC = "atomic", "All or nothing: several services in one transaction"


class Consult(models.TextChoices):
    """How a trigger asks somebody else: its resolver, or the monitor of its resources."""

    NONE = "none", "None"
    HTTP = "http", "HTTP service"
    CALLABLE = "callable", "Python callable"


class TriggerState(models.TextChoices):
    ACTIVE = "active", "Active"
    SUSPENDED = "suspended", "Suspended"
    DISABLED = "disabled", "Disabled"


class RetryUntil(models.TextChoices):
    """When a trigger stops retrying a service with transient trouble (spec 4's exactly-once properties)."""

    MAX_ATTEMPTS = "max", "Max retry attempts reached"
    SUCCESS = "success", "Successful"


class WhenExhausted(models.TextChoices):
    SUSPEND = "suspend", "Suspend the trigger and retry later"
    FAIL = "fail", "Fail the document"


class ResolverFailure(models.TextChoices):
    """What a resolver that could not answer just now leads to."""

    SUSPEND = "suspend", "Suspend the trigger and retry later"
    IN_DOUBT = "in_doubt", "The document is in doubt"


class JoinType(models.TextChoices):
    NONE = "none", "None: each document by itself"
    ALL = "all", "All (AND)"
    ANY = "any", "Any (OR)"
    ONLY_ONE = "only_one", "Only one (XOR)"


class DeliveryState(models.TextChoices):
    """Life of a delivery; its moves are in `messaging.protocol.processing`."""

    WAITING = "waiting", "Waiting"
    RUNNING = "running", "Running"
    JOINED = "joined", "Waiting for its join"
    COMPLETED = "completed", "Completed"
    FAILED = "failed", "Failed"
    DUPLICATE = "duplicate", "Duplicate"
    IN_DOUBT = "in_doubt", "In doubt"
    DISCARDED = "discarded", "Discarded"
    SETTLED = "settled", "Settled"


class SlaTarget(models.TextChoices):
    """What an agreement's service level promises about a document."""

    ACKNOWLEDGED = "acknowledged", "Acknowledged"
    PROCESSED = "processed", "Processed"


class DocumentIdSource(models.TextChoices):
    """Where the id that a trigger's history goes by was found."""

    MESSAGE = "message", "The id of its message"
    SENDER = "sender", "Given by its sender"
    DOCUMENT = "document", "Found in the document"


class JoinState(models.TextChoices):
    OPEN = "open", "Open"
    FIRED = "fired", "Fired"
    EXPIRED = "expired", "Expired"


class RequestState(models.TextChoices):
    """What a remembered request (spec 2) has come to."""

    RUNNING = "running", "In progress"
    ACCEPTED = "accepted", "Accepted"
    ANSWERED = "answered", "Answered"
    IN_DOUBT = "in_doubt", "In doubt"
    FORGOTTEN = "forgotten", "Forgotten at the sender's request"


class NotificationChannel(models.TextChoices):
    MAIL = "mail", "Mail"
    WEBHOOK = "webhook", "Webhook"
    SLACK = "slack", "Slack, Mattermost or Rocket.Chat"
    TEAMS = "teams", "Microsoft Teams"
    PAGERDUTY = "pagerduty", "PagerDuty"
    OPSGENIE = "opsgenie", "Opsgenie"


class NotificationState(models.TextChoices):
    PENDING = "pending", "Waiting"
    SENT = "sent", "Sent"
    FAILED = "failed", "Given up"
    DROPPED = "dropped", "Not needed"


class Severity(models.TextChoices):
    """How bad something is, from the least to the worst."""

    INFO = "info", "Everything"
    WARNING = "warning", "Warnings and worse"
    ERROR = "error", "Errors and worse"
    CRITICAL = "critical", "Critical only"


class PartnerAnswer(models.TextChoices):
    """What the partner says about a message of ours (words of ebXML Message Service 2.0, 7.1)."""

    UNAUTHORIZED = "unauthorized", "Not authorised to ask"
    NOT_RECOGNIZED = "not_recognized", "Unknown to the partner"
    RECEIVED = "received", "Received"
    PROCESSED = "processed", "Processed"
    FORWARDED = "forwarded", "Passed on"
    NO_ANSWER = "no_answer", "No answer"


class MaskKind(models.TextChoices):
    XML = "xml", "XML"
    JSON = "json", "JSON"
    EDI = "edi", "EDIFACT or X12"


class DocumentKind(models.TextChoices):
    XML = "xml", "XML"
    JSON = "json", "JSON"
    EDI = "edi", "EDIFACT or X12"
    CSV = "csv", "CSV"


class SchemaEffect(models.TextChoices):
    """What a document that does not fit a schema leads to."""

    REFUSE = "refuse", "Refuse it"
    HOLD = "hold", "Hold it for a person"
    FLAG = "flag", "Accept and flag it"
    OFF = "off", "Do not check"


class NoteKind(models.TextChoices):
    """What stands in an incident's timeline beside events and actions."""

    COMMENT = "comment", "Comment"
    SNOOZE = "snooze", "Snoozed"
    OWNER = "owner", "Owner changed"


class JobState(models.TextChoices):
    PLANNED = "planned", "Planned"
    QUEUED = "queued", "Queued"
    RUNNING = "running", "Running"
    FINISHED = "finished", "Finished"
    CANCELLED = "cancelled", "Cancelled"


class ItemState(models.TextChoices):
    PENDING = "pending", "Waiting"
    DONE = "done", "Done"
    REFUSED = "refused", "Refused"
    CANCELLED = "cancelled", "Cancelled"


class CertificateUse(models.TextChoices):
    SERVER = "server", "What the partner's server shows us"
    CLIENT = "client", "What the partner shows when it calls us"


class OfferState(models.TextChoices):
    WAITING = "waiting", "Waiting"
    ACCEPTED = "accepted", "Accepted"
    DECLINED = "declined", "Declined"


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
    "resync": Look("Needs resync", "≠", "orange"),
    "silent": Look("Silent", "○", "orange"),
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
    MessageState.IN_DOUBT: Look("In doubt", "?", "orange"),
    MessageState.CONFIRMING: Look("Awaiting receipt", "◑", "azure"),
}
TRIGGER_LOOKS: dict[str, Look] = {
    TriggerState.ACTIVE: Look("Active", "●", "green"),
    TriggerState.SUSPENDED: Look("Suspended", "■", "red"),
    TriggerState.DISABLED: Look("Disabled", "—", "secondary"),
}
DELIVERY_LOOKS: dict[str, Look] = {
    DeliveryState.WAITING: Look("Waiting", "…", "secondary"),
    DeliveryState.RUNNING: Look("Running", "→", "azure"),
    DeliveryState.JOINED: Look("In a join", "∩", "azure"),
    DeliveryState.COMPLETED: Look("Completed", "✓", "green"),
    DeliveryState.FAILED: Look("Failed", "✕", "red"),
    DeliveryState.DUPLICATE: Look("Duplicate", "=", "secondary"),
    DeliveryState.IN_DOUBT: Look("In doubt", "?", "orange"),
    DeliveryState.DISCARDED: Look("Discarded", "⊘", "secondary"),
    DeliveryState.SETTLED: Look("Settled", "⚖", "purple"),
}
# Keys are the values of `protocol.atomic.words`: Phase, Seat, Vote.
PHASE_LOOKS: dict[str, Look] = {
    "active": Look("Open", "●", "azure"),
    "preparing_v": Look("Preparing volatile", "◔", "azure"),
    "preparing": Look("Preparing", "◔", "azure"),
    "deciding": Look("Deciding", "◑", "azure"),
    "prepared": Look("Prepared, waiting for the outcome", "⏲", "yellow"),
    "committing": Look("Committing", "→", "azure"),
    "aborting": Look("Rolling back", "↶", "yellow"),
    "committed": Look("Committed", "✓", "green"),
    "aborted": Look("Rolled back", "⊘", "secondary"),
}
SEAT_LOOKS: dict[str, Look] = {
    "none": Look("Done", "—", "secondary"),
    "active": Look("Registered", "●", "azure"),
    "preparing": Look("Preparing", "◔", "azure"),
    "prepared": Look("Prepared", "◑", "azure"),
    "committing": Look("Committing", "→", "azure"),
    "aborting": Look("Rolling back", "↶", "yellow"),
}
VOTE_LOOKS: dict[str, Look] = {
    "prepared": Look("Yes", "✓", "green"),
    "read_only": Look("Nothing to do", "=", "secondary"),
    "aborted": Look("No", "✕", "red"),
}
