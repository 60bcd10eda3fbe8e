"""`manage.py audit verify`: whether the audit log is as it was written; `audit seal`: seals what waits."""

from __future__ import annotations

import argparse
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from messaging.access.services import audit_chain


class Command(BaseCommand):
    help = "Checks the chain of the audit log (docs/audit.md). Ends with an error when it is broken."

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        verify = verbs.add_parser("verify", help="looks at all sealed entries, or from one on")
        verify.add_argument("--first", type=_number, default=1, help="number of the entry to begin with")
        verify.add_argument(
            "--expect",
            type=_head,
            metavar="NUMBER:DIGEST",
            help="a head that was noted down earlier: it must still be in the chain",
        )
        verbs.add_parser("seal", help="seals entries that are not sealed yet (workers do it by themselves)")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["verb"] == "seal":
            self.stdout.write(f"{audit_chain.seal_due()} entries sealed")
            return
        verdict = audit_chain.verify(first=options["first"], expect=options["expect"])
        head = verdict.head
        if head.number == 0:
            self.stdout.write(f"nothing is sealed yet; {verdict.unsealed} entries wait")
            return
        if verdict.begins_at > 1:
            self.stdout.write(f"entries before {verdict.begins_at} were removed; the first one is taken as it is")
        self.stdout.write(
            f"{verdict.checked} entries checked, {verdict.first} to {verdict.last}; {verdict.unsealed} not sealed yet"
        )
        self.stdout.write(f"head {head.number}:{head.digest}")
        for one in verdict.breaks:
            self.stdout.write(f"entry {one.number} {one.entry or '(not there)'}: {one.why}")
        if not verdict.holds:
            again = f"; from entry {verdict.holds_from} on it is intact" if verdict.holds_from else ""
            raise CommandError(f"the chain is broken{again}")
        self.stdout.write("the chain is intact")


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError("a number from 1 on, please")
    return int(text)


def _head(text: str) -> audit_chain.Head:
    number, _, digest = text.partition(":")
    if not (number.isascii() and number.isdigit() and len(digest) == 64):
        raise argparse.ArgumentTypeError("a number, a colon and 64 hexadecimal digits, as `audit verify` prints them")
    return audit_chain.Head(int(number), digest.lower())
