"""Tolerant reader of the ebXML profile (spec 1; rulings C1 to C11 and sections 1.1 to 1.9 of wire-ebxml).

Whoever can be answered gets an Envelope, with a Defect for each rule that the
message breaks; acceptance turns the first into an Error message. NotAMessage
is for bytes that name no address to answer to. Normal messages are held to the
rules; of an Acknowledgement or Error only what is used must be right, because
neither is ever answered and refusing one would only cause more retries.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from lxml import etree

from messaging.protocol import document_ids
from messaging.protocol.codecs.ebxml_lexical import (
    UNKNOWN_TIME,
    VERSION,
    local_name,
    parse_sequence_number,
    parse_timestamp,
)
from messaging.protocol.codecs.ebxml_parts import ERROR_BODIES, PACKAGING, decode_error, manifest
from messaging.protocol.codecs.related import Containers, containers, payloads
from messaging.protocol.codecs.xml import XML_SPACE, Findings, element_text, parse_document
from messaging.protocol.envelope import (
    DEFAULT_LIMITS,
    Envelope,
    ErrorInfo,
    Limits,
    MessageType,
    PartyId,
    RoutingHeader,
    Semantics,
    Sought,
)
from messaging.protocol.errors import ErrorCode, NotAMessage, Severity

_MESSAGE_TYPES = {
    **{str(kind): kind for kind in MessageType},
    "Acknowledgment": MessageType.ACKNOWLEDGEMENT,  # spec 1, 2.1.3 uses both spellings in its prose
}
_SEMANTICS = {str(value): value for value in Semantics}
# Children of Header whose own children are its facts. TPAInfo is no word of spec 1, so facts may stand free as well.
_GROUPS = frozenset(("TPAInfo", "MessageData"))
_ALIASES = {
    "ConversationID": "ConversationId",  # C6
    "Timestamp": "TimeStamp",  # C5
}
_FACTS = frozenset(
    ("TPAId", "ConversationId", "ServiceInterface", "Action", "MessageId", "TimeStamp", "RefToMessageId")
)
_URIS = ("SenderURI", "ReceiverURI", "ErrorURI")
_REQUIRED_IN_NORMAL = ("TPAId", "ConversationId", "ServiceInterface", "Action")


def decode(content_type: str, body: bytes | Sought, limits: Limits = DEFAULT_LIMITS) -> Envelope:
    """The message in one transport entity.

    `content_type` is the entity's Content-Type header, `body` its octets without
    a Content-Encoding or (for mail) an outer Content-Transfer-Encoding. Payload
    parts keep their order, with the offset at which each lies in `body`; those of
    a body that is not in memory are not, either.

    Identifiers in the result hold no line breaks and at most `limits.identifier`
    characters: what does not fit is cut and becomes a defect, so that any result
    can be stored and answered.

    Raises MustBeHeld, and NotAMessage, and nothing else, with reason body_too_large, not_mime,
    truncated, too_many_parts, part_headers_too_large, no_header_part,
    bad_transfer_encoding, header_too_large, dtd_forbidden, too_deep,
    too_many_elements, xml_not_well_formed, not_ebxml, missing_message_id,
    missing_routing_header, missing_sender_uri or missing_receiver_uri.
    """
    return decode_containers(containers(content_type, body, PACKAGING, limits), limits)


def decode_containers(found: Containers, limits: Limits = DEFAULT_LIMITS) -> Envelope:
    """The message that these containers are. Raises NotAMessage as `decode` does."""
    root = parse_document(found.document, limits)
    if local_name(root) != "ebXMLHeader":
        raise NotAMessage("not_ebxml", f"the root element is {root.tag[:200]}")
    return _envelope(root, found, Findings(limits))


def _envelope(root: etree._Element, found: Containers, findings: Findings) -> Envelope:
    sections: dict[str, list[etree._Element]] = {}
    for child in root:
        sections.setdefault(local_name(child), []).append(child)
    version = _version(root, findings)
    message_type = _message_type(root, sections, findings)
    normal = message_type is MessageType.NORMAL
    facts: dict[str, str] = {}
    from_parties: list[PartyId] = []
    to_parties: list[PartyId] = []
    reliability: list[etree._Element] = []
    for header in sections.get("Header", ()):
        for child in header:
            name = local_name(child)
            if name == "From":
                from_parties += _parties(child, "/ebXMLHeader/Header/From", findings)
            elif name == "To":
                to_parties += _parties(child, "/ebXMLHeader/Header/To", findings)
            elif name == "ReliableMessagingInfo":
                reliability.append(child)
            elif name in _GROUPS:
                for leaf in child:
                    _fact(facts, leaf, f"/ebXMLHeader/Header/{name}", findings)
            else:
                _fact(facts, child, "/ebXMLHeader/Header", findings)
    if not facts.get("MessageId"):
        raise NotAMessage("missing_message_id", "the header has no MessageId")
    # C2: in Header by its MS section number and the words of 2.2.2, below the root by those of 2.2.1.
    semantics = _semantics([*reliability, *sections.get("ReliableMessagingInfo", ())], findings)
    if normal:
        _require(facts, from_parties, to_parties, findings)
    elif not facts.get("RefToMessageId"):
        findings.add(ErrorCode.NOT_WELL_FORMED, "RefToMessageId is missing", "/ebXMLHeader/Header/MessageData")
    own_time = _timestamp(facts.get("TimeStamp"), "/ebXMLHeader/Header/MessageData/TimeStamp", normal, findings)
    reliable = normal and semantics is Semantics.ONCE_AND_ONLY_ONCE
    routing = _routing(sections.get("RoutingHeader", ()), own_time, normal, reliable, findings)
    payload_parts = payloads(found.parts, normal, findings)
    error = None
    if message_type is MessageType.ERROR:
        error = decode_error(root, findings.limits.identifier)
        if error is None:
            findings.add(ErrorCode.NOT_WELL_FORMED, "the Error message has no ErrorHeader", "/ebXMLHeader")
            error = ErrorInfo(ErrorCode.UNKNOWN, Severity.ERROR, "")
    return Envelope(
        message_type=message_type,
        message_id=facts["MessageId"],
        timestamp=own_time or routing[-1].timestamp,
        from_parties=tuple(from_parties),
        to_parties=tuple(to_parties),
        agreement_id=facts.get("TPAId", ""),
        conversation_id=facts.get("ConversationId", ""),
        service=facts.get("ServiceInterface", ""),
        action=facts.get("Action", ""),
        semantics=semantics,
        routing=routing,
        ref_to_message_id=facts.get("RefToMessageId", ""),
        document_id=document_ids.read_header(found.document_id, findings) if normal else "",
        manifest=manifest(sections.get("Manifest", ()), payload_parts, normal, findings),
        payloads=payload_parts,
        error=error,
        version=version,
        defects=tuple(findings.defects),
    )


def _version(root: etree._Element, findings: Findings) -> str:
    location = "/ebXMLHeader/@Version"
    version = findings.identifier((root.get("Version") or VERSION).strip(XML_SPACE), location)
    if version != VERSION:
        findings.add(ErrorCode.NOT_SUPPORTED, f"Version {version[:40]!r}; {VERSION} is supported", location)
    return version


def _message_type(root: etree._Element, sections: dict[str, list[etree._Element]], findings: Findings) -> MessageType:
    text = (root.get("MessageType") or "").strip(XML_SPACE)
    message_type = _MESSAGE_TYPES.get(text)
    if message_type is not None:
        return message_type
    location = "/ebXMLHeader/@MessageType"
    findings.add(ErrorCode.NOT_SUPPORTED, f"MessageType {text[:40]!r} is not known", location)
    # What carries an error body is taken for an Error, so that no one answers it with another.
    bare_names = (name.rpartition("}")[2] for name in sections)
    return MessageType.ERROR if ERROR_BODIES.intersection(bare_names) else MessageType.NORMAL


def _fact(facts: dict[str, str], element: etree._Element, parent: str, findings: Findings) -> None:
    name = local_name(element)
    name = _ALIASES.get(name, name)
    if name not in _FACTS:
        return
    text = element_text(element)
    location = f"{parent}/{name}"
    value = text if name == "TimeStamp" else findings.identifier(text, location)
    # Two parsers that each pick another one of two values would disagree on which message this is.
    if facts.setdefault(name, value) != value:
        findings.add(ErrorCode.NOT_WELL_FORMED, f"{name} occurs twice with different values", location)


def _parties(element: etree._Element, location: str, findings: Findings) -> list[PartyId]:
    parties = []
    for child in element:
        if local_name(child) == "PartyId":
            value = findings.identifier(element_text(child), f"{location}/PartyId")
            context = findings.identifier((child.get("context") or "").strip(XML_SPACE), f"{location}/PartyId/@context")
            if value:
                parties.append(PartyId(value, context))
    return parties


def _require(facts: dict[str, str], from_parties: list[PartyId], to_parties: list[PartyId], findings: Findings) -> None:
    """What the Header of a Normal message cannot do without (wire-ebxml 1.2)."""
    for name, parties in (("From", from_parties), ("To", to_parties)):
        if not parties:
            findings.add(ErrorCode.NOT_WELL_FORMED, "PartyId is missing", f"/ebXMLHeader/Header/{name}")
    for name in _REQUIRED_IN_NORMAL:
        if not facts.get(name):
            location = f"/ebXMLHeader/Header/TPAInfo/{name}"
            findings.add(ErrorCode.NOT_WELL_FORMED, f"{name} is missing or empty", location)


def _semantics(elements: Sequence[etree._Element], findings: Findings) -> Semantics:
    """C1: the child element first, the attribute too; two different values are an error.

    No value at all is BestEffort: only OnceAndOnlyOnce notifies the Receiver of
    reliable messaging (spec 1, 2.1.3 (2)).
    """
    values: list[str] = []
    for element in elements:
        values += [element_text(child) for child in element if local_name(child) == "DeliverySemantics"]
    for element in elements:
        attribute = element.get("DeliverySemantics")
        if attribute is not None:
            values.append(attribute.strip(XML_SPACE))
    if not values:
        return Semantics.BEST_EFFORT
    location = "/ebXMLHeader/Header/ReliableMessagingInfo/DeliverySemantics"
    semantics = _SEMANTICS.get(values[0])
    if semantics is None:
        findings.add(ErrorCode.VALUE_NOT_RECOGNIZED, f"DeliverySemantics {values[0][:40]!r} is not known", location)
    if len(set(values)) > 1:
        findings.add(ErrorCode.INCONSISTENT, "DeliverySemantics is given twice with different values", location)
    return semantics or Semantics.BEST_EFFORT


def _timestamp(text: str | None, location: str, required: bool, findings: Findings) -> datetime | None:
    problem = "the time stamp is missing"
    if text:
        try:
            return parse_timestamp(text)
        except ValueError as error:
            problem = str(error)
    if required:
        findings.add(ErrorCode.VALUE_NOT_RECOGNIZED if text else ErrorCode.NOT_WELL_FORMED, problem, location)
    return None


def _routing(
    elements: Sequence[etree._Element], own_time: datetime | None, normal: bool, reliable: bool, findings: Findings
) -> tuple[RoutingHeader, ...]:
    """C3: one RoutingHeader for each hop, oldest first. Only the last one is ours to judge."""
    if not elements:
        raise NotAMessage("missing_routing_header", "the header has no RoutingHeader")
    first = max(0, len(elements) - findings.limits.routing_headers)
    if first:
        problem = f"{len(elements)} RoutingHeaders; {findings.limits.routing_headers} allowed"
        findings.add(ErrorCode.NOT_SUPPORTED, problem, "/ebXMLHeader/RoutingHeader")
    hops = []
    for index in range(first, len(elements)):
        current = index == len(elements) - 1
        location = f"/ebXMLHeader/RoutingHeader[{index + 1}]"
        facts: dict[str, str] = {}
        for child in elements[index]:
            name = local_name(child)
            name = _ALIASES.get(name, name)
            text = element_text(child)
            if facts.setdefault(name, text) != text and current:
                findings.add(ErrorCode.NOT_WELL_FORMED, f"{name} occurs twice with different values", location)
        sender, receiver, errors = (findings.identifier(facts.get(name, ""), f"{location}/{name}") for name in _URIS)
        if current and not sender:
            raise NotAMessage("missing_sender_uri", "the RoutingHeader has no SenderURI")
        if current and not receiver:
            raise NotAMessage("missing_receiver_uri", "the RoutingHeader has no ReceiverURI")
        moment = _timestamp(facts.get("TimeStamp"), f"{location}/Timestamp", normal and current, findings)
        number = None
        if reliable:  # C4: without OnceAndOnlyOnce a number is tolerated and ignored
            number = parse_sequence_number(facts.get("SequenceNumber", ""))
            if current and number is None:
                _bad_sequence_number(facts.get("SequenceNumber"), f"{location}/SequenceNumber", findings)
        hops.append(RoutingHeader(sender, receiver, errors, moment or own_time or UNKNOWN_TIME, number))
    return tuple(hops)


def _bad_sequence_number(text: str | None, location: str, findings: Findings) -> None:
    if text is None:
        problem = "SequenceNumber is missing; OnceAndOnlyOnce needs it"
    else:
        problem = f"SequenceNumber {text[:40]!r} is not a whole number from 1 to 999999999 in at most nine digits"
    findings.add(ErrorCode.INVALID_SEQUENCE_NUMBER, problem, location)
