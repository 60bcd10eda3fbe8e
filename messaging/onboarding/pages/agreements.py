"""Agreements as people change them: a new one, its draft's form, the verbs of its life, and its tests."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib import messages as notices
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import resolve_url
from django.utils.translation import gettext as _

from messaging.access.selectors.reach import read_id
from messaging.console.access import Person, actor, requires
from messaging.console.filters import Partner, partner_named
from messaging.console.rendering import page, posted, see_other
from messaging.journal.audit import Actor
from messaging.onboarding.pages import tables
from messaging.onboarding.pages.changing import About, Button, Subject, act, agreements_crumb, button, form_page
from messaging.onboarding.pages.forms import NewAgreementForm, VersionForm
from messaging.onboarding.selectors import report, reports
from messaging.onboarding.services import bench
from messaging.onboarding.services import changing as onboarding
from messaging.onboarding.services.changing import revision
from messaging.resource import Verb
from partners import selectors, services
from partners.choices import VersionState
from partners.models import Agreement, AgreementVersion
from rmhub.language import gettext_lazy

SCOPE = "agreements:write"


def _new_version(*, agreement_id: uuid.UUID, actor: Actor, reason: str, expected: str) -> AgreementVersion:
    """The reason is the note of the draft."""
    return onboarding.version_new(agreement_id=agreement_id, actor=actor, reason=reason, note=reason[:255])


ACTIVATE = Verb(
    "activate",
    gettext_lazy("Activate"),
    "player-play",
    "primary",
    onboarding.version_activate,
    (
        gettext_lazy("Messages that are submitted from now on run under it."),
        gettext_lazy("The version that was active is retired."),
    ),
    gettext_lazy(
        "An active version is frozen: changing it starts a new one. Messages on their way keep the version they have."
    ),
    (gettext_lazy("Tested with the partner"), gettext_lazy("Go-live")),
    gettext_lazy("is active"),
    scope=SCOPE,
)
DISCARD = Verb(
    "discard",
    gettext_lazy("Discard"),
    "x",
    "danger",
    onboarding.version_discard,
    (gettext_lazy("The draft is deleted."), gettext_lazy("With the only version, its agreement goes too.")),
    gettext_lazy("A draft that is discarded is gone; the audit log keeps what it was."),
    (gettext_lazy("Not needed"),),
    gettext_lazy("is discarded"),
    scope=SCOPE,
)
DISABLE = Verb(
    "disable",
    gettext_lazy("Disable"),
    "ban",
    "danger",
    onboarding.agreement_disable,
    (
        gettext_lazy("Its pairs are disabled: nothing is sent or taken under it."),
        gettext_lazy("What waits stays where it is."),
    ),
    gettext_lazy("Nothing here is irreversible: enable it and its pairs go on."),
    (gettext_lazy("Contract paused"), gettext_lazy("Investigation"), gettext_lazy("Contract ended")),
    gettext_lazy("is disabled"),
    scope=SCOPE,
)
ENABLE = Verb(
    "enable",
    gettext_lazy("Enable"),
    "player-play",
    "primary",
    onboarding.agreement_enable,
    (gettext_lazy("The version that was active is in force again."), gettext_lazy("What waits on its pairs is sent.")),
    gettext_lazy("What is sent cannot be taken back."),
    (gettext_lazy("Used again"),),
    gettext_lazy("is in force again"),
    scope=SCOPE,
)
NEW_VERSION = Verb(
    "new-version",
    gettext_lazy("New version"),
    "plus",
    "",
    _new_version,
    (gettext_lazy("The latest version once more, as a draft that can be edited."),),
    gettext_lazy("The active version stays in force until the draft is activated."),
    (gettext_lazy("Terms changed"), gettext_lazy("New endpoint")),
    gettext_lazy("has a draft"),
    scope=SCOPE,
)
VERBS = {verb.slug: verb for verb in (NEW_VERSION, DISABLE, ENABLE)}
VERSION_VERBS = {verb.slug: verb for verb in (ACTIVATE, DISCARD)}


def agreement_of(reference: str) -> Agreement:
    """The agreement of a URL. Raises Http404."""
    try:
        return selectors.agreement(read_id("agr", reference))
    except Agreement.DoesNotExist as error:
        raise Http404(_("There is no agreement {reference}.").format(reference=reference)) from error


def version_of(agreement: Agreement, number: int) -> AgreementVersion:
    """One version with all that belongs to its terms. Raises Http404."""
    found = next((one.pk for one in agreement.versions.all() if one.number == number), None)
    if found is None:
        raise Http404(_("{agreement} has no version {number}.").format(agreement=agreement.tpa_id, number=number))
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
            why = _("Something contradicts itself: see above.") if wrong and verb is ACTIVATE else ""
            found.append(button(verb, href, who, why))
    else:
        drafted = VersionState.DRAFT in states
        found.append(of_agreement(NEW_VERSION, _("There is a draft already: edit or activate it.") if drafted else ""))
    if version.state == VersionState.ACTIVE:
        found.append(of_agreement(DISABLE))
    if version.state == VersionState.DISABLED:
        found.append(of_agreement(ENABLE))
    return found


@requires(SCOPE, methods=("GET", "POST"))
def agreement_new(request: HttpRequest) -> HttpResponse:
    """With whom, as long as that is not known; then an agreement with version 1 as a draft."""
    partner, through = _partner(request, "partner"), _partner(request, "through")
    if partner.party is None or through.missing:
        context = {"partner": partner, "through": through}
        status = 422 if partner.missing or through.missing or request.method == "POST" else 200
        return page(request, "console/onboarding/agreement_with.html", context, status=status)

    def do(values: dict[str, Any]) -> HttpResponse:
        made = onboarding.agreement_create(**values)
        notices.success(request, _("{agreement} is created, as a draft.").format(agreement=made.tpa_id))
        return see_other("console:agreement", made.public_id)

    about = About(
        _("New agreement"),
        _("Create agreement"),
        resolve_url("console:agreements"),
        (agreements_crumb(),),
        lead=_("Version 1 is a draft: nothing is in force until you activate it."),
    )
    ends = {name: request.GET[name] for name in NewAgreementForm.ENDS if name in request.GET}
    ends |= {"partner": partner.party.public_id}
    typed = request.POST if request.method == "POST" else None
    form = NewAgreementForm(typed, initial=ends, partner=partner.party, through=through.party)
    return form_page(request, form, about, do, offers_hop=True, partner=partner, through=through)


def _partner(request: HttpRequest, name: str) -> Partner:
    """The partner of the form, else of the URL."""
    return partner_named(posted(request, name) or request.GET.get(name, ""))


@requires(SCOPE, methods=("GET", "POST"))
def version_edit(request: HttpRequest, reference: str, number: int) -> HttpResponse:
    """The form of a draft."""
    agreement = agreement_of(reference)
    version = version_of(agreement, number)
    here = resolve_url("console:agreement-version", agreement.public_id, number)

    def do(values: dict[str, Any]) -> HttpResponse:
        onboarding.version_edit(agreement_id=agreement.pk, number=number, **values)
        notices.success(request, _("Version {number} is changed.").format(number=number))
        return see_other(here)

    about = About(
        _("Change {agreement} v{number}").format(agreement=agreement.tpa_id, number=number),
        _("Save version {number}").format(number=number),
        here,
        (agreements_crumb(), (f"{agreement.tpa_id} v{number}", here)),
        "agreement",
        revision(version),
        lambda: revision(version_of(agreement_of(reference), number)),
    )
    through = _partner(request, "through")
    typed = request.POST if request.method == "POST" else None
    form = VersionForm(typed, instance=version, through=through.party)
    return form_page(request, form, about, do, offers_hop=True, through=through)


@requires(SCOPE, methods=("GET", "POST"))
def agreement_verb(request: HttpRequest, reference: str, verb: str) -> HttpResponse:
    """A new draft, out of force, or in force again."""
    chosen = VERBS.get(verb)
    if chosen is None:
        raise Http404(_("There is no verb {verb} for agreements.").format(verb=verb))

    def subject() -> Subject:
        agreement = agreement_of(reference)
        href = resolve_url("console:agreement", agreement.public_id)
        key = {"agreement_id": agreement.pk}
        return Subject(key, agreement.tpa_id, href, revision(agreement), (agreements_crumb(),))

    def draft() -> str:
        newest = max(one.number for one in agreement_of(reference).versions.all())
        return resolve_url("console:version-edit", reference, newest)

    return act(request, chosen, subject, to=draft if chosen is NEW_VERSION else None)


@requires(SCOPE, methods=("GET", "POST"))
def version_verb(request: HttpRequest, reference: str, number: int, verb: str) -> HttpResponse:
    """Activates or discards a draft."""
    chosen = VERSION_VERBS.get(verb)
    if chosen is None:
        raise Http404(_("There is no verb {verb} for versions.").format(verb=verb))

    def subject() -> Subject:
        agreement = agreement_of(reference)
        version = version_of(agreement, number)
        href = resolve_url("console:agreement-version", agreement.public_id, number)
        found = services.version_validate(version=version) if chosen is ACTIVATE and request.method == "GET" else ()
        return Subject(
            {"agreement_id": agreement.pk, "number": number},
            f"{agreement.tpa_id} v{number}",
            href,
            revision(version),
            (agreements_crumb(),),
            services.gives_up_sentence(version),
            tuple(one.sentence for one in found),
        )

    def left() -> str:
        there = Agreement.objects.filter(pk=read_id("agr", reference)).exists()
        return resolve_url("console:agreement", reference) if there else resolve_url("console:agreements")

    return act(request, chosen, subject, to=left)


@requires("agreements:read")
def bench_page(request: HttpRequest, reference: str, number: int) -> HttpResponse:
    """What a test of this version does, and the reports of earlier ones."""
    agreement = agreement_of(reference)
    version = version_of(agreement, number)
    context = {
        "agreement": agreement,
        "version": version,
        "sentence": services.gives_up_sentence(version),
        "reports": reports(agreement_id=agreement.pk)[:20],
    }
    return page(request, "console/onboarding/bench.html", context)


@requires(SCOPE, methods=("POST",))
def bench_run(request: HttpRequest, reference: str, number: int) -> HttpResponse:
    """Runs the test. It sends nothing but to the partner's test service, so it needs no reason."""
    agreement = agreement_of(reference)
    report = bench.run(agreement_id=agreement.pk, number=number, actor=actor(request))
    return see_other("console:bench-report", report.public_id)


@requires("agreements:read")
def bench_report(request: HttpRequest, reference: str) -> HttpResponse:
    """One report, which the print style sheet puts on paper."""
    found = report(reference)
    version = resolve_url("console:agreement-version", found.agreement.public_id, found.number)
    context = {"report": found, "steps": tables.bench(found), "version_href": version}
    return page(request, "console/onboarding/bench_report.html", context)
