"""Bodies of requests, by operation."""

from __future__ import annotations

from typing import Any

from messaging.api.examples.names import ACME, AGREEMENT, CONVERSATION, GLOBEX, GROUP, MESSAGE, RUN, THEIR_URI

Bodies = dict[str, tuple[str, Any]]  # operation -> title of the example, body

_CLAIM = "0192f3f2f3e47a5fb0c1d2e3f4a5b6c7"
_PEM = "-----BEGIN CERTIFICATE-----\nMIIB...\n-----END CERTIFICATE-----\n"
_BUNDLE: dict[str, Any] = {
    "format": "rmhub-bundle",
    "version": 1,
    "parties": [
        {
            "name": "Globex",
            "is_own": False,
            "identifiers": [{"type": "DUNS", "value": "123456789"}],
            "endpoints": [{"name": "main", "transport": "http", "uri": THEIR_URI}],
        }
    ],
    "agreements": [],
}


def reasons(**said: str) -> Bodies:
    """Operations whose body is a reason and nothing else."""
    return {operation: ("With a reason", {"reason": reason}) for operation, reason in said.items()}


BODIES: Bodies = {
    **reasons(
        messages_cancel="The customer withdrew the order",
        messages_query_partner="The connection broke: do they have it?",
        messages_redeliver="The ERP was restored from last night's backup",
        messages_resubmit="GLOBEX lost it before their import",
    ),
    "messages_settle": (
        "The partner has it",
        {"decision": "delivered", "reason": "GLOBEX shows order 4711 in its list"},
    ),
    "archive_restore": (
        "One conversation",
        {"conversation_id": CONVERSATION, "reason": "The auditors ask for the orders of March"},
    ),
    "holds_place": (
        "What we exchanged with a partner in one quarter",
        {
            "name": "Case 17/2026",
            "party": GLOBEX,
            "range_from": "2026-01-01T00:00:00Z",
            "range_to": "2026-04-01T00:00:00Z",
            "reason": "Lawsuit over the deliveries of the first quarter",
        },
    ),
    **reasons(holds_release="The case is closed"),
    **reasons(
        offered_certificates_accept="Fingerprint compared by telephone",
        offered_certificates_decline="The fingerprint is another one",
    ),
    "retention_change": (
        "Archived after 90 days, kept ten years",
        {
            "enabled": True,
            "archive_after": 90,
            "purge_after": 120,
            "keep_archive": 3653,
            "reason": "New records policy",
        },
    ),
    "attributes_create": (
        "The number of invoices in XML",
        {
            "name": "invoice",
            "kind": "xml",
            "path": "//Invoice/Number",
            "partner": GLOBEX,
            "service": "urn:invoices",
            "reason": "Accounting asks for it",
        },
    ),
    "attributes_change": (
        "The account is for finding only",
        {"shown": False, "reason": "Asked for by data protection"},
    ),
    "schemas_create": (
        "What orders have to look like in JSON",
        {
            "name": "Orders",
            "kind": "json",
            "service": "urn:orders",
            "action": "Order",
            "on_submission": "refuse",
            "on_receipt": "hold",
            "files": [{"name": "order.json", "text": '{"type": "object", "required": ["number"]}'}],
            "reason": "Agreed with the partners",
        },
    ),
    "schemas_change": (
        "Back to the first version",
        {"number": 1, "reason": "The second is not agreed yet"},
    ),
    "schemas_trial": (
        "The documents of a stored message",
        {"message": MESSAGE},
    ),
    "masks_create": (
        "IBANs of customers, for everybody but admins",
        {
            "name": "IBAN of the customer",
            "kind": "xml",
            "path": "//Customer/IBAN",
            "partner": GLOBEX,
            "service": "urn:orders",
            "visible_to": "admin",
            "reason": "Asked for by data protection",
        },
    ),
    "masks_change": (
        "Operators see it too",
        {"visible_to": "operator", "reason": "They check what customers complain about"},
    ),
    "pairs_update": (
        "A document is expected every six hours",
        {
            "expected_every": 21_600,
            "silence_grace": 1800,
            "runbook": "GLOBEX answers the telephone from 7 to 19 h.",
            "reason": "Agreed with GLOBEX",
        },
    ),
    "pairs_resume": (
        "One message first",
        {"mode": "probe", "reason": "New certificate installed by GLOBEX"},
    ),
    "pairs_expect_sequence": (
        "The number that comes next",
        {"expected": 4712, "reason": "GLOBEX restored its hub and goes on at 4712"},
    ),
    **reasons(circuits_reset="Their firewall is open again"),
    "deliveries_complete": ("It is processed", {"claim": _CLAIM}),
    "deliveries_extend": ("Two minutes more", {"claim": _CLAIM, "seconds": 120}),
    "deliveries_fail": (
        "It cannot be processed",
        {"claim": _CLAIM, "detail": "Article 88 is not in the catalogue."},
    ),
    "deliveries_release": ("Later, for somebody else", {"claim": _CLAIM, "delay": 300}),
    "triggers_change": (
        "More at the same time",
        {"concurrency": 8, "timeout": 60, "reason": "The ERP has a second machine"},
    ),
    **reasons(
        triggers_resume="The ERP is up again",
        triggers_suspend="The ERP is upgraded this evening",
        triggers_enable="The ERP is used again",
        triggers_disable="The new ERP has a trigger of its own",
        triggers_leave="The warehouse does not take part any more",
    ),
    "triggers_rotate_secret": ("With a reason", {"reason": "Yearly change of secrets"}),
    "bulk_operations_execute": (
        "What the plan matched",
        {"expect_count": 38, "reason": "The ERP's journal has all of them"},
    ),
    "bulk_operations_retry": ("Half a minute between two pairs", {"stagger": 30}),
    **reasons(bulk_operations_cancel="The wrong group was chosen"),
    **reasons(incidents_acknowledge="I am on it"),
    "incidents_assign": ("To a colleague", {"owner": "bob", "reason": "He knows their firewall"}),
    "incidents_comment": ("A comment", {"text": "GLOBEX restarts its server at noon."}),
    "notification_rules_change": (
        "The same event is reported once an hour",
        {"window": 3600, "reason": "Too many mails at night"},
    ),
    **reasons(pipeline_runs_cancel="It runs over the wrong month"),
    "reports_audit_incidents": (
        "Incidents of what is missing",
        {"kinds": ["gap", "ack_without_storage"], "run": RUN, "reason": "To be cleared up with the partners"},
    ),
    "partner_logs_incidents": (
        "Incidents of what got lost",
        {"verdicts": ["lost"], "run": RUN, "reason": "To be cleared up with GLOBEX"},
    ),
    "uploads_begin": (
        "A document of 10 GB",
        {"size": 10_000_000_000, "sha256": "70d1fddaf10df96004cedd27ed9293ec5981c053e0d4d07fca4cd602a4630de8"},
    ),
    "transactions_commit": ("With a reason", {"reason": "Both sides have reserved the stock"}),
    **reasons(transactions_rollback="The customer withdrew the order"),
    "webhook_endpoints_change": (
        "Only what went wrong",
        {"types": ["message.failed", "pair.suspended"], "reason": "The ERP needs no more"},
    ),
    "webhook_endpoints_rotate_secret": (
        "Both secrets sign for a day",
        {"overlap_hours": 24, "reason": "Yearly change of secrets"},
    ),
    **reasons(
        webhook_endpoints_test="Before go-live",
        webhook_deliveries_redeliver="The ERP lost it",
    ),
    "parties_change": (
        "Another time to call",
        {"contact": "edi@globex.example", "time_zone": "Europe/Berlin", "reason": "They have a new service desk"},
    ),
    **reasons(parties_archive="They do not buy from us any more", parties_restore="They buy from us again"),
    "endpoints_create": (
        "Where a partner's messages go",
        {"party": GLOBEX, "name": "main", "transport": "http", "uri": THEIR_URI, "reason": "go-live"},
    ),
    "endpoints_change": (
        "Reached at another address, under the same URI",
        {"address": "https://new.globex.example/ebxml", "reason": "They move to another data centre"},
    ),
    "endpoints_replace_certificates": (
        "The only one that its server may show",
        {"pem": _PEM, "reason": "GLOBEX changes its certificate on Sunday"},
    ),
    "credentials_create": (
        "A password that the partner shows us",
        {
            "party": GLOBEX,
            "direction": "inbound",
            "kind": "basic",
            "label": "2026",
            "username": "globex",
            "valid_until": "2027-11-22T00:00:00Z",
            "reason": "go-live",
        },
    ),
    **reasons(credentials_revoke="It was sent by mail by mistake"),
    "partner_groups_create": (
        "Partners that some people see",
        {"name": "Retail", "description": "Shops in the south", "partners": [GLOBEX], "reason": "New team"},
    ),
    "partner_groups_change": (
        "All that it has afterwards",
        {"partners": [GLOBEX, ACME], "reason": "Acme belongs to them too"},
    ),
    "pollers_change": ("Polled every minute", {"interval": 60, "reason": "GLOBEX waits for our answers"}),
    **reasons(
        pollers_enable="The folder is there again",
        pollers_disable="GLOBEX clears up the folder",
        pollers_look="They say that it is there now",
    ),
    "routes_change": ("Fewer hops", {"max_hops": 3, "reason": "Nothing needs more"}),
    **reasons(routes_enable="The next router is up", routes_disable="The next router is taken down"),
    "agreements_change": (
        "Another name, and how the partner's log calls things",
        {
            "name": "Orders and invoices",
            "log_columns": {"message_id": "MSGID", "at": "TIME"},
            "reason": "Their export has a new form",
        },
    ),
    **reasons(
        agreements_disable="The contract has ended",
        agreements_enable="The contract was prolonged",
        agreements_activate_version="GLOBEX confirmed the longer timeout",
    ),
    "agreements_new_version": (
        "A draft",
        {"note": "Longer timeout: their import runs at night", "reason": "Asked for by GLOBEX"},
    ),
    "agreements_edit_version": (
        "More patience",
        {"timeout": 120, "retries": 8, "retry_interval": 600, "reason": "Their import runs at night"},
    ),
    "agreements_timing_draft": (
        "From the run that was looked at",
        {"run": RUN, "reason": "The report shows needless repeats"},
    ),
    "onboarding_drafts_create": ("Like an agreement that we have", {"source": "clone", "clone_of": AGREEMENT}),
    "onboarding_drafts_change": (
        "Who it is",
        {
            "step": "identity",
            "values": {"name": "Globex", "identifiers": [["DUNS", "123456789"]], "time_zone": "Europe/Berlin"},
        },
    ),
    **reasons(onboarding_drafts_activate="Tested with GLOBEX on 22 November"),
    "bundle_import": (
        "What would happen",
        {"bundle": _BUNDLE, "dry_run": True, "reason": "Set-up of the test hub"},
    ),
    "cpa_import": (
        "What would happen",
        {
            "cpa": '<tp:CollaborationProtocolAgreement tp:cpaid="cpa:acme-globex" tp:version="1"> ... '
            "</tp:CollaborationProtocolAgreement>",
            "own": "urn:oasis:names:tc:ebxml-cppa:partyid-type:duns:123456789",
            "dry_run": True,
            "reason": "Agreed with GLOBEX on 22 November",
        },
    ),
    "users_create": (
        "Sees the partners of one group",
        {
            "username": "bob",
            "role": "operator",
            "full_name": "Bob Miller",
            "email": "bob@acme.example",
            "limited": True,
            "groups": [GROUP],
            "reason": "New in the team",
        },
    ),
    "users_change": ("More rights", {"role": "admin", "reason": "Ana is on leave"}),
    **reasons(
        users_end_sessions="The laptop was stolen",
        users_invite="The first invitation was lost",
        users_reset_second_factor="New telephone; identity checked by video",
        tokens_revoke="The application was switched off",
    ),
    "preferences_change": (
        "Times of Berlin, without a column",
        {"zone": "Europe/Berlin", "language": "de", "shortcuts": True, "columns": {"messages": ["size"]}},
    ),
    "saved_views_create": (
        "What failed at one partner, for the team",
        {"page": "messages", "name": "Failed at Globex", "query": f"state=failed&partner={GLOBEX}", "shared": True},
    ),
    "saved_views_change": ("Where the list begins", {"is_default": True}),
}

FORMS: Bodies = {
    "messages_submit": (
        "A file part for each document",
        {
            "agreement": "tpa:acme-globex",
            "service": "urn:orders",
            "action": "NewOrder",
            "message_id": "order-4711@acme",
            "payload": ["(the octets of order.xml)"],
            "label": ["Order"],
        },
    ),
    "partner_logs_create": (
        "A month of a partner's log",
        {
            "party": GLOBEX,
            "file": "(the octets of globex-october.csv)",
            "columns": '{"message_id": "MSGID", "at": "TIME"}',
            "range_from": "2026-10-01T00:00:00Z",
            "range_to": "2026-11-01T00:00:00Z",
            "reason": "Monthly comparison",
        },
    ),
}
