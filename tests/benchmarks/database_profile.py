"""What the database's sessions are at, seen by looking at them again and again: which statements, waiting for what."""

from __future__ import annotations

import collections
import re
import threading
from typing import Any

import psycopg

EVERY = 0.015
LENGTH = 110
LOOK = (
    "SELECT coalesce(wait_event_type || ' ' || wait_event, 'on CPU'), query FROM pg_stat_activity"
    " WHERE state = 'active' AND backend_type = 'client backend' AND datname = ANY(%s)"
)


def watch(url: str, databases: list[str], stop: threading.Event) -> dict[str, Any]:
    """Looks until told to stop. Figures: how many sessions were at it at the same time, on average."""
    statements: collections.Counter[str] = collections.Counter()
    waits: collections.Counter[str] = collections.Counter()
    looks = 0
    with psycopg.connect(url, autocommit=True) as connection:
        while not stop.wait(EVERY):
            looks += 1
            for wait, query in connection.execute(LOOK, [databases]):
                statements[shape(query)] += 1
                waits[wait] += 1
    scale = 1 / max(1, looks)
    return {
        "looks": looks,
        "sessions_by_wait": {name: round(count * scale, 4) for name, count in waits.most_common(15)},
        "sessions_by_statement": {name: round(count * scale, 4) for name, count in statements.most_common(25)},
    }


def shape(query: str) -> str:
    """A statement without its values, cut: `SELECT ... FROM messaging_pair WHERE id = ?`."""
    text = re.sub(r"'(?:[^']|'')*'|\$\d+|\b\d+\b", "?", " ".join(query.split()))
    text = text.replace('"', "")
    # The columns of a long SELECT or INSERT say less than its table and its condition.
    text = re.sub(r"^SELECT (.{40}).*? FROM ", r"SELECT \1... FROM ", text)
    return text if len(text) <= LENGTH else text[:LENGTH] + "..."
