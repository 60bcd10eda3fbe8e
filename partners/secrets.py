"""Secrets at rest: Fernet under `settings.RMHUB_SECRET_KEYS`.

The first key encrypts and all of them decrypt, so that a key is replaced by
putting the new one in front, and dropped once `credentials_reencrypt` has run.
No error and no repr of this module holds a secret or a key.
"""

from __future__ import annotations

from functools import lru_cache

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.views.decorators.debug import sensitive_variables


class SecretUnreadable(Exception):
    """Stored bytes that none of the configured keys can decrypt: a key was dropped too early, or the bytes changed."""

    def __init__(self) -> None:
        super().__init__(
            "A stored secret cannot be decrypted with the keys in RMHUB_SECRET_KEYS. "
            "Put the key under which it was stored back into the list, or store the secret again."
        )


@sensitive_variables("text")
def encrypt(text: str) -> bytes:
    """`text` encrypted under the first key. Raises ImproperlyConfigured when the keys are missing or malformed."""
    return _fernet().encrypt(text.encode())


def decrypt(data: bytes | memoryview) -> str:
    """The text behind `data`. Raises SecretUnreadable, and ImproperlyConfigured when there is no usable key."""
    try:
        return _fernet().decrypt(bytes(data)).decode()
    except (InvalidToken, UnicodeDecodeError):
        # `from None`: a decoding error carries the very bytes that nobody may see.
        raise SecretUnreadable from None


def reencrypt(data: bytes | memoryview) -> bytes:
    """The same secret under the first key. Raises SecretUnreadable, ImproperlyConfigured."""
    try:
        return _fernet().rotate(bytes(data))
    except InvalidToken:
        raise SecretUnreadable from None


def malformed_keys(keys: list[str]) -> list[int]:
    """Positions (from 1) of the keys that are no Fernet key: 32 bytes in URL-safe base64."""
    return [position for position, key in enumerate(keys, start=1) if not _is_key(key)]


def _is_key(key: str) -> bool:
    try:
        Fernet(key)
    except (ValueError, TypeError):
        return False
    return True


def _fernet() -> MultiFernet:
    return _fernet_of(tuple(settings.RMHUB_SECRET_KEYS))


@lru_cache(maxsize=2)
def _fernet_of(keys: tuple[str, ...]) -> MultiFernet:
    if not keys:
        raise ImproperlyConfigured("RMHUB_SECRET_KEYS is empty: secrets can neither be stored nor read")
    if wrong := malformed_keys(list(keys)):
        raise ImproperlyConfigured(f"RMHUB_SECRET_KEYS: key number {wrong[0]} is not a Fernet key")
    return MultiFernet([Fernet(key) for key in keys])
