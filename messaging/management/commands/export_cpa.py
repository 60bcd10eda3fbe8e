"""`manage.py export_cpa TPAID`: an agreement of ebXML Messaging 2.0 as a CPA 2.0."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from messaging.exceptions import InvalidSubmission
from messaging.management import imports
from messaging.onboarding.services.cpa_export import cpa_export
from partners import selectors


class Command(BaseCommand):
    help = "Writes an agreement as a CPA 2.0: the version that counts, or the one with this number."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("agreement", help="its TPAId or id")
        parser.add_argument("file", nargs="?", type=Path, help="without it: to standard output")
        parser.add_argument("--number", type=int, help="of the version")

    def handle(self, *args: Any, **options: Any) -> None:
        agreement = selectors.agreement_named(options["agreement"])
        if agreement is None:
            raise CommandError(f"There is no agreement {options['agreement']}.", returncode=2)
        number = options["number"]
        versions = {one.number: one for one in agreement.versions.all()}
        version = selectors.current_version(agreement) if number is None else versions.get(number)
        if version is None:
            raise CommandError(f"{agreement} has no version {number}.", returncode=2)
        try:
            octets = cpa_export(version=selectors.version(version.pk))
        except InvalidSubmission as error:
            raise CommandError("; ".join(error.errors["cpa"]), returncode=2) from error
        if options["file"] is None:
            self.stdout.write(octets.decode(), ending="")
        else:
            imports.write(options["file"], octets)
