"""Names and lexical rules of the ebms2 profile (OASIS ebXML Messaging 2.0, msg-header-2_0.xsd; wire-ebxml 3.1)."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from urllib.parse import quote

from messaging.protocol.codecs.related import Packaging
from messaging.protocol.envelope import Actor
from messaging.protocol.errors import EncodeError

SOAP = "http://schemas.xmlsoap.org/soap/envelope/"
EB = "http://www.oasis-open.org/committees/ebxml-msg/schema/msg-header-2_0.xsd"
XLINK = "http://www.w3.org/1999/xlink"
NAMESPACE = "urn:rmhub:ebms2:1"  # our own header block
DS = "http://www.w3.org/2000/09/xmldsig#"

VERSION = "2.0"
SOAP_ACTION = '"ebXML"'  # value of the HTTP header
SERVICE = "urn:oasis:names:tc:ebxml-msg:service"  # of all signals
NEXT = "http://schemas.xmlsoap.org/soap/actor/next"  # SOAP 1.1, 4.2.2: whoever receives the message
OUR_ACTORS = frozenset((NEXT, *Actor))
PACKAGING = Packaging("SOAP envelope", "text/xml", frozenset(("text/xml", "application/xml")), "ebms2-")

MAX_ORDER = 99_999_999

_ORDER = re.compile(r"\+?[0-9]{1,20}")
_LANGUAGE = re.compile(r"[A-Za-z]{1,8}(?:-[A-Za-z0-9]{1,8})*")
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_SAFE = "!$&'()*+,;=:@/?-._~%"  # RFC 3986, without the brackets and the number sign
_STRAY_PERCENT = re.compile("%(?![0-9A-Fa-f]{2})")
_CHAR = r"[A-Za-z0-9!$&'()*+,;=._~-]|%[0-9A-Fa-f]{2}"
_REFERENCE = re.compile(
    rf"""
    (?: [A-Za-z][A-Za-z0-9+.-]*: (?=.)                                       # a scheme,
        (?: // (?:(?:{_CHAR}|:)*@)? (?:\[[0-9A-Fa-f:.]+\]|(?:{_CHAR})*) (?::[0-9]+)? (?=[/?\#]|\Z)  # with a host
          | (?!//) )                                                         # or without one;
      | (?!//|[^/?\#]*:) )                                                   # or no scheme, nor what would be one
    (?:{_CHAR}|[:@/?])*
    (?: \# (?:{_CHAR}|[:@/?])* )?
    """,
    re.VERBOSE,
)


def format_time(value: datetime) -> str:
    """xs:dateTime in UTC with milliseconds, or microseconds where there are any: `2002-04-01T10:30:00.000Z`.

    Raises EncodeError for a naive datetime, or one whose UTC year is not 1 to 9999.
    """
    if value.utcoffset() is None:
        raise EncodeError("a time stamp without a zone has no wire form")
    try:
        value = value.astimezone(UTC)
    except OverflowError:
        raise EncodeError("the time stamp is out of range") from None
    precision = "microseconds" if value.microsecond % 1000 else "milliseconds"
    return value.replace(tzinfo=None).isoformat(timespec=precision) + "Z"


def parse_order(text: str) -> int:
    """A SequenceNumber, 0 to 99,999,999. Raises ValueError."""
    if _ORDER.fullmatch(text) is None or int(text) > MAX_ORDER:
        raise ValueError(f"SequenceNumber {text[:40]!r} is not a whole number from 0 to {MAX_ORDER}")
    return int(text)


def is_language(text: str) -> bool:
    """Whether it can be the value of xml:lang (xs:language)."""
    return _LANGUAGE.fullmatch(text) is not None


def is_base64(text: str) -> bool:
    """Whether it is base64 without white space, and not empty."""
    return text != "" and _BASE64.fullmatch(text) is not None


def has_scheme(text: str) -> bool:
    """Whether it is a URI by its looks: parties and services without a type have to be one."""
    return _SCHEME.match(text) is not None


def is_reference(text: str) -> bool:
    """Whether it is a URI reference as RFC 3986 has it, with all characters escaped that need it; "" is one."""
    return _REFERENCE.fullmatch(text) is not None


def escaped_reference(text: str) -> str:
    """The URI reference that was meant: senders leave characters unescaped that no URI may hold, in cids above all.

    What `is_reference` still does not take is none.
    """
    if is_reference(text):
        return text
    head, number_sign, fragment = text.partition("#")
    return f"{_escaped(head)}{number_sign}{_escaped(fragment)}"


def _escaped(text: str) -> str:
    return quote(_STRAY_PERCENT.sub("%25", text), safe=_SAFE)
