"""Verbs on partners, credentials and agreements that need a reason and nothing else: one dialog for all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.contrib import messages as notices
from django.http import HttpRequest, HttpResponse

from messaging.console.access import Person
from messaging.console.rendering import page, see_other
from messaging.onboarding.pages.partner_forms import INVALID, REFUSED, reason_of, refusals


@dataclass(frozen=True, slots=True)
class Verb:
    """`effects` say what happens, `forever` what cannot be undone; `done` completes "<name> …"."""

    slug: str
    label: str
    icon: str
    colour: str
    scope: str
    effects: tuple[str, ...]
    forever: str
    presets: tuple[str, ...]
    done: str


@dataclass(frozen=True, slots=True)
class Button:
    """A verb as a page offers it; `why_not` says why it cannot be pressed."""

    verb: Verb
    href: str
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Subject:
    """What a verb is about: its name, its page, and its revision as it is now."""

    name: str
    href: str
    version: str
    crumbs: tuple[tuple[str, str], ...] = ()
    now: str = ""


def button(verb: Verb, href: str, who: Person, why_not: str = "") -> Button:
    """The button, off when the person's role does not have the verb's scope."""
    missing = who.lacks(verb.scope)
    return Button(verb, href, f"Needs the role {missing}." if missing else why_not)


def dialog(
    request: HttpRequest,
    verb: Verb,
    subject: Subject,
    *,
    errors: dict[str, list[str]] | None = None,
    status: int = 200,
    warnings: tuple[str, ...] = (),
) -> HttpResponse:
    """The question, as a page or in a frame of the page that it was asked on."""
    listed = [(field if field == "reason" else "", text) for field, texts in (errors or {}).items() for text in texts]
    context: dict[str, Any] = {
        "verb": verb,
        "subject": subject,
        "errors": listed,
        "given": request.POST,
        "presets": verb.presets,
        "warnings": warnings,
    }
    fragments = {"dialog": "console/onboarding/partner_verb_form.html"}
    return page(request, "console/onboarding/partner_verb.html", context, fragments=fragments, status=status)


def act(
    request: HttpRequest,
    verb: Verb,
    read: Callable[[], Subject],
    service: Callable[[str, str], object],
    *,
    to: Callable[[], str] | None = None,
) -> HttpResponse:
    """POST of a verb: `service(reason, expected)` does it, or the dialog comes back and says why not.

    `read` tells what it is about, again after a refusal. `to`: where it goes afterwards, else back to the subject.
    """
    subject = read()
    version = request.POST.get("version", "")
    if not version:
        errors = {"": ["This form is not complete: open it again from the page that it is on."]}
        return dialog(request, verb, subject, errors=errors, status=422)
    try:
        service(reason_of(request), version)
    except REFUSED as error:
        return dialog(request, verb, read(), errors=refusals(error), status=409)
    except INVALID as error:
        return dialog(request, verb, subject, errors=refusals(error), status=422)
    notices.success(request, f"{subject.name} {verb.done}.")
    return see_other(to() if to is not None else subject.href)
