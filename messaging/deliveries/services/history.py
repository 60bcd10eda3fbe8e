"""The document history (spec 4, step 2): which documents each trigger has begun with, and which it has processed.

The key is (trigger, sender, document id). What is begun lies in a table of its own and leaves it only to "completed",
by a deliberate release or by a person (protocols I5); what is completed lies in daily partitions, dropped whole. A row
that is still there counts, however old it is: what is remembered longer than promised is on the safe side.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from datetime import date, datetime, timedelta
from typing import NamedTuple

from django.db import connection

from messaging.choices import DeliveryState
from messaging.engine import forgetting
from messaging.models import Delivery, DocumentCompleted, DocumentStarted, Trigger
from messaging.protocol.processing import Entry, Status

SUCCESS, ERROR = "success", "error"


class Key(NamedTuple):
    """What one entry is about. Ids belong to their authenticated sender."""

    trigger_id: uuid.UUID
    sender_id: uuid.UUID
    document_id: str


class Ended(NamedTuple):
    """A document that a trigger has processed. `outcome`: "success", "error" or "operator"."""

    delivery: Delivery
    trigger: Trigger
    outcome: str


def keeps(trigger: Trigger, delivery: Delivery) -> bool:
    """Whether the trigger's history has something to say about the document: it is kept, and there is an id.

    False for a document that was not checked (volatile, or detection is off): it leaves no row.
    """
    kept = trigger.detect_duplicates and trigger.use_history and delivery.document_id != ""
    return kept and delivery.verdict != Status.UNCHECKED


def begin(trigger: Trigger, deliveries: Sequence[Delivery], worker: int, now: datetime) -> dict[uuid.UUID, Entry]:
    """Enters each document as started where the history has nothing, and says what it had, by delivery key.

    ABSENT: it is entered now, for this delivery. Started first and looked for among the completed ones then: a document
    that is completed in between is found in one of the two.
    """
    if not deliveries:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO messaging_documentstarted"
            " (trigger_id, sender_id, document_id, delivery_id, worker, started_at)"
            " SELECT %s, v.sender_id, v.document_id, v.delivery_id, %s, %s"
            " FROM unnest(%s::uuid[], %s::text[], %s::uuid[]) AS v(sender_id, document_id, delivery_id)"
            " ON CONFLICT (trigger_id, sender_id, document_id) DO NOTHING RETURNING delivery_id",
            [trigger.pk, worker, now, *_columns(deliveries)],
        )
        entered = {row[0] for row in cursor.fetchall()}
    fresh = [delivery for delivery in deliveries if delivery.pk in entered]
    completed = _completed(trigger, fresh)
    _drop_started(key_of(delivery) for delivery in fresh if _is_in(completed, delivery))
    return {
        delivery.pk: Entry.STARTED
        if delivery.pk not in entered
        else (Entry.COMPLETED if _is_in(completed, delivery) else Entry.ABSENT)
        for delivery in deliveries
    }


def look(trigger: Trigger, deliveries: Sequence[Delivery]) -> dict[uuid.UUID, Entry]:
    """What the history says of these documents, by delivery key; enters nothing."""
    if not deliveries:
        return {}
    started = set(
        DocumentStarted.objects.filter(
            trigger=trigger, document_id__in=[delivery.document_id for delivery in deliveries]
        ).values_list("sender_id", "document_id")
    )
    completed = _completed(trigger, deliveries)
    return {
        delivery.pk: Entry.STARTED
        if _is_in(started, delivery)
        else (Entry.COMPLETED if _is_in(completed, delivery) else Entry.ABSENT)
        for delivery in deliveries
    }


def begun_by(delivery: Delivery) -> uuid.UUID | None:
    """The delivery that the document is entered as started for; None when it is not."""
    return (
        DocumentStarted.objects.filter(
            trigger=delivery.trigger_id, sender=delivery.sender_id, document_id=delivery.document_id
        )
        .values_list("delivery_id", flat=True)
        .first()
    )


def overtaken(delivery: Delivery) -> bool:
    """Whether another delivery has begun with the document and has it in work, or has processed it, since NEW was said
    of this one: by a person when the resubmission was made, by a resolver that was asked when the hand-over began.
    """
    said_at = delivery.created_at if delivery.resubmission_of_id is not None else delivery.started_at
    same = {"trigger": delivery.trigger_id, "sender": delivery.sender_id, "document_id": delivery.document_id}
    begun = DocumentStarted.objects.filter(**same, started_at__gt=said_at).exclude(delivery_id=delivery.pk)
    holders = begun.values_list("delivery_id", flat=True)
    if Delivery.objects.filter(pk__in=list(holders), state=DeliveryState.RUNNING).exists():
        return True
    ended = DocumentCompleted.objects.filter(**same, completed_at__gt=said_at)
    return ended.exclude(delivery_id=delivery.pk).exclude(outcome=ERROR).exists()


def take_over(trigger: Trigger, delivery: Delivery, worker: int, now: datetime) -> None:
    """Enters the document as started for this delivery, whatever the history has: a resolver or a person said NEW."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO messaging_documentstarted"
            " (trigger_id, sender_id, document_id, delivery_id, worker, started_at) VALUES (%s, %s, %s, %s, %s, %s)"
            " ON CONFLICT (trigger_id, sender_id, document_id) DO UPDATE"
            " SET delivery_id = excluded.delivery_id, worker = excluded.worker, started_at = excluded.started_at",
            [trigger.pk, delivery.sender_id, delivery.document_id, delivery.pk, worker, now],
        )


def complete(delivery: Delivery, trigger: Trigger, outcome: str, now: datetime) -> None:
    """The trigger has processed the document (`outcome`: "success", "error" or "operator"): a copy is a duplicate now.

    Does nothing for documents and triggers that `keeps` says nothing is kept of.
    """
    complete_all([Ended(delivery, trigger, outcome)], now)


def complete_all(ended: Iterable[Ended], now: datetime) -> None:
    """`complete` for many, in two statements."""
    kept = {key_of(one.delivery): one for one in ended if keeps(one.trigger, one.delivery)}
    if not kept:
        return
    days = [forget_on(one.trigger, now) for one in kept.values()]
    forgetting.ensure_days(forgetting.HISTORY, set(days))
    _drop_started(kept)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO messaging_documentcompleted"
            " (trigger_id, sender_id, document_id, delivery_id, outcome, forget_on, completed_at)"
            " SELECT v.*, %s FROM unnest(%s::uuid[], %s::uuid[], %s::text[], %s::uuid[], %s::text[], %s::date[]) AS v"
            " ON CONFLICT (trigger_id, sender_id, document_id, forget_on) DO UPDATE SET"
            " delivery_id = excluded.delivery_id, outcome = excluded.outcome, completed_at = excluded.completed_at",
            [
                now,
                *_transposed(kept),
                [one.delivery.pk for one in kept.values()],
                [one.outcome for one in kept.values()],
                days,
            ],
        )


def release(delivery: Delivery) -> None:
    """The hand-over is taken back on purpose, and the next one is NEW. What another delivery has begun stays."""
    release_all([delivery])


def release_all(deliveries: Iterable[Delivery]) -> None:
    """`release` for many, in one statement."""
    begun = [delivery for delivery in deliveries if delivery.document_id]
    if begun:
        with connection.cursor() as cursor:
            cursor.execute(
                "DELETE FROM messaging_documentstarted s"
                " USING unnest(%s::uuid[], %s::uuid[], %s::text[], %s::uuid[])"
                " AS v(trigger_id, sender_id, document_id, delivery_id)"
                " WHERE s.trigger_id = v.trigger_id AND s.sender_id = v.sender_id AND s.document_id = v.document_id"
                " AND s.delivery_id = v.delivery_id",
                [*_transposed(key_of(delivery) for delivery in begun), [delivery.pk for delivery in begun]],
            )


def forget_on(trigger: Trigger, now: datetime) -> date:
    """Through which UTC day a document that is completed now is kept: at least through tomorrow."""
    return forgetting.day_of(now + max(timedelta(seconds=trigger.history_ttl), timedelta(days=1)))


def key_of(delivery: Delivery) -> Key:
    return Key(delivery.trigger_id, delivery.sender_id, delivery.document_id)


def _completed(trigger: Trigger, deliveries: Sequence[Delivery]) -> set[tuple[uuid.UUID, str]]:
    """(sender, document id) of those that the trigger has processed: one probe of each day's index for each."""
    if not deliveries:
        return set()
    with connection.cursor() as cursor:
        cursor.execute(COMPLETED, [*_columns(deliveries)[:2], trigger.pk])
        return set(cursor.fetchall())


COMPLETED = """
SELECT c.sender_id, c.document_id FROM unnest(%s::uuid[], %s::text[]) AS v(sender_id, document_id)
JOIN messaging_documentcompleted c
ON c.trigger_id = %s AND c.sender_id = v.sender_id AND c.document_id = v.document_id
"""


def _drop_started(keys: Iterable[Key]) -> None:
    wanted = list(keys)
    if wanted:
        with connection.cursor() as cursor:
            cursor.execute(
                "DELETE FROM messaging_documentstarted s USING unnest(%s::uuid[], %s::uuid[], %s::text[])"
                " AS v(trigger_id, sender_id, document_id)"
                " WHERE s.trigger_id = v.trigger_id AND s.sender_id = v.sender_id AND s.document_id = v.document_id",
                _transposed(wanted),
            )


def _transposed(keys: Iterable[Key]) -> list[list[object]]:
    return [list(column) for column in zip(*keys, strict=True)]


def _columns(deliveries: Sequence[Delivery]) -> tuple[list[uuid.UUID], list[str], list[uuid.UUID]]:
    return (
        [delivery.sender_id for delivery in deliveries],
        [delivery.document_id for delivery in deliveries],
        [delivery.pk for delivery in deliveries],
    )


def _is_in(found: set[tuple[uuid.UUID, str]], delivery: Delivery) -> bool:
    return (delivery.sender_id, delivery.document_id) in found
