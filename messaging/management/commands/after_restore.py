"""`manage.py after_restore`: what a database needs after it was restored on another server."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand
from django.db import connection


class Command(BaseCommand):
    help = "Brings the event feed's transaction numbers in line with this database server, after a restore."

    def handle(self, *args: Any, **options: Any) -> None:
        with connection.cursor() as cursor:
            # Transaction numbers belong to a server. Those from a server that had counted further would hide old events
            # from the feed, and put new ones before them; all that was restored is committed, so 0 is true for it.
            cursor.execute(
                "UPDATE messaging_event SET xid = 0 WHERE xid >= pg_current_xact_id()::text::bigint AND xid <> 0"
            )
            self.stdout.write(f"{cursor.rowcount} events renumbered; the feed goes on from here")
