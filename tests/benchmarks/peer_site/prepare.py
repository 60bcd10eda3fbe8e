"""Makes the tables of one party, and the other party as its partner, with a synchronous receipt (MDN).

Unsigned, unless there is a key for each side; encrypted too with the argument "encrypted".
"""

from __future__ import annotations

import sys
from pathlib import Path

import django
from django.conf import settings
from django.core.management import call_command

NAMES = {"sender": "bench-sender", "receiver": "bench-receiver"}


def main() -> None:
    django.setup()
    from pyas2.models import Organization, Partner, PrivateKey, PublicCertificate

    call_command("migrate", verbosity=0)
    own = settings.SIDE
    other = "receiver" if own == "sender" else "sender"
    keys = Path(settings.KEYS)
    more: dict[str, object] = {}
    organization = Organization.objects.create(name=own, as2_name=NAMES[own])
    if (keys / f"{own}.p12").exists():
        key = PrivateKey(name=f"{own}.p12", key=(keys / f"{own}.p12").read_bytes(), key_pass="bench")
        key.save()
        organization.signature_key = organization.encryption_key = key
        organization.save()
        certificate = PublicCertificate(
            name=f"{other}.pem", certificate=(keys / f"{other}.pem").read_bytes(), verify_cert=False
        )
        certificate.save()
        more = {"signature": "sha256", "signature_cert": certificate, "mdn_sign": "sha256"}
        if sys.argv[1:] == ["encrypted"]:
            more |= {"encryption": "aes_128_cbc", "encryption_cert": certificate}
    Partner.objects.create(
        name=other,
        as2_name=NAMES[other],
        target_url=f"{settings.RECEIVER_URL}/pyas2/as2receive",
        mdn=True,
        mdn_mode="SYNC",
        **more,
    )


if __name__ == "__main__":
    main()
