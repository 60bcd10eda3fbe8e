"""Parties, their identifiers and endpoints, agreements in versions, and credentials.

Nothing here decides anything: `services` write, `selectors` and `registry` read.
"""

from __future__ import annotations

from partners.models.agreements import DAY, Agreement, AgreementService, AgreementVersion
from partners.models.credentials import Credential
from partners.models.endpoints import Endpoint, Pickup
from partners.models.parties import PartnerGroup, Party, PartyIdentifier
from partners.models.revision import Revision

__all__ = [
    "DAY",
    "Agreement",
    "AgreementService",
    "AgreementVersion",
    "Credential",
    "Endpoint",
    "PartnerGroup",
    "Party",
    "PartyIdentifier",
    "Pickup",
    "Revision",
]
