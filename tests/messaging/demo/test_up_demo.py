"""`manage.py up --demo` says at the end of its exchange whether the rows of both databases keep the invariants."""

from __future__ import annotations

import io
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from messaging.demo.stage import Stage
from messaging.management.commands import up
from messaging.models import Pair
from rmhub.hubs import Hub
from rmhub.supervisor import Process
from tests.messaging.factories import partner_side
from tests.servers import database_url


def _exchanged(folder: Path) -> str:
    """What `up --demo` says of an exchange of no documents between two hubs that are there."""
    effects = folder / "effects.sqlite3"
    with closing(sqlite3.connect(effects)) as file:
        file.execute("CREATE TABLE IF NOT EXISTS effect (number INTEGER, document_id TEXT, sha256 TEXT)")
    buyer, seller = (Hub(name, database_url(), "", folder, 0) for name in "ab")
    stage = Stage(buyer, seller, Process("link", []), {}, effects)
    out = io.StringIO()
    up.Command(stdout=out)._exchange(stage, 0, time.monotonic())
    return out.getvalue()


@pytest.mark.django_db(transaction=True)
def test_the_end_of_the_exchange_says_whether_the_rows_keep_the_invariants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(up, "_wait_for", lambda hub: None)
    partner = partner_side()
    assert partner.send(partner.message(1)) == 204
    said = _exchanged(tmp_path)
    assert "nothing in the databases of both hubs contradicts what the hub promises" in said
    Pair.objects.filter(direction="in").update(last_sequence=7)
    said = _exchanged(tmp_path)
    assert "contradiction: a: last-number-in, 1 times: " in said
    assert "contradiction: b: last-number-in, 1 times: " in said
    assert "2 contradictions in the databases" in said
