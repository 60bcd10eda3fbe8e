"""Tolerant reader of the stream profile ([MC-MQSRM] 2.2, 3.1.5.1.1).

Names of elements are compared without their namespace and in any case of letters: published samples write both `stream`
and `Stream`. What is needed to find a message's place in its stream has to be readable, else it is no message
([MC-MQSRM] 3.1.5.1.2: HTTP 400); any other broken rule is a Defect.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from lxml import etree

from messaging.protocol import document_ids
from messaging.protocol.codecs.mime import content_id_keys, refers_to
from messaging.protocol.codecs.related import containers, payloads
from messaging.protocol.codecs.stream_lexical import (
    LABEL_PREFIX,
    NAMESPACE,
    NEVER,
    PACKAGING,
    SOAP,
    parse_number,
    parse_stream_id,
    parse_time,
)
from messaging.protocol.codecs.xml import XML_LANGUAGE, XML_SPACE, Findings, element_text, parse_document
from messaging.protocol.envelope import DEFAULT_LIMITS, DocumentReference, Limits, PartyId, PayloadPart, Sought
from messaging.protocol.errors import ErrorCode, NotAMessage
from messaging.protocol.streams.envelope import (
    FinalReceipt,
    ReceiptWish,
    StreamEnvelope,
    StreamKind,
    StreamPosition,
    StreamReceipt,
)
from messaging.protocol.streams.final import ACK_RECEIVE, NORMAL, ORDER_ACK

_DELETED = 0x8001
_KNOWN = frozenset(
    ("path", "properties", "services", "stream", "streamreceipt", "deliveryreceipt", "commitmentreceipt", "msmq")
)
_LISTS = frozenset(("document", "partyid", "via"))
_OWN = "{" + NAMESPACE + "}"
_MUST_UNDERSTAND = ("{" + SOAP + "}mustUnderstand", "mustUnderstand")


def decode(content_type: str, body: bytes | Sought, limits: Limits = DEFAULT_LIMITS) -> StreamEnvelope:
    """The message or receipt in one transport entity; a body without parts is a message without payload.

    Identifiers in the result hold no line breaks and at most `limits.identifier` characters: what does not fit is cut
    and becomes a defect.

    Raises MustBeHeld, and NotAMessage, and nothing else, with reason body_too_large, not_mime, truncated,
    too_many_parts, part_headers_too_large, no_header_part, bad_transfer_encoding, header_too_large, dtd_forbidden,
    too_deep, too_many_elements, xml_not_well_formed, not_soap, missing_message_id, missing_to, bad_stream_header,
    bad_receipt, bad_document_id or unexpected_class.
    """
    found = containers(content_type, body, PACKAGING, limits)
    root = parse_document(found.document, limits)
    if _name(root) != "envelope":
        raise NotAMessage("not_soap", f"the root element is {root.tag[:200]}")
    header = next((child for child in root if _name(child) == "header"), None)
    if header is None:
        raise NotAMessage("not_soap", "the SOAP envelope has no Header")
    findings = Findings(limits)
    blocks, own = _blocks(header, findings)
    return _envelope(blocks, own, payloads(found.parts, True, findings), findings)


def _name(element: etree._Element) -> str:
    return str(element.tag).rpartition("}")[2].lower()


class _Block:
    """The children of one element, by name. Every reading of what is not there gives an empty value."""

    __slots__ = ("children", "findings", "location")

    def __init__(self, element: etree._Element | None, location: str, findings: Findings) -> None:
        self.location = location
        self.findings = findings
        self.children: dict[str, etree._Element] = {}
        for child in () if element is None else element:
            name = _name(child)
            first = self.children.setdefault(name, child)
            # Two parsers that each pick another one of two values would disagree on which message this is.
            if first is not child and name not in _LISTS and element_text(first) != element_text(child):
                findings.add(ErrorCode.NOT_WELL_FORMED, f"{name} occurs twice with different values", location)

    def __contains__(self, name: str) -> bool:
        return name in self.children

    def block(self, name: str) -> _Block:
        return _Block(self.children.get(name), f"{self.location}/{name}", self.findings)

    def text(self, name: str) -> str:
        found = self.children.get(name)
        return "" if found is None else element_text(found)

    def identifier(self, name: str) -> str:
        return self.findings.identifier(self.text(name), f"{self.location}/{name}")

    def time(self, name: str) -> datetime | None:
        text = self.text(name)
        if not text:
            return None
        try:
            return parse_time(text)
        except ValueError as error:
            self.findings.add(ErrorCode.VALUE_NOT_RECOGNIZED, str(error), f"{self.location}/{name}")
            return None

    def number(self, name: str, reason: str) -> int:
        try:
            return parse_number(self.text(name))
        except ValueError as error:
            raise NotAMessage(reason, f"{self.location}/{name}: {error}") from None

    def stream_id(self, reason: str) -> tuple[str, int]:
        try:
            return parse_stream_id(self.text("streamid"))
        except ValueError as error:
            raise NotAMessage(reason, f"{self.location}/streamid: {error}") from None


def _children(element: etree._Element | None, name: str) -> list[etree._Element]:
    return [] if element is None else [child for child in element if _name(child) == name]


def _blocks(header: etree._Element, findings: Findings) -> tuple[dict[str, etree._Element], etree._Element | None]:
    """The header blocks by name, and our own. To be understood, and not known: a defect (SOAP 1.1, 4.2.3)."""
    blocks: dict[str, etree._Element] = {}
    own = None
    for child in header:
        name = _name(child)
        if str(child.tag).startswith(_OWN):
            own = child if own is None and name == "message" else own
        elif name in _KNOWN:
            if name in blocks:
                findings.add(ErrorCode.INCONSISTENT, f"{name} occurs twice", f"/Envelope/Header/{name}")
            blocks.setdefault(name, child)
        elif any((child.get(attribute) or "").strip(XML_SPACE) in ("1", "true") for attribute in _MUST_UNDERSTAND):
            findings.add(ErrorCode.NOT_SUPPORTED, "it has to be understood and is not", f"/Envelope/Header/{name[:80]}")
    return blocks, own


def _envelope(
    blocks: dict[str, etree._Element],
    own: etree._Element | None,
    found_payloads: tuple[PayloadPart, ...],
    findings: Findings,
) -> StreamEnvelope:
    def block(name: str) -> _Block:
        return _Block(blocks.get(name), f"/{name}", findings)

    path, properties, msmq = block("path"), block("properties"), block("msmq")
    position = _position(block("stream")) if "stream" in blocks else None
    receipt = _receipt(block("streamreceipt")) if "streamreceipt" in blocks else None
    final = _final(block("commitmentreceipt")) if "commitmentreceipt" in blocks else None
    kind = StreamKind.MESSAGE
    if final is not None:
        kind = StreamKind.FINAL
    elif receipt is not None:
        kind = StreamKind.RECEIPT
    message_class, final = _class(kind, final, msmq, findings)
    message_id, to = path.identifier("id"), path.identifier("to")
    if kind is StreamKind.MESSAGE:
        if not message_id:
            raise NotAMessage("missing_message_id", "path has no id")
        if not to:
            raise NotAMessage("missing_to", "path has no to")
    expires_at = msmq.time("ttrq") or properties.time("expiresat")
    source = msmq.identifier("sourceqmguid").strip("{}").lower()
    if not source and position is not None:
        source = position.source
    facts = _Block(own, "/message", findings)
    return StreamEnvelope(
        kind=kind,
        message_id=message_id,
        to=to,
        source=source,
        sent_at=properties.time("sentat"),
        expires_at=None if expires_at == NEVER else expires_at,
        message_class=message_class,
        label=_label(path),
        vias=tuple(
            findings.identifier(element_text(via), "/path/rev/via")
            for via in _children(path.children.get("rev"), "via")
            if element_text(via)
        ),
        position=position,
        receipt=receipt,
        final=final,
        wish=_wish(block("services")),
        agreement_id=facts.identifier("tpaid"),
        conversation_id=facts.identifier("conversationid"),
        service=facts.identifier("service"),
        action=facts.identifier("action"),
        ref_to_message_id=facts.identifier("reftomessageid"),
        document_id=_document_id(facts.text("documentid")),
        from_parties=_parties(facts, "from"),
        to_parties=_parties(facts, "to"),
        manifest=_manifest(own, found_payloads, findings),
        payloads=found_payloads,
        has_own_block=own is not None,
        defects=tuple(findings.defects),
    )


def _document_id(text: str) -> str:
    """Refused where it is none: with another id in its place a repeat of the document would not be known."""
    if text and (sentence := document_ids.fault(text, document_ids.MAX_WIRE)):
        raise NotAMessage("bad_document_id", f"/message/DocumentId: the document id has to be {sentence.rstrip('.')}")
    return text


def _label(path: _Block) -> str:
    text = path.text("action")
    if text[: len(LABEL_PREFIX)].upper() == LABEL_PREFIX:
        text = text[len(LABEL_PREFIX) :]
    return path.findings.identifier(text.strip(XML_SPACE), "/path/action")


def _position(stream: _Block) -> StreamPosition:
    source, tx_sequence_id = stream.stream_id("bad_stream_header")
    current = stream.number("current", "bad_stream_header")
    previous = current - 1  # what the published samples mean by leaving it out
    if "previous" in stream:
        previous = stream.number("previous", "bad_stream_header")
    return StreamPosition(
        source,
        tx_sequence_id,
        current,
        previous,
        "start" in stream,
        stream.block("start").identifier("sendreceiptsto") if "start" in stream else "",
        "streamreceiptrequest" in stream,
        "end" in stream,
    )


def _receipt(element: _Block) -> StreamReceipt:
    source, tx_sequence_id = element.stream_id("bad_receipt")
    return StreamReceipt(source, tx_sequence_id, element.number("lastordinal", "bad_receipt"))


def _final(element: _Block) -> FinalReceipt:
    about = element.identifier("id")
    decision = element.text("decision").lower()
    if not about or decision not in ("positive", "negative"):
        raise NotAMessage("bad_receipt", "a commitmentReceipt has an id, and the decision positive or negative")
    return FinalReceipt(about, decision == "positive", element.time("decidedat"))


def _class(
    kind: StreamKind, final: FinalReceipt | None, msmq: _Block, findings: Findings
) -> tuple[int, FinalReceipt | None]:
    """Msmq/Class, or what the kind implies. A decision that its class contradicts is taken for the negative one."""
    implied = ORDER_ACK if kind is StreamKind.RECEIPT else NORMAL
    if final is not None:
        implied = ACK_RECEIVE if final.positive else _DELETED
    if not msmq.text("class"):
        return implied, final
    said = msmq.number("class", "unexpected_class")
    if kind is StreamKind.MESSAGE and said != NORMAL:
        raise NotAMessage("unexpected_class", f"class 0x{said:04X} is neither a message nor a receipt with its element")
    if final is not None and final.positive is not (said == ACK_RECEIVE):
        findings.add(ErrorCode.INCONSISTENT, f"class 0x{said:04X} contradicts the decision", "/commitmentReceipt")
        return _DELETED if said == ACK_RECEIVE else said, replace(final, positive=False)
    return said, final


def _wish(services: _Block) -> ReceiptWish | None:
    if "commitmentreceiptrequest" not in services:
        return None
    wish = services.block("commitmentreceiptrequest")
    return ReceiptWish(wish.identifier("sendto"), "positiveonly" in wish, "negativeonly" in wish)


def _parties(facts: _Block, name: str) -> tuple[PartyId, ...]:
    location = f"/message/{name}/PartyId"
    found = []
    for child in _children(facts.children.get(name), "partyid"):
        value = facts.findings.identifier(element_text(child), location)
        context = facts.findings.identifier((child.get("context") or "").strip(XML_SPACE), f"{location}/@context")
        if value:
            found.append(PartyId(value, context))
    return tuple(found)


def _manifest(
    own: etree._Element | None, found: tuple[PayloadPart, ...], findings: Findings
) -> tuple[DocumentReference, ...]:
    keys = content_id_keys(payload.content_id for payload in found if payload.content_id)
    references: list[DocumentReference] = []
    for child in _children(own, "document"):
        location = f"/message/Document[{len(references) + 1}]"
        document_id = findings.identifier((child.get("id") or "").strip(XML_SPACE), f"{location}/@id")
        label = findings.identifier((child.get("label") or "").strip(XML_SPACE), f"{location}/@label")
        language = findings.identifier((child.get(XML_LANGUAGE) or "").strip(XML_SPACE), f"{location}/@xml:lang")
        description = element_text(child)
        references.append(DocumentReference(label, document_id, description, language if description else "en"))
        if not document_id or (document_id[:4].lower() == "cid:" and not refers_to(document_id, keys)):
            findings.add(ErrorCode.MIME_PROBLEM, f"no part has the Content-ID of {document_id[:80]!r}", location)
    return tuple(references)
