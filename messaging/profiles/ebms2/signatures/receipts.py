"""Signed acknowledgements: the references of a message go back to its sender, and prove what was received.

(ebXML Messaging 2.0, section 6.3.2: an Acknowledgment may have ds:Reference elements.)
"""

from __future__ import annotations

from collections.abc import Iterable

from lxml import etree

from messaging.profiles.ebms2.signatures.names import DS, SIGNATURE, Reason, SignatureRefused
from messaging.profiles.ebms2.signatures.reading import NO_URI, Reference, digest_in, header_of, read_tree


def references_of(document: bytes) -> tuple[bytes, ...]:
    """The ds:Reference elements of a signed message, to copy into its acknowledgement. It must have been verified.

    As XML in ASCII that declares every prefix it needs: a tree into which a copy is put loses those that only an XPath
    has. Raises SignatureRefused: unreadable, too_complex, wrong_place, unsigned.
    """
    signature = header_of(read_tree(document)).find(SIGNATURE)
    if signature is None:
        raise SignatureRefused(Reason.UNSIGNED, "The message has no signature.")
    found = signature.findall(f"{{{DS}}}SignedInfo/{{{DS}}}Reference")
    return tuple(etree.tostring(one, with_tail=False) for one in found)


def covers(acknowledged: Iterable[etree._Element], sent: Iterable[Reference]) -> bool:
    """Whether the ds:Reference elements of an acknowledgement prove that all that was sent has arrived unchanged.

    Each reference of the signed message is there, with the same digest by the same algorithm; none is there twice or
    more than was sent. The signature of the acknowledgement itself is checked by `verify`. Never raises.
    """
    received: dict[str | None, tuple[str, bytes]] = {}
    for element in acknowledged:
        try:
            one = reference_in(element)
        except SignatureRefused:
            return False
        if one.cid in received:
            return False
        received[one.cid] = one.method, one.digest
    wanted = {one.cid: (one.method, one.digest) for one in sent}
    return bool(wanted) and received == wanted


def reference_in(element: etree._Element) -> Reference:
    """What a ds:Reference says. Raises SignatureRefused: malformed, foreign_reference."""
    method = element.find(f"{{{DS}}}DigestMethod")
    reference = Reference(
        element.get("URI", NO_URI), "" if method is None else method.get("Algorithm", ""), digest_in(element)
    )
    if reference.uri and reference.cid is None:
        raise SignatureRefused(Reason.FOREIGN_REFERENCE, f"{reference.uri[:100]} is no part of a message.")
    return reference
