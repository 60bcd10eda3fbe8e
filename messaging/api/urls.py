"""All paths of /api/v1."""

from __future__ import annotations

from django.urls import path, re_path
from django.views.decorators.csrf import csrf_exempt

from messaging.api.views import (
    access,
    agreements,
    deliveries,
    doubts,
    events,
    hub,
    jobs,
    memory,
    messages,
    pairs,
    parties,
    records,
    submissions,
    triggers,
)

app_name = "api"
urlpatterns = [
    path("messages", submissions.Messages.as_view(), name="messages"),
    path("messages/<str:message_id>", messages.OneMessage.as_view(), name="message"),
    path("messages/<str:message_id>/cancel", messages.Cancel.as_view(), name="message-cancel"),
    path("messages/<str:message_id>/settle", messages.Settle.as_view(), name="message-settle"),
    path("messages/<str:message_id>/payloads/<str:number>", messages.Payload.as_view(), name="payload"),
    path("messages/<str:message_id>/wire", messages.Wire.as_view(), name="message-wire"),
    path("messages/<str:message_id>/transmissions", messages.Transmissions.as_view(), name="transmissions"),
    path("messages/<str:message_id>/signals", messages.Signals.as_view(), name="signals"),
    path("messages/<str:message_id>/events", messages.History.as_view(), name="message-events"),
    path(
        "transmissions/<str:transmission_id>/response",
        messages.TransmissionResponse.as_view(),
        name="transmission-response",
    ),
    path("signals/<str:signal_id>/wire", messages.SignalWire.as_view(), name="signal-wire"),
    path("pairs", pairs.Pairs.as_view(), name="pairs"),
    path("pairs/<str:pair>", pairs.OnePair.as_view(), name="pair"),
    *(path(f"pairs/<str:pair>/{verb}", view.as_view(), name=f"pair-{verb}") for verb, view in pairs.VERBS.items()),
    path("triggers", triggers.Triggers.as_view(), name="triggers"),
    path("triggers/<str:trigger>", triggers.OneTrigger.as_view(), name="trigger"),
    path("triggers/<str:trigger>/rotate-secret", triggers.RotateSecret.as_view(), name="trigger-rotate-secret"),
    *(
        path(f"triggers/<str:trigger>/{verb}", view.as_view(), name=f"trigger-{verb}")
        for verb, view in triggers.VERBS.items()
    ),
    path("triggers/<str:trigger>/lease", deliveries.Lease.as_view(), name="trigger-lease"),
    path("triggers/<str:trigger>/leases", deliveries.Leases.as_view(), name="trigger-leases"),
    path("deliveries", deliveries.Deliveries.as_view(), name="deliveries"),
    path("deliveries/<str:delivery>", deliveries.OneDelivery.as_view(), name="delivery"),
    path("deliveries/<str:delivery>/answer", deliveries.DeliveryAnswer.as_view(), name="delivery-answer"),
    path("deliveries/<str:delivery>/settle", deliveries.Settle.as_view(), name="delivery-settle"),
    *(
        path(f"deliveries/<str:delivery>/{verb}", view.as_view(), name=f"delivery-{verb}")
        for verb, view in deliveries.CLAIMED.items()
    ),
    path("in-doubt", doubts.InDoubt.as_view(), name="in-doubt"),
    path("bulk-jobs", jobs.Jobs.as_view(), name="jobs"),
    path("bulk-jobs/<str:job>", jobs.OneJob.as_view(), name="job"),
    path("bulk-jobs/<str:job>/items", jobs.JobItems.as_view(), name="job-items"),
    path("bulk-jobs/<str:job>/cancel", jobs.CancelJob.as_view(), name="job-cancel"),
    path("memory", memory.Memory.as_view(), name="memory"),
    path("parties", parties.Parties.as_view(), name="parties"),
    path("parties/<str:party_id>", parties.OneParty.as_view(), name="party"),
    path("endpoints", parties.Endpoints.as_view(), name="endpoints"),
    path("endpoints/<str:endpoint_id>", parties.OneEndpoint.as_view(), name="endpoint"),
    path("agreements", agreements.Agreements.as_view(), name="agreements"),
    path("agreements/<str:agreement_id>", agreements.OneAgreement.as_view(), name="agreement"),
    path("agreements/<str:agreement_id>/disable", agreements.DisableAgreement.as_view(), name="agreement-disable"),
    path("agreements/<str:agreement_id>/enable", agreements.EnableAgreement.as_view(), name="agreement-enable"),
    path("agreements/<str:agreement_id>/versions", agreements.Versions.as_view(), name="versions"),
    path("agreements/<str:agreement_id>/versions/<str:number>", agreements.OneVersion.as_view(), name="version"),
    path(
        "agreements/<str:agreement_id>/versions/<str:number>/activate",
        agreements.ActivateVersion.as_view(),
        name="version-activate",
    ),
    path("credentials", access.Credentials.as_view(), name="credentials"),
    path("credentials/<str:credential_id>", access.OneCredential.as_view(), name="credential"),
    path("credentials/<str:credential_id>/revoke", access.RevokeCredential.as_view(), name="credential-revoke"),
    path("events", events.Events.as_view(), name="events"),
    path("incidents", records.Incidents.as_view(), name="incidents"),
    path("incidents/<str:incident>", records.OneIncident.as_view(), name="incident"),
    path("incidents/<str:incident>/acknowledge", records.AcknowledgeIncident.as_view(), name="incident-acknowledge"),
    path("incidents/<str:incident>/resolve", records.ResolveIncident.as_view(), name="incident-resolve"),
    path("rejections", records.Rejections.as_view(), name="rejections"),
    path("rejections/<str:rejection_id>", records.OneRejection.as_view(), name="rejection"),
    path("rejections/<str:rejection_id>/sample", records.RejectionSample.as_view(), name="rejection-sample"),
    path("webhook-endpoints", access.WebhookEndpoints.as_view(), name="webhook-endpoints"),
    path("webhook-endpoints/<str:endpoint_id>", access.OneWebhookEndpoint.as_view(), name="webhook-endpoint"),
    path(
        "webhook-endpoints/<str:endpoint_id>/deliveries", access.WebhookDeliveries.as_view(), name="webhook-deliveries"
    ),
    path("audit-log", records.AuditLog.as_view(), name="audit-log"),
    path("tokens", access.Tokens.as_view(), name="tokens"),
    path("tokens/<str:token_id>", access.OneToken.as_view(), name="token"),
    path("tokens/<str:token_id>/revoke", access.RevokeToken.as_view(), name="token-revoke"),
    path("health", hub.Health.as_view(), name="health"),
    path("problems", hub.Problems.as_view(), name="problems"),
    path("problems/<str:code>", hub.OneProblem.as_view(), name="problem"),
    path("openapi.json", hub.OpenApi.as_view(), name="openapi"),
    path("docs", hub.Docs.as_view(), name="docs"),
    # Anything else below /api/v1 is a problem too, and no page of the console.
    re_path(r"^.*$", csrf_exempt(hub.not_found), name="not-found"),
]
