"""`manage.py reencrypt`: after a new key was put in front of RMHUB_SECRET_KEYS."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from messaging.access.services.rekeying import secrets_reencrypt
from partners.secrets import SecretUnreadable


class Command(BaseCommand):
    help = "Encrypts all stored secrets under the first key of RMHUB_SECRET_KEYS; the keys behind it can go then."

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            count = secrets_reencrypt()
        except SecretUnreadable as error:
            raise CommandError(
                "A stored secret cannot be read with the present keys, so nothing was changed: `manage.py check"
                " --database default` names those of partners. Put the missing key back, behind the new one.",
                returncode=2,
            ) from error
        self.stdout.write(f"{count} secrets are under the first key; the others can be dropped.")
