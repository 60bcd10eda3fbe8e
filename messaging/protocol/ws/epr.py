"""Endpoint references of WS-Addressing, and the reference parameters that peers copy into their messages."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from lxml import etree

from messaging.protocol.codecs.xml import element_text, parse_document
from messaging.protocol.errors import EncodeError, NotAMessage
from messaging.protocol.limits import Limits
from messaging.protocol.ws.names import NOWHERE, OURS, SOAP, WSA_2004, WSA_2005

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
        raise EncodeError(f"a reference parameter is no XML element: {error}") from None


def parameter_problem(elements: list[etree._Element]) -> str:
    """Why these elements cannot be reference parameters of an endpoint; "" when they can."""
    if len(elements) > MAX_PARAMETERS:
        return f"{len(elements)} reference parameters; {MAX_PARAMETERS} allowed"
    for element in elements:
        if etree.QName(element).namespace in _FORBIDDEN:
            return f"a reference parameter cannot be {element.tag[:200]}"
    size = sum(len(serialise(element).encode()) for element in elements)
    return f"reference parameters of {size} bytes; {MAX_PARAMETER_BYTES} allowed" if size > MAX_PARAMETER_BYTES else ""
