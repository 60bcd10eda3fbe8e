"""Parties, endpoints, agreements and credentials that are right unless a test says otherwise.

They go through the services, and reset the registry: a test's own transaction is never committed, so nothing else
would tell it. An agreement whose partner is made with it goes through them once in a process; the next ones
with the same terms are copies of its rows, under other names (`_Copies`), which a test holds against each other.
"""

from __future__ import annotations

import base64
import copy
import itertools
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from django.db import models

from partners import registry, services
from partners.choices import CredentialKind, Profile
from partners.models import Agreement, AgreementService, AgreementVersion, Credential, Endpoint, Party, PartyIdentifier
from partners.services.writing import writing
from rmhub import clock
from rmhub.ids import uuid7

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
    partner_name: str = "",
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
    plain = re.fullmatch(r"[\w:-]{0,60}", tpa_id) is not None  # anything else is for the services to judge
    alone = plain and not (own_party or partner or partner_endpoint)
    key = repr((sorted(terms.items()), allowed, activate))
    known, services_of_it = _made.get(key, (None, [])) if alone else (None, [])
    copied = _Copies()
    if own_endpoint is not None:
        own_party = own_party or own_endpoint.party
    if partner_endpoint is not None:
        partner = partner or partner_endpoint.party
    if own_party is None:
        own_party = make_party(own=True) if known is None else copied.party(known.agreement.own_party)
    if partner is None:
        partner = make_party(partner_name) if known is None else copied.party(known.agreement.partner, partner_name)
    tpa_id = tpa_id or f"tpa:test:{next(_count)}"
    if terms.get("profile") == Profile.REPEATABLE:
        own_uri = own_uri or f"https://own{next(_count)}.example/exchange/{tpa_id}/"
        partner_uri = partner_uri or f"https://partner{next(_count)}.example/exchange/{tpa_id}/"
    if terms.get("profile") == Profile.WSAT:
        own_uri = own_uri or f"https://own{next(_count)}.example/ws-tx"
        partner_uri = partner_uri or f"https://partner{next(_count)}.example/ws-tx"
        allowed = () if allowed == ANY_SERVICE else allowed
    if known is not None:
        own = own_endpoint or copied.endpoint(known.own_endpoint, own_party, own_uri)
        other = copied.endpoint(known.partner_endpoint, partner, partner_uri)
        return copied.agreement(known, services_of_it, tpa_id, own, other)
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
    if alone:
        whole = ("agreement__own_party", "agreement__partner", "own_endpoint__party", "partner_endpoint__party")
        first = AgreementVersion.objects.select_related(*whole).get(pk=version.pk)
        _made[key] = first, list(version.services.all())
    registry.reset()
    return version


# By terms: the first of them in this process, whatever became of its rows.
_made: dict[str, tuple[AgreementVersion, list[AgreementService]]] = {}


class _Copies:
    """Rows like those that the services wrote, under names of their own, which are counted as those are."""

    def __init__(self) -> None:
        self.parties: list[Party] = []
        self.identifiers: list[PartyIdentifier] = []
        self.endpoints: list[Endpoint] = []

    def party(self, like: Party, name: str = "") -> Party:
        number = next(_count)
        made = _copied(like, name=name or f"{'Own' if like.is_own else 'Partner'} {number}")
        self.parties.append(made)
        self.identifiers.append(PartyIdentifier(party=made, context="DUNS", value=f"{number:09d}"))
        return made

    def endpoint(self, like: Endpoint, party: Party, uri: str) -> Endpoint:
        uri = uri or f"https://msh{next(_count)}.example/ebxml"
        made = _copied(like, party=party, uri=uri, error_uri=uri)
        self.endpoints.append(made)
        return made

    def agreement(
        self, known: AgreementVersion, allowed: Sequence[AgreementService], tpa_id: str, own: Endpoint, other: Endpoint
    ) -> AgreementVersion:
        """Writes them all."""
        agreement = _copied(known.agreement, tpa_id=tpa_id, own_party=own.party, partner=other.party)
        since = known.activated_at and clock.now()
        version = _copied(known, agreement=agreement, own_endpoint=own, partner_endpoint=other, activated_at=since)
        with writing():
            Party.objects.bulk_create(self.parties)
            PartyIdentifier.objects.bulk_create(self.identifiers)
            Endpoint.objects.bulk_create(self.endpoints)
            Agreement.objects.bulk_create([agreement])
            AgreementVersion.objects.bulk_create([version])
            AgreementService.objects.bulk_create(_copied(service, version=version) for service in allowed)
        registry.reset()
        return version


Row = TypeVar("Row", bound=models.Model)


def _copied(like: Row, **changes: Any) -> Row:
    found = copy.copy(like)
    found._state.adding = True
    found.pk = uuid7() if isinstance(like.pk, UUID) else None
    for name, value in changes.items():
        setattr(found, name, value)
    return found


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
