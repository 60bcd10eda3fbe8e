"""Sets up the demo's coordinator: a partner that sends documents, three applications, the trigger that joins them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from messaging.choices import Interface, RetryUntil, ServiceKind, WhenExhausted
from messaging.deliveries.services import triggering
from messaging.deliveries.services.trigger_rules import TriggerValues
from messaging.demo.seeding import BUYER, SELLER, SERVICES
from messaging.engine import pairs
from messaging.journal.audit import Actor
from partners import registry, services
from partners.choices import CredentialKind, Profile
from partners.models import Agreement, Party

TPA_ID = "tpa:demo:atomic"
SENDER = "sender"  # its user name
TRIGGER = "Stock, ledger and shipping"
NAMES = ("stock", "ledger", "shipping")
_REASON = "the demo's applications"


@dataclass(frozen=True, slots=True)
class Member:
    """One application: the root of its URL, and what the two show each other."""

    name: str
    url: str
    secret_in: str
    secret_out: str


@dataclass(frozen=True, slots=True)
class AtomicPlan:
    """What to set up. `hub`: the root of its URL; `secret_in`: what the sender of documents shows. Times in seconds."""

    hub: str
    secret_in: str
    members: tuple[Member, ...]
    timeout: int = 30
    max_retries: int = 6
    retry_interval: int = 1
    repeat_interval: int = 1
    repeat_interval_max: int = 5


def written(plan: AtomicPlan) -> str:
    """The plan as `manage.py seed_demo --atomic` takes it."""
    return json.dumps(asdict(plan))


def read(text: str) -> AtomicPlan:
    """What `written` wrote. Raises ValueError, TypeError."""
    values = json.loads(text)
    return AtomicPlan(**values | {"members": tuple(Member(**one) for one in values["members"])})


def seed(plan: AtomicPlan) -> list[str]:
    """Parties, agreements and triggers of the coordinator; returns what signs documents for each member. For a new
    database.
    """
    own = services.party_create(name=SELLER.name, is_own=True, identifiers=[SELLER.identifier])
    _sender(plan, own)
    here = services.endpoint_create(party=own, name="transactions", uri=f"{plan.hub}/ws-tx")
    actor = Actor("demo", Interface.COMMAND)
    whole, _ = triggering.trigger_create(
        actor=actor,
        reason=_REASON,
        name=TRIGGER,
        kind=ServiceKind.ATOMIC,
        timeout=plan.timeout,
        ordered=False,
        concurrency=8,
        retry_until=RetryUntil.MAX_ATTEMPTS,
        max_retries=plan.max_retries,
        retry_interval=plan.retry_interval,
        when_exhausted=WhenExhausted.FAIL,
    )
    signed = []
    for number, member in enumerate(plan.members, start=1):
        partner = services.party_create(
            name=member.name.capitalize(), is_own=False, identifiers=[("DUNS", f"40000000{number}")]
        )
        _credentials(partner, member.name, member.secret_in, member.secret_out)
        agreement = services.agreement_create(
            tpa_id=f"{TPA_ID}:{member.name}",
            own_party=own,
            partner=partner,
            own_endpoint=here,
            partner_endpoint=services.endpoint_create(
                party=partner, name="transactions", uri=member.url, connect_timeout=3, read_timeout=5
            ),
            services=(),
            profile=Profile.WSAT,
            repeat_interval=plan.repeat_interval,
            repeat_interval_max=plan.repeat_interval_max,
            retries=100,
        )
        services.version_activate(version=agreement.versions.get())
        values = TriggerValues(
            name=member.name.capitalize(),
            kind=ServiceKind.HTTP,
            url=f"{member.url}/documents",
            timeout=10,
            member_of_id=whole.pk,
            atomic_agreement_id=agreement.pk,
        )
        signed.append(triggering.trigger_create(actor=actor, reason=_REASON, **values)[1])
    registry.reset()
    pairs.ensure_pairs()
    return signed


def _sender(plan: AtomicPlan, own: Party) -> Agreement:
    partner = services.party_create(name=BUYER.name, is_own=False, identifiers=[BUYER.identifier])
    _credentials(partner, SENDER, plan.secret_in, plan.secret_in)
    agreement = services.agreement_create(
        tpa_id=TPA_ID,
        own_party=own,
        partner=partner,
        own_endpoint=services.endpoint_create(party=own, name="documents", uri=f"{SELLER.uri}/exchange/{TPA_ID}/"),
        partner_endpoint=services.endpoint_create(
            party=partner, name="documents", uri=f"{BUYER.uri}/exchange/{TPA_ID}/"
        ),
        services=SERVICES,
        profile=Profile.REPEATABLE,
    )
    services.version_activate(version=agreement.versions.get())
    return agreement


def _credentials(partner: Party, username: str, secret_in: str, secret_out: str) -> None:
    basic = CredentialKind.BASIC
    services.credential_issue(party=partner, kind=basic, username=username, secret=secret_in, label="demo")
    services.credential_store_outbound(party=partner, kind=basic, username="hub", secret=secret_out, label="demo")
