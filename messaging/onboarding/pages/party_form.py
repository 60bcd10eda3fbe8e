"""Parties and their endpoints as people change them: the forms, and taking a partner out of use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import messages as notices
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import resolve_url
from django.utils.http import url_has_allowed_host_and_scheme

from messaging.access.selectors.reach import read_id
from messaging.console.access import actor, requires
from messaging.console.rendering import see_other
from messaging.deliveries.pages.trigger_fields import Field, Group
from messaging.onboarding.pages.partner_fields import ENDPOINT, PARTY, by_name
from messaging.onboarding.pages.partner_forms import (
    INVALID,
    REFUSED,
    Errors,
    FormPage,
    form_page,
    groups,
    posted,
    read,
    read_identifiers,
    reason_of,
    refusals,
    summary,
    written,
)
from messaging.onboarding.pages.partner_verbs import Subject, Verb, act, dialog
from messaging.onboarding.services import changing as onboarding
from messaging.onboarding.services import content as onboarding_content
from partners import certificates, selectors
from partners.choices import Transport
from partners.models import Endpoint, PartnerGroup, Party
from rmhub.ids import BadPublicId

SCOPE = "partners:write"
OWN = Group(
    "Whose",
    "",
    (Field("is_own", "It is ours", "switch", "One of our own organisations, in whose name the hub sends."),),
)
_PARTY = by_name(PARTY)
_ENDPOINT = by_name(ENDPOINT)
_MOST_GROUPS = 100
VERBS: Mapping[str, Verb] = {
    verb.slug: verb
    for verb in (
        Verb(
            "archive",
            "Archive",
            "inbox",
            "danger",
            SCOPE,
            ("It is not offered in forms any more.", "What it shows at the hub's doors opens nothing from now on."),
            "Messages, agreements and the audit log stay. Restore it at any time.",
            ("Contract ended", "Replaced by another partner"),
            "is archived",
        ),
        Verb(
            "restore",
            "Restore",
            "refresh",
            "primary",
            SCOPE,
            ("It is offered again.", "Its credentials that are valid open the door again."),
            "Nothing here is final.",
            ("Used again",),
            "is in use again",
        ),
    )
}


def party_of(reference: str) -> Party:
    """The party of a URL. Raises Http404."""
    try:
        return selectors.party(read_id("par", reference))
    except Party.DoesNotExist as error:
        raise Http404(f"There is no party {reference}.") from error


def endpoint_of(reference: str) -> Endpoint:
    """The endpoint of a URL. Raises Http404."""
    try:
        return selectors.endpoint(read_id("end", reference))
    except Endpoint.DoesNotExist as error:
        raise Http404(f"There is no endpoint {reference}.") from error


def way_back(request: HttpRequest, otherwise: str) -> str:
    """The `next` of a form, if it is a page of this site."""
    wanted = request.POST.get("next") or request.GET.get("next") or ""
    hosts = {request.get_host()}
    safe = url_has_allowed_host_and_scheme(wanted, allowed_hosts=hosts, require_https=request.is_secure())
    return wanted if safe and wanted.startswith("/") and not wanted.startswith("//") else otherwise


@requires(SCOPE, methods=("GET", "POST"))
def party_new(request: HttpRequest) -> HttpResponse:
    """A party and nothing else; the wizard makes a partner with all that belongs to it."""
    fields = {**_PARTY, **by_name((OWN,))}
    form = FormPage(
        "New party",
        "Make the party",
        resolve_url("console:partners"),
        (("Partners", resolve_url("console:partners")),),
        icon="plus",
    )
    texts = posted(fields, request.POST)
    errors: Errors = {}
    if request.method == "POST":
        values, errors = _party_values(fields, texts)
        if not errors:
            try:
                made = onboarding.party_create(actor=actor(request), reason=reason_of(request), **values)
            except INVALID as error:
                errors = refusals(error)
            else:
                notices.success(request, f"{made.name} is made.")
                return see_other("console:partner", made.public_id)
    shown = groups((*PARTY, OWN), texts, errors)
    return form_page(request, form, shown, summary(fields, errors))


@requires(SCOPE, methods=("GET", "POST"))
def party_edit(request: HttpRequest, reference: str) -> HttpResponse:
    """The form of a party that there is."""
    party = party_of(reference)
    here = resolve_url("console:partner", party.public_id)
    form = FormPage(
        f"Change {party.name}",
        f"Change {party.name}",
        here,
        (("Partners", resolve_url("console:partners")), (party.name, here)),
    )
    texts, status = _party_texts(party), 0
    errors: Errors = {}
    chosen = [group.public_id for group in party.groups.all()]
    version = onboarding_content.revision(party)
    if request.method == "POST":
        texts = posted(_PARTY, request.POST)
        chosen = request.POST.getlist("groups")
        version = request.POST.get("version", "")
        values, errors = _party_values(_PARTY, texts)
        try:
            values["groups"] = [read_id("grp", one) for one in chosen]
        except BadPublicId:
            errors["groups"] = ["There is no such group."]
        if not version:
            errors[""] = ["This form is not complete: open it again from the partner's page."]
        if not errors:
            try:
                onboarding.party_update(
                    party_id=party.pk, actor=actor(request), reason=reason_of(request), expected=version, **values
                )
            except INVALID as error:
                errors = refusals(error)
            except REFUSED as error:
                errors, status = refusals(error), 409
                version = onboarding_content.revision(party_of(reference))
            else:
                notices.success(request, f"{values['name']} is changed.")
                return see_other(here)
    known = [(one.public_id, one.name, one.public_id in chosen) for one in PartnerGroup.objects.all()[:_MOST_GROUPS]]
    return form_page(
        request,
        form,
        groups(PARTY, texts, errors),
        summary(_PARTY, errors),
        status=status,
        template="console/onboarding/party_form.html",
        version=version,
        partner_groups=known,
        party=party,
    )


@requires(SCOPE, methods=("GET", "POST"))
def party_verb(request: HttpRequest, reference: str, verb: str) -> HttpResponse:
    """Archives or restores."""
    chosen = VERBS.get(verb)
    if chosen is None:
        raise Http404(f"There is no verb {verb} for partners.")

    def subject() -> Subject:
        party = party_of(reference)
        href = resolve_url("console:partner", party.public_id)
        return Subject(
            party.name, href, onboarding_content.revision(party), (("Partners", resolve_url("console:partners")),)
        )

    if request.method == "GET":
        return dialog(request, chosen, subject())
    service = onboarding.party_archive if verb == "archive" else onboarding.party_restore
    party_id = party_of(reference).pk
    return act(
        request,
        chosen,
        subject,
        lambda reason, expected: service(party_id=party_id, actor=actor(request), reason=reason, expected=expected),
    )


@requires(SCOPE, methods=("GET", "POST"))
def endpoint_new(request: HttpRequest, reference: str) -> HttpResponse:
    """An endpoint of this party."""
    party = party_of(reference)
    here = resolve_url("console:partner", party.public_id)
    form = FormPage(
        f"New endpoint of {party.name}",
        "Make the endpoint",
        here,
        (("Partners", resolve_url("console:partners")), (party.name, here)),
        icon="plus",
        with_file=True,
    )
    texts = endpoint_texts(Endpoint(transport=Transport.HTTP))
    errors: Errors = {}
    if request.method == "POST":
        texts = posted(_ENDPOINT, request.POST)
        values, errors = endpoint_values(request, texts)
        if not errors:
            try:
                made = onboarding.endpoint_create(
                    party_id=party.pk, actor=actor(request), reason=reason_of(request), **values
                )
            except INVALID as error:
                errors = refusals(error)
            else:
                notices.success(request, f"Endpoint {made.name} of {party.name} is made.")
                return see_other("console:endpoint", made.public_id)
    unset = endpoint_texts(Endpoint(transport=Transport.HTTP))
    return form_page(
        request, form, groups(ENDPOINT, texts, errors, unset=unset), summary(_ENDPOINT, errors), party=party
    )


@requires(SCOPE, methods=("GET", "POST"))
def endpoint_edit(request: HttpRequest, reference: str) -> HttpResponse:
    """The form of an endpoint that there is."""
    endpoint = endpoint_of(reference)
    here = resolve_url("console:endpoint", endpoint.public_id)
    form = FormPage(
        f"Change endpoint {endpoint.name}",
        f"Change {endpoint.name}",
        here,
        ((str(endpoint.party), resolve_url("console:partner", endpoint.party.public_id)), (endpoint.name, here)),
        lead=endpoint.uri,
        with_file=True,
    )
    texts, status = endpoint_texts(endpoint), 0
    errors: Errors = {}
    version = onboarding_content.revision(endpoint)
    if request.method == "POST":
        texts = posted(_ENDPOINT, request.POST)
        version = request.POST.get("version", "")
        values, errors = endpoint_values(request, texts)
        if not version:
            errors[""] = ["This form is not complete: open it again from the endpoint's page."]
        if not errors:
            try:
                onboarding.endpoint_update(
                    endpoint_id=endpoint.pk, actor=actor(request), reason=reason_of(request), expected=version, **values
                )
            except INVALID as error:
                errors = refusals(error)
            except REFUSED as error:
                errors, status = refusals(error), 409
                version = onboarding_content.revision(endpoint_of(reference))
            else:
                notices.success(request, f"Endpoint {values['name']} is changed.")
                return see_other(here)
    return form_page(
        request,
        form,
        groups(ENDPOINT, texts, errors, unset=endpoint_texts(Endpoint(transport=endpoint.transport))),
        summary(_ENDPOINT, errors),
        status=status,
        version=version,
        party=endpoint.party,
        note="Its URIs are fixed while an agreement in force uses it; all the rest takes effect within a second.",
    )


def endpoint_texts(endpoint: Endpoint) -> dict[str, str]:
    """What stands in the fields for an endpoint."""
    return {name: written(field, getattr(endpoint, name)) for name, field in _ENDPOINT.items() if field.kind != "file"}


def endpoint_values(request: HttpRequest, texts: Mapping[str, str]) -> tuple[dict[str, Any], Errors]:
    """The values of a posted endpoint form, an uploaded file of certificates in the place of the text."""
    values, errors = read(_ENDPOINT, texts)
    try:
        if pem := uploaded(request, "certificates_file"):
            values["trusted_certificates"] = pem
    except ValueError as error:
        errors["certificates_file"] = [str(error)]
    # What another transport has is hidden, and whoever changes the transport cannot empty it.
    for name in ("trusted_certificates", "host_key", "server"):
        values.setdefault(name, "")
    return values, errors


def uploaded(request: HttpRequest, name: str) -> str:
    """The PEM text of an uploaded file of certificates, "" without one. Raises ValueError."""
    file = request.FILES.get(name)
    if file is None:
        return ""
    if file.size is None or file.size > certificates.MAX_TEXT:
        raise ValueError(f"The file is too long: certificates have at most {certificates.MAX_TEXT} bytes together.")
    return certificates.read_upload(file.read())


def _party_texts(party: Party) -> dict[str, str]:
    found = {name: written(field, getattr(party, name)) for name, field in _PARTY.items() if name != "identifiers"}
    found["identifiers"] = "\n".join(f"{one.context} {one.value}" for one in party.identifiers.all())
    return found


def _party_values(fields: Mapping[str, Field], texts: Mapping[str, str]) -> tuple[dict[str, Any], Errors]:
    values, errors = read(fields, texts)
    try:
        values["identifiers"] = read_identifiers(texts.get("identifiers", ""))
    except ValueError as error:
        errors["identifiers"] = [str(error)]
    return values, errors
