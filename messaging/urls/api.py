"""All paths of /api/v1."""

from __future__ import annotations

from django.urls import path, re_path
from django.views.decorators.csrf import csrf_exempt

from messaging.access.api import access, people, preferences
from messaging.archive import api as archive
from messaging.bulk import api as jobs
from messaging.deliveries.api import deliveries, triggers
from messaging.incidents import api as incidents
from messaging.messages.api import attributes, masks, messages, schemas, submissions, uploads, verbs
from messaging.notifications.api import events, notifications, webhooks
from messaging.onboarding.api import agreements, offers, onboarding, parties
from messaging.overview.api import hub, records, status
from messaging.pairs.api import looks as pair_looks
from messaging.pairs.api import pairs
from messaging.pollers import api as pollers
from messaging.reports.api import partner_logs, pipeline, reports
from messaging.routing import api as routing
from messaging.transactions import api as transactions

app_name = "api"
urlpatterns = [
    path("messages", submissions.Messages.as_view(), name="messages"),
    path("uploads", uploads.Uploads.as_view(), name="uploads"),
    path("uploads/<str:upload>", uploads.OneUpload.as_view(), name="upload"),
    path("messages/<str:message_id>", messages.OneMessage.as_view(), name="message"),
    path("messages/<str:message_id>/cancel", verbs.Cancel.as_view(), name="message-cancel"),
    path("messages/<str:message_id>/settle", verbs.Settle.as_view(), name="message-settle"),
    path("messages/<str:message_id>/resubmit", verbs.Resubmit.as_view(), name="message-resubmit"),
    path("messages/<str:message_id>/redeliver", verbs.Redeliver.as_view(), name="message-redeliver"),
    path("messages/<str:message_id>/related", messages.Related.as_view(), name="message-related"),
    path("messages/<str:message_id>/documents", messages.Documents.as_view(), name="message-documents"),
    path("messages/<str:message_id>/payloads/<str:number>", messages.Payload.as_view(), name="payload"),
    path("messages/<str:message_id>/wire", messages.Wire.as_view(), name="message-wire"),
    path("messages/<str:message_id>/transmissions", messages.Transmissions.as_view(), name="transmissions"),
    path("messages/<str:message_id>/query-partner", verbs.QueryPartner.as_view(), name="message-query-partner"),
    path("messages/<str:message_id>/inquiries", messages.Inquiries.as_view(), name="message-inquiries"),
    path("inquiries/<str:inquiry>/response", messages.InquiryResponse.as_view(), name="inquiry-response"),
    path("messages/<str:message_id>/signals", messages.Signals.as_view(), name="signals"),
    path("messages/<str:message_id>/events", messages.History.as_view(), name="message-events"),
    path("transmissions/<str:transmission_id>", messages.OneTransmission.as_view(), name="transmission"),
    path(
        "transmissions/<str:transmission_id>/response",
        messages.TransmissionResponse.as_view(),
        name="transmission-response",
    ),
    path("signals/<str:signal_id>/wire", messages.SignalWire.as_view(), name="signal-wire"),
    path("pairs", pairs.Pairs.as_view(), name="pairs"),
    path("pairs/<str:pair>", pairs.OnePair.as_view(), name="pair"),
    path("pairs/<str:pair>/timeline", pair_looks.PairTimeline.as_view(), name="pair-timeline"),
    path("pairs/<str:pair>/queue", pair_looks.PairQueue.as_view(), name="pair-queue"),
    path("pairs/<str:pair>/sequence", pair_looks.PairSequence.as_view(), name="pair-sequence"),
    path("pairs/<str:pair>/diagnosis", pair_looks.PairDiagnosis.as_view(), name="pair-diagnosis"),
    path("pairs/<str:pair>/ping", pair_looks.PairPing.as_view(), name="pair-ping"),
    path("pairs/<str:pair>/waiting.zip", pair_looks.PairExport.as_view(), name="pair-export"),
    path("probes", pair_looks.Probes.as_view(), name="probes"),
    path("probes/<str:probe>", pair_looks.OneProbe.as_view(), name="probe"),
    path("messages/<str:message_id>/timeline", pair_looks.MessageTimeline.as_view(), name="message-timeline"),
    *(path(f"pairs/<str:pair>/{verb}", view.as_view(), name=f"pair-{verb}") for verb, view in pairs.VERBS.items()),
    path("circuits", pair_looks.Circuits.as_view(), name="circuits"),
    path("circuits/<str:circuit>", pair_looks.OneCircuit.as_view(), name="circuit"),
    path("circuits/<str:circuit>/reset", pair_looks.ResetCircuit.as_view(), name="circuit-reset"),
    *triggers.API.urls(),
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
    path("transactions", transactions.Transactions.as_view(), name="transactions"),
    path("transactions/<str:transaction>", transactions.OneTransaction.as_view(), name="transaction"),
    path("transactions/<str:transaction>/context", transactions.Context.as_view(), name="transaction-context"),
    path("transactions/<str:transaction>/messages", transactions.Messages.as_view(), name="transaction-messages"),
    path("transactions/<str:transaction>/commit", transactions.Commit.as_view(), name="transaction-commit"),
    path("transactions/<str:transaction>/rollback", transactions.Rollback.as_view(), name="transaction-rollback"),
    path(
        "transactions/<str:transaction>/participants",
        transactions.Participants.as_view(),
        name="transaction-participants",
    ),
    path(
        "transactions/<str:transaction>/participants/<str:participant>/settle",
        transactions.SettleParticipant.as_view(),
        name="enlistment-settle",
    ),
    path("in-doubt", deliveries.InDoubt.as_view(), name="in-doubt"),
    path("bulk-operations", jobs.Jobs.as_view(), name="jobs"),
    path("bulk-operations/<str:job>", jobs.OneJob.as_view(), name="job"),
    path("bulk-operations/<str:job>/execute", jobs.ExecuteJob.as_view(), name="job-execute"),
    path("bulk-operations/<str:job>/cancel", jobs.CancelJob.as_view(), name="job-cancel"),
    path("bulk-operations/<str:job>/retry", jobs.RetryJob.as_view(), name="job-retry"),
    path("bulk-operations/<str:job>/items", jobs.JobItems.as_view(), name="job-items"),
    path("bulk-operations/<str:job>/items.csv", jobs.JobResults.as_view(), name="job-results"),
    path("bulk-operations/<str:job>/documents", jobs.JobDocuments.as_view(), name="job-documents"),
    *attributes.ATTRIBUTES.urls(),
    *offers.OFFERS.urls(),
    *masks.MASKS.urls(),
    *schemas.urls(),
    path("memory", hub.Memory.as_view(), name="memory"),
    path("parties", parties.Parties.as_view(), name="parties"),
    path("parties/<str:party_id>", parties.OneParty.as_view(), name="party"),
    path("endpoints", parties.Endpoints.as_view(), name="endpoints"),
    path("endpoints/<str:endpoint_id>", parties.OneEndpoint.as_view(), name="endpoint"),
    path("parties/<str:party_id>/health", parties.PartyHealth.as_view(), name="party-health"),
    path("parties/<str:party_id>/archive", parties.ArchiveParty.as_view(), name="party-archive"),
    path("parties/<str:party_id>/restore", parties.RestoreParty.as_view(), name="party-restore"),
    path(
        "endpoints/<str:endpoint_id>/certificates",
        parties.EndpointCertificates.as_view(),
        name="endpoint-certificates",
    ),
    path("certificates", parties.Certificates.as_view(), name="certificates"),
    path("onboarding-drafts", onboarding.Drafts.as_view(), name="onboarding-drafts"),
    path("onboarding-drafts/<str:draft>", onboarding.OneDraft.as_view(), name="onboarding-draft"),
    path("onboarding-drafts/<str:draft>/test", onboarding.TestDraft.as_view(), name="onboarding-draft-test"),
    path(
        "onboarding-drafts/<str:draft>/activate", onboarding.ActivateDraft.as_view(), name="onboarding-draft-activate"
    ),
    path("bundle", onboarding.Bundle.as_view(), name="bundle"),
    path("test-reports", onboarding.BenchReports.as_view(), name="test-reports"),
    path("test-reports/<str:report>", onboarding.OneBenchReport.as_view(), name="test-report"),
    path(
        "agreements/<str:agreement_id>/versions/<str:number>/test",
        onboarding.TestVersion.as_view(),
        name="version-test",
    ),
    path("agreements", agreements.Agreements.as_view(), name="agreements"),
    path("agreements/<str:agreement_id>", agreements.OneAgreement.as_view(), name="agreement"),
    path("agreements/<str:agreement_id>/disable", agreements.DisableAgreement.as_view(), name="agreement-disable"),
    path("agreements/<str:agreement_id>/enable", agreements.EnableAgreement.as_view(), name="agreement-enable"),
    path(
        "agreements/<str:agreement_id>/service-levels",
        agreements.ServiceLevels.as_view(),
        name="agreement-service-levels",
    ),
    path("agreements/<str:agreement_id>/versions", agreements.Versions.as_view(), name="versions"),
    path("agreements/<str:agreement_id>/versions/<str:number>", agreements.OneVersion.as_view(), name="version"),
    path(
        "agreements/<str:agreement_id>/versions/<str:number>/activate",
        agreements.ActivateVersion.as_view(),
        name="version-activate",
    ),
    path("agreements/<str:agreement_id>/timing-draft", reports.TimingDraft.as_view(), name="timing-draft"),
    *routing.ROUTES.urls(),
    path("live", pipeline.Live.as_view(), name="live"),
    path("reports", reports.Reports.as_view(), name="reports"),
    path("reports/audit/incidents", reports.AuditIncidents.as_view(), name="audit-incidents"),
    path("reports/<str:job>", reports.OneReport.as_view(), name="report"),
    path("reports/<str:job>/<str:table>", reports.ReportTable.as_view(), name="report-table"),
    path("pipeline-runs", pipeline.PipelineRuns.as_view(), name="pipeline-runs"),
    path("pipeline-runs/<str:run>", pipeline.OnePipelineRun.as_view(), name="pipeline-run"),
    path("pipeline-runs/<str:run>/cancel", pipeline.CancelPipelineRun.as_view(), name="pipeline-run-cancel"),
    path("pipeline-runs/<str:run>/artifacts/<str:name>", pipeline.PipelineArtifact.as_view(), name="pipeline-artifact"),
    path("partner-logs", partner_logs.PartnerLogs.as_view(), name="partner-logs"),
    path("partner-logs/<str:log>", partner_logs.OnePartnerLog.as_view(), name="partner-log"),
    path("partner-logs/<str:log>/reconcile", partner_logs.ReconcileLog.as_view(), name="partner-log-reconcile"),
    path("partner-logs/<str:log>/incidents", partner_logs.LogIncidents.as_view(), name="partner-log-incidents"),
    path("archive/messages", archive.ArchivedMessages.as_view(), name="archived-messages"),
    path("archive/messages/<str:message_id>", archive.OneArchivedMessage.as_view(), name="archived-message"),
    path("archive/restore", archive.Restore.as_view(), name="archive-restore"),
    path("legal-holds", archive.LegalHolds.as_view(), name="legal-holds"),
    path("legal-holds/<str:hold>", archive.OneLegalHold.as_view(), name="legal-hold"),
    path("legal-holds/<str:hold>/release", archive.ReleaseLegalHold.as_view(), name="legal-hold-release"),
    path("retention", archive.Retention.as_view(), name="retention"),
    *pollers.POLLERS.urls(),
    path("credentials", access.Credentials.as_view(), name="credentials"),
    path("credentials/<str:credential_id>", access.OneCredential.as_view(), name="credential"),
    path("credentials/<str:credential_id>/revoke", access.RevokeCredential.as_view(), name="credential-revoke"),
    path("events", events.Events.as_view(), name="events"),
    path("incidents", incidents.Incidents.as_view(), name="incidents"),
    path("incidents/<str:incident>", incidents.OneIncident.as_view(), name="incident"),
    *(
        path(f"incidents/<str:incident>/{verb}", view.as_view(), name=f"incident-{verb}")
        for verb, view in incidents.VERBS.items()
    ),
    path("incidents/<str:incident>/comments", incidents.IncidentComments.as_view(), name="incident-comments"),
    path("incidents/<str:incident>/timeline", incidents.IncidentTimeline.as_view(), name="incident-timeline"),
    path("incidents/<str:incident>/partner-note", incidents.IncidentNote.as_view(), name="incident-note"),
    path("incidents/<str:incident>/post-mortem", incidents.IncidentPostMortem.as_view(), name="incident-post-mortem"),
    path("notification-rules", notifications.NotificationRules.as_view(), name="notification-rules"),
    path("notification-rules/<str:rule>", notifications.OneNotificationRule.as_view(), name="notification-rule"),
    path(
        "notification-rules/<str:rule>/test",
        notifications.TestNotificationRule.as_view(),
        name="notification-rule-test",
    ),
    path("notifications", notifications.Notifications.as_view(), name="notifications"),
    path("rejections", records.Rejections.as_view(), name="rejections"),
    path("rejections/<str:rejection_id>", records.OneRejection.as_view(), name="rejection"),
    path("rejections/<str:rejection_id>/sample", records.RejectionSample.as_view(), name="rejection-sample"),
    path("webhook-endpoints", webhooks.WebhookEndpoints.as_view(), name="webhook-endpoints"),
    path("webhook-endpoints/<str:endpoint_id>", webhooks.OneWebhookEndpoint.as_view(), name="webhook-endpoint"),
    *(
        path(f"webhook-endpoints/<str:endpoint_id>/{verb}", view.as_view(), name=f"webhook-{verb}")
        for verb, view in webhooks.VERBS.items()
    ),
    path(
        "webhook-endpoints/<str:endpoint_id>/deliveries",
        webhooks.WebhookDeliveries.as_view(),
        name="webhook-deliveries",
    ),
    path(
        "webhook-endpoints/<str:endpoint_id>/deliveries/<str:delivery_id>",
        webhooks.OneWebhookDelivery.as_view(),
        name="webhook-delivery",
    ),
    path(
        "webhook-endpoints/<str:endpoint_id>/deliveries/<str:delivery_id>/redeliver",
        webhooks.RedeliverWebhook.as_view(),
        name="webhook-redeliver",
    ),
    path("audit-log", records.AuditLog.as_view(), name="audit-log"),
    path("audit-log/chain", records.AuditChain.as_view(), name="audit-chain"),
    path("tokens", access.Tokens.as_view(), name="tokens"),
    path("tokens/<str:token_id>", access.OneToken.as_view(), name="token"),
    path("tokens/<str:token_id>/revoke", access.RevokeToken.as_view(), name="token-revoke"),
    path("status", status.Status.as_view(), name="status"),
    path("traffic", status.Traffic.as_view(), name="traffic"),
    path("pairs/<str:pair>/badge", status.Badge.as_view(), name="pair-badge"),
    path("pairs/<str:pair>/badge.svg", status.BadgeImage.as_view(), name="pair-badge-image"),
    path("preferences", preferences.Preferences.as_view(), name="preferences"),
    path("saved-views", preferences.SavedViews.as_view(), name="saved-views"),
    path("saved-views/<str:view>", preferences.OneSavedView.as_view(), name="saved-view"),
    path("users", people.Users.as_view(), name="users"),
    path("users/<str:username>", people.OneUser.as_view(), name="user"),
    path("users/<str:username>/invite", people.InviteUser.as_view(), name="user-invite"),
    path(
        "users/<str:username>/reset-second-factor",
        people.ResetSecondFactor.as_view(),
        name="user-reset-second-factor",
    ),
    path("users/<str:username>/end-sessions", people.EndSessions.as_view(), name="user-end-sessions"),
    path("sessions", people.Sessions.as_view(), name="sessions"),
    path("sessions/<str:session>", people.OneSession.as_view(), name="session"),
    path("partner-groups", people.PartnerGroups.as_view(), name="partner-groups"),
    path("partner-groups/<str:group>", people.OnePartnerGroup.as_view(), name="partner-group"),
    path("causes", hub.Causes.as_view(), name="causes"),
    path("causes/<str:code>", hub.OneCause.as_view(), name="cause"),
    path("metrics", hub.Metrics.as_view(), name="metrics"),
    path("health", hub.Health.as_view(), name="health"),
    path("problems", hub.Problems.as_view(), name="problems"),
    path("problems/<str:code>", hub.OneProblem.as_view(), name="problem"),
    path("openapi.json", hub.OpenApi.as_view(), name="openapi"),
    path("docs", hub.Docs.as_view(), name="docs"),
    # Anything else below /api/v1 is a problem too, and no page of the console.
    re_path(r"^.*$", csrf_exempt(hub.not_found), name="not-found"),
]
