"""Transactional streams as the rest of the hub sees them: a window of numbered messages in flight (spec 3)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django.utils.translation import gettext as _

from messaging import dispatch
from messaging.bench import EnvelopeBench, Found, Sample, in_order, recognised, sample_of, submitted
from messaging.choices import MessageState
from messaging.claim import Claim, Due, Job, Recorded
from messaging.models import Event, Message, Pair
from messaging.profile import Acted, Errors, Profile
from messaging.profiles.refusals import refused
from messaging.profiles.stream import moving, receipts, sending, writing
from messaging.profiles.stream.in_flight import SOON
from messaging.protocol.codecs import stream
from messaging.protocol.codecs.stream import StreamEnvelope
from messaging.protocol.envelope import Limits, Semantics, Sought
from messaging.protocol.messages import STREAM, STREAM_FINAL, UNRELIABLE, UNRELIABLE_FINAL, cancellable
from messaging.protocol.pair_state import Flow, Kind
from messaging.protocol.streams.acceptance import Arrival, Incoming, Verdict, decide
from messaging.protocol.streams.envelope import first_id
from messaging.transports import Receipt
from partners import choices
from partners.terms import Terms
from rmhub.language import gettext_lazy


class StreamBench(EnvelopeBench[StreamEnvelope]):
    """Test messages, and what a stream makes of copies and of gaps."""

    name = choices.Profile.STREAM.value
    article = "a message of a stream"

    def sample(self, terms: Terms, now: datetime) -> Sample:
        message, payloads = submitted(terms, now, str(uuid.uuid4()))
        place = writing.Position(str(terms.agreement_id), first_id(now), 1, 0, request_receipt=False)
        unasked = replace(terms, final_receipt=False)  # there is nobody who would wait for it
        return sample_of(message, writing.prepare(message, payloads, unasked, place))

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


MAX_LIFE = 400 * 86_400  # seconds, where the agreement sets no limit


class StreamProfile(Profile):
    windowed = True
    answers_apart = True
    answer_headers = writing.HEADERS
    bench = StreamBench()
    without_number = gettext_lazy("A stream has numbers for each of its senders: have the partner begin a new stream.")

    def enqueue(self, message: Message, pair: Pair, terms: Terms, now: datetime) -> None:
        """Its life begins here (TimeToReachQueue). A claim finds out whether it may go out at once."""
        if message.expires_at is None and terms.time_to_live:
            message.expires_at = now + timedelta(seconds=terms.time_to_live)
        pair.queued += 1
        if pair.flow != Flow.IDLE or pair.out_now >= terms.max_in_flight:
            return
        if pair.due_at is None or pair.due_at > now + SOON:
            pair.due_at = now

    def fields(self, message: Message, terms: Terms) -> dict[str, Any]:
        return writing.fields(message)

    def moves(self, message: Message) -> bool:
        return message.tx_sequence_id is not None

    def owe(self, claim: Claim) -> None:
        receipts.claim(claim)

    def promote(self, pairs: Sequence[Pair], heads: dict[uuid.UUID, Message], claim: Claim) -> list[Pair]:
        return sending.promote(pairs, heads, claim)

    def send_due(self, due: Due, claim: Claim) -> None:
        moving.end_due(due.messages, claim)

    def record(
        self,
        outcomes: Sequence[tuple[Job, Receipt]],
        pairs: Mapping[uuid.UUID, Pair],
        now: datetime,
        written: list[Event],
    ) -> Recorded:
        return Recorded(moving.record(outcomes, pairs, now, written))

    def refusal(self, pair: Pair, kind: Kind) -> str | None:
        suspended = pair.flow == Flow.SUSPENDED
        if kind is Kind.RESUME:
            return None if suspended else refused(Flow.IDLE, kind)
        if kind is Kind.RESTART:
            return refused(Flow.AWAITING_ACK, kind) if pair.out_now and not suspended else None
        if kind is Kind.RETRY_NOW and suspended:
            return refused(Flow.SUSPENDED, kind)
        return None if pair.out_now else refused(Flow.IDLE, kind)

    def act(self, pair: Pair, kind: Kind, terms: Terms | None, reason: str, now: datetime) -> Acted:
        assert terms is not None, "a pair has a stream by its terms"
        written, skipped = moving.act(pair, kind, terms, reason, now)
        return Acted(written, {"message_id": skipped} if skipped else {})

    def cancel(self, pair: Pair, message: Message, terms: Terms, reason: str, now: datetime) -> list[Event]:
        written = moving.cancel(pair, message, terms, reason, now)
        dispatch.wake_on_commit(dispatch.SEND)
        return written

    def decode(self, content_type: str, body: bytes | Sought) -> StreamEnvelope | None:
        said = stream.decode(content_type, body, Limits(body=len(body)))
        return said if said.from_parties and said.to_parties and said.agreement_id else None

    def check_submission(
        self, errors: Errors, terms: Terms, *, payloads: int, semantics: str, message_id: str, time_to_live: int | None
    ) -> None:
        if (semantics or terms.semantics) != Semantics.ONCE_AND_ONLY_ONCE:
            errors.setdefault("semantics", []).append(
                _(
                    "Messages of a stream go under {semantics} only: leave it out, or have the agreement changed."
                ).format(semantics=Semantics.ONCE_AND_ONLY_ONCE)
            )
        longest = terms.time_to_live or MAX_LIFE
        if time_to_live is not None and not 1 <= time_to_live <= longest:
            errors["time_to_live"] = [_("Seconds, from 1 to {most}.").format(most=longest)]

    def final_states(self, semantics: str) -> frozenset[str]:
        if semantics == Semantics.ONCE_AND_ONLY_ONCE:
            return frozenset(STREAM_FINAL) | {MessageState.DELIVERED.value}
        return frozenset(UNRELIABLE_FINAL)

    def cancellable_states(self, semantics: str) -> frozenset[str]:
        return cancellable(STREAM if semantics == Semantics.ONCE_AND_ONLY_ONCE else UNRELIABLE)


PROFILE = StreamProfile()
