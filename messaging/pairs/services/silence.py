"""Silence is a fault too: a pair on which a document is expected every so often, and none came.

Only pairs with a rhythm are looked at, by housekeeping; the sending and receiving paths know nothing of it.
"""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta

from django.db import connection, transaction

from messaging.choices import Direction
from messaging.journal import events, incidents
from messaging.models import Event, Message, Pair
from messaging.protocol.pair_state import Gate
from partners.fields import duration

CAUSE = "silent"
# The newest document of each pair that has a rhythm: one index probe a pair.
_NEWEST = (
    "SELECT p.id, m.created_at FROM messaging_pair p LEFT JOIN LATERAL ("
    " SELECT created_at FROM messaging_message WHERE pair_id = p.id ORDER BY id DESC LIMIT 1) AS m ON true"
    " WHERE p.expected_every > 0"
)


def look(now: datetime) -> int:
    """Says which pairs are silent and which were heard again. Returns how many changed."""
    with connection.cursor() as cursor:
        cursor.execute(_NEWEST)
        newest: dict[uuid.UUID, datetime | None] = dict(cursor.fetchall())
    if not newest:
        return 0
    changed = 0
    for pair in Pair.objects.filter(pk__in=newest):
        if _is_silent(pair, newest[pair.pk], now) != (pair.silent_since is not None):
            changed += _turn(pair.pk, now)
    return changed


def due_at(pair: Pair, newest: datetime | None) -> datetime | None:
    """When the next document is due, without the grace. None without a rhythm."""
    if not pair.expected_every:
        return None
    known = [at for at in (newest, pair.rhythm_since, pair.last_success_at) if at is not None]
    return max(known, default=pair.created_at) + timedelta(seconds=pair.expected_every)


def end(pair: Pair, now: datetime, by: str, resolution: str) -> list[Event]:
    """The pair is not silent any more. Call with its lock held; the caller saves it and writes the events."""
    if pair.silent_since is None:
        return []
    length = (now - pair.silent_since).total_seconds()
    pair.silent_since = None
    told = events.event("pair.heard", now, pair=pair, data={"silent_seconds": int(length), "reason": resolution})
    resolved = incidents.incidents_resolve_for_pair(pair=pair, now=now, by=by, resolution=resolution, causes=(CAUSE,))
    return [told, *resolved]


def _is_silent(pair: Pair, newest: datetime | None, now: datetime) -> bool:
    """A pair whose agreement is not in force is expected to be silent."""
    due = due_at(pair, newest)
    if due is None or pair.gate == Gate.DISABLED:
        return False
    return now > due + timedelta(seconds=pair.silence_grace)


def _turn(pair_id: uuid.UUID, now: datetime) -> int:
    with transaction.atomic():
        pair = Pair.objects.select_for_update().get(pk=pair_id)
        at = Message.objects.filter(pair=pair).order_by("-id").values_list("created_at", flat=True).first()
        silent = _is_silent(pair, at, now)
        if silent == (pair.silent_since is not None):
            return 0
        written = _begin(pair, at, now) if silent else end(pair, now, "system", "A document came again.")
        pair.save(update_fields=["silent_since"])
        events.write(written)
    return 1


def _begin(pair: Pair, newest: datetime | None, now: datetime) -> list[Event]:
    pair.silent_since = due_at(pair, newest)
    what = "Nothing was submitted" if pair.direction == Direction.OUT else "Nothing came"
    since = f"since {newest:%Y-%m-%d %H:%M:%S} UTC" if newest is not None else "yet"
    detail = f"{what} {since}; a document is expected every {duration(pair.expected_every)}."
    incident, opened = incidents.incident_open(pair=pair, cause=CAUSE, now=now, detail=detail)
    data = {"cause": CAUSE, "detail": detail, "incident": incident.public_id}
    return [events.event("pair.silent", now, pair=pair, data=data), *opened]
