"""Repeatable requests as the rest of the hub sees them: several in flight, each with its answer (spec 2)."""

from __future__ import annotations

import uuid
from datetime import datetime

from messaging import dispatch
from messaging.choices import MessageState
from messaging.engine.snapshots import REPEATABLE_FIELDS
from messaging.journal import events
from messaging.models import Event, Message, Pair
from messaging.profile import Acted, Errors, Profile
from messaging.profiles.repeatable import repeating
from messaging.profiles.repeatable.bench import RepeatableBench
from messaging.protocol.codecs import repeatable
from messaging.protocol.envelope import Semantics
from messaging.protocol.errors import IllegalTransition
from messaging.protocol.messages import REPEATABLE, REPEATABLE_FINAL, Happened, cancellable, move_repeatable
from messaging.protocol.pair_state import Flow, Kind
from messaging.protocol.sender import REFUSALS
from messaging.routing.services import upstream
from partners.terms import Terms


class RepeatableProfile(Profile):
    answered_at_once = True
    bench = RepeatableBench()
    verbs = Profile.verbs - {Kind.RESTART}  # there are no numbers
    without_number = "Requests of this pair have no sequence numbers, so none is expected."

    def enqueue(self, message: Message, pair: Pair, terms: Terms, now: datetime) -> None:
        repeating.enqueue(pair, terms, now)

    def let_go(self, pair: Pair, now: datetime) -> None:
        if pair.out_now:
            repeating.let_go(pair, now)

    def refusal(self, pair: Pair, kind: Kind) -> str | None:
        if kind is Kind.RESTART:
            return "Requests of this pair have no sequence numbers, so there is nothing to restart."
        if kind is Kind.RESUME:
            return None if pair.flow == Flow.SUSPENDED else REFUSALS[(Flow.IDLE, kind)]
        if kind is Kind.RETRY_NOW and pair.flow == Flow.SUSPENDED:
            return REFUSALS[(Flow.SUSPENDED, kind)]
        return None if pair.out_now else REFUSALS[(Flow.IDLE, kind)]

    def act(self, pair: Pair, kind: Kind, terms: Terms | None, reason: str, now: datetime) -> Acted:
        done = Acted()
        if kind is Kind.SKIP:
            found = Message.objects.filter(pair=pair, state=MessageState.RETRYING).order_by("position")
            message = found.select_for_update().first()
            if message is None:
                raise IllegalTransition(pair.flow, kind, REFUSALS[(Flow.SENDING, Kind.SKIP)])
            done.events.append(_drop(pair, message, Happened.SKIPPED, reason, now))
            done.named["message"] = message.public_id
        if kind is not Kind.SKIP or pair.probing:
            repeating.let_go(pair, now)
        if terms is not None:
            repeating.set_timer(pair, terms, now)
        return done

    def cancel(self, pair: Pair, message: Message, terms: Terms, reason: str, now: datetime) -> list[Event]:
        cancelled = _drop(pair, message, Happened.CANCELLED, reason, now)
        if pair.probing:
            repeating.let_go(pair, now)
        repeating.set_timer(pair, terms, now)
        pair.save(update_fields=list(REPEATABLE_FIELDS))
        dispatch.wake_on_commit(dispatch.SEND)
        return [cancelled]

    def check_submission(
        self, errors: Errors, terms: Terms, *, payloads: int, semantics: str, message_id: str, time_to_live: int | None
    ) -> None:
        if payloads > 1:
            errors.setdefault("payloads", []).append(
                "A message of this agreement's profile is one HTTP request and has exactly one payload: "
                "submit one message for each document."
            )
        if len(message_id) > repeatable.MAX_ID:
            errors.setdefault("message_id", []).append(f"At most {repeatable.MAX_ID} characters under this agreement.")
        if semantics and semantics != Semantics.ONCE_AND_ONLY_ONCE:
            errors.setdefault("semantics", []).append(
                f"Requests of this agreement's profile are remembered: leave it out, or say "
                f"{Semantics.ONCE_AND_ONLY_ONCE}."
            )
        super().check_submission(
            errors, terms, payloads=payloads, semantics=semantics, message_id=message_id, time_to_live=time_to_live
        )

    def message_id(self, given: str, key: uuid.UUID) -> str:
        """Receivers of this profile compare UUIDs without regard to case."""
        return repeatable.canonical_id(given) if given else str(key)

    def final_states(self, semantics: str) -> frozenset[str]:
        return frozenset(REPEATABLE_FINAL)

    def cancellable_states(self, semantics: str) -> frozenset[str]:
        return cancellable(REPEATABLE)


def _drop(pair: Pair, message: Message, happened: Happened, reason: str, now: datetime) -> Event:
    """Ends a request that waits or is between two repeats. Call with both locked; the caller saves the pair."""
    waits = message.state == MessageState.QUEUED
    message.state = move_repeatable(message.state, happened)
    message.due_at, message.completed_at = None, now
    message.save(update_fields=["state", "due_at", "completed_at"])
    upstream.onward_ended([(message.forwarded_from_id, message.state)], now)
    if waits:
        pair.queued -= 1
    else:
        pair.out_now -= 1
    kind = "message.skipped" if happened is Happened.SKIPPED else "message.cancelled"
    return events.event(kind, now, pair=pair, message=message, data={"reason": reason})


PROFILE = RepeatableProfile()
