"""A document once more: outbound as a new message ("resubmit"), inbound to the triggers that have not had it
("redeliver"). What was done stays done: nothing here changes the message that it begins with.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from django.db import transaction
from django.utils.translation import gettext as _

from messaging import dispatch, profile, storage
from messaging.choices import DeliveryState, Direction, MessageState
from messaging.deliveries.services import settling
from messaging.engine import subscriptions
from messaging.exceptions import WrongState
from messaging.journal import audit
from messaging.journal.audit import Actor
from messaging.messages.services.submitting import Submission, message_submit_again, payload_missing
from messaging.models import Delivery, Message, Trigger
from messaging.models.base import existing
from messaging.models.delivery import OPEN_STATES
from partners import registry
from rmhub import clock
from rmhub.language import gettext_lazy, inside

_NOT_YET = {
    MessageState.QUEUED: gettext_lazy("It waits in the queue and goes out by itself."),
    MessageState.IN_DOUBT: gettext_lazy("It is in doubt: find out whether the partner has it, then settle it."),
    MessageState.FAILED: gettext_lazy("Its pair waits for a decision about it: resume, skip or cancel it first."),
}


@dataclass(frozen=True, slots=True)
class Redelivery:
    """What came of it: the new deliveries, and the triggers that were left out, each with why."""

    made: list[Delivery] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)


def why_not_resubmit(message: Message) -> str:
    """Why a message cannot go out anew; "" when it can. The pair is looked at, so it has to be loaded."""
    if message.direction != Direction.OUT:
        return _("It came from the partner.")
    if not profile.of_message(message).carries_documents:
        return _("It belongs to a transaction and goes out as often as that needs.")
    if message.forwarded_from_id is not None:
        return _("It was passed on for another party, whose message it is: have that party send it again.")
    if message.state in profile.of_message(message).final_states(message.semantics):
        return ""
    return _NOT_YET.get(MessageState(message.state), _("It is not done yet: wait for its outcome."))


def to_resubmit(message_id: uuid.UUID) -> Message:
    """The message whose document goes out again. Raises NotFound, WrongState."""
    found = Message.objects.select_related("pair", "agreement_version__agreement").defer("wire_frame")
    message = existing(found, message_id)
    if why := why_not_resubmit(message):
        said = _("This message cannot be resubmitted. {why}").format(why=why)
        raise WrongState(said, state=message.state, allowed=())
    return message


def message_resubmit(
    *, message_id: uuid.UUID, actor: Actor, reason: str, idempotency_key: str = "", document_id: str = ""
) -> Submission:
    """The documents of an outbound message that is done, as a new message with a new MessageId, behind all that waits.

    It goes under the agreement that is in force now; conversation, RefToMessageId, delivery semantics and document id
    stay, so that a receiver that has processed the document knows it again. Another `document_id` makes it another
    document, which is processed whatever became of the first. The same
    `idempotency_key` of the same actor makes one message only. Raises NotFound, WrongState, InvalidSubmission, and what
    `message_submit` raises.
    """
    audit.require_reason(reason)
    with transaction.atomic():
        message = to_resubmit(message_id)
        submission = message_submit_again(
            message,
            state=message.state,
            submitted_by=actor.name,
            document_id=document_id,
            idempotency_key=idempotency_key,
        )
        if submission.replayed:
            return submission
        made = submission.message
        before: dict[str, object] = {"state": message.state}
        after: dict[str, object] = {"resubmitted_as": made.public_id, "message_id": made.message_id}
        after["document_id"] = made.identifies
        audit.record(actor, "message.resubmit", message, reason=reason, before=before, after=after)
    return submission


def why_not_redeliver(message: Message) -> str:
    """Why a message cannot go to triggers again; "" when there may be some that have not had it."""
    if message.direction != Direction.IN:
        return _("It is ours: resubmit it as a new message.")
    if not profile.of_message(message).carries_documents:
        return _("It belongs to a transaction and carries no document.")
    if Message.objects.filter(forwarded_from=message.pk).exists():
        return _("It was passed on to the next hop, and is not for our applications.")
    return ""


def message_redeliver(*, message_id: uuid.UUID, actor: Actor, reason: str) -> Redelivery:
    """Hands a received message to every trigger that wants it and has not processed it.

    A trigger that has no delivery of it (it was made later, or was disabled) gets one; a failed or doubtful delivery is
    resubmitted. What was processed, or is on its way, is left out: a document is processed once. Raises NotFound,
    InvalidSubmission, WrongState when nothing is left to do.
    """
    audit.require_reason(reason)
    with transaction.atomic():
        found = Message.objects.select_related("agreement_version").defer("wire_frame")
        message = existing(found, message_id)
        if why := why_not_redeliver(message):
            said = _("This message cannot be redelivered. {why}").format(why=why)
            raise WrongState(said, state=message.state, allowed=())
        result = _redeliver(message, actor, reason)
        if not result.made:
            raise WrongState(_nothing_done(result), state=message.state, allowed=())
        after: dict[str, object] = {"deliveries": [delivery.public_id for delivery in result.made]}
        audit.record(actor, "message.redeliver", message, reason=reason, after=after)
        dispatch.wake_on_commit(dispatch.DELIVER)
    return result


def _redeliver(message: Message, actor: Actor, reason: str) -> Redelivery:
    terms = registry.current().version(message.agreement_version_id)
    subscriptions.current.forget()
    try:
        # How a stored message came is not kept.
        made = subscriptions.deliveries_for(message, subscriptions.stored(message), terms, clock.now(), came_by=None)
    except storage.PayloadMissing as error:
        raise payload_missing(message.state) from error
    wanted = {one.trigger_id: one for one in made}
    result = Redelivery()
    known = Delivery.objects.filter(message=message, join__isnull=True)
    trigger_ids = {*wanted, *known.values_list("trigger", flat=True)}
    # Triggers first, like the engine, which takes deliveries under their trigger's lock.
    locked = Trigger.objects.select_for_update(of=("self",), no_key=True).filter(pk__in=trigger_ids).order_by("pk")
    for trigger in locked:
        # The end of its resubmissions, and not the highest id: a clock may have been set back.
        newest = known.filter(trigger=trigger, resubmissions__isnull=True).first()
        if newest is None:
            wanted[trigger.pk].save(force_insert=True)
            result.made.append(wanted[trigger.pk])
        elif newest.state in (DeliveryState.FAILED, DeliveryState.IN_DOUBT):
            try:
                settling.delivery_settle(
                    delivery_id=newest.pk, decision=settling.Decision.RESUBMIT, actor=actor, reason=reason
                )
            except WrongState as error:
                result.left_out.append((trigger.name, error.detail))
            else:
                result.made.append(Delivery.objects.get(resubmission_of=newest))
        else:
            result.left_out.append((trigger.name, _has_it(newest)))
    return result


def _has_it(delivery: Delivery) -> str:
    if delivery.state in OPEN_STATES or delivery.state == DeliveryState.JOINED:
        return _("It is on its way there.")
    return _("The delivery is {state}: a document is processed once.").format(
        state=inside(delivery.get_state_display())
    )


def _nothing_done(result: Redelivery) -> str:
    if not result.left_out:
        return _("No trigger wants this document: create one for it, then redeliver.")
    left_out = " ".join(f"{name}: {why}" for name, why in result.left_out)
    return _("Nothing was redelivered. {left_out}").format(left_out=left_out)
