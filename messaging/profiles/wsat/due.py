"""Transactions that a worker has something to do with: to decide them, or to end those whose time is over.

What it means for a transaction that somebody does not answer, or cannot be asked.

What becomes of old transactions: what has ended is forgotten some day, and a restore puts open ones in doubt.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from messaging.choices import DeliveryState
from messaging.journal import events, incidents
from messaging.models import Coordination, CoordinationMessage, Delivery, Enlistment, Event, Pair
from messaging.profiles.wsat import changes, in_doubt, opening, outgoing
from messaging.protocol.atomic import coordinator
from messaging.protocol.atomic.coordinator import Kind
from messaging.protocol.atomic.words import ENDED, Phase, Protocol, Seat
from messaging.protocol.pair_state import Gate
from partners import registry
from partners.choices import VersionState
from rmhub import clock

log = logging.getLogger(__name__)

EXPIRED = "transaction_expired"
SUPERIOR_SILENT = "transaction_superior_silent"
# When the decision of a worker that was killed is taken up again. One that lives holds the row's lock, however long it
# needs; an application's code that kills its worker must not kill the next one at once, and the next.
LEASE = timedelta(seconds=30)


def run_due(limit: int = 100) -> int:
    """Does what is due, one transaction after the other, each in a database transaction of its own. Returns how many.

    Workers do not wait for each other: what one has locked, another passes over.
    """
    found = Coordination.objects.filter(due_at__lte=clock.now()).order_by("due_at").values_list("pk", flat=True)
    return sum(_run(coordination_id) for coordination_id in list(found[:limit]))


def _run(coordination_id: uuid.UUID) -> bool:
    now = clock.now()
    try:
        with transaction.atomic():
            free = Coordination.objects.select_for_update(no_key=True, skip_locked=True)
            coordination = free.filter(pk=coordination_id, due_at__lte=now).first()
            if coordination is None:
                return False
            expired = coordination.expires_at is not None and coordination.expires_at <= now
            if decides := coordination.phase == Phase.DECIDING and not expired:
                coordination.due_at = now + LEASE
                coordination.save(update_fields=["due_at"])
            else:
                _expire(coordination, now)
        return _decide(coordination_id, now + LEASE, now) if decides else True
    except Exception:
        # One that cannot be moved now must not keep the others from it; it stays due.
        log.exception("transaction not moved", extra={"action": "due_failed", "coordination": str(coordination_id)})
        return False


def _decide(coordination_id: uuid.UUID, lease: datetime, now: datetime) -> bool:
    """Runs what the hub does itself, and writes the commit record, under a lease that is committed before."""
    with transaction.atomic():
        mine = Coordination.objects.select_for_update(no_key=True)
        coordination = mine.filter(pk=coordination_id, phase=Phase.DECIDING, due_at=lease).first()
        if coordination is None:
            return False  # rolled back meanwhile
        written: list[Event] = []
        changes.decide(coordination, now, written)
        events.write(written)
    return True


def _expire(coordination: Coordination, now: datetime) -> None:
    """All votes may be in by then, and no worker lived to decide: without a commit record it is rolled back, too."""
    written: list[Event] = []
    happened = coordinator.Event(Kind.EXPIRED)
    until = f"{coordination.expires_at:%Y-%m-%d %H:%M:%S} UTC"
    cause, detail = EXPIRED, f"It was not decided until {until}."
    if coordination.subordinate and coordination.phase == Phase.ACTIVE:
        cause, detail = SUPERIOR_SILENT, f"Its coordinator had asked for no vote until {until}."
    changes.advance(coordination, happened, now, written, cause=cause, detail=detail)
    events.write(written)


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
        elif enlistment.doubt in ("", in_doubt.HELD) and _is_in_doubt(
            enlistment.superior, enlistment.seat, coordination.phase
        ):
            if enlistment.doubt == in_doubt.HELD:
                written += _no_longer_held(coordination, row, now)
            detail = f"{row.kind} was sent to {row.address} and was not answered by attempt {row.message.attempts}."
            in_doubt.mark(coordination, enlistment, in_doubt.SILENT, detail, now, written)
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
            in_doubt.mark(coordination, row.enlistment, in_doubt.HELD, detail, now, written)
            _, opened = incidents.incident_open(
                pair=pair, cause=in_doubt.HELD, detail=detail, now=now, message_pk=row.pk, coordination=coordination
            )
            written += opened
        events.write(written)
    if found:
        log.warning("transactions held back", extra={"action": in_doubt.HELD, "messages": len(found)})


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
        causes=(in_doubt.HELD,),
    )


def _instant(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


_AT_ONCE = 500
_TIMED = (Phase.ACTIVE, Phase.PREPARING_VOLATILE, Phase.PREPARING_DURABLE, Phase.DECIDING)
_UNDECIDED = (*_TIMED, Phase.PREPARED, Phase.ABORTING)
_MEMBER = (
    "If this transaction was committed after the backup, {party} may have been told so. Ask there. It does not expire: "
    "it stays open until somebody ends it here, or the votes that are missing come in."
)
_SUPERIOR = (
    "{party} decides about this transaction, and may have decided and forgotten it after the backup: then it answers "
    "Rollback, whatever the outcome was. Ask there."
)


def forget_old(now: datetime) -> int:
    """Deletes transactions that ended long ago (RMHUB_TRANSACTION_DAYS); their messages follow the messages' own rules.

    One stays while somebody is in doubt about it, and for ever when a person settled something in it otherwise than by
    protocol: its participant may still come back, and the hub must know the outcome then. Returns how many went.
    """
    before = now - timedelta(days=settings.RMHUB_TRANSACTION_DAYS)
    ended = Coordination.objects.filter(phase__in=ENDED, ended_at__lt=before, doubtful_since=None)
    settled = Enlistment.objects.exclude(settled_as="").values("coordination_id")
    old = ended.exclude(pk__in=settled).order_by("id").values_list("pk", flat=True)
    with transaction.atomic():
        # Whoever adds a message to one holds its lock: what is deleted here has no more of them than are seen.
        mine = list(old.select_for_update(skip_locked=True)[:_AT_ONCE])
        _, by_model = Coordination.objects.filter(pk__in=mine).delete()
    return by_model.get(Coordination._meta.label, 0)


def restored(now: datetime) -> int:
    """After the database was restored: an open transaction may have been decided after the backup, and its participants
    told so. A person is told of each, and has the time to find out: none of them ends by itself, only by a person or by
    what the others say. Where this hub has voted, only its superior is asked. Returns how many those are.
    """
    count = 0
    open_ones = Coordination.objects.filter(phase__in=_UNDECIDED, enlistments__party__isnull=False).distinct()
    for coordination_id in list(open_ones.order_by("id").values_list("pk", flat=True)):
        with transaction.atomic():
            coordination = Coordination.objects.select_for_update(no_key=True).get(pk=coordination_id)
            written: list[Event] = []
            members = coordination.enlistments.exclude(party=None).exclude(seat=Seat.NONE)
            others = members.exclude(protocol=Protocol.COMPLETION)
            if coordination.phase == Phase.PREPARED:
                others = others.filter(superior=True)
            asked = list(others.select_related("party", "pair").order_by("id"))
            if asked and coordination.phase in _TIMED:
                _hold(coordination, now)
            for enlistment in asked:
                detail = f"The database was restored. {_SUPERIOR if enlistment.superior else _MEMBER}".format(
                    party=enlistment.party
                )
                in_doubt.doubt(coordination, enlistment, in_doubt.IN_DOUBT, detail, now, written)
            events.write(written)
            count += 1
    return count


def _hold(coordination: Coordination, now: datetime) -> None:
    """Takes its time away, and the lease of the document that it hands over: nothing takes either back by itself."""
    coordination.expires_at = coordination.due_at = None
    coordination.changed_at = now
    coordination.lock_version += 1
    coordination.save(update_fields=["expires_at", "due_at", "changed_at", "lock_version"])
    if coordination.delivery_id is not None:
        handed = Delivery.objects.filter(pk=coordination.delivery_id, state=DeliveryState.RUNNING)
        handed.filter(claim=coordination.claim).update(due_at=None, worker=0)
