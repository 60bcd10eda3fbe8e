"""Test messages of transactional streams, and what a stream makes of copies and of gaps."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import datetime
from typing import Any

from messaging.bench import EnvelopeBench, Found, Sample, in_order, recognised, sample_of, submitted
from messaging.engine.preparing import Position, prepare_for_stream
from messaging.protocol.codecs import stream
from messaging.protocol.codecs.stream import StreamEnvelope
from messaging.protocol.streams.acceptance import Arrival, Incoming, Verdict, decide
from messaging.protocol.streams.envelope import first_id
from partners.choices import Profile
from partners.terms import Terms


class StreamBench(EnvelopeBench[StreamEnvelope]):
    name = Profile.STREAM.value
    article = "a message of a stream"

    def sample(self, terms: Terms, now: datetime) -> Sample:
        message, payloads = submitted(terms, now, str(uuid.uuid4()))
        place = Position(str(terms.agreement_id), first_id(now), 1, 0, request_receipt=False)
        unasked = replace(terms, final_receipt=False)  # there is nobody who would wait for it
        return sample_of(message, prepare_for_stream(message, payloads, unasked, place))

    def decode(self, content_type: str, body: bytes) -> StreamEnvelope:
        return stream.decode(content_type, body)

    def said(self, read: StreamEnvelope) -> tuple[str, dict[str, Any]]:
        number = read.position.current if read.position is not None else None
        return read.kind.value, {"sequence_number": number, "receiver_uri": read.to}

    def outside(self, read: StreamEnvelope, terms: Terms) -> list[str]:
        if read.service and not terms.allows(read.service, read.action, "receive"):
            return [f"{read.service} / {read.action} is not in agreement {terms.tpa_id}."]
        return []

    def repeat(self, terms: Terms, now: datetime) -> Found:
        first = decide(Incoming(), Arrival(first_id(now), 1, 0), now)
        again = decide(first.state, Arrival(first_id(now), 1, 0), now)
        return recognised(first.accepted and again.verdict is Verdict.DUPLICATE)

    def order(self, terms: Terms, now: datetime) -> Found:
        first = decide(Incoming(), Arrival(first_id(now), 1, 0), now)
        good = decide(first.state, Arrival(first_id(now), 3, 2), now).verdict is Verdict.GAP
        return in_order(good, "After message 1, message 3 is held back until message 2 has come.")
