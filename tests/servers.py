"""Real servers for the tests when DATABASE_URL names none: throw-away, on loopback, gone with the test run."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path


def ensure() -> None:
    """Called before Django reads its settings. Collecting alone (`--collect-only`) needs no server."""
    os.environ.setdefault("RMHUB_LOG_LEVEL", "ERROR")
    # No hub of a test begins its daily runs because the tests happen to run at that hour.
    os.environ["RMHUB_PIPELINE_DAILY_AT"] = ""
    served = bool(os.environ.get("DATABASE_URL"))
    if served and os.environ.get("RMHUB_VAR"):
        return
    var = Path(tempfile.mkdtemp(prefix="rmhub-tests-"))
    var.chmod(0o711)  # the servers run as another user when we are root
    atexit.register(shutil.rmtree, var, ignore_errors=True)
    os.environ.setdefault("RMHUB_VAR", str(var))
    if served or {"--collect-only", "--co"} & set(sys.argv):
        return
    from rmhub import embedded

    servers = embedded.start(var, throwaway=True)
    atexit.register(embedded.stop, var)
    os.environ["DATABASE_URL"] = servers.database_url
    os.environ["REDIS_URL"] = servers.redis_url
    _migrate_template(var, servers.database_url)


def _migrate_template(var: Path, url: str) -> None:
    """Makes the tables in template1, once: every new database of the server has them, and `migrate` nothing to do."""
    import psycopg

    from rmhub import embedded
    from rmhub.embedded import state

    known = state.load(var)
    assert known is not None
    whole = embedded.database_url(url, "template1")
    with psycopg.connect(whole, user="postgres", password=known.superuser_password, autocommit=True) as connection:
        connection.execute("ALTER DATABASE template1 OWNER TO rmhub")
    manage = [sys.executable, str(Path(__file__).parent.parent / "manage.py"), "migrate", "--verbosity", "0"]
    # The settings are those of a hub, and not the tests', which would start servers again.
    own = {"DATABASE_URL": whole, "DJANGO_SETTINGS_MODULE": "rmhub.settings"}
    subprocess.run(manage, env={**os.environ, **own}, check=True)


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
