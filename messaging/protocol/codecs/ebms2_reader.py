"""Tolerant reader of the ebms2 profile (OASIS ebXML Messaging 2.0; sections 3.1, 3.2 and 3.4 of wire-ebxml).

Whoever can be answered gets an Envelope, with a Defect for each rule that the message breaks; `Envelope.fault` is the
first that refuses it. NotAMessage is for bytes that hold no message at all. What an acknowledgement or error breaks is
mostly a warning: neither is ever answered, and refusing one would only cause more retries. A signature is not verified
here, and no octet of the message is touched.
"""

from __future__ import annotations

from datetime import datetime

from lxml import etree

from messaging.protocol import document_ids
from messaging.protocol.codecs.ebms2_lexical import DS, EB, NAMESPACE, PACKAGING, SERVICE, SOAP, VERSION, has_scheme
from messaging.protocol.codecs.ebms2_parts import (
    Block,
    Notes,
    acknowledgment,
    actor,
    attribute,
    digests,
    errors,
    manifest,
    message_order,
    named_parts,
    parties,
    status_report,
)
from messaging.protocol.codecs.ebms2_soap import (
    BODY,
    BODY_ELEMENTS,
    HEADER,
    HEADER_ELEMENTS,
    Blocks,
    check_foreign_blocks,
    check_places,
    own_blocks,
    section,
)
from messaging.protocol.codecs.ebxml_lexical import UNKNOWN_TIME, parse_timestamp
from messaging.protocol.codecs.related import Containers, containers, payloads
from messaging.protocol.codecs.xml import XML_SPACE, element_text, parse_document
from messaging.protocol.envelope import (
    DEFAULT_LIMITS,
    Acknowledgment,
    AckRequest,
    Actor,
    Digest,
    DocumentReference,
    Ebms2,
    Ebms2Kind,
    Envelope,
    ErrorInfo,
    Limits,
    Semantics,
    Sought,
    StatusReport,
)
from messaging.protocol.errors import ErrorCode, NotAMessage, Severity

_MESSAGE_HEADER = f"{HEADER}/MessageHeader"
_FACTS = ("From", "To", "CPAId", "ConversationId", "Service", "Action", "MessageData", "DuplicateElimination")
_MESSAGE_DATA = ("MessageId", "Timestamp", "RefToMessageId", "TimeToLive")
_NEVER_ANSWERED = (Ebms2Kind.ACKNOWLEDGMENT, Ebms2Kind.ERROR)


def decode(content_type: str, body: bytes | Sought, limits: Limits = DEFAULT_LIMITS) -> Envelope:
    """The message or signal in one transport entity; a SOAP envelope may come alone.

    `content_type` is the entity's Content-Type header, `body` its octets without a Content-Encoding or (for mail) an
    outer Content-Transfer-Encoding. Payload parts keep their order, with the offset at which each lies in `body`; those
    of a body that is not in memory are not, either. A SOAP Fault is read as an Error; one without MessageHeader has no
    MessageId, and only who got it as an answer knows what it is about.

    Identifiers in the result hold no line breaks and at most `limits.identifier` characters: what does not fit is cut
    and becomes a defect, so that any result can be stored and answered.

    Raises MustBeHeld, and NotAMessage, and nothing else, with reason body_too_large, not_mime, truncated,
    too_many_parts, part_headers_too_large, no_header_part, bad_transfer_encoding, header_too_large, dtd_forbidden,
    too_deep, too_many_elements, xml_not_well_formed, not_soap, not_ebxml or missing_message_id.
    """
    return decode_containers(containers(content_type, body, PACKAGING, limits), limits)


def decode_containers(found: Containers, limits: Limits = DEFAULT_LIMITS) -> Envelope:
    """The message that these containers are. Raises NotAMessage as `decode` does."""
    root = parse_document(found.document, limits)
    if root.tag != f"{{{SOAP}}}Envelope":
        raise NotAMessage("not_soap", f"the root element is {root.tag[:200]}")
    notes = Notes(limits)
    header, body = section(root, "Header", notes), section(root, "Body", notes)
    soap_fault = next(body.iterchildren(f"{{{SOAP}}}Fault"), None)
    fault = None if soap_fault is None else _fault_error(soap_fault)
    own = next(header.iterchildren(f"{{{EB}}}MessageHeader"), None)
    if own is None:
        if fault is None:
            raise NotAMessage("not_ebxml", "the SOAP Header has no MessageHeader")
        notes.warn(ErrorCode.OTHER_XML, "the SOAP Fault has no MessageHeader", HEADER)
        return _fault_alone(fault, notes)
    kind = Ebms2Kind.ERROR if fault is not None else _kind(own, notes)
    notes.lenient = kind in _NEVER_ANSWERED
    check_places(root, header, body, notes)
    signed = check_foreign_blocks(header, notes)
    signals = own_blocks(header, HEADER_ELEMENTS, HEADER, notes)
    contents = own_blocks(body, BODY_ELEMENTS, BODY, notes)
    return _envelope(kind, own, signals, contents, signed, fault, found, notes)


def soap_of(content_type: str, body: bytes | Sought, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """The SOAP envelope in one transport entity, as its signature is over it. Raises NotAMessage, MustBeHeld."""
    return containers(content_type, body, PACKAGING, limits).document


def digests_of(document: bytes, limits: Limits = DEFAULT_LIMITS) -> tuple[Digest, ...]:
    """What the signature of a SOAP envelope is over; nothing for one without. Raises NotAMessage."""
    header = parse_document(document, limits).find(f"{{{SOAP}}}Header")
    return () if header is None else digests(header, f"{{{DS}}}Signature/{{{DS}}}SignedInfo/", HEADER, Notes(limits))


def _envelope(
    kind: Ebms2Kind,
    own: etree._Element,
    signals: Blocks,
    contents: Blocks,
    signed: bool,
    fault: ErrorInfo | None,
    found: Containers,
    notes: Notes,
) -> Envelope:
    facts = Block(own, _MESSAGE_HEADER, notes, _FACTS, ("Description",))
    data = Block(facts.first("MessageData"), f"{_MESSAGE_HEADER}/MessageData", notes, _MESSAGE_DATA)
    message_id = data.text("MessageId")
    if not message_id:
        raise NotAMessage("missing_message_id", "the MessageHeader has no MessageId")
    from_parties, from_role = parties(facts.first("From"), f"{_MESSAGE_HEADER}/From", notes)
    to_parties, to_role = parties(facts.first("To"), f"{_MESSAGE_HEADER}/To", notes)
    service, action = facts.text("Service"), facts.text("Action")
    duplicate_elimination, ack_requests = _wishes(facts, signals, notes)
    order = signals.get("MessageOrder")
    ebms = Ebms2(
        kind=kind,
        from_role=from_role,
        to_role=to_role,
        service_type=_service_type(facts, service, notes),
        time_to_live=_time_to_live(data),
        duplicate_elimination=duplicate_elimination,
        ack_requests=ack_requests,
        sync_reply=_sync_reply(signals, notes),
        order=message_order(order[0], f"{HEADER}/MessageOrder", notes) if order else None,
        acknowledgments=_acknowledgments(signals, kind, notes),
        errors=_errors(signals, kind, fault, notes),
        status=_status(contents, kind, notes),
        signed=signed,
    )
    _check_order(ebms, notes)
    reference = data.text("RefToMessageId", required=kind is Ebms2Kind.ERROR)
    if kind is Ebms2Kind.ACKNOWLEDGMENT and not reference and ebms.acknowledgments:
        reference = ebms.acknowledgments[0].ref_to_message_id
    business = kind is Ebms2Kind.BUSINESS
    references = _manifest(contents, kind, notes)
    parts = named_parts(found.parts, references, f"{BODY}/Manifest", notes)
    return Envelope(
        message_type=kind.message_type,
        message_id=message_id,
        timestamp=data.time("Timestamp"),
        from_parties=from_parties,
        to_parties=to_parties,
        agreement_id=facts.text("CPAId"),
        conversation_id=facts.text("ConversationId"),
        service=service if fault is None else SERVICE,
        action=action if fault is None else str(Ebms2Kind.ERROR),
        semantics=ebms.semantics,
        routing=(),
        ref_to_message_id=reference,
        document_id=_document_id(own, notes) if business else "",
        manifest=references,
        payloads=payloads(parts, business, notes),
        error=ebms.gravest if kind is Ebms2Kind.ERROR else None,
        version=notes.identifier(attribute(own, "version"), f"{_MESSAGE_HEADER}/@version") or VERSION,
        defects=tuple(notes.defects),
        ebms=ebms,
    )


def _document_id(own: etree._Element, notes: Notes) -> str:
    """The id in the hub's own header block. What has an actor may be left out of a signature, so it does not count."""
    blocks = (block for block in own.itersiblings(f"{{{NAMESPACE}}}DocumentId") if not actor(block))
    found = next(blocks, None)
    text = "" if found is None else element_text(found)
    return document_ids.read(text, notes, f"{HEADER}/DocumentId")


def _fault_alone(error: ErrorInfo, notes: Notes) -> Envelope:
    return Envelope(
        message_type=Ebms2Kind.ERROR.message_type,
        message_id="",
        timestamp=UNKNOWN_TIME,
        from_parties=(),
        to_parties=(),
        agreement_id="",
        conversation_id="",
        service=SERVICE,
        action=str(Ebms2Kind.ERROR),
        semantics=Semantics.BEST_EFFORT,
        routing=(),
        error=error,
        version=VERSION,
        defects=tuple(notes.defects),
        ebms=Ebms2(Ebms2Kind.ERROR, errors=(error,)),
    )


def _fault_error(soap_fault: etree._Element) -> ErrorInfo:
    """SOAP 1.1, 4.4: the children of a Fault have no namespace."""
    texts = (soap_fault.findtext(name, "").strip(XML_SPACE) for name in ("faultstring", "faultcode"))
    return ErrorInfo(ErrorCode.UNKNOWN, Severity.ERROR, next(filter(None, texts), ""))


def _kind(own: etree._Element, notes: Notes) -> Ebms2Kind:
    """Signals are told by Service and Action; all else is business, whatever rides on it."""
    service, action = (own.findtext(f"{{{EB}}}{name}", "").strip(XML_SPACE) for name in ("Service", "Action"))
    if service != SERVICE:
        return Ebms2Kind.BUSINESS
    kind = next((kind for kind in Ebms2Kind if kind == action), Ebms2Kind.BUSINESS)
    if kind is Ebms2Kind.BUSINESS:
        problem = f"Action {action[:40]!r} of the messaging service itself is not known"
        notes.add(ErrorCode.VALUE_NOT_RECOGNIZED, problem, f"{_MESSAGE_HEADER}/Action")
    return kind


def _service_type(facts: Block, service: str, notes: Notes) -> str:
    element = facts.first("Service")
    location = f"{_MESSAGE_HEADER}/Service"
    found = "" if element is None else notes.identifier(attribute(element, "type"), f"{location}/@type")
    if service and not found and not has_scheme(service):
        notes.minor(ErrorCode.INCONSISTENT, f"{service[:80]!r} has no type and is no URI", location)
    return found


def _time_to_live(data: Block) -> datetime | None:
    """Some partners write no xs:dateTime (wire-ebxml 3.4): then it counts as not there."""
    text = data.text("TimeToLive", required=False)
    try:
        return parse_timestamp(text) if text else None
    except ValueError as error:
        data.notes.warn(ErrorCode.VALUE_NOT_RECOGNIZED, f"{error}; it is ignored", f"{data.location}/TimeToLive")
        return None


def _wishes(facts: Block, signals: Blocks, notes: Notes) -> tuple[bool, tuple[AckRequest, ...]]:
    """(DuplicateElimination, AckRequested for each actor). An acknowledgement or error that asks for them gets none."""
    location = f"{HEADER}/AckRequested"
    duplicate_elimination = "DuplicateElimination" in facts
    requests: dict[Actor, AckRequest] = {}
    for element in signals.get("AckRequested", ()):
        text = attribute(element, "signed")
        if not text:
            notes.minor(ErrorCode.OTHER_XML, "signed is missing", location)
        elif text not in ("true", "false", "1", "0"):
            notes.minor(ErrorCode.VALUE_NOT_RECOGNIZED, f"signed is {text[:40]!r}", f"{location}/@signed")
        to = Actor(actor(element) or Actor.TO_PARTY_MSH)
        requests.setdefault(to, AckRequest(to, text in ("true", "1")))
    if notes.lenient and (duplicate_elimination or requests):
        notes.warn(ErrorCode.INCONSISTENT, "an acknowledgement or error is never acknowledged", location)
        return False, ()
    return duplicate_elimination, tuple(requests.values())


def _sync_reply(signals: Blocks, notes: Notes) -> bool:
    for element in signals.get("SyncReply", ()):
        if not actor(element):
            notes.minor(ErrorCode.OTHER_XML, "actor is missing", f"{HEADER}/SyncReply")
    return "SyncReply" in signals


def _check_order(ebms: Ebms2, notes: Notes) -> None:
    """Messages are only put in order where none is lost or doubled, and where no one waits for the answer."""
    location = f"{HEADER}/MessageOrder"
    if ebms.order is not None and ebms.sync_reply:
        notes.minor(ErrorCode.INCONSISTENT, "MessageOrder goes without SyncReply", location)
    if ebms.order is not None and ebms.semantics is not Semantics.ONCE_AND_ONLY_ONCE:
        problem = "MessageOrder goes with AckRequested and DuplicateElimination"
        notes.minor(ErrorCode.INCONSISTENT, problem, location)


def _acknowledgments(signals: Blocks, kind: Ebms2Kind, notes: Notes) -> tuple[Acknowledgment, ...]:
    location = f"{HEADER}/Acknowledgment"
    found: dict[Actor, Acknowledgment] = {}
    for element in signals.get("Acknowledgment", ()):
        to = Actor(actor(element) or Actor.TO_PARTY_MSH)
        read = acknowledgment(element, to, location, notes)
        if read is not None:
            found.setdefault(to, read)
    if kind is Ebms2Kind.ACKNOWLEDGMENT and not found:
        notes.add(ErrorCode.OTHER_XML, "nothing says what is acknowledged", location)
    return tuple(found.values())


def _errors(signals: Blocks, kind: Ebms2Kind, fault: ErrorInfo | None, notes: Notes) -> tuple[ErrorInfo, ...]:
    location = f"{HEADER}/ErrorList"
    lists = signals.get("ErrorList")
    found = errors(lists[0], location, notes) if lists else ()
    if fault is not None:
        return (*found, fault)
    if kind is Ebms2Kind.ERROR and not found:
        notes.minor(ErrorCode.OTHER_XML, "the message has no Error", location)
        return (ErrorInfo(ErrorCode.UNKNOWN, Severity.ERROR, ""),)
    return found


def _manifest(contents: Blocks, kind: Ebms2Kind, notes: Notes) -> tuple[DocumentReference, ...]:
    location = f"{BODY}/Manifest"
    found = contents.get("Manifest")
    if found and kind is not Ebms2Kind.BUSINESS:
        notes.minor(ErrorCode.OTHER_XML, "a signal has no Manifest", location)
    return manifest(found[0], location, notes) if found and kind is Ebms2Kind.BUSINESS else ()


def _status(contents: Blocks, kind: Ebms2Kind, notes: Notes) -> StatusReport | None:
    report = None
    for wanted in (Ebms2Kind.STATUS_REQUEST, Ebms2Kind.STATUS_RESPONSE):
        location = f"{BODY}/{wanted}"
        found = contents.get(wanted)
        if (kind is wanted) is not (found is not None):
            notes.minor(ErrorCode.OTHER_XML, f"{wanted} goes with the Action of that name", location)
        elif found:
            report = status_report(found[0], kind is Ebms2Kind.STATUS_RESPONSE, location, notes)
    return report
