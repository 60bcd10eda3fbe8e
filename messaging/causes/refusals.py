"""Words for why something that came in was refused."""

from __future__ import annotations

from collections.abc import Mapping

from django.conf import settings
from django.utils.translation import override

from messaging.causes.mail import REFUSALS as MAIL_REFUSALS
from messaging.causes.streams import REFUSALS as STREAM_REFUSALS
from messaging.causes.transactions import REFUSALS as TRANSACTION_REFUSALS
from messaging.profiles.repeatable.problems import PROBLEMS
from rmhub.language import gettext_lazy as _

# Why something that came in was refused (`Rejection.reason`): reasons of the entrance, of the reader, and error codes.
REFUSALS: Mapping[str, str] = {
    **{kind.reason: _(kind.title) for kind in PROBLEMS.values()},
    **MAIL_REFUSALS,
    **STREAM_REFUSALS,
    **TRANSACTION_REFUSALS,
    "unauthenticated": _("No credential of a partner was shown"),
    "wrong_partner": _("A partner used another partner's agreement"),
    "unknown_agreement": _("No such agreement is in force"),
    "message_too_large": _("Larger than the agreement allows"),
    "body_too_large": _("Larger than this hub takes"),
    "not_mime": _("Not a MIME entity"),
    "not_ebxml": _("Not an ebXML message"),
    "no_header_part": _("No ebXML header part"),
    "xml_not_well_formed": _("Header is not well-formed XML"),
    "dtd_forbidden": _("XML with a DOCTYPE"),
    "too_deep": _("XML nested too deep"),
    "too_many_elements": _("XML with too many elements"),
    "too_many_parts": _("Too many MIME parts"),
    "header_too_large": _("Header too large"),
    "part_headers_too_large": _("MIME part headers too large"),
    "bad_transfer_encoding": _("Transfer encoding unreadable"),
    "truncated": _("Broken off"),
    "missing_message_id": _("No MessageId"),
    "missing_routing_header": _("No RoutingHeader"),
    "missing_sender_uri": _("No SenderURI"),
    "missing_receiver_uri": _("No ReceiverURI"),
    "InvalidSequenceNumber": _("Sequence number refused"),
    "NotWellFormed": _("Not well-formed"),
    "ValueNotRecognized": _("Outside the agreement"),
    "NotSupported": _("Not supported"),
    "Inconsistent": _("Parts contradict each other"),
    "MimeProblem": _("MIME parts unreadable"),
    "signing_impossible": _("Acknowledgement cannot be signed here"),
    "decryption_impossible": _("Documents cannot be decrypted here"),
    "SecurityFailure": _("Security check failed"),
    "OtherXml": _("Element missing or surplus"),
    "TimeToLiveExpired": _("Time to live ended"),
}


def refusal_label(reason: str) -> str:
    """The words for a `Rejection.reason`; an unknown one is shown as it is."""
    return str(REFUSALS.get(reason) or reason.replace("_", " ").capitalize())


def tells_more(reason: str, detail: str) -> bool:
    """Whether a `Rejection.detail`, which is stored as English, says more than the words for its reason do."""
    with override(settings.LANGUAGE_CODE):
        return detail != f"{refusal_label(reason)}."
