"""Every page of the console: its address in a world that has one of everything, and the lowest role that may open it.

`test_access` fails when the URLconf has a view that is not in this table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from django.urls import reverse

from messaging.access.pages import people
from messaging.deliveries.pages.decisions import DELIVERY, MESSAGE
from messaging.deliveries.resource import TRIGGERS
from messaging.models import BenchReport, OnboardingDraft
from messaging.onboarding.pages import agreements, parties
from messaging.pairs.resource import VERBS
from messaging.pollers.resource import POLLERS
from messaging.reports.catalogue import REPORTS
from messaging.routing.resource import ROUTES
from messaging.transactions import pages as transactions
from partners.models import Agreement, Credential, PartnerGroup
from rmhub.roles import Role
from tests.messaging.console.scenes import World
from tests.partners.factories import make_agreement

Arguments = Callable[[World], tuple[object, ...]]
V, O, A = Role.VIEWER, Role.OPERATOR, Role.ADMIN  # noqa: E741
EVERYBODY = None


@dataclass(frozen=True, slots=True)
class Page:
    """`role`: None = without logging in. `post`: what a POST of it carries; such a POST changes something."""

    name: str
    role: Role | None
    arguments: Arguments = field(default=lambda world: ())
    get: bool = True
    post: dict[str, str] | None = None
    reads_bytes: int = 0  # documents, each of which is in the audit log then

    def url(self, world: World) -> str:
        return reverse(f"console:{self.name}", args=[str(argument) for argument in self.arguments(world)])


def _pair(world: World) -> str:
    return world.pair.code


def _agreement(world: World) -> tuple[object, ...]:
    return (world.outbound.agreement_version.agreement.public_id,)


def _webhook_delivery(world: World) -> tuple[object, ...]:
    return (world.webhook.public_id, world.webhook.deliveries.order_by("id").first().public_id)


def _user(world: World) -> tuple[object, ...]:
    return (world.token.owner.get_username(),)


def _group(world: World) -> tuple[object, ...]:
    return (PartnerGroup.objects.get_or_create(name="North")[0].public_id,)


def _draft(world: World) -> str:
    now = world.outbound.created_at
    return OnboardingDraft.objects.get_or_create(
        title="Initech",
        defaults={"created_by": "ana", "updated_by": "ana", "created_at": now, "updated_at": now, "step": 6},
    )[0].public_id


def _cpa(_world: World) -> tuple[object, ...]:
    """A version that has what a CPA names."""
    known = Agreement.objects.filter(tpa_id="cpa:1").first()
    if known is None:
        terms = {"profile": "ebms2", "own_role": "Buyer", "partner_role": "Seller"}
        made = make_agreement(tpa_id="cpa:1", activate=False, allowed=(("urn:orders", "Order", "send"),), **terms)
        known = made.agreement
    return known.public_id, 1


def _bench_report(world: World) -> tuple[object, ...]:
    now = world.outbound.created_at
    steps = [{"name": "repeat", "verdict": "ok", "detail": "<b>Recognised.</b>", "seconds": 0.1, "facts": {}}]
    made, _ = BenchReport.objects.get_or_create(
        agreement=world.outbound.agreement_version.agreement,
        number=1,
        defaults={"ok": True, "steps": steps, "actor": "ana", "started_at": now, "finished_at": now},
    )
    return (made.public_id,)


def _endpoint(world: World) -> tuple[object, ...]:
    return (world.outbound.agreement_version.partner_endpoint.public_id,)


def _credential(world: World) -> tuple[object, ...]:
    return (Credential.objects.order_by("id")[0].public_id,)


_SESSION = "ses_" + "0" * 32  # one that has ended


# A verb that the suspended pair's state takes, or is at least refused by it and not by the role.
_VERBS = [
    Page(
        "pair-verb",
        {
            "resume": O,
            "retry-now": O,
            "pause": O,
            "release": O,
            "skip-head": A,
            "restart-sequence": A,
            "clear-resync": A,
        }[slug],
        lambda world, slug=slug: (_pair(world), slug),  # type: ignore[misc]
        post={"reason": "", "version": "1", "confirm": ""},
    )
    for slug in VERBS
    if slug not in ("expect-sequence", "hand-on")
]

_TRIGGER_VERBS = [
    Page(
        "trigger-verb",
        {"resume": O, "suspend": O, "enable": A, "disable": A, "leave": A}[slug],
        lambda world, slug=slug: (world.stopped.public_id, slug),  # type: ignore[misc]
        post={"reason": "", "version": "1"},
    )
    for slug in (verb.slug for verb in TRIGGERS.verbs)
]
_STARTED = "started_not_completed"
_SETTLE = {"reason": "", "version": "1", "expected": "2"}
_DECISIONS = [
    *(
        Page(
            "delivery-settle",
            O,
            lambda world, slug=slug: (world.doubtful.public_id, slug),  # type: ignore[misc]
            post=_SETTLE,
        )
        for slug in DELIVERY
    ),
    *(
        Page(
            "doubt-settle",
            O,
            lambda world, slug=slug: (world.queue.public_id, _STARTED, slug),  # type: ignore[misc]
            post=_SETTLE,
        )
        for slug in DELIVERY
    ),
    *(
        Page(
            "message-settle",
            O,
            lambda world, slug=slug: (world.lost.public_id, slug),  # type: ignore[misc]
            post=_SETTLE,
        )
        for slug in MESSAGE
    ),
    *(
        Page(
            "doubt-outbound-settle",
            O,
            lambda world, slug=slug: (world.lost.pair.code, "outcome_unknown", slug),  # type: ignore[misc]
            post=_SETTLE,
        )
        for slug in MESSAGE
    ),
]

PAGES: list[Page] = [
    Page("dashboard", V),
    Page("go", V),
    Page("login", EVERYBODY),
    Page("login-code", EVERYBODY),
    Page("password-reset", EVERYBODY),
    Page("openid", EVERYBODY),
    Page("openid-back", EVERYBODY),
    Page("invitation", EVERYBODY, lambda w: ("MQ", "0-0")),
    Page("logout", EVERYBODY, get=False, post={}),
    Page("account", V),
    Page("own-session-end", V, lambda w: (_SESSION,), get=False, post={}),
    Page("own-sessions-end", V, get=False, post={}),
    Page("second-factor", V, post={"code": "000000"}),
    Page("second-factor-codes", V),
    Page("second-factor-remove", V),
    Page("users", A),
    Page("user", A, _user),
    Page("user-new", A, post={"once": "x"}),
    Page("user-edit", A, _user, post={"reason": ""}),
    Page("user-invite", A, _user, post={}),
    *(Page("user-verb", A, lambda w, slug=slug: (*_user(w), slug), post={"reason": ""}) for slug in people.VERBS),  # type: ignore[misc]
    Page("user-session-end", A, lambda w: (*_user(w), _SESSION), get=False, post={}),
    Page("groups", A),
    Page("group-new", A, post={"name": ""}),
    Page("group-edit", A, _group, post={"name": ""}),
    Page("group-delete", A, _group, post={"reason": ""}),
    Page("password", V, post={"old_password": "wrong"}),
    Page("theme", EVERYBODY, get=False, post={"theme": "dark"}),
    Page("preferences", V, post={"zone": "nowhere"}),
    Page("columns", V, lambda w: ("pairs",), get=False, post={"offered": "queue"}),
    Page("zone", V, get=False, post={"zone": "UTC"}),
    Page("saved-views", V, post={"page": "pairs"}),
    Page("saved-view-edit", V, lambda w: (w.view.public_id,), post={"version": "1"}),
    Page("saved-view-delete", V, lambda w: (w.view.public_id,), post={"version": "1"}),
    Page("palette", V),
    Page("keys", V),
    Page("toasts", V),
    Page("help", V),
    Page("help-page", V, lambda w: ("audit",)),
    Page("glossary", V),
    Page("causes", V),
    Page("pairs", V),
    Page("pair", V, lambda w: (_pair(w),)),
    *_VERBS,
    Page("pair-verb", A, lambda w: (w.flowing.inbound.code, "expect-sequence"), post={"version": "1"}),
    Page("pair-ping", O, lambda w: (_pair(w),), get=False, post={}),
    Page("pair-settings", O, lambda w: (_pair(w),), get=False, post={"version": "1"}),
    Page("pair-export", O, lambda w: (_pair(w),), reads_bytes=1),
    Page("messages", V),
    Page("message", V, lambda w: (w.outbound.public_id,)),
    Page("message-cancel", A, lambda w: (w.queued.public_id,), post={"reason": ""}),
    Page("message-peek", V, lambda w: (w.outbound.public_id,)),
    Page("message-resubmit", O, lambda w: (w.outbound.public_id,), post={"reason": ""}),
    Page("message-redeliver", O, lambda w: (w.inbound.public_id,), post={"reason": ""}),
    Page("message-documents", O, lambda w: (w.outbound.public_id,), reads_bytes=1),
    Page("message-new", O, post={"reason": ""}),
    Page("message-edit", O, lambda w: (w.outbound.public_id,), post={"reason": ""}, reads_bytes=1),
    Page("message-difference", O, lambda w: (w.outbound.public_id,), reads_bytes=2),
    Page("offered-certificates", V),
    Page("offer-accept", A, lambda w: (w.offer.public_id,), post={"reason": "", "version": "waiting"}),
    Page("offer-decline", A, lambda w: (w.offer.public_id,), post={"reason": "", "version": "waiting"}),
    Page("attributes", A),
    Page("attribute-new", A, post={"reason": ""}),
    Page("attribute", A, lambda w: (w.attribute.public_id,), post={"reason": "", "version": "1"}),
    Page("attribute-delete", A, lambda w: (w.attribute.public_id,), post={"reason": "", "version": "1"}),
    Page("schemas", A),
    Page("schema-new", A, post={"reason": ""}),
    Page("schema", A, lambda w: (w.schema.public_id,)),
    Page("schema-edit", A, lambda w: (w.schema.public_id,), post={"reason": "", "version": "1"}),
    Page("schema-verb", A, lambda w: (w.schema.public_id, "delete"), post={"reason": "", "version": "1"}),
    Page("schema-trial", A, lambda w: (w.schema.public_id,)),
    Page("masks", A),
    Page("mask-new", A, post={"reason": ""}),
    Page("mask", A, lambda w: (w.mask.public_id,), post={"reason": "", "version": "1"}),
    Page("mask-delete", A, lambda w: (w.mask.public_id,), post={"reason": "", "version": "1"}),
    Page("payload", O, lambda w: (w.outbound.public_id, 1), reads_bytes=1),
    Page("payload-download", O, lambda w: (w.outbound.public_id, 1), reads_bytes=1),
    Page("wire", O, lambda w: (w.outbound.public_id,), reads_bytes=1),
    Page("wire-download", O, lambda w: (w.outbound.public_id,), reads_bytes=1),
    Page("transmission", V, lambda w: (w.transmission.public_id,)),
    Page("signal", V, lambda w: (w.signal.public_id,)),
    Page("signal-download", V, lambda w: (w.signal.public_id,)),
    Page("incidents", V),
    Page("incident", V, lambda w: (w.incident,)),
    Page("incident-acknowledge", O, lambda w: (w.incident,), get=False, post={}),
    Page("incident-assign", O, lambda w: (w.incident,), post={"owner": "nobody-of-this-name"}),
    Page("incident-snooze", O, lambda w: (w.incident,), post={"reason": ""}),
    Page("incident-resolve", O, lambda w: (w.incident,), post={"reason": ""}),
    Page("incident-comment", O, lambda w: (w.incident,), get=False, post={"text": ""}),
    Page("incident-note", V, lambda w: (w.incident,)),
    Page("incident-post-mortem", V, lambda w: (w.incident,)),
    Page("circuits", V),
    Page("circuit-try", O, lambda w: (w.circuit.public_id,), post={"reason": ""}),
    Page("in-doubt", V),
    Page("doubt", V, lambda w: (w.queue.public_id, _STARTED)),
    Page("doubt-outbound", V, lambda w: (w.lost.pair.code, "outcome_unknown")),
    *_DECISIONS,
    Page("jobs", V),
    Page("live", V),
    Page("job", V, lambda w: (w.job.public_id,)),
    Page("job", V, lambda w: (w.planned.public_id,)),
    Page("job-cancel", O, lambda w: (w.job.public_id,), post={"reason": ""}),
    Page("job-plan", O, get=False, post={"action": "pairs_pause"}),
    Page("job-execute", O, lambda w: (w.planned.public_id,), post={"reason": ""}),
    Page("job-discard", O, lambda w: (w.job.public_id,), get=False, post={}),
    Page("job-retry", O, lambda w: (w.job.public_id,), get=False, post={}),
    Page("job-results", V, lambda w: (w.job.public_id,)),
    Page("job-export", O, lambda w: (w.export.public_id,), reads_bytes=1),
    Page("in-doubt-ask", O, get=False, post={"cause": "no such cause"}),
    Page("doubt-answer", V, lambda w: ("processed",)),
    Page("doubt-answer-settle", O, lambda w: ("processed", "delivered"), post=_SETTLE),
    Page("message-ask", O, lambda w: (w.queued.public_id,), get=False, post={}),
    Page("inquiry", V, lambda w: (w.inquiry.public_id,)),
    Page("triggers", V),
    Page("trigger", V, lambda w: (w.stopped.public_id,)),
    Page("trigger-new", A, post={"once": "x"}),
    Page("trigger-edit", A, lambda w: (w.stopped.public_id,), post={"version": "1"}),
    Page("trigger-secret", A, lambda w: (w.stopped.public_id,), post={"once": "x"}),
    Page("trigger-failed", O, lambda w: (w.queue.public_id,), post=_SETTLE),
    *_TRIGGER_VERBS,
    Page("deliveries", V),
    Page("delivery", V, lambda w: (w.doubtful.public_id,)),
    Page("delivery", V, lambda w: (w.failed.public_id,)),
    Page("transactions", V),
    Page("transaction", V, lambda w: (w.transaction.public_id,)),
    Page("transaction", V, lambda w: (w.begun.public_id,)),
    *(
        Page(
            "transaction-verb",
            O,
            lambda w, slug=slug: (w.begun.public_id, slug),  # type: ignore[misc]
            post={"reason": "", "version": "1"},
        )
        for slug in transactions.VERBS
    ),
    *(
        Page(
            "enlistment-settle",
            O,
            lambda w, slug=slug: (w.transaction.public_id, w.taker.public_id, slug),  # type: ignore[misc]
            post={"reason": "", "version": "1"},
        )
        for slug in transactions.SETTLEMENTS
    ),
    Page("pollers", V),
    Page("poller", V, lambda w: (w.poller.public_id,)),
    Page("poller-new", A, post={"once": "x"}),
    Page("poller-edit", A, lambda w: (w.poller.public_id,), post={"version": "1"}),
    *(
        Page(
            "poller-verb",
            O if verb.slug == "look" else A,
            lambda w, verb=verb: (w.poller.public_id, verb.slug),  # type: ignore[misc]
            post={"reason": "", "version": "1"},
        )
        for verb in POLLERS.verbs
    ),
    Page("partners", V),
    Page("partner-names", V),
    Page("agreement-names", V),
    Page("partner", V, lambda w: (w.partner.public_id,)),
    Page("party-new", A, post={}),
    Page("party-edit", A, lambda w: (w.partner.public_id,), post={}),
    *(Page("party-verb", A, lambda w, slug=slug: (w.partner.public_id, slug), post={}) for slug in parties.VERBS),  # type: ignore[misc]
    Page("endpoint-new", A, lambda w: (w.partner.public_id,), post={}),
    Page("credential-new", A, lambda w: (w.partner.public_id,), post={}),
    Page("credential-revoke", A, _credential, post={}),
    Page("endpoint", V, _endpoint),
    Page("endpoint-edit", A, _endpoint, post={}),
    Page("endpoint-certificates", A, _endpoint, post={}),
    Page("certificates", V),
    Page("onboarding-new", A, post={"source": "clone"}),
    *(
        Page("onboarding-step", A, lambda w, number=number: (_draft(w), number), post={"go_on": "1", "version": "1"})  # type: ignore[misc]
        for number in (2, 3, 4, 5, 6)
    ),
    Page("onboarding-discard", A, lambda w: (_draft(w),), post={}),
    Page("bundle", A, post={}),
    Page("bundle-download", V),
    Page("cpa", A, post={}),
    Page("cpa-download", V, _cpa),
    Page("agreements", V),
    Page("agreement-new", A, post={}),
    *(Page("agreement-verb", A, lambda w, slug=slug: (*_agreement(w), slug), post={}) for slug in agreements.VERBS),  # type: ignore[misc]
    *(
        Page("version-verb", A, lambda w, slug=slug: (*_agreement(w), 1, slug), post={})  # type: ignore[misc]
        for slug in agreements.VERSION_VERBS
    ),
    Page("version-edit", A, lambda w: (*_agreement(w), 1), post={}),
    Page("bench", V, lambda w: (*_agreement(w), 1)),
    Page("bench-run", A, lambda w: (*_agreement(w), 1), get=False, post={}),
    Page("bench-report", V, _bench_report),
    Page("agreement", V, lambda w: (w.outbound.agreement_version.agreement.public_id,)),
    Page("agreement-version", V, lambda w: (w.outbound.agreement_version.agreement.public_id, 1)),
    Page("routes", V),
    Page("route", V, lambda w: (w.route.public_id,)),
    Page("route-new", A, post={"once": "x"}),
    Page("route-edit", A, lambda w: (w.route.public_id,), post={"version": "1"}),
    *(
        Page("route-verb", A, lambda w, verb=verb: (w.route.public_id, verb.slug), post={"reason": "", "version": "1"})  # type: ignore[misc]
        for verb in ROUTES.verbs
    ),
    Page("pair", V, lambda w: (w.stream_out.code,)),
    Page("pair", V, lambda w: (w.stream_in.code,)),
    Page("message", V, lambda w: (w.in_stream.public_id,)),
    Page("message", V, lambda w: (w.passed_on.public_id,)),
    Page("agreement", V, lambda w: (w.in_stream.agreement_version.agreement.public_id,)),
    Page("agreement-log-columns", A, _agreement, post={"column_message_id": "id"}),
    Page("timing-draft", A, _agreement, post={"reason": ""}),
    Page("audit-incidents", O, post={"reason": ""}),
    Page("partner-logs", V),
    Page("partner-log-new", O, post={"reason": ""}),
    Page("log-export", O, post={"reason": ""}),
    Page("partner-log", V, lambda w: (w.log.public_id,)),
    Page("partner-log-reconcile", O, lambda w: (w.log.public_id,), get=False, post={"column_message_id": "nowhere"}),
    Page("partner-log-incidents", O, lambda w: (w.log.public_id,), post={"reason": ""}),
    Page("reports", V),
    *(Page("report", V, lambda w, job=job: (job,)) for job in REPORTS),  # type: ignore[misc]
    Page("report-download", V, lambda w: ("audit", "findings", "csv")),
    Page("report-download", V, lambda w: ("audit", "findings", "parquet")),
    Page("pipeline-runs", V),
    Page("pipeline-start", O, post={"job": "audit", "from": "yesterday"}),
    Page("pipeline-run", V, lambda w: (w.waiting.public_id,)),
    Page("pipeline-run", V, lambda w: (w.made.public_id,)),
    Page("pipeline-cancel", O, lambda w: (w.waiting.public_id,), post={"reason": ""}),
    Page("pipeline-file", V, lambda w: (w.made.public_id, "findings.parquet")),
    Page("archive", V),
    Page("archived", V, lambda w: (w.archived.public_id,)),
    Page("archive-restore", O, lambda w: (w.archived.public_id,), post={"reason": ""}),
    Page("holds", V),
    Page("hold-new", A, post={"reason": ""}),
    Page("hold", V, lambda w: (w.hold.public_id,)),
    Page("hold-release", A, lambda w: (w.hold.public_id,), post={"reason": ""}),
    Page("retention", V),
    Page("retention-change", A, post={"reason": ""}),
    Page("rejections", V),
    Page("rejection", V, lambda w: (w.rejection.public_id,)),
    # A mask of the scene may concern it, and needs an admin.
    Page("rejection-sample", A, lambda w: (w.rejection.public_id,), reads_bytes=1),
    Page("audit", V),
    Page("audit-chain", V),
    Page("notification-rules", A),
    Page("notifications", A),
    Page("notification-rule-new", A, post={"once": "x"}),
    Page("notification-rule", A, lambda w: (w.rule.public_id,)),
    Page("notification-rule-edit", A, lambda w: (w.rule.public_id,), post={"name": ""}),
    Page("notification-rule-test", A, lambda w: (w.rule.public_id,), get=False, post={}),
    Page("notification-rule-delete", A, lambda w: (w.rule.public_id,), post={"revision": "another"}),
    Page("webhooks", A),
    Page("webhook", A, lambda w: (w.webhook.public_id,), post={"reason": ""}),
    Page("webhook-new", A, post={"once": "x"}),
    Page("webhook-edit", A, lambda w: (w.webhook.public_id,), post={"revision": "old"}),
    Page("webhook-test", A, lambda w: (w.webhook.public_id,), get=False, post={}),
    Page("webhook-secret", A, lambda w: (w.webhook.public_id,), post={"once": "x"}),
    Page("webhook-replay", A, lambda w: (w.webhook.public_id,), post={"reason": ""}),
    Page("webhook-delete", A, lambda w: (w.webhook.public_id,), post={"reason": ""}),
    Page("webhook-delivery", A, _webhook_delivery, post={}),
    Page("tokens", A),
    Page("token-new", A, post={"once": "x"}),
    Page("token-revoke", A, lambda w: (w.token.public_id,), post={"reason": ""}),
]
# Answers that are no pages of HTML.
DOWNLOADS = (
    "payload-download",
    "message-documents",
    "wire-download",
    "signal-download",
    "report-download",
    "pipeline-file",
    "pair-export",
    "incident-post-mortem",
    "partner-names",
    "agreement-names",
    "job-results",
    "job-export",
    "bundle-download",
    "cpa-download",
    "toasts",
)

# What a partner's people open, and nobody else.
PORTAL_PAGES: list[Page] = [
    Page("portal", Role.PARTNER),
    Page("portal-messages", Role.PARTNER),
    Page("portal-message", Role.PARTNER, lambda w: (w.outbound.public_id,)),
    Page("portal-connection", Role.PARTNER),
    Page("portal-certificates", Role.PARTNER, post={"note": "without a file"}),
    Page("portal-own-certificate", Role.PARTNER, lambda w: ("0" * 64,), get=False),
    Page("portal-logs", Role.PARTNER, post={"note": "without a file"}),
]
