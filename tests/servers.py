"""Real servers for the tests when DATABASE_URL names none: throw-away, on loopback, gone with the test run."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path


def ensure() -> None:
    """Called before Django reads its settings. Collecting alone (`--collect-only`) needs no server."""
    os.environ.setdefault("RMHUB_LOG_LEVEL", "ERROR")
    var = Path(tempfile.mkdtemp(prefix="rmhub-tests-"))
    var.chmod(0o711)  # the servers run as another user when we are root
    atexit.register(shutil.rmtree, var, ignore_errors=True)
    os.environ.setdefault("RMHUB_VAR", str(var))
    if os.environ.get("DATABASE_URL") or {"--collect-only", "--co"} & set(sys.argv):
        return
    from rmhub import embedded

    servers = embedded.start(var, throwaway=True)
    atexit.register(embedded.stop, var)
    os.environ["DATABASE_URL"] = servers.database_url
    os.environ["REDIS_URL"] = servers.redis_url


def database_url() -> str:
    """The test's own database, for whoever connects without Django; what a test does not commit is not seen there."""
    from django.db import connection
    from psycopg.conninfo import make_conninfo

    name = connection.settings_dict
    return make_conninfo(
        host=name["HOST"],
        port=name["PORT"] or None,
        dbname=name["NAME"],
        user=name["USER"],
        password=name["PASSWORD"] or None,
    )
