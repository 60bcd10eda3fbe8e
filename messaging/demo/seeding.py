"""Sets up one side of the demo: two parties, agreements, credentials, a trigger, and people who may log in."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from django.contrib.auth.models import Group, User
from django.db import transaction

from messaging.access.services import tokens
from messaging.choices import Consult, Interface, RetryUntil, ServiceKind
from messaging.deliveries.services import triggering
from messaging.deliveries.services.trigger_rules import TriggerValues
from messaging.engine import pairs
from messaging.journal.audit import Actor
from messaging.models import Access, ApiToken, Trigger
from messaging.profile import named
from partners import registry, services
from partners.choices import FOR_MESSAGES, CredentialKind, Encryption, Profile, Signatures
from partners.models import Agreement, Credential, Endpoint, Party
from rmhub import clock
from rmhub.roles import ORDER, ROLES, Role, scopes_of

ORDERS = "urn:oasis:names:specification:ubl:services:ordering"
BILLING = "urn:oasis:names:specification:ubl:services:billing"
EDI = "urn:un:unece:uncefact:edifact"
MOST_HOPS = 4  # of `manage.py demo --hops`
SERVICES = ((ORDERS, "*", "both"), (BILLING, "*", "both"), (EDI, "*", "both"))


# Streams of the demo: nobody waits half a minute for what the bad link has lost. Seconds; milliseconds.
RESEND_SCHEDULE = "1,1,2,2,4"
ORDER_ACK_TIMEOUT, MAX_ORDER_ACK_DELAY = 100, 500


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two demo organisations. `uri` is the root of its messaging service URIs: names, not addresses."""

    name: str
    identifier: tuple[str, str]
    uri: str


BUYER = Side("Nordlys Retail", ("DUNS", "123456789"), "http://msh.nordlys.example")
SELLER = Side("Brick Lane Supplies", ("DUNS", "987654321"), "http://msh.bricklane.example")


# Terms of the agreements that the command line may change.
TERMS = {"timeout": 2, "retries": 50, "retry_interval": 2, "transport_retries": 3, "transport_retry_interval": 1}

# Service levels that both sides keep through a link that loses some messages, and miss when one of them is down.
TARGETS = {
    "acknowledged_within": 60,
    "acknowledged_percent": 99.0,
    "processed_within": 60,
    "processed_percent": 99.0,
}


@dataclass(frozen=True, slots=True)
class Plan:
    """What to set up. `address`: where the partner's bytes are really sent, the root of a URL without a slash.

    `secret_in` the partner shows us, `secret_out` we show the partner. `signer`: our certificate with its key, and
    `partner_signer` that of the partner (PEM), where the profile signs and encrypts; "" for neither. Times in seconds.
    """

    own: Side
    partner: Side
    address: str
    secret_in: str
    secret_out: str
    agreements: int = 4
    profiles: tuple[str, ...] = (Profile.EBXML,)  # of the agreements, in turn
    ordered: bool = False
    terms: Mapping[str, int] = field(default_factory=lambda: TERMS)
    targets: Mapping[str, float] = field(default_factory=dict)
    signer: str = field(default="", repr=False)
    partner_signer: str = ""


def tpa_id(number: int) -> str:
    """The TPAId of the demo's agreements; both sides use the same."""
    return f"tpa:demo:{number}"


def seed(plan: Plan) -> None:
    """Makes what is missing; what exists is left alone, so it may run at every start."""
    own = _party(plan.own, ours=True)
    partner = _party(plan.partner, ours=False)
    _credentials(partner, plan)
    for number in range(1, plan.agreements + 1):
        profile = plan.profiles[(number - 1) % len(plan.profiles)]
        known = Agreement.objects.filter(tpa_id=tpa_id(number)).first()
        if known is not None:
            version = known.versions.latest("number")
            _move(version.partner_endpoint, plan.address, version.profile, number)
            continue
        secured = plan.signer and named(profile).acknowledged_singly
        agreement = services.agreement_create(
            tpa_id=tpa_id(number),
            name=f"Orders and invoices {number}",
            own_party=own,
            partner=partner,
            own_endpoint=_endpoint(own, plan.own, profile, number, ""),
            partner_endpoint=_endpoint(partner, plan.partner, profile, number, plan.address),
            services=SERVICES,
            profile=profile,
            ordered=plan.ordered,
            message_order=named(profile).acknowledged_singly,
            signatures=Signatures.RECEIPTS if secured else Signatures.NONE,
            encryption=Encryption.AES256 if secured else Encryption.NONE,
            repeat_interval=plan.terms["retry_interval"],
            repeat_interval_max=4 * plan.terms["retry_interval"],
            **plan.terms,
            **plan.targets,
            resend_schedule=RESEND_SCHEDULE,
            order_ack_timeout=ORDER_ACK_TIMEOUT,
            max_order_ack_delay=MAX_ORDER_ACK_DELAY,
        )
        services.version_activate(version=agreement.versions.get())
    registry.reset()
    pairs.ensure_pairs()


def _party(side: Side, *, ours: bool) -> Party:
    known = Party.objects.filter(name=side.name).first()
    return known or services.party_create(name=side.name, is_own=ours, identifiers=[side.identifier])


def _paths(profile: str, number: int) -> tuple[str, str]:
    """Paths of the messaging service and of its error URI, which takes a stream's receipts.

    The repeatable profile answers errors at once.
    """
    speaks = named(profile)
    if speaks.answered_at_once:
        path = f"/exchange/{tpa_id(number)}/"
        return path, path
    if speaks.acknowledged_singly:
        return f"/ebms2/msh/{number}", f"/ebms2/msh/{number}"
    if speaks.windowed:
        return f"/stream/{number}", f"/stream/receipts/{number}"
    return f"/ebxml/msh/{number}", f"/ebxml/errors/{number}"


def _endpoint(party: Party, side: Side, profile: str, number: int, address: str) -> Endpoint:
    path, error_path = _paths(profile, number)
    return services.endpoint_create(
        party=party,
        name=f"{profile} {number}",
        uri=side.uri + path,
        error_uri=side.uri + error_path,
        address=address + path if address else "",
        error_address=address + error_path if address else "",
        connect_timeout=3,
        read_timeout=5,
    )


def _move(endpoint: Endpoint, address: str, profile: str, number: int) -> None:
    """The partner listens elsewhere at every start of the demo."""
    path, error_path = _paths(profile, number)
    if endpoint.address != address + path:
        services.endpoint_update(endpoint=endpoint, address=address + path, error_address=address + error_path)


TRIGGER = "Demo application"


def trigger(url: str, *, kind: str, resolver: bool) -> str:
    """Delivers every document to the application at `url` (root, without a slash); returns the secret that signs.

    The application listens elsewhere at every start, and gets a new secret each time. It is tried again until it is up;
    while its resolver cannot be asked the trigger is suspended, and its monitor finds out when that is over.
    With the kind "pull" it fetches the documents itself.
    """
    actor = Actor("demo", Interface.COMMAND)
    reason = "the demo's receiving application"
    known = Trigger.objects.filter(name=TRIGGER).first()
    settings = TriggerValues(
        name=TRIGGER,
        kind=kind,
        url=f"{url}/documents" if kind == ServiceKind.HTTP else "",
        timeout=60,
        lease_seconds=30,
        retry_until=RetryUntil.SUCCESS,
        retry_interval=1,
        resolver=Consult.HTTP if resolver else Consult.NONE,
        resolver_url=f"{url}/resolve" if resolver else "",
        monitor=Consult.HTTP,
        monitor_url=f"{url}/health",
        monitor_interval=2,
    )
    if known is None:
        return triggering.trigger_create(actor=actor, reason=reason, **settings)[1]
    triggering.trigger_update(trigger_id=known.pk, actor=actor, reason=reason, **settings)
    return triggering.trigger_rotate_secret(trigger_id=known.pk, actor=actor, reason=reason)[1]


def _credentials(partner: Party, plan: Plan) -> None:
    if Credential.objects.filter(party=partner).exists():
        return
    services.credential_issue(
        party=partner, kind=CredentialKind.BASIC, username="partner", secret=plan.secret_in, label="demo"
    )
    services.credential_store_outbound(
        party=partner, kind=CredentialKind.BASIC, username="partner", secret=plan.secret_out, label="demo"
    )
    for kind in FOR_MESSAGES if plan.signer else ():
        services.credential_issue(party=partner, kind=kind, certificate=plan.partner_signer, label="demo")
        services.credential_store_outbound(party=partner, kind=kind, secret=plan.signer, label="demo")


def people(partner: Side | None = None) -> dict[str, str]:
    """Users viewer, operator and admin with new passwords (log-in name -> password), and one of the partner. Known ones
    keep theirs.
    """
    made: dict[str, str] = {}
    with transaction.atomic():
        for role in ORDER if partner is None else ROLES:
            group, _ = Group.objects.get_or_create(name=role)
            if User.objects.filter(username=role).exists():
                continue
            password = secrets.token_urlsafe(12)
            user = User.objects.create_user(username=role, password=password)
            user.groups.add(group)
            if role == Role.PARTNER and partner is not None:
                Access.objects.create(user=user, limited=True, partner=Party.objects.get(name=partner.name))
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
