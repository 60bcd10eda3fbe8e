"""What it means for a transaction that somebody does not answer, or cannot be asked."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from datetime import datetime

from django.db import transaction

from messaging.journal import events, incidents
from messaging.models import Coordination, CoordinationMessage, Enlistment, Event, Pair
from messaging.profiles.wsat import changes, doubting, opening, outgoing
from messaging.protocol.atomic import coordinator
from messaging.protocol.atomic.coordinator import Kind
from messaging.protocol.atomic.words import Phase, Seat
from messaging.protocol.pair_state import Gate
from partners import registry
from partners.choices import VersionState

log = logging.getLogger(__name__)


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
        if _can_be_forgotten(row):
            _forget(coordination, enlistment, now, written)
        elif enlistment.doubt in ("", doubting.HELD) and _is_in_doubt(
            enlistment.superior, enlistment.seat, coordination.phase
        ):
            if enlistment.doubt == doubting.HELD:
                written += _no_longer_held(coordination, row, now)
            detail = f"{row.kind} was sent to {row.address} and was not answered by attempt {row.message.attempts}."
            doubting.mark(coordination, enlistment, doubting.SILENT, detail, now, written)
        events.write(written)


def is_settled(row: CoordinationMessage) -> bool:
    """Whether a person has decided about this relationship: its silence tells nobody anything new. The vote of a hub
    whose superior is gone goes on being sent, for should that one come back its word is still wanted.
    """
    return row.enlistment is not None and row.enlistment.settled_as != ""


def matters(row: CoordinationMessage) -> bool:
    """Whether something has to be done when this message is not answered, or cannot be sent, for long."""
    return leaves_in_doubt(row) or _can_be_forgotten(row)


def leaves_in_doubt(row: CoordinationMessage) -> bool:
    """Whether it leaves somebody in doubt who is not yet, that nobody answers this message. Without a query where
    `coordination` and `enlistment` are loaded.
    """
    coordination, enlistment = row.coordination, row.enlistment
    if coordination is None or enlistment is None or enlistment.doubt:
        return False
    return _is_in_doubt(enlistment.superior, enlistment.seat, coordination.phase)


def held_back(*, message_ids: Sequence[uuid.UUID], now: datetime) -> None:
    """Messages wait behind pairs that are shut, for as long as it takes to call somebody silent: marks those in doubt
    whom that leaves so, and opens the incidents. Whoever waits for a Rollback is forgotten, as one that is silent is.
    What a pair holds that is open again is passed over.

    A transaction of its own for the doubts, however many, which are read by four queries; and one for each of those
    that are forgotten.
    """
    facts = CoordinationMessage.objects.filter(pk__in=list(message_ids))
    told_rollback = facts.filter(enlistment__seat=Seat.ABORTING, enlistment__superior=False)
    for message_id in list(told_rollback.order_by("pk").values_list("pk", flat=True)):
        _forget_behind_shut_pair(message_id, now)
    whose = [one for one in facts.values_list("coordination_id", flat=True) if one is not None]
    written: list[Event] = []
    with transaction.atomic():
        free = Coordination.objects.filter(pk__in=whose).order_by("pk").select_for_update(no_key=True)
        coordinations = {one.pk: one for one in free}
        rows = facts.filter(coordination__in=coordinations, message__state__in=outgoing.OPEN)
        found = list(rows.select_related("message", "enlistment").defer("message__wire_frame").order_by("pk"))
        pairs = Pair.objects.filter(pk__in=[row.message.pair_id for row in found]).select_related("partner")
        known = {pair.pk: pair for pair in pairs.order_by("pk").select_for_update(of=("self",), no_key=True)}
        for row in found:
            assert row.coordination_id is not None  # the filter has it
            row.coordination = coordination = coordinations[row.coordination_id]  # one for all of its messages
            pair = known[row.message.pair_id]
            shut = _shut(row, pair)
            if not shut or not leaves_in_doubt(row):
                continue
            detail = f"{row.kind} for {pair.partner.name} has waited since {_instant(row.at)}: {shut}."
            doubting.mark(coordination, row.enlistment, doubting.HELD, detail, now, written)
            _, opened = incidents.incident_open(
                pair=pair, cause=doubting.HELD, detail=detail, now=now, message_pk=row.pk, coordination=coordination
            )
            written += opened
        events.write(written)
    if found:
        log.warning("transactions held back", extra={"action": doubting.HELD, "messages": len(found)})


def _can_be_forgotten(row: CoordinationMessage) -> bool:
    enlistment = row.enlistment
    return enlistment is not None and enlistment.seat == Seat.ABORTING and not enlistment.superior


def _forget_behind_shut_pair(message_pk: uuid.UUID, now: datetime) -> None:
    row = CoordinationMessage.objects.select_related("message__pair").get(pk=message_pk)
    if row.coordination_id is None or not _shut(row, row.message.pair):
        return
    written: list[Event] = []
    with transaction.atomic():
        coordination = opening.locked(row.coordination_id)
        row = CoordinationMessage.objects.select_related("message", "enlistment").get(pk=message_pk)
        if row.message.state in outgoing.OPEN and _can_be_forgotten(row):
            _forget(coordination, row.enlistment, now, written)
        events.write(written)


def _forget(coordination: Coordination, enlistment: Enlistment | None, now: datetime, written: list[Event]) -> None:
    assert enlistment is not None
    changes.advance(coordination, coordinator.Event(Kind.FORGOTTEN, key=enlistment.pk.hex), now, written)


def _is_in_doubt(superior: bool, seat: str, phase: str) -> bool:
    return phase == Phase.PREPARED if superior else seat == Seat.COMMITTING


def _shut(row: CoordinationMessage, pair: Pair) -> str:
    """What keeps a message from going out, "" when nothing does."""
    if pair.gate != Gate.OPEN:
        since = f" since {_instant(pair.changed_at)}" if pair.changed_at else ""
        return f"pair {pair.code} is {pair.gate}{since}"
    terms = registry.current().version(row.message.agreement_version_id)
    return f"agreement {terms.tpa_id} of pair {pair.code} is disabled" if terms.state == VersionState.DISABLED else ""


def _no_longer_held(coordination: Coordination, row: CoordinationMessage, now: datetime) -> list[Event]:
    return incidents.incidents_resolve_for_coordination(
        coordination_id=coordination.pk,
        pair_id=row.message.pair_id,
        now=now,
        by="system",
        resolution="The pair is open again: what waited is sent, and is not answered.",
        causes=(doubting.HELD,),
    )


def _instant(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
