"""Signed messages that are changed: by somebody on the way, or by a signer who means harm."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import xmlsec
from lxml import etree

from messaging.profiles.ebms2.signatures import Reason, SignatureRefused, verify
from messaging.profiles.ebms2.signatures.parts import with_parts
from tests.messaging.profiles.ebms2.signed import NOW, PARTS, message, signer

DS = "{http://www.w3.org/2000/09/xmldsig#}"
SOAP = "{http://schemas.xmlsoap.org/soap/envelope/}"
EB = "{http://www.oasis-open.org/committees/ebxml-msg/schema/msg-header-2_0.xsd}"
Change = Callable[[etree._Element], None]


def refusal(document: bytes, parts: dict[str, bytes] = PARTS) -> Reason:
    with pytest.raises(SignatureRefused) as refused:
        verify(document, parts, [signer().certificate], at=NOW)
    return refused.value.reason


def edited(change: Change) -> bytes:
    """The signed message with its tree changed afterwards."""
    root = etree.fromstring(message())
    change(root)
    return etree.tostring(root)


def signed_anew(change: Change) -> bytes:
    """The message with its tree changed, and signed again as it is: what a partner who knows the key could send."""
    root = etree.fromstring(message())
    change(root)
    signature = root.find(f".//{DS}Signature")
    assert signature is not None
    for xpath in signature.findall(f".//{DS}XPath"):
        if "SOAP-ENV" not in xpath.nsmap and "SOAP-ENV" in str(xpath.text):  # lost when a tree moved it
            step = xpath.getparent()
            assert step is not None
            step.remove(xpath)
            etree.SubElement(step, f"{DS}XPath", nsmap={"SOAP-ENV": SOAP[1:-1]}).text = xpath.text
    context = xmlsec.SignatureContext()
    context.key = xmlsec.Key.from_memory(signer().key, xmlsec.constants.KeyDataFormatPem)
    everything = {f"cid:{cid}": part for cid, part in PARTS.items()}
    with_parts(everything, partial(context.sign, signature))
    return etree.tostring(root)


def signature_of(root: etree._Element) -> etree._Element:
    return root[0][-1]
