"""Certificates: all that the hub knows, an endpoint's page, and the dialog that replaces what its server may show."""

from __future__ import annotations

from django.contrib import messages as notices
from django.http import HttpRequest, HttpResponse
from django.shortcuts import resolve_url

from messaging.console.access import actor, person, requires
from messaging.console.rendering import page, see_other
from messaging.models import ProbeReport
from messaging.onboarding.pages.partner_forms import INVALID, REFUSED, Errors, reason_of, refusals
from messaging.onboarding.pages.party_form import SCOPE, endpoint_of, uploaded, way_back
from messaging.onboarding.selectors import certificates
from messaging.onboarding.services import changing as onboarding
from messaging.onboarding.services import content as onboarding_content
from messaging.pairs.selectors import screens
from partners import certificates as reading
from partners.models import Agreement, Endpoint
from partners.visibility import limit
from rmhub import clock

SPANS = ("7", "30", "90", "365")
PRESETS = ("Certificate replaced by the partner", "New partner", "Certificate expired")


@requires("partners:read")
def certificate_list(request: HttpRequest) -> HttpResponse:
    """All certificates and credentials that end, the first ones in front."""
    within = request.GET.get("within", "")
    days = int(within) if within.isascii() and within.isdigit() and len(within) < 5 else None
    context = {
        "rows": certificates.certificates(within_days=days),
        "within": "" if days is None else str(days),
        "spans": SPANS,
    }
    return page(request, "console/onboarding/certificates.html", context)


@requires("partners:read")
def endpoint_page(request: HttpRequest, reference: str) -> HttpResponse:
    """One endpoint: where its bytes go, what its server may show, and what the last looks at it found."""
    endpoint = endpoint_of(reference)
    context = {
        "endpoint": endpoint,
        "party": endpoint.party,
        "trusted": reading.read(endpoint.trusted_certificates),
        "now": clock.now(),
        "reports": list(ProbeReport.objects.filter(endpoint=endpoint).order_by("-id")[:10]),
        "agreements": agreements_of(endpoint),
        "audit": screens.audit_of(endpoint),
        "why_not": f"Needs the role {missing}." if (missing := person(request).lacks(SCOPE)) else "",
    }
    return page(request, "console/onboarding/endpoint.html", context)


@requires(SCOPE, methods=("GET", "POST"))
def endpoint_certificates(request: HttpRequest, reference: str) -> HttpResponse:
    """GET: the dialog. POST: what is pasted or uploaded takes the place of what there was; empty takes all away."""
    endpoint = endpoint_of(reference)
    if request.method == "GET":
        return _dialog(request, endpoint)
    version, text = request.POST.get("version", ""), request.POST.get("certificates", "").replace("\x00", "")
    errors: Errors = {}
    try:
        text = uploaded(request, "certificates_file") or text
    except ValueError as error:
        errors["certificates_file"] = [str(error)]
    if not version:
        errors[""] = ["This form is not complete: open it again from the endpoint's page."]
    if errors:
        return _dialog(request, endpoint, text=text, errors=errors, status=422)
    if request.POST.get("keep"):
        # Both hold until the partner has changed over.
        text = f"{text}\n{endpoint.trusted_certificates}"
    try:
        onboarding.endpoint_trust(
            endpoint_id=endpoint.pk,
            certificates_pem=text,
            actor=actor(request),
            reason=reason_of(request),
            expected=version,
        )
    except INVALID as error:
        return _dialog(request, endpoint, text=text, errors=refusals(error), status=422)
    except REFUSED as error:
        return _dialog(request, endpoint_of(reference), text=text, errors=refusals(error), status=409)
    notices.success(request, "The certificates are replaced. They hold for the next connection.")
    return see_other(way_back(request, resolve_url("console:endpoint", endpoint.public_id)))


def agreements_of(endpoint: Endpoint) -> list[Agreement]:
    """The agreements of which some version names the endpoint; ten at most."""
    found = Agreement.objects.filter(versions__partner_endpoint=endpoint) | Agreement.objects.filter(
        versions__own_endpoint=endpoint
    )
    shown = limit(found.distinct(), "partner")  # an endpoint of ours serves partners out of reach as well
    return list(shown.select_related("partner", "own_party").order_by("tpa_id")[:10])


def _dialog(
    request: HttpRequest, endpoint: Endpoint, *, text: str = "", errors: Errors | None = None, status: int = 200
) -> HttpResponse:
    fields = {"trusted_certificates": "certificates", "certificates_file": "certificates_file", "reason": "reason"}
    here = resolve_url("console:endpoint", endpoint.public_id)
    context = {
        "endpoint": endpoint,
        "trusted": reading.read(endpoint.trusted_certificates),
        "now": clock.now(),
        "version": onboarding_content.revision(endpoint),
        "text": text,
        "errors": [(fields.get(name, ""), one) for name, texts in (errors or {}).items() for one in texts],
        "given": request.POST,
        "presets": PRESETS,
        "next": way_back(request, ""),
        "leave": way_back(request, here),
    }
    fragments = {"dialog": "console/onboarding/endpoint_certificates_form.html"}
    return page(request, "console/onboarding/endpoint_certificates.html", context, fragments=fragments, status=status)
