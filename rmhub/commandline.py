"""How processes of the hub begin: with settings that were all checked, and for a command that needs them with the
embedded servers, when no DATABASE_URL names real ones.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line

from rmhub.env import env_str

_BASE = Path(__file__).resolve().parent.parent
# Commands that need no database, or that start the servers on their own.
_WITHOUT = {"up", "demo", "bench", "check", "help", "version", "collectstatic", "spectacular", "openapi", "diagrams"}
# Commands that look at a hub which runs: its servers are theirs when they are there, and are not started for them.
_BESIDE = {"health", "doctor"}


def run(argv: list[str]) -> None:
    """Run `manage.py`: like Django's, with real servers behind it.

    Settings that are wrong end it before anything is started: one line each, and exit status 2.
    """
    command = argv[1] if len(argv) > 1 else "help"
    with ending_at_wrong_settings(), ExitStack() as stack:
        without = command in _WITHOUT or command.startswith("-") or argv[1:3] == ["pipeline", "package"]
        if not (os.environ.get("DATABASE_URL") or os.environ.get("DATABASE_URL_FILE")) and not without:
            from rmhub import embedded

            # Django reads them once, and that has to be when the servers' addresses are known.
            runpy.run_path(str(_BASE / "rmhub" / "settings.py"))
            var = Path(env_str("RMHUB_VAR") or _BASE / "var")
            servers = embedded.running(var) if command in _BESIDE else stack.enter_context(embedded.servers(var))
            if servers is not None:
                os.environ["DATABASE_URL"] = servers.database_url
                if not env_str("REDIS_URL"):
                    os.environ["REDIS_URL"] = servers.redis_url
        _ = settings.DEBUG  # the first use reads and checks them all
        execute_from_command_line(argv)


@contextmanager
def ending_at_wrong_settings() -> Iterator[None]:
    """End the process when settings are wrong: a line for each on standard error, no traceback, exit status 2."""
    try:
        yield
    except ImproperlyConfigured as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)


def check_settings() -> None:
    """Read all settings, for a process that is not started by `manage.py`; ends it when some are wrong."""
    with ending_at_wrong_settings():
        _ = settings.DEBUG
