"""`manage.py bundle export|import`: the whole set-up as one JSON document, out of one hub and into another; and many
partners from a CSV file.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from messaging.exceptions import ApplicationError, InvalidSubmission
from messaging.management import imports
from messaging.onboarding.services import bundle, bundle_format, partner_csv
from partners import selectors
from partners.exceptions import PartnersError


class Command(BaseCommand):
    help = "Exports parties, endpoints and agreements without secrets, or imports them: all of it or nothing."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        export = verbs.add_parser("export", help="write the bundle to standard output, or into a file")
        export.add_argument("file", nargs="?", type=Path)
        export.add_argument("--partner", default="", help="name: only this partner, and whatever its agreements need")
        given = verbs.add_parser("import", help="read a bundle from a file, or - for standard input")
        given.add_argument("file")
        given.add_argument("--csv", action="store_true", help="the file has partners, a row for each")
        given.add_argument("--template", default="", help="with --csv: TPAId of an agreement to copy")
        given.add_argument("--dry-run", action="store_true", help="say what would happen, and do nothing")
        given.add_argument("--activate", action="store_true", help="put in force what is in force where it comes from")
        given.add_argument("--reason", default="", help="goes into the audit log")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["verb"] == "export":
            self._export(options)
        else:
            self._import(options)

    def _export(self, options: dict[str, Any]) -> None:
        chosen = None
        if options["partner"]:
            party = selectors.parties().filter(name=options["partner"]).first()
            if party is None:
                raise CommandError(f"There is no party {options['partner']}.", returncode=2)
            chosen = [party.pk]
        text = json.dumps(bundle.bundle_export(party_ids=chosen), indent=2, ensure_ascii=False)
        if options["file"] is None:
            self.stdout.write(text)
            return
        imports.write(options["file"], f"{text}\n".encode())

    def _import(self, options: dict[str, Any]) -> None:
        octets = imports.read(options["file"])
        try:
            found = partner_csv.read(octets, options["template"]) if options["csv"] else bundle_format.read(octets)
            report = bundle.bundle_import(
                bundle=found,
                actor=imports.actor(),
                reason=options["reason"],
                dry_run=options["dry_run"],
                activate=options["activate"],
            )
        except InvalidSubmission as error:
            lines = [text for texts in error.errors.values() for text in texts]
            raise CommandError("\n".join(lines), returncode=2) from error
        except (ApplicationError, PartnersError) as error:
            raise CommandError(str(error), returncode=2) from error
        imports.tell(report, self.stdout)
