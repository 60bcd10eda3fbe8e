"""ebXML Messaging 2.0 as the rest of the hub sees it: several messages in flight, each acknowledged by itself."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django.utils.translation import gettext as _

from messaging.bench import Bench, EnvelopeBench, Found, Sample, in_order, recognised, sample_of, submitted
from messaging.choices import PartnerAnswer
from messaging.claim import Claim, Due, Job, Recorded
from messaging.engine import preparing
from messaging.models import Event, Message, Pair, Payload
from messaging.profile import Errors, Outgoing, Proof
from messaging.profiles.ebms2 import (
    accepting,
    answered,
    asking,
    awaited,
    encrypted,
    ordering,
    proofs,
    receiving,
    sending,
    signed,
    writing,
)
from messaging.profiles.one_by_one import OneByOne
from messaging.protocol.codecs import ebms2
from messaging.protocol.ebms.acceptance import Conversation, Received, Verdict, decide
from messaging.protocol.envelope import Envelope, Limits, MessageOrder, Semantics, Sought, Wire
from messaging.protocol.errors import Defect, ErrorCode
from messaging.protocol.messages import (
    EBMS2,
    EBMS2_FINAL,
    UNRELIABLE,
    UNRELIABLE_FINAL,
    Happened,
    cancellable,
    move_ebms2,
)
from messaging.transports import Receipt
from partners import choices
from partners.choices import Signatures
from partners.terms import Terms
from rmhub import clock
from rmhub.language import gettext_lazy

MAX_LIFE = 400 * 86_400  # seconds, where the agreement sets no limit


class Ebms2Bench(EnvelopeBench[Envelope]):
    """Test messages, and what acceptance makes of copies and of numbers out of order."""

    name = choices.Profile.EBMS2.value
    article = "an ebXML 2.0 message"

    def sample(self, terms: Terms, now: datetime) -> Sample:
        message, payloads = submitted(terms, now, f"{uuid.uuid4()}@test", "test.xml")
        message.order_number = 0 if terms.message_order else None
        return sample_of(message, preparing.prepare(message, payloads, terms, now))

    def decode(self, content_type: str, body: bytes) -> Envelope:
        return ebms2.decode(content_type, body)

    def opened(self, read: Envelope, terms: Terms) -> Envelope:
        try:
            found, wrong = encrypted.opened(read, terms, clock.now())
        except encrypted.DecryptionImpossible as error:
            found, wrong = read, (Defect(ErrorCode.SECURITY_FAILURE, str(error)),)
        return replace(found, defects=(*wrong, *found.defects))

    def said(self, read: Envelope) -> tuple[str, dict[str, Any]]:
        assert read.ebms is not None
        order = read.ebms.order
        return read.ebms.kind.value, {"sequence_number": order.sequence_number if order is not None else None}

    def outside(self, read: Envelope, terms: Terms) -> list[str]:
        return [defect.description for defect in receiving.outside_agreement(read, terms)]

    def repeat(self, terms: Terms, now: datetime) -> Found:
        if terms.semantics == Semantics.BEST_EFFORT and not terms.detect_repeats:
            return Found("Best effort: repeats are not looked for, each copy is handed on.", "skipped")
        copy = Received(acknowledge=True, once=True, known=True)
        return recognised(decide(Conversation(), copy).verdict is Verdict.DUPLICATE)

    def order(self, terms: Terms, now: datetime) -> Found:
        if not terms.message_order:
            return Found("Messages of this agreement have no order: each is handed on as it comes.", "skipped")
        early = Received(acknowledge=True, once=True, order=MessageOrder(2))
        good = decide(Conversation(last=0), early).verdict is Verdict.HOLD
        return in_order(good, "After message 0 of a conversation, message 2 is held until message 1 has come.")


class Ebms2Profile(OneByOne):
    answer_headers = writing.HEADERS
    move = staticmethod(move_ebms2)
    bench: Bench = Ebms2Bench()
    hears = True
    first_send = staticmethod(sending.first_send)
    without_number = gettext_lazy("Numbers of ebXML 2.0 belong to a conversation: have the partner reset it.")
    no_restart = gettext_lazy(
        "This pair has no sequence of its own: a conversation begins anew by itself after a message was skipped."
    )

    def enqueue(self, message: Message, pair: Pair, terms: Terms, now: datetime) -> None:
        """Its life begins here (TimeToLive)."""
        if message.expires_at is None and terms.time_to_live:
            message.expires_at = now + timedelta(seconds=terms.time_to_live)
        if self.moves(message):
            super().enqueue(message, pair, terms, now)
        else:
            message.due_at = now  # sent once, outside the pair's queue
        awaited.left_to_whoever_waits(message, pair, terms, now)

    def write(
        self,
        message: Message,
        payloads: Sequence[Payload],
        contents: Sequence[bytes | Sought],
        terms: Terms,
        now: datetime,
    ) -> Wire:
        return writing.write(message, payloads, contents, terms, now)

    def fields(self, message: Message, terms: Terms) -> dict[str, Any]:
        return writing.fields(message, terms)

    def moves(self, message: Message) -> bool:
        return message.semantics == Semantics.ONCE_AND_ONLY_ONCE

    def last_send(self, message: Message, terms: Terms) -> datetime:
        assert message.first_sent_at is not None
        forgotten = message.first_sent_at + sending.policy_of(terms).persist
        return min(forgotten, message.expires_at) if message.expires_at is not None else forgotten

    def repeat_at(self, message: Message, terms: Terms) -> datetime | None:
        return None if sending.is_spent(message, terms) else super().repeat_at(message, terms)

    def send_due(self, due: Due, claim: Claim) -> None:
        sending.resend(due, claim)

    def record(
        self,
        outcomes: Sequence[tuple[Job, Receipt]],
        pairs: Mapping[uuid.UUID, Pair],
        now: datetime,
        written: list[Event],
    ) -> Recorded:
        return Recorded(sending.record(outcomes, pairs, now, written, receiving.take_response))

    def hear(self, message: Message, receipt: Receipt, pair: Pair, now: datetime, written: list[Event]) -> None:
        answered.in_response(receipt, message, pair, now, written, receiving.take_response)

    def held(self, pair: Pair) -> bool:
        return pair.conversations.filter(gap_since__isnull=False).exists()

    def hand_on(self, pair: Pair, now: datetime) -> int:
        return accepting.hand_on(pair, now)

    def restored(self, now: datetime) -> None:
        ordering.restored()

    def drop(self, pair: Pair, message: Message, happened: Happened, reason: str, now: datetime) -> list[Event]:
        dropped = super().drop(pair, message, happened, reason, now)
        ordering.interrupted([message])
        return dropped

    def decode(self, content_type: str, body: bytes | Sought) -> Envelope | None:
        return ebms2.decode(content_type, body, Limits(body=len(body)))

    def inquiry(self, message: Message, terms: Terms, now: datetime) -> Outgoing | None:
        return asking.inquiry(message, terms, now)

    def said_of(self, receipt: Receipt, message_id: str) -> tuple[PartnerAnswer, str, str]:
        return asking.said_of(receipt, message_id)

    def ping(self, terms: Terms, now: datetime) -> Outgoing | None:
        return asking.ping(terms, now)

    def ponged(self, receipt: Receipt) -> str:
        return asking.ponged(receipt)

    def proofs(self, message: Message) -> list[Proof]:
        return proofs.of_message(message)

    def check_submission(
        self, errors: Errors, terms: Terms, *, payloads: int, semantics: str, message_id: str, time_to_live: int | None
    ) -> None:
        if terms.signatures != Signatures.NONE and payloads > signed.MAX_DOCUMENTS:
            errors["payloads"] = [_("At most {count} payloads.").format(count=signed.MAX_DOCUMENTS)]
        longest = terms.time_to_live or MAX_LIFE
        if time_to_live is not None and not 1 <= time_to_live <= longest:
            errors["time_to_live"] = [_("Seconds, from 1 to {most}.").format(most=longest)]

    def final_states(self, semantics: str) -> frozenset[str]:
        return frozenset(EBMS2_FINAL if semantics == Semantics.ONCE_AND_ONLY_ONCE else UNRELIABLE_FINAL)

    def cancellable_states(self, semantics: str) -> frozenset[str]:
        return cancellable(EBMS2 if semantics == Semantics.ONCE_AND_ONLY_ONCE else UNRELIABLE)


PROFILE = Ebms2Profile()
