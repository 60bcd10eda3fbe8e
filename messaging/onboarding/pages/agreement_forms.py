"""Agreements as people change them: a new one, its draft's form, and the verbs of its life."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.contrib import messages as notices
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import resolve_url

from messaging.access.selectors.reach import read_id
from messaging.console.access import Person, actor, requires
from messaging.console.rendering import see_other
from messaging.deliveries.pages.trigger_fields import Field, Group
from messaging.onboarding.pages.partner_fields import ENDS, TERMS, by_name
from messaging.onboarding.pages.partner_forms import (
    INVALID,
    MOST_CHOICES,
    REFUSED,
    Errors,
    FormPage,
    form_page,
    groups,
    posted,
    read,
    read_services,
    reason_of,
    refusals,
    services_text,
    summary,
    written,
)
from messaging.onboarding.pages.partner_verbs import Button, Subject, Verb, act, button, dialog
from messaging.onboarding.services import changing as onboarding
from messaging.onboarding.services import content as onboarding_content
from partners import selectors, services
from partners.choices import VersionState
from partners.models import Agreement, AgreementVersion
from rmhub.ids import BadPublicId

SCOPE = "agreements:write"
NEW: tuple[Group, ...] = (
    Group(
        "Agreement",
        "",
        (
            Field("tpa_id", "TPAId", "text", "It stands in every message, so both sides have the same."),
            Field("name", "Name", "text"),
            Field("own_party", "Our party", "select", choices=(("", "Choose one"),)),
            Field("partner", "Partner", "select", choices=(("", "Choose one"),)),
            Field("own_endpoint", "Our endpoint", "select", choices=(("", "Choose one"),)),
            Field("partner_endpoint", "The partner's endpoint", "select", choices=(("", "Choose one"),)),
        ),
    ),
)
_NEW, _EDIT = by_name((*NEW, *TERMS)), by_name((*ENDS, *TERMS))
_REFERENCES = {"own_party": "par", "partner": "par", "own_endpoint": "end", "partner_endpoint": "end"}
ACTIVATE = Verb(
    "activate",
    "Activate",
    "player-play",
    "primary",
    SCOPE,
    ("Messages that are submitted from now on run under it.", "The version that was active is retired."),
    "An active version is frozen: changing it starts a new one. Messages on their way keep the version they have.",
    ("Tested with the partner", "Go-live"),
    "is active",
)
DISCARD = Verb(
    "discard",
    "Discard",
    "x",
    "danger",
    SCOPE,
    ("The draft is deleted.", "With the only version, its agreement goes too."),
    "A draft that is discarded is gone; the audit log keeps what it was.",
    ("Not needed",),
    "is discarded",
)
DISABLE = Verb(
    "disable",
    "Disable",
    "ban",
    "danger",
    SCOPE,
    ("Its pairs are disabled: nothing is sent or taken under it.", "What waits stays where it is."),
    "Nothing here is final: enable it and its pairs go on.",
    ("Contract paused", "Investigation", "Contract ended"),
    "is disabled",
)
ENABLE = Verb(
    "enable",
    "Enable",
    "player-play",
    "primary",
    SCOPE,
    ("The version that was active is in force again.", "What waits on its pairs is sent."),
    "What is sent cannot be taken back.",
    ("Used again",),
    "is in force again",
)
NEW_VERSION = Verb(
    "new-version",
    "New version",
    "plus",
    "",
    SCOPE,
    ("The latest version once more, as a draft that can be edited.",),
    "The active version stays in force until the draft is activated.",
    ("Terms changed", "New endpoint"),
    "has a draft",
)
VERBS: Mapping[str, Verb] = {verb.slug: verb for verb in (NEW_VERSION, DISABLE, ENABLE)}
VERSION_VERBS: Mapping[str, Verb] = {verb.slug: verb for verb in (ACTIVATE, DISCARD)}


def agreement_of(reference: str) -> Agreement:
    """The agreement of a URL. Raises Http404."""
    try:
        return selectors.agreement(read_id("agr", reference))
    except Agreement.DoesNotExist as error:
        raise Http404(f"There is no agreement {reference}.") from error


def version_of(agreement: Agreement, number: int) -> AgreementVersion:
    """One version with all that belongs to its terms. Raises Http404."""
    found = next((one.pk for one in agreement.versions.all() if one.number == number), None)
    if found is None:
        raise Http404(f"{agreement.tpa_id} has no version {number}.")
    return selectors.version(found)


def buttons(version: AgreementVersion, agreement: Agreement, who: Person) -> list[Button]:
    """The verbs that a version's page offers."""
    reference, states = agreement.public_id, {one.state for one in agreement.versions.all()}

    def of_agreement(verb: Verb, why_not: str = "") -> Button:
        return button(verb, resolve_url("console:agreement-verb", reference, verb.slug), who, why_not)

    found = []
    if version.state == VersionState.DRAFT:
        wrong = any(one.level is services.Level.ERROR for one in services.version_validate(version=version))
        for verb in VERSION_VERBS.values():
            href = resolve_url("console:version-verb", reference, version.number, verb.slug)
            why = "Something contradicts itself: see above." if wrong and verb is ACTIVATE else ""
            found.append(button(verb, href, who, why))
    else:
        drafted = VersionState.DRAFT in states
        found.append(of_agreement(NEW_VERSION, "There is a draft already: edit or activate it." if drafted else ""))
    if version.state == VersionState.ACTIVE:
        found.append(of_agreement(DISABLE))
    if version.state == VersionState.DISABLED:
        found.append(of_agreement(ENABLE))
    return found


@requires(SCOPE, methods=("GET", "POST"))
def agreement_new(request: HttpRequest) -> HttpResponse:
    """An agreement with version 1 as a draft."""
    form = FormPage(
        "New agreement",
        "Make the agreement",
        resolve_url("console:agreements"),
        (("Agreements", resolve_url("console:agreements")),),
        icon="plus",
        lead="Version 1 is a draft: nothing is in force until you activate it.",
    )
    blank = _texts(AgreementVersion())
    texts = dict.fromkeys(_NEW, "") | {name: text for name, text in blank.items() if name in _NEW}
    texts |= {name: request.GET[name] for name in _REFERENCES if name in request.GET}
    errors: Errors = {}
    if request.method == "POST":
        texts = posted(_NEW, request.POST)
        values, errors = _values(_NEW, texts)
        if not errors:
            try:
                made = onboarding.agreement_create(actor=actor(request), reason=reason_of(request), **values)
            except INVALID as error:
                errors = refusals(error)
            else:
                notices.success(request, f"{made.tpa_id} is made, as a draft.")
                return see_other("console:agreement", made.public_id)
    shown = groups((*NEW, *TERMS), texts, errors, _choices(), unset=blank)
    return form_page(request, form, shown, summary(_NEW, errors))


@requires(SCOPE, methods=("GET", "POST"))
def version_edit(request: HttpRequest, reference: str, number: int) -> HttpResponse:
    """The form of a draft."""
    agreement = agreement_of(reference)
    version = version_of(agreement, number)
    here = resolve_url("console:agreement-version", agreement.public_id, number)
    form = FormPage(
        f"Edit {agreement.tpa_id} v{number}",
        f"Save version {number}",
        here,
        (("Agreements", resolve_url("console:agreements")), (f"{agreement.tpa_id} v{number}", here)),
    )
    texts, status = _texts(version), 0
    errors: Errors = {}
    expected = onboarding_content.revision(version)
    if request.method == "POST":
        texts = posted(_EDIT, request.POST)
        expected = request.POST.get("version", "")
        values, errors = _values(_EDIT, texts)
        if not expected:
            errors[""] = ["This form is not complete: open it again from the agreement's page."]
        if not errors:
            try:
                onboarding.version_edit(
                    agreement_id=agreement.pk,
                    number=number,
                    actor=actor(request),
                    reason=reason_of(request),
                    expected=expected,
                    **values,
                )
            except INVALID as error:
                errors = refusals(error)
            except REFUSED as error:
                errors, status = refusals(error), 409
                expected = onboarding_content.revision(version_of(agreement_of(reference), number))
            else:
                notices.success(request, f"Version {number} is changed.")
                return see_other(here)
    unset = _texts(AgreementVersion(profile=version.profile))
    return form_page(
        request,
        form,
        groups((*ENDS, *TERMS), texts, errors, _choices(), unset=unset),
        summary(_EDIT, errors),
        status=status,
        version=expected,
    )


@requires(SCOPE, methods=("GET", "POST"))
def agreement_verb(request: HttpRequest, reference: str, verb: str) -> HttpResponse:
    """A new draft, out of force, or in force again."""
    chosen = VERBS.get(verb)
    if chosen is None:
        raise Http404(f"There is no verb {verb} for agreements.")
    agreement_id = agreement_of(reference).pk
    service: Mapping[str, Callable[[str, str], object]] = {
        "new-version": lambda reason, _: onboarding.version_new(
            agreement_id=agreement_id, actor=actor(request), reason=reason, note=reason[:255]
        ),
        "disable": lambda reason, expected: onboarding.agreement_disable(
            agreement_id=agreement_id, actor=actor(request), reason=reason, expected=expected
        ),
        "enable": lambda reason, expected: onboarding.agreement_enable(
            agreement_id=agreement_id, actor=actor(request), reason=reason, expected=expected
        ),
    }

    def subject() -> Subject:
        agreement = agreement_of(reference)
        href = resolve_url("console:agreement", agreement.public_id)
        crumbs = (("Agreements", resolve_url("console:agreements")),)
        return Subject(agreement.tpa_id, href, onboarding_content.revision(agreement), crumbs)

    def draft() -> str:
        newest = max(one.number for one in agreement_of(reference).versions.all())
        return resolve_url("console:version-edit", reference, newest)

    if request.method == "GET":
        return dialog(request, chosen, subject())
    return act(request, chosen, subject, service[verb], to=draft if verb == "new-version" else None)


@requires(SCOPE, methods=("GET", "POST"))
def version_verb(request: HttpRequest, reference: str, number: int, verb: str) -> HttpResponse:
    """Activates or discards a draft."""
    chosen = VERSION_VERBS.get(verb)
    if chosen is None:
        raise Http404(f"There is no verb {verb} for versions.")
    agreement_id = agreement_of(reference).pk

    def subject() -> Subject:
        agreement = agreement_of(reference)
        version = version_of(agreement, number)
        href = resolve_url("console:agreement-version", agreement.public_id, number)
        crumbs = (("Agreements", resolve_url("console:agreements")),)
        said = services.gives_up_sentence(version)
        return Subject(f"{agreement.tpa_id} v{number}", href, onboarding_content.revision(version), crumbs, said)

    def service(reason: str, expected: str) -> object:
        change = onboarding.version_activate if verb == "activate" else onboarding.version_discard
        return change(agreement_id=agreement_id, number=number, actor=actor(request), reason=reason, expected=expected)

    def gone() -> str:
        left = Agreement.objects.filter(pk=agreement_id).exists()
        return resolve_url("console:agreement", reference) if left else resolve_url("console:agreements")

    if request.method == "GET":
        found = services.version_validate(version=version_of(agreement_of(reference), number))
        return dialog(request, chosen, subject(), warnings=tuple(one.sentence for one in found if verb == "activate"))
    return act(request, chosen, subject, service, to=gone)


def _texts(version: AgreementVersion) -> dict[str, str]:
    """What stands in the fields for a version; for a new one the defaults."""
    found = {
        name: written(field, getattr(version, name))
        for name, field in _EDIT.items()
        if name not in ("services", *_REFERENCES)
    }
    if version._state.adding:
        return {**found, "services": "", "own_endpoint": "", "partner_endpoint": ""}
    rows = [(one.service, one.action, one.direction) for one in version.services.all()]
    return {
        **found,
        "services": services_text(rows),
        "own_endpoint": version.own_endpoint.public_id,
        "partner_endpoint": version.partner_endpoint.public_id,
    }


def _values(fields: Mapping[str, Field], texts: Mapping[str, str]) -> tuple[dict[str, Any], Errors]:
    """The values of a posted form, under the names of the service's arguments."""
    values, errors = read(fields, texts)
    try:
        values["allowed"] = read_services(values.pop("services", ""))
    except ValueError as error:
        errors["services"] = [str(error)]
    for name, prefix in _REFERENCES.items():
        if name not in fields:
            continue
        text = values.pop(name, "")
        try:
            values[f"{name}_id"] = read_id(prefix, text)
        except BadPublicId:
            errors[name] = ["Choose one of the list."]
    return values, errors


def _choices() -> dict[str, tuple[tuple[str, str], ...]]:
    in_use = selectors.parties().filter(archived_at__isnull=True)
    ours = tuple((one.public_id, one.name) for one in in_use.filter(is_own=True)[:MOST_CHOICES])
    theirs = tuple((one.public_id, one.name) for one in in_use.filter(is_own=False)[:MOST_CHOICES])
    found = selectors.endpoints().filter(party__archived_at__isnull=True)

    def ends(own: bool) -> tuple[tuple[str, str], ...]:
        return tuple(
            (one.public_id, f"{one.party}: {one.uri}") for one in found.filter(party__is_own=own)[:MOST_CHOICES]
        )

    return {"own_party": ours, "partner": theirs, "own_endpoint": ends(True), "partner_endpoint": ends(False)}
