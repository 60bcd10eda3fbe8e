"""Lexical rules and names of the stream profile ([MC-MQSRM] 2.2.1, 2.2.3, 2.2.5.3.1)."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from messaging.protocol.codecs.ebxml_lexical import parse_timestamp
from messaging.protocol.codecs.related import Packaging
from messaging.protocol.codecs.xml import XML_SPACE
from messaging.protocol.errors import EncodeError
from messaging.protocol.streams.envelope import LAST_ID

SOAP = "http://schemas.xmlsoap.org/soap/envelope/"
ROUTING = "http://schemas.xmlsoap.org/rp/"
SRMP = "http://schemas.xmlsoap.org/srmp/"
MSMQ = "msmq.namespace.xml"
NAMESPACE = "urn:rmhub:stream:1"  # our own header block

SOAP_ACTION = '"MSMQMessage"'  # value of the HTTP header
PACKAGING = Packaging("SOAP envelope", "text/xml", frozenset(("text/xml", "application/xml")), "rmstream-")
LABEL_PREFIX = "MSMQ:"
ORDER_ACK_LABEL = "QM Ordering Ack"
NEVER = datetime(2038, 1, 19, 3, 14, 7, tzinfo=UTC)  # the last second of a signed 32-bit clock: no end

_STREAM_ID = re.compile(
    r"uid:\{?([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})\}?\\([0-9]{1,20})", re.IGNORECASE
)
_GUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_NUMBER = re.compile(r"[0-9]{1,20}")


def stream_id(source: str, tx_sequence_id: int) -> str:
    r"""`uid:2744e4e1-2b48-43e8-b441-42745f280d53\4839986701558349830`. Raises EncodeError."""
    if not 1 <= tx_sequence_id <= LAST_ID:
        raise EncodeError(f"stream id {tx_sequence_id} is not in 1..{LAST_ID}")
    return f"uid:{guid(source)}\\{tx_sequence_id}"


def parse_stream_id(text: str) -> tuple[str, int]:
    """(the sender's GUID in lower case, TxSequenceID). Raises ValueError for anything else."""
    matched = _STREAM_ID.fullmatch(text.strip(XML_SPACE))
    if matched is None or int(matched[2]) > LAST_ID:
        raise ValueError(f"{text.strip()[:80]!r} is no uid:, GUID, backslash and number of 64 bits")
    return matched[1].lower(), int(matched[2])


def parse_number(text: str) -> int:
    """An xs:unsignedLong. Raises ValueError."""
    if _NUMBER.fullmatch(text) is None or int(text) > LAST_ID:
        raise ValueError(f"{text[:40]!r} is not an unsigned number of 64 bits")
    return int(text)


def guid(text: str) -> str:
    """A GUID as it is written. Raises EncodeError for one that is not in lower case, or none."""
    if _GUID.fullmatch(text) is None:
        raise EncodeError(f"{text[:60]!r} is not a GUID in lower case")
    return text


def format_time(value: datetime) -> str:
    """`20070619T165959`, in UTC; what is less than a second is cut off. Raises EncodeError."""
    if value.utcoffset() is None:
        raise EncodeError("a time without a zone has no wire form")
    try:
        return value.astimezone(UTC).isoformat(timespec="seconds")[:19].replace("-", "").replace(":", "")
    except OverflowError:
        raise EncodeError("the time is out of range") from None


def parse_time(text: str) -> datetime:
    """The instant; other forms of ISO 8601 are read too. Raises ValueError."""
    return parse_timestamp(text).replace(microsecond=0)
