"""What becomes of old transactions: what has ended is forgotten some day, and a restore puts open ones in doubt."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from messaging.choices import DeliveryState
from messaging.journal import events
from messaging.models import Coordination, Delivery, Enlistment, Event
from messaging.profiles.wsat import doubting
from messaging.protocol.atomic.words import ENDED, Phase, Protocol, Seat

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
    old = ended.exclude(pk__in=settled).order_by("id").values_list("pk", flat=True)[:_AT_ONCE]
    with transaction.atomic():
        _, by_model = Coordination.objects.filter(pk__in=list(old)).delete()
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
                doubting.doubt(coordination, enlistment, doubting.IN_DOUBT, detail, now, written)
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
