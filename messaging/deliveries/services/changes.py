"""How a delivery moves on, and everything that has to be written with it.

`Changes` gathers what one transaction does to many deliveries: rows, document history, events, incidents and what a
caller of a synchronous exchange is told. The caller holds the locks: the rows of triggers with trouble first, in the
order of their keys, then the rows of the deliveries; `write` ends it, before the commit.
"""

from __future__ import annotations

import uuid
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta

from django.db.models import F

from messaging.applications import Reply
from messaging.choices import Consult, DeliveryState
from messaging.deliveries.services import history, triggering
from messaging.deliveries.services.job import MAX_WAIT, Outcome, is_checked, retry_policy
from messaging.journal import audit, events, incidents
from messaging.models import Delivery, Event, Incident, Trigger
from messaging.models.bulk import bulk_set
from messaging.profiles.repeatable import remembering
from messaging.profiles.stream import receipts
from messaging.protocol.processing import Decision, Status, move, redelivered
from messaging.protocol.service_ends import Next, Ran, after

FIELDS = (
    "state",
    "verdict",
    "evidence",
    "doubt",
    "redelivery_count",
    "executions",
    "retries",
    "due_at",
    "worker",
    "taken_by",
    "claim",
    "http_status",
    "cause",
    "cause_detail",
    "answer",
    "started_at",
    "completed_at",
    "version",
)
FAILED, IN_DOUBT = "documents_failed", "documents_in_doubt"
# What the caller of a synchronous exchange gets for a service that failed on its request and left no answer.
_NO_ANSWER = Reply(status=502, body=b"The application has not answered.\n", content_type="text/plain")


@dataclass(slots=True)
class _Trouble:
    """What becomes one occurrence or more of a trigger's incident."""

    trigger: Trigger
    cause: str
    detail: str
    message_pk: uuid.UUID
    occurrences: int = 1


@dataclass(slots=True)
class Changes:
    """What one transaction writes. `events` may be added to by whoever takes part in it."""

    now: datetime
    events: list[Event] = field(default_factory=list)
    _changed: dict[uuid.UUID, Delivery] = field(default_factory=dict)
    _ended: list[history.Ended] = field(default_factory=list)
    _released: list[Delivery] = field(default_factory=list)
    _troubles: dict[tuple[uuid.UUID, str], _Trouble] = field(default_factory=dict)
    _doubts: list[audit.Doubt] = field(default_factory=list)
    _of_streams: set[uuid.UUID] = field(default_factory=set)  # messages whose sender may want a final receipt

    # --- how a delivery ends ---

    def complete(self, trigger: Trigger, delivery: Delivery, reply: Reply | None = None) -> None:
        """The service has processed it."""
        self._end(trigger, delivery, DeliveryState.COMPLETED, outcome=history.SUCCESS)
        delivery.cause = delivery.cause_detail = ""
        remembering.answered(delivery, reply, self.now)

    def fail(
        self,
        trigger: Trigger,
        delivery: Delivery,
        cause: str,
        detail: str,
        reply: Reply | None = None,
        *,
        rolled_back: bool = False,
    ) -> None:
        """The service ended with an error: processed all the same (spec 4), and a person has to look at it.

        A caller that waits gets `reply`; one that says it is the caller's fault (4xx) needs no person. `rolled_back`:
        what the services did is undone, so nobody has processed the document, and the history forgets that it began.
        """
        _say(delivery, cause, detail)
        if rolled_back:
            self._released.append(delivery)
        self._end(trigger, delivery, DeliveryState.FAILED, outcome=None if rolled_back else history.ERROR)
        remembering.answered(delivery, reply if reply is not None else _NO_ANSWER, self.now)
        if not (delivery.attended and reply is not None and reply.status < 500):
            self._trouble(trigger, delivery, FAILED, detail)

    def duplicate(self, trigger: Trigger, delivery: Delivery, decision: Decision) -> None:
        """It was processed before: discarded (spec 4). What its own earlier hand-over has begun is done with, too."""
        self.decided(delivery, decision)
        # A resolver that is asked about a lost memory may know one that nothing was known of here: it is begun, too.
        begun = delivery.redelivery_count != 0 or delivery.memory_lost
        own = begun and history.begun_by(delivery) == delivery.pk
        self._end(trigger, delivery, DeliveryState.DUPLICATE, outcome=history.SUCCESS if own else None)
        remembering.answered(delivery, None, self.now)

    def doubt(self, trigger: Trigger, delivery: Delivery, decision: Decision) -> None:
        """Nobody can say whether it was processed: kept for a person (spec 4). What is begun stays begun."""
        self.decided(delivery, decision)
        delivery.doubt = decision.group
        self._end(trigger, delivery, DeliveryState.IN_DOUBT, outcome=None)
        known: dict[str, object] = {"state": delivery.state, "doubt": delivery.doubt, "evidence": delivery.evidence}
        known |= {"trigger": trigger.public_id, "message_id": delivery.message.message_id}
        why = decision.evidence[-1].detail
        self._doubts.append(audit.Doubt("delivery", delivery.public_id, str(delivery), why, known))
        remembering.doubtful(delivery)
        self._trouble(trigger, delivery, IN_DOUBT, decision.evidence[-1].detail)

    def forget_unexecuted(self, delivery: Delivery, cause: str, detail: str) -> bool:
        """A request that certainly was not executed is as if it had never come (spec 2).

        False when it has to be executed all the same: the caller decides how the delivery goes on.
        """
        _say(delivery, cause, detail)
        self._released.append(delivery)
        if not remembering.released(delivery):
            return False
        self.leave(delivery)
        return True

    # --- how it goes on ---

    def decided(self, delivery: Delivery, decision: Decision) -> None:
        """Keeps the decision with its evidence."""
        delivery.verdict = decision.status.value if decision.status is not None else ""
        at = self.now.isoformat()
        delivery.evidence = [{**asdict(step), "at": at} for step in decision.evidence]
        self._changed[delivery.pk] = delivery

    def hand_over(self, delivery: Delivery, claim: uuid.UUID, until: datetime, worker: int, taken_by: str = "") -> None:
        """Somebody has it in progress until then."""
        if delivery.state != DeliveryState.RUNNING:
            _move(delivery, DeliveryState.RUNNING)
            delivery.started_at = self.now
        delivery.claim, delivery.due_at = claim, until
        delivery.worker, delivery.taken_by = worker, taken_by
        self._changed[delivery.pk] = delivery

    def put_back(self, delivery: Delivery, due_at: datetime, cause: str, detail: str) -> None:
        """It is certain that nothing happened: what was begun is released, and the next hand-over is NEW."""
        self._released.append(delivery)
        _say(delivery, cause, detail)
        self.wait(delivery, due_at)

    def lose(self, delivery: Delivery, due_at: datetime, cause: str, detail: str) -> None:
        """Nobody knows what became of the hand-over: what is begun stays begun, and the next one is a redelivery."""
        delivery.redelivery_count = redelivered(delivery.redelivery_count)
        _say(delivery, cause, detail)
        self.wait(delivery, due_at)

    def wait(self, delivery: Delivery, due_at: datetime) -> None:
        """It waits for its turn."""
        if delivery.state != DeliveryState.WAITING:
            _move(delivery, DeliveryState.WAITING)
        delivery.due_at, delivery.claim = due_at, None
        delivery.worker, delivery.taken_by = 0, ""
        self._changed[delivery.pk] = delivery

    def suspend(self, trigger: Trigger, cause: str, detail: str) -> None:
        """Suspends the trigger, whose row is locked."""
        self.events += triggering.suspend_now(trigger, cause, detail, self.now)

    def leave(self, delivery: Delivery) -> None:
        """Somebody else has written it and goes on with it."""
        self._changed.pop(delivery.pk, None)

    # --- the end ---

    @property
    def troubles(self) -> int:
        """How many incidents `write` will open or add to: it needs the rows of their triggers locked."""
        return len(self._troubles)

    def write(self) -> None:
        """Writes everything so far; the next call writes what came after it."""
        bulk_set(list(self._changed.values()), FIELDS)
        history.release_all(self._released)
        history.complete_all(self._ended, self.now)
        audit.doubted(self._doubts, self.now)
        receipts.owe(self._of_streams, self.now)
        for trouble in self._troubles.values():
            self._open_incident(trouble)
        events.write(self.events)
        gathered = (self._changed, self._released, self._ended, self._doubts, self._troubles, self._of_streams)
        for rows in (*gathered, self.events):
            rows.clear()

    def _open_incident(self, trouble: _Trouble) -> None:
        incident, opened = incidents.incident_open(
            pair=None,
            trigger=trouble.trigger,
            cause=trouble.cause,
            now=self.now,
            detail=trouble.detail,
            message_pk=trouble.message_pk,
        )
        if trouble.occurrences > 1:
            Incident.objects.filter(pk=incident.pk).update(occurrences=F("occurrences") + trouble.occurrences - 1)
        self.events += opened

    def _end(self, trigger: Trigger, delivery: Delivery, state: DeliveryState, *, outcome: str | None) -> None:
        """`outcome`: what the history is told; None: nothing."""
        _move(delivery, state)
        delivery.due_at = None
        if state not in (DeliveryState.COMPLETED, DeliveryState.FAILED):
            delivery.claim = None  # else it stays: a consumer that says it twice is known by it
        delivery.completed_at = self.now
        self._changed[delivery.pk] = delivery
        if delivery.message.tx_sequence_id is not None:
            self._of_streams.add(delivery.message_id)
        if outcome is not None:
            self._ended.append(history.Ended(delivery, trigger, outcome))
        data: dict[str, object] = {"delivery": delivery.public_id, "trigger": trigger.public_id, "name": trigger.name}
        if delivery.document_id:
            data["document_id"] = delivery.document_id
        for name in ("cause", "doubt"):
            if state != DeliveryState.COMPLETED and getattr(delivery, name):
                data[name] = getattr(delivery, name)
        kind = f"delivery.{state.value}"
        self.events.append(events.event(kind, self.now, pair=delivery.pair_id, message=delivery.message, data=data))

    def _trouble(self, trigger: Trigger, delivery: Delivery, cause: str, detail: str) -> None:
        known = self._troubles.get((trigger.pk, cause))
        if known is None:
            self._troubles[trigger.pk, cause] = _Trouble(trigger, cause, detail, delivery.message_id)
        else:
            known.detail, known.message_pk = detail, delivery.message_id
            known.occurrences += 1


def is_new(decision: Decision) -> bool:
    """Whether the service is to be run."""
    return decision.status in (Status.NEW, Status.UNCHECKED)


def _say(delivery: Delivery, cause: str, detail: str) -> None:
    delivery.cause, delivery.cause_detail = cause, detail


def _move(delivery: Delivery, target: DeliveryState) -> None:
    delivery.state = move(delivery.state, target.value).value
    delivery.version += 1


def not_done(
    trigger: Trigger,
    delivery: Delivery,
    outcome: Outcome,
    changes: Changes,
    *,
    claimed: Trigger | None = None,
    in_transaction: bool = False,
) -> None:
    """Does with the delivery what its trigger's settings say. Both rows are locked.

    `claimed`: the trigger as it was when it handed the document over, which says whether its history knows it.
    `in_transaction`: it was handed over in a transaction that is rolled back, so nothing is left of it: one that fails
    is not in the history, and a copy is new. Still it was handed over, and that is counted.
    """
    if in_transaction:
        delivery.redelivery_count = redelivered(delivery.redelivery_count)
    if outcome.misconfigured:
        hold(delivery, trigger, outcome.cause, outcome.detail, changes)
        return
    assert outcome.ran is not None
    following = after(
        outcome.ran,
        retries_used=delivery.retries,
        detect_duplicates=is_checked(claimed or trigger, delivery),
        policy=retry_policy(trigger),
    )
    cause, detail = outcome.cause, outcome.detail
    if following is Next.RETRY:
        delivery.retries += 1
        wait = timedelta(seconds=max(trigger.retry_interval, min(outcome.retry_after or 0, MAX_WAIT)))
        changes.put_back(delivery, changes.now + wait, cause, detail)
    elif following is Next.REDELIVER:
        # A resolver may say NEW each time: what follows from it counts and waits like a retry.
        wait = timedelta(seconds=trigger.retry_interval if trigger.resolver != Consult.NONE else 0)
        delivery.retries += 1
        changes.lose(delivery, changes.now + wait, cause, detail)
    elif following is Next.SUSPEND:
        hold(delivery, trigger, cause, detail, changes)
    elif outcome.ran is not Ran.TRANSIENT or not changes.forget_unexecuted(delivery, cause, detail):
        changes.fail(claimed or trigger, delivery, cause, detail, outcome.reply, rolled_back=in_transaction)
        if following is Next.FAIL_AND_SUSPEND:
            changes.suspend(trigger, cause, detail)


def hold(delivery: Delivery, trigger: Trigger, cause: str, detail: str, changes: Changes) -> None:
    """Nothing happened, and nothing will now: the document keeps its place and gets a new retry budget."""
    delivery.retries = 0
    changes.put_back(delivery, delivery.created_at, cause, detail)
    changes.suspend(trigger, cause, detail)
