"""How people change what belongs to a partner: the page of a form, and the dialog of a verb, with what is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib import messages as notices
from django.http import HttpRequest, HttpResponse
from django.shortcuts import resolve_url
from django.utils.translation import gettext as _

from messaging.console.access import Person, actor
from messaging.console.rendering import page, see_other
from messaging.deliveries.pages.triggers import once
from messaging.onboarding.pages.forms import INVALID, REFUSED, Errors, PartnerForm, reason_of, refusals
from messaging.resource import Verb
from rmhub.language import gettext_lazy

_INCOMPLETE = {
    "partner": gettext_lazy("This form is not complete: open it again from the partner's page."),
    "endpoint": gettext_lazy("This form is not complete: open it again from the endpoint's page."),
    "agreement": gettext_lazy("This form is not complete: open it again from the agreement's page."),
}
Crumbs = tuple[tuple[str, str], ...]  # (text, URL) each


@dataclass(frozen=True, slots=True)
class About:
    """What stands around the fields: `label` is the verb of the button, `leave` where the other one goes.

    Of a form that changes something: `whose` is the page that leads here ("partner"), `version` the revision that it
    shows, `again` tells the revision after a refusal.
    """

    title: str
    label: str
    leave: str
    crumbs: Crumbs
    whose: str = ""
    version: str = ""
    again: Callable[[], str] = str
    lead: str = ""


@dataclass(frozen=True, slots=True)
class Button:
    """A verb as a page offers it; `why_not` says why it cannot be pressed."""

    verb: Verb
    href: str
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Subject:
    """What a verb is about: the key by which services take it, its name, its page, and its revision as it is now."""

    key: Mapping[str, Any]
    name: str
    href: str
    version: str
    crumbs: Crumbs = ()
    now: str = ""
    warnings: tuple[str, ...] = ()


def partners_crumb() -> tuple[str, str]:
    return _("Partners"), resolve_url("console:partners")


def agreements_crumb() -> tuple[str, str]:
    return _("Agreements"), resolve_url("console:agreements")


def form_page(
    request: HttpRequest,
    form: PartnerForm,
    about: About,
    do: Callable[[dict[str, Any]], HttpResponse],
    *,
    mark: str = "",
    **context: Any,
) -> HttpResponse:
    """The form; a POST is read, and `do` takes its values, with actor, reason, and the version that the person saw.

    `mark`: the name of the mark that lets it be posted only once.
    """
    status, version = 200, about.version
    if request.method == "POST":
        given = {"actor": actor(request), "reason": reason_of(request)}
        form.full_clean()
        if about.version:
            given["expected"] = version = request.POST.get("version", "")
            if not version:
                form.add_error(None, _INCOMPLETE[about.whose])
        if not form.errors:
            try:
                return do(form.settings | given)
            except INVALID as error:
                form.refuse(refusals(error))
            except REFUSED as error:
                form.refuse(refusals(error))
                status, version = 409, about.again()
    wrong = form.wrong()
    known = {"form": form, "about": about, "version": version, "errors": wrong, "given": request.POST}
    known |= {"sign": "check", "note": form.note} if about.version else {"sign": "plus"}
    if mark:
        known["once"] = once(request, mark)
    status = status if status != 200 or not wrong else 422
    return page(request, "console/onboarding/partner_form.html", known | context, status=status)


def button(verb: Verb, href: str, who: Person, why_not: str = "") -> Button:
    """The button, off when the person's role does not have the verb's scope."""
    missing = who.lacks(verb.scope)
    return Button(verb, href, _("Needs the role {role}.").format(role=missing) if missing else why_not)


def why_not(who: Person, scope: str) -> str:
    """Why somebody cannot press what needs the scope; "" when they can."""
    missing = who.lacks(scope)
    return _("Needs the role {role}.").format(role=missing) if missing else ""


def act(
    request: HttpRequest,
    verb: Verb,
    read: Callable[[], Subject],
    *,
    to: Callable[[], str] | None = None,
) -> HttpResponse:
    """The dialog of a verb; a POST does it, or the dialog comes back and says why not.

    `read` tells what it is about, again after a refusal. `to`: where it goes afterwards, else back to the subject.
    """
    errors: Errors = {}
    subject, status = read(), 200
    if request.method == "POST":
        version = request.POST.get("version", "")
        try:
            if version:
                verb.service(**subject.key, actor=actor(request), reason=reason_of(request), expected=version)
                notices.success(request, f"{subject.name} {verb.done}.")
                return see_other(to() if to is not None else subject.href)
            errors, status = {"": [_("This form is not complete: open it again from the page that it is on.")]}, 422
        except REFUSED as error:
            subject, errors, status = read(), refusals(error), 409
        except INVALID as error:
            errors, status = refusals(error), 422
    context = {
        "verb": verb,
        "form": "console/parts/verb_form.html",
        "title": _("{verb}: {name}").format(verb=verb.label, name=subject.name),
        "href": subject.href,
        "version": subject.version,
        "crumbs": [*((href, name) for name, href in subject.crumbs), (subject.href, subject.name)],
        "now": subject.now,
        "warnings": subject.warnings,
        "possible": True,
        "effects": verb.effects,
        "errors": [(name if name == "reason" else "", text) for name, texts in errors.items() for text in texts],
        "given": request.POST,
    }
    fragments = {"dialog": "console/parts/verb_form.html"}
    return page(request, "console/parts/dialog.html", context, fragments=fragments, status=status)
