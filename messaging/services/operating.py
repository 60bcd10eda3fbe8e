"""What people do to pairs and messages. Every action has an actor and a reason and leaves an audit entry."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from django.db import transaction
from django.db.models import F

from messaging import dispatch
from messaging.choices import Direction, IncidentState, MessageState
from messaging.exceptions import InvalidSubmission, NotFound, Stale, WrongState
from messaging.models import Event, Incident, Message, Pair
from messaging.profiles import (
    carries_requests,
    carries_stream,
    carries_transactions,
    is_atomic,
    is_repeatable,
    is_stream,
    request_refusal,
    stream_refusal,
    terms_in_force,
    transaction_refusal,
)
from messaging.protocol.envelope import Semantics
from messaging.protocol.errors import IllegalTransition
from messaging.protocol.messages import Happened, move, move_repeatable
from messaging.protocol.sender import REFUSALS, Act, Flow, Gate, GateVerb, Kind, SenderPolicy, allowed, move_gate, step
from messaging.protocol.sender import Event as PairEvent
from messaging.services import audit, events, incidents, repeating, upstream
from messaging.services.atomic import outgoing
from messaging.services.audit import Actor
from messaging.services.snapshots import REPEATABLE_FIELDS, apply_outbound, outbound_state, sender_policy
from messaging.services.streams import verbs as stream_verbs
from partners import registry
from partners.terms import Terms
from rmhub import clock
from rmhub.ids import public_id

MODES = ("all", "probe")
# What cannot be taken back, and so needs a reason that says something.
_FOREVER = frozenset({Kind.SKIP, Kind.RESTART})


def pair_resume(
    *, pair_id: uuid.UUID, actor: Actor, reason: str, mode: str = "all", expected_version: int | None = None
) -> Pair:
    """2.1.4.3: retry counter to zero, and the uncompleted message again with the same octets.

    `mode` probe: that one first, without retries; its first failure suspends the pair again, its delivery lets the
    others go. Raises WrongState when it is not suspended, Stale when somebody acted since `expected_version`,
    InvalidSubmission for another mode.
    """
    if mode not in MODES:
        raise InvalidSubmission({"mode": ["all, or probe (one message first)."]})
    return _act(pair_id, Kind.RESUME, "pair.resume", actor, reason, expected_version, probing=mode == "probe")


def pair_retry_now(*, pair_id: uuid.UUID, actor: Actor, reason: str, expected_version: int | None = None) -> Pair:
    """Uses the next attempt early; the budget is not reset. Raises WrongState, Stale."""
    return _act(pair_id, Kind.RETRY_NOW, "pair.retry_now", actor, reason, expected_version)


def pair_skip_head(*, pair_id: uuid.UUID, actor: Actor, reason: str, expected_version: int | None = None) -> Pair:
    """Gives up the message in flight for good and goes on with the next, numbered from 1 (2.2.2 c; invariant 9).

    Of repeatable requests, the first one in flight that is not on the wire; they have no numbers. Of a stream, the
    first one in flight, which what follows bridges. Raises WrongState when none is in flight or an attempt is on the
    wire, Stale.
    """
    return _act(pair_id, Kind.SKIP, "pair.skip_head", actor, reason, expected_version)


def pair_restart_sequence(
    *, pair_id: uuid.UUID, actor: Actor, reason: str, expected_version: int | None = None
) -> Pair:
    """Forgets the sender's numbers: the next message, or the one that was refused, goes out as number 1 (2.2.2 c).

    A stream gets a new id, under which all that is not acknowledged is numbered anew.
    """
    return _act(pair_id, Kind.RESTART, "pair.restart_sequence", actor, reason, expected_version)


def pair_pause(*, pair_id: uuid.UUID, actor: Actor, reason: str, expected_version: int | None = None) -> Pair:
    """Holds the pair: it takes submissions and answers, and transmits nothing until it is released."""
    return _move_gate(pair_id, GateVerb.PAUSE, "pair.pause", "pair.paused", actor, reason, expected_version)


def pair_release(*, pair_id: uuid.UUID, actor: Actor, reason: str, expected_version: int | None = None) -> Pair:
    """Ends a pause; what is due goes out at once."""
    return _move_gate(pair_id, GateVerb.RELEASE, "pair.release", "pair.released", actor, reason, expected_version)


def pair_expect_sequence(
    *, pair_id: uuid.UUID, expected: int, actor: Actor, reason: str, expected_version: int | None = None
) -> Pair:
    """Inbound: sets the number that is taken as next, after our state or the partner's was lost (wire-ebxml 1.6)."""
    audit.require_reason(reason)
    if not 1 <= expected <= 999_999_999:
        raise InvalidSubmission({"expected": ["A number from 1 to 999999999."]})
    with transaction.atomic():
        pair = _locked(pair_id, expected_version)
        if pair.direction != Direction.IN:
            raise WrongState("Only an inbound pair expects numbers; restart the sequence instead.", state=pair.flow)
        terms = terms_in_force(pair)
        if carries_requests(pair, terms):
            raise WrongState("Requests of this pair have no sequence numbers, so none is expected.", state=pair.flow)
        if carries_transactions(pair, terms):
            raise WrongState("Messages of transactions have no sequence numbers, so none is expected.", state=pair.flow)
        if carries_stream(pair, terms):
            raise WrongState(
                "A stream has numbers for each of its senders: have the partner begin a new stream.", state=pair.flow
            )
        now = clock.now()
        before: dict[str, object] = {"last_sequence": pair.last_sequence}
        pair.last_sequence = expected - 1
        pair.last_message_id = ""
        pair.version += 1
        pair.save(update_fields=["last_sequence", "last_message_id", "version"])
        after: dict[str, object] = {"last_sequence": pair.last_sequence}
        audit.record(actor, "pair.expect_sequence", pair, reason=reason, before=before, after=after)
        events.write(incidents.incidents_resolve_for_pair(pair=pair, now=now, by=actor.name, resolution=reason))
    return pair


def message_cancel(*, message_id: uuid.UUID, actor: Actor, reason: str) -> Message:
    """Takes back an outbound message: one that waits simply leaves the queue, one in flight is skipped.

    Raises WrongState when it is on the wire or done, InvalidSubmission for a reason that says nothing.
    """
    audit.require_reason(reason, at_least=audit.HEAVY_REASON)
    with transaction.atomic():
        known = Message.objects.filter(pk=message_id, direction=Direction.OUT).defer("wire_frame").first()
        if known is None:
            raise NotFound(f"There is no outbound message {public_id('msg', message_id)}.")
        if is_atomic(registry.current().version(known.agreement_version_id)):
            return _cancel_of_transaction(message_id, actor, reason)
        pair = Pair.objects.select_for_update().get(pk=known.pair_id)
        message = Message.objects.select_for_update().filter(pk=message_id).first()
        if message is None:  # finished long ago, and purged in this very moment
            raise NotFound(f"There is no outbound message {public_id('msg', message_id)}.")
        if pair.in_flight_id == message.pk:
            _skip_in_flight(pair, message, Happened.CANCELLED, "message.cancel", actor, reason)
            return message
        now = clock.now()
        terms = registry.current().version(message.agreement_version_id)
        if is_repeatable(terms):
            _cancel_request(pair, message, terms, actor, reason)
            return message
        if is_stream(terms):
            _cancel_in_stream(pair, message, terms, actor, reason)
            return message
        before: dict[str, object] = {"state": message.state}
        reliable = message.semantics == Semantics.ONCE_AND_ONLY_ONCE
        try:
            message.state = move(message.state, Happened.CANCELLED, reliable=reliable)
        except IllegalTransition as error:
            raise WrongState(str(error), state=message.state) from error
        message.due_at, message.completed_at = None, now
        message.save(update_fields=["state", "due_at", "completed_at"])
        upstream.onward_ended([(message.forwarded_from_id, message.state)], now)
        if reliable:
            Pair.objects.filter(pk=pair.pk).update(queued=F("queued") - 1)
        audit.record(actor, "message.cancel", message, reason=reason, before=before, after={"state": message.state})
        events.write([events.event("message.cancelled", now, pair=pair, message=message, data={"reason": reason})])
    return message


def _act(
    pair_id: uuid.UUID,
    kind: Kind,
    verb: str,
    actor: Actor,
    reason: str,
    expected_version: int | None,
    *,
    probing: bool = False,
) -> Pair:
    audit.require_reason(reason, at_least=audit.HEAVY_REASON if kind in _FOREVER else audit.MIN_REASON)
    with transaction.atomic():
        pair = _locked(pair_id, expected_version)
        _require_outbound(pair)
        if kind is Kind.RESUME and pair.flow == Flow.SUSPENDED:
            pair.probing = probing
        if carries_requests(pair, terms_in_force(pair)):
            _act_on_requests(pair, kind, verb, actor, reason)
            return pair
        terms = terms_in_force(pair)
        if carries_transactions(pair, terms):
            _act_on_transactions(pair, kind, verb, actor, reason)
            return pair
        if terms is not None and carries_stream(pair, terms):
            _act_on_stream(pair, kind, verb, terms, actor, reason)
            return pair
        message = Message.objects.select_for_update().get(pk=pair.in_flight_id) if pair.in_flight_id else None
        if kind is Kind.SKIP and message is not None:
            _skip_in_flight(pair, message, Happened.SKIPPED, verb, actor, reason)
            return pair
        now = clock.now()
        before = _described(pair)
        acts = _step(pair, kind, message, now)
        written: list[Event] = []
        if message is not None:
            if Act.REQUEUE in acts:
                _requeue(message)
            elif kind is Kind.RESUME and message.state == MessageState.FAILED:
                message.state = move(message.state, Happened.RESUMED, reliable=True)
                message.save(update_fields=["state"])
            elif kind is Kind.RETRY_NOW:
                message.state = move(message.state, Happened.WILL_RETRY, reliable=True)
                message.save(update_fields=["state"])
        if before["flow"] == Flow.SUSPENDED and pair.flow != Flow.SUSPENDED:
            written += _released(pair, now, actor, reason)
        _save(pair, verb, actor, reason, before, written)
    return pair


def _act_on_requests(pair: Pair, kind: Kind, verb: str, actor: Actor, reason: str) -> None:
    """The verbs where messages time themselves. Call with the pair locked."""
    if (why := request_refusal(pair, kind)) is not None:
        raise WrongState(why, state=pair.flow, allowed=allowed_verbs(pair))
    now = clock.now()
    before = _described(pair)
    written: list[Event] = []
    if kind is Kind.SKIP:
        found = Message.objects.filter(pair=pair, state=MessageState.RETRYING).order_by("position")
        message = found.select_for_update().first()
        if message is None:
            raise WrongState(REFUSALS[(Flow.SENDING, Kind.SKIP)], state=pair.flow, allowed=allowed_verbs(pair))
        written.append(_drop_request(pair, message, Happened.SKIPPED, reason, now))
        before["message"] = message.public_id
        pair.version += 1
        if pair.probing:
            repeating.let_go(pair, now)
    elif kind is Kind.RETRY_NOW:
        repeating.let_go(pair, now)
        pair.version += 1
    else:
        _step(pair, kind, None, now)
        repeating.let_go(pair, now)
        written += _released(pair, now, actor, reason)
    terms = terms_in_force(pair)
    if terms is not None:
        repeating.set_timer(pair, terms, now)
    _save(pair, verb, actor, reason, before, written)
    dispatch.wake_on_commit(dispatch.SEND)


def _act_on_stream(pair: Pair, kind: Kind, verb: str, terms: Terms, actor: Actor, reason: str) -> None:
    """The verbs where a stream goes out. Call with the pair locked."""
    if (why := stream_refusal(pair, kind)) is not None:
        raise WrongState(why, state=pair.flow, allowed=allowed_verbs(pair))
    now = clock.now()
    before = _described(pair)
    try:
        written, skipped = stream_verbs.act(pair, kind, terms, reason, now)
    except IllegalTransition as error:
        raise WrongState(str(error), state=pair.flow, allowed=allowed_verbs(pair)) from error
    if skipped:
        before["message_id"] = skipped
    if before["flow"] == Flow.SUSPENDED and pair.flow != Flow.SUSPENDED:
        written += _released(pair, now, actor, reason)
    else:
        pair.version += 1
    _save(pair, verb, actor, reason, before, written)
    dispatch.wake_on_commit(dispatch.SEND)


def _cancel_in_stream(pair: Pair, message: Message, terms: Terms, actor: Actor, reason: str) -> None:
    """Call with pair and message locked."""
    before: dict[str, object] = {"state": message.state}
    try:
        written = stream_verbs.cancel(pair, message, terms, reason, clock.now())
    except IllegalTransition as error:
        raise WrongState(str(error), state=message.state) from error
    dispatch.wake_on_commit(dispatch.SEND)
    audit.record(actor, "message.cancel", message, reason=reason, before=before, after={"state": message.state})
    events.write(written)


def _cancel_of_transaction(message_id: uuid.UUID, actor: Actor, reason: str) -> Message:
    """The message's lock alone: those who answer it hold it before they look at its pair."""
    found = Message.objects.select_for_update(of=("self",)).defer("wire_frame").select_related("pair")
    message = found.filter(pk=message_id).first()
    if message is None:
        raise NotFound(f"There is no outbound message {public_id('msg', message_id)}.")
    now = clock.now()
    before: dict[str, object] = {"state": message.state}
    try:
        written = outgoing.cancel(message, now)
    except IllegalTransition as error:
        raise WrongState(str(error), state=message.state) from error
    audit.record(actor, "message.cancel", message, reason=reason, before=before, after={"state": message.state})
    cancelled = events.event("message.cancelled", now, pair=message.pair, message=message, data={"reason": reason})
    events.write([cancelled, *written])
    return message


def _act_on_transactions(pair: Pair, kind: Kind, verb: str, actor: Actor, reason: str) -> None:
    """The verbs where messages of atomic transactions go out. Call with the pair locked."""
    if (why := transaction_refusal(pair, kind)) is not None:
        raise WrongState(why, state=pair.flow, allowed=allowed_verbs(pair))
    now = clock.now()
    before = _described(pair)
    written: list[Event] = []
    if kind is Kind.RESUME:
        _step(pair, kind, None, now)
        written += _released(pair, now, actor, reason)
    elif not outgoing.let_go(pair, now):
        raise WrongState("Nothing waits on this pair: all its messages are answered, or on the wire.", state=pair.flow)
    else:
        pair.version += 1
    _save(pair, verb, actor, reason, before, written)


def _drop_request(pair: Pair, message: Message, happened: Happened, reason: str, now: datetime) -> Event:
    """Ends a request that waits or is between two repeats. Call with both locked; the caller saves the pair."""
    waits = message.state == MessageState.QUEUED
    try:
        message.state = move_repeatable(message.state, happened)
    except IllegalTransition as error:
        raise WrongState(str(error), state=message.state) from error
    message.due_at, message.completed_at = None, now
    message.save(update_fields=["state", "due_at", "completed_at"])
    upstream.onward_ended([(message.forwarded_from_id, message.state)], now)
    if waits:
        pair.queued -= 1
    else:
        pair.out_now -= 1
    kind = "message.skipped" if happened is Happened.SKIPPED else "message.cancelled"
    return events.event(kind, now, pair=pair, message=message, data={"reason": reason})


def _cancel_request(pair: Pair, message: Message, terms: Terms, actor: Actor, reason: str) -> None:
    """Call with pair and message locked."""
    now = clock.now()
    before: dict[str, object] = {"state": message.state}
    cancelled = _drop_request(pair, message, Happened.CANCELLED, reason, now)
    if pair.probing:
        repeating.let_go(pair, now)
    repeating.set_timer(pair, terms, now)
    pair.save(update_fields=list(REPEATABLE_FIELDS))
    dispatch.wake_on_commit(dispatch.SEND)
    audit.record(actor, "message.cancel", message, reason=reason, before=before, after={"state": message.state})
    events.write([cancelled])


def _skip_in_flight(pair: Pair, message: Message, happened: Happened, verb: str, actor: Actor, reason: str) -> None:
    """Call with pair and message locked. The sequence restarts at 1, for nobody knows whether the number was taken."""
    now = clock.now()
    before = _described(pair)
    was_suspended = pair.flow == Flow.SUSPENDED
    _step(pair, Kind.SKIP, message, now)
    message.state = move(message.state, happened, reliable=True)
    message.completed_at = now
    message.save(update_fields=["state", "completed_at"])
    upstream.onward_ended([(message.forwarded_from_id, message.state)], now)
    kind = "message.skipped" if happened is Happened.SKIPPED else "message.cancelled"
    written = [events.event(kind, now, pair=pair, message=message, data={"reason": reason})]
    if was_suspended:
        written += _released(pair, now, actor, reason)
    _save(pair, verb, actor, reason, {**before, "message": message.public_id}, written)


def _requeue(message: Message) -> None:
    """Back to the head of the queue without number and octets: the partner refused the number that it had."""
    message.state = move(message.state, Happened.REQUEUED, reliable=True)
    message.sequence_number = None
    message.wire_frame = None
    message.content_type = message.digest = ""
    message.attempts = 0
    message.save(update_fields=["state", "sequence_number", "wire_frame", "content_type", "digest", "attempts"])


def _step(pair: Pair, kind: Kind, message: Message | None, now: datetime) -> tuple[Act, ...]:
    policy = _policy(pair, message)
    try:
        result = step(outbound_state(pair), PairEvent(kind), now, policy)
    except IllegalTransition as error:
        raise WrongState(str(error), state=pair.flow, allowed=allowed_verbs(pair)) from error
    apply_outbound(pair, replace(result.state, cause="" if kind is not Kind.RETRY_NOW else result.state.cause), now)
    pair.transmission_id = None
    pair.version += 1
    if Act.WAKE in result.acts:
        dispatch.wake_on_commit(dispatch.SEND)
    return result.acts


def _policy(pair: Pair, message: Message | None) -> SenderPolicy:
    if message is not None:
        return sender_policy(registry.current().version(message.agreement_version_id))
    terms = registry.current().by_uri_pair(pair.receiver_uri, pair.sender_uri)
    if not terms:
        raise WrongState("No agreement in force uses this pair.", state=pair.flow, code="agreement_missing")
    return sender_policy(terms[0])


def _move_gate(
    pair_id: uuid.UUID,
    gate_verb: GateVerb,
    verb: str,
    kind: str,
    actor: Actor,
    reason: str,
    expected_version: int | None,
) -> Pair:
    audit.require_reason(reason)
    with transaction.atomic():
        pair = _locked(pair_id, expected_version)
        _require_outbound(pair)
        before = _described(pair)
        now = clock.now()
        try:
            gate = move_gate(Gate(pair.gate), gate_verb)
        except IllegalTransition as error:
            raise WrongState(str(error), state=pair.gate, allowed=allowed_verbs(pair)) from error
        apply_outbound(pair, replace(outbound_state(pair), gate=gate), now)
        if gate is Gate.OPEN and carries_transactions(pair, terms_in_force(pair)):
            outgoing.let_go(pair, now)
        elif gate is Gate.OPEN:
            Message.objects.filter(pair=pair, state=MessageState.QUEUED, due_at__isnull=False).update(due_at=now)
            if pair.out_now and carries_requests(pair, terms_in_force(pair)):
                repeating.let_go(pair, now)
            dispatch.wake_on_commit(dispatch.SEND)
        _save(
            pair,
            verb,
            actor,
            reason,
            before,
            [events.event(kind, now, pair=pair, data={"reason": reason, "actor": actor.name})],
        )
    return pair


def _released(pair: Pair, now: datetime, actor: Actor, reason: str) -> list[Event]:
    causes = None
    if Message.objects.filter(pair=pair, state=MessageState.IN_DOUBT).exists():
        # Resuming says nothing about messages in doubt: those are settled one by one, or in bulk.
        unresolved = Incident.objects.filter(pair=pair).exclude(state=IncidentState.RESOLVED)
        causes = set(unresolved.values_list("cause", flat=True)) - set(repeating.DOUBTS)
    resolved = incidents.incidents_resolve_for_pair(pair=pair, now=now, by=actor.name, resolution=reason, causes=causes)
    data = {"reason": reason, "actor": actor.name, **({"mode": "probe"} if pair.probing else {})}
    return [events.event("pair.resumed", now, pair=pair, data=data), *resolved]


def _save(pair: Pair, verb: str, actor: Actor, reason: str, before: dict[str, object], written: list[Event]) -> None:
    pair.save(update_fields=list(REPEATABLE_FIELDS))
    after = _described(pair)
    if verb == "pair.resume":
        after["mode"] = "probe" if pair.probing else "all"
    audit.record(actor, verb, pair, reason=reason, before=before, after=after)
    events.write(written)


def _locked(pair_id: uuid.UUID, expected_version: int | None) -> Pair:
    pair = Pair.objects.select_for_update().filter(pk=pair_id).first()
    if pair is None:
        raise NotFound(f"There is no pair {public_id('pair', pair_id)}.")
    if expected_version is not None and pair.version != expected_version:
        raise Stale(
            f"{pair.code} changed since you looked at it; it is {pair.flow} now. Look again before you act.",
            version=pair.version,
        )
    return pair


def _require_outbound(pair: Pair) -> None:
    if pair.direction != Direction.OUT:
        raise WrongState("The partner drives an inbound pair; there is nothing to send on it.", state=pair.flow)


def _described(pair: Pair) -> dict[str, object]:
    found: dict[str, object] = {
        "flow": pair.flow,
        "gate": pair.gate,
        "cause": pair.cause,
        "in_flight": public_id("msg", pair.in_flight_id) if pair.in_flight_id else None,
        "retries": pair.retries,
        "last_sequence": pair.last_sequence,
        "queued": pair.queued,
    }
    if pair.in_flight_id is None and (pair.out_now or carries_requests(pair, terms_in_force(pair))):
        found["out_now"] = pair.out_now
    return found


VERBS: dict[str, Callable[..., Pair]] = {
    "resume": pair_resume,
    "retry-now": pair_retry_now,
    "skip-head": pair_skip_head,
    "restart-sequence": pair_restart_sequence,
    "pause": pair_pause,
    "release": pair_release,
}


_VERB_KINDS: dict[Kind, str] = {
    Kind.RESUME: "resume",
    Kind.RETRY_NOW: "retry-now",
    Kind.SKIP: "skip-head",
    Kind.RESTART: "restart-sequence",
}


def allowed_verbs(pair: Pair) -> tuple[str, ...]:
    """Which of `VERBS` the pair's state takes right now (for screens and for `allowed_actions` of problems)."""
    terms = terms_in_force(pair)
    if pair.direction != Direction.OUT:
        numbered = not any(carries(pair, terms) for carries in (carries_requests, carries_stream, carries_transactions))
        return ("expect-sequence",) if numbered else ()
    if carries_transactions(pair, terms):
        kinds = frozenset(kind for kind in Kind if kind in _VERB_KINDS and transaction_refusal(pair, kind) is None)
    elif carries_stream(pair, terms):
        kinds = frozenset(kind for kind in Kind if kind in _VERB_KINDS and stream_refusal(pair, kind) is None)
    elif carries_requests(pair, terms):
        kinds = frozenset(kind for kind in Kind if kind in _VERB_KINDS and request_refusal(pair, kind) is None)
    else:
        kinds = allowed(Flow(pair.flow))
        if not pair.in_flight_id:
            kinds -= {Kind.SKIP}
    found = [slug for kind, slug in _VERB_KINDS.items() if kind in kinds]
    if pair.gate == Gate.OPEN:
        found.append("pause")
    if pair.gate == Gate.PAUSED:
        found.append("release")
    return tuple(found)
