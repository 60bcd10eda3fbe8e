"""`manage.py pipeline manifest FILE.json`: which files of the lake a submitted job reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser, OutputWrapper

from messaging.pipeline import submitting
from messaging.pipeline.command_run import instant


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE.json")
    parser.add_argument("--from", dest="begin", type=instant, help="begin of the range: a date or ISO 8601 time, UTC")
    parser.add_argument("--to", dest="end", type=instant, help="end of the range, exclusive")


def handle(options: dict[str, Any], stdout: OutputWrapper) -> int:
    found = submitting.write_manifest(options["file"], options["begin"], options["end"])
    files = sum(entity["files"] for entity in found["entities"].values())
    stdout.write(f"wrote {options['file']}: {files} files below {found['lake']}, as of {found['as_of']}")
    return 0
