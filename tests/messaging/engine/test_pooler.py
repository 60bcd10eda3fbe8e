"""Behind a pooler that shares sessions between transactions (PgBouncer's transaction mode)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connection

from messaging.engine import leases
from rmhub.hubs import BASE
from tests.poolers import pooling
from tests.rmhub.conditions import eventually

pytestmark = pytest.mark.django_db(transaction=True)
WORKER = """
import django, sys
django.setup()
from messaging.engine.leases import WorkerLock
worker = WorkerLock()
worker.hold()
print(worker.number, flush=True)
sys.stdin.read()
"""


HOLDER = """
import django, sys
django.setup()
from rmhub.postgresql.base import locked
with locked(4711, wait=False) as lock:
    print("none" if lock is None else "held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def sessions() -> int:
    """How many sessions of the server the pooler shares."""
    return 1


@pytest.fixture
def pooler(tmp_path: Path, sessions: int) -> Iterator[str]:
    """DATABASE_URL of the test's database through a pooler with these sessions for everybody."""
    known = connection.settings_dict
    mine = f"postgresql://{known['USER']}:{known['PASSWORD']}@{known['HOST']}:{known['PORT']}/{known['NAME']}"
    with pooling(mine, tmp_path, sessions) as through:
        yield through(mine)


def test_x23_a_worker_that_was_killed_is_noticed_and_one_that_lives_is_not_taken_for_dead(
    pooler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pooler keeps the sessions that they used, so that none of them ends with its worker."""
    monkeypatch.setattr(leases, "RENEW_SECONDS", 0.0)
    processes = [_behind(pooler, WORKER) for _ in range(2)]
    judge = leases.WorkerLock()
    try:
        dead, alive = [int(process.stdout.readline()) for process in processes if process.stdout]
        judge.hold()
        assert leases.living() == {judge.number, dead, alive}
        processes[0].send_signal(signal.SIGKILL)
        processes[0].wait()
        judge.hold()
        assert leases.living() == {judge.number, alive}
    finally:
        for process in processes:
            process.kill()
            process.communicate()
        judge.release()


@pytest.mark.parametrize("sessions", [3])
def test_a_lock_goes_with_the_process_that_held_it_and_not_before(pooler: str, sessions: int) -> None:
    """A lock of a session would stay with one that the pooler keeps, or be taken for held by whoever gets it next."""
    started: list[subprocess.Popen[str]] = []

    def said() -> str:
        started.append(_behind(pooler, HOLDER))
        assert started[-1].stdout is not None
        return started[-1].stdout.readline().strip()

    try:
        assert [said(), said(), said()] == ["held", "none", "none"]
        started[0].send_signal(signal.SIGKILL)
        started[0].wait()
        # The pooler may take a moment to see that its client is gone.
        eventually(lambda: said() == "held", within=60.0)
    finally:
        for process in started:
            process.kill()
            process.communicate()


def _behind(pooler: str, program: str) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "rmhub.settings",
        "DATABASE_URL": pooler,
        "RMHUB_PREPARE_THRESHOLD": "0",
        "PYTHONPATH": str(BASE),
    }
    return subprocess.Popen(
        [sys.executable, "-c", program], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
