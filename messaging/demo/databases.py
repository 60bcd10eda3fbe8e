"""The servers that the demo's hubs use, named by the environment or embedded, and what is theirs on them."""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from rmhub import embedded
from rmhub.env import env_str

Log = Callable[[str], None]


def redis_database(url: str, number: int) -> str:
    """The URL of another numbered database of the same server."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{number}"))


@contextmanager
def servers(keep: Path | None, log: Log) -> Iterator[tuple[Path, str, str]]:
    """(folder, DATABASE_URL, REDIS_URL) of what the environment names, or of embedded servers in the folder.

    The folder is `keep`, or a new one that is removed at the end.
    """
    with ExitStack() as stack:
        var = keep or Path(tempfile.mkdtemp(prefix="rmhub-demo-"))
        if keep is None:
            var.chmod(0o711)  # the servers run as another user when we are root
            stack.callback(shutil.rmtree, var, ignore_errors=True)
        database_url, redis_url = env_str("DATABASE_URL"), env_str("REDIS_URL")
        if not database_url or not redis_url:
            log("starting PostgreSQL and Valkey")
            started = stack.enter_context(embedded.servers(var, own=keep is not None, log=log))
            database_url, redis_url = started.database_url, started.redis_url
        yield var, database_url, redis_url


@contextmanager
def own_databases(database_url: str, names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Names for databases that nobody else has; they are dropped at the end."""
    mark = secrets.token_hex(4)
    with ExitStack() as stack:
        found = tuple(f"rmhub_demo_{mark}_{name}" for name in names)
        for database in found:
            stack.callback(embedded.drop_database, database_url, database)
        yield found


@contextmanager
def broker_databases(redis_url: str, count: int = 2) -> Iterator[tuple[int, ...]]:
    """Numbered databases of the broker for us alone: a hub that shares one takes the other's wake-ups away.

    Raises RuntimeError when there are as many demos as there is room for.
    """
    server = hashlib.sha256(redis_database(redis_url, 0).encode()).hexdigest()[:12]
    found: list[int] = []
    with ExitStack() as stack:
        for number in range(2, 16, 2):  # two at a time
            if len(found) >= count:
                break
            path = Path(tempfile.gettempdir()) / f"rmhub-broker-{server}-{number}.lock"
            with suppress(PermissionError):  # somebody else's
                handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    os.close(handle)
                    continue
                stack.callback(os.close, handle)
                found += [number, number + 1]
        if len(found) < count:
            raise RuntimeError("all databases of this broker are in use by other demos")
        yield tuple(found[:count])
