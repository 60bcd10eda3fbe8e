"""The one XML parser that reads what strangers send.

No DTD, no entities, no network, bounded size, depth and number of elements
(wire-ebxml 1.1: "Forbid DTD/entities in the parser (XXE), cap sizes"; spec 1
needs none of them, and SOAP 1.1 section 3 forbids a DTD outright).

`Findings` collects what a reader finds wrong in a message that can nevertheless be answered; below it is how writers
escape what they write.
"""

from __future__ import annotations

import re
from functools import lru_cache

from lxml import etree

from messaging.protocol.codecs.ebxml_lexical import CONTROL
from messaging.protocol.envelope import DEFAULT_LIMITS, Limits
from messaging.protocol.errors import Defect, EncodeError, ErrorCode, NotAMessage, Severity

XML_SPACE = " \t\r\n"
XML_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
_XML_SPACE_BYTES = XML_SPACE.encode()

# A DOCTYPE can stand only before the root element. The atomic groups keep the search linear.
_DOCTYPE = re.compile(rb"(?>\s+|<\?(?>.*?\?>)|<!--(?>.*?-->))*+<!DOCTYPE", re.DOTALL)
_BYTE_ORDER_MARKS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")

# Shared by all threads: lxml guards a parser with a lock, and one document takes microseconds.
_PARSER = etree.XMLParser(
    resolve_entities=False,
    load_dtd=False,
    dtd_validation=False,
    attribute_defaults=False,
    no_network=True,
    huge_tree=False,
    remove_comments=True,
    remove_pis=True,
    strip_cdata=True,
    collect_ids=False,
)
# One search finds both what must be escaped and what is no XML character.
_SPECIAL = re.compile('[&<>"\r\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]')
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\r": "&#13;"})


def parse_document(data: bytes, limits: Limits = DEFAULT_LIMITS) -> etree._Element:
    """The root element of a document; comments and processing instructions are left out.

    White space before the XML declaration is forgiven. Raises NotAMessage with
    reason header_too_large (over `limits.header_document` bytes), dtd_forbidden
    (any DOCTYPE, even an empty one), too_deep (`limits.xml_depth`),
    too_many_elements (`limits.xml_nodes`) or xml_not_well_formed.
    """
    if len(data) > limits.header_document:
        raise NotAMessage("header_too_large", f"XML document of {len(data)} bytes; {limits.header_document} allowed")
    data = data.lstrip(_XML_SPACE_BYTES)
    # Seen before parsing, so that no entity is ever defined: libxml2 expands entities in attribute
    # values whatever resolve_entities says.
    if _has_doctype(data):
        raise NotAMessage("dtd_forbidden", "the XML document has a DOCTYPE")
    try:
        root = etree.fromstring(data, _PARSER)
    except (etree.XMLSyntaxError, ValueError, LookupError) as error:
        if "xcessive depth" in str(error):
            raise NotAMessage("too_deep", f"elements nest deeper than {limits.xml_depth}") from None
        raise NotAMessage("xml_not_well_formed", _one_line(error)) from None
    # Once more, for encodings in which the bytes searched above look different.
    if root.getroottree().docinfo.internalDTD is not None:
        raise NotAMessage("dtd_forbidden", "the XML document has a DOCTYPE")
    if _deeper_than(limits.xml_depth)(root):
        raise NotAMessage("too_deep", f"elements nest deeper than {limits.xml_depth}")
    # An element has at least one "<" in every encoding that libxml2 reads without iconv, so
    # counting bytes settles nearly every document without a walk.
    if data.count(b"<") > limits.xml_nodes or not data.startswith(b"<"):
        for number, _element in enumerate(root.iter(), start=1):
            if number > limits.xml_nodes:
                raise NotAMessage("too_many_elements", f"more than {limits.xml_nodes} XML elements")
    return root


def element_text(element: etree._Element) -> str:
    """An element's own text, trimmed of XML white space (the sample of spec 1, 2.4 has line breaks around values)."""
    return (element.text or "").strip(XML_SPACE)


def _has_doctype(data: bytes) -> bool:
    if data.startswith(_BYTE_ORDER_MARKS) or b"\0" in data[:4]:
        data = data.replace(b"\0", b"").lstrip(b"\xef\xbb\xbf\xff\xfe")
    return b"<!DOCTYPE" in data and _DOCTYPE.match(data) is not None


@lru_cache(maxsize=8)
def _deeper_than(depth: int) -> etree.XPath:
    """An XPath that is true for a tree deeper than `depth` elements: it stops at the first level that is empty."""
    return etree.XPath("boolean(" + "/*" * (depth + 1) + ")")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or "empty document"


_MAX_DEFECTS = 50  # enough to tell what is wrong with a message; a hostile one could cause thousands
_MAX_WARNINGS = 25  # so that there is always room for what refuses the message


class Findings:
    """The defects of one message, in the order in which they were found."""

    __slots__ = ("defects", "limits")

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.defects: list[Defect] = []

    def add(self, code: ErrorCode, description: str, location: str = "", severity: Severity = Severity.ERROR) -> None:
        if len(self.defects) < (_MAX_WARNINGS if severity is Severity.WARNING else _MAX_DEFECTS):
            self.defects.append(Defect(code, description, location, severity))

    def identifier(self, value: str, location: str) -> str:
        """`value` as it may be stored and written again; a defect if that is not what came."""
        limit = self.limits.identifier
        if len(value) <= limit and CONTROL.search(value) is None:
            return value
        if len(value) > limit:
            self.add(ErrorCode.VALUE_NOT_RECOGNIZED, f"{len(value)} characters; {limit} allowed", location)
        else:
            self.add(ErrorCode.VALUE_NOT_RECOGNIZED, "line breaks and control characters are not allowed", location)
        return CONTROL.sub(" ", value[:limit]).strip(XML_SPACE)


def required(value: str, what: str) -> str:
    """Like `identifier`, of a value that may not be empty."""
    if not value:
        raise EncodeError(f"{what} is empty")
    return identifier(value)


def identifier(value: str) -> str:
    """Escaped text of a value that must come back exactly as it is, on one line. Raises EncodeError."""
    if len(value) > DEFAULT_LIMITS.identifier:
        raise EncodeError(f"{value[:40]!r}... has {len(value)} characters; {DEFAULT_LIMITS.identifier} allowed")
    if CONTROL.search(value) is not None:
        raise EncodeError(f"{value!r} has line breaks or control characters")
    if value and (value[0] in XML_SPACE or value[-1] in XML_SPACE):
        raise EncodeError(f"{value!r} begins or ends with white space, which readers trim")
    return value if _SPECIAL.search(value) is None else value.translate(_ESCAPES)


def free_text(value: str) -> str:
    """Escaped text in which line breaks are kept. Raises EncodeError."""
    if _SPECIAL.search(value) is None:
        return value
    if _NOT_XML.search(value) is not None:
        raise EncodeError(f"{value[:80]!r} has characters that XML cannot carry")
    return value.translate(_ESCAPES)
