"""What is known about the servers of one var folder, kept in ``var/embedded.json`` (mode 0600), and their ports."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import random
import secrets
import socket
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rmhub.embedded.processes import EmbeddedError, Mark

RANGE = range(15000, 32000)
"""Below the ports that the kernel gives to outgoing connections, so that a port is still free at the next start."""


def choose(preferred: int, taken: int = 0) -> int:
    """The preferred port when it is free, otherwise one that is. Raises EmbeddedError when there is none."""
    for port in (preferred, *random.sample(RANGE, 200)):
        if port not in (0, taken) and _is_free(port):
            return port
    raise EmbeddedError(f"no free port on 127.0.0.1 between {RANGE.start} and {RANGE.stop}")


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # as the servers do: connections of the last run that linger in TIME_WAIT do not count
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
    return True


NAME = "embedded.json"


@dataclass(frozen=True)
class Servers:
    """Where the servers are, with the passwords."""

    database_url: str
    redis_url: str


def _password() -> str:
    return secrets.token_hex(24)  # letters and digits only: it goes into URLs and configuration files as it is


@dataclass
class State:
    """Ports, passwords, the place of the data, and the process that keeps the servers running."""

    home: Path
    throwaway: bool
    owner: Mark | None = None
    postgres_port: int = 0
    valkey_port: int = 0
    postgres_password: str = field(default_factory=_password, repr=False)
    superuser_password: str = field(default_factory=_password, repr=False)
    valkey_password: str = field(default_factory=_password, repr=False)

    @property
    def servers(self) -> Servers:
        """The URLs for the application."""
        return Servers(
            f"postgresql://rmhub:{self.postgres_password}@127.0.0.1:{self.postgres_port}/rmhub",
            f"redis://:{self.valkey_password}@127.0.0.1:{self.valkey_port}/0",
        )


def load(var: Path) -> State | None:
    """The state of this folder; None when no server has ever been started there.

    Raises EmbeddedError when the file belongs to another user or is damaged.
    """
    path = var / NAME
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        owner = content.pop("owner")
        # the data are beside the state unless it says otherwise, so that the folder can be moved
        return State(Path(content.pop("home") or var), owner=None if owner is None else Mark(**owner), **content)
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise EmbeddedError(
            f"{path} belongs to another user: run as that user, or name a folder of your own in RMHUB_VAR"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise EmbeddedError(
            f"{path} is damaged ({error}): it holds the passwords; restore it from a backup of {var}"
        ) from error


def save(var: Path, state: State) -> None:
    """Write the state so that a crash leaves the old one or the new one, and never a part."""
    path = var / NAME
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        json.dump({**asdict(state), "home": None if state.home == var else str(state.home)}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def forget(var: Path) -> None:
    """Remove the state, when the data are gone."""
    (var / NAME).unlink(missing_ok=True)


@contextlib.contextmanager
def locked(var: Path) -> Iterator[None]:
    """One process (and thread) at a time decides what happens in this folder; the others wait."""
    try:
        descriptor = os.open(var / "embedded.lock", os.O_RDWR | os.O_CREAT, 0o600)
    except PermissionError as error:
        raise EmbeddedError(
            f"{var} belongs to another user: run as that user, or name a folder of your own in RMHUB_VAR"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
