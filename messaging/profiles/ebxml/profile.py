"""ebXML messages as the rest of the hub sees them: numbered, one in flight at a time (spec 1)."""

from __future__ import annotations

from datetime import datetime

from django.db.models import F

from messaging.bench import Bench
from messaging.engine.snapshots import apply_outbound, outbound_state, sender_policy
from messaging.journal import events
from messaging.models import Event, Message, Pair
from messaging.profile import Profile
from messaging.profiles.ebxml.bench import EbxmlBench
from messaging.protocol.codecs import ebxml
from messaging.protocol.envelope import Envelope, Semantics
from messaging.protocol.messages import (
    RELIABLE,
    RELIABLE_FINAL,
    UNRELIABLE,
    UNRELIABLE_FINAL,
    Happened,
    cancellable,
    move,
)
from messaging.protocol.pair_state import Event as PairEvent
from messaging.protocol.pair_state import Flow, Kind
from messaging.protocol.sender import REFUSALS, allowed, step
from messaging.routing.services import upstream
from partners.terms import Terms


class EbxmlProfile(Profile):
    numbered = True
    bench: Bench = EbxmlBench()

    def enqueue(self, message: Message, pair: Pair, terms: Terms, now: datetime) -> None:
        if message.semantics == Semantics.ONCE_AND_ONLY_ONCE:
            moved = step(outbound_state(pair), PairEvent(Kind.QUEUED), now, sender_policy(terms))
            apply_outbound(pair, moved.state, now)
        else:
            message.due_at = now  # outside the pair's queue: no number, no lock while it is sent (spec 1, 2.2.1)

    def refusal(self, pair: Pair, kind: Kind) -> str | None:
        flow = Flow(pair.flow)
        if kind not in allowed(flow):
            return REFUSALS[(flow, kind)]
        if kind is Kind.SKIP and not pair.in_flight_id:
            return "No message is in flight; one that waits in the queue is cancelled on its own page."
        return None

    def cancel(self, pair: Pair, message: Message, terms: Terms, reason: str, now: datetime) -> list[Event]:
        reliable = message.semantics == Semantics.ONCE_AND_ONLY_ONCE
        message.state = move(message.state, Happened.CANCELLED, reliable=reliable)
        message.due_at, message.completed_at = None, now
        message.save(update_fields=["state", "due_at", "completed_at"])
        upstream.onward_ended([(message.forwarded_from_id, message.state)], now)
        if reliable:
            Pair.objects.filter(pk=pair.pk).update(queued=F("queued") - 1)
        return [events.event("message.cancelled", now, pair=pair, message=message, data={"reason": reason})]

    def decode(self, content_type: str, body: bytes) -> Envelope | None:
        return ebxml.decode(content_type, body)

    def final_states(self, semantics: str) -> frozenset[str]:
        return frozenset(RELIABLE_FINAL if semantics == Semantics.ONCE_AND_ONLY_ONCE else UNRELIABLE_FINAL)

    def cancellable_states(self, semantics: str) -> frozenset[str]:
        return cancellable(RELIABLE if semantics == Semantics.ONCE_AND_ONLY_ONCE else UNRELIABLE)


PROFILE = EbxmlProfile()
