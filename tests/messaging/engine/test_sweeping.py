"""The worker's own clock: with a broker, without one, and while the database is away."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.conf import settings
from django.db import OperationalError, connection

from messaging import tasks
from messaging.engine import leases
from messaging.engine.sweeping import Sweeper
from messaging.models import Delivery
from rmhub.hubs import Hub, free_ports
from tests.messaging.deliveries.stage import application, arrive, make_trigger
from tests.messaging.factories import partner_side
from tests.messaging.outages import outage
from tests.rmhub.conditions import eventually

pytestmark = pytest.mark.django_db(transaction=True)

Tasks = dict[str, tuple[float, Callable[[], object]]]


@contextmanager
def sweeping(work: Tasks, first: Callable[[], object] = lambda: None) -> Iterator[tuple[Sweeper, leases.WorkerLock]]:
    presence = leases.WorkerLock()
    sweeper = Sweeper(work, presence=presence, first=first)
    sweeper.start()
    try:
        yield sweeper, presence
    finally:
        sweeper.stop()
        presence.release()


def test_x24_what_nobody_wakes_is_run_by_the_worker_itself() -> None:
    runs: list[int] = []
    with sweeping({"send": (0.0, lambda: runs.append(1)), "rare": (3600.0, lambda: runs.append(100))}):
        eventually(lambda: runs.count(1) >= 3)
    assert runs.count(100) == 1


def test_what_the_look_sees_ahead_is_run_at_its_time() -> None:
    """Long before the next look, and not before its time."""
    runs: list[str] = []
    begun = time.monotonic()
    work: Tasks = {name: (3600.0, lambda name=name: runs.append(name)) for name in ("soon", "later")}  # type: ignore[misc]
    sweeper = Sweeper(work, presence=leases.WorkerLock(), look=lambda: {"soon": 0.3, "later": 3000}, every=3600)
    for name in work:
        sweeper.woken(name)
    sweeper.start()
    try:
        eventually(lambda: runs)
        assert time.monotonic() - begun >= 0.3
    finally:
        sweeper.stop()
    assert runs == ["soon"]


def test_x24_what_was_woken_is_not_run_a_second_time() -> None:
    runs: list[str] = []
    hold, held = threading.Event(), threading.Event()

    def first() -> None:
        held.set()
        assert hold.wait(120)

    work: Tasks = {name: (3600.0, lambda name=name: runs.append(name)) for name in ("woken", "not")}  # type: ignore[misc]
    with sweeping(work, first) as (sweeper, _):
        assert held.wait(120)
        sweeper.woken("woken")
        hold.set()
        eventually(lambda: runs)
    assert runs == ["not"]


def test_x24_a_task_that_hangs_or_breaks_stops_no_other() -> None:
    gate = threading.Event()
    runs: list[int] = []

    def breaks() -> None:
        raise ValueError("a mistake of ours")

    with sweeping({"hangs": (0.0, gate.wait), "breaks": (0.0, breaks), "send": (0.0, lambda: runs.append(1))}):
        try:
            eventually(lambda: len(runs) >= 3)
        finally:
            gate.set()


def test_x23_the_presence_is_held_by_itself_and_again_after_an_outage() -> None:
    with sweeping({}) as (sweeper, presence):
        eventually(lambda: presence.number in leases.living())
        with outage():
            eventually(lambda: sweeper._away_since is not None)
        eventually(lambda: sweeper._away_since is None)
        assert presence.number in leases.living()


def test_what_is_done_once_is_done_when_the_database_answers() -> None:
    tries: list[int] = []
    runs: list[int] = []

    def first() -> None:
        tries.append(1)
        if len(tries) < 3:
            raise OperationalError("not yet")
        assert not runs

    with sweeping({"send": (0.0, lambda: runs.append(1))}, first):
        eventually(lambda: runs)
    assert len(tries) == 3


def test_x24_every_task_of_the_schedule_is_swept() -> None:
    scheduled = {entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()}
    assert scheduled == set(tasks._WORK)


# ---- a real worker ----


@contextmanager
def worker_process(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A worker of this database, as `up` starts it; nobody listens where its broker should be."""
    known = connection.settings_dict
    url = f"postgresql://{known['USER']}:{known['PASSWORD']}@{known['HOST']}:{known['PORT']}/{known['NAME']}"
    ours = {"RMHUB_SECRET_KEYS": ",".join(settings.RMHUB_SECRET_KEYS), "RMHUB_WEBHOOK_ALLOW_PRIVATE": "1"}
    hub = Hub("alone", url, f"redis://127.0.0.1:{free_ports(1)[0]}/0", folder, 1, settings=ours)
    [made] = [process for process in hub.processes() if process.name == "worker"]
    process = subprocess.Popen(made.argv, env=dict(made.env or {}), cwd=made.cwd, start_new_session=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_x24_a_worker_that_starts_without_a_broker_delivers_and_ends_cleanly(tmp_path: Path) -> None:
    with application() as app:
        make_trigger(app)
        [first] = arrive(partner_side(), "doc-1@example.com")
        with worker_process(tmp_path) as process:
            eventually(lambda: Delivery.objects.get(pk=first.pk).state == "completed", within=120)
            assert len(leases.living()) == 1
            [later] = arrive(partner_side(), "doc-2@example.com")
            eventually(lambda: Delivery.objects.get(pk=later.pk).state == "completed", within=120)
            process.terminate()
            assert process.wait(120) == 0
        assert leases.living() == set()
    assert app.documents == ["doc-1@example.com", "doc-2@example.com"]
