"""Partners and agreements, to read."""

from __future__ import annotations

import uuid

from django.http import Http404, HttpRequest, HttpResponse

from messaging.console.access import requires
from messaging.console.rendering import keyset_page, page
from messaging.selectors import pairs, screens
from partners import selectors, services
from partners.choices import VersionState
from partners.models import Agreement, AgreementVersion, Party
from partners.validation import resend_words
from rmhub import clock
from rmhub.ids import read_public_id


@requires("partners:read")
def partner_list(request: HttpRequest) -> HttpResponse:
    """Parties by name, ours among them."""
    search = _search(request)
    found = selectors.parties(search=search)
    context = keyset_page(request, "console.partners", found, order=("name",), filters={"q": search})
    return page(request, "console/partners.html", {**context, "q": search})


@requires("partners:read")
def partner_page(request: HttpRequest, reference: str) -> HttpResponse:
    """One party: identifiers, endpoints, credentials (never a secret), agreements and pairs."""
    try:
        party = selectors.party(read_public_id("par", reference))
    except Party.DoesNotExist as error:
        raise Http404(f"There is no party {reference}.") from error
    found = pairs.pairs(partner_id=party.pk).order_by("severity", "code")[:50]
    context = {
        "party": party,
        "agreements": _with_versions(list(selectors.agreements(party_id=party.pk)[:50])),
        "rows": screens.pair_rows(found, clock.now()),
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
    return page(request, "console/agreements.html", context)


@requires("agreements:read")
def agreement_page(request: HttpRequest, reference: str, number: int | None = None) -> HttpResponse:
    """One version of an agreement (the one that counts, unless a number says which), with what it amounts to."""
    try:
        agreement = selectors.agreement(read_public_id("agr", reference))
    except Agreement.DoesNotExist as error:
        raise Http404(f"There is no agreement {reference}.") from error
    chosen = _version(agreement, number)
    if chosen is None:
        raise Http404(f"{agreement.tpa_id} has no version {number}.")
    version = selectors.version(chosen)
    context = {
        "agreement": agreement,
        "version": version,
        "sentence": services.gives_up_sentence(version),
        "waits": resend_words(version.resend_schedule),
        "problems": services.version_validate(version=version),
        "versions": sorted(agreement.versions.all(), key=lambda one: -one.number),
    }
    return page(request, "console/agreement.html", context)


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
