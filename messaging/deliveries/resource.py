"""Triggers, as one declaration: what console and API are made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from messaging.choices import TRIGGER_LOOKS, TriggerState
from messaging.deliveries.selectors import triggers
from messaging.deliveries.selectors.triggers import TriggerRow
from messaging.deliveries.services import triggering
from messaging.models import Trigger
from messaging.resource import Resource, Verb
from rmhub import clock


def row_of(trigger: Any) -> TriggerRow:
    """Return the trigger with what is the matter with it, looked up once for a page."""
    if not hasattr(trigger, "row"):
        (trigger.row,) = triggers.trigger_rows([trigger], clock.now())
    row: TriggerRow = trigger.row
    return row


def _said(trigger: Trigger, verb: Verb) -> Iterator[str]:
    row = row_of(trigger)
    backlog = row.backlog
    held = "nothing waits" if not backlog.held else f"{backlog.held:,} document{'s' if backlog.held != 1 else ''}"
    if verb.slug == "resume":
        order = ", pair by pair in their order" if trigger.ordered else ""
        yield f"What waits is handed over at once: {held}{order}." if backlog.held else "Nothing waits."
        yield "Each gets a fresh budget of retries."
        yield "The incident of the suspension is resolved."
        cause = row.diagnosis.cause
        if cause is not None and not cause.retryable and cause.code != triggering.BY_USER:
            yield f"Waiting does not fix “{cause.label}”. {cause.action}"
    elif verb.slug == "suspend" and trigger.state == TriggerState.SUSPENDED:
        yield "It is suspended already; from now on its monitor and a restart of the hub do not resume it."
        yield "It stays suspended until somebody resumes it. The incident is resolved with your reason."
    elif verb.slug == "suspend":
        yield "From now on nothing is handed over. What the application is processing is finished."
        yield "Documents that come are taken in and wait."
        yield "It stays suspended until somebody resumes it; no monitor does."
    elif verb.slug == "leave":
        whole = trigger.member_of.name if trigger.member_of is not None else "its trigger"
        yield f"From the next document on {whole} goes without it; what is in progress ends as it began."
        yield "It is disabled. Enabled again it takes what its own settings name: by default every document."
    elif verb.slug == "disable":
        yield "Documents that come from now on make no delivery to it."
        yield f"What waits stays: {held}. It goes on when the trigger is enabled."
    else:
        yield f"It takes documents again, and what waited is handed over: {held}."


def _called(trigger: Trigger, verb: Verb) -> str:
    """Suspended for trouble, it can still be held, so that its monitor does not resume it."""
    return "Hold" if verb.slug == "suspend" and trigger.state == TriggerState.SUSPENDED else verb.label


TRIGGERS = Resource(
    name="trigger",
    plural="triggers",
    prefix="trg",
    reads="triggers:read",
    changes="triggers:write",
    rows=triggers.triggers,
    one=triggers.trigger,
    by_name=True,
    order=("severity", "name"),
    create=triggering.trigger_create,
    update=triggering.trigger_update,
    possible=triggering.allowed_verbs,
    state=lambda trigger: trigger.state,
    said=_said,
    called=_called,
    why_not=lambda trigger: f"is {TRIGGER_LOOKS[trigger.state].label.lower()} now",
    verbs=(
        Verb(
            "resume",
            "Resume",
            "player-play",
            "primary",
            triggering.trigger_resume,
            (),
            "What the application has processed cannot be taken back.",
            ("The application is up again", "The resolver is up again", "Fixed on our side"),
            "is resumed",
            "Resume a suspended trigger: what waits is handed over, with a fresh budget of retries",
            scope="triggers:operate",
        ),
        Verb(
            "suspend",
            "Suspend",
            "player-pause",
            "",
            triggering.trigger_suspend,
            (),
            "Nothing here is irreversible: resume the trigger and it goes on.",
            ("The application's maintenance window", "Investigation"),
            "is suspended",
            "Hold a trigger until a person resumes it: documents are taken in and wait",
            scope="triggers:operate",
        ),
        Verb(
            "enable",
            "Enable",
            "power",
            "primary",
            triggering.trigger_enable,
            (),
            "Documents that came while it was disabled are not handed over.",
            ("Used again",),
            "is enabled",
            "Switch a trigger on again: it takes documents, and what waited is handed over",
        ),
        Verb(
            "disable",
            "Disable",
            "power",
            "danger",
            triggering.trigger_disable,
            (),
            "Documents that come while it is disabled are never handed over to this application by themselves.",
            ("Not used any more", "Replaced by another trigger"),
            "is disabled",
            "Switch a trigger off: documents that come from now on do not go to it",
        ),
        Verb(
            "leave",
            "Remove",
            "minus",
            "danger",
            triggering.trigger_leave,
            (),
            "What was processed together stays processed. It can become a member again.",
            ("Not needed in this transaction any more",),
            "is not a member any more, and disabled",
            "Remove a member from its atomic trigger: it is disabled, and takes documents of its own once enabled",
        ),
    ),
)
