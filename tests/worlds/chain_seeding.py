"""Sets up one hub of the demo's chain: sender, router or receiver, with its neighbours and, in a router, a route."""

from __future__ import annotations

from dataclasses import dataclass

from messaging.choices import Interface, RouteMode
from messaging.demo.seeding import BUYER, MOST_HOPS, SELLER, SERVICES, Side
from messaging.engine import pairs
from messaging.journal.audit import Actor
from messaging.routing.services import routes
from partners import registry, services
from partners.choices import CredentialKind
from partners.models import Endpoint, Party

TPA_ID = "tpa:demo:chain"
_ROUTERS = (
    Side("Harbour Exchange", ("DUNS", "300000001"), "http://msh.harbour.example"),
    Side("Northway Exchange", ("DUNS", "300000002"), "http://msh.northway.example"),
    Side("Eastgate Exchange", ("DUNS", "300000003"), "http://msh.eastgate.example"),
)
assert len(_ROUTERS) + 1 == MOST_HOPS
_PATH, _ERRORS = "/ebxml/msh/chain", "/ebxml/errors/chain"


@dataclass(frozen=True, slots=True)
class Neighbour:
    """The hub before or after: where its bytes are really sent (root of a URL), and what the two show each other."""

    address: str
    secret_in: str
    secret_out: str


@dataclass(frozen=True, slots=True)
class HopPlan:
    """One hub of the chain. `place` counts from 0, the sender, to `hops`, the receiver. Times in seconds."""

    place: int
    hops: int
    mode: str = RouteMode.STORE_FORWARD
    before: Neighbour | None = None
    after: Neighbour | None = None
    timeout: int = 2
    retries: int = 100
    retry_interval: int = 1
    transport_retries: int = 3
    transport_retry_interval: int = 1


def sides(hops: int) -> list[Side]:
    """The organisations of a chain, from the sender to the receiver."""
    return [BUYER, *_ROUTERS[: hops - 1], SELLER]


def seed_hop(plan: HopPlan) -> None:
    """Parties, endpoints, credentials, agreements and the route of one hub. For a new database."""
    chain = sides(plan.hops)
    own = _party(chain[plan.place], ours=True)
    own_end = _endpoint(own, chain[plan.place], "")
    ends: dict[int, Endpoint] = {}
    for place, neighbour in ((plan.place - 1, plan.before), (plan.place + 1, plan.after)):
        if neighbour is None:
            continue
        party = _party(chain[place], ours=False)
        _credentials(party, chain[place], chain[plan.place], neighbour)
        ends[place] = _endpoint(party, chain[place], neighbour.address)
    if plan.place in (0, plan.hops):
        far = chain[plan.hops if plan.place == 0 else 0]
        partner = Party.objects.filter(name=far.name).first() or _party(far, ours=False)
        # The endpoint is the neighbour's, who is a router that leads to the partner.
        (end,) = ends.values()
        _agreement(TPA_ID, plan, own, partner, own_end, end)
    else:
        for end in ends.values():
            _agreement(f"tpa:hop:{own.name} and {end.party.name}", plan, own, end.party, own_end, end)
    registry.reset()
    pairs.ensure_pairs()
    if 0 < plan.place < plan.hops:
        _route(plan, ends[plan.place + 1])


def _party(side: Side, *, ours: bool) -> Party:
    return services.party_create(name=side.name, is_own=ours, identifiers=[side.identifier])


def _endpoint(party: Party, side: Side, address: str) -> Endpoint:
    return services.endpoint_create(
        party=party,
        name="chain",
        uri=side.uri + _PATH,
        error_uri=side.uri + _ERRORS,
        address=address + _PATH if address else "",
        error_address=address + _ERRORS if address else "",
        connect_timeout=2,
        read_timeout=3,
    )


def _credentials(party: Party, theirs: Side, ours: Side, neighbour: Neighbour) -> None:
    """Whoever shows a password has its own identifier as user name: two partners never have the same."""
    services.credential_issue(
        party=party,
        kind=CredentialKind.BASIC,
        username=theirs.identifier[1],
        secret=neighbour.secret_in,
        label="demo",
    )
    services.credential_store_outbound(
        party=party,
        kind=CredentialKind.BASIC,
        username=ours.identifier[1],
        secret=neighbour.secret_out,
        label="demo",
    )


def _agreement(tpa_id: str, plan: HopPlan, own: Party, partner: Party, own_end: Endpoint, end: Endpoint) -> None:
    agreement = services.agreement_create(
        tpa_id=tpa_id,
        own_party=own,
        partner=partner,
        own_endpoint=own_end,
        partner_endpoint=end,
        services=SERVICES,
        timeout=plan.timeout,
        retries=plan.retries,
        retry_interval=plan.retry_interval,
        transport_retries=plan.transport_retries,
        transport_retry_interval=plan.transport_retry_interval,
    )
    services.version_activate(version=agreement.versions.get())


def _route(plan: HopPlan, onward: Endpoint) -> None:
    receiver = sides(plan.hops)[-1]
    agreement = onward.party.agreements.get()
    routes.route_create(
        name=f"To {receiver.name}",
        party_context=receiver.identifier[0],
        party_value=receiver.identifier[1],
        onward=agreement.pk,
        mode=plan.mode,
        min_retry_secs=1,
        actor=Actor("demo", Interface.COMMAND),
        reason="the demo's chain of hubs",
    )
