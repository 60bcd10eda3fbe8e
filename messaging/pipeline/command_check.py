"""`manage.py pipeline check`: what is missing, in a sentence each; exit code 1 when something is."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser, OutputWrapper

from messaging.pipeline import check


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument("--start", action="store_true", help="also start a Spark session (some seconds)")


def handle(options: dict[str, Any], stdout: OutputWrapper) -> int:
    good = True
    for finding in check.findings(start=options["start"]):
        stdout.write(f"{'ok     ' if finding.good else 'PROBLEM'} {finding.text}")
        stdout.flush()
        good &= finding.good
    return 0 if good else 1
