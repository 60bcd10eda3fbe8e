"""Parties, their endpoints and credentials as people change them; what is made up for a credential is shown once."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib import messages as notices
from django.core.exceptions import ObjectDoesNotExist, ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import resolve_url
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables

from messaging.access.selectors.reach import read_id
from messaging.console import zones
from messaging.console.access import actor, requires
from messaging.console.rendering import page, see_other
from messaging.deliveries.pages.triggers import used_already
from messaging.journal.audit import Actor
from messaging.models import ProbeReport
from messaging.onboarding.pages.changing import About, Crumbs, Subject, act, form_page, partners_crumb
from messaging.onboarding.pages.fields import PemFile
from messaging.onboarding.pages.forms import (
    INVALID,
    REFUSED,
    ChangedPartyForm,
    CredentialForm,
    EndpointForm,
    Errors,
    NewPartyForm,
    reason_of,
    refusals,
    way_back,
)
from messaging.onboarding.services import changing as onboarding
from messaging.onboarding.services.changing import revision
from messaging.resource import Verb
from partners import certificates, selectors
from partners.certificates import CertificateFacts
from partners.choices import CredentialDirection, CredentialKind
from partners.models import Credential, Endpoint, Party
from rmhub import clock
from rmhub.ids import BadPublicId
from rmhub.language import gettext_lazy, pgettext_lazy

SCOPE = "partners:write"
_ONCE = "credential_form"
_TRUST_PRESETS = (
    gettext_lazy("Certificate replaced by the partner"),
    gettext_lazy("New partner"),
    gettext_lazy("Certificate expired"),
)
ARCHIVE = Verb(
    "archive",
    pgettext_lazy("verb", "Archive"),
    "inbox",
    "danger",
    onboarding.party_archive,
    (
        gettext_lazy("It is not offered in forms any more."),
        gettext_lazy("The hub accepts none of its credentials from now on."),
    ),
    gettext_lazy("Messages, agreements and the audit log stay. Restore it at any time."),
    (gettext_lazy("Contract ended"), gettext_lazy("Replaced by another partner")),
    gettext_lazy("is archived"),
    scope=SCOPE,
)
RESTORE = Verb(
    "restore",
    gettext_lazy("Restore"),
    "refresh",
    "primary",
    onboarding.party_restore,
    (gettext_lazy("It is offered again."), gettext_lazy("The hub accepts its valid credentials again.")),
    gettext_lazy("Nothing here is irreversible."),
    (gettext_lazy("Used again"),),
    gettext_lazy("is in use again"),
    scope=SCOPE,
)
VERBS = {verb.slug: verb for verb in (ARCHIVE, RESTORE)}


def _revoke(*, credential_id: uuid.UUID, actor: Actor, reason: str, expected: str) -> Credential:
    """What is ended stays so, whatever the person saw of it."""
    return onboarding.credential_revoke(credential_id=credential_id, actor=actor, reason=reason)


REVOKE = Verb(
    "revoke",
    gettext_lazy("Revoke"),
    "key",
    "danger",
    _revoke,
    (
        gettext_lazy("From now on it is neither accepted nor used."),
        gettext_lazy("Others of the same party stay as they are."),
    ),
    gettext_lazy("A revoked credential stays revoked: create another one."),
    (gettext_lazy("Replaced"), gettext_lazy("Secret became known"), gettext_lazy("Not used any more")),
    gettext_lazy("is revoked"),
    scope=SCOPE,
)


def party_of(reference: str) -> Party:
    """The party of a URL. Raises Http404."""
    try:
        return selectors.party(read_id("par", reference))
    except Party.DoesNotExist as error:
        raise Http404(_("There is no party {reference}.").format(reference=reference)) from error


def endpoint_of(reference: str) -> Endpoint:
    """The endpoint of a URL. Raises Http404."""
    try:
        return selectors.endpoint(read_id("end", reference))
    except Endpoint.DoesNotExist as error:
        raise Http404(_("There is no endpoint {reference}.").format(reference=reference)) from error


def _posted(request: HttpRequest) -> tuple[Any, Any]:
    """What a form is made from."""
    return (request.POST, request.FILES) if request.method == "POST" else (None, None)


def _party_crumbs(party: Party) -> Crumbs:
    return partners_crumb(), (party.name, resolve_url("console:partner", party.public_id))


@requires(SCOPE, methods=("GET", "POST"))
def party_new(request: HttpRequest) -> HttpResponse:
    """A party and nothing else; the wizard makes a partner with all that belongs to it."""

    def do(values: dict[str, Any]) -> HttpResponse:
        made = onboarding.party_create(**values)
        notices.success(request, _("{name} is created.").format(name=made.name))
        return see_other("console:partner", made.public_id)

    about = About(_("New party"), _("Create party"), resolve_url("console:partners"), (partners_crumb(),))
    return form_page(request, NewPartyForm(*_posted(request)), about, do)


@requires(SCOPE, methods=("GET", "POST"))
def party_edit(request: HttpRequest, reference: str) -> HttpResponse:
    """The form of a party that there is."""
    party = party_of(reference)
    crumbs = _party_crumbs(party)
    here = crumbs[-1][1]

    def do(values: dict[str, Any]) -> HttpResponse:
        onboarding.party_update(party_id=party.pk, **values)
        notices.success(request, _("{name} is changed.").format(name=values["name"]))
        return see_other(here)

    title = _("Change {name}").format(name=party.name)
    about = About(title, title, here, crumbs, "partner", revision(party), lambda: revision(party_of(reference)))
    return form_page(request, ChangedPartyForm(*_posted(request), instance=party), about, do, party=party)


@requires(SCOPE, methods=("GET", "POST"))
def party_verb(request: HttpRequest, reference: str, verb: str) -> HttpResponse:
    """Archives or restores."""
    chosen = VERBS.get(verb)
    if chosen is None:
        raise Http404(_("There is no verb {verb} for partners.").format(verb=verb))

    def subject() -> Subject:
        party = party_of(reference)
        href = resolve_url("console:partner", party.public_id)
        return Subject({"party_id": party.pk}, party.name, href, revision(party), (partners_crumb(),))

    return act(request, chosen, subject)


@requires(SCOPE, methods=("GET", "POST"))
def endpoint_new(request: HttpRequest, reference: str) -> HttpResponse:
    """An endpoint of this party."""
    party = party_of(reference)
    crumbs = _party_crumbs(party)

    def do(values: dict[str, Any]) -> HttpResponse:
        made = onboarding.endpoint_create(party_id=party.pk, **values)
        notices.success(
            request, _("Endpoint {name} of {partner} is created.").format(name=made.name, partner=party.name)
        )
        return see_other("console:endpoint", made.public_id)

    about = About(
        _("New endpoint of {partner}").format(partner=party.name), _("Create endpoint"), crumbs[-1][1], crumbs
    )
    return form_page(request, EndpointForm(*_posted(request)), about, do, party=party)


@requires(SCOPE, methods=("GET", "POST"))
def endpoint_edit(request: HttpRequest, reference: str) -> HttpResponse:
    """The form of an endpoint that there is."""
    endpoint = endpoint_of(reference)
    here = resolve_url("console:endpoint", endpoint.public_id)

    def do(values: dict[str, Any]) -> HttpResponse:
        onboarding.endpoint_update(endpoint_id=endpoint.pk, **values)
        notices.success(request, _("Endpoint {name} is changed.").format(name=values["name"]))
        return see_other(here)

    about = About(
        _("Change endpoint {name}").format(name=endpoint.name),
        _("Change {name}").format(name=endpoint.name),
        here,
        (*_party_crumbs(endpoint.party), (endpoint.name, here)),
        "endpoint",
        revision(endpoint),
        lambda: revision(endpoint_of(reference)),
        lead=endpoint.uri,
    )
    return form_page(request, EndpointForm(*_posted(request), instance=endpoint), about, do, party=endpoint.party)


@requires(SCOPE, methods=("GET", "POST"))
def endpoint_certificates(request: HttpRequest, reference: str) -> HttpResponse:
    """GET: the dialog. POST: what is pasted or uploaded takes the place of what there was; empty takes all away."""
    endpoint = endpoint_of(reference)
    here = resolve_url("console:endpoint", endpoint.public_id)
    errors: Errors = {}
    text, status = request.POST.get("certificates", "").replace("\x00", ""), 200
    shown = None
    if request.method != "POST" and (shown := _shown_to_us(endpoint, request.GET.get("report", ""))):
        text = shown.pem
    if request.method == "POST":
        version = request.POST.get("version", "")
        try:
            text = PemFile(required=False).clean(request.FILES.get("certificates_file")) or text
        except ValidationError as error:
            errors["certificates_file"] = error.messages
        if not version:
            errors[""] = [_("This form is not complete: open it again from the endpoint's page.")]
        # Both hold until the partner has changed over.
        kept = f"{text}\n{endpoint.trusted_certificates}" if request.POST.get("keep") else text
        try:
            if not errors:
                onboarding.endpoint_trust(
                    endpoint_id=endpoint.pk,
                    certificates_pem=kept,
                    actor=actor(request),
                    reason=reason_of(request),
                    expected=version,
                )
                notices.success(request, _("The certificates are replaced. They apply from the next connection on."))
                return see_other(way_back(request, here))
            status = 422
        except INVALID as error:
            errors, status = refusals(error), 422
        except REFUSED as error:
            errors, status, endpoint = refusals(error), 409, endpoint_of(reference)
    fields = {"trusted_certificates": "certificates", "certificates_file": "certificates_file", "reason": "reason"}
    form = "console/onboarding/endpoint_certificates_form.html"
    party = endpoint.party
    context = {
        "form": form,
        "title": _("Certificates of {name}").format(name=endpoint.name),
        "heading": _("Replace certificates"),
        "crumbs": [*((href, name) for name, href in _party_crumbs(party)), (here, endpoint.name)],
        "endpoint": endpoint,
        "trusted": certificates.read(endpoint.trusted_certificates),
        "now": clock.now(),
        "version": revision(endpoint),
        "text": text,
        "shown": shown,
        "errors": [(fields.get(name, ""), one) for name, texts in errors.items() for one in texts],
        "given": request.POST,
        "presets": _TRUST_PRESETS,
        "next": way_back(request, ""),
        "leave": way_back(request, here),
    }
    return page(request, "console/parts/dialog.html", context, fragments={"dialog": form}, status=status)


def _shown_to_us(endpoint: Endpoint, reference: str) -> CertificateFacts | None:
    """The certificate that the endpoint's server showed in this ping, and that was not trusted."""
    try:
        report = ProbeReport.objects.filter(endpoint=endpoint, pk=read_id("prb", reference)).first()
    except BadPublicId:
        return None
    found = (step["facts"].get("pem", "") for step in report.steps) if report is not None else ()
    return next(iter(certificates.read(next(filter(None, found), ""))), None)


@sensitive_post_parameters("secret")
@sensitive_variables("form", "values", "secret")
@requires(SCOPE, methods=("GET", "POST"))
def credential_new(request: HttpRequest, reference: str) -> HttpResponse:
    """The form; POST makes one, and shows what the partner needs this once, on a page that no cache keeps."""
    party = party_of(reference)
    crumbs = _party_crumbs(party)
    here = crumbs[-1][1]
    if request.method == "POST" and used_already(request, _ONCE):
        notices.error(request, _("This form was already submitted: see whether the credential is there."))
        return see_other(here)

    @sensitive_variables("values", "secret")
    def do(values: dict[str, Any]) -> HttpResponse:
        made, secret = _made(party, values)
        del request.session[_ONCE]
        if secret:
            context = {"credential": made, "party": party, "secret": secret, "leave": here}
            return page(request, "console/onboarding/credential_made.html", context)
        notices.success(request, _("A credential of {partner} is stored.").format(partner=party.name))
        return see_other(here)

    about = About(_("New credential of {partner}").format(partner=party.name), _("Create credential"), here, crumbs)
    start = {name: request.GET[name] for name in ("direction", "kind") if name in request.GET}
    form = CredentialForm(*_posted(request), initial=start, zone=zones.zone_of(request))
    return form_page(request, form, about, do, mark=_ONCE, party=party)


@sensitive_variables("values", "secret")
def _made(party: Party, values: dict[str, Any]) -> tuple[Credential, str]:
    """The credential, and what is shown once. Leaves out what its direction does not have."""
    if values.pop("direction", "") == CredentialDirection.INBOUND:
        values["secret"] = values["secret"].strip() or None
        return onboarding.credential_issue(party_id=party.pk, **values)
    for name in ("certificate", "fingerprint"):
        values.pop(name, None)
    if values.get("kind") in (CredentialKind.BASIC, CredentialKind.BEARER):
        values["secret"] = values["secret"].strip("\r\n")
    return onboarding.credential_store_outbound(party_id=party.pk, **values), ""


@requires(SCOPE, methods=("GET", "POST"))
def credential_revoke(request: HttpRequest, reference: str) -> HttpResponse:
    """Ends one for ever."""

    def subject() -> Subject:
        try:
            now = selectors.credential(read_id("cred", reference))
        except ObjectDoesNotExist as error:
            raise Http404(_("There is no credential {reference}.").format(reference=reference)) from error
        href = resolve_url("console:partner", now.party.public_id)
        said = f"{now.get_kind_display()}: {now.get_direction_display()}."
        version = "revoked" if now.revoked_at else "valid"
        name = now.label or f"{now.party.name}: {now.get_kind_display()}"
        return Subject({"credential_id": now.pk}, name, href, version, _party_crumbs(now.party), said)

    return act(request, REVOKE, subject)
