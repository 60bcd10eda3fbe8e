"""The worker processes that are there."""

from __future__ import annotations

from django.db import models

# A row that was not renewed for so many seconds has a gap: its worker could not reach the database, or did not run.
GAP = 5.0


class Worker(models.Model):
    """A worker process that is there, or was a moment ago. `engine.leases` writes and reads it, by the database's
    clock. One that has ended, or is taken for dead, has no row.
    """

    number = models.PositiveIntegerField(primary_key=True, help_text="What its claims carry.")
    name = models.CharField(max_length=200, help_text="The machine's name and the number of the process there.")
    node = models.CharField(max_length=120, help_text="Processes with the same node see each other.")
    pid = models.PositiveIntegerField()
    started = models.BigIntegerField(help_text="With node and pid it tells the process from all others.")
    held_since = models.DateTimeField(help_text="Since when its presence is unbroken.")
    renewed_at = models.DateTimeField(help_text="When it last showed that it lives.")

    def __str__(self) -> str:
        return self.name
