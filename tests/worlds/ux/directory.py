"""Parties, groups, endpoints, agreements and pairs, by the thousand."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import timedelta

from django.contrib.auth.hashers import make_password

from messaging.models import Pair
from messaging.protocol.codecs.ebxml import normalize_uri
from partners import registry
from partners.models import (
    Agreement,
    AgreementService,
    AgreementVersion,
    Credential,
    Endpoint,
    PartnerGroup,
    Party,
    PartyIdentifier,
)
from partners.secrets import encrypt
from partners.services.writing import writing
from rmhub.ids import uuid7
from tests.worlds.ux.newcomer import OWN_URI
from tests.worlds.ux.plan import (
    ACTIONS,
    DOUBTS,
    ORDERS,
    OWN_DUNS,
    OWN_NAME,
    OWN_ROOT,
    SECRET,
    TROUBLES,
    Plan,
    Trouble,
    login_of,
)

_PLACES = (
    *("Aldgate", "Bergen", "Calder", "Drammen", "Elverum", "Fenwick", "Gotland", "Harrow", "Ipswich", "Jutland"),
    *("Kirkwall", "Lofoten", "Malmo", "Narvik", "Orkney", "Paisley", "Quarry", "Rannoch", "Skagen", "Tromso"),
)
_TRADES = (
    *("Textiles", "Steel", "Pharma", "Timber", "Optics", "Foods", "Motors", "Paper", "Chemicals", "Shipping"),
    *("Ceramics", "Tools", "Wines", "Cables", "Plastics", "Dairy", "Bearings", "Books", "Garden", "Cycles"),
)
GROUPS = ("Nordics", "British Isles", "Key accounts", "Logistics")


@dataclass(frozen=True, slots=True)
class Lane:
    """One agreement with its pairs."""

    slug: str
    tpa_id: str
    partner: Party
    version_id: uuid.UUID
    outbound: Pair
    inbound: Pair
    trouble: Trouble | None


def partner_name(number: int) -> str:
    """Of the partners without trouble: 400 different ones, numbered after that."""
    place, trade = _PLACES[number % len(_PLACES)], _TRADES[number // len(_PLACES) % len(_TRADES)]
    again = number // (len(_PLACES) * len(_TRADES))
    return f"{place} {trade}" + (f" {again + 1}" if again else "")


def make(plan: Plan) -> list[Lane]:
    """Writes them all; raises ValueError when some are there already."""
    if Party.objects.exists():
        raise ValueError("This database has partners already. The large demo world needs one of its own.")
    began = plan.now - timedelta(days=120)
    old = (plan.folder / "halden-old.pem").read_text()
    troubles = list(TROUBLES.items())
    with writing():
        own = Party.objects.create(name=OWN_NAME, is_own=True)
        PartyIdentifier.objects.create(party=own, context="DUNS", value=OWN_DUNS)
        groups = PartnerGroup.objects.bulk_create(PartnerGroup(name=name) for name in GROUPS)
        parties = [
            Party(
                name=troubles[n][1].name if n < len(troubles) else partner_name(n - len(troubles)),
                contact="EDI desk, edi@partner.example",
                time_zone=("Europe/Oslo", "Europe/London", "Europe/Berlin")[n % 3],
                hours="Mon-Fri 8-17",
            )
            for n in range(plan.partners)
        ]
        Party.objects.bulk_create(parties)
        through = Party.groups.through
        through.objects.bulk_create(
            through(party_id=party.pk, partnergroup_id=groups[n % len(groups)].pk) for n, party in enumerate(parties)
        )
        PartyIdentifier.objects.bulk_create(
            PartyIdentifier(party=party, context="DUNS", value=f"2{n:08d}") for n, party in enumerate(parties)
        )
        hashed = make_password(SECRET)
        Credential.objects.bulk_create(
            credential
            for n, party in enumerate(parties)
            for credential in (
                Credential(
                    party=party,
                    direction="inbound",
                    kind="basic",
                    username=login_of(f"p{n}", plan.partners),
                    secret_hash=hashed,
                    label="messages",
                    valid_from=began,
                ),
                Credential(
                    party=party,
                    direction="outbound",
                    kind="basic",
                    username="nordlys",
                    secret_encrypted=encrypt(SECRET),
                    label="messages",
                    valid_from=began,
                ),
            )
        )
        agreements, versions, services, facts = [], [], [], []
        endpoints = [Endpoint(party=own, name="new partners", uri=OWN_URI, error_uri=f"{OWN_ROOT}/ebxml/errors")]
        for n in range(plan.agreements):
            key, trouble = troubles[n] if n < len(troubles) else ("", None)
            party = parties[n % len(parties)]
            slug = trouble.slug if trouble is not None else f"p{n}"
            tpa_id = f"tpa:ux:{slug}"
            path = f"/exchange/{tpa_id}/" if key == DOUBTS else f"/ebxml/msh/{slug}"
            errors = path if key == DOUBTS else f"/ebxml/errors/{slug}"
            address = plan.address(trouble, slug)
            ours = Endpoint(party=own, name=slug, uri=OWN_ROOT + path, error_uri=OWN_ROOT + errors)
            theirs = Endpoint(
                party=party,
                name=slug,
                uri=f"http://msh.{slug}.example{path}",
                error_uri=f"http://msh.{slug}.example{errors}",
                address=address + path,
                error_address=address + errors,
                trusted_certificates=old if trouble is not None and trouble.behaviour == "tls" else "",
                service_address=f"http://127.0.0.1:{plan.port}/partner/{slug}/",
                connect_timeout=3,
                read_timeout=5,
            )
            endpoints += [ours, theirs]
            agreement = Agreement(
                tpa_id=tpa_id, name=f"Orders and invoices, {party.name}", own_party=own, partner=party
            )
            agreements.append(agreement)
            version = AgreementVersion(
                agreement=agreement,
                number=1,
                state="active",
                profile=trouble.profile if trouble is not None else "ebxml",
                own_endpoint=ours,
                partner_endpoint=theirs,
                activated_at=began,
                **{"timeout": 60, "retries": 5, "retry_interval": 60, **(trouble.terms if trouble is not None else {})},
            )
            versions.append(version)
            services.append(AgreementService(version=version, service=ORDERS, action="*", direction="both"))
            facts.append((slug, tpa_id, party, version, ours, theirs, trouble))
        Endpoint.objects.bulk_create(endpoints)
        Agreement.objects.bulk_create(agreements)
        AgreementVersion.objects.bulk_create(versions)
        AgreementService.objects.bulk_create(services)
    registry.reset()
    return [_lane(own, *fact) for fact in facts]


def _lane(
    own: Party,
    slug: str,
    tpa_id: str,
    party: Party,
    version: AgreementVersion,
    ours: Endpoint,
    theirs: Endpoint,
    trouble: Trouble | None,
) -> Lane:
    made = []
    for direction, sender, receiver in (("out", ours, theirs), ("in", theirs, ours)):
        named = f"NORDLYS>{slug.upper()}" if direction == "out" else f"{slug.upper()}>NORDLYS"
        made.append(
            Pair(
                id=uuid7(),
                direction=direction,
                sender_uri=normalize_uri(sender.uri),
                receiver_uri=normalize_uri(receiver.uri),
                own_party=own,
                partner=party,
                code=named,
            )
        )
    return Lane(slug, tpa_id, party, version.pk, made[0], made[1], trouble)


def write_pairs(lanes: list[Lane]) -> None:
    """Their rows, in one statement."""
    Pair.objects.bulk_create([pair for lane in lanes for pair in (lane.outbound, lane.inbound)])


def action(number: int) -> str:
    """The action of the n-th document."""
    return ACTIONS[number % len(ACTIONS)]
