"""Turns a stored message into a repeatable request (spec 2)."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from messaging import storage
from messaging.models import Message, Payload
from messaging.protocol import document_ids
from messaging.protocol.codecs import repeatable
from partners.choices import ExchangeIdentity
from partners.terms import Terms

# Of the answer to a request; a body of 64 KiB is kept whole.
_ANSWER_BYTES = 72 * 1024
_BARE_FRAME = storage.pack_frame((b"", b""))  # a body that is one payload and nothing else
_HEADER_SAFE = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")


def prepare(message: Message, payloads: list[Payload]) -> bytes | storage.Large:
    """The body of a repeatable request is its one payload as it is. Sets frame, digest and content type.

    Raises storage.PayloadMissing; the row is unchanged then.
    """
    (payload,) = payloads
    body = storage.opened(payload.content, payload.stored_as)
    message.wire_frame = _BARE_FRAME
    message.content_type = payload.content_type
    message.digest = payload.sha256
    return body


def headers(message: Message, terms: Terms) -> tuple[tuple[str, str], ...]:
    """The headers of a repeatable request, from what never changes: the same for every copy of it."""
    by_key = terms.exchange_identity == ExchangeIdentity.KEY
    identity = repeatable.Identity(message.message_id, None if by_key else message.first_sent_at, by_key=by_key)
    named = {
        "RM-Service": message.service,
        "RM-Action": message.action,
        "RM-Conversation-ID": message.conversation_id,
        "RM-Ref-To-Message-ID": message.ref_to_message_id,
    }
    if message.document_id:
        named[document_ids.HEADER] = message.document_id
    if terms.hop_party_id != terms.partner_id:  # the hop is a router, and passes it on
        named["RM-To"] = ":".join(terms.partner_identifiers[0])
    # Header values are ASCII (RFC 9110, 5.5); what is not, and the sign that says so, is percent-encoded.
    return (
        *repeatable.write(identity),
        *((name, quote(value, safe=_HEADER_SAFE)) for name, value in named.items() if value),
    )


def fields(message: Message, terms: Terms) -> dict[str, Any]:
    """Fields of the Parcel of a request, beside those that all messages have."""
    return {"headers": headers(message, terms), "answer_bytes": _ANSWER_BYTES, "not_after": message.expires_at}
