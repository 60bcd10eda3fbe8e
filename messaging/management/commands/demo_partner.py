"""`manage.py demo_partner`: the partners of the large demo world, with their faults."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from messaging.management.worlds import world


class Command(BaseCommand):
    help = "Answers for all partners of `seed_demo --scale ux`, on loopback. Ctrl-C ends it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--folder", default="", help="what seed_demo wrote; default var/ux")
        parser.add_argument("--hub", default="http://127.0.0.1:8000", help="where acknowledgements go")

    def handle(self, *args: Any, **options: Any) -> None:
        folder = Path(options["folder"] or settings.VAR_DIR / "ux")
        try:
            port = int(json.loads((folder / "facts.json").read_text())["port"])
        except (OSError, ValueError, KeyError) as error:
            raise CommandError(f"{folder} is not a folder of `seed_demo --scale ux`: {error}", returncode=2) from error
        try:
            world("partner_server").serve(port, options["hub"], folder)
        except KeyboardInterrupt:
            return
