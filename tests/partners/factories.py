"""Parties, endpoints, agreements and credentials that are right unless a test says otherwise.

They go through the services, and reset the registry: a test's own transaction is
never committed, so nothing else would tell it.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from partners import registry, services
from partners.choices import CredentialKind, Profile
from partners.models import AgreementVersion, Credential, Endpoint, Party

ANY_SERVICE = (("urn:orders", "*", "both"),)

_count = itertools.count(1)


def make_party(
    name: str = "",
    *,
    own: bool = False,
    identifiers: Sequence[tuple[str, str]] | None = None,
    contact: str = "",
) -> Party:
    """A party with one DUNS number, or with `identifiers`."""
    number = next(_count)
    party = services.party_create(
        name=name or f"{'Own' if own else 'Partner'} {number}",
        is_own=own,
        contact=contact,
        identifiers=((("DUNS", f"{number:09d}"),) if identifiers is None else identifiers),
    )
    registry.reset()
    return party


def make_endpoint(party: Party, uri: str = "", **fields: Any) -> Endpoint:
    """An HTTP endpoint of the party."""
    endpoint = services.endpoint_create(party=party, uri=uri or f"https://msh{next(_count)}.example/ebxml", **fields)
    registry.reset()
    return endpoint


def make_agreement(
    *,
    own_party: Party | None = None,
    partner: Party | None = None,
    own_endpoint: Endpoint | None = None,
    partner_endpoint: Endpoint | None = None,
    own_uri: str = "",
    partner_uri: str = "",
    tpa_id: str = "",
    allowed: Sequence[tuple[str, str, str]] = ANY_SERVICE,
    activate: bool = True,
    **terms: Any,
) -> AgreementVersion:
    """Version 1 of an agreement: what is not given is made. `terms` are settings such as timeout=60 (seconds).

    With `profile="repeatable"` or `"wsat"` the endpoints that are made have the URIs that a hub has for this profile.
    """
    own_party = own_party or (own_endpoint.party if own_endpoint else make_party(own=True))
    partner = partner or (partner_endpoint.party if partner_endpoint else make_party())
    tpa_id = tpa_id or f"tpa:test:{next(_count)}"
    if terms.get("profile") == Profile.REPEATABLE:
        own_uri = own_uri or f"https://own{next(_count)}.example/exchange/{tpa_id}/"
        partner_uri = partner_uri or f"https://partner{next(_count)}.example/exchange/{tpa_id}/"
    if terms.get("profile") == Profile.WSAT:
        own_uri = own_uri or f"https://own{next(_count)}.example/ws-tx"
        partner_uri = partner_uri or f"https://partner{next(_count)}.example/ws-tx"
        allowed = () if allowed == ANY_SERVICE else allowed
    agreement = services.agreement_create(
        tpa_id=tpa_id,
        own_party=own_party,
        partner=partner,
        own_endpoint=own_endpoint or make_endpoint(own_party, own_uri),
        partner_endpoint=partner_endpoint or make_endpoint(partner, partner_uri),
        services=allowed,
        **terms,
    )
    version = agreement.versions.get()
    if activate:
        version = services.version_activate(version=version)
    registry.reset()
    return version


def make_credential(
    party: Party,
    *,
    kind: str = CredentialKind.BASIC,
    username: str = "",
    secret: str | None = None,
    valid_from: datetime | None = None,
    valid_until: datetime | None = None,
    fingerprint: str = "",
) -> tuple[Credential, str]:
    """An inbound credential, and what the partner shows: the password, the whole token, or ''."""
    if kind == CredentialKind.BASIC and not username:
        username = f"user{next(_count)}"
    issued = services.credential_issue(
        party=party,
        kind=kind,
        username=username,
        secret=secret,
        fingerprint=fingerprint,
        valid_from=valid_from,
        valid_until=valid_until,
    )
    registry.reset()
    return issued


def make_outbound_credential(
    party: Party,
    *,
    kind: str = CredentialKind.BASIC,
    username: str = "hub",
    secret: str = "outbound-secret",
    **fields: Any,
) -> Credential:
    """A credential that we show this partner."""
    credential = services.credential_store_outbound(
        party=party, kind=kind, username=username if kind == CredentialKind.BASIC else "", secret=secret, **fields
    )
    registry.reset()
    return credential


def basic(username: str, password: str) -> str:
    """The Authorization header of HTTP Basic."""
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()
