"""Real PostgreSQL and Valkey servers for a machine that has none.

They run on the loopback interface, with random passwords, never as root, and end with the process that started them.
All that they keep is in one folder, ``var``; see docs/operations-embedded.md. Nothing here knows Django.
"""

from __future__ import annotations

import os
from pathlib import Path

from rmhub.embedded.lifecycle import remove, running, servers, start, stop
from rmhub.embedded.postgres import create_database, database_url, drop_database
from rmhub.embedded.processes import EmbeddedError
from rmhub.embedded.state import Servers

__all__ = [
    "EmbeddedError",
    "Servers",
    "create_database",
    "database_url",
    "default_var",
    "drop_database",
    "remove",
    "running",
    "servers",
    "start",
    "stop",
]


def default_var() -> Path:
    """The folder of this installation: RMHUB_VAR, or ``var`` beside the project's code."""
    return Path(os.environ.get("RMHUB_VAR") or Path(__file__).parents[2] / "var").absolute()
