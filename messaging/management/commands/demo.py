"""`manage.py demo`: two hubs with real processes on loopback, a bad link between them, and a judge."""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from messaging.demo import exchange, verdict
from messaging.demo.stage import Link, Parameters, Stage, running
from rmhub.supervisor import Supervisor

VICTIMS = ("a-web", "a-worker", "b-web", "b-worker")


def _share(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1:
        raise ArgumentTypeError("a share from 0 to below 1")
    return value


class Command(BaseCommand):
    help = "Exchanges documents between two real hubs through a bad link and checks that every promise was kept."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--messages", type=int, default=100, help="how many, half of them each way")
        parser.add_argument("--drop", type=_share, default=0.0, help="share of requests or answers that are lost")
        parser.add_argument("--duplicate", type=_share, default=0.0, help="share of requests that arrive twice")
        parser.add_argument("--delay-ms", type=float, default=0.0, help="delay of each way")
        parser.add_argument("--kill", action="store_true", help="kill -9 web servers and workers at random meanwhile")
        parser.add_argument(
            "--pairs", type=int, default=4, help="agreements between the hubs (a pair each way for each)"
        )
        parser.add_argument("--seed", type=int, default=1, help="of the link's and the killer's chances")
        parser.add_argument("--patience", type=float, default=300, help="seconds after which it gives up waiting")
        parser.add_argument("--json", action="store_true", help="print the result as JSON only")
        parser.add_argument("--logs", action="store_true", help="print what the processes say")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["messages"] < 1 or options["pairs"] < 1:
            raise CommandError("--messages and --pairs must be at least 1", returncode=2)
        quiet = options["json"]

        def log(line: str) -> None:
            if options["logs"] or not quiet:
                self.stderr.write(line)

        link = Link(options["drop"], options["duplicate"], options["delay_ms"], options["seed"])
        parameters = Parameters(agreements=options["pairs"])
        with ExitStack() as stack:
            stage, supervisor = stack.enter_context(
                running(link=link, parameters=parameters, log=log if options["logs"] else _milestones(log))
            )
            if options["kill"]:
                stack.enter_context(_killer(supervisor, options["seed"], log))
            result = self._run(stage, options, log)
        self._report(result, quiet)
        if not result["promises_kept"]:
            sys.exit(1)

    def _run(self, stage: Stage, options: dict[str, Any], log: Any) -> dict[str, Any]:
        total = options["messages"]
        begun = time.monotonic()
        log(f"submitting {total} documents")
        jobs = list(exchange.plan(stage, total, options["pairs"]))
        accepted: dict[str, set[str]] = {"a": set(), "b": set()}
        with ThreadPoolExecutor(2 * options["pairs"]) as pool:
            # One thread for each pair: the order in which its documents are handed over is the order to be kept.
            lanes = exchange.lanes(jobs)
            for hub_name, ids in pool.map(lambda lane: exchange.submit(stage, lane), lanes):
                accepted[hub_name] |= ids
        directions = [
            (stage.buyer.database_url, stage.seller.database_url, accepted["a"]),
            (stage.seller.database_url, stage.buyer.database_url, accepted["b"]),
        ]
        until = time.monotonic() + options["patience"]
        while True:
            found = verdict.judge(directions)
            if found.completed >= total or time.monotonic() > until:
                break
            log(f"{found.completed} of {total} acknowledged")
            time.sleep(0.5)
        seconds = time.monotonic() - begun
        complete = found.completed == total and found.delivered == total
        return {
            "submitted": sum(len(ids) for ids in accepted.values()),
            **asdict(found),
            "seconds": round(seconds, 1),
            "messages_per_second": round(found.completed / seconds, 1),
            "promises_kept": found.promises_kept and complete,
        }

    def _report(self, result: dict[str, Any], quiet: bool) -> None:
        if quiet:
            self.stdout.write(json.dumps(result))
            return
        for name, value in result.items():
            self.stdout.write(f"{name.replace('_', ' '):20} {value}")


def _milestones(log: Any) -> Any:
    """Only what the stage itself says, not the lines of its processes."""

    def filtered(line: str) -> None:
        if ": " not in line:
            log(line)

    return filtered


@contextmanager
def _killer(supervisor: Supervisor, seed: int, log: Any) -> Iterator[None]:
    """Kills a web server or a worker -9 every few seconds until the block ends; the supervisor starts them again.

    The first two are a worker and a web server, so that a short run sees both. A process that is just starting is
    spared: a hub that never gets up shows nothing.
    """
    chance = random.Random(seed)  # noqa: S311
    stop = threading.Event()

    def kill() -> None:
        first = [chance.choice(("a-web", "b-web")), chance.choice(("a-worker", "b-worker"))]
        while not stop.wait(chance.uniform(4.0, 8.0)):
            victim = first.pop() if first else chance.choice(VICTIMS)
            if supervisor.kill(victim):
                log(f"killed {victim}")

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
