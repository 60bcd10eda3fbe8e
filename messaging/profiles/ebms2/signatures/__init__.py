"""XML signatures of ebXML Messaging 2.0 messages: made, checked, and returned in acknowledgements."""

from __future__ import annotations

from messaging.profiles.ebms2.signatures.names import (
    STRONG,
    CannotSign,
    DigestMethod,
    Reason,
    SignatureMethod,
    SignatureRefused,
)
from messaging.profiles.ebms2.signatures.reading import Reference
from messaging.profiles.ebms2.signatures.receipts import covers
from messaging.profiles.ebms2.signatures.signing import check, sign
from messaging.profiles.ebms2.signatures.verifying import Verified, verify

__all__ = [
    "STRONG",
    "CannotSign",
    "DigestMethod",
    "Reason",
    "Reference",
    "SignatureMethod",
    "SignatureRefused",
    "Verified",
    "check",
    "covers",
    "sign",
    "verify",
]
