"""What people can decide about documents in doubt, as buttons and dialogs: of one, and of a whole evidence group.

The decisions themselves are `services.settling`'s; a test holds these tables against it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse

from messaging.console.access import Person
from messaging.console.rendering import page, problems
from messaging.exceptions import ApplicationError, InvalidSubmission
from messaging.models import Trigger

SCOPE = "indoubt:resolve"
REMIND: tuple[tuple[int, str], ...] = (
    (3600, "in 1 hour"),
    (4 * 3600, "in 4 hours"),
    (86_400, "tomorrow, at this time"),
    (7 * 86_400, "in a week"),
)


@dataclass(frozen=True, slots=True)
class Many:
    """What a dialog is about: one document (`count` 1) or a group. `where`: the trigger's name or the pair's code.

    `failed`: the application's service ended with an error; else they are in doubt. `remembered`: in the history.
    """

    count: int
    where: str
    resolver: str = ""
    failed: bool = False
    remembered: bool = True

    @property
    def it(self) -> str:
        return "it" if self.count == 1 else "them"

    @property
    def documents(self) -> str:
        return "The document" if self.count == 1 else f"All {self.count:,} documents"

    @property
    def each(self) -> str:
        return "is" if self.count == 1 else "are"


@dataclass(frozen=True, slots=True)
class Choice:
    """One decision. `heavy`: cannot be taken back, so that for a group the dialog asks for its count as well."""

    slug: str
    label: str
    group_label: str
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
    if many.failed:
        return [
            f"{many.documents} {many.each} left as processed, and no longer listed as failed. Nothing is handed over."
        ]
    return [
        f"{many.documents} {many.each} taken as processed: {many.where} is not given {many.it} again.",
        "The document history says “completed, by a person”, and later copies are duplicates."
        if many.remembered
        else "The trigger keeps no history: a later copy is decided by itself.",
    ]


def _resubmit(many: Many) -> list[str]:
    name = "A new delivery is" if many.count == 1 else f"{many.count:,} new deliveries are"
    return [
        f"{name} made for {many.where}, at the old place in the order, and processed whatever the history says.",
        f"{_old(many)} on record as settled.",
        "What the application did before it failed, it may do a second time."
        if many.failed
        else "If the application has processed it already, it processes it a second time."
        if many.count == 1
        else "Whatever the application has processed already, it processes a second time.",
    ]


def _old(many: Many) -> str:
    state = "failed" if many.failed else "is in doubt" if many.count == 1 else "are in doubt"
    return f"The one that {state} stays" if many.count == 1 else f"Those that {state} stay"


def _ask(many: Many) -> list[str]:
    return [
        f"{many.documents} {many.each} decided again, and the resolver {many.resolver} is asked.",
        "If it says NEW, the document is processed; DUPLICATE, it is discarded; anything else, it is in doubt again.",
    ]


def _later(many: Many) -> list[str]:
    return [
        "Nothing changes but the reminder: until then it is not counted among what needs somebody."
        if many.count == 1
        else "Nothing changes but the reminder: until then they are not counted among what needs somebody.",
    ]


def _delivered(many: Many) -> list[str]:
    return [
        f"{many.documents} {'counts' if many.count == 1 else 'count'} as delivered on {many.where}. Nothing is sent.",
    ]


def _send_anew(many: Many) -> list[str]:
    one = many.count == 1
    return [
        f"{many.documents} {many.each} submitted again on {many.where}, as "
        f"{'a new message with a new MessageId' if one else 'new messages with new MessageIds'}, same conversation.",
        "The partner cannot see that it is the same document: if they have it, they process it a second time.",
        f"The old {'message counts' if one else 'messages count'} as skipped.",
    ]


_AGAIN = "What is processed a second time cannot be undone here: look into the application first."
_NOT_AGAIN = "A document that was not processed after all is then lost to the application: look first."

DELIVERY: Mapping[str, Choice] = {
    choice.slug: choice
    for choice in (
        Choice(
            "duplicate",
            "Processed already",
            "Mark as processed",
            "check",
            "",
            _processed,
            _NOT_AGAIN,
            ("Its effect is in the application", "Entered by hand in the application"),
            "settled: processed already",
            heavy=True,
        ),
        Choice(
            "resubmit",
            "Process now",
            "Process now",
            "arrow-forward-up",
            "",
            _resubmit,
            _AGAIN,
            ("Its effect is not in the application", "The application was restored from a backup"),
            "resubmitted",
            heavy=True,
        ),
        Choice(
            "ask",
            "Ask the resolver",
            "Ask the resolver",
            "message-question",
            "",
            _ask,
            "Nothing here is irreversible: the resolver decides, or it is in doubt again.",
            ("The resolver is up again", "The resolver was corrected"),
            "on its way to the resolver",
        ),
        Choice(
            "later",
            "Later",
            "Later",
            "bell",
            "",
            _later,
            "Nothing here is irreversible.",
            ("The application's people are asked", "Waiting for the month's closing"),
            "put off",
        ),
    )
}
MESSAGE: Mapping[str, Choice] = {
    choice.slug: choice
    for choice in (
        Choice(
            "delivered",
            "Partner has it",
            "Mark as delivered",
            "check",
            "",
            _delivered,
            "A document that the partner has not got after all is then lost to them: ask first.",
            ("Partner confirmed by telephone", "Partner confirmed by mail"),
            "settled: the partner has it",
            heavy=True,
        ),
        Choice(
            "resubmit",
            "Send as new",
            "Send as new",
            "arrow-forward-up",
            "",
            _send_anew,
            "What has been sent cannot be unsent: ask the partner first.",
            ("Partner says they do not have it",),
            "sent as a new message",
            heavy=True,
        ),
        Choice(
            "later",
            "Later",
            "Later",
            "bell",
            "",
            _later,
            "Nothing here is irreversible.",
            ("Partner is asked",),
            "put off",
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
    return ChoiceButton(choice, href, f"Needs the role {missing}." if missing else why_not, label or choice.label)


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
        remind_in = next((one for one, _ in REMIND if str(one) == request.POST.get("remind_in", "")), None)
        if "\x00" in request.POST.get("reason", ""):
            errors.append(("reason", "There is a control character in this text: remove it."))
        if later and remind_in is None:
            errors.append(("remind_in", "Choose when it is to be shown again."))
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
