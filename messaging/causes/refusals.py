"""Words for why something that came in was refused."""

from __future__ import annotations

from collections.abc import Mapping

from messaging.causes.mail import REFUSALS as MAIL_REFUSALS
from messaging.causes.streams import REFUSALS as STREAM_REFUSALS
from messaging.causes.transactions import REFUSALS as TRANSACTION_REFUSALS
from messaging.profiles.repeatable.problems import PROBLEMS

# Why something that came in was refused (`Rejection.reason`): reasons of the entrance, of the reader, and error codes.
REFUSALS: Mapping[str, str] = {
    **{kind.reason: kind.title for kind in PROBLEMS.values()},
    **MAIL_REFUSALS,
    **STREAM_REFUSALS,
    **TRANSACTION_REFUSALS,
    "unauthenticated": "No credential of a partner was shown",
    "wrong_partner": "A partner used another partner's agreement",
    "unknown_agreement": "No such agreement is in force",
    "message_too_large": "Larger than the agreement allows",
    "body_too_large": "Larger than this hub takes",
    "not_mime": "Not a MIME entity",
    "not_ebxml": "Not an ebXML message",
    "no_header_part": "No ebXML header part",
    "xml_not_well_formed": "Header is not well-formed XML",
    "dtd_forbidden": "XML with a DOCTYPE",
    "too_deep": "XML nested too deep",
    "too_many_elements": "XML with too many elements",
    "too_many_parts": "Too many MIME parts",
    "header_too_large": "Header too large",
    "part_headers_too_large": "MIME part headers too large",
    "bad_transfer_encoding": "Transfer encoding unreadable",
    "truncated": "Broken off",
    "missing_message_id": "No MessageId",
    "missing_routing_header": "No RoutingHeader",
    "missing_sender_uri": "No SenderURI",
    "missing_receiver_uri": "No ReceiverURI",
    "InvalidSequenceNumber": "Sequence number refused",
    "NotWellFormed": "Not well-formed",
    "ValueNotRecognized": "Outside the agreement",
    "NotSupported": "Not supported",
    "Inconsistent": "Parts contradict each other",
    "MimeProblem": "MIME parts unreadable",
    "SecurityFailure": "Security check failed",
}


def refusal_label(reason: str) -> str:
    """The words for a `Rejection.reason`; an unknown one is shown as it is."""
    return REFUSALS.get(reason) or reason.replace("_", " ").capitalize()
