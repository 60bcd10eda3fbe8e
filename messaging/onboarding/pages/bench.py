"""The test bench's pages: testing a version, and the report as it can be printed for the partner."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import resolve_url

from messaging.console.access import actor, requires
from messaging.console.rendering import page, see_other
from messaging.onboarding.pages.agreement_forms import SCOPE, agreement_of, version_of
from messaging.onboarding.selectors import drafts as selectors
from messaging.onboarding.services import bench
from partners import services


@requires("agreements:read")
def bench_page(request: HttpRequest, reference: str, number: int) -> HttpResponse:
    """What a test of this version does, and the reports of earlier ones."""
    agreement = agreement_of(reference)
    version = version_of(agreement, number)
    context = {
        "agreement": agreement,
        "version": version,
        "sentence": services.gives_up_sentence(version),
        "reports": selectors.reports(agreement_id=agreement.pk)[:20],
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
    report = selectors.report(reference)
    version = resolve_url("console:agreement-version", report.agreement.public_id, report.number)
    return page(request, "console/onboarding/bench_report.html", {"report": report, "version_href": version})
