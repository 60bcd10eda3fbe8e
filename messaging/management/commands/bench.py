"""`manage.py bench`: how fast two hubs are, beside the limits of the machine and a peer (docs/benchmarks.md)."""

from __future__ import annotations

import dataclasses
from argparse import ArgumentParser, ArgumentTypeError, BooleanOptionalAction
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError


class Command(BaseCommand):
    help = (
        "Measures acknowledged messages per second, latency, CPU and commits per message of two hubs on this machine, "
        "beside two limits and the peer django-pyas2. Writes table, chart and JSON to var/bench."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--quick", action="store_true", help="one short round: a look, not a measurement")
        parser.add_argument(
            "--only",
            choices=(
                "ours",
                "limits",
                "peer",
                "machines",
                "forgetting",
                "streams",
                "signed",
                "applications",
                "circuit",
            ),
            nargs="+",
            help="only these parts",
        )
        parser.add_argument("--seconds", type=_seconds, help="how long each run is measured, from 1 to 60 (default 10)")
        parser.add_argument("--pairs", type=_pairs, help="numbers of pairs, for example 1,10,100 (the default)")
        parser.add_argument(
            "--rounds", type=int, choices=range(1, 21), help="as many, however long it takes (default: up to 3)"
        )
        parser.add_argument(
            "--profile",
            action=BooleanOptionalAction,
            help="one more run, in which py-spy says where the time goes (on, unless --quick or --only is given)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            from tests.benchmarks import report, run
        except ImportError as error:
            raise CommandError(f"The benchmark is part of the source tree; run it there ({error}).") from error
        from rmhub.embedded import EmbeddedError

        plan = run.QUICK if options["quick"] else run.Plan()
        profile = options["profile"]
        if profile is None:
            profile = not (options["quick"] or options["only"])
        plan = dataclasses.replace(plan, profile=profile)
        if options["only"]:
            plan = dataclasses.replace(plan, parts=tuple(options["only"]))
        if options["only"] == ["circuit"] and not options["quick"]:
            plan = dataclasses.replace(plan, deaths=3)
        if options["pairs"]:
            plan = dataclasses.replace(plan, pairs=options["pairs"])
        if options["seconds"]:
            plan = dataclasses.replace(plan, window=dataclasses.replace(plan.window, measured=options["seconds"]))
        if options["rounds"]:
            plan = dataclasses.replace(plan, rounds=options["rounds"], longest=float("inf"))
        if plan.profile and "ours" not in plan.parts:
            raise CommandError("--profile looks into our hubs: leave it out, or say --only ours.")
        var = settings.VAR_DIR / "bench"
        try:
            raw, found = run.run(plan, var, lambda line: self.stderr.write(line))
        except EmbeddedError as error:
            raise CommandError(str(error)) from error
        files = run.save(raw, found)
        self.stdout.write(report.table(raw.content, found))
        for path in files.values():
            self.stdout.write(str(path))
        if found["faults"]:
            raise CommandError("; ".join(found["faults"]))


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= 60:
        raise ArgumentTypeError(f"{text!r} is not a number of seconds from 1 to 60")
    return seconds


def _pairs(text: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and 1 <= int(word) <= 1000 for word in words):
        raise ArgumentTypeError(f"{text!r} is not a list of numbers from 1 to 1000, such as 1,10,100")
    return tuple(sorted({int(word) for word in words}))
