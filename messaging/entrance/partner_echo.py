"""What the hub says of a test message that a partner posts: what it understood of it. Nothing is stored."""

from __future__ import annotations

import hashlib
from typing import Any

from messaging import profile
from messaging.bench import Agreements, Headers, Understood
from partners import registry
from partners.choices import Profile
from partners.models import AgreementVersion
from partners.terms import Principal, Terms
from rmhub import clock

MAX_BYTES = 1024 * 1024
_MOST_PROBLEMS = 20


def greeting(principal: Principal) -> dict[str, Any]:
    """Whom the caller is taken for, and what may be posted."""
    return {"partner": principal.party_name, "at": clock.now().isoformat(), "profiles": list(Profile.values)}


def understand(*, content_type: str, headers: Headers, body: bytes, principal: Principal) -> dict[str, Any]:
    """What the hub reads in a message of any profile, and what would be wrong with it. Never raises for bad input.

    Agreements of this partner count whatever their state is, drafts too; those of others are unknown.
    """
    understood = _read(content_type, headers, body, lambda: _terms_of(principal))
    return {
        **greeting(principal),
        "profile": understood.profile,
        "bytes": len(body),
        "sha256": hashlib.sha256(body).hexdigest(),
        "message": understood.message,
        "payloads": understood.payloads,
        "problems": understood.problems[:_MOST_PROBLEMS],
    }


def _read(content_type: str, headers: Headers, body: bytes, agreements: Agreements) -> Understood:
    """Has the profiles read the message, until one can."""
    unread = Understood()
    # Requests first: a header says that it is one, whatever its body could be read as.
    for speaks in sorted(map(profile.named, Profile.values), key=lambda one: not one.answered_at_once):
        found = speaks.bench.understand(content_type, headers, body, agreements)
        if found.profile:
            return found
        unread.problems += found.problems
    return unread


def _terms_of(principal: Principal) -> list[Terms]:
    """The newest version of each agreement that this partner's endpoints are the next hop of."""
    rows = AgreementVersion.objects.filter(partner_endpoint__party=principal.party_id).order_by("agreement", "-number")
    newest = {row.agreement_id: row.pk for row in reversed(rows)}
    in_force = {terms.agreement_id: terms for terms in registry.current().by_hop(principal.party_id)}
    return [in_force.get(key) or registry.current().version(version) for key, version in newest.items()]
