"""Lexical rules of the ebXML profile: time stamps, sequence numbers, URIs, identifiers (wire-ebxml 1.4)."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

from lxml import etree

from messaging.protocol.envelope import MAX_SEQUENCE_NUMBER

# The ebMS 1.0 header namespace; spec 1 shows its fragments without one, so readers take both (wire-ebxml 1.2).
NAMESPACE = "http://www.ebxml.org/namespaces/messageHeader"
VERSION = "0.21"
HEADER_MEDIA_TYPE = "application/vnd.eb+xml"

# Stands for a time stamp of which nothing can be read; the envelope then has a defect.
UNKNOWN_TIME = datetime(1970, 1, 1, tzinfo=UTC)

# What no identifier may hold: line breaks and other controls would end up in headers, logs and file names.
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")

_BRACED_NAMESPACE = "{" + NAMESPACE + "}"
_TIMESTAMP = re.compile(
    r"([0-9]{4})(-?)([0-9]{2})\2([0-9]{2})[Tt ]([0-9]{2})(:?)([0-9]{2})(?:\6([0-9]{2})(?:[.,]([0-9]+))?)?"
    r"\s*(?:[Zz]|([+-])([0-9]{2})(?::?([0-9]{2}))?)?"
)
_SEQUENCE_NUMBER = re.compile(r"[0-9]{1,9}")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_AUTHORITY_END = re.compile(r"[/?#]")


def local_name(element: etree._Element) -> str:
    """Local name in the header namespace or in none; a name of another namespace keeps its braces."""
    return element.tag.removeprefix(_BRACED_NAMESPACE)


def format_timestamp(value: datetime) -> str:
    """ISO 8601 basic with milliseconds, UTC: `20001002T103000.000Z` (spec 1, 2.4).

    Microseconds are cut off. Raises ValueError for a naive datetime, or one whose UTC year is not 1 to 9999.
    """
    if value.tzinfo is not UTC:
        if value.utcoffset() is None:
            raise ValueError("a time stamp without a zone has no wire form")
        try:
            value = value.astimezone(UTC)
        except OverflowError:
            raise ValueError("the time stamp is out of range") from None
    return value.isoformat(timespec="milliseconds")[:23].replace("-", "").replace(":", "") + "Z"


def parse_timestamp(text: str) -> datetime:
    """The UTC instant of an ISO 8601 time stamp, basic or extended, with any offset.

    No zone means UTC (seen in real messages, wire-ebxml 3.4); fractions may have any number of
    digits, those after the sixth are cut off; a leap second becomes the next one. Raises ValueError.
    """
    match = _TIMESTAMP.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text.strip()[:40]!r} is not an ISO 8601 time stamp")
    year, _dash, month, day, hour, _colon, minute, second, fraction, sign, offset_hours, offset_minutes = match.groups()
    microsecond = int((fraction + "00000")[:6]) if fraction else 0
    leap = second == "60"
    try:
        moment = datetime(
            int(year),
            int(month),
            int(day),
            int(hour),
            int(minute),
            59 if leap else int(second or 0),
            microsecond,
            tzinfo=UTC,
        )
        if leap:
            moment += timedelta(seconds=1)
        if sign:
            offset = timedelta(hours=int(offset_hours), minutes=int(offset_minutes or 0))
            moment = moment.replace(tzinfo=timezone(offset if sign == "+" else -offset)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"{text.strip()[:40]!r} is not a date and time") from None
    return moment


def parse_sequence_number(text: str) -> int | None:
    """A SequenceNumber's value, 1 to 999,999,999, or None when the text is no such number.

    ASCII digits, at most nine, leading zeros allowed (spec 1, 2.2.2 and the sample of 2.4).
    """
    if _SEQUENCE_NUMBER.fullmatch(text) is None:
        return None
    return int(text) or None


def format_sequence_number(number: int, padded: bool = True) -> str:
    """`000000023` as in the sample of spec 1, 2.4, or `23`. Raises ValueError outside 1 to 999,999,999."""
    if not 1 <= number <= MAX_SEQUENCE_NUMBER:
        raise ValueError(f"sequence number {number} is not in 1..{MAX_SEQUENCE_NUMBER}")
    return f"{number:09d}" if padded else str(number)


def normalize_uri(uri: str) -> str:
    """A URI in the form in which URIs are compared: trimmed, scheme and host in lower case, nothing else changed.

    The host of a `mailto:` URI is what follows the last `@` of its address. A text without a scheme is only trimmed.
    """
    uri = uri.strip()
    scheme, colon, rest = uri.partition(":")
    if not colon or _SCHEME.fullmatch(scheme) is None:
        return uri
    scheme = scheme.lower()
    if rest.startswith("//"):
        end = _AUTHORITY_END.search(rest, 2)
        stop = end.start() if end else len(rest)
        user, at, host = rest[2:stop].rpartition("@")
        return f"{scheme}://{user}{at}{host.lower()}{rest[stop:]}"
    if scheme == "mailto":
        address, question, fields = rest.partition("?")
        local, at, host = address.rpartition("@")
        return f"mailto:{local}{at}{host.lower() if at else host}{question}{fields}"
    return f"{scheme}:{rest}"
