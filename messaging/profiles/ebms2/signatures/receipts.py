"""Signed acknowledgements: the digests of a message go back to its sender, and prove what was received.

(ebXML Messaging 2.0, section 6.3.2: an Acknowledgment may have ds:Reference elements.)
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable

from messaging.profiles.ebms2.signatures.parts import cid_of
from messaging.protocol.envelope import Digest


def covers(acknowledged: Iterable[Digest], sent: Iterable[Digest]) -> bool:
    """Whether the digests of an acknowledgement prove that all that was sent has arrived unchanged.

    Each reference of the signed message is there, with the same digest by the same algorithm; none is there twice or
    more than was sent. The signature of the acknowledgement itself is checked by `verify`. Never raises.
    """
    received, wanted = _by_place(acknowledged), _by_place(sent)
    return bool(wanted) and received == wanted


def _by_place(digests: Iterable[Digest]) -> dict[str | None, tuple[str, bytes]] | None:
    """Algorithm and digest by Content-ID, None for the document; None where one place is there twice, or unknown."""
    found: dict[str | None, tuple[str, bytes]] = {}
    for one in digests:
        place = cid_of(one.uri)
        if place in found or (one.uri and place is None):
            return None
        try:
            found[place] = one.method, b64decode(one.value, validate=True)
        except ValueError:
            return None
    return found
