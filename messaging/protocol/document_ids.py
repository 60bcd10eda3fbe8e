"""What makes two messages carry the same document (spec 4: "the publishing client publishes the same document more than
once"): an id that the application gives, that the document itself holds, or else the id of the message.

    RM-Document-ID   MIME header of an ebXML message's header part, HTTP header of a repeatable request
    DocumentId       element of the hub's own header block in a message of a stream; that block in ebXML 2.0, where a
                     signature is over it

Others pass over all three. On the wire an id may be as long as a MessageId, because a message that is sent anew under a
new MessageId carries its first one; the history knows ids of 96 characters at most (`processing.MAX_DOCUMENT_ID`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote, unquote

from messaging.protocol import selecting
from messaging.protocol.codecs.xml import Findings
from messaging.protocol.errors import ErrorCode

HEADER = "RM-Document-ID"
MAX_WIRE = 512  # characters, as of a MessageId

_SAFE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) != "%") + " "
_ID = re.compile(r"[!-~](?:[ -~]*[!-~])?")


def fault(value: str, longest: int) -> str:
    """What is wrong with an id, a sentence; "" when nothing is."""
    if len(value) <= longest and _ID.fullmatch(value):
        return ""
    return f"1 to {longest} printable ASCII characters, not a blank first or last."


def header_value(value: str) -> str:
    """The id as the header has it: the percent sign is percent-encoded, as in all RM- headers."""
    return quote(value, safe=_SAFE)


def read_header(value: str, findings: Findings) -> str:
    """The id of a header; "" for one that is empty, or that is none: then with a defect."""
    try:
        found = unquote(value.strip(" \t"), errors="strict")
    except UnicodeDecodeError:
        found = "\0"
    return read(found, findings, HEADER)


def read(value: str, findings: Findings, location: str) -> str:
    """The id as the wire has it; "" for none, or for what is none: then with a defect."""
    if value and (sentence := fault(value, MAX_WIRE)):
        findings.add(ErrorCode.VALUE_NOT_RECOGNIZED, f"the document id has to be {sentence.rstrip('.')}", location)
        return ""
    return value


def check_path(path: str) -> None:
    """Raises ValueError, with what to write instead, for what does not lead to a value of a document."""
    selecting.check(kind_of_path(path), path)


def kind_of_path(path: str) -> str:
    """Which documents a path is for: `json` ($.order.number), `edi` (BGM+2) or `xml` (//OrderNumber)."""
    if path.startswith("$"):
        return "json"
    return "xml" if selecting.segment(path) is None else "edi"


def in_documents(path: str, documents: Iterable[tuple[bytes, str]]) -> str:
    """The value that the path leads to in the first of the documents that has one; "" when none has.

    `documents`: (octets, content type). Control characters count as blanks, and blanks at the ends do not count.
    """
    kind = kind_of_path(path)
    for content, content_type in documents:
        if selecting.kind_of(content, content_type) == kind:
            found = " ".join(selecting.first_text(content, kind, path).split())
            if found:
                return found
    return ""
