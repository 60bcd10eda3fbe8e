"""`/livez`, `/readyz` and `/api/v1/health` in each fault that `make chaos` makes, and what the processes of each role
say of themselves."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import urllib3
from django.core.management import call_command
from django.core.wsgi import get_wsgi_application
from django.db import connection
from psycopg import sql

from messaging import dispatch, storage
from messaging.engine import leases
from messaging.entrance.urls import entrance_first
from messaging.models import Circuit, Worker
from messaging.overview.probes import probes_first
from messaging.overview.selectors import health, roles
from messaging.pipeline.runner import Runner
from rmhub import alive, clock
from rmhub.front.application import Bounds, Front
from rmhub.front.environ import Peers
from rmhub.front.refusing import refusing
from rmhub.postgresql import base
from tests import ROOT
from tests.chaos.faults import FULL
from tests.messaging.outages import administrator, end_sessions, outage
from tests.messaging.overview.answers import ANSWERS, PARTS, Answers
from tests.messaging.profiles.repeatable.hubs import hubs
from tests.rmhub.conditions import eventually

pytestmark = pytest.mark.django_db(transaction=True)
HOUR = timedelta(hours=1)


@pytest.fixture
def front(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Front]:
    """A web server of a hub that is well: two workers, a broker that answers, a store with room."""
    monkeypatch.setattr(health, "presences", leases.presences)
    monkeypatch.setattr(roles, "presences", leases.presences)
    monkeypatch.setattr(base, "FULL_PATIENCE", 0.01)
    for _ in range(2):
        leases.WorkerLock().hold()
    Worker.objects.update(renewed_at=clock.now() + HOUR)  # however slow the machine is
    application = probes_first(entrance_first(get_wsgi_application()))
    made = Front(application, refusing, Bounds(threads=2, folder=tmp_path), Peers())
    connection.close()
    connection.close_pool()
    assert answers(made) == (200, (200, frozenset()), (200, "ok", ()))
    yield made
    connection.close()
    connection.close_pool()
    health.forget()


def ask(front: Front, path: str, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
    """Asks the application as the HTTP server does."""
    events: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(event: dict[str, Any]) -> None:
        events.append(event)

    plain, _, query = path.partition("?")
    scope = {
        **{"type": "http", "method": method, "path": plain, "query_string": query.encode(), "http_version": "1.1"},
        **{"scheme": "http", "client": ("192.0.2.7", 1), "server": ("127.0.0.1", 8000)},
        "headers": [(b"host", b"10.1.2.3:8000" if plain != "/api/v1/health" else b"127.0.0.1")],
    }
    asyncio.run(front(scope, receive, send))
    headers = {name.decode().lower(): value.decode() for name, value in events[0]["headers"]}
    return events[0]["status"], headers, b"".join(event.get("body", b"") for event in events[1:])


def answers(front: Front) -> tuple[int, Any, Any]:
    """Of the three, in the form of `Answers`."""
    health.forget()
    live, _, said = ask(front, "/livez")
    assert said == b"ok\n"
    ready, _, lines = ask(front, "/readyz")
    named = [line.split()[:2] for line in lines.decode().splitlines()]
    assert (ready == 200) == (named == [["ok"]])
    health.forget()
    status, _, body = ask(front, "/api/v1/health")
    found = json.loads(body)
    parts = tuple((part["name"], part["state"]) for part in found["parts"] if part["state"] != "ok")
    said_as = found["status"] if status == 200 else ""
    return live, (ready, frozenset(name for name, *_ in named if ready != 200)), (status, said_as, parts)


Patch = pytest.MonkeyPatch


@contextmanager
def away(patch: Patch, path: Path) -> Iterator[None]:
    with outage():
        yield


@contextmanager
def limited(patch: Patch, path: Path) -> Iterator[None]:
    """Nobody gets a further connection."""
    name = sql.Identifier(connection.settings_dict["NAME"])
    with administrator() as admin:
        admin.execute(sql.SQL("ALTER DATABASE {} CONNECTION LIMIT 0").format(name))
        try:
            yield
        finally:
            admin.execute(sql.SQL("ALTER DATABASE {} CONNECTION LIMIT -1").format(name))


@contextmanager
def none_left(patch: Patch, path: Path) -> Iterator[None]:
    with limited(patch, path):
        end_sessions()
        yield


@contextmanager
def one_left(patch: Patch, path: Path) -> Iterator[None]:
    """It was refused a second one."""
    pool = connection.pool
    assert pool is not None
    with limited(patch, path):
        mine = pool.getconn()
        with pytest.raises(base.psycopg.OperationalError):
            pool.getconn()
        pool.putconn(mine)
        yield


@contextmanager
def read_only(patch: Patch, path: Path) -> Iterator[None]:
    """As on a standby: every new session begins so."""
    change = sql.SQL("ALTER DATABASE {} {} default_transaction_read_only {}")
    name = sql.Identifier(connection.settings_dict["NAME"])
    with administrator() as admin:
        admin.execute(change.format(name, sql.SQL("SET"), sql.SQL("= on")))
        end_sessions()
        try:
            yield
        finally:
            admin.execute(change.format(name, sql.SQL("RESET"), sql.SQL("")))
            end_sessions()


@contextmanager
def no_broker(patch: Patch, path: Path) -> Iterator[None]:
    with patch.context() as inner:
        inner.setattr(dispatch.settings, "REDIS_URL", "redis://127.0.0.1:1/0")
        inner.setattr(dispatch, "_client", None)
        yield


@contextmanager
def silent(count: int) -> Iterator[None]:
    """So many workers were last heard of 12 s ago."""
    chosen = Worker.objects.filter(pk__in=Worker.objects.order_by("pk").values("pk")[:count])
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        (now,) = cursor.fetchone()
    chosen.update(renewed_at=now - timedelta(seconds=12))
    connection.close()
    yield
    Worker.objects.update(renewed_at=clock.now() + HOUR)
    connection.close()


@contextmanager
def store_gone(patch: Patch, path: Path) -> Iterator[None]:
    (path / "file").write_text("in the way")
    with patch.context() as inner:
        inner.setattr(storage.settings, "RMHUB_STORE_DIR", path / "file")
        yield


@contextmanager
def server_left_alone(patch: Patch, path: Path) -> Iterator[None]:
    now = clock.now()
    Circuit.objects.create(address="http://203.0.113.7", state="open", opened_at=now, retry_at=now, updated_at=now)
    connection.close()
    yield
    Circuit.objects.all().delete()


@contextmanager
def nothing(patch: Patch, path: Path) -> Iterator[None]:
    """It does not happen to what this web server looks at."""
    yield


MADE: dict[str, Callable[[Patch, Path], AbstractContextManager[None]]] = {
    "PostgreSQL killed": away,
    "PostgreSQL away": away,
    "no connection left": none_left,
    "no connection left, but this process has one": one_left,
    "PostgreSQL takes no writes": read_only,
    "Valkey killed": no_broker,
    "Valkey away": no_broker,
    "beats killed or frozen": nothing,  # none runs
    "workers killed": lambda patch, path: silent(2),
    "worker frozen": lambda patch, path: silent(1),
    "payload store full": store_gone,
    "link cut": server_left_alone,
    "link silent": server_left_alone,
    "link slow": nothing,
    "link lying": nothing,
}


@pytest.mark.parametrize("expected", [one for one in ANSWERS if one.livez], ids=lambda one: one.fault)
def test_each_fault_has_its_answers_and_none_when_it_is_over(
    front: Front, expected: Answers, monkeypatch: Patch, tmp_path: Path
) -> None:
    with MADE[expected.fault](monkeypatch, tmp_path):
        assert answers(front) == (expected.livez, expected.readyz, expected.health)
    assert answers(front) == (200, (200, frozenset()), (200, "ok", ())), "it is over"


def test_a_web_server_that_is_frozen_or_killed_answers_nothing(tmp_path: Path) -> None:
    assert [one.fault for one in ANSWERS if not one.livez] == ["web killed", "web frozen"]
    with hubs(tmp_path) as (hub,):
        assert status(hub.url, "/livez") == status(hub.url, "/readyz") == 200
        os.killpg(hub._process.pid, signal.SIGSTOP)
        assert [status(hub.url, path) for path in ("/livez", "/readyz", "/api/v1/health")] == [0, 0, 0]
        os.killpg(hub._process.pid, signal.SIGCONT)
        eventually(lambda: status(hub.url, "/livez") == 200)
        hub.kill()
        assert [status(hub.url, path) for path in ("/livez", "/readyz", "/api/v1/health")] == [0, 0, 0]


def status(url: str, path: str) -> int:
    try:
        return urllib3.request("GET", url + path, retries=False, timeout=2).status
    except urllib3.exceptions.HTTPError:
        return 0


def test_every_fault_of_make_chaos_has_a_row_that_the_documentation_has_too() -> None:
    known = {one.fault for one in ANSWERS}
    faults = [re.sub(r" \d+ s$", "", fault.name) for fault in FULL]
    assert [fault for fault in faults if not set(PARTS.get(fault, (fault,))) <= known] == []
    rows = [line for line in (ROOT / "docs" / "operations.md").read_text().splitlines() if line.startswith("| ")]
    begin = rows.index("| fault | `/livez` | `/readyz` | `/api/v1/health` |")
    assert rows[begin + 2 : begin + 2 + len(ANSWERS)] == [one.row for one in ANSWERS]


def test_a_probe_needs_no_host_of_ours_no_tls_and_no_session(front: Front, settings: Any) -> None:
    settings.SECURE_SSL_REDIRECT = True
    settings.ALLOWED_HOSTS = ["hub.example.org"]
    for path in ("/livez", "/readyz"):
        code, headers, body = ask(front, path)
        assert (code, headers["content-type"], body) == (200, "text/plain; charset=utf-8", b"ok\n")
        assert headers["cache-control"] == "no-store" and "set-cookie" not in headers
    assert ask(front, "/readyz", "POST")[0] == 405


def test_readiness_says_each_part_where_it_is_asked(front: Front, monkeypatch: Patch) -> None:
    assert ask(front, "/readyz?verbose")[2] == b"database ok\nstore ok\nready\n"
    monkeypatch.setattr(storage, "room", lambda: storage.Room("No space left on device", True, 4096))
    health.forget()
    code, _, body = ask(front, "/readyz?verbose")
    first, second = body.decode().splitlines()
    assert (code, first) == (503, "database ok") and second.startswith("store down: The payload store is full")


def test_a_server_whose_threads_all_wait_is_alive_and_not_ready(front: Front) -> None:
    """An orchestrator that restarted it for that would do so in every outage of the database."""
    go_on = threading.Event()
    for _ in range(2):
        front._threads.submit(go_on.wait, 120)
    asked = threading.Thread(target=lambda: ask(front, "/readyz"))
    try:
        asked.start()
        assert ask(front, "/livez")[0] == 200
        assert asked.is_alive()
    finally:
        go_on.set()
        asked.join(120)


# ---- roles


def told(role: str, **options: str) -> tuple[int, str]:
    """What `manage.py health` says, and its exit status."""
    from io import StringIO

    out = StringIO()
    try:
        call_command("health", role=role, stdout=out, **options)
    except SystemExit as ended:
        return int(str(ended.code)), out.getvalue()
    return 0, out.getvalue()


def test_a_worker_is_well_while_its_row_is_renewed_by_this_machine(front: Front) -> None:
    assert told("worker") == (0, "worker: ok\n")
    with silent(1):
        code, said = told("worker")
    assert code == 1 and "was last heard of 1" in said
    Worker.objects.update(node="another machine")
    assert told("worker") == (1, "worker: No worker of this machine has made itself known.\n")
    connection.close()
    with outage():
        assert told("worker") == (1, "worker: The database: It does not answer.\n")


def test_the_pipeline_is_well_while_it_finds_the_database_and_looks(settings: Any, tmp_path: Path) -> None:
    settings.VAR_DIR = tmp_path
    assert told("pipeline") == (1, "pipeline: No pipeline runs on this machine.\n")
    assert Runner(lambda line: None).serve(once=True, signals=False) == 0
    assert told("pipeline") == (0, "pipeline: ok\n")
    aged("pipeline", 3600)
    code, said = told("pipeline")
    assert (code, said) == (1, "pipeline: The last sign of pipeline is 1 h old: it hangs, or is stopped.\n")
    runner = Runner(lambda line: None)
    runner._look_into_folder = runner.stop  # type: ignore[method-assign]
    connection.close()
    with outage():
        runner.serve(signals=False)
    assert told("pipeline")[0] == 1, "it could not look"


def aged(role: str, seconds: float) -> None:
    path = alive._path(role)
    then = path.stat().st_mtime - seconds
    os.utime(path, (then, then))


def test_beat_shows_that_it_turns_with_or_without_a_broker_and_a_file_it_left_is_no_sign(
    settings: Any, tmp_path: Path
) -> None:
    settings.VAR_DIR = tmp_path
    (tmp_path / "run").mkdir()
    environment = {
        **os.environ,
        **{"DJANGO_SETTINGS_MODULE": "rmhub.settings", "REDIS_URL": "redis://127.0.0.1:1/0"},
        **{"RMHUB_VAR": str(tmp_path), "DATABASE_URL": "postgresql://rmhub@127.0.0.1:1/rmhub"},
    }
    beat = subprocess.Popen([sys.executable, "-m", "celery", "-q", "-A", "rmhub", "beat"], cwd=ROOT, env=environment)
    try:
        eventually(lambda: told("beat")[0] == 0)
        aged("beat", 3600)
        assert told("beat")[0] == 1
    finally:
        beat.kill()
        beat.wait(120)
    os.utime(alive._path("beat"))
    assert told("beat") == (1, "beat: No beat runs on this machine.\n")


def test_the_web_role_asks_the_web_server_whether_it_is_ready(tmp_path: Path) -> None:
    with hubs(tmp_path) as (hub,):
        assert told("web", url=hub.url) == (0, "web: ok\n")
        connection.close()
        with outage():
            assert told("web", url=hub.url) == (1, "web: database down: It does not answer.\n")
    code, said = told("web", url=hub.url)
    assert code == 1 and said.startswith("web: Nobody answers at http://127.0.0.1:")


def test_the_mail_role_wants_to_be_greeted(settings: Any) -> None:
    assert told("mail")[0] == 1
    with socket.create_server(("127.0.0.1", 0)) as server:
        settings.RMHUB_SMTP_LISTEN = ("0.0.0.0", server.getsockname()[1])
        for greeting, code in ((b"220 hub ESMTP\r\n", 0), (b"SSH-2.0\r\n", 1)):
            thread = threading.Thread(target=_greet, args=(server, greeting))
            thread.start()
            assert told("mail")[0] == code
            thread.join(120)
    assert "Nobody answers" in told("mail")[1]


def _greet(server: socket.socket, greeting: bytes) -> None:
    made, _ = server.accept()
    with made:
        made.sendall(greeting)
