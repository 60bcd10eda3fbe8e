"""The live watch's minutes, put together to the windows that are judged: for services and screens alike."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta

from django.db import connection

from messaging.anomalies import LOOK_BACK, WINDOW, Usual, Window, usual

_PAIRS_AT_ONCE = 50
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WINDOWS = """
SELECT pair_id, date_bin('5 minutes', minute, 'epoch') AS start,
       sum(delivered), sum(failed + retried + rejected), sum(received + duplicates + rejected),
       sum(acks), sum(ack_seconds)
FROM messaging_liveminute WHERE pair_id = ANY(%s) AND minute >= %s AND minute < %s
GROUP BY 1, 2 ORDER BY 1, 2
"""
_LAST_CONTACT = """
SELECT p.id, last.minute FROM unnest(%s::uuid[]) AS p(id) CROSS JOIN LATERAL (
    SELECT minute FROM messaging_liveminute m WHERE m.pair_id = p.id AND m.received + m.duplicates + m.rejected > 0
    ORDER BY minute DESC LIMIT 1
) last
"""


def windows(pair_ids: Collection[uuid.UUID], begin: datetime, end: datetime) -> dict[uuid.UUID, list[Window]]:
    """The windows from `begin` to before `end` in which anything happened, oldest first, by pair."""
    found: dict[uuid.UUID, list[Window]] = {}
    with connection.cursor() as cursor:
        cursor.execute(_WINDOWS, [list(pair_ids), begin, end])
        for pair_id, start, delivered, failures, contacts, acks, ack_seconds in cursor:
            window = Window(start, int(delivered), int(failures), int(contacts), int(acks), float(ack_seconds))
            found.setdefault(pair_id, []).append(window)
    return found


def pasts(pair_ids: Sequence[uuid.UUID], before: datetime) -> dict[uuid.UUID, Usual]:
    """What is usual on each pair, by its windows before `before`; a few pairs at a time, to bound the memory."""
    found: dict[uuid.UUID, Usual] = {}
    for first in range(0, len(pair_ids), _PAIRS_AT_ONCE):
        some = windows(pair_ids[first : first + _PAIRS_AT_ONCE], before - LOOK_BACK, before)
        found |= {pair_id: usual(past, before) for pair_id, past in some.items()}
    return found


def last_contacts(pair_ids: Collection[uuid.UUID]) -> dict[uuid.UUID, datetime]:
    """When each partner was heard last, to the minute (the end of it); those never heard are left out."""
    with connection.cursor() as cursor:
        cursor.execute(_LAST_CONTACT, [list(pair_ids)])
        return {pair_id: minute + timedelta(minutes=1) for pair_id, minute in cursor.fetchall()}


def window_of(at: datetime) -> datetime:
    """The start of the window that `at` lies in."""
    return at - (at - _EPOCH) % WINDOW
