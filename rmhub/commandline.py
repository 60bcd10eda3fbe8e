"""Starts the embedded servers for a command that needs them, when no DATABASE_URL names real ones."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line

from rmhub.env import env_str

# Commands that need no database, or that start the servers on their own.
_WITHOUT = {"up", "demo", "bench", "check", "help", "version", "collectstatic", "spectacular", "openapi", "diagrams"}


def run(argv: list[str]) -> None:
    """Run `manage.py`: like Django's, with real servers behind it.

    A setting that is wrong ends it with one line and exit status 2.
    """
    command = argv[1] if len(argv) > 1 else "help"
    try:
        with ExitStack() as stack:
            without = command in _WITHOUT or command.startswith("-") or argv[1:3] == ["pipeline", "package"]
            if not env_str("DATABASE_URL") and not without:
                from rmhub import embedded

                var = Path(env_str("RMHUB_VAR") or Path(__file__).resolve().parent.parent / "var")
                servers = stack.enter_context(embedded.servers(var))
                os.environ["DATABASE_URL"] = servers.database_url
                if not env_str("REDIS_URL"):
                    os.environ["REDIS_URL"] = servers.redis_url
            _ = settings.DEBUG  # the first use reads and checks them all
            execute_from_command_line(argv)
    except ImproperlyConfigured as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)
