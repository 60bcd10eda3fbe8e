"""Triggers, as one declaration: what console and API are made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext

from messaging.choices import TRIGGER_LOOKS, TriggerState
from messaging.deliveries.selectors import triggers
from messaging.deliveries.selectors.triggers import TriggerRow
from messaging.deliveries.services import triggering
from messaging.models import Trigger
from messaging.resource import Resource, Verb
from rmhub import clock
from rmhub.language import gettext_lazy, inside, number


def row_of(trigger: Any) -> TriggerRow:
    """Return the trigger with what is the matter with it, looked up once for a page."""
    if not hasattr(trigger, "row"):
        (trigger.row,) = triggers.trigger_rows([trigger], clock.now())
    row: TriggerRow = trigger.row
    return row


def _said(trigger: Trigger, verb: Verb) -> Iterator[str]:
    row = row_of(trigger)
    held = row.backlog.held
    if verb.slug == "resume":
        yield _resumed(held, ordered=trigger.ordered)
        yield _("Each gets a fresh budget of retries.")
        yield _("The incident of the suspension is resolved.")
        cause = row.diagnosis.cause
        if cause is not None and not cause.retryable and cause.code != triggering.BY_USER:
            yield _("Waiting does not fix “{cause}”. {action}").format(cause=cause.label, action=cause.action)
    elif verb.slug == "suspend" and trigger.state == TriggerState.SUSPENDED:
        yield _("It is suspended already; from now on its monitor and a restart of the hub do not resume it.")
        yield _("It stays suspended until somebody resumes it. The incident is resolved with your reason.")
    elif verb.slug == "suspend":
        yield _("From now on nothing is handed over. What the application is processing is finished.")
        yield _("Documents that come are taken in and wait.")
        yield _("It stays suspended until somebody resumes it; no monitor does.")
    elif verb.slug == "leave":
        if trigger.member_of is not None:
            yield _(
                "From the next document on {trigger} goes without it; what is in progress ends as it began."
            ).format(trigger=trigger.member_of.name)
        else:
            yield _("From the next document on its trigger goes without it; what is in progress ends as it began.")
        yield _("It is disabled. Enabled again it takes what its own settings name: by default every document.")
    elif verb.slug == "disable":
        yield _("Documents that come from now on make no delivery to it.")
        yield _("What waits stays: {documents}. It goes on when the trigger is enabled.").format(documents=_waits(held))
    else:
        yield _("It takes documents again, and what waited is handed over: {documents}.").format(documents=_waits(held))


def _resumed(held: int, *, ordered: bool) -> str:
    if not held:
        return _("Nothing waits.")
    said = (
        _("What waits is handed over at once: {documents}, pair by pair in their order.")
        if ordered
        else _("What waits is handed over at once: {documents}.")
    )
    return said.format(documents=_waits(held))


def _waits(held: int) -> str:
    if not held:
        return _("nothing waits")
    return ngettext("{count} document", "{count} documents", held).format(count=number(held))


def _called(trigger: Trigger, verb: Verb) -> str:
    """Suspended for trouble, it can still be held, so that its monitor does not resume it."""
    return _("Hold") if verb.slug == "suspend" and trigger.state == TriggerState.SUSPENDED else verb.label


TRIGGERS = Resource(
    name=gettext_noop("trigger"),
    plural=gettext_noop("triggers"),
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
    why_not=lambda trigger: _("It is {state} now.").format(state=inside(TRIGGER_LOOKS[trigger.state].label)),
    verbs=(
        Verb(
            "resume",
            gettext_lazy("Resume"),
            "player-play",
            "primary",
            triggering.trigger_resume,
            (),
            gettext_lazy("What the application has processed cannot be taken back."),
            (
                gettext_lazy("The application is up again"),
                gettext_lazy("The resolver is up again"),
                gettext_lazy("Fixed on our side"),
            ),
            gettext_lazy("is resumed"),
            "Resume a suspended trigger: what waits is handed over, with a fresh budget of retries",
            scope="triggers:operate",
        ),
        Verb(
            "suspend",
            gettext_lazy("Suspend"),
            "player-pause",
            "",
            triggering.trigger_suspend,
            (),
            gettext_lazy("Nothing here is irreversible: resume the trigger and it goes on."),
            (gettext_lazy("The application's maintenance window"), gettext_lazy("Investigation")),
            gettext_lazy("is suspended"),
            "Hold a trigger until a person resumes it: documents are taken in and wait",
            scope="triggers:operate",
        ),
        Verb(
            "enable",
            gettext_lazy("Enable"),
            "power",
            "primary",
            triggering.trigger_enable,
            (),
            gettext_lazy("Documents that came while it was disabled are not handed over."),
            (gettext_lazy("Used again"),),
            gettext_lazy("is enabled"),
            "Switch a trigger on again: it takes documents, and what waited is handed over",
        ),
        Verb(
            "disable",
            gettext_lazy("Disable"),
            "power",
            "danger",
            triggering.trigger_disable,
            (),
            gettext_lazy(
                "Documents that come while it is disabled are never handed over to this application by themselves."
            ),
            (gettext_lazy("Not used any more"), gettext_lazy("Replaced by another trigger")),
            gettext_lazy("is disabled"),
            "Switch a trigger off: documents that come from now on do not go to it",
        ),
        Verb(
            "leave",
            gettext_lazy("Remove"),
            "minus",
            "danger",
            triggering.trigger_leave,
            (),
            gettext_lazy("What was processed together stays processed. It can become a member again."),
            (gettext_lazy("Not needed in this transaction any more"),),
            gettext_lazy("is not a member any more, and disabled"),
            "Remove a member from its atomic trigger: it is disabled, and takes documents of its own once enabled",
        ),
    ),
)
