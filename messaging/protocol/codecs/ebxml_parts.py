"""The MIME side of the tolerant reader: which part is the header, which are payloads (wire-ebxml 1.1, RFC 2387).

What an Error message says (wire-ebxml 1.9): one form is written, all known ones are read.

Spec 1 gives no form at all, only the words Transient Error and MinRetrySecs
(4.2). So names are compared without case and namespace, and a fact may be an
attribute or a child: IOTP's component (RFC 2801, 7.21), our ErrorHeader and
ebMS's ErrorList are all read by the same rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lxml import etree

from messaging.protocol.codecs.ebxml_lexical import CONTROL, HEADER_MEDIA_TYPE, local_name
from messaging.protocol.codecs.mime import (
    DEFAULT_CONTENT_TYPE,
    Part,
    bare_content_id,
    content_id_keys,
    decode_header_value,
    is_content_id,
    is_header_value,
    parts_of,
    refers_to,
)
from messaging.protocol.codecs.xml import XML_LANGUAGE, XML_SPACE, Findings, element_text
from messaging.protocol.envelope import DocumentReference, ErrorInfo, Limits, PayloadPart, Sought
from messaging.protocol.errors import ErrorCode, NotAMessage, Severity

_HEADER_MEDIA_TYPES = frozenset((HEADER_MEDIA_TYPE, "text/xml", "application/xml"))


class Containers(NamedTuple):
    """The header document and the payload parts (wire-ebxml 1.1); RM-Document-ID of the header part, as it came."""

    document: bytes
    parts: Sequence[Part]
    document_id: str = ""


def containers(content_type: str, body: bytes | Sought, limits: Limits) -> Containers:
    """What one transport entity holds. Raises NotAMessage, MustBeHeld."""
    if len(content_type) > limits.part_headers:
        raise NotAMessage("not_mime", "the Content-Type is too long")
    media_type, parameters = decode_header_value(content_type)
    if not media_type.startswith("multipart/"):
        if media_type not in _HEADER_MEDIA_TYPES:
            raise NotAMessage("not_mime", f"Content-Type {media_type[:80]!r} is neither multipart nor an ebXML header")
        return Containers(_in_utf8(header_document(body, limits), parameters), [])
    parts = parts_of(body, parameters, limits)
    header = parts.pop(_root_index(parts, parameters.get("start", "")))
    if header.damage:
        raise NotAMessage("bad_transfer_encoding", f"header container: {header.damage}")
    media_type, parameters = decode_header_value(header.content_type)
    if media_type and media_type not in _HEADER_MEDIA_TYPES:
        raise NotAMessage("no_header_part", f"the root part is {media_type[:80]!r} and not an ebXML header")
    document = header_document(header.content, limits)
    return Containers(_in_utf8(document, parameters), parts, header.headers.get("rm-document-id", ""))


def header_document(content: bytes | Sought, limits: Limits) -> bytes:
    """The octets of a header, in memory; of one that is too large enough for a parser to see that."""
    return content if isinstance(content, bytes) else content[: limits.header_document + 1]


def _root_index(parts: Sequence[Part], start: str) -> int:
    """RFC 2387: the part that `start` names, else the first (also when senders name one that is not there)."""
    if start:
        wanted = bare_content_id(start)
        for index, part in enumerate(parts):
            if refers_to(wanted, content_id_keys((part.content_id,))):
                return index
    return 0


def _in_utf8(document: bytes, parameters: dict[str, str]) -> bytes:
    """The header document, transcoded when only the Content-Type tells its 8-bit charset (RFC 3023)."""
    charset = parameters.get("charset", "").lower()
    if charset.startswith(("iso-8859-", "windows-125")) and b"encoding" not in document[:200]:
        try:
            return document.decode(charset).encode()
        except (LookupError, ValueError):
            return document
    return document


def payloads(parts: Sequence[Part], normal: bool, findings: Findings) -> tuple[PayloadPart, ...]:
    """The payload containers in their order. Those of an Acknowledgement or Error are tolerated, whatever they are."""
    found = []
    seen: set[str] = set()
    for part in parts:
        content_id = findings.identifier(part.content_id, "Content-ID")
        problem = part.damage
        if content_id and not is_content_id(content_id):
            problem = "the Content-ID is not printable ASCII without angle brackets"
        elif content_id in seen:
            problem = "the Content-ID occurs twice"
        if problem and normal:
            findings.add(ErrorCode.MIME_PROBLEM, problem, content_id)
        if content_id:
            seen.add(content_id)
        filename = part.filename[: findings.limits.identifier]
        content_type = _content_type(part.content_type, findings.limits.identifier)
        found.append(PayloadPart(content_id, content_type, part.content, filename, part.offset))
    return tuple(found)


def _content_type(value: str, longest: int) -> str:
    """A payload's Content-Type as a header can carry it: names in parameters are often neither ASCII nor short."""
    if len(value) > longest:
        value = value.partition(";")[0].strip()[:longest].strip()
    if not is_header_value(value):
        value = value.encode("ascii", "replace").decode().strip() or DEFAULT_CONTENT_TYPE
    return value


def manifest(
    elements: Sequence[etree._Element], payloads: tuple[PayloadPart, ...], normal: bool, findings: Findings
) -> tuple[DocumentReference, ...]:
    """The DocumentReferences; one with a `cid:` that no part has is a MimeProblem (wire-ebxml 1.9)."""
    references = []
    keys = content_id_keys(payload.content_id for payload in payloads if payload.content_id)
    entries = [entry for element in elements for entry in element if local_name(entry) == "DocumentReference"]
    for index, entry in enumerate(entries, start=1):
        location = f"/ebXMLHeader/Manifest/DocumentReference[{index}]"
        label = document_id = description = ""
        language = "en"
        for child in entry:
            name = local_name(child)
            if name == "DocumentLabel":
                label = findings.identifier(element_text(child), f"{location}/DocumentLabel")
            elif name == "DocumentId":
                document_id = findings.identifier(element_text(child), f"{location}/DocumentId")
            elif name == "DocumentDescription":
                description = element_text(child)
                language = (child.get(XML_LANGUAGE) or "").strip(XML_SPACE)
                language = findings.identifier(language, f"{location}/DocumentDescription/@xml:lang")
        if not description:
            language = "en"
        references.append(DocumentReference(label, document_id, description, language))
        if normal and not document_id:
            findings.add(ErrorCode.NOT_WELL_FORMED, "DocumentId is missing or empty", location)
        elif normal and document_id[:4].lower() == "cid:" and not refers_to(document_id, keys):
            findings.add(ErrorCode.MIME_PROBLEM, f"no part has the Content-ID of {document_id[:80]}", location)
    return tuple(references)


ERROR_BODIES = frozenset(("ErrorHeader", "ErrorList"))

_SEVERITIES = {
    "warning": Severity.WARNING,
    "transienterror": Severity.TRANSIENT,
    "transient": Severity.TRANSIENT,
    "error": Severity.ERROR,
    "harderror": Severity.ERROR,  # IOTP's word
}
_ORDER = (Severity.WARNING, Severity.TRANSIENT, Severity.ERROR)
_CODES = {str(code).lower(): code for code in ErrorCode}


def decode_error(root: etree._Element, longest: int) -> ErrorInfo | None:
    """The gravest error in the header document `root`, or None when it has no error body.

    Codes and locations are cut to `longest` characters. An unknown severity is
    Error, an unknown code stays as text. An error whose code is TransientError
    is transient whatever severity it states: ebMS has no word for that severity.
    """
    bodies = [
        child
        for parent in (root, *(child for child in root if _name(child.tag) == "Header"))
        for child in parent
        if _name(child.tag) in ERROR_BODIES
    ]
    best: ErrorInfo | None = None
    for body in bodies:
        seconds = _min_retry_secs(body)
        highest = _facts(body).get("highestseverity", "")
        for element in [child for child in body if _name(child.tag) == "Error"] or [body]:
            error = _error(_facts(element), highest, seconds, longest)
            if best is None or _ORDER.index(error.severity) > _ORDER.index(best.severity):
                best = error
    return best


def _error(facts: dict[str, str], highest: str, seconds: int | None, longest: int) -> ErrorInfo:
    text = facts.get("errorcode", "")
    code: ErrorCode | str = _CODES.get("".join(text.split()).lower()) or _bounded(text, longest) or ErrorCode.UNKNOWN
    stated = facts.get("severity") or highest
    severity = _SEVERITIES.get("".join(stated.split()).lower(), Severity.ERROR)
    if code is ErrorCode.TRANSIENT_ERROR:
        severity = Severity.TRANSIENT
    return ErrorInfo(
        code,
        severity,
        facts.get("description") or facts.get("errordesc", ""),
        _bounded(facts.get("errorlocation") or facts.get("location", ""), longest),
        seconds,
    )


def _facts(element: etree._Element) -> dict[str, str]:
    """Attributes and children with text, by lower-case local name; a child goes before an attribute."""
    facts = {_name(str(name)).lower(): str(value).strip(XML_SPACE) for name, value in element.attrib.items()}
    facts.update({_name(child.tag).lower(): (child.text or "").strip(XML_SPACE) for child in element})
    return facts


def _min_retry_secs(body: etree._Element) -> int | None:
    """Whole seconds, from any element or attribute of that name below the error; None if there is no such number."""
    for element in body.iter():
        texts = [str(value) for name, value in element.attrib.items() if _name(str(name)).lower() == "minretrysecs"]
        if _name(element.tag).lower() == "minretrysecs":
            texts.append(element.text or "")
        for text in texts:
            digits = text.strip(XML_SPACE)
            if digits.isascii() and digits.isdigit() and len(digits) <= 9:
                return int(digits)
    return None


def _name(tag: str) -> str:
    return tag.rpartition("}")[2]


def _bounded(text: str, longest: int) -> str:
    return CONTROL.sub(" ", text)[:longest].strip(XML_SPACE)
