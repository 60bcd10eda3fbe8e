"""Partners and agreements as pages show them, with what can be done about each."""

from __future__ import annotations

import uuid

from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse

from messaging import differences
from messaging.console import agreement_forms, party_form
from messaging.console.access import person, requires
from messaging.console.partner_verbs import button
from messaging.console.rendering import keyset_page, page
from messaging.models import BenchReport
from messaging.selectors import pairs, partner_health, screens
from messaging.services import onboarding
from partners import selectors, services
from partners.choices import VersionState
from partners.models import Agreement, AgreementVersion
from partners.validation import resend_words
from rmhub import clock


@requires("partners:read")
def partner_list(request: HttpRequest) -> HttpResponse:
    """Parties by name, ours among them; archived ones only for whoever asks for them."""
    filters = {"q": _search(request), "archived": "1" if request.GET.get("archived") == "1" else ""}
    found = selectors.parties(search=filters["q"]).filter(archived_at__isnull=not filters["archived"])
    context = keyset_page(request, "console.partners", found, order=("name",), filters=filters)
    context |= filters | {"why_not": _why_not(request, party_form.SCOPE)}
    return page(request, "console/partners.html", context)


@requires("partners:read")
def partner_page(request: HttpRequest, reference: str) -> HttpResponse:
    """One party: how it goes, pairs, agreements, endpoints, credentials (never a secret), contacts, changes."""
    party = party_form.party_of(reference)
    found = pairs.pairs(partner_id=party.pk).order_by("severity", "code")[:50]
    verb = party_form.VERBS["restore" if party.archived_at else "archive"]
    context = {
        "party": party,
        "health": None if party.is_own else partner_health.of_partner(party.pk),
        "agreements": _with_versions(list(selectors.agreements(party_id=party.pk)[:50])),
        "rows": screens.pair_rows(found, clock.now()),
        "audit": screens.audit_of(party),
        "why_not": _why_not(request, party_form.SCOPE),
        "buttons": [button(verb, reverse("console:party-verb", args=[party.public_id, verb.slug]), person(request))],
    }
    return page(request, "console/partner.html", context)


@requires("agreements:read")
def agreement_list(request: HttpRequest) -> HttpResponse:
    """Agreements by TPAId, each with the version that counts."""
    search = _search(request)
    state = request.GET.get("state", "")
    state = state if state in VersionState.values else ""
    found = selectors.agreements(search=search, state=state)
    context = keyset_page(
        request, "console.agreements", found, order=("tpa_id",), filters={"q": search, "state": state}
    )
    context |= {"q": search, "state": state, "states": VersionState.choices}
    context["rows"] = _with_versions(context["rows"])
    context["why_not"] = _why_not(request, agreement_forms.SCOPE)
    return page(request, "console/agreements.html", context)


@requires("agreements:read")
def agreement_page(request: HttpRequest, reference: str, number: int | None = None) -> HttpResponse:
    """One version of an agreement (the one that counts, unless a number says which), with what it amounts to."""
    agreement = agreement_forms.agreement_of(reference)
    chosen = _version(agreement, number)
    if chosen is None:
        raise Http404(f"{agreement.tpa_id} has no version {number}.")
    version = selectors.version(chosen)
    versions = sorted(agreement.versions.all(), key=lambda one: -one.number)
    before = next((one for one in versions if one.number < version.number), None)
    context = {
        "agreement": agreement,
        "version": version,
        "sentence": services.gives_up_sentence(version),
        "waits": resend_words(version.resend_schedule),
        "problems": services.version_validate(version=version),
        "versions": versions,
        "before": before,
        "changes": _changes(before, version),
        "buttons": agreement_forms.buttons(version, agreement, person(request)),
        "why_not": _why_not(request, agreement_forms.SCOPE),
        "reports": list(BenchReport.objects.filter(agreement=agreement, number=version.number).order_by("-id")[:5]),
        "audit": screens.audit_of_agreement(agreement),
    }
    return page(request, "console/agreement.html", context)


def _changes(before: AgreementVersion | None, version: AgreementVersion) -> list[differences.Change]:
    """What the version before it had otherwise."""
    if before is None:
        return []
    return differences.changes(onboarding.describe(selectors.version(before.pk)), onboarding.describe(version))


def _why_not(request: HttpRequest, scope: str) -> str:
    missing = person(request).lacks(scope)
    return f"Needs the role {missing}." if missing else ""


def _version(agreement: Agreement, number: int | None) -> uuid.UUID | None:
    if number is None:
        current = selectors.current_version(agreement)
        return current.pk if current is not None else None
    return next((version.pk for version in agreement.versions.all() if version.number == number), None)


def _with_versions(found: list[Agreement]) -> list[tuple[Agreement, AgreementVersion | None, str]]:
    """Each agreement with the version that counts and the sentence that says when it gives up."""
    rows = []
    for agreement in found:
        version = selectors.current_version(agreement)
        rows.append((agreement, version, services.gives_up_sentence(version) if version is not None else ""))
    return rows


def _search(request: HttpRequest) -> str:
    return request.GET.get("q", "").strip()[:120].replace("\x00", "")
