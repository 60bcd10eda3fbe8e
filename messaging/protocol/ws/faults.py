"""SOAP faults of both versions, with the codes of WS-Coordination and WS-AtomicTransaction (protocols.md 5.3).

SOAP 1.1: `faultcode` is the code itself. SOAP 1.2: the code is Sender and the subcode says what it is; MustUnderstand
is a code of SOAP in both.
"""

from __future__ import annotations

from lxml import etree

from messaging.protocol.atomic.words import FaultCode
from messaging.protocol.codecs.xml import XML_LANGUAGE, XML_SPACE, element_text
from messaging.protocol.ws.messages import Fault
from messaging.protocol.ws.names import FAULT_ALIASES, NAMES, OURS, SOAP, Soap, Version, fault_name, fault_namespace

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
