"""Octets and values that the tests of the WS-AT codec share."""

from __future__ import annotations

import tests
from messaging.protocol.ws.messages import EndpointReference, WsMessage, parameter
from messaging.protocol.ws.names import NAMES, SOAP, Soap, Version
from messaging.protocol.ws.reading import decode

FIXTURES = tests.FIXTURES / "ws-tx"
MAX_BYTES = 64 * 1024

HUB = EndpointReference("https://hub.example/ws-tx/coordinator", (parameter("Enlistment", "enl_1"),))
PEER = EndpointReference(
    "https://peer.example:8443/participant", ('<p:Branch xmlns:p="urn:peer" p:kind="2">7 &amp; 8</p:Branch>',)
)


def fixture(number: int) -> bytes:
    (path,) = FIXTURES.glob(f"{number:02}_*.xml")
    return path.read_bytes()


def read(octets: bytes, content_type: str = "") -> WsMessage:
    """Decoded with the Content-Type of the envelope's SOAP version."""
    soap = Soap.V12 if SOAP[Soap.V12].envelope.encode() in octets else Soap.V11
    return decode(content_type or SOAP[soap].media_type, octets, max_bytes=MAX_BYTES)


def envelope(headers: str, body: str, *, soap: Soap = Soap.V11, version: Version = Version.V2006) -> bytes:
    """An envelope with the prefixes s, a, wscoor and wsat."""
    names = NAMES[version]
    return (
        f'<s:Envelope xmlns:s="{SOAP[soap].envelope}" xmlns:a="{names.wsa}" xmlns:wscoor="{names.wscoor}"'
        f' xmlns:wsat="{names.wsat}"><s:Header>{headers}</s:Header><s:Body>{body}</s:Body></s:Envelope>'
    ).encode()


def epr(name: str, address: str, parameters: str = "") -> str:
    inner = f"<a:ReferenceParameters>{parameters}</a:ReferenceParameters>" if parameters else ""
    return f"<{name}><a:Address>{address}</a:Address>{inner}</{name}>"


def request(
    kind: str,
    body: str,
    *,
    reply_to: str = "https://peer.example/replies",
    message_id: str = "urn:uuid:1",
    version: Version = Version.V2006,
    soap: Soap = Soap.V11,
    more: str = "",
) -> bytes:
    """A Create or Register with its headers; `body` is what is in the element. "" leaves a header out."""
    headers = f"<a:Action>{NAMES[version].wscoor}/{kind}</a:Action><a:To>https://hub.example/ws-tx/x</a:To>{more}"
    headers += f"<a:MessageID>{message_id}</a:MessageID>" if message_id else ""
    headers += epr("a:ReplyTo", reply_to) if reply_to else ""
    return envelope(headers, f"<wscoor:{kind}>{body}</wscoor:{kind}>", soap=soap, version=version)


def create(body: str = "", *, kind: str = "", version: Version = Version.V2006, **headers: str) -> bytes:
    kind = kind or NAMES[version].wsat
    inner = f"{body}<wscoor:CoordinationType>{kind}</wscoor:CoordinationType>"
    return request("CreateCoordinationContext", inner, version=version, **headers)  # type: ignore[arg-type]


def register(
    address: str = "https://peer.example/participant",
    *,
    protocol: str = "",
    parameters: str = "",
    version: Version = Version.V2006,
) -> bytes:
    protocol = protocol or f"{NAMES[version].wsat}/Durable2PC"
    inner = f"<wscoor:ProtocolIdentifier>{protocol}</wscoor:ProtocolIdentifier>"
    inner += epr("wscoor:ParticipantProtocolService", address, parameters)
    return request("Register", inner, version=version)


def notification(kind: str, headers: str = "", *, version: Version = Version.V2006, soap: Soap = Soap.V11) -> bytes:
    head = f"<a:Action>{NAMES[version].wsat}/{kind}</a:Action><a:To>https://hub.example/ws-tx/coordinator</a:To>"
    return envelope(head + headers, f"<wsat:{kind}/>", version=version, soap=soap)
