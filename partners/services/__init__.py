"""The only writers of this app. Each public function is one transaction that bumps the revision (`writing`).

They take model instances, and read them again under the lock before they decide.
"""

from __future__ import annotations

from partners.services.agreements import (
    agreement_create,
    agreement_disable,
    agreement_enable,
    agreement_update,
    version_activate,
    version_discard,
    version_edit,
    version_new,
    version_validate,
)
from partners.services.credentials import (
    credential_check_inbound,
    credential_issue,
    credential_revoke,
    credential_store_outbound,
    credentials_reencrypt,
)
from partners.services.parties import (
    endpoint_create,
    endpoint_update,
    party_archive,
    party_create,
    party_restore,
    party_update,
)
from partners.services.pollers import poller_create, poller_delete, poller_update
from partners.validation import Level, Problem, gives_up_sentence

__all__ = [
    "Level",
    "Problem",
    "agreement_create",
    "agreement_disable",
    "agreement_enable",
    "agreement_update",
    "credential_check_inbound",
    "credential_issue",
    "credential_revoke",
    "credential_store_outbound",
    "credentials_reencrypt",
    "endpoint_create",
    "endpoint_update",
    "gives_up_sentence",
    "party_archive",
    "party_create",
    "party_restore",
    "party_update",
    "poller_create",
    "poller_delete",
    "poller_update",
    "version_activate",
    "version_discard",
    "version_edit",
    "version_new",
    "version_validate",
]
