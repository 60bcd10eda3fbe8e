"""What it means for a transaction that somebody does not answer."""

from __future__ import annotations

import uuid
from datetime import datetime

from django.db import transaction

from messaging.models import CoordinationMessage, Event
from messaging.protocol.atomic import coordinator
from messaging.protocol.atomic.coordinator import Kind
from messaging.protocol.atomic.words import Phase, Seat
from messaging.services import events
from messaging.services.atomic import changes, doubting, opening, outgoing


def peer_is_silent(*, message_pk: uuid.UUID, now: datetime) -> None:
    """A message was sent again as often as the agreement says, without an answer; the incident is open already.

    Whom that leaves in doubt: a participant that was told Commit, and this hub where it voted Prepared and its superior
    does not say. One that was told Rollback is forgotten: whatever it asks later is answered with Rollback (presumed
    abort), so nothing can come to harm. A transaction of its own.
    """
    facts = CoordinationMessage.objects.filter(pk=message_pk).values_list("coordination_id", "enlistment_id").first()
    if facts is None or facts[0] is None or facts[1] is None:
        return
    written: list[Event] = []
    with transaction.atomic():
        coordination = opening.locked(facts[0])
        row = CoordinationMessage.objects.select_related("message", "enlistment").get(pk=message_pk)
        enlistment = row.enlistment
        if enlistment is None or row.message.state not in outgoing.OPEN:
            return
        if enlistment.seat == Seat.ABORTING and not enlistment.superior:
            happened = coordinator.Event(Kind.FORGOTTEN, key=enlistment.pk.hex)
            changes.advance(coordination, happened, now, written)
        elif enlistment.doubt == "" and _is_in_doubt(enlistment.superior, enlistment.seat, coordination.phase):
            detail = f"{row.kind} was sent {row.message.attempts} times to {row.address} and is not answered."
            doubting.mark(coordination, enlistment, doubting.SILENT, detail, now, written)
        events.write(written)


def _is_in_doubt(superior: bool, seat: str, phase: str) -> bool:
    return phase == Phase.PREPARED if superior else seat == Seat.COMMITTING
