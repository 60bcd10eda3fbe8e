"""The console's pages. Every view says by `access.requires` who may open it; a test walks this list."""

from __future__ import annotations

from django.urls import path

from messaging.console import account, admin, incidents, messages, octets, overview, pairs, partners, records

app_name = "console"
urlpatterns = [
    path("", overview.dashboard, name="dashboard"),
    path("go", overview.go, name="go"),
    path("login/", account.log_in, name="login"),
    path("logout/", account.log_out, name="logout"),
    path("password/", account.password, name="password"),
    path("theme/", account.theme, name="theme"),
    path("pairs/", pairs.pair_list, name="pairs"),
    path("pairs/<str:code>/", pairs.pair_page, name="pair"),
    path("pairs/<str:code>/actions/<slug:verb>/", pairs.pair_verb, name="pair-verb"),
    path("messages/", messages.message_list, name="messages"),
    path("messages/<str:reference>/", messages.message_page, name="message"),
    path("messages/<str:reference>/cancel/", messages.message_cancel, name="message-cancel"),
    path("messages/<str:reference>/payloads/<int:number>/", octets.payload, name="payload"),
    path("messages/<str:reference>/payloads/<int:number>/download/", octets.payload_download, name="payload-download"),
    path("messages/<str:reference>/wire/", octets.wire, name="wire"),
    path("messages/<str:reference>/wire/download/", octets.wire_download, name="wire-download"),
    path("transmissions/<str:reference>/", octets.transmission, name="transmission"),
    path("signals/<str:reference>/", octets.signal, name="signal"),
    path("signals/<str:reference>/download/", octets.signal_download, name="signal-download"),
    path("incidents/", incidents.incident_list, name="incidents"),
    path("incidents/<str:number>/", incidents.incident_page, name="incident"),
    path("incidents/<str:number>/acknowledge/", incidents.incident_acknowledge, name="incident-acknowledge"),
    path("incidents/<str:number>/resolve/", incidents.incident_resolve, name="incident-resolve"),
    path("partners/", partners.partner_list, name="partners"),
    path("partners/<str:reference>/", partners.partner_page, name="partner"),
    path("agreements/", partners.agreement_list, name="agreements"),
    path("agreements/<str:reference>/", partners.agreement_page, name="agreement"),
    path("agreements/<str:reference>/v/<int:number>/", partners.agreement_page, name="agreement-version"),
    path("rejections/", records.rejection_list, name="rejections"),
    path("rejections/<str:reference>/", records.rejection_page, name="rejection"),
    path("rejections/<str:reference>/sample/", octets.rejection_sample, name="rejection-sample"),
    path("audit/", records.audit_list, name="audit"),
    path("webhooks/", admin.webhook_list, name="webhooks"),
    path("webhooks/<str:reference>/", admin.webhook_page, name="webhook"),
    path("tokens/", admin.token_list, name="tokens"),
    path("tokens/new/", admin.token_new, name="token-new"),
    path("tokens/<str:reference>/revoke/", admin.token_revoke, name="token-revoke"),
]
