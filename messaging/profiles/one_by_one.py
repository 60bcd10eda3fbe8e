"""Profiles whose messages are in flight one by one: several of a pair at once, each with its own timer and its own end.

What becomes of their rows is `repeatable.repeating`'s; here is what people do with them.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime

from django.utils.translation import gettext as _

from messaging import dispatch
from messaging.choices import MessageState
from messaging.claim import Claim
from messaging.engine.snapshots import REPEATABLE_FIELDS
from messaging.exceptions import WrongState
from messaging.journal import events
from messaging.models import Event, Message, Pair
from messaging.profile import Acted, Profile, of
from messaging.profiles.refusals import refused
from messaging.profiles.repeatable import repeating
from messaging.profiles.repeatable.repeating import FirstSend, Goes
from messaging.protocol.errors import IllegalTransition
from messaging.protocol.messages import Happened
from messaging.protocol.pair_state import Flow, Kind
from messaging.routing.services import upstream
from partners import registry
from partners.terms import Terms


class OneByOne(Profile):
    one_by_one = True
    verbs = Profile.verbs - {Kind.RESTART}  # there are no numbers of a pair
    first_send: FirstSend
    # Why a pair has no sequence that could be restarted.
    no_restart = ""

    def enqueue(self, message: Message, pair: Pair, terms: Terms, now: datetime) -> None:
        repeating.enqueue(pair, terms, now)

    def let_go(self, pair: Pair, now: datetime) -> None:
        if pair.out_now:
            repeating.let_go(pair, now, Goes.HELD)

    def moves(self, message: Message) -> bool:
        return True

    def promote(self, pairs: Sequence[Pair], heads: dict[uuid.UUID, Message], claim: Claim) -> list[Pair]:
        versions = registry.current()
        mine = {
            pair_id: heads.pop(pair_id)
            for pair_id, head in list(heads.items())
            if of(versions.version(head.agreement_version_id)) is self and self.moves(head)
        }
        if mine:
            repeating.promote([pair for pair in pairs if pair.pk in mine], mine, claim, self.first_send)
        return [pair for pair in pairs if pair.pk not in mine]

    def refusal(self, pair: Pair, kind: Kind) -> str | None:
        if kind is Kind.RESTART:
            return self.no_restart
        if kind is Kind.RESUME:
            return None if pair.flow == Flow.SUSPENDED else refused(Flow.IDLE, kind)
        if kind is Kind.RETRY_NOW and pair.flow == Flow.SUSPENDED:
            return refused(Flow.SUSPENDED, kind)
        return None if pair.out_now else refused(Flow.IDLE, kind)

    def act(self, pair: Pair, kind: Kind, terms: Terms | None, reason: str, now: datetime) -> Acted:
        done = Acted()
        if kind is Kind.SKIP:
            # Not what is on the wire.
            waiting = (MessageState.RETRYING, MessageState.AWAITING_ACK)
            found = Message.objects.filter(pair=pair, state__in=waiting).order_by("position")
            message = found.select_for_update().first()
            if message is None:
                raise IllegalTransition(pair.flow, kind, refused(Flow.SENDING, Kind.SKIP))
            # Where no agreement is in force, its profile may be another one than this. A stream needs its terms.
            speaks = of(registry.current().version(message.agreement_version_id))
            if not isinstance(speaks, OneByOne):
                said = _("No agreement in force uses this pair.")
                raise WrongState(said, state=pair.flow, code="agreement_missing")
            done.events += speaks.drop(pair, message, Happened.SKIPPED, reason, now)
            done.named["message"] = message.public_id
        if kind is not Kind.SKIP or pair.probing:
            repeating.let_go(pair, now, Goes.ANEW if kind is Kind.RESUME else Goes.NOW)
        if terms is not None:
            repeating.set_timer(pair, terms, now)
        return done

    def cancel(self, pair: Pair, message: Message, terms: Terms, reason: str, now: datetime) -> list[Event]:
        cancelled = self.drop(pair, message, Happened.CANCELLED, reason, now)
        if pair.probing:
            repeating.let_go(pair, now, Goes.NOW)
        repeating.set_timer(pair, terms, now)
        pair.save(update_fields=list(REPEATABLE_FIELDS))
        dispatch.wake_on_commit(dispatch.SEND)
        return cancelled

    def drop(self, pair: Pair, message: Message, happened: Happened, reason: str, now: datetime) -> list[Event]:
        """Ends a message that waits or is between two attempts. Call with both locked; the caller saves the pair."""
        waits = message.state == MessageState.QUEUED
        message.state = repeating.moved(message, happened)
        message.due_at, message.completed_at = None, now
        message.save(update_fields=["state", "due_at", "completed_at"])
        upstream.onward_ended([(message.forwarded_from_id, message.state)], now)
        written: list[Event] = []
        if not waits:
            pair.out_now -= 1
            if not pair.out_now:
                written = repeating.over(pair, "Nothing is on its way any more.", now)
        elif self.moves(message):  # what is sent once waits beside the queue
            pair.queued -= 1
        kind = "message.skipped" if happened is Happened.SKIPPED else "message.cancelled"
        return [events.event(kind, now, pair=pair, message=message, data={"reason": reason}), *written]
