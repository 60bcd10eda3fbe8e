"""`manage.py pipeline serve`: works on the runs that are due, one at a time, until it is stopped."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser, OutputWrapper

from messaging.pipeline.runner import Runner


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument("--once", action="store_true", help="end when nothing is due any more")


def handle(options: dict[str, Any], stdout: OutputWrapper) -> int:
    def say(line: str) -> None:
        stdout.write(line)
        stdout.flush()

    return Runner(say).serve(once=options["once"])
