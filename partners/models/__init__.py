"""Parties, their identifiers and endpoints, agreements in versions, and credentials.

Nothing here decides anything: `services` write, `selectors` and `registry` read.
"""

from __future__ import annotations

from partners.models.agreements import DAY, RECOVERY, TERMS, Agreement, AgreementService, AgreementVersion
from partners.models.credentials import Credential
from partners.models.endpoints import ENDPOINT, POLLER, Endpoint, Poller
from partners.models.parties import PARTY, PartnerGroup, Party, PartyIdentifier
from partners.models.revision import Revision

__all__ = [
    "DAY",
    "ENDPOINT",
    "PARTY",
    "POLLER",
    "RECOVERY",
    "TERMS",
    "Agreement",
    "AgreementService",
    "AgreementVersion",
    "Credential",
    "Endpoint",
    "PartnerGroup",
    "Party",
    "PartyIdentifier",
    "Poller",
    "Revision",
]
