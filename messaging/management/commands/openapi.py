"""`manage.py openapi`: writes docs/openapi.yaml and docs/api-problems.md from the code, or checks that they fit it."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from messaging.api.openapi import SchemaWarnings, document_yaml, problems_markdown

DOCS = Path(settings.BASE_DIR) / "docs"


class Command(BaseCommand):
    help = "Writes docs/openapi.yaml and docs/api-problems.md; with --check, fails when they are stale."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a file is stale")
        parser.add_argument("--docs", type=Path, default=DOCS, help="folder of the files (default: docs)")

    def handle(self, *args: Any, check: bool, docs: Path, **options: Any) -> None:
        try:
            wanted = {docs / "openapi.yaml": document_yaml(), docs / "api-problems.md": problems_markdown()}
        except SchemaWarnings as error:
            raise CommandError(str(error)) from error
        stale = {path: text for path, text in wanted.items() if not path.exists() or path.read_text() != text}
        if not check:
            docs.mkdir(parents=True, exist_ok=True)
            for path, text in stale.items():
                path.write_text(text)
                self.stdout.write(f"wrote {path}")
            return
        for path, text in stale.items():
            self.stderr.write(f"{path} is stale: run `manage.py openapi` and commit it. First differences:")
            old = path.read_text().splitlines() if path.exists() else []
            self.stderr.write("\n".join(list(difflib.unified_diff(old, text.splitlines(), lineterm="", n=1))[:20]))
        if stale:
            raise CommandError(f"{', '.join(path.name for path in stale)}: out of date")
