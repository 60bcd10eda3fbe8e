"""`manage.py up`: the whole hub in one command, and with --demo a partner hub to talk to."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from argparse import ArgumentParser
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError, connection
from django.db.migrations.executor import MigrationExecutor

from messaging.demo import effects, exchange, verdict
from messaging.demo.stage import (
    BROKER,
    DATABASES,
    TITLES,
    Link,
    Parameters,
    Receiving,
    Stage,
    installation_folders,
    set_up,
)
from rmhub import embedded
from rmhub.env import env_str
from rmhub.hubs import BASE, Hub, command, free_ports
from rmhub.supervisor import Process, Supervisor


class Command(BaseCommand):
    help = (
        "Starts database and broker (unless DATABASE_URL and REDIS_URL name some), web server, worker, beat and the"
        " data pipeline."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default="127.0.0.1")
        parser.add_argument("--port", type=int, default=8000)
        parser.add_argument(
            "--migrate",
            action="store_true",
            help="bring the tables of DATABASE_URL to this version first; those of the embedded server always are",
        )
        parser.add_argument("--demo", action="store_true", help="also start a partner hub and exchange documents")
        parser.add_argument("--messages", type=int, default=60, help="with --demo: documents to exchange")
        parser.add_argument("--drop", type=float, default=0.15, help="with --demo: share that the link loses")
        parser.add_argument("--duplicate", type=float, default=0.15, help="with --demo: share that the link repeats")

    def handle(self, *args: Any, **options: Any) -> None:
        begun = time.monotonic()
        var = Path(settings.VAR_DIR)
        if os.geteuid() == 0:
            self._say("the hub runs as root: start it as a user of its own where others can reach it")
        _require_free(options["host"], options["port"])
        if not (options["demo"] or options["migrate"]) and env_str("DATABASE_URL"):
            _require_migrated()
        with ExitStack() as stack:
            database_url, redis_url = env_str("DATABASE_URL"), env_str("REDIS_URL")
            supervisor_box: list[Supervisor] = []

            def gone(code: int) -> None:
                self._say("database or broker ended; stopping")
                for running in supervisor_box:
                    running.request_stop(code or 1)

            if not database_url or not redis_url:
                self._say("starting PostgreSQL and Valkey on loopback")
                try:
                    # Our own ones: those of another command that is just running would end with it.
                    servers = stack.enter_context(embedded.servers(var, own=True, log=self._say, ended=gone))
                except embedded.EmbeddedError as error:
                    raise CommandError(str(error), returncode=1) from error
                database_url, redis_url = database_url or servers.database_url, redis_url or servers.redis_url
            # Nobody else is at a server that this command has just started.
            options["migrate"] |= not env_str("DATABASE_URL")
            processes, after = (self._demo if options["demo"] else self._single)(options, var, database_url, redis_url)
            supervisor = Supervisor(processes)
            supervisor_box.append(supervisor)
            threading.Thread(target=self._announce, args=(after, begun), daemon=True).start()
            code = supervisor.run()
        # Ctrl-C is how one ends it: 0 for make, and for whoever waits.
        sys.exit(0 if code == 130 else code)

    def _single(
        self, options: dict[str, Any], var: Path, database_url: str, redis_url: str
    ) -> tuple[list[Process], Callable[[float], None]]:
        title, threads = settings.RMHUB_NAME, settings.RMHUB_WEB_THREADS
        hub = Hub("hub", database_url, redis_url, var, options["port"], title, options["host"], threads)
        steps = {
            **({"migrate": command("migrate")} if options["migrate"] else {}),
            "static": hub.manage("collectstatic", "--noinput", "--verbosity", "0"),
            "users": hub.manage("first_user"),
        }
        once = [Process(name, argv, env=hub.environment(), once=True, cwd=BASE) for name, argv in steps.items()]

        def after(begun: float) -> None:
            _wait_for(hub)
            self._say(f"console: {hub.url}/ (ready after {time.monotonic() - begun:.0f} s; Ctrl-C stops everything)")

        return [*once, *hub.processes(pipeline=True)], after

    def _demo(
        self, options: dict[str, Any], var: Path, database_url: str, redis_url: str
    ) -> tuple[list[Process], Callable[[float], None]]:
        port = options["port"]
        partner_port = port + 1 if _is_free(options["host"], port + 1) else free_ports(1)[0]
        try:
            stage = set_up(
                database_url=database_url,
                redis_url=redis_url,
                var=var,
                link=Link(options["drop"], options["duplicate"]),
                parameters=Parameters(timeout=2, retry_interval=2, targets=True),
                receiving=Receiving(resolver=True, takes_ms=20),
                ports=(port, partner_port),
                databases=DATABASES,
                redis_numbers=BROKER,
                titles=TITLES,
                settings={"RMHUB_ENVIRONMENT": "DEMO"},
                # As `manage.py pipeline` in this folder has them: the buyer's console shows what that publishes.
                folders=installation_folders(),
                pipeline=True,
                log=self._say,
            )
        except subprocess.CalledProcessError as error:
            raise CommandError(f"set-up failed: {' '.join(map(str, error.cmd[1:3]))}", returncode=1) from error
        return stage.processes(), lambda begun: self._exchange(stage, options["messages"], begun)

    def _exchange(self, stage: Stage, total: int, begun: float) -> None:
        _wait_for(stage.buyer)
        _wait_for(stage.seller)
        self._login(stage, begun)
        self._say(f"exchanging {total} documents both ways through a link that loses and repeats some of them")
        self._say(f"both hubs deliver what they receive to a demo application: {stage.buyer.url}/triggers/")
        accepted: dict[str, set[str]] = {"a": set(), "b": set()}
        for errands in exchange.by_pair(list(exchange.plan(stage, total, 4))):
            name, ids = exchange.submit(stage, errands)
            accepted[name] |= ids
        until = time.monotonic() + 120
        while True:
            found = verdict.judge(
                [
                    (stage.buyer.database_url, stage.seller.database_url, accepted["a"]),
                    (stage.seller.database_url, stage.buyer.database_url, accepted["b"]),
                ]
            )
            waiting = _waiting(stage)
            applied = effects.judge([stage.buyer.database_url, stage.seller.database_url], stage.effects)
            # Whoever holds the trigger on the console meanwhile should not read this for ever.
            delivered = not applied.unsettled or time.monotonic() > until
            if found.suspended or (not waiting and delivered):
                break
            self._say(f"{waiting} documents under way, {applied.unsettled} more on their way to the application")
            time.sleep(2)
        self._say(
            f"done: {found.delivered} delivered, {found.delivered_twice} twice, {found.lost} lost, "
            f"{found.out_of_order} out of order, {found.suspended} pairs suspended"
        )
        self._say(
            f"in the application: {applied.effects_once} once, {applied.effects_twice} twice, "
            f"{applied.effects_missing} missing, {applied.in_doubt} in doubt"
        )
        self._prove(stage)
        self._login(stage, begun)

    def _prove(self, stage: Stage) -> None:
        """Say whether the rows of both databases keep the invariants; the processes go on meanwhile."""
        found = verdict.contradictions({hub.name: hub.database_url for hub in (stage.buyer, stage.seller)})
        for line in found:
            self._say(f"contradiction: {line}")
        self._say(
            f"{len(found)} contradictions in the databases: keep what is above, it is a defect of the hub"
            if found
            else "nothing in the databases of both hubs contradicts what the hub promises (check_invariants)"
        )

    def _login(self, stage: Stage, begun: float) -> None:
        self._say(f"console  {stage.buyer.url}/   (the partner's: {stage.seller.url}/)")
        for name in ("admin", "operator", "viewer", "partner"):
            self._say(f"log-in   {name} / {stage.logins.get(name, '(as you set it)')}")
        self._say(f"API      {stage.buyer.url}/api/v1/docs")
        self._say(f"up after {time.monotonic() - begun:.0f} s; Ctrl-C stops everything")

    def _announce(self, after: Callable[[float], None], begun: float) -> None:
        try:
            after(begun)
        except Exception as error:
            self._say(f"the demo exchange stopped: {error}")

    def _say(self, line: str) -> None:
        self.stdout.write(f"hub      | {line}")
        self.stdout.flush()


def _waiting(stage: Stage) -> int:
    """Outbound messages of both hubs that are neither delivered nor given up."""
    import psycopg

    total = 0
    for hub in (stage.buyer, stage.seller):
        with psycopg.connect(hub.database_url) as connection:
            row = connection.execute(
                "SELECT count(*) FROM messaging_message WHERE direction = 'out'"
                " AND state IN ('queued', 'sending', 'awaiting_ack', 'retrying')"
            ).fetchone()
            total += int(row[0]) if row else 0
    return total


def _wait_for(hub: Hub) -> None:
    """Returns when the hub's web server answers. Raises TimeoutError after two minutes."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        try:
            if hub.answers():
                return
        except OSError:
            time.sleep(0.2)
    raise TimeoutError(f"{hub.url} does not answer")


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def _require_migrated() -> None:
    """Raises CommandError when the tables of DATABASE_URL are not those of this version, or cannot be looked at."""
    try:
        executor = MigrationExecutor(connection)
        missing = [str(one) for one, _ in executor.migration_plan(executor.loader.graph.leaf_nodes())]
    except OperationalError as error:
        raise CommandError(f"the database does not answer: {str(error).splitlines()[0]}", returncode=1) from error
    finally:
        connection.close()
    if missing:
        shown = ", ".join(missing[:3]) + (" ..." if len(missing) > 3 else "")
        raise CommandError(
            f"{len(missing)} migrations are not applied ({shown}): run `manage.py migrate`, or start with --migrate"
            " (docs/operations.md, Upgrades)",
            returncode=2,
        )


def _require_free(host: str, port: int) -> None:
    if not _is_free(host, port):
        raise CommandError(f"{host}:{port} is in use; choose another port with --port.", returncode=2)
