"""Under which agreements documents can be sent."""

from __future__ import annotations

import uuid

from messaging import profile
from partners import registry, visibility
from partners.terms import Terms


def sendable(partner_id: uuid.UUID | None = None) -> list[Terms]:
    """Return the terms in force under which documents go out, by partner and TPAId; those of one partner, or all.

    Under the caller's limits.
    """
    known = [one for one in registry.current().active() if takes(one) and visibility.allows(one.partner_id)]
    chosen = [one for one in known if partner_id in (None, one.partner_id)]
    return sorted(chosen, key=lambda one: (one.partner_name.casefold(), one.tpa_id))


def takes(terms: Terms) -> bool:
    """Whether documents can be sent under these terms at all."""
    return profile.of(terms).carries_documents and bool(sent_under(terms))


def sent_under(terms: Terms) -> list[tuple[str, str]]:
    """Return the (service, action) of what we may send."""
    return [(service, action) for service, action, way in terms.services if way != "receive"]
