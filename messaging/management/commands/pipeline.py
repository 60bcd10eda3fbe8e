"""`manage.py pipeline`: runs, checks and serves the data pipeline (`messaging.pipeline.commands`)."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from messaging.exceptions import ApplicationError, InvalidSubmission, WrongState
from messaging.pipeline.commands import SUBCOMMANDS


class Command(BaseCommand):
    help = "The data pipeline: from the message store to answers (docs/pipeline.md)."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        subparsers = parser.add_subparsers(dest="subcommand", metavar="SUBCOMMAND", required=True)
        for name, subcommand in SUBCOMMANDS.items():
            text = subcommand.does
            subcommand.arguments(subparsers.add_parser(name, help=text, description=text[0].upper() + text[1:] + "."))

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            code = SUBCOMMANDS[options["subcommand"]].handle(options, self.stdout)
        except (InvalidSubmission, WrongState) as error:
            raise CommandError(error.detail, returncode=2) from error
        except ApplicationError as error:
            raise CommandError(error.detail, returncode=1) from error
        if code:
            sys.exit(code)
