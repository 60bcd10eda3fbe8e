"""PgBouncer in transaction mode, between hubs and their databases."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from rmhub.embedded.identity import servers_identity
from tests.rmhub.conditions import eventually

PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")


@contextmanager
def pooling(database_url: str, folder: Path, sessions: int) -> Iterator[Callable[[str], str]]:
    """A pooler that shares so many sessions of each database of this server; gives what makes its URL of a database's.

    Skips the test where PgBouncer is not installed.
    """
    if PGBOUNCER is None:
        pytest.skip("PgBouncer is not installed")
    known = urlsplit(database_url)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    configuration = folder / "pgbouncer.ini"
    configuration.write_text(
        f"[databases]\n* = host={known.hostname} port={known.port} user={known.username}"
        f" password={known.password}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\n"
        f"pool_mode = transaction\ndefault_pool_size = {sessions}\nmax_client_conn = 50\nunix_socket_dir =\n"
        "ignore_startup_parameters = extra_float_digits\n"
    )
    identity = servers_identity()  # it refuses to run as root
    if identity is not None:
        for above in (folder, *list(folder.parents)[:3]):
            above.chmod(above.stat().st_mode | 0o011)
        os.chown(configuration, *identity)
    process = subprocess.Popen(
        [PGBOUNCER, str(configuration)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        user=identity[0] if identity else None,
        group=identity[1] if identity else None,
        extra_groups=[] if identity else None,
    )

    def listens() -> bool:
        assert process.poll() is None
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", port)) == 0

    def through(url: str) -> str:
        named = urlsplit(url)
        at = f"{named.username}:{named.password}@127.0.0.1:{port}"
        return named._replace(netloc=at).geturl()

    try:
        eventually(listens)
        yield through
    finally:
        process.kill()
        process.wait()
