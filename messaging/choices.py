"""States as people see them: value, label, icon and colour in one place. Values are what the database holds."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import models

from rmhub.language import gettext_lazy as _
from rmhub.language import pgettext_lazy


class Direction(models.TextChoices):
    OUT = "out", _("Outbound")
    IN = "in", _("Inbound")


class MessageState(models.TextChoices):
    """Life of a message; its moves are in `messaging.protocol.messages`."""

    QUEUED = "queued", _("Queued")
    SENDING = "sending", _("Sending")
    AWAITING_ACK = "awaiting_ack", _("Awaiting acknowledgement")
    RETRYING = "retrying", _("Retrying")
    FAILED = "failed", _("Failed")
    SENT = "sent", _("Sent")
    DELIVERED = "delivered", _("Delivered")
    SKIPPED = "skipped", _("Skipped")
    CANCELLED = "cancelled", _("Cancelled")
    RECEIVED = "received", _("Received")
    IN_DOUBT = "in_doubt", _("In doubt")
    CONFIRMING = "confirming", _("Awaiting final receipt")
    HELD = "held", _("Held for its turn")


class SignalKind(models.TextChoices):
    ACKNOWLEDGEMENT = "ack", _("Acknowledgement")
    ERROR = "error", _("Error message")
    FINAL = "final", _("Final receipt")
    PONG = "pong", "Pong"
    STATUS = "stat", _("Status of a message")


class SignalState(models.TextChoices):
    HELD = "held", _("Waits for the next hop")
    PENDING = "pending", _("Waiting to be sent")
    SENDING = "sending", _("Sending")
    SENT = "sent", _("Sent")
    FAILED = "failed", _("Could not be sent")
    MATCHED = "matched", _("Accepted")
    IGNORED = "ignored", _("Ignored")


class Outcome(models.TextChoices):
    """How one transmission ended."""

    ON_THE_WIRE = "on_the_wire", _("On the wire")
    SENT = "sent", pgettext_lazy("transmission", "Handed over")
    FAILED = "failed", _("Transport failure")
    LOST = "lost", _("Unknown: the worker died")


class RouteMode(models.TextChoices):
    """When a router acknowledges what it passes on (spec 1, 4.1)."""

    STORE_FORWARD = "store_forward", _("Store and forward: acknowledged when it is stored here")
    CONFIRM_THROUGH = "confirm_through", _("Confirm through: acknowledged when the next hop has acknowledged")


class CircuitState(models.TextChoices):
    """Whether an address is tried at all (docs/operations.md)."""

    CLOSED = "closed", _("Closed: it is used")
    OPEN = "open", _("Open: sending to it is stopped for a while")


class IncidentState(models.TextChoices):
    OPEN = "open", _("Open")
    ACKNOWLEDGED = "acknowledged", _("Acknowledged")
    RESOLVED = "resolved", _("Resolved")


class WebhookState(models.TextChoices):
    PENDING = "pending", _("Waiting")
    DELIVERED = "delivered", pgettext_lazy("webhook delivery", "Delivered")
    FAILED = "failed", pgettext_lazy("webhook delivery", "Given up")


class ServiceKind(models.TextChoices):
    """How a trigger reaches the application."""

    HTTP = "http", _("HTTP service")
    CALLABLE = "callable", _("Python callable")
    PULL = "pull", _("Pull queue")
    ATOMIC = "atomic", _("All or nothing: several services in one transaction")


class Consult(models.TextChoices):
    """How a trigger asks somebody else: its resolver, or the monitor of its resources."""

    NONE = "none", _("None")
    HTTP = "http", _("HTTP service")
    CALLABLE = "callable", _("Python callable")


class TriggerState(models.TextChoices):
    ACTIVE = "active", _("Active")
    SUSPENDED = "suspended", _("Suspended")
    DISABLED = "disabled", _("Disabled")


class RetryUntil(models.TextChoices):
    """When a trigger stops retrying a service with transient trouble (spec 4's exactly-once properties)."""

    MAX_ATTEMPTS = "max", _("Max retry attempts reached")
    SUCCESS = "success", _("Successful")


class WhenExhausted(models.TextChoices):
    SUSPEND = "suspend", _("Suspend the trigger and retry later")
    FAIL = "fail", _("Fail the document")


class ResolverFailure(models.TextChoices):
    """What a resolver that could not answer just now leads to."""

    SUSPEND = "suspend", _("Suspend the trigger and retry later")
    IN_DOUBT = "in_doubt", _("The document is in doubt")


class JoinType(models.TextChoices):
    NONE = "none", _("None: each document by itself")
    ALL = "all", _("All (AND)")
    ANY = "any", _("Any (OR)")
    ONLY_ONE = "only_one", _("Only one (XOR)")


class DeliveryState(models.TextChoices):
    """Life of a delivery; its moves are in `messaging.protocol.processing`."""

    WAITING = "waiting", _("Waiting")
    RUNNING = "running", _("Running")
    JOINED = "joined", _("Waiting for its join")
    COMPLETED = "completed", pgettext_lazy("delivery", "Completed")
    FAILED = "failed", pgettext_lazy("delivery", "Failed")
    DUPLICATE = "duplicate", _("Duplicate")
    IN_DOUBT = "in_doubt", pgettext_lazy("delivery", "In doubt")
    DISCARDED = "discarded", pgettext_lazy("delivery", "Discarded")
    SETTLED = "settled", pgettext_lazy("delivery", "Settled")


class SlaTarget(models.TextChoices):
    """What an agreement's service level promises about a document."""

    ACKNOWLEDGED = "acknowledged", pgettext_lazy("message", "Acknowledged")
    PROCESSED = "processed", _("Processed")


class DocumentIdSource(models.TextChoices):
    """Where the id that a trigger's history goes by was found."""

    MESSAGE = "message", _("The id of its message")
    SENDER = "sender", _("Given by its sender")
    DOCUMENT = "document", _("Found in the document")


class JoinState(models.TextChoices):
    OPEN = "open", _("Open")
    FIRED = "fired", _("Fired")
    EXPIRED = "expired", _("Expired")


class RequestState(models.TextChoices):
    """What a remembered request (spec 2) has come to."""

    RUNNING = "running", _("In progress")
    ACCEPTED = "accepted", _("Accepted")
    ANSWERED = "answered", _("Answered")
    IN_DOUBT = "in_doubt", _("In doubt")
    FORGOTTEN = "forgotten", _("Forgotten at the sender's request")


class NotificationChannel(models.TextChoices):
    MAIL = "mail", _("Mail")
    WEBHOOK = "webhook", _("Webhook")
    SLACK = "slack", _("Slack, Mattermost or Rocket.Chat")
    TEAMS = "teams", _("Microsoft Teams")
    PAGERDUTY = "pagerduty", _("PagerDuty")
    OPSGENIE = "opsgenie", _("Opsgenie")


class NotificationState(models.TextChoices):
    PENDING = "pending", _("Waiting")
    SENT = "sent", pgettext_lazy("notification", "Sent")
    FAILED = "failed", pgettext_lazy("notification", "Given up")
    DROPPED = "dropped", _("Not needed")


class Severity(models.TextChoices):
    """How bad something is, from the least to the worst."""

    INFO = "info", _("Everything")
    WARNING = "warning", _("Warnings and worse")
    ERROR = "error", _("Errors and worse")
    CRITICAL = "critical", _("Critical only")


class PartnerAnswer(models.TextChoices):
    """What the partner says about a message of ours (words of ebXML Message Service 2.0, 7.1)."""

    UNAUTHORIZED = "unauthorized", _("Not authorised to ask")
    NOT_RECOGNIZED = "not_recognized", _("Unknown to the partner")
    RECEIVED = "received", _("Received")
    PROCESSED = "processed", _("Processed")
    FORWARDED = "forwarded", _("Passed on")
    NO_ANSWER = "no_answer", _("No answer")


class MaskKind(models.TextChoices):
    XML = "xml", _("XML")
    JSON = "json", _("JSON")
    EDI = "edi", _("EDIFACT or X12")


class DocumentKind(models.TextChoices):
    XML = "xml", _("XML")
    JSON = "json", _("JSON")
    EDI = "edi", _("EDIFACT or X12")
    CSV = "csv", _("CSV")


class SchemaEffect(models.TextChoices):
    """What a document that does not fit a schema leads to."""

    REFUSE = "refuse", _("Refuse it")
    HOLD = "hold", _("Hold it for a person")
    FLAG = "flag", _("Accept and flag it")
    OFF = "off", _("Do not check")


class NoteKind(models.TextChoices):
    """What stands in an incident's timeline beside events and actions."""

    COMMENT = "comment", _("Comment")
    SNOOZE = "snooze", _("Snoozed")
    OWNER = "owner", _("Owner changed")


class JobState(models.TextChoices):
    PLANNED = "planned", pgettext_lazy("job", "Planned")
    QUEUED = "queued", _("Queued")
    RUNNING = "running", _("Running")
    FINISHED = "finished", pgettext_lazy("job", "Finished")
    CANCELLED = "cancelled", pgettext_lazy("job", "Cancelled")


class ItemState(models.TextChoices):
    PENDING = "pending", _("Waiting")
    DONE = "done", _("Done")
    REFUSED = "refused", _("Refused")
    CANCELLED = "cancelled", _("Cancelled")


class CertificateUse(models.TextChoices):
    SERVER = "server", _("What the partner's server shows us")
    CLIENT = "client", _("What the partner shows when it calls us")


class OfferState(models.TextChoices):
    WAITING = "waiting", _("Waiting")
    ACCEPTED = "accepted", _("Accepted")
    DECLINED = "declined", _("Declined")


class Interface(models.TextChoices):
    CONSOLE = "console", _("Console")
    API = "api", _("API")
    COMMAND = "command", _("Command line")
    SYSTEM = "system", _("The hub itself")


@dataclass(frozen=True, slots=True)
class Look:
    """How a state is shown: never by colour alone."""

    label: str
    icon: str
    colour: str


PAIR_LOOKS: dict[str, Look] = {
    "active": Look(pgettext_lazy("pair", "Active"), "●", "green"),
    "waiting": Look(_("Waiting"), "◔", "azure"),
    "retrying": Look(_("Retrying"), "↻", "yellow"),
    "holding": Look(pgettext_lazy("pair", "Held by partner"), "⏲", "yellow"),
    "suspended": Look(pgettext_lazy("pair", "Suspended"), "■", "red"),
    "paused": Look(_("Paused"), "‖", "purple"),
    "resync": Look(_("Needs resync"), "≠", "orange"),
    "silent": Look(_("Silent"), "○", "orange"),
    "disabled": Look(pgettext_lazy("pair", "Disabled"), "—", "secondary"),
}
MESSAGE_LOOKS: dict[str, Look] = {
    MessageState.QUEUED: Look(_("Queued"), "…", "secondary"),
    MessageState.SENDING: Look(_("Sending"), "→", "azure"),
    MessageState.AWAITING_ACK: Look(_("Awaiting ack"), "◔", "azure"),
    MessageState.RETRYING: Look(_("Retrying"), "↻", "yellow"),
    MessageState.FAILED: Look(_("Failed"), "✕", "red"),
    MessageState.SENT: Look(_("Sent"), "✓", "green"),
    MessageState.DELIVERED: Look(_("Delivered"), "✓", "green"),
    MessageState.SKIPPED: Look(_("Skipped"), "⤼", "purple"),
    MessageState.CANCELLED: Look(_("Cancelled"), "⊘", "secondary"),
    MessageState.RECEIVED: Look(_("Received"), "↓", "green"),
    MessageState.IN_DOUBT: Look(_("In doubt"), "?", "orange"),
    MessageState.CONFIRMING: Look(_("Awaiting receipt"), "◑", "azure"),
    MessageState.HELD: Look(_("Held for its turn"), "⋮", "azure"),
}
TRIGGER_LOOKS: dict[str, Look] = {
    TriggerState.ACTIVE: Look(_("Active"), "●", "green"),
    TriggerState.SUSPENDED: Look(_("Suspended"), "■", "red"),
    TriggerState.DISABLED: Look(_("Disabled"), "—", "secondary"),
}
DELIVERY_LOOKS: dict[str, Look] = {
    DeliveryState.WAITING: Look(_("Waiting"), "…", "secondary"),
    DeliveryState.RUNNING: Look(_("Running"), "→", "azure"),
    DeliveryState.JOINED: Look(_("In a join"), "∩", "azure"),
    DeliveryState.COMPLETED: Look(pgettext_lazy("delivery", "Completed"), "✓", "green"),
    DeliveryState.FAILED: Look(pgettext_lazy("delivery", "Failed"), "✕", "red"),
    DeliveryState.DUPLICATE: Look(_("Duplicate"), "=", "secondary"),
    DeliveryState.IN_DOUBT: Look(pgettext_lazy("delivery", "In doubt"), "?", "orange"),
    DeliveryState.DISCARDED: Look(pgettext_lazy("delivery", "Discarded"), "⊘", "secondary"),
    DeliveryState.SETTLED: Look(pgettext_lazy("delivery", "Settled"), "⚖", "purple"),
}
# Keys are the values of `protocol.atomic.words`: Phase, Seat, Vote.
PHASE_LOOKS: dict[str, Look] = {
    "active": Look(pgettext_lazy("transaction", "Open"), "●", "azure"),
    "preparing_v": Look(_("Preparing volatile"), "◔", "azure"),
    "preparing": Look(_("Preparing"), "◔", "azure"),
    "deciding": Look(_("Deciding"), "◑", "azure"),
    "prepared": Look(pgettext_lazy("transaction", "Prepared, waiting for the outcome"), "⏲", "yellow"),
    "committing": Look(_("Committing"), "→", "azure"),
    "aborting": Look(_("Rolling back"), "↶", "yellow"),
    "committed": Look(pgettext_lazy("transaction", "Committed"), "✓", "green"),
    "aborted": Look(_("Rolled back"), "⊘", "secondary"),
}
SEAT_LOOKS: dict[str, Look] = {
    "none": Look(_("Done"), "—", "secondary"),
    "active": Look(_("Registered"), "●", "azure"),
    "preparing": Look(_("Preparing"), "◔", "azure"),
    "prepared": Look(_("Prepared"), "◑", "azure"),
    "committing": Look(_("Committing"), "→", "azure"),
    "aborting": Look(_("Rolling back"), "↶", "yellow"),
}
VOTE_LOOKS: dict[str, Look] = {
    "prepared": Look(_("Yes"), "✓", "green"),
    "read_only": Look(_("Nothing to do"), "=", "secondary"),
    "aborted": Look(_("No"), "✕", "red"),
}
