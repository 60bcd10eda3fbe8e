"""`manage.py import_cpa FILE`: the agreement of a CPA 2.0, with its parties, endpoints and certificates."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from messaging.exceptions import ApplicationError, InvalidSubmission
from messaging.management import imports
from messaging.onboarding.services import cpa
from partners.cpa.findings import Kind
from partners.exceptions import PartnersError


class Command(BaseCommand):
    help = "Imports a CPA 2.0 as an agreement of ebXML Messaging 2.0: all of it or nothing. It becomes a draft."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", help="the document, or - for standard input")
        parser.add_argument("--own", default="", help="which PartyId is ours; needed if no party of ours has one")
        parser.add_argument("--dry-run", action="store_true", help="say what would happen, and do nothing")
        parser.add_argument("--activate", action="store_true", help="put the agreement in force")
        parser.add_argument("--reason", default="", help="goes into the audit log")

    def handle(self, *args: Any, **options: Any) -> None:
        octets = imports.read(options["file"])
        try:
            done = cpa.cpa_import(
                octets=octets,
                own=options["own"],
                actor=imports.actor(),
                reason=options["reason"],
                dry_run=options["dry_run"],
                activate=options["activate"],
            )
        except InvalidSubmission as error:
            said = "; ".join(text for texts in error.errors.values() for text in texts)
            raise CommandError(said, returncode=2) from error
        except (ApplicationError, PartnersError) as error:
            raise CommandError(str(error), returncode=2) from error
        # What is mapped is most of the document: only if more is asked for.
        told = (Kind.CONFLICTING, Kind.IGNORED, *((Kind.MAPPED,) if options["verbosity"] > 1 else ()))
        for kind in told:
            for one in done.of_kind(kind):
                self.stdout.write(f"{kind:11} line {one.line:<5} {one.path}  {one.text}".rstrip())
        self.stdout.write(", ".join(f"{count} {kind}" for kind, count in done.found.items()))
        imports.tell(done.report, self.stdout)
