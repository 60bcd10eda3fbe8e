"""The number that says that something of this app has changed."""

from __future__ import annotations

from django.db import models


class Revision(models.Model):
    """One row that every write of this app bumps, so that processes notice (`partners.registry`)."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    number = models.BigIntegerField(default=1)

    def __str__(self) -> str:
        return str(self.number)
