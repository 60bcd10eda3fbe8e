"""System checks: what is wrong with the configuration is said at start and not at the first message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from partners import secrets
from partners.models import Credential

_NEW_KEY = (
    'python -c "from cryptography.fernet import Fernet; print(Fernet.generate_key().decode())" prints a good one.'
)


@register(Tags.security)
def secret_keys(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """RMHUB_SECRET_KEYS is a list of Fernet keys without repeats."""
    keys = getattr(settings, "RMHUB_SECRET_KEYS", None)
    if not isinstance(keys, list | tuple) or not keys:
        return [
            Error(
                "RMHUB_SECRET_KEYS is empty: partners' secrets can neither be stored nor read.",
                hint=f"Set it to at least one Fernet key. {_NEW_KEY}",
                id="partners.E001",
            )
        ]
    found: list[CheckMessage] = [
        Error(
            f"RMHUB_SECRET_KEYS: key number {position} is not a Fernet key (32 bytes in URL-safe base64).",
            hint=_NEW_KEY,
            id="partners.E002",
        )
        for position in secrets.malformed_keys(list(keys))
    ]
    if len(set(keys)) < len(keys):
        found.append(
            Warning(
                "RMHUB_SECRET_KEYS holds a key twice.",
                hint="When a key is replaced, the new one goes in front and the old one stays behind it once.",
                id="partners.W001",
            )
        )
    return found


@register(Tags.security)
def password_hashers(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """There is a password hasher, or no inbound credential could be issued."""
    if settings.PASSWORD_HASHERS:
        return []
    return [
        Error(
            "PASSWORD_HASHERS is empty: partners' passwords can be neither stored nor checked.",
            hint="Leave the setting out to have Django's.",
            id="partners.E003",
        )
    ]


@register(Tags.database)
def stored_secrets(
    app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Every outbound secret can be read with the present keys.

    A warning and no error: `migrate` runs this too, and one lost key must not keep the hub from starting.
    """
    found: list[CheckMessage] = []
    for alias in databases or ():
        if Credential._meta.db_table not in connections[alias].introspection.table_names():
            continue  # before the first migration
        stored = Credential.objects.using(alias).filter(revoked_at__isnull=True).exclude(secret_encrypted=b"")
        # Only columns that the first migration made: `migrate` looks before it adds those of a newer version.
        named = stored.only("id", "secret_encrypted", "party__name").select_related("party")
        try:
            unreadable = [credential for credential in named if not _is_readable(credential)]
        except ImproperlyConfigured:
            return []  # E001 or E002 says so
        if unreadable:
            listed = ", ".join(f"{one.public_id} ({one.party})" for one in unreadable[:5])
            more = f" and {len(unreadable) - 5:,} more" if len(unreadable) > 5 else ""
            found.append(
                Warning(
                    f"The secret of {listed}{more} cannot be decrypted.",
                    hint="Put the key under which it was stored back into RMHUB_SECRET_KEYS, "
                    "or revoke the credential and store its secret again.",
                    id="partners.W002",
                )
            )
    return found


def _is_readable(credential: Credential) -> bool:
    try:
        secrets.decrypt(credential.secret_encrypted)
    except secrets.SecretUnreadable:
        return False
    return True
