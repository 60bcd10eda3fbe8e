"""What becomes of each element and attribute of an agreement, and what in it does not fit: closed lists.

Everything in a document is mapped, ignored for a reason, or in conflict with something; nothing is passed over.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    MAPPED = "mapped"
    IGNORED = "ignored"
    CONFLICTING = "conflicting"


class Matter(StrEnum):
    """What a finding is about."""

    # mapped
    VALUE = "value"
    BEST_EFFORT = "best_effort"
    PER_MESSAGE = "per_message"
    # ignored
    DOCUMENT_SIGNATURE = "document_signature"
    BUSINESS_PROCESS = "business_process"
    ABOUT_PARTY = "about_party"
    SAID_BY_CERTIFICATE = "said_by_certificate"
    KEY_ALONE = "key_alone"
    REVOCATION = "revocation"
    SECURITY_POLICY = "security_policy"
    TRANSFORMS = "transforms"
    FOR_XML_TOOLS = "for_xml_tools"
    UNUSED = "unused"
    EXTENSION = "extension"
    # conflicting
    STATUS = "status"
    ENDED = "ended"
    NOT_BEGUN = "not_begun"
    END_BEFORE_START = "end_before_start"
    SAME_PARTY = "same_party"
    MONTHS = "months"
    PERSIST_DURATION = "persist_duration"
    NO_RELIABILITY = "no_reliability"
    MAIL_URI = "mail_uri"
    URI_SCHEME = "uri_scheme"
    NO_ENDPOINT = "no_endpoint"
    OLD_TLS = "old_tls"
    CERTIFICATE_MISSING = "certificate_missing"
    CERTIFICATE_UNREADABLE = "certificate_unreadable"
    CERTIFICATE_TIME = "certificate_time"
    SEVERAL_CERTIFICATES = "several_certificates"
    NO_SIGNATURE = "no_signature"
    ALGORITHM_NAMES = "algorithm_names"
    WEAK_ALGORITHM = "weak_algorithm"
    NO_COUNTERPART = "no_counterpart"
    COUNTERPART_DIFFERS = "counterpart_differs"
    AMBIGUOUS = "ambiguous"
    SIDES_DIFFER = "sides_differ"
    DIRECTIONS_DIFFER = "directions_differ"
    # conflicting with what an agreement of this hub can hold, and with what is here
    LEFT_OUT = "left_out"
    ONE_VALUE = "one_value"
    SERVICE_TYPE = "service_type"
    HASH = "hash"
    NOT_ENCRYPTED = "not_encrypted"
    NO_TYPE = "no_type"
    OUR_IDENTIFIER = "our_identifier"
    OUR_ENDPOINT = "our_endpoint"
    OUR_CERTIFICATE = "our_certificate"


REASONS = {
    Matter.DOCUMENT_SIGNATURE: "The signature of the agreement itself is not verified: compare the document with the "
    "one that was signed.",
    Matter.BUSINESS_PROCESS: "It is for the applications that run the business process.",
    Matter.ABOUT_PARTY: "It is about a document that describes the party to people.",
    Matter.SAID_BY_CERTIFICATE: "The certificate beside it says it.",
    Matter.KEY_ALONE: "A key, or its name, without a certificate of its own is not used.",
    Matter.REVOCATION: "Lists of revoked certificates are not taken from agreements.",
    Matter.SECURITY_POLICY: "The standard gives it no content.",
    Matter.TRANSFORMS: "Signatures have the transforms of ebXML Messaging 2.0 and no others.",
    Matter.FOR_XML_TOOLS: "It helps XML tools, and says nothing about the agreement.",
    Matter.UNUSED: "No delivery channel uses it.",
    Matter.EXTENSION: "It is an extension of the standard that this hub does not know.",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of one place of the document, or one thing that does not fit there.

    `text`: of what is mapped, the value as it was read ("" for an element that only holds others); of what is ignored,
    the reason; else a sentence that says what is wrong and what this hub makes of it. `line`: from 1.
    """

    kind: Kind
    path: str
    line: int
    text: str
    matter: Matter = Matter.VALUE
