"""How the ebXML profile packs its messages; Manifest and error body as its tolerant reader takes them.

What an Error message says (wire-ebxml 1.9): one form is written, all known ones are read.

Spec 1 gives no form at all, only the words Transient Error and MinRetrySecs
(4.2). So names are compared without case and namespace, and a fact may be an
attribute or a child: IOTP's component (RFC 2801, 7.21), our ErrorHeader and
ebMS's ErrorList are all read by the same rule.
"""

from __future__ import annotations

from collections.abc import Sequence

from lxml import etree

from messaging.protocol.codecs.ebxml_lexical import CONTROL, HEADER_MEDIA_TYPE, VERSION, local_name
from messaging.protocol.codecs.mime import content_id_keys, refers_to
from messaging.protocol.codecs.related import Packaging
from messaging.protocol.codecs.xml import XML_LANGUAGE, XML_SPACE, Findings, element_text
from messaging.protocol.envelope import DocumentReference, ErrorInfo, PayloadPart
from messaging.protocol.errors import ErrorCode, Severity

PACKAGING = Packaging(
    root="ebXML header",
    media_type=HEADER_MEDIA_TYPE,
    readable=frozenset((HEADER_MEDIA_TYPE, "text/xml", "application/xml")),
    boundary="rm080-",
    version=VERSION,
)


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
