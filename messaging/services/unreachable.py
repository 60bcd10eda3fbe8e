"""Incidents about servers that have been left alone for minutes, and the end of circuits that nobody needs any more.

Part of housekeeping; safe at any time and in several workers at once. An incident belongs to the first pair that sends
to the server, and closes itself when the circuit does. One that a person resolves opens again only for a new outage.
"""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta

from django.db import transaction

from messaging.choices import Direction, IncidentState
from messaging.models import Circuit, Incident, Pair
from messaging.protocol.circuit import State
from messaging.servers import pairs_at
from messaging.services import events, incidents
from rmhub import clock

CAUSE = "server_unreachable"
OPEN_FOR = timedelta(minutes=5)
UNUSED_FOR = timedelta(days=1)


def watch() -> int:
    """One round; returns how many servers have been unreachable for long."""
    now = clock.now()
    drop_unused(now)
    found: dict[uuid.UUID, Circuit] = {}
    for row in Circuit.objects.filter(state=State.OPEN.value, opened_at__lte=now - OPEN_FOR):
        pairs = Pair.objects.filter(pk__in=pairs_at(frozenset({row.address})), direction=Direction.OUT)
        pair_id = pairs.order_by("pk").values_list("pk", flat=True).first()
        if pair_id is not None:
            found[pair_id] = row
    unresolved = Incident.objects.filter(cause=CAUSE).exclude(state=IncidentState.RESOLVED)
    known = {pair_id for pair_id in unresolved.values_list("pair_id", flat=True) if pair_id is not None}
    for pair_id, row in found.items():
        if pair_id not in known:
            _open(pair_id, row, now)
    for pair_id in known - found.keys():
        _resolve(pair_id, now)
    return len(found)


def drop_unused(now: datetime) -> int:
    """Forgets servers to which nothing was sent for a day: no attempt will ever close their circuits."""
    with transaction.atomic():
        unused = list(Circuit.objects.select_for_update(skip_locked=True).filter(updated_at__lte=now - UNUSED_FOR))
        Circuit.objects.filter(pk__in=[row.pk for row in unused]).delete()
        events.write(
            [
                events.event("circuit.closed", now, data={"server": row.address, "cause": row.cause, "unused": True})
                for row in unused
                if row.state == State.OPEN.value
            ]
        )
    return len(unused)


def _open(pair_id: uuid.UUID, row: Circuit, now: datetime) -> None:
    with transaction.atomic():
        pair = Pair.locked([pair_id])[pair_id]
        seen = Incident.objects.filter(cause=CAUSE, pair=pair)
        if seen.exclude(state=IncidentState.RESOLVED).exists() or seen.filter(resolved_at__gte=row.opened_at).exists():
            return  # another worker's round was faster, or a person knows of this outage already
        detail = f"{row.address} has not been reached since {row.opened_at:%Y-%m-%d %H:%M:%S} UTC ({row.cause})."
        _, opened = incidents.incident_open(pair=pair, cause=CAUSE, now=now, detail=f"{detail} {row.detail}".strip())
        events.write(opened)


def _resolve(pair_id: uuid.UUID, now: datetime) -> None:
    with transaction.atomic():
        pair = Pair.locked([pair_id])[pair_id]
        said = "The server answers again, or nothing is sent to it any more."
        events.write(
            incidents.incidents_resolve_for_pair(pair=pair, now=now, by="system", resolution=said, causes=(CAUSE,))
        )
