"""Delivery channels of one party, with the transports and document exchanges that they use, read from its element."""

from __future__ import annotations

from datetime import timedelta

from partners.cpa.channels import (
    Access,
    Algorithm,
    Channel,
    DigitalEnvelope,
    DocExchange,
    Endpoint,
    EndpointType,
    MessageBinding,
    Namespace,
    NonRepudiation,
    Protocol,
    Reliability,
    Requirement,
    SyncReply,
    Transport,
    TransportReceiver,
    TransportSecurity,
    TransportSender,
)
from partners.cpa.findings import Kind, Matter
from partners.cpa.lexical import has_months, read_duration, read_number
from partners.cpa.nodes import Node


def read_channels(party: Node) -> tuple[Channel, ...]:
    """The channels of a party. A transport or document exchange that no channel uses is left out."""
    found = party.children("DeliveryChannel")
    used = {one.attribute(name) for one in found for name in ("transportId", "docExchangeId")}
    transports = {one.id: one for one in map(_transport, party.used("Transport", "transportId", used))}
    exchanges = {one.id: one for one in map(_doc_exchange, party.used("DocExchange", "docExchangeId", used))}
    return tuple(
        _channel(one, transports[one.attribute("transportId")], exchanges[one.attribute("docExchangeId")])
        for one in found
    )


def read_namespaces(node: Node) -> tuple[Namespace, ...]:
    """The document types that an element says are supported."""
    return tuple(
        Namespace(one.text(), one.attribute("location"), one.attribute("version"), place=one.place)
        for one in node.children("NamespaceSupported")
    )


def _channel(node: Node, transport: Transport, exchange: DocExchange) -> Channel:
    said = node.one("MessagingCharacteristics")
    per_message = Requirement.PER_MESSAGE
    return Channel(
        id=node.attribute("channelId"),
        transport=transport,
        doc_exchange=exchange,
        sync_reply=SyncReply(said.attribute("syncReplyMode") or SyncReply.NONE),
        ack_requested=Requirement(said.attribute("ackRequested") or per_message),
        ack_signature_requested=Requirement(said.attribute("ackSignatureRequested") or per_message),
        duplicate_elimination=Requirement(said.attribute("duplicateElimination") or per_message),
        actor=said.attribute("actor"),
        place=node.place,
    )


def _transport(node: Node) -> Transport:
    sender, receiver = node.child("TransportSender"), node.child("TransportReceiver")
    return Transport(
        id=node.attribute("transportId"),
        sender=_transport_sender(sender) if sender else None,
        receiver=_transport_receiver(receiver) if receiver else None,
        place=node.place,
    )


def _transport_sender(node: Node) -> TransportSender:
    return TransportSender(
        protocol=_protocol(node.one("TransportProtocol")),
        access=_access(node),
        security=_security(node.child("TransportClientSecurity"), "ClientCertificateRef", "ServerSecurityDetailsRef"),
        place=node.place,
    )


def _transport_receiver(node: Node) -> TransportReceiver:
    return TransportReceiver(
        protocol=_protocol(node.one("TransportProtocol")),
        endpoints=tuple(
            Endpoint(
                one.needed("uri"),
                EndpointType(one.attribute("type") or EndpointType.ALL_PURPOSE),
                place=one.place,
            )
            for one in node.children("Endpoint")
        ),
        access=_access(node),
        security=_security(node.child("TransportServerSecurity"), "ServerCertificateRef", "ClientSecurityDetailsRef"),
        place=node.place,
    )


def _access(node: Node) -> tuple[Access, ...]:
    return tuple(Access(one.text()) for one in node.children("AccessAuthentication"))


def _security(node: Node | None, certificate: str, details: str) -> TransportSecurity | None:
    if node is None:
        return None
    return TransportSecurity(
        protocol=_protocol(node.one("TransportSecurityProtocol")),
        certificate_id=_id_in(node, certificate, "certId"),
        security_id=_id_in(node, details, "securityId"),
        encryption=_algorithms(node, "EncryptionAlgorithm"),
        place=node.place,
    )


def _id_in(node: Node, child: str, attribute: str) -> str:
    found = node.child(child)
    return found.attribute(attribute) if found else ""


def _protocol(node: Node) -> Protocol:
    return Protocol(node.text(), node.attribute("version"), place=node.place)


def _algorithms(node: Node, name: str) -> tuple[Algorithm, ...]:
    return tuple(
        Algorithm(
            name=one.text(),
            w3c=one.attribute("w3c"),
            oid=one.attribute("oid"),
            enumeration=one.attribute("enumerationType"),
            minimum_strength=one.read_attribute("minimumStrength", read_number),
            place=one.place,
        )
        for one in node.children(name)
    )


def _doc_exchange(node: Node) -> DocExchange:
    sender, receiver = node.child("ebXMLSenderBinding"), node.child("ebXMLReceiverBinding")
    return DocExchange(
        id=node.attribute("docExchangeId"),
        sender=_message_binding(sender, "Sender") if sender else None,
        receiver=_message_binding(receiver, "Receiver") if receiver else None,
        place=node.place,
    )


def _message_binding(node: Node, side: str) -> MessageBinding:
    reliability, persist = node.child("ReliableMessaging"), node.child("PersistDuration")
    if reliability is None:
        text = "There is no ReliableMessaging here: messages are sent once, and nothing is repeated (best effort)."
        node.note(Kind.MAPPED, Matter.BEST_EFFORT, text)
    signing, envelope = node.child(f"{side}NonRepudiation"), node.child(f"{side}DigitalEnvelope")
    return MessageBinding(
        version=node.attribute("version"),
        reliability=_reliability(reliability) if reliability else None,
        persist_duration=_duration(persist) if persist else None,
        non_repudiation=_non_repudiation(signing) if signing else None,
        envelope=_envelope(envelope) if envelope else None,
        namespaces=read_namespaces(node),
        place=node.place,
    )


def _reliability(node: Node) -> Reliability:
    retries, interval = node.child("Retries"), node.child("RetryInterval")
    return Reliability(
        ordered=node.one("MessageOrderSemantics").text() == "Guaranteed",
        retries=retries.read_text(read_number) if retries else None,
        retry_interval=_duration(interval) if interval else None,
        place=node.place,
    )


def _duration(node: Node) -> timedelta:
    if has_months(node.text()):
        text = f"{node.text()} depends on the calendar: this hub counts 30 days for a month and 365 for a year."
        node.note(Kind.CONFLICTING, Matter.MONTHS, text)
    return node.read_text(read_duration)


def _non_repudiation(node: Node) -> NonRepudiation:
    return NonRepudiation(
        protocol=_protocol(node.one("NonRepudiationProtocol")),
        hash=node.one("HashFunction").text(),
        algorithms=_algorithms(node, "SignatureAlgorithm"),
        certificate_id=_id_in(node, "SigningCertificateRef", "certId"),
        security_id=_id_in(node, "SigningSecurityDetailsRef", "securityId"),
        place=node.place,
    )


def _envelope(node: Node) -> DigitalEnvelope:
    return DigitalEnvelope(
        protocol=_protocol(node.one("DigitalEnvelopeProtocol")),
        encryption=_algorithms(node, "EncryptionAlgorithm"),
        certificate_id=_id_in(node, "EncryptionCertificateRef", "certId"),
        security_id=_id_in(node, "EncryptionSecurityDetailsRef", "securityId"),
        place=node.place,
    )
