"""`manage.py health`: whether the process of one role on this machine does its work (docs/operations.md)."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from messaging.overview.selectors.roles import ROLES, wrong_with


class Command(BaseCommand):
    help = "Says whether the process of this role on this machine does its work; exit status 1 when it does not."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--role", required=True, choices=list(ROLES))
        parser.add_argument(
            "--url", default="http://127.0.0.1:8000", help="with --role web: where this machine's web server listens"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        wrong = wrong_with(options["role"], options["url"].rstrip("/"))
        self.stdout.write(f"{options['role']}: {wrong or 'ok'}")
        if wrong:
            sys.exit(1)
