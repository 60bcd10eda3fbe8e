"""How the console shows states: the icon of each, and word and colour where `messaging.choices` has none."""

from __future__ import annotations

from messaging.choices import (
    DELIVERY_LOOKS,
    MESSAGE_LOOKS,
    PAIR_LOOKS,
    PHASE_LOOKS,
    SEAT_LOOKS,
    TRIGGER_LOOKS,
    VOTE_LOOKS,
    CircuitState,
    IncidentState,
    ItemState,
    JobState,
    Look,
    NotificationState,
    OfferState,
    Outcome,
    SignalState,
    WebhookState,
)
from messaging.report_choices import LOG_LOOKS, RUN_LOOKS
from partners.choices import VersionState
from rmhub.language import gettext_lazy as _
from rmhub.language import pgettext_lazy

# state -> icon of the sprite; the words and colours are those of `messaging.choices`.
_PAIR_ICONS = {
    "active": "circle-filled",
    "waiting": "hourglass",
    "retrying": "refresh",
    "holding": "hand-stop",
    "suspended": "square-filled",
    "paused": "player-pause-filled",
    "resync": "arrows-exchange",
    "silent": "bell",
    "disabled": "minus",
}
_MESSAGE_ICONS = {
    "queued": "stack-2",
    "sending": "send",
    "awaiting_ack": "hourglass",
    "retrying": "refresh",
    "failed": "x",
    "sent": "check",
    "delivered": "circle-check-filled",
    "skipped": "player-skip-forward",
    "cancelled": "ban",
    "received": "circle-check-filled",
    "in_doubt": "help-circle",
    "confirming": "eye",
    "held": "hourglass",
}
_TRIGGER_ICONS = {
    "active": "circle-filled",
    "suspended": "square-filled",
    "disabled": "minus",
}
_DELIVERY_ICONS = {
    "waiting": "stack-2",
    "running": "player-play",
    "joined": "git-merge",
    "completed": "circle-check-filled",
    "failed": "x",
    "duplicate": "copy",
    "in_doubt": "help-circle",
    "discarded": "ban",
    "settled": "scale",
}
_PHASE_ICONS = {
    "active": "circle-filled",
    "preparing_v": "message-question",
    "preparing": "message-question",
    "deciding": "hourglass",
    "prepared": "hourglass",
    "committing": "send",
    "aborting": "arrow-back-up",
    "committed": "circle-check-filled",
    "aborted": "ban",
}
_SEAT_ICONS = {
    "none": "minus",
    "active": "circle-filled",
    "preparing": "message-question",
    "prepared": "hourglass",
    "committing": "send",
    "aborting": "arrow-back-up",
}
_VOTE_ICONS = {"prepared": "check", "read_only": "eye", "aborted": "x"}
_RUN_ICONS = {
    "queued": "hourglass",
    "running": "player-play",
    "succeeded": "check",
    "failed": "x",
    "cancelled": "ban",
}
_LOG_ICONS = {"received": "file-text", "reconciled": "check", "failed": "x"}
# kind -> looks and icons of states that have both in tables.
LOOKS: dict[str, tuple[dict[str, Look], dict[str, str]]] = {
    "pair": (PAIR_LOOKS, _PAIR_ICONS),
    "message": (MESSAGE_LOOKS, _MESSAGE_ICONS),
    "trigger": (TRIGGER_LOOKS, _TRIGGER_ICONS),
    "delivery": (DELIVERY_LOOKS, _DELIVERY_ICONS),
    "run": (RUN_LOOKS, _RUN_ICONS),
    "log": (LOG_LOOKS, _LOG_ICONS),
    "phase": (PHASE_LOOKS, _PHASE_ICONS),
    "seat": (SEAT_LOOKS, _SEAT_ICONS),
    "vote": (VOTE_LOOKS, _VOTE_ICONS),
}
OTHERS: dict[str, dict[str, tuple[Look, str]]] = {
    "incident": {
        IncidentState.OPEN: (Look(_("Open"), "", "red"), "alert-triangle-filled"),
        IncidentState.ACKNOWLEDGED: (Look(_("Acknowledged"), "", "azure"), "eye"),
        IncidentState.RESOLVED: (Look(_("Resolved"), "", "green"), "check"),
    },
    "outcome": {
        Outcome.ON_THE_WIRE: (Look(_("On the wire"), "", "azure"), "send"),
        Outcome.SENT: (Look(pgettext_lazy("transmission", "Handed over"), "", "green"), "check"),
        Outcome.FAILED: (Look(pgettext_lazy("transmission", "Failed"), "", "red"), "x"),
        Outcome.LOST: (Look(pgettext_lazy("transmission", "Unknown"), "", "yellow"), "info-circle"),
    },
    "signal": {
        SignalState.HELD: (Look(_("Held"), "", "yellow"), "hand-stop"),
        SignalState.PENDING: (Look(_("To be sent"), "", "secondary"), "stack-2"),
        SignalState.SENDING: (Look(_("Sending"), "", "azure"), "send"),
        SignalState.SENT: (Look(_("Sent"), "", "green"), "check"),
        SignalState.FAILED: (Look(_("Could not be sent"), "", "red"), "x"),
        SignalState.MATCHED: (Look(_("Accepted"), "", "green"), "check"),
        SignalState.IGNORED: (Look(_("Ignored"), "", "secondary"), "minus"),
    },
    "verdict": {
        "ok": (Look(_("Ok"), "", "green"), "circle-check-filled"),
        "warning": (Look(_("Warning"), "", "yellow"), "alert-triangle-filled"),
        "failed": (Look(_("Failed"), "", "red"), "x"),
        "skipped": (Look(_("Not checked"), "", "secondary"), "minus"),
    },
    "circuit": {
        CircuitState.CLOSED: (Look(_("Failing"), "", "yellow"), "refresh"),
        CircuitState.OPEN: (Look(_("Circuit open"), "", "red"), "hand-stop"),
    },
    "route": {
        "on": (Look(pgettext_lazy("route", "On"), "", "green"), "circle-filled"),
        "off": (Look(pgettext_lazy("route", "Off"), "", "secondary"), "minus"),
    },
    "poller": {
        "ok": (Look(_("Works"), "", "green"), "circle-check-filled"),
        "failing": (Look(_("Unreachable"), "", "red"), "alert-triangle-filled"),
        "new": (Look(pgettext_lazy("poller", "Not polled yet"), "", "secondary"), "hourglass"),
        "looking": (Look(_("Polling"), "", "azure"), "refresh"),
        "off": (Look(pgettext_lazy("poller", "Off"), "", "secondary"), "minus"),
    },
    "version": {
        VersionState.DRAFT: (Look(_("Draft"), "", "secondary"), "file-text"),
        VersionState.ACTIVE: (Look(pgettext_lazy("version", "Active"), "", "green"), "circle-filled"),
        VersionState.RETIRED: (Look(pgettext_lazy("version", "Retired"), "", "secondary"), "history"),
        VersionState.DISABLED: (Look(pgettext_lazy("version", "Disabled"), "", "yellow"), "minus"),
    },
    "webhook": {
        WebhookState.PENDING: (Look(_("Waiting"), "", "azure"), "hourglass"),
        WebhookState.DELIVERED: (Look(pgettext_lazy("webhook delivery", "Delivered"), "", "green"), "check"),
        WebhookState.FAILED: (Look(pgettext_lazy("webhook delivery", "Given up"), "", "red"), "x"),
    },
    "notification": {
        NotificationState.PENDING: (Look(_("Waiting"), "", "azure"), "hourglass"),
        NotificationState.SENT: (Look(pgettext_lazy("notification", "Sent"), "", "green"), "check"),
        NotificationState.FAILED: (Look(pgettext_lazy("notification", "Given up"), "", "red"), "x"),
        NotificationState.DROPPED: (Look(_("Not needed"), "", "secondary"), "minus"),
    },
    "job": {
        JobState.PLANNED: (Look(pgettext_lazy("job", "Planned"), "", "secondary"), "clock"),
        JobState.QUEUED: (Look(_("Queued"), "", "secondary"), "hourglass"),
        JobState.RUNNING: (Look(_("Running"), "", "azure"), "player-play"),
        JobState.FINISHED: (Look(pgettext_lazy("job", "Finished"), "", "green"), "check"),
        JobState.CANCELLED: (Look(pgettext_lazy("job", "Cancelled"), "", "yellow"), "ban"),
    },
    "offer": {
        OfferState.WAITING: (Look(_("Waiting"), "", "yellow"), "hourglass"),
        OfferState.ACCEPTED: (Look(_("Accepted"), "", "green"), "check"),
        OfferState.DECLINED: (Look(_("Declined"), "", "secondary"), "ban"),
    },
    "held": {
        "valid": (Look(_("Valid"), "", "green"), "circle-check-filled"),
        "ending": (Look(_("Expires soon"), "", "yellow"), "hourglass"),
        "expired": (Look(_("Expired"), "", "red"), "x"),
    },
    "user": {
        "active": (Look(_("Active"), "", "green"), "circle-filled"),
        "off": (Look(_("Switched off"), "", "secondary"), "ban"),
    },
    "token": {
        "in-force": (Look(_("In force"), "", "green"), "circle-filled"),
        "ends-soon": (Look(_("Expires soon"), "", "yellow"), "hourglass"),
        "ended": (Look(_("Expired"), "", "secondary"), "clock"),
        "revoked": (Look(_("Revoked"), "", "secondary"), "ban"),
    },
    "item": {
        ItemState.PENDING: (Look(_("Waiting"), "", "secondary"), "hourglass"),
        ItemState.DONE: (Look(_("Done"), "", "green"), "check"),
        ItemState.REFUSED: (Look(_("Refused"), "", "red"), "x"),
        ItemState.CANCELLED: (Look(_("Cancelled"), "", "yellow"), "ban"),
    },
}
