"""SOAP faults of both versions, with the codes of WS-Coordination and WS-AtomicTransaction (protocols.md 5.3).

SOAP 1.1: `faultcode` is the code itself. SOAP 1.2: the code is Sender and the subcode says what it is; MustUnderstand
is a code of SOAP in both.

The bodies of messages, and the endpoint references and contexts in them, as the reader finds them.
"""

from __future__ import annotations

import re
from typing import Final

from lxml import etree

from messaging.protocol.atomic.words import FAULT, FaultCode, Request
from messaging.protocol.codecs.xml import XML_LANGUAGE, XML_SPACE, element_text
from messaging.protocol.ws.messages import (
    MAX_ADDRESS,
    Body,
    CoordinationContext,
    Create,
    Created,
    EndpointReference,
    Fault,
    Notification,
    Opaque,
    Register,
    Registered,
    Violation,
    parameter_problem,
    serialise,
)
from messaging.protocol.ws.names import (
    APPLICATION,
    FAULT_ALIASES,
    NAMES,
    NOTES,
    OURS,
    SOAP,
    WSA_2004,
    WSA_2005,
    Soap,
    Version,
    body_namespace,
    fault_name,
    fault_namespace,
    protocol_of,
)

MAX_REASON = 1000  # characters
_CODES = {str(code): code for code in FaultCode}
_SPACES = frozenset(
    (
        *(space for names in NAMES.values() for space in (names.wscoor, names.wsat)),
        *(names.envelope for names in SOAP.values()),
    )
)


def read_fault(element: etree._Element, soap: Soap) -> Fault:
    """The fault in a soap:Fault element. Never fails: a fault that says nothing is one without a code.

    A code is known by its local name; its namespace must be one of ours or missing (a prefix that is not declared, or
    none at all, as some stacks write it). Names that others use for the same are translated.
    """
    space = SOAP[soap].envelope
    if soap is Soap.V11:
        code = element.find("faultcode")
        reason = element.find("faultstring")
        detail = element.find("detail")
    else:
        code = element.find(f"{{{space}}}Code")
        while code is not None and (deeper := code.find(f"{{{space}}}Subcode")) is not None:
            code = deeper
        code = code.find(f"{{{space}}}Value") if code is not None else None
        reason = _text_in_english(element.find(f"{{{space}}}Reason"), space)
        detail = element.find(f"{{{space}}}Detail")
    name = _name(code)
    return Fault(
        code=_known(name),
        reason=_line(element_text(reason)) if reason is not None else "",
        name=name,
        detail=_line(" ".join("".join(str(one) for one in detail.itertext()).split())) if detail is not None else "",
    )


def write_fault(parent: etree._Element, fault: Fault, version: Version, soap: Soap) -> None:
    """Appends the soap:Fault element of a fault that has a code of ours."""
    space, names = SOAP[soap].envelope, SOAP[soap]
    assert fault.code is not None
    value = _qualified(parent, fault_namespace(fault.code, version, soap), fault_name(fault.code, version))
    element = etree.SubElement(parent, f"{{{space}}}Fault")
    if soap is Soap.V11:
        etree.SubElement(element, "faultcode").text = value
        etree.SubElement(element, "faultstring").text = fault.reason[:MAX_REASON]
        if fault.detail:
            _detail(etree.SubElement(element, "detail"), fault)
        return
    code = etree.SubElement(element, f"{{{space}}}Code")
    outer = etree.SubElement(code, f"{{{space}}}Value")
    if fault.code is FaultCode.MUST_UNDERSTAND:
        outer.text = value
    else:
        outer.text = _qualified(parent, space, names.sender)
        subcode = etree.SubElement(code, f"{{{space}}}Subcode")
        etree.SubElement(subcode, f"{{{space}}}Value").text = value
    reason = etree.SubElement(element, f"{{{space}}}Reason")
    text = etree.SubElement(reason, f"{{{space}}}Text", {XML_LANGUAGE: "en"})
    text.text = fault.reason[:MAX_REASON]
    if fault.detail:
        _detail(etree.SubElement(element, f"{{{space}}}Detail"), fault)


def _detail(element: etree._Element, fault: Fault) -> None:
    """A detail holds elements only (both versions), so that the text has one of ours around it."""
    etree.SubElement(element, f"{{{OURS}}}Detail", nsmap={"rmhub": OURS}).text = fault.detail[:MAX_REASON]


def _qualified(element: etree._Element, namespace: str, local: str) -> str:
    prefix = next(prefix for prefix, space in element.nsmap.items() if space == namespace and prefix)
    return f"{prefix}:{local}"


def _text_in_english(reason: etree._Element | None, space: str) -> etree._Element | None:
    """The Text in English, else the first one (SOAP 1.2 has one for each language)."""
    if reason is None:
        return None
    texts = reason.findall(f"{{{space}}}Text")
    english = (one for one in texts if one.get(XML_LANGUAGE, "").lower().startswith("en"))
    return next(english, texts[0] if texts else None)


def _name(code: etree._Element | None) -> str:
    """A qualified name in Clark notation; without a namespace when its prefix is not declared."""
    if code is None:
        return ""
    prefix, colon, local = element_text(code).rpartition(":")
    namespace = code.nsmap.get(prefix if colon else None) or ""
    return (f"{{{namespace}}}{local}" if namespace and colon else local)[:300]


def _known(name: str) -> FaultCode | None:
    namespace, _, local = name.removeprefix("{").rpartition("}")
    if namespace and namespace not in _SPACES:
        return None
    # SOAP 1.1 lets a code be refined with dots: wscoor:InvalidState.Whatever.
    local = local.split(".")[0].strip(XML_SPACE)
    return _CODES.get(local) or FAULT_ALIASES.get(local)


def _line(text: str) -> str:
    return " ".join(text.split())[:MAX_REASON]


MAX_IDENTIFIER = 512  # characters of an Identifier, MessageID or RelatesTo
MAX_EXPIRES: Final = 2**32 - 1  # xsd:unsignedInt
ADDRESSING = frozenset((WSA_2004, WSA_2005))
_MAX_PROBLEMS = 20
_NUMBER = re.compile(r"\+?[0-9]{1,20}")
_ABSOLUTE_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s\x00-\x1f\x7f]+")


class Findings:
    """What is wrong with one message, in the order in which it was found."""

    __slots__ = ("problems",)

    def __init__(self) -> None:
        self.problems: list[Violation] = []

    def add(self, header: str, sentence: str, code: FaultCode = FaultCode.INVALID_PARAMETERS) -> None:
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(Violation(header, code, sentence))


def wsa_name(element: etree._Element) -> str:
    """Local name of an element of WS-Addressing, of either version; "" for any other element."""
    name = etree.QName(element)
    return name.localname if name.namespace in ADDRESSING else ""


def read_endpoint(element: etree._Element, header: str, findings: Findings) -> EndpointReference | None:
    """The endpoint reference in `element`; ReferenceProperties of 2004/08 count as parameters. None with a problem."""
    address, parameters = None, []
    for child in element:
        name = wsa_name(child)
        if name == "Address":
            address = element_text(child)
        elif name in ("ReferenceParameters", "ReferenceProperties"):
            parameters += list(child)
    if not address:
        findings.add(header, f"{header} has no wsa:Address")
        return None
    if len(address) > MAX_ADDRESS:
        findings.add(header, f"the wsa:Address of {header} has {len(address)} characters; {MAX_ADDRESS} allowed")
        return None
    why = parameter_problem(parameters)
    if why:
        findings.add(header, f"{header}: {why}")
        return None
    return EndpointReference(address, tuple(serialise(one) for one in parameters))


def read_body(
    kind: str, version: Version, element: etree._Element | None, soap: Soap, findings: Findings
) -> Body | None:
    """What a body says. None when it cannot be used: there is a problem that says why, or it is not that of `kind`."""
    if kind == APPLICATION:
        return Opaque(element.tag[:MAX_IDENTIFIER] if element is not None else "")
    if kind == FAULT and element is not None:
        return read_fault(element, soap)
    if element is None or element.tag != f"{{{body_namespace(kind, version)}}}{kind}":
        return None
    if kind in NOTES:
        return Notification(NOTES[kind])
    return _request(kind, version, element, findings)


def _request(kind: str, version: Version, element: etree._Element, findings: Findings) -> Body | None:
    space = NAMES[version].wscoor
    if kind == Request.CREATE:
        return _create(version, element, findings)
    if kind == Request.CREATED:
        child = element.find(f"{{{space}}}CoordinationContext")
        if child is None:
            findings.add("CoordinationContext", f"{kind} has no CoordinationContext")
            return None
        context = read_context_element(child, version, findings)
        return Created(context) if context is not None else None
    name = "ParticipantProtocolService" if kind == Request.REGISTER else "CoordinatorProtocolService"
    child = element.find(f"{{{space}}}{name}")
    endpoint = None
    if child is None:
        findings.add(name, f"{kind} has no {name}")
    else:
        endpoint = read_endpoint(child, name, findings)
    if kind == Request.REGISTERED:
        return Registered(endpoint) if endpoint is not None else None
    identifier = child_text(element, f"{{{space}}}ProtocolIdentifier")
    if not identifier:
        findings.add("ProtocolIdentifier", f"{kind} has no ProtocolIdentifier")
    if endpoint is None or not identifier:
        return None
    return Register(protocol_of(identifier, version), endpoint, identifier[:MAX_IDENTIFIER])


def _create(version: Version, element: etree._Element, findings: Findings) -> Create | None:
    space, before = NAMES[version].wscoor, len(findings.problems)
    expires = _expires(element, version, findings)
    kind = child_text(element, f"{{{space}}}CoordinationType")
    if not kind:
        findings.add("CoordinationType", "CreateCoordinationContext has no CoordinationType")
    child = element.find(f"{{{space}}}CurrentContext")
    current = read_context_element(child, version, findings) if child is not None else None
    if len(findings.problems) > before:
        return None
    return Create(kind[:MAX_IDENTIFIER], expires, current)


def read_context_element(element: etree._Element, version: Version, findings: Findings) -> CoordinationContext | None:
    space, where = NAMES[version].wscoor, etree.QName(element).localname
    before = len(findings.problems)
    identifier = child_text(element, f"{{{space}}}Identifier")
    kind = child_text(element, f"{{{space}}}CoordinationType")
    if len(identifier) > MAX_IDENTIFIER or not _ABSOLUTE_URI.fullmatch(identifier):
        findings.add("Identifier", f"the Identifier of {where} must be an absolute URI, not {identifier[:200]!r}")
    if not kind:
        findings.add("CoordinationType", f"{where} has no CoordinationType")
    expires = _expires(element, version, findings)
    service = element.find(f"{{{space}}}RegistrationService")
    endpoint = None
    if service is None:
        findings.add("RegistrationService", f"{where} has no RegistrationService")
    else:
        endpoint = read_endpoint(service, "RegistrationService", findings)
    if endpoint is None or len(findings.problems) > before:
        return None
    extensions = tuple(serialise(one) for one in element if etree.QName(one).namespace not in (space, *ADDRESSING))
    return CoordinationContext(identifier, endpoint, kind[:MAX_IDENTIFIER], expires, extensions)


def _expires(element: etree._Element, version: Version, findings: Findings) -> int | None:
    """Milliseconds (xsd:unsignedInt); None when there is no Expires, or with a problem."""
    child = element.find(f"{{{NAMES[version].wscoor}}}Expires")
    if child is None:
        return None
    text = element_text(child)
    if _NUMBER.fullmatch(text) is None or int(text) > MAX_EXPIRES:
        findings.add("Expires", f"Expires must be milliseconds from 0 to {MAX_EXPIRES}, not {text[:50]!r}")
        return None
    return int(text)


def child_text(element: etree._Element, tag: str) -> str:
    child = element.find(tag)
    return element_text(child) if child is not None else ""
