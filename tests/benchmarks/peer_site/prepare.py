"""Makes the tables of one party, and the other party as its partner: unsigned, with a synchronous receipt (MDN)."""

from __future__ import annotations

import django
from django.conf import settings
from django.core.management import call_command

NAMES = {"sender": "bench-sender", "receiver": "bench-receiver"}


def main() -> None:
    django.setup()
    from pyas2.models import Organization, Partner

    call_command("migrate", verbosity=0)
    own = settings.SIDE
    other = "receiver" if own == "sender" else "sender"
    Organization.objects.create(name=own, as2_name=NAMES[own])
    Partner.objects.create(
        name=other,
        as2_name=NAMES[other],
        target_url=f"{settings.RECEIVER_URL}/pyas2/as2receive",
        mdn=True,
        mdn_mode="SYNC",
    )


if __name__ == "__main__":
    main()
