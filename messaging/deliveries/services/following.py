"""What follows from a hand-over that did not succeed: it is tried again, fails, or its trigger is suspended."""

from __future__ import annotations

from datetime import timedelta

from messaging.choices import Consult
from messaging.deliveries.services.calling import MAX_WAIT
from messaging.deliveries.services.changes import Changes
from messaging.deliveries.services.job import Outcome, is_checked, retry_policy
from messaging.models import Delivery, Trigger
from messaging.protocol.processing import redelivered
from messaging.protocol.service_ends import Next, Ran, after


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
