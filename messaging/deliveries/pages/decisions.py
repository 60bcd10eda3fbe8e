"""What people can decide about documents in doubt, as buttons and dialogs: of one, and of a whole evidence group.

The decisions themselves are `services.settling`'s; a test holds these tables against it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from messaging.console.access import Person
from messaging.console.rendering import page, problems
from messaging.exceptions import ApplicationError, InvalidSubmission
from messaging.models import Trigger
from rmhub.language import gettext_lazy, number

SCOPE = "indoubt:resolve"
REMIND: tuple[tuple[int, str], ...] = (
    (3600, gettext_lazy("in 1 hour")),
    (4 * 3600, gettext_lazy("in 4 hours")),
    (86_400, gettext_lazy("tomorrow, at this time")),
    (7 * 86_400, gettext_lazy("in a week")),
)


@dataclass(frozen=True, slots=True)
class Many:
    """What a dialog is about: one document (`count` 1) or a group. `where`: the trigger's name or the pair's code.

    `where` may be empty for messages of several pairs. `failed`: the application's service ended with an error; else
    they are in doubt. `remembered`: in the history.
    """

    count: int
    where: str
    resolver: str = ""
    failed: bool = False
    remembered: bool = True


@dataclass(frozen=True, slots=True)
class Choice:
    """One decision. `done`: the sentence that says so. `heavy`: cannot be taken back, so that for a group the dialog
    asks for its count as well.
    """

    slug: str
    label: str
    icon: str
    colour: str
    effects: Callable[[Many], list[str]]
    forever: str
    presets: tuple[str, ...]
    done: str
    heavy: bool = False


def many_of(trigger: Trigger, count: int, *, failed: bool = False) -> Many:
    """The documents of a trigger that a dialog is about."""
    remembered = trigger.detect_duplicates and trigger.use_history
    return Many(count, trigger.name, trigger.resolver_url or trigger.resolver_callable, failed, remembered)


def _processed(many: Many) -> list[str]:
    one = many.count == 1
    if many.failed:
        said = (
            _("The document is left as processed, and no longer listed as failed. Nothing is handed over.")
            if one
            else _(
                "All {count} documents are left as processed, and no longer listed as failed. Nothing is handed over."
            )
        )
        return [said.format(count=number(many.count))]
    said = (
        _("The document is taken as processed: {trigger} is not given it again.")
        if one
        else _("All {count} documents are taken as processed: {trigger} is not given them again.")
    )
    return [
        said.format(count=number(many.count), trigger=many.where),
        _("The document history says “completed, by a person”, and later copies are duplicates.")
        if many.remembered
        else _("The trigger keeps no history: a later copy is decided by itself."),
    ]


def _resubmit(many: Many) -> list[str]:
    one = many.count == 1
    said = (
        _(
            "A new delivery is made for {trigger}, at the old place in the order, and processed whatever the history "
            "says."
        )
        if one
        else _(
            "{count} new deliveries are made for {trigger}, at the old place in the order, and processed whatever the "
            "history says."
        )
    )
    return [
        said.format(count=number(many.count), trigger=many.where),
        _old(many),
        _("What the application did before it failed, it may do a second time.")
        if many.failed
        else _("If the application has processed it already, it processes it a second time.")
        if one
        else _("Whatever the application has processed already, it processes a second time."),
    ]


def _old(many: Many) -> str:
    if many.count == 1:
        return (
            _("The one that failed stays on record as settled.")
            if many.failed
            else _("The one that is in doubt stays on record as settled.")
        )
    return (
        _("Those that failed stay on record as settled.")
        if many.failed
        else _("Those that are in doubt stay on record as settled.")
    )


def _ask(many: Many) -> list[str]:
    said = (
        _("The document is decided again, and the resolver {resolver} is asked.")
        if many.count == 1
        else _("All {count} documents are decided again, and the resolver {resolver} is asked.")
    )
    return [
        said.format(count=number(many.count), resolver=many.resolver),
        _(
            "If it says NEW, the document is processed; DUPLICATE, it is discarded; anything else, it is in doubt "
            "again."
        ),
    ]


def _later(many: Many) -> list[str]:
    return [
        _("Nothing changes but the reminder: until then it is not counted among what needs somebody.")
        if many.count == 1
        else _("Nothing changes but the reminder: until then they are not counted among what needs somebody."),
    ]


def _delivered(many: Many) -> list[str]:
    if many.where:
        said = (
            _("The document counts as delivered on {pair}. Nothing is sent.")
            if many.count == 1
            else _("All {count} documents count as delivered on {pair}. Nothing is sent.")
        )
    else:
        said = (
            _("The document counts as delivered. Nothing is sent.")
            if many.count == 1
            else _("All {count} documents count as delivered. Nothing is sent.")
        )
    return [said.format(count=number(many.count), pair=many.where)]


def _send_anew(many: Many) -> list[str]:
    one = many.count == 1
    if many.where:
        said = (
            _("The document is submitted again on {pair}, as a new message with a new MessageId, same conversation.")
            if one
            else _(
                "All {count} documents are submitted again on {pair}, as new messages with new MessageIds, same "
                "conversation."
            )
        )
    else:
        said = (
            _("The document is submitted again, as a new message with a new MessageId, same conversation.")
            if one
            else _("All {count} documents are submitted again, as new messages with new MessageIds, same conversation.")
        )
    return [
        said.format(count=number(many.count), pair=many.where),
        _("The partner cannot see that it is the same document: if they have it, they process it a second time."),
        _("The old message counts as skipped.") if one else _("The old messages count as skipped."),
    ]


_AGAIN = gettext_lazy("What is processed a second time cannot be undone here: look into the application first.")
_NOT_AGAIN = gettext_lazy("A document that was not processed after all is then lost to the application: look first.")

DELIVERY: Mapping[str, Choice] = {
    choice.slug: choice
    for choice in (
        Choice(
            "duplicate",
            gettext_lazy("Mark as processed"),
            "check",
            "",
            _processed,
            _NOT_AGAIN,
            (gettext_lazy("Its effect is in the application"), gettext_lazy("Entered by hand in the application")),
            gettext_lazy("The document is settled: processed already."),
            heavy=True,
        ),
        Choice(
            "resubmit",
            gettext_lazy("Process now"),
            "arrow-forward-up",
            "",
            _resubmit,
            _AGAIN,
            (
                gettext_lazy("Its effect is not in the application"),
                gettext_lazy("The application was restored from a backup"),
            ),
            gettext_lazy("The document is resubmitted."),
            heavy=True,
        ),
        Choice(
            "ask",
            gettext_lazy("Ask the resolver"),
            "message-question",
            "",
            _ask,
            gettext_lazy("Nothing here is irreversible: the resolver decides, or it is in doubt again."),
            (gettext_lazy("The resolver is up again"), gettext_lazy("The resolver was corrected")),
            gettext_lazy("The document is on its way to the resolver."),
        ),
        Choice(
            "later",
            gettext_lazy("Put off"),
            "bell",
            "",
            _later,
            gettext_lazy("Nothing here is irreversible."),
            (gettext_lazy("The application's people are asked"), gettext_lazy("Waiting for the month's closing")),
            gettext_lazy("The document is put off."),
        ),
    )
}
MESSAGE: Mapping[str, Choice] = {
    choice.slug: choice
    for choice in (
        Choice(
            "delivered",
            gettext_lazy("Mark as delivered"),
            "check",
            "",
            _delivered,
            gettext_lazy("A document that the partner has not got after all is then lost to them: ask first."),
            (gettext_lazy("Partner confirmed by telephone"), gettext_lazy("Partner confirmed by mail")),
            gettext_lazy("The message is settled: the partner has it."),
            heavy=True,
        ),
        Choice(
            "resubmit",
            gettext_lazy("Send as new"),
            "arrow-forward-up",
            "",
            _send_anew,
            gettext_lazy("What has been sent cannot be unsent: ask the partner first."),
            (gettext_lazy("Partner says they do not have it"),),
            gettext_lazy("The message is sent as a new message."),
            heavy=True,
        ),
        Choice(
            "later",
            gettext_lazy("Put off"),
            "bell",
            "",
            _later,
            gettext_lazy("Nothing here is irreversible."),
            (gettext_lazy("Partner is asked"),),
            gettext_lazy("The message is put off."),
        ),
    )
}


@dataclass(frozen=True, slots=True)
class ChoiceButton:
    """A decision on a page, with its dialog's address. `why_not`: the state, or the role, that is in the way."""

    choice: Choice
    href: str
    why_not: str
    label: str

    @property
    def enabled(self) -> bool:
        return not self.why_not


def button(who: Person, choice: Choice, href: str, why_not: str = "", label: str = "") -> ChoiceButton:
    """A decision as this person may take it."""
    missing = who.lacks(SCOPE)
    if missing:
        why_not = _("Needs the role {role}.").format(role=missing)
    return ChoiceButton(choice, href, why_not, label or choice.label)


def confirmed(text: str, seen: str) -> bool:
    """Whether what was typed is this number, however the language parts its thousands."""
    return re.sub(r"(?<=\d)[\s.,’'](?=\d{3}(?!\d))", "", text.strip()) == seen


def settle(
    request: HttpRequest,
    choice: Choice,
    shown: Callable[[bool], dict[str, Any]],
    do: Callable[[str, int | None], HttpResponse],
    wrong: Sequence[tuple[str, str]] = (),
) -> HttpResponse:
    """The dialog of a decision, as a page or in a frame; a POST decides (`do(reason, remind_in)`), or says why not.

    `shown(refused)`: what the dialog is about, as it is now when it was refused. `wrong`: what else is the matter with
    what was posted.
    """
    errors: list[tuple[str, str]] = []
    status, refused = 200, False
    if request.method == "POST":
        later = choice.slug == "later"
        remind_in = next((one for one, __ in REMIND if str(one) == request.POST.get("remind_in", "")), None)
        if "\x00" in request.POST.get("reason", ""):
            errors.append(("reason", _("There is a control character in this text: remove it.")))
        if later and remind_in is None:
            errors.append(("remind_in", _("Choose when it is to be shown again.")))
        errors, status = [*errors, *wrong], 422
        if not errors:
            try:
                return do(request.POST.get("reason", "").strip(), remind_in if later else None)
            except InvalidSubmission as error:
                errors = problems(error)
            except ApplicationError as error:
                errors, status, refused = problems(error), 409, True
    form = "console/deliveries/decision_form.html"
    context = {
        "form": form,
        "title": choice.label,
        "choice": choice,
        "remind": REMIND if choice.slug == "later" else (),
        "given": request.POST,
        **shown(refused),
        "errors": errors,
    }
    return page(request, "console/parts/dialog.html", context, fragments={"dialog": form}, status=status)
