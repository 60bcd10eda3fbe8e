"""`manage.py after_restore`: what a database needs after it was restored on another server."""

from __future__ import annotations

import getpass
from itertools import islice
from typing import Any

from django.core.management.base import BaseCommand
from django.db import connection

from messaging import storage
from messaging.choices import Interface
from messaging.engine import memory as hub_memory
from messaging.journal.audit import Actor
from messaging.models import Coordination, Pair, Payload
from messaging.pipeline import manifest
from rmhub import clock

# The update of a table whose rows change leaves the number of its own transaction there, whatever it sets.
CHANGING = ("messaging_message", "messaging_transmission", "messaging_signal", "messaging_delivery")
_AT_ONCE = 1000  # names of payload files


class Command(BaseCommand):
    help = (
        "After a restore, before the hub starts: brings transaction numbers in line with this database server, lets the"
        " data pipeline's lake begin again, and marks what nobody can know because it came after the backup: every pair"
        " needs resync, numbers start again, and what waits may have been processed."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        # Transaction numbers belong to a server. Those from a server that had counted further would hide old events
        # from the feed, and put new ones before them; all that was restored is committed, so 0 is true for it.
        events = _renumber("messaging_event")
        rows = sum(_renumber(table) for table in CHANGING)
        self.stdout.write(f"{events} events renumbered; the feed goes on from here")
        lake = manifest.begin_again()
        self.stdout.write(
            f"{rows} messages, transmissions, signals and deliveries renumbered;"
            f" the next extract fills generation {lake.generation} of the lake"
        )
        actor = Actor(f"command:{getpass.getuser()}", Interface.COMMAND)
        row = hub_memory.lost(clock.now(), reason="manage.py after_restore: the database was restored.", actor=actor)
        self.stdout.write(
            f"memory of request ids starts again at {row.memory_start:%Y-%m-%d %H:%M:%S} UTC;"
            " what was first sent before is refused"
        )
        self._files()
        doubtful = Coordination.objects.exclude(doubtful_since=None).count()
        self.stdout.write(f"{doubtful} open transactions may have been decided after the backup: each has an incident")
        pairs = Pair.objects.exclude(resync_since=None).count()
        self.stdout.write(
            f"{pairs} pairs need resync: what comes in on them may be a repeat, until somebody has compared both sides"
            " and cleared the mark (Pairs, all of them selected, Clear resync)"
        )

    def _files(self) -> None:
        """Says which large payloads the store lacks: those that were purged after the backup of the database."""
        files = Payload.objects.exclude(stored_as="").order_by().values_list("stored_as", flat=True)
        lacking, example = 0, ""
        try:
            rows = files.iterator(chunk_size=_AT_ONCE)
            while names := set(islice(rows, _AT_ONCE)):
                missing = storage.missing(sorted(names))
                lacking, example = lacking + len(missing), example or next(iter(missing), "")
        except storage.StoreUnavailable as error:
            self.stdout.write(f"the payload store cannot be read ({error.strerror}): nobody knows what it lacks")
            return
        if lacking:
            said = f"{lacking} payload files are missing from the store, such as {example}: bring them back"
            self.stdout.write(f"{said} (docs/operations.md, After a restore)")
        else:
            self.stdout.write("the store has the file of every large payload")


def _renumber(table: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE {table} SET xid = 0 WHERE xid >= pg_current_xact_id()::text::bigint AND xid <> 0"  # noqa: S608
        )
        return int(cursor.rowcount)
