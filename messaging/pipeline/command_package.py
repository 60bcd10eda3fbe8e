"""`manage.py pipeline package FILE.zip`: the jobs for spark-submit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser, OutputWrapper

from messaging.pipeline import driver, submitting


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE.zip")


def handle(options: dict[str, Any], stdout: OutputWrapper) -> int:
    application = submitting.write_package(options["file"])
    stdout.write(f"wrote {options['file']} and {application} (code {driver.code_version()}); run it by")
    stdout.write(f"spark-submit --py-files {options['file']} {application} JOB --manifest FILE.json --output DIRECTORY")
    return 0
