"""Secrets of an installation that was given none: made once, kept in var/ with mode 0600, never logged."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import tempfile
from pathlib import Path

from cryptography.fernet import Fernet
from django.core.exceptions import ImproperlyConfigured

from rmhub.embedded.identity import make_var
from rmhub.embedded.processes import EmbeddedError


def local_secrets(var: Path) -> dict[str, str]:
    """`secret_key` and `fernet_key` from var/secrets.json; the file is made when it is missing.

    Two processes that start at once agree: the file is linked into place, and the first one wins.
    Raises ImproperlyConfigured when it can be neither made nor read.
    """
    path = var / "secrets.json"
    try:
        return _kept(var, path)
    except EmbeddedError as error:
        raise ImproperlyConfigured(str(error)) from error
    except OSError as error:
        raise ImproperlyConfigured(f"{path} can be neither made nor read ({error.strerror}): see RMHUB_VAR") from error
    except ValueError as error:
        raise ImproperlyConfigured(
            f"{path} is damaged: restore it from a backup, for without its keys no stored secret can be read"
        ) from error


def _kept(var: Path, path: Path) -> dict[str, str]:
    if not path.exists():
        make_var(var)
        content = json.dumps({"secret_key": secrets.token_urlsafe(50), "fernet_key": Fernet.generate_key().decode()})
        handle, temporary = tempfile.mkstemp(dir=var, prefix=".secrets")  # mkstemp makes it 0600
        try:
            with os.fdopen(handle, "w") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            with contextlib.suppress(FileExistsError):
                os.link(temporary, path)
        finally:
            os.unlink(temporary)
    values: dict[str, str] = json.loads(path.read_text())
    return values
