"""ebXML messages as the rest of the hub sees them: numbered, one in flight at a time (spec 1)."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db.models import F
from django.utils.translation import gettext as _

from messaging.bench import Bench, EnvelopeBench, Found, Sample, in_order, recognised, sample_of, submitted
from messaging.engine import preparing
from messaging.engine.snapshots import acceptance_policy, apply_outbound, outbound_state, sender_policy
from messaging.journal import events
from messaging.models import Event, Message, Pair, Payload
from messaging.profile import Profile
from messaging.profiles.ebxml import writing
from messaging.profiles.ebxml.receiving import outside_agreement
from messaging.profiles.refusals import refused
from messaging.protocol import acceptance
from messaging.protocol.acceptance import Verdict
from messaging.protocol.codecs import ebxml
from messaging.protocol.envelope import Envelope, Limits, Semantics, Sought, Wire
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
from messaging.protocol.sender import allowed, step
from messaging.routing.services import upstream
from partners import choices
from partners.terms import Terms


class EbxmlBench(EnvelopeBench[Envelope]):
    """Test messages, and what acceptance makes of copies and of numbers out of order."""

    name = choices.Profile.EBXML.value
    article = "an ebXML message"

    def sample(self, terms: Terms, now: datetime) -> Sample:
        message, payloads = submitted(terms, now, f"{uuid.uuid4()}@test", "test.xml")
        message.sequence_number = 1 if terms.semantics == Semantics.ONCE_AND_ONLY_ONCE else None
        return sample_of(message, preparing.prepare(message, payloads, terms, now))

    def decode(self, content_type: str, body: bytes) -> Envelope:
        return ebxml.decode(content_type, body)

    def said(self, read: Envelope) -> tuple[str, dict[str, Any]]:
        hop = read.hop
        numbered = {"sequence_number": hop.sequence_number}
        return read.message_type.value, {**numbered, "sender_uri": hop.sender_uri, "receiver_uri": hop.receiver_uri}

    def outside(self, read: Envelope, terms: Terms) -> list[str]:
        return [defect.description for defect in outside_agreement(read, terms)]

    def repeat(self, terms: Terms, now: datetime) -> Found:
        if terms.semantics == Semantics.BEST_EFFORT and not terms.detect_repeats:
            return Found("Best effort: repeats are not looked for, each copy is handed on.", "skipped")
        return recognised(_verdicts(terms, (1, "m-1", False), (1, "m-1", True)) == [Verdict.ACCEPT, Verdict.DUPLICATE])

    def order(self, terms: Terms, now: datetime) -> Found:
        if terms.semantics != Semantics.ONCE_AND_ONLY_ONCE:
            return Found("Only once-and-only-once messages have sequence numbers.", "skipped")
        verdicts = _verdicts(terms, (1, "m-1", False), (3, "m-3", False), (2, "m-2", False))
        good = verdicts == [Verdict.ACCEPT, Verdict.REJECT, Verdict.ACCEPT]
        return in_order(good, "After message 1, message 3 is refused with an error until message 2 has come.")


def _verdicts(terms: Terms, *messages: tuple[int, str, bool]) -> list[Verdict]:
    """The verdicts on (number, id, known already), one after the other, under this agreement."""
    state, verdicts = acceptance.InboundState(), []
    semantics = Semantics(terms.semantics)
    for number, message_id, known in messages:
        place = number if semantics is Semantics.ONCE_AND_ONLY_ONCE else None
        before = place if known else None
        received = acceptance.Received(
            message_id=message_id, semantics=semantics, sequence=place, known=known, known_number=before
        )
        decision = acceptance.decide(state, received, acceptance_policy(terms))
        state = decision.state
        verdicts.append(decision.verdict)
    return verdicts


class EbxmlProfile(Profile):
    numbered = True
    bench: Bench = EbxmlBench()

    def enqueue(self, message: Message, pair: Pair, terms: Terms, now: datetime) -> None:
        if message.semantics == Semantics.ONCE_AND_ONLY_ONCE:
            moved = step(outbound_state(pair), PairEvent(Kind.QUEUED), now, sender_policy(terms))
            apply_outbound(pair, moved.state, now)
        else:
            message.due_at = now  # outside the pair's queue: no number, no lock while it is sent (spec 1, 2.2.1)

    def write(
        self,
        message: Message,
        payloads: Sequence[Payload],
        contents: Sequence[bytes | Sought],
        terms: Terms,
        now: datetime,
    ) -> Wire:
        return writing.write(message, payloads, contents, terms, now)

    def refusal(self, pair: Pair, kind: Kind) -> str | None:
        flow = Flow(pair.flow)
        if kind not in allowed(flow):
            return refused(flow, kind)
        if kind is Kind.SKIP and not pair.in_flight_id:
            return _("No message is in flight; one that waits in the queue is cancelled on its own page.")
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

    def decode(self, content_type: str, body: bytes | Sought) -> Envelope | None:
        return ebxml.decode(content_type, body, Limits(body=len(body)))

    def final_states(self, semantics: str) -> frozenset[str]:
        return frozenset(RELIABLE_FINAL if semantics == Semantics.ONCE_AND_ONLY_ONCE else UNRELIABLE_FINAL)

    def cancellable_states(self, semantics: str) -> frozenset[str]:
        return cancellable(RELIABLE if semantics == Semantics.ONCE_AND_ONLY_ONCE else UNRELIABLE)


PROFILE = EbxmlProfile()
