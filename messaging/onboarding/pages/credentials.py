"""Credentials as people make and end them. What is made up here is shown once."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib import messages as notices
from django.core.exceptions import ObjectDoesNotExist
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import resolve_url
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables

from messaging.access.selectors.reach import read_id
from messaging.console import zones
from messaging.console.access import actor, requires
from messaging.console.rendering import page, see_other
from messaging.deliveries.pages.triggers import once, used_already
from messaging.onboarding.pages.partner_fields import CREDENTIAL, by_name
from messaging.onboarding.pages.partner_forms import (
    INVALID,
    Errors,
    FormPage,
    form_page,
    groups,
    posted,
    read,
    reason_of,
    refusals,
    summary,
)
from messaging.onboarding.pages.partner_verbs import Subject, Verb, act, dialog
from messaging.onboarding.pages.party_form import SCOPE, party_of, uploaded
from messaging.onboarding.services import changing as onboarding
from partners import selectors
from partners.choices import CredentialDirection, CredentialKind
from partners.models import Credential

_ONCE = "credential_form"
_FIELDS = by_name(CREDENTIAL)
_START = {"direction": CredentialDirection.INBOUND.value, "kind": CredentialKind.BASIC.value}
REVOKE = Verb(
    "revoke",
    "Revoke",
    "key",
    "danger",
    SCOPE,
    ("It opens nothing, and is not shown to anybody, from now on.", "Others of the same party stay as they are."),
    "A credential that is revoked stays so: make another one.",
    ("Replaced", "Secret became known", "Not used any more"),
    "is revoked",
)


@sensitive_post_parameters("secret")
@sensitive_variables("texts", "values", "secret")
@requires(SCOPE, methods=("GET", "POST"))
def credential_new(request: HttpRequest, reference: str) -> HttpResponse:
    """The form; POST makes one, and shows what the partner needs this once, on a page that no cache keeps."""
    party = party_of(reference)
    here = resolve_url("console:partner", party.public_id)
    form = FormPage(
        f"New credential of {party.name}",
        "Make the credential",
        here,
        (("Partners", resolve_url("console:partners")), (party.name, here)),
        icon="plus",
        with_file=True,
    )
    texts = dict.fromkeys(_FIELDS, "") | _START
    texts |= {name: request.GET[name] for name in _START if name in request.GET}
    errors: Errors = {}
    if request.method == "POST":
        if used_already(request, _ONCE):
            notices.error(request, "This form was used already: see whether the credential is there.")
            return see_other(here)
        texts = posted(_FIELDS, request.POST)
        values, errors = _values(request, texts)
        if not errors:
            try:
                made, secret = _make(request, party.pk, values)
            except INVALID as error:
                errors = refusals(error)
            else:
                del request.session[_ONCE]
                if secret:
                    context = {"credential": made, "party": party, "secret": secret, "leave": here}
                    return page(request, "console/onboarding/credential_made.html", context)
                notices.success(request, f"A credential of {party.name} is stored.")
                return see_other(here)
    shown = groups(CREDENTIAL, texts, errors)
    return form_page(request, form, shown, summary(_FIELDS, errors), once=once(request, _ONCE), party=party)


@requires(SCOPE, methods=("GET", "POST"))
def credential_revoke(request: HttpRequest, reference: str) -> HttpResponse:
    """Ends one for ever."""
    credential = _credential(reference)

    def subject() -> Subject:
        now = _credential(reference)
        href = resolve_url("console:partner", now.party.public_id)
        said = f"{now.get_kind_display()}: {now.get_direction_display()}."
        return Subject(str(now), href, "revoked" if now.revoked_at else "valid", ((now.party.name, href),), said)

    if request.method == "GET":
        return dialog(request, REVOKE, subject())
    return act(
        request,
        REVOKE,
        subject,
        lambda reason, _: onboarding.credential_revoke(
            credential_id=credential.pk, actor=actor(request), reason=reason
        ),
    )


def _credential(reference: str) -> Credential:
    try:
        return selectors.credential(read_id("cred", reference))
    except ObjectDoesNotExist as error:
        raise Http404(f"There is no credential {reference}.") from error


@sensitive_variables("texts", "values")
def _values(request: HttpRequest, texts: dict[str, str]) -> tuple[dict[str, Any], Errors]:
    values, errors = read(_FIELDS, texts)
    for name in ("valid_from", "valid_until"):
        try:
            values[name] = _instant(request, texts[name])
        except ValueError as error:
            errors[name] = [str(error)]
    try:
        if pem := uploaded(request, "certificate_file"):
            values["certificate"] = pem
    except ValueError as error:
        errors["certificate_file"] = [str(error)]
    return values, errors


def _instant(request: HttpRequest, text: str) -> datetime | None:
    if not text.strip():
        return None
    found = zones.read_local(text, zones.zone_of(request))
    if found is None:
        raise ValueError("Write a date, such as 2027-01-31, or with a time: 2027-01-31T12:00.")
    return found


@sensitive_variables("values", "secret")
def _make(request: HttpRequest, party_id: Any, values: dict[str, Any]) -> tuple[Credential, str]:
    """The credential, and what is shown once. Leaves out what its direction does not have."""
    who, reason = actor(request), reason_of(request)
    if values.pop("direction", "") == CredentialDirection.INBOUND:
        values["secret"] = values["secret"].strip() or None
        return onboarding.credential_issue(party_id=party_id, actor=who, reason=reason, **values)
    for name in ("certificate", "fingerprint"):
        values.pop(name, None)
    if values.get("kind") in (CredentialKind.BASIC, CredentialKind.BEARER):
        values["secret"] = values["secret"].strip("\r\n")
    return onboarding.credential_store_outbound(party_id=party_id, actor=who, reason=reason, **values), ""
