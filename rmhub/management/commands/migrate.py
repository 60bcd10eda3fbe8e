"""`manage.py migrate`: Django's, which never makes the running hub wait behind it for long."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError
from django.core.management.commands import migrate
from django.db import OperationalError, connection
from psycopg import errors

LOCK_SECONDS = 5
"""So long a migration waits for a lock. Meanwhile everybody else who wants the table waits behind it."""


class Command(migrate.Command):
    help = f"{migrate.Command.help} It waits {LOCK_SECONDS} s for a lock at most; then it has changed nothing."
    _current = ""

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            super().handle(*args, **options)
        except OperationalError as error:
            if not isinstance(error.__cause__, errors.LockNotAvailable):
                raise
            raise CommandError(
                f"{self._current}: somebody else has held a lock on its table for {LOCK_SECONDS} s (a long"
                " transaction, a backup). Nothing of it was applied: run migrate again",
                returncode=1,
            ) from error
        finally:
            self._wait_for_locks(0)

    def migration_progress_callback(self, action: str, migration: Any = None, fake: bool = False) -> None:
        """Before each migration. What is not atomic builds indexes CONCURRENTLY: nobody waits behind that, and an end
        in the middle would leave an index that is not valid.
        """
        if action in ("apply_start", "unapply_start"):
            self._current = str(migration)
            self._wait_for_locks(LOCK_SECONDS if migration.atomic else 0)
        super().migration_progress_callback(action, migration, fake)

    def _wait_for_locks(self, seconds: int) -> None:
        """0: as long as the server's own setting says."""
        with connection.cursor() as cursor:
            cursor.execute(f"SET lock_timeout = '{seconds}s'" if seconds else "RESET lock_timeout")
