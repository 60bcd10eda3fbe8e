"""Sets one hub up: two parties, a number of agreements with messaging service URIs of their own, credentials both ways.

    python -m tests.benchmarks.prepare OWN_NAME OWN_URL PARTNER_NAME PARTNER_URL AGREEMENTS REFUSED

Of the last REFUSED agreements the partner's address is one that takes nothing, and one refusal suspends their pair.
Runs with the environment of the hub, and makes the tables of its database first.
"""

from __future__ import annotations

import sys

import django
from django.core.management import call_command

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
    own_name, own_url, partner_name, partner_url, count, refused = sys.argv[1:]
    django.setup()
    call_command("migrate", verbosity=0)
    from messaging.engine import pairs
    from partners import registry, services
    from partners.choices import CredentialKind
    from partners.models import Endpoint, Party

    def endpoint(party: Party, url: str, number: int, address: str = "") -> Endpoint:
        uri = f"{url}/ebxml/msh/p{number}"
        return services.endpoint_create(party=party, name=f"p{number}", uri=uri, address=address)

    own = services.party_create(name=own_name, is_own=True, identifiers=[("DUNS", _duns(own_name))])
    partner = services.party_create(name=partner_name, identifiers=[("DUNS", _duns(partner_name))])
    basic = CredentialKind.BASIC
    services.credential_issue(party=partner, kind=basic, username=partner_name, secret=SECRET)
    services.credential_store_outbound(party=partner, kind=basic, username=own_name, secret=SECRET)
    for number in range(1, int(count) + 1):
        last = number > int(count) - int(refused)
        agreement = services.agreement_create(
            tpa_id=tpa_id(number),
            own_party=own,
            partner=partner,
            own_endpoint=endpoint(own, own_url, number),
            partner_endpoint=endpoint(partner, partner_url, number, f"{partner_url}/api/v1/nowhere" if last else ""),
            services=[(SERVICE, "*", "both")],
            **(TERMS | (REFUSED if last else {})),  # type: ignore[arg-type]
        )
        services.version_activate(version=agreement.versions.get())
    registry.reset()
    pairs.ensure_pairs()


def _duns(name: str) -> str:
    return f"{sum(name.encode()):09d}"


if __name__ == "__main__":
    main()
