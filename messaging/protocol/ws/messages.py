"""Endpoint references of WS-Addressing, and the reference parameters that peers copy into their messages.

What one SOAP message of WS-Coordination or WS-AtomicTransaction says, without its XML.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from lxml import etree

from messaging.protocol.atomic.words import FaultCode, Note, Protocol
from messaging.protocol.codecs.xml import element_text, parse_document
from messaging.protocol.envelope import Limits
from messaging.protocol.errors import EncodeError, NotAMessage
from messaging.protocol.ws.names import NOWHERE, OURS, SOAP, WSA_2004, WSA_2005, Soap, Version

MAX_ADDRESS = 500  # characters
MAX_PARAMETERS = 20
MAX_PARAMETER_BYTES = 8192  # of all of one endpoint reference together
_LIMITS = Limits(xml_nodes=2000)

_PORTS = {"http": 80, "https": 443}
_PREFIX = re.compile(r"(?<![\w.-])([A-Za-z_][\w.-]*):(?=\w)")
_NOT_IN_URI = re.compile(r"[\x00-\x20\x7f<>\"{}|\\^`]")
# A parameter of these namespaces would forge headers of the message that carries it.
_FORBIDDEN = frozenset((WSA_2004, WSA_2005, *(names.envelope for names in SOAP.values())))


@dataclass(frozen=True, slots=True)
class EndpointReference:
    """`parameters`: reference parameters, each one serialised XML element with its namespace declarations."""

    address: str
    parameters: tuple[str, ...] = ()

    def is_physical(self) -> bool:
        """Whether a new connection can reach it: absolute http or https URL, neither anonymous nor none (spec 5)."""
        return self.address not in NOWHERE and origin(self.address) is not None


def origin(address: str) -> tuple[str, str, int] | None:
    """Scheme, host and port of an absolute http or https URL; None for everything else.

    User information is refused: a name and password in an address of others is nothing to send anywhere.
    """
    if len(address) > MAX_ADDRESS or _NOT_IN_URI.search(address):
        return None
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if parts.scheme not in _PORTS or not host or "@" in parts.netloc:
        return None
    return parts.scheme, host.rstrip("."), port if port is not None else _PORTS[parts.scheme]


def parameter(name: str, text: str) -> str:
    """A reference parameter of ours: `<x:name xmlns:x="urn:rmhub:ws-tx">text</x:name>`."""
    element = etree.Element(f"{{{OURS}}}{name}", nsmap={"rmhub": OURS})
    element.text = text
    return serialise(element)


def read_parameter(echoed: tuple[str, ...], name: str) -> str:
    """The text of the parameter of ours with this name among header blocks that a peer sent; "" when it is not there.

    Of several with the name the first one counts only if all say the same.
    """
    ours = (parse(block) for block in echoed if OURS in block)
    texts = {element_text(element) for element in ours if element.tag == f"{{{OURS}}}{name}"}
    return texts.pop() if len(texts) == 1 else ""


def serialise(element: etree._Element) -> str:
    """One element as XML text that stands alone, the same text for the same content (exclusive canonical XML).

    Prefixes that occur in text and attribute values keep their declarations: they may be qualified names.
    """
    used: set[str] = set()
    for one in element.iter():
        for text in (one.text, one.tail if one is not element else None, *one.attrib.values()):
            if text and ":" in text:
                used.update(_PREFIX.findall(str(text)))
    prefixes = sorted(used & {prefix for one in element.iter() for prefix in one.nsmap if prefix}) if used else []
    try:
        octets: bytes = etree.tostring(
            element, method="c14n", exclusive=True, inclusive_ns_prefixes=prefixes or None, with_tail=False
        )
    except etree.C14NError:  # it has no form for namespaces that are relative URIs
        octets = etree.tostring(element, encoding="UTF-8", xml_declaration=False, with_tail=False)
    return octets.decode()


def parse(text: str) -> etree._Element:
    """The element of a serialised parameter. Raises EncodeError if it is none."""
    try:
        return parse_document(text.encode(), _LIMITS)
    except (NotAMessage, UnicodeEncodeError) as error:
        raise EncodeError(f"a reference parameter is not an XML element: {error}") from None


def parameter_problem(elements: list[etree._Element]) -> str:
    """Why these elements cannot be reference parameters of an endpoint; "" when they can."""
    if len(elements) > MAX_PARAMETERS:
        return f"{len(elements)} reference parameters; {MAX_PARAMETERS} allowed"
    for element in elements:
        if etree.QName(element).namespace in _FORBIDDEN:
            return f"a reference parameter cannot be {element.tag[:200]}"
    size = sum(len(serialise(element).encode()) for element in elements)
    return f"reference parameters of {size} bytes; {MAX_PARAMETER_BYTES} allowed" if size > MAX_PARAMETER_BYTES else ""


class Unreadable(NotAMessage):
    """Octets that are no SOAP message which could be answered by another one: only the HTTP status tells.

    `status` is 400, 413 or 415; `reason` a stable code, `detail` a sentence.
    """

    def __init__(self, reason: str, detail: str, status: int = 400) -> None:
        super().__init__(reason, detail)
        self.status = status


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that a message breaks. `header` is the header or element; a `fatal` one keeps it from being processed."""

    header: str
    code: FaultCode
    sentence: str
    fatal: bool = True


@dataclass(frozen=True, slots=True)
class Addressing:
    """WS-Addressing headers. "" and None: not there. `relates_to` is "" for the `unspecified` URI, too."""

    action: str = ""
    to: str = ""
    message_id: str = ""
    relates_to: str = ""
    reply_to: EndpointReference | None = None
    fault_to: EndpointReference | None = None
    sender: EndpointReference | None = None  # wsa:From


@dataclass(frozen=True, slots=True)
class CoordinationContext:
    """`identifier` is an absolute URI, `expires_ms` milliseconds, `extensions` serialised elements of others."""

    identifier: str
    registration: EndpointReference
    coordination_type: str
    expires_ms: int | None = None
    extensions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Create:
    coordination_type: str
    expires_ms: int | None = None
    current: CoordinationContext | None = None


@dataclass(frozen=True, slots=True)
class Created:
    context: CoordinationContext


@dataclass(frozen=True, slots=True)
class Register:
    """`protocol` is None when `identifier` (the ProtocolIdentifier) is none that we know."""

    protocol: Protocol | None
    participant: EndpointReference
    identifier: str = ""


@dataclass(frozen=True, slots=True)
class Registered:
    coordinator: EndpointReference


@dataclass(frozen=True, slots=True)
class Notification:
    note: Note


@dataclass(frozen=True, slots=True)
class Fault:
    """`code` is None for a fault of others (soap:Client, wsa:...); `name`: its code as it came, `{namespace}local`."""

    code: FaultCode | None
    reason: str = ""
    name: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Opaque:
    """The body of an application's message: the name of its first element, `{namespace}local`, or ""."""

    name: str = ""


Body = Create | Created | Register | Registered | Notification | Fault | Opaque


@dataclass(frozen=True, slots=True)
class WsMessage:
    """One message. `kind` is a value of Request or Note, "Fault" or "Application".

    `echoed`: read, the header blocks that are neither addressing nor a context (among them our own reference
    parameters that the peer copied); written, the reference parameters of the endpoint that it goes to.
    `context`: the CoordinationContext header of an application message. `body` is None, and `problems` says why, when
    the body cannot be used.
    """

    kind: str
    version: Version
    soap: Soap
    addressing: Addressing
    body: Body | None
    echoed: tuple[str, ...] = ()
    context: CoordinationContext | None = None
    problems: tuple[Violation, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Octets:
    """What goes out by HTTP POST. `soap_action` is the value of the SOAPAction header; "" (SOAP 1.2): send none."""

    content_type: str
    body: bytes
    soap_action: str = ""

    @property
    def headers(self) -> dict[str, str]:
        return {"Content-Type": self.content_type} | ({"SOAPAction": self.soap_action} if self.soap_action else {})
