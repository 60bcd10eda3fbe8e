"""`manage.py doctor`: everything that the hub stands on, looked at one after the other (docs/operations.md)."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from django.core.management.base import BaseCommand

from messaging.overview.doctor import CHECKS, PARTNERS, Check, Finding, State, examine
from messaging.pipeline import check as pipeline


class Command(BaseCommand):
    help = "Looks at everything from DNS to clocks and says what to do; exit status 1 when something failed."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
        parser.add_argument(
            "--partners", action="store_true", help="also connect to partners' servers (and close the connection)"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        checks = [*CHECKS, *([PARTNERS] if options["partners"] else []), PIPELINE]
        counts = dict.fromkeys(State, 0)
        lines = []
        for check, finding in examine(checks):
            counts[finding.state] += 1
            lines.append({"check": check.name, "state": finding.state, "text": finding.text, "advice": finding.advice})
            if not options["json"]:
                advice = f" -> {finding.advice}" if finding.advice else ""
                self.stdout.write(f"{finding.state:8}{check.name}: {finding.text}{advice}")
                self.stdout.flush()
        if options["json"]:
            self.stdout.write(
                json.dumps({"findings": lines, **{state.value: count for state, count in counts.items()}})
            )
        else:
            self.stdout.write(f"{counts[State.FAILED]} failed, {counts[State.WARNING]} warnings")
        if counts[State.FAILED]:
            sys.exit(1)


def _pipeline() -> Iterator[Finding]:
    """As `manage.py pipeline check` has it: packages, Java, memory, folders of lake and archive, runs that wait.

    The hub works without it.
    """
    for found in pipeline.findings():
        yield (
            Finding(State.OK, found.text)
            if found.good
            else Finding(State.WARNING, found.text, "See docs/pipeline.md; reports and archive wait for it.")
        )


PIPELINE = Check("pipeline", _pipeline, asks_database=True)
