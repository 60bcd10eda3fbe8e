"""Strict writer: WsMessage to octets. Equal messages give equal octets; nothing depends on the clock or on chance."""

from __future__ import annotations

from dataclasses import replace

from lxml import etree

from messaging.protocol.atomic.words import FAULT, Note
from messaging.protocol.errors import EncodeError
from messaging.protocol.ws.bodies import write_fault
from messaging.protocol.ws.messages import (
    Body,
    CoordinationContext,
    Create,
    Created,
    EndpointReference,
    Fault,
    Notification,
    Octets,
    Opaque,
    Register,
    Registered,
    WsMessage,
    parse,
)
from messaging.protocol.ws.names import (
    APPLICATION,
    NAMES,
    SOAP,
    WSA_2005,
    Profile,
    Soap,
    Version,
    action_of,
    body_namespace,
    protocol_uri,
)
from messaging.protocol.ws.rules import check, headers_for


def compose(
    kind: str,
    *,
    version: Version,
    soap: Soap,
    profile: Profile,
    to: EndpointReference,
    me: EndpointReference | None,
    message_id: str,
    body: Body | None = None,
    relates_to: str = "",
) -> WsMessage:
    """A message of ours to the endpoint `to`, with the headers that the table asks for.

    `me` is our own endpoint reference for the relationship. Without a `body` it is a notification. The reference
    parameters of `to` become header blocks (WS-Addressing; spec 5: "MUST include the reference parameter elements").
    """
    if body is None:
        body = Notification(Note(kind))
    code = body.code if isinstance(body, Fault) else None
    addressing = headers_for(kind, profile, version, me=me, message_id=message_id, relates_to=relates_to)
    addressing = replace(addressing, action=action_of(kind, version, code), to=to.address)
    return WsMessage(kind, version, soap, addressing, body, echoed=to.parameters)


def encode(message: WsMessage, profile: Profile) -> Octets:
    """The octets of a message of ours, ready to be kept and sent as often as needed.

    Raises EncodeError for a message that breaks the addressing table or its own facts, for Replay in 2006/06 (it has
    no such element), and for values that XML cannot carry.
    """
    _verify(message, profile)
    names, soap = NAMES[message.version], SOAP[message.soap]
    try:
        root = etree.Element(
            f"{{{soap.envelope}}}Envelope",
            nsmap={"s": soap.envelope, "a": names.wsa, "wscoor": names.wscoor, "wsat": names.wsat},
        )
        _header(etree.SubElement(root, f"{{{soap.envelope}}}Header"), message)
        _body(etree.SubElement(root, f"{{{soap.envelope}}}Body"), message)
        octets: bytes = etree.tostring(root, xml_declaration=True, encoding="UTF-8")
    except ValueError as error:
        raise EncodeError(f"{message.kind} has a value that XML cannot carry: {error}") from None
    action = message.addressing.action
    if message.soap is Soap.V11:
        return Octets(f"{soap.media_type}; charset=utf-8", octets, f'"{action}"')
    return Octets(f'{soap.media_type}; charset=utf-8; action="{action}"', octets)


def write_context(context: CoordinationContext, version: Version) -> bytes:
    """A document whose root is the CoordinationContext element (UTF-8). Raises EncodeError as `encode` does."""
    names = NAMES[version]
    root = etree.Element(f"{{{names.wscoor}}}CoordinationContext", nsmap={"wscoor": names.wscoor, "a": names.wsa})
    try:
        _context(root, context, version)
    except ValueError as error:
        raise EncodeError(f"the context has a value that XML cannot carry: {error}") from None
    octets: bytes = etree.tostring(root, encoding="UTF-8", xml_declaration=True)
    return octets


def _verify(message: WsMessage, profile: Profile) -> None:
    if message.kind == APPLICATION or message.body is None or isinstance(message.body, Opaque):
        raise EncodeError(f"a message of kind {message.kind} cannot be written without a body of this protocol")
    if message.kind == Note.REPLAY and message.version is Version.V2006:
        raise EncodeError("2006/06 has no Replay: Prepared is sent again instead")
    if isinstance(message.body, Fault) and message.body.code is None:
        raise EncodeError("a fault needs one of the codes of WS-Coordination, WS-AtomicTransaction or MustUnderstand")
    if not message.addressing.to:
        raise EncodeError(f"{message.kind} has no wsa:To")
    for broken in check(message, strict=True, profile=profile):
        # A fault about a message without MessageID relates to the `unspecified` URI, which the writer adds.
        if broken.fatal and not (broken.header == "RelatesTo" and message.kind == FAULT):
            raise EncodeError(broken.sentence)


def _header(header: etree._Element, message: WsMessage) -> None:
    names, space = NAMES[message.version], SOAP[message.soap].envelope
    addressing = message.addressing
    required = {f"{{{space}}}mustUnderstand": "1"}
    etree.SubElement(header, f"{{{names.wsa}}}Action", required).text = addressing.action
    if addressing.message_id:
        etree.SubElement(header, f"{{{names.wsa}}}MessageID").text = addressing.message_id
    relates_to = addressing.relates_to or (names.unspecified if message.kind == FAULT else "")
    if relates_to:
        etree.SubElement(header, f"{{{names.wsa}}}RelatesTo").text = relates_to
    for name, endpoint in (
        ("From", addressing.sender),
        ("ReplyTo", addressing.reply_to),
        ("FaultTo", addressing.fault_to),
    ):
        if endpoint is not None:
            _endpoint(etree.SubElement(header, f"{{{names.wsa}}}{name}"), endpoint, message.version)
    etree.SubElement(header, f"{{{names.wsa}}}To", required).text = addressing.to
    for text in message.echoed:
        block = parse(text)
        if names.wsa == WSA_2005:
            block.set(f"{{{WSA_2005}}}IsReferenceParameter", "true")
        header.append(block)


def _endpoint(element: etree._Element, endpoint: EndpointReference, version: Version) -> None:
    wsa = NAMES[version].wsa
    etree.SubElement(element, f"{{{wsa}}}Address").text = endpoint.address
    if endpoint.parameters:
        parameters = etree.SubElement(element, f"{{{wsa}}}ReferenceParameters")
        parameters.extend([parse(text) for text in endpoint.parameters])


def _body(outer: etree._Element, message: WsMessage) -> None:
    version, body = message.version, message.body
    if isinstance(body, Fault):
        write_fault(outer, body, version, message.soap)
        return
    space = body_namespace(message.kind, version)
    element = etree.SubElement(outer, f"{{{space}}}{message.kind}")
    match body:
        case Create(coordination_type=kind, expires_ms=expires, current=current):
            _expires(element, expires, space)
            if current is not None:
                _context(etree.SubElement(element, f"{{{space}}}CurrentContext"), current, version)
            etree.SubElement(element, f"{{{space}}}CoordinationType").text = kind
        case Created(context=context):
            _context(etree.SubElement(element, f"{{{space}}}CoordinationContext"), context, version)
        case Register(protocol=protocol, participant=participant, identifier=identifier):
            name = etree.SubElement(element, f"{{{space}}}ProtocolIdentifier")
            name.text = protocol_uri(protocol, version) if protocol is not None else identifier
            _endpoint(etree.SubElement(element, f"{{{space}}}ParticipantProtocolService"), participant, version)
        case Registered(coordinator=coordinator):
            _endpoint(etree.SubElement(element, f"{{{space}}}CoordinatorProtocolService"), coordinator, version)
        case _:
            pass


def _context(element: etree._Element, context: CoordinationContext, version: Version) -> None:
    space = NAMES[version].wscoor
    etree.SubElement(element, f"{{{space}}}Identifier").text = context.identifier
    _expires(element, context.expires_ms, space)
    etree.SubElement(element, f"{{{space}}}CoordinationType").text = context.coordination_type
    _endpoint(etree.SubElement(element, f"{{{space}}}RegistrationService"), context.registration, version)
    element.extend([parse(text) for text in context.extensions])


def _expires(element: etree._Element, expires_ms: int | None, space: str) -> None:
    if expires_ms is not None:
        etree.SubElement(element, f"{{{space}}}Expires").text = str(expires_ms)
