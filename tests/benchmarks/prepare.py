"""Sets one hub up: two parties, a number of agreements with messaging service URIs of their own, credentials both ways.

    python -m tests.benchmarks.prepare OWN_NAME OWN_URL PARTNER_NAME PARTNER_URL AGREEMENTS REFUSED [SIGNERS]

With SIGNERS, a JSON file, the agreements are of ebXML Messaging 2.0: signed with what it has and encrypted as it says,
neither if it is empty.
Of the last REFUSED agreements the partner's address is one that takes nothing, and one refusal suspends their pair.
Runs with the environment of the hub, and makes the tables of its database first.
"""

from __future__ import annotations

import json
import sys
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING

import django
from django.core.management import call_command

from rmhub.ids import uuid7

if TYPE_CHECKING:
    from django.db import models

    from partners.models import Agreement

SERVICE = "urn:bench:documents"
ACTION = "Send"
SECRET = "a benchmark on loopback has no secrets"
# Nothing is to be repeated because the machine is slow: a repeat would be counted as a fault.
REFUSED = {"retries": 0, "transport_retries": 0, "timeout": 1, "retry_interval": 1}
TERMS = {"timeout": 120, "retries": 3, "retry_interval": 120}


def tpa_id(number: int) -> str:
    """The TPAId of an agreement, counted from 1; the same on both sides."""
    return f"tpa:bench:{number}"


def main() -> None:
    own_name, own_url, partner_name, partner_url, count, refused, *signers = sys.argv[1:]
    django.setup()
    call_command("migrate", verbosity=0)
    from messaging.engine import pairs
    from messaging.models import Pair
    from partners import registry, services
    from partners.choices import CredentialKind

    own = services.party_create(name=own_name, is_own=True, identifiers=[("DUNS", _duns(own_name))])
    partner = services.party_create(name=partner_name, identifiers=[("DUNS", _duns(partner_name))])
    profile: dict[str, object] = {}
    if signers:
        profile = {"profile": "ebms2", "sync_reply": "mshSignalsOnly"}
        known = json.loads(Path(signers[0]).read_text())
        if known:
            profile["signatures"] = "receipts"
            profile["encryption"] = known.get("encryption", "none")
            for kind in (CredentialKind.SIGNING, CredentialKind.ENCRYPTION):
                services.credential_issue(party=partner, kind=kind, certificate=known["partner"])
                services.credential_store_outbound(party=partner, kind=kind, secret=known["own"])
    folder = "/ebms2/" if signers else EBXML
    services.credential_issue(party=partner, kind=CredentialKind.BASIC, username=partner_name, secret=SECRET)
    services.credential_store_outbound(party=partner, kind=CredentialKind.BASIC, username=own_name, secret=SECRET)

    def agreement(number: int, address: str, **terms: object) -> Agreement:
        made = services.agreement_create(
            tpa_id=tpa_id(number),
            own_party=own,
            partner=partner,
            own_endpoint=services.endpoint_create(party=own, name=f"p{number}", uri=f"{own_url}{path(number, folder)}"),
            partner_endpoint=services.endpoint_create(
                party=partner, name=f"p{number}", uri=f"{partner_url}{path(number, folder)}", address=address
            ),
            services=[(SERVICE, "*", "both")],
            **TERMS | profile | terms,  # type: ignore[arg-type]
        )
        services.version_activate(version=made.versions.get())
        return made

    good = int(count) - int(refused)
    _repeat(agreement(1, ""), range(2, good + 1))
    if int(refused):
        first = agreement(good + 1, f"{partner_url}/api/v1/nowhere", **REFUSED)
        _repeat(first, range(good + 2, int(count) + 1))
    registry.reset()
    terms = registry.current().by_tpa_id(tpa_id(1))
    assert terms is not None
    for pair_id in (pairs.outbound_pair_id(terms), pairs.inbound_pair_id(terms)):
        like = Pair.objects.get(pk=pair_id)
        more = [copy(like) for _ in range(2, int(count) + 1)]
        for number, pair in enumerate(more, start=2):
            pair.pk, pair.code = uuid7(), f"{like.code}{number}"
            for uri in ("sender_uri", "receiver_uri"):
                setattr(pair, uri, getattr(pair, uri).replace(path(1, folder), path(number, folder)))
        Pair.objects.bulk_create(more, batch_size=1000)


EBXML = "/ebxml/"


def path(number: int, folder: str = EBXML) -> str:
    """Where the messaging services of an agreement are, on both sides."""
    return f"{folder}msh/p{number}"


def _repeat(like: Agreement, numbers: range) -> None:
    """Further agreements like one that was made by the services: thousands of them in seconds."""
    version = like.versions.select_related("own_endpoint", "partner_endpoint").get()
    (service,) = version.services.all()
    for some in (numbers[at : at + 1000] for at in range(0, len(numbers), 1000)):
        rows: list[list[models.Model]] = [[], [], [], []]
        for number in some:
            ends = [copy(version.own_endpoint), copy(version.partner_endpoint)]
            for end in ends:
                end.pk, end.name = uuid7(), f"p{number}"
                end.uri = f"{end.uri.rpartition('/')[0]}/p{number}"
            agreement, terms, allowed = copy(like), copy(version), copy(service)
            agreement.pk, agreement.tpa_id = uuid7(), tpa_id(number)
            terms.pk, terms.agreement, (terms.own_endpoint, terms.partner_endpoint) = uuid7(), agreement, ends
            allowed.pk, allowed.version = None, terms
            for into, made in zip(rows, (ends, (agreement,), (terms,), (allowed,)), strict=True):
                into.extend(made)
        for made in rows:
            type(made[0])._default_manager.bulk_create(made)


def _duns(name: str) -> str:
    return f"{sum(name.encode()):09d}"


if __name__ == "__main__":
    main()
