"""Pages of partners, certificates and agreements, in the order in which they are tried."""

from __future__ import annotations

from django.urls import path

from messaging.onboarding.pages import agreements, bundle, parties, partners, wizard

urlpatterns = [
    path("partners/", partners.partner_list, name="partners"),
    path("partners/add/", parties.party_new, name="party-new"),
    path("partners/new/", wizard.onboarding_new, name="onboarding-new"),
    path("partners/new/<str:reference>/step/<int:number>/", wizard.onboarding_step, name="onboarding-step"),
    path("partners/new/<str:reference>/discard/", wizard.onboarding_discard, name="onboarding-discard"),
    path("partners/bundle/", bundle.bundle_page, name="bundle"),
    path("partners/bundle/download/", bundle.bundle_download, name="bundle-download"),
    path("partners/<str:reference>/", partners.partner_page, name="partner"),
    path("partners/<str:reference>/edit/", parties.party_edit, name="party-edit"),
    path("partners/<str:reference>/actions/<slug:verb>/", parties.party_verb, name="party-verb"),
    path("partners/<str:reference>/endpoints/new/", parties.endpoint_new, name="endpoint-new"),
    path("partners/<str:reference>/credentials/new/", parties.credential_new, name="credential-new"),
    path("endpoints/<str:reference>/", partners.endpoint_page, name="endpoint"),
    path("endpoints/<str:reference>/edit/", parties.endpoint_edit, name="endpoint-edit"),
    path("endpoints/<str:reference>/certificates/", parties.endpoint_certificates, name="endpoint-certificates"),
    path("credentials/<str:reference>/revoke/", parties.credential_revoke, name="credential-revoke"),
    path("certificates/", partners.certificate_list, name="certificates"),
    path("agreements/", partners.agreement_list, name="agreements"),
    path("agreements/new/", agreements.agreement_new, name="agreement-new"),
    path("agreements/<str:reference>/", partners.agreement_page, name="agreement"),
    path("agreements/<str:reference>/actions/<slug:verb>/", agreements.agreement_verb, name="agreement-verb"),
    path("agreements/<str:reference>/v/<int:number>/", partners.agreement_page, name="agreement-version"),
    path("agreements/<str:reference>/v/<int:number>/edit/", agreements.version_edit, name="version-edit"),
    path(
        "agreements/<str:reference>/v/<int:number>/actions/<slug:verb>/",
        agreements.version_verb,
        name="version-verb",
    ),
    path("agreements/<str:reference>/v/<int:number>/test/", agreements.bench_page, name="bench"),
    path("agreements/<str:reference>/v/<int:number>/test/run/", agreements.bench_run, name="bench-run"),
    path("tests/<str:reference>/", agreements.bench_report, name="bench-report"),
]
