"""Cause codes of transactional streams, as rows of `messaging.causes`; and words for what is refused in them.

Each row: code, label, what happened, what to do, whether time alone may fix it.
"""

from __future__ import annotations

from messaging.causes.cause import Row
from rmhub.language import gettext_lazy as _


def _final(*known: tuple[str, str, str]) -> tuple[Row, ...]:
    """What the negative final receipts say (`protocol.streams.final`): the end of one message."""
    action = _(
        "Read the receipt on the message's page and ask the partner. When they have fixed it, have the application "
        "submit the document again."
    )
    return tuple((f"final_{name}", label, sentence, action, False) for name, label, sentence in known)


SENT: tuple[Row, ...] = (
    (
        "stream_unacknowledged",
        _("Stream not acknowledged"),
        _(
            "The messages were handed over, but no order acknowledgement came, although all were sent again as often "
            "as agreed."
        ),
        _(
            "Ask the partner whether they have them and why they do not acknowledge. Resume sends the same messages "
            "again; a partner that has them already only acknowledges."
        ),
        True,
    ),
    (
        "not_taken_now",
        _("Partner asks to retry later"),
        _(
            "The partner does not take the message for the moment: what it follows is not there yet, or the partner is "
            "busy."
        ),
        _("Nothing to do: it goes out again when the partner said. If it goes on, ask the partner."),
        True,
    ),
    (
        "expired",
        _("Expired before it was sent"),
        _("The message's time to live was over before it could be sent. It never went out and has used no number."),
        _(
            "Ask the application whether it is still wanted, and submit it again. If it happens often, find out what "
            "held the pair up, or have messages live longer."
        ),
        False,
    ),
    (
        "expired_unconfirmed",
        _("Expired after it was sent"),
        _(
            "The message's time to live was over before the partner acknowledged it. It was sent, so it may have been "
            "received; it is not sent again, and what follows leaves its number out."
        ),
        _("Find out from the partner whether they have it. Then mark it as delivered, or send it as a new message."),
        False,
    ),
    (
        "unconfirmed",
        _("No final receipt"),
        _(
            "The partner's hub has stored the message, and no final receipt said in time that the partner's "
            "application took it."
        ),
        _("Ask the partner whether their application has it. Then mark it as delivered, or send it as a new message."),
        False,
    ),
    *_final(
        (
            "bad_dst_q",
            _("Partner has no such destination"),
            _(
                "The partner's final receipt says: the partner has no destination for this service. It is not sent "
                "again."
            ),
        ),
        (
            "deleted",
            _("Deleted by the partner"),
            _(
                "The partner's final receipt says: the partner deleted it before the application took it. It is not "
                "sent again."
            ),
        ),
        (
            "reach_queue_timeout",
            _("Arrived too late"),
            _("The partner's final receipt says: its time was over before it arrived. It is not sent again."),
        ),
        (
            "q_exceed_quota",
            _("Partner's queue was full"),
            _("The partner's final receipt says: too many documents wait at the partner. It is not sent again."),
        ),
        (
            "access_denied",
            _("Partner denies access"),
            _("The partner's final receipt says: we may not use that destination. It is not sent again."),
        ),
        (
            "hop_count_exceeded",
            _("Too many hops"),
            _("The partner's final receipt says: it passed through too many hops. It is not sent again."),
        ),
        (
            "bad_signature",
            _("Signature not valid for the partner"),
            _("The partner's final receipt says: its signature does not fit. It is not sent again."),
        ),
        (
            "bad_encryption",
            _("Unreadable for the partner"),
            _("The partner's final receipt says: the partner cannot decrypt it. It is not sent again."),
        ),
        (
            "not_transactional_q",
            _("Partner's destination takes no streams"),
            _("The partner's final receipt says: the destination takes no streams. It is not sent again."),
        ),
        (
            "not_transactional_msg",
            _("Partner's destination takes streams only"),
            _("The partner's final receipt says: the destination takes streams only. It is not sent again."),
        ),
        (
            "q_deleted",
            _("Partner's queue deleted"),
            _("The partner's final receipt says: the partner's queue was deleted with it. It is not sent again."),
        ),
        (
            "q_purged",
            _("Partner's queue emptied"),
            _("The partner's final receipt says: the partner's queue was emptied. It is not sent again."),
        ),
        (
            "receive_timeout",
            _("Not taken in time"),
            _(
                "The partner's final receipt says: the partner's application did not take it in time. It is not sent "
                "again."
            ),
        ),
        (
            "receive_rejected",
            _("Refused by the partner's application"),
            _("The partner's final receipt says: the partner's application refused it. It is not sent again."),
        ),
        (
            "other",
            _("Refused by the partner"),
            _(
                "The partner's final receipt says: the partner refuses it for a reason of its own. It is not sent "
                "again."
            ),
        ),
    ),
)
RECEIVED: tuple[Row, ...] = (
    (
        "inbound_quota",
        _("Inbound quota exceeded"),
        _(
            "More documents of the partner wait for our applications than the agreement allows, so further ones are "
            "refused permanently; the partner is notified of each."
        ),
        _(
            "See why the triggers do not get on, or allow more in the agreement. Then have the partner send the "
            "refused documents again, as new messages."
        ),
        False,
    ),
)
REFUSALS: dict[str, str] = {
    "unknown_uri": _("To a URI that is not of an agreement"),
    "not_soap": _("Not a SOAP message"),
    "missing_to": _("No receiver named"),
    "bad_stream_header": _("Stream header unreadable"),
    "bad_receipt": _("Receipt unreadable"),
    "bad_document_id": _("Invalid document id"),
    "unexpected_class": _("Message class without its element"),
    "stream_malformed": _("Numbers of the stream out of range"),
    "stream_previous_missing": _("Arrived before its predecessor"),
    "stream_head_missing": _("Arrived before the start of its stream"),
    "stream_older_stream": _("Of a stream that has ended"),
    "stream_bad_dst_q": _("Outside the agreement"),
    "stream_access_denied": _("From a party that is not of the agreement"),
    "stream_not_transactional_q": _("The agreement is not for streams"),
    "stream_q_exceed_quota": _("Quota exceeded: too many documents wait"),
    "stream_way_onward": _("The next hop is suspended"),
}
