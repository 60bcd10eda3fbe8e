"""Asks the partner's messaging service: what became of a message (StatusRequest), and whether it is there (Ping);
ebXML Messaging 2.0, 7 and 8.

Both ask for their answer in the response. A partner that answers by a message of its own is heard, too.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import datetime

from messaging.choices import Direction, PartnerAnswer, SignalKind
from messaging.engine.snapshots import party_ids
from messaging.models import Message, StatusInquiry
from messaging.profile import Outgoing
from messaging.profiles.acknowledging import Item
from messaging.profiles.ebms2.answered import entity_of
from messaging.profiles.ebms2.writing import HEADERS
from messaging.profiles.ebxml.answering import row
from messaging.profiles.ebxml.signals import host
from messaging.protocol.codecs import ebms2
from messaging.protocol.codecs.ebms2_lexical import VERSION
from messaging.protocol.envelope import Ebms2, Ebms2Kind, Envelope, MessageStatus, MessageType, Semantics
from messaging.protocol.errors import NotAMessage
from messaging.transports import Receipt
from partners.terms import Terms
from rmhub import clock

LATER = "answer_comes_later"
_SAID_LATER = "The partner took the question; its answer comes as a message of its own."


def inquiry(message: Message, terms: Terms, now: datetime) -> Outgoing:
    """A StatusRequest about a message of ours."""
    about = _like(terms, message.message_id, message.conversation_id, now)
    return _outgoing(ebms2.status_request(about, message_id=_id("ask", terms), timestamp=now))


def ping(terms: Terms, now: datetime) -> Outgoing:
    """A Ping under this agreement."""
    message_id = _id("ping", terms)
    return _outgoing(ebms2.ping(_like(terms, message_id, message_id, now), message_id=message_id, timestamp=now))


def _id(kind: str, terms: Terms) -> str:
    return f"{kind}-{uuid.uuid4().hex}@{host(terms)}"


def _like(terms: Terms, message_id: str, conversation_id: str, now: datetime) -> Envelope:
    """A message of ours as far as a signal takes after it."""
    return Envelope(
        message_type=MessageType.NORMAL,
        message_id=message_id,
        timestamp=now,
        from_parties=party_ids(terms.own_identifiers),
        to_parties=party_ids(terms.partner_identifiers),
        agreement_id=terms.tpa_id,
        conversation_id=conversation_id,
        service="",
        action="",
        semantics=Semantics.BEST_EFFORT,
        routing=(),
        version=VERSION,
        ebms=Ebms2(),
    )


def _outgoing(envelope: Envelope) -> Outgoing:
    assert envelope.ebms is not None
    wire = ebms2.encode(replace(envelope, ebms=replace(envelope.ebms, sync_reply=True)))
    return Outgoing(wire.content_type, wire.join(()), HEADERS)


def said_of(receipt: Receipt, message_id: str) -> tuple[PartnerAnswer, str, str]:
    """What the response to a StatusRequest says: the word, a sentence, and the cause code of why there is none."""
    found = _read(receipt)
    if found is None:
        return PartnerAnswer.NO_ANSWER, _SAID_LATER, LATER
    ebms = found.ebms
    assert ebms is not None
    if ebms.gravest is not None:
        return PartnerAnswer.NO_ANSWER, f"{ebms.gravest.code}: {ebms.gravest.description}"[:500], "ebms_error_unknown"
    if ebms.status is None or ebms.status.status is None:
        return PartnerAnswer.NO_ANSWER, "What came is no StatusResponse.", "answer_unreadable"
    if ebms.status.ref_to_message_id != message_id:
        return PartnerAnswer.NO_ANSWER, "What came is about another message.", "answer_unreadable"
    return _WORDS[ebms.status.status], "", ""


_WORDS = {status: PartnerAnswer[status.name] for status in MessageStatus}


def ponged(receipt: Receipt) -> str:
    """What came instead of a Pong, in a sentence; "" for a Pong."""
    found = _read(receipt)
    if found is None:
        return _SAID_LATER
    ebms = found.ebms
    assert ebms is not None
    if ebms.kind is Ebms2Kind.PONG:
        return ""
    if ebms.gravest is not None:
        return f"The partner answers with an error, {ebms.gravest.code}: {ebms.gravest.description}"[:500]
    return f"The partner answers with {ebms.kind}, not with a Pong."


def _read(receipt: Receipt) -> Envelope | None:
    """The message in a response; None where there is none."""
    content_type, body = entity_of(receipt)
    try:
        return ebms2.decode(content_type, body) if body else None
    except NotAMessage:
        return None


def answered(item: Item) -> None:
    """A StatusResponse or Pong that came by itself: the former answers our last question about its message."""
    ebms = item.envelope.ebms
    assert ebms is not None
    message = pair = None
    ignored = ""
    if ebms.status is not None and ebms.status.status is not None:
        asked = StatusInquiry.objects.filter(
            message__message_id=ebms.status.ref_to_message_id,
            message__direction=Direction.OUT,
            message__pair__partner=item.principal.party_id,
            answer=PartnerAnswer.NO_ANSWER,
            cause=LATER,
        )
        found = asked.order_by("-id").select_related("message__pair").first()
        if found is None:
            ignored = "answers no question of ours"
        else:
            message, pair = found.message, found.message.pair
            word = _WORDS[ebms.status.status]
            asked.filter(pk=found.pk).update(answer=word, cause="", detail="", answered_at=clock.now())
    kind = SignalKind.PONG if ebms.kind is Ebms2Kind.PONG else SignalKind.STATUS
    about = item.envelope.ref_to_message_id
    signal = row(item, message, pair, ignored, clock.now(), kind=kind, about=about, error=None)
    signal.save(force_insert=True)
