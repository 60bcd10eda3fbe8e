"""What people do to a message: cancel it, and how one leaves its pair, or goes back into the queue."""

from __future__ import annotations

import uuid

from django.db import transaction
from django.utils.translation import gettext as _

from messaging import profile
from messaging.choices import Direction, MessageState
from messaging.exceptions import NotFound, Stale, UnderWay, WrongState
from messaging.journal import audit, events
from messaging.journal.audit import Actor
from messaging.models import Message, Pair
from messaging.models.base import existing
from messaging.pairs.services.changing import described, released, save, take_step
from messaging.protocol.errors import IllegalTransition
from messaging.protocol.messages import Happened, move
from messaging.protocol.pair_state import Flow, Kind
from messaging.routing.services import upstream
from partners import registry
from rmhub import clock
from rmhub.ids import public_id
from rmhub.language import gettext_lazy

_NOT_NOW = {
    MessageState.IN_DOUBT: gettext_lazy("It is in doubt: find out whether the partner has it, then settle it."),
    MessageState.CONFIRMING: gettext_lazy("The partner's queue has it; its application is to say whether it took it."),
    MessageState.SENDING: gettext_lazy("It is on the wire; wait for its outcome."),
}


def waits(message: Message) -> bool:
    """Whether cancelling it takes it out of its queue, and that is all. Reads the message's pair."""
    return message.state == MessageState.QUEUED and message.pair.in_flight_id != message.pk


def message_cancel(
    *,
    message_id: uuid.UUID,
    actor: Actor,
    reason: str,
    only_waiting: bool = False,
    expected_version: int | None = None,
) -> Message:
    """Takes back an outbound message: one that waits simply leaves the queue, one in flight is skipped.

    `only_waiting`: nobody has agreed to give up one that the partner may have. `expected_version`: that of the pair
    which the caller saw. Raises WrongState when it is on the wire or done, UnderWay when only one that waits was meant,
    Stale for another version, InvalidSubmission for a reason that says nothing.
    """
    audit.require_reason(reason, at_least=audit.HEAVY_REASON)
    with transaction.atomic():
        known = Message.objects.filter(pk=message_id, direction=Direction.OUT).defer("wire_frame").first()
        if known is None:
            raise NotFound(_("There is no outbound message {message}.").format(message=public_id("msg", message_id)))
        terms = registry.current().version(known.agreement_version_id)
        speaks = profile.of(terms)
        # Of a transaction, the message's lock alone: those who answer it hold it before they look at its pair.
        locks_pair = speaks.carries_documents
        pair = Pair.objects.select_for_update().get(pk=known.pair_id) if locks_pair else known.pair
        # It may be finished long ago, and purged in this very moment.
        message = existing(Message.objects.select_for_update(), message_id)
        message.pair = pair
        if expected_version is not None and pair.version != expected_version:
            said = _("{pair} changed since you looked at it. Look again before you act.").format(pair=pair.code)
            raise Stale(said, version=pair.version)
        waited, state = waits(message), message.state
        if locks_pair and pair.in_flight_id == message.pk:
            skip_in_flight(pair, message, Happened.CANCELLED, "message.cancel", actor, reason)
        else:
            try:
                written = speaks.cancel(pair, message, terms, reason, clock.now())
            except IllegalTransition as error:
                raise WrongState(str(error), state=state) from error
            before, after = {"state": state}, {"state": message.state}
            audit.record(actor, "message.cancel", message, reason=reason, before=before, after=after)
            events.write(written)
        if only_waiting and not waited:
            # Asked last: what is on the wire, or done, is told first. Nothing of the above is kept.
            said = _("It does not wait in the queue any more (its state is {state}): the partner may have it.").format(
                state=state
            )
            raise UnderWay(said, state=state, allowed=("cancel",))
    return message


def why_not_cancel(message: Message) -> str:
    """Why a message's state does not take a cancel; "" when it does. Its pair may still refuse it."""
    if message.direction != Direction.OUT:
        return _("It came from the partner.")
    possible = message.state in profile.of_message(message).cancellable_states(message.semantics)
    return "" if possible else _NOT_NOW.get(MessageState(message.state), _("It is done."))


def skip_in_flight(pair: Pair, message: Message, happened: Happened, verb: str, actor: Actor, reason: str) -> None:
    """Call with pair and message locked. The sequence restarts at 1, for nobody knows whether the number was taken."""
    now = clock.now()
    before = described(pair)
    was_suspended = pair.flow == Flow.SUSPENDED
    take_step(pair, Kind.SKIP, message, now)
    message.state = move(message.state, happened, reliable=True)
    message.completed_at = now
    message.save(update_fields=["state", "completed_at"])
    upstream.onward_ended([(message.forwarded_from_id, message.state)], now)
    kind = "message.skipped" if happened is Happened.SKIPPED else "message.cancelled"
    written = [events.event(kind, now, pair=pair, message=message, data={"reason": reason})]
    if was_suspended:
        written += released(pair, now, actor, reason)
    save(pair, verb, actor, reason, {**before, "message": message.public_id}, written)


def requeue(message: Message) -> None:
    """Back to the head of the queue without number and octets: the partner refused the number that it had."""
    message.state = move(message.state, Happened.REQUEUED, reliable=True)
    message.sequence_number = None
    message.wire_frame = None
    message.content_type = message.digest = ""
    message.attempts = 0
    message.save(update_fields=["state", "sequence_number", "wire_frame", "content_type", "digest", "attempts"])
