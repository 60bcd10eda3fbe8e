"""Takes what the partner says of our messages: acknowledgements and errors (ebXML Messaging 2.0, 6.3 and 4.2).

They come by themselves, on a business message, or in the response to the message that they are about.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from django.db import transaction

from messaging import profile, storage
from messaging.choices import MessageState, SignalKind
from messaging.engine.pairs import stop
from messaging.entrance.refusals import Arrival
from messaging.journal import incidents
from messaging.models import Event, Message, Pair, Signal
from messaging.models.bulk import bulk_insert, read
from messaging.profiles.acknowledging import Item
from messaging.profiles.ebms2 import ordering, signed
from messaging.profiles.ebxml.answering import cause_of, row
from messaging.profiles.repeatable import repeating
from messaging.protocol.codecs import ebms2
from messaging.protocol.ebms.sending import refused
from messaging.protocol.envelope import Acknowledgment, Ebms2Kind, Envelope, ErrorInfo, Limits, MessageType
from messaging.protocol.errors import NotAMessage, Severity
from messaging.protocol.messages import Happened
from messaging.protocol.repeating import Act
from messaging.routing.services import upstream
from messaging.transports import Receipt
from partners import registry
from partners.choices import RESPONSES, Signatures
from partners.terms import Presented, Principal, Terms

log = logging.getLogger(__name__)

# States in which an acknowledgement still counts.
_OPEN = (MessageState.SENDING, MessageState.AWAITING_ACK, MessageState.RETRYING, MessageState.IN_DOUBT)
_THEIR_SERVER = uuid.UUID(int=0)  # whose response it is; no credential was shown


@dataclass(slots=True)
class Said:
    """What a group of answers writes. `messages`: ours, locked, by their MessageId; `pairs`: theirs, locked."""

    now: datetime
    pairs: Mapping[uuid.UUID, Pair]
    messages: Mapping[str, list[Message]]
    signals: list[Signal] = field(default_factory=list)
    written: list[Event] = field(default_factory=list)
    moved: dict[uuid.UUID, Message] = field(default_factory=dict)


def references(envelope: Envelope) -> Iterable[str]:
    """The MessageIds that it acknowledges, or says an error of."""
    assert envelope.ebms is not None
    yield from (one.ref_to_message_id for one in envelope.ebms.acknowledgments)
    if envelope.ebms.errors:
        yield envelope.ref_to_message_id


def read_frames(messages: Iterable[Message]) -> None:
    """Reads what signed acknowledgements of these messages are compared with: of all but large ones at once."""
    wanted = {message.pk: message for message in messages if _terms(message).signatures == Signatures.RECEIPTS}
    if not wanted:
        return
    for found in read(Message, _FRAMES, [list(wanted), _AT_ONCE]):
        wanted[found.pk].wire_frame = found.wire_frame


_AT_ONCE = 256 * 1024  # octets of one frame; those of an encrypted message have its documents in them
_FRAMES = "SELECT id, wire_frame FROM messaging_message WHERE id = ANY(%s) AND octet_length(wire_frame) <= %s"


def take(item: Item, said: Said) -> None:
    """One message with acknowledgements or errors. Whatever it names, it is kept with its octets."""
    ebms = item.envelope.ebms
    assert ebms is not None
    told: dict[str, ErrorInfo | Acknowledgment] = {}
    if ebms.gravest is not None:
        told[item.envelope.ref_to_message_id] = ebms.gravest
    # That it was received counts, whatever else is said of it.
    told |= {one.ref_to_message_id: one for one in ebms.acknowledgments}
    for message_id, word in told.items():
        candidates = said.messages.get(message_id, [])
        theirs = (one for one in candidates if said.pairs[one.pair_id].partner_id == item.principal.party_id)
        message = next(theirs, candidates[0] if candidates else None)
        pair = said.pairs[message.pair_id] if message is not None else None
        ignored = _why_ignored(item, message, pair, word)
        if not ignored and message is not None and pair is not None:
            item, ignored = _proven(item, message, pair, word, said)
        if not ignored and message is not None and pair is not None:
            said.written += _apply(message, pair, word, said.now)
            said.moved[message.pk] = message
        # A message may say several words: each has a row of its own.
        error = word if isinstance(word, ErrorInfo) else None
        kind = SignalKind.ACKNOWLEDGEMENT if error is None else SignalKind.ERROR
        kept = _without_documents(item)
        said.signals.append(row(kept, message, pair, ignored, said.now, kind=kind, about=message_id, error=error))


def _without_documents(item: Item) -> Item:
    """What was signed, of a business message: its documents are kept as that message's own."""
    assert item.envelope.ebms is not None
    if item.envelope.ebms.kind is not Ebms2Kind.BUSINESS or item.envelope.message_type is not MessageType.NORMAL:
        return item
    document = ebms2.soap_of(item.content_type, item.body, Limits(body=len(item.body)))
    return replace(item, content_type="text/xml", body=document)


def _proven(item: Item, message: Message, pair: Pair, word: ErrorInfo | Acknowledgment, said: Said) -> tuple[Item, str]:
    """The item with who signed it, and why an acknowledgement that has to be signed moves nothing: it proves nothing,
    and a person should know.
    """
    terms = _terms(message)
    if isinstance(word, ErrorInfo) or terms.signatures != Signatures.RECEIPTS:
        return item, ""
    if item.terms is not terms or not (item.signed_by or item.unsigned):  # a business message was looked at before
        limits = Limits(body=len(item.body))
        came = ebms2.decode(item.content_type, item.body, limits).payloads if terms.encrypts else ()
        item = signed.looked_at(replace(item, terms=terms), came, limits, said.now)
    if message.wire_frame is None:
        return item, "what was sent is not known any more: the database was restored"
    why = signed.why_no_receipt(item, word, signed.digests_sent(storage.unpack_frame(message.wire_frame)))
    if why:
        detail = f"The acknowledgement of {message.message_id} does not count: {why}"
        _, opened = incidents.incident_open(
            pair=pair, cause="receipt_refused", now=said.now, detail=detail, message_pk=message.pk
        )
        said.written += opened
    return item, why[:255]


def _why_ignored(item: Item, message: Message | None, pair: Pair | None, word: ErrorInfo | Acknowledgment) -> str:
    if message is None or pair is None:
        return "names no message of ours"
    if pair.partner_id != item.principal.party_id:
        return "comes from another partner than the one that the message went to"
    speaks = profile.of(_terms(message))
    if not speaks.acknowledged_singly or not speaks.moves(message):
        return "the message waits for no acknowledgement of ebXML 2.0"
    if message.state not in _OPEN:
        return f"the message is {message.get_state_display().lower()}"
    if isinstance(word, ErrorInfo) and word.severity is Severity.WARNING:
        return "a warning"
    if isinstance(word, ErrorInfo) and message.state == MessageState.IN_DOUBT:
        return "the message is in doubt, and an error does not say that no copy was taken"
    return ""


def _apply(message: Message, pair: Pair, word: ErrorInfo | Acknowledgment, now: datetime) -> list[Event]:
    terms = _terms(message)
    if isinstance(word, Acknowledgment):
        written = repeating.delivered(pair, message, terms, now, f"The partner acknowledged {message.message_id}.")
        upstream.onward_ended([(message.forwarded_from_id, message.state)], now)
        return written
    cause, detail = cause_of(str(word.code)), f"{word.code}: {word.description}"[:2000]
    if refused(word.code) is Act.HOLD:
        message.state = repeating.moved(message, Happened.WILL_RETRY)
        message.cause, message.cause_detail = cause, detail
        repeating.hold(message)
        return stop(pair, message, cause, detail, terms, now)
    written = repeating.end(pair, message, Act.FAIL, cause, terms, detail, now)
    ordering.interrupted([message])
    return written


def entity_of(receipt: Receipt) -> tuple[str, bytes]:
    """Content-Type and body of a response."""
    body = receipt.response.partition(b"\r\n\r\n")[2]
    content_type = next((value for name, value in receipt.headers if name.lower() == "content-type"), "")
    return (content_type if content_type.isprintable() else ""), body


Take = Callable[[Arrival, Principal, Limits], object]


def in_response(
    receipt: Receipt, message: Message, pair: Pair, now: datetime, written: list[Event], take_message: Take
) -> bool:
    """What the response to a message says of it, if it is an ebXML message. Returns whether that moved the message.

    Call with both locked; the caller saves both. One that is the application's response is taken like any message that
    comes in (`take_message`), with what it says of ours, as soon as this is committed.
    """
    content_type, body = entity_of(receipt)
    if not body or not content_type:
        return False
    terms = _terms(message)
    try:
        envelope = ebms2.decode(content_type, body, Limits(body=len(body)))
    except NotAMessage:
        return False  # a page of a proxy, or the like: its status counts
    principal = Principal(pair.partner_id, terms.hop_party_name, _THEIR_SERVER)
    assert envelope.ebms is not None
    if envelope.ebms.kind is Ebms2Kind.BUSINESS and envelope.message_type is MessageType.NORMAL:
        # Nobody has shown a credential: a document comes in this way only where that is agreed, and only as the answer.
        if terms.sync_reply not in RESPONSES or envelope.ref_to_message_id != message.message_id:
            return False
        arrival = Arrival(content_type, body, Presented())
        # Should that fail, nothing is lost: ours is not acknowledged, so it goes out again, and so does theirs.
        transaction.on_commit(lambda: take_message(arrival, principal, Limits(body=len(body))), robust=True)
        return False
    item = Item(
        envelope=envelope,
        body=body,
        content_type=content_type,
        principal=principal,
        digest=storage.digest(body),
        terms=terms,
    )
    said = Said(now, {pair.pk: pair}, {message.message_id: [message]})
    take(item, said)
    bulk_insert(said.signals)
    written += said.written
    return message.pk in said.moved


def _terms(message: Message) -> Terms:
    return registry.current().version(message.agreement_version_id)
