"""Incidents about servers that have been left alone for minutes, and the end of circuits that nobody needs any more.

Part of housekeeping; safe at any time and in several workers at once. An incident belongs to a pair that sends to the
server, and closes when the server answers, whoever asked (`answered`). One that a person resolves opens again only for
a new outage.
"""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta

from django.db import transaction

from messaging.choices import Direction, IncidentState
from messaging.engine import circuits
from messaging.journal import events, incidents
from messaging.models import Circuit, Incident, Pair
from messaging.protocol.circuit import UNREACHABLE, State
from messaging.protocol.pair_state import Flow
from messaging.servers import pairs_at
from rmhub import clock

CAUSE = "server_unreachable"
OPEN_FOR = timedelta(minutes=5)
UNUSED_FOR = timedelta(days=1)
# It answers, and is not used for what it shows: not "down".
_ANSWERS = frozenset({"tls_handshake", "cert_expired", "cert_untrusted", "host_key_mismatch"})
# What an answer of the server disproves, whatever it says.
_DISPROVED = frozenset({CAUSE, circuits.CAUSE, *UNREACHABLE})


def watch() -> int:
    """One round; returns how many servers have been unreachable for long."""
    now = clock.now()
    drop_unused(now)
    found: dict[uuid.UUID, Circuit] = {}
    for row in Circuit.objects.filter(state=State.OPEN.value, opened_at__lte=now - OPEN_FOR):
        keys = _pairs_of(row.address, row.pair_id)
        if row.cause in _ANSWERS and _is_told(keys):
            continue  # it is there, and what it shows has its own incident
        if keys:
            found[keys[0]] = row
    unresolved = Incident.objects.filter(cause=CAUSE).exclude(state=IncidentState.RESOLVED)
    known = {pair_id for pair_id in unresolved.values_list("pair_id", flat=True) if pair_id is not None}
    for pair_id, row in found.items():
        if pair_id not in known:
            _open(pair_id, row, now)
    for pair_id in known - found.keys():
        _resolve(pair_id, now)
    return len(found)


def answered(server: str) -> None:
    """The server has answered, whoever asked: its circuit closes, and what said that it cannot be reached is over.

    Pairs that gave up keep their incident: they stay suspended until a person resumes them. Call it outside of any
    transaction.
    """
    tried_for = Circuit.objects.filter(pk=server).values_list("pair_id", flat=True).first()
    circuits.heard(server)
    unresolved = Incident.objects.filter(cause__in=_DISPROVED, pair__in=_pairs_of(server, tried_for))
    concerned = set(unresolved.exclude(state=IncidentState.RESOLVED).values_list("pair_id", flat=True))
    if not concerned:
        return
    with transaction.atomic():
        now = clock.now()
        for pair in Pair.locked(concerned).values():
            causes = (CAUSE,) if pair.flow == Flow.SUSPENDED else _DISPROVED
            events.write(
                incidents.incidents_resolve_for_pair(
                    pair=pair, now=now, by="system", resolution="The server answers again.", causes=causes
                )
            )


def _pairs_of(server: str, tried_for: uuid.UUID | None) -> list[uuid.UUID]:
    """The outbound pairs that send there: by the agreements in force, and that of the last attempt."""
    keys = {*pairs_at(frozenset({server})), *([tried_for] if tried_for else ())}
    return list(Pair.objects.filter(pk__in=keys, direction=Direction.OUT).order_by("pk").values_list("pk", flat=True))


def _is_told(pairs: list[uuid.UUID]) -> bool:
    unresolved = Incident.objects.filter(pair__in=pairs, cause__in=_ANSWERS).exclude(state=IncidentState.RESOLVED)
    return unresolved.exists()


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
        cause = row.cause if row.cause in _ANSWERS else CAUSE
        seen = Incident.objects.filter(cause=cause, pair=pair)
        if seen.exclude(state=IncidentState.RESOLVED).exists() or seen.filter(resolved_at__gte=row.opened_at).exists():
            return  # another worker's round was faster, or a person knows of this outage already
        detail = f"{row.address} has not been reached since {row.opened_at:%Y-%m-%d %H:%M:%S} UTC ({row.cause})."
        _, opened = incidents.incident_open(pair=pair, cause=cause, now=now, detail=f"{detail} {row.detail}".strip())
        events.write(opened)


def _resolve(pair_id: uuid.UUID, now: datetime) -> None:
    with transaction.atomic():
        pair = Pair.locked([pair_id])[pair_id]
        said = "The server answers again, or nothing is sent to it any more."
        events.write(
            incidents.incidents_resolve_for_pair(pair=pair, now=now, by="system", resolution=said, causes=(CAUSE,))
        )
