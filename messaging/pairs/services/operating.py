"""What people do to pairs: resume, retry now, skip, restart the sequence, pause, release, expect a number."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace

from django.db import transaction
from django.utils.translation import gettext as _

from messaging import dispatch, profile
from messaging.choices import Direction, MessageState
from messaging.engine.snapshots import apply_outbound, outbound_state
from messaging.exceptions import InvalidSubmission, WrongState
from messaging.journal import audit, events, incidents
from messaging.journal.audit import Actor
from messaging.messages.services.cancelling import message_cancel, requeue, skip_in_flight, waits
from messaging.models import Message, Pair
from messaging.pairs.selectors.verbs import NOTHING_WAITS, allowed_verbs
from messaging.pairs.services import resync
from messaging.pairs.services.changing import (
    described,
    locked,
    refused,
    released,
    require_outbound,
    save,
    take_step,
)
from messaging.profile import Profile, terms_in_force
from messaging.protocol.errors import IllegalTransition
from messaging.protocol.messages import Happened, move
from messaging.protocol.pair_state import Act, Flow, Gate, GateVerb, Kind, move_gate
from partners.terms import Terms
from rmhub import clock

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
        raise InvalidSubmission({"mode": [_("all, or probe (one message first).")]})
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
        raise InvalidSubmission({"expected": [_("A number from 1 to 999999999.")]})
    with transaction.atomic():
        pair = locked(pair_id, expected_version)
        if pair.direction != Direction.IN:
            raise WrongState(_("Only an inbound pair expects numbers; restart the sequence instead."), state=pair.flow)
        if why := profile.carried(pair, terms_in_force(pair)).without_number:
            raise WrongState(why, state=pair.flow)
        now = clock.now()
        before: dict[str, object] = {"last_sequence": pair.last_sequence}
        pair.last_sequence = expected - 1
        pair.last_message_id = ""
        pair.takes_any_number = False
        pair.version += 1
        pair.save(update_fields=["last_sequence", "last_message_id", "takes_any_number", "version"])
        after: dict[str, object] = {"last_sequence": pair.last_sequence}
        audit.record(actor, "pair.expect_sequence", pair, reason=reason, before=before, after=after)
        events.write(incidents.incidents_resolve_for_pair(pair=pair, now=now, by=actor.name, resolution=reason))
    return pair


def pair_hand_on(*, pair_id: uuid.UUID, actor: Actor, reason: str, expected_version: int | None = None) -> Pair:
    """Inbound: hands on what waits for its turn, without what is missing before it (ebXML Messaging 2.0, 9.1.1).

    Raises WrongState when nothing waits, Stale.
    """
    audit.require_reason(reason, at_least=audit.HEAVY_REASON)
    with transaction.atomic():
        pair = locked(pair_id, expected_version)
        speaks = profile.carried(pair, terms_in_force(pair))
        if not speaks.held(pair):
            raise WrongState(NOTHING_WAITS, state=pair.flow, allowed=allowed_verbs(pair))
        now = clock.now()
        count = speaks.hand_on(pair, now)
        pair.version += 1
        pair.save(update_fields=["version"])
        audit.record(actor, "pair.hand_on", pair, reason=reason, after={"messages": count})
        events.write(
            incidents.incidents_resolve_for_pair(
                pair=pair, now=now, by=actor.name, resolution=reason, causes=("order_gap",)
            )
        )
    return pair


def pair_clear_resync(*, pair_id: uuid.UUID, actor: Actor, reason: str, expected_version: int | None = None) -> Pair:
    """Says that both sides were compared after a loss of memory; `reason` is the evidence.

    Documents that come in are new again unless they are known. Raises WrongState for a pair that needs none, Stale.
    """
    audit.require_reason(reason, at_least=audit.HEAVY_REASON)
    with transaction.atomic():
        pair = locked(pair_id, expected_version)
        if pair.resync_since is None:
            said = _("{pair} does not need resync.").format(pair=pair.code)
            raise WrongState(said, state=pair.flow, allowed=allowed_verbs(pair))
        before = _marked(pair)
        written = resync.clear(pair, by=actor.name, evidence=reason, now=clock.now())
        pair.save(update_fields=list(resync.MARK))
        audit.record(actor, "pair.clear_resync", pair, reason=reason, before=before, after=_marked(pair))
        events.write(written)
    return pair


def _marked(pair: Pair) -> dict[str, object]:
    moments = {"resync_since": pair.resync_since, "resync_from": pair.resync_from}
    return {name: at.isoformat() if at is not None else None for name, at in moments.items()}


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
        pair = locked(pair_id, expected_version)
        require_outbound(pair)
        if kind is Kind.RESUME and pair.flow == Flow.SUSPENDED:
            pair.probing = probing
        terms = terms_in_force(pair)
        speaks = profile.carried(pair, terms)
        if not speaks.numbered:
            _act_on_many(pair, kind, verb, speaks, terms, actor, reason)
            return pair
        message = Message.objects.select_for_update().get(pk=pair.in_flight_id) if pair.in_flight_id else None
        if kind is Kind.SKIP and message is not None:
            skip_in_flight(pair, message, Happened.SKIPPED, verb, actor, reason)
            return pair
        now = clock.now()
        before = described(pair)
        acts = take_step(pair, kind, message, now)
        written = []
        if message is not None:
            if Act.REQUEUE in acts:
                requeue(message)
            elif kind is Kind.RESUME and message.state == MessageState.FAILED:
                message.state = move(message.state, Happened.RESUMED, reliable=True)
                message.save(update_fields=["state"])
            elif kind is Kind.RETRY_NOW:
                message.state = move(message.state, Happened.WILL_RETRY, reliable=True)
                message.save(update_fields=["state"])
        if before["flow"] == Flow.SUSPENDED and pair.flow != Flow.SUSPENDED:
            written += released(pair, now, actor, reason)
        save(pair, verb, actor, reason, before, written)
    return pair


def _act_on_many(
    pair: Pair, kind: Kind, verb: str, speaks: Profile, terms: Terms | None, actor: Actor, reason: str
) -> None:
    """The verbs where several messages are in flight. Call with the pair locked."""
    if (why := speaks.refusal(pair, kind)) is not None:
        raise refused(pair, why)
    now = clock.now()
    before = described(pair)
    if kind is Kind.RESUME and not speaks.windowed:
        take_step(pair, kind, None, now)
    try:
        done = speaks.act(pair, kind, terms, reason, now)
    except IllegalTransition as error:
        raise refused(pair, error) from error
    if before["flow"] == Flow.SUSPENDED and pair.flow != Flow.SUSPENDED:
        done.events += released(pair, now, actor, reason)
    else:
        pair.version += 1
    save(pair, verb, actor, reason, before | done.named, done.events)
    dispatch.wake_on_commit(dispatch.SEND)


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
        pair = locked(pair_id, expected_version)
        require_outbound(pair)
        before = described(pair)
        now = clock.now()
        try:
            gate = move_gate(Gate(pair.gate), gate_verb)
        except IllegalTransition as error:
            raise WrongState(str(error), state=pair.gate, allowed=allowed_verbs(pair)) from error
        apply_outbound(pair, replace(outbound_state(pair), gate=gate), now)
        if gate is Gate.OPEN:
            speaks = profile.carried(pair, terms_in_force(pair))
            if speaks.carries_documents:
                Message.objects.filter(pair=pair, state=MessageState.QUEUED, due_at__isnull=False).update(due_at=now)
                dispatch.wake_on_commit(dispatch.SEND)
            speaks.let_go(pair, now)
        save(
            pair,
            verb,
            actor,
            reason,
            before,
            [events.event(kind, now, pair=pair, data={"reason": reason, "actor": actor.name})],
        )
    return pair


# With what people do to one message of a pair.
__all__ = ["allowed_verbs", "message_cancel", "waits"]
VERBS: dict[str, Callable[..., Pair]] = {
    "resume": pair_resume,
    "retry-now": pair_retry_now,
    "skip-head": pair_skip_head,
    "restart-sequence": pair_restart_sequence,
    "pause": pair_pause,
    "release": pair_release,
    "hand-on": pair_hand_on,
    "clear-resync": pair_clear_resync,
}
