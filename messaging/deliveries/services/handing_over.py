"""Decides about deliveries whose turn it is, and hands over what is NEW (spec 4); joins of documents."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from django.db import DatabaseError, connection, transaction
from django.db.models import Exists, F, OuterRef
from django.db.utils import InterfaceError

from messaging import dispatch
from messaging.choices import DeliveryState, JoinState, JoinType, ServiceKind, TriggerState
from messaging.deliveries.services import history
from messaging.deliveries.services.changes import Changes, is_new
from messaging.deliveries.services.job import Job, JobKind, guaranteed, is_checked, lease_of, properties, service_kind
from messaging.journal import audit, events, incidents
from messaging.models import Delivery, Event, Join, Message, Trigger
from messaging.models.delivery import OPEN_STATES
from messaging.profiles.stream import receipts
from messaging.protocol.processing import Decision, Entry, decide
from rmhub import clock
from rmhub.ids import uuid7

log = logging.getLogger(__name__)
_JOINS = (JoinType.ALL.value, JoinType.ONLY_ONE.value)


def take(
    trigger: Trigger,
    deliveries: Sequence[Delivery],
    changes: Changes,
    *,
    worker: int = 0,
    lease: timedelta | None = None,
    taken_by: str = "",
    by_caller: bool = False,
) -> list[Job]:
    """Decides about waiting deliveries, whose rows and whose trigger's row are locked, and hands over what is NEW.

    Returns a job for each that is in work now, with a lease of `lease` (default: the trigger's): its service is run, or
    its resolver asked first; for a pull queue the job is LEASED, and nothing has to be said to anybody. What is a
    duplicate, in doubt, or absorbed by a join is settled here; a history that is unreachable may suspend the trigger.
    """
    if trigger.join_type in _JOINS and len(deliveries) > 1:
        # One by one: when a join has taken a document, a copy of it is a duplicate.
        return [
            job
            for delivery in deliveries
            if trigger.state == TriggerState.ACTIVE
            for job in take(
                trigger, [delivery], changes, worker=worker, lease=lease, taken_by=taken_by, by_caller=by_caller
            )
        ]
    until = changes.now + (lease or lease_of(trigger))
    load_messages(deliveries)
    entries, overridden = _consult(trigger, deliveries, changes, worker)
    jobs: list[Job] = []
    for delivery in deliveries:
        override = delivery.pk in overridden
        decision = decide(
            properties(trigger),
            guaranteed=guaranteed(delivery),
            redelivery_count=delivery.redelivery_count,
            entry=entries.get(delivery.pk),
            operator_override=override,
            memory_lost=delivery.memory_lost,
            held=is_held(delivery),
        )
        if decision.suspend:
            _cannot_decide(trigger, delivery, decision, changes, by_caller)
            if by_caller:
                continue
            break
        if not decision.ask_resolver and not is_new(decision):
            _settle(trigger, delivery, decision, changes)
            continue
        changes.decided(delivery, decision)
        if is_new(decision):
            if absorbed(trigger, delivery, changes):
                continue
            delivery.executions += 1
        kind = JobKind.RESOLVE if decision.ask_resolver else service_kind(trigger)
        claim = uuid.uuid4()
        changes.hand_over(delivery, claim, until, worker, taken_by)
        jobs.append(
            Job(
                kind=kind,
                trigger=trigger,
                delivery=delivery,
                claim=claim,
                decision=decision,
                lease=until - changes.now,
                worker=worker,
                by_caller=by_caller,
                overrides=override,
            )
        )
    return jobs


def absorbed(trigger: Trigger, delivery: Delivery, changes: Changes) -> bool:
    """Whether a join takes the document, which is NEW: it is not to be run by itself then."""
    if trigger.join_type not in _JOINS or delivery.join_id is not None:
        return False
    if not take_part(trigger, delivery, changes.now, changes.events):
        return False
    changes.leave(delivery)
    return True


def is_held(delivery: Delivery) -> bool:
    """Whether its schema holds the document back until a person has seen it."""
    seen = delivery.resubmission_of_id is not None or delivery.join_id is not None
    return not seen and bool(delivery.message.schema_faults and delivery.message.schema_faults["held"])


def load_messages(deliveries: Sequence[Delivery]) -> None:
    """Gives each delivery its message, without the octets. One query."""
    found = Message.of_ids(delivery.message_id for delivery in deliveries)
    for delivery in deliveries:
        delivery.message = found[delivery.message_id]


def _consult(
    trigger: Trigger, deliveries: Sequence[Delivery], changes: Changes, worker: int
) -> tuple[dict[uuid.UUID, Entry], set[uuid.UUID]]:
    """What the history says of those that it is asked about, and those for which an operator's word counts instead.

    Where it has nothing the documents are entered as started, except for callables, which do that in their transaction,
    and for what is held.
    """
    checked = [delivery for delivery in deliveries if is_checked(trigger, delivery)] if trigger.use_history else []
    entries = {delivery.pk: Entry.UNUSABLE_ID for delivery in checked if not delivery.document_id}
    usable = [delivery for delivery in checked if delivery.document_id]
    # What a person said before a loss of memory may have been followed since.
    told = [delivery for delivery in deliveries if delivery.resubmission_of_id is not None and not delivery.memory_lost]
    overridden = {delivery.pk for delivery in told if delivery.redelivery_count == 0}
    try:
        with transaction.atomic():
            # A later hand-over of a resubmission: the operator's word still counts when certainly none has begun.
            resubmitted = [delivery for delivery in told if delivery in usable]
            overridden |= {delivery.pk for delivery in resubmitted if history.begun_by(delivery) != delivery.pk}
            # A copy of which the resolver said NEW since: the person's word was about the same document.
            overridden -= {delivery.pk for delivery in resubmitted if history.overtaken(delivery)}
            held = [delivery for delivery in usable if is_held(delivery)]
            entries |= history.look(trigger, held)
            undecided = [delivery for delivery in usable if delivery.pk not in overridden and delivery not in held]
            if trigger.kind == ServiceKind.CALLABLE:
                return entries | _look(trigger, undecided), overridden
            for delivery in resubmitted:
                if delivery.pk in overridden:
                    history.take_over(trigger, delivery, worker, changes.now)
            return entries | history.begin(trigger, undecided, worker, changes.now), overridden
    except DatabaseError as error:
        if isinstance(error, InterfaceError) or not connection.is_usable():
            raise  # it is not the history: nothing can be claimed at all
        log.exception("history unreachable", extra={"action": "history_unreachable", "trigger": trigger.name})
        unknown = {delivery.pk for delivery in usable}
        return entries | dict.fromkeys(unknown, Entry.UNREACHABLE), overridden - unknown


def _look(trigger: Trigger, deliveries: Sequence[Delivery]) -> dict[uuid.UUID, Entry]:
    """For callables, which enter their document themselves: of two copies in work the second is in the first's way."""
    entries = history.look(trigger, deliveries)
    rows = Delivery.objects.filter(trigger=trigger, state=DeliveryState.RUNNING)
    in_work = set(rows.values_list("sender_id", "document_id"))
    for delivery in deliveries:
        key = (delivery.sender_id, delivery.document_id)
        if key in in_work:
            entries[delivery.pk] = Entry.STARTED
        elif entries[delivery.pk] is Entry.ABSENT:
            in_work.add(key)
    return entries


def _cannot_decide(trigger: Trigger, delivery: Delivery, decision: Decision, changes: Changes, by_caller: bool) -> None:
    detail = decision.evidence[-1].detail
    if by_caller and changes.forget_unexecuted(delivery, "history_unavailable", detail):
        return
    changes.decided(delivery, decision)
    changes.wait(delivery, delivery.created_at)
    if not by_caller:
        changes.suspend(trigger, "history_unavailable", detail)


def _settle(trigger: Trigger, delivery: Delivery, decision: Decision, changes: Changes) -> None:
    if decision.group:
        changes.doubt(trigger, delivery, decision)
    else:
        changes.duplicate(trigger, delivery, decision)


# --- Joins (spec 4; protocols 4.6): documents of one activation that a trigger processes together, or one instead of
# all.
#
# The activation is the conversation. Documents are checked for duplicates before they come here, and the history
# counts them as completed once they lie in the join: its firing is a delivery of its own, with an id of its own in
# the history, so that neither a crash nor a copy makes it fire twice. What counts for the timeout is when a document
# was stored, not when the trigger came to it. Everything happens under the trigger's row lock.

EXPIRE_BATCH = 200
ANY_ACTION = "*"


def take_part(trigger: Trigger, delivery: Delivery, now: datetime, written: list[Event]) -> bool:
    """Puts a document that may be processed into the join of its activation; `written` gets the events.

    Call inside the claim's transaction with the trigger's row locked, for a document with verdict NEW or UNCHECKED.
    True: it was absorbed; its row and its history are written, and a join that is complete has fired. False: run its
    service now.
    """
    if trigger.join_type == JoinType.ALL:
        return _all(trigger, delivery, now, written)
    if trigger.join_type == JoinType.ONLY_ONE:
        return _only_one(trigger, delivery, now, written)
    return False


def parts(join_id: uuid.UUID) -> list[Delivery]:
    """The documents that a join waits with, or has brought together, in the order of their arrival, with messages."""
    gathered = Delivery.objects.filter(part_of=join_id, state__in=(DeliveryState.JOINED, DeliveryState.COMPLETED))
    return list(gathered.select_related("message").order_by("message_id", "id"))


def expire_due(*, limit: int = EXPIRE_BATCH) -> int:
    """Ends joins whose time is over: what came to an incomplete one is discarded, audited, and an incident.

    One whose missing document lies in the trigger's queue since before that time waits for it. Returns how many ended.
    """
    now = clock.now()
    due = Join.objects.filter(~Exists(_QUEUED), state=JoinState.OPEN, expires_at__lt=now).order_by("expires_at")
    ended = 0
    for join_id, trigger_id in due.values_list("id", "trigger_id")[:limit]:
        with transaction.atomic():
            trigger = Trigger.objects.select_for_update(no_key=True, of=("self",)).get(pk=trigger_id)
            join = due.filter(pk=join_id).first()
            if join is not None:
                written: list[Event] = []
                _expire(join, trigger, now, written)
                events.write(written)
                ended += 1
    return ended


# Documents of an activation that the trigger has not come to yet.
_QUEUED = Delivery.objects.filter(
    message__conversation_id=OuterRef("activation"),
    trigger=OuterRef("trigger"),
    state__in=OPEN_STATES,
    created_at__lte=OuterRef("expires_at"),
    part_of__isnull=True,
    join__isnull=True,
)


def _all(trigger: Trigger, delivery: Delivery, now: datetime, written: list[Event]) -> bool:
    join, _ = _join_of(trigger, delivery, now, written)
    _absorb(delivery, trigger, DeliveryState.JOINED, join, now)
    gathered = [part for part in parts(join.pk) if part.state == DeliveryState.JOINED]
    if _is_complete(trigger.documents, [(part.message.service, part.message.action) for part in gathered]):
        _fire(join, delivery, gathered, now)
    return True


def _only_one(trigger: Trigger, delivery: Delivery, now: datetime, written: list[Event]) -> bool:
    original = delivery.resubmission_of
    if delivery.part_of_id is not None or (original is not None and original.part_of_id is not None):
        return False  # it is the one, and runs again
    join, is_new = _join_of(trigger, delivery, now, written)
    if is_new:
        delivery.part_of = join
        delivery.save(update_fields=["part_of"])
        return False
    delivery.cause_detail = "Another document of this conversation was processed instead (only one of them is)."
    _absorb(delivery, trigger, DeliveryState.DISCARDED, None, now)
    receipts.owe([delivery.message_id], now)
    return True


def _join_of(trigger: Trigger, delivery: Delivery, now: datetime, written: list[Event]) -> tuple[Join, bool]:
    """The open join of the document's activation, and whether it was made for this document."""
    # A document without a conversation is one of its own: it has nothing in common with others that have none.
    activation = delivery.message.conversation_id or delivery.message.message_id
    join = Join.objects.filter(trigger=trigger, activation=activation, state=JoinState.OPEN).first()
    if join is not None and delivery.created_at > join.expires_at:
        _expire(join, trigger, now, written)
        join = None
    if join is not None:
        return join, False
    expires_at = now + timedelta(seconds=trigger.join_timeout)
    return Join.objects.create(trigger=trigger, activation=activation, expires_at=expires_at, created_at=now), True


def _absorb(delivery: Delivery, trigger: Trigger, state: str, join: Join | None, now: datetime) -> None:
    """Takes the document out of the trigger's queue; for the history it is done with (protocols 4.6)."""
    delivery.state = state
    delivery.part_of = join
    delivery.due_at = delivery.claim = None
    delivery.completed_at = now if state == DeliveryState.DISCARDED else None
    delivery.version += 1
    delivery.save()
    history.complete(delivery, trigger, history.SUCCESS, now)


def _is_complete(documents: Sequence[Mapping[str, str]], came: Sequence[tuple[str, str]]) -> bool:
    """Whether each entry of the trigger's documents has a document of its own."""
    left = list(came)
    # Exact entries first: whatever they leave over is good for an entry that takes any action of its service.
    for wanted in sorted(documents, key=lambda entry: entry["action"] == ANY_ACTION):
        service, action = wanted["service"], wanted["action"]
        fitting = next((one for one in left if one[0] == service and action in (ANY_ACTION, one[1])), None)
        if fitting is None:
            return False
        left.remove(fitting)
    return True


def _fire(join: Join, last: Delivery, gathered: list[Delivery], now: datetime) -> None:
    join.state = JoinState.FIRED
    join.save(update_fields=["state"])
    Delivery.objects.filter(pk__in=[part.pk for part in gathered]).update(
        state=DeliveryState.COMPLETED, completed_at=now, version=F("version") + 1
    )
    last.state, last.completed_at = DeliveryState.COMPLETED, now
    # At the place of the document that completed it, so that an ordered trigger goes on in its order.
    Delivery.objects.create(
        id=uuid7(),
        trigger_id=last.trigger_id,
        message_id=last.message_id,
        pair_id=last.pair_id,
        sender_id=last.sender_id,
        position=last.position,
        document_id=f"join:{join.pk}",
        join=join,
        due_at=now,
        created_at=now,
    )
    receipts.owe([part.message_id for part in gathered], now)
    dispatch.wake_on_commit(dispatch.DELIVER)


def _expire(join: Join, trigger: Trigger, now: datetime, written: list[Event]) -> None:
    """Ends an open join. What waits in it is discarded and stays COMPLETED in the history: a copy is a duplicate."""
    join.state = JoinState.EXPIRED
    join.save(update_fields=["state"])
    waiting = Delivery.objects.filter(part_of=join, state=DeliveryState.JOINED).select_related("message")
    discarded = list(waiting.order_by("message_id", "id"))
    if not discarded:
        return
    reason = f"Not all documents of the join came within {trigger.join_timeout} s."
    for part in discarded:
        part.state, part.completed_at = DeliveryState.DISCARDED, now
        part.cause, part.cause_detail = "join_expired", reason
        part.version += 1
        part.save(update_fields=["state", "completed_at", "cause", "cause_detail", "version"])
        audit.record(
            audit.SYSTEM,
            "delivery.discard",
            part,
            reason=reason,
            before={"state": DeliveryState.JOINED.value},
            after={"state": part.state.value, "message_id": part.message.message_id, "activation": join.activation},
        )
    receipts.owe([part.message_id for part in discarded], now)
    names = ", ".join(part.message.message_id for part in discarded[:5])
    _, opened = incidents.incident_open(
        pair=None,
        trigger=trigger,
        cause="join_expired",
        now=now,
        detail=f"Conversation {join.activation}: discarded {len(discarded)} ({names}).",
        message_pk=discarded[-1].message_id,
    )
    written += opened
