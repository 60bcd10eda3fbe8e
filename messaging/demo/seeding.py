"""Sets up one side of the demo: two parties, agreements, credentials, and people who may log in."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import timedelta

from django.contrib.auth.models import Group, User
from django.db import transaction

from messaging.choices import Interface
from messaging.models import ApiToken
from messaging.services import pairs, tokens
from messaging.services.audit import Actor
from partners import registry, services
from partners.choices import CredentialKind
from partners.models import Agreement, Credential, Endpoint, Party
from rmhub import clock
from rmhub.roles import Role, scopes_of

ORDERS = "urn:oasis:names:specification:ubl:services:ordering"
BILLING = "urn:oasis:names:specification:ubl:services:billing"
EDI = "urn:un:unece:uncefact:edifact"
SERVICES = ((ORDERS, "*", "both"), (BILLING, "*", "both"), (EDI, "*", "both"))


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two demo organisations. `uri` is the root of its messaging service URIs: names, not addresses."""

    name: str
    identifier: tuple[str, str]
    uri: str


BUYER = Side("Nordlys Retail", ("DUNS", "123456789"), "http://msh.nordlys.example")
SELLER = Side("Brick Lane Supplies", ("DUNS", "987654321"), "http://msh.bricklane.example")


@dataclass(frozen=True, slots=True)
class Plan:
    """What to set up. `address`: where the partner's bytes are really sent, the root of a URL without a slash.

    `secret_in` the partner shows us, `secret_out` we show the partner. Times in seconds.
    """

    own: Side
    partner: Side
    address: str
    secret_in: str
    secret_out: str
    agreements: int = 4
    timeout: int = 2
    retries: int = 50
    retry_interval: int = 2
    transport_retries: int = 3
    transport_retry_interval: int = 1


def tpa_id(number: int) -> str:
    """The TPAId of the demo's agreements; both sides use the same."""
    return f"tpa:demo:{number}"


def seed(plan: Plan) -> None:
    """Makes what is missing; what exists is left alone, so it may run at every start."""
    own = _party(plan.own, ours=True)
    partner = _party(plan.partner, ours=False)
    _credentials(partner, plan)
    for number in range(1, plan.agreements + 1):
        known = Agreement.objects.filter(tpa_id=tpa_id(number)).first()
        if known is not None:
            _move(known.versions.latest("number").partner_endpoint, plan.address, number)
            continue
        agreement = services.agreement_create(
            tpa_id=tpa_id(number),
            name=f"Orders and invoices {number}",
            own_party=own,
            partner=partner,
            own_endpoint=_endpoint(own, plan.own, number, ""),
            partner_endpoint=_endpoint(partner, plan.partner, number, plan.address),
            services=SERVICES,
            timeout=plan.timeout,
            retries=plan.retries,
            retry_interval=plan.retry_interval,
            transport_retries=plan.transport_retries,
            transport_retry_interval=plan.transport_retry_interval,
        )
        services.version_activate(version=agreement.versions.get())
    registry.reset()
    pairs.ensure_pairs()


def _party(side: Side, *, ours: bool) -> Party:
    known = Party.objects.filter(name=side.name).first()
    return known or services.party_create(name=side.name, is_own=ours, identifiers=[side.identifier])


def _endpoint(party: Party, side: Side, number: int, address: str) -> Endpoint:
    return services.endpoint_create(
        party=party,
        name=f"msh {number}",
        uri=f"{side.uri}/ebxml/msh/{number}",
        error_uri=f"{side.uri}/ebxml/errors/{number}",
        address=f"{address}/ebxml/msh/{number}" if address else "",
        error_address=f"{address}/ebxml/errors/{number}" if address else "",
        connect_timeout=3,
        read_timeout=5,
    )


def _move(endpoint: Endpoint, address: str, number: int) -> None:
    """The partner listens elsewhere at every start of the demo."""
    wished = f"{address}/ebxml/msh/{number}"
    if endpoint.address != wished:
        services.endpoint_update(endpoint=endpoint, address=wished, error_address=f"{address}/ebxml/errors/{number}")


def _credentials(partner: Party, plan: Plan) -> None:
    if Credential.objects.filter(party=partner).exists():
        return
    services.credential_issue(
        party=partner, kind=CredentialKind.BASIC, username="partner", secret=plan.secret_in, label="demo"
    )
    services.credential_store_outbound(
        party=partner, kind=CredentialKind.BASIC, username="partner", secret=plan.secret_out, label="demo"
    )


def people() -> dict[str, str]:
    """Users viewer, operator and admin with new passwords (log-in name -> password). Known ones keep theirs."""
    made: dict[str, str] = {}
    with transaction.atomic():
        for role in Role:
            group, _ = Group.objects.get_or_create(name=role)
            if User.objects.filter(username=role).exists():
                continue
            password = secrets.token_urlsafe(12)
            user = User.objects.create_user(username=role, password=password)
            user.groups.add(group)
            made[role] = password
    return made


def token(name: str, scopes: list[str]) -> str:
    """A new API token of the demo's admin, for the programs of the demo."""
    owner = User.objects.get(username=Role.ADMIN)
    ApiToken.objects.filter(owner=owner, name=name).delete()
    _, secret = tokens.token_create(
        owner=owner,
        name=name,
        scopes=scopes,
        actor=Actor("demo", Interface.COMMAND),
        granted_by=scopes_of(owner),
        expires_at=clock.now() + timedelta(days=1),
        reason="programs of the demo",
    )
    return secret
