"""Which worker processes are there, by the database's clock (`leases`)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db import connection

from messaging.models.job import GAP


@dataclass(frozen=True, slots=True)
class Presence:
    """One worker. `held_since`: since when its presence is unbroken. `lost_since`: when it was last heard of, if that
    is too long ago: it could not reach the database since, or does not run; None = it is there.
    """

    name: str
    held_since: datetime
    lost_since: datetime | None


def presences() -> list[Presence]:
    """All workers that have not ended, those that are not heard of first. One whose death is known is not among them.

    Raises django.db.Error when the database does not answer.
    """
    with connection.cursor() as cursor:
        cursor.execute(_PRESENCES, [GAP])
        return [Presence(*row) for row in cursor.fetchall()]


_PRESENCES = """
SELECT name, held_since, lost FROM (
    SELECT *, CASE WHEN renewed_at < clock_timestamp() - make_interval(secs => %s) THEN renewed_at END AS lost
    FROM messaging_worker
) w ORDER BY lost NULLS LAST, held_since, number
"""
