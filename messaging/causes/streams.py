"""Cause codes of transactional streams, as rows of `messaging.causes`; and words for what is refused in them.

Each row: code, label, what happened, what to do, whether time alone may fix it.
"""

from __future__ import annotations

from messaging.causes.cause import Row


def _final(*known: tuple[str, str, str]) -> tuple[Row, ...]:
    """What the negative final receipts say (`protocol.streams.final`): the end of one message."""
    action = (
        "Read the receipt on the message's page and ask the partner. When they have fixed it, have the application "
        "submit the document again."
    )
    return tuple(
        (f"final_{name}", label, f"The partner's final receipt says: {meaning}. It is not sent again.", action, False)
        for name, label, meaning in known
    )


SENT: tuple[Row, ...] = (
    (
        "stream_unacknowledged",
        "Stream not acknowledged",
        "The messages were handed over, but no order acknowledgement came, although all were sent again as often as "
        "agreed.",
        "Ask the partner whether they have them and why they do not acknowledge. Resume sends the same messages again; "
        "a partner that has them already only acknowledges.",
        True,
    ),
    (
        "not_taken_now",
        "Partner asks to retry later",
        "The partner does not take the message for the moment: what it follows is not there yet, or the partner is "
        "busy.",
        "Nothing to do: it goes out again when the partner said. If it goes on, ask the partner.",
        True,
    ),
    (
        "expired",
        "Expired before it was sent",
        "The message's time to live was over before it could be sent. It never went out and has used no number.",
        "Ask the application whether it is still wanted, and submit it again. If it happens often, find out what held "
        "the pair up, or have messages live longer.",
        False,
    ),
    (
        "expired_unconfirmed",
        "Expired after it was sent",
        "The message's time to live was over before the partner acknowledged it. It was sent, so it may have been "
        "received; it is not sent again, and what follows leaves its number out.",
        "Find out from the partner whether they have it. Then mark it as delivered, or send it as a new message.",
        False,
    ),
    (
        "unconfirmed",
        "No final receipt",
        "The partner's hub has stored the message, and no final receipt said in time that the partner's application "
        "took it.",
        "Ask the partner whether their application has it. Then mark it as delivered, or send it as a new message.",
        False,
    ),
    *_final(
        ("bad_dst_q", "Partner has no such destination", "the partner has no destination for this service"),
        ("deleted", "Deleted by the partner", "the partner deleted it before the application took it"),
        ("reach_queue_timeout", "Arrived too late", "its time was over before it arrived"),
        ("q_exceed_quota", "Partner's queue was full", "too many documents wait at the partner"),
        ("access_denied", "Partner denies access", "we may not use that destination"),
        ("hop_count_exceeded", "Too many hops", "it passed through too many hops"),
        ("bad_signature", "Signature not valid for the partner", "its signature does not fit"),
        ("bad_encryption", "Unreadable for the partner", "the partner cannot decrypt it"),
        ("not_transactional_q", "Partner's destination takes no streams", "the destination takes no streams"),
        ("not_transactional_msg", "Partner's destination takes streams only", "the destination takes streams only"),
        ("q_deleted", "Partner's queue deleted", "the partner's queue was deleted with it"),
        ("q_purged", "Partner's queue emptied", "the partner's queue was emptied"),
        ("receive_timeout", "Not taken in time", "the partner's application did not take it in time"),
        ("receive_rejected", "Refused by the partner's application", "the partner's application refused it"),
        ("other", "Refused by the partner", "the partner refuses it for a reason of its own"),
    ),
)
RECEIVED: tuple[Row, ...] = (
    (
        "inbound_quota",
        "Inbound quota exceeded",
        "More documents of the partner wait for our applications than the agreement allows, so further ones are "
        "refused permanently; the partner is notified of each.",
        "See why the triggers do not get on, or allow more in the agreement. Then have the partner send the refused "
        "documents again, as new messages.",
        False,
    ),
)
REFUSALS: dict[str, str] = {
    "unknown_uri": "To a URI that is not of an agreement",
    "not_soap": "Not a SOAP message",
    "missing_to": "No receiver named",
    "bad_stream_header": "Stream header unreadable",
    "bad_receipt": "Receipt unreadable",
    "bad_document_id": "Invalid document id",
    "unexpected_class": "Message class without its element",
    "stream_malformed": "Numbers of the stream out of range",
    "stream_previous_missing": "Arrived before its predecessor",
    "stream_head_missing": "Arrived before the start of its stream",
    "stream_older_stream": "Of a stream that has ended",
    "stream_bad_dst_q": "Outside the agreement",
    "stream_access_denied": "From a party that is not of the agreement",
    "stream_not_transactional_q": "The agreement is not for streams",
    "stream_q_exceed_quota": "Quota exceeded: too many documents wait",
    "stream_way_onward": "The next hop is suspended",
}
