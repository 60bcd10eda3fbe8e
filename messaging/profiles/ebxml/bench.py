"""Test messages of ebXML agreements, and what acceptance makes of copies and of numbers out of order."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from messaging.bench import EnvelopeBench, Found, Sample, in_order, recognised, sample_of, submitted
from messaging.engine import preparing
from messaging.engine.snapshots import acceptance_policy
from messaging.profiles.ebxml.receiving import outside_agreement
from messaging.protocol import acceptance
from messaging.protocol.acceptance import Verdict
from messaging.protocol.codecs import ebxml
from messaging.protocol.envelope import Envelope, Semantics
from partners.choices import Profile
from partners.terms import Terms


class EbxmlBench(EnvelopeBench[Envelope]):
    name = Profile.EBXML.value
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
