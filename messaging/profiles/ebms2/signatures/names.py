"""Names in signed ebXML Messages (ebXML Messaging 2.0, section 4.1; XML Signature), and why one is refused."""

from __future__ import annotations

from enum import StrEnum

SOAP = "http://schemas.xmlsoap.org/soap/envelope/"
EB = "http://www.oasis-open.org/committees/ebxml-msg/schema/msg-header-2_0.xsd"
DS = "http://www.w3.org/2000/09/xmldsig#"

ENVELOPE, HEADER, BODY, ACTOR = (f"{{{SOAP}}}{name}" for name in ("Envelope", "Header", "Body", "actor"))
SIGNATURE = f"{{{DS}}}Signature"

NEXT_MSH = "urn:oasis:names:tc:ebxml-msg:actor:nextMSH"
NEXT = "http://schemas.xmlsoap.org/soap/actor/next"

ENVELOPED = "http://www.w3.org/2000/09/xmldsig#enveloped-signature"
XPATH = "http://www.w3.org/TR/1999/REC-xpath-19991116"
C14N = "http://www.w3.org/TR/2001/REC-xml-c14n-20010315"


class SignatureMethod(StrEnum):
    RSA_SHA256 = "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256"
    ECDSA_SHA256 = "http://www.w3.org/2001/04/xmldsig-more#ecdsa-sha256"
    RSA_SHA1 = "http://www.w3.org/2000/09/xmldsig#rsa-sha1"


class DigestMethod(StrEnum):
    SHA256 = "http://www.w3.org/2001/04/xmlenc#sha256"
    SHA1 = "http://www.w3.org/2000/09/xmldsig#sha1"


# What is accepted unless an agreement says that SHA-1 is, too.
STRONG: frozenset[SignatureMethod | DigestMethod] = frozenset(
    {SignatureMethod.RSA_SHA256, SignatureMethod.ECDSA_SHA256, DigestMethod.SHA256}
)


def exclusion(prefix: str) -> str:
    """The XPath that leaves out what a next hop may change (section 4.1.3). `prefix`: that of SOAP's namespace."""
    return (
        f'not(ancestor-or-self::node()[@{prefix}:actor="{NEXT_MSH}"] | '
        f'ancestor-or-self::node()[@{prefix}:actor="{NEXT}"])'
    )


class Reason(StrEnum):
    """Why a signature is refused."""

    UNREADABLE = "unreadable"
    TOO_COMPLEX = "too_complex"
    UNSIGNED = "unsigned"
    SEVERAL_SIGNATURES = "several_signatures"
    WRONG_PLACE = "wrong_place"
    MALFORMED = "malformed"
    UNSIGNED_CONTENT = "unsigned_content"
    DOCUMENT_NOT_REFERENCED = "document_not_referenced"
    FOREIGN_REFERENCE = "foreign_reference"
    PART_NOT_REFERENCED = "part_not_referenced"
    FORBIDDEN_TRANSFORM = "forbidden_transform"
    WEAK_ALGORITHM = "weak_algorithm"
    WEAK_KEY = "weak_key"
    FOREIGN_CERTIFICATE = "foreign_certificate"
    NOT_YET_VALID = "not_yet_valid"
    EXPIRED = "expired"
    NOT_INTACT = "not_intact"


class SignatureRefused(Exception):
    """A message is not signed as it must be. `reason` is for logs and screens, `detail` a sentence for people."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class CannotSign(Exception):
    """A message, key or certificate with which no signature can be made; a sentence that holds no key."""
