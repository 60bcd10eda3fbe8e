"""Elements of the ebms2 profile, each as the tolerant reader takes it (msg-header-2_0.xsd; wire-ebxml 3.1 and 3.4)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

from lxml import etree

from messaging.protocol.codecs.ebms2_lexical import (
    DS,
    EB,
    SOAP,
    VERSION,
    XLINK,
    escaped_reference,
    has_scheme,
    is_base64,
    is_language,
    is_reference,
    parse_order,
)
from messaging.protocol.codecs.ebxml_lexical import CONTROL, UNKNOWN_TIME, parse_timestamp
from messaging.protocol.codecs.mime import Part, bare_content_id, content_id_keys, refers_to
from messaging.protocol.codecs.xml import XML_LANGUAGE, XML_SPACE, Findings, element_text
from messaging.protocol.envelope import (
    Acknowledgment,
    Actor,
    Digest,
    DocumentReference,
    ErrorInfo,
    Limits,
    MessageOrder,
    MessageStatus,
    PartyId,
    Schema,
    StatusReport,
    Transform,
)
from messaging.protocol.errors import ErrorCode, Severity

_BRACED = f"{{{EB}}}"
# Canonical form costs the square of these; real ones have some, and one transform with parameters for each signature.
_MOST_NAMES = 50  # namespaces in scope, and attributes, of an element
_MOST_PARAMETERS = 20  # transforms with parameters in one message
_ACTOR = f"{{{SOAP}}}actor"
_SEVERITIES = {"warning": Severity.WARNING, "error": Severity.ERROR}
_CODES = {str(code).lower(): code for code in ErrorCode}
_STATUSES = {str(status): status for status in MessageStatus}


class Notes(Findings):
    """Findings about one message. `lenient`: it is an acknowledgement or error, which is never answered.

    Refusing one of those would only cause more retries: a `minor` finding is a warning then.
    """

    __slots__ = ("lenient", "parameters")

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self.lenient = False
        self.parameters = 0  # transforms with parameters, so far

    def minor(self, code: ErrorCode, description: str, location: str) -> None:
        self.add(code, description, location, Severity.WARNING if self.lenient else Severity.ERROR)

    def warn(self, code: ErrorCode, description: str, location: str) -> None:
        self.add(code, description, location, Severity.WARNING)

    def reference(self, text: str, location: str) -> str:
        """A URI reference; "" with a minor finding for what is none."""
        value = escaped_reference(self.identifier(text, location))
        if is_reference(value) and len(value) <= self.limits.identifier:
            return value
        self.minor(ErrorCode.VALUE_NOT_RECOGNIZED, f"{text[:80]!r} is no URI", location)
        return ""


class Block:
    """One eb element: its children by name, its attributes. Reading what is not there gives "", and perhaps a finding.

    `lists`: children that may occur more than once. Of others, and of unknown ones, a finding is made.
    """

    __slots__ = ("children", "element", "location", "notes")

    def __init__(
        self,
        element: etree._Element | None,
        location: str,
        notes: Notes,
        known: Sequence[str],
        lists: Sequence[str] = (),
    ) -> None:
        self.element = element
        self.location = location
        self.notes = notes
        self.children: dict[str, list[etree._Element]] = {}
        for child in () if element is None else element:
            name = eb_name(child)
            if name in known or name in lists:
                found = self.children.setdefault(name, [])
                found.append(child)
                # Two parsers that each pick another one would disagree on which message this is.
                if len(found) == 2 and name not in lists:
                    notes.add(ErrorCode.INCONSISTENT, f"{name} occurs twice", f"{location}/{name}")
            elif name:
                notes.minor(ErrorCode.OTHER_XML, f"{name[:80]} does not belong here", location)

    def __contains__(self, name: str) -> bool:
        return name in self.children

    def first(self, name: str) -> etree._Element | None:
        found = self.children.get(name)
        return found[0] if found else None

    def all(self, name: str) -> list[etree._Element]:
        return self.children.get(name, [])

    def text(self, name: str, required: bool = True) -> str:
        element = self.first(name)
        location = f"{self.location}/{name}"
        value = "" if element is None else self.notes.identifier(element_text(element), location)
        if required and not value:
            self.notes.minor(ErrorCode.OTHER_XML, f"{name} is missing or empty", location)
        return value

    def attribute(self, name: str) -> str:
        value = "" if self.element is None else attribute(self.element, name)
        return self.notes.identifier(value, f"{self.location}/@{name}")

    def time(self, name: str) -> datetime:
        """A time stamp that has to be there; one without a zone is UTC (wire-ebxml 3.4)."""
        text = self.text(name)
        try:
            return parse_timestamp(text) if text else UNKNOWN_TIME
        except ValueError as error:
            self.notes.minor(ErrorCode.VALUE_NOT_RECOGNIZED, str(error), f"{self.location}/{name}")
            return UNKNOWN_TIME


def eb_name(element: etree._Element) -> str:
    """Local name of an element of the profile's namespace; "" for any other."""
    return element.tag.removeprefix(_BRACED) if element.tag.startswith(_BRACED) else ""


def attribute(element: etree._Element, name: str, namespace: str = EB) -> str:
    """An attribute's value, trimmed; some senders write it without a prefix."""
    value = element.get(f"{{{namespace}}}{name}")
    return (element.get(name, "") if value is None else value).strip(XML_SPACE)


def actor(element: etree._Element) -> str:
    """The SOAP actor of a header element; "" is whoever is the last to receive the message."""
    return (element.get(_ACTOR) or "").strip(XML_SPACE)


def check_version(element: etree._Element, location: str, notes: Notes) -> None:
    """Finds an element of another version, or of none."""
    version = attribute(element, "version")
    if not version:
        notes.minor(ErrorCode.OTHER_XML, "version is missing", location)
    elif version != VERSION:
        problem = f"version {version[:40]!r}; {VERSION} is supported"
        notes.minor(ErrorCode.VALUE_NOT_RECOGNIZED, problem, f"{location}/@version")


def parties(element: etree._Element | None, location: str, notes: Notes) -> tuple[tuple[PartyId, ...], str]:
    """(party ids, role) of From or To."""
    block = Block(element, location, notes, ("Role",), ("PartyId",))
    found = []
    for child in block.all("PartyId"):
        value = notes.identifier(element_text(child), f"{location}/PartyId")
        kind = notes.identifier(attribute(child, "type"), f"{location}/PartyId/@type")
        if not value:
            continue
        found.append(PartyId(value, kind))
        if not kind and not has_scheme(value):
            notes.minor(ErrorCode.INCONSISTENT, f"{value[:80]!r} has no type and is no URI", f"{location}/PartyId")
    if not found:
        notes.minor(ErrorCode.INCONSISTENT, "PartyId is missing", location)
    return tuple(found), block.text("Role", required=False)


def message_order(element: etree._Element, location: str, notes: Notes) -> MessageOrder | None:
    """Conversations begin with Reset and 0; nothing else is ever reset to."""
    block = Block(element, location, notes, ("SequenceNumber",))
    text = block.text("SequenceNumber")
    number = block.first("SequenceNumber")
    if number is None or not text:
        return None
    status = attribute(number, "status") or "Continue"
    location = f"{location}/SequenceNumber"
    if status not in ("Reset", "Continue"):
        notes.minor(ErrorCode.VALUE_NOT_RECOGNIZED, f"status {status[:40]!r} is not known", f"{location}/@status")
    try:
        order = MessageOrder(parse_order(text), status == "Reset")
    except ValueError as error:
        notes.minor(ErrorCode.VALUE_NOT_RECOGNIZED, str(error), location)
        return None
    if order.reset and order.sequence_number:
        notes.minor(ErrorCode.INCONSISTENT, f"Reset goes with 0, not with {order.sequence_number}", location)
    return order


def acknowledgment(element: etree._Element, to: Actor, location: str, notes: Notes) -> Acknowledgment | None:
    """None for one that does not say what it acknowledges."""
    block = Block(element, location, notes, ("Timestamp", "RefToMessageId", "From"))
    moment, reference = block.time("Timestamp"), block.text("RefToMessageId")
    sender: tuple[PartyId, ...] = ()
    role = ""
    if "From" in block:
        sender, role = parties(block.first("From"), f"{location}/From", notes)
    found = digests(element, "", location, notes)
    return Acknowledgment(reference, moment, to, sender, role, found) if reference else None


def digests(element: etree._Element, above: str, location: str, notes: Notes) -> tuple[Digest, ...]:
    """The ds:Reference elements below the path `above`."""
    return tuple(
        _digest(child, f"{location}/Reference", notes) for child in element.iterfind(f"{above}{{{DS}}}Reference")
    )


def _digest(element: etree._Element, location: str, notes: Notes) -> Digest:
    method = element.find(f"{{{DS}}}DigestMethod")
    algorithm = "" if method is None else notes.reference(attribute(method, "Algorithm", ""), location)
    value = "".join(element.findtext(f"{{{DS}}}DigestValue", "").split())
    value = notes.identifier(value, f"{location}/DigestValue")
    transforms = []
    for child in element.iterfind(f"{{{DS}}}Transforms/{{{DS}}}Transform"):
        name = notes.reference(attribute(child, "Algorithm", ""), location)
        notes.parameters += len(child) > 0
        try:
            transforms.append(Transform(name, canonical(child) if notes.parameters <= _MOST_PARAMETERS else ""))
        except ValueError as error:
            notes.warn(ErrorCode.SECURITY_FAILURE, f"a transform cannot be read: {error}", location)
    if notes.parameters > _MOST_PARAMETERS:
        notes.warn(ErrorCode.SECURITY_FAILURE, f"more than {_MOST_PARAMETERS} transforms have parameters", location)
    if not algorithm or not is_base64(value) or not all(transform.algorithm for transform in transforms):
        notes.warn(ErrorCode.SECURITY_FAILURE, "a digest cannot be read", location)
    return Digest(notes.reference(attribute(element, "URI", ""), location), algorithm, value, tuple(transforms))


def canonical(element: etree._Element) -> str:
    """The child elements in exclusive canonical form; prefixes count that only an XPath in their text uses.

    Raises ValueError for what has none, or would take too long.
    """
    pieces = []
    for child in element.iterchildren(tag=etree.Element):
        if any(len(part.nsmap) > _MOST_NAMES or len(part.attrib) > _MOST_NAMES for part in child.iter()):
            raise ValueError(f"more than {_MOST_NAMES} namespaces or attributes")
        texts = [*map(str, child.itertext()), *(str(value) for part in child.iter() for value in part.attrib.values())]
        prefixes = [name for name in child.nsmap if name and any(_uses(name, text) for text in texts)]
        try:
            pieces.append(
                etree.tostring(child, method="c14n", exclusive=True, inclusive_ns_prefixes=prefixes, with_tail=False)
            )
        except etree.C14NError as error:
            raise ValueError(str(error)[:200]) from None
    return b"".join(pieces).decode()


def _uses(prefix: str, text: str) -> bool:
    return re.search(rf"(?<![\w.-]){re.escape(prefix)}:", text) is not None


def errors(element: etree._Element, location: str, notes: Notes) -> tuple[ErrorInfo, ...]:
    """All errors of an ErrorList, in their order. An unknown code stays as text, an unknown severity is Error."""
    found = []
    for child in Block(element, location, notes, (), ("Error",)).all("Error"):
        entry = Block(child, f"{location}/Error", notes, (), ("Description",))
        text = entry.attribute("errorCode")
        if not text:
            notes.minor(ErrorCode.OTHER_XML, "errorCode is missing", f"{location}/Error")
        code = _CODES.get(text.lower(), text) or ErrorCode.UNKNOWN
        stated = entry.attribute("severity")
        severity = _SEVERITIES.get(stated.lower())
        if severity is None:
            notes.minor(ErrorCode.VALUE_NOT_RECOGNIZED, f"severity {stated[:40]!r} is not known", f"{location}/Error")
        description = entry.first("Description")
        words = "" if description is None else element_text(description)
        found.append(ErrorInfo(code, severity or Severity.ERROR, words, entry.attribute("location")))
    if not found:
        notes.minor(ErrorCode.OTHER_XML, "the ErrorList has no Error", location)
    return tuple(found)


def status_report(element: etree._Element, response: bool, location: str, notes: Notes) -> StatusReport | None:
    """The content of a StatusRequest or StatusResponse."""
    block = Block(element, location, notes, ("RefToMessageId", "Timestamp") if response else ("RefToMessageId",))
    reference = block.text("RefToMessageId")
    if not reference:
        return None
    if not response:
        return StatusReport(reference)
    text = block.attribute("messageStatus")
    status = _STATUSES.get(text)
    if status is None:
        notes.minor(ErrorCode.VALUE_NOT_RECOGNIZED, f"messageStatus {text[:40]!r} is not known", location)
    return StatusReport(reference, status, block.time("Timestamp") if "Timestamp" in block else None)


def manifest(element: etree._Element, location: str, notes: Notes) -> tuple[DocumentReference, ...]:
    """What the Manifest names; whether the parts are there, `named_parts` says."""
    found = []
    entries = Block(element, location, notes, (), ("Reference",)).all("Reference")
    for index, child in enumerate(entries, start=1):
        place = f"{location}/Reference[{index}]"
        block = Block(child, place, notes, (), ("Schema", "Description"))
        href = notes.reference(attribute(child, "href", XLINK), f"{place}/@href")
        role = notes.reference(attribute(child, "role", XLINK), f"{place}/@role")
        description, language = _description(block.first("Description"))
        schemas = []
        for entry in block.all("Schema"):
            if address := notes.reference(attribute(entry, "location"), f"{place}/Schema/@location"):
                version = notes.identifier(attribute(entry, "version"), f"{place}/Schema/@version")
                schemas.append(Schema(address, version))
            else:
                notes.warn(ErrorCode.OTHER_XML, "the Schema has no location", f"{place}/Schema")
        if href:
            found.append(DocumentReference("", href, description, language, role, tuple(schemas)))
        else:
            notes.minor(ErrorCode.OTHER_XML, "href is missing", place)
    if not entries:
        notes.minor(ErrorCode.OTHER_XML, "the Manifest has no Reference", location)
    return tuple(found)


def _description(element: etree._Element | None) -> tuple[str, str]:
    """(text, language)."""
    text = "" if element is None else element_text(element)
    language = "" if element is None else (element.get(XML_LANGUAGE) or "").strip(XML_SPACE)
    return text, language if text and is_language(language) and len(language) <= 40 else "en"


def named_parts(
    parts: Sequence[Part], references: Sequence[DocumentReference], location: str, notes: Notes
) -> list[Part]:
    """The payload parts that the Manifest names; the others are dropped, with a warning each.

    A `cid:` without part is a MimeProblem, and so is what has no scheme: nothing says where it would be.
    """
    hrefs = [reference.document_id for reference in references]
    names = content_id_keys(bare_content_id(href[4:]) for href in hrefs if href[:4].lower() == "cid:")
    kept = []
    for part in parts:
        if part.content_id and not names.isdisjoint(content_id_keys((part.content_id,))):
            kept.append(part)
        else:
            title = CONTROL.sub(" ", part.content_id[:80]) or "without Content-ID"
            notes.warn(ErrorCode.MIME_PROBLEM, f"the Manifest does not name the part {title}; it is dropped", location)
    keys = content_id_keys(part.content_id for part in kept)
    for index, href in enumerate(hrefs, start=1):
        if (href[:4].lower() == "cid:" and not refers_to(href, keys)) or not has_scheme(href):
            problem = f"no part has the Content-ID of {href[:80]}"
            notes.add(ErrorCode.MIME_PROBLEM, problem, f"{location}/Reference[{index}]")
    return kept
