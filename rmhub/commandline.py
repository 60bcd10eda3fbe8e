"""Starts the embedded servers for a command that needs them, when no DATABASE_URL names real ones."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

from django.core.management import execute_from_command_line

# Commands that need no database, or that start the servers on their own.
_WITHOUT = {"up", "demo", "bench", "check", "help", "version", "collectstatic", "spectacular", "openapi", "diagrams"}


def run(argv: list[str]) -> None:
    """`manage.py`: like Django's, with real servers behind it."""
    command = argv[1] if len(argv) > 1 else "help"
    with ExitStack() as stack:
        without = command in _WITHOUT or command.startswith("-") or argv[1:3] == ["pipeline", "package"]
        if not os.environ.get("DATABASE_URL") and not without:
            from rmhub import embedded

            var = Path(os.environ.get("RMHUB_VAR") or Path(__file__).resolve().parent.parent / "var")
            servers = stack.enter_context(embedded.servers(var))
            os.environ["DATABASE_URL"] = servers.database_url
            os.environ.setdefault("REDIS_URL", servers.redis_url)
        execute_from_command_line(argv)
