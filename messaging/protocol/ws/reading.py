"""Tolerant reader: the octets of one SOAP message to a WsMessage (protocols.md 5.1 to 5.3, 5.7).

Whoever can be answered gets a WsMessage whose `problems` say what is wrong; `rules.check` adds what the addressing
table says. Unreadable is for octets that are no SOAP message at all.
"""

from __future__ import annotations

import codecs
import re

from lxml import etree

from messaging.protocol.atomic.words import FAULT, FaultCode
from messaging.protocol.codecs.mime import decode_header_value
from messaging.protocol.codecs.xml import XML_SPACE, element_text, parse_document
from messaging.protocol.envelope import Limits
from messaging.protocol.errors import NotAMessage
from messaging.protocol.ws.bodies import (
    ADDRESSING,
    MAX_IDENTIFIER,
    Findings,
    child_text,
    read_body,
    read_context_element,
    read_endpoint,
    wsa_name,
)
from messaging.protocol.ws.messages import (
    Addressing,
    CoordinationContext,
    EndpointReference,
    Unreadable,
    WsMessage,
    serialise,
)
from messaging.protocol.ws.names import (
    APPLICATION,
    NAMES,
    NOTES,
    OURS,
    REQUESTS,
    SOAP,
    UNSPECIFIED,
    WSA_2004,
    Soap,
    Version,
    action_of,
    body_namespace,
    coordination_type,
)

MAX_HEADERS = 50  # header blocks of one message
MAX_ELEMENTS = 1000
MAX_NAMESPACES = 100  # declarations: each element costs as many steps as there are in its scope

_CONTEXTS = {f"{{{names.wscoor}}}CoordinationContext": version for version, names in NAMES.items()}
_ENVELOPES = {names.envelope: soap for soap, names in SOAP.items()}
_MEDIA_TYPES = {names.media_type: soap for soap, names in SOAP.items()}
_ACTIONS = {action_of(kind, version): (version, kind) for version in Version for kind in (*REQUESTS, *NOTES)}
_ENCODINGS = frozenset(("utf-8", "utf-16", "utf-16le", "utf-16be", "us-ascii", "ascii", "iso-8859-1"))
_TRUE = frozenset(("1", "true"))
_DECLARATION = re.compile(r"\s*<\?xml\s[^>]*\?>")


def decode(content_type: str, octets: bytes, *, max_bytes: int, soap_action: str = "") -> WsMessage:
    """The message in the body of one HTTP POST.

    `content_type` and `soap_action` are the values of the headers Content-Type and SOAPAction. Raises Unreadable, and
    nothing else, with status 413 (too_large), 415 (not_soap, wrong_charset, wrong_soap_version) or 400 (dtd_forbidden,
    too_deep, too_many_elements, too_many_headers, too_many_namespaces, xml_not_well_formed, not_an_envelope, no_body,
    bad_charset).
    """
    if len(octets) > max_bytes:
        raise Unreadable("too_large", f"message of {len(octets)} bytes; {max_bytes} allowed", 413)
    media_type, options = decode_header_value(content_type)
    expected = _MEDIA_TYPES.get(media_type.lower())
    if expected is None:
        allowed = " or ".join(_MEDIA_TYPES)
        raise Unreadable("not_soap", f"Content-Type {media_type[:100]!r} is not supported, only {allowed}", 415)
    root = _document(_characters(octets, options.get("charset", "")), max_bytes)
    soap = _ENVELOPES.get(etree.QName(root).namespace or "")
    if soap is None or etree.QName(root).localname != "Envelope":
        raise Unreadable("not_an_envelope", f"the root element is {root.tag[:200]}, not an Envelope of SOAP")
    if soap is not expected:
        detail = f"an envelope of SOAP {soap} has Content-Type {SOAP[soap].media_type}, not {media_type[:100]}"
        raise Unreadable("wrong_soap_version", detail, 415)
    said = options.get("action", "") if soap is Soap.V12 else soap_action.strip(XML_SPACE).strip('"')
    return _message(root, soap, said)


def read_context(octets: bytes, *, max_bytes: int = 64 * 1024) -> tuple[CoordinationContext, Version]:
    """The context in a document whose root is a CoordinationContext element. Raises Unreadable when it has none."""
    root = _document(octets, max_bytes)
    version = _CONTEXTS.get(root.tag)
    if version is None:
        raise Unreadable("not_a_context", f"the root element is {root.tag[:200]}, not a CoordinationContext")
    findings = Findings()
    context = read_context_element(root, version, findings)
    if context is None or findings.problems:
        raise Unreadable("bad_context", findings.problems[0].sentence)
    return context, version


def _characters(octets: bytes, charset: str) -> bytes:
    """The octets as the XML parser shall read them: the charset of the Content-Type wins over the document's own."""
    if not charset:
        return octets
    try:
        name = codecs.lookup(charset.strip('"')).name
    except (LookupError, ValueError):
        name = ""
    if name not in ("utf-8", "utf-16", "utf-16-le", "utf-16-be", "ascii"):
        raise Unreadable("wrong_charset", f"charset {charset[:50]!r} is not supported, only utf-8 and utf-16", 415)
    try:
        text = octets.decode(name).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise Unreadable("bad_charset", f"the octets are not {name}: {error.reason} at {error.start}") from None
    return _DECLARATION.sub("", text, count=1).encode()


def _document(octets: bytes, max_bytes: int) -> etree._Element:
    limits = Limits(header_document=max(max_bytes, 2 * len(octets)), xml_nodes=MAX_ELEMENTS)
    try:
        root = parse_document(octets, limits)
    except NotAMessage as error:
        raise Unreadable(error.reason, error.detail) from None
    encoding = (root.getroottree().docinfo.encoding or "utf-8").lower()
    if encoding not in _ENCODINGS:
        raise Unreadable("wrong_charset", f"encoding {encoding[:50]!r} is not supported, only utf-8 and utf-16", 415)
    # In these encodings, the word has the same octets once the zeros of UTF-16 are out.
    declared = octets.replace(b"\0", b"").count(b"xmlns")
    if declared > MAX_NAMESPACES:
        raise Unreadable("too_many_namespaces", f"{declared} namespace declarations; {MAX_NAMESPACES} allowed")
    return root


def _message(root: etree._Element, soap: Soap, said_action: str) -> WsMessage:
    names, findings = SOAP[soap], Findings()
    header = root.find(f"{{{names.envelope}}}Header")
    outer = root.find(f"{{{names.envelope}}}Body")
    if outer is None:
        raise Unreadable("no_body", "the Envelope has no Body")
    element = next(iter(outer), None)
    if header is not None and len(header) > MAX_HEADERS:
        raise Unreadable("too_many_headers", f"{len(header)} header blocks; {MAX_HEADERS} allowed")
    # Blocks for somebody on the way are none of our business.
    blocks = [one for one in header if _is_for_us(one, soap)] if header is not None else []

    action = next((element_text(one) for one in blocks if wsa_name(one) == "Action"), "")
    version, kind = _kind(element, action, blocks, names.envelope)
    addressing, echoed, context = _header(blocks, soap, action, findings)
    _agreement(kind, version, element, action, findings)
    if said_action and action and said_action != action:
        findings.add("Action", f"wsa:Action is {action[:200]}, but the HTTP headers say {said_action[:200]}")
    body = read_body(kind, version, element, soap, findings)
    return WsMessage(kind, version, soap, addressing, body, echoed, context, tuple(findings.problems))


# Header


def _header(
    blocks: list[etree._Element], soap: Soap, action: str, findings: Findings
) -> tuple[Addressing, tuple[str, ...], CoordinationContext | None]:
    texts: dict[str, str] = {"Action": action[:MAX_IDENTIFIER]}
    endpoints: dict[str, EndpointReference | None] = {}
    echoed: list[str] = []
    context: CoordinationContext | None = None
    seen: set[str] = set()
    for block in blocks:
        name = wsa_name(block)
        if name in ("Action", "To", "MessageID", "RelatesTo", "ReplyTo", "FaultTo", "From"):
            if name in seen and name != "RelatesTo":
                findings.add(name, f"the message has more than one wsa:{name}")
            elif name in ("ReplyTo", "FaultTo", "From"):
                endpoints[name] = read_endpoint(block, name, findings)
            elif name != "RelatesTo" or _is_reply(block):
                texts.setdefault(name, _identifier(element_text(block), name, findings))
            seen.add(name)
        elif block.tag in _CONTEXTS:
            context = _context_header(block, soap, findings) or context
        else:
            if _must_understand(block, soap) and etree.QName(block).namespace != OURS:
                sentence = f"header block {block.tag[:200]} must be understood, and is not"
                findings.add(block.tag[:200], sentence, FaultCode.MUST_UNDERSTAND)
            if not name:
                echoed.append(_without_flag(block))
    relates_to = texts.get("RelatesTo", "")
    addressing = Addressing(
        action=texts.get("Action", ""),
        to=texts.get("To", ""),
        message_id=texts.get("MessageID", ""),
        relates_to="" if relates_to in UNSPECIFIED else relates_to,
        reply_to=endpoints.get("ReplyTo"),
        fault_to=endpoints.get("FaultTo"),
        sender=endpoints.get("From"),
    )
    return addressing, tuple(echoed), context


def _is_for_us(block: etree._Element, soap: Soap) -> bool:
    """Whether a header block is for the endpoint of the message, not for somebody on the way."""
    names = SOAP[soap]
    return block.get(f"{{{names.envelope}}}{names.actor}", "").strip(XML_SPACE) in names.actors


def _must_understand(block: etree._Element, soap: Soap) -> bool:
    return block.get(f"{{{SOAP[soap].envelope}}}mustUnderstand", "").strip(XML_SPACE) in _TRUE


def _without_flag(block: etree._Element) -> str:
    for namespace in ADDRESSING:
        name = f"{{{namespace}}}IsReferenceParameter"
        if name in block.attrib:
            del block.attrib[name]
    return serialise(block)


def _is_reply(block: etree._Element) -> bool:
    """Whether a RelatesTo says "I answer that message", which is what it says without a RelationshipType."""
    return block.get("RelationshipType", "reply").rsplit(":", 1)[-1].rsplit("/", 1)[-1].lower() == "reply"


def _identifier(value: str, header: str, findings: Findings) -> str:
    """`value` as it may be stored and written again; a problem if that is not what came."""
    if len(value) <= MAX_IDENTIFIER and not re.search(r"[\x00-\x20\x7f]", value):
        return value
    findings.add(header, f"{header} has blanks, control characters or more than {MAX_IDENTIFIER} characters")
    return re.sub(r"[\x00-\x20\x7f]", "", value)[:MAX_IDENTIFIER]


def _context_header(block: etree._Element, soap: Soap, findings: Findings) -> CoordinationContext | None:
    """The context of an application message; one of another coordination type must not be taken for none (T55)."""
    version = _CONTEXTS[block.tag]
    expected = coordination_type(version)
    kind = child_text(block, f"{{{NAMES[version].wscoor}}}CoordinationType")
    if kind and kind != expected:
        if _must_understand(block, soap):
            sentence = f"a CoordinationContext of type {kind[:200]} is not understood, only {expected}"
            findings.add("CoordinationContext", sentence, FaultCode.MUST_UNDERSTAND)
        return None
    return read_context_element(block, version, findings)


# Kind and version


def _kind(
    element: etree._Element | None, action: str, blocks: list[etree._Element], envelope: str
) -> tuple[Version, str]:
    """What the body says; a body that says nothing (empty, unknown) has the kind of its action."""
    if element is not None:
        name = etree.QName(element)
        if name.namespace == envelope and name.localname == "Fault":
            return _version(action, blocks), FAULT
        for version, names in NAMES.items():
            if name.namespace == names.wscoor and name.localname in REQUESTS:
                return version, name.localname
            if name.namespace == names.wsat and name.localname in NOTES:
                return version, name.localname
    return _ACTIONS.get(action) or (_version(action, blocks), APPLICATION)


def _version(action: str, blocks: list[etree._Element]) -> Version:
    for version, names in NAMES.items():
        if action.startswith((names.wscoor, names.wsat)):
            return version
    wsa = {etree.QName(one).namespace for one in blocks} & ADDRESSING
    return Version.V2004 if wsa == {WSA_2004} else Version.V2006


def _agreement(kind: str, version: Version, element: etree._Element | None, action: str, findings: Findings) -> None:
    """Action and body must say the same (WS-Addressing: the action identifies what the message means)."""
    if kind in (APPLICATION, FAULT):
        return
    expected = action_of(kind, version)
    if not action:
        findings.add("Action", f"{kind} has no wsa:Action, which must be {expected}")
    elif action != expected:
        findings.add("Action", f"wsa:Action is {action[:200]}, but the body is {kind}: {expected}")
    elif element is None or element.tag != f"{{{body_namespace(kind, version)}}}{kind}":
        seen = "empty" if element is None else element.tag[:200]
        findings.add("Body", f"the body is {seen}, but wsa:Action says {kind}")
