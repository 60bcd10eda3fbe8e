"""One pair that a person changes: read under its lock, moved by the core, saved and written down."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import datetime

from django.utils.translation import gettext as _

from messaging import dispatch, profile
from messaging.choices import PAIR_LOOKS, Direction, IncidentState, MessageState
from messaging.engine.snapshots import REPEATABLE_FIELDS, apply_outbound, outbound_state, sender_policy
from messaging.exceptions import Stale, WrongState
from messaging.journal import audit, events, incidents
from messaging.journal.audit import Actor
from messaging.models import Event, Incident, Message, Pair
from messaging.models.base import existing
from messaging.pairs.selectors.pairs import state_of
from messaging.pairs.selectors.verbs import allowed_verbs
from messaging.profile import terms_in_force
from messaging.profiles.repeatable import repeating
from messaging.protocol.errors import IllegalTransition
from messaging.protocol.pair_state import Act, Kind, SenderPolicy
from messaging.protocol.pair_state import Event as PairEvent
from messaging.protocol.sender import step
from partners import registry
from rmhub.ids import public_id
from rmhub.language import inside


def take_step(pair: Pair, kind: Kind, message: Message | None, now: datetime) -> tuple[Act, ...]:
    """One step of the core, into the pair's row; the caller saves it. Raises WrongState for what is refused now."""
    policy = _policy(pair, message)
    try:
        result = step(outbound_state(pair), PairEvent(kind), now, policy)
    except IllegalTransition as error:
        raise refused(pair, error) from error
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
        raise WrongState(_("No agreement in force uses this pair."), state=pair.flow, code="agreement_missing")
    return sender_policy(terms[0])


def released(pair: Pair, now: datetime, actor: Actor, reason: str) -> list[Event]:
    """What follows when a suspended pair goes on: its incidents end. Returns the events."""
    causes = None
    if Message.objects.filter(pair=pair, state=MessageState.IN_DOUBT).exists():
        # Resuming says nothing about messages in doubt: those are settled one by one, or in bulk.
        unresolved = Incident.objects.filter(pair=pair).exclude(state=IncidentState.RESOLVED)
        causes = set(unresolved.values_list("cause", flat=True)) - set(repeating.DOUBTS)
    resolved = incidents.incidents_resolve_for_pair(pair=pair, now=now, by=actor.name, resolution=reason, causes=causes)
    data = {"reason": reason, "actor": actor.name, **({"mode": "probe"} if pair.probing else {})}
    return [events.event("pair.resumed", now, pair=pair, data=data), *resolved]


def save(pair: Pair, verb: str, actor: Actor, reason: str, before: dict[str, object], written: list[Event]) -> None:
    """Writes the pair, the audit entry and the events."""
    pair.save(update_fields=list(REPEATABLE_FIELDS))
    after = described(pair)
    if verb == "pair.resume":
        after["mode"] = "probe" if pair.probing else "all"
    audit.record(actor, verb, pair, reason=reason, before=before, after=after)
    events.write(written)


def locked(pair_id: uuid.UUID, expected_version: int | None) -> Pair:
    """The pair under its lock. Raises NotFound, Stale."""
    pair = existing(Pair.objects.select_for_update(), pair_id)
    if expected_version is not None and pair.version != expected_version:
        said = _("{pair} changed since you looked at it; it is {state} now. Look again before you act.")
        now = inside(PAIR_LOOKS[state_of(pair)].label)
        raise Stale(said.format(pair=pair.code, state=now), version=pair.version)
    return pair


def refused(pair: Pair, why: object) -> WrongState:
    """What to raise for a verb that the pair does not take now."""
    return WrongState(str(why), state=pair.flow, allowed=allowed_verbs(pair))


def require_outbound(pair: Pair) -> None:
    """Raises WrongState for an inbound pair."""
    if pair.direction != Direction.OUT:
        raise WrongState(_("The partner drives an inbound pair; there is nothing to send on it."), state=pair.flow)


def described(pair: Pair) -> dict[str, object]:
    """A pair as the audit log holds it."""
    found: dict[str, object] = {
        "flow": pair.flow,
        "gate": pair.gate,
        "cause": pair.cause,
        "in_flight": public_id("msg", pair.in_flight_id) if pair.in_flight_id else None,
        "retries": pair.retries,
        "last_sequence": pair.last_sequence,
        "queued": pair.queued,
    }
    if pair.in_flight_id is None and (pair.out_now or profile.carried(pair, terms_in_force(pair)).one_by_one):
        found["out_now"] = pair.out_now
    return found
