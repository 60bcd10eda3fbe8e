"""`manage.py demo`: two hubs with real processes on loopback, a bad link between them, and a judge.

With --trigger both hubs deliver every document to an application, and a second judge counts its effects. With --hops
there is a chain of hubs: sender, routers and receiver. With --atomic one hub coordinates transactions of three
applications.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from argparse import ArgumentParser, ArgumentTypeError
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django import conf
from django.core.management.base import BaseCommand, CommandError

from messaging.choices import RouteMode
from messaging.demo import effects, exchange, verdict
from messaging.demo.seeding import MOST_HOPS
from messaging.demo.stage import APPLICATION, Link, Parameters, Receiving, Stage, installation_folders, running
from messaging.management.worlds import world
from messaging.profile import named
from partners.choices import DOCUMENT_PROFILES, Profile
from partners.rules import BY_PROFILE
from rmhub.hubs import Hub
from rmhub.supervisor import Supervisor

_NOT_ATOMIC = ("hops", "trigger", "resolver", "work_ms", "ordered", "keep", "pairs", "drop", "duplicate", "delay_ms")
_NOT_CHAIN = ("trigger", "resolver", "work_ms", "ordered", "keep", "pairs")
VICTIMS = ("a-web", "a-worker", "b-web", "b-worker")


Log = Callable[[str], None]


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
        parser.add_argument(
            "--kill",
            action="store_true",
            help="kill -9 meanwhile: web servers, workers and applications; with --hops all of a router",
        )
        parser.add_argument("--profile", choices=DOCUMENT_PROFILES, default=Profile.EBXML, help="what the hubs speak")
        parser.add_argument("--ordered", action="store_true", help="with --profile repeatable: one after the other")
        parser.add_argument(
            "--trigger", choices=("http", "pull"), help="an application gets every document: is called, or fetches it"
        )
        parser.add_argument("--resolver", action="store_true", help="with --trigger: it is asked what is in doubt")
        parser.add_argument(
            "--work-ms", type=float, help="with --trigger: how long the application is busy with a document (100)"
        )
        parser.add_argument("--pairs", type=int, help="agreements between the hubs (a pair each way for each; 4)")
        parser.add_argument(
            "--machines",
            type=int,
            choices=range(1, 5),
            default=1,
            help="of each hub: web server and worker each, on one database, with the traffic to them in turn",
        )
        parser.add_argument(
            "--hops",
            type=int,
            choices=range(2, MOST_HOPS + 1),
            help="a chain instead: sender, routers and receiver, so many hops from end to end",
        )
        parser.add_argument(
            "--mode",
            choices=RouteMode.values,
            default=RouteMode.STORE_FORWARD,
            help="with --hops: when the routers acknowledge what they pass on",
        )
        parser.add_argument(
            "--atomic", action="store_true", help="one hub and three applications instead: documents for all or none"
        )
        parser.add_argument("--transactions", type=int, help="with --atomic: how many documents (100)")
        parser.add_argument("--no-share", type=_share, help="with --atomic: share of votes that are no (0.2)")
        parser.add_argument("--seed", type=int, default=1, help="of the link's and the killer's chances, and of votes")
        parser.add_argument("--patience", type=float, default=300, help="seconds after which it gives up waiting")
        parser.add_argument("--json", action="store_true", help="print the result as JSON only")
        parser.add_argument(
            "--keep",
            action="store_true",
            help="use this installation's databases and folder, and keep them, for `up --demo` and `pipeline`",
        )
        parser.add_argument("--logs", action="store_true", help="print what the processes say")

    def handle(self, *args: Any, **options: Any) -> None:
        quiet = options["json"]

        def log(line: str) -> None:
            if options["logs"] or not quiet:
                self.stderr.write(line)

        if not options["atomic"] and (options["transactions"] is not None or options["no_share"] is not None):
            raise CommandError("--transactions and --no-share belong to --atomic.", returncode=2)
        run = self._atomic if options["atomic"] else self._chain if options["hops"] else self._pair
        result = run(options, log)
        if quiet:
            self.stdout.write(json.dumps(result))
        else:
            for name, value in result.items():
                self.stdout.write(f"{name.replace('_', ' '):20} {value}")
        if not result["promises_kept"]:
            sys.exit(1)

    def _pair(self, options: dict[str, Any], log: Log) -> dict[str, Any]:
        """Two hubs, both ways."""
        if options["mode"] != RouteMode.STORE_FORWARD:
            raise CommandError("--mode belongs to --hops: without routers nothing is passed on.", returncode=2)
        options["pairs"] = 4 if options["pairs"] is None else options["pairs"]
        if options["messages"] < 1 or options["pairs"] < 1:
            raise CommandError("--messages and --pairs must be at least 1", returncode=2)
        if options["ordered"] and "ordered" not in BY_PROFILE[options["profile"]].names:
            raise CommandError(
                "--ordered belongs to --profile repeatable; the others are always in order.", returncode=2
            )
        if not options["trigger"] and (options["resolver"] or options["work_ms"] is not None):
            raise CommandError("--resolver and --work-ms belong to --trigger.", returncode=2)
        receiving = Receiving(options["resolver"], _work(options), options["trigger"]) if options["trigger"] else None
        with ExitStack() as stack:
            stage, supervisor = stack.enter_context(
                running(
                    link=_link(options),
                    parameters=Parameters(
                        agreements=options["pairs"],
                        profile=options["profile"],
                        ordered=options["ordered"],
                        signed=named(options["profile"]).acknowledged_singly,
                    ),
                    receiving=receiving,
                    settings={"RMHUB_ENVIRONMENT": "DEMO"} if options["keep"] else None,
                    keep=Path(conf.settings.VAR_DIR) if options["keep"] else None,
                    folders=installation_folders() if options["keep"] else None,
                    machines=options["machines"],
                    log=_told(options, log),
                )
            )
            killed: Counter[str] = Counter()
            if options["kill"]:
                path = stage.effects if receiving else None
                further = [machine.name for machines in stage.machines.values() for machine in machines]
                victims = [*VICTIMS, *(f"{name}-{what}" for name in further for what in ("web", "worker"))]
                stack.enter_context(_killer(supervisor, victims, options["seed"], log, killed, path))
            result = {**self._run(stage, options, log), "killed": dict(killed)}
            return self._proven(result, [stage.buyer, stage.seller])

    def _atomic(self, options: dict[str, Any], log: Log) -> dict[str, Any]:
        """Documents for three applications in one transaction."""
        _refuse(options, _NOT_ATOMIC, "--atomic has no link and no second hub")
        transactions = 100 if options["transactions"] is None else options["transactions"]
        if transactions < 1:
            raise CommandError("--transactions must be at least 1", returncode=2)
        no = 0.2 if options["no_share"] is None else options["no_share"]
        names, votes_of = world("atomic_seeding").NAMES, world("atomic_taking").Votes
        votes = votes_of(seed=options["seed"], no=no, read_only=no / 2, count=len(names))
        with world("atomic").running(votes=votes, log=_told(options, log)) as (ring, supervisor):
            result = world("atomic_run").run(
                ring,
                supervisor,
                transactions=transactions,
                kill=options["kill"],
                seed=options["seed"],
                patience=options["patience"],
                log=log,
            )
            return self._proven(result, [ring.hub])

    def _chain(self, options: dict[str, Any], log: Log) -> dict[str, Any]:
        """Through routers, one way."""
        _refuse(options, _NOT_CHAIN, "--hops shows one ebXML pair through routers")
        if options["messages"] < 1:
            raise CommandError("--messages must be at least 1", returncode=2)
        hops, mode, running = options["hops"], options["mode"], world("chain").running
        with running(hops=hops, link=_link(options), mode=mode, log=_told(options, log)) as (hubs, supervisor):
            result = world("chain_run").run(
                hubs,
                supervisor,
                messages=options["messages"],
                mode=mode,
                kill=options["kill"],
                seed=options["seed"],
                patience=options["patience"],
                log=log,
            )
            return self._proven(result, hubs.hubs)

    def _run(self, stage: Stage, options: dict[str, Any], log: Log) -> dict[str, Any]:
        total = options["messages"]
        # Databases that are kept may know earlier ones.
        earlier = verdict.judge(_both_ways(stage, {"a": set(), "b": set()})) if options["keep"] else None
        known = earlier.completed + earlier.messages_in_doubt if earlier else 0
        delivered = earlier.delivered if earlier else 0
        begun = time.monotonic()
        log(f"submitting {total} documents")
        jobs = list(exchange.plan(stage, total, options["pairs"]))
        accepted: dict[str, set[str]] = {"a": set(), "b": set()}
        with ThreadPoolExecutor(2 * options["pairs"]) as pool:
            # One thread for each pair: the order in which its documents are handed over is the order to be kept.
            errands = exchange.by_pair(jobs)
            together = named(options["profile"]).acknowledged_singly  # whose order is that of a conversation
            for hub_name, ids in pool.map(lambda one: exchange.submit(stage, one, together=together), errands):
                accepted[hub_name] |= ids
        directions = _both_ways(stage, accepted)
        ordered = options["ordered"] or "ordered" not in BY_PROFILE[options["profile"]].names
        until = time.monotonic() + options["patience"]
        while True:
            found = verdict.judge(directions, ordered=ordered)
            if found.completed + found.messages_in_doubt >= known + total or time.monotonic() > until:
                break
            log(f"{found.completed + found.messages_in_doubt - known} of {total} acknowledged")
            time.sleep(0.5)
        seconds = time.monotonic() - begun
        completed = found.completed - (earlier.completed if earlier else 0)
        kept = found.promises_kept and completed == total and found.delivered - delivered == total
        judged: dict[str, Any] = {}
        if options["trigger"]:
            applied = self._applied(stage, options, until, log)
            judged = asdict(applied)
            kept = kept and applied.promises_kept and not applied.unsettled
            kept = kept and not (options["resolver"] and applied.in_doubt)
        return {
            "submitted": sum(len(ids) for ids in accepted.values()),
            **asdict(found),
            **judged,
            "seconds": round(seconds, 1),
            "messages_per_second": round(completed / seconds, 1),
            "promises_kept": kept,
        }

    def _proven(self, result: dict[str, Any], hubs: Sequence[Hub]) -> dict[str, Any]:
        """Looks at the rows of every hub, while its processes run: what contradicts an invariant breaks the verdict.

        Of a run that kept no promise it prints, with --json too, what there is to see: nobody can look later.
        """
        urls = {hub.name: hub.database_url for hub in hubs}
        found = verdict.contradictions(urls)
        kept = result.pop("promises_kept") and not found
        for line in found:
            self.stderr.write(f"contradiction: {line}")
        for line in [] if kept else verdict.unfinished(urls):
            self.stderr.write(f"unfinished: {line}")
        return {**result, "contradictions": len(found), "promises_kept": kept}

    def _applied(self, stage: Stage, options: dict[str, Any], until: float, log: Log) -> effects.Effects:
        """What the application did, when no delivery is under way any more (or patience is over)."""
        receivers = [stage.buyer.database_url, stage.seller.database_url]
        while (found := effects.judge(receivers, stage.effects)).unsettled and time.monotonic() < until:
            log(f"{found.unsettled} of {found.documents} documents on their way to the application")
            time.sleep(0.5)
        # It may still be busy with a call that nobody waits for any more: what that does counts too.
        time.sleep(0.5 + _work(options) / 1000)
        return effects.judge(receivers, stage.effects)


def _refuse(options: dict[str, Any], names: Sequence[str], said: str) -> None:
    """Raises CommandError for options that mean nothing here."""
    given = [name for name in names if options[name]]
    if options["machines"] > 1:
        given.append("machines")
    if options["profile"] != Profile.EBXML:
        given.append("profile")
    if given:
        names_of = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise CommandError(f"{said}; {names_of} does not go with it.", returncode=2)


def _link(options: dict[str, Any]) -> Link:
    return Link(options["drop"], options["duplicate"], options["delay_ms"], options["seed"])


def _told(options: dict[str, Any], log: Log) -> Log:
    """With --logs all that is said, else only what the stage itself says, not the lines of its processes."""

    def milestones(line: str) -> None:
        if ": " not in line:
            log(line)

    return log if options["logs"] else milestones


def _both_ways(stage: Stage, accepted: dict[str, set[str]]) -> list[tuple[str, str, set[str]]]:
    return [
        (stage.buyer.database_url, stage.seller.database_url, accepted["a"]),
        (stage.seller.database_url, stage.buyer.database_url, accepted["b"]),
    ]


def _work(options: dict[str, Any]) -> float:
    return 100.0 if options["work_ms"] is None else float(options["work_ms"])


@contextmanager
def _killer(
    supervisor: Supervisor,
    victims: Sequence[str],
    seed: int,
    log: Log,
    killed: Counter[str],
    effects_file: Path | None,
) -> Iterator[None]:
    """Kills a web server, a worker or the application -9 every few seconds until the block ends.

    With an application (`effects_file`) it begins when that has its first effect, so that the kills hit calls of it.
    The supervisor starts them again. The first ones are one of each, so that a short run sees all. A process that is
    just starting is spared: a hub that never gets up shows nothing. For the same reason the pauses grow, so that a slow
    machine gets done too.
    """
    chance = random.Random(seed)  # noqa: S311
    stop = threading.Event()
    if effects_file:
        victims = [*victims, APPLICATION]

    def kill() -> None:
        first = [chance.choice(("a-web", "b-web")), chance.choice(("a-worker", "b-worker"))]
        if effects_file:
            first.insert(1, APPLICATION)
            while not effects.count(effects_file) and not stop.wait(0.1):
                pass
        while not stop.wait(chance.uniform(2.5, 5.0) * 1.15 ** killed.total()):
            victim = first[-1] if first else chance.choice(victims)
            if supervisor.kill(victim):
                killed[victim] += 1
                del first[-1:]
                log(f"killed {victim}")

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
