"""What commands that import and export have in common: files, who does it, and the report."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path

from django.core.management.base import CommandError, OutputWrapper

from messaging.choices import Interface
from messaging.journal.audit import Actor
from messaging.onboarding.services.bundle import ImportReport


def actor() -> Actor:
    """Who runs the command."""
    return Actor(getpass.getuser(), interface=Interface.SYSTEM, authentication="shell")


def read(file: str) -> bytes:
    """The content of a file, or of standard input for `-`. Raises CommandError (2)."""
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except (OSError, ValueError) as error:
        raise CommandError(f"{file}: {getattr(error, 'strerror', None) or error}", returncode=2) from error


def write(file: Path, content: bytes) -> None:
    """Raises CommandError (2)."""
    try:
        file.write_bytes(content)
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror or error}", returncode=2) from error


def tell(report: ImportReport, out: OutputWrapper) -> None:
    """Writes what was made and changed, or would be. Raises CommandError (1): there are problems."""
    for item in report.items:
        out.write(f"{item.action:8} {item.kind:10} {item.name}")
        for change in item.changes if item.action == "change" else ():
            out.write(f"           {change.label}: {change.before or '-'} -> {change.after or '-'}")
        if item.problem:
            out.write(f"           {item.problem}")
    if report.problems:
        raise CommandError("Nothing can be imported until the problems are gone.", returncode=1)
