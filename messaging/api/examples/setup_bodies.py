"""Bodies of requests, by operation: those of partners, agreements, people and what is set up for them."""

from __future__ import annotations

from typing import Any

from messaging.api.examples.bodies import Bodies, reasons
from messaging.api.examples.names import (
    ACME,
    AGREEMENT,
    GLOBEX,
    GROUP,
    RUN,
    THEIR_URI,
)

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

PARTNERS: Bodies = {
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
    "pickups_change": ("Looked into every minute", {"interval": 60, "reason": "GLOBEX waits for our answers"}),
    **reasons(
        pickups_enable="The folder is there again",
        pickups_disable="GLOBEX clears up the folder",
        pickups_look="They say that it is there now",
    ),
    "routes_change": ("Fewer hops", {"max_hops": 3, "reason": "Nothing needs more"}),
    **reasons(routes_enable="The next router is up", routes_disable="The next router is taken down"),
}

AGREEMENTS: Bodies = {
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
}

PEOPLE: Bodies = {
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
        {"zone": "Europe/Berlin", "shortcuts": True, "columns": {"messages": ["size"]}},
    ),
    "saved_views_create": (
        "What failed at one partner, for the team",
        {"page": "messages", "name": "Failed at Globex", "query": f"state=failed&partner={GLOBEX}", "shared": True},
    ),
    "saved_views_change": ("Where the list begins", {"is_default": True}),
}
