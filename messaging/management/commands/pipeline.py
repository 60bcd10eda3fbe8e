"""`manage.py pipeline`: runs, checks and serves the data pipeline. A subcommand is a module, imported when named."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from messaging.exceptions import ApplicationError, InvalidSubmission, WrongState

# Name -> module with add_arguments(parser) and handle(options, stdout) -> exit code, and what it does.
SUBCOMMANDS: dict[str, tuple[str, str]] = {
    "run": ("messaging.pipeline.command_run", "run one job, or all that make reports, here and now"),
    "status": ("messaging.pipeline.command_status", "how far the lake is, and the latest runs"),
    "check": ("messaging.pipeline.command_check", "say what is missing, in a sentence each"),
    "serve": ("messaging.pipeline.command_serve", "work on the runs that console, API and schedule ask for"),
    "execute": ("messaging.pipeline.command_execute", "work on one claimed run (a child of `serve`)"),
    "package": ("messaging.pipeline.command_package", "write the jobs as a package for spark-submit"),
    "manifest": ("messaging.pipeline.command_manifest", "write which files of the lake a submitted job reads"),
    "publish": ("messaging.pipeline.command_publish", "publish what a submitted job has written"),
    "export-log": ("messaging.pipeline.command_export", "write our own log in the form that partners send theirs"),
    "live": ("messaging.pipeline.command_live", "watch the traffic of the last hour as it comes"),
}


class _Subparser(CommandParser):
    """Learns its arguments when it is used: some subcommands import Spark or Arrow."""

    module = ""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Namespace | None = None
    ) -> tuple[Namespace, list[str]]:
        if self.module:
            module, self.module = self.module, ""
            import_module(module).add_arguments(self)
        return super().parse_known_args(args, namespace)


class Command(BaseCommand):
    help = "The data pipeline: from the message store to answers (docs/pipeline.md)."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        subparsers = parser.add_subparsers(
            dest="subcommand",
            metavar="SUBCOMMAND",
            required=True,
            parser_class=_Subparser,
        )
        for name, (module, text) in SUBCOMMANDS.items():
            subparsers.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".").module = module

    def handle(self, *args: Any, **options: Any) -> None:
        module = import_module(SUBCOMMANDS[options["subcommand"]][0])
        try:
            code = module.handle(options, self.stdout)
        except (InvalidSubmission, WrongState) as error:
            raise CommandError(error.detail, returncode=2) from error
        except ApplicationError as error:
            raise CommandError(error.detail, returncode=1) from error
        if code:
            sys.exit(code)
