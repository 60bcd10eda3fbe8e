"""`manage.py check_invariants`: whether the rows of this hub's database keep what docs/invariants.md promises."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import psycopg
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, connection

from messaging.invariants import RULES, Finding, Rule, check


class Command(BaseCommand):
    help = (
        "Proves the invariants on the rows of the database, in one snapshot and without writing; the hub may go on. "
        "Exit status 1: something contradicts them; 2: wrong arguments, or the database cannot be read."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--rule", action="append", metavar="ID", help="only this rule; may be given more than once")
        parser.add_argument("--shown", type=_count, default=20, help="violations of each rule to print (20)")
        parser.add_argument("--json", action="store_true", help="print the result as JSON")
        parser.add_argument("--list", action="store_true", help="print the rules and check nothing")

    def handle(self, *args: Any, **options: Any) -> None:
        known = {rule.id: rule for rule in RULES}
        wanted = dict.fromkeys(options["rule"] or known)
        if unknown := [name for name in wanted if name not in known]:
            raise CommandError(
                f"There is no rule {', '.join(unknown)}. `check_invariants --list` prints all.", returncode=2
            )
        rules = [known[name] for name in wanted]
        if options["list"]:
            for rule in rules:
                self.stdout.write(f"{rule.id:28} {rule.title} ({rule.source})")
            return
        try:
            found = self._found(rules, options)
        except (psycopg.Error, DatabaseError) as error:
            why = str(error).strip().partition("\n")[0] or type(error).__name__
            raise CommandError(f"The database cannot be read, so nothing is proven: {why}", returncode=2) from error
        violations = sum(one.count for one in found)
        if options["json"]:
            self.stdout.write(
                json.dumps({"violations": violations, "rules": [_as_json(one) for one in found]}, default=str)
            )
        else:
            self.stdout.write(f"{len(found)} rules, {violations} violations")
        if violations:
            sys.exit(1)

    def _found(self, rules: list[Rule], options: dict[str, Any]) -> list[Finding]:
        # A connection of its own: this one may belong to a transaction, and a pool's are given back as they are.
        wrapper = connection.copy()
        found: list[Finding] = []
        try:
            wrapper.ensure_connection()
            for one in check(wrapper.connection, rules, shown=options["shown"]):
                found.append(one)
                if not options["json"]:
                    self._print(one)
        finally:
            wrapper.close()
        return found

    def _print(self, found: Finding) -> None:
        if not found.count:
            self.stdout.write(f"ok    {found.rule.id}")
            return
        self.stdout.write(f"FAIL  {found.rule.id}: {found.rule.title} ({found.rule.source})")
        for row in found.rows:
            self.stdout.write("      " + " ".join(f"{name}={value}" for name, value in row.items()))
        if found.count > len(found.rows):
            self.stdout.write(f"      and {found.count - len(found.rows)} more")


def _as_json(found: Finding) -> dict[str, Any]:
    rule = found.rule
    return {
        "id": rule.id,
        "title": rule.title,
        "source": rule.source,
        "violations": found.count,
        "rows": list(found.rows),
    }


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError("a number from 1 on, please")
    return int(text)
