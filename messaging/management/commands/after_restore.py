"""`manage.py after_restore`: what a database needs after it was restored on another server."""

from __future__ import annotations

import getpass
from typing import Any

from django.core.management.base import BaseCommand
from django.db import connection

from messaging.choices import Interface
from messaging.services import epoch
from messaging.services.audit import Actor
from rmhub import clock


class Command(BaseCommand):
    help = (
        "After a restore: brings the event feed's transaction numbers in line with this database server, and lets the"
        " memory of request ids start again, because what came after the backup is forgotten."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        with connection.cursor() as cursor:
            # Transaction numbers belong to a server. Those from a server that had counted further would hide old events
            # from the feed, and put new ones before them; all that was restored is committed, so 0 is true for it.
            cursor.execute(
                "UPDATE messaging_event SET xid = 0 WHERE xid >= pg_current_xact_id()::text::bigint AND xid <> 0"
            )
            self.stdout.write(f"{cursor.rowcount} events renumbered; the feed goes on from here")
        actor = Actor(f"command:{getpass.getuser()}", Interface.COMMAND)
        row = epoch.lost(clock.now(), reason="manage.py after_restore: the database was restored.", actor=actor)
        self.stdout.write(
            f"memory of request ids starts again at {row.memory_start:%Y-%m-%d %H:%M:%S} UTC;"
            " what was first sent before is refused"
        )
